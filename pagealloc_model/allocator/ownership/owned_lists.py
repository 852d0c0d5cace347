"""Per-CPU lists with buddies of every order up to a pageblock: split, merge (S12.1, S12.5)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.offsets import pcp_at
from pagealloc_model.allocator.core.page_lists import list_add, list_add_tail, list_del
from pagealloc_model.allocator.ownership.ownership import count_owning, option, owner_of
from pagealloc_model.base.jit import inner


@inner
def owned_list_at(pcp: int, order: int, migratetype: int) -> int:
    """No kernel function: return the offset of a pageset's list.

    Every order has one for each type.
    """
    return pcp + at.PCP_LISTS + (3 * order + migratetype) * at.LIST_WORDS


@inner
def smallest_listed(m: at.MachineArrays, pcp: int, order: int, migratetype: int) -> int:
    """No kernel function: return the smallest sufficient order listed for a type, or -1."""
    for current in range(order, m.st[at.PAGEBLOCK_ORDER] + 1):
        if m.st[owned_list_at(pcp, current, migratetype) + at.HEAD] >= 0:
            return current
    return -1


@inner
def mark_listed(m: at.MachineArrays, pfn: int, order: int, tag: int, flags: int) -> None:
    """No kernel function: describe a page that is about to go on a per-CPU list."""
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ON_PCP
    m.pages[pfn]["tag"] = tag
    m.pages[pfn]["flags"] = flags


@inner
def unmerged_at(pcp: int, order: int, migratetype: int) -> int:
    """No kernel function: return where it says how far a list's unmerged buddies reach."""
    return pcp + at.PCP_UNMERGED + 3 * order + migratetype


@inner
def push_listed(m: at.MachineArrays, pcp: int, pfn: int, order: int, kind: int) -> None:
    """No kernel function: push a page, described already, on the head of its list.

    The list's unmerged part goes down to the last page that found its buddy there.
    """
    list_add(m.pages, m.st, owned_list_at(pcp, order, kind), pfn)
    unmerged = unmerged_at(pcp, order, kind)
    if m.st[unmerged] > 0 or listed_buddy(m, pfn, order, kind) >= 0:
        m.st[unmerged] += 1


@inner
def append_listed(m: at.MachineArrays, pcp: int, pfn: int, order: int, kind: int) -> None:
    """No kernel function: append a page, described already, to its list.

    If it finds its buddy there, all of the list is unmerged.
    """
    lst = owned_list_at(pcp, order, kind)
    list_add_tail(m.pages, m.st, lst, pfn)
    if listed_buddy(m, pfn, order, kind) >= 0:
        m.st[unmerged_at(pcp, order, kind)] = m.st[lst + at.ENTRIES]


@inner
def pop_listed(
    m: at.MachineArrays, zone: int, pcp: int, order: int, from_order: int, kind: int
) -> int:
    """No kernel function: take a list's head and keep its low part; returns its first page.

    The upper halves go to list heads.
    """
    lst = owned_list_at(pcp, from_order, kind)
    pfn = m.st[lst + at.HEAD]
    list_del(m.pages, m.st, lst, pfn)
    unmerged = unmerged_at(pcp, from_order, kind)
    m.st[unmerged] = max(m.st[unmerged] - 1, 0)
    tag = int(m.pages[pfn]["tag"])
    flags = int(m.pages[pfn]["flags"])
    current = from_order
    while current > order:
        current -= 1
        half = pfn + (1 << current)
        mark_listed(m, half, current, tag, flags)
        push_listed(m, pcp, half, current, kind)
    if from_order > order:
        count_owning(m, zone, own.LIST_SPLITS, from_order - order)
    m.st[pcp + at.PCP_COUNT] -= 1 << order
    return pfn


