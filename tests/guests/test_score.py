"""The slope of measured changes over predicted ones, and how many have the right size."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from pagealloc_model.guests.score import score_table, slope_table
from pagealloc_model.numbers.statistics import WITHIN


def test_the_slope_is_of_all_rows_in_half_widths() -> None:
    """Twice the prediction in each row but the last, whose half-width of 10 gives it little say."""
    rows = pd.DataFrame(
        {
            "pair": [f"A -> B: x 0 -> {value}" for value in range(5)],
            "axis": ["x", "x", "y", "x", "x"],
            "mode": "elastic",
            "metric": ["free pages", "free pages", "free pages", "drains", "drains"],
            "predicted": [1.0, -2.0, 30.0, float("nan"), 0.0],
            "change": [2.0, -4.0, 30.0, 5.0, 1.0],
            "low": [1.0, -5.0, 20.0, 4.0, 0.0],
            "high": [3.0, -3.0, 40.0, 6.0, 2.0],
            "inside": [True, False, True, False, True],
        }
    )
    rows.index = [0, 1, 0, 1, 0]  # as of tables put together
    table = slope_table(rows).set_index("metric")
    # in half-widths 1 -> 2, -2 -> -4, 3 -> 3: (2 + 8 + 9) / (1 + 4 + 9)
    assert table.loc["free pages", "slope"] == pytest.approx(19 / 14)
    assert table.loc["free pages", "low"] < 19 / 14 < table.loc["free pages", "high"]
    assert table["rows"].to_dict() == {"free pages": 3, "drains": 1}
    assert table["hold"].to_dict() == {"free pages": 2, "drains": 1}
    assert math.isnan(table.loc["drains", "slope"])
    # of the weights 1 + 4 and 9 the second is of y alone; without it 2 and 8 remain over 1 and 4
    assert table.loc["free pages", "heaviest"] == "y"
    assert table.loc["free pages", ["weight", "without"]].tolist() == [pytest.approx(9 / 14), 2.0]
    assert math.isnan(table.loc["drains", "weight"])


def test_a_size_is_counted_from_eight_rows_on() -> None:
    def score(rows: int, size: float) -> dict[str, object]:
        changes = pd.DataFrame(
            {
                "pair": [f"A -> B: x 0 -> {value}" for value in range(1, rows + 1)],
                "axis": "x",
                "mode": "elastic",
                "metric": "drains",
                "verdict": WITHIN,
                "predicted": 10.0,
                "change": 10.0 * size,
                "low": 10.0 * size - 1,
                "high": 10.0 * size + 1,
                "inside": size == 1.0,
            }
        )
        return score_table(changes).set_index("model").loc["elastic"].to_dict()

    of = {rows: score(rows, 1.2) for rows in (7, 8)}
    assert [(of[rows]["sized"], of[rows]["right_size"]) for rows in of] == [(0, 0), (1, 1)]
    assert score(8, 1.3)["right_size"] == score(8, 0.7)["right_size"] == 0
