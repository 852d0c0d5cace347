"""How long kswapd takes to free a page, time by time, as the recorded one did (T7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.recording.trace.columns import Trace

PAGES_OF_A_PACE = 1024
"""Pages freed that one pace is taken from: 32 clusters of reclaim."""
RUNS, SHRUNK = "vmscan:mm_vmscan_kswapd_wake", "vmscan:mm_vmscan_lru_shrink_inactive"


@dataclass(frozen=True, kw_only=True, eq=False)
class KswapdPace:
    """Time per freed page, each from an instant to the next one's.

    Attributes:
        from_ns: int64, increasing; the first pace holds before it too.
        free_ns: int64, time to free a page from there on, ns.
    """

    from_ns: np.ndarray
    free_ns: np.ndarray

    def at(self, time_ns: int) -> int:
        """Return the time that freeing a page takes at an instant, ns."""
        row = int(np.searchsorted(self.from_ns, time_ns, "right")) - 1
        return int(self.free_ns[max(row, 0)])

    def set_at(self, state: State, time_ns: int) -> None:
        """Let an elastic replay's kswapd go on at the pace of an instant."""
        state.st[int(state.st[at.PRESSURE_BASE]) + pr.KSWAPD_FREE_NS] = self.at(time_ns)


def recorded_kswapd_pace(trace: Trace) -> KswapdPace | None:
    """Return how fast the recorded kswapds freed pages, time by time; None if none freed any.

    A run's time is cut at the ends of its clusters, and each cluster's goes with its pages. A pace
    is of the clusters of all nodes in a row that freed `PAGES_OF_A_PACE` pages, and holds until
    the next one's begin: also while the recorded kswapd slept.

    Args:
        trace: the recording's events.
    """
    runs, shrunk = trace.tables.get(RUNS), trace.tables.get(SHRUNK)
    if runs is None or shrunk is None:
        return None
    ends, took, freed = [], [], []
    for pid in np.unique(runs["pid"]):
        begins = runs["time_ns"][runs["pid"] == pid]
        mine = shrunk["pid"] == pid
        times, pages = shrunk["time_ns"][mine], shrunk["nr_reclaimed"][mine]
        run = np.searchsorted(begins, times, "right") - 1
        times, pages, run = times[run >= 0], pages[run >= 0], run[run >= 0]
        before = np.maximum(begins[run], np.concatenate([times[:1] * 0, times[:-1]]))
        ends.append(times)
        took.append(times - before)
        freed.append(pages.astype(np.int64))
    order = np.argsort(np.concatenate(ends), kind="stable")
    end, time, pages = (np.concatenate(each)[order] for each in (ends, took, freed))
    if not pages.sum():
        return None
    whole = max(int(pages.sum()) // PAGES_OF_A_PACE, 1)
    part = np.minimum((np.cumsum(pages) - pages) // PAGES_OF_A_PACE, whole - 1)
    first = np.flatnonzero(np.diff(part, prepend=-1))
    in_part = np.add.reduceat(pages, first)
    free_ns = np.add.reduceat(time, first) // np.maximum(in_part, 1)
    return KswapdPace(from_ns=(end - time)[first], free_ns=free_ns)
