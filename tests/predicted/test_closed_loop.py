"""The closed loop: recorded losses give recorded times; without losses it is an open replay."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance_elastic
from pagealloc_model.allocator.state import State
from pagealloc_model.measured.costs import at_recorded_cost
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.predicted.closed_loop import ClosedRun, TaskOrder, recorded_stalls, task_order
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.recording.recorded_machine import effective_policy

UNDER_PRESSURE = "highatomic_gate3"
QUIET = "kbuild"


class Case:
    """A recording's demand in an elastic replay at its own costs."""

    def __init__(self, name: str) -> None:
        self.recording = pm.open(name)
        self.rules = choose_rules(self.recording, None).rules
        self.assumptions = at_recorded_cost(self.recording.trace)
        self.prepared: Prepared = prepare(self.recording, self.rules, self.assumptions, 0)
        self.demand = self.prepared.demand
        self.order: TaskOrder = task_order(self.recording.trace, self.demand.events)

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


def test_daemons_do_not_stall(pressed: Case) -> None:
    comms = pressed.recording.trace.comms
    stalls = recorded_stalls(pressed.recording.trace)
    assert len(stalls)
    names = [comms.get(pid, "") for pid in stalls["pid"]]
    assert not any(name.startswith(("kswapd", "kcompactd")) for name in names)
