"""Taking pages from another migratetype: whole-block claim, partial claim, steal (S6)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import (
    __del_page_from_free_list,
    __rmqueue_smallest,
    change_pageblock_range,
    expand,
    move_freepages_block,
)
from pagealloc_model.allocator.core.counters import account_freepages, seen_free, seen_free_cma
from pagealloc_model.allocator.core.event_log import log_page
from pagealloc_model.allocator.core.fallback_largest import __rmqueue_fallback
from pagealloc_model.allocator.core.fallback_search import (
    block_is_mostly_alike,
    choose_steal,
    count_fallback,
    find_suitable_fallback,
)
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.allocator.core.watermark import boost_watermark
from pagealloc_model.base.jit import inner

MODE_NORMAL, MODE_CMA, MODE_STEAL = range(3)


@inner
def choose_claim(m: at.MachineArrays, zone: int, order: int, migratetype: int, flags: int) -> int:
    """Part of __rmqueue_claim(): return the buddy whose blocks are taken over, or -1 (S6.3).

    `st[BLOCKS_TRIED]` says how many blocks were looked into, each of which costs a boost.
    """
    m.st[at.BLOCKS_TRIED] = 0
    block_order = m.st[at.PAGEBLOCK_ORDER]
    smallest = order
    if flags & at.ALLOC_NOFRAGMENT and order < block_order:
        smallest = block_order
    for current in range(m.st[at.MAX_ORDER], smallest - 1, -1):
        if current < block_order // 2 and migratetype == at.MOVABLE:
            return -1
        other = find_suitable_fallback(m, zone, current, migratetype)
        if other < 0:
            continue
        pfn = m.st[free_list_at(zone, current, other) + at.HEAD]
        if current >= block_order:
            return pfn
        m.st[at.BLOCKS_TRIED] += 1
        if block_is_mostly_alike(m, zone, pfn >> block_order, migratetype):
            return pfn
    return -1


@inner
def __rmqueue_claim(
    m: at.MachineArrays, zone: int, order: int, migratetype: int, flags: int
) -> int:
    """__rmqueue_claim() and try_to_claim_block(): retag a block and take a page of it (S6.3).

    Returns the page, or -1 if no block qualifies.
    """
    block_order = m.st[at.PAGEBLOCK_ORDER]
    pfn = choose_claim(m, zone, order, migratetype, flags)
    for _ in range(m.st[at.BLOCKS_TRIED]):
        if boost_watermark(m, zone) and flags & at.ALLOC_KSWAPD:
            m.st[zone_at(zone) + at.ZONE_BOOSTED] = 1
    if pfn < 0:
        return -1
    found_order = int(m.pages[pfn]["order"])
    other = int(m.pages[pfn]["tag"])
    if found_order >= block_order:
        __del_page_from_free_list(m, zone, pfn)
        change_pageblock_range(m, pfn, found_order, migratetype)
        expand(m, zone, pfn, order, found_order, migratetype)
        account_freepages(m, zone, other, -(1 << found_order))
        account_freepages(m, zone, migratetype, (1 << found_order) - (1 << order))
        count_fallback(m, migratetype, other, at.CLAIM_BLOCK, order, found_order)
    else:
        move_freepages_block(m, zone, pfn >> block_order, migratetype)
        pfn = __rmqueue_smallest(m, zone, order, migratetype)
        count_fallback(m, migratetype, other, at.CLAIM, order, found_order)
        log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype, 0, 0, 0)
    log_page(m, at.LOG_EXTFRAG, zone, pfn, order, migratetype, found_order, other, 1)
    return pfn


@inner
def __rmqueue_steal(m: at.MachineArrays, zone: int, order: int, migratetype: int) -> int:
    """__rmqueue_steal(): take pages from the smallest buddy of another type (S6.4).

    Nothing is retagged. Returns the first page, or -1.
    """
    pfn = choose_steal(m, zone, order, migratetype)
    if pfn < 0:
        return -1
    found_order = int(m.pages[pfn]["order"])
    other = int(m.pages[pfn]["tag"])
    __del_page_from_free_list(m, zone, pfn)
    expand(m, zone, pfn, order, found_order, other)
    account_freepages(m, zone, other, -(1 << order))
    count_fallback(m, migratetype, other, at.STEAL, order, found_order)
    log_page(m, at.LOG_EXTFRAG, zone, pfn, order, migratetype, found_order, other, 0)
    return pfn


@inner
def cma_comes_first(m: at.MachineArrays, zone: int) -> bool:
    """Part of __rmqueue(): return whether CMA holds more than half of the free pages (S6.2)."""
    return seen_free_cma(m, zone) > seen_free(m, zone) // 2


@inner
def take_from_list(m: at.MachineArrays, zone: int, order: int, migratetype: int) -> int:
    """Part of __rmqueue(): call `__rmqueue_smallest`, log its event (T4).

    Returns the page, or -1.
    """
    pfn = __rmqueue_smallest(m, zone, order, migratetype)
    if pfn >= 0:
        log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype, 0, 0, 0)
    return pfn


@inner
def __rmqueue(m: at.MachineArrays, zone: int, order: int, migratetype: int, flags: int) -> int:
    """__rmqueue(): take one page object from the buddy; returns it, or -1 (S6.2).

    It tries the own type, CMA, a claim, then a steal. `st[FALLBACK_MODE]` persists across one
    refill: after a steal the rest of it steals too. The caller sets it to MODE_NORMAL when it takes
    zone->lock.
    """
    if flags & at.ALLOC_CMA and cma_comes_first(m, zone):
        pfn = take_from_list(m, zone, order, m.st[at.CMA])
        if pfn >= 0:
            return pfn
    if m.st[at.FALLBACK_MODE] == MODE_NORMAL:
        pfn = take_from_list(m, zone, order, migratetype)
        if pfn >= 0:
            return pfn
    if m.st[at.FALLBACK_MODE] != MODE_STEAL:
        if flags & at.ALLOC_CMA:
            pfn = take_from_list(m, zone, order, m.st[at.CMA])
            if pfn >= 0:
                if not m.st[at.RULE_FALLBACK_FROM_LARGEST]:
                    m.st[at.FALLBACK_MODE] = MODE_CMA
                return pfn
        if m.st[at.RULE_FALLBACK_FROM_LARGEST]:
            return __rmqueue_fallback(m, zone, order, migratetype, flags)
        pfn = __rmqueue_claim(m, zone, order, migratetype, flags)
        if pfn >= 0:
            m.st[at.FALLBACK_MODE] = MODE_NORMAL
            return pfn
    if flags & at.ALLOC_NOFRAGMENT:
        return -1
    pfn = __rmqueue_steal(m, zone, order, migratetype)
    if pfn >= 0:
        m.st[at.FALLBACK_MODE] = MODE_STEAL
    return pfn
