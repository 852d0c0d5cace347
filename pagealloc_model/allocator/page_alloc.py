"""A request: its zones, the page of a list or of the buddy, the slow path (S2.4, S3, S8)."""

from __future__ import annotations

from collections.abc import Callable

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.buddy import __rmqueue_smallest
from pagealloc_model.allocator.compaction import (
    compaction_defer_reset,
    gfp_compaction_allowed,
    should_compact_retry,
    try_to_compact_pages,
    was_tried,
)
from pagealloc_model.allocator.event_log import count_transaction, log_page
from pagealloc_model.allocator.fallback import MODE_NORMAL, __rmqueue
from pagealloc_model.allocator.highatomic import (
    reserve_highatomic_pageblock,
    unreserve_highatomic_pageblock,
)
from pagealloc_model.allocator.kswapd import take_wakes
from pagealloc_model.allocator.layout import cpu_at, node_at, pcp_at, zone_at
from pagealloc_model.allocator.lru import zone_reclaimable_pages
from pagealloc_model.allocator.ownership_refill import allocate_from_owned
from pagealloc_model.allocator.pcp import (
    drain_all_pages,
    hold_refilled,
    order_to_pindex,
    refill_empty,
    rmqueue_pcplist,
)
from pagealloc_model.allocator.pressure_layout import (
    node_pressure_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.allocator.vmscan import try_to_free_pages
from pagealloc_model.allocator.watermark import (
    AllocContext,
    __zone_watermark_ok,
    count_at_end,
    fast_path_flags,
    gfp_to_alloc_flags,
    has_free_buddy,
    pages_above_mark,
    seen_free,
    wakeup_kswapd,
    wmark_pages,
    zone_watermark_fast,
)
from pagealloc_model.base.jit import cold, hot, inner


@cold
def rmqueue_buddy(m: at.Arrays, ac: AllocContext, zone: int, flags: int) -> int:
    """rmqueue_buddy(): take a page from the buddy, the reserve included, or -1 (S3.2, S7.3)."""
    pfn = -1
    taken_from = ac.migratetype
    if flags & at.ALLOC_HIGHATOMIC:
        pfn = __rmqueue_smallest(m, zone, ac.order, at.HIGHATOMIC)
        if pfn >= 0:
            log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, ac.order, at.HIGHATOMIC)
            taken_from = at.HIGHATOMIC
    if pfn < 0:
        pfn, _ = __rmqueue(m, zone, ac.order, ac.migratetype, flags, MODE_NORMAL)
    if pfn < 0 and flags & at.ALLOC_NON_BLOCK:
        pfn = __rmqueue_smallest(m, zone, ac.order, at.HIGHATOMIC)
        if pfn >= 0:
            log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, ac.order, at.HIGHATOMIC)
            taken_from = at.HIGHATOMIC
    got = 1 if pfn >= 0 else 0
    pages = got << ac.order
    if got:
        count_at_end(m, zone, pages)
    count_transaction(m, at.SITE_BUDDY_ALLOC, zone, ac.cpu, ac.order, taken_from, got, pages)
    return pfn


@hot
def rmqueue(m: at.Arrays, ac: AllocContext, zone: int, flags: int) -> tuple[int, bool]:
    """rmqueue(): return a page of a zone that passed, or -1, and whether a list had it (S3.2)."""
    pfn = -1
    index = order_to_pindex(m, ac.order, ac.migratetype)
    if index >= 0:
        if m.st[at.OWNERSHIP]:
            pfn = allocate_from_owned(m, ac, zone, flags)
        else:
            pfn = rmqueue_pcplist(m, ac, zone, index, flags)
    from_list = pfn >= 0
    if pfn < 0:
        pfn = rmqueue_buddy(m, ac, zone, flags)
        if pfn >= 0:
            m.pages[pfn]["flags"] = 0
    region = zone_at(zone)
    if m.st[region + at.ZONE_BOOSTED] and (
        flags & at.ALLOC_KSWAPD or not m.st[at.RULE_BOOSTED_WAKE_NEEDS_BIT]  # 6.1 only
    ):
        m.st[region + at.ZONE_BOOSTED] = 0
        wakeup_kswapd(m, m.st[region + at.ZONE_NODE], 0, m.st[region + at.ZONE_TYPE])
    return pfn, from_list


