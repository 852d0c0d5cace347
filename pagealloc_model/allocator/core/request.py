"""One request, fast and slow path: zone choice, per-CPU list or buddy (S2, S3, S8)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.alloc_flags import fast_path_flags, gfp_to_alloc_flags
from pagealloc_model.allocator.core.buddy import __free_one_page, __rmqueue_smallest
from pagealloc_model.allocator.core.event_log import count_transaction, log_page
from pagealloc_model.allocator.core.fallback import MODE_NORMAL, __rmqueue
from pagealloc_model.allocator.core.highatomic import (
    reserve_highatomic_pageblock,
    unreserve_highatomic_pageblock,
)
from pagealloc_model.allocator.core.offsets import node_at, node_zonelist, zone_at
from pagealloc_model.allocator.core.pcp import (
    drain_all_pages,
    free_frozen_page_commit,
    order_to_pindex,
    rmqueue_pcplist,
)
from pagealloc_model.allocator.core.reclaim import (
    direct_reclaim_ran,
    reclaim_sufficed,
    zone_nearest_to_its_mark,
)
from pagealloc_model.allocator.core.watermark import (
    stop_balanced_kswapds,
    wake_all_kswapds,
    wakeup_kswapd,
    zone_watermark_fast,
)
from pagealloc_model.allocator.ownership.owned_frees import free_owned
from pagealloc_model.allocator.ownership.owned_refill import allocate_from_owned
from pagealloc_model.base.jit import cold, hot, inner

SLOW_PATH, ON_RESERVES, AFTER_RECLAIM, WITHOUT_WATERMARKS = range(4)


@cold
def rmqueue_buddy(
    m: at.MachineArrays, zone: int, cpu: int, order: int, migratetype: int, flags: int
) -> int:
    """rmqueue_buddy(): take one page object straight from the buddy (S3.2, S7.3).

    The reserve is included. Returns the page, or -1.
    """
    pfn = -1
    taken_from = migratetype
    if flags & at.ALLOC_HIGHATOMIC:
        pfn = __rmqueue_smallest(m, zone, order, at.HIGHATOMIC)
        if pfn >= 0:
            log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, order, at.HIGHATOMIC, 0, 0, 0)
            taken_from = at.HIGHATOMIC
    if pfn < 0:
        m.st[at.FALLBACK_MODE] = MODE_NORMAL
        pfn = __rmqueue(m, zone, order, migratetype, flags)
    if pfn < 0 and flags & at.ALLOC_NON_BLOCK:
        pfn = __rmqueue_smallest(m, zone, order, at.HIGHATOMIC)
        if pfn >= 0:
            log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, order, at.HIGHATOMIC, 0, 0, 0)
            taken_from = at.HIGHATOMIC
    got = 1 if pfn >= 0 else 0
    count_transaction(m, at.SITE_BUDDY_ALLOC, zone, cpu, order, taken_from, got, got << order)
    return pfn


@hot
def rmqueue(
    m: at.MachineArrays, zone: int, cpu: int, order: int, migratetype: int, flags: int
) -> int:
    """rmqueue(): take a page from a zone that passed its watermark (S3.2).

    Returns the page, or -1 if the zone has none.
    """
    pfn = -1
    m.st[at.SERVED_BY_PCP] = 0
    index = order_to_pindex(m, order, migratetype)
    if index >= 0:
        if m.st[at.OWNERSHIP]:
            pfn = allocate_from_owned(m, zone, cpu, order, migratetype, flags)
        else:
            pfn = rmqueue_pcplist(m, zone, cpu, order, migratetype, flags, index)
        if pfn >= 0:
            m.st[at.SERVED_BY_PCP] = 1
    if pfn < 0:
        pfn = rmqueue_buddy(m, zone, cpu, order, migratetype, flags)
        if pfn >= 0:
            m.pages[pfn]["flags"] = 0
    region = zone_at(zone)
    if m.st[region + at.ZONE_BOOSTED] and (
        flags & at.ALLOC_KSWAPD or not m.st[at.RULE_BOOSTED_WAKE_NEEDS_BIT]
    ):
        m.st[region + at.ZONE_BOOSTED] = 0
        wakeup_kswapd(m, m.st[region + at.ZONE_NODE], 0, m.st[region + at.ZONE_TYPE])
    return pfn


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
    """Part of get_page_from_freelist(): return whether kswapd of the zone's node runs."""
    return m.st[node_at(m, m.st[zone_at(zone) + at.ZONE_NODE]) + at.NODE_KSWAPD_ACTIVE] != 0


