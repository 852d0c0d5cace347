"""Free lists of the buddy allocator: smallest fit, split, merge, placement (S5)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.counters import account_free, account_move, account_part
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.allocator.ownership.ownership import end_where_retyped, end_where_whole
from pagealloc_model.base.jit import hot, inner


@hot
def push_head(pages: np.ndarray, st: np.ndarray, lst: int, pfn: int) -> None:
    """Insert a page at the head of the list at `lst`."""
    head = st[lst + at.HEAD]
    pages[pfn]["next"] = head
    pages[pfn]["prev"] = -1
    if head >= 0:
        pages[head]["prev"] = pfn
    else:
        st[lst + at.TAIL] = pfn
    st[lst + at.HEAD] = pfn
    st[lst + at.ENTRIES] += 1


@hot
def push_tail(pages: np.ndarray, st: np.ndarray, lst: int, pfn: int) -> None:
    """Insert a page at the tail of the list at `lst`."""
    tail = st[lst + at.TAIL]
    pages[pfn]["prev"] = tail
    pages[pfn]["next"] = -1
    if tail >= 0:
        pages[tail]["next"] = pfn
    else:
        st[lst + at.HEAD] = pfn
    st[lst + at.TAIL] = pfn
    st[lst + at.ENTRIES] += 1


@hot
def unlink(pages: np.ndarray, st: np.ndarray, lst: int, pfn: int) -> None:
    """Take a page out of the list at `lst`, wherever it is in it."""
    following = int(pages[pfn]["next"])
    preceding = int(pages[pfn]["prev"])
    if preceding >= 0:
        pages[preceding]["next"] = following
    else:
        st[lst + at.HEAD] = following
    if following >= 0:
        pages[following]["prev"] = preceding
    else:
        st[lst + at.TAIL] = preceding
    st[lst + at.ENTRIES] -= 1


@inner
def add_buddy(
    pages: np.ndarray,
    st: np.ndarray,
    zone: int,
    pfn: int,
    order: int,
    migratetype: int,
    tail: bool,
) -> None:
    """Put a free buddy on its list; counters are the caller's business."""
    pages[pfn]["order"] = order
    pages[pfn]["where"] = at.BUDDY
    pages[pfn]["tag"] = migratetype
    lst = free_list_at(zone, order, migratetype)
    if tail:
        push_tail(pages, st, lst, pfn)
    else:
        push_head(pages, st, lst, pfn)


@inner
def remove_buddy(pages: np.ndarray, st: np.ndarray, zone: int, pfn: int) -> None:
    """Take a free buddy off its list; counters are the caller's business."""
    lst = free_list_at(zone, int(pages[pfn]["order"]), int(pages[pfn]["tag"]))
    unlink(pages, st, lst, pfn)
    pages[pfn]["where"] = at.NOWHERE


@inner
def split(
    pages: np.ndarray,
    st: np.ndarray,
    zone: int,
    pfn: int,
    order: int,
    from_order: int,
    migratetype: int,
) -> None:
    """Keep the low `order` part of a removed buddy, upper halves go to list heads (S5.2)."""
    st[at.WORK_SPLITS] += from_order - order
    current = from_order
    while current > order:
        current -= 1
        add_buddy(pages, st, zone, pfn + (1 << current), current, migratetype, False)


@inner
def smallest_fit(st: np.ndarray, zone: int, order: int, migratetype: int) -> int:
    """The buddy of one type that a request of this order is cut from (S5.1); -1 if none."""
    for current in range(order, st[at.MAX_ORDER] + 1):
        pfn = st[free_list_at(zone, current, migratetype) + at.HEAD]
        if pfn >= 0:
            return pfn
    return -1


@inner
def take_smallest_fit(
    pages: np.ndarray, st: np.ndarray, zone: int, order: int, migratetype: int
) -> int:
    """Take `1 << order` pages from the smallest fitting buddy of one type (S5.1); -1 if none."""
    pfn = smallest_fit(st, zone, order, migratetype)
    if pfn < 0:
        return -1
    found_order = int(pages[pfn]["order"])
    remove_buddy(pages, st, zone, pfn)
    split(pages, st, zone, pfn, order, found_order, migratetype)
    account_free(st, zone, migratetype, -(1 << order))
    return pfn


@inner
def retype_block(blocks: np.ndarray, st: np.ndarray, block: int, migratetype: int) -> None:
    """Give a pageblock another type; its owner may lose it (S12.8)."""
    if st[at.OWNERSHIP]:
        end_where_retyped(blocks, st, block, migratetype)
    blocks[block]["migratetype"] = migratetype


