"""Closed-loop replays: which task an event is of, its own time, and what stalls cost (S10.10).

An event comes as long after the one before it in its task as in the recording, less what the task
lost there to direct reclaim and compaction, plus what it loses in the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator.closed_loop import (
    BESIDE,
    FOR_EVER,
    HOLD,
    LAST_NS,
    NOBODY,
    STALL,
    STALLS,
    TASK,
    TASKS,
    UNTIL_NS,
    WAITING,
    WORDS,
    ClosedLoop,
    advance_closed,
    begin_closed,
)
from pagealloc_model.allocator.state import State
from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.contention import BEGIN, measured_contention
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.stream import begun_and_ended
from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.demand.reclaim import SHRUNK
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.zone_map import ZoneMap

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

CAUSES = RECLAIM, COMPACTION = "direct reclaim", "direct compaction"
DAEMONS = KSWAPD, KCOMPACTD = "kswapd", "kcompactd"
SPANS = {
    RECLAIM: ("vmscan:mm_vmscan_direct_reclaim_begin", "vmscan:mm_vmscan_direct_reclaim_end"),
    COMPACTION: ("compaction:mm_compaction_begin", "compaction:mm_compaction_end"),
}
_WORK = {
    KSWAPD: (
        ("vmscan:mm_vmscan_balance_pgdat_begin", "vmscan:mm_vmscan_balance_pgdat_end"),
        ("pa:kswapd_begin", "pa:kswapd_end"),
        ("vmscan:mm_vmscan_kswapd_wake", "vmscan:mm_vmscan_kswapd_sleep"),
    ),
    KCOMPACTD: (
        ("compaction:mm_compaction_kcompactd_wake", "compaction:mm_compaction_kcompactd_sleep"),
    ),
}
"""Events around what counts as memory stall of a daemon, the first recorded pair of each (S10.11);
kswapd's sleep comes after its naps."""
SWITCH = "sched:sched_switch"
_STATES = 0xFF
"""Bits of `prev_state` that say why a task cannot go on running (T12.13)."""
_WHO = ("pid", "cpu", "time_ns")
_KEY_BITS = 63
_STALL_ROWS = 1 << 16
_TIES = 16
"""Events of different CPUs in one nanosecond, at most."""


def recorded_stalls(trace: Trace) -> pd.DataFrame:
    """What tasks lost to direct reclaim and direct compaction, by the events that begin and end it.

    kswapd and kcompactd are left out, and what had begun before the first event or went on after
    the last.

    Returns:
        pid, cpu, cause, request, begin_ns, ns: one row each, by begin; `request` is the row of the
        task's next allocation, which it was for.
    """
    daemons = [pid for pid, name in trace.comms.items() if name.startswith(DAEMONS)]
    parts = []
    for cause, (begin, end) in SPANS.items():
        rows, _, ns = begun_and_ended(trace, begin, end) or (np.zeros(0, np.int64),) * 3
        begun = trace.tables.get(begin, dict.fromkeys(_WHO, rows))
        pid, cpu, begin_ns = (np.asarray(begun[name])[rows] for name in _WHO)
        columns = {"pid": pid, "cpu": cpu, "cause": cause, "begin_ns": begin_ns, "ns": ns}
        parts.append(pd.DataFrame(columns).astype({"cause": object}))
    every = pd.concat(parts, ignore_index=True)
    every = every[~every["pid"].isin(daemons)].sort_values("begin_ns", ignore_index=True)
    request = np.full(len(every), -1)
    for pid in every["pid"].unique():
        own = (every["pid"] == pid).to_numpy()
        asked = np.append(np.flatnonzero((trace.pid == pid) & (trace.event == Event.ALLOC)), -1)
        place = np.searchsorted(trace.time_ns[asked[:-1]], every["begin_ns"].to_numpy()[own])
        request[own] = asked[place]
    return every.assign(request=request)


