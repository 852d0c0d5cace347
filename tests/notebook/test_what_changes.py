"""What a candidate changes, told below the explorer's figures."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import pagealloc_model as pm
from pagealloc_model.notebook.explore import RecordingExplorer
from pagealloc_model.notebook.what_changes import _in_words
from tests.notebook.test_explore import settle


def test_what_changes_is_told_with_a_range(explorer: RecordingExplorer) -> None:
    assert "The candidate is the base" in explorer.difference.value
    explorer.controls.values["pcp_batch"].value = 2
    settle(explorer)
    comparison = pm.compare(
        pm.replay(explorer.recording), pm.replay(explorer.recording, pm.Policy(pcp_batch=2))
    )
    rows = comparison.rows
    moved = rows[rows["patch"].notna() & (rows["patch"] != rows["base"])]
    assert len(moved)
    for metric in moved["metric"]:
        assert metric in explorer.difference.value
    drawn = moved[["change_low", "change_high"]].notna().all(axis=1).sum()
    assert 0 < drawn == explorer.difference.value.count("<svg")
    assert "nan" not in explorer.difference.value
    explorer.controls.reset()
    settle(explorer)


def test_no_effect_is_said_of_the_table_too(explorer: RecordingExplorer) -> None:
    explorer.tabs.value = "outcomes"
    settle(explorer)
    explorer.controls.values["pcp_batch"].value = 2
    settle(explorer)
    assert "nothing moves in this tab; " in explorer.status.value
    explorer.controls.values["ownership.recovers"].value = False
    settle(explorer)
    assert "no effect here: " in explorer.status.value
    explorer.controls.reset()
    explorer.tabs.value = "fragmentation"
    settle(explorer)


@pytest.mark.parametrize(
    ("patch", "said"), [(7, "3.5 x, from 2 to 7"), (16842, "8,421 x, from 2 to 16,842")]
)
def test_a_large_change_is_told_as_a_factor(patch: float, said: str) -> None:
    row = SimpleNamespace(metric="drains", scope="all", unit="", base=2.0, patch=float(patch))
    assert _in_words(row) == f"raises drains {said}"
