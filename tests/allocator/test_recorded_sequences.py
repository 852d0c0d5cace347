"""The first events of shipped recordings, from their own start, on the model and on the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.image import start_state
from pagealloc_model.verdict.budget import TRUTHS, imposed
from tests.allocator.agreement import assert_same_state
from tests.allocator.model_dump import dump_state, dump_told
from tests.allocator.recorded_oracle import RecordedOracle, oracle_like

EVENTS = 6000
"""Events of each recording, and how many lie between two comparisons of all lists."""

BETWEEN = 1000


def begun(name: str, truths: tuple[str, ...] = ()) -> tuple[State, Demand, str]:
    """A recording's start, its demand with truths imposed on it, and its rules."""
    recording = pm.open(name)
    rules = recorded_rules(recording).rules
    prepared = prepare(recording, rules, Assumptions(), 0)
    chosen = tuple(each for each in TRUTHS if each.name in truths)
    if chosen:
        prepared = imposed(recording, prepared, chosen).prepared
    state = start_state(
        prepared.machine, prepared.demand, prepared.image, rules, Policy(), Assumptions()
    )
    state.st[at.NEXT_TICK] = state.st[at.TICK_BASE] = at.NEVER
    return state, prepared.demand, rules.name


@pytest.mark.parametrize("truths", [(), ("zone", "boosts")])
@pytest.mark.parametrize("name", ["kbuild", "xfree", "highatomic_stock", "highatomic_gate3"])
def test_they_agree_on_recorded_events(name: str, truths: tuple[str, ...]) -> None:
    state, demand, rules = begun(name, truths)
    places = demand.starting_places()
    follower = RecordedOracle(oracle_like(state, rules), places, demand.objects["order"])
    assert_agreement(state, follower, "at the start")
    for first in range(0, min(EVENTS, len(demand.events)), BETWEEN):
        end = min(first + BETWEEN, len(demand.events))
        state.st[at.LOG_ROWS] = 0
        assert advance(state.arrays(places), demand.events, first, end, -1) == end
        for event in demand.events[first:end]:
            follower.take(event)
        assert_agreement(state, follower, f"after event {end}")
        assert_same_places(places, follower)
    follower.oracle.check()


def assert_agreement(state: State, follower: RecordedOracle, when: str) -> None:
    """Compare everything; blocks of holes are the oracle's alone."""
    mine = {**dump_state(state), "told": dump_told(state)}
    theirs = follower.oracle.dump()
    theirs["blocks"] = {block: theirs["blocks"][block] for block in mine["blocks"]}
    assert_same_state(mine, theirs, when)


def assert_same_places(places: np.ndarray, follower: RecordedOracle) -> None:
    """Each object in one piece lies where the oracle has put it."""
    whole = [number for number, pages in follower.objects.items() if len(pages) == 1]
    mine = [follower.objects[number][0][0] for number in whole]
    theirs = places[whole]
    theirs = np.where(theirs < -1, at.CHAINED - theirs, theirs)
    assert theirs.tolist() == mine
