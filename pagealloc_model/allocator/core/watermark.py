"""Watermark tests, boost, and what a literal replay has of kswapd (S1.6, S1.7, S3.3, S10)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.counters import carefully_seen_free, seen_free, seen_free_cma
from pagealloc_model.allocator.core.event_log import count_transaction
from pagealloc_model.allocator.core.offsets import free_list_at, node_at, zone_at
from pagealloc_model.base.jit import cold, hot, inner


@inner
def wmark_pages(m: at.MachineArrays, zone: int, mark: int) -> int:
    """wmark_pages(): return a watermark with the boost, pages.

    `mark` is WMARK_MIN, WMARK_LOW or WMARK_HIGH.
    """
    region = zone_at(zone)
    return m.st[region + at.ZONE_MIN + mark] + m.st[region + at.ZONE_BOOST]


@inner
def has_free_buddy(m: at.MachineArrays, zone: int, order: int, flags: int) -> bool:
    """Part of __zone_watermark_ok(): return whether some usable list can serve an order (S3.3)."""
    for current in range(order, m.st[at.MAX_ORDER] + 1):
        for migratetype in range(at.PCP_TYPES):
            if m.st[free_list_at(zone, current, migratetype) + at.HEAD] >= 0:
                return True
        if flags & at.ALLOC_CMA and m.st[free_list_at(zone, current, m.st[at.CMA]) + at.HEAD] >= 0:
            return True
        reserve = m.st[free_list_at(zone, current, at.HIGHATOMIC) + at.HEAD]
        if flags & at.ALLOC_HIGHATOMIC and reserve >= 0:
            return True
    return False


@hot
def pages_above_mark(
    m: at.MachineArrays, zone: int, order: int, mark: int, highest_type: int, flags: int, free: int
) -> int:
    """Part of __zone_watermark_ok(): return the pages above the mark (S3.3).

    The result is negative if pages are missing.
    """
    region = zone_at(zone)
    free -= (1 << order) - 1
    if not flags & (at.ALLOC_NON_BLOCK | at.ALLOC_MIN_RESERVE | at.ALLOC_HIGHATOMIC):
        free -= m.st[region + m.st[at.WATERMARK_SUBTRACTS]]
    if not flags & at.ALLOC_CMA:
        free -= seen_free_cma(m, zone)
    needed = mark
    if flags & at.ALLOC_MIN_RESERVE:
        needed -= needed // 2
        if flags & at.ALLOC_NON_BLOCK:
            needed -= needed // 4
    return free - needed - m.st[region + at.ZONE_LOWMEM_RESERVE + highest_type]


@hot
def __zone_watermark_ok(
    m: at.MachineArrays, zone: int, order: int, mark: int, highest_type: int, flags: int, free: int
) -> bool:
    """__zone_watermark_ok(): return whether `free` pages suffice above a mark (S3.3).

    They are the zone's free pages as far as they are seen.
    """
    if pages_above_mark(m, zone, order, mark, highest_type, flags, free) <= 0:
        return False
    return order == 0 or has_free_buddy(m, zone, order, flags)


@hot
def zone_watermark_fast(
    m: at.MachineArrays, zone: int, order: int, mark: int, highest_type: int, flags: int
) -> bool:
    """zone_watermark_fast(): return whether a zone passes the allocation path's test (S3.3).

    It is as `__zone_watermark_ok`, some requests of order 0 being tested again without boost: those
    whose own mark is MIN, whichever mark is tested.
    """
    free = seen_free(m, zone)
    if __zone_watermark_ok(m, zone, order, wmark_pages(m, zone, mark), highest_type, flags, free):
        return True
    region = zone_at(zone)
    if order == 0 and flags & at.ALLOC_IGNORES_BOOST and m.st[region + at.ZONE_BOOST] > 0:
        return __zone_watermark_ok(
            m, zone, 0, m.st[region + at.ZONE_MIN], highest_type, flags, free
        )
    return False


@inner
def boost_watermark(m: at.MachineArrays, zone: int) -> bool:
    """boost_watermark(): raise the zone's watermarks after a fallback within a block (S1.7).

    Returns False if boosting is switched off.
    """
    region = zone_at(zone)
    factor = m.st[at.POLICY_WATERMARK_BOOST_FACTOR]
    block_pages = 1 << m.st[at.PAGEBLOCK_ORDER]
    if factor == 0 or 4 * block_pages > m.st[region + at.ZONE_MANAGED]:
        return False
    cap = m.st[region + at.ZONE_HIGH] * factor // 10000
    if cap == 0:
        return False
    cap = max(cap, block_pages)
    m.st[region + at.ZONE_BOOST] = min(m.st[region + at.ZONE_BOOST] + block_pages, cap)
    return True


@inner
def is_eligible(m: at.MachineArrays, zone: int, highest_type: int) -> bool:
    """Part of pgdat_balanced(): return whether a run's waker may use a zone with pages (S10.2)."""
    region = zone_at(zone)
    return m.st[region + at.ZONE_MANAGED] > 0 and m.st[region + at.ZONE_TYPE] <= highest_type


