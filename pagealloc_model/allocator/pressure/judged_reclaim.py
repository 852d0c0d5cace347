"""Operations that the judge of reclaim takes, one after another, on the model."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_context import (
    AllocContext,
    fast_path_flags,
    prepare_alloc_pages,
)
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.request import prep_new_page
from pagealloc_model.allocator.core.zone_walk import get_page_from_freelist
from pagealloc_model.allocator.pressure.direct_reclaim import try_to_free_pages
from pagealloc_model.allocator.pressure.folios import describe, free_waiting, queue_free
from pagealloc_model.allocator.pressure.kswapd import step_kswapd, take_wakes, wake_node
from pagealloc_model.allocator.pressure.lru import lru_move
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at
from pagealloc_model.base.jit import entry, inner

RECLAIM_OPERATION = np.dtype(
    [
        ("kind", np.int32),
        ("node", np.int32),
        ("zone", np.int32),
        ("order", np.int32),
        ("bits", np.uint32),
        ("migratetype", np.int32),
        ("class", np.int32),
        ("page", np.int32),
    ]
)
"""`kind` is one of those below; `zone` the highest zone type of a request; `page` where the search
for a page in use begins, or -1 and below for the page that operation 0, 1, ... has taken."""

TAKE, LET_GO, USE, WAKE, RUN, END_NAP, RECLAIM = range(7)
"""Allocate a page; free one; make one active; wake a node's kswapd; let it run until it sleeps, if
it is woken; end its nap, if it was not; reclaim directly."""


@inner
def request_of(m: at.MachineArrays, operations: np.ndarray, position: int) -> AllocContext:
    """No kernel function: return the request of an operation."""
    return prepare_alloc_pages(
        m,
        0,
        int(operations[position]["order"]),
        int(operations[position]["migratetype"]),
        int(operations[position]["zone"]),
        int(operations[position]["bits"]),
    )


@inner
def page_named(m: at.MachineArrays, answers: np.ndarray, page: int) -> int:
    """No kernel function: return the first page in use from where an operation says, or -1."""
    if page < 0:
        page = answers[-1 - page]
        if page < 0:
            return -1
    return page_in_use(m, page)


@inner
def page_in_use(m: at.MachineArrays, pfn: int) -> int:
    """No kernel function: return the first page in use from a place on, or -1."""
    for _ in range(len(m.pages)):
        if int(m.pages[pfn]["where"]) == at.ALLOCATED:
            return pfn
        pfn = pfn + 1 if pfn + 1 < len(m.pages) else 0
    return -1


@inner
def take_page(m: at.MachineArrays, ac: AllocContext, kind: int) -> int:
    """No kernel function: allocate at the first attempt; returns the page, or -1.

    Requests on reserves have no mark.
    """
    flags = fast_path_flags(m, ac)
    if ac.bits & at.GFP_MEMALLOC:
        flags |= at.ALLOC_NO_WATERMARKS
    pfn = get_page_from_freelist(m, ac, flags)
    take_wakes(m, ac.bits)
    if pfn >= 0:
        prep_new_page(m, pfn, ac.order, ac.migratetype)
        describe(m, pfn, -1, 0, kind)
    return pfn


@inner
def let_go(m: at.MachineArrays, pfn: int) -> int:
    """No kernel function: free a page in use; returns it."""
    if pfn >= 0:
        queue_free(m, pfn)
        free_waiting(m)
    return pfn


@inner
def use(m: at.MachineArrays, pfn: int) -> int:
    """No kernel function: make a page active; returns it, or -1 if it is on no list."""
    if pfn < 0 or int(m.folios[pfn]["place"]) == 0:
        return -1
    lru_move(m, pfn, 2 * (int(m.folios[pfn]["kind"]) - pr.ANON) + 1)
    return pfn


@inner
def run_until_asleep(m: at.MachineArrays, node: int, starts: bool) -> int:
    """No kernel function: let a node's kswapd run until it naps or sleeps; returns which.

    `starts`: it has a reason to run at all.
    """
    words = node_pressure_at(m, node)
    if starts:
        step_kswapd(m, node)
        while m.st[words + pr.KSWAPD_PHASE] == pr.RUNNING:
            m.st[at.LOG_ROWS] = 0
            step_kswapd(m, node)
    return m.st[words + pr.KSWAPD_PHASE]


@inner
def has_memory(m: at.MachineArrays, node: int) -> bool:
    """No kernel function: return whether a node has any zone with pages."""
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            return True
    return False


@inner
def operate(m: at.MachineArrays, operations: np.ndarray, answers: np.ndarray, position: int) -> int:
    """No kernel function: take one operation; returns what it gives."""
    kind = int(operations[position]["kind"])
    node = int(operations[position]["node"])
    words = node_pressure_at(m, node)
    woken = m.st[words + pr.KSWAPD_WOKEN] != 0
    if kind == TAKE:
        return take_page(m, request_of(m, operations, position), int(operations[position]["class"]))
    if kind == LET_GO:
        return let_go(m, page_named(m, answers, int(operations[position]["page"])))
    if kind == USE:
        return use(m, page_named(m, answers, int(operations[position]["page"])))
    if kind == WAKE:
        if has_memory(m, node):
            ac = request_of(m, operations, position)
            wake_node(m, node, ac.order, ac.highest_type, ac.bits)
        return 0
    if kind == RUN:
        return run_until_asleep(m, node, woken)
    if kind == END_NAP:
        naps = m.st[words + pr.KSWAPD_PHASE] == pr.NAPPING
        return run_until_asleep(m, node, naps and not woken)
    ac = request_of(m, operations, position)
    return try_to_free_pages(m, ac, ac.order)


@entry
def take_reclaim_operations(
    m: at.MachineArrays, operations: np.ndarray, answers: np.ndarray, low: int, high: int
) -> None:
    """No kernel function: take `operations[low:high]`.

    Args:
        m: the machine, an elastic replay's; its log is emptied before each operation.
        operations: `RECLAIM_OPERATION` records.
        answers: int64, written: what each gives.
        low: first operation.
        high: one past the last.
    """
    for position in range(low, high):
        m.st[at.LOG_ROWS] = 0
        m.st[at.EVENT_CPU] = 0
        answers[position] = operate(m, operations, answers, position)