@inner
def listed_buddy(m: at.MachineArrays, pfn: int, order: int, migratetype: int) -> int:
    """No kernel function: return the buddy of a listed page if both are mergeable, or -1.

    Their block has the list's CPU as its owner, or has lost it.
    """
    buddy = pfn ^ (1 << order)
    if (
        order < m.st[at.PAGEBLOCK_ORDER]
        and int(m.pages[pfn]["flags"]) & at.MERGEABLE
        and int(m.pages[buddy]["where"]) == at.ON_PCP
        and int(m.pages[buddy]["order"]) == order
        and int(m.pages[buddy]["tag"]) == migratetype
        and int(m.pages[buddy]["flags"]) & at.MERGEABLE
    ):
        return buddy
    return -1


@inner
def mergeable_buddy(m: at.MachineArrays, cpu: int, pfn: int, order: int, migratetype: int) -> int:
    """No kernel function: return the buddy that a listed page can merge with, or -1.

    A mergeable page whose block has an owner is on that owner's list.
    """
    buddy = listed_buddy(m, pfn, order, migratetype)
    if buddy >= 0 and owner_of(m, pfn >> m.st[at.PAGEBLOCK_ORDER]) == cpu:
        return buddy
    return -1


@inner
def join(m: at.MachineArrays, zone: int, lst: int, pfn: int, buddy: int, migratetype: int) -> int:
    """No kernel function: make one page of two listed buddies; returns its first page."""
    order = int(m.pages[pfn]["order"])
    list_del(m.pages, m.st, lst, pfn)
    list_del(m.pages, m.st, lst, buddy)
    m.pages[max(pfn, buddy)]["where"] = at.NOWHERE
    first = min(pfn, buddy)
    mark_listed(m, first, order + 1, migratetype, at.MERGEABLE)
    count_owning(m, zone, own.LIST_MERGES, 1)
    return first


@inner
def merge_upward(m: at.MachineArrays, zone: int, cpu: int, pfn: int, migratetype: int) -> None:
    """No kernel function: merge a page just pushed with its listed buddies, as far as it goes."""
    pcp = pcp_at(m, zone, cpu)
    while True:
        order = int(m.pages[pfn]["order"])
        buddy = mergeable_buddy(m, cpu, pfn, order, migratetype)
        count_owning(m, zone, own.MERGE_ENTRIES, 1)
        if buddy < 0:
            return
        lst = owned_list_at(pcp, order, migratetype)
        pfn = join(m, zone, lst, pfn, buddy, migratetype)
        list_add(m.pages, m.st, owned_list_at(pcp, order + 1, migratetype), pfn)


@inner
def merge_list(m: at.MachineArrays, zone: int, cpu: int, order: int, migratetype: int) -> int:
    """No kernel function: merge the buddies on one list, head to tail.

    Pairs go to the tail of the next order's list. Returns how many entries a walk of the whole list
    looks at, all but the later ones of each pair; the walk ends where no buddies can follow.
    """
    pcp = pcp_at(m, zone, cpu)
    lst = owned_list_at(pcp, order, migratetype)
    looked_at = m.st[lst + at.ENTRIES]
    unmerged = m.st[unmerged_at(pcp, order, migratetype)]
    m.st[unmerged_at(pcp, order, migratetype)] = 0
    pfn = m.st[lst + at.HEAD]
    while unmerged > 0 and pfn >= 0:
        unmerged -= 1
        following = int(m.pages[pfn]["next"])
        buddy = mergeable_buddy(m, cpu, pfn, order, migratetype)
        if buddy >= 0:
            if following == buddy:
                following = int(m.pages[buddy]["next"])
            first = join(m, zone, lst, pfn, buddy, migratetype)
            append_listed(m, pcp, first, order + 1, migratetype)
            looked_at -= 1
        pfn = following
    return looked_at


@inner
def merge_before_drain(m: at.MachineArrays, zone: int, cpu: int) -> None:
    """No kernel function: merge what a CPU's lists hold of its own blocks, bottom up (S12.5)."""
    if not m.st[at.OWNERSHIP] or option(m, own.OPTION_MERGES_AT) == own.MERGES_AT_FREE:
        return
    looked_at = 0
    for order in range(m.st[at.PAGEBLOCK_ORDER]):
        for migratetype in range(at.PCP_TYPES):
            looked_at += merge_list(m, zone, cpu, order, migratetype)
    count_owning(m, zone, own.MERGE_ENTRIES, looked_at)
