"""The closed loop: recorded losses give recorded times; without losses it is an open replay."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance_elastic
from pagealloc_model.allocator.state import State
from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.costs import at_recorded_cost
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.predicted.closed_loop import (
    SWITCH,
    ClosedRun,
    Running,
    TaskOrder,
    recorded_daemon_work,
    recorded_stalls,
    task_order,
)
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.recording.recorded_machine import effective_policy

UNDER_PRESSURE = "highatomic_gate3"
QUIET = "kbuild"


class WithSwitches:
    """A trace as if `sched:sched_switch` had been recorded: a switch where a CPU's task changes.

    Every second task that goes is preempted, and kswapd and kcompactd run until the next event.
    """

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        order = np.lexsort((np.arange(len(trace)), trace.cpu))
        cpu, pid = trace.cpu[order], trace.pid[order].astype(np.int64)
        changes = np.flatnonzero((cpu[1:] == cpu[:-1]) & (pid[1:] != pid[:-1])) + 1
        table = {
            "time_ns": trace.time_ns[order][changes],
            "cpu": cpu[changes],
            "pid": pid[changes - 1],
            "prev_pid": pid[changes - 1],
            "prev_state": np.where(np.arange(len(changes)) % 2, 0x100, 1),
            "next_pid": pid[changes],
        }
        self.tables = {**trace.tables, SWITCH: table}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trace, name)

    def __len__(self) -> int:
        return len(self._trace)


class Case:
    """A recording's demand in an elastic replay at its own costs."""

    def __init__(self, name: str, *, has_switches: bool = False) -> None:
        self.recording = pm.open(name)
        self.rules = choose_rules(self.recording, None).rules
        self.assumptions = at_recorded_cost(self.recording.trace)
        self.prepared: Prepared = prepare(self.recording, self.rules, self.assumptions, 0)
        self.demand = self.prepared.demand
        trace = self.recording.trace
        self.trace: Any = WithSwitches(trace) if has_switches else trace
        self.order: TaskOrder = task_order(self.trace, self.demand.events)

    def state(self) -> State:
        policy = effective_policy(self.recording, pm.Policy(), elastic=True)
        return self.prepared.state(self.rules, policy, self.assumptions, 0)

    def run(self, *, imposes: bool = False, step: int = 1 << 18) -> ClosedRun:
        """Replay all of it, so many events at a time."""
        run = ClosedRun(
            self.state(), self.demand, self.order, imposes_stalls=imposes, keeps_times=True
        )
        places = self.demand.starting_places()
        last = int(self.demand.events["time_ns"][-1])
        while run.next_ns is not None:
            run.advance(places, step, max(run.next_ns, last))
            run.state.st[at.LOG_ROWS] = 0
        return run


@pytest.fixture(scope="module")
def pressed() -> Case:
    return Case(UNDER_PRESSURE)


def test_recorded_losses_give_recorded_times(pressed: Case) -> None:
    assert pressed.order.lost_ns.sum() > 500_000_000
    run = pressed.run(imposes=True)
    assert np.array_equal(run.done_ns, pressed.demand.events["time_ns"])


def test_the_model_s_own_losses_move_what_follows(pressed: Case) -> None:
    run = pressed.run()
    assert run.lag_ns[pressed.order.moves].max() > 0
    assert (run.lag_ns[~pressed.order.moves] == 0).all()
    assert not np.array_equal(run.done_ns, pressed.demand.events["time_ns"])
    per_task = run.stalls().groupby("pid")["ns"].sum()
    lag = pd.Series(run.lag_ns, pressed.order.pids)
    assert (lag[per_task.index] >= per_task).all()


@pytest.mark.parametrize("step", [7, 4096])
def test_any_split_gives_the_same_bytes(pressed: Case, step: int) -> None:
    whole, split = pressed.run(), pressed.run(step=step)
    assert np.array_equal(whole.done_ns, split.done_ns)
    assert np.array_equal(whole.state.st, split.state.st)
    assert whole.stalls().equals(split.stalls())
    assert whole.daemon_work().equals(split.daemon_work())
    assert len(whole.daemon_work())


def test_without_stalls_it_is_the_open_replay() -> None:
    case = Case(QUIET)
    assert case.order.lost_ns.sum() == 0
    run = case.run()
    state, places = case.state(), case.demand.starting_places()
    events, last = case.demand.events, int(case.demand.events["time_ns"][-1])
    position = 0
    while position < len(events):
        position = advance_elastic(
            state.arrays(places), events, case.demand.leads, position, len(events), last
        )
        state.st[at.LOG_ROWS] = 0
    assert np.array_equal(run.state.st, state.st)
    assert np.array_equal(run.state.pages, state.pages)
    assert np.array_equal(run.done_ns, events["time_ns"])


