"""Free pages as a zone counts them, watermarks and boost, and when kswapd wakes.

S1.6 to S1.10, S2.5 to S2.7, S3.3, S10.1 and S10.2.
"""

from __future__ import annotations

from typing import NamedTuple

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.event_log import count_transaction
from pagealloc_model.allocator.layout import free_list_at, node_at, node_zonelist, pcp_at, zone_at
from pagealloc_model.base.jit import cold, hot, inner

QUIET_TICKS = 3
"""Ticks without a change after which a remote list's pages are returned (S4.8)."""


@inner
def account_freepages(m: at.Arrays, zone: int, migratetype: int, change: int) -> None:
    """account_freepages(): count pages that enter the buddy or leave it, unless isolated (S5.3)."""
    if migratetype == m.st[at.ISOLATE]:
        return
    account_total(m, zone, change)
    account_part(m, zone, migratetype, change)


@inner
def refill_counts_at_end(m: at.Arrays) -> bool:
    """Part of rmqueue_bulk(): return whether pages taken are counted once all are (S4.4)."""
    return m.st[at.RULE_REFILL_COUNTED_AT_END] != 0  # 6.1 only


@inner
def account_taken(m: at.Arrays, zone: int, migratetype: int, order: int) -> None:
    """Part of account_freepages(): count a page taken, now or in `count_at_end`."""
    if not refill_counts_at_end(m):
        account_total(m, zone, -(1 << order))
    account_part(m, zone, migratetype, -(1 << order))


@inner
def count_at_end(m: at.Arrays, zone: int, taken: int) -> None:
    """Part of rmqueue_bulk(): count the pages taken in one hold, if that was put off."""
    if refill_counts_at_end(m):
        account_total(m, zone, -taken)


@inner
def account_total(m: at.Arrays, zone: int, change: int) -> None:
    """Part of account_freepages(): add the share of a change that concerns all types.

    The CPU of the event makes it. A change by 0 is one too: it passes on a delta that a lowered
    threshold no longer allows.
    """
    region = zone_at(zone)
    m.st[region + at.ZONE_FREE] += change
    if m.st[at.COUNTS_BY_CPU]:
        pcp = pcp_at(m, zone, m.st[at.EVENT_CPU])
        if change != 0 and m.st[region + at.ZONE_THRESHOLD] == 0:
            m.st[pcp + at.PCP_TOUCHED] = 1
        __mod_zone_page_state(m, region, at.ZONE_FREE_UNFOLDED, pcp + at.PCP_FREE_DELTA, change)


@inner
def account_part(m: at.Arrays, zone: int, migratetype: int, change: int) -> None:
    """Part of account_freepages(): add the share that concerns the type counted apart."""
    region = zone_at(zone)
    if migratetype == at.HIGHATOMIC:
        m.st[region + at.ZONE_FREE_HIGHATOMIC] += change
    elif migratetype == m.st[at.CMA]:
        m.st[region + at.ZONE_FREE_CMA] += change
        if m.st[at.COUNTS_BY_CPU]:
            delta = pcp_at(m, zone, m.st[at.EVENT_CPU]) + at.PCP_FREE_CMA_DELTA
            __mod_zone_page_state(m, region, at.ZONE_FREE_CMA_UNFOLDED, delta, change)


@inner
def account_move(m: at.Arrays, zone: int, old_type: int, new_type: int, moved: int) -> None:
    """Part of move_to_free_list(): count free pages that change lists.

    The total stays, but where lists match blocks it is updated twice, which may make the CPU pass
    on what it held back.
    """
    if m.st[at.RULE_LISTS_MATCH_BLOCKS] and m.st[at.COUNTS_BY_CPU]:  # from 6.12
        region = zone_at(zone)
        delta = pcp_at(m, zone, m.st[at.EVENT_CPU]) + at.PCP_FREE_DELTA
        __mod_zone_page_state(m, region, at.ZONE_FREE_UNFOLDED, delta, -moved)
        __mod_zone_page_state(m, region, at.ZONE_FREE_UNFOLDED, delta, moved)
    account_part(m, zone, old_type, -moved)
    account_part(m, zone, new_type, moved)


