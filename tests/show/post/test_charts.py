"""Charts of characters: bars, histograms, time series."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.show.post.charts import HEIGHT, UTF8, bar_chart, histogram, time_series
from tests.show.post.test_comparison_message import _SIDES


def test_bars_are_as_long_as_their_values() -> None:
    lines = bar_chart("t", {"a": [40, 10], "b": [float("nan"), 0]}, _SIDES, width=40).splitlines()
    bars = [line.count("#") + line.count("=") for line in lines[1:]]
    assert bars[0] == pytest.approx(4 * bars[1], abs=2)
    assert bars[0] > 20
    assert bars[2:] == [0, 0]
    assert lines[3].endswith("NA")
    assert max(map(len, lines)) <= 40


def test_a_histogram_names_its_bins_and_its_scale() -> None:
    text = histogram("sizes", {1: [1, 1], 64: [1000, 1]}, _SIDES)
    assert "64-127" in text
    assert "log(1 + value)" in text
    assert max(map(len, text.splitlines())) <= 72


def test_a_time_series_puts_marks_where_the_values_are() -> None:
    seconds = np.linspace(0.0, 2.0, 50)
    rising, flat = np.linspace(0.0, 100.0, 50), np.zeros(50)
    lines = time_series("pages", seconds, {"base": rising, "patch": flat}).splitlines()
    assert max(map(len, lines)) <= 72
    rows = lines[2 : 2 + HEIGHT]
    assert rows[0].rstrip().endswith("*")
    assert "o" not in "".join(rows[:-1])
    assert rows[-1].count("o") > 30
    assert lines[-1].split() == ["0.0", "2.0", "s"]
    assert "\u25cf" in time_series("pages", seconds, {"base": rising}, glyphs=UTF8)
