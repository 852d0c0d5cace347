"""What the patch of the score costs a request, as it ships."""

from __future__ import annotations

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.highatomic import score_cost
from pagealloc_model.notebooks.studies.highatomic.score_cost import request_costs


def test_ratios_are_of_rounds_with_and_without_the_patch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [("none", 1, 100.0), ("none", 2, 110.0), ("sent", 1, 121.0), ("sent", 1, 99.0)]
    table = pd.DataFrame(rows, columns=["side", "boot", "ns"]).assign(loop="order 0", held=1)
    monkeypatch.setattr(score_cost.pd, "read_csv", lambda _: table)
    (row,) = request_costs().to_dict(orient="records")
    assert row["ratio"] == pytest.approx(110 / 105)
    assert (row["least"], row["most"]) == pytest.approx((0.9, 1.21))
    assert (row["null_least"], row["null_most"]) == pytest.approx((100 / 110, 1.1))


def test_every_loop_was_run_with_and_without_the_patch() -> None:
    rows = request_costs().set_index(["loop", "held"])
    assert len(rows) == 9
    assert rows.notna().all(axis=None)
    assert ((rows["least"] <= rows["ratio"]) & (rows["ratio"] <= rows["most"])).all()
