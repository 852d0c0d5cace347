"""Trends of shares served, their interval and null model; the series' steps as policies."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.round_trend import rounds_of_sides, series, trends

import pagealloc_model as pm
from pagealloc_model.policy.policy import policy_numbers


def made(slopes: dict[str, float], noise: float = 0.0) -> pd.DataFrame:
    """Four seeds a side; the share falls by so much from one end to the other."""
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        [
            {
                "recording": "made",
                "side": side,
                "seed": seed,
                "round": number,
                "served": 0.9 + slope * number / 10 + noise * rng.standard_normal(),
            }
            for side, slope in slopes.items()
            for seed in range(4)
            for number in range(1, 12)
        ]
    )


def test_a_trend_is_judged_by_its_interval_and_the_first_round_is_left_out() -> None:
    table = made({"falls": -0.5, "stays": 0.0}, noise=0.01)
    table.loc[table["round"] == 1, "served"] = 0.0
    found = trends(table).set_index("side")
    assert found.loc["falls", "trend"] == pytest.approx(-25, abs=2)
    assert (
        found.loc["falls", "low"] <= found.loc["falls", "trend"] <= found.loc["falls", "high"] < 0
    )
    assert list(found["decays"]) == [True, False]
    assert found.loc["stays", "low"] <= 0 <= found.loc["stays", "high"]


def test_one_run_has_no_interval_and_no_verdict() -> None:
    table = made({"falls": -0.5})
    found = trends(table[table["seed"] == 0]).iloc[0]
    assert np.isnan(found["low"])
    assert found["decays"] is pd.NA


def test_all_recordings_together_have_a_row() -> None:
    table = made({"falls": -0.5})
    both = pd.concat([table, table.assign(recording="other")])
    found = trends(both)
    assert list(found["recording"]) == ["made", "other", "all"]
    assert list(found["runs"]) == [4, 4, 8]


def test_each_step_of_the_series_changes_one_thing() -> None:
    steps = list(series().values())
    for before, after in pairwise(steps):
        changed = {
            name for name, value in after.given().items() if before.given().get(name) != value
        }
        assert len(changed) == 1


def test_the_last_step_is_what_7_3_does() -> None:
    rules = pm.KernelRules.preset("7.3")
    whole = pm.Policy(defrag_mode=True, defrag_kswapd_assist=True, defrag_watermarks=True)
    last = list(series().values())[-1]
    assert last.defrag_atomic_falls_back == rules.defrag_mode_fixes
    assert policy_numbers(last, rules) | {"defrag_atomic_falls_back": 1} == policy_numbers(
        whole, rules
    )


def test_sides_see_the_same_and_are_told_apart() -> None:
    sides = {"one": pm.Policy(thp_defrag="always"), "same": pm.Policy(thp_defrag="always")}
    table = rounds_of_sides([pm.open("mixed_6.1")], sides, (0,), rounds=1)
    one, same = (table[table["side"] == side].reset_index(drop=True) for side in sides)
    assert one.drop(columns="side").equals(same.drop(columns="side"))
    assert table["served"].between(0, 1).all()
