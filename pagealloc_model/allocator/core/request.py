"""One request, fast and slow path: zone choice, per-CPU list or buddy (S2, S3, S8)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.alloc_flags import fast_path_flags, slow_path_flags
from pagealloc_model.allocator.core.buddy import free_to_buddy, take_smallest_fit
from pagealloc_model.allocator.core.event_log import count_transaction, log_page
from pagealloc_model.allocator.core.fallback import MODE_NORMAL, take_page
from pagealloc_model.allocator.core.highatomic import reserve, unreserve
from pagealloc_model.allocator.core.offsets import node_at, zone_at, zonelist_at
from pagealloc_model.allocator.core.pcp import (
    allocate_from_pcp,
    drain_everything,
    free_to_pcp,
    list_index,
)
from pagealloc_model.allocator.core.reclaim import (
    direct_reclaim_ran,
    reclaim_sufficed,
    zone_nearest_to_its_mark,
)
from pagealloc_model.allocator.core.watermark import (
    passes_watermark,
    stop_balanced_kswapds,
    wake_kswapd,
    wake_kswapds,
)
from pagealloc_model.allocator.ownership.owned_frees import free_owned
from pagealloc_model.allocator.ownership.owned_refill import allocate_from_owned
from pagealloc_model.base.jit import cold, hot, inner

SLOW_PATH, ON_RESERVES, AFTER_RECLAIM, WITHOUT_WATERMARKS = range(4)


@cold
def allocate_from_buddy(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    migratetype: int,
    flags: int,
) -> int:
    """One page object straight from the buddy, reserve included (S3.2, S7.3); -1 if none."""
    pfn = -1
    taken_from = migratetype
    if flags & at.ALLOC_HIGHATOMIC:
        pfn = take_smallest_fit(pages, st, zone, order, at.HIGHATOMIC)
        if pfn >= 0:
            log_page(st, log, at.LOG_ZONE_LOCKED, zone, pfn, order, at.HIGHATOMIC, 0, 0, 0)
            taken_from = at.HIGHATOMIC
    if pfn < 0:
        st[at.FALLBACK_MODE] = MODE_NORMAL
        pfn = take_page(pages, blocks, st, log, zone, order, migratetype, flags)
    if pfn < 0 and flags & at.ALLOC_NON_BLOCK:
        pfn = take_smallest_fit(pages, st, zone, order, at.HIGHATOMIC)
        if pfn >= 0:
            log_page(st, log, at.LOG_ZONE_LOCKED, zone, pfn, order, at.HIGHATOMIC, 0, 0, 0)
            taken_from = at.HIGHATOMIC
    got = 1 if pfn >= 0 else 0
    count_transaction(st, log, at.SITE_BUDDY_ALLOC, zone, cpu, order, taken_from, got, got << order)
    return pfn


@hot
def take_from_zone(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    migratetype: int,
    flags: int,
) -> int:
    """A page from a zone that passed its watermark (S3.2); -1 if the zone has none."""
    pfn = -1
    st[at.SERVED_BY_PCP] = 0
    index = list_index(st, order, migratetype)
    if index >= 0:
        if st[at.OWNERSHIP]:
            pfn = allocate_from_owned(pages, blocks, st, log, zone, cpu, order, migratetype, flags)
        else:
            pfn = allocate_from_pcp(
                pages, blocks, st, log, zone, cpu, order, migratetype, flags, index
            )
        if pfn >= 0:
            st[at.SERVED_BY_PCP] = 1
    if pfn < 0:
        pfn = allocate_from_buddy(pages, blocks, st, log, zone, cpu, order, migratetype, flags)
        if pfn >= 0:
            pages[pfn]["flags"] = 0
    region = zone_at(zone)
    if st[region + at.ZONE_BOOSTED] and (
        flags & at.ALLOC_KSWAPD or not st[at.BOOSTED_WAKE_NEEDS_BIT]
    ):
        st[region + at.ZONE_BOOSTED] = 0
        wake_kswapd(st, st[region + at.ZONE_NODE], 0, st[region + at.ZONE_TYPE])
    return pfn


@hot
def zone_may_serve(st: np.ndarray, zone: int, order: int, highest_type: int, flags: int) -> bool:
    """Whether a zone passes the request's watermarks; notes if it is below high (S3.1)."""
    region = zone_at(zone)
    if st[at.BELOW_HIGH_TESTED] and not st[region + at.ZONE_BELOW_HIGH]:
        if passes_watermark(st, zone, order, at.WMARK_HIGH, highest_type, flags):
            return True
        st[region + at.ZONE_BELOW_HIGH] = 1
    if flags & at.ALLOC_NO_WATERMARKS:
        return True
    return passes_watermark(st, zone, order, flags & at.WMARK_MASK, highest_type, flags)


