"""Tables of comparisons as text: changes, their worth, sources."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.numbers.result_tables import (
    Style,
    comparison_table,
    error_cell,
    in_measure,
    null_cell,
)
from pagealloc_model.show.post import Footer, posted_figures
from tests import synthetic_tables as tables

FOOTER = Footer(
    recording="highatomic_stock",
    kernel="6.12.117, rules 6.12",
    policy_difference="highatomic_gate_order: as recorded -> 3",
    version="0.1.0",
    lost_events=99514,
    divergences={"forced": 12, "orphan_free": 0},
)


@pytest.mark.parametrize("style", ["signed", "mmtests"])
def test_comparisons_survive_a_mail(style: Style) -> None:
    rows = tables.comparison_rows()
    long = rows.assign(scope="zone=Normal,cpu=12,order=9,migratetype=Reclaimable,interval=17")
    for table in (rows, long):
        text = comparison_table(table, FOOTER, style=style)
        assert text.isascii() and "\t" not in text
        assert max(map(len, text.splitlines())) <= 72
        for part in ("highatomic_stock", "6.12.117", "gate_order", "0.1.0", "99,514", "forced 12"):
            assert part in text
        assert "Sign rule" in text and "NA" in text and "orphan_free" not in text


def test_changes_say_whether_they_are_better() -> None:
    signed = comparison_table(tables.comparison_rows(), FOOTER)
    assert "20      0   -100%  +" in signed
    assert "17000  23000  +35.3%  +" in signed
    assert "No recording shows the model's error" in " ".join(signed.split())
    gains = comparison_table(tables.comparison_rows(), FOOTER, style="mmtests")
    assert "20.00 (   0.00%)      0.00 ( 100.00%)" in gains
    assert "17000.00 (   0.00%)  23000.00 (  35.29%)" in gains


def test_a_judged_table_says_what_each_change_is_worth() -> None:
    text = comparison_table(tables.judged_rows(), FOOTER, first="Believe 1 of 3 changes.")
    assert text.startswith("Believe 1 of 3 changes.")
    assert "-100%   -105%  -95.0%  -5.0%  -100.0%    better" in text
    assert "+94.1%  30.0%    40.0%  in error" in text
    assert "Not known here, hence NA: thp_success." in text
    starred = comparison_table(tables.judged_rows(), FOOTER, style="mmtests")
    assert "*0.00 ( 100.00%)*" in starred
    assert "*23000.00" not in starred


@pytest.mark.parametrize(
    ("measured", "predicted", "counted", "unit", "error", "shown"),
    [
        (2.0, 2.0, 2.0, "transactions", 0.0, "2/2"),
        (9.0, 7.4, 9.0, "events", -0.18, "7.4/9"),
        (10.0, 7.0, 10.0, "events", -0.3, "-30.0%"),
        (3773.0, 3782.0, 2.0, "pages", 0.002, "3782/3773"),
        (3773.0, 3782.0, 12.0, "pages", 0.002, "+0.2%"),
        (0.0, 12.0, 0.0, "events", math.nan, "12/0"),
        (math.nan, 12.0, math.nan, "events", math.nan, "NA"),
        (4.0, 6.0, 4.0, "pages, error in share of range", 0.5, "50.0%"),
        (0.0, 6.0, 0.0, "pages, error in share of range", math.nan, "+6n"),
        (0.5, 0.4, 0.5, "share", -0.1, "-0.1000"),
        (0.0, 0.2, 0.0, "total variation", 0.2, "0.2000"),
    ],
)
def test_errors_of_fewer_than_ten_events_are_counts(
    measured: float, predicted: float, counted: float, unit: str, error: float, shown: str
) -> None:
    row = {"measured": measured, "predicted": predicted, "counted": counted, "unit": unit}
    row |= {"error": error, "null": 1.0, "null_error": 0.0}
    assert error_cell(SimpleNamespace(**row)) == shown
    if "/" in shown:
        assert null_cell(SimpleNamespace(**row | {"null_error": error})).startswith("1/")


@pytest.mark.parametrize(
    ("base", "patch", "unit", "shown"),
    [
        (2.0, 28.0, "events", "+26n"),
        (0.0, 3.0, "events", "+3n"),
        (30.0, 900.0, "events", "+870n"),
        (100.0, 25.0, "pages", "-75.0%"),
        (0.25, 0.5, "share", "+25.0pt"),
        (12.0, 0.5, "ms", "-95.8%"),
        (0.0, 0.5, "ms", "+0.5n"),
    ],
)
def test_no_percentage_of_a_count_near_zero(
    base: float, patch: float, unit: str, shown: str
) -> None:
    row = {"metric": "m", "scope": "all", "base": base, "patch": patch, "unit": unit}
    text = comparison_table(pd.DataFrame([row | {"better": "lower"}]), FOOTER)
    assert shown in text.split()


def test_what_there_is_not_is_refused_and_posted_figures_carry_their_source() -> None:
    with pytest.raises(UsageError, match="signed or mmtests"):
        comparison_table(tables.comparison_rows(), FOOTER, style="fancy")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="highatomic"):
        posted_figures("nonsense")
    posted = posted_figures("highatomic")
    needed = {"subject", "address", "date", "machine", "variant", "quantity", "value", "unit"}
    assert needed <= set(posted.columns)
    assert (posted["low"] <= posted["high"]).all()


def test_an_end_that_no_machine_reaches_is_none() -> None:
    row = SimpleNamespace(unit="blocks", base=0.0, patch=15.0)
    assert in_measure(row, 2e9) == "+2000000000n"
    assert in_measure(row, 1.2e36) == "NA"