@inner
def set_block_types(
    blocks: np.ndarray, st: np.ndarray, pfn: int, order: int, migratetype: int
) -> None:
    """Retag every pageblock that a buddy of at least pageblock order covers (S5.3, S6.3)."""
    block_order = st[at.PAGEBLOCK_ORDER]
    first = pfn >> block_order
    count = 1 << max(order - block_order, 0)
    for block in range(first, first + count):
        retype_block(blocks, st, block, migratetype)


@inner
def free_to_buddy(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    zone: int,
    pfn: int,
    order: int,
    migratetype: int,
) -> None:
    """Free pages to the buddy, merging as far as types allow (S5.3, S5.4).

    `st[FREES_TO_TAIL]` puts what results last on its list.
    """
    account_free(st, zone, migratetype, 1 << order)
    pages[pfn]["where"] = at.NOWHERE
    largest = st[at.MAX_ORDER]
    block_order = st[at.PAGEBLOCK_ORDER]
    end = st[at.END_PFN]
    st[at.WORK_MERGES] -= order
    while order < largest:
        buddy = pfn ^ (1 << order)
        if not is_free_buddy(pages, blocks, end, buddy, order, zone, block_order):
            break
        if order >= block_order:
            other = int(blocks[buddy >> block_order]["migratetype"])
            if other != migratetype:
                if other >= at.PCP_TYPES or migratetype >= at.PCP_TYPES:
                    break
                if st[at.LISTS_MATCH_BLOCKS]:
                    set_block_types(blocks, st, buddy, order, migratetype)
        if int(pages[buddy]["tag"]) != migratetype and not st[at.LISTS_MATCH_BLOCKS]:
            account_part(st, zone, int(pages[buddy]["tag"]), -(1 << order))
            account_part(st, zone, migratetype, 1 << order)
        remove_buddy(pages, st, zone, buddy)
        pfn &= ~(1 << order)
        order += 1
    st[at.WORK_MERGES] += order
    st[at.WORK_INSERTS] += 1
    if st[at.OWNERSHIP] and order >= block_order:
        end_where_whole(blocks, st, pfn, order)
    tail = st[at.FREES_TO_TAIL] != 0
    if order < largest - 1 and not tail:
        parent = pfn & ~(1 << order)
        above = parent ^ (1 << (order + 1))
        tail = is_free_buddy(pages, blocks, end, above, order + 1, zone, block_order)
    add_buddy(pages, st, zone, pfn, order, migratetype, tail)


@inner
def is_free_buddy(
    pages: np.ndarray,
    blocks: np.ndarray,
    end: int,
    pfn: int,
    order: int,
    zone: int,
    block_order: int,
) -> bool:
    """Whether a free buddy of exactly this order and zone starts at `pfn`."""
    return (
        pfn < end
        and int(pages[pfn]["where"]) == at.BUDDY
        and int(pages[pfn]["order"]) == order
        and int(blocks[pfn >> block_order]["zone"]) == zone + 1
    )


@inner
def move_block_free_pages(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, zone: int, block: int, migratetype: int
) -> int:
    """Move a pageblock's free buddies to the tails of another type's lists, retag it (S5.5).

    Returns:
        Pages moved.
    """
    first = block << st[at.PAGEBLOCK_ORDER]
    end = (block + 1) << st[at.PAGEBLOCK_ORDER]
    moved = move_free_pages(pages, st, zone, first, end, migratetype)
    retype_block(blocks, st, block, migratetype)
    return moved


@inner
def move_free_pages(
    pages: np.ndarray, st: np.ndarray, zone: int, first: int, end: int, migratetype: int
) -> int:
    """Move the free buddies of a range to the tails of another type's lists; pages moved (S5.5)."""
    moved = 0
    pfn = first
    while pfn < end:
        st[at.WORK_SCANNED] += 1
        if int(pages[pfn]["where"]) == at.BUDDY:
            st[at.WORK_INSERTS] += 1
            order = int(pages[pfn]["order"])
            account_move(st, zone, int(pages[pfn]["tag"]), migratetype, 1 << order)
            remove_buddy(pages, st, zone, pfn)
            add_buddy(pages, st, zone, pfn, order, migratetype, True)
            moved += 1 << order
            pfn += 1 << order
        else:
            pfn += 1
    return moved


@inner
def block_span(st: np.ndarray, zone: int, pfn: int) -> tuple[int, int]:
    """First page and end of what a conversion handles of a page's block, without retagging (S6.5).

    Where the zone begins inside the block it is the page and what follows; where the zone ends
    inside it, nothing.
    """
    region = zone_at(zone)
    block = pfn >> st[at.PAGEBLOCK_ORDER]
    first = block << st[at.PAGEBLOCK_ORDER]
    end = (block + 1) << st[at.PAGEBLOCK_ORDER]
    if end > st[region + at.ZONE_END]:
        return pfn, pfn
    if first < st[region + at.ZONE_START]:
        return pfn, end
    return first, end
