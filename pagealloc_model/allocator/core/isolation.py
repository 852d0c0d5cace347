"""Free pages that a recorded compaction run takes, and pages that it hands over (S10.4, T7)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import remove_buddy, take_smallest_fit
from pagealloc_model.allocator.core.counters import account_free
from pagealloc_model.allocator.core.offsets import free_list_at
from pagealloc_model.allocator.core.request import mark_allocated
from pagealloc_model.base.jit import cold, inner


@inner
def take_listed(pages: np.ndarray, st: np.ndarray, zone: int, order: int, migratetype: int) -> int:
    """Take the last buddy of one free list whole; -1 if the list is empty."""
    pfn = st[free_list_at(zone, order, migratetype) + at.TAIL]
    if pfn >= 0:
        remove_buddy(pages, st, zone, pfn)
        account_free(st, zone, migratetype, -(1 << order))
    return pfn


@inner
def hold_free_pages(
    pages: np.ndarray, st: np.ndarray, zone: int, order: int, wanted: int, migratetype: int
) -> bool:
    """Hold the largest free buddy of one type that is not more than wanted, or cut a larger one.

    Whether there was one. No hold of zone->lock is counted, nor work done under it (S9.9).
    """
    largest = st[at.PAGEBLOCK_ORDER] - 1
    while largest > order and 1 << largest > wanted:
        largest -= 1
    pfn = -1
    current = max(largest, order) + 1
    while pfn < 0 and current > order:
        current -= 1
        pfn = take_listed(pages, st, zone, current, migratetype)
    if pfn < 0:
        splits = st[at.WORK_SPLITS]
        pfn = take_smallest_fit(pages, st, zone, order, migratetype)
        st[at.WORK_SPLITS] = splits
    if pfn < 0:
        return False
    st[at.ISOLATED_FROM] = pfn
    st[at.ISOLATED_PAGES] = 1 << current
    return True


@cold
def isolate_free_page(pages: np.ndarray, st: np.ndarray, zone: int, order: int, wanted: int) -> int:
    """Take the next piece of what one scan of compaction isolates (fast_isolate_freepages).

    A scan's pieces come largest first and one after the other, so they use up what is held.

    Args:
        pages: `layout.PAGE` records.
        st: the state's words.
        zone: number of the zone that is compacted.
        order: of the piece.
        wanted: pages that the scan has yet to take, this piece included.

    Returns:
        The piece's first page; -1 if the zone has no free page left.
    """
    if st[at.ISOLATED_PAGES] < 1 << order:
        found = hold_free_pages(pages, st, zone, order, wanted, at.MOVABLE)
        if not found and st[at.CMA] >= 0:
            found = hold_free_pages(pages, st, zone, order, wanted, st[at.CMA])
        if not found:
            found = hold_free_pages(pages, st, zone, order, wanted, at.RECLAIMABLE)
        if not found and not hold_free_pages(pages, st, zone, order, wanted, at.UNMOVABLE):
            return -1
    pfn = st[at.ISOLATED_FROM]
    st[at.ISOLATED_FROM] = pfn + (1 << order)
    st[at.ISOLATED_PAGES] -= 1 << order
    mark_allocated(pages, pfn, order, at.MOVABLE)
    pages[pfn]["next"] = -1
    pages[pfn]["flags"] = 0
    return pfn


@cold
def capture_page(pages: np.ndarray, st: np.ndarray, zone: int, order: int, migratetype: int) -> int:
    """The place of an object that a direct compactor captured (compaction_capture, S9.7).

    The kernel gathered it from the pages that the run freed. Here those lie elsewhere: where no
    free buddy of the order exists, as many pages are gathered one by one, as a chain. Nothing is
    refilled. -1 if the zone has no free page.
    """
    splits = st[at.WORK_SPLITS]
    pfn = take_smallest_fit(pages, st, zone, order, migratetype)
    st[at.WORK_SPLITS] = splits
    if pfn >= 0:
        mark_allocated(pages, pfn, order, migratetype)
        pages[pfn]["next"] = -1
        pages[pfn]["flags"] = 0
        return pfn
    st[at.COUNT_IN_BASE_PAGES] += 1
    first = -1
    left = 1 << order
    while left > 0:
        pfn = isolate_free_page(pages, st, zone, 0, left)
        if pfn < 0:
            st[at.COUNT_FAILED] += 1
            left = 0
        else:
            pages[pfn]["next"] = first
            first = pfn
            left -= 1
    return at.CHAINED - first if first >= 0 else -1
