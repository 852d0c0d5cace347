"""Predicted against measured, beside a null model, as text for a mail or a terminal."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pagealloc_model.post.layout import (
    WIDTH,
    ascii_only,
    columns_of_text,
    number,
    paragraph,
    percent,
)

RULE = (
    "error: (predicted - measured) / measured, unless the unit says otherwise; null: the same "
    "error of the named model that knows nothing of the allocator; * imposed: taken from the "
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
    cells = [
        [
            ascii_only(str(row.metric)) + ("*" if row.kind == "imposed" else ""),
            ascii_only(str(row.scope)),
            number(row.measured),
            number(row.predicted),
            _error(row.error, row),
            _error(row.null_error, row),
            ascii_only(str(row.null_model or "")),
        ]
        for row in errors.itertuples()
    ]
    header = ("metric", "scope", "measured", "predicted", "error", "null", "null model")
    table = columns_of_text(header, cells, left=2, width=width)
    return f"{table}\n\n{paragraph(RULE, width=width)}\n"


def _error(value: object, row: Any) -> str:
    """Relative errors in percent; errors that are absolute by their unit as they are."""
    if str(row.unit).lower() in ABSOLUTE_UNITS:
        return number(value)
    return percent(value)
