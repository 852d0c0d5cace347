"""The kernels and the oracle, written apart from one specification, do the same thing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pagealloc_model.allocator.invariants import broken_invariants
from tests.allocator.agreement import assert_agreement
from tests.oracle.random_scenarios import (
    imposed_scenarios,
    node_scenarios,
    ownership_scenarios,
    random_compaction_scenario,
    random_interrupted_scenario,
    random_superpageblock_scenario,
    scenarios,
)
from tests.oracle.scenarios import Scenario

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

UNSHRUNK = (Phase.generate,)
"""A failure names the first step that differs; shrinking its scenario would take minutes."""


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(scenarios(replayed=True, steps=300))
def test_model_and_oracle_agree(scenario: Scenario) -> None:
    assert_agreement(scenario)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(node_scenarios(replayed=True, steps=300))
def test_they_agree_on_larger_machines(scenario: Scenario) -> None:
    """Several nodes, CMA, lagging counters, recorded reclaim, other pageblock orders."""
    assert_agreement(scenario)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(st.integers(0, (1 << 32) - 1))
def test_they_agree_on_recorded_compaction(number: int) -> None:
    """Scans that take free pages piece by piece, and requests that are captured."""
    assert_agreement(random_compaction_scenario(number, steps=300, replayed=True))


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(st.integers(0, (1 << 32) - 1))
def test_they_agree_on_interrupted_batches(number: int) -> None:
    """Requests and frees of interrupts find the lists of the zone that a batch frees to locked."""
    assert_agreement(random_interrupted_scenario(number, steps=300, replayed=True))


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(st.integers(0, (1 << 32) - 1))
def test_they_agree_on_superpageblocks(number: int) -> None:
    """Few and many of them, recorded compaction now and then; the state is sound at the end."""
    model = assert_agreement(random_superpageblock_scenario(number, steps=300, replayed=True))
    assert not broken_invariants(model.state)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(imposed_scenarios(steps=300))
def test_they_agree_on_imposed_truth(scenario: Scenario) -> None:
    """Failures, hidden requests, zones, boosts, drains and memory as a recording has them."""
    assert_agreement(scenario)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(ownership_scenarios(replayed=True, steps=300))
def test_they_agree_on_owned_pageblocks(scenario: Scenario) -> None:
    """Every option of ownership, blocks that fit the lists or do not, CPUs that go and return."""
    assert_agreement(scenario)


def _of_number(scenario_of: Callable[..., Scenario]) -> Callable[[int], Scenario]:
    return lambda number: scenario_of(number, steps=1000, replayed=True)


@pytest.mark.long
@settings(
    max_examples=100,
    deadline=None,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(
    st.one_of(
        scenarios(replayed=True, steps=1000),
        node_scenarios(replayed=True, steps=1000),
        ownership_scenarios(replayed=True, steps=1000),
        imposed_scenarios(steps=1000),
        st.integers(0, (1 << 32) - 1).map(_of_number(random_compaction_scenario)),
        st.integers(0, (1 << 32) - 1).map(_of_number(random_interrupted_scenario)),
        st.integers(0, (1 << 32) - 1).map(_of_number(random_superpageblock_scenario)),
    )
)
def test_model_and_oracle_agree_for_long(scenario: Scenario) -> None:
    assert_agreement(scenario)
