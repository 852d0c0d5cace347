"""Pages for a request from its own type, else from another: claim, steal, largest first (S6)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.buddy import (
    __add_to_free_list,
    __del_page_from_free_list,
    __move_freepages_block,
    __rmqueue_smallest,
    change_pageblock_range,
    expand,
    move_freepages_block,
    prep_move_freepages_block,
    set_pageblock_migratetype,
)
from pagealloc_model.allocator.event_log import log_extfrag, log_page
from pagealloc_model.allocator.layout import free_list_at, zone_at
from pagealloc_model.allocator.watermark import (
    account_move,
    account_part,
    account_taken,
    account_total,
    boost_watermark,
    refill_counts_at_end,
    seen_free,
    seen_free_cma,
)
from pagealloc_model.base.jit import inner


@inner
def fallback_type(migratetype: int, choice: int) -> int:
    """Part of find_suitable_fallback(): return the first or second type to fall back to (S6.1)."""
    if migratetype == at.UNMOVABLE:
        return at.RECLAIMABLE if choice == 0 else at.MOVABLE
    if migratetype == at.MOVABLE:
        return at.RECLAIMABLE if choice == 0 else at.UNMOVABLE
    return at.UNMOVABLE if choice == 0 else at.MOVABLE


@inner
def has_free_pages(m: at.Arrays, zone: int, order: int) -> bool:
    """Part of find_suitable_fallback(): return whether nr_free of an order is above 0."""
    for migratetype in range(at.MIGRATETYPES):
        if m.st[free_list_at(zone, order, migratetype) + at.HEAD] >= 0:
            return True
    return False


@inner
def find_suitable_fallback(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """find_suitable_fallback(): return the type to fall back to at this order, or -1 (S6.1)."""
    if not has_free_pages(m, zone, order):
        return -1
    for choice in range(2):
        other = fallback_type(migratetype, choice)
        m.st[at.LIST_PROBES] += 1
        if m.st[free_list_at(zone, order, other) + at.HEAD] >= 0:
            return other
    return -1


@inner
def foreign_buddy(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """Part of get_page_from_free_area(): return the buddy to fall back to at an order, or -1."""
    other = find_suitable_fallback(m, zone, order, migratetype)
    return m.st[free_list_at(zone, order, other) + at.HEAD] if other >= 0 else -1


@inner
def choose_steal(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """Part of __rmqueue_steal(): return the smallest buddy of another type, or -1 (S6.4)."""
    for current in range(order, m.st[at.MAX_ORDER] + 1):
        pfn = foreign_buddy(m, zone, current, migratetype)
        if pfn >= 0:
            return pfn
    return -1


@inner
def count_fallback(
    m: at.Arrays, migratetype: int, other: int, kind: int, order: int, found_order: int
) -> None:
    """Count one fallback operation by types, kind and orders (S6.6)."""
    index = (migratetype * at.PCP_TYPES + other) * at.FALLBACK_KINDS + kind
    m.st[at.FALLBACKS + (index * at.ORDERS + order) * at.ORDERS + found_order] += 1


@inner
def zone_holds_block(m: at.Arrays, zone: int, block: int) -> bool:
    """Part of prep_move_freepages_block(): return whether a zone holds a whole block (S6.3)."""
    first = block << m.st[at.PAGEBLOCK_ORDER]
    end = (block + 1) << m.st[at.PAGEBLOCK_ORDER]
    region = zone_at(zone)
    return first >= m.st[region + at.ZONE_START] and end <= m.st[region + at.ZONE_END]


@inner
def block_is_mostly_alike(m: at.Arrays, zone: int, block: int, migratetype: int) -> bool:
    """Part of try_to_claim_block(): return whether half of a block suits the request (S6.3).

    Free and compatible pages suit. Movable allocated pages are those requested with __GFP_MOVABLE
    (T10.9). Blocks that cross the zone's edge never qualify.
    """
    if not zone_holds_block(m, zone, block):
        return False
    first = block << m.st[at.PAGEBLOCK_ORDER]
    end = (block + 1) << m.st[at.PAGEBLOCK_ORDER]
    m.st[at.WORK_SCANNED] += pages_looked_at(m, first, end)
    return is_mostly_alike(m, first, end, int(m.blocks[block]["migratetype"]), migratetype)


@inner
def pages_looked_at(m: at.Arrays, first: int, end: int) -> int:
    """Return how many pages a scan looks at; it steps over free buddies."""
    looked_at = 0
    pfn = first
    while pfn < end:
        looked_at += 1
        pfn += 1 << int(m.pages[pfn]["order"]) if int(m.pages[pfn]["where"]) == at.BUDDY else 1
    return looked_at


@inner
def is_mostly_alike(m: at.Arrays, first: int, end: int, block_type: int, migratetype: int) -> bool:
    """Part of try_to_claim_block(): return whether half of a range is free or compatible (S6.3)."""
    block_pages = 1 << m.st[at.PAGEBLOCK_ORDER]
    pfn = first
    free = 0
    movable = 0
    while pfn < end:
        where = int(m.pages[pfn]["where"])
        size = 1
        if where == at.BUDDY:
            size = 1 << int(m.pages[pfn]["order"])
            free += size
        elif where == at.ALLOCATED:
            size = 1 << int(m.pages[pfn]["order"])
            if int(m.pages[pfn]["tag"]) == 1:
                movable += size
        pfn += size
    if migratetype == at.MOVABLE:
        alike = movable
    elif block_type == at.MOVABLE:
        alike = block_pages - (free + movable)
    else:
        alike = 0
    return free + alike >= block_pages // 2


@inner
def can_steal_fallback(m: at.Arrays, order: int, migratetype: int) -> bool:
    """can_steal_fallback(): return whether to take a block's free pages (S6.3)."""
    return order >= m.st[at.PAGEBLOCK_ORDER] // 2 or migratetype != at.MOVABLE


