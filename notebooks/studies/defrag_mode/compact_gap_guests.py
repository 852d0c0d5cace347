"""Guests of 7.3 with compact_gap() capped or not, by vm.defrag_mode and vm.min_free_kbytes.

`python notebooks/studies/defrag_mode/compact_gap_guests.py` prints what ships in
data/experiments/compact_gap, where registered.toml says what was expected. `write DIR` reads boots
from DIR: a folder each, named GAP-MIN_FREE-MODE-BOOT, with the job.log that job.sh leaves.
`predict RECORDING` replays a boot of the gap without cap under each side.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data

import pagealloc_model as pm
from pagealloc_model.measured.costs import at_recorded_cost
from pagealloc_model.numbers.statistics import change_interval
from pagealloc_model.recording.recorded_machine import start_snapshots

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
SIDE = ["gap", "min_free", "mode"]
RULES = {"capped": "7.3", "uncapped": "7.3,compact_gap_capped=false"}
SEEDS = range(5)


def measured(directory: Path) -> pd.DataFrame:
    """Every boot that ended, by side: its quantities from the second round on."""
    rows = []
    for log in sorted(directory.glob("*-*-*-*/job.log")):
        parts = re.split(r"^== (\w+)$", log.read_text(), flags=re.MULTILINE)
        states = {
            name: dict(re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE))
            for name, text in zip(parts[1::2], parts[2::2], strict=True)
        }
        if "end" in states:
            gap, min_free, mode, boot = log.parent.name.split("-")
            grown = {
                name: int(value) - int(states["2"].get(name, 0))
                for name, value in states["end"].items()
            }
            rows.append({"gap": gap, "min_free": min_free, "mode": int(mode), "boot": int(boot)})
            rows[-1] |= _quantities(grown)
    return pd.DataFrame(rows)


def predicted(recording: pm.Recording) -> pd.DataFrame:
    """Quantities of replays of one recording under each side, by seed, as `measured`.

    Beside it lies `states`, which has the uptime at which each round began.
    """
    states = (recording.path.parent / "states").read_text()
    uptime = re.search(r"^== 2\n([\d.]+) ", states, re.MULTILINE)
    assert uptime is not None
    begin_ns = int(float(uptime[1]) * 1e9)
    own = at_recorded_cost(recording.trace, start_snapshots(recording)[1])
    rows = []
    for gap, rules in RULES.items():
        for mode in (0, 1):
            for seed in SEEDS:
                policy = pm.Policy(defrag_mode=bool(mode))
                done = pm.replay(recording, policy, rules=rules, assumptions=own, seed=seed)
                wide = done.vmstat.pivot_table(index="time_ns", columns="name", values="value")
                grown = wide.iloc[-1] - wide.iloc[abs(wide.index - begin_ns).argmin()]
                rows.append({"gap": gap, "min_free": "small", "mode": mode, "seed": seed})
                rows[-1] |= _quantities(grown.astype(int).to_dict())
    return pd.DataFrame(rows)


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


def _quantities(counters: dict[str, int]) -> dict[str, float]:
    values = {
        name: float(sum(counters.get(counter, 0) for counter in counters_of))
        for name, counters_of in QUANTITIES.items()
    }
    return values | {"served": 100 * counters["thp_fault_alloc"] / max(values["served"], 1)}


def _folder() -> Path:
    return shipped_data("the guests") / "experiments" / "compact_gap"


def main(arguments: list[str]) -> None:
    """Print differences between sides; write boots or predictions where asked to."""
    makers = {"write": ("boots", measured), "predict": ("predicted", predicted)}
    if len(arguments) == 2 and arguments[0] in makers:
        name, make = makers[arguments[0]]
        given = pm.open(arguments[1]) if name == "predicted" else Path(arguments[1])
        make(given).to_csv(_folder() / f"{name}.csv", index=False, float_format="%.6g")
    elif arguments:
        raise pm.UsageError(f"{' '.join(arguments)}: write nothing, write DIR or predict RECORDING")
    else:
        print(shipped("boots").to_string(index=False, float_format="%.1f"), end="\n\n")
        table = comparisons(shipped("boots"), shipped("predicted"))
        print(table.to_string(index=False, float_format="%.1f"))


if __name__ == "__main__":
    main(sys.argv[1:])
