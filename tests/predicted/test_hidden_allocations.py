"""Pages freed twice with no allocation between: hidden ones, repetitions and failed charges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.predicted.demand.demand import resolve_demand
from pagealloc_model.recording.trace.columns import Losses
from tests.predicted.test_demand import PAGE, demand_of, trace_of
from tests.small_recordings import EVENTS_BEGIN_NS, TimedEvents, small_machine


def test_a_second_free_shows_a_hidden_allocation_at_the_midpoint(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    events.free(PAGE)
    events.wait(999)
    events.on(0, pid=7).free(PAGE)
    demand = demand_of(events, tmp_path, hidden_migratetype=2)
    assert demand.hidden_allocations == 1
    operations = demand.events["operation"].tolist()
    assert operations == [at.ALLOC, at.FREE, at.HIDDEN_ALLOC, at.FREE]
    hidden = demand.events[2]
    assert hidden["time_ns"] == EVENTS_BEGIN_NS + 1_000 + 500_000
    assert hidden["migratetype"] == 2
    assert demand.starting_places().tolist() == [-1, -1]


def test_a_hidden_allocation_lies_after_the_last_free_of_any_of_its_pages(tmp_path: Path) -> None:
    events = TimedEvents()
    for page in range(4):
        events.alloc(PAGE + page)
    for page in (0, 3, 1):
        events.free(PAGE + page)
        events.wait(99)
    events.free(PAGE + 2)
    events.wait(999)
    events.on(1, pid=9).free(PAGE, order=2)
    demand = demand_of(events, tmp_path)
    assert demand.hidden_allocations == 1
    hidden = demand.events[demand.events["operation"] == at.HIDDEN_ALLOC][0]
    last_two = demand.events[demand.events["operation"] == at.FREE]["time_ns"][-2:]
    assert hidden["order"] == 2
    assert hidden["time_ns"] == last_two.sum() // 2


def test_pages_some_of_which_were_never_seen_are_one_hidden_allocation(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    events.free(PAGE)
    events.on(1, pid=9).free(PAGE, order=2)
    demand = demand_of(events, tmp_path)
    assert demand.hidden_allocations == 1
    assert demand.objects["kind"].tolist() == [resolved.RECORDED, resolved.HIDDEN]
    assert demand.objects["order"].tolist() == [0, 2]


def test_pages_a_task_frees_again_and_again_are_freed_once(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    for _ in range(3):
        events.on(0, pid=7).free(PAGE)
    events.alloc(PAGE + 9)
    events.on(0, pid=7).free(PAGE)
    demand = demand_of(events, tmp_path)
    assert demand.repeated_frees == 2
    assert demand.hidden_allocations == 1
    operations = demand.events["operation"].tolist()
    assert operations == [at.ALLOC, at.FREE, at.HIDDEN_ALLOC, at.ALLOC, at.FREE]


def test_another_cpu_or_other_pages_are_no_repetition(tmp_path: Path) -> None:
    events = TimedEvents()
    for page in range(2):
        events.on(0, pid=7).free(PAGE + page)
    events.on(1, pid=7).free(PAGE)
    events.on(0, pid=7).free(PAGE, order=1)
    demand = demand_of(events, tmp_path)
    assert demand.repeated_frees == 0
    assert demand.hidden_allocations == 2


def test_a_failed_charge_is_an_allocation_just_before_its_free(tmp_path: Path) -> None:
    events = TimedEvents()
    events.on(0, pid=7).free(PAGE, order=1)
    events.alloc(-1, order=1, gfp="GFP_KERNEL_ACCOUNT")
    events.free(PAGE, order=1)
    events.alloc(-1, order=1, gfp="GFP_KERNEL")
    demand = demand_of(events, tmp_path, hidden_migratetype=2)
    assert demand.failed_charges == 1
    assert demand.events["operation"].tolist() == [
        at.HIDDEN_ALLOC, at.FREE, at.RECORDED_FAILURE,
        at.HIDDEN_ALLOC, at.FREE, at.RECORDED_FAILURE,
    ]  # fmt: skip
    charged, free = demand.events[:2]
    assert charged["time_ns"] == free["time_ns"]
    assert charged["migratetype"] == 0
    assert demand.hidden_allocations == 1


def test_hidden_allocations_over_losses_are_told_apart() -> None:
    history = [(False, 0, 0), (True, 0, 0), (True, 0, 0), (False, 8, 0), (True, 8, 0), (True, 8, 0)]
    trace = replace(trace_of(history), pid=np.arange(len(history), dtype=np.int32))
    for start, end, expected in ((2500, 2600, 1), (1000, 9000, 2), (4100, 4900, 0)):
        losses = Losses(
            cpu=np.zeros(1, np.int16),
            start_ns=np.array([start]),
            end_ns=np.array([end]),
            count=np.ones(1, np.int64),
        )
        demand = resolve_demand(replace(trace, losses=losses), small_machine())
        assert (demand.hidden_allocations, demand.hidden_over_losses) == (2, expected)
