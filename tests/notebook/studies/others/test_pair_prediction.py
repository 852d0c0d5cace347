"""Recordings with a policy off and on: which counters compare, and what is predicted of one."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.others import policy_pairs as pressure_pair
from pagealloc_model.notebooks.studies.others.pair_prediction import (
    FILL,
    NEVER,
    PART_UNITS,
    pair_prediction,
    time_to_fill,
)

import pagealloc_model as pm
from pagealloc_model.numbers.statistics import NO_EFFECT
from pagealloc_model.numbers.vocabulary import ADDED
from pagealloc_model.policy.policy import Policy
from tests.small_recordings import shipped_recording

RECORDED = {
    "off": {"far": 100, "near": 100},
    "same": {"far": 110, "near": 110},
    "on": {"far": 200, "near": 115},
}


def measured(name: str) -> SimpleNamespace:
    """Two snapshots, the counters' changes between them."""
    rows = [
        (counter, time_ns, value if time_ns else 0)
        for counter, value in RECORDED[name].items()
        for time_ns in (0, 1)
    ]
    return SimpleNamespace(
        name=name, vmstat=pd.DataFrame(rows, columns=["name", "time_ns", "value"])
    )


@pytest.fixture
def fixed_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model says 1 with the policy off and 2 with it on, whatever the recording."""

    def counters(policy: Policy, recorded: SimpleNamespace) -> pd.DataFrame:
        values = RECORDED[recorded.name]
        predicted = 2 if policy.defrag_mode else 1
        return pd.DataFrame(
            {"name": list(values), "measured": list(values.values()), "predicted": predicted}
        )

    monkeypatch.setattr(pm, "replay", lambda _, policy, assumptions: policy)
    monkeypatch.setattr(pressure_pair, "pressure_counters", counters)
    monkeypatch.setattr(pressure_pair, "forget_prepared", lambda _: None)
    monkeypatch.setattr(pressure_pair, "recorded_costs", lambda _: None)


@pytest.mark.usefixtures("fixed_predictions")
def test_only_what_differs_by_more_than_twice_the_spread_is_measurable() -> None:
    sides = (SimpleNamespace(measure=partial(measured, name)) for name in ("off", "on", "same"))
    table = pressure_pair.counters_of_pair(*sides, "defrag_mode").set_index("name")
    assert table["measurable"].to_dict() == {"far": True, "near": False}
    assert table.loc["far", ["off", "same", "on"]].tolist() == [100, 110, 200]
    assert table["from_off_off"].tolist() == table["from_on_off"].tolist() == [1, 1]
    assert table["from_off_on"].tolist() == table["from_on_on"].tolist() == [2, 2]
    assert table["verdict"].to_dict() == {
        "far": "measured +100%, predicted +100%",
        "near": "no measurable effect, predicted +100%",
    }


def test_the_reserve_is_full_when_it_has_the_most_that_it_gets() -> None:
    blocks = pd.Series([5.0, 5.0, 20.0, 20.0], index=[0, 1_000_000_000, 3_000_000_000, 4_000])
    assert time_to_fill(blocks, 1_000_000_000) == 2.0
    assert time_to_fill(blocks.iloc[:2], 0) == NEVER


@pytest.mark.long
def test_the_reserve_of_the_guests_is_what_the_gate_changed() -> None:
    off, on = shipped_recording("highatomic_stock"), shipped_recording("highatomic_gate3")
    own = pm.Assumptions(reclaim="elastic")
    table = pair_prediction(off, on, pm.Policy(highatomic_gate_order=3), own)
    assert table["quantity"].to_list() == list(PART_UNITS)
    rows = table.set_index("quantity")
    assert rows.loc[ADDED, ["off", "on", "verdict"]].to_list() == [15, 0, "counts"]
    assert rows.loc[ADDED, "predicted"] <= 0
    assert math.isinf(rows.loc[FILL, "on"])
    assert math.isinf(rows.loc[FILL, "predicted"])
    assert (rows["null"] == rows["off"]).all()
    assert rows.loc["extfrag events", "verdict"] == NO_EFFECT


def test_recordings_without_fallbacks_events_are_refused() -> None:
    kbuild = shipped_recording("kbuild")
    with pytest.raises(pm.PageallocError, match="kbuild: a pair's fallbacks are compared by"):
        pair_prediction(kbuild, kbuild, pm.Policy(), pm.Assumptions())


def test_recordings_of_two_machines_are_no_pair() -> None:
    off, on = shipped_recording("highatomic_stock"), shipped_recording("kbuild")
    with pytest.raises(pm.PageallocError, match="kbuild: is of another machine than highatomic_st"):
        pair_prediction(off, on, pm.Policy(), pm.Assumptions())
