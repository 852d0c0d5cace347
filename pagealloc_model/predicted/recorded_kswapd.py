"""Where and when the recorded kswapds ran, and how fast they freed pages (S10.5, S10.14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import State, with_cpu_spans
from pagealloc_model.measured.costs import recorded_migrate_ns
from pagealloc_model.measured.cpu_spans import CpuSpans, Running
from pagealloc_model.measured.stream import KCOMPACTD, KSWAPD
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Trace

PAGES_OF_A_PACE = 1024
"""Pages freed that one pace is taken from: 32 clusters of reclaim."""


Held = tuple[np.ndarray, np.ndarray]
"""Two int64: instants, increasing, and the value from each to the next one's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """When the daemons of nodes were on a CPU, by node.

    Attributes:
        kswapd: times of each one.
        kcompactd: likewise; nodes whose kcompactd never ran have none.
        migrate_ns: compaction's time on a CPU to move a page; None where the recording shows none.
    """

    kswapd: Mapping[int, CpuSpans]
    kcompactd: Mapping[int, CpuSpans] = field(default_factory=dict)
    migrate_ns: int | None = None

    def put_into(self, state: State) -> State:
        """An elastic state whose daemons go by it."""
        tables = [{node: own.table for node, own in each.items()} for each in self._daemons]
        state = with_cpu_spans(state, *tables)
        if self.migrate_ns is not None and self.kcompactd:
            state.st[int(state.st[at.PRESSURE_BASE]) + pr.COMPACT_MIGRATE_NS] = self.migrate_ns
        return state

    @property
    def _daemons(self) -> tuple[Mapping[int, CpuSpans], ...]:
        return self.kswapd, self.kcompactd


def recorded_schedule(trace: Trace) -> Schedule | None:
    """When kswapd and kcompactd were on a CPU (T12.13); None where the recording does not say.

    A node's is that of the task named after it.
    """
    running = Running.of(trace)
    if running is None:
        return None
    spans: dict[str, dict[int, CpuSpans]] = {KSWAPD: {}, KCOMPACTD: {}}
    for pid, name in trace.comms.items():
        daemon = name.rstrip("0123456789")
        if daemon in spans and (own := CpuSpans.of(running, pid)) is not None:
            spans[daemon][int(name.removeprefix(daemon) or 0)] = own
    if not spans[KSWAPD]:
        return None
    moved_ns = recorded_migrate_ns(trace, running)
    return Schedule(kswapd=spans[KSWAPD], kcompactd=spans[KCOMPACTD], migrate_ns=moved_ns)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedKswapd:
    """Each value holds from its instant to the next one's, and the first before it too.

    Attributes:
        free_ns: by node: when a pace of its kswapd begins; time to free a page from there on, ns.
        cpus: by node: when its kswapd is on another CPU; and the CPU.
        schedule: when daemons were on a CPU, where a replay goes by it; `free_ns` is then of that
            time alone, and of 32 pages of a cluster at most.
    """

    free_ns: Mapping[int, Held]
    cpus: Mapping[int, Held]
    schedule: Schedule | None = None

    @cached_property
    def changes_ns(self) -> np.ndarray:
        """All instants at which something changes, int64."""
        held = [*self.free_ns.values(), *self.cpus.values()]
        return np.unique(np.concatenate([from_ns for from_ns, _ in held]))

    def set_at(self, state: State, time_ns: int) -> None:
        """Let an elastic replay's kswapds go on as at an instant."""
        st = state.st
        nodes = int(st[int(st[at.PRESSURE_BASE]) + pr.NODES_BASE])
        for word, held in ((pr.KSWAPD_FREE_NS, self.free_ns), (pr.KSWAPD_CPU, self.cpus)):
            for node, (from_ns, values) in held.items():
                if node < int(st[at.NR_NODES]):
                    row = max(int(np.searchsorted(from_ns, time_ns, "right")) - 1, 0)
                    st[nodes + node * pr.NODE_WORDS + word] = values[row]


def recorded_kswapd(trace: Trace, *, scheduled: bool = False) -> RecordedKswapd | None:
    """Return where the recorded kswapds ran, and how fast they freed pages, time by time.

    A run's time is cut at the ends of its clusters, and each cluster's goes with its pages. A pace
    is of a node's clusters in a row that freed `PAGES_OF_A_PACE` pages, and holds until the next
    one's begin: also while the recorded kswapd slept. None if they freed nothing.

    Args:
        trace: the recording's events.
        scheduled: tell waits for the CPU from work, where it says when kswapd was on one: a pace
            is then of the time on a CPU, and a cluster counts as 32 pages at most (S10.14).
    """
    schedule = recorded_schedule(trace) if scheduled else None
    runs, shrunk = trace.tables.get(tp.KSWAPD_WAKE), trace.tables.get(tp.LRU_SHRINK_INACTIVE)
    if runs is None or shrunk is None:
        return None
    free_ns, cpus = {}, {}
    for pid in np.unique(runs["pid"]):
        own = runs["pid"] == pid
        node, begins = int(runs["nid"][own][0]), runs["time_ns"][own]
        rows = np.flatnonzero((shrunk["pid"] == pid) & (shrunk["time_ns"] >= begins[0]))
        times, cpu = shrunk["time_ns"][rows], shrunk["cpu"][rows].astype(np.int64)
        freed = shrunk["nr_reclaimed"][rows].astype(np.int64)
        if not len(times):
            continue
        run = np.searchsorted(begins, times, "right") - 1
        before = np.maximum(begins[run], np.concatenate([times[:1] * 0, times[:-1]]))
        spent = times - before
        if schedule is not None:
            if (own_spans := schedule.kswapd.get(node)) is None:
                continue
            spent = own_spans.ran_until(times) - own_spans.ran_until(before)
            freed = np.minimum(freed, pr.CLUSTER)
        if freed.any():
            whole = max(int(freed.sum()) // PAGES_OF_A_PACE, 1)
            part = np.minimum((np.cumsum(freed) - freed) // PAGES_OF_A_PACE, whole - 1)
            first = np.flatnonzero(np.diff(part, prepend=-1))
            pages = np.maximum(np.add.reduceat(freed, first), 1)
            free_ns[node] = before[first], np.add.reduceat(spent, first) // pages
        moves = np.flatnonzero(np.diff(cpu, prepend=-1))
        cpus[node] = before[moves], cpu[moves]
    return RecordedKswapd(free_ns=free_ns, cpus=cpus, schedule=schedule) if free_ns else None
