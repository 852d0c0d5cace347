"""Summaries of a sweep: one axis at a time, Pareto fronts, and their mail tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.show.figures import sweep_lines
from pagealloc_model.studies.sweeps.results import on_front, pareto, sensitivity
from tests.show.test_post import assert_mailable

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


def test_the_front_is_what_no_point_beats() -> None:
    costs = np.array([[1, 9], [2, 9], [3, 5], [3, 5], [4, 6], [9, 1], [9, 2]], float)
    assert list(on_front(costs)) == [True, False, True, True, False, True, False]


def test_the_front_agrees_with_comparing_all_pairs() -> None:
    costs = np.random.default_rng(1).integers(0, 8, (60, 2)).astype(float)
    beaten = [any((other <= own).all() and (other < own).any() for other in costs) for own in costs]
    assert list(on_front(costs)) == [not each for each in beaten]


def test_more_is_better_where_a_metric_says_so() -> None:
    lower = pareto(ONE_AT_A_TIME, AXES)
    higher = pareto(ONE_AT_A_TIME, AXES, "zone_lock_hold_ns", "free_in_whole_blocks")
    assert list(lower.points["on_front"]) == list(higher.points["on_front"])
    assert list(lower.front["zone_lock_hold_ns"]) == [50, 90]


def test_fronts_are_of_one_recording_each() -> None:
    other = ONE_AT_A_TIME.assign(recording="another", zone_lock_hold_ns=1e6)
    found = pareto(pd.concat([ONE_AT_A_TIME, other]), AXES)
    assert set(found.front["recording"]) == {"made up", "another"}


def test_tables_survive_a_mail() -> None:
    swings = sensitivity(ONE_AT_A_TIME, AXES, "zone_lock_hold_ns").to_text()
    assert_mailable(swings)
    assert "63 .. 15" in swings
    front = pareto(ONE_AT_A_TIME, AXES).to_text()
    assert_mailable(front)
    assert "pcp_batch=63" in front
    assert "2 of 4 points" in front


def test_figures_show_every_point() -> None:
    found = sensitivity(ONE_AT_A_TIME, AXES, "zone_lock_hold_ns")
    swings = found.figure()
    bars = swings.data[0]
    assert list(bars.y) == ["pcp_batch", "costly_order"]
    assert list(bars.base) == [50, 90]
    labels = ("pcp_batch: 63 .. 15", "costly_order: 0 .. as recorded")
    assert swings.layout.yaxis.ticktext == labels
    assert swings.layout.yaxis.tickvals == tuple(bars.y)
    still = replace(found, summary=found.summary.assign(swing=0.0))
    assert still.figure().layout.yaxis.ticktext[0] == "pcp_batch: no effect"
    points, front = pareto(ONE_AT_A_TIME, AXES).figure().data
    assert sorted(points.x) == [50, 90, 100, 400]
    assert list(front.x) == [50, 90]


def test_lines_go_along_one_axis_for_each_combination_of_the_others() -> None:
    grid = rows_of([(15, 0, 10, 0), (31, 0, 30, 0), (15, 3, 20, 0), (31, 3, 80, 0)])
    again = grid.assign(seed=1, zone_lock_hold_ns=grid["zone_lock_hold_ns"] + 2)
    figure = sweep_lines(
        pd.concat([grid, again]), AXES, "pcp_batch", ["zone_lock_hold_ns", "free_in_whole_blocks"]
    )
    lines = {(trace.name, trace.yaxis): trace for trace in figure.data}
    assert set(lines) == {
        (f"made up costly_order={order}", panel) for order in (0, 3) for panel in ("y", "y2")
    }
    first = lines["made up costly_order=3", "y"]
    assert (list(first.x), list(first.y)) == ([15, 31], [21, 81])
