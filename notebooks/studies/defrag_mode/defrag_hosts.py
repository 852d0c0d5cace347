"""A host that builds a kernel, with and without defrag_mode, beside what was posted of it.

The post: "mm: page_alloc: defrag_mode kswapd/kcompactd assistance", the fourth of five patches.
`ROWS` were chosen before the first comparison with the post, and none was dropped since: every row
of its table that the model counts and that does not follow from other rows. What had been looked at
while the host was made: how many huge pages it served (see `build_host`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode.build_host import (
    ELASTIC,
    BuildHost,
    run_build_host,
)

import pagealloc_model as pm
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import NOT_AVAILABLE, WIDTH, number, paragraph, percent
from pagealloc_model.numbers.statistics import resampled_interval

RULES = "6.15"
VANILLA = pm.Policy()
DEFRAG_MODE = pm.Policy(defrag_mode=True, defrag_watermarks=False)
"""Step 4 of the series: the ban on fallbacks and what kswapd is woken for, not yet step 5's marks
in whole blocks."""
FAULTS_RECLAIM = pm.Policy(thp_defrag="always")
"""The other reading: faults may reclaim and compact. The post does not say which."""

ROWS: dict[str, str] = {
    "thp_fault_alloc": "THP fault alloc",
    "compact_fail": "Direct compact fail",
    "compact_success": "Direct compact success",
    "compact_daemon_migrate_scanned": "Compact daemon scanned migrate",
    "compact_daemon_free_scanned": "Compact daemon scanned free",
    "compact_direct_migrate_scanned": "Compact direct scanned migrate",
    "compact_direct_free_scanned": "Compact direct scanned free",
    "allocstall": "Alloc stall",
    "pgscan_kswapd": "Pages kswapd scanned",
    "pgsteal_kswapd": "Pages kswapd reclaimed",
    "pgscan_direct": "Pages direct scanned",
    "pgsteal_direct": "Pages direct reclaimed",
}
"""Counter -> row of the post's table."""
FOLLOWING: dict[str, str] = {
    "THP fault fallback": "what THP fault alloc leaves of the same faults",
    "Direct compact success rate %": "of the two rows of direct compaction",
    "Compact total migrate scanned": "sum of two rows",
    "Compact total free scanned": "sum of two rows",
    "Pages total scanned": "sum of two rows",
    "Pages total reclaimed": "sum of two rows",
}
"""Rows that follow from others, and how."""
NOT_MODELLED: dict[str, str] = {
    "Hugealloc Time mean": "the model has no time of the fault itself",
    "Hugealloc Time stddev": "the model has no time of the fault itself",
    "Kbuild Real time": "demand comes at fixed times",
    "Kbuild User time": "demand comes at fixed times",
    "Kbuild System time": "demand comes at fixed times",
    "Swap out": "no swap: anonymous memory is not reclaimed",
    "Swap in": "no swap: anonymous memory is not reclaimed",
    "File refaults": "what reclaim took is not read again",
}
SIZE_FACTOR = 2.0
"""A change has the posted size if it is between the posted one over and times this."""
STEPS = 15
"""Runs that the post gives one by one."""
TREND_STEPS = 5
"""Runs at each end whose means make the trend."""


def run_study(
    host: BuildHost,
    seeds: Sequence[int],
    *,
    base: pm.Policy = VANILLA,
    patch: pm.Policy = DEFRAG_MODE,
    assumptions: pm.Assumptions = ELASTIC,
    progress: Report | None = None,
) -> pd.DataFrame:
    """Both sides' counters, step by step, for each seed."""
    rules = pm.KernelRules.preset(RULES)
    tables = []
    for seed in seeds:
        for side, policy in (("base", base), ("patch", patch)):
            table = run_build_host(
                replace(host, seed=seed), policy, rules=rules, assumptions=assumptions
            )
            tables.append(table.assign(side=side, seed=seed))
            if progress:
                progress(len(tables) / (2 * len(seeds)))
    return pd.concat(tables, ignore_index=True)


def judged_rows(runs: pd.DataFrame, posted: pd.DataFrame) -> pd.DataFrame:
    """Every row of `ROWS`, predicted beside posted."""
    figures = posted.pivot(index="quantity", columns="variant", values="low")
    sums = runs.groupby(["side", "seed"])[list(ROWS)].sum()
    rows = []
    for counter, quantity in ROWS.items():
        before, after = (sums.loc[side, counter].to_numpy(float) for side in ("base", "patch"))
        wanted = figures.loc[quantity, "patched"] / figures.loc[quantity, "unpatched"] - 1
        change = after.mean() / before.mean() - 1 if before.mean() else float("nan")
        low, high = relative_interval(before, after)
        rows.append(
            {
                "quantity": quantity,
                "posted_base": figures.loc[quantity, "unpatched"],
                "posted_patch": figures.loc[quantity, "patched"],
                "posted_change": wanted,
                "base": before.mean(),
                "patch": after.mean(),
                "change": change,
                "change_low": low,
                "change_high": high,
                **_verdicts(change, low, high, wanted),
            }
        )
    return pd.DataFrame(rows).astype({name: "boolean" for name in ("sign", "size", "beats_null")})


