"""Operations of reclaim and compaction, for the kernel's code to be compared with."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.buddy import __rmqueue_smallest
from pagealloc_model.allocator.compaction import begin_compaction, compact_unit, set_control
from pagealloc_model.allocator.event_log import forget_work
from pagealloc_model.allocator.kcompactd import (
    begin_work,
    kcompactd,
    wakeup_kcompactd,
)
from pagealloc_model.allocator.kswapd import (
    reset_isolation_suitable,
    step_kswapd,
    take_wakes,
    wake_node,
)
from pagealloc_model.allocator.layout import node_at, zone_at
from pagealloc_model.allocator.lru import (
    add_piece,
    describe,
    draw,
    free_waiting,
    lru_move,
    queue_free,
    remove_piece,
)
from pagealloc_model.allocator.page_alloc import (
    __alloc_pages_direct_compact,
    get_page_from_freelist,
    prep_new_page,
)
from pagealloc_model.allocator.pressure_layout import compactor_at, node_pressure_at
from pagealloc_model.allocator.vmscan import try_to_free_pages
from pagealloc_model.allocator.watermark import fast_path_flags, prepare_alloc_pages
from pagealloc_model.base.jit import cold, entry, inner

RECLAIM_OPERATION = at.record(
    "int32 kind node zone order; uint32 bits; int32 migratetype class page"
)
"""`kind` is one of those below; `zone` the highest zone type of a request; `page` where the search
for a page in use begins, or -1 and below for the page that operation 0, 1, ... has taken."""

TAKE, LET_GO, USE, WAKE, RUN, END_NAP, RECLAIM = range(7)
"""Allocate a page; free one; make one active; wake a node's kswapd; let it run until it sleeps, if
it is woken; end its nap, if it was not; reclaim directly."""


@inner
def has_memory(m: at.Arrays, node: int) -> bool:
    """Return whether a node has any zone with pages."""
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            return True
    return False


@inner
def page_in_use(m: at.Arrays, answers: np.ndarray, pfn: int) -> int:
    """Return the first page in use from where an operation says, or -1."""
    if pfn < 0:
        pfn = answers[-1 - pfn]
    if pfn >= 0:
        for _ in range(len(m.pages)):
            if int(m.pages[pfn]["where"]) == at.ALLOCATED:
                return pfn
            pfn = pfn + 1 if pfn + 1 < len(m.pages) else 0
    return -1


@inner
def operate(m: at.Arrays, operations: np.ndarray, answers: np.ndarray, position: int) -> int:
    """Take one operation; returns what it gives."""
    kind = int(operations[position]["kind"])
    node = int(operations[position]["node"])
    words = node_pressure_at(m, node)
    phase = words + pr.KSWAPD_PHASE
    ac = prepare_alloc_pages(
        m,
        0,
        int(operations[position]["order"]),
        int(operations[position]["migratetype"]),
        int(operations[position]["zone"]),
        int(operations[position]["bits"]),
    )
    if kind == TAKE:
        # At the first attempt, on reserves without a mark.
        flags = fast_path_flags(m, ac)
        if ac.bits & at.GFP_MEMALLOC:
            flags |= at.ALLOC_NO_WATERMARKS
        pfn = get_page_from_freelist(m, ac, flags)
        take_wakes(m, ac.bits)
        if pfn >= 0:
            prep_new_page(m, pfn, ac.order, ac.migratetype)
            describe(m, pfn, -1, 0, int(operations[position]["class"]))
        return pfn
    if kind in (LET_GO, USE):
        pfn = page_in_use(m, answers, int(operations[position]["page"]))
        if pfn >= 0 and kind == LET_GO:
            queue_free(m, pfn)
            free_waiting(m)
        elif pfn >= 0:
            if int(m.folios[pfn]["place"]) == 0:
                return -1
            lru_move(m, pfn, 2 * (int(m.folios[pfn]["kind"]) - pr.ANON) + 1)
        return pfn
    if kind == WAKE:
        if has_memory(m, node):
            wake_node(m, node, ac.order, ac.highest_type, ac.bits)
        return 0
    if kind in (RUN, END_NAP):
        woken = m.st[words + pr.KSWAPD_WOKEN] != 0
        if (m.st[phase] == pr.NAPPING and not woken) if kind == END_NAP else woken:
            step_kswapd(m, node)
            while m.st[phase] == pr.RUNNING:
                m.st[at.LOG_ROWS] = 0
                step_kswapd(m, node)
        return m.st[phase]
    return try_to_free_pages(m, ac, ac.order)


@entry
def take_reclaim_operations(
    m: at.Arrays, operations: np.ndarray, answers: np.ndarray, low: int, high: int
) -> None:
    """Take `operations[low:high]`.

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


(KIND, ZONE, NODE, ORDER, TYPE, PRIORITY, FLAGS, HIGHEST, CPU, COUNT, OBJECT, KEEP) = range(12)
OPERATION_WORDS = 12


