"""Quantities that are set side by side: the same of a recording and of a replay."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.numbers.progress import MISSED, served_at
from pagealloc_model.numbers.vocabulary import RUN_UNITS
from pagealloc_model.numbers.whole_run import (
    BESIDE,
    MEDIAN,
    PRESSED,
    beside,
    memory_pressure,
    predicted_numbers,
    recorded_numbers,
    recorded_pressure,
    set_by_policy,
)
from tests.small_recordings import shipped_recording, write_recording

RECORDING = "highatomic_gate3"


@pytest.fixture(scope="module")
def recording() -> pm.Recording:
    return shipped_recording(RECORDING)


@pytest.fixture(scope="module")
def recorded(recording: pm.Recording) -> dict[str, float]:
    return recorded_numbers(recording)


@pytest.fixture(scope="module")
def predicted(recording: pm.Recording) -> dict[str, dict[str, float]]:
    return {
        mode: predicted_numbers(
            recording, pm.replay(recording, assumptions=pm.Assumptions(reclaim=mode))
        )
        for mode in ("literal", "elastic")
    }


def test_both_have_the_same_quantities(
    recorded: dict[str, float], predicted: dict[str, dict[str, float]]
) -> None:
    states = {"free pages", "pages on per-CPU lists"}
    more = {name for name in recorded if name.split(" ")[0] in BESIDE}
    assert {beside(what, name) for what in BESIDE for name in states} <= more
    assert set(recorded) == set(RUN_UNITS) | more | {MISSED}
    assert all(set(values) == set(RUN_UNITS) | more for values in predicted.values())
    free = [recorded[beside(what, "free pages")] for what in (PRESSED, MEDIAN)]
    assert free[0] < free[1] < 2 * recorded["free pages"]
    unknown = [name for name, value in recorded.items() if math.isnan(value)]
    unshown = ("memory pressure full", MISSED)  # this recording's interval is not known
    assert all(name.endswith("served") or name in unshown for name in unknown)


def test_what_a_policy_sets_by_itself(recorded: dict[str, float]) -> None:
    assert set_by_policy(pm.Policy(min_free_kbytes=2048)) == set()
    small = set_by_policy(pm.Policy(huge_anon_orders=16))
    assert small <= set(recorded) and {"THP success", "anon order 9 asked"} <= small
    assert not [name for name in small if "order 4" in name or "order 0" in name]
    assert set_by_policy(pm.Policy(huge_anon_orders=1020)) == {
        f"anon order 1 {what}" for what in ("asked", "failed", "served")
    }


def test_free_memory_is_the_mean_over_the_loads_progress(
    recording: pm.Recording, recorded: dict[str, float]
) -> None:
    first, last = recording.trace.demand_span_ns
    totals = {
        snapshot.time_ns: sum(
            count << order
            for row in snapshot.pagetypeinfo.free_lists
            for order, count in enumerate(row.buddies)
        )
        for snapshot in recording.dated_snapshots
        if snapshot.pagetypeinfo
    }
    end = min(time_ns for time_ns in totals if time_ns > last)
    begin = max(time_ns for time_ns in totals if time_ns <= first)
    read = {time_ns: free for time_ns, free in totals.items() if begin <= time_ns <= end}
    served = served_at(recording)
    places = [float((served <= time_ns).mean()) for time_ns in read]
    mean = np.trapezoid(list(read.values()), places)
    assert recorded["free pages"] == pytest.approx(mean, rel=1e-2)
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
    shots = [shot for shot in recording.snapshots if shot.vmstat]
    before = [shot for shot in shots if shot.time_ns <= first] or shots[:1]
    after = [shot for shot in shots if shot.time_ns >= last] or shots[-1:]
    for name in ("pgscan_kswapd", "thp_fault_alloc"):
        change = after[0].vmstat.values[name] - before[-1].vmstat.values[name]
        assert recorded[name] == change


def test_what_was_not_recorded_is_not_known(tmp_path: Path) -> None:
    plain = recorded_numbers(pm.open(write_recording(tmp_path / "plain")))
    assert math.isnan(plain["fallbacks"]) and math.isnan(plain["drains"])
    directory = write_recording(tmp_path / "asked", perf=["kmem:mm_page_alloc_extfrag"])
    assert recorded_numbers(pm.open(directory))["fallbacks"] == 0


def test_smaller_pageblocks_are_counted_as_huge_pages(
    recorded: dict[str, float], tmp_path: Path
) -> None:
    shutil.copytree(pm.open(RECORDING).path, tmp_path / "smaller")
    for file in (tmp_path / "smaller").rglob("pagetypeinfo"):
        lists, blocks = file.read_text().split("Number of blocks")
        lists = lists.replace("order: 9", "order: 7").replace("512", "128")
        blocks = re.sub(r" \d+(?=\s)", lambda count: f" {4 * int(count[0])}", blocks)
        file.write_text(f"{lists}Number of blocks{blocks}")
    smaller = recorded_numbers(pm.open(tmp_path / "smaller"))
    names = ["Unmovable blocks added", "free pages in whole blocks", "free pages"]
    assert [smaller[name] for name in names] == [recorded[name] for name in names]
    assert recorded[names[0]] == 2


def test_memory_pressure_counts_what_overlaps_on_a_cpu_once() -> None:
    stalls = pd.DataFrame(
        {"cpu": [0, 0, 1], "begin_ns": [10, 12, 10], "ns": [10, 4, 5], "request": [1, 2, 3]}
    )
    work = pd.DataFrame({"cause": ["kswapd"], "cpu": [0], "begin_ns": [15], "ns": [15]})
    pressure = memory_pressure(stalls, work, 2)
    assert pressure["some"] * 1e9 == pytest.approx((20 + 5) / 2)
    assert pressure["full"] == pressure["some"]
    beside = pd.DataFrame({"cpu": [0, 0, 1], "begin_ns": [12, 13, 11], "ns": [4, 6, 2]})
    pressure = memory_pressure(stalls, work, 2, beside)
    assert pressure["some"] * 1e9 == pytest.approx((20 + 5) / 2)
    assert pressure["full"] * 1e9 == pytest.approx((20 - 7 + 5 - 2) / 2)
    assert memory_pressure(stalls[:0], work[:0], 2) == {"some": 0.0, "full": 0.0}


def test_the_kernel_s_own_pressure_is_between_snapshots(tmp_path: Path) -> None:
    shutil.copytree(pm.open("highatomic_gate3").path, tmp_path / "own")
    recording = pm.open(tmp_path / "own")
    assert recorded_pressure(recording) == {}
    for number, snapshot in enumerate(recording.snapshots):
        lines = [
            f"{name} avg10=0.00 avg60=0.00 avg300=0.00 total={number * us}\n"
            for name, us in (("some", 2_000_000), ("full", 1_000_000))
        ]
        (snapshot.directory / "pressure_memory").write_text("".join(lines))
    measured = recorded_pressure(pm.open(tmp_path / "own"))
    assert measured["some"] == 2 * measured["full"] > 0
    (recording.snapshots[-1].directory / "pressure_memory").write_text(lines[0])
    assert recorded_pressure(pm.open(tmp_path / "own")).keys() == {"some"}