def _verdicts(change: float, low: float, high: float, wanted: float) -> dict[str, object]:
    if np.isnan(change):
        return {"sign": pd.NA, "size": pd.NA, "beats_null": pd.NA}
    ratio = change / wanted
    certain = low > 0 if wanted > 0 else high < 0
    return {
        "sign": pd.NA if np.isnan(low) else certain,
        "size": 1 / SIZE_FACTOR <= ratio <= SIZE_FACTOR,
        "beats_null": abs(change - wanted) < abs(wanted),
    }


def relative_interval(base: np.ndarray, patch: np.ndarray) -> tuple[float, float]:
    """Interval of mean(patch) / mean(base) - 1 over pairs; NaN for fewer than two."""

    def relative(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        return after / before - 1

    return resampled_interval(relative, base, patch, paired=True)


def served_shares(runs: pd.DataFrame, posted: pd.DataFrame) -> pd.DataFrame:
    """Share of the huge pages asked for that was served, step by step: the post's trend."""
    low = posted.pivot(index="quantity", columns="variant", values="low")
    faults = low.loc["THP fault alloc"] + low.loc["THP fault fallback"]
    sums = runs.groupby(["side", "step"])[["thp_fault_alloc", "thp_fault_fallback"]].sum()
    shares = sums["thp_fault_alloc"] / sums.sum(axis=1)
    table = pd.DataFrame({"base": shares["base"], "patch": shares["patch"]})
    for side, variant in (("posted_base", "unpatched"), ("posted_patch", "patched")):
        served = {
            step: low.loc[name, variant] / faults[variant]
            for step in table.index
            if (name := f"thp_fault_alloc of run {step}") in low.index
        }
        table.insert(0, side, pd.Series(served, dtype=float))
    return table[["posted_base", "posted_patch", "base", "patch"]]


def trend(shares: pd.DataFrame) -> Mapping[str, float]:
    """By column, the mean of the last runs' shares less that of the first ones."""
    ends = shares.tail(TREND_STEPS).mean() - shares.head(TREND_STEPS).mean()
    return {str(name): float(value) for name, value in ends.items()}


COUNTED = "posted and predicted counts are of runs of different length: compare changes"


def defrag_table(rows: pd.DataFrame, rules: str, *, width: int = WIDTH) -> str:
    """Each row's change, posted and predicted, and whether sign and size agree."""
    lines = [
        (
            str(row.quantity),
            f"{number(round(row.base))} -> {number(round(row.patch))}",
            percent(row.posted_change),
            percent(row.change),
            _interval(row.change_low, row.change_high),
            verdict_word(row.sign),
            verdict_word(row.size),
            verdict_word(row.beats_null),
        )
        for row in rows.itertuples()
    ]
    titles = ("posted", "model", "95 % interval", "sign", "size", "null")
    header = ("posted row", "model's counts", *titles)
    counts = ", ".join(
        f"{what} {int(rows[name].fillna(False).sum())} of {len(rows)}"
        for name, what in (("sign", "sign"), ("size", "size"), ("beats_null", "nearer than null"))
    )
    words = f"{rules} {counts}; {COUNTED}."
    return f"{Table(header, lines).to_text(width)}\n\n{paragraph(words, width=width)}\n"


def trend_table(
    shares: pd.DataFrame, ends: Mapping[str, float], words: str, *, width: int = WIDTH
) -> str:
    """Huge pages served of those asked for, run by run."""
    lines = [
        ("share of huge pages served", f"run {step}", *(f"{100 * value:.1f}%" for value in row))
        for step, row in zip(shares.index, shares.to_numpy(), strict=True)
    ]
    cells = tuple(f"{100 * ends[name]:+.1f}" for name in shares)
    lines.append((words, "percentage points", *cells))
    titles = ("posted, vanilla", "defrag", "model, vanilla", "defrag")
    header = ("what", "run", *titles)
    return f"{Table(header, lines).to_text(width)}\n"


def left_out_lines(left_out: Mapping[str, str], *, width: int = WIDTH) -> str:
    """Rows of the post that are not compared, and why."""
    items = [f"{row}: {reason}." for row, reason in left_out.items()]
    return "\n".join(paragraph(item, width=width, label="- ") for item in items) + "\n"


def verdict_word(verdict: object) -> str:
    """yes, no or NA."""
    return NOT_AVAILABLE if pd.isna(verdict) else "yes" if verdict else "no"


def _interval(low: float, high: float) -> str:
    return NOT_AVAILABLE if pd.isna(low) else f"{_short(low)} to {_short(high)}"


def _short(value: float) -> str:
    """A ratio in percent, in times where that is large."""
    return f"x{1 + value:.0f}" if value > 9 else percent(value)
