"""Whether a prediction came nearer to what was measured than its null model did."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pagealloc_model.base.text.counts import count_of

NEARER, FARTHER, AS_NULL = "nearer", "no nearer", "both right"
NOT_MEASURED = "not measured"
PREDICTED = "predicted"


def against_null(row: Any) -> str:
    """Return how a row of an error table stands to its null model.

    "nearer": the error is smaller. "no nearer": it is not. "both right": neither has one, so the
    row tells nothing. Where an error has no reference, as that of 3 blocks over none, distances
    are compared. "not measured": nothing can be compared. Rows of another kind, such as imposed
    ones, are that kind: they are no predictions.

    Args:
        row: with measured, predicted, null, error, null_error and kind.
    """
    if row.kind != PREDICTED:
        return str(row.kind)
    error, null_error = row.error, row.null_error
    if pd.isna(error) or pd.isna(null_error):
        error, null_error = row.predicted - row.measured, row.null - row.measured
    if pd.isna(error) or pd.isna(null_error):
        return NOT_MEASURED
    if not error and not null_error:
        return AS_NULL
    return NEARER if abs(error) < abs(null_error) else FARTHER


def verdict_words(errors: pd.DataFrame) -> str:
    """Return one line: in how many rows of an error table the model is nearer than its null."""
    found = [against_null(row) for row in errors.itertuples()]
    judged = [each for each in found if each in (NEARER, FARTHER)]
    if not judged:
        return "nothing that was recorded can be held to a null model"
    rest = len(found) - len(judged)
    others = f" ({rest} more are not judged)" if rest else ""
    return (
        f"nearer than a null model in {judged.count(NEARER)} of "
        f"{count_of(len(judged), 'row')}{others}"
    )