@inner
def keep_page(m: at.Arrays, pfn: int, order: int, migratetype: int, kind: int, number: int) -> None:
    """Make pages just taken an object."""
    prep_new_page(m, pfn, order, migratetype)
    describe(m, pfn, number, 0, kind)
    add_piece(m, pfn, number)


@inner
def free_allocated(m: at.Arrays, pfn: int) -> None:
    """Free an object's only piece."""
    remove_piece(m, pfn)
    queue_free(m, pfn)
    free_waiting(m)


@cold
def compact_directly(m: at.Arrays, operation: np.ndarray, result: np.ndarray) -> None:
    """Let a request compact; its page is kept or freed."""
    order = operation[ORDER]
    migratetype = operation[TYPE]
    bits = at.GFP_DIRECT_RECLAIM | pr.GFP_IO
    ac = prepare_alloc_pages(m, operation[CPU], order, migratetype, operation[HIGHEST], bits)
    wanted = order
    if operation[FLAGS] & at.ALLOC_NOFRAGMENT:
        wanted = max(order, m.st[at.PAGEBLOCK_ORDER])
    pfn, status = __alloc_pages_direct_compact(m, ac, operation[FLAGS], operation[PRIORITY], wanted)
    result[0] = status
    result[1] = pfn
    if pfn < 0:
        return
    kind = pr.ANON if migratetype == at.MOVABLE else pr.KERNEL
    keep_page(m, pfn, order, migratetype, kind, operation[OBJECT] - 1)
    if not operation[KEEP]:
        free_allocated(m, pfn)


@inner
def let_daemon_work(m: at.Arrays, node: int, order: int, highest: int) -> None:
    """Let a node's kcompactd work until it sleeps."""
    words = node_pressure_at(m, node)
    run = compactor_at(m, 1 + node)
    while m.st[words + pr.KCOMPACTD_DUE] != at.NEVER:
        begins = m.st[run + pr.RUN_ZONE] == 0 and m.st[words + pr.KCOMPACTD_ZONE] < 0
        if order > 0 and begins:
            begin_work(m, node)
            wakeup_kcompactd(m, node, order, highest)
            order = 0
        kcompactd(m, node, False)


@cold
def compact_node(m: at.Arrays, node: int, cpu: int) -> None:
    """compact_node(): compact all of a node, as for /proc/sys/vm/compact_memory (S9.6)."""
    set_control(m, 1 + node, -1, at.UNMOVABLE, pr.SYNC, cpu)
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            begin_compaction(m, 1 + node, zone)
            status = pr.CONTINUE
            while status == pr.CONTINUE:
                status, _ = compact_unit(m, 1 + node)


@entry
def take_compaction_operations(
    m: at.Arrays, operations: np.ndarray, results: np.ndarray, low: int, high: int
) -> int:
    """Take operations[low:high], each a row of `OPERATION_WORDS` words.

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
            now = m.st[at.NOW] + pr.JUDGED_TIME_MS * 1_000_000
            for daemon in range(m.st[at.NR_NODES]):
                due = node_pressure_at(m, daemon) + pr.PROACTIVE_DUE
                if m.st[due] <= now:
                    m.st[due] = now
                    kcompactd(m, daemon, True)
                    let_daemon_work(m, daemon, 0, 0)
            m.st[at.NOW] = now
        elif kind == pr.JUDGED_NODE:
            compact_node(m, node, operation[CPU])
        elif kind == pr.JUDGED_RESET:
            reset_isolation_suitable(m, node)
        elif kind == pr.JUDGED_KSWAPD:
            m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE] = operation[COUNT]
            phase = pr.RUNNING if operation[COUNT] else pr.ASLEEP
            m.st[node_pressure_at(m, node) + pr.KSWAPD_PHASE] = phase
        elif kind == pr.JUDGED_TAKE:
            # Objects of a zone's free pages of a type, while there are any.
            order, migratetype = operation[ORDER], operation[TYPE]
            held = pr.FILE if migratetype == at.MOVABLE else pr.KERNEL
            for each in range(operation[COUNT]):
                pfn = __rmqueue_smallest(m, operation[ZONE], order, migratetype)
                forget_work(m)
                if pfn < 0:
                    break
                keep_page(m, pfn, order, migratetype, held, operation[OBJECT] + each - 1)
        else:
            # A share of a zone's objects, drawn by page frame, is freed.
            region = zone_at(operation[ZONE])
            for pfn in range(m.st[region + at.ZONE_START], m.st[region + at.ZONE_END]):
                is_used = int(m.pages[pfn]["where"]) == at.ALLOCATED
                if is_used and draw(m, pfn, operation[OBJECT], 0) < operation[COUNT]:
                    free_allocated(m, pfn)
    return high
