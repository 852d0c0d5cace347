"""Interrupts that came while a list's lock was held, found in the order of events (S4.10, T10.13).

Interrupts are off while zone->lock is held, and a refill or a drain holds it long. One that comes
meanwhile runs as soon as it is dropped, and then the lock of the list is still held.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.jit import entry, inner


@entry
def mark_interrupted(rows: np.ndarray, last_task: np.ndarray, bursts: np.ndarray) -> None:
    """No kernel function: mark interrupts that come just after a free or just before a request.

    The rows of one interrupt, a burst, get INTERRUPTS_HOLDER. The first one says what it may have
    interrupted: AFTER_FREE the free before it, BEFORE_REQUEST the request after it, whichever is
    nearer in time. Bursts that interrupt a folio batch are marked already.

    Args:
        rows: `objects.ROW` records in time order; IN_INTERRUPT is set where it is known.
        last_task: int64 by CPU, working space, filled with -1.
        bursts: int64, shape (CPUs, 2), working space, filled with -1: a burst's first and last row.
    """
    for row in range(len(rows)):
        cpu = int(rows[row]["cpu"])
        if int(rows[row]["bits"]) & at.IN_INTERRUPT:
            if bursts[cpu, 0] < 0:
                bursts[cpu, 0] = row
            bursts[cpu, 1] = row
        else:
            if bursts[cpu, 0] >= 0:
                settle_burst(rows, last_task[cpu], bursts[cpu, 0], bursts[cpu, 1], row)
                bursts[cpu, 0] = -1
            last_task[cpu] = row


@inner
def settle_burst(rows: np.ndarray, before: int, first: int, last: int, after: int) -> None:
    """No kernel function: mark one burst, between a task's rows before and after it."""
    if int(rows[first]["bits"]) & at.INTERRUPTS_HOLDER or before < 0:
        return
    task = int(rows[first]["task"])
    gap_before = int(rows[first]["time_ns"]) - int(rows[before]["time_ns"])
    gap_after = int(rows[after]["time_ns"]) - int(rows[last]["time_ns"])
    if gap_after <= gap_before:
        other, is_free, mark = after, 0, at.BEFORE_REQUEST
    else:
        other, is_free, mark = before, 1, at.AFTER_FREE
    if int(rows[other]["is_free"]) != is_free or int(rows[other]["task"]) != task:
        return
    cpu = int(rows[first]["cpu"])
    rows[first]["bits"] |= mark
    for row in range(first, last + 1):
        if int(rows[row]["cpu"]) == cpu:
            rows[row]["bits"] |= at.INTERRUPTS_HOLDER
