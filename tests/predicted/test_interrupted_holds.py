"""Interrupts that may have come into a refill or a drain (T10.13): how they are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.base import arrays
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import Demand, resolve_demand
from tests.small_recordings import TimedEvents, small_machine

PAGE = 0x1000
HOLDS = (at.BEGIN_REQUEST, at.HOLD_DRAINED)


class Contexts(TimedEvents):
    """Events of a task, and of interrupts where `interrupt` is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts: list[int] = []
        self._is_interrupt = 0

    def event(self, name: str, body: str) -> None:
        super().event(name, body)
        self.contexts.append(self._is_interrupt)

    @property
    def interrupt(self) -> Contexts:
        self._is_interrupt = 1
        return self

    @property
    def task(self) -> Contexts:
        self._is_interrupt = 0
        return self


def demand_of(events: Contexts, directory: Path, contexts: Sequence[int] | None = None) -> Demand:
    trace = events.trace(directory)
    told = np.array(events.contexts if contexts is None else contexts, np.int8)
    return resolve_demand(replace(trace, in_interrupt=told), small_machine(), Assumptions())


def operations(demand: Demand) -> list[int]:
    return [int(each) for each in demand.events["operation"]]


def holders(demand: Demand) -> list[int]:
    """Numbers of the events that find a list locked; holds themselves left out."""
    events = demand.events[~np.isin(demand.events["operation"], HOLDS)]
    return [int(each) for each in np.flatnonzero(events["bits"] & at.INTERRUPTS_HOLDER)]


def assert_no_mark_is_left(demand: Demand) -> None:
    assert not np.any(demand.events["bits"] & np.uint32(at.CONTEXT_BITS))


def before_request(gfp: str = "GFP_KERNEL") -> Contexts:
    """An interrupt with a request and a free, nearer to the task's request behind it."""
    events = Contexts()
    events.alloc(PAGE)
    events.wait(10)
    events.interrupt.alloc(PAGE + 1, gfp="GFP_ATOMIC")
    events.free(PAGE + 1)
    events.task.alloc(PAGE + 2, order=1, gfp=gfp, migratetype=1)
    events.alloc(PAGE + 4)
    return events


def test_the_request_behind_begins_before_the_interrupt(tmp_path: Path) -> None:
    demand = demand_of(before_request("GFP_HIGHUSER_MOVABLE"), tmp_path)
    assert operations(demand) == [at.ALLOC, at.BEGIN_REQUEST, at.ALLOC, at.FREE, at.ALLOC, at.ALLOC]
    begun, request = demand.events[1], demand.events[4]
    for name in ("cpu", "order", "migratetype", "zone", "bits"):
        assert begun[name] == request[name], name
    assert begun["object"] == -1
    assert begun["time_ns"] == demand.events["time_ns"][2]
    assert holders(demand) == [1, 2]
    assert_no_mark_is_left(demand)


def test_what_begins_is_the_request_not_a_missed_free_before_it(tmp_path: Path) -> None:
    events = Contexts()
    events.alloc(PAGE)
    events.wait(10)
    events.interrupt.alloc(PAGE + 2, gfp="GFP_ATOMIC")
    events.task.alloc(PAGE, order=1, migratetype=1)
    demand = demand_of(events, tmp_path)
    assert operations(demand) == [at.ALLOC, at.BEGIN_REQUEST, at.ALLOC, at.FREE, at.ALLOC]
    assert demand.missed_frees == 1
    begun, request = demand.events[1], demand.events[4]
    for name in ("cpu", "order", "migratetype", "zone", "bits"):
        assert begun[name] == request[name], name