@inner
def choose_largest(m: at.Arrays, zone: int, order: int, migratetype: int, flags: int) -> int:
    """Part of __rmqueue_fallback(): return the largest buddy worth its block, or -1 (S6.5)."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    smallest = order
    if flags & at.ALLOC_NOFRAGMENT and order < block_order:
        smallest = block_order
    for current in range(m.st[at.MAX_ORDER], smallest - 1, -1):
        other = find_suitable_fallback(m, zone, current, migratetype)
        if other < 0:
            continue
        if can_steal_fallback(m, current, migratetype):
            return m.st[free_list_at(zone, current, other) + at.HEAD]
        return choose_steal(m, zone, order, migratetype)
    return -1


@inner
def steal_suitable_fallback(
    m: at.Arrays, zone: int, pfn: int, migratetype: int, flags: int
) -> None:
    """steal_suitable_fallback(): move a buddy or its block's free pages over (S6.5)."""
    block = pfn >> m.st[at.PAGEBLOCK_ORDER]
    order = int(m.pages[pfn]["order"])
    block_type = int(m.blocks[block]["migratetype"])
    if block_type != at.HIGHATOMIC:
        if order >= m.st[at.PAGEBLOCK_ORDER]:
            change_pageblock_range(m, pfn, order, migratetype)
        else:
            if boost_watermark(m, zone) and flags & at.ALLOC_KSWAPD:
                m.st[zone_at(zone) + at.ZONE_BOOSTED] = 1
            first, end = prep_move_freepages_block(m, zone, pfn)
            if can_steal_fallback(m, order, migratetype) and first < end:
                alike = is_mostly_alike(m, first, end, block_type, migratetype)
                __move_freepages_block(m, zone, first, end, migratetype)
                if alike:
                    set_pageblock_migratetype(m, block, migratetype)
                return
    account_move(m, zone, int(m.pages[pfn]["tag"]), migratetype, 1 << order)
    __del_page_from_free_list(m, zone, pfn)
    __add_to_free_list(m, zone, pfn, order, migratetype, True)
    m.st[at.WORK_INSERTS] += 1


