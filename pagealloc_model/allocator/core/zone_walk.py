"""Taking a page from a zone: which zone of the list, its per-CPU list or its buddy (S2.4, S3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_context import AllocContext, fast_path_flags
from pagealloc_model.allocator.core.buddy import __rmqueue_smallest
from pagealloc_model.allocator.core.counters import count_at_end
from pagealloc_model.allocator.core.event_log import count_transaction, log_page
from pagealloc_model.allocator.core.fallback import MODE_NORMAL, __rmqueue
from pagealloc_model.allocator.core.highatomic import reserve_highatomic_pageblock
from pagealloc_model.allocator.core.kswapd_runs import wakeup_kswapd
from pagealloc_model.allocator.core.list_locks import hold_refilled
from pagealloc_model.allocator.core.offsets import node_at, pcp_at, zone_at
from pagealloc_model.allocator.core.pcp import order_to_pindex, refill_empty, rmqueue_pcplist
from pagealloc_model.allocator.core.watermark import zone_watermark_fast
from pagealloc_model.allocator.ownership.owned_refill import allocate_from_owned
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at
from pagealloc_model.base.jit import cold, hot, inner


@cold
def rmqueue_buddy(m: at.MachineArrays, ac: AllocContext, zone: int, flags: int) -> int:
    """rmqueue_buddy(): take one page object straight from the buddy (S3.2, S7.3).

    The reserve is included. Returns the page, or -1.
    """
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
def rmqueue(m: at.MachineArrays, ac: AllocContext, zone: int, flags: int) -> tuple[int, bool]:
    """rmqueue(): take a page from a zone that passed its watermark (S3.2).

    Returns:
        The page, or -1 if the zone has none; whether it comes from a per-CPU list.
    """
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
        flags & at.ALLOC_KSWAPD or not m.st[at.RULE_BOOSTED_WAKE_NEEDS_BIT]
    ):
        m.st[region + at.ZONE_BOOSTED] = 0
        wakeup_kswapd(m, m.st[region + at.ZONE_NODE], 0, m.st[region + at.ZONE_TYPE])
    return pfn, from_list


@hot
def zone_may_serve(
    m: at.MachineArrays, zone: int, order: int, highest_type: int, flags: int
) -> bool:
    """Part of get_page_from_freelist(): return whether a zone passes its watermarks (S3.1).

    The marks are the request's. A zone below its high mark is noted. Where a zone is imposed no
    other may serve.
    """
    region = zone_at(zone)
    if m.st[at.RULE_BELOW_HIGH_TESTED] and not m.st[region + at.ZONE_BELOW_HIGH]:
        if zone_watermark_fast(m, zone, order, at.WMARK_HIGH, highest_type, flags):
            return not m.st[at.ONLY_ZONE] or m.st[at.ONLY_ZONE] == zone + 1
        m.st[region + at.ZONE_BELOW_HIGH] = 1
    if m.st[at.ONLY_ZONE] and m.st[at.ONLY_ZONE] != zone + 1:
        return False
    if flags & at.ALLOC_NO_WATERMARKS:
        return True
    return zone_watermark_fast(m, zone, order, flags & at.WMARK_MASK, highest_type, flags)


@inner
def is_on_another_node(m: at.MachineArrays, zone: int, other: int) -> bool:
    """Part of get_page_from_freelist(): return whether two zones are on different nodes."""
    return m.st[zone_at(zone) + at.ZONE_NODE] != m.st[zone_at(other) + at.ZONE_NODE]


@inner
def is_busy(m: at.MachineArrays, zone: int) -> bool:
    """Part of get_page_from_freelist(): return whether kswapd of the zone's node does not sleep.

    In an elastic replay it neither sleeps nor naps from when it is woken.
    """
    node = m.st[zone_at(zone) + at.ZONE_NODE]
    if m.st[at.PRESSURE_BASE]:
        words = node_pressure_at(m, node)
        return m.st[words + pr.KSWAPD_PHASE] == pr.RUNNING or m.st[words + pr.KSWAPD_WOKEN] != 0
    return m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE] != 0


@hot
def take_and_reserve(m: at.MachineArrays, ac: AllocContext, zone: int, flags: int) -> int:
    """Part of get_page_from_freelist(): take a page from a zone (S3.2, S7.1).

    Atomic requests may reserve its block. Returns the page, or -1.
    """
    pfn, from_list = rmqueue(m, ac, zone, flags)
    if pfn >= 0 and flags & at.ALLOC_HIGHATOMIC and grows_reserve(m, flags, from_list):
        reserve_highatomic_pageblock(m, zone, ac.cpu, pfn, ac.order)
    return pfn


@cold
def grows_reserve(m: at.MachineArrays, flags: int, from_list: bool) -> bool:
    """Part of rmqueue_buddy(): return whether a page makes the highatomic reserve grow (S7.1)."""
    if from_list and not m.st[at.POLICY_HIGHATOMIC_FROM_PCP]:
        return False
    is_in_need = flags & at.WMARK_MASK == at.WMARK_MIN
    return is_in_need or not m.st[at.POLICY_HIGHATOMIC_SLOWPATH_ONLY]


@hot
def drops_nofragment(m: at.MachineArrays, flags: int) -> bool:
    """Part of get_page_from_freelist(): return whether to drop NOFRAGMENT (S3.1, S8.6).

    A walk that finds nothing pure goes on without it.
    """
    return flags & at.ALLOC_NOFRAGMENT != 0 and not m.st[at.POLICY_DEFRAG_MODE]


@hot
def get_page_from_freelist(m: at.MachineArrays, ac: AllocContext, flags: int) -> int:
    """get_page_from_freelist(): take a page from the first zone that can serve (S3.1).

    The zonelist's first zone serves most requests. Returns the page, or -1 if no zone may and can
    serve the request.
    """
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
    m: at.MachineArrays,
    ac: AllocContext,
    position: int,
    flags: int,
    skips_busy: bool,
    skipped: bool,
) -> tuple[int, int, int, bool, bool]:
    """Part of get_page_from_freelist(): walk the zonelist up to a zone that may serve (S3.1).

    The walk begins again with nodes whose kswapd runs, if they were left out, and without
    NOFRAGMENT, if that was set, also before it leaves the node of the preferred zone.

    Returns:
        The zone, or -1 at the end; and what the walk goes on with: position, flags, whether it
        leaves such nodes out, and whether it did.
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
def walk_zones(m: at.MachineArrays, ac: AllocContext, position: int, flags: int) -> int:
    """Part of get_page_from_freelist(): take a page from a zone on from a position (S3.1).

    Returns a page of a zone that serves the request, or -1.
    """
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
def begin_request(m: at.MachineArrays, ac: AllocContext) -> None:
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
