"""Costs of the lock: they scale and say where they come from."""

from __future__ import annotations

from pagealloc_model.policy.lock_costs import LockCosts


def test_costs_scale_and_say_where_they_come_from() -> None:
    costs = LockCosts().times(2)
    assert costs.acquire.ns == 2 * LockCosts().acquire.ns
    assert all("assumed" in line or "not traced" in line for line in costs.lines())
