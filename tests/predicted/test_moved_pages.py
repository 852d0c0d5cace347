"""Pages that recorded compaction moved, in an elastic replay: they stay in use (T10.14)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import Demand, resolve_demand
from pagealloc_model.predicted.replay import replay
from tests.small_recordings import TimedEvents, shipped_recording, small_machine

PAGE, TARGET = 0x1000, 0x1800
MOVABLE = "GFP_HIGHUSER_MOVABLE"
ELASTIC = Assumptions(reclaim="elastic")
Event = tuple[int, int]
"""Operation and object."""


def moves(events: TimedEvents, *pages: int, order: int = 0) -> None:
    """Another task's compaction moves pages away."""
    events.on(1, pid=7).event("compaction:mm_compaction_begin", "zone_start=0")
    for page in pages:
        events.free(page, order)
    events.event("compaction:mm_compaction_end", "status=5")
    events.on(0, pid=1)


def used(*pages: int, order: int = 0) -> TimedEvents:
    """A task that asks for pages."""
    events = TimedEvents()
    events.on(0, pid=1)
    for page in pages:
        events.alloc(page, order=order, gfp=MOVABLE, migratetype=1)
    return events


def found(events: TimedEvents, directory: Path) -> tuple[Demand, list[Event]]:
    demand = resolve_demand(events.trace(directory), small_machine(), ELASTIC)
    told = demand.events[["operation", "object"]].tolist()
    return demand, [(int(operation), int(number)) for operation, number in told]


def test_a_source_stays_in_use(tmp_path: Path) -> None:
    events = used(PAGE, PAGE + 1)
    moves(events, PAGE)
    demand, told = found(events, tmp_path)
    assert told == [(at.ALLOC, 0), (at.ALLOC, 1)]
    assert demand.stayed_pages == 1


def test_where_it_is_freed_at_last_the_same_object_is_freed(tmp_path: Path) -> None:
    """Of two that moved, the one that moved last is taken for it."""
    events = used(PAGE, PAGE + 1, TARGET)
    events.on(0, pid=2).free(TARGET)
    moves(events, PAGE, PAGE + 1)
    events.free(TARGET)
    demand, told = found(events, tmp_path)
    assert told[3:] == [(at.FREE, 2), (at.FREE, 1)]
    assert (demand.hidden_allocations, demand.moved_frees) == (0, 1)


def test_a_free_that_was_missed_is_no_move(tmp_path: Path) -> None:
    """It is known by the next request for the page, whose class is not the free's."""
    events = used(PAGE, PAGE)
    moves(events, PAGE + 1)
    demand, told = found(events, tmp_path)
    assert demand.missed_frees == 1
    assert told[:3] == [(at.ALLOC, 0), (at.FREE, 0), (at.ALLOC, 1)]


def test_a_page_moved_twice_is_one_object(tmp_path: Path) -> None:
    events = used(PAGE, TARGET)
    events.free(TARGET)
    moves(events, PAGE)
    moves(events, TARGET)
    demand, told = found(events, tmp_path)
    assert told[2:] == [(at.FREE, 1)]
    assert demand.hidden_allocations == 0


def test_other_sizes_are_not_taken_for_it(tmp_path: Path) -> None:
    events = used(PAGE)
    events.alloc(TARGET, order=2)
    events.on(0, pid=2).free(TARGET, order=2)
    moves(events, PAGE)
    events.free(TARGET, order=2)
    demand, told = found(events, tmp_path)
    assert demand.hidden_allocations == 1
    assert [operation for operation, _ in told].count(at.HIDDEN_ALLOC) == 1


def test_an_unused_target_never_seen_before_becomes_free(tmp_path: Path) -> None:
    events = used(PAGE)
    moves(events, TARGET, order=3)
    _, told = found(events, tmp_path)
    assert told[-1][0] == at.FREE


def test_what_an_interrupt_frees_meanwhile_is_freed(tmp_path: Path) -> None:
    events = used(PAGE, PAGE + 1)
    moves(events, PAGE, PAGE + 1)
    trace = events.trace(tmp_path)
    in_interrupt = np.zeros(len(trace), np.int8)
    in_interrupt[3] = 1
    demand = resolve_demand(replace(trace, in_interrupt=in_interrupt), small_machine(), ELASTIC)
    freed = demand.events[demand.events["operation"] == at.FREE]
    assert freed["object"].tolist() == [1]


def test_a_literal_replay_keeps_what_was_recorded(tmp_path: Path) -> None:
    events = used(PAGE)
    moves(events, PAGE)
    demand = resolve_demand(events.trace(tmp_path), small_machine())
    assert demand.events["operation"].tolist()[:2] == [at.ALLOC, at.FREE]
    assert demand.stayed_pages == 0


def test_recorded_moves_free_no_memory() -> None:
    """On a guest whose kernel compacted, nearly every page freed by it was moved."""
    recording = shipped_recording("highatomic_gate3")
    counted = replay(recording, assumptions=ELASTIC).divergence
    migrated = recording.trace.tables["compaction:mm_compaction_migratepages"]["nr_migrated"].sum()
    assert counted["stayed_pages"] >= 0.99 * int(migrated)
