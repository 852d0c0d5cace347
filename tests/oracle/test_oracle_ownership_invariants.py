"""Owned blocks under random remote frees, drains, CPU deaths and type changes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.oracle.dump import dump_ownership
from tests.oracle.ownership import OwnedPageblocks
from tests.oracle.ownership_bench import PAGES, lists_of, owning, take
from tests.oracle.random_scenarios import ownership_scenarios
from tests.oracle.scenarios import Scenario
from tests.oracle.steps import take_step
from tests.oracle.test_oracle_invariants import CHECK_EVERY


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ownership_scenarios())
def test_invariants_hold(scenario: Scenario) -> None:
    target = scenario.started()
    target.check()
    for number, _ in enumerate(scenario.run(target)):
        if number % CHECK_EVERY == 0:
            target.check()
    target.check()


@pytest.mark.long
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ownership_scenarios(steps=800))
def test_invariants_hold_for_long(scenario: Scenario) -> None:
    target = scenario.started()
    for number, _ in enumerate(scenario.run(target)):
        if number % CHECK_EVERY == 0:
            target.check()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ownership_scenarios(steps=200))
def test_the_same_steps_give_the_same_state(scenario: Scenario) -> None:
    first, second = scenario.started(), scenario.started()
    for step, pages in scenario.run(first):
        assert take_step(second, step) == pages
    assert first.dump() == second.dump()
    assert dump_ownership(first) == dump_ownership(second)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ownership_scenarios(steps=200))
def test_freeing_everything_leaves_whole_blocks_unowned(scenario: Scenario) -> None:
    target = scenario.started()
    for _ in scenario.run(target):
        pass
    for pfn in sorted(target.allocated.pages()):
        target.free(pfn % 2, pfn, 0)
    target.drain_all()
    target.check()
    assert dump_ownership(target)["owners"] == {}


def test_the_check_notices_wrong_owners() -> None:
    target = owning()
    take(target, PAGES)
    assert isinstance(target.blocks, OwnedPageblocks)
    target.blocks.owned()[0].cpu = 7
    with pytest.raises(AssertionError, match="block 0 belongs to 7"):
        target.check()
    target = owning()
    assert isinstance(target.blocks, OwnedPageblocks)
    target.blocks.own(PAGES, 0, 1)
    target.blocks.own(2 * PAGES, 0, 1)
    with pytest.raises(AssertionError, match="free block of page 32 belongs to cpu 1"):
        target.check()


def test_the_check_notices_wrong_records() -> None:
    target = owning()
    take(target, PAGES)
    assert isinstance(target.blocks, OwnedPageblocks)
    target.blocks.owned()[0].recorded = True
    with pytest.raises(AssertionError, match="block 0 is recorded: True"):
        target.check()


def test_the_check_notices_marks_on_pages_of_others() -> None:
    target = owning(routes_frees=False)
    take(target, PAGES)
    target.free(1, 3, 0)
    lists_of(target, cpu=1).mergeable.add(3)
    with pytest.raises(AssertionError, match="mergeable on a list of cpu 1"):
        target.check()
    lists_of(target, cpu=1).mergeable.add(5)
    with pytest.raises(AssertionError, match="not listed"):
        target.check()
