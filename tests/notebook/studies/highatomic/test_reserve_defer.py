"""Guests whose faults wake kswapd, as they ship."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pagealloc_model.notebooks.studies.highatomic import reserve_defer
from pagealloc_model.notebooks.studies.highatomic.reserve_defer import (
    CHANGES,
    GROUPS,
    defer_boots,
    defer_rows,
)

from pagealloc_model.numbers.statistics import change_interval


def test_sides_are_the_registered_ones_and_their_boots_are_numbered(checkout: Path) -> None:
    folder = checkout / "data" / "experiments" / "reserve_defer"
    registered = tomllib.loads((folder / "registered.toml").read_text())
    groups = ("defer", "parts", "rule_73", "defer_madvise", "without_daemon", "as_sent")
    words = {"seen", "claim", "added", "kernels", "repeats"}
    sides = {side for group in groups for side in registered[group]} - words
    assert sides <= {start + end for start in CHANGES for end in GROUPS}
    for side, own in defer_boots().groupby("side"):
        assert side in sides
        assert sorted(own["boot"]) == list(range(1, len(own) + 1))


def test_changes_are_differences_of_means_to_no_change_of_the_same_group() -> None:
    boots = defer_boots()
    rows = defer_rows().set_index(["setting", "change"])
    before, after = (boots[boots["side"] == side] for side in ("none", "gate"))
    row = rows.loc[(GROUPS[""], CHANGES["gate"])]
    assert row["boots"] == len(after)
    assert row["change_mean"] == pytest.approx(after["thp"].mean() - before["thp"].mean())
    for name, column in (("change", "thp"), ("kswapd", "kswapd_scanned")):
        told = change_interval(before[column].to_list(), after[column].to_list())
        assert (row[f"{name}_low"], row[f"{name}_high"]) == pytest.approx(told)
    assert rows.loc[GROUPS[""]].loc["no change", "change_mean"] is not None


def test_boots_that_cannot_act_are_left_out_of_a_second_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No block reserved, but for the gate, which keeps it so; or nothing scanned by kswapd."""
    boots = defer_boots()
    boots.loc[boots["side"] == "gate", "acts"] = True
    first = boots.index[(boots["side"] == "none") & (boots["boot"] == 1)]
    boots.loc[boots["side"] == "none", "acts"] = True
    boots.loc[first, "acts"] = False
    monkeypatch.setattr(reserve_defer, "defer_boots", lambda: boots)
    rows = defer_rows().set_index(["setting", "change"])["boots"].loc[GROUPS[""]]
    assert rows["no change, boots that can act"] == rows["no change"] - 1
    assert rows["posted gate, boots that can act"] == rows["posted gate"]


def test_a_boot_acts_with_a_reserve_and_with_reclaim() -> None:
    boots = defer_boots()
    gated = boots["side"].str.startswith("gate")
    assert (boots.loc[gated, "blocks_quiet"] == 0).all()
    assert boots.loc[gated & (boots["kswapd_scanned"] > 0), "acts"].all()
    assert not boots.loc[~gated & (boots["blocks_quiet"] == 0), "acts"].any()
