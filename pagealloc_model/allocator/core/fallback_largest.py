"""Fallback before 6.10: move the largest buddy, or its block's free pages, then take one (S6.5)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import (
    __add_to_free_list,
    __del_page_from_free_list,
    __move_freepages_block,
    __rmqueue_smallest,
    change_pageblock_range,
    prep_move_freepages_block,
    set_pageblock_migratetype,
)
from pagealloc_model.allocator.core.counters import account_move
from pagealloc_model.allocator.core.event_log import log_extfrag, log_page
from pagealloc_model.allocator.core.fallback_search import (
    choose_steal,
    count_fallback,
    find_suitable_fallback,
    is_mostly_alike,
)
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.allocator.core.watermark import boost_watermark
from pagealloc_model.base.jit import inner


@inner
def can_steal_fallback(m: at.MachineArrays, order: int, migratetype: int) -> bool:
    """can_steal_fallback(): return whether to take a block's free pages (S6.3).

    In 7.2 the function is called should_try_claim_block().
    """
    return order >= m.st[at.PAGEBLOCK_ORDER] // 2 or migratetype != at.MOVABLE


@inner
def choose_largest(m: at.MachineArrays, zone: int, order: int, migratetype: int, flags: int) -> int:
    """Part of __rmqueue_fallback(): return the buddy of another type to use, or -1 (S6.5).

    It is the largest, or the smallest if the largest is not worth taking its block.
    """
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
    m: at.MachineArrays, zone: int, pfn: int, migratetype: int, flags: int
) -> None:
    """steal_suitable_fallback(): move a buddy or its block's free pages over (S6.5).

    They go to the requester's lists. A block is retagged if half of it is free or compatible; one
    of the highatomic reserve keeps its other pages and its type.
    """
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
def __rmqueue_fallback(
    m: at.MachineArrays, zone: int, order: int, migratetype: int, flags: int
) -> int:
    """__rmqueue_fallback(): move free pages of another type over, then take one (S6.5).

    Returns the page, or -1. The event names the buddy fallen back to, and comes before that of the
    page taken (T6).
    """
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
