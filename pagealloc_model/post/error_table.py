"""Predicted against measured, beside a null model, as text for a mail or a terminal."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pagealloc_model.post.layout import (
    WIDTH,
    Row,
    ascii_only,
    number,
    paragraph,
    percent,
    text_table,
)

RULE = (
    "error: (predicted - measured) / measured, unless the unit says otherwise; null: the same "
    "error of the null model, which knows nothing of the allocator; imposed: taken from the "
    "recording, so its error says nothing about the model; NA: not available."
)
ABSOLUTE_UNITS = ("share", "fraction", "tv", "total variation")


def error_table(errors: pd.DataFrame, *, width: int = WIDTH) -> str:
    """The error table of one validation as plain text.

    Args:
        errors: columns metric, scope, measured, predicted, error, unit, null_model, null_error,
            kind.
        width: characters per line at most.
    """
    rows = [
        Row(
            heading=_heading(row),
            label=ascii_only(str(row.scope)),
            cells=(
                number(row.measured),
                number(row.predicted),
                _error(row.error, row),
                _error(row.null_error, row),
            ),
        )
        for row in errors.itertuples()
    ]
    header = Row(
        heading="metric", label="scope", cells=("measured", "predicted", "error", "null error")
    )
    return f"{text_table(header, rows, width=width)}\n\n{paragraph(RULE, width=width)}\n"


def _heading(row: Any) -> str:
    unit = f" ({row.unit})" if row.unit else ""
    imposed = ", imposed" if row.kind == "imposed" else ""
    null = f", null model: {row.null_model}" if isinstance(row.null_model, str) else ""
    return ascii_only(f"{row.metric}{unit}{imposed}{null if row.null_model else ''}")


def _error(value: object, row: Any) -> str:
    """Relative errors in percent; errors that are absolute by their unit as they are."""
    if str(row.unit).lower() in ABSOLUTE_UNITS:
        return number(value)
    return percent(value)