@hot
def zone_may_serve(m: at.Arrays, zone: int, order: int, highest_type: int, flags: int) -> bool:
    """Part of get_page_from_freelist(): return whether a zone passes its watermarks (S3.1)."""
    region = zone_at(zone)
    if m.st[at.RULE_BELOW_HIGH_TESTED] and not m.st[region + at.ZONE_BELOW_HIGH]:  # from 6.12
        if zone_watermark_fast(m, zone, order, at.WMARK_HIGH, highest_type, flags):
            return not m.st[at.ONLY_ZONE] or m.st[at.ONLY_ZONE] == zone + 1
        m.st[region + at.ZONE_BELOW_HIGH] = 1
    if m.st[at.ONLY_ZONE] and m.st[at.ONLY_ZONE] != zone + 1:
        return False
    if flags & at.ALLOC_NO_WATERMARKS:
        return True
    return zone_watermark_fast(m, zone, order, flags & at.WMARK_MASK, highest_type, flags)


@inner
def is_on_another_node(m: at.Arrays, zone: int, other: int) -> bool:
    """Part of get_page_from_freelist(): return whether two zones are on different nodes."""
    return m.st[zone_at(zone) + at.ZONE_NODE] != m.st[zone_at(other) + at.ZONE_NODE]


@inner
def is_busy(m: at.Arrays, zone: int) -> bool:
    """Part of get_page_from_freelist(): return whether kswapd of the zone's node is awake."""
    node = m.st[zone_at(zone) + at.ZONE_NODE]
    if m.st[at.PRESSURE_BASE]:
        words = node_pressure_at(m, node)
        return m.st[words + pr.KSWAPD_PHASE] == pr.RUNNING or m.st[words + pr.KSWAPD_WOKEN] != 0
    return m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE] != 0


@hot
def take_and_reserve(m: at.Arrays, ac: AllocContext, zone: int, flags: int) -> int:
    """Part of get_page_from_freelist(): return a page, its block perhaps reserved (S3.2, S7.1)."""
    pfn, from_list = rmqueue(m, ac, zone, flags)
    if pfn >= 0 and flags & at.ALLOC_HIGHATOMIC and grows_reserve(m, flags, from_list):
        reserve_highatomic_pageblock(m, zone, ac.cpu, pfn, ac.order)
    return pfn


@cold
def grows_reserve(m: at.Arrays, flags: int, from_list: bool) -> bool:
    """Part of rmqueue_buddy(): return whether a page makes the highatomic reserve grow (S7.1)."""
    if from_list and not m.st[at.POLICY_HIGHATOMIC_FROM_PCP]:
        return False
    is_in_need = flags & at.WMARK_MASK == at.WMARK_MIN
    return is_in_need or not m.st[at.POLICY_HIGHATOMIC_SLOWPATH_ONLY]


@hot
def drops_nofragment(m: at.Arrays, flags: int) -> bool:
    """Part of get_page_from_freelist(): return whether to drop NOFRAGMENT (S3.1, S8.6)."""
    return flags & at.ALLOC_NOFRAGMENT != 0 and not m.st[at.POLICY_DEFRAG_MODE]


@hot
def get_page_from_freelist(m: at.Arrays, ac: AllocContext, flags: int) -> int:
    """get_page_from_freelist(): take a page from the first zone that can serve, or -1 (S3.1)."""
    position = ac.zonelist
    zone = m.st[position]
    if zone >= 0 and not m.st[at.SKIPS_BUSY_NODES]:
        if zone_may_serve(m, zone, ac.order, ac.highest_type, flags):
            pfn = take_and_reserve(m, ac, zone, flags)
            if pfn >= 0:
                return pfn
        position += 1
    return walk_zones(m, ac, position, flags)


