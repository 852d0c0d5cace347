"""The model's own reclaim and compaction under the recorded policy, and policies on a full host.

Usage: python notebooks/studies/others/pressure.py
       [own [RECORDING ...] | factors [RECORDING ...] | swings [RECORDING ...] | pair | reserve |
        questions | map | idle | costs | large | regions | scores WHOLE PARTLY]

`own`: what changes when elastic replaces literal: counters of kswapd, direct reclaim, compaction
and huge pages, recorded and by the model alone. `factors`: by how much the model is off in what
reclaim and compaction do in recordings under pressure, at each recording's own costs. `swings`:
mean and standard deviation of each zone's free pages under load, at snapshots, by the kernel and by
elastic replays. `pair [OFF ON [ALIKE ALIKE]]`: what the reserve's gate changed between two
recordings, beside its prediction from the one without it; reclaim at that recording's cost.
`reserve`: the highatomic reserve of a made-up 64 GiB host under atomic load: time to fill, and what
sits in it. `questions`: an experiment on a small one. `map`: where in a region of loads the gate
has an effect, 20 minutes of CPU time; written to data/gate_map.csv. `idle`: an idle reserve, with
and without the gate and proactive compaction, under each `defrag`, 4 minutes; `large`: the same on
64 GiB, 4 minutes; `regions`: the gate's effect on 4, 16 and 64 GiB, the reserve idle or minutes
after a burst, 9 minutes on a busy machine; `costs`: what each answer does for huge pages and to
atomic requests, 2 minutes. `scores WHOLE PARTLY`: the score over time in recordings of two guests
under mainline, and of the model's host. These five are written to data/experiments/idle_reserve.
`pagealloc post --reply highatomic` writes a mail from what these, `map` and the experiments left.
Recordings are looked up as `pagealloc info NAME` does.
"""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.highatomic import idle_reserve_tables as idle_tables
from pagealloc_model.notebooks.studies.highatomic.gate_effects import (
    by_axis,
    by_region,
    made_map,
    shipped_map,
    write_map,
)
from pagealloc_model.notebooks.studies.highatomic.idle_reserve import why_not_recycled
from pagealloc_model.notebooks.studies.others.full_host import FullHost, run_full_host
from pagealloc_model.notebooks.studies.others.pair_prediction import pair_prediction
from pagealloc_model.notebooks.studies.others.policy_pairs import pressure_counters

import pagealloc_model as pm
from pagealloc_model.measured.costs import recorded_reclaim_ns
from pagealloc_model.measured.measured import Measured
from pagealloc_model.policy import ElasticAssumptions
from pagealloc_model.predicted.elastic_values import elastic_values
from pagealloc_model.predicted.prepared import forget_prepared

ELASTIC = pm.Assumptions(reclaim="elastic", elastic=ElasticAssumptions())
ALL_RECORDED = pm.Assumptions(reclaim="elastic")
RECORDINGS = ("highatomic_stock", "kbuild")
SWUNG = ("unbatched72", "batched72")
PRESSED = ("highatomic_stock", "highatomic_gate3", "unbatched72", "batched72", "defrag72")
"""Recordings of the same load on guests short of memory."""
QUANTITIES = {
    "pages scanned": ("pgscan_kswapd", "pgscan_direct", "pgscan_khugepaged"),
    "pages stolen": ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged"),
    "pages migrated": ("pgmigrate_success",),
    "scanned to migrate": ("compact_migrate_scanned",),
    "scanned for free targets": ("compact_free_scanned",),
    "kcompactd wakes": ("compact_daemon_wake",),
    "stalls in reclaim": tuple(f"allocstall_{zone}" for zone in ("dma32", "normal", "movable")),
    "stalls in compaction": ("compact_stall",),
    "huge pages served": ("thp_fault_alloc",),
}
"""Counters of vmstat that make up each quantity; the model counts khugepaged's as direct."""
NEAR = 1.5
SEEDS = range(5)
"""Of the replays of each recording whose median counts."""
IDLE = {
    "idle": idle_tables.TWO_BY_TWO,
    "large": idle_tables.LARGE,
    "costs": idle_tables.ANSWERS,
    "regions": idle_tables.HOST_REGIONS,
}
"""Tables of the model's idle reserve by command."""


