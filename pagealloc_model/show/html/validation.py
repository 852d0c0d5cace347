"""A validation in a notebook: how near every row came, beside its null model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from pagealloc_model.base.text.error_table import RULE, error_cell
from pagealloc_model.base.text.layout import number
from pagealloc_model.show.html.over_time import course_of
from pagealloc_model.show.html.parts import (
    BAD,
    DIM,
    GOOD,
    Cell,
    Column,
    Markup,
    folded,
    framed,
    line,
    listed,
    table,
)
from pagealloc_model.show.html.replay import replay_parts
from pagealloc_model.show.html.sparkline import sparkline
from pagealloc_model.verdict.errors import FARTHER, NEARER, against_null, verdict_words

if TYPE_CHECKING:
    from pagealloc_model.verdict.validation import Validation

COLUMNS = (
    Column(title="", words=True),
    Column(title="metric", words=True),
    Column(title="scope", words=True),
    Column(title="over time"),
    Column(title="measured"),
    Column(title="predicted"),
    Column(title="error"),
    Column(title="null error"),
    Column(title="unit", words=True),
    Column(title="null model", words=True),
)
MARKS = {NEARER: ("\u2713 nearer", GOOD), FARTHER: ("\u2717 no nearer", BAD)}
"""How rows begin that can be held to a null model."""

FEW_MARKS = 12
"""Measured values up to this many are rings, more are a dashed line."""


def validation_html(validation: Validation) -> str:
    """Return the verdict, the error table, and folded what limits the comparison."""
    rows = [(row, against_null(row)) for row in validation.errors.itertuples()]
    return framed(
        line(verdict_words(validation.errors), lead=f"{validation.recording.name}, predicted:"),
        table(COLUMNS, (_cells(validation, *each) for each in rows), "errors of the prediction"),
        line(
            "Line: predicted over time; rings or dashes: measured. "
            "Nearer: the error is smaller than the null model's, which knows no allocator.",
            kind=DIM,
        ),
        folded("What the columns mean", line(RULE)),
        folded(f"Notes ({len(validation.notes)})", listed(validation.notes)),
        folded("What is not modelled", listed(validation.not_modelled)),
        *replay_parts(validation.replay, validation.rule_evidence),
    )


def _cells(validation: Validation, row: Any, found: str) -> Iterator[Cell]:
    mark, kind = MARKS.get(found, (found, DIM))
    dim = DIM if kind == DIM else ""
    yield Cell(shown=mark, kind=kind)
    yield Cell(shown=str(row.metric), kind=dim)
    yield Cell(shown=str(row.scope), kind=dim)
    yield Cell(shown=_course(validation, row))
    for value in (row.measured, row.predicted):
        yield Cell(shown=number(value), number=_sorted_by(value), kind=dim)
    for value, its in ((row.error, kind), (row.null_error, dim)):
        yield Cell(shown=error_cell(value, row), number=abs(_sorted_by(value)), kind=its)
    yield Cell(shown=str(row.unit), kind=DIM)
    yield Cell(shown=str(row.null_model or ""), kind=DIM)


def _course(validation: Validation, row: Any) -> Markup:
    edges = validation.replay.edges
    span = (int(edges[0]), int(edges[-1]))
    measured, predicted = (
        course_of(tables, row.metric, row.scope, span)
        for tables in (validation.measured, validation.replay)
    )
    if predicted is None:
        return Markup(html="")
    words = f"{row.metric}, {row.scope}, over time"
    if measured is not None and len(measured.values) > FEW_MARKS:
        return sparkline(words, predicted, dashed=measured)
    return sparkline(words, predicted, marks=measured)


def _sorted_by(value: Any) -> float:
    return float("nan") if pd.isna(value) else float(value)
