"""Designs and the words of `--vary`; summaries of a sweep: one axis at a time, Pareto fronts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.sweeps import one_at_a_time, space_filling
from pagealloc_model.sweeps.design import Settings, grid, parse_vary
from pagealloc_model.sweeps.sweep import SweepResult


def test_designs_have_each_point_once() -> None:
    assert grid({"pcp_batch": [15, 31, 15], "costly_order": [0, 3]}) == [
        {"pcp_batch": batch, "costly_order": order} for batch in (15, 31) for order in (0, 3)
    ]
    points = one_at_a_time({"pcp_batch": [15, 31], "costly_order": [0]})
    assert points == [{}, {"pcp_batch": 15}, {"pcp_batch": 31}, {"costly_order": 0}]
    few = space_filling({"pcp_free_batched": None}, 9)
    assert sorted(point["pcp_free_batched"] for point in few) == [False, True]


def test_a_space_filling_design_covers_each_axis_evenly() -> None:
    ranges = {"pcp_batch": (1, 64), "pcp_free_batched": None, "costly_order": (0, 7)}
    points = space_filling(ranges, 64, seed=3)
    assert sorted(point["pcp_batch"] for point in points) == list(range(1, 65))
    assert [point["costly_order"] for point in points].count(5) == 8
    assert [point["pcp_free_batched"] for point in points].count(True) == 32
    assert points == space_filling(ranges, 64, seed=3)
    assert points != space_filling(ranges, 64, seed=4)


def test_words_of_vary_are_lists_and_ranges_of_their_kind() -> None:
    words = [
        "pcp_batch=15,31:33,none",
        "costly_order=0:9:3",
        "pcp_free_batched=0,1",
        "rules=6.12,6.18",
        "assumptions.counters=exact,lagged",
        "assumptions.decay_phase_ns=0:1000:500",
    ]
    assert parse_vary(words) == {
        "pcp_batch": [15, 31, 32, 33, None],
        "costly_order": [0, 3, 6, 9],
        "pcp_free_batched": [False, True],
        "rules": ["6.12", "6.18"],
        "assumptions.counters": ["exact", "lagged"],
        "assumptions.decay_phase_ns": [0, 500, 1000],
    }


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["pcp_batch"], UsageError, "write FIELD=VALUE"),
        (["pcp_batch=1", "pcp_batch=2"], UsageError, "named twice"),
        (["pcp_batch=9:1"], UsageError, "START to STOP"),
        (["pcp_batch=1:x"], UsageError, "whole numbers"),
        (["highatomic_from_pcp=maybe"], PolicyError, "write 0 or 1"),
        (["pcp_batch=many"], PolicyError, "write a whole number"),
        (["pcp_bat=3"], PolicyError, "cannot vary 'pcp_bat'; did you mean pcp_batch"),
        (["assumptions.luck=3"], PolicyError, "cannot vary 'assumptions.luck'"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    words: list[str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        parse_vary(words)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pcp_batch": 0}, "outside 1 to 511"),
        ({"costly_order": True}, "write a whole number"),
        ({"policy": 3}, "give a Policy"),
        ({"rules": "5.4"}, "5.4"),
        ({"assumptions.counters": "guessed"}, "guessed"),
    ],
)
def test_values_no_replay_takes_are_refused_before_it(values: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        Settings().with_values(values)


def test_a_field_goes_on_top_of_a_whole_policy() -> None:
    settings = Settings().with_values(
        {"pcp_batch": 15, "policy": pm.Policy(pcp_batch=63, costly_order=5)}
    )
    assert settings.policy == pm.Policy(pcp_batch=15, costly_order=5)


def test_none_is_as_recorded_whatever_all_points_have_in_common() -> None:
    base = Settings(policy=pm.Policy(pcp_batch=15, costly_order=5))
    assert base.with_values({"pcp_batch": None}).policy == pm.Policy(costly_order=5)


def test_nested_fields_go_by_dotted_names() -> None:
    name = "ownership.fit_test"
    words = policy_settings()[name].metadata["choices"]
    assert parse_vary([f"{name}={','.join(words)}"]) == {name: list(words)}
    point = {name: words[-1], "pageblock_ownership": "pcp_buddy"}
    assert Settings().with_values(point).policy.given() == point


AXES = ("pcp_batch", "costly_order")


def rows_of(points: list[tuple[int | None, int | None, float, float]]) -> pd.DataFrame:
    """A sweep's table of two axes and two metrics, both better when lower."""
    frame = pd.DataFrame(points, columns=[*AXES, "zone_lock_hold_ns", "unusable_index_pageblock"])
    for axis in AXES:
        frame[axis] = frame[axis].astype("Int64")
    frame.insert(0, "recording", "made up")
    frame["free_in_whole_blocks"] = -frame["unusable_index_pageblock"]
    return frame.assign(seed=0, error="", version="0", model="m", effective_rules="6.18")


