"""What a policy changed between two recordings, beside its prediction from one of them."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.pair_prediction import (
    FILL,
    NEVER,
    PART_UNITS,
    pair_prediction,
    time_to_fill,
)

import pagealloc_model as pm
from pagealloc_model.verdict.quantities import ADDED
from pagealloc_model.verdict.statistics import NO_EFFECT
from tests.small_recordings import shipped_recording


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
