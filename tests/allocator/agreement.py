"""One scenario on the oracle and on the model at once: they must agree at every step."""

from __future__ import annotations

from typing import Any

import numpy as np

from pagealloc_model.allocator import layout as at
from tests.allocator.elastic_driver import ElasticDriver
from tests.allocator.model_driver import ModelDriver
from tests.allocator.model_driver import dump_ownership as dump_model_ownership
from tests.oracle import Oracle
from tests.oracle.dump import dump_elastic, dump_ownership
from tests.oracle.elastic import ElasticOracle
from tests.oracle.elastic_scenarios import ElasticScenario
from tests.oracle.scenarios import Scenario
from tests.oracle.steps import (
    Alloc,
    BeginRequest,
    Failed,
    Free,
    FreeSingly,
    Grow,
    ReclaimInVain,
    Replayed,
    Step,
    Tick,
)

MAY_HOLD = (Alloc, Replayed, Failed, BeginRequest, ReclaimInVain, Grow, Free, FreeSingly, Tick)
"""Steps that take zone->lock for more than drains of whole lists."""

DUMP_EVERY = {"literal": 20, "elastic": 10}
"""Steps between two comparisons of the whole state; pages and events are compared at each."""


def assert_agreement(scenario: Scenario) -> ModelDriver:
    """Run a scenario on both.

    Returns:
        The model at the end.

    Raises:
        AssertionError: the first step after which they differ, and in what.
    """
    oracle = scenario.started()
    model = ModelDriver(oracle)
    assert_same_state(model.dump(), oracle.dump(), "at the start")
    for number, (step, pages) in enumerate(scenario.run(oracle)):
        after = f"after step {number}, {step}"
        given = model.take(step)
        assert given == pages, f"{after}: the model hands out {given}, the oracle {pages}"
        assert model.events == oracle.events, (
            f"{after}: {_first_difference(model.events, oracle.events)}"
        )
        assert model.work == oracle.work, f"{after}: {_first_difference(model.work, oracle.work)}"
        assert_holds_add_up(model.rows, step, may_be_remote=scenario.policy.ownership is not None)
        oracle.events.clear()
        oracle.work.clear()
        if number % DUMP_EVERY["literal"] == 0:
            assert_same_state(model.dump(), oracle.dump(), after)
            assert_same_counters(model, oracle, after)
            assert_same_ownership(model, oracle, after)
    assert_same_state(model.dump(), oracle.dump(), "at the end")
    assert_same_counters(model, oracle, "at the end")
    assert_same_ownership(model, oracle, "at the end")
    assert np.array_equal(model.state.sites()[..., at.SITE_ACQUISITIONS], model.acquisitions)
    return model


def assert_same_counters(model: ModelDriver, oracle: Oracle, when: str) -> None:
    """Compare what nodes, lag and CMA add to the state.

    What each CPU did to the counters matters only where they lag or lists expire.
    """
    mine, theirs = model.dump_counters(), oracle.dump_counters()
    if not model.state.st[at.COUNTS_BY_CPU]:
        del mine["cpus"], theirs["cpus"]
    assert_same_state(mine, theirs, when)
    if oracle.policy.ownership is None:
        searches = [probes for zone in oracle.zones for probes in zone.fallback.refill_probes]
        st = model.state.st
        assert st[at.REFILL_PROBES] == sum(searches), f"{when}: list probes of refills"
        assert st[at.REFILL_PROBES_MOST] == max(searches, default=0), f"{when}: of one refill"


def assert_same_ownership(model: ModelDriver, oracle: Oracle, when: str) -> None:
    """Compare owners, marks, and what the lists' locks and ownership are counted by."""
    assert_same_state(dump_model_ownership(model.state), dump_ownership(oracle), when)


def assert_same_state(model: dict[str, Any], oracle: dict[str, Any], when: str) -> None:
    """Compare two dumps, and name what differs."""
    assert model.keys() == oracle.keys()
    for part, entries in oracle.items():
        assert model[part].keys() == entries.keys(), f"{when}: keys of {part}"
        for key, value in entries.items():
            assert model[part][key] == value, (
                f"{when}: {part} {key}: the model has {model[part][key]}, the oracle {value}"
            )


def assert_holds_add_up(rows: np.ndarray, step: Step, *, may_be_remote: bool) -> None:
    """Each drain's objects and pages are those logged before it; holds are on the step's CPU.

    With ownership a free may drain another CPU's list.
    """
    drained: list[int] = []
    for row in rows.tolist():
        kind, cpu = row[0], row[3]
        if kind == at.LOG_PCPU_DRAIN:
            drained.append(1 << row[5])
        if kind in (at.SITE_DRAIN_COMMIT, at.SITE_DRAIN_DECAY, at.SITE_DRAIN_ALL):
            assert (row[6], row[7]) == (len(drained), sum(drained))
            drained.clear()
        if kind < at.SITES and kind not in (at.SITE_DRAIN_ALL, at.SITE_BOOST_RESET):
            assert isinstance(step, MAY_HOLD)
            assert cpu == step.cpu or (kind == at.SITE_DRAIN_COMMIT and may_be_remote)
        if kind < at.SITES and isinstance(step, Alloc | Replayed | Free | FreeSingly | Tick):
            assert row[at.LOG_RAN_ON] == step.cpu
    assert not drained


def _first_difference(model: list[object], oracle: list[object]) -> str:
    for number, (mine, other) in enumerate(zip(model, oracle, strict=False)):
        if mine != other:
            return f"event {number} is {mine} in the model, {other} in the oracle"
    extra = model[len(oracle) :] or oracle[len(model) :]
    return f"{'the model' if len(model) > len(oracle) else 'the oracle'} also has {extra[:3]}"


def assert_elastic_agreement(scenario: ElasticScenario) -> ElasticOracle:
    """Run a scenario on both.

    Returns:
        The oracle at the end.

    Raises:
        AssertionError: a step after which they differ, and in what.
    """
    oracle = scenario.started()
    model = ElasticDriver(oracle)
    assert_same_elastic(model, oracle, "at the start")
    unreserved = 0
    for number, step in enumerate(scenario.run(oracle)):
        model.take(step)
        unreserved += sum(event[:2] == ("hold", "unreserve") for event in oracle.events)
        assert model.unreserve_holds() == unreserved, f"holds to unreserve after step {number}"
        if number % DUMP_EVERY["elastic"] == 0:
            assert_same_elastic(model, oracle, f"after step {number}, {step}")
    assert_same_elastic(model, oracle, "at the end")
    return oracle


def assert_same_elastic(model: ElasticDriver, oracle: ElasticOracle, when: str) -> None:
    """Compare everything but what literal replays count."""
    assert_same_state(model.dump_elastic(), dump_elastic(oracle), when)
    plain = oracle.dump()
    del plain["divergence"]
    assert_same_state(model.dump(), plain, when)
