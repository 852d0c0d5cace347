"""The high-order atomic reserve: reserve, with the gate, and unreserve (S7)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import (
    add_buddy,
    block_span,
    move_block_free_pages,
    move_free_pages,
    remove_buddy,
    set_block_types,
)
from pagealloc_model.allocator.core.counters import account_move
from pagealloc_model.allocator.core.event_log import count_transaction
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.base.jit import cold, inner


@cold
def reserve(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    pfn: int,
    order: int,
) -> None:
    """Turn the block of a page just allocated into a highatomic one, up to the cap (S7.2)."""
    if order <= st[at.GATE_ORDER]:
        return
    region = zone_at(zone)
    block_order = st[at.PAGEBLOCK_ORDER]
    block_pages = 1 << block_order
    share = st[region + at.ZONE_MANAGED] * st[at.RESERVE_PERCENT] // 100
    cap = share + block_pages
    if st[at.RESERVE_CAP_ROUNDED]:
        if share < block_pages:
            return
        cap = (share + block_pages - 1) // block_pages * block_pages
    if st[region + at.ZONE_RESERVED_HIGHATOMIC] >= cap:
        return
    block = pfn >> block_order
    converted = 0
    moved = 0
    if int(blocks[block]["migratetype"]) < at.PCP_TYPES:
        if not st[at.LISTS_MATCH_BLOCKS]:
            blocks[block]["migratetype"] = at.HIGHATOMIC
            first, end = block_span(st, zone, pfn)
            moved = move_free_pages(pages, st, zone, first, end, at.HIGHATOMIC)
            converted = 1
        elif order >= block_order:
            set_block_types(blocks, st, pfn, order, at.HIGHATOMIC)
            converted = 1 << (order - block_order)
        elif (
            block << block_order >= st[region + at.ZONE_START]
            and (block + 1) << block_order <= st[region + at.ZONE_END]
        ):
            moved = move_block_free_pages(pages, blocks, st, zone, block, at.HIGHATOMIC)
            converted = 1
    st[region + at.ZONE_RESERVED_HIGHATOMIC] += converted * block_pages
    count_transaction(st, log, at.SITE_RESERVE, zone, cpu, order, at.HIGHATOMIC, converted, moved)


@inner
def unreserve_one(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    migratetype: int,
) -> bool:
    """Give one reserved block with free pages to the requester's type (S7.4); True if any moved."""
    region = zone_at(zone)
    block_order = st[at.PAGEBLOCK_ORDER]
    for order in range(st[at.MAX_ORDER] + 1):
        pfn = st[free_list_at(zone, order, at.HIGHATOMIC) + at.HEAD]
        if pfn < 0:
            continue
        size = max(1 << block_order, 1 << order)
        reserved = st[region + at.ZONE_RESERVED_HIGHATOMIC]
        st[region + at.ZONE_RESERVED_HIGHATOMIC] = reserved - min(size, reserved)
        moved = 1 << order
        converted = max(moved >> block_order, 1)
        if order < block_order:
            block = pfn >> block_order
            moved = move_block_free_pages(pages, blocks, st, zone, block, migratetype)
        else:
            account_move(st, zone, at.HIGHATOMIC, migratetype, moved)
            remove_buddy(pages, st, zone, pfn)
            add_buddy(pages, st, zone, pfn, order, migratetype, True)
            st[at.WORK_INSERTS] += 1
            set_block_types(blocks, st, pfn, order, migratetype)
        count_transaction(
            st, log, at.SITE_UNRESERVE, zone, cpu, order, migratetype, converted, moved
        )
        return True
    count_transaction(st, log, at.SITE_UNRESERVE, zone, cpu, 0, migratetype, 0, 0)
    return False


@inner
def unreserve_blocks_as_tagged(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    migratetype: int,
) -> bool:
    """As `unreserve_one` where lists need not match blocks: one block, counted if it was reserved.

    A block at the zone's edge is retagged though nothing may move, and the search goes on (S7.4).
    """
    region = zone_at(zone)
    block_order = st[at.PAGEBLOCK_ORDER]
    converted = 0
    for order in range(st[at.MAX_ORDER] + 1):
        pfn = st[free_list_at(zone, order, at.HIGHATOMIC) + at.HEAD]
        if pfn < 0:
            continue
        block = pfn >> block_order
        if int(blocks[block]["migratetype"]) == at.HIGHATOMIC:
            reserved = st[region + at.ZONE_RESERVED_HIGHATOMIC]
            st[region + at.ZONE_RESERVED_HIGHATOMIC] = max(reserved - (1 << block_order), 0)
        blocks[block]["migratetype"] = migratetype
        converted += 1
        first, end = block_span(st, zone, pfn)
        moved = move_free_pages(pages, st, zone, first, end, migratetype)
        if moved > 0:
            count_transaction(
                st, log, at.SITE_UNRESERVE, zone, cpu, order, migratetype, converted, moved
            )
            return True
    count_transaction(st, log, at.SITE_UNRESERVE, zone, cpu, 0, migratetype, converted, 0)
    return False


@inner
def unreserve(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    cpu: int,
    zonelist: int,
    migratetype: int,
) -> bool:
    """Release a block of the first zone that has more than one reserved (S7.4, not forced)."""
    kept = 1 << st[at.PAGEBLOCK_ORDER]
    return unreserve_beyond(pages, blocks, st, log, cpu, zonelist, migratetype, kept)


@inner
def unreserve_beyond(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    cpu: int,
    zonelist: int,
    migratetype: int,
    kept: int,
) -> bool:
    """Release a block of the first zone that has more pages reserved than are kept (S7.4)."""
    st[at.COUNT_UNRESERVE_CALLS] += 1
    while st[zonelist] >= 0:
        zone = st[zonelist]
        zonelist += 1
        reserved = st[zone_at(zone) + at.ZONE_RESERVED_HIGHATOMIC]
        if reserved <= kept:
            continue
        if st[at.LISTS_MATCH_BLOCKS]:
            released = unreserve_one(pages, blocks, st, log, zone, cpu, migratetype)
        else:
            released = unreserve_blocks_as_tagged(pages, blocks, st, log, zone, cpu, migratetype)
        if released:
            return True
    return False
