"""Direct reclaim as recorded: whether it ran, and whether what it freed sufficed (S8.2, S10.4)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.alloc_context import (
    AllocContext,
    fast_path_flags,
    gfp_to_alloc_flags,
)
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.watermark import has_free_buddy, pages_above_mark, wmark_pages
from pagealloc_model.base.jit import inner


@inner
def margin_of(m: at.MachineArrays, ac: AllocContext, zone: int, flags: int) -> int:
    """Part of __zone_watermark_ok(): return the pages above a zone's min mark (S3.3).

    The mark has its boost. The result is negative if pages are missing.
    """
    mark = wmark_pages(m, zone, at.WMARK_MIN)
    free = seen_free(m, zone)
    return pages_above_mark(m, zone, ac.order, mark, ac.highest_type, flags, free)


@inner
def zone_nearest_to_its_mark(m: at.MachineArrays, ac: AllocContext, flags: int) -> int:
    """No kernel function: return the zone with most pages above its min mark, or -1 (S3.3).

    If all lack pages it is the one that lacks fewest; -1 if the list is empty.

    A request that the kernel served after reclaim was served where reclaim had least left to do.
    """
    best = m.st[ac.zonelist]
    best_margin = -(1 << 60)
    position = ac.zonelist
    while m.st[position] >= 0:
        zone = m.st[position]
        margin = margin_of(m, ac, zone, flags)
        if margin > best_margin:
            best = zone
            best_margin = margin
        position += 1
    return best


@inner
def direct_reclaim_ran(m: at.MachineArrays, bits: int) -> bool:
    """No kernel function: return whether a request reclaimed directly (S8.2).

    A request that may do so did as recorded, else always.
    """
    if not bits & at.GFP_DIRECT_RECLAIM:
        return False
    return not m.st[at.DIRECT_RECLAIM_RECORDED] or bits & at.REQUEST_RECLAIMED != 0


@inner
def begin_reclaim(m: at.MachineArrays, ac: AllocContext) -> None:
    """No kernel function: note how far a request is from its mark as its reclaim begins.

    The zone nearest to its mark counts.
    """
    flags = gfp_to_alloc_flags(m, ac, fast_path_flags(m, ac))
    zone = zone_nearest_to_its_mark(m, ac, flags)
    number = (ac.bits & at.REQUEST_RECLAIMED) >> at.RECLAIM_SHIFT
    margin = margin_of(m, ac, zone, flags) if zone >= 0 else 0
    m.st[at.RECLAIM_MARGINS + number] = min(margin, 0)


@inner
def reclaim_sufficed(m: at.MachineArrays, ac: AllocContext, flags: int) -> bool:
    """No kernel function: return whether the retry after reclaim found a page (S8.2, S10.4).

    It is the kernel's retry after a recorded direct reclaim. The kernel was at its mark when
    reclaim began, wherever the replay was: what counts is whether free pages have become more
    since.
    """
    number = (ac.bits & at.REQUEST_RECLAIMED) >> at.RECLAIM_SHIFT
    zone = zone_nearest_to_its_mark(m, ac, flags)
    if number == 0 or zone < 0:
        return False
    margin = margin_of(m, ac, zone, flags)
    if margin <= m.st[at.RECLAIM_MARGINS + number]:
        return False
    return ac.order == 0 or has_free_buddy(m, zone, ac.order, flags)
