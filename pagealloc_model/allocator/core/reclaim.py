"""Direct reclaim as recorded: whether it ran, and whether what it freed sufficed (S8.2, S10.4)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.alloc_flags import fast_path_flags, slow_path_flags
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import zonelist_at
from pagealloc_model.allocator.core.watermark import has_free_buddy, mark_pages, pages_above_mark
from pagealloc_model.base.jit import inner


@inner
def margin_of(st: np.ndarray, zone: int, order: int, highest_type: int, flags: int) -> int:
    """Pages above a zone's min mark with its boost, negative if they are missing (S3.3)."""
    mark = mark_pages(st, zone, at.WMARK_MIN)
    return pages_above_mark(st, zone, order, mark, highest_type, flags, seen_free(st, zone))


@inner
def zone_nearest_to_its_mark(
    st: np.ndarray, zonelist: int, order: int, highest_type: int, flags: int
) -> int:
    """The zone of a zonelist with most pages above its min mark, or fewest missing (S3.3).

    -1 if the list is empty.

    A request that the kernel served after reclaim was served where reclaim had least left to do.
    """
    best = st[zonelist]
    best_margin = -(1 << 60)
    position = zonelist
    while st[position] >= 0:
        zone = st[position]
        margin = margin_of(st, zone, order, highest_type, flags)
        if margin > best_margin:
            best = zone
            best_margin = margin
        position += 1
    return best


@inner
def direct_reclaim_ran(st: np.ndarray, bits: int) -> bool:
    """Whether a request that may reclaim directly did: as recorded, else always (S8.2)."""
    if not bits & at.GFP_DIRECT_RECLAIM:
        return False
    return not st[at.DIRECT_RECLAIM_RECORDED] or bits & at.REQUEST_RECLAIMED != 0


@inner
def begin_reclaim(
    st: np.ndarray, cpu: int, order: int, migratetype: int, highest_type: int, bits: int
) -> None:
    """Note how far a request is from its mark, in the zone nearest to it, as its reclaim begins."""
    zonelist = zonelist_at(st, cpu, highest_type, bits)
    flags = slow_path_flags(st, bits, order, fast_path_flags(st, zonelist, migratetype, bits))
    zone = zone_nearest_to_its_mark(st, zonelist, order, highest_type, flags)
    number = (bits & at.REQUEST_RECLAIMED) >> at.RECLAIM_SHIFT
    margin = margin_of(st, zone, order, highest_type, flags) if zone >= 0 else 0
    st[at.RECLAIM_MARGINS + number] = min(margin, 0)


@inner
def reclaim_sufficed(
    st: np.ndarray, zonelist: int, order: int, highest_type: int, flags: int, bits: int
) -> bool:
    """Whether the kernel's retry after a recorded direct reclaim found its page (S8.2, S10.4).

    The kernel was at its mark when reclaim began, wherever the replay was: what counts is whether
    free pages have become more since.
    """
    number = (bits & at.REQUEST_RECLAIMED) >> at.RECLAIM_SHIFT
    zone = zone_nearest_to_its_mark(st, zonelist, order, highest_type, flags)
    if number == 0 or zone < 0:
        return False
    margin = margin_of(st, zone, order, highest_type, flags)
    if margin <= st[at.RECLAIM_MARGINS + number]:
        return False
    return order == 0 or has_free_buddy(st, zone, order, flags)