@inner
def next_zone(
    m: at.Arrays,
    ac: AllocContext,
    position: int,
    flags: int,
    skips_busy: bool,
    skipped: bool,
) -> tuple[int, int, int, bool, bool]:
    """Part of get_page_from_freelist(): walk the zonelist up to a zone that may serve (S3.1).

    The walk begins again with nodes whose kswapd runs, if they were left out, and without
    NOFRAGMENT, if that was set, also before it leaves the node of the preferred zone.
    """
    while True:
        zone = m.st[position]
        position += 1
        if zone < 0:
            if skipped:
                skips_busy = False
                skipped = False
            elif drops_nofragment(m, flags):
                flags &= ~at.ALLOC_NOFRAGMENT
            else:
                return -1, position, flags, skips_busy, skipped
            position = ac.zonelist
        elif drops_nofragment(m, flags) and is_on_another_node(m, zone, m.st[ac.zonelist]):
            flags &= ~at.ALLOC_NOFRAGMENT
            position = ac.zonelist
        elif skips_busy and is_busy(m, zone):
            skipped = True
        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):
            return zone, position, flags, skips_busy, skipped


@cold
def walk_zones(m: at.Arrays, ac: AllocContext, position: int, flags: int) -> int:
    """Part of get_page_from_freelist(): take a page of a zone from a position on, or -1 (S3.1)."""
    skips_busy = m.st[at.SKIPS_BUSY_NODES] != 0
    skipped = False
    while True:
        zone, position, flags, skips_busy, skipped = next_zone(
            m, ac, position, flags, skips_busy, skipped
        )
        if zone < 0:
            return -1
        pfn = take_and_reserve(m, ac, zone, flags)
        if pfn >= 0:
            return pfn


@cold
def begin_request(m: at.Arrays, ac: AllocContext) -> None:
    """Part of get_page_from_freelist(): refill the list of a request that is interrupted (S4.10).

    The interrupt comes under the lock of the list. No list is refilled where the first zone that
    passes its watermark has pages on it, or no zone passes.
    """
    index = order_to_pindex(m, ac.order, ac.migratetype)
    if index < 0 or m.st[at.OWNERSHIP]:
        return
    skips_busy = m.st[at.SKIPS_BUSY_NODES] != 0
    flags = fast_path_flags(m, ac)
    zone, _, flags, _, _ = next_zone(m, ac, ac.zonelist, flags, skips_busy, False)
    if zone < 0:
        return
    pcp = pcp_at(m, zone, ac.cpu)
    lst = pcp + at.PCP_LISTS + index * at.LIST_WORDS
    if m.st[lst + at.HEAD] < 0:
        refill_empty(m, ac, zone, lst, flags)
        hold_refilled(m, ac.cpu, pcp)


@inner
def margin_of(m: at.Arrays, ac: AllocContext, zone: int, flags: int) -> int:
    """Part of __zone_watermark_ok(): return the pages above min with its boost, or below (S3.3)."""
    mark = wmark_pages(m, zone, at.WMARK_MIN)
    free = seen_free(m, zone)
    return pages_above_mark(m, zone, ac.order, mark, ac.highest_type, flags, free)


@inner
def zone_nearest_to_its_mark(m: at.Arrays, ac: AllocContext, flags: int) -> int:
    """Return the zone with most pages above its min mark, or -1 (S3.3)."""
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
def direct_reclaim_ran(m: at.Arrays, bits: int) -> bool:
    """Return whether a request reclaimed, as recorded if it is (S8.2)."""
    if not bits & at.GFP_DIRECT_RECLAIM:
        return False
    return not m.st[at.DIRECT_RECLAIM_RECORDED] or bits & at.REQUEST_RECLAIMED != 0


@inner
def begin_reclaim(m: at.Arrays, ac: AllocContext) -> None:
    """Note a request's margin, in the nearest zone, as its reclaim begins."""
    flags = gfp_to_alloc_flags(m, ac, fast_path_flags(m, ac))
    zone = zone_nearest_to_its_mark(m, ac, flags)
    number = (ac.bits & at.REQUEST_RECLAIMED) >> at.RECLAIM_SHIFT
    margin = margin_of(m, ac, zone, flags) if zone >= 0 else 0
    m.st[at.RECLAIM_MARGINS + number] = min(margin, 0)


