"""Free lists of the buddy allocator: smallest fit, split, merge, placement, growth (S5)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.event_log import count_transaction, forget_work
from pagealloc_model.allocator.layout import free_list_at, zone_at
from pagealloc_model.allocator.lists import list_add, list_add_tail, list_del
from pagealloc_model.allocator.ownership import (
    end_ownership,
    option,
)
from pagealloc_model.allocator.watermark import (
    account_freepages,
    account_move,
    account_part,
    account_taken,
)
from pagealloc_model.base.jit import cold, inner


@inner
def __add_to_free_list(
    m: at.Arrays, zone: int, pfn: int, order: int, migratetype: int, tail: bool
) -> None:
    """__add_to_free_list(): put a free buddy on its list; the caller updates the counters."""
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.BUDDY
    m.pages[pfn]["tag"] = migratetype
    lst = free_list_at(zone, order, migratetype)
    if tail:
        list_add_tail(m.pages, m.st, lst, pfn)
    else:
        list_add(m.pages, m.st, lst, pfn)


@inner
def __del_page_from_free_list(m: at.Arrays, zone: int, pfn: int) -> None:
    """__del_page_from_free_list(): take a free buddy off its list; the caller counts."""
    lst = free_list_at(zone, int(m.pages[pfn]["order"]), int(m.pages[pfn]["tag"]))
    list_del(m.pages, m.st, lst, pfn)
    m.pages[pfn]["where"] = at.NOWHERE


@inner
def expand(
    m: at.Arrays, zone: int, pfn: int, order: int, from_order: int, migratetype: int
) -> None:
    """expand(): keep the low `order` part of a buddy; the halves head their lists (S5.2)."""
    m.st[at.WORK_SPLITS] += from_order - order
    current = from_order
    while current > order:
        current -= 1
        __add_to_free_list(m, zone, pfn + (1 << current), current, migratetype, False)


@inner
def smallest_fit(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """Part of __rmqueue_smallest(): return the buddy of one type to cut from, or -1 (S5.1)."""
    largest = m.st[at.MAX_ORDER]
    for current in range(order, largest + 1):
        pfn = m.st[free_list_at(zone, current, migratetype) + at.HEAD]
        if pfn >= 0:
            m.st[at.LIST_PROBES] += current - order + 1
            return pfn
    m.st[at.LIST_PROBES] += largest - order + 1
    return -1


@inner
def __rmqueue_smallest(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """__rmqueue_smallest(): take pages from the smallest buddy that fits, or -1 (S5.1)."""
    pfn = smallest_fit(m, zone, order, migratetype)
    if pfn < 0:
        return -1
    found_order = int(m.pages[pfn]["order"])
    __del_page_from_free_list(m, zone, pfn)
    expand(m, zone, pfn, order, found_order, migratetype)
    account_taken(m, zone, migratetype, order)
    return pfn


@inner
def set_pageblock_migratetype(m: at.Arrays, block: int, migratetype: int) -> None:
    """set_pageblock_migratetype(): give a pageblock another type; its owner may lose it (S12.8)."""
    if m.st[at.OWNERSHIP] and int(m.blocks[block]["migratetype"]) != migratetype:
        has_no_lists = migratetype >= at.PCP_TYPES
        if has_no_lists or option(m, at.OPTION_TYPE_CHANGE) == at.TYPE_CHANGE_ENDS:
            end_ownership(m, block)
    m.blocks[block]["migratetype"] = migratetype


@inner
def change_pageblock_range(m: at.Arrays, pfn: int, order: int, migratetype: int) -> None:
    """change_pageblock_range(): retag every pageblock that a large buddy covers (S5.3, S6.3)."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    first = pfn >> block_order
    count = 1 << max(order - block_order, 0)
    for block in range(first, first + count):
        set_pageblock_migratetype(m, block, migratetype)


@inner
def compaction_capture(m: at.Arrays, zone: int, pfn: int, order: int, migratetype: int) -> bool:
    """compaction_capture(): return whether direct compaction takes pages just freed (S9.7)."""
    if migratetype == m.st[at.CMA] or migratetype == m.st[at.ISOLATE]:
        return False
    # from 6.12
    own = m.st[at.CAPTURE_TYPE] == at.MOVABLE and m.st[at.RULE_MOVABLE_CAPTURE_BELOW_BLOCK] != 0
    if migratetype == at.MOVABLE and not own and order < m.st[at.PAGEBLOCK_ORDER]:
        return False
    m.pages[pfn]["flags"] = 0
    m.st[at.CAPTURED] = pfn
    m.st[at.CAPTURE_ZONE] = 0
    account_freepages(m, zone, migratetype, -(1 << order))
    return True


