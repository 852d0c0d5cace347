"""When kswapd and kcompactd were on a CPU, and how long they waited for one (T12.13, S10.14)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.measured.memory_stalls import Running


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
