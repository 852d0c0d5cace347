"""Times on a CPU and waits for one, worked out by hand from switches."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from pagealloc_model.measured.cpu_spans import CpuSpans, Running
from pagealloc_model.recording.trace import tracepoints as tp

NAMES = ("time_ns", "cpu", "prev_pid", "prev_state", "next_pid")
KSWAPD = 7
SWITCHES = [
    (100, 0, 1, 0x100, KSWAPD),
    (130, 0, KSWAPD, 0x100, 1),  # preempted
    (190, 1, 2, 0x100, KSWAPD),  # goes on elsewhere
    (200, 1, KSWAPD, 2, 2),  # waits, and cannot be interrupted
    (260, 1, 2, 1, KSWAPD),
    (300, 1, KSWAPD, 1, 2),  # naps
    (900, 0, 1, 0x100, KSWAPD),
    (950, 0, KSWAPD, 0, 1),  # gives way
    (960, 0, 1, 1, KSWAPD),
    (970, 0, 1, 1, 2),  # who went was not seen
    (980, 0, 2, 1, KSWAPD),
    (990, 0, KSWAPD, 1, 0),
]


def who_ran(switches: list[tuple[int, ...]] = SWITCHES, **columns: object) -> Running:
    table = dict(zip(NAMES, np.array(switches, np.int64).T, strict=True)) | columns
    running = Running.of(SimpleNamespace(tables={tp.SCHED_SWITCH: table}))
    assert running is not None
    return running


def spans_of(running: Running) -> list[tuple[int, ...]]:
    spans = CpuSpans.of(running, KSWAPD)
    assert spans is not None
    return [tuple(row) for row in spans.table.tolist()]


BY_HAND = [
    (100, 30, 60),
    (190, 10, 60),
    (260, 40, 0),
    (900, 50, 10),
    (960, 10, 0),
    (980, 10, 0),
]


def test_a_wait_is_what_follows_unless_the_task_goes_to_sleep() -> None:
    assert spans_of(who_ran()) == BY_HAND


def test_states_may_come_as_letters() -> None:
    letters = {0x100: "R+", 0: "R", 1: "S", 2: "D"}
    states = np.array([letters[row[3]] for row in SWITCHES], object)
    assert spans_of(who_ran(prev_state=states)) == BY_HAND


def test_without_states_every_wait_is_a_sleep() -> None:
    rows = [(*row[:2], 0, 0, *row[4:]) for row in SWITCHES]
    assert {waited for *_, waited in spans_of(who_ran(rows))} == {0}


def test_time_on_a_cpu_adds_up() -> None:
    spans = CpuSpans.of(who_ran(), KSWAPD)
    assert spans is not None
    asked = np.array([0, 100, 110, 130, 180, 195, 500, 2_000])
    assert spans.ran_until(asked).tolist() == [0, 0, 10, 30, 30, 35, 80, 150]


def test_who_never_ran_has_none() -> None:
    assert CpuSpans.of(who_ran(), 99) is None
