"""The high-order atomic reserve: reserve, with the gate, and unreserve (S7)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.buddy import (
    __add_to_free_list,
    __del_page_from_free_list,
    __move_freepages_block,
    change_pageblock_range,
    move_freepages_block,
    prep_move_freepages_block,
)
from pagealloc_model.allocator.event_log import count_transaction
from pagealloc_model.allocator.layout import free_list_at, zone_at
from pagealloc_model.allocator.watermark import AllocContext, account_move
from pagealloc_model.base.jit import cold, inner


@cold
def reserve_highatomic_pageblock(m: at.Arrays, zone: int, cpu: int, pfn: int, order: int) -> None:
    """reserve_highatomic_pageblock(): reserve the block of a page just allocated (S7.2)."""
    if order <= m.st[at.POLICY_HIGHATOMIC_GATE_ORDER]:
        return
    region = zone_at(zone)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    block_pages = 1 << block_order
    share = m.st[region + at.ZONE_MANAGED] * m.st[at.POLICY_HIGHATOMIC_RESERVE_PERCENT] // 100
    cap = share + block_pages
    if m.st[at.RULE_RESERVE_CAP_ROUNDED]:  # from 6.12
        if share < block_pages:
            return
        cap = (share + block_pages - 1) // block_pages * block_pages
    if m.st[region + at.ZONE_RESERVED_HIGHATOMIC] >= cap:
        return
    block = pfn >> block_order
    converted = 0
    moved = 0
    if int(m.blocks[block]["migratetype"]) < at.PCP_TYPES:
        if not m.st[at.RULE_LISTS_MATCH_BLOCKS]:  # 6.1 only
            m.blocks[block]["migratetype"] = at.HIGHATOMIC
            first, end = prep_move_freepages_block(m, zone, pfn)
            moved = __move_freepages_block(m, zone, first, end, at.HIGHATOMIC)
            converted = 1
        elif order >= block_order:
            change_pageblock_range(m, pfn, order, at.HIGHATOMIC)
            converted = 1 << (order - block_order)
        elif (
            block << block_order >= m.st[region + at.ZONE_START]
            and (block + 1) << block_order <= m.st[region + at.ZONE_END]
        ):
            moved = move_freepages_block(m, zone, block, at.HIGHATOMIC)
            converted = 1
    m.st[region + at.ZONE_RESERVED_HIGHATOMIC] += converted * block_pages
    count_transaction(m, at.SITE_RESERVE, zone, cpu, order, at.HIGHATOMIC, converted, moved)


@inner
def unreserve_from(m: at.Arrays, zone: int, cpu: int, migratetype: int, smallest: int) -> bool:
    """Part of unreserve_highatomic_pageblock(): give a zone's first free block back (S7.4).

    It has a free buddy of the smallest order or more; returns whether any page moved. Where lists
    need not match blocks, one at the zone's edge is retagged though nothing may move, and the
    search goes on.
    """
    region = zone_at(zone)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    converted = 0
    for order in range(smallest, m.st[at.MAX_ORDER] + 1):
        pfn = m.st[free_list_at(zone, order, at.HIGHATOMIC) + at.HEAD]
        if pfn < 0:
            continue
        block = pfn >> block_order
        moved = 1 << order
        size = max(1 << block_order, moved)
        if not m.st[at.RULE_LISTS_MATCH_BLOCKS]:  # 6.1 only
            reserves = int(m.blocks[block]["migratetype"]) == at.HIGHATOMIC
            size = 1 << block_order if reserves else 0
            m.blocks[block]["migratetype"] = migratetype
            converted += 1
            first, end = prep_move_freepages_block(m, zone, pfn)
            moved = __move_freepages_block(m, zone, first, end, migratetype)
        elif order < block_order:
            converted = 1
            moved = move_freepages_block(m, zone, block, migratetype)
        else:
            converted = moved >> block_order
            account_move(m, zone, at.HIGHATOMIC, migratetype, moved)
            __del_page_from_free_list(m, zone, pfn)
            __add_to_free_list(m, zone, pfn, order, migratetype, True)
            m.st[at.WORK_INSERTS] += 1
            change_pageblock_range(m, pfn, order, migratetype)
        reserved = m.st[region + at.ZONE_RESERVED_HIGHATOMIC]
        m.st[region + at.ZONE_RESERVED_HIGHATOMIC] = max(reserved - size, 0)
        if moved > 0:
            count_transaction(m, at.SITE_UNRESERVE, zone, cpu, order, migratetype, converted, moved)
            return True
    count_transaction(m, at.SITE_UNRESERVE, zone, cpu, 0, migratetype, converted, 0)
    return False


@inner
def unreserve_whole_blocks(m: at.Arrays, zone: int, cpu: int) -> None:
    """Give back, as MOVABLE, each reserved block that is free (S9.10)."""
    order = m.st[at.PAGEBLOCK_ORDER]
    while order <= m.st[at.MAX_ORDER]:
        if m.st[free_list_at(zone, order, at.HIGHATOMIC) + at.HEAD] < 0:
            order += 1
        elif not unreserve_from(m, zone, cpu, at.MOVABLE, order):
            return


@inner
def unreserve_highatomic_pageblock(m: at.Arrays, ac: AllocContext, force: bool) -> bool:
    """unreserve_highatomic_pageblock(): release a reserved block; returns whether pages moved.

    It is one of the first zone that has more than one reserved; of any zone if forced (S7.4).
    """
    if m.st[at.RELEASES_RECORDED]:
        return False
    kept = -1 if force else 1 << m.st[at.PAGEBLOCK_ORDER]
    m.st[at.COUNT_UNRESERVE_CALLS] += 1
    position = ac.zonelist
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        reserved = m.st[zone_at(zone) + at.ZONE_RESERVED_HIGHATOMIC]
        if reserved <= kept:
            continue
        if unreserve_from(m, zone, ac.cpu, ac.migratetype, 0):
            return True
    return False
