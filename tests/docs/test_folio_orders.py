"""The score by order on docs/folio_orders.md, with and without counts that start from 0."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.others.experiment_tables import shipped_experiment

from pagealloc_model.numbers.statistics import EFFECTS, RIGHT, WITHIN, verdict

ROWS = {
    "guest": ("folio_sizes", ""),
    "native": ("native_folio_sizes", "predicted.csv"),
    "native, later rules": ("native_folio_sizes", "predicted_mended.csv"),
}
"""First words of a row: its experiment, and the predictions if they are not in its changes."""


def judged_by_order(checkout: Path, plan: str, file: str) -> pd.DataFrame:
    """Elastic predictions of requests by order: before, verdict."""
    changes = shipped_experiment(plan).changes
    rows = changes[changes["metric"].str.match("anon order") & (changes["mode"] == "elastic")]
    if not file:
        return rows
    runs = pd.read_csv(checkout / "data" / "experiments" / plan / file)
    runs["pair"] = runs["from"] + " -> " + runs["to"]
    means = runs.groupby(["pair", "metric"])[["own", "predicted"]].mean()
    keys = pd.MultiIndex.from_arrays([rows["pair"].str.split(":").str[0], rows["metric"]])
    change = (means["predicted"] - means["own"]).reindex(keys).to_numpy()
    ends = zip(change, rows["low"], rows["high"], strict=True)
    return rows.assign(verdict=[verdict(*each) for each in ends])


@pytest.mark.parametrize("words", ROWS)
def test_the_score_is_that_of_the_shipped_changes(words: str, checkout: Path) -> None:
    page = (checkout / "docs" / "folio_orders.md").read_text()
    (row,) = re.findall(rf"^\| {words} \(.*$", page, re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
    rows = judged_by_order(checkout, *ROWS[words])
    effects = rows[rows["verdict"].isin(EFFECTS)]
    others = effects[effects["before"] != 0]
    counted = [
        (part["verdict"].isin((RIGHT, WITHIN)).sum(), (part["verdict"] == WITHIN).sum())
        for part in (effects, others)
    ]
    assert cells[:3] == [str(len(effects)), *map(str, counted[0])]
    assert cells[5] == str(len(effects) - len(others))
    assert cells[6:] == [f"{count} of {len(others)}" for count in counted[1]]
