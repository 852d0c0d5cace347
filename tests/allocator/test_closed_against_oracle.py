"""The closed loop and the oracle's, written apart from S10.10, take up every event at one time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.allocator.agreement import assert_closed_agreement
from tests.oracle.closed_loop import ClosedLoop
from tests.oracle.elastic_scenarios import random_of_kind

NUMBERS = (*range(20), 288)
"""In the last one compaction takes whole blocks of another type between holds of zone->lock."""
STEPS = 80


def closed_loops(numbers: Iterable[int], steps: int) -> list[ClosedLoop]:
    """Compare scenarios; the oracle's loops, in which all of it happened."""
    loops = [
        assert_closed_agreement(random_of_kind("closed_elastic", number, steps))
        for number in numbers
    ]
    for imposes in (False, True):
        alike = [loop for loop in loops if loop.imposes_losses == imposes]
        assert sum(loop.stalls for loop in alike) >= 10
        assert sum(len(loop.waited) for loop in alike) >= 3
        assert any(loop.late_by_others for loop in alike)
    assert sum(len(loop.shared) for loop in loops) >= 10
    assert not any(loop.shared for loop in loops if loop.imposes_losses)
    assert sum(len(loop.waits) for loop in loops) >= 10
    assert not any(loop.waits for loop in loops if loop.imposes_losses)
    waited = [(loop, position) for loop in loops for position in loop.waited]
    for call in ("free_object", "use_object"):
        assert any(loop.events[position].step.call == call for loop, position in waited)
    assert any(loop.tasks[position] is None for loop, position in waited)
    return loops


@pytest.fixture(scope="module")
def loops() -> list[ClosedLoop]:
    return closed_loops(NUMBERS, STEPS)


def test_they_agree(loops: list[ClosedLoop]) -> None:
    assert len(loops) == len(NUMBERS)


def test_imposed_losses_give_recorded_times(loops: list[ClosedLoop]) -> None:
    """As long as nothing waits."""
    plain = [loop for loop in loops if loop.imposes_losses and not loop.waited]
    assert plain
    for loop in plain:
        assert loop.over == [event.time_ns for event in loop.events]


@pytest.mark.long
def test_they_agree_for_long() -> None:
    closed_loops(range(100, 300), 150)
