"""What each row of a comparison is worth: the model's error, an interval, a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.verdict.model_errors import ModelError, ModelErrors
from pagealloc_model.verdict.quantity import Quantity, change_interval, draws

BETTER, WORSE, CHANGED, SAME = "better", "worse", "changed", "same"
WITHIN_ERROR, FAILS_NULL = "within error", "fails null"
UNCHECKED, DOUBTED, UNKNOWN = "unchecked", "refused", "unknown"
BELIEVED = (BETTER, WORSE, CHANGED)
"""Verdicts on a change that is larger than the model's error on this recording."""
LEAST_COVERED = 0.25
"""Where the model's value at the scored snapshots is less than this share of that of the whole
replay, the snapshots missed most of what happened, and their error says little of it."""
JUDGED = ("error", "null_model", "null_error", "low", "high", "verdict")
"""What judging adds to a row; error and interval are in the metric's unit."""


@dataclass(frozen=True, kw_only=True)
class JudgedChange:
    """One row.

    Attributes:
        error: the model's on this recording, NaN if it shows nothing to hold it to.
        null_model: what a null model says there.
        null_error: its error.
        low: lower end of the change's interval, the model's error included.
        high: upper end.
        verdict: one of the words of this module.
    """

    error: float
    null_model: str
    null_error: float
    low: float
    high: float
    verdict: str


def judged_change(
    before: Quantity,
    after: Quantity,
    errors: ModelErrors,
    drawn: tuple[np.ndarray, np.ndarray],
) -> JudgedChange:
    """Judge one change.

    The interval is that of windows of the recording, drawn with replacement for each side by
    itself, as two runs would differ, widened at each end by the model's error. Where the model has
    none, its ends are those of the windows alone, and the verdict says that nothing checks it.

    Args:
        before: of the base.
        after: of the patch.
        errors: of the recording.
        drawn: as `quantity.draws` gives, for either side.
    """
    error = errors.by_row.get((before.metric, before.scope))
    if error is not None and abs(error.predicted) < abs(before.value) * LEAST_COVERED:
        error = None
    low, high = change_interval(before, after, drawn, errors.dispersion)
    width = 0.0 if error is None else error.error
    low, high = low - width, high + width
    change = after.value - before.value
    word = verdict_of(change, low, high, before.better, error, refused=bool(errors.refused))
    return JudgedChange(
        error=math.nan if error is None else error.error,
        null_model="" if error is None else error.null_model,
        null_error=math.nan if error is None else error.null_error,
        low=low,
        high=high,
        verdict=word,
    )


def verdict_of(
    change: float,
    low: float,
    high: float,
    better: str,
    error: ModelError | None,
    *,
    refused: bool,
) -> str:
    """Return what may be said of a change; "better" and "worse" only of one beyond all error."""
    if math.isnan(change):
        return UNKNOWN
    if error is not None and not error.beats_null:
        return FAILS_NULL
    if change == 0:
        return SAME
    if refused:
        return DOUBTED
    if error is None:
        return UNCHECKED
    if abs(change) <= error.error or low <= 0 <= high:
        return WITHIN_ERROR
    if not better:
        return CHANGED
    return BETTER if (change > 0) == (better == "higher") else WORSE


def judged_rows(
    rows: pd.DataFrame, pairs: Sequence[tuple[Quantity, Quantity]], errors: ModelErrors
) -> pd.DataFrame:
    """Return rows with the columns of `JUDGED`, those that failed their null model last.

    Args:
        rows: of a comparison.
        pairs: the metric of each row, of base and patch.
        errors: of the recording.
    """
    drawn = (draws(0), draws(1))
    judged = [judged_change(*pair, errors, drawn) for pair in pairs]
    table = rows.assign(
        **{name: [getattr(each, name) for each in judged] for name in JUDGED},
    )
    return failed_last(table)


def failed_last(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in their order, those that failed their null model behind the others."""
    failed = table["verdict"] == FAILS_NULL
    return pd.concat([table[~failed], table[failed]], ignore_index=True)


def believable_words(table: pd.DataFrame, refused: str = "") -> str:
    """Return one line: for which rows a comparison can be believed.

    Args:
        table: judged rows.
        refused: why none can.
    """
    if refused:
        return f"Believe no row of this comparison: {refused}."
    known = table[table["verdict"] != UNKNOWN]
    good = known[known["verdict"].isin(BELIEVED)]
    mixed = {
        name
        for name, mine in known.groupby("metric")
        if 0 < mine["verdict"].isin(BELIEVED).sum() < len(mine)
    }
    names = [
        f"{metric} ({scope})" if metric in mixed else metric
        for metric, scope in zip(good["metric"], good["scope"], strict=True)
    ]
    counts = known["verdict"].value_counts()
    others = [
        f"{counts[word]} {words}"
        for word, words in (
            (WITHIN_ERROR, "within the model's error"),
            (UNCHECKED, "checked by nothing recorded"),
            (FAILS_NULL, "of metrics no better than a null model"),
            (SAME, "the same"),
        )
        if counts.get(word, 0)
    ]
    told = ", ".join(dict.fromkeys(names)) or "none"
    rest = f"; of the other rows {', '.join(others)}" if others else ""
    return f"Believe {len(good)} of {count_of(len(known), 'change')}: {told}{rest}."