@pytest.fixture(scope="module")
def switched() -> Case:
    return Case(UNDER_PRESSURE, has_switches=True)


def test_recorded_losses_give_recorded_times_where_who_ran_is_known(
    pressed: Case, switched: Case
) -> None:
    assert switched.order.lost_ns.sum() > pressed.order.lost_ns.sum() + 1_000_000
    run = switched.run(imposes=True)
    assert np.array_equal(run.done_ns, switched.demand.events["time_ns"])


def test_stalls_hold_cpus_where_who_ran_is_known(pressed: Case, switched: Case) -> None:
    assert pressed.run().beside() is None
    run, split = switched.run(), switched.run(step=4096)
    beside = run.beside()
    assert beside is not None
    assert beside["ns"].sum() > 0
    assert run.lag_ns.sum() > run.stalls()["ns"].sum()
    assert np.array_equal(run.done_ns, split.done_ns)
    assert beside.equals(split.beside())


SWITCHES = [
    # time, CPU, who goes, in which state, who comes
    (100, 0, 0, 0, 10),
    (200, 0, 10, 0x100, 50),
    (260, 0, 50, 1, 10),
    (300, 0, 10, 1, 0),
    (400, 0, 0, 0, 20),
    (500, 0, 20, 0, 10),
    (520, 0, 10, 2, 20),
    (600, 0, 20, 1, 0),
    (150, 1, 0, 0, 60),
    (650, 1, 60, 1, 0),
]
"""Of kswapd 50 and tasks 10, 20 and 60; 10 is preempted by kswapd, 20 by 10."""


def who_ran() -> Running:
    columns = np.array(SWITCHES, np.int64).T
    names = ("time_ns", "cpu", "prev_pid", "prev_state", "next_pid")
    table = dict(zip(names, columns, strict=True))
    running = Running.of(SimpleNamespace(tables={SWITCH: table}))
    assert running is not None
    return running


def stalls_of(*rows: tuple[int, int, int, int]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["pid", "cpu", "begin_ns", "ns"])


def test_text_has_letters_for_states_and_may_lack_fields() -> None:
    table = {
        "time_ns": np.array([0, 10, 20, 30]),
        "cpu": np.zeros(4, np.int64),
        "next_pid": np.array([1, 2, 1, 0]),
        "prev_state": np.array(["S", "R+", "D", "R"], object),
    }
    running = Running.of(SimpleNamespace(tables={SWITCH: table}))
    assert running is not None
    assert running.could_go_on.tolist() == [True, False, True]
    del table["prev_state"]
    assert Running.of(SimpleNamespace(tables={SWITCH: table})) is None
    assert Running.of(SimpleNamespace(tables={})) is None


def test_who_could_go_on_waits_for_who_stalls_alone() -> None:
    stalls = stalls_of((50, 0, 210, 40), (10, 0, 505, 1000))
    waits = who_ran().kept_waiting(stalls)
    assert waits.to_numpy().tolist() == [[10, 210, 40], [20, 505, 15]]
    assert not len(who_ran().kept_waiting(stalls_of((60, 1, 0, 1000))))


def test_full_leaves_out_the_time_of_those_in_no_stall() -> None:
    running = who_ran()
    # 10 stalls on CPU 0 from 250 to 550: kswapd runs 10 ns of it, 20 runs 130
    beside = running.beside(stalls_of((10, 0, 250, 300)))
    assert beside["ns"].sum() == 10 + 100 + 30
    # with kswapd in a stall too, its time is full as well
    beside = running.beside(stalls_of((10, 0, 250, 300), (50, 0, 200, 60)))
    assert beside["ns"].sum() == 100 + 30


def test_running_time_is_what_a_task_had_of_cpus() -> None:
    pids = np.array([-1, 10, 20])
    tasks, since, to = np.array([[1, 0, 1000], [1, 150, 270], [2, 450, 560], [0, 0, 1000]]).T
    assert who_ran().time_of(tasks, pids, since, to).tolist() == [160, 60, 90, 0]
    idle = Running(
        pid=np.array([0, 5, 0, 0]),
        cpu=np.array([0, 0, 1, 1]),
        begin_ns=np.array([0, 100, 0, 60]),
        end_ns=np.array([100, 120, 50, 90]),
        could_go_on=np.zeros(4, bool),
    )
    tasks, since, to = np.array([[0, 0, 40], [1, 0, 110]]).T
    assert idle.time_of(tasks, np.array([0, 5]), since, to).tolist() == [0, 10]


