"""Rounds of a source tree on a real machine: huge pages served by round and by mode.

`python notebooks/studies/defrag_mode/native_rounds.py` prints what ships:
data/experiments/native_rounds, made by `pagealloc experiment native_rounds -o DIR` where faults may
reclaim, and native_defrag, measured with another program of the same load where they may not. `DIR`
prints what was measured there. predicted.csv in both holds the replays of recordings of mode 0.
What was expected stands in data/experiments/native_rounds/registered.toml.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data

import pagealloc_model as pm
from pagealloc_model.guests.plan import find_plan, read_plan, sides_of
from pagealloc_model.guests.runs import Run, kept_runs
from pagealloc_model.numbers.statistics import change_interval, mean_interval

COUNTERS = (
    *("thp_fault_alloc", "thp_fault_fallback", "allocstall_movable", "allocstall_normal"),
    *("compact_stall", "compact_fail", "compact_success", "compact_migrate_scanned"),
    *("compact_daemon_wake", "compact_daemon_migrate_scanned", "pgscan_kswapd", "pgscan_direct"),
    *("pgsteal_kswapd", "pgsteal_direct", "pageoutrun"),
)
"""Of /proc/vmstat."""
QUANTITIES = {
    "served": ("thp_fault_alloc",),
    "stalls": ("allocstall_movable", "allocstall_normal"),
    "direct_scanned": ("pgscan_direct",),
    "daemon_wakes": ("compact_daemon_wake",),
    "daemon_scanned": ("compact_daemon_migrate_scanned",),
    "kswapd_scanned": ("pgscan_kswapd",),
    "seconds": ("s",),
    "pressure": ("pressure_ms",),
}
"""Those compared, and the columns that they are sums of; `served` is a percentage of faults."""
POSTED_SIGNS = {"served": 1, "stalls": -1, "direct_scanned": -1, "daemon_scanned": -1}
"""Signs of the post's cover letter."""
DISTURBED = {"mode": 0, "run": 1}
"""Of native_rounds: others searched the whole disk beside it. Left out after it was seen."""
LAST = 5
"""Rounds at a run's end that are compared."""
MODE = "vm.defrag_mode"


def shipped_rounds(of: str = "native_defrag") -> pd.DataFrame:
    """The shipped rounds, a row each: mode, run, disturbed, round and what counters grew by.

    `of`: "native_defrag" or "native_rounds".
    """
    rounds = pd.read_csv(_folder(of) / "rounds.csv")
    if "disturbed" not in rounds:
        is_it = (rounds[list(DISTURBED)] == pd.Series(DISTURBED)).all(axis=1)
        rounds["disturbed"] = is_it.astype(int)
    return rounds


def shipped_verdicts(*, undisturbed: bool = False) -> pd.DataFrame:
    """`verdicts` of native_rounds, of all runs or without the disturbed one and its prediction."""
    rounds, predicted = shipped_rounds("native_rounds"), shipped_predictions()
    if undisturbed:
        rounds = rounds[rounds["disturbed"] == 0]
        predicted = predicted[predicted["run"] != DISTURBED["run"]]
    return verdicts(rounds, predicted)


def shipped_predictions() -> pd.DataFrame:
    """Counters by round in replays of recordings of mode 0 under both modes, as shipped."""
    return pd.read_csv(_folder("native_rounds") / "predicted.csv")


def measured_rounds(directory: Path) -> pd.DataFrame:
    """Rounds of an experiment's runs, as `shipped_rounds`, with time and memory pressure.

    Returns:
        mode, run, round; s; `COUNTERS`; pressure_ms, memory PSI "some" within the round.
    """
    tables = []
    for mode, run in _runs(directory):
        places = sorted((Path(run.path).parent / "rounds").glob("*.vmstat"), key=_number)
        counts = pd.DataFrame([_counters(place) for place in places])
        begins = np.array([place.stat().st_mtime_ns for place in places])
        counts.insert(0, "s", (begins - begins[0]) / 1e9)
        times, pressure = _pressure(Path(run.path))
        counts["pressure_ms"] = np.interp(begins, times, pressure) if len(times) else np.nan
        within = counts.diff().iloc[1:]
        within = within.assign(mode=mode, run=run.repeat, round=within.index)
        tables.append(within[["mode", "run", "round", *counts]])
    return pd.concat(tables, ignore_index=True).astype(dict.fromkeys(COUNTERS, int))


