"""Free pages that a recorded compaction run takes, and pages that it hands over (S10.4, T7)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import __del_page_from_free_list, __rmqueue_smallest
from pagealloc_model.allocator.core.counters import account_freepages, count_at_end
from pagealloc_model.allocator.core.offsets import free_list_at
from pagealloc_model.allocator.core.request import prep_new_page
from pagealloc_model.base.jit import cold, inner


@inner
def take_listed(m: at.MachineArrays, zone: int, order: int, migratetype: int) -> int:
    """Part of fast_isolate_freepages(): take the last buddy of one free list whole.

    Returns its first page; -1 if the list is empty.
    """
    pfn = m.st[free_list_at(zone, order, migratetype) + at.TAIL]
    if pfn >= 0:
        __del_page_from_free_list(m, zone, pfn)
        account_freepages(m, zone, migratetype, -(1 << order))
    return pfn


@inner
def hold_free_pages(
    m: at.MachineArrays, zone: int, order: int, wanted: int, migratetype: int
) -> bool:
    """Part of fast_isolate_freepages(): hold the largest free buddy that is not more than wanted.

    If there is none, a larger one is cut. Returns whether there was one. No hold of zone->lock is
    counted, nor work done under it (S9.9).
    """
    largest = m.st[at.PAGEBLOCK_ORDER] - 1
    while largest > order and 1 << largest > wanted:
        largest -= 1
    pfn = -1
    current = largest + 1
    while pfn < 0 and current > order:
        current -= 1
        pfn = take_listed(m, zone, current, migratetype)
    if pfn < 0:
        splits = m.st[at.WORK_SPLITS]
        pfn = __rmqueue_smallest(m, zone, order, migratetype)
        m.st[at.WORK_SPLITS] = splits
        if pfn >= 0:
            count_at_end(m, zone, 1 << order)
    if pfn < 0:
        return False
    m.st[at.ISOLATED_FROM] = pfn
    m.st[at.ISOLATED_PAGES] = 1 << max(current, order)
    return True


@cold
def isolate_free_page(m: at.MachineArrays, zone: int, order: int, wanted: int) -> int:
    """fast_isolate_freepages(): take the next piece of what one scan isolates (S10.4).

    A scan's pieces come largest first and one after the other, so they use up what is held.

    Args:
        m: the machine.
        zone: number of the zone that is compacted.
        order: of the piece.
        wanted: pages that the scan has yet to take, this piece included.

    Returns:
        The piece's first page; -1 if the zone has no free page left.
    """
    if m.st[at.ISOLATED_PAGES] < 1 << order:
        found = hold_free_pages(m, zone, order, wanted, at.MOVABLE)
        if not found and m.st[at.CMA] >= 0:
            found = hold_free_pages(m, zone, order, wanted, m.st[at.CMA])
        if not found:
            found = hold_free_pages(m, zone, order, wanted, at.RECLAIMABLE)
        if not found and not hold_free_pages(m, zone, order, wanted, at.UNMOVABLE):
            return -1
    pfn = m.st[at.ISOLATED_FROM]
    m.st[at.ISOLATED_FROM] = pfn + (1 << order)
    m.st[at.ISOLATED_PAGES] -= 1 << order
    prep_new_page(m, pfn, order, at.MOVABLE)
    m.pages[pfn]["next"] = -1
    m.pages[pfn]["flags"] = 0
    return pfn


@cold
def capture_page(m: at.MachineArrays, zone: int, order: int, migratetype: int) -> int:
    """compaction_capture(): return where an object is that a direct compactor captured (S9.7).

    The kernel gathered it from the pages that the run freed. Here those lie elsewhere: where no
    free buddy of the order exists, as many pages are gathered one by one, as a chain. Nothing is
    refilled. -1 if the zone has no free page.
    """
    splits = m.st[at.WORK_SPLITS]
    pfn = __rmqueue_smallest(m, zone, order, migratetype)
    m.st[at.WORK_SPLITS] = splits
    if pfn >= 0:
        count_at_end(m, zone, 1 << order)
        prep_new_page(m, pfn, order, migratetype)
        m.pages[pfn]["next"] = -1
        m.pages[pfn]["flags"] = 0
        return pfn
    m.st[at.COUNT_IN_BASE_PAGES] += 1
    first = -1
    left = 1 << order
    while left > 0:
        pfn = isolate_free_page(m, zone, 0, left)
        if pfn < 0:
            m.st[at.COUNT_FAILED] += 1
            left = 0
        else:
            m.pages[pfn]["next"] = first
            first = pfn
            left -= 1
    return at.CHAINED - first if first >= 0 else -1
