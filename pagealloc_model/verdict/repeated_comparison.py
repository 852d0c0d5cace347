"""The same two policies over several runs: means, spread and significance of every metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.verdict.significance import LEVEL, paired_p

if TYPE_CHECKING:
    from pagealloc_model.verdict.comparison import Comparison

COLUMNS = ("metric", "scope", "unit", "better")
MOMENTS = ("min", "mean", "std", "max")


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedComparison:
    """Comparisons of the same policies, one per run.

    Attributes:
        comparisons: one per run, a run being a recording and a seed.
        rows: metric, scope, base, patch (means over runs), change, unit, better, runs, p,
            significant, and base_min, base_std, base_max, patch_min, patch_std, patch_max.
    """

    comparisons: tuple[Comparison, ...]
    rows: pd.DataFrame


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
    by_run = [each.rows.set_index(list(COLUMNS)) for each in comparisons]
    rows = [
        _row(dict(zip(COLUMNS, key, strict=True)), [run.loc[key] for run in by_run])
        for key in by_run[0].index
        if all(key in run.index for run in by_run)
    ]
    return RepeatedComparison(comparisons=tuple(comparisons), rows=pd.DataFrame(rows))


def _row(key: dict[str, str], runs: list[pd.Series]) -> dict[str, object]:
    base = pd.Series([run["base"] for run in runs], dtype=float)
    patch = pd.Series([run["patch"] for run in runs], dtype=float)
    mean = base.mean()
    change = (patch.mean() - mean) / mean if mean else (0.0 if patch.mean() == mean else pd.NA)
    p = paired_p(base.tolist(), patch.tolist())
    spread = {
        f"{side}_{moment}": getattr(values, moment)()
        for side, values in (("base", base), ("patch", patch))
        for moment in MOMENTS
        if moment != "mean"
    }
    return {
        **key,
        "base": mean,
        "patch": patch.mean(),
        "change": change if pd.notna(mean) else pd.NA,
        "runs": len(runs),
        "p": p,
        "significant": bool(p < LEVEL),
        **spread,
    }
