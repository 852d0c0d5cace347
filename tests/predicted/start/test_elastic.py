"""The order of pages on LRU lists at the start, and which pages first touches show free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.kcompactd import CHECK_NS
from pagealloc_model.allocator.kswapd import NAP_NS
from pagealloc_model.policy import Assumptions, ElasticAssumptions, KernelRules
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start import elastic as daemons
from pagealloc_model.predicted.start.elastic import (
    RECLAIMED_LAST,
    DaemonsAtStart,
    reclaim_order,
    reclaim_position,
    with_daemons,
)
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Trace
from tests.allocator.small_state import Pressed
from tests.small_recordings import EVENTS_BEGIN_NS, TimedEvents, shipped_recording, small_machine

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


def test_a_replay_is_prepared_with_the_order_that_it_asks_for() -> None:
    recording = shipped_recording("highatomic_stock")
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
    trace = replace(trace, tables={**trace.tables, tp.LRU_SHRINK_INACTIVE: ends})
    order = reclaim_order(trace, int(times[0]), 10, as_recorded=True, backwards=True)
    assert np.argsort(order)[:4].tolist() == [1, 2, 3, 9]
    order = reclaim_order(trace, int(times[0]), 10, as_recorded=True)
    assert np.argsort(order)[:4].tolist() == [3, 2, 1, 9]


# What kswapd and kcompactd were doing at the start, from the events before it


START = 10 * CHECK_NS


def table(**columns: list[int]) -> dict[str, np.ndarray]:
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def trace_of(**tables: dict[str, np.ndarray]) -> Trace:
    """A trace with nothing but these tables, by the names of tracepoints' constants."""
    named = {getattr(tp, name): columns for name, columns in tables.items()}
    return replace(shipped_recording("highatomic_stock").trace, tables=named)


RAN = table(time_ns=[100, 200], nid=[0, 0], pid=[40, 40], order=[1, 3], zid=[2, 1])
FREED = table(time_ns=[START - NAP_NS + 1, START + 1], pid=[40, 40])
LONG_AGO = table(time_ns=[START - NAP_NS, START + 1], pid=[40, 40])
SLEPT = table(time_ns=[150, 300], nid=[0, 0])
SLEPT_BEFORE = table(time_ns=[150, START + 5], nid=[0, 0])
ELSEWHERE = table(time_ns=[300], nid=[1])


@pytest.mark.parametrize(
    ("tables", "run"),
    [
        ({"KSWAPD_WAKE": RAN, "LRU_SHRINK_INACTIVE": FREED}, (3, 1)),
        ({"KSWAPD_WAKE": RAN, "LRU_SHRINK_INACTIVE": LONG_AGO}, None),
        ({"KSWAPD_WAKE": RAN, "LRU_SHRINK_INACTIVE": FREED, "KSWAPD_SLEEP": SLEPT}, None),
        ({"KSWAPD_WAKE": RAN, "LRU_SHRINK_INACTIVE": FREED, "KSWAPD_SLEEP": SLEPT_BEFORE}, (3, 1)),
        ({"KSWAPD_WAKE": RAN, "LRU_SHRINK_INACTIVE": FREED, "KSWAPD_SLEEP": ELSEWHERE}, (3, 1)),
        ({"LRU_SHRINK_INACTIVE": FREED}, None),
        ({"KSWAPD_WAKE": RAN}, None),
    ],
)
def test_a_run_is_under_way_if_it_freed_pages_less_than_a_nap_ago(
    tables: dict[str, dict[str, np.ndarray]], run: tuple[int, int] | None
) -> None:
    (found,) = daemons.daemons_at_start(trace_of(**tables), small_machine(), START)
    assert found == DaemonsAtStart(node=0, start_ns=START, run=run, looks_ns=None)


@pytest.mark.parametrize(
    ("slept", "woken", "looks"),
    [
        ([5, START - 7], [], START - 7 + CHECK_NS),
        ([5, START - 7], [START - 8], START - 7 + CHECK_NS),
        ([5, START - 7], [START - 6], None),
        ([5, START - CHECK_NS], [], None),
        ([START + 1], [], None),
        ([], [], None),
    ],
)
def test_kcompactd_looks_half_a_second_after_it_went_to_sleep(
    slept: list[int], woken: list[int], looks: int | None
) -> None:
    trace = trace_of(
        KCOMPACTD_SLEEP=table(time_ns=slept, nid=[0] * len(slept)),
        KCOMPACTD_WAKE=table(time_ns=woken, nid=[0] * len(woken)),
    )
    (found,) = daemons.daemons_at_start(trace, small_machine(), START)
    assert found.looks_ns == looks


def test_the_replay_begins_with_them() -> None:
    pressed = Pressed()
    with_daemons(pressed.state, (DaemonsAtStart(node=0, start_ns=7, run=(3, 9), looks_ns=70),))
    node = pressed.node
    assert node[pr.PROACTIVE_DUE] == 70
    assert (node[pr.KSWAPD_WOKEN], node[pr.KSWAPD_DUE]) == (1, 7)
    assert node[pr.KSWAPD_WANTED_ORDER] == 3
    assert node[pr.KSWAPD_WANTED_HIGHEST] == len(pressed.machine.zone_types) - 1


def test_nothing_is_changed_where_no_event_tells() -> None:
    pressed = Pressed()
    before = pressed.state.st.copy()
    with_daemons(pressed.state, (DaemonsAtStart(node=0, start_ns=7, run=None, looks_ns=None),))
    assert np.array_equal(pressed.state.st, before)
