"""Owned blocks under random remote frees, drains, CPU deaths and type changes."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.oracle.ownership_scenarios import ownership_scenarios
from tests.oracle.scenarios import Scenario
from tests.oracle.test_oracle_invariants import CHECK_EVERY


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ownership_scenarios())
def test_invariants_hold(scenario: Scenario) -> None:
    target = scenario.started()
    target.check()
    for number, _ in enumerate(scenario.run(target)):
        if number % CHECK_EVERY == 0:
            target.check()
    target.check()
