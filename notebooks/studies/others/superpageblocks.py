"""Superpageblocks on a made-up host of the posted size: where kernel memory is, what finding costs.

Usage: python notebooks/studies/others/superpageblocks.py [tables | costs]

`tables`: gigabytes with kernel memory, without and with superpageblocks, beside what was posted.
`costs`: list heads and words looked at for one page, by how free pages are kept.
"""

from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.others.filling_host import (
    GIGABYTE_ORDER,
    FilledHost,
    FillingHost,
    list_costs,
    run_filling_host,
)

import pagealloc_model as pm
from pagealloc_model.numbers.statistics import resampled_interval
from pagealloc_model.show.post.comparison_message import posted_figures

SEEDS = 3
RULES = "7.2"
TYPES = ("unmovable", "movable", "reclaimable")
KEPT_IN = {
    "one_set": "one set of lists",
    "two_sets": "tainted and clean lists",
    "every_range": "lists of every GiB",
    "two_bitmaps": "tainted and clean, bitmaps",
    "every_bitmap": "every GiB, bitmaps",
}
TAINTED, MOVABLE = (
    "superpageblocks of the Normal zone with unmovable or reclaimable memory, of 238",
    "1 GB huge pages allocated beside the load",
)


def measured(filled: FilledHost) -> dict[str, float]:
    """Results of a run, by name."""
    run, end = filled.run, filled.run.counts.iloc[-1]
    counts = {
        "GiB": len(filled.gigabytes),
        "GiB with kernel pages": filled.tainted,
        "GiB without": filled.movable,
        "GiB wholly free": filled.empty,
        "kernel pages in the fullest GiB": int(filled.gigabytes["kernel_pages"].max()),
        "fallbacks": int(run.fallbacks["count"].sum()),
        "requests served in single pages": run.in_base_pages,
        "requests that failed": run.failed,
        "list probes for each page of a refill": end["refill_probes"] / max(end["refill_pages"], 1),
    }
    for row in list_costs(filled).to_dict("records"):
        for form in KEPT_IN:
            counts[f"{form} {row['migratetype']}"] = row[form]
    return counts


@cache
def runs(order: int) -> pd.DataFrame:
    """Results of each seed's host, one row a seed; `order` 0 is without superpageblocks."""
    policy = pm.Policy(superpageblock_order=order)
    rules = pm.KernelRules.named(RULES)
    return pd.DataFrame(
        measured(run_filling_host(FillingHost(seed=seed), policy, rules=rules))
        for seed in range(SEEDS)
    )


def host_rows() -> pd.DataFrame:
    """Both sides of the host."""
    posted = posted_figures("superpageblocks").set_index("quantity")
    without, patched = runs(0), runs(GIGABYTE_ORDER)
    rows = []
    for what in without.columns[1:9]:
        before, after = without[what].to_numpy(float), patched[what].to_numpy(float)
        row = {"what": what, "posted": "not posted", "verdict": "not posted", "null": "NA"}
        if what == "GiB with kernel pages":
            row |= _judged(posted.loc[TAINTED], before, after, at_most=True)
        elif what == "GiB without":
            row |= _judged(posted.loc[MOVABLE], before, after, at_most=False)
        row |= {"without": _spread(before), "with": _spread(after)}
        rows.append(row)
    return pd.DataFrame(rows)[["what", "posted", "without", "with", "verdict", "null"]]


def cost_rows() -> pd.DataFrame:
    """Heads of lists, or words of bitmaps, looked at for one single page, at the host's end.

    One set of lists is the host without superpageblocks; all others are the host with them.
    """
    without, patched = runs(0), runs(GIGABYTE_ORDER)
    rows = []
    for form, words in KEPT_IN.items():
        side = without if form == "one_set" else patched
        cells = {
            name: _spread(side[f"{form} {number}"].to_numpy(float))
            for number, name in enumerate(TYPES)
        }
        rows.append({"free pages are kept in": words, **cells})
    return pd.DataFrame(rows)


def _judged(
    posted: pd.Series, before: np.ndarray, after: np.ndarray, *, at_most: bool
) -> dict[str, str]:
    """The posted value, whether the host with superpageblocks has it, and the one without."""
    limit = float(posted["high"])
    low, high = resampled_interval(lambda mean: mean, after)
    fits = (high < limit, low >= limit) if at_most else (low >= limit, high < limit)
    words = "right" if fits[0] else "wrong" if fits[1] else "undecided"
    there = before.mean() < limit if at_most else before.mean() >= limit
    return {
        "posted": str(posted["value"]),
        "verdict": words,
        "null": "there too" if there else "not there",
    }


def _spread(values: np.ndarray) -> str:
    shown = (
        _number(part) for part in (values.mean(), *resampled_interval(lambda mean: mean, values))
    )
    mean, low, high = shown
    return mean if low == high else f"{mean} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 10 and value != int(value) else f"{value:,.0f}"


def main(words: list[str]) -> int:
    """Print one of the tables."""
    tables = {"tables": host_rows, "costs": cost_rows}
    what = words[0] if words else "tables"
    if what not in tables:
        print(__doc__)
        return 2
    print(tables[what]().to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
