"""One scenario on the oracle and on the model at once: they must agree at every step."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from tests.allocator.elastic_driver import ElasticDriver
from tests.allocator.model_driver import ModelDriver
from tests.oracle.dump import Dump, dump_elastic
from tests.oracle.elastic import ElasticOracle
from tests.oracle.elastic_scenarios import ElasticScenario
from tests.oracle.scenarios import Scenario
from tests.oracle.steps import Step

RUNS_ON_CPU = ("alloc_as_recorded", "free", "free_singly", "tick", "tick_as_recorded")
"""Calls whose holds of zone->lock all run on the call's CPU."""
MAY_HOLD = (*RUNS_ON_CPU, *("fail_as_recorded", "begin_request", "reclaim_in_vain", "grow"))
"""Calls that take zone->lock for more than drains of whole lists."""

DUMP_EVERY = {"literal": 20, "elastic": 10}
"""Steps between two comparisons of the whole state; pages and events are compared at each."""


def assert_agreement(scenario: Scenario | ElasticScenario) -> ModelDriver | ElasticOracle:
    """Run a scenario on both.

    Returns:
        The model at the end; the oracle, of a scenario under pressure.
    """
    if isinstance(scenario, ElasticScenario):
        return _assert_elastic_agreement(scenario)
    oracle = scenario.started()
    model = ModelDriver(oracle)
    assert_same_state(model.dump(), oracle.dump(), "at the start")
    for number, (step, pages) in enumerate(scenario.run(oracle)):
        after = f"after step {number}, {step}"
        given = model.take(step)
        assert given == pages, f"{after}: the model hands out {given}, the oracle {pages}"
        for mine, theirs in ((model.events, oracle.events), (model.work, oracle.work)):
            assert mine == theirs, f"{after}: {_first_difference(mine, theirs)}"
        assert_holds_add_up(model.rows, step, may_be_remote=scenario.policy.ownership is not None)
        oracle.events.clear()
        oracle.work.clear()
        if number % DUMP_EVERY["literal"] == 0:
            assert_same_state(model.dump(), oracle.dump(), after)
    assert_same_state(model.dump(), oracle.dump(), "at the end")
    assert np.array_equal(model.state.sites()[..., at.SITE_ACQUISITIONS], model.acquisitions)
    return model


def _assert_elastic_agreement(scenario: ElasticScenario) -> ElasticOracle:
    oracle = scenario.started()
    model = ElasticDriver(oracle)
    unreserved = 0

    def assert_same(when: str) -> None:
        assert_same_state(model.dump_elastic(), dump_elastic(oracle), when)
        assert_same_state(model.dump(), oracle.dump(), when)

    assert_same("at the start")
    for number, (time_ns, step) in enumerate(scenario.run(oracle)):
        model.take(time_ns, step)
        unreserved += sum(event[:2] == ("hold", "unreserve") for event in oracle.events)
        assert model.unreserve_holds() == unreserved, f"holds to unreserve after step {number}"
        if number % DUMP_EVERY["elastic"] == 0:
            assert_same(f"after step {number}, {step}")
    assert_same("at the end")
    return oracle


def assert_same_state(model: Dump, oracle: Dump, when: str) -> None:
    """Compare the parts that the model's dump has, and name what differs."""
    assert model.keys() <= oracle.keys()
    for part, entries in model.items():
        assert entries.keys() == oracle[part].keys(), f"{when}: keys of {part}"
        for key, value in entries.items():
            expected = oracle[part][key]
            assert value == expected, (
                f"{when}: {part} {key}: the model has {value}, the oracle {expected}"
            )


def assert_holds_add_up(rows: np.ndarray, step: Step, *, may_be_remote: bool) -> None:
    """Each drain's objects and pages are those logged before it; holds are on the step's CPU.

    With ownership a free may drain another CPU's list.
    """
    drained: list[int] = []
    for row in rows:
        kind, cpu = row["kind"], row["cpu"]
        if kind == at.LOG_PCPU_DRAIN:
            drained.append(1 << int(row["order"]))
        if kind in (at.SITE_DRAIN_COMMIT, at.SITE_DRAIN_DECAY, at.SITE_DRAIN_ALL):
            assert (row["objects"], row["pages"]) == (len(drained), sum(drained))
            drained.clear()
        if kind < at.SITES and kind not in (at.SITE_DRAIN_ALL, at.SITE_BOOST_RESET):
            assert step.call in MAY_HOLD
            assert cpu == step.cpu or (kind == at.SITE_DRAIN_COMMIT and may_be_remote)
        if kind < at.SITES and step.call in RUNS_ON_CPU:
            assert row["ran_on"] == step.cpu
    assert not drained


def _first_difference(model: list[object], oracle: list[object]) -> str:
    for number, (mine, other) in enumerate(zip(model, oracle, strict=False)):
        if mine != other:
            return f"event {number} is {mine} in the model, {other} in the oracle"
    extra = model[len(oracle) :] or oracle[len(model) :]
    return f"{'the model' if len(model) > len(oracle) else 'the oracle'} also has {extra[:3]}"
