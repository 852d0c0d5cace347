"""The two pictures of 00_start_here: what happens, and how right the model is."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import synthetic_tables as tables

from pagealloc_model.show import figures
from pagealloc_model.show.figures.predictions_judged import (
    FEW,
    MOST_FEW,
    predicted_over_measured,
)


def notes_of(figure: go.Figure) -> list[str]:
    return [note.text.replace("<br>", " ") for note in figure.layout.annotations]


def source(**other: pd.DataFrame) -> SimpleNamespace:
    boosts = tables.free_pages()[["time_ns", "node", "zone"]].drop_duplicates().assign(pages=0)
    found = {
        "free_pages": tables.free_pages(),
        "pcp": tables.pcp(),
        "lock": tables.lock(),
        "pageblocks": tables.pageblocks(),
        "boosts": boosts,
    }
    return SimpleNamespace(**found | other)


def test_panels_where_nothing_happens_are_one_line() -> None:
    still = tables.pageblocks().assign(blocks=7)
    figure = figures.at_a_glance(source(pageblocks=still), source(pageblocks=still))
    notes = notes_of(figure)
    assert "Nothing changes in: " in notes[-1]
    assert "pageblocks: Movable" in notes[-1]
    assert not any(note.startswith("pageblocks:") for note in notes[:-1])
    assert any(note.startswith("free pages, Normal") for note in notes)
    assert [trace.name for trace in figure.data if trace.showlegend] == ["measured", "predicted"]


def test_what_no_table_has_is_left_out() -> None:
    silent = source(lock=tables.lock().iloc[:0])
    figure = figures.at_a_glance(silent, silent)
    assert not any("zone->lock" in note for note in notes_of(figure))
    lock = tables.lock()
    uneven = lock.assign(acquisitions=range(1, len(lock) + 1))
    one_sided = figures.at_a_glance(silent, source(lock=uneven))
    assert any("measured: not available" in note for note in notes_of(one_sided))


def test_an_axis_that_does_not_begin_at_zero_says_so() -> None:
    high = tables.free_pages()
    high = high.assign(pages=high["pages"] + 10**6)
    figure = figures.at_a_glance(source(free_pages=high), source(free_pages=high))
    cut = [note for note in notes_of(figure) if note.endswith("(axis cut)")]
    axes = [figure.layout[name] for name in figure.layout if name.startswith("yaxis")]
    assert any(note.startswith("free pages") for note in cut)
    assert len(cut) == sum(axis.range is not None and axis.range[0] > 0 for axis in axes)


def errors(*rows: tuple[str, float, float, float]) -> pd.DataFrame:
    columns = ["metric", "measured", "predicted", "null"]
    return pd.DataFrame(rows, columns=columns).assign(scope="all", kind="predicted")


NO_STATES = errors().assign(time_s=0.0)


@pytest.mark.parametrize(
    ("measured", "predicted", "inside"),
    [(100, 125, True), (100, 126, False), (100, 80, True), (100, 79, False), (0, 0, True)],
)
def test_the_band_is_a_quarter_wide(measured: float, predicted: float, inside: bool) -> None:
    points = predicted_over_measured(errors(("refill_pages", measured, predicted, 1e6)), NO_STATES)
    assert points["inside"].tolist() == [inside]
    assert points["null_inside"].tolist() == [False]


def test_what_is_no_prediction_is_not_drawn() -> None:
    rows = errors(("refill_pages", 50, 50, 9), ("drain_pages", 50, 50, 9), ("thp_success", 1, 1, 1))
    rows["kind"] = ["imposed", "predicted", "predicted"]
    unknown = errors(("refill_transactions", np.nan, 3, 3))
    points = predicted_over_measured(pd.concat([rows, unknown]), NO_STATES)
    assert points["metric"].tolist() == ["drain_pages"]


def test_small_counts_are_on_linear_axes() -> None:
    rows = errors(
        ("refill_pages", 50_000, 40_000, 7),
        ("extfrag_events", 12, FEW - 1, 0),
        ("empty_refill_transactions", 0, 500, 0),
    )
    figure = figures.how_right(rows, NO_STATES, "mine")
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert figure.layout.xaxis2.type is None
    assert figure.layout.xaxis.range[0] >= np.log10(FEW)
    few = [trace for trace in figure.data if trace.xaxis == "x2" and trace.mode == "markers"]
    assert sorted(y for trace in few for y in trace.y) == [0, 0, FEW - 1, MOST_FEW]
    assert any(f"cut at {MOST_FEW}" in note for note in notes_of(figure))
    named = [trace.name for trace in figure.data if trace.showlegend]
    assert len(named) == len(set(named))
    assert {"within 25 %", "equal", "null model of each", "fallbacks"} <= set(named)
