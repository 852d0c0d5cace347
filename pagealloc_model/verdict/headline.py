"""A verdict in one line: each quantity scored once, however long the recording."""

from __future__ import annotations

from math import ceil

import numpy as np
import pandas as pd

from pagealloc_model.base.text import count_of
from pagealloc_model.verdict.errors import PREDICTED
from pagealloc_model.verdict.quantities import SERIES_WORDS, TOTAL_WORDS

NEAR = 0.25
"""A prediction is near if it is off by at most this share of what was measured."""
NAMED, MISSES_NAMED = 4, 2
"""Quantities that the line names: right ones, and those that are most off."""
COLUMNS = ("quantity", "metric", "measured", "predicted", "error", "null_error", "verdict")


def scores(errors: pd.DataFrame, snapshots: pd.DataFrame) -> pd.DataFrame:
    """Score each quantity of the whole machine once; imposed rows are left out.

    Of a series the error is its mean distance over the snapshots, of a total that at the end, both
    in shares of what was measured.

    Args:
        errors: of a validation: totals come from there.
        snapshots: of a validation: states come from there.

    Returns:
        quantity, metric, measured, predicted, error, null_error, verdict; infinite errors where
        nothing was measured and something predicted.
    """
    scored = []
    for metric, words in SERIES_WORDS.items():
        series = snapshots[snapshots["metric"] == metric]
        sides = series.groupby("time_s")[["measured", "predicted", "null"]].sum()
        if len(sides):
            measured, predicted, null = (sides[name].to_numpy(float) for name in sides)
            distances = [float(np.abs(side - measured).mean()) for side in (predicted, null)]
            means = float(measured.mean()), float(predicted.mean())
            scored.append((words, metric, *means, *distances))
    known = (errors["kind"] == PREDICTED) & errors[["measured", "predicted"]].notna().all(axis=1)
    totals = errors[known].set_index(["metric", "scope"])
    for key, words in TOTAL_WORDS.items():
        if key in totals.index:
            real, model, null = totals.loc[key, ["measured", "predicted", "null"]].astype(float)
            scored.append((words, key[0], real, model, abs(model - real), abs(null - real)))
    rows = []
    for words, metric, measured, predicted, *distances in scored:
        if measured or predicted:
            error, null_error = (
                distance / measured if measured else (np.inf if distance else 0.0)
                for distance in distances
            )
            verdict = judgement_of(measured, predicted, error, null_error)
            rows.append((words, metric, measured, predicted, error, null_error, verdict))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def judgement_of(measured: float, predicted: float, error: float, null_error: float) -> str:
    """Say how right one prediction is."""
    if error <= NEAR:
        nearer = error < null_error or not error
        return f"within {max(ceil(100 * error), 1)} %" + ("" if nearer else ", as its null model")
    if not measured:
        return "none measured"
    if not predicted:
        return "none predicted"
    ratio = predicted / measured
    if ratio >= 2:
        return f"{ratio:,.0f} times too many"
    if ratio <= 0.5:
        return f"{1 / ratio:,.0f} times too few"
    return f"off by {100 * error:.0f} %"


def headline(table: pd.DataFrame) -> str:
    """Return one line of verdict: what is predicted, what is not, and how many of all.

    Args:
        table: of `scores`.
    """
    if table.empty:
        return "nothing that was recorded can be held to a prediction"
    near = table["error"] <= NEAR
    right = table[near & ~table["verdict"].str.endswith("null model")]
    parts = [f"{row.quantity} {row.verdict}" for row in right.head(NAMED).itertuples()]
    missed = table[~near].sort_values("error", ascending=False, kind="stable").head(MISSES_NAMED)
    said = ", ".join(parts) or "no quantity is predicted better than by its null model"
    misses = [
        f"{row.quantity} predicted, none measured"
        if not row.measured
        else f"{row.quantity} not predicted: {row.verdict}"
        for row in missed.itertuples()
    ]
    return "; ".join([said, *misses, score_words(table)])


def score_words(table: pd.DataFrame) -> str:
    """Return how many quantities are near what was measured, and of null models how many.

    Args:
        table: of `scores`.
    """
    near = int((table["error"] <= NEAR).sum())
    null = int((table["null_error"] <= NEAR).sum())
    return (
        f"{near} of {count_of(len(table), 'quantity', 'quantities')} within {100 * NEAR:.0f} % of "
        f"what was measured, of null models {null}"
    )
