"""Free lists as compaction's fast searches use them: how far to look, in which order (S9.3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import free_list_at
from pagealloc_model.base.jit import inner


@inner
def buddies_of(m: at.MachineArrays, zone: int, order: int) -> int:
    """Part of fill_contig_page_info(): return the number of free buddies of an order, all types."""
    count = 0
    for migratetype in range(at.MIGRATETYPES):
        count += m.st[free_list_at(zone, order, migratetype) + at.ENTRIES]
    return count


@inner
def freelist_scan_limit(m: at.MachineArrays, run: int) -> int:
    """freelist_scan_limit(): return how many free pages a fast search looks at (S9.3).

    They are half as many after each search in vain.
    """
    return (pr.CLUSTER >> min(m.st[run + pr.RUN_SEARCH_FAIL], 62)) + 1


@inner
def move_freelist_head(m: at.MachineArrays, lst: int, pfn: int) -> None:
    """move_freelist_head(): put what precedes a page in a free list last (S9.3, S14.2)."""
    last = int(m.pages[pfn]["prev"])
    if last < 0 or m.st[at.SUPERPAGEBLOCKS]:
        return
    head, tail = m.st[lst + at.HEAD], m.st[lst + at.TAIL]
    m.pages[pfn]["prev"] = -1
    m.pages[last]["next"] = -1
    m.pages[tail]["next"] = head
    m.pages[head]["prev"] = tail
    m.st[lst + at.HEAD] = pfn
    m.st[lst + at.TAIL] = last


@inner
def move_freelist_tail(m: at.MachineArrays, lst: int, pfn: int) -> None:
    """move_freelist_tail(): put a page of a free list, and what precedes it, behind its tail."""
    following = int(m.pages[pfn]["next"])
    if following >= 0:
        move_freelist_head(m, lst, following)


@inner
def next_search_order(m: at.MachineArrays, run: int, order: int) -> int:
    """next_search_order(): return the order to search after one, or -1 once all were (S9.3)."""
    largest = m.st[run + pr.RUN_ORDER] - 1
    order -= 1
    if order < 0:
        order = largest
    if order != m.st[run + pr.RUN_SEARCH_ORDER]:
        return order
    m.st[run + pr.RUN_SEARCH_ORDER] -= 1
    if m.st[run + pr.RUN_SEARCH_ORDER] < 0:
        m.st[run + pr.RUN_SEARCH_ORDER] = largest
    return -1