@inner
def reclaim_sufficed(m: at.Arrays, ac: AllocContext, flags: int) -> bool:
    """Return whether the retry after reclaim found a page (S8.2, S10.4).

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


Reclaim = Callable[[at.Arrays, AllocContext, int], int]
"""What the slow path does after its first attempt; a kernel takes it as it takes any function."""

PROMOTED_ROUNDS = 64
"""Rounds after which a promoted request no longer waits for a block (S8.7)."""


@hot
def __alloc_frozen_pages(m: at.Arrays, ac: AllocContext, reclaim: Reclaim) -> int:
    """__alloc_frozen_pages(): serve a request; -1 if the model has no such page left."""
    flags = fast_path_flags(m, ac)
    pfn = get_page_from_freelist(m, ac, flags)
    if pfn < 0:
        pfn = __alloc_pages_slowpath(m, ac, flags, reclaim)
    if pfn >= 0:
        prep_new_page(m, pfn, ac.order, ac.migratetype)
    return pfn


@hot
def prep_new_page(m: at.Arrays, pfn: int, order: int, migratetype: int) -> None:
    """prep_new_page(): describe an allocation's first page."""
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ALLOCATED
    m.pages[pfn]["tag"] = 1 if migratetype == at.MOVABLE else 0


ATOMIC_BOOST_SHARE = 1000
"""A thousandth of a zone's managed pages is a boost for atomic requests (S1.11)."""
ATOMIC_BOOST_PERIOD_NS = 1_000_000_000


@inner
def boost_zones_for_atomic(m: at.Arrays, ac: AllocContext) -> None:
    """Once a second, raise marks for an order-0 atomic request (S1.11)."""
    position = ac.zonelist
    if ac.order > 0 or not ac.bits & at.GFP_HIGH or ac.bits & at.GFP_DIRECT_RECLAIM:
        return
    while m.st[position] >= 0:
        region = zone_at(m.st[position])
        if m.st[at.NOW] >= m.st[region + at.ZONE_ATOMIC_BOOST_DUE]:
            m.st[region + at.ZONE_ATOMIC_BOOST_DUE] = m.st[at.NOW] + ATOMIC_BOOST_PERIOD_NS
            share = m.st[region + at.ZONE_MANAGED] // ATOMIC_BOOST_SHARE
            cap = max(m.st[region + at.ZONE_HIGH], m.st[region + at.ZONE_BOOST])
            m.st[region + at.ZONE_BOOST] = min(m.st[region + at.ZONE_BOOST] + share, cap)
        position += 1


@cold
def __alloc_pages_slowpath(m: at.Arrays, ac: AllocContext, flags: int, reclaim: Reclaim) -> int:
    """__alloc_pages_slowpath(): serve a request that the fast path had no page for (S8.1).

    Returns the page, or -1. `flags` are those of the fast path. `reclaim` is what comes after the
    first attempt: `reclaim_and_retry`, or in a literal replay, where reclaim and compaction have
    been replayed already, `retry_as_recorded`.
    """
    elastic = m.st[at.PRESSURE_BASE] != 0
    m.st[at.COUNT_SLOW_PATH] += 1
    flags = gfp_to_alloc_flags(m, ac, flags)
    if elastic and m.st[at.POLICY_ATOMIC_BOOST]:
        boost_zones_for_atomic(m, ac)
    if not elastic or not m.st[at.RULE_INITIAL_COMPACTION_IN_LOOP]:  # up to 6.18
        wake_all_kswapds(m, ac, flags)
        pfn = walk_zones(m, ac, ac.zonelist, flags)
        if pfn < 0 and gfp_pfmemalloc_allowed(ac.bits):
            wake_all_kswapds(m, ac, flags)
            flags = on_reserves(flags)
            pfn = walk_zones(m, ac, ac.zonelist, flags)
            if elastic:
                return pfn
        if pfn >= 0:
            return pfn
    return reclaim(m, ac, flags)


@inner
def gives_up_locally(m: at.Arrays, ac: AllocContext) -> bool:
    """Part of __alloc_pages_slowpath(): return whether a local-only attempt ends here (S8.8)."""
    return ac.bits & at.GFP_THISNODE != 0 and not m.st[at.POLICY_LOCAL_THP_RECLAIMS]


@inner
def wake_all_kswapds(m: at.Arrays, ac: AllocContext, flags: int) -> None:
    """wake_all_kswapds(): wake kswapd of the nodes, nearest first, if it may (S8.1, S8.6)."""
    if flags & at.ALLOC_KSWAPD:
        order = ac.order
        if m.st[at.PRESSURE_BASE] and value_of(m, pr.KSWAPD_ASSISTS):
            order = max(order, m.st[at.PAGEBLOCK_ORDER])
        woken = -1
        position = ac.zonelist
        while m.st[position] >= 0:
            node = m.st[zone_at(m.st[position]) + at.ZONE_NODE]
            if node != woken:
                wakeup_kswapd(m, node, order, ac.highest_type)
            woken = node
            position += 1
    take_wakes(m, ac.bits)