@inner
def is_on_another_node(st: np.ndarray, zone: int, other: int) -> bool:
    """Whether two zones are on different nodes."""
    return st[zone_at(zone) + at.ZONE_NODE] != st[zone_at(other) + at.ZONE_NODE]


@inner
def is_busy(st: np.ndarray, zone: int) -> bool:
    """Whether kswapd of the zone's node runs."""
    return st[node_at(st, st[zone_at(zone) + at.ZONE_NODE]) + at.NODE_KSWAPD_ACTIVE] != 0


@hot
def take_and_reserve(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    migratetype: int,
    flags: int,
) -> int:
    """A page from a zone; atomic requests may reserve its block (S3.2, S7.1). -1 if none."""
    pfn = take_from_zone(pages, blocks, st, log, zone, cpu, order, migratetype, flags)
    counts = not st[at.SERVED_BY_PCP] or st[at.HIGHATOMIC_FROM_PCP]
    if pfn >= 0 and flags & at.ALLOC_HIGHATOMIC and counts:
        reserve(pages, blocks, st, log, zone, cpu, pfn, order)
    return pfn


@hot
def drops_nofragment(st: np.ndarray, flags: int) -> bool:
    """Whether a walk that finds nothing pure goes on without NOFRAGMENT (S3.1, S8.6)."""
    return flags & at.ALLOC_NOFRAGMENT != 0 and not st[at.DEFRAG_MODE]


@hot
def try_zones(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zonelist: int,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    flags: int,
) -> int:
    """A page from the zonelist's first zone, which serves most requests, or from another (S3.1).

    -1 if none may and can serve the request.
    """
    position = zonelist
    zone = st[zonelist]
    if zone >= 0 and not st[at.SKIPS_BUSY_NODES]:
        if zone_may_serve(st, zone, order, highest_type, flags):
            pfn = take_and_reserve(pages, blocks, st, log, zone, cpu, order, migratetype, flags)
            if pfn >= 0:
                return pfn
        position += 1
    return walk_zones(
        pages, blocks, st, log, zonelist, position, cpu, order, migratetype, highest_type, flags
    )


@cold
def walk_zones(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zonelist: int,
    position: int,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    flags: int,
) -> int:
    """Walk the zonelist from a position for a zone that serves the request (S3.1); -1 if none.

    The walk begins again with nodes whose kswapd runs, if they were left out, and without
    NOFRAGMENT, if that was set, also before it leaves the node of the preferred zone.
    """
    skips_busy = st[at.SKIPS_BUSY_NODES] != 0
    skipped = False
    while True:
        zone = st[position]
        position += 1
        if zone < 0:
            if skipped:
                skips_busy = False
                skipped = False
            elif drops_nofragment(st, flags):
                flags &= ~at.ALLOC_NOFRAGMENT
            else:
                return -1
            position = zonelist
        elif drops_nofragment(st, flags) and is_on_another_node(st, zone, st[zonelist]):
            flags &= ~at.ALLOC_NOFRAGMENT
            position = zonelist
        elif skips_busy and is_busy(st, zone):
            skipped = True
        elif zone_may_serve(st, zone, order, highest_type, flags):
            pfn = take_and_reserve(pages, blocks, st, log, zone, cpu, order, migratetype, flags)
            if pfn >= 0:
                return pfn


