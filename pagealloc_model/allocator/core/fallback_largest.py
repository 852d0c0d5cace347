"""Fallback before 6.10: move the largest buddy, or its block's free pages, then take one (S6.5)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import (
    add_buddy,
    block_span,
    move_free_pages,
    remove_buddy,
    retype_block,
    set_block_types,
    take_smallest_fit,
)
from pagealloc_model.allocator.core.counters import account_move
from pagealloc_model.allocator.core.event_log import log_page
from pagealloc_model.allocator.core.fallback_search import (
    choose_steal,
    count_fallback,
    find_fallback,
    is_mostly_alike,
)
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.allocator.core.watermark import boost_watermark
from pagealloc_model.base.jit import inner


@inner
def takes_block(st: np.ndarray, order: int, migratetype: int) -> bool:
    """Whether a buddy of this order is worth taking its whole block's free pages (S6.3)."""
    return order >= st[at.PAGEBLOCK_ORDER] // 2 or migratetype != at.MOVABLE


@inner
def choose_largest(st: np.ndarray, zone: int, order: int, migratetype: int, flags: int) -> int:
    """The buddy of another type to fall back to (S6.5); -1 if none.

    The largest, or the smallest if the largest is not worth taking its block.
    """
    block_order = st[at.PAGEBLOCK_ORDER]
    smallest = order
    if flags & at.ALLOC_NOFRAGMENT and order < block_order:
        smallest = block_order
    for current in range(st[at.MAX_ORDER], smallest - 1, -1):
        other = find_fallback(st, zone, current, migratetype)
        if other < 0:
            continue
        if takes_block(st, current, migratetype):
            return st[free_list_at(zone, current, other) + at.HEAD]
        return choose_steal(st, zone, order, migratetype)
    return -1


@inner
def move_to_requester(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    zone: int,
    pfn: int,
    migratetype: int,
    flags: int,
) -> None:
    """Move a buddy, or all free pages of its block, to the requester's lists (S6.5).

    A block is retagged if half of it is free or compatible; one of the highatomic reserve keeps
    its other pages and its type.
    """
    block = pfn >> st[at.PAGEBLOCK_ORDER]
    order = int(pages[pfn]["order"])
    block_type = int(blocks[block]["migratetype"])
    if block_type != at.HIGHATOMIC:
        if order >= st[at.PAGEBLOCK_ORDER]:
            set_block_types(blocks, st, pfn, order, migratetype)
        else:
            if boost_watermark(st, zone) and flags & at.ALLOC_KSWAPD:
                st[zone_at(zone) + at.ZONE_BOOSTED] = 1
            first, end = block_span(st, zone, pfn)
            if takes_block(st, order, migratetype) and first < end:
                alike = is_mostly_alike(pages, st, first, end, block_type, migratetype)
                move_free_pages(pages, st, zone, first, end, migratetype)
                if alike:
                    retype_block(blocks, st, block, migratetype)
                return
    account_move(st, zone, int(pages[pfn]["tag"]), migratetype, 1 << order)
    remove_buddy(pages, st, zone, pfn)
    add_buddy(pages, st, zone, pfn, order, migratetype, True)
    st[at.WORK_INSERTS] += 1


@inner
def fall_back_to_largest(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    order: int,
    migratetype: int,
    flags: int,
) -> int:
    """Take a page after moving free pages of another type to the requester's lists (S6.5).

    The event names the buddy fallen back to, and comes before that of the page taken (T6).
    """
    found = choose_largest(st, zone, order, migratetype, flags)
    if found < 0:
        return -1
    block_order = st[at.PAGEBLOCK_ORDER]
    found_order = int(pages[found]["order"])
    other = int(pages[found]["tag"])
    move_to_requester(pages, blocks, st, zone, found, migratetype, flags)
    owned = 1 if int(blocks[found >> block_order]["migratetype"]) == migratetype else 0
    kind = at.CLAIM if owned else at.STEAL
    if found_order >= block_order:
        kind = at.CLAIM_BLOCK
    count_fallback(st, migratetype, other, kind, order, found_order)
    log_page(st, log, at.LOG_EXTFRAG, zone, found, order, migratetype, found_order, other, owned)
    pfn = take_smallest_fit(pages, st, zone, order, migratetype)
    log_page(st, log, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype, 0, 0, 0)
    return pfn
