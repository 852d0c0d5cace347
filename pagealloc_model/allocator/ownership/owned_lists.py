"""Per-CPU lists with buddies of every order up to a pageblock: split, merge (S12.1, S12.5)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.buddy import push_head, push_tail, unlink
from pagealloc_model.allocator.core.offsets import pcp_at
from pagealloc_model.allocator.ownership.ownership import count_owning, option, owner_of
from pagealloc_model.base.jit import inner


@inner
def owned_list_at(pcp: int, order: int, migratetype: int) -> int:
    """Offset of a pageset's list: every order has one for each type."""
    return pcp + at.PCP_LISTS + (3 * order + migratetype) * at.LIST_WORDS


@inner
def smallest_listed(st: np.ndarray, pcp: int, order: int, migratetype: int) -> int:
    """The smallest sufficient order of which a list of the type has a page; -1 if none."""
    for current in range(order, st[at.PAGEBLOCK_ORDER] + 1):
        if st[owned_list_at(pcp, current, migratetype) + at.HEAD] >= 0:
            return current
    return -1


@inner
def mark_listed(pages: np.ndarray, pfn: int, order: int, tag: int, flags: int) -> None:
    """Describe a page that is about to go on a per-CPU list."""
    pages[pfn]["order"] = order
    pages[pfn]["where"] = at.ON_PCP
    pages[pfn]["tag"] = tag
    pages[pfn]["flags"] = flags


@inner
def pop_listed(
    pages: np.ndarray, st: np.ndarray, zone: int, pcp: int, order: int, from_order: int, kind: int
) -> int:
    """Take a page off the head of a list and keep its low part; upper halves go to list heads."""
    lst = owned_list_at(pcp, from_order, kind)
    pfn = st[lst + at.HEAD]
    unlink(pages, st, lst, pfn)
    tag = int(pages[pfn]["tag"])
    flags = int(pages[pfn]["flags"])
    current = from_order
    while current > order:
        current -= 1
        half = pfn + (1 << current)
        mark_listed(pages, half, current, tag, flags)
        push_head(pages, st, owned_list_at(pcp, current, kind), half)
    count_owning(st, zone, own.LIST_SPLITS, from_order - order)
    st[pcp + at.PCP_COUNT] -= 1 << order
    return pfn


@inner
def mergeable_buddy(
    pages: np.ndarray, st: np.ndarray, cpu: int, pfn: int, order: int, migratetype: int
) -> int:
    """The buddy that a page of a CPU's list can merge with there; -1 if there is none.

    A mergeable page whose block has an owner is on that owner's list.
    """
    buddy = pfn ^ (1 << order)
    if (
        order < st[at.PAGEBLOCK_ORDER]
        and int(pages[pfn]["flags"]) & at.MERGEABLE
        and int(pages[buddy]["where"]) == at.ON_PCP
        and int(pages[buddy]["order"]) == order
        and int(pages[buddy]["tag"]) == migratetype
        and int(pages[buddy]["flags"]) & at.MERGEABLE
        and owner_of(st, pfn >> st[at.PAGEBLOCK_ORDER]) == cpu
    ):
        return buddy
    return -1


@inner
def join(
    pages: np.ndarray, st: np.ndarray, zone: int, lst: int, pfn: int, buddy: int, migratetype: int
) -> int:
    """Take two buddies off their list and make them one page; its first page frame."""
    order = int(pages[pfn]["order"])
    unlink(pages, st, lst, pfn)
    unlink(pages, st, lst, buddy)
    pages[max(pfn, buddy)]["where"] = at.NOWHERE
    first = min(pfn, buddy)
    mark_listed(pages, first, order + 1, migratetype, at.MERGEABLE)
    count_owning(st, zone, own.LIST_MERGES, 1)
    return first


@inner
def merge_upward(
    pages: np.ndarray, st: np.ndarray, zone: int, cpu: int, pfn: int, migratetype: int
) -> None:
    """Merge a page just pushed with its buddies on the list, as far as that goes."""
    pcp = pcp_at(st, zone, cpu)
    while True:
        order = int(pages[pfn]["order"])
        buddy = mergeable_buddy(pages, st, cpu, pfn, order, migratetype)
        count_owning(st, zone, own.MERGE_ENTRIES, 1)
        if buddy < 0:
            return
        lst = owned_list_at(pcp, order, migratetype)
        pfn = join(pages, st, zone, lst, pfn, buddy, migratetype)
        push_head(pages, st, owned_list_at(pcp, order + 1, migratetype), pfn)


@inner
def merge_list(
    pages: np.ndarray, st: np.ndarray, zone: int, cpu: int, order: int, migratetype: int
) -> None:
    """Merge the buddies on one list, head to tail; pairs go to the tail of the next order's."""
    pcp = pcp_at(st, zone, cpu)
    lst = owned_list_at(pcp, order, migratetype)
    above = owned_list_at(pcp, order + 1, migratetype)
    looked_at = 0
    pfn = st[lst + at.HEAD]
    while pfn >= 0:
        looked_at += 1
        following = int(pages[pfn]["next"])
        buddy = mergeable_buddy(pages, st, cpu, pfn, order, migratetype)
        if buddy >= 0:
            if following == buddy:
                following = int(pages[buddy]["next"])
            push_tail(pages, st, above, join(pages, st, zone, lst, pfn, buddy, migratetype))
        pfn = following
    count_owning(st, zone, own.MERGE_ENTRIES, looked_at)


@inner
def merge_before_drain(pages: np.ndarray, st: np.ndarray, zone: int, cpu: int) -> None:
    """Merge what a CPU's lists hold of its own blocks, bottom up (S12.5)."""
    if not st[at.OWNERSHIP] or option(st, own.OPTION_MERGES_AT) == own.MERGES_AT_FREE:
        return
    for order in range(st[at.PAGEBLOCK_ORDER]):
        for migratetype in range(at.PCP_TYPES):
            merge_list(pages, st, zone, cpu, order, migratetype)