def recorded_daemon_work(trace: Trace) -> pd.DataFrame:
    """pid, cpu, cause, begin_ns, ns: work of kswapd and kcompactd that is memory stall (S10.11).

    What had begun before the first event, or went on after the last, counts as far as events go.
    """
    first, last = trace.demand_span_ns
    chosen = {
        cause: next((names for names in pairs if trace.tables.keys() & {*names}), ())
        for cause, pairs in _WORK.items()
    }
    parts = [pd.DataFrame(columns=[*_WHO, "cause", "is_end"])]
    for cause, names in chosen.items():
        for is_end, name in enumerate(names):
            table = trace.tables.get(name, {})
            columns = {key: np.asarray(table.get(key, []), np.int64) for key in _WHO}
            parts.append(pd.DataFrame(columns).assign(cause=cause, is_end=is_end))
    rows = pd.concat(parts).astype(dict.fromkeys((*_WHO, "is_end"), np.int64) | {"cause": object})
    rows = rows.sort_values(["cause", "pid", "time_ns", "is_end"], ignore_index=True)
    until = rows.groupby(["cause", "pid"])["time_ns"].shift(-1, fill_value=last)
    shrunk = trace.tables.get(SHRUNK) if chosen[KSWAPD] == _WORK[KSWAPD][-1] else None
    # kswapd naps before it sleeps or wakes again: it works until its last cluster
    for pid in rows["pid"][rows["cause"] == KSWAPD].unique() if shrunk is not None else ():
        own = rows["pid"] == pid
        ends = np.asarray(shrunk["time_ns"])[np.asarray(shrunk["pid"]) == pid]
        before = np.searchsorted(ends, until[own].to_numpy(), "right")
        until[own] = np.maximum(np.append(ends, 0)[before - 1], rows["time_ns"][own])
    had_begun = (rows["is_end"] == 1) & ~rows[["cause", "pid"]].duplicated()
    begin = rows["time_ns"].where(~had_begun, first)
    rows = rows.assign(begin_ns=begin, ns=until.where(~had_begun, rows["time_ns"]) - begin)
    return rows.loc[had_begun | (rows["is_end"] == 0), ["pid", "cpu", "cause", "begin_ns", "ns"]]


def _time_bits(count: int, ns: int) -> int:
    """Bits of times up to `ns` that fit into an int64 beside numbers of so many tasks or CPUs."""
    bits = ns.bit_length()
    if bits + count.bit_length() > _KEY_BITS:
        what = f"stalls of {count:,} tasks or CPUs within {ns / 3.6e12:,.0f} hours"
        raise UsageError(f"{what} are too many; cut the recording (pagealloc trim)")
    return bits


Spans = tuple[np.ndarray, np.ndarray, np.ndarray]
"""int64: whose each span is (a CPU, or a task's number), and its begin and end, ns."""