@inner
def __mod_zone_page_state(
    m: at.Arrays, region: int, unfolded: int, delta: int, change: int
) -> None:
    """__mod_zone_page_state(): add to a CPU's delta and pass it on beyond the zone's threshold."""
    held = m.st[delta] + change
    if abs(held) > m.st[region + at.ZONE_THRESHOLD]:
        held = 0
    m.st[region + unfolded] += held - m.st[delta]
    m.st[delta] = held


@inner
def seen_free(m: at.Arrays, zone: int) -> int:
    """zone_page_state(): return the free pages of a zone as watermark tests read them."""
    region = zone_at(zone)
    return max(m.st[region + at.ZONE_FREE] - m.st[region + at.ZONE_FREE_UNFOLDED], 0)


@inner
def seen_free_cma(m: at.Arrays, zone: int) -> int:
    """zone_page_state(): return the free CMA pages of a zone as watermark tests read them."""
    region = zone_at(zone)
    return max(m.st[region + at.ZONE_FREE_CMA] - m.st[region + at.ZONE_FREE_CMA_UNFOLDED], 0)


@inner
def carefully_seen_free(m: at.Arrays, zone: int) -> int:
    """zone_page_state_snapshot(): return free pages, exact where the lag could matter (S1.10)."""
    seen = seen_free(m, zone)
    region = zone_at(zone)
    if seen < m.st[region + at.ZONE_DRIFT_MARK]:
        return m.st[region + at.ZONE_FREE]
    return seen


@inner
def wmark_pages(m: at.Arrays, zone: int, mark: int) -> int:
    """wmark_pages(): return WMARK_MIN, WMARK_LOW or WMARK_HIGH with the boost, pages."""
    region = zone_at(zone)
    return m.st[region + at.ZONE_MIN + mark] + m.st[region + at.ZONE_BOOST]


@inner
def has_free_buddy(m: at.Arrays, zone: int, order: int, flags: int) -> bool:
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
    m: at.Arrays, zone: int, order: int, mark: int, highest_type: int, flags: int, free: int
) -> int:
    """Part of __zone_watermark_ok(): return the pages above the mark, or missing (S3.3)."""
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
    m: at.Arrays, zone: int, order: int, mark: int, highest_type: int, flags: int, free: int
) -> bool:
    """__zone_watermark_ok(): return whether `free`, the pages seen, suffice above a mark (S3.3)."""
    if pages_above_mark(m, zone, order, mark, highest_type, flags, free) <= 0:
        return False
    return order == 0 or has_free_buddy(m, zone, order, flags)


@hot
def zone_watermark_fast(
    m: at.Arrays, zone: int, order: int, mark: int, highest_type: int, flags: int
) -> bool:
    """zone_watermark_fast(): return whether a zone passes the allocation path's test (S3.3)."""
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
def boost_watermark(m: at.Arrays, zone: int) -> bool:
    """boost_watermark(): raise watermarks after a fallback; False if switched off (S1.7)."""
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
def nr_free_pages_blocks(m: at.Arrays, zone: int) -> int:
    """NR_FREE_PAGES_BLOCKS: the free pages in whole pageblocks (S8.6)."""
    free = 0
    for order in range(m.st[at.PAGEBLOCK_ORDER], m.st[at.MAX_ORDER] + 1):
        for migratetype in range(at.MIGRATETYPES):
            if migratetype != m.st[at.ISOLATE]:
                free += m.st[free_list_at(zone, order, migratetype) + at.ENTRIES] << order
    return free


class AllocContext(NamedTuple):
    """One request; kernels call it `ac`, as the kernel calls its `struct alloc_context`.

    Attributes:
        cpu: CPU that asks.
        order: pages asked for, as a power of two.
        migratetype: UNMOVABLE, MOVABLE or RECLAIMABLE.
        highest_type: highest zone type that may serve it.
        bits: its gfp word, as far as decisions read it, and `REQUEST_RECLAIMED`.
        zonelist: offset of its zonelist.
    """

    cpu: int
    order: int
    migratetype: int
    highest_type: int
    bits: int
    zonelist: int