@inner
def gfp_pfmemalloc_allowed(bits: int) -> bool:
    """gfp_pfmemalloc_allowed(): return whether a request may ignore watermarks (S2.6)."""
    return bits & at.GFP_MEMALLOC != 0 and not bits & at.GFP_NOMEMALLOC


@inner
def on_reserves(flags: int) -> int:
    """Part of __alloc_pages_slowpath(): return the flags of an attempt on all reserves (S2.6)."""
    return at.ALLOC_NO_WATERMARKS | (flags & (at.ALLOC_KSWAPD | at.ALLOC_CMA))


@inner
def retry_as_recorded(m: at.Arrays, ac: AllocContext, flags: int) -> int:
    """Part of __alloc_pages_slowpath(): try once more after recorded reclaim, then force.

    Returns the page, or -1. Reclaim is literal: what it freed has been replayed already (S8.2). An
    attempt without watermarks is a divergence and counted; it begins with the zone that is nearest
    to its mark.
    """
    if direct_reclaim_ran(m, ac.bits) and not reclaim_sufficed(m, ac, flags):
        make_room(m, ac)
        pfn = walk_zones(m, ac, ac.zonelist, flags)
        if pfn >= 0:
            return pfn
    if flags & at.ALLOC_NO_WATERMARKS:
        return -1
    flags |= at.ALLOC_NO_WATERMARKS
    pfn = -1
    zone = zone_nearest_to_its_mark(m, ac, flags)
    if m.st[at.ONLY_ZONE]:
        zone = m.st[at.ONLY_ZONE] - 1
    if zone >= 0:
        pfn = take_and_reserve(m, ac, zone, flags)
    if pfn < 0:
        pfn = walk_zones(m, ac, ac.zonelist, flags)
    if pfn >= 0:
        m.st[at.COUNT_FORCED] += 1
    return pfn


@cold
def fail_as_recorded(m: at.Arrays, ac: AllocContext) -> None:
    """Leave behind what a request does that failed in the recording (S10.4).

    It is not tried. Each zone that it looks at is below its high mark or not, kswapd wakes, and
    where reclaim freed pages for it all the same, it made room before it failed (S8.2).
    """
    flags = fast_path_flags(m, ac)
    position = ac.zonelist
    while m.st[position] >= 0:
        zone_may_serve(m, m.st[position], ac.order, ac.highest_type, flags)
        position += 1
    wake_all_kswapds(m, ac, flags)
    if ac.bits & at.REQUEST_RECLAIMED:
        make_room(m, ac)


@cold
def make_room(m: at.Arrays, ac: AllocContext) -> None:
    """Part of __alloc_pages_direct_reclaim(): after reclaim in vain, unreserve and drain (S8.2)."""
    unreserve_highatomic_pageblock(m, ac, False)
    drain_all_pages(m)


@inner
def reclaim_and_retry(m: at.Arrays, ac: AllocContext, flags: int) -> int:
    """Part of __alloc_pages_slowpath(): compact first where that helps, then reclaim (S8.1)."""
    is_wanted = ac.order > m.st[at.POLICY_COSTLY_ORDER] or (
        ac.order > 0 and ac.migratetype != at.MOVABLE
    )
    compact_first = is_wanted and gfp_compaction_allowed(m, ac.bits)
    if m.st[at.RULE_INITIAL_COMPACTION_IN_LOOP]:  # from 7.2
        priority = pr.ASYNC if compact_first else pr.SYNC_LIGHT
        return go_round(m, ac, flags, priority, compact_first)
    priority = pr.SYNC_LIGHT
    if ac.bits & at.GFP_DIRECT_RECLAIM and compact_first:
        order = reclaim_compact_order(m, ac, flags)
        pfn, result = __alloc_pages_direct_compact(m, ac, flags, pr.ASYNC, order)
        if pfn >= 0:
            return pfn
        if ac.order > m.st[at.POLICY_COSTLY_ORDER] and ac.bits & pr.GFP_NORETRY:
            if result == pr.SKIPPED or result == pr.DEFERRED or gives_up_locally(m, ac):
                return -1
            priority = pr.ASYNC
    return go_round(m, ac, flags, priority, False)


