"""Demand of an elastic replay: page classes, and which requests came in place of a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.objects import REQUEST, OpenFailures, link_replacements
from pagealloc_model.predicted.demand import elastic as elastic_rows
from pagealloc_model.predicted.demand.elastic import ElasticRows, page_classes
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace

HIGHUSER_MOVABLE = 0x100CCA
ZERO, NORETRY, WRITE, COMP, NOMEMALLOC, RECLAIMABLE = 0x100, 0x10000, 0x1000, 0x40000, 0x80000, 0x10
FS = 0x80
THP = HIGHUSER_MOVABLE | COMP | NOMEMALLOC
Asked = tuple[int, int, int, bool]
"""Task, class, order, whether it failed."""


@pytest.mark.parametrize(
    ("gfp", "order", "expected"),
    [
        (HIGHUSER_MOVABLE | ZERO, 0, pr.ANON),
        (HIGHUSER_MOVABLE | NORETRY, 2, pr.FILE),
        (HIGHUSER_MOVABLE | WRITE, 0, pr.FILE),
        (HIGHUSER_MOVABLE & ~FS, 0, pr.FILE),
        (THP | NORETRY, 9, pr.ANON),
        (0xCC0, 0, pr.KERNEL),
        (0xCC0 | RECLAIMABLE, 1, pr.RECLAIMABLE),
    ],
)
def test_the_gfp_word_tells_the_class_of_pages(gfp: int, order: int, expected: int) -> None:
    found = page_classes(np.array([gfp], np.uint32), np.array([order], np.int8))
    assert found.tolist() == [expected]


def leads_of(asked: list[Asked]) -> list[int]:
    """The failure that each request replaces, both by their place in the list; -1 for none."""
    requests = np.zeros(len(asked), REQUEST)
    for number, (task, kind, order, failed) in enumerate(asked):
        requests[number] = (task, number, kind, order, failed)
    leads = np.full(len(asked), -1, np.int32)
    failures = OpenFailures()
    for number in range(len(asked)):
        request = requests[number : number + 1]
        link_replacements(request, *failures.of(request), leads)
    return leads.tolist()


A, K = pr.ANON, pr.KERNEL


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        # Up to as many pages as were asked for, of the same task and class.
        ([(1, A, 1, True), (1, A, 0, False), (1, A, 0, False), (1, A, 0, False)], [-1, 0, 0, -1]),
        ([(1, A, 1, True), (2, A, 0, False), (1, K, 0, False)], [-1, -1, -1]),
        # Until the task asks for the order again.
        ([(1, A, 9, True), (1, A, 0, False), (1, A, 9, False), (1, A, 0, False)], [-1, 0, -1, -1]),
        # The same request at once is another try; both are behind what follows.
        ([(1, A, 9, True), (1, A, 9, True), (1, A, 0, False)], [-1, 0, 1]),
        # A smaller failure stands between.
        ([(1, A, 9, True), (1, A, 4, True), (1, A, 0, False)], [-1, 0, 1]),
        # Kernel memory is replaced by one request, whatever its size.
        ([(1, K, 3, True), (1, K, 0, False), (1, K, 0, False)], [-1, 0, -1]),
        # What succeeded leads nothing.
        ([(1, A, 9, False), (1, A, 0, False)], [-1, -1]),
    ],
)
def test_requests_in_place_of_a_failure_are_found(asked: list[Asked], expected: list[int]) -> None:
    assert leads_of(asked) == expected


class Interrupted(np.ndarray):
    """A mask; something else is done before one is told whether any is set."""

    meanwhile: Callable[[], object] = list

    def any(self, *args: Any, **kwargs: Any) -> Any:
        Interrupted.meanwhile()
        return super().any(*args, **kwargs)


def two_frees() -> Trace:
    """Task 1 frees while it compacts, task 2 does not compact."""
    columns = {name: np.zeros(2, kind) for name, kind in COLUMN_TYPES.items()}
    columns["event"][:] = Event.FREE
    columns["time_ns"][:], columns["pid"][:] = (10, 20), (1, 2)
    one = {"pid": np.ones(1, np.int32), "row": np.zeros(1, np.int64)}
    tables = {
        "compaction:mm_compaction_begin": one | {"time_ns": np.array([5])},
        "compaction:mm_compaction_end": one | {"row": np.ones(1), "time_ns": np.array([15])},
    }
    return Trace(**columns, tables=tables)


def test_parts_marked_at_the_same_time_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = ElasticRows(two_frees())
    rows = np.zeros(2, resolved.ROW)
    rows["is_free"], rows["pid"] = 1, (1, 2)
    inside = elastic_rows._inside

    def mask(*args: Any) -> np.ndarray:
        return inside(*args).view(Interrupted)

    def other_part() -> None:
        monkeypatch.setattr(elastic_rows, "_inside", inside)
        marks.mark(rows[:1], np.array([0]))
        assert marks.any_by_compaction

    monkeypatch.setattr(Interrupted, "meanwhile", other_part)
    monkeypatch.setattr(elastic_rows, "_inside", mask)
    marks.mark(rows[1:], np.array([1]))
    assert marks.any_by_compaction