@hot
def take_and_reserve(
    m: at.MachineArrays, zone: int, cpu: int, order: int, migratetype: int, flags: int
) -> int:
    """Part of get_page_from_freelist(): take a page from a zone (S3.2, S7.1).

    Atomic requests may reserve its block. Returns the page, or -1.
    """
    pfn = rmqueue(m, zone, cpu, order, migratetype, flags)
    counts = not m.st[at.SERVED_BY_PCP] or m.st[at.POLICY_HIGHATOMIC_FROM_PCP]
    if pfn >= 0 and flags & at.ALLOC_HIGHATOMIC and counts:
        reserve_highatomic_pageblock(m, zone, cpu, pfn, order)
    return pfn


@hot
def drops_nofragment(m: at.MachineArrays, flags: int) -> bool:
    """Part of get_page_from_freelist(): return whether to drop NOFRAGMENT (S3.1, S8.6).

    A walk that finds nothing pure goes on without it.
    """
    return flags & at.ALLOC_NOFRAGMENT != 0 and not m.st[at.POLICY_DEFRAG_MODE]


@hot
def get_page_from_freelist(
    m: at.MachineArrays,
    zonelist: int,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    flags: int,
) -> int:
    """get_page_from_freelist(): take a page from the first zone that can serve (S3.1).

    The zonelist's first zone serves most requests. Returns the page, or -1 if no zone may and can
    serve the request.
    """
    position = zonelist
    zone = m.st[zonelist]
    if zone >= 0 and not m.st[at.SKIPS_BUSY_NODES]:
        if zone_may_serve(m, zone, order, highest_type, flags):
            pfn = take_and_reserve(m, zone, cpu, order, migratetype, flags)
            if pfn >= 0:
                return pfn
        position += 1
    return walk_zones(m, zonelist, position, cpu, order, migratetype, highest_type, flags)


@cold
def walk_zones(
    m: at.MachineArrays,
    zonelist: int,
    position: int,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    flags: int,
) -> int:
    """Part of get_page_from_freelist(): walk the zonelist from a position (S3.1).

    Returns a page of a zone that serves the request, or -1. The walk begins again with nodes whose
    kswapd runs, if they were left out, and without NOFRAGMENT, if that was set, also before it
    leaves the node of the preferred zone.
    """
    skips_busy = m.st[at.SKIPS_BUSY_NODES] != 0
    skipped = False
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
                return -1
            position = zonelist
        elif drops_nofragment(m, flags) and is_on_another_node(m, zone, m.st[zonelist]):
            flags &= ~at.ALLOC_NOFRAGMENT
            position = zonelist
        elif skips_busy and is_busy(m, zone):
            skipped = True
        elif zone_may_serve(m, zone, order, highest_type, flags):
            pfn = take_and_reserve(m, zone, cpu, order, migratetype, flags)
            if pfn >= 0:
                return pfn


@hot
def __alloc_frozen_pages(
    m: at.MachineArrays, cpu: int, order: int, migratetype: int, highest_type: int, bits: int
) -> int:
    """__alloc_frozen_pages(): serve a request that succeeded in the recording.

    Returns the page, or -1 if the model has no such page left. In 6.12 the function is called
    __alloc_pages().
    """
    zonelist = node_zonelist(m, cpu, highest_type, bits)
    flags = fast_path_flags(m, zonelist, migratetype, bits)
    pfn = get_page_from_freelist(m, zonelist, cpu, order, migratetype, highest_type, flags)
    if pfn < 0:
        pfn = __alloc_pages_slowpath(
            m, zonelist, cpu, order, migratetype, highest_type, bits, flags
        )
    if pfn >= 0:
        prep_new_page(m, pfn, order, migratetype)
    return pfn


