"""Operations of compaction one after another, for the kernel's code to be compared with."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_context import prepare_alloc_pages
from pagealloc_model.allocator.core.buddy import __rmqueue_smallest
from pagealloc_model.allocator.core.event_log import forget_work
from pagealloc_model.allocator.core.offsets import node_at, zone_at
from pagealloc_model.allocator.core.request import __alloc_pages_direct_compact, prep_new_page
from pagealloc_model.allocator.pressure.compaction import (
    begin_compaction,
    compact_unit,
    set_control,
)
from pagealloc_model.allocator.pressure.draws import draw
from pagealloc_model.allocator.pressure.folios import (
    add_piece,
    describe,
    free_waiting,
    queue_free,
    remove_piece,
)
from pagealloc_model.allocator.pressure.kcompactd import (
    begin_work,
    look_proactively,
    step_kcompactd,
    wakeup_kcompactd,
)
from pagealloc_model.allocator.pressure.kswapd import reset_isolation_suitable
from pagealloc_model.allocator.pressure.pressure_offsets import compactor_at, node_pressure_at
from pagealloc_model.base.jit import cold, entry, inner

(KIND, ZONE, NODE, ORDER, TYPE, PRIORITY, FLAGS, HIGHEST, CPU, COUNT, OBJECT, KEEP) = range(12)
OPERATION_WORDS = 12


@inner
def keep_page(
    m: at.MachineArrays, pfn: int, order: int, migratetype: int, kind: int, number: int
) -> None:
    """No kernel function: make pages just taken an object."""
    prep_new_page(m, pfn, order, migratetype)
    describe(m, pfn, number, 0, kind)
    add_piece(m, pfn, number)


@inner
def free_allocated(m: at.MachineArrays, pfn: int) -> None:
    """No kernel function: free an object's only piece."""
    remove_piece(m, pfn)
    queue_free(m, pfn)
    free_waiting(m)


@cold
def compact_directly(m: at.MachineArrays, operation: np.ndarray, result: np.ndarray) -> None:
    """No kernel function: let a request compact; its page is kept or freed."""
    order = operation[ORDER]
    migratetype = operation[TYPE]
    bits = at.GFP_DIRECT_RECLAIM | pr.GFP_IO
    ac = prepare_alloc_pages(m, operation[CPU], order, migratetype, operation[HIGHEST], bits)
    made = order
    if operation[FLAGS] & at.ALLOC_NOFRAGMENT:
        made = max(order, m.st[at.PAGEBLOCK_ORDER])
    pfn, status = __alloc_pages_direct_compact(m, ac, operation[FLAGS], operation[PRIORITY], made)
    result[0] = status
    result[1] = pfn
    if pfn < 0:
        return
    kind = pr.ANON if migratetype == at.MOVABLE else pr.KERNEL
    keep_page(m, pfn, order, migratetype, kind, operation[OBJECT] - 1)
    if not operation[KEEP]:
        free_allocated(m, pfn)


@inner
def let_daemon_work(m: at.MachineArrays, node: int, order: int, highest: int) -> None:
    """No kernel function: let a node's kcompactd work until it sleeps.

    A wake for an order, 0 for none, comes once it has taken up its work.
    """
    words = node_pressure_at(m, node)
    run = compactor_at(m, 1 + node)
    while m.st[words + pr.KCOMPACTD_DUE] != at.NEVER:
        begins = m.st[run + pr.RUN_ZONE] == 0 and m.st[words + pr.KCOMPACTD_ZONE] < 0
        if order > 0 and begins:
            begin_work(m, node)
            wakeup_kcompactd(m, node, order, highest)
            order = 0
        step_kcompactd(m, node)


@cold
def let_time_pass(m: at.MachineArrays) -> None:
    """No kernel function: let time pass, and daemons wake whose sleep it ends."""
    now = m.st[at.NOW] + pr.JUDGED_TIME_MS * 1_000_000
    for node in range(m.st[at.NR_NODES]):
        words = node_pressure_at(m, node)
        if m.st[words + pr.PROACTIVE_DUE] <= now:
            m.st[words + pr.PROACTIVE_DUE] = now
            look_proactively(m, node)
            let_daemon_work(m, node, 0, 0)
    m.st[at.NOW] = now


@cold
def compact_node(m: at.MachineArrays, node: int, cpu: int) -> None:
    """compact_node(): compact all of a node, as for /proc/sys/vm/compact_memory (S9.6)."""
    set_control(m, 1 + node, -1, at.UNMOVABLE, pr.SYNC, cpu)
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            begin_compaction(m, 1 + node, zone)
            status = pr.CONTINUE
            while status == pr.CONTINUE:
                status, _ = compact_unit(m, 1 + node)


@cold
def take_some(m: at.MachineArrays, operation: np.ndarray) -> None:
    """No kernel function: make objects of a zone's free pages of a type, while there are any."""
    order = operation[ORDER]
    migratetype = operation[TYPE]
    kind = pr.FILE if migratetype == at.MOVABLE else pr.KERNEL
    for each in range(operation[COUNT]):
        pfn = __rmqueue_smallest(m, operation[ZONE], order, migratetype)
        forget_work(m)
        if pfn < 0:
            return
        keep_page(m, pfn, order, migratetype, kind, operation[OBJECT] + each - 1)


@cold
def free_some(m: at.MachineArrays, operation: np.ndarray) -> None:
    """No kernel function: free a share of a zone's objects, drawn by page frame."""
    region = zone_at(operation[ZONE])
    for pfn in range(m.st[region + at.ZONE_START], m.st[region + at.ZONE_END]):
        is_used = int(m.pages[pfn]["where"]) == at.ALLOCATED
        if is_used and draw(m, pfn, operation[OBJECT], 0) < operation[COUNT]:
            free_allocated(m, pfn)


@entry
def take_compaction_operations(
    m: at.MachineArrays, operations: np.ndarray, results: np.ndarray, low: int, high: int
) -> int:
    """No kernel function: take operations[low:high], each a row of `OPERATION_WORDS` words.

    Args:
        m: the machine; `places` has each object's page.
        operations: int64, shape (operations, OPERATION_WORDS). Of a wake, COUNT is the order of
            another that comes while kcompactd works, 0 for none, and PRIORITY its highest type.
        results: int64, shape (operations, 2): the result of direct compaction and its page.
        low: first operation.
        high: one past the last.

    Returns:
        `high`.
    """
    for position in range(low, high):
        operation = operations[position]
        kind = operation[KIND]
        node = operation[NODE]
        m.st[at.EVENT_CPU] = operation[CPU]
        if kind == pr.JUDGED_DIRECT:
            compact_directly(m, operation, results[position])
        elif kind == pr.JUDGED_WAKE:
            wakeup_kcompactd(m, node, operation[ORDER], operation[HIGHEST])
            let_daemon_work(m, node, operation[COUNT], operation[PRIORITY])
        elif kind == pr.JUDGED_TIME:
            let_time_pass(m)
        elif kind == pr.JUDGED_NODE:
            compact_node(m, node, operation[CPU])
        elif kind == pr.JUDGED_RESET:
            reset_isolation_suitable(m, node)
        elif kind == pr.JUDGED_KSWAPD:
            m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE] = operation[COUNT]
            phase = pr.RUNNING if operation[COUNT] else pr.ASLEEP
            m.st[node_pressure_at(m, node) + pr.KSWAPD_PHASE] = phase
        elif kind == pr.JUDGED_TAKE:
            take_some(m, operation)
        else:
            free_some(m, operation)
    return high
