"""The slope of measured changes over predicted ones."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.others.experiment_tables import (
    slope_table,
)


def test_the_slope_is_of_all_rows_in_half_widths() -> None:
    """Twice the prediction in each row but the last, whose half-width of 10 gives it little say."""
    rows = pd.DataFrame(
        {
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
