"""Random event sequences: the invariants hold at every point, and nothing gets lost."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracle import Bits, Oracle
from tests.oracle.random_scenarios import node_scenarios, scenarios
from tests.oracle.scenarios import BLOCK, Scenario, one_zone, oracle
from tests.oracle.steps import Alloc, Replayed, take_step

CHECK_EVERY = 25
"""Steps between two full checks."""


def any_scenario(steps: int = 400, *, replayed: bool = False) -> st.SearchStrategy[Scenario]:
    """Small and larger machines, every preset."""
    return st.one_of(
        scenarios(steps=steps, replayed=replayed),
        node_scenarios(steps=steps, replayed=replayed),
    )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_scenario())
def test_invariants_hold(scenario: Scenario) -> None:
    target = scenario.started()
    target.check()
    for number, _ in enumerate(scenario.run(target)):
        if number % CHECK_EVERY == 0:
            target.check()
    target.check()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.booleans().flatmap(lambda replayed: any_scenario(150, replayed=replayed)))
def test_pages_handed_out_are_aligned_unique_and_allowed(scenario: Scenario) -> None:
    target = scenario.started()
    for step, pages in scenario.run(target):
        for pfn, order in pages if isinstance(step, Alloc | Replayed) else ():
            assert pfn % (1 << order) == 0
            zone = target.zone_of(pfn)
            assert zone.type <= step.highest_zone
            if step.bits & Bits.THISNODE:
                assert zone.node == target.machine.node_of(step.cpu)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_scenario(150))
def test_the_same_steps_give_the_same_state(scenario: Scenario) -> None:
    first, second = scenario.started(), scenario.started()
    for step, pages in scenario.run(first):
        assert take_step(second, step) == pages
    assert first.dump() == second.dump()
    assert first.dump_counters() == second.dump_counters()
    assert first.events == second.events


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_scenario(150))
def test_freeing_everything_empties_the_machine(scenario: Scenario) -> None:
    target = scenario.started()
    for _ in scenario.run(target):
        pass
    for pfn in sorted(target.allocated.pages()):
        target.free(0, pfn, 0)
    target.drain_all()
    target.check()
    free = [
        (order, pages) for zone in target.zones for (order, _), pages in zone.buddy.lists.items()
    ]
    assert sum(len(pages) << order for order, pages in free) == target.placed_pages


def broken() -> Oracle:
    target = oracle(one_zone(2))
    target.put_free(0, 3, 1)
    target.put_allocated(BLOCK, 0, movable=True)
    return target


def test_the_check_notices_unmerged_buddies() -> None:
    target = broken()
    target.put_free(8, 3, 1)
    with pytest.raises(AssertionError, match="not merged"):
        target.check()


def test_the_check_notices_wrong_types() -> None:
    target = broken()
    target.set_block_type(0, 2)
    with pytest.raises(AssertionError, match="list of type"):
        target.check()


def test_the_check_notices_pages_in_two_places() -> None:
    target = broken()
    target.put_pcp(0, 0, 1, 5)
    with pytest.raises(AssertionError, match="page 5 is on list 1 of cpu 0"):
        target.check()


def test_the_check_notices_lost_pages() -> None:
    target = broken()
    target.allocated.remove(BLOCK, 0)
    with pytest.raises(AssertionError, match="were laid out"):
        target.check()


def test_the_check_notices_wrong_counts() -> None:
    target = broken()
    target.zones[0].counters.free.shared += 1
    with pytest.raises(AssertionError, match="free pages"):
        target.check()
    target = broken()
    target.zones[0].pcp[0].count = 1
    with pytest.raises(AssertionError, match="counts 1, has 0"):
        target.check()


def test_misuse_is_refused() -> None:
    target = broken()
    with pytest.raises(ValueError, match="not allocated"):
        target.free(0, BLOCK + 1, 0)
    with pytest.raises(ValueError, match="allocated already"):
        target.put_allocated(BLOCK, 0, movable=True)
    with pytest.raises(ValueError, match="no zone"):
        target.put_free(2 * BLOCK, 0, 1)
    with pytest.raises(ValueError, match="no zone"):
        target.set_block_type(2, 1)
    with pytest.raises(ValueError, match="already"):
        target.put_free(0, 3, 1)