def own(recordings: tuple[str, ...] = RECORDINGS) -> pd.DataFrame:
    """Counters between the first and the last snapshot, recorded and predicted.

    `predicted` has the assumed costs; `at_its_cost` takes as long for a freed page as the
    recording's own direct reclaims did.
    """
    tables = []
    for name in recordings:
        recording = pm.open(name)
        measured = recording.measure()
        table = pressure_counters(pm.replay(recording, assumptions=ELASTIC), measured)
        table.insert(0, "recording", recording.name)
        if recorded_reclaim_ns(recording.trace) is not None:
            slow = pm.replay(recording, assumptions=elastic_values(recording).costs_alone)
            table["at_its_cost"] = pressure_counters(slow, measured)["predicted"]
        tables.append(table[(table["measured"] > 0) | (table["predicted"] > 0)])
    return pd.concat(tables, ignore_index=True)


def factors(recordings: tuple[str, ...] = PRESSED) -> pd.DataFrame:
    """Errors of the model's own reclaim and compaction, at each recording's own costs.

    What reclaim and compaction find is as in the time before the recording's first snapshot. Each
    recording is replayed with several seeds, which settle where pages lay that nothing shows: a few
    blocks more or less decide whether compaction finds any left, so that one replay says little.

    Both sides count from the first to the last snapshot. `null` is what the other recordings' rates
    would give: their median per second, times this one's seconds.
    """
    tables = []
    for name in recordings:
        recording = pm.open(name)
        measured = recording.measure()
        assumptions = elastic_values(recording).costs_alone
        replays = [pm.replay(recording, assumptions=assumptions, seed=seed) for seed in SEEDS]
        counts = [_counts(replay, measured) for replay in replays]
        predicted = replays[0]
        instants = measured.vmstat["time_ns"]
        inside = instants[instants.isin(predicted.vmstat["time_ns"])]
        recorded = measured.vmstat.pivot(index="name", columns="time_ns", values="value")
        changes = recorded[inside.max()] - recorded[inside.min()]
        table = pd.DataFrame(
            {
                "recording": recording.name,
                "quantity": [*QUANTITIES],
                "kernel": [_total(changes, names) for names in QUANTITIES.values()],
                "model": np.median(counts, axis=0).astype(np.int64),
                "least": np.min(counts, axis=0),
                "most": np.max(counts, axis=0),
                "seconds": (inside.max() - inside.min()) / 1e9,
            }
        )
        tables.append(table)
        forget_prepared(recording)
    together = pd.concat(tables, ignore_index=True)
    together["null"] = [_null(together, row) for row in together.itertuples()]
    together["factor"] = _ratios(together["model"], together["kernel"])
    together["null_factor"] = _ratios(together["null"], together["kernel"])
    counts = ["kernel", "model", "least", "most"]
    return together[["recording", "quantity", *counts, "factor", "null", "null_factor"]]


def swings(recordings: tuple[str, ...] = SWUNG, seeds: int = 2) -> pd.DataFrame:
    """Each zone's free pages at snapshots under load: mean, deviation and distance, in pages.

    Under load the machine has less free than a quarter of the way from its least to its most.
    `distance` is the mean one to the kernel's; in the kernel's row, to its own mean.
    """
    rows: list[dict[str, object]] = []
    for name in recordings:
        recording = pm.open(name)
        kernel = _by_zone(recording.measure().free_pages)
        for values, assumptions in (("general", ELASTIC), ("all recorded", ALL_RECORDED)):
            for seed in range(seeds):
                replayed = _by_zone(
                    pm.replay(recording, assumptions=assumptions, seed=seed).free_pages
                )
                shared = kernel[kernel.index > replayed.index[0]]
                total = shared.sum(axis=1)
                loaded = shared[total < total.min() + (total.max() - total.min()) / 4]
                here = replayed.reindex(loaded.index, method="nearest")
                sides = {f"{values}, seed {seed}": here}
                if not rows or rows[-1]["recording"] != name:
                    sides = {"kernel": loaded} | sides
                rows += [
                    {
                        "recording": name,
                        "zone": zone,
                        "values": words,
                        "mean": pages[zone].mean(),
                        "deviation": pages[zone].std(),
                        "distance": (
                            loaded[zone]
                            - (loaded[zone].mean() if words == "kernel" else pages[zone])
                        )
                        .abs()
                        .mean(),
                    }
                    for words, pages in sides.items()
                    for zone in loaded
                ]
    return pd.DataFrame(rows)


