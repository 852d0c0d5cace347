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
from pagealloc_model.allocator.core.counters import (
    account_claimed,
    account_taken,
    seen_free,
    seen_free_cma,
)
from pagealloc_model.allocator.core.event_log import log_extfrag, log_page
from pagealloc_model.allocator.core.fallback_largest import __rmqueue_fallback
from pagealloc_model.allocator.core.fallback_search import (
    block_is_mostly_alike,
    choose_steal,
    count_fallback,
    foreign_buddy,
    zone_holds_block,
)
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.superpageblocks import (
    ANY_CLASS,
    NO_CLASS,
    TAINTED,
    first_class,
    next_class,
    packs,
)
from pagealloc_model.allocator.core.watermark import boost_watermark
from pagealloc_model.base.jit import inner

MODE_NORMAL, MODE_CMA, MODE_STEAL = range(3)


@inner
def largest_foreign(
    m: at.MachineArrays, zone: int, most: int, least: int, migratetype: int, part: int
) -> int:
    """Part of __rmqueue_claim(): return the largest buddy to try to claim, or -1 (S6.3).

    It is of an order within bounds. Movable requests leave small buddies to a steal.
    """
    for current in range(most, least - 1, -1):
        if current < m.st[at.PAGEBLOCK_ORDER] // 2 and migratetype == at.MOVABLE:
            return -1
        pfn = foreign_buddy(m, zone, current, migratetype, part)
        if pfn >= 0:
            return pfn
    return -1


@inner
def least_claimed(m: at.MachineArrays, zone: int, order: int, flags: int, part: int) -> int:
    """Part of __rmqueue_claim(): return the least order of a buddy to claim (S6.3, S14.4)."""
    if (
        flags & at.ALLOC_NOFRAGMENT
        and order < m.st[at.PAGEBLOCK_ORDER]
        and not packs(m, zone, part)
    ):
        return m.st[at.PAGEBLOCK_ORDER]
    return order


@inner
def choose_claim(m: at.MachineArrays, zone: int, order: int, migratetype: int, flags: int) -> int:
    """Part of __rmqueue_claim(): return the buddy whose blocks would be taken over, or -1 (S6.3).

    Nothing changes: judging asks what the rule chooses.
    """
    block_order = m.st[at.PAGEBLOCK_ORDER]
    least = least_claimed(m, zone, order, flags, ANY_CLASS)
    pfn = largest_foreign(m, zone, m.st[at.MAX_ORDER], least, migratetype, ANY_CLASS)
    while pfn >= 0:
        found_order = int(m.pages[pfn]["order"])
        if found_order >= block_order:
            return pfn
        if block_is_mostly_alike(m, zone, pfn >> block_order, migratetype):
            return pfn
        pfn = largest_foreign(m, zone, found_order - 1, least, migratetype, ANY_CLASS)
    return -1


@inner
def try_to_claim_block(
    m: at.MachineArrays, zone: int, pfn: int, order: int, migratetype: int, flags: int, part: int
) -> int:
    """try_to_claim_block(): retag the blocks of a buddy and take a page of them (S6.3).

    Each block that is looked into boosts the watermarks. Returns the page, or -1 if too little of
    the block suits the request, where that matters (S14.4).
    """
    block = pfn >> m.st[at.PAGEBLOCK_ORDER]
    found_order = int(m.pages[pfn]["order"])
    other = int(m.pages[pfn]["tag"])
    if found_order >= m.st[at.PAGEBLOCK_ORDER]:
        __del_page_from_free_list(m, zone, pfn)
        change_pageblock_range(m, pfn, found_order, migratetype)
        expand(m, zone, pfn, order, found_order, migratetype)
        account_claimed(m, zone, other, migratetype, found_order, order)
        count_fallback(m, migratetype, other, at.CLAIM_BLOCK, order, found_order)
        return pfn
    if boost_watermark(m, zone) and flags & at.ALLOC_KSWAPD:
        m.st[zone_at(zone) + at.ZONE_BOOSTED] = 1
    alike = block_is_mostly_alike(m, zone, block, migratetype)
    if not alike and not (part == TAINTED and zone_holds_block(m, zone, block)):
        return -1
    move_freepages_block(m, zone, block, migratetype)
    count_fallback(m, migratetype, other, at.CLAIM, order, found_order)
    return take_from_list(m, zone, order, migratetype)


@inner
def __rmqueue_claim(
    m: at.MachineArrays, zone: int, order: int, migratetype: int, flags: int
) -> int:
    """__rmqueue_claim(): claim the largest block of another type that suits (S6.3, S14.4).

    Returns a page of it, or -1 if no block qualifies.
    """
    part = first_class(m, migratetype)
    while part != NO_CLASS:
        least = least_claimed(m, zone, order, flags, part)
        found = largest_foreign(m, zone, m.st[at.MAX_ORDER], least, migratetype, part)
        while found >= 0:
            found_order = int(m.pages[found]["order"])
            other = int(m.pages[found]["tag"])
            pfn = try_to_claim_block(m, zone, found, order, migratetype, flags, part)
            if pfn >= 0:
                log_extfrag(m, zone, pfn, order, migratetype, found_order, other, True)
                return pfn
            found = largest_foreign(m, zone, found_order - 1, least, migratetype, part)
        part = next_class(part)
    return -1


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
    account_taken(m, zone, other, order)
    count_fallback(m, migratetype, other, at.STEAL, order, found_order)
    log_extfrag(m, zone, pfn, order, migratetype, found_order, other, False)
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
        log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype)
    return pfn


@inner
def __rmqueue(
    m: at.MachineArrays, zone: int, order: int, migratetype: int, flags: int, mode: int
) -> tuple[int, int]:
    """__rmqueue(): take one page object from the buddy, of the own type, CMA, a claim, a steal.

    `mode` is MODE_NORMAL when zone->lock is taken, then what the last call under it returned: after
    a steal the rest of a refill steals too (S6.2).

    Returns:
        The page, or -1, and the mode for the next call.
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
                return pfn, mode if m.st[at.RULE_FALLBACK_FROM_LARGEST] else MODE_CMA
        if m.st[at.RULE_FALLBACK_FROM_LARGEST]:
            return __rmqueue_fallback(m, zone, order, migratetype, flags), mode
        pfn = __rmqueue_claim(m, zone, order, migratetype, flags)
        if pfn >= 0:
            return pfn, MODE_NORMAL
    if flags & at.ALLOC_NOFRAGMENT:
        return -1, mode
    pfn = __rmqueue_steal(m, zone, order, migratetype)
    return pfn, MODE_STEAL if pfn >= 0 else mode