def share(rounds: pd.DataFrame, by: list[str]) -> pd.Series:
    """Huge-page faults served, percent of all of them, by columns."""
    sums = rounds.groupby(by)[["thp_fault_alloc", "thp_fault_fallback"]].sum()
    return 100 * sums["thp_fault_alloc"] / sums.sum(axis=1)


def change(rounds: pd.DataFrame, last: int = LAST) -> tuple[float, float, float]:
    """Points that mode 1 serves more than mode 0 in runs' last rounds, with the 95 % interval.

    Runs are independent, their variances not equal (Welch).
    """
    row = changes(rounds, last).loc["served"]
    return row["difference"], row["low"], row["high"]


def changes(rounds: pd.DataFrame, last: int = LAST) -> pd.DataFrame:
    """Every registered quantity that is known, in runs' last rounds: mode 1 less mode 0.

    Returns:
        by quantity: mode_0 and mode_1, means over runs, of a round but for `served`, percent;
        difference with low and high (Welch, 95 %).
    """
    ends = rounds.groupby(["mode", "run"]).tail(last)
    rows = {}
    for name, columns in QUANTITIES.items():
        if set(columns) <= set(ends):
            values = end_values(ends, name, ["mode", "run"])
            before, after = values[0].to_list(), values[1].to_list()
            means = [float(np.mean(side)) for side in (before, after)]
            low, high = change_interval(before, after)
            rows[name] = [*means, means[1] - means[0], low, high]
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=["mode_0", "mode_1", "difference", "low", "high"]
    )


def end_values(ends: pd.DataFrame, quantity: str, by: list[str]) -> pd.Series:
    """A quantity by columns: percent for `served`, else the mean of a round."""
    if quantity == "served":
        return share(ends, by)
    return ends.assign(sum=ends[list(QUANTITIES[quantity])].sum(axis=1)).groupby(by)["sum"].mean()


def predicted_changes(predicted: pd.DataFrame, last: int = LAST) -> pd.DataFrame:
    """Predicted mode 1 less mode 0 in the last rounds, by quantity, with the range over replays.

    Means over seeds, then over recordings; quantities that replays do not know are left out.
    """
    by = ["run", "seed", "mode"]
    ends = predicted.groupby(by).tail(last)
    rows = {}
    for name, columns in QUANTITIES.items():
        if set(columns) <= set(ends) and ends[list(columns)].notna().any(axis=None):
            sides = end_values(ends, name, by).unstack("mode")
            difference = sides[1] - sides[0]
            means = sides.groupby("run").mean().mean()
            rows[name] = [*means, means[1] - means[0], difference.min(), difference.max()]
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=["mode_0", "mode_1", "predicted", "lowest", "highest"]
    )