def _by_zone(free_pages: pd.DataFrame) -> pd.DataFrame:
    """Free pages by time and zone."""
    return free_pages.groupby(["time_ns", "zone"])["pages"].sum().unstack()


def _counts(replay: pm.Replay, measured: Measured) -> list[int]:
    """Return a replay's count of each quantity."""
    counters = pressure_counters(replay, measured).set_index("name")["predicted"]
    return [_total(counters, names) for names in QUANTITIES.values()]


def _total(changes: pd.Series, names: tuple[str, ...]) -> int:
    """Return the sum of the counters that are there."""
    return int(changes[changes.index.isin(names)].sum())


def _null(together: pd.DataFrame, row: Any) -> int:
    """Return what the other recordings' median rate gives for a row's quantity."""
    alike = together["quantity"] == row.quantity
    others = together[alike & (together["recording"] != row.recording)]
    rate = (others["kernel"] / others["seconds"]).median() if len(others) else 0
    return round(rate * row.seconds)


def _ratios(counts: pd.Series, kernel: pd.Series) -> list[float]:
    return [
        count / true if true else inf if count else float("nan")
        for count, true in zip(counts, kernel, strict=True)
    ]


def share_near(ratios: pd.Series) -> float:
    """Return the share of ratios within a factor of `NEAR`; none on both sides is within."""
    return float((ratios.isna() | ratios.between(1 / NEAR, NEAR)).mean())


def pair(
    off: str = "highatomic_stock", on: str = "highatomic_gate3", alike: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Changes by the gate: both recordings, and "on" predicted from "off"."""
    recording = pm.open(off)
    others = tuple(pm.open(path) for path in alike)
    gate = pm.Policy(highatomic_gate_order=3)
    return pair_prediction(
        recording, pm.open(on), gate, elastic_values(recording).costs_alone, others
    )


def reserve() -> pd.DataFrame:
    """The reserve of a made-up 64 GiB host, with and without what grows it."""
    host = FullHost()
    cases = (
        ("6.18", {}),
        ("6.18", {"highatomic_from_pcp": False}),
        ("6.18", {"highatomic_gate_order": 3}),
    )
    tables = []
    for preset, changed in cases:
        policy = pm.Policy(**changed)
        table = run_full_host(host, policy, rules=pm.KernelRules.preset(preset))
        table.insert(0, "policy", f"{preset}: {policy}")
        tables.append(table[table["second"].isin((1, 2, 5, 10, 20))])
    return pd.concat(tables, ignore_index=True)


def scores(whole: str, partly_used: str) -> list[Path]:
    """Write the score over time, of two guests under mainline and of the model's host."""
    guests = {"whole": pm.open(whole), "partly_used": pm.open(partly_used)}
    guest, model = idle_tables.GUEST_SCORES, idle_tables.MODEL_SCORES
    return [
        idle_tables.write_table(guest, idle_tables.guest_scores(guests)),
        idle_tables.write_table(model, idle_tables.made_table(model)),
    ]


def main(words: list[str]) -> int:
    """Print one of the tables."""
    what = words[0] if words else "own"
    if what == "own":
        print(own(tuple(words[1:]) or RECORDINGS).to_string(index=False))
    elif what == "factors":
        table = factors(tuple(words[1:]) or PRESSED)
        print(table.to_string(index=False))
        for side in ("factor", "null_factor"):
            print(f"{side}: {share_near(table[side]):.0%} within a factor of {NEAR}")
    elif what == "swings":
        print(swings(tuple(words[1:]) or SWUNG).round().to_string(index=False))
    elif what == "pair":
        print(pair(*words[1:3], alike=tuple(words[3:])).to_string(index=False))
    elif what == "reserve":
        print(reserve().to_string(index=False))
    elif what == "questions":
        print(why_not_recycled().to_string(index=False))
    elif what in IDLE:
        table = idle_tables.made_table(IDLE[what])
        print(idle_tables.write_table(IDLE[what], table))
        print(table.round(3).to_string(index=False))
    elif what == "scores":
        print(*scores(*words[1:3]), sep="\n")
    elif what == "map":
        print(write_map(made_map()))
        effects = shipped_map()
        for part in (pd.crosstab(effects["outcome"], effects["size"]), by_region(effects)):
            print(part.to_string(), end="\n\n")
        print(by_axis(effects).to_string(index=False))
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
