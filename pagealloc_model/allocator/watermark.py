"""Watermark tests, boost, and what a literal replay has of kswapd (S1.6, S1.7, S3.3, S10)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.buddy import free_list_at, zone_at
from pagealloc_model.jit import inner


@inner
def mark_pages(st: np.ndarray, zone: int, mark: int) -> int:
    """A watermark with the boost, pages; `mark` is WMARK_MIN, WMARK_LOW or WMARK_HIGH."""
    region = zone_at(zone)
    return st[region + at.ZONE_MIN + mark] + st[region + at.ZONE_BOOST]


@inner
def has_free_buddy(st: np.ndarray, zone: int, order: int, flags: int) -> bool:
    """Whether a request of this order could be cut from some list it may use (S3.3)."""
    for current in range(order, st[at.MAX_ORDER] + 1):
        for migratetype in range(at.PCP_TYPES):
            if st[free_list_at(zone, current, migratetype) + at.HEAD] >= 0:
                return True
        reserve = st[free_list_at(zone, current, at.HIGHATOMIC) + at.HEAD]
        if flags & at.ALLOC_HIGHATOMIC and reserve >= 0:
            return True
    return False


@inner
def above_mark(
    st: np.ndarray, zone: int, order: int, mark: int, highest_zone: int, flags: int
) -> bool:
    """The watermark test of S3.3 against a mark in pages."""
    region = zone_at(zone)
    free = st[region + at.ZONE_FREE] - ((1 << order) - 1)
    if not flags & (at.ALLOC_NON_BLOCK | at.ALLOC_MIN_RESERVE | at.ALLOC_HIGHATOMIC):
        free -= st[region + at.ZONE_FREE_HIGHATOMIC]
    needed = mark
    if flags & at.ALLOC_MIN_RESERVE:
        needed -= needed // 2
        if flags & at.ALLOC_NON_BLOCK:
            needed -= needed // 4
    if free <= needed + st[region + at.ZONE_LOWMEM_RESERVE + highest_zone]:
        return False
    return order == 0 or has_free_buddy(st, zone, order, flags)


@inner
def passes_watermark(
    st: np.ndarray, zone: int, order: int, mark: int, highest_zone: int, flags: int
) -> bool:
    """The allocation path's test: as `above_mark`, order-0 reserves retried without boost (S3.3).

    The retry is for requests whose own mark is MIN, whichever mark is tested.
    """
    if above_mark(st, zone, order, mark_pages(st, zone, mark), highest_zone, flags):
        return True
    region = zone_at(zone)
    keeps_min = flags & at.WMARK_MASK == at.WMARK_MIN and flags & at.ALLOC_MIN_RESERVE
    if order == 0 and keeps_min and st[region + at.ZONE_BOOST] > 0:
        return above_mark(st, zone, 0, st[region + at.ZONE_MIN], highest_zone, flags)
    return False


@inner
def boost_watermark(st: np.ndarray, zone: int) -> bool:
    """Raise the zone's watermarks after a fallback within a block (S1.7); False if switched off."""
    region = zone_at(zone)
    factor = st[at.BOOST_FACTOR]
    block_pages = 1 << st[at.PAGEBLOCK_ORDER]
    if factor == 0 or 4 * block_pages > st[region + at.ZONE_MANAGED]:
        return False
    cap = st[region + at.ZONE_HIGH] * factor // 10000
    if cap == 0:
        return False
    cap = max(cap, block_pages)
    st[region + at.ZONE_BOOST] = min(st[region + at.ZONE_BOOST] + block_pages, cap)
    return True


@inner
def node_balanced(st: np.ndarray, order: int, highest_zone: int) -> bool:
    """Whether some eligible zone passes its high watermark (S10.2)."""
    for zone in range(highest_zone + 1):
        if st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            mark = mark_pages(st, zone, at.WMARK_HIGH)
            if above_mark(st, zone, order, mark, highest_zone, 0):
                return True
    return False


@inner
def wake_kswapd(st: np.ndarray, order: int, highest_zone: int) -> None:
    """Start a reclaim run unless the node is balanced and not boosted (S10.1).

    Where the recording has kswapd's own events, runs are theirs and this does nothing.
    """
    if st[at.KSWAPD_ACTIVE] or st[at.KSWAPD_RECORDED]:
        return
    boosted = False
    for zone in range(highest_zone + 1):
        if st[zone_at(zone) + at.ZONE_BOOST] > 0:
            boosted = True
    if not boosted and node_balanced(st, order, highest_zone):
        return
    st[at.KSWAPD_HIGHEST] = highest_zone
    start_kswapd(st)


@inner
def start_kswapd(st: np.ndarray) -> None:
    """Begin a reclaim run: zones are RECLAIM_ACTIVE, their boosts noted (S10.2)."""
    st[at.KSWAPD_ACTIVE] = 1
    st[at.COUNT_KSWAPD_WAKES] += 1
    for zone in range(st[at.NR_ZONES]):
        region = zone_at(zone)
        st[region + at.ZONE_RECLAIM_ACTIVE] = 1
        st[region + at.ZONE_REMEMBERED_BOOST] = st[region + at.ZONE_BOOST]


@inner
def stop_kswapd(st: np.ndarray) -> None:
    """End a reclaim run: the boost it saw at its start is taken back (S1.7)."""
    st[at.KSWAPD_ACTIVE] = 0
    for zone in range(st[at.NR_ZONES]):
        region = zone_at(zone)
        st[region + at.ZONE_RECLAIM_ACTIVE] = 0
        remaining = st[region + at.ZONE_BOOST] - st[region + at.ZONE_REMEMBERED_BOOST]
        st[region + at.ZONE_BOOST] = max(remaining, 0)
