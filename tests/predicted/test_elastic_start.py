"""The order of pages on LRU lists at the start, and which pages first touches show free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.policy import Assumptions, ElasticAssumptions, KernelRules
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.elastic import (
    RECLAIMED_LAST,
    SHRUNK,
    reclaim_order,
    reclaim_position,
)
from pagealloc_model.predicted.start.evidence import first_seen_allocated
from tests.small_recordings import EVENTS_BEGIN_NS, TimedEvents

PAGE = 0x1000
LATER = EVENTS_BEGIN_NS + 1_000_000_000


def freed_by_kswapd(pfns: list[int]) -> TimedEvents:
    """Kswapd frees pages; a task frees one far behind them."""
    events = TimedEvents()
    for pfn in pfns:
        events.on(1, pid=40, comm="kswapd0").free(pfn)
    events.on(0, pid=1, comm="task").free(PAGE + 2 * RECLAIMED_LAST)
    return events


ASCENDING = [PAGE + page for page in range(40)]


@pytest.mark.parametrize(
    ("pfns", "position"),
    [
        (ASCENDING, PAGE + 40),
        ([*ASCENDING, PAGE + 1500, 7], PAGE + 40),
        (ASCENDING[::-1], 0),
        ([PAGE + 600 * page for page in range(3)], 0),
        ([PAGE], 0),
        ([], 0),
    ],
)
def test_the_oldest_pages_lie_behind_what_reclaim_freed_last(
    tmp_path: Path, pfns: list[int], position: int
) -> None:
    """Where it goes by address; single pages elsewhere do not count."""
    assert reclaim_position(freed_by_kswapd(pfns).trace(tmp_path), LATER) == position


def test_what_reclaim_frees_after_the_start_is_not_read(tmp_path: Path) -> None:
    trace = freed_by_kswapd(ASCENDING).trace(tmp_path)
    assert reclaim_position(trace, int(trace.time_ns[20])) == PAGE + 20


def test_recorded_reclaim_tells_which_pages_were_oldest(tmp_path: Path) -> None:
    """Pages in the order in which it took them, then the rest by address.

    What came after the start is not of the start, nor is what a task freed.
    """
    events = TimedEvents()
    events.on(1, pid=40, comm="kswapd0").free(9)
    events.on(1, pid=40, comm="kswapd0").free(3)
    events.on(0, pid=1, comm="task").free(5)
    events.on(0, pid=1, comm="task").alloc(7)
    events.on(1, pid=40, comm="kswapd0").free(7)
    events.on(0, pid=1, comm="task").alloc(9)
    events.on(1, pid=40, comm="kswapd0").free(9)
    trace = events.trace(tmp_path)
    begin_ns = int(trace.time_ns[0])
    order = reclaim_order(trace, begin_ns, 10, as_recorded=True)
    assert np.argsort(order).tolist() == [9, 3, 0, 1, 2, 4, 5, 6, 7, 8]
    assert reclaim_order(trace, begin_ns, 10, as_recorded=False).tolist() == [*range(10)]
    after_the_first = reclaim_order(trace, int(trace.time_ns[1]), 10, as_recorded=True)
    assert np.argsort(after_the_first).tolist() == [3, *(page for page in range(10) if page != 3)]


def test_a_replay_is_prepared_with_the_order_that_it_asks_for(
    shipped: Callable[[str], Path],
) -> None:
    recording = pm.open(str(shipped("highatomic_stock")))
    orders = [
        prepare(recording, KernelRules.preset("6.12"), assumptions, 0).reclaim_order
        for assumptions in (
            Assumptions(reclaim="elastic", elastic=ElasticAssumptions(lru_as_recorded=asked))
            for asked in (False, True)
        )
    ]
    assert orders[0].min() == 0
    assert orders[1].min() < 0
    taken = np.flatnonzero(orders[1] < 0)
    assert np.array_equal(np.delete(orders[0], taken), np.delete(orders[1], taken))


def test_a_cluster_that_was_freed_backwards_was_taken_forwards(tmp_path: Path) -> None:
    """Two clusters of kswapd's, of three pages and of one."""
    events = TimedEvents()
    for pfn in (3, 2, 1):
        events.on(1, pid=40, comm="kswapd0").free(pfn)
    events.on(1, pid=40, comm="kswapd0").free(9)
    trace = events.trace(tmp_path)
    times = trace.time_ns
    ends = {"time_ns": times[2:3] + 1, "pid": np.array([40])}
    trace = replace(trace, tables={**trace.tables, SHRUNK: ends})
    order = reclaim_order(trace, int(times[0]), 10, as_recorded=True, backwards=True)
    assert np.argsort(order)[:4].tolist() == [1, 2, 3, 9]
    order = reclaim_order(trace, int(times[0]), 10, as_recorded=True)
    assert np.argsort(order)[:4].tolist() == [3, 2, 1, 9]


def test_pages_of_a_larger_piece_are_known_one_by_one() -> None:
    """A huge page in whose block others were freed before: the rest was free at the start."""
    found = np.zeros(4, resolved.OBJECT)
    found["pfn"] = (8, 8, 16, 24)
    found["order"] = (0, 3, 0, 1)
    found["kind"] = (
        resolved.AT_START,
        resolved.RECORDED,
        resolved.RECORDED,
        resolved.HIDDEN,
    )
    assert np.flatnonzero(first_seen_allocated(found, 32)).tolist() == [*range(9, 16), 16]