def test_the_free_before_it_is_held_if_it_is_nearer(tmp_path: Path) -> None:
    events = Contexts()
    events.alloc(PAGE)
    events.free(PAGE)
    events.interrupt.alloc(PAGE + 1, gfp="GFP_ATOMIC")
    events.wait(10)
    events.task.alloc(PAGE + 2)
    demand = demand_of(events, tmp_path)
    assert operations(demand) == [at.ALLOC, at.FREE, at.HOLD_DRAINED, at.ALLOC, at.ALLOC]
    held = demand.events[2]
    assert (held["object"], held["bits"], held["cpu"]) == (-1, at.INTERRUPTS_HOLDER, 0)
    assert holders(demand) == [2]
    assert_no_mark_is_left(demand)


@pytest.mark.parametrize(
    ("before_us", "behind_us", "expected"),
    [(1, 1, at.BEGIN_REQUEST), (2, 1, at.BEGIN_REQUEST), (1, 2, at.HOLD_DRAINED)],
)
def test_the_nearer_event_wins_and_of_equals_the_request(
    tmp_path: Path, before_us: int, behind_us: int, expected: int
) -> None:
    """Nearness counts from the first and from the last of the interrupt's events."""
    events = Contexts()
    events.alloc(PAGE)
    events.free(PAGE)
    events.wait(before_us - 1).interrupt.alloc(PAGE + 1)
    events.wait(50).interrupt.free(PAGE + 1)
    events.wait(behind_us - 1).task.alloc(PAGE + 2)
    demand = demand_of(events, tmp_path)
    assert [each for each in operations(demand) if each in HOLDS] == [expected]
    assert holders(demand) == [2, 3]


def unmarked(demand: Demand) -> bool:
    """Whether no interrupt was found, and nothing of the search is left."""
    assert_no_mark_is_left(demand)
    return not holders(demand) and not set(operations(demand)) & set(HOLDS)


def test_a_request_nearby_before_it_and_a_free_behind_it_are_over(tmp_path: Path) -> None:
    events = Contexts()
    events.alloc(PAGE)
    events.interrupt.alloc(PAGE + 1)
    events.wait(10).task.alloc(PAGE + 2)
    events.wait(10).interrupt.free(PAGE + 1)
    events.task.free(PAGE + 2)
    assert unmarked(demand_of(events, tmp_path))


@pytest.mark.parametrize("is_free", [False, True])
def test_another_tasks_event_tells_nothing(tmp_path: Path, is_free: bool) -> None:
    """The interrupt names the task that it came into."""
    events = Contexts()
    events.alloc(PAGE)
    events.on(0, pid=7)
    if is_free:
        events.free(PAGE)
    events.wait(0 if is_free else 10).on(0)
    events.interrupt.alloc(PAGE + 1)
    events.wait(10 if is_free else 0).on(0, pid=7)
    events.task.alloc(PAGE + 2)
    assert unmarked(demand_of(events, tmp_path))


def test_events_of_other_cpus_lie_in_between(tmp_path: Path) -> None:
    """They end no interrupt, are none, and are no nearer event."""
    events = Contexts()
    events.alloc(PAGE)
    events.wait(10).interrupt.alloc(PAGE + 1)
    events.on(1, pid=11).task.alloc(PAGE + 8)
    events.on(0).interrupt.alloc(PAGE + 2)
    events.on(1, pid=11).task.free(PAGE + 8)
    events.on(0).task.alloc(PAGE + 3)
    demand = demand_of(events, tmp_path)
    assert operations(demand)[1] == at.BEGIN_REQUEST
    assert set(operations(demand)[2:]) <= {at.ALLOC, at.FREE}
    assert holders(demand) == [1, 3]
    assert_no_mark_is_left(demand)


def test_each_cpu_has_its_own_interrupts(tmp_path: Path) -> None:
    events = Contexts()
    for cpu in (0, 1):
        events.on(cpu, pid=20 + cpu).task.alloc(PAGE + 16 * cpu)
    events.wait(10)
    for cpu in (0, 1):
        events.on(cpu, pid=20 + cpu).interrupt.alloc(PAGE + 1 + 16 * cpu)
    for cpu in (1, 0):
        events.on(cpu, pid=20 + cpu).task.alloc(PAGE + 2 + 16 * cpu, order=cpu)
    demand = demand_of(events, tmp_path)
    begun = demand.events[demand.events["operation"] == at.BEGIN_REQUEST]
    assert begun["cpu"].tolist() == [0, 1]
    assert begun["order"].tolist() == [0, 1]


