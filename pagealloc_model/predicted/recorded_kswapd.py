"""Where kswapd runs and how long it takes to free a page, as the recorded one did then (T7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.recording.trace.columns import Trace

PAGES_OF_A_PACE = 1024
"""Pages freed that one pace is taken from: 32 clusters of reclaim."""
RUNS, SHRUNK = "vmscan:mm_vmscan_kswapd_wake", "vmscan:mm_vmscan_lru_shrink_inactive"


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedKswapd:
    """Each value holds from its instant to the next one's, and the first before it too.

    Attributes:
        from_ns: int64, increasing, when a pace begins.
        free_ns: int64, time to free a page from there on, ns.
        cpus: by node: int64, when its kswapd is on another CPU; and the CPU.
    """

    from_ns: np.ndarray
    free_ns: np.ndarray
    cpus: Mapping[int, tuple[np.ndarray, np.ndarray]]

    @cached_property
    def changes_ns(self) -> np.ndarray:
        """All instants at which something changes, int64."""
        moves = [from_ns for from_ns, _ in self.cpus.values()]
        return np.unique(np.concatenate([self.from_ns, *moves]))

    def set_at(self, state: State, time_ns: int) -> None:
        """Let an elastic replay's kswapds go on as at an instant."""
        st = state.st
        base = int(st[at.PRESSURE_BASE])
        st[base + pr.KSWAPD_FREE_NS] = _held_at(self.from_ns, self.free_ns, time_ns)
        for node, (from_ns, cpu) in self.cpus.items():
            if node < int(st[at.NR_NODES]):
                words = int(st[base + pr.NODES_BASE]) + node * pr.NODE_WORDS
                st[words + pr.KSWAPD_CPU] = _held_at(from_ns, cpu, time_ns)


def _held_at(from_ns: np.ndarray, values: np.ndarray, time_ns: int) -> int:
    row = int(np.searchsorted(from_ns, time_ns, "right")) - 1
    return int(values[max(row, 0)])


def recorded_kswapd(trace: Trace) -> RecordedKswapd | None:
    """Return where the recorded kswapds ran, and how fast they freed pages, time by time.

    A run's time is cut at the ends of its clusters, and each cluster's goes with its pages. A pace
    is of the clusters of all nodes in a row that freed `PAGES_OF_A_PACE` pages, and holds until
    the next one's begin: also while the recorded kswapd slept. None if they freed nothing.

    Args:
        trace: the recording's events.
    """
    runs, shrunk = trace.tables.get(RUNS), trace.tables.get(SHRUNK)
    if runs is None or shrunk is None:
        return None
    ends, took, freed = [], [], []
    cpus = {}
    for pid in np.unique(runs["pid"]):
        own = runs["pid"] == pid
        begins = runs["time_ns"][own]
        mine = shrunk["pid"] == pid
        mine[mine] = shrunk["time_ns"][mine] >= begins[0]
        times = shrunk["time_ns"][mine]
        if not len(times):
            continue
        run = np.searchsorted(begins, times, "right") - 1
        before = np.maximum(begins[run], np.concatenate([times[:1] * 0, times[:-1]]))
        ends.append(times)
        took.append(times - before)
        freed.append(shrunk["nr_reclaimed"][mine].astype(np.int64))
        moves = np.flatnonzero(np.diff(shrunk["cpu"][mine], prepend=-1))
        cpus[int(runs["nid"][own][0])] = before[moves], shrunk["cpu"][mine][moves].astype(np.int64)
    if not sum(int(pages.sum()) for pages in freed):
        return None
    order = np.argsort(np.concatenate(ends), kind="stable")
    end, time, pages = (np.concatenate(each)[order] for each in (ends, took, freed))
    whole = max(int(pages.sum()) // PAGES_OF_A_PACE, 1)
    part = np.minimum((np.cumsum(pages) - pages) // PAGES_OF_A_PACE, whole - 1)
    first = np.flatnonzero(np.diff(part, prepend=-1))
    in_part = np.add.reduceat(pages, first)
    free_ns = np.add.reduceat(time, first) // np.maximum(in_part, 1)
    return RecordedKswapd(from_ns=(end - time)[first], free_ns=free_ns, cpus=cpus)
