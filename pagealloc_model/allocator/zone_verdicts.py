"""Whether each zone would serve one request as memory stands, and why not; nothing is taken.

S2.5, S2.6, S3.3, S8.1, S9.1 and S9.2.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.compaction import (
    compaction_suit_allocation_order,
    fragmentation_index,
    gfp_compaction_allowed,
)
from pagealloc_model.allocator.watermark import (
    fast_path_flags,
    gfp_to_alloc_flags,
    has_free_buddy,
    pages_above_mark,
    prepare_alloc_pages,
    seen_free,
    wmark_pages,
    zone_watermark_fast,
)
from pagealloc_model.base.jit import entry

_WORDS = range(11)
PLACE, PASSES_LOW, PASSES_MIN, USABLE, NEEDED, RESERVE, ABOVE, HAS_BUDDY = _WORDS[:8]
ABOVE_LOW, COMPACTION, INDEX = _WORDS[8:]
VERDICT_WORDS = len(_WORDS)
"""Words of a zone's verdict: its place in the zonelist from 1 on, 0 if it is not in it; whether the
first attempt passes at the low mark and a later one at the min mark; of the later one: free pages
that count for it, pages of the mark that it must leave, lowmem_reserve, pages above both (at most 0
if it fails), whether a list that it may use has a buddy; pages above the low mark at the first
attempt; whether compaction is worth a try (`pressure_layout`); the fragmentation index."""


@entry
def zone_verdicts(
    m: at.Arrays,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    bits: int,
    verdicts: np.ndarray,
) -> tuple[int, int, bool]:
    """Part of get_page_from_freelist(): judge every zone of a request's zonelist (S3.1, S3.3).

    Returns:
        The flags of the first attempt and of later ones, and whether the request may compact.
    """
    ac = prepare_alloc_pages(m, cpu, order, migratetype, highest_type, bits)
    first = fast_path_flags(m, ac)
    later = gfp_to_alloc_flags(m, ac, first)
    position = ac.zonelist
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        free = seen_free(m, zone)
        low = wmark_pages(m, zone, at.WMARK_LOW)
        least = wmark_pages(m, zone, at.WMARK_MIN)
        if order == 0 and later & at.ALLOC_IGNORES_BOOST:
            least = m.st[at.zone_at(zone) + at.ZONE_MIN]
        above = pages_above_mark(m, zone, order, least, highest_type, later, free)
        unmarked = pages_above_mark(m, zone, order, 0, highest_type, later, free)
        reserve = m.st[at.zone_at(zone) + at.ZONE_LOWMEM_RESERVE + highest_type]
        row = verdicts[zone]
        row[PLACE] = position - ac.zonelist
        row[PASSES_LOW] = zone_watermark_fast(m, zone, order, at.WMARK_LOW, highest_type, first)
        row[PASSES_MIN] = zone_watermark_fast(m, zone, order, at.WMARK_MIN, highest_type, later)
        row[USABLE] = unmarked + reserve
        row[NEEDED] = unmarked - above
        row[RESERVE] = reserve
        row[ABOVE] = above
        row[HAS_BUDDY] = order == 0 or has_free_buddy(m, zone, order, later)
        row[ABOVE_LOW] = pages_above_mark(m, zone, order, low, highest_type, first, free)
        row[COMPACTION] = compaction_suit_allocation_order(
            m, zone, order, later, highest_type, free, False
        )
        row[INDEX] = fragmentation_index(m, zone, order)
    return first, later, order > 0 and gfp_compaction_allowed(m, ac.bits)