def _overlaps(spans: Spans, others: Spans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row of the spans, begin and end of each part that others have in common with them.

    The others are disjoint, by whose they are and by begin.
    """
    (whose, begin, end), (_, other_begin, other_end) = spans, others
    names, other = np.unique(others[0], return_inverse=True)
    number = np.searchsorted(names, whose)
    known = np.isin(whose, names)
    times = np.concatenate([begin, other_begin, end, other_end])
    zero = int(times.min(initial=FOR_EVER)) if len(times) else 0
    bits = _time_bits(len(names), int(times.max(initial=zero)) - zero)
    key, other = (number << bits) - zero, (other << bits) - zero
    first = np.searchsorted(other + other_end, key + begin, "right")
    last = np.searchsorted(other + other_begin, key + end, "left")
    count = np.where(known, np.maximum(last - first, 0), 0)
    row = np.repeat(np.arange(len(begin)), count)
    place = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
    return row, np.maximum(begin[row], other_begin[place]), np.minimum(end[row], other_end[place])


def once(whose: np.ndarray, begin: np.ndarray, ns: np.ndarray) -> tuple[np.ndarray, Spans]:
    """Order of spans by whose they are and begin; each so, less what one before it covers."""
    order = np.lexsort((begin, whose))
    whose, begin, end = whose[order], begin[order], (begin + ns)[order]
    latest = pd.Series(end).groupby(whose).cummax().groupby(whose).shift(fill_value=0).to_numpy()
    begin = np.maximum(begin, latest)
    return order, (whose, begin, np.maximum(end, begin))


@dataclass(frozen=True, kw_only=True, eq=False)
class Running:
    """Who ran where, as `sched:sched_switch` tells (T12.13); one row each time, by CPU and begin.

    `pid` is 0 for the idle task; `could_go_on` is true of who left its CPU and need not have.
    """

    pid: np.ndarray
    cpu: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray
    could_go_on: np.ndarray

    @staticmethod
    def of(trace: Trace) -> Running | None:
        """Who ran in a recording; None without these events, or without their fields."""
        table = trace.tables.get(SWITCH, {})
        if not {"next_pid", "prev_state"} <= table.keys() or not len(table["time_ns"]):
            return None
        order = np.lexsort((table["time_ns"], table["cpu"]))
        cpu, time_ns, pid, state = (
            np.asarray(table[name])[order] for name in ("cpu", "time_ns", "next_pid", "prev_state")
        )
        if state.dtype == object:  # text has letters, "R" or "R+" of who could go on
            state = np.array([not str(letters).startswith("R") for letters in state])
        same = np.flatnonzero(cpu[1:] == cpu[:-1])
        return Running(
            pid=pid[same].astype(np.int64),
            cpu=cpu[same].astype(np.int64),
            begin_ns=time_ns[same],
            end_ns=time_ns[same + 1],
            could_go_on=state[same + 1].astype(np.int64) & _STATES == 0,
        )

    def in_stall(self, stalls: pd.DataFrame) -> Spans:
        """When each CPU ran who was in a memory stall, by CPU and begin; of pid, begin_ns, ns."""
        columns = (stalls[name].to_numpy(np.int64) for name in ("pid", "begin_ns", "ns"))
        row, begin, end = _overlaps((self.pid, self.begin_ns, self.end_ns), once(*columns)[1])
        return self.cpu[row], begin, end

    def kept_waiting(self, stalls: pd.DataFrame) -> pd.DataFrame:
        """pid, begin_ns, ns: who could go on, but on its CPU ran who was in a stall (S10.10)."""
        by_task = np.lexsort((self.begin_ns, self.pid))
        before, after = by_task[:-1], by_task[1:]
        waits = (self.pid[before] == self.pid[after]) & self.could_go_on[before]
        waits &= self.pid[before] > 0
        before, after = before[waits], after[waits]
        begins, ends = self.end_ns[before], self.begin_ns[after]
        row, begin, end = _overlaps((self.cpu[before], begins, ends), self.in_stall(stalls))
        return pd.DataFrame({"pid": self.pid[before][row], "begin_ns": begin, "ns": end - begin})

    def beside(self, stalls: pd.DataFrame) -> pd.DataFrame:
        """cpu, begin_ns, ns: who ran, in no stall, while somebody stalled on the CPU (S10.11)."""
        columns = (stalls[name].to_numpy(np.int64) for name in ("cpu", "begin_ns", "ns"))
        busy = self.pid > 0
        runs = self.cpu[busy], self.begin_ns[busy], self.end_ns[busy]
        row, begin, end = _overlaps(runs, once(*columns)[1])
        cpu, ns = runs[0][row], end - begin
        held, held_from, held_to = _overlaps((cpu, begin, end), self.in_stall(stalls))
        ns = ns - np.bincount(held, held_to - held_from, len(ns)).astype(np.int64)
        return pd.DataFrame({"cpu": cpu, "begin_ns": begin, "ns": ns})

    def time_of(
        self, task: np.ndarray, pids: np.ndarray, since: np.ndarray, to: np.ndarray
    ) -> np.ndarray:
        """int64, ns: how long tasks, as numbers of `pids`, ran between times; idle never."""
        known = np.isin(self.pid, pids) & (self.pid > 0)
        order = np.lexsort((self.begin_ns[known], self.pid[known]))
        pid, begin, end = (each[known][order] for each in (self.pid, self.begin_ns, self.end_ns))
        row, begin, end = _overlaps((task, since, to), (np.searchsorted(pids, pid), begin, end))
        return np.bincount(row, end - begin, len(task)).astype(np.int64)


MemoryStalls = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame | None]
"""What tasks lost, work of kswapd and kcompactd, and who ran beside them, None where not told."""


def recorded_memory_stalls(trace: Trace) -> MemoryStalls:
    """Memory stalls of a recording (S10.11)."""
    stalls, work, running = recorded_stalls(trace), recorded_daemon_work(trace), Running.of(trace)
    return stalls, work, running and running.beside(pd.concat([stalls, work], ignore_index=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskOrder:
    """A demand's events by task.

    Attributes:
        pids: int64 by task: its thread; -1 less the CPU for a CPU's interrupts; `_MACHINE` for the
            machine's own events, which no task makes.
        order: int64: positions of the events, task by task.
        begins: int64: where each task's events begin in `order`, and the end.
        own_ns: int64, beside `order`: recorded time less what the task had lost by then.
        lost_ns: int64 by event: what its task lost since the event before it.
        moves: bool by task: whether it can be delayed.
        running_ns: int64, beside `order`: CPU time since the event before; of no length if unknown.
        lock_ps: int64, costs at zone->lock as `ClosedLoop` has them.
        until_ns: time of the recording's last event.
    """

    pids: np.ndarray
    order: np.ndarray
    begins: np.ndarray
    own_ns: np.ndarray
    lost_ns: np.ndarray
    moves: np.ndarray
    running_ns: np.ndarray
    lock_ps: np.ndarray
    until_ns: int


_MACHINE = -(1 << 40)
"""Stands for the thread of what no task does."""


def threads_of(trace: Trace, events: np.ndarray) -> np.ndarray:
    """int64: the thread that each event is of.

    Events in interrupts have -1 less their CPU; what no event of the trace shows has a thread of
    its own, and so have kswapd and kcompactd, whose time is the model's to decide.
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


LockWaits = tuple[pd.DataFrame, LockCosts]
"""Waits at zone->lock, with pid, begin_ns and ns; and costs of its holds."""


def recorded_lock_waits(recording: Recording) -> LockWaits | None:
    """Waits of tasks at zone->lock, and the recording's costs; None where no event shows any."""
    trace = recording.trace
    zoneinfo = next((s.zoneinfo for s in recording.snapshots if s.zoneinfo), None)
    waits = measured_contention(trace, ZoneMap.of(zoneinfo)).waits
    if not len(waits):
        return None
    begun = pd.DataFrame({name: trace.tables[BEGIN][name] for name in ("pid", "cpu", "time_ns")})
    waits = waits[["cpu", "time_ns", "wait_ns"]].merge(begun, on=["cpu", "time_ns"])
    waits = waits.rename(columns={"time_ns": "begin_ns", "wait_ns": "ns"})
    return waits, recorded_costs(recording, with_intervals=False)


def task_order(trace: Trace, events: np.ndarray, locks: LockWaits | None = None) -> TaskOrder:
    """A demand's events by task, and each task's own time.

    Args:
        trace: the recording's events.
        events: `layout.EVENT` records in time order.
        locks: waits for zone->lock; those act back, if there are any.
    """
    thread = threads_of(trace, events)
    pids, task = np.unique(thread, return_inverse=True)
    order = np.argsort(task, kind="stable")
    counts = np.bincount(task, minlength=len(pids))
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    moves = pids >= 0
    first = int(events["time_ns"][0])
    stalls = recorded_stalls(trace)
    running, running_ns = Running.of(trace), np.zeros(0, np.int64)
    if running is not None:
        all_stalls = pd.concat([stalls, recorded_daemon_work(trace)], ignore_index=True)
        stalls = pd.concat([stalls, running.kept_waiting(all_stalls)], ignore_index=True)
        times, number = events["time_ns"][order], task[order]
        since = np.where(np.diff(number, prepend=-1) == 0, np.roll(times, 1), first)
        running_ns = running.time_of(number, pids, since, times)
    lock_ps = np.zeros(0, np.int64)
    if locks is not None:
        stalls, costs = pd.concat([stalls, locks[0]], ignore_index=True), locks[1]
        parts = ("acquire", "object", "split", "merge", "insert", "scan", "handoff")
        lock_ps = np.array([round(1000 * getattr(costs, name).ns) for name in parts])
        lock_ps[1] += round(1000 * costs.event.ns)
    stalls = stalls[stalls["pid"].isin(pids[moves])]
    number = np.searchsorted(pids, stalls["pid"].to_numpy(np.int64))
    begin = np.maximum(stalls["begin_ns"].to_numpy(np.int64), first)
    end = np.maximum(stalls["begin_ns"].to_numpy(np.int64) + stalls["ns"].to_numpy(np.int64), begin)
    lost = _lost_by(number, begin - first, end - first, task, events["time_ns"] - first)
    lost[~moves[task]] = 0
    ordered = lost[order]
    since = np.diff(ordered, prepend=0)
    since[begins[:-1][counts > 0]] = ordered[begins[:-1][counts > 0]]
    lost_ns = np.zeros(len(events), np.int64)
    lost_ns[order] = since
    return TaskOrder(
        pids=pids,
        order=order,
        begins=begins,
        own_ns=events["time_ns"][order] - ordered,
        lost_ns=lost_ns,
        moves=moves,
        running_ns=running_ns,
        lock_ps=lock_ps,
        until_ns=trace.demand_span_ns[1],
    )


def _lost_by(
    stalled: np.ndarray, begin: np.ndarray, end: np.ndarray, task: np.ndarray, time: np.ndarray
) -> np.ndarray:
    """int64: how long each event's task had stalled by then; stalls inside others count once."""
    if not len(stalled):
        return np.zeros(len(time), np.int64)
    ranked = np.lexsort((begin, stalled))
    stalled, begin, end = stalled[ranked], begin[ranked], end[ranked]
    # an end within a task is never before an earlier one's
    bits = _time_bits(int(task.max()) + 1, int(max(end.max(), time.max())))
    latest = np.maximum.accumulate((stalled << bits) + end) - (stalled << bits)
    before = np.concatenate([[0], latest[:-1]])
    is_first = np.concatenate([[True], stalled[1:] != stalled[:-1]])
    begin = np.maximum(begin, np.where(is_first, 0, before))
    length = np.maximum(end - begin, 0)
    total = np.concatenate([[0], np.cumsum(length)])
    place = np.searchsorted((stalled << bits) + begin, (task << bits) + time, "right")
    first_of = np.searchsorted(stalled, task)
    last = np.maximum(place - 1, 0)
    over = np.minimum(np.maximum(time - begin[last], 0), length[last])
    lost = total[last] - total[np.minimum(first_of, len(stalled))] + over
    return np.where(place > first_of, lost, 0)


class ClosedRun:
    """Takes a state through a demand in closed loop.

    Attributes:
        state: the machine.
        order: the demand's events by task.
        done_ns: int64 by event, when it was over; of no length unless asked for.
    """

    def __init__(
        self,
        state: State,
        demand: Demand,
        order: TaskOrder,
        *,
        imposes_stalls: bool = False,
        keeps_times: bool = False,
    ) -> None:
        """Begin.

        Args:
            state: of an elastic replay; changed from now on.
            demand: what is replayed.
            order: its events by task.
            imposes_stalls: tasks lose what they lost in the recording, whatever the model says.
            keeps_times: fill `done_ns`.
        """
        events, objects = demand.events, demand.objects
        self.state, self.order = state, order
        self._events, self._leads = events, demand.leads
        known = len(order.pids)
        stays = np.repeat(~order.moves, np.diff(order.begins))
        may_wait = int(np.isin(events["operation"][order.order[stays]], (at.FREE, at.USE)).sum())
        tasks = np.zeros(known + may_wait, TASK)
        tasks["next"][:known], tasks["end"][:known] = order.begins[:-1], order.begins[1:]
        tasks["behind"][:known], tasks["moves"][:known] = NOBODY, order.moves
        words = np.zeros(WORDS, np.int64)
        words[TASKS], words[UNTIL_NS] = known, order.until_ns
        is_made = np.zeros(len(objects), np.int8)
        is_made[np.isin(objects["kind"], (resolved.AT_START, resolved.GROWN))] = 1
        count, holds = len(events), len(order.running_ns) and not imposes_stalls
        self.done_ns = np.zeros(count if keeps_times else 0, np.int64)
        self._loop = ClosedLoop(
            order=order.order,
            own_ns=order.own_ns,
            running_ns=order.running_ns,
            tasks=tasks,
            heap=np.zeros(len(tasks), np.int32),
            words=words,
            is_made=is_made,
            waiters=np.full(len(objects), NOBODY, np.int32),
            imposed_ns=order.lost_ns if imposes_stalls else np.zeros(0, np.int64),
            done_ns=self.done_ns,
            stalls=np.zeros(_STALL_ROWS, STALL),
            holds=np.zeros(state.machine.nr_cpus if holds else 0, HOLD),
            lock_ps=order.lock_ps[: 0 if imposes_stalls else None],
            free_ns=np.zeros(len(state.machine.zones), np.int64),
        )
        self._rows: list[np.ndarray] = []
        begin_closed(self._loop)

    def advance(self, places: np.ndarray, most: int, until_ns: int) -> int:
        """As `advance_closed`; what stalled is kept."""
        machine = self.state.arrays(places)
        done = int(advance_closed(machine, self._events, self._leads, self._loop, most, until_ns))
        self._rows.append(self._loop.stalls[: self._loop.words[STALLS]].copy())
        self._loop.words[STALLS] = 0
        return done

    def is_due(self, instant: int, done: int) -> bool:
        """Whether anything comes up to an instant, after so many events."""
        following = self.next_ns
        if instant == FOR_EVER or (following is not None and following <= instant):
            return following is not None
        return done > 0 and self.state.next_due_ns <= instant

    @property
    def last_ns(self) -> int:
        """When the last recorded event so far was over."""
        return int(self._loop.words[LAST_NS])

    @property
    def next_ns(self) -> int | None:
        """When the next event comes; None where none is left."""
        loop = self._loop
        return int(loop.tasks["due_ns"][loop.heap[0]]) if loop.words[WAITING] else None

    @property
    def lag_ns(self) -> np.ndarray:
        """int64 by task: what it has lost."""
        return self._loop.tasks["lag_ns"][: len(self.order.pids)].copy()

    def stalls(self) -> pd.DataFrame:
        """What tasks lost so far: pid, cpu, cause, request (an event), begin_ns, ns, by begin."""
        rows = self._logged()
        rows = rows[rows["event"] >= 0]
        task = np.zeros(len(self._events), np.int64)
        task[self.order.order] = np.repeat(self.order.pids, np.diff(self.order.begins))
        own = {"pid": task[rows["event"]], "cpu": rows["cpu"], "request": rows["event"]}
        compaction = rows["compaction_ns"]
        parts = [
            pd.DataFrame(own | {"cause": cause, "begin_ns": rows["begin_ns"], "ns": ns})
            for cause, ns in ((RECLAIM, rows["ns"] - compaction), (COMPACTION, compaction))
        ]
        table = pd.concat(parts, ignore_index=True)
        return table[table["ns"] > 0].sort_values("begin_ns", kind="stable", ignore_index=True)

    def daemon_work(self) -> pd.DataFrame:
        """When kswapd and kcompactd worked so far (S10.11): cause, cpu, begin_ns, ns."""
        rows = self._logged()
        rows = rows[(rows["event"] == NOBODY) & (rows["ns"] > 0)]
        cause = np.where(rows["compaction_ns"] > 0, KCOMPACTD, KSWAPD).astype(object)
        columns = {name: rows[name] for name in ("cpu", "begin_ns", "ns")}
        return pd.DataFrame({"cause": cause, **columns})

    def beside(self) -> pd.DataFrame | None:
        """When tasks ran beside a hold of their CPU: cpu, begin_ns, ns; None where nobody knows."""
        rows = self._logged()
        rows = rows[rows["event"] == BESIDE]
        table = pd.DataFrame({name: rows[name] for name in ("cpu", "begin_ns", "ns")})
        return table if len(self.order.running_ns) else None

    def _logged(self) -> np.ndarray:
        return np.concatenate([*self._rows, np.zeros(0, STALL)])
