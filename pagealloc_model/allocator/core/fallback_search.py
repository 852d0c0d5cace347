"""What every fallback rule looks at: types in order, whether a block is worth taking (S6)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.allocator.core.superpageblocks import (
    ANY_CLASS,
    NO_CLASS,
    first_class,
    head_of_part,
    next_class,
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
def find_suitable_fallback(m: at.MachineArrays, zone: int, order: int, migratetype: int) -> int:
    """find_suitable_fallback(): return the type to fall back to, or -1 (S6.1).

    Its list of this order has a buddy.
    """
    for choice in range(2):
        other = fallback_type(migratetype, choice)
        m.st[at.LIST_PROBES] += 1
        if m.st[free_list_at(zone, order, other) + at.HEAD] >= 0:
            return other
    return -1


@inner
def foreign_buddy(m: at.MachineArrays, zone: int, order: int, migratetype: int, part: int) -> int:
    """No kernel function: return the buddy to fall back to at one order, or -1 (S14.4)."""
    if part == ANY_CLASS:
        other = find_suitable_fallback(m, zone, order, migratetype)
        return m.st[free_list_at(zone, order, other) + at.HEAD] if other >= 0 else -1
    for choice in range(2):
        pfn = head_of_part(m, zone, order, fallback_type(migratetype, choice), part)
        if pfn >= 0:
            return pfn
    return -1


@inner
def choose_steal(m: at.MachineArrays, zone: int, order: int, migratetype: int) -> int:
    """Part of __rmqueue_steal(): return the smallest buddy of another type, or -1 (S6.4, S14.5)."""
    part = first_class(m, migratetype)
    while part != NO_CLASS:
        for current in range(order, m.st[at.MAX_ORDER] + 1):
            pfn = foreign_buddy(m, zone, current, migratetype, part)
            if pfn >= 0:
                return pfn
        part = next_class(part)
    return -1


@inner
def count_fallback(
    m: at.MachineArrays, migratetype: int, other: int, kind: int, order: int, found_order: int
) -> None:
    """No kernel function: count one fallback operation by types, kind and orders (S6.6)."""
    index = (migratetype * at.PCP_TYPES + other) * at.FALLBACK_KINDS + kind
    m.st[at.FALLBACKS + (index * at.ORDERS + order) * at.ORDERS + found_order] += 1


@inner
def zone_holds_block(m: at.MachineArrays, zone: int, block: int) -> bool:
    """Part of prep_move_freepages_block(): return whether a zone holds a whole block (S6.3)."""
    first = block << m.st[at.PAGEBLOCK_ORDER]
    end = (block + 1) << m.st[at.PAGEBLOCK_ORDER]
    region = zone_at(zone)
    return first >= m.st[region + at.ZONE_START] and end <= m.st[region + at.ZONE_END]


@inner
def block_is_mostly_alike(m: at.MachineArrays, zone: int, block: int, migratetype: int) -> bool:
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
def pages_looked_at(m: at.MachineArrays, first: int, end: int) -> int:
    """No kernel function: return how many pages a scan of a range looks at.

    It skips what follows a free buddy's first page.
    """
    looked_at = 0
    pfn = first
    while pfn < end:
        looked_at += 1
        pfn += 1 << int(m.pages[pfn]["order"]) if int(m.pages[pfn]["where"]) == at.BUDDY else 1
    return looked_at


@inner
def is_mostly_alike(
    m: at.MachineArrays, first: int, end: int, block_type: int, migratetype: int
) -> bool:
    """Part of try_to_claim_block(): return whether a range has half a block that suits (S6.3).

    Free and compatible pages suit.
    """
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
