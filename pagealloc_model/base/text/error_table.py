"""Predicted against measured, beside a null model, as text for a mail or a terminal."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pagealloc_model.base.table import Table
from pagealloc_model.base.text.layout import (
    WIDTH,
    ascii_only,
    number,
    paragraph,
    percent,
)

RULE = (
    "error: (predicted - measured) / measured, unless the unit says otherwise; an error in share "
    "of range is a mean distance over time and has no sign; null: the same "
    "error of the null model, which knows nothing of the allocator; imposed: taken from the "
    "recording, so its error says nothing about the model; predicted alone: nothing in the "
    "recording shows it; NA: not available."
)
DISTANCE = "in share of range"
"""What the units of errors without a sign end with."""
ABSOLUTE_UNITS = ("share", "fraction", "tv", "total variation")


def error_table(
    errors: pd.DataFrame, kernel: pd.DataFrame | None = None, *, width: int = WIDTH
) -> str:
    """The error table of one validation as plain text.

    Args:
        errors: columns metric, scope, measured, predicted, error, unit, null_model, null_error,
            kind.
        kernel: the same of a kernel build, to stand beside them in place of the null model's.
        width: characters per line at most.
    """
    beside = {} if kernel is None else {(row.metric, row.scope): row for row in kernel.itertuples()}
    rows = [
        (
            _heading(row),
            ascii_only(str(row.scope)),
            *_cells(row, beside.get((row.metric, row.scope)), kernel is not None),
        )
        for row in errors.itertuples()
    ]
    titles = ("measured", "predicted", "error", "null error")
    if kernel is not None:
        titles = ("measured", "model", "error", "kernel", "error")
    header = ("metric", "scope", *titles)
    rule = RULE if kernel is None else f"{RULE} kernel: predicted by the kernel build's own code."
    return f"{Table(header, rows).to_text(width)}\n\n{paragraph(rule, width=width)}\n"


def score_table(scores: pd.DataFrame, *, width: int = WIDTH) -> str:
    """Each quantity once: measured, predicted, the verdict, and how far off the null model is.

    Args:
        scores: quantity, measured, predicted, verdict, null_error (a share of what was measured).
        width: characters per line at most.
    """
    rows = [
        (
            "",
            str(row.quantity),
            round(row.measured),
            round(row.predicted),
            str(row.verdict),
            percent(row.null_error).lstrip("+") if row.null_error <= 10 else "> 1000%",
        )
        for row in scores.itertuples()
    ]
    titles = ("", "quantity", "measured", "predicted", "verdict", "null error")
    return Table(titles, rows).to_text(width)


def _cells(row: Any, kernel: Any, with_kernel: bool) -> tuple[Any, ...]:
    model = (row.measured, row.predicted, error_cell(row.error, row))
    if not with_kernel:
        return (*model, error_cell(row.null_error, row))
    if kernel is None:
        return (*model, pd.NA, pd.NA)
    return (*model, kernel.predicted, error_cell(kernel.error, kernel))


def _heading(row: Any) -> str:
    unit = f" ({row.unit})" if row.unit else ""
    kind = "" if row.kind == "predicted" else f", {row.kind}"
    null = f", null model: {row.null_model}" if isinstance(row.null_model, str) else ""
    return ascii_only(f"{row.metric}{unit}{kind}{null if row.null_model else ''}")


def error_cell(value: object, row: Any) -> str:
    """Relative errors in percent; errors that are absolute by their unit as they are.

    Distances have no sign.
    """
    if str(row.unit).lower() in ABSOLUTE_UNITS:
        return number(value)
    return percent(value).lstrip("+") if str(row.unit).endswith(DISTANCE) else percent(value)