@inner
def free_in_whole_blocks(m: at.MachineArrays, zone: int) -> int:
    """No kernel function: return the free pages in whole pageblocks (S8.6).

    They are those of a zone, in buddies of at least pageblock order, the kernel's
    NR_FREE_PAGES_BLOCKS.
    """
    free = 0
    for order in range(m.st[at.PAGEBLOCK_ORDER], m.st[at.MAX_ORDER] + 1):
        for migratetype in range(at.MIGRATETYPES):
            free += m.st[free_list_at(zone, order, migratetype) + at.ENTRIES] << order
    return free


@inner
def pgdat_balanced(m: at.MachineArrays, node: int, order: int, highest_type: int) -> bool:
    """pgdat_balanced(): return whether an eligible zone passes its high mark (S10.2).

    Also True if the node has no such zone.
    """
    first = node * m.st[at.ZONE_TYPES]
    balanced = True
    for zone in range(first, first + highest_type + 1):
        if is_eligible(m, zone, highest_type):
            mark = wmark_pages(m, zone, at.WMARK_HIGH)
            free = carefully_seen_free(m, zone)
            if order > 0 and m.st[at.BLOCK_WATERMARKS]:
                free = free_in_whole_blocks(m, zone)
            if __zone_watermark_ok(m, zone, order, mark, highest_type, 0, free):
                return True
            balanced = False
    return balanced


@inner
def pgdat_watermark_boosted(m: at.MachineArrays, node: int, highest_type: int) -> bool:
    """pgdat_watermark_boosted(): return whether an eligible zone has a boost (S10.1)."""
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest_type + 1):
        if m.st[zone_at(zone) + at.ZONE_BOOST] > 0:
            return True
    return False


@inner
def stop_kswapd(m: at.MachineArrays, node: int) -> None:
    """Part of balance_pgdat(): end a node's reclaim run (S1.7).

    The boosts it saw at its start are taken back.
    """
    region = node_at(m, node)
    if not m.st[region + at.NODE_KSWAPD_ACTIVE]:
        return
    m.st[region + at.NODE_KSWAPD_ACTIVE] = 0
    m.st[at.KSWAPD_RUNS] -= 1
    first = node * m.st[at.ZONE_TYPES]
    highest_type = m.st[region + at.NODE_KSWAPD_HIGHEST]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        region = zone_at(zone)
        m.st[region + at.ZONE_THRESHOLD] = m.st[region + at.ZONE_THRESHOLD_ASLEEP]
        if is_eligible(m, zone, highest_type):
            m.st[region + at.ZONE_RECLAIM_ACTIVE] = 0
            remaining = m.st[region + at.ZONE_BOOST] - m.st[region + at.ZONE_REMEMBERED_BOOST]
            m.st[region + at.ZONE_BOOST] = max(remaining, 0)


