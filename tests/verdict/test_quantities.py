"""Quantities that are set side by side: the same of a recording and of a replay."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.verdict.quantities import (
    WHOLE_UNITS,
    predicted_quantities,
    recorded_quantities,
)
from tests.small_recordings import shipped_recording, write_recording

RECORDING = "highatomic_gate3"


@pytest.fixture(scope="module")
def recording() -> pm.Recording:
    return shipped_recording(RECORDING)


@pytest.fixture(scope="module")
def recorded(recording: pm.Recording) -> dict[str, float]:
    return recorded_quantities(recording)


@pytest.fixture(scope="module")
def predicted(recording: pm.Recording) -> dict[str, dict[str, float]]:
    return {
        mode: predicted_quantities(
            recording, pm.replay(recording, assumptions=pm.Assumptions(reclaim=mode))
        )
        for mode in ("literal", "elastic")
    }


def test_both_have_the_same_quantities(
    recorded: dict[str, float], predicted: dict[str, dict[str, float]]
) -> None:
    assert set(recorded) == set(WHOLE_UNITS)
    assert all(set(values) == set(WHOLE_UNITS) for values in predicted.values())
    assert not any(math.isnan(value) for value in recorded.values())


def test_free_memory_is_the_mean_of_the_snapshots(
    recording: pm.Recording, recorded: dict[str, float]
) -> None:
    first, last = recording.trace.demand_span_ns
    totals = [
        sum(
            count << order
            for row in each.pagetypeinfo.free_lists
            for order, count in enumerate(row.buddies)
        )
        for each in recording.dated_snapshots
        if each.pagetypeinfo and first <= each.time_ns <= last
    ]
    assert recorded["free pages"] == pytest.approx(sum(totals) / len(totals), rel=1e-3)
    by_type = sum(
        recorded[f"free {name} pages"]
        for name in ("Unmovable", "Movable", "Reclaimable", "HighAtomic")
    )
    assert by_type == pytest.approx(recorded["free pages"])


def test_counters_are_those_of_the_whole_recording(
    recording: pm.Recording, recorded: dict[str, float]
) -> None:
    """From the last snapshot before the first event to the first one after the last."""
    first, last = recording.trace.demand_span_ns
    shots = [each for each in recording.snapshots if each.vmstat]
    before = [each for each in shots if each.time_ns <= first] or shots[:1]
    after = [each for each in shots if each.time_ns >= last] or shots[-1:]
    for name in ("pgscan_kswapd", "thp_fault_alloc"):
        change = after[0].vmstat.values[name] - before[-1].vmstat.values[name]
        assert recorded[name] == change


def test_what_was_not_recorded_is_not_known(tmp_path: Path) -> None:
    plain = recorded_quantities(pm.open(write_recording(tmp_path / "plain")))
    assert math.isnan(plain["fallbacks"]) and math.isnan(plain["drains"])
    asked = write_recording(tmp_path / "asked", perf=["kmem:mm_page_alloc_extfrag"])
    assert recorded_quantities(pm.open(asked))["fallbacks"] == 0