@inner
def __rmqueue_fallback(m: at.Arrays, zone: int, order: int, migratetype: int, flags: int) -> int:
    """__rmqueue_fallback(): move free pages of another type over, then take one (S6.5, T6)."""
    found = choose_largest(m, zone, order, migratetype, flags)
    if found < 0:
        return -1
    block_order = m.st[at.PAGEBLOCK_ORDER]
    found_order = int(m.pages[found]["order"])
    other = int(m.pages[found]["tag"])
    steal_suitable_fallback(m, zone, found, migratetype, flags)
    owned = int(m.blocks[found >> block_order]["migratetype"]) == migratetype
    kind = at.CLAIM if owned else at.STEAL
    if found_order >= block_order:
        kind = at.CLAIM_BLOCK
    count_fallback(m, migratetype, other, kind, order, found_order)
    log_extfrag(m, zone, found, order, migratetype, found_order, other, owned)
    pfn = __rmqueue_smallest(m, zone, order, migratetype)
    log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype)
    return pfn


MODE_NORMAL, MODE_CMA, MODE_STEAL = range(3)


@inner
def least_claimed(m: at.Arrays, order: int, flags: int) -> int:
    """Part of __rmqueue_claim(): return the least order of a buddy to claim (S6.3)."""
    return max(order, m.st[at.PAGEBLOCK_ORDER]) if flags & at.ALLOC_NOFRAGMENT else order


@inner
def choose_claim(m: at.Arrays, zone: int, order: int, migratetype: int, flags: int) -> int:
    """Part of __rmqueue_claim(): return the buddy whose blocks would be taken, or -1 (S6.3)."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    for current in range(m.st[at.MAX_ORDER], least_claimed(m, order, flags) - 1, -1):
        if not can_steal_fallback(m, current, migratetype):
            return -1
        pfn = foreign_buddy(m, zone, current, migratetype)
        if pfn >= 0 and (
            current >= block_order
            or block_is_mostly_alike(m, zone, pfn >> block_order, migratetype)
        ):
            return pfn
    return -1


@inner
def try_to_claim_block(
    m: at.Arrays, zone: int, pfn: int, order: int, migratetype: int, flags: int
) -> int:
    """try_to_claim_block(): retag the blocks of a buddy and take a page of them (S6.3)."""
    block = pfn >> m.st[at.PAGEBLOCK_ORDER]
    found_order = int(m.pages[pfn]["order"])
    other = int(m.pages[pfn]["tag"])
    if found_order >= m.st[at.PAGEBLOCK_ORDER]:
        __del_page_from_free_list(m, zone, pfn)
        change_pageblock_range(m, pfn, found_order, migratetype)
        expand(m, zone, pfn, order, found_order, migratetype)
        # Count a buddy of whole blocks retyped, a page of it taken.
        left = (1 << found_order) - (1 << order)
        if not refill_counts_at_end(m):
            account_total(m, zone, -(1 << found_order))
            account_total(m, zone, left)
        account_part(m, zone, other, -(1 << found_order))
        account_part(m, zone, migratetype, left)
        count_fallback(m, migratetype, other, at.CLAIM_BLOCK, order, found_order)
        return pfn
    if boost_watermark(m, zone) and flags & at.ALLOC_KSWAPD:
        m.st[zone_at(zone) + at.ZONE_BOOSTED] = 1
    if not block_is_mostly_alike(m, zone, block, migratetype):
        return -1
    return claim_free_pages(m, zone, block, order, migratetype, other, found_order)


@inner
def claim_free_pages(
    m: at.Arrays,
    zone: int,
    block: int,
    order: int,
    migratetype: int,
    other: int,
    found_order: int,
) -> int:
    """Part of try_to_claim_block(): retag a block, its free pages too; take a page (S6.3)."""
    move_freepages_block(m, zone, block, migratetype)
    count_fallback(m, migratetype, other, at.CLAIM, order, found_order)
    return take_from_list(m, zone, order, migratetype)


@inner
def __rmqueue_claim(m: at.Arrays, zone: int, order: int, migratetype: int, flags: int) -> int:
    """__rmqueue_claim(): return a page of the largest block that can be claimed, or -1 (S6.3)."""
    for current in range(m.st[at.MAX_ORDER], least_claimed(m, order, flags) - 1, -1):
        is_worth_it = can_steal_fallback(m, current, migratetype)
        if not is_worth_it and not m.st[at.RULE_CLAIM_LOOKS_FIRST]:  # from 6.18
            return -1
        found = foreign_buddy(m, zone, current, migratetype)
        if found < 0:
            continue
        if not is_worth_it:
            return -1
        other = int(m.pages[found]["tag"])
        pfn = try_to_claim_block(m, zone, found, order, migratetype, flags)
        if pfn >= 0:
            log_extfrag(m, zone, pfn, order, migratetype, current, other, True)
            return pfn
    return -1


@inner
def __rmqueue_steal(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """__rmqueue_steal(): take pages from another type's smallest buddy, or -1 (S6.4)."""
    pfn = choose_steal(m, zone, order, migratetype)
    if pfn < 0:
        return -1
    found_order = int(m.pages[pfn]["order"])
    other = int(m.pages[pfn]["tag"])
    __del_page_from_free_list(m, zone, pfn)
    expand(m, zone, pfn, order, found_order, other)
    account_taken(m, zone, other, order)
    count_fallback(m, migratetype, other, at.STEAL, order, found_order)
    log_extfrag(m, zone, pfn, order, migratetype, found_order, other, False)
    return pfn


