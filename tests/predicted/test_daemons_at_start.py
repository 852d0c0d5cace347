"""What kswapd and kcompactd were doing at the start, from the events before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.kcompactd import CHECK_NS
from pagealloc_model.allocator.kswapd import NAP_NS
from pagealloc_model.predicted.start import elastic as daemons
from pagealloc_model.predicted.start.elastic import DaemonsAtStart, with_daemons
from pagealloc_model.recording.trace.columns import Trace
from tests.allocator.small_state import Pressed
from tests.small_recordings import shipped_recording, small_machine

START = 10 * CHECK_NS


def table(**columns: list[int]) -> dict[str, np.ndarray]:
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def trace_of(**tables: dict[str, np.ndarray]) -> Trace:
    """A trace with nothing but these tables, by the names that the module has for them."""
    named = {getattr(daemons, name): columns for name, columns in tables.items()}
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
        ({"RUN": RAN, "SHRUNK": FREED}, (3, 1)),
        ({"RUN": RAN, "SHRUNK": LONG_AGO}, None),
        ({"RUN": RAN, "SHRUNK": FREED, "SLEEP": SLEPT}, None),
        ({"RUN": RAN, "SHRUNK": FREED, "SLEEP": SLEPT_BEFORE}, (3, 1)),
        ({"RUN": RAN, "SHRUNK": FREED, "SLEEP": ELSEWHERE}, (3, 1)),
        ({"SHRUNK": FREED}, None),
        ({"RUN": RAN}, None),
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
        COMPACTOR_SLEEP=table(time_ns=slept, nid=[0] * len(slept)),
        COMPACTOR_WAKE=table(time_ns=woken, nid=[0] * len(woken)),
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
