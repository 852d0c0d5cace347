"""Summaries of a sweep: one axis at a time, Pareto fronts, and their mail tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.studies.sweeps.sweep import pareto, sensitivity

AXES = ("pcp_batch", "costly_order")


def rows_of(points: list[tuple[int | None, int | None, float, float]]) -> pd.DataFrame:
    """A sweep's table of two axes and two metrics, both better when lower."""
    frame = pd.DataFrame(points, columns=[*AXES, "zone_lock_hold_ns", "unusable_index_pageblock"])
    for axis in AXES:
        frame[axis] = frame[axis].astype("Int64")
    frame.insert(0, "recording", "made up")
    frame["free_in_whole_blocks"] = -frame["unusable_index_pageblock"]
    return frame.assign(seed=0, error="", version="0", model="m", effective_rules="6.18")


ONE_AT_A_TIME = rows_of(
    [(None, None, 100, 0.5), (15, None, 400, 0.5), (63, None, 50, 0.5), (None, 0, 90, 0.25)]
)


def test_sensitivity_is_the_swing_of_one_axis_alone() -> None:
    both = rows_of([(15, 0, 9000, 0.1)])
    found = sensitivity(pd.concat([ONE_AT_A_TIME, both]), AXES, "zone_lock_hold_ns")
    assert list(found.summary["axis"]) == ["pcp_batch", "costly_order"]
    first, second = found.summary.itertuples()
    assert (first.lowest, first.lowest_at, first.highest, first.highest_at) == (50, 63, 400, 15)
    assert first.swing == 350
    assert (second.lowest, second.highest, second.highest_at) == (90, 100, "as recorded")
    assert list(found.values["change"]) == [3.0, -0.5, pytest.approx(-0.1)]


def test_sensitivity_of_a_grid_without_a_recorded_point_starts_from_its_first() -> None:
    grid = rows_of([(15, 0, 10, 0), (15, 3, 20, 0), (31, 0, 30, 0), (31, 3, 80, 0)])
    found = sensitivity(grid, AXES, "zone_lock_hold_ns")
    assert list(found.summary["swing"]) == [20, 10]


def test_sensitivity_needs_points_that_differ_in_one_field() -> None:
    with pytest.raises(UsageError, match="in one field alone"):
        sensitivity(rows_of([(15, 0, 1, 0), (31, 3, 1, 0)]), AXES, "zone_lock_hold_ns")
    with pytest.raises(UsageError, match="no metric 'speed'"):
        sensitivity(ONE_AT_A_TIME, AXES, "speed")


def test_the_front_agrees_with_comparing_all_pairs() -> None:
    costs = np.random.default_rng(1).integers(0, 8, (60, 2)).astype(float)
    points = pareto(rows_of([(n, None, *own) for n, own in enumerate(costs.tolist())]), AXES).points
    costs = points[["zone_lock_hold_ns", "unusable_index_pageblock"]].to_numpy()
    beaten = [any((other <= own).all() and (other < own).any() for other in costs) for own in costs]
    assert points["on_front"].tolist() == [not is_beaten for is_beaten in beaten]


def test_more_is_better_where_a_metric_says_so() -> None:
    lower = pareto(ONE_AT_A_TIME, AXES)
    higher = pareto(ONE_AT_A_TIME, AXES, "zone_lock_hold_ns", "free_in_whole_blocks")
    assert list(lower.points["on_front"]) == list(higher.points["on_front"])
    assert list(lower.front["zone_lock_hold_ns"]) == [50, 90]


def test_fronts_are_of_one_recording_each() -> None:
    other = ONE_AT_A_TIME.assign(recording="another", zone_lock_hold_ns=1e6)
    found = pareto(pd.concat([ONE_AT_A_TIME, other]), AXES)
    assert set(found.front["recording"]) == {"made up", "another"}
