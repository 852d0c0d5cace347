"""Rounds of a source tree on a real machine: huge pages served by round and by mode.

`python notebooks/studies/native_rounds.py DIR` prints what `pagealloc experiment native_rounds -o
DIR` measured; without DIR, what ships in data/experiments/native_defrag, which was measured with
another program of the same load, and recorded in vmstat alone. What the model predicts stands in
DIR/table.txt.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.shipped_data import shipped_data

import pagealloc_model as pm
from pagealloc_model.studies.study import (
    change_interval,
    find_plan,
    kept_runs,
    read_plan,
    sides_of,
)

COUNTERS = (
    *("thp_fault_alloc", "thp_fault_fallback", "allocstall_movable", "allocstall_normal"),
    *("compact_stall", "compact_fail", "compact_success", "compact_migrate_scanned"),
    *("compact_daemon_wake", "compact_daemon_migrate_scanned", "pgscan_kswapd", "pgscan_direct"),
    *("pgsteal_kswapd", "pgsteal_direct", "pageoutrun"),
)
"""Of /proc/vmstat."""
LAST = 5
"""Rounds at a run's end whose share served is compared."""


def shipped_rounds() -> pd.DataFrame:
    """The shipped rounds, a row each: mode, run, disturbed, round and what counters grew by."""
    return pd.read_csv(shipped_data("the native rounds") / "experiments/native_defrag/rounds.csv")


def measured_rounds(directory: Path) -> pd.DataFrame:
    """Rounds of an experiment's runs, as `shipped_rounds`, with the setting of THP `defrag`."""
    sides, tables = sides_of(read_plan(find_plan("native_rounds"))), []
    values = {side.letter: list(side.values.values()) for side in sides}
    for run in kept_runs(sides, directory):
        places = sorted((Path(run.path).parent / "rounds").glob("*.vmstat"), key=_number)
        counts = pd.DataFrame([_counters(place) for place in places]).diff().iloc[1:]
        mode, defrag = values[run.side]
        tables.append(
            counts.assign(
                mode=int(mode), defrag=defrag, run=run.repeat, disturbed=0, round=counts.index
            )
        )
    return pd.concat(tables, ignore_index=True)


def share(rounds: pd.DataFrame, by: list[str]) -> pd.Series:
    """Huge-page faults served, percent of all of them, by columns."""
    sums = rounds.groupby(by)[["thp_fault_alloc", "thp_fault_fallback"]].sum()
    return 100 * sums["thp_fault_alloc"] / sums.sum(axis=1)


def change(rounds: pd.DataFrame, last: int = LAST) -> tuple[float, float, float]:
    """Points that mode 1 serves more than mode 0 in runs' last rounds, with the 95 % interval.

    Runs are independent, their variances not equal (Welch).
    """
    ends = share(rounds.groupby(["mode", "run"]).tail(last), ["mode", "run"])
    before, after = ends[0].to_list(), ends[1].to_list()
    low, high = change_interval(before, after)
    return sum(after) / len(after) - sum(before) / len(before), low, high


def trend(rounds: pd.DataFrame) -> pd.Series:
    """Points by which a run's last `LAST` rounds serve more than its first, by mode and run."""
    by = ["mode", "run"]
    first = share(rounds[rounds["round"] == rounds["round"].min()], by)
    return share(rounds.groupby(by).tail(LAST), by) - first


def predicted_points() -> list[float]:
    """Points that mode 1 serves more, by seed, predicted from a recording of two rounds of mode 0.

    The recording does not ship.
    """
    table = pd.read_csv(shipped_data("the prediction") / "experiments/native_defrag/predicted.csv")
    return table.loc[table["quantity"] == "served", "change"].to_list()


def _number(place: Path) -> int:
    return int(place.stem)


def _counters(place: Path) -> dict[str, int]:
    words = dict(line.split() for line in place.read_text().splitlines())
    return {name: int(words.get(name, 0)) for name in COUNTERS}


def main(arguments: list[str]) -> None:
    """Print shares by round and run, and mode 1 less mode 0."""
    if len(arguments) > 1:
        raise pm.UsageError(f"{' '.join(arguments)}: write nothing, or DIR")
    rounds = measured_rounds(Path(arguments[0])) if arguments else shipped_rounds()
    for defrag, own in rounds.groupby("defrag") if "defrag" in rounds else [("madvise", rounds)]:
        print(f"defrag={defrag}: huge-page faults served, percent, by round")
        print(share(own, ["mode", "run", "round"]).unstack().to_string(float_format="%.0f"))
        print(f"last {LAST} rounds less the first, points, by mode and run")
        print(trend(own).unstack().to_string(float_format="%+.1f"))
        for words, chosen in (("all runs", own), ("undisturbed", own[own["disturbed"] == 0])):
            points, low, high = change(chosen)
            print(f"mode 1 less mode 0, {words}: {points:+.1f} points ({low:+.1f} to {high:+.1f})")


if __name__ == "__main__":
    main(sys.argv[1:])
