"""States at places of a load's progress: a starved reader's rests do not count more than work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.numbers.progress import (
    PLACES,
    at_progress,
    missed_instants,
    served_at,
)
from pagealloc_model.numbers.values import States
from pagealloc_model.recording.trace.columns import Event
from tests.small_recordings import shipped_recording

WINDOW = (1000, 2000)


def states(time_ns: list[int], free: list[float]) -> States:
    """One zone with so many free pages, and a pageblock more at each instant."""
    pages = np.array(free, float)
    return States(
        time_ns=np.array(time_ns),
        free=pages[:, None, None, None],
        blocks=np.arange(len(free), dtype=float)[:, None, None],
        listed=np.zeros((len(free), 1, 2)),
        boosts=np.full((len(free), 1), np.nan),
    )


def test_means_are_of_the_work_not_of_the_rest() -> None:
    """All requests are served by 1200, when 10 pages are free; then 90 are, for ten instants."""
    served = np.linspace(1000, 1200, 1000).astype(np.int64)
    read = states([1000, 1200, *range(1210, 2000, 80)], [10, 10, *[90] * 10])
    alike = at_progress(read, WINDOW, served)
    assert alike.free.shape == (PLACES, 1, 1, 1)
    assert read.free.mean() > 70
    assert alike.free.mean() == pytest.approx(10)
    assert np.isnan(alike.boosts).all()


def test_sides_with_other_instants_agree() -> None:
    """Free pages follow the progress, and one side's reader slept through the middle."""
    served = np.sort(np.random.default_rng(0).integers(1000, 2000, 5000))

    def side(time_ns: list[int]) -> float:
        share = np.searchsorted(served, time_ns, "right") / len(served)
        return float(at_progress(states(time_ns, list(500 * share)), WINDOW, served).free.mean())

    even, starved = list(range(1000, 2001, 50)), [1000, 1020, 1040, 1060, 1900, 1950, 2000]
    assert side(even) == pytest.approx(side(starved), abs=1)
    assert side(even) == pytest.approx(250, abs=3)


def test_the_snapshots_around_the_window_are_used_and_no_others() -> None:
    served = np.linspace(1000, 2000, 1000).astype(np.int64)
    read = states([1, 990, 1500, 2010, 9000], [7777, 0, 50, 100, 7777])
    alike = at_progress(read, WINDOW, served)
    assert alike.free.max() < 100
    assert alike.free.mean() == pytest.approx(50, abs=1)


def test_what_an_instant_lacks_is_taken_from_its_neighbours() -> None:
    served = np.linspace(1000, 2000, 1000).astype(np.int64)
    read = states([1000, 1500, 2000], [0, np.nan, 100])
    assert at_progress(read, WINDOW, served).free.mean() == pytest.approx(50, abs=1)


def test_requests_served_are_allocations_that_found_a_page() -> None:
    recording = shipped_recording("highatomic_gate3")
    served = served_at(recording)
    assert 0 < len(served) <= recording.trace.count(Event.ALLOC)
    assert (np.diff(served) >= 0).all()


def reading(recording: pm.Recording, times_s: list[float]) -> pm.Recording:
    """A recording of ten seconds, whose state files were read at these times."""
    snapshots = tuple(
        replace(recording.snapshots[0], time_ns=10**9 + round(at * 1e9)) for at in times_s
    )
    meta = {"start_ns": 10**9, "end_ns": 10**9 + 9_500_000_000, "interval_s": 1.0}
    return replace(recording, snapshots=snapshots, meta=recording.meta | meta)


def test_missed_instants_are_those_without_a_snapshot_in_their_interval() -> None:
    recording = shipped_recording("highatomic_gate3")
    assert missed_instants(reading(recording, [-0.5, *range(10)])) == 0
    # four of ten, however many were read in a row
    late = [0, 1, 2.5, 2.6, 2.7, 2.8, 6.1, 7.1, 8.1, 9.4]
    assert missed_instants(reading(recording, late)) == pytest.approx(0.3)
    unknown = reading(recording, late)
    unknown.meta.pop("interval_s")
    assert np.isnan(missed_instants(unknown))