def test_days_of_stalls_are_counted_and_what_is_too_long_is_refused() -> None:
    """A word holds four days of 10,000 tasks, not 73 years of two."""
    day = 24 * 3600 * 10**9
    pid, begin = np.arange(1, 10_001), np.full(10_000, 4 * day)
    running = Running(
        pid=pid,
        cpu=np.zeros(10_000, np.int64),
        begin_ns=begin,
        end_ns=begin + 9,
        could_go_on=pid > 0,
    )
    stalls = stalls_of((1, 0, 5, 5), (9, 0, 4 * day + 3, 5), (9_999, 0, 4 * day + 8, 5))
    assert np.array(running.in_stall(stalls)).T.tolist() == [
        [0, 4 * day + 3, 4 * day + 8],
        [0, 4 * day + 8, 4 * day + 9],
    ]
    with pytest.raises(UsageError, match="2 tasks or CPUs within 640,512 hours are too many"):
        running.in_stall(stalls_of((1, 0, 5, 5), (2, 0, 1 << 61, 5)))


@pytest.mark.parametrize(
    ("begins", "ends", "work"),
    [
        ([110, 140], [120, 150], [(110, 10), (140, 10)]),
        ([110], [105, 120], [(100, 5), (110, 10)]),
        ([110, 140], [120], [(110, 10), (140, 60)]),
        ([], [120], [(100, 20)]),
        ([110], [], [(110, 90)]),
        ([110, 140], [150], [(110, 30), (140, 10)]),
    ],
)
def test_work_counts_as_far_as_events_go(
    begins: list[int], ends: list[int], work: list[tuple[int, int]]
) -> None:
    tables = {
        f"vmscan:mm_vmscan_balance_pgdat_{name}": {
            "time_ns": np.array(times, np.int64),
            "pid": np.full(len(times), 50),
            "cpu": np.zeros(len(times), np.int64),
        }
        for name, times in (("begin", begins), ("end", ends))
    }
    trace = SimpleNamespace(tables=tables, demand_span_ns=(100, 200))
    rows = recorded_daemon_work(trace).sort_values("begin_ns")
    assert list(zip(rows["begin_ns"], rows["ns"], strict=True)) == work
    assert set(rows["pid"]) == {50}


def test_kswapd_s_naps_are_no_work() -> None:
    """Runs from 110 and 150 with clusters, and one from 190 without; it slept at 180 alone."""
    columns = {
        "vmscan:mm_vmscan_kswapd_wake": [110, 150, 190],
        "vmscan:mm_vmscan_kswapd_sleep": [180],
        "vmscan:mm_vmscan_lru_shrink_inactive": [115, 120, 155],
    }
    tables = {
        name: {
            "time_ns": np.array(times),
            "pid": np.full(len(times), 50),
            "cpu": np.zeros(len(times), np.int64),
        }
        for name, times in columns.items()
    }
    rows = recorded_daemon_work(SimpleNamespace(tables=tables, demand_span_ns=(100, 200)))
    assert rows[["begin_ns", "ns"]].to_numpy().tolist() == [[110, 10], [150, 5], [190, 0]]
    del tables["vmscan:mm_vmscan_lru_shrink_inactive"]
    rows = recorded_daemon_work(SimpleNamespace(tables=tables, demand_span_ns=(100, 200)))
    assert rows["ns"].to_list() == [40, 30, 10]


def test_daemons_work_has_its_thread(pressed: Case) -> None:
    work = recorded_daemon_work(pressed.recording.trace)
    comms = pressed.recording.trace.comms
    assert {comms[pid].rstrip("0123456789") for pid in work["pid"]} <= {"kswapd", "kcompactd"}


def test_what_was_made_up_for_later_does_not_make_the_run_longer() -> None:
    case = Case(QUIET)
    last = int(case.demand.events["time_ns"][-1])
    assert case.run().last_ns <= case.recording.trace.demand_span_ns[1]
    case.order = replace(case.order, until_ns=last - 1_000_000)
    assert case.run().last_ns <= last - 1_000_000


def test_daemons_do_not_stall(pressed: Case) -> None:
    comms = pressed.recording.trace.comms
    stalls = recorded_stalls(pressed.recording.trace)
    assert len(stalls)
    names = [comms.get(pid, "") for pid in stalls["pid"]]
    assert not any(name.startswith(("kswapd", "kcompactd")) for name in names)
