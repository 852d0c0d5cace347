"""Random event sequences: the invariants hold at every point, and nothing gets lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracle import Bits, Oracle
from tests.oracle.elastic_scenarios import random_of_kind
from tests.oracle.ownership import OwnedPageblocks
from tests.oracle.scenarios import BLOCK, Scenario, one_zone, oracle
from tests.oracle.steps import take_step
from tests.oracle.test_ownership import PAGES, lists_of, owning, take

CHECK_EVERY = 25
"""Steps between two full checks."""
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def any_scenario(steps: int = 150) -> st.SearchStrategy[Scenario]:
    """Small and larger machines, every preset, and machines whose CPUs own pageblocks."""
    return st.builds(
        lambda kind, number, replayed: replace(
            random_of_kind(kind, number, steps), replayed=replayed
        ),
        st.sampled_from(("small", "nodes", "ownership")),
        st.integers(0, (1 << 32) - 1),
        st.booleans(),
    )


@settings(SLOW, max_examples=60)
@given(any_scenario(400))
def test_invariants_hold(scenario: Scenario) -> None:
    target = scenario.started()
    target.check()
    for number, _ in enumerate(scenario.run(target)):
        if number % CHECK_EVERY == 0:
            target.check()
    target.check()


@settings(SLOW, max_examples=15)
@given(any_scenario())
def test_pages_handed_out_are_aligned_unique_and_allowed(scenario: Scenario) -> None:
    target = scenario.started()
    for step, pages in scenario.run(target):
        for pfn, order in pages if step.call in ("alloc", "alloc_as_recorded") else ():
            assert pfn % (1 << order) == 0
            zone, request = target.zone_of(pfn), step.words["request"]
            assert zone.type <= request.highest_zone
            if Bits.THISNODE in request.bits:
                assert zone.node == target.machine.node_of(request.cpu)


@settings(SLOW, max_examples=15)
@given(any_scenario())
def test_the_same_steps_give_the_same_state(scenario: Scenario) -> None:
    first, second = scenario.started(), scenario.started()
    for step, pages in scenario.run(first):
        assert sum(take_step(second, step), ()) == pages
    assert first.dump() == second.dump()
    assert first.events == second.events


@settings(SLOW, max_examples=15)
@given(any_scenario())
def test_freeing_everything_leaves_free_blocks_that_nobody_owns(scenario: Scenario) -> None:
    target = scenario.started()
    for _ in scenario.run(target):
        pass
    for pfn in sorted(target.allocated.movable):
        target.free(pfn % target.machine.nr_cpus, pfn, 0)
    target.drain_all()
    target.check()
    assert target.dump()["owners"] == {}
    free = [
        (order, pages) for zone in target.zones for (order, _), pages in zone.buddy.lists.items()
    ]
    assert sum(len(pages) << order for order, pages in free) == target.placed_pages


def broken() -> Oracle:
    target = oracle(one_zone(2))
    target.put_free(0, 3, 1)
    target.put_allocated(BLOCK, 0, movable=True)
    return target


def miscount(target: Oracle) -> None:
    target.zones[0].counters.free.shared += 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda target: target.put_free(8, 3, 1), "not merged"),
        (lambda target: target.set_block_type(0, 2), "list of type"),
        (lambda target: target.put_pcp(0, 0, 1, 5), "page 5 is on list 1 of cpu 0"),
        (lambda target: target.allocated.remove(BLOCK, 0), "were laid out"),
        (miscount, "free pages"),
    ],
)
def test_the_check_notices(spoil: Callable[[Oracle], None], message: str) -> None:
    target = broken()
    spoil(target)
    with pytest.raises(AssertionError, match=message):
        target.check()


def test_the_check_notices_wrong_owners() -> None:
    target = owning()
    take(target, PAGES)
    assert isinstance(target.blocks, OwnedPageblocks)
    target.blocks.owned[0].cpu = 7
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
    target.blocks.owned[0].recorded = True
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