@inner
def go_round(m: at.Arrays, ac: AllocContext, flags: int, priority: int, compact_first: bool) -> int:
    """Part of __alloc_pages_slowpath(): go round until a page is found or hope is lost (S8.1)."""
    no_progress = 0
    retries = 0
    rounds = 0
    while True:
        wake_all_kswapds(m, ac, flags)
        pfn = walk_zones(m, ac, ac.zonelist, flags)
        if pfn >= 0:
            return pfn
        if gfp_pfmemalloc_allowed(ac.bits):
            take_wakes(m, ac.bits)
            return walk_zones(m, ac, ac.zonelist, on_reserves(flags))
        if not ac.bits & at.GFP_DIRECT_RECLAIM:
            drops = value_of(m, pr.DEFRAG_FIXES) and flags & at.ALLOC_KSWAPD
            if drops and flags & at.ALLOC_NOFRAGMENT:
                flags &= ~at.ALLOC_NOFRAGMENT
                continue
            return -1
        order = reclaim_compact_order(m, ac, flags)
        progress = 0
        if not compact_first:
            pfn, progress = __alloc_pages_direct_reclaim(m, ac, flags, order)
            if pfn >= 0:
                return pfn
        pfn, result = __alloc_pages_direct_compact(m, ac, flags, priority, order)
        if pfn >= 0:
            return pfn
        if compact_first:
            if ac.bits & pr.GFP_NORETRY and gives_up_locally(m, ac):
                return -1
            if not ac.bits & pr.GFP_NORETRY:
                priority = pr.SYNC_LIGHT
            compact_first = False
            continue
        take_wakes(m, ac.bits)
        if not may_retry(m, ac):
            return last_resort(m, ac, flags)
        is_costly = ac.order > m.st[at.POLICY_COSTLY_ORDER]
        is_promoted = order != ac.order and m.st[at.POLICY_PROMOTED_FALL_BACK_AFRESH] != 0
        helped = progress > 0 and not is_costly and not is_promoted
        no_progress = 0 if helped else no_progress + 1
        rounds = rounds + 1 if order != ac.order else 0
        goes_on = rounds < PROMOTED_ROUNDS
        if goes_on and should_reclaim_retry(m, ac, flags, no_progress):
            continue
        if goes_on and progress > 0 and gfp_compaction_allowed(m, ac.bits):
            again, priority, retries = should_compact_retry(
                m, ac, flags, result, priority, retries, is_promoted
            )
            if again:
                continue
        if m.st[at.POLICY_DEFRAG_MODE] and flags & at.ALLOC_NOFRAGMENT:
            flags &= ~at.ALLOC_NOFRAGMENT
            if is_promoted:
                no_progress = 0
                retries = 0
            continue
        if not is_costly and not ac.bits & (pr.GFP_RETRY_MAYFAIL | at.GFP_THISNODE):
            m.st[word_at(m, pr.OOM_KILL)] += 1
        return last_resort(m, ac, flags)


@inner
def reclaim_compact_order(m: at.Arrays, ac: AllocContext, flags: int) -> int:
    """Part of __alloc_pages_slowpath(): return the order to reclaim and compact for (S8.7)."""
    needs_block = flags & at.ALLOC_NOFRAGMENT and ac.migratetype != at.MOVABLE
    if m.st[at.POLICY_DEFRAG_PROMOTES_ORDER] and needs_block:
        return max(ac.order, m.st[at.PAGEBLOCK_ORDER])
    return ac.order


@inner
def may_retry(m: at.Arrays, ac: AllocContext) -> bool:
    """Part of __alloc_pages_slowpath(): return whether a request may go round again (S8.1)."""
    if ac.bits & pr.GFP_NORETRY:
        return False
    if ac.order <= m.st[at.POLICY_COSTLY_ORDER]:
        return True
    return ac.bits & pr.GFP_RETRY_MAYFAIL != 0 and gfp_compaction_allowed(m, ac.bits)