def swept(rows: pd.DataFrame) -> SweepResult:
    return SweepResult(rows=rows, axes=AXES)


ONE_AT_A_TIME = rows_of(
    [(None, None, 100, 0.5), (15, None, 400, 0.5), (63, None, 50, 0.5), (None, 0, 90, 0.25)]
)


def test_sensitivity_is_the_swing_of_one_axis_alone() -> None:
    both = rows_of([(15, 0, 9000, 0.1)])
    effects = swept(pd.concat([ONE_AT_A_TIME, both])).sensitivity("zone_lock_hold_ns")
    assert list(effects.summary["axis"]) == ["pcp_batch", "costly_order"]
    first, second = effects.summary.itertuples()
    assert (first.lowest, first.lowest_at, first.highest, first.highest_at) == (50, 63, 400, 15)
    assert first.swing == 350
    assert (second.lowest, second.highest, second.highest_at) == (90, 100, "as recorded")
    assert list(effects.values["change"]) == [3.0, -0.5, pytest.approx(-0.1)]


def test_sensitivity_of_a_grid_without_a_recorded_point_starts_from_its_first() -> None:
    grid = rows_of([(15, 0, 10, 0), (15, 3, 20, 0), (31, 0, 30, 0), (31, 3, 80, 0)])
    effects = swept(grid).sensitivity("zone_lock_hold_ns")
    assert list(effects.summary["swing"]) == [20, 10]


def test_sensitivity_needs_points_that_differ_in_one_field() -> None:
    with pytest.raises(UsageError, match="in one field alone"):
        swept(rows_of([(15, 0, 1, 0), (31, 3, 1, 0)])).sensitivity("zone_lock_hold_ns")
    with pytest.raises(UsageError, match="no metric 'speed'"):
        swept(ONE_AT_A_TIME).sensitivity("speed")


def test_the_front_agrees_with_comparing_all_pairs() -> None:
    costs = np.random.default_rng(1).integers(0, 8, (60, 2)).astype(float)
    points = (
        swept(rows_of([(n, None, *own) for n, own in enumerate(costs.tolist())])).pareto().points
    )
    costs = points[["zone_lock_hold_ns", "unusable_index_pageblock"]].to_numpy()
    beaten = [any((other <= own).all() and (other < own).any() for other in costs) for own in costs]
    assert points["on_front"].tolist() == [not is_beaten for is_beaten in beaten]


def test_more_is_better_where_a_metric_says_so() -> None:
    lower = swept(ONE_AT_A_TIME).pareto()
    higher = swept(ONE_AT_A_TIME).pareto("zone_lock_hold_ns", "free_in_whole_blocks")
    assert list(lower.points["on_front"]) == list(higher.points["on_front"])
    assert list(lower.front["zone_lock_hold_ns"]) == [50, 90]


def test_fronts_are_of_one_recording_each() -> None:
    other = ONE_AT_A_TIME.assign(recording="another", zone_lock_hold_ns=1e6)
    pareto = swept(pd.concat([ONE_AT_A_TIME, other])).pareto()
    assert set(pareto.front["recording"]) == {"made up", "another"}
