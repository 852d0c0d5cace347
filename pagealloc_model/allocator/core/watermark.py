"""Watermark tests, boost, and what a literal replay has of kswapd (S1.6, S1.7, S3.3, S10)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.counters import carefully_seen_free, seen_free, seen_free_cma
from pagealloc_model.allocator.core.event_log import count_transaction
from pagealloc_model.allocator.core.offsets import free_list_at, node_at, zone_at
from pagealloc_model.base.jit import cold, hot, inner


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
        if flags & at.ALLOC_CMA and st[free_list_at(zone, current, st[at.CMA]) + at.HEAD] >= 0:
            return True
        reserve = st[free_list_at(zone, current, at.HIGHATOMIC) + at.HEAD]
        if flags & at.ALLOC_HIGHATOMIC and reserve >= 0:
            return True
    return False


@hot
def pages_above_mark(
    st: np.ndarray, zone: int, order: int, mark: int, highest_type: int, flags: int, free: int
) -> int:
    """Pages left over by the arithmetic of S3.3, negative if they are missing."""
    region = zone_at(zone)
    free -= (1 << order) - 1
    if not flags & (at.ALLOC_NON_BLOCK | at.ALLOC_MIN_RESERVE | at.ALLOC_HIGHATOMIC):
        free -= st[region + st[at.WATERMARK_SUBTRACTS]]
    if not flags & at.ALLOC_CMA:
        free -= seen_free_cma(st, zone)
    needed = mark
    if flags & at.ALLOC_MIN_RESERVE:
        needed -= needed // 2
        if flags & at.ALLOC_NON_BLOCK:
            needed -= needed // 4
    return free - needed - st[region + at.ZONE_LOWMEM_RESERVE + highest_type]


@hot
def above_mark(
    st: np.ndarray, zone: int, order: int, mark: int, highest_type: int, flags: int, free: int
) -> bool:
    """The watermark test of S3.3: mark and the zone's free pages, as far as they are seen."""
    if pages_above_mark(st, zone, order, mark, highest_type, flags, free) <= 0:
        return False
    return order == 0 or has_free_buddy(st, zone, order, flags)


@hot
def passes_watermark(
    st: np.ndarray, zone: int, order: int, mark: int, highest_type: int, flags: int
) -> bool:
    """The allocation path's test: as `above_mark`, some at order 0 retried without boost (S3.3).

    The retry is for requests whose own mark is MIN, whichever mark is tested.
    """
    free = seen_free(st, zone)
    if above_mark(st, zone, order, mark_pages(st, zone, mark), highest_type, flags, free):
        return True
    region = zone_at(zone)
    if order == 0 and flags & at.ALLOC_IGNORES_BOOST and st[region + at.ZONE_BOOST] > 0:
        return above_mark(st, zone, 0, st[region + at.ZONE_MIN], highest_type, flags, free)
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
def is_eligible(st: np.ndarray, zone: int, highest_type: int) -> bool:
    """Whether a zone has pages and is of a type that a run's waker may use (S10.2)."""
    region = zone_at(zone)
    return st[region + at.ZONE_MANAGED] > 0 and st[region + at.ZONE_TYPE] <= highest_type


@inner
def free_in_whole_blocks(st: np.ndarray, zone: int) -> int:
    """Free pages of a zone in buddies of at least pageblock order (S8.6)."""
    free = 0
    for order in range(st[at.PAGEBLOCK_ORDER], st[at.MAX_ORDER] + 1):
        for migratetype in range(at.MIGRATETYPES):
            free += st[free_list_at(zone, order, migratetype) + at.ENTRIES] << order
    return free


@inner
def node_balanced(st: np.ndarray, node: int, order: int, highest_type: int) -> bool:
    """Whether some eligible zone of a node passes its high watermark, or none is there (S10.2)."""
    first = node * st[at.ZONE_TYPES]
    balanced = True
    for zone in range(first, first + highest_type + 1):
        if is_eligible(st, zone, highest_type):
            mark = mark_pages(st, zone, at.WMARK_HIGH)
            free = carefully_seen_free(st, zone)
            if order > 0 and st[at.BLOCK_WATERMARKS]:
                free = free_in_whole_blocks(st, zone)
            if above_mark(st, zone, order, mark, highest_type, 0, free):
                return True
            balanced = False
    return balanced


@inner
def node_boosted(st: np.ndarray, node: int, highest_type: int) -> bool:
    """Whether an eligible zone of a node has a watermark boost (S10.1)."""
    first = node * st[at.ZONE_TYPES]
    for zone in range(first, first + highest_type + 1):
        if st[zone_at(zone) + at.ZONE_BOOST] > 0:
            return True
    return False