@cold
def __alloc_pages_slowpath(
    m: at.MachineArrays,
    zonelist: int,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    bits: int,
    flags: int,
) -> int:
    """__alloc_pages_slowpath(): serve a request that the fast path had no page for.

    Returns the page, or -1. `flags` are those of the fast path.

    The attempts, in order: slow path (S8.1); on all reserves, if the request may use them (S2.6);
    after direct reclaim, with a reserved block released and the per-CPU lists drained (S8.2);
    without watermarks. Reclaim is literal: what it freed has been replayed already. The last
    attempt is a divergence and counted; it begins with the zone that is nearest to its mark.
    """
    pfn = -1
    attempt = SLOW_PATH
    while pfn < 0 and attempt <= WITHOUT_WATERMARKS:
        if attempt == SLOW_PATH:
            m.st[at.COUNT_SLOW_PATH] += 1
            flags = gfp_to_alloc_flags(m, bits, order, flags)
        elif attempt == ON_RESERVES:
            if bits & at.GFP_MEMALLOC and not bits & at.GFP_NOMEMALLOC:
                flags = at.ALLOC_NO_WATERMARKS | (flags & (at.ALLOC_KSWAPD | at.ALLOC_CMA))
            else:
                attempt = AFTER_RECLAIM
        if attempt == AFTER_RECLAIM:
            if direct_reclaim_ran(m, bits) and not reclaim_sufficed(
                m, zonelist, order, highest_type, flags, bits
            ):
                unreserve_highatomic_pageblock(m, cpu, zonelist, migratetype)
                drain_all_pages(m)
            else:
                attempt = WITHOUT_WATERMARKS
        if attempt == WITHOUT_WATERMARKS:
            if flags & at.ALLOC_NO_WATERMARKS:
                return -1
            flags |= at.ALLOC_NO_WATERMARKS
        wakes = SLOW_PATH <= attempt <= ON_RESERVES
        if wakes and flags & at.ALLOC_KSWAPD:
            wake_all_kswapds(m, zonelist, order, highest_type)
        if attempt == WITHOUT_WATERMARKS:
            zone = zone_nearest_to_its_mark(m, zonelist, order, highest_type, flags)
            if m.st[at.ONLY_ZONE]:
                zone = m.st[at.ONLY_ZONE] - 1
            if zone >= 0:
                pfn = take_and_reserve(m, zone, cpu, order, migratetype, flags)
        if pfn < 0:
            pfn = walk_zones(
                m,
                zonelist,
                zonelist,
                cpu,
                order,
                migratetype,
                highest_type,
                flags,
            )
        if pfn >= 0 and attempt == WITHOUT_WATERMARKS:
            m.st[at.COUNT_FORCED] += 1
        attempt += 1
    return pfn


@hot
def prep_new_page(m: at.MachineArrays, pfn: int, order: int, migratetype: int) -> None:
    """prep_new_page(): describe an allocation's first page."""
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ALLOCATED
    m.pages[pfn]["tag"] = 1 if migratetype == at.MOVABLE else 0


@hot
def allocate_object(
    m: at.MachineArrays, cpu: int, order: int, migratetype: int, highest_type: int, bits: int
) -> int:
    """No kernel function: find an object a place; returns it, or -1 if memory has run out.

    See `layout.CHAINED`.
    """
    pfn = __alloc_frozen_pages(m, cpu, order, migratetype, highest_type, bits)
    if pfn < 0:
        return allocate_in_pieces(m, cpu, order, migratetype, highest_type, bits)
    m.pages[pfn]["next"] = -1
    return pfn


@cold
def allocate_in_pieces(
    m: at.MachineArrays, cpu: int, order: int, migratetype: int, highest_type: int, bits: int
) -> int:
    """No kernel function: return a place for an object that found none as a whole, or -1.

    Where the recording found a buddy, perhaps by compaction, and the model has none, the object
    becomes a chain of single pages: its memory is used all the same, as its caller would have
    fallen back to small pages.
    """
    left = 1 << order
    if order == 0:
        m.st[at.COUNT_FAILED] += 1
        left = 0
    else:
        m.st[at.COUNT_IN_BASE_PAGES] += 1
    first = -1
    while left > 0:
        pfn = __alloc_frozen_pages(m, cpu, 0, migratetype, highest_type, bits)
        if pfn >= 0:
            m.pages[pfn]["next"] = first
            first = pfn
            left -= 1
        else:
            m.st[at.COUNT_FAILED] += 1
            left = 0
    return at.CHAINED - first if first >= 0 else -1


