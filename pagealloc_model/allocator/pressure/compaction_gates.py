"""Whether compaction of a zone is worth a try: suitability, fragmentation, deferral (S9)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.allocator.core.watermark import above_mark, mark_pages
from pagealloc_model.allocator.pressure.pressure_offsets import value_of, zone_pressure_at
from pagealloc_model.base.jit import inner

THP_ORDER = 9
"""Free pages in smaller buddies than this are fragmented, for proactive compaction (S9.6)."""


@inner
def compact_gap(st: np.ndarray, order: int) -> int:
    """Free pages that compaction for an order needs beside the watermark (S9.1)."""
    gap = 2 << order
    most = value_of(st, pr.COMPACT_GAP_MAX)
    return min(gap, most) if most > 0 else gap


@inner
def buddies_of(st: np.ndarray, zone: int, order: int) -> int:
    """Free buddies of an order, all types."""
    count = 0
    for migratetype in range(at.MIGRATETYPES):
        count += st[free_list_at(zone, order, migratetype) + at.ENTRIES]
    return count


@inner
def fragmentation_index(st: np.ndarray, zone: int, order: int) -> int:
    """How much a failure of this order would be due to fragmentation, per mille (S9.2)."""
    free = 0
    buddies = 0
    for current in range(st[at.MAX_ORDER] + 1):
        count = buddies_of(st, zone, current)
        if current >= order and count > 0:
            return -1000
        buddies += count
        free += count << current
    if buddies == 0:
        return 0
    return 1000 - (1000 + free * 1000 // (1 << order)) // buddies


@inner
def fragmentation_score(st: np.ndarray, zone: int) -> int:
    """Percentage of a zone's free pages that lie in small buddies (S9.6)."""
    free = 0
    whole = 0
    for order in range(st[at.MAX_ORDER] + 1):
        size = buddies_of(st, zone, order) << order
        free += size
        if order >= THP_ORDER:
            whole += size
    return (free - whole) * 100 // free if free > 0 else 0


@inner
def gate(
    st: np.ndarray, zone: int, order: int, mark: int, flags: int, highest_type: int, free: int
) -> int:
    """SUCCESS if no compaction is needed, SKIPPED if it is of no use, else CONTINUE (S9.1)."""
    wanted = mark_pages(st, zone, mark)
    if above_mark(st, zone, order, wanted, highest_type, flags, free):
        return pr.SUCCESS
    if not is_suitable(st, zone, order, wanted, highest_type, st[zone_at(zone) + at.ZONE_FREE]):
        return pr.SKIPPED
    if order > st[at.COSTLY_ORDER]:
        index = fragmentation_index(st, zone, order)
        if 0 <= index <= value_of(st, pr.EXTFRAG_THRESHOLD):
            return pr.SKIPPED
    return pr.CONTINUE


@inner
def is_suitable(
    st: np.ndarray, zone: int, order: int, wanted: int, highest_type: int, free: int
) -> bool:
    """Whether a zone has free pages enough to move others to (S9.1).

    Args:
        st: state.
        zone: its number.
        order: of the page asked for.
        wanted: the request's own mark, pages.
        highest_type: of the zones the request may use.
        free: free pages, or what would be free.
    """
    is_costly = order > st[at.COSTLY_ORDER]
    low = mark_pages(st, zone, at.WMARK_LOW)
    least = mark_pages(st, zone, at.WMARK_MIN)
    if not value_of(st, pr.SUITABLE_BY_REQUEST_MARK):
        wanted = low if is_costly else least
    elif is_costly:
        wanted += low - least
    wanted += compact_gap(st, order)
    return above_mark(st, zone, 0, wanted, highest_type, at.ALLOC_CMA, free)


@inner
def is_deferred(st: np.ndarray, zone: int, order: int) -> bool:
    """Whether an attempt is left out after failures; counts it (S9.5)."""
    words = zone_pressure_at(st, zone)
    limit = 1 << st[words + pr.ZONE_DEFER_SHIFT]
    if order < st[words + pr.ZONE_ORDER_FAILED]:
        return False
    st[words + pr.ZONE_CONSIDERED] += 1
    if st[words + pr.ZONE_CONSIDERED] >= limit:
        st[words + pr.ZONE_CONSIDERED] = limit
        return False
    return True


@inner
def defer(st: np.ndarray, zone: int, order: int) -> None:
    """Leave out later attempts, twice as many as after the last failure (S9.5)."""
    words = zone_pressure_at(st, zone)
    shift = min(st[words + pr.ZONE_DEFER_SHIFT] + 1, pr.DEFER_SHIFT_MAX)
    st[words + pr.ZONE_CONSIDERED] = 0
    st[words + pr.ZONE_DEFER_SHIFT] = shift
    st[words + pr.ZONE_ORDER_FAILED] = min(st[words + pr.ZONE_ORDER_FAILED], order)


@inner
def defer_no_more(st: np.ndarray, zone: int, order: int, allocated: bool) -> None:
    """An attempt of this order succeeded, perhaps with a page allocated (S9.5)."""
    words = zone_pressure_at(st, zone)
    if allocated:
        st[words + pr.ZONE_CONSIDERED] = 0
        st[words + pr.ZONE_DEFER_SHIFT] = 0
    if order >= st[words + pr.ZONE_ORDER_FAILED]:
        st[words + pr.ZONE_ORDER_FAILED] = order + 1


@inner
def is_restarting(st: np.ndarray, zone: int, order: int) -> bool:
    """Whether attempts have been left out for as long as they ever are (S9.5)."""
    words = zone_pressure_at(st, zone)
    return (
        order >= st[words + pr.ZONE_ORDER_FAILED]
        and st[words + pr.ZONE_DEFER_SHIFT] == pr.DEFER_SHIFT_MAX
        and st[words + pr.ZONE_CONSIDERED] >= 1 << pr.DEFER_SHIFT_MAX
    )


@inner
def last_block_of(st: np.ndarray, zone: int) -> int:
    """First page of a zone's last pageblock."""
    order = st[at.PAGEBLOCK_ORDER]
    return (st[zone_at(zone) + at.ZONE_END] - 1) >> order << order


@inner
def first_page_of(st: np.ndarray, zone: int) -> int:
    """First page of a zone's first pageblock."""
    order = st[at.PAGEBLOCK_ORDER]
    return st[zone_at(zone) + at.ZONE_START] >> order << order


@inner
def reset_positions(st: np.ndarray, zone: int) -> None:
    """Let the scanners begin at the zone's ends again (S9.3)."""
    words = zone_pressure_at(st, zone)
    st[words + pr.ZONE_MIGRATE_ASYNC] = first_page_of(st, zone)
    st[words + pr.ZONE_MIGRATE_SYNC] = first_page_of(st, zone)
    st[words + pr.ZONE_FREE_FROM] = last_block_of(st, zone)


@inner
def forget_skips(st: np.ndarray, blocks: np.ndarray, folios: np.ndarray, zone: int) -> None:
    """Clear the skip marks of a zone's blocks (S9.3)."""
    order = st[at.PAGEBLOCK_ORDER]
    st[zone_pressure_at(st, zone) + pr.ZONE_FLUSH_SKIPS] = 0
    first = first_page_of(st, zone) >> order
    for block in range(first, (last_block_of(st, zone) >> order) + 1):
        if int(blocks[block]["zone"]) == zone + 1:
            folios[block << order]["skip"] = 0
    reset_positions(st, zone)