def verdicts(rounds: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Measured and predicted changes by quantity, and what was registered as right.

    Returns:
        mode_0, mode_1, difference, low, high; effect: 0 is outside; posted: its sign is the post's;
        predicted; direction, within and nearer, as registered.
    """
    table = changes(rounds)
    signs = pd.Series(POSTED_SIGNS).reindex(table.index)
    table["effect"] = (table["low"] > 0) | (table["high"] < 0)
    table["posted"] = (table["effect"] & (np.sign(table["difference"]) == signs)).where(
        signs.notna(), pd.NA
    )
    table["predicted"] = predicted_changes(predicted)["predicted"]
    known = table["predicted"].notna()
    same = np.sign(table["predicted"]) == np.sign(table["difference"])
    inside = (table["low"] <= table["predicted"]) & (table["predicted"] <= table["high"])
    error = (table["predicted"] - table["difference"]).abs()
    table["direction"] = same.where(known & table["effect"], pd.NA)
    table["within"] = inside.where(known, pd.NA)
    table["nearer"] = (error < table["difference"].abs()).where(known, pd.NA)
    return table


def change_lines() -> list[str]:
    """The shipped changes where faults may reclaim, as rows of a page's table."""
    every, quiet = shipped_verdicts(), shipped_verdicts(undisturbed=True)
    lines = []
    for name, row in every.iterrows():
        digits = 1 if name in ("served", "seconds") else 0
        own = quiet.loc[name]
        cells = [f"{row[side]:,.{digits}f}" for side in ("mode_0", "mode_1")]
        cells.append(f"{row['low']:+,.{digits}f} to {row['high']:+,.{digits}f}")
        cells.append(f"{own['mode_0']:,.{digits}f}")
        cells.append(f"{own['low']:+,.{digits}f} to {own['high']:+,.{digits}f}")
        known = pd.notna(own["predicted"])
        cells.append(f"{own['predicted']:+,.{digits}f}" if known else "")
        lines.append(f"| {str(name).replace('_', ' ')} | {' | '.join(cells)} |")
    return lines


def trend(rounds: pd.DataFrame) -> pd.Series:
    """Points by which a run's last `LAST` rounds serve more than its first, by mode and run."""
    by = ["mode", "run"]
    first = share(rounds[rounds["round"] == rounds["round"].min()], by)
    return share(rounds.groupby(by).tail(LAST), by) - first


def _folder(of: str) -> Path:
    return shipped_data("rounds of a real machine") / "experiments" / of


def _runs(directory: Path) -> list[tuple[int, Run]]:
    """Finished runs, each with its mode."""
    sides = sides_of(read_plan(find_plan("native_rounds")))
    modes = {side.letter: int(side.values[MODE]) for side in sides}
    return [(modes[run.side], run) for run in kept_runs(sides, directory)]


def _number(place: Path) -> int:
    return int(place.stem)


def _counters(place: Path) -> dict[str, int]:
    words = dict(line.split() for line in place.read_text().splitlines())
    return {name: int(words.get(name, 0)) for name in COUNTERS}


def _pressure(recording: Path) -> tuple[list[int], list[float]]:
    """When memory pressure was read, ns of the files' clock, and its total then, ms."""
    files = sorted(recording.glob("snapshots/*/pressure_memory"))
    totals = [int(file.read_text().split()[4].removeprefix("total=")) / 1000 for file in files]
    return [file.stat().st_mtime_ns for file in files], totals


def _print(words: str, rounds: pd.DataFrame) -> None:
    print(f"{words}: huge-page faults served, percent, by round")
    print(share(rounds, ["mode", "run", "round"]).unstack().to_string(float_format="%.0f"))
    decay = trend(rounds)
    print(f"last {LAST} rounds less the first, points, by mode and run")
    print(decay.unstack().to_string(float_format="%+.1f"))
    for mode, own in decay.groupby("mode"):
        mean, low, high = mean_interval(own.to_list())
        print(f"mode {mode}: {mean:+.1f} points ({low:+.1f} to {high:+.1f})")
    print(f"mode 1 less mode 0, last {LAST} rounds")
    print(changes(rounds).to_string(float_format="%.1f"), end="\n\n")


def main(arguments: list[str]) -> None:
    """Print shares by round and run, and mode 1 less mode 0, as shipped or of a directory."""
    if len(arguments) == 1:
        _print(arguments[0], measured_rounds(Path(arguments[0])))
    elif arguments:
        raise pm.UsageError(f"{' '.join(arguments)}: write nothing, or DIR")
    else:
        for words, name in (("madvise", "native_defrag"), ("always", "native_rounds")):
            rounds = shipped_rounds(name)
            _print(f"defrag={words}", rounds)
            _print(f"defrag={words}, undisturbed", rounds[rounds["disturbed"] == 0])
        for undisturbed in (False, True):
            table = shipped_verdicts(undisturbed=undisturbed)
            print(table.to_string(float_format="%.1f"), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
