"""The same two policies over several runs: means, spread and significance of every metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.verdict.judged_rows import (
    BETTER,
    CHANGED,
    DOUBTED,
    FAILS_NULL,
    SAME,
    UNCHECKED,
    UNKNOWN,
    WITHIN_ERROR,
    WORSE,
    believable_words,
    failed_last,
)
from pagealloc_model.verdict.statistics import LEVEL, change_interval, paired_p

if TYPE_CHECKING:
    from pagealloc_model.verdict.comparison import Comparison

COLUMNS = ("metric", "scope", "unit", "better")
MOMENTS = ("min", "mean", "std", "max")


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedComparison:
    """Comparisons of the same policies, one per run.

    Attributes:
        comparisons: one per run, a run being a recording and a seed.
        refused: why none of them can be believed, "" if they may.
        rows: metric, scope, base, patch (means over runs), change, unit, better, runs, p,
            significant, error, null_error, low, high, verdict (see `judged_rows`; the interval is
            the wider one of that over runs and the mean one over windows), and base_min, base_std,
            base_max, patch_min, patch_std, patch_max.
    """

    comparisons: tuple[Comparison, ...]
    rows: pd.DataFrame
    refused: str = ""

    @property
    def believable(self) -> str:
        """One line: for which rows this comparison can be believed."""
        return believable_words(self.rows, self.refused)


def repeated(comparisons: Sequence[Comparison]) -> RepeatedComparison:
    """Put the runs of one comparison together; a metric that some runs lack is left out.

    Raises:
        UsageError: no run, or runs of different policies or rules.
    """
    if not comparisons:
        raise UsageError("nothing to compare: give at least one recording")
    first = comparisons[0]
    for each in comparisons[1:]:
        for side in ("base", "patch"):
            mine = getattr(first, side).asked_policy
            other = getattr(each, side).asked_policy
            if mine != other:
                raise UsageError(f"runs of different policies: {mine} and {other}")
    by_run = [each.judged.set_index(list(COLUMNS)) for each in comparisons]
    refused = next((each.errors.refused for each in comparisons if each.errors.refused), "")
    rows = [
        _row(dict(zip(COLUMNS, key, strict=True)), [run.loc[key] for run in by_run])
        for key in by_run[0].index
        if all(key in run.index for run in by_run)
    ]
    table = failed_last(pd.DataFrame(rows))
    return RepeatedComparison(comparisons=tuple(comparisons), rows=table, refused=refused)


def paired_interval(base: pd.Series, patch: pd.Series) -> tuple[float, float]:
    """Return the interval of the mean difference of paired runs; NaN of fewer than two."""
    return change_interval([0.0] * 2, (patch - base).tolist())


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not pd.isna(value)]
    return sum(known) / len(known) if known else float("nan")


def _verdict(words: list[str], change: float, low: float, high: float, better: str) -> str:
    """What the runs say together: the least that one of them can say, then the interval."""
    for word in (UNKNOWN, FAILS_NULL, DOUBTED, UNCHECKED):
        if word in words:
            return word
    if change == 0:
        return SAME
    if low <= 0 <= high:
        return WITHIN_ERROR
    if not better:
        return CHANGED
    return BETTER if (change > 0) == (better == "higher") else WORSE


def _row(key: dict[str, str], runs: list[pd.Series]) -> dict[str, object]:
    base = pd.Series([run["base"] for run in runs], dtype=float)
    patch = pd.Series([run["patch"] for run in runs], dtype=float)
    mean = base.mean()
    share = (patch.mean() - mean) / mean if mean else (0.0 if patch.mean() == mean else pd.NA)
    p = paired_p(base.tolist(), patch.tolist())
    spread = {
        f"{side}_{moment}": getattr(values, moment)()
        for side, values in (("base", base), ("patch", patch))
        for moment in MOMENTS
        if moment != "mean"
    }
    low, high, error, null_error = (
        _mean(run[name] for run in runs) for name in ("low", "high", "error", "null_error")
    )
    over_runs = paired_interval(base, patch)
    width = 0.0 if pd.isna(error) else error
    # Each run's interval is of one run; that of the mean of several is narrower.
    change = patch.mean() - mean
    low = change - width + (low - change + width) / math.sqrt(len(runs))
    high = change + width + (high - change - width) / math.sqrt(len(runs))
    if not pd.isna(over_runs[0]):
        low, high = min(low, over_runs[0] - width), max(high, over_runs[1] + width)
    words = [run["verdict"] for run in runs]
    return {
        **key,
        "error": error,
        "null_error": null_error,
        "low": low,
        "high": high,
        "verdict": _verdict(words, change, low, high, key["better"]),
        "base": mean,
        "patch": patch.mean(),
        "change": share if pd.notna(mean) else pd.NA,
        "runs": len(runs),
        "p": p,
        "significant": bool(p < LEVEL),
        **spread,
    }
