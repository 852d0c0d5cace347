"""Vmstat ticks: recorded ones are replayed as they came, others follow an assumed period."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import make_state
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.recording.trace import tracepoints as tp
from tests.predicted.test_no_peeking import TABLES, blinded
from tests.small_recordings import NORMAL, TimedEvents, small_machine, write_recording

PAGES = 1200
TICKS_US = (500, 123_456, *range(10_000, 30_000, 1_000))
ZONE_LOCKED = "page=0x1 pfn={pfn:#x} order=0 migratetype=1 percpu_refill=1"


def ticked_events(*, after_us: tuple[int, ...], answers: bool = False) -> TimedEvents:
    """CPU 1 takes pages and frees them, then its tick comes so long after the step before."""
    events = TimedEvents().on(cpu=1)
    first = NORMAL.first_free
    for pfn in range(first, first + PAGES):
        events.alloc(pfn, gfp="GFP_HIGHUSER_MOVABLE", migratetype=1)
        if answers:
            events.event("kmem:mm_page_alloc_zone_locked", ZONE_LOCKED.format(pfn=pfn))
    for pfn in range(first, first + PAGES):
        events.free(pfn)
    for wait in after_us:
        events.wait(wait)
        events.event(tp.WORKQUEUE_EXECUTE_START, "work=0x1 function=0x2")
    events.wait(20_000_000)
    events.alloc(first)
    return events


def replayed(directory: Path, events: TimedEvents, words: list[str]) -> Replay:
    return replay(pm.open(write_recording(directory, events, perf=words)))


def decay_times(result: Replay) -> list[int]:
    drains = result.transactions_full.query("cause == 'decay'")
    assert set(drains["cpu"]) <= {1}
    return sorted(set(drains["time_ns"]))


def test_lists_decay_when_the_recorded_ticks_come_and_at_no_other_time(tmp_path: Path) -> None:
    events = ticked_events(after_us=TICKS_US)
    result = replayed(tmp_path / "ticked", events, ["--filter", tp.TICK_FILTER])
    assert result.demand.ticks_recorded
    ticks = result.demand.events["time_ns"][result.demand.events["operation"] == at.TICK]
    times = decay_times(result)
    assert times
    assert set(times) <= set(ticks.tolist())


def test_work_that_need_not_be_the_tick_is_not_taken_for_it(tmp_path: Path) -> None:
    events = ticked_events(after_us=(500,))
    result = replayed(tmp_path / "unfiltered", events, ["-e", tp.WORKQUEUE_EXECUTE_START])
    assert not result.demand.ticks_recorded
    times = decay_times(result)
    assert times
    assert {time % 1_000_000_000 for time in times} == {988_000_000}


def test_recorded_ticks_are_no_answers(tmp_path: Path) -> None:
    """What the allocator did may be deleted; the ticks stay, and nothing moves."""
    events = ticked_events(after_us=TICKS_US, answers=True)
    recording = pm.open(
        write_recording(tmp_path / "full", events, perf=["--filter", tp.TICK_FILTER])
    )
    full, blind = replay(recording), replay(blinded(recording))
    assert len(blinded(recording).trace) < len(recording.trace)
    assert decay_times(full)
    for name in TABLES:
        assert getattr(full, name).equals(getattr(blind, name))


@pytest.mark.parametrize(
    ("since_last_ms", "cpu", "until_ms"), [(0, 3, 964), (970, 2, 6), (980, 1, 8), (999, 0, 1)]
)
def test_the_last_cpus_tick_comes_first(since_last_ms: int, cpu: int, until_ms: int) -> None:
    """S4.8: 12 ms from one CPU's tick to that of the one before it; CPU 0 ends the second."""
    machine = replace(small_machine(), nr_cpus=4)
    start = 5_000_000_000 + since_last_ms * 1_000_000
    state = make_state(machine, KernelRules.preset("6.12"), Policy(), Assumptions(), start_ns=start)
    assert state.st[at.TICK_CPU] == cpu
    assert state.st[at.NEXT_TICK] == start + until_ms * 1_000_000
