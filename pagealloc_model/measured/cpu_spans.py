"""Who ran where, and how long a task waited for a CPU (T12.13, S10.14)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Trace

_INTERRUPTIBLE, _OTHERS = 1, ("R", "D")
"""TASK_INTERRUPTIBLE in `prev_state` (include/linux/sched.h, 6.12); how text has the two others."""


def _is_interruptible(state: np.ndarray) -> np.ndarray:
    """Which values of `prev_state` say that the task sleeps until it is woken (T12.13).

    So do texts that were made anonymous.
    """
    if state.dtype.kind in "iu":
        return state & 0xFF == _INTERRUPTIBLE
    return np.array([not text.startswith(_OTHERS) for text in state.astype(str).tolist()], bool)


@dataclass(frozen=True, kw_only=True, eq=False)
class Running:
    """Who ran where, as `sched:sched_switch` tells (T12.13); one row each time, by CPU and begin.

    `pid` is 0 for the idle task. `sleeps`: in the end it goes to sleep until it is woken, or what
    it does is not told; else it could go on, or waits for something and cannot be interrupted.
    """

    pid: np.ndarray
    cpu: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray
    sleeps: np.ndarray

    @staticmethod
    def of(trace: Trace) -> Running | None:
        """Who ran in a recording; None without these events, or without their fields."""
        table = trace.tables.get(tp.SCHED_SWITCH, {})
        if "next_pid" not in table or not len(table["time_ns"]):
            return None
        order = np.lexsort((table["time_ns"], table["cpu"]))
        cpu, time_ns, pid = (
            np.asarray(table[name])[order] for name in ("cpu", "time_ns", "next_pid")
        )
        same = np.flatnonzero(cpu[1:] == cpu[:-1])
        sleeps = np.ones(len(order), bool)
        if {"prev_pid", "prev_state"} <= table.keys():
            goes, state = (np.asarray(table[name])[order] for name in ("prev_pid", "prev_state"))
            own = goes[same + 1] == pid[same]
            sleeps = ~own | _is_interruptible(state[same + 1])
        return Running(
            pid=pid[same].astype(np.int64),
            cpu=cpu[same].astype(np.int64),
            begin_ns=time_ns[same],
            end_ns=time_ns[same + 1],
            sleeps=sleeps[: len(same)],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class CpuSpans:
    """Times of one task on a CPU, int64, by begin.

    Attributes:
        begin_ns: when each begins.
        ran_ns: how long it is, above 0.
        waited_ns: from its end to the next one's begin, where the task did not go to sleep by
            itself: it could have gone on, or could not be interrupted in its wait; else 0.
    """

    begin_ns: np.ndarray
    ran_ns: np.ndarray
    waited_ns: np.ndarray

    @staticmethod
    def of(running: Running, pid: int) -> CpuSpans | None:
        """Those of a task; None without any."""
        rows = np.flatnonzero((running.pid == pid) & (running.end_ns > running.begin_ns))
        rows = rows[np.argsort(running.begin_ns[rows], kind="stable")]
        if not len(rows):
            return None
        begin, end = running.begin_ns[rows], running.end_ns[rows]
        waited = np.append(np.maximum(begin[1:] - end[:-1], 0), 0)
        return CpuSpans(
            begin_ns=begin,
            ran_ns=end - begin,
            waited_ns=np.where(running.sleeps[rows], 0, waited),
        )

    def ran_until(self, times_ns: np.ndarray) -> np.ndarray:
        """Time on a CPU before each of some instants, ns."""
        ends = np.cumsum(self.ran_ns)
        row = np.searchsorted(self.begin_ns, times_ns, "right") - 1
        within = np.minimum(times_ns - self.begin_ns[row], self.ran_ns[row])
        return np.where(row >= 0, ends[row] - self.ran_ns[row] + within, 0)

    @property
    def table(self) -> np.ndarray:
        """int64, a row for each: begin_ns, ran_ns, waited_ns."""
        return np.stack([self.begin_ns, self.ran_ns, self.waited_ns], axis=1)