@inner
def prepare_alloc_pages(
    m: at.Arrays, cpu: int, order: int, migratetype: int, highest_type: int, bits: int
) -> AllocContext:
    """prepare_alloc_pages(): return a request with the zonelist that it goes by (S1.4, S2.5)."""
    zonelist = node_zonelist(m, cpu, highest_type, bits)
    return AllocContext(cpu, order, migratetype, highest_type, bits, zonelist)


@inner
def fast_path_flags(m: at.Arrays, ac: AllocContext) -> int:
    """Part of prepare_alloc_pages(): return the allocation flags of the first attempt (S2.5, S2.7).

    alloc_flags_nofragment() and, for CMA, gfp_to_alloc_flags_cma() add to them in the kernel; in
    7.3 alloc_flags_cma() and, for the reserve, alloc_flags_nonblocking().
    """
    flags = at.WMARK_LOW
    if ac.bits & at.GFP_KSWAPD_RECLAIM:
        flags |= at.ALLOC_KSWAPD
    if ac.migratetype == at.MOVABLE and m.st[at.CMA] >= 0:
        flags |= at.ALLOC_CMA
    preferred = m.st[ac.zonelist]
    if m.st[at.POLICY_DEFRAG_MODE] or (
        preferred >= 0 and m.st[zone_at(preferred) + at.ZONE_AVOIDS_FRAGMENTATION]
    ):
        flags |= at.ALLOC_NOFRAGMENT
    if m.st[at.POLICY_HIGHATOMIC_FASTPATH]:
        flags |= gfp_to_alloc_flags(m, ac, flags) & at.ALLOC_HIGHATOMIC
    return flags


@inner
def gfp_to_alloc_flags(m: at.Arrays, ac: AllocContext, fast: int) -> int:
    """gfp_to_alloc_flags(): return the flags of later attempts, given the first's (S2.6)."""
    flags = at.WMARK_MIN | (fast & (at.ALLOC_KSWAPD | at.ALLOC_CMA))
    if m.st[at.POLICY_DEFRAG_MODE]:
        flags |= at.ALLOC_NOFRAGMENT
    if ac.bits & at.GFP_HIGH:
        flags |= at.ALLOC_MIN_RESERVE
    if ac.bits & m.st[at.BOOST_RETRY_MASK] == m.st[at.BOOST_RETRY_BITS]:
        flags |= at.ALLOC_IGNORES_BOOST
    if not ac.bits & (at.GFP_DIRECT_RECLAIM | at.GFP_NOMEMALLOC):
        flags |= at.ALLOC_NON_BLOCK
        if ac.order > 0 and (
            flags & at.ALLOC_MIN_RESERVE or not m.st[at.RULE_HIGHATOMIC_NEEDS_HIGH]  # 6.15 only
        ):
            flags |= at.ALLOC_HIGHATOMIC
    return flags


@inner
def is_eligible(m: at.Arrays, zone: int, highest_type: int) -> bool:
    """Part of pgdat_balanced(): return whether a run's waker may use a zone with pages (S10.2)."""
    region = zone_at(zone)
    return m.st[region + at.ZONE_MANAGED] > 0 and m.st[region + at.ZONE_TYPE] <= highest_type


@inner
def pgdat_balanced(m: at.Arrays, node: int, order: int, highest_type: int) -> bool:
    """pgdat_balanced(): return whether an eligible zone, if any, passes its high mark (S10.2)."""
    first = node * m.st[at.ZONE_TYPES]
    balanced = True
    for zone in range(first, first + highest_type + 1):
        if is_eligible(m, zone, highest_type):
            mark = wmark_pages(m, zone, at.WMARK_HIGH)
            free = carefully_seen_free(m, zone)
            if order > 0 and m.st[at.BLOCK_WATERMARKS]:
                free = nr_free_pages_blocks(m, zone)
            if __zone_watermark_ok(m, zone, order, mark, highest_type, 0, free):
                return True
            balanced = False
    return balanced