@cold
def end_kswapd(m: at.MachineArrays, node: int) -> None:
    """Part of balance_pgdat(): end a run; count a hold of zone->lock for each boost (S11.1).

    The boosts are those taken back.
    """
    region = node_at(m, node)
    if not m.st[region + at.NODE_KSWAPD_ACTIVE]:
        return
    highest_type = m.st[region + at.NODE_KSWAPD_HIGHEST]
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if (
            is_eligible(m, zone, highest_type)
            and m.st[zone_at(zone) + at.ZONE_REMEMBERED_BOOST] > 0
        ):
            cpu = m.st[at.EVENT_CPU]
            count_transaction(m, at.SITE_BOOST_RESET, zone, cpu, 0, -1, 0, 0)
    stop_kswapd(m, node)


@inner
def start_kswapd(m: at.MachineArrays, node: int, highest_type: int) -> None:
    """Part of balance_pgdat(): begin a node's reclaim run (S10.2).

    Eligible zones are RECLAIM_ACTIVE, their boosts noted. A run that is under way must have been
    ended.
    """
    region = node_at(m, node)
    m.st[region + at.NODE_KSWAPD_ACTIVE] = 1
    m.st[region + at.NODE_KSWAPD_HIGHEST] = highest_type
    m.st[at.KSWAPD_RUNS] += 1
    m.st[at.COUNT_KSWAPD_WAKES] += 1
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        region = zone_at(zone)
        m.st[region + at.ZONE_THRESHOLD] = m.st[region + at.ZONE_THRESHOLD_AWAKE]
        if is_eligible(m, zone, highest_type):
            m.st[region + at.ZONE_RECLAIM_ACTIVE] = 1
            m.st[region + at.ZONE_REMEMBERED_BOOST] = m.st[region + at.ZONE_BOOST]


@cold
def wakeup_kswapd(m: at.MachineArrays, node: int, order: int, highest_type: int) -> None:
    """wakeup_kswapd(): start a node's reclaim run unless it is balanced and not boosted (S10.1).

    Where the recording has kswapd's own events, runs are theirs and this does nothing. An elastic
    replay notes the wake, for its kswapd to act on.
    """
    if m.st[at.PRESSURE_BASE]:
        region = node_at(m, node)
        m.st[region + at.NODE_WAKE_ASKED] = 1
        m.st[region + at.NODE_WAKE_ORDER] = max(m.st[region + at.NODE_WAKE_ORDER], order)
        m.st[region + at.NODE_WAKE_HIGHEST] = max(m.st[region + at.NODE_WAKE_HIGHEST], highest_type)
        return
    if m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE] or m.st[at.KSWAPD_RECORDED]:
        return
    if pgdat_watermark_boosted(m, node, highest_type) or not pgdat_balanced(
        m, node, order, highest_type
    ):
        start_kswapd(m, node, highest_type)


@cold
def wake_all_kswapds(m: at.MachineArrays, zonelist: int, order: int, highest_type: int) -> None:
    """wake_all_kswapds(): wake the nodes of a zonelist, nearest first (S8.1)."""
    woken = -1
    while m.st[zonelist] >= 0:
        node = m.st[zone_at(m.st[zonelist]) + at.ZONE_NODE]
        if node != woken:
            wakeup_kswapd(m, node, order, highest_type)
        woken = node
        zonelist += 1


@cold
def stop_balanced_kswapds(m: at.MachineArrays) -> None:
    """No kernel function: end every run of a node that is balanced at order 0 (S10.2)."""
    for node in range(m.st[at.NR_NODES]):
        region = node_at(m, node)
        active = m.st[region + at.NODE_KSWAPD_ACTIVE]
        if active and pgdat_balanced(m, node, 0, m.st[region + at.NODE_KSWAPD_HIGHEST]):
            end_kswapd(m, node)