@hot
def allocate(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    bits: int,
) -> int:
    """Serve a request that succeeded in the recording; -1 if the model has no such page left."""
    zonelist = zonelist_at(st, cpu, highest_type, bits)
    flags = fast_path_flags(st, zonelist, migratetype, bits)
    pfn = try_zones(pages, blocks, st, log, zonelist, cpu, order, migratetype, highest_type, flags)
    if pfn < 0:
        pfn = try_harder(
            pages, blocks, st, log, zonelist, cpu, order, migratetype, highest_type, bits, flags
        )
    if pfn >= 0:
        mark_allocated(pages, pfn, order, migratetype)
    return pfn


@cold
def try_harder(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zonelist: int,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    bits: int,
    flags: int,
) -> int:
    """Serve a request for which the fast path, with its flags, had no page; -1 if there is none.

    The attempts, in order: slow path (S8.1); on all reserves, if the request may use
    them (S2.6); after direct reclaim, with a reserved block released and the per-CPU lists drained
    (S8.2); without watermarks. Reclaim is literal: what it freed has been replayed already. The
    last attempt is a divergence and counted; it begins with the zone that is nearest to its mark.
    """
    pfn = -1
    attempt = SLOW_PATH
    while pfn < 0 and attempt <= WITHOUT_WATERMARKS:
        if attempt == SLOW_PATH:
            st[at.COUNT_SLOW_PATH] += 1
            flags = slow_path_flags(st, bits, order, flags)
        elif attempt == ON_RESERVES:
            if bits & at.GFP_MEMALLOC and not bits & at.GFP_NOMEMALLOC:
                flags = at.ALLOC_NO_WATERMARKS | (flags & (at.ALLOC_KSWAPD | at.ALLOC_CMA))
            else:
                attempt = AFTER_RECLAIM
        if attempt == AFTER_RECLAIM:
            if direct_reclaim_ran(st, bits) and not reclaim_sufficed(
                st, zonelist, order, highest_type, flags, bits
            ):
                unreserve(pages, blocks, st, log, cpu, zonelist, migratetype)
                drain_everything(pages, blocks, st, log)
            else:
                attempt = WITHOUT_WATERMARKS
        if attempt == WITHOUT_WATERMARKS:
            if flags & at.ALLOC_NO_WATERMARKS:
                return -1
            flags |= at.ALLOC_NO_WATERMARKS
        wakes = SLOW_PATH <= attempt <= ON_RESERVES
        if wakes and flags & at.ALLOC_KSWAPD:
            wake_kswapds(st, zonelist, order, highest_type)
        if attempt == WITHOUT_WATERMARKS:
            zone = zone_nearest_to_its_mark(st, zonelist, order, highest_type, flags)
            if zone >= 0:
                pfn = take_and_reserve(pages, blocks, st, log, zone, cpu, order, migratetype, flags)
        if pfn < 0:
            pfn = walk_zones(
                pages,
                blocks,
                st,
                log,
                zonelist,
                zonelist,
                cpu,
                order,
                migratetype,
                highest_type,
                flags,
            )
        if pfn >= 0 and attempt == WITHOUT_WATERMARKS:
            st[at.COUNT_FORCED] += 1
        attempt += 1
    return pfn


@hot
def mark_allocated(pages: np.ndarray, pfn: int, order: int, migratetype: int) -> None:
    """Describe an allocation's first page."""
    pages[pfn]["order"] = order
    pages[pfn]["where"] = at.ALLOCATED
    pages[pfn]["tag"] = 1 if migratetype == at.MOVABLE else 0


@hot
def allocate_object(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    bits: int,
) -> int:
    """Find an object a place (see `layout.CHAINED`), -1 if memory has run out."""
    pfn = allocate(pages, blocks, st, log, cpu, order, migratetype, highest_type, bits)
    if pfn < 0:
        return allocate_in_pieces(
            pages, blocks, st, log, cpu, order, migratetype, highest_type, bits
        )
    pages[pfn]["next"] = -1
    return pfn


@cold
def allocate_in_pieces(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    bits: int,
) -> int:
    """The place of an object that has found none as a whole, -1 if memory has run out.

    Where the recording found a buddy, perhaps by compaction, and the model has none, the object
    becomes a chain of single pages: its memory is used all the same, as its caller would have
    fallen back to small pages.
    """
    left = 1 << order
    if order == 0:
        st[at.COUNT_FAILED] += 1
        left = 0
    else:
        st[at.COUNT_IN_BASE_PAGES] += 1
    first = -1
    while left > 0:
        pfn = allocate(pages, blocks, st, log, cpu, 0, migratetype, highest_type, bits)
        if pfn >= 0:
            pages[pfn]["next"] = first
            first = pfn
            left -= 1
        else:
            st[at.COUNT_FAILED] += 1
            left = 0
    return at.CHAINED - first if first >= 0 else -1