@inner
def stop_kswapd(st: np.ndarray, node: int) -> None:
    """End a node's reclaim run: the boosts it saw at its start are taken back (S1.7)."""
    region = node_at(st, node)
    if not st[region + at.NODE_KSWAPD_ACTIVE]:
        return
    st[region + at.NODE_KSWAPD_ACTIVE] = 0
    st[at.KSWAPD_RUNS] -= 1
    first = node * st[at.ZONE_TYPES]
    highest_type = st[region + at.NODE_KSWAPD_HIGHEST]
    for zone in range(first, first + st[at.ZONE_TYPES]):
        region = zone_at(zone)
        st[region + at.ZONE_THRESHOLD] = st[region + at.ZONE_THRESHOLD_ASLEEP]
        if is_eligible(st, zone, highest_type):
            st[region + at.ZONE_RECLAIM_ACTIVE] = 0
            remaining = st[region + at.ZONE_BOOST] - st[region + at.ZONE_REMEMBERED_BOOST]
            st[region + at.ZONE_BOOST] = max(remaining, 0)


@cold
def end_kswapd(st: np.ndarray, log: np.ndarray, node: int) -> None:
    """The same, with a hold of zone->lock counted for each boost taken back (S11.1)."""
    region = node_at(st, node)
    if not st[region + at.NODE_KSWAPD_ACTIVE]:
        return
    highest_type = st[region + at.NODE_KSWAPD_HIGHEST]
    first = node * st[at.ZONE_TYPES]
    for zone in range(first, first + st[at.ZONE_TYPES]):
        if is_eligible(st, zone, highest_type) and st[zone_at(zone) + at.ZONE_REMEMBERED_BOOST] > 0:
            cpu = st[at.EVENT_CPU]
            count_transaction(st, log, at.SITE_BOOST_RESET, zone, cpu, 0, -1, 0, 0)
    stop_kswapd(st, node)


@inner
def start_kswapd(st: np.ndarray, node: int, highest_type: int) -> None:
    """Begin a node's reclaim run: eligible zones are RECLAIM_ACTIVE, their boosts noted (S10.2).

    A run that is under way must have been ended.
    """
    region = node_at(st, node)
    st[region + at.NODE_KSWAPD_ACTIVE] = 1
    st[region + at.NODE_KSWAPD_HIGHEST] = highest_type
    st[at.KSWAPD_RUNS] += 1
    st[at.COUNT_KSWAPD_WAKES] += 1
    first = node * st[at.ZONE_TYPES]
    for zone in range(first, first + st[at.ZONE_TYPES]):
        region = zone_at(zone)
        st[region + at.ZONE_THRESHOLD] = st[region + at.ZONE_THRESHOLD_AWAKE]
        if is_eligible(st, zone, highest_type):
            st[region + at.ZONE_RECLAIM_ACTIVE] = 1
            st[region + at.ZONE_REMEMBERED_BOOST] = st[region + at.ZONE_BOOST]


@cold
def wake_kswapd(st: np.ndarray, node: int, order: int, highest_type: int) -> None:
    """Start a node's reclaim run unless it is balanced and not boosted (S10.1).

    Where the recording has kswapd's own events, runs are theirs and this does nothing. An elastic
    replay notes the wake, for its kswapd to act on.
    """
    if st[at.PRESSURE_BASE]:
        region = node_at(st, node)
        st[region + at.NODE_WAKE_ASKED] = 1
        st[region + at.NODE_WAKE_ORDER] = max(st[region + at.NODE_WAKE_ORDER], order)
        st[region + at.NODE_WAKE_HIGHEST] = max(st[region + at.NODE_WAKE_HIGHEST], highest_type)
        return
    if st[node_at(st, node) + at.NODE_KSWAPD_ACTIVE] or st[at.KSWAPD_RECORDED]:
        return
    if node_boosted(st, node, highest_type) or not node_balanced(st, node, order, highest_type):
        start_kswapd(st, node, highest_type)


@cold
def wake_kswapds(st: np.ndarray, zonelist: int, order: int, highest_type: int) -> None:
    """Wake the nodes of a zonelist, nearest first (S8.1)."""
    woken = -1
    while st[zonelist] >= 0:
        node = st[zone_at(st[zonelist]) + at.ZONE_NODE]
        if node != woken:
            wake_kswapd(st, node, order, highest_type)
        woken = node
        zonelist += 1


@cold
def stop_balanced_kswapds(st: np.ndarray, log: np.ndarray) -> None:
    """End every run of a node that is balanced at order 0 (S10.2)."""
    for node in range(st[at.NR_NODES]):
        region = node_at(st, node)
        active = st[region + at.NODE_KSWAPD_ACTIVE]
        if active and node_balanced(st, node, 0, st[region + at.NODE_KSWAPD_HIGHEST]):
            end_kswapd(st, log, node)