@inner
def __free_one_page(
    m: at.Arrays, zone: int, pfn: int, order: int, migratetype: int, to_tail: bool
) -> None:
    """__free_one_page(): free pages, merged as types allow; `to_tail`: last on the list (S5.3)."""
    account_freepages(m, zone, migratetype, 1 << order)
    m.pages[pfn]["where"] = at.NOWHERE
    largest = m.st[at.MAX_ORDER]
    block_order = m.st[at.PAGEBLOCK_ORDER]
    end = m.st[at.END_PFN]
    m.st[at.WORK_MERGES] -= order
    captures = m.st[at.CAPTURE_ORDER] if m.st[at.CAPTURE_ZONE] == zone + 1 else -1
    while order < largest:
        if order == captures and compaction_capture(m, zone, pfn, order, migratetype):
            m.st[at.WORK_MERGES] += order
            return
        buddy = pfn ^ (1 << order)
        if not page_is_buddy(m, end, buddy, order, zone, block_order):
            break
        if order >= block_order:
            other = int(m.blocks[buddy >> block_order]["migratetype"])
            if other != migratetype:
                if other >= at.PCP_TYPES or migratetype >= at.PCP_TYPES:
                    break
                if m.st[at.RULE_LISTS_MATCH_BLOCKS]:  # from 6.12
                    change_pageblock_range(m, buddy, order, migratetype)
        # 6.1 only
        if int(m.pages[buddy]["tag"]) != migratetype and not m.st[at.RULE_LISTS_MATCH_BLOCKS]:
            account_part(m, zone, int(m.pages[buddy]["tag"]), -(1 << order))
            account_part(m, zone, migratetype, 1 << order)
        __del_page_from_free_list(m, zone, buddy)
        pfn &= ~(1 << order)
        order += 1
    m.st[at.WORK_MERGES] += order
    m.st[at.WORK_INSERTS] += 1
    if m.st[at.OWNERSHIP] and order >= block_order:
        first = pfn >> block_order
        for block in range(first, first + (1 << (order - block_order))):
            end_ownership(m, block)
    tail = to_tail
    if order < largest - 1 and not tail:
        parent = pfn & ~(1 << order)
        above = parent ^ (1 << (order + 1))
        tail = page_is_buddy(m, end, above, order + 1, zone, block_order)
    __add_to_free_list(m, zone, pfn, order, migratetype, tail)


@inner
def page_is_buddy(
    m: at.Arrays, end: int, pfn: int, order: int, zone: int, block_order: int
) -> bool:
    """page_is_buddy(): return whether a free buddy of this order and zone starts at `pfn`."""
    return (
        pfn < end
        and int(m.pages[pfn]["where"]) == at.BUDDY
        and int(m.pages[pfn]["order"]) == order
        and int(m.blocks[pfn >> block_order]["zone"]) == zone + 1
    )


@inner
def move_freepages_block(m: at.Arrays, zone: int, block: int, migratetype: int) -> int:
    """move_freepages_block(): move a block's free buddies to a type's tails, retag it (S5.5)."""
    first = block << m.st[at.PAGEBLOCK_ORDER]
    end = (block + 1) << m.st[at.PAGEBLOCK_ORDER]
    moved = __move_freepages_block(m, zone, first, end, migratetype)
    set_pageblock_migratetype(m, block, migratetype)
    return moved


@inner
def __move_freepages_block(m: at.Arrays, zone: int, first: int, end: int, migratetype: int) -> int:
    """__move_freepages_block(): move a range's buddies to a type's tails; pages moved (S5.5)."""
    moved = 0
    pfn = first
    while pfn < end:
        m.st[at.WORK_SCANNED] += 1
        if int(m.pages[pfn]["where"]) == at.BUDDY:
            m.st[at.WORK_INSERTS] += 1
            order = int(m.pages[pfn]["order"])
            account_move(m, zone, int(m.pages[pfn]["tag"]), migratetype, 1 << order)
            __del_page_from_free_list(m, zone, pfn)
            __add_to_free_list(m, zone, pfn, order, migratetype, True)
            moved += 1 << order
            pfn += 1 << order
        else:
            pfn += 1
    return moved


@inner
def prep_move_freepages_block(m: at.Arrays, zone: int, pfn: int) -> tuple[int, int]:
    """prep_move_freepages_block(): return the part of a block that a conversion handles (S6.5).

    The result is the first page and the end, for kernels that do not retag. Where the zone begins
    inside the block it is the page and what follows; where the zone ends inside it, nothing.
    """
    region = zone_at(zone)
    block = pfn >> m.st[at.PAGEBLOCK_ORDER]
    first = block << m.st[at.PAGEBLOCK_ORDER]
    end = (block + 1) << m.st[at.PAGEBLOCK_ORDER]
    if end > m.st[region + at.ZONE_END]:
        return pfn, pfn
    if first < m.st[region + at.ZONE_START]:
        return pfn, end
    return first, end


@cold
def free_one_page(m: at.Arrays, zone: int, cpu: int, pfn: int, order: int) -> None:
    """free_one_page(): free pages that per-CPU lists do not take to the buddy (S4.6)."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    migratetype = int(m.blocks[pfn >> block_order]["migratetype"])
    if order <= block_order or not m.st[at.RULE_FREE_SPLIT_BY_BLOCK]:  # 6.1 only
        __free_one_page(m, zone, pfn, order, migratetype, False)
    else:
        for piece in range(1 << (order - block_order)):
            first = pfn + (piece << block_order)
            piece_type = int(m.blocks[first >> block_order]["migratetype"])
            m.pages[first]["where"] = at.NOWHERE
            __free_one_page(m, zone, first, block_order, piece_type, False)
    count_transaction(m, at.SITE_DIRECT_FREE, zone, cpu, order, migratetype, 1, 1 << order)


@inner
def grow_zone(m: at.Arrays, zone: int, pfn: int, order: int) -> None:
    """__free_pages_core(): give a zone new memory, Movable and last on its list (S5.5)."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    for block in range(pfn >> block_order, ((pfn + (1 << order) - 1) >> block_order) + 1):
        if int(m.blocks[block]["zone"]) == 0:
            m.blocks[block]["zone"] = zone + 1
            m.blocks[block]["migratetype"] = at.MOVABLE
    m.st[zone_at(zone) + at.ZONE_MANAGED] += 1 << order
    piece = min(order, block_order) if m.st[at.RULE_FREE_SPLIT_BY_BLOCK] else order  # from 6.12
    for first in range(pfn, pfn + (1 << order), 1 << piece):
        migratetype = int(m.blocks[first >> block_order]["migratetype"])
        __free_one_page(m, zone, first, piece, migratetype, True)
    forget_work(m)
