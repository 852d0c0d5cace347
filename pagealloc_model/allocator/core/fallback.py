"""Taking pages from another migratetype: whole-block claim, partial claim, steal (S6)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import (
    move_block_free_pages,
    remove_buddy,
    set_block_types,
    split,
    take_smallest_fit,
)
from pagealloc_model.allocator.core.counters import account_free, seen_free, seen_free_cma
from pagealloc_model.allocator.core.event_log import log_page
from pagealloc_model.allocator.core.fallback_largest import fall_back_to_largest
from pagealloc_model.allocator.core.fallback_search import (
    block_is_mostly_alike,
    choose_steal,
    count_fallback,
    find_fallback,
)
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.allocator.core.watermark import boost_watermark
from pagealloc_model.base.jit import inner

MODE_NORMAL, MODE_CMA, MODE_STEAL = range(3)


@inner
def choose_claim(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    zone: int,
    order: int,
    migratetype: int,
    flags: int,
) -> int:
    """The buddy whose block, or whose blocks, a claim takes over (S6.3); -1 if none qualifies.

    `st[BLOCKS_TRIED]` says how many blocks were looked into, each of which costs a boost.
    """
    st[at.BLOCKS_TRIED] = 0
    block_order = st[at.PAGEBLOCK_ORDER]
    smallest = order
    if flags & at.ALLOC_NOFRAGMENT and order < block_order:
        smallest = block_order
    for current in range(st[at.MAX_ORDER], smallest - 1, -1):
        if current < block_order // 2 and migratetype == at.MOVABLE:
            return -1
        other = find_fallback(st, zone, current, migratetype)
        if other < 0:
            continue
        pfn = st[free_list_at(zone, current, other) + at.HEAD]
        if current >= block_order:
            return pfn
        st[at.BLOCKS_TRIED] += 1
        if block_is_mostly_alike(pages, blocks, st, zone, pfn >> block_order, migratetype):
            return pfn
    return -1


@inner
def claim(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    order: int,
    migratetype: int,
    flags: int,
) -> int:
    """Retag a block for the requester and take a page from it (S6.3); -1 if none qualifies."""
    block_order = st[at.PAGEBLOCK_ORDER]
    pfn = choose_claim(pages, blocks, st, zone, order, migratetype, flags)
    for _ in range(st[at.BLOCKS_TRIED]):
        if boost_watermark(st, zone) and flags & at.ALLOC_KSWAPD:
            st[zone_at(zone) + at.ZONE_BOOSTED] = 1
    if pfn < 0:
        return -1
    found_order = int(pages[pfn]["order"])
    other = int(pages[pfn]["tag"])
    if found_order >= block_order:
        remove_buddy(pages, st, zone, pfn)
        set_block_types(blocks, st, pfn, found_order, migratetype)
        split(pages, st, zone, pfn, order, found_order, migratetype)
        account_free(st, zone, other, -(1 << found_order))
        account_free(st, zone, migratetype, (1 << found_order) - (1 << order))
        count_fallback(st, migratetype, other, at.CLAIM_BLOCK, order, found_order)
    else:
        move_block_free_pages(pages, blocks, st, zone, pfn >> block_order, migratetype)
        pfn = take_smallest_fit(pages, st, zone, order, migratetype)
        count_fallback(st, migratetype, other, at.CLAIM, order, found_order)
        log_page(st, log, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype, 0, 0, 0)
    log_page(st, log, at.LOG_EXTFRAG, zone, pfn, order, migratetype, found_order, other, 1)
    return pfn


@inner
def steal(
    pages: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    order: int,
    migratetype: int,
) -> int:
    """Take pages from the smallest fitting buddy of another type, retagging nothing (S6.4)."""
    pfn = choose_steal(st, zone, order, migratetype)
    if pfn < 0:
        return -1
    found_order = int(pages[pfn]["order"])
    other = int(pages[pfn]["tag"])
    remove_buddy(pages, st, zone, pfn)
    split(pages, st, zone, pfn, order, found_order, other)
    account_free(st, zone, other, -(1 << order))
    count_fallback(st, migratetype, other, at.STEAL, order, found_order)
    log_page(st, log, at.LOG_EXTFRAG, zone, pfn, order, migratetype, found_order, other, 0)
    return pfn


@inner
def cma_comes_first(st: np.ndarray, zone: int) -> bool:
    """Whether CMA blocks hold more than half of the zone's free pages (S6.2)."""
    return seen_free_cma(st, zone) > seen_free(st, zone) // 2


@inner
def take_from_list(
    pages: np.ndarray, st: np.ndarray, log: np.ndarray, zone: int, order: int, migratetype: int
) -> int:
    """`take_smallest_fit`, announced by its event (T4)."""
    pfn = take_smallest_fit(pages, st, zone, order, migratetype)
    if pfn >= 0:
        log_page(st, log, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype, 0, 0, 0)
    return pfn


@inner
def take_page(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    order: int,
    migratetype: int,
    flags: int,
) -> int:
    """One page object from the buddy: own type, CMA, claim, then steal (S6.2); -1 if none.

    `st[FALLBACK_MODE]` persists across one refill: after a steal the rest of it steals too. The
    caller sets it to MODE_NORMAL when it takes zone->lock.
    """
    if flags & at.ALLOC_CMA and cma_comes_first(st, zone):
        pfn = take_from_list(pages, st, log, zone, order, st[at.CMA])
        if pfn >= 0:
            return pfn
    if st[at.FALLBACK_MODE] == MODE_NORMAL:
        pfn = take_from_list(pages, st, log, zone, order, migratetype)
        if pfn >= 0:
            return pfn
    if st[at.FALLBACK_MODE] != MODE_STEAL:
        if flags & at.ALLOC_CMA:
            pfn = take_from_list(pages, st, log, zone, order, st[at.CMA])
            if pfn >= 0:
                if not st[at.FALLBACK_FROM_LARGEST]:
                    st[at.FALLBACK_MODE] = MODE_CMA
                return pfn
        if st[at.FALLBACK_FROM_LARGEST]:
            return fall_back_to_largest(pages, blocks, st, log, zone, order, migratetype, flags)
        pfn = claim(pages, blocks, st, log, zone, order, migratetype, flags)
        if pfn >= 0:
            st[at.FALLBACK_MODE] = MODE_NORMAL
            return pfn
    if flags & at.ALLOC_NOFRAGMENT:
        return -1
    pfn = steal(pages, st, log, zone, order, migratetype)
    if pfn >= 0:
        st[at.FALLBACK_MODE] = MODE_STEAL
    return pfn
