"""Guests of 7.3 with compact_gap() capped or not, by vm.defrag_mode and vm.min_free_kbytes.

Boots and predictions ship in data/experiments/compact_gap, where registered.toml says what was
expected; `python notebooks/studies/defrag_mode/compact_gap_guests.py` prints them. A prediction is
a replay of one boot of the gap without cap under each side.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data

from pagealloc_model.numbers.statistics import change_interval

QUANTITIES = {
    "served": ("thp_fault_alloc", "thp_fault_fallback"),
    "compact_fail": ("compact_fail",),
    "stalls": ("allocstall_movable", "allocstall_normal", "allocstall_dma32"),
    "direct_scanned": ("pgscan_direct",),
    "kswapd_scanned": ("pgscan_kswapd",),
    "daemon_wakes": ("compact_daemon_wake",),
    "daemon_scanned": ("compact_daemon_migrate_scanned",),
}
"""Counters of /proc/vmstat; `served` is the first as a percentage of both."""


def shipped(name: str) -> pd.DataFrame:
    """A table of data/experiments/compact_gap: "boots" or "predicted"."""
    return pd.read_csv(_folder() / f"{name}.csv")


def comparisons(boots: pd.DataFrame, replays: pd.DataFrame) -> pd.DataFrame:
    """Differences between two sides that differ in gap or mode, measured and predicted.

    Returns:
        change, min_free, at (the side's other setting), quantity; before and after, means over
        boots; difference with low and high (Welch, 95 %); predicted, the difference of means over
        seeds, NaN where nothing was predicted; effect, direction, within, nearer as registered, NA
        where they cannot be told.
    """
    rows = []
    for axis, before, after, other in (
        ("gap", "capped", "uncapped", "mode"),
        ("mode", 0, 1, "gap"),
    ):
        for (min_free, at), own in boots.groupby(["min_free", other]):
            again = replays[(replays["min_free"] == min_free) & (replays[other] == at)]
            for name in QUANTITIES:
                sides = [own.loc[own[axis] == value, name].to_list() for value in (before, after)]
                if not all(sides):
                    continue
                means = [sum(side) / len(side) for side in sides]
                low, high = change_interval(*sides)
                made = again.groupby(axis)[name].mean()
                guess = made[after] - made[before] if len(made) == 2 else float("nan")
                difference, effect = means[1] - means[0], low > 0 or high < 0
                known, both = pd.notna(guess), pd.notna(guess) and pd.notna(low)
                rows.append(
                    {
                        "change": f"{axis} {before} to {after}",
                        "min_free": min_free,
                        "at": at,
                        "quantity": name,
                        "before": means[0],
                        "after": means[1],
                        "difference": difference,
                        "low": low,
                        "high": high,
                        "effect": effect,
                        "predicted": guess,
                        "direction": guess * difference > 0 if known and effect else pd.NA,
                        "within": low <= guess <= high if both else pd.NA,
                        "nearer": abs(guess - difference) < abs(difference) if known else pd.NA,
                    }
                )
    return pd.DataFrame(rows)


SHOWN = ("served", "compact_fail", "stalls", "direct_scanned")
"""Quantities that the page has rows of; of changes by the mode only the first."""


def page_lines() -> list[str]:
    """The shipped comparisons of quantities `SHOWN`, as rows of a page's table."""
    table = comparisons(shipped("boots"), shipped("predicted"))
    lines = []
    by_gap = table["change"].str.startswith("gap") & table["quantity"].isin(SHOWN)
    for row in table[by_gap | (table["quantity"] == SHOWN[0])].itertuples():
        digits = 1 if row.quantity == "served" else 0
        what = f"{row.change}, {'mode ' if row.change.startswith('gap') else ''}{row.at}"
        cells = [f"{value:,.{digits}f}" for value in (row.before, row.after)]
        known = row.low == row.low
        cells.append(f"{row.low:+,.{digits}f} to {row.high:+,.{digits}f}" if known else "")
        cells.append(f"{row.predicted:+,.{digits}f}" if row.predicted == row.predicted else "")
        lines.append(f"| {what} | {row.quantity.replace('_', ' ')} | {' | '.join(cells)} |")
    return lines


def _folder() -> Path:
    return shipped_data("the guests") / "experiments" / "compact_gap"


if __name__ == "__main__":
    print(shipped("boots").to_string(index=False, float_format="%.1f"), end="\n\n")
    table = comparisons(shipped("boots"), shipped("predicted"))
    print(table.to_string(index=False, float_format="%.1f"))