@inner
def cma_comes_first(m: at.Arrays, zone: int) -> bool:
    """Part of __rmqueue(): return whether CMA holds more than half of the free pages (S6.2)."""
    return seen_free_cma(m, zone) > seen_free(m, zone) // 2


@inner
def take_from_list(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """Part of __rmqueue(): call `__rmqueue_smallest`, log its event (T4)."""
    pfn = __rmqueue_smallest(m, zone, order, migratetype)
    if pfn >= 0:
        log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype)
    return pfn


@inner
def __rmqueue(
    m: at.Arrays, zone: int, order: int, migratetype: int, flags: int, mode: int
) -> tuple[int, int]:
    """__rmqueue(): take one page object from the buddy, of the own type, CMA, a claim, a steal.

    `mode` is MODE_NORMAL when zone->lock is taken, then what the last call under it returned: after
    a steal the rest of a refill steals too (S6.2).
    """
    if flags & at.ALLOC_CMA and cma_comes_first(m, zone):
        pfn = take_from_list(m, zone, order, m.st[at.CMA])
        if pfn >= 0:
            return pfn, mode
    if mode == MODE_NORMAL:
        pfn = take_from_list(m, zone, order, migratetype)
        if pfn >= 0:
            return pfn, mode
    if mode != MODE_STEAL:
        if flags & at.ALLOC_CMA:
            pfn = take_from_list(m, zone, order, m.st[at.CMA])
            if pfn >= 0:
                return pfn, mode if m.st[at.RULE_FALLBACK_FROM_LARGEST] else MODE_CMA  # 6.1 only
        if m.st[at.RULE_FALLBACK_FROM_LARGEST]:  # 6.1 only
            return __rmqueue_fallback(m, zone, order, migratetype, flags), mode
        pfn = __rmqueue_claim(m, zone, order, migratetype, flags)
        if pfn >= 0:
            return pfn, MODE_NORMAL
    if flags & at.ALLOC_NOFRAGMENT:
        return -1, mode
    pfn = __rmqueue_steal(m, zone, order, migratetype)
    return pfn, MODE_STEAL if pfn >= 0 else mode
