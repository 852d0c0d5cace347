"""Interrupts that came while a list's lock was held, found in the order of events (S4.10, T10.13).

Interrupts are off while zone->lock is held, and a refill or a drain holds it long. One that comes
meanwhile runs as soon as it is dropped, and then the lock of the list is still held.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.jit import entry, inner


@entry
def mark_interrupted(
    rows: np.ndarray,
    low: int,
    high: int,
    time_ns: np.ndarray,
    last_task: np.ndarray,
    bursts: np.ndarray,
) -> None:
    """No kernel function: mark interrupts that come just after a free or just before a request.

    The rows of one interrupt, a burst, get INTERRUPTS_HOLDER. The first one says what it may have
    interrupted: AFTER_FREE the free before it, BEFORE_REQUEST the request after it, whichever is
    nearer in time. Bursts that interrupt a folio batch are marked already.

    Args:
        rows: `objects.ROW` records in time order; IN_INTERRUPT is set where it is known.
        low: first row; all before it were looked at with the same arrays.
        high: one past the last row.
        time_ns: int64, the trace's column.
        last_task: `objects.ROW` records by CPU: its last row of a task, `row` -1 at first.
        bursts: int64, shape (CPUs, 2), filled with -1 at first: first and last row of the burst
            that is not over.
    """
    for index in range(low, high):
        cpu = int(rows[index]["cpu"])
        if int(rows[index]["bits"]) & at.IN_INTERRUPT:
            if bursts[cpu, 0] < 0:
                bursts[cpu, 0] = index
            bursts[cpu, 1] = index
        else:
            if bursts[cpu, 0] >= 0:
                settle_burst(rows, time_ns, last_task, bursts[cpu, 0], bursts[cpu, 1], index)
                bursts[cpu, 0] = -1
            last_task[cpu]["row"] = rows[index]["row"]
            last_task[cpu]["pid"] = rows[index]["pid"]
            last_task[cpu]["is_free"] = rows[index]["is_free"]


@inner
def settle_burst(
    rows: np.ndarray,
    time_ns: np.ndarray,
    last_task: np.ndarray,
    first: int,
    last: int,
    after: int,
) -> None:
    """No kernel function: mark one burst, between a task's rows before and after it."""
    cpu = int(rows[first]["cpu"])
    before = int(last_task[cpu]["row"])
    if int(rows[first]["bits"]) & at.INTERRUPTS_HOLDER or before < 0:
        return
    gap_before = int(time_ns[int(rows[first]["row"])]) - int(time_ns[before])
    gap_after = int(time_ns[int(rows[after]["row"])]) - int(time_ns[int(rows[last]["row"])])
    if gap_after <= gap_before:
        is_free, pid = int(rows[after]["is_free"]), int(rows[after]["pid"])
        wanted, mark = 0, at.BEFORE_REQUEST
    else:
        is_free, pid = int(last_task[cpu]["is_free"]), int(last_task[cpu]["pid"])
        wanted, mark = 1, at.AFTER_FREE
    if is_free != wanted or pid != int(rows[first]["pid"]):
        return
    rows[first]["bits"] |= mark
    for index in range(first, last + 1):
        if int(rows[index]["cpu"]) == cpu:
            rows[index]["bits"] |= at.INTERRUPTS_HOLDER
