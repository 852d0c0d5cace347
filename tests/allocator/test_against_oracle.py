"""The kernels and the oracle, written apart from one specification, do the same thing."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.allocator.agreement import assert_agreement
from tests.oracle.random_scenarios import scenarios
from tests.oracle.scenarios import Scenario

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

UNSHRUNK = (Phase.generate,)
"""A failure names the first step that differs; shrinking its scenario would take minutes."""


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(scenarios(replayed=True, steps=300))
def test_model_and_oracle_agree(scenario: Scenario) -> None:
    assert_agreement(scenario)


@pytest.mark.long
@settings(
    max_examples=30,
    deadline=None,
    phases=UNSHRUNK,
    suppress_health_check=SLOW,
)
@given(scenarios(replayed=True, steps=1000))
def test_model_and_oracle_agree_for_long(scenario: Scenario) -> None:
    assert_agreement(scenario)