@hot
def free_object(m: at.MachineArrays, cpu: int, place: int, offset: int, order: int) -> int:
    """No kernel function: free a piece of an object.

    Returns the object's place for what remains of it.
    """
    if place < -1:
        return free_chained(m, cpu, place, order)
    __free_frozen_pages(m, cpu, place + offset, order)
    return place


@cold
def free_chained(m: at.MachineArrays, cpu: int, place: int, order: int) -> int:
    """No kernel function: free the first single pages of a chain.

    Returns the place of what remains, or -1.
    """
    pfn = at.CHAINED - place
    left = 1 << order
    while left > 0 and pfn >= 0:
        following = int(m.pages[pfn]["next"])
        __free_frozen_pages(m, cpu, pfn, 0)
        pfn = following
        left -= 1
    return at.CHAINED - pfn if pfn >= 0 else -1


@cold
def split_allocation(m: at.MachineArrays, pfn: int, order: int) -> None:
    """No kernel function: cut an allocation so that a piece at `pfn` stands alone (T10.1).

    The piece is of the order given.
    """
    for above in range(order, m.st[at.MAX_ORDER] + 1):
        head = pfn & ~((1 << above) - 1)
        if int(m.pages[head]["where"]) == at.ALLOCATED and int(m.pages[head]["order"]) >= above:
            tag = int(m.pages[head]["tag"])
            flags = int(m.pages[head]["flags"])
            for current in range(int(m.pages[head]["order"]) - 1, order - 1, -1):
                half = pfn & ~((1 << current) - 1)
                other = half ^ (1 << current)
                for piece in (half, other):
                    m.pages[piece]["where"] = at.ALLOCATED
                    m.pages[piece]["order"] = current
                    m.pages[piece]["tag"] = tag
                    m.pages[piece]["flags"] = flags
            return


@hot
def __free_frozen_pages(m: at.MachineArrays, cpu: int, pfn: int, order: int) -> None:
    """__free_frozen_pages(): free pages on a CPU (S4.6).

    They go to its lists or, where those do not take them, to the buddy. In 6.12 the function is
    called free_unref_page().
    """
    if int(m.pages[pfn]["where"]) != at.ALLOCATED or int(m.pages[pfn]["order"]) != order:
        split_allocation(m, pfn, order)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    block = pfn >> block_order
    zone = int(m.blocks[block]["zone"]) - 1
    migratetype = int(m.blocks[block]["migratetype"])
    listed = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    index = order_to_pindex(m, order, listed)
    if m.st[at.OWNERSHIP] and order > block_order:
        index = -1
    if index >= 0 and migratetype != m.st[at.ISOLATE]:
        if m.st[at.OWNERSHIP]:
            free_owned(m, zone, cpu, pfn, order, migratetype)
        else:
            free_frozen_page_commit(m, zone, cpu, pfn, order, index, migratetype)
    else:
        free_one_page(m, zone, cpu, pfn, order, migratetype)
    if m.st[at.KSWAPD_RUNS] and not m.st[at.KSWAPD_RECORDED]:
        stop_balanced_kswapds(m)


@cold
def free_one_page(
    m: at.MachineArrays, zone: int, cpu: int, pfn: int, order: int, migratetype: int
) -> None:
    """free_one_page(): free pages that per-CPU lists do not take to the buddy (S4.6)."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    if order <= block_order or not m.st[at.RULE_FREE_SPLIT_BY_BLOCK]:
        __free_one_page(m, zone, pfn, order, migratetype)
    else:
        for piece in range(1 << (order - block_order)):
            first = pfn + (piece << block_order)
            piece_type = int(m.blocks[first >> block_order]["migratetype"])
            m.pages[first]["where"] = at.NOWHERE
            __free_one_page(m, zone, first, block_order, piece_type)
    count_transaction(m, at.SITE_DIRECT_FREE, zone, cpu, order, migratetype, 1, 1 << order)