@inner
def pgdat_watermark_boosted(m: at.Arrays, node: int, highest_type: int) -> bool:
    """pgdat_watermark_boosted(): return whether an eligible zone has a boost (S10.1)."""
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest_type + 1):
        if m.st[zone_at(zone) + at.ZONE_BOOST] > 0:
            return True
    return False


@inner
def set_pgdat_percpu_threshold(m: at.Arrays, node: int, which: int) -> None:
    """set_pgdat_percpu_threshold(): let counters lag as `which` threshold says (S1.10)."""
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        region = zone_at(zone)
        m.st[region + at.ZONE_THRESHOLD] = m.st[region + which]


@inner
def take_boosts_back(m: at.Arrays, node: int) -> None:
    """Part of balance_pgdat(): end a node's run, the boosts of its start taken back (S1.7)."""
    region = node_at(m, node)
    if not m.st[region + at.NODE_KSWAPD_ACTIVE]:
        return
    m.st[region + at.NODE_KSWAPD_ACTIVE] = 0
    m.st[at.KSWAPD_RUNS] -= 1
    first = node * m.st[at.ZONE_TYPES]
    highest_type = m.st[region + at.NODE_KSWAPD_HIGHEST]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        region = zone_at(zone)
        if is_eligible(m, zone, highest_type):
            m.st[region + at.ZONE_RECLAIM_ACTIVE] = 0
            remaining = m.st[region + at.ZONE_BOOST] - m.st[region + at.ZONE_REMEMBERED_BOOST]
            m.st[region + at.ZONE_BOOST] = max(remaining, 0)


@inner
def stop_kswapd(m: at.Arrays, node: int) -> None:
    """End a node's reclaim run and let its kswapd sleep at once (S10.3)."""
    if m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE]:
        take_boosts_back(m, node)
        set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_ASLEEP)


@inner
def count_boosts_taken_back(m: at.Arrays, node: int) -> None:
    """Part of balance_pgdat(): count a hold of zone->lock for each boost of a run (S11.1)."""
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


@cold
def end_kswapd(m: at.Arrays, node: int) -> None:
    """End a run, its holds of zone->lock counted, and let kswapd sleep."""
    count_boosts_taken_back(m, node)
    stop_kswapd(m, node)


@inner
def note_reclaim(m: at.Arrays, node: int, highest_type: int) -> None:
    """Part of balance_pgdat(): begin a node's run, none being under way; note boosts (S10.2)."""
    region = node_at(m, node)
    m.st[region + at.NODE_KSWAPD_ACTIVE] = 1
    m.st[region + at.NODE_KSWAPD_HIGHEST] = highest_type
    m.st[at.KSWAPD_RUNS] += 1
    m.st[at.COUNT_KSWAPD_WAKES] += 1
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if is_eligible(m, zone, highest_type):
            region = zone_at(zone)
            m.st[region + at.ZONE_RECLAIM_ACTIVE] = 1
            m.st[region + at.ZONE_REMEMBERED_BOOST] = m.st[region + at.ZONE_BOOST]


@inner
def start_kswapd(m: at.Arrays, node: int, highest_type: int) -> None:
    """Wake a node's kswapd and begin its run at once (S10.2)."""
    set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_AWAKE)
    note_reclaim(m, node, highest_type)


@cold
def wakeup_kswapd(m: at.Arrays, node: int, order: int, highest_type: int) -> None:
    """wakeup_kswapd(): start a node's reclaim run unless it is balanced and not boosted (S10.1)."""
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
def stop_balanced_kswapds(m: at.Arrays) -> None:
    """End every run of a node that is balanced at order 0 (S10.2)."""
    for node in range(m.st[at.NR_NODES]):
        region = node_at(m, node)
        active = m.st[region + at.NODE_KSWAPD_ACTIVE]
        if active and pgdat_balanced(m, node, 0, m.st[region + at.NODE_KSWAPD_HIGHEST]):
            end_kswapd(m, node)
