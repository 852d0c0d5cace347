"""Counters of reclaim, with kswapd's waits for a CPU as recorded, and spread evenly (S10.14).

Usage: python notebooks/studies/others/kswapd_waits.py RECORDING ...

Recordings have `sched:sched_switch`. Each is replayed with five seeds, by its switches and without
them; all else is as `pagealloc replay` has it. data/tables/kswapd_waits.csv gets the table.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.others.policy_pairs import pressure_counters

import pagealloc_model as pm
from pagealloc_model.measured.measured import Measured
from pagealloc_model.predicted.elastic_values import elastic_values

SEEDS = range(5)
COUNTERS = (
    "pageoutrun",
    "kswapd_high_wmark_hit_quickly",
    "kswapd_low_wmark_hit_quickly",
    "compact_daemon_wake",
    "allocstall",
    "pgscan_direct_throttle",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pgmigrate_success",
    "thp_fault_alloc",
    "thp_fault_fallback",
)
"""Of vmstat; `allocstall` is of all zone types."""
BOOST = "watermark_boost"
"""Pages, mean over the snapshots."""
TABLE = "data/tables/kswapd_waits.csv"


def waits_table(names: list[str]) -> pd.DataFrame:
    """recording, kernel, seconds, quantity, measured, null, and each side's range over seeds.

    Counts are of the time from the first to the last snapshot. `null` goes on as in its first
    quarter; of the boost it keeps what the first snapshot has.
    """
    return pd.concat([_rows(pm.open(name)) for name in names], ignore_index=True)


def _rows(recording: pm.Recording) -> pd.DataFrame:
    """Rows of one recording."""
    measured, found = recording.measure(), elastic_values(recording).elastic
    sides: dict[str, list[pd.Series]] = {}
    for side, scheduled in (("even", False), ("by_switches", True)):
        own = replace(found, daemons_as_scheduled=scheduled)
        assumed = pm.Assumptions(reclaim="elastic", elastic=own)
        for seed in SEEDS:
            replayed = pm.replay(recording, assumptions=assumed, seed=seed)
            sides.setdefault(side, []).append(_counts(replayed, measured))
    known = measured.vmstat.pivot(index="time_ns", columns="name", values="value")
    instants = known.index[known.index.isin(replayed.vmstat["time_ns"])]
    known = known.loc[instants]
    known["allocstall"] = known[[name for name in known if name.startswith("allocstall_")]].sum(
        axis=1
    )
    first, last = instants[0], instants[-1]
    quarter = instants[max(int(np.searchsorted(instants, first + (last - first) / 4)), 1)]
    grown = known.loc[quarter] - known.loc[first]
    boosts = _boosts(measured.boosts, instants)
    null = pd.Series(
        [round(float(grown[name]) * (last - first) / (quarter - first)) for name in COUNTERS]
        + [round(float(boosts.iloc[0]))],
        [*COUNTERS, BOOST],
    )
    real = (known.loc[last] - known.loc[first])[list(COUNTERS)].astype(float)
    table = pd.DataFrame({"quantity": null.index})
    table.insert(0, "seconds", round((last - first) / 1e9, 1))
    table.insert(0, "kernel", recording.trace.release.partition("-")[0])
    table.insert(0, "recording", recording.name)
    table["measured"] = [*real.tolist(), float(boosts.mean())]
    table["null"] = null.to_numpy()
    for side, counts in sides.items():
        together = pd.concat(counts, axis=1).loc[null.index]
        table[f"{side}_low"] = together.min(axis=1).to_numpy()
        table[f"{side}_high"] = together.max(axis=1).to_numpy()
    numbers = table.columns[4:]
    return (
        table.astype(dict.fromkeys(numbers, float))
        .round(dict.fromkeys(numbers, 0))
        .astype(dict.fromkeys(numbers, np.int64))
    )


def _counts(replayed: pm.Replay, measured: Measured) -> pd.Series:
    """What a replay counts between the first snapshot and the last; its mean boost."""
    changes = pressure_counters(replayed, measured).set_index("name")["predicted"].astype(float)
    stalls = [name for name in changes.index if name.startswith("allocstall_")]
    changes["allocstall"] = changes[stalls].sum()
    instants = measured.vmstat["time_ns"].unique()
    changes[BOOST] = _boosts(replayed.boosts, instants).mean()
    return changes


def _boosts(boosts: pd.DataFrame, instants: np.ndarray) -> pd.Series:
    """Pages of all zones at each instant."""
    return boosts[boosts["time_ns"].isin(instants)].groupby("time_ns")["pages"].sum()


def main(names: list[str]) -> int:
    """Write the table of some recordings."""
    if not names:
        print(__doc__)
        return 2
    table = waits_table(names)
    table.to_csv(Path(TABLE), index=False)
    print(table.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
