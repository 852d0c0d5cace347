"""Kernels with other pageblocks: one more model beside the modes of reclaim, and scores by pair."""

from __future__ import annotations

import pandas as pd
from pagealloc_model.notebooks.studies.others.pageblock_order import (
    ALONE,
    ELASTIC,
    scores_by_pair,
    with_alone,
)

from pagealloc_model.guests.experiment import MODES
from pagealloc_model.numbers.statistics import RIGHT, WITHIN, WRONG

ELASTIC_PREDICTS = {"within": 11.0, "right": 3.0, "quiet": 0.5}
ALONE_PREDICTS = {"within": -2.0, "right": 12.0, "quiet": 9.0}


def table_of_changes() -> pd.DataFrame:
    """A pair with two effects, of 8 to 12, and a quantity that did not change."""
    rows = []
    for mode in MODES[:2]:
        for metric, value in ELASTIC_PREDICTS.items():
            low, high = (-1.0, 1.0) if metric == "quiet" else (8.0, 12.0)
            found = {"within": WITHIN, "right": RIGHT}.get(metric, "no measurable effect")
            row = {"pair": "A -> B", "mode": mode, "metric": metric, "low": low, "high": high}
            rows.append({**row, "predicted": value, "verdict": found, "inside": metric != "right"})
    return pd.DataFrame(rows)


def test_the_setting_alone_is_judged_by_the_same_intervals() -> None:
    rows = [
        {"pair": "A -> B", "model": model, "metric": metric, "predicted": value}
        for model, values in ((ELASTIC, ELASTIC_PREDICTS), (ALONE, ALONE_PREDICTS))
        for metric, value in values.items()
    ]
    both = with_alone(table_of_changes(), pd.DataFrame(rows))
    alone = both[both["mode"] == ALONE].set_index("metric")
    assert alone["verdict"].to_dict() | {"quiet": ""} == {
        "within": WRONG,
        "right": WITHIN,
        "quiet": "",
    }
    assert alone["inside"].to_dict() == {"within": False, "right": True, "quiet": False}
    scores = scores_by_pair(both).set_index("model")
    columns = ["measurable", "predicted", "right", "wrong", "quiet", "quiet_inside"]
    assert scores.loc[ELASTIC, columns].tolist() == [2, 1, 1, 0, 1, 1]
    assert scores.loc[ALONE, columns].tolist() == [2, 1, 0, 1, 1, 0]
    assert scores.loc["no change", columns].tolist() == [2, 0, 0, 2, 1, 1]
