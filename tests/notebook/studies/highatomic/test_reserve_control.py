"""The control without proactive compaction, as it ships."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pagealloc_model.notebooks.studies.highatomic.reserve_control import (
    CONTROL_SIDES,
    control_boots,
    control_rows,
)

from pagealloc_model.numbers.statistics import change_interval


def test_sides_are_the_registered_ones_and_their_boots_are_numbered(checkout: Path) -> None:
    folder = checkout / "data" / "experiments" / "reserve_control"
    registered = tomllib.loads((folder / "registered.toml").read_text())
    words = {"seen", "claim", "right"}
    assert set(CONTROL_SIDES) == {*registered["sides"], *registered["khugepaged"]} - words
    for side, own in control_boots().groupby("side"):
        assert side in CONTROL_SIDES
        assert sorted(own["boot"]) == list(range(1, len(own) + 1))


def test_changes_are_differences_of_means_to_no_change_with_the_same_khugepaged() -> None:
    """A side of one boot has no interval; the unchanged side has no change."""
    boots = control_boots().groupby("side")["thp"].apply(list)
    rows = control_rows().set_index(["change", "khugepaged_defrag"])
    assert len(rows) == len(boots)
    for side, own in boots.items():
        change, defrag = CONTROL_SIDES[side]
        row, before = rows.loc[(change, defrag)], boots["none_0" if defrag else "none_d"]
        if change == "no change":
            assert row["points"] != row["points"]
            continue
        assert row["points"] == pytest.approx(sum(own) / len(own) - sum(before) / len(before))
        told = change_interval(before, own)
        assert tuple(row[["change_low", "change_high"]]) == pytest.approx(told, nan_ok=True)


def test_the_model_predicts_that_the_score_matters_with_proactive_compaction_alone() -> None:
    replays = control_boots("predicted").groupby(["source", "side"])["thp"].mean()
    assert replays["idle", "both_0"] == replays["idle", "none_0"]
    assert replays["idle", "patch_73"] > replays["idle", "own_73"]
    assert control_rows().set_index(["change", "khugepaged_defrag"])["predicted"].loc[
        ("score and index", 1)
    ] == pytest.approx(0)
