"""Pages that alloc_pages_bulk() took, by its probes, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.predicted.demand.bulk import (
    BULK_EVENT,
    BULK_RETURN,
    bulk_allocations,
    bulk_calls,
    frees_after_calls,
)
from pagealloc_model.predicted.demand.event_order import HiddenAllocations, new_events
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from tests.small_recordings import small_machine

MOVABLE, RECLAIMABLE, READ = 0x8, 0x10, 0x400
BASE = 0xFFFFEA0000000000
"""Of the array of struct page, 64 bytes each."""


def trace_of(*frees: tuple[int, int]) -> Trace:
    """Frees, each a time and a page frame."""
    columns = {name: np.zeros(len(frees), kind) for name, kind in COLUMN_TYPES.items()}
    columns["time_ns"], columns["pfn"] = np.array(frees, np.int64).reshape(-1, 2).T
    return Trace(**columns | {"event": np.full(len(frees), Event.FREE)})


def table(**columns: list[int]) -> dict[str, np.ndarray]:
    return {name: np.array(values) for name, values in columns.items()}


def test_a_call_ends_with_the_next_return_of_its_task() -> None:
    """Task 8 calls and returns within 7's call; 9 never returns; two returns are of no call."""
    calls = table(
        time_ns=[10, 12, 13], cpu=[0, 1, 0], pid=[7, 8, 9], gfp=[MOVABLE | READ, RECLAIMABLE, 0]
    )
    returns = table(
        time_ns=[5, 15, 20, 25],
        pid=[6, 8, 7, 8],
        got=[1, 1, 2, 1],
        base=[BASE] * 4,
        page0=[BASE, BASE + 64 * 6, BASE + 64 * 5, BASE],
    )
    trace = replace(trace_of(), tables={BULK_EVENT: calls, BULK_RETURN: returns})
    events, pfns = bulk_calls(trace, small_machine())
    assert pfns.tolist() == [5, -1, 6]
    assert events["time_ns"].tolist() == [10, 10, 12] and events["cpu"].tolist() == [0, 0, 1]
    assert events["migratetype"].tolist() == [at.MOVABLE, at.MOVABLE, at.RECLAIMABLE]
    assert set(events["operation"].tolist()) == {at.HIDDEN_ALLOC}
    assert (events["bits"] & READ).tolist() == [READ, READ, 0]


def test_without_either_probe_nothing_is_known() -> None:
    calls = table(time_ns=[10], cpu=[0], pid=[7], gfp=[0])
    events, pfns = bulk_calls(replace(trace_of(), tables={BULK_EVENT: calls}), small_machine())
    assert len(events) == len(pfns) == 0


def test_the_first_free_after_a_call_is_of_its_page() -> None:
    trace = trace_of((5, 3), (20, 3), (25, 4), (30, 3), (40, 3))
    calls = new_events(at.HIDDEN_ALLOC, 4, time_ns=[10, 20, 22, 50])
    assert frees_after_calls(trace, calls, np.array([3, 3, -1, 3])).tolist() == [1, 3]


def test_unseen_allocations_stand_at_the_call_that_took_their_page() -> None:
    """Pages 5 and 6 were free from 20 and 60 on, and freed at 100 and 80; a pair stays unseen."""
    objects = np.zeros(3, resolved.OBJECT)
    objects["pfn"], objects["order"] = [5, 6, 8], [0, 0, 1]
    unseen = new_events(at.HIDDEN_ALLOC, 3, time_ns=[60, 70, 50], object=[0, 1, 2])
    unseen["order"] = objects["order"]
    hidden = HiddenAllocations(
        events=unseen, ranks=np.arange(3), freed_ns=np.array([100, 80, 95], np.int64)
    )
    calls = new_events(at.HIDDEN_ALLOC, 3, time_ns=[50, 65, 90])
    made, others, known = bulk_allocations(hidden, calls, np.array([5, -1, 8]), objects)
    assert made["object"].tolist() == [0, 1, 3]
    assert others.events["object"].tolist() == [2]
    assert known["pfn"].tolist() == [5, 6, 8, 8] and known["kind"][3] == resolved.HIDDEN


def test_a_page_not_seen_is_the_one_freed_last_before_the_call() -> None:
    objects = np.zeros(2, resolved.OBJECT)
    unseen = new_events(at.HIDDEN_ALLOC, 2, time_ns=[60, 70], object=[0, 1])
    freed_ns = np.array([100, 80], np.int64)
    hidden = HiddenAllocations(events=unseen, ranks=np.arange(2), freed_ns=freed_ns)
    for time_ns, taken in ((65, 1), (60, 0), (80, 0), (100, 2)):
        calls = new_events(at.HIDDEN_ALLOC, 1, time_ns=[time_ns])
        made, _, _ = bulk_allocations(hidden, calls, np.array([-1]), objects)
        assert made["object"].tolist() == [taken], time_ns