@hot
def free_object(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    cpu: int,
    place: int,
    offset: int,
    order: int,
) -> int:
    """Free a piece of an object; returns the object's place for what remains of it."""
    if place < -1:
        return free_chained(pages, blocks, st, log, cpu, place, order)
    free_pages(pages, blocks, st, log, cpu, place + offset, order)
    return place


@cold
def free_chained(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    cpu: int,
    place: int,
    order: int,
) -> int:
    """Free the first single pages of a chain; returns the place of what remains, -1 if nothing."""
    pfn = at.CHAINED - place
    left = 1 << order
    while left > 0 and pfn >= 0:
        following = int(pages[pfn]["next"])
        free_pages(pages, blocks, st, log, cpu, pfn, 0)
        pfn = following
        left -= 1
    return at.CHAINED - pfn if pfn >= 0 else -1


@cold
def split_allocation(pages: np.ndarray, st: np.ndarray, pfn: int, order: int) -> None:
    """Cut an allocation so that the piece of this order at `pfn` stands alone (T10.1)."""
    for above in range(order, st[at.MAX_ORDER] + 1):
        head = pfn & ~((1 << above) - 1)
        if int(pages[head]["where"]) == at.ALLOCATED and int(pages[head]["order"]) >= above:
            tag = int(pages[head]["tag"])
            flags = int(pages[head]["flags"])
            for current in range(int(pages[head]["order"]) - 1, order - 1, -1):
                half = pfn & ~((1 << current) - 1)
                other = half ^ (1 << current)
                for piece in (half, other):
                    pages[piece]["where"] = at.ALLOCATED
                    pages[piece]["order"] = current
                    pages[piece]["tag"] = tag
                    pages[piece]["flags"] = flags
            return


@hot
def free_pages(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    cpu: int,
    pfn: int,
    order: int,
) -> None:
    """Free pages on a CPU: to its lists or, where those do not take them, to the buddy (S4.6)."""
    if int(pages[pfn]["where"]) != at.ALLOCATED or int(pages[pfn]["order"]) != order:
        split_allocation(pages, st, pfn, order)
    block_order = st[at.PAGEBLOCK_ORDER]
    block = pfn >> block_order
    zone = int(blocks[block]["zone"]) - 1
    migratetype = int(blocks[block]["migratetype"])
    listed = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    index = list_index(st, order, listed)
    if st[at.OWNERSHIP] and order > block_order:
        index = -1
    if index >= 0 and migratetype != st[at.ISOLATE]:
        if st[at.OWNERSHIP]:
            free_owned(pages, blocks, st, log, zone, cpu, pfn, order, migratetype)
        else:
            free_to_pcp(pages, blocks, st, log, zone, cpu, pfn, order, index, migratetype)
    else:
        free_past_lists(pages, blocks, st, log, zone, cpu, pfn, order, migratetype)
    if st[at.KSWAPD_RUNS] and not st[at.KSWAPD_RECORDED]:
        stop_balanced_kswapds(st, log)


@cold
def free_past_lists(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    pfn: int,
    order: int,
    migratetype: int,
) -> None:
    """Free pages that per-CPU lists do not take to the buddy (S4.6)."""
    block_order = st[at.PAGEBLOCK_ORDER]
    if order <= block_order or not st[at.FREE_SPLIT_BY_BLOCK]:
        free_to_buddy(pages, blocks, st, zone, pfn, order, migratetype)
    else:
        for piece in range(1 << (order - block_order)):
            first = pfn + (piece << block_order)
            piece_type = int(blocks[first >> block_order]["migratetype"])
            pages[first]["where"] = at.NOWHERE
            free_to_buddy(pages, blocks, st, zone, first, block_order, piece_type)
    count_transaction(st, log, at.SITE_DIRECT_FREE, zone, cpu, order, migratetype, 1, 1 << order)