def test_an_interrupt_at_an_end_of_the_recording_is_left_out(tmp_path: Path) -> None:
    """Nothing says what came before the first event, or behind the last."""
    events = Contexts()
    events.interrupt.alloc(PAGE)
    events.task.alloc(PAGE + 1)
    events.free(PAGE + 1)
    events.interrupt.alloc(PAGE + 2)
    events.free(PAGE + 2)
    assert unmarked(demand_of(events, tmp_path))


def test_interrupts_into_folio_batches_are_none_of_these(tmp_path: Path) -> None:
    """They are known by the order of events (T10.5), and find the batch's list locked."""
    events = Contexts()
    for pfn in (PAGE, PAGE + 1):
        events.alloc(pfn)
        events.wait(5)
    events.free(PAGE)
    events.free(PAGE + 1)
    events.batched(PAGE)
    events.interrupt.alloc(PAGE + 2)
    events.task.batched(PAGE + 1)
    events.alloc(PAGE + 3)
    demand = demand_of(events, tmp_path)
    assert not set(operations(demand)) & set(HOLDS)
    assert holders(demand) == [4]
    assert_no_mark_is_left(demand)


def test_a_request_that_failed_counts_as_one(tmp_path: Path) -> None:
    events = Contexts()
    events.alloc(PAGE)
    events.wait(10).interrupt.alloc(PAGE + 1)
    events.task.alloc(-1, order=2)
    demand = demand_of(events, tmp_path)
    assert operations(demand) == [at.ALLOC, at.BEGIN_REQUEST, at.ALLOC, at.RECORDED_FAILURE]
    assert demand.events["order"][1] == 2


def test_an_interrupt_that_frees_a_hidden_allocation(tmp_path: Path) -> None:
    """The allocation that no event shows stands first of all and bears no mark."""
    events = Contexts()
    events.on(1, pid=11).alloc(PAGE)
    events.free(PAGE)
    events.on(0).alloc(PAGE + 1)
    events.wait(10).interrupt.free(PAGE)
    events.task.alloc(PAGE + 2)
    demand = demand_of(events, tmp_path)
    expected = [at.ALLOC, at.FREE, at.ALLOC, at.HIDDEN_ALLOC, at.BEGIN_REQUEST, at.FREE, at.ALLOC]
    assert operations(demand) == expected
    assert_no_mark_is_left(demand)


def test_an_interrupt_that_frees_what_several_requests_were_given(tmp_path: Path) -> None:
    """Its first free is two events here: the task's request begins once, before both."""
    events = Contexts()
    events.alloc(PAGE)
    events.alloc(PAGE + 1)
    events.wait(10).interrupt.free(PAGE, order=1)
    events.task.alloc(PAGE + 2)
    demand = demand_of(events, tmp_path)
    expected = [at.ALLOC, at.ALLOC, at.BEGIN_REQUEST, at.FREE, at.FREE, at.ALLOC]
    assert operations(demand) == expected


@pytest.mark.parametrize("context", [-1, 0])
def test_nothing_is_marked_where_no_interrupt_is_known(tmp_path: Path, context: int) -> None:
    events = before_request()
    assert unmarked(demand_of(events, tmp_path, [context] * len(events.lines)))


def test_parts_of_the_trace_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = demand_of(before_request(), tmp_path).events
    monkeypatch.setattr(arrays, "ROWS_TOGETHER", 2)
    np.testing.assert_array_equal(demand_of(before_request(), tmp_path).events, whole)