@inner
def last_resort(m: at.Arrays, ac: AllocContext, flags: int) -> int:
    """Part of __alloc_pages_slowpath(): return -1, or what there is if it must not fail (S8.1)."""
    if not ac.bits & pr.GFP_NOFAIL:
        return -1
    m.st[word_at(m, pr.FORCED_BY_NOFAIL)] += 1
    return walk_zones(m, ac, ac.zonelist, flags | at.ALLOC_NO_WATERMARKS)


@inner
def take_while_reclaiming(m: at.Arrays, ac: AllocContext, flags: int) -> int:
    """Part of __alloc_pages_direct_reclaim(): a page of a list of a CPU that reclaims, or -1.

    The kernel's request would come once that reclaim has ended (S10.10).
    """
    cpu = cpu_at(m, m.st[at.EVENT_CPU])
    index = order_to_pindex(m, ac.order, ac.migratetype)
    began, ends = m.st[cpu + at.CPU_RECLAIMS_FROM], m.st[cpu + at.CPU_RECLAIMS_UNTIL]
    if index < 0 or not began < m.st[at.NOW] < ends:
        return -1
    if m.st[at.OWNERSHIP]:
        index = 3 * ac.order + ac.migratetype  # lists of all orders up to a block's (S12.3)
        if ac.order > m.st[at.PAGEBLOCK_ORDER]:
            return -1
    position = ac.zonelist
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        lst = pcp_at(m, zone, ac.cpu) + at.PCP_LISTS + index * at.LIST_WORDS
        if m.st[lst + at.HEAD] >= 0:
            pfn, _ = rmqueue(m, ac, zone, flags)
            return pfn
    return -1


@inner
def __alloc_pages_direct_reclaim(
    m: at.Arrays, ac: AllocContext, flags: int, order: int
) -> tuple[int, int]:
    """__alloc_pages_direct_reclaim(): reclaim, retry; return the page, or -1, and freed (S8.2)."""
    take_wakes(m, ac.bits)
    pfn = take_while_reclaiming(m, ac, flags)
    if pfn >= 0:
        return pfn, 1
    progress = try_to_free_pages(m, ac, order)
    if progress == 0:
        return -1, 0
    pfn = walk_zones(m, ac, ac.zonelist, flags)
    if pfn < 0:
        take_wakes(m, ac.bits)
        make_room(m, ac)
        pfn = walk_zones(m, ac, ac.zonelist, flags)
    return pfn, progress


@inner
def __alloc_pages_direct_compact(
    m: at.Arrays, ac: AllocContext, flags: int, priority: int, order: int
) -> tuple[int, int]:
    """__alloc_pages_direct_compact(): compact, retry; the page, or -1, and result (S8.1, S9)."""
    if order == 0 or not gfp_compaction_allowed(m, ac.bits):
        return -1, pr.SKIPPED
    take_wakes(m, ac.bits)
    result = try_to_compact_pages(m, ac, flags, priority, order)
    if not was_tried(m, result):
        return -1, result
    m.st[word_at(m, pr.COMPACT_STALL)] += 1
    pfn = m.st[at.CAPTURED]
    if pfn < 0:
        pfn = walk_zones(m, ac, ac.zonelist, flags)
    # Count a stall; a page ends the deferral (S9.5).
    if pfn < 0:
        m.st[word_at(m, pr.COMPACT_FAIL)] += 1
    else:
        m.st[word_at(m, pr.COMPACT_SUCCESS)] += 1
        zone = int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["zone"]) - 1
        m.st[zone_pressure_at(m, zone) + pr.ZONE_FLUSH_SKIPS] = 0
        compaction_defer_reset(m, zone, order, True)
    return pfn, result


@inner
def should_reclaim_retry(m: at.Arrays, ac: AllocContext, flags: int, no_progress: int) -> bool:
    """should_reclaim_retry(): return whether all reclaimable pages, or a block, would do (S8.3)."""
    position = ac.zonelist
    while no_progress <= pr.RETRIES_MAX and m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        free = seen_free(m, zone) + zone_reclaimable_pages(m, zone)
        mark = wmark_pages(m, zone, at.WMARK_MIN)
        if __zone_watermark_ok(m, zone, ac.order, mark, ac.highest_type, flags, free):
            return True
    return unreserve_highatomic_pageblock(m, ac, True)
