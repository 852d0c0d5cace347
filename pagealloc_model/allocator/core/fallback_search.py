"""What every fallback rule looks at: types in order, whether a block is worth taking (S6)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.base.jit import inner


@inner
def fallback_type(migratetype: int, choice: int) -> int:
    """The first or second type to fall back to (S6.1)."""
    if migratetype == at.UNMOVABLE:
        return at.RECLAIMABLE if choice == 0 else at.MOVABLE
    if migratetype == at.MOVABLE:
        return at.RECLAIMABLE if choice == 0 else at.UNMOVABLE
    return at.UNMOVABLE if choice == 0 else at.MOVABLE


@inner
def find_fallback(st: np.ndarray, zone: int, order: int, migratetype: int) -> int:
    """The type whose list of this order has a buddy to fall back to, -1 if none (S6.1)."""
    for choice in range(2):
        other = fallback_type(migratetype, choice)
        if st[free_list_at(zone, order, other) + at.HEAD] >= 0:
            return other
    return -1


@inner
def choose_steal(st: np.ndarray, zone: int, order: int, migratetype: int) -> int:
    """The smallest fitting buddy of another type (S6.4); -1 if none."""
    for current in range(order, st[at.MAX_ORDER] + 1):
        other = find_fallback(st, zone, current, migratetype)
        if other >= 0:
            return st[free_list_at(zone, current, other) + at.HEAD]
    return -1


@inner
def count_fallback(
    st: np.ndarray, migratetype: int, other: int, kind: int, order: int, found_order: int
) -> None:
    """Count one fallback operation by types, kind and orders (S6.6)."""
    index = (migratetype * at.PCP_TYPES + other) * at.FALLBACK_KINDS + kind
    st[at.FALLBACKS + (index * at.ORDERS + order) * at.ORDERS + found_order] += 1


@inner
def block_is_mostly_alike(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    zone: int,
    block: int,
    migratetype: int,
) -> bool:
    """Whether free and compatible pages are at least half of a pageblock (S6.3).

    Movable allocated pages are those requested with __GFP_MOVABLE (T10.9). Blocks that cross the
    zone's edge never qualify.
    """
    first = block << st[at.PAGEBLOCK_ORDER]
    end = (block + 1) << st[at.PAGEBLOCK_ORDER]
    region = zone_at(zone)
    if first < st[region + at.ZONE_START] or end > st[region + at.ZONE_END]:
        return False
    st[at.WORK_SCANNED] += pages_looked_at(pages, first, end)
    return is_mostly_alike(pages, st, first, end, int(blocks[block]["migratetype"]), migratetype)


@inner
def pages_looked_at(pages: np.ndarray, first: int, end: int) -> int:
    """Pages a scan of a range looks at: it skips what follows a free buddy's first page."""
    looked_at = 0
    pfn = first
    while pfn < end:
        looked_at += 1
        pfn += 1 << int(pages[pfn]["order"]) if int(pages[pfn]["where"]) == at.BUDDY else 1
    return looked_at


@inner
def is_mostly_alike(
    pages: np.ndarray, st: np.ndarray, first: int, end: int, block_type: int, migratetype: int
) -> bool:
    """Whether a range has free and compatible pages for half of its pageblock (S6.3)."""
    block_pages = 1 << st[at.PAGEBLOCK_ORDER]
    pfn = first
    free = 0
    movable = 0
    while pfn < end:
        where = int(pages[pfn]["where"])
        size = 1
        if where == at.BUDDY:
            size = 1 << int(pages[pfn]["order"])
            free += size
        elif where == at.ALLOCATED:
            size = 1 << int(pages[pfn]["order"])
            if int(pages[pfn]["tag"]) == 1:
                movable += size
        pfn += size
    if migratetype == at.MOVABLE:
        alike = movable
    elif block_type == at.MOVABLE:
        alike = block_pages - (free + movable)
    else:
        alike = 0
    return free + alike >= block_pages // 2
