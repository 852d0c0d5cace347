"""Which thread each event of a demand is of."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.measured.stream import DAEMONS
from pagealloc_model.recording.trace.columns import Trace

_TIES = 16
"""Events of different CPUs in one nanosecond, at most."""
_MACHINE = -(1 << 40)
"""Stands for the thread of what no task does."""


def threads_of(trace: Trace, events: np.ndarray) -> np.ndarray:
    """int64: the thread that each event is of.

    Events in interrupts have -1 less their CPU; what no event of the trace shows, and what kswapd
    and kcompactd do, has one thread of its own.
    """
    time_ns, cpu = events["time_ns"], events["cpu"]
    row = np.searchsorted(trace.time_ns, time_ns)
    last = len(trace) - 1
    thread = np.full(len(events), _MACHINE)
    for _ in range(_TIES):
        here = np.minimum(row, last)
        same = (trace.time_ns[here] == time_ns) & (trace.cpu[here] == cpu) & (thread == _MACHINE)
        pid = trace.pid[here[same]].astype(np.int64)
        in_interrupt = trace.in_interrupt[here[same]] > 0
        thread[same] = np.where(in_interrupt, -1 - cpu[same].astype(np.int64), pid)
        row = row + 1
    daemons = [pid for pid, name in trace.comms.items() if name.startswith(DAEMONS)]
    by_nobody = (events["operation"] != at.ALLOC) & (events["operation"] != at.FREE)
    by_nobody &= (events["operation"] != at.RECORDED_FAILURE) & (events["operation"] != at.USE)
    thread[by_nobody | np.isin(thread, daemons)] = _MACHINE
    return thread
