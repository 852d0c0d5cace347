"""Pageblock ownership against mainline: traffic at zone->lock, and what it costs elsewhere.

Usage: python notebooks/studies/pcp_buddy/ownership.py [traffic | purgers | pressure ...]

`traffic`: locks and phases on xfree and kbuild, and free memory after both. `purgers`: many of 2 to
316 CPUs allocate, few free. `pressure`: elastic replays of highatomic_stock, and of unbatched72
where PAGEALLOC_RECORDINGS has it; beside each change how far other seeds carry mainline. Ownership
runs with its default options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.pcp_buddy.ownership_effects import (
    OwnershipEffects,
    ownership_effects,
    ownership_rows,
)

import pagealloc_model as pm
from pagealloc_model.policy import ElasticAssumptions

RECORDINGS = ("xfree", "kbuild")
CPUS = (2, 8, 32, 128, 316)
OWNED = pm.Policy(pageblock_ownership="pcp_buddy")
SHARES = {
    "acquisitions": ("zone->lock acquisitions", "all"),
    "held": ("zone->lock held", "all"),
    "pcp->lock held": ("pcp->lock held", "all"),
    "pages on lists": ("pages on per-CPU lists", "end"),
    "blocks touched": ("blocks touched", "end"),
    "free in part": ("blocks free in part", "end"),
}
"""Columns that show ownership as a share of mainline."""
SHOWN = (
    ("zone->lock acquisitions", "all"),
    ("zone->lock acquisitions", "refill"),
    ("zone->lock acquisitions", "drain"),
    ("zone->lock held", "all"),
    ("pcp->lock acquisitions", "all"),
    ("pcp->lock hand-overs", "all"),
    ("pcp->lock held", "all"),
    ("remote frees", "all"),
    ("refilled pages", "recover"),
    ("refilled pages", "claim"),
    ("refilled pages", "chunk"),
    ("refilled pages", "classic"),
    ("pages on per-CPU lists", "end"),
    ("blocks touched", "end"),
    ("blocks free in part", "end"),
    ("unusable index", "order 9"),
)
"""Rows of the summary; locks are held for milliseconds of assumed costs."""
PRESSED = (
    "pgsteal_kswapd",
    "pgsteal_direct",
    "allocstall_movable",
    "compact_stall",
    "compact_success",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "pgmigrate_success",
    "thp_fault_alloc",
    "thp_fault_fallback",
)
"""Counters shown of elastic replays."""
SEEDS = 4
"""Elastic replays of mainline whose draws differ: what is within their spread is no effect."""


def traffic(recordings: tuple[str, ...] = RECORDINGS) -> pd.DataFrame:
    """Every effect on each recording: mainline, ownership, and its share of mainline."""
    parts = []
    for name in recordings:
        recording = pm.open(name)
        rows = ownership_rows(*_effects_of_recording(recording))
        rows = rows.assign(share=rows["patch"] / rows["base"].where(rows["base"] != 0))
        rows.insert(0, "recording", name)
        parts.append(rows[["recording", "metric", "scope", "base", "patch", "share", "unit"]])
    columns = {"base": "mainline", "patch": "ownership"}
    return pd.concat(parts, ignore_index=True).rename(columns=columns)


def summary() -> pd.DataFrame:
    """The effects that say most, a column for each recording and policy."""
    rows = traffic().set_index(["metric", "scope"])
    columns = {"what": [" ".join(key).removesuffix(" all") for key in SHOWN]}
    for name in RECORDINGS:
        own = rows[rows["recording"] == name]
        for side in ("mainline", "ownership"):
            values = [own.loc[key, side] for key in SHOWN]
            columns[f"{name}, {side}"] = ["NA" if pd.isna(value) else value for value in values]
    return pd.DataFrame(columns)


def _effects_of_recording(recording: pm.Recording) -> tuple[OwnershipEffects, OwnershipEffects]:
    return ownership_effects(pm.replay(recording)), ownership_effects(pm.replay(recording, OWNED))


def purgers() -> pd.DataFrame:
    """The same where many CPUs allocate and an eighth of them, or one, free."""
    rows = []
    for count in CPUS:
        scenario = pm.synthetic.scenario(
            "purgers",
            gib=max(16, count),
            nr_cpus=count,
            purging_cpus=max(count // 8, 1),
            pages=2048,
            rounds=4,
            rules="6.18",
        )
        rows.append(_share_row("purgers", scenario, "6.18"))
    return pd.DataFrame(rows)


def _share_row(name: str, scenario: pm.synthetic.Demand, rules: str) -> dict[str, object]:
    runs = [pm.synthetic.run(scenario, policy, rules=rules) for policy in (None, OWNED)]
    table = ownership_rows(*(ownership_effects(run) for run in runs))
    values = table.set_index(["metric", "scope"])
    shares = {column: _share(values.loc[key]) for column, key in SHARES.items()}
    refilled = values.loc["refilled pages", "patch"]
    phases = {phase: refilled[phase] / max(refilled.sum(), 1) for phase in refilled.index}
    return {
        "load": name,
        "CPUs": scenario.machine.nr_cpus,
        **shares,
        **phases,
        "pages/acq. before": values.loc[("pages per acquisition", "all"), "base"],
        "after": values.loc[("pages per acquisition", "all"), "patch"],
        "remote frees": values.loc[("remote frees", "all"), "patch"],
    }


def _share(row: pd.Series) -> float:
    return row["patch"] / row["base"] if row["base"] else float("nan")


def pressure() -> pd.DataFrame:
    """Counters of elastic replays: mainline, ownership, the change, and other seeds' largest."""
    folder = os.environ.get("PAGEALLOC_RECORDINGS")
    full = [Path(folder) / "unbatched72"] if folder else []
    rows = []
    for source in ("highatomic_stock", *full):
        recording = pm.open(source)
        mainline = [_pressed_counters(recording, pm.Policy(), seed) for seed in range(SEEDS)]
        owned = _pressed_counters(recording, OWNED, 0)
        for name in owned.index:
            base = mainline[0][name]
            rows.append(
                {
                    "recording": recording.name,
                    "name": name,
                    "mainline": base,
                    "ownership": owned[name],
                    "change": owned[name] - base,
                    "null": 0,
                    "spread": max(abs(run[name] - base) for run in mainline),
                }
            )
    return pd.DataFrame(rows)


def _pressed_counters(recording: pm.Recording, policy: pm.Policy, seed: int) -> pd.Series:
    """The counters named in PRESSED at the end of an elastic replay."""
    own = pm.Assumptions(reclaim="elastic", elastic=ElasticAssumptions())
    table = pm.replay(recording, policy, assumptions=own, seed=seed).vmstat
    last = table[table["time_ns"] == table["time_ns"].max()]
    return last.set_index("name")["value"].reindex(list(PRESSED))


PARTS: dict[str, Callable[[], object]] = {
    "traffic": lambda: traffic().to_string(),
    "purgers": lambda: purgers().to_string(),
    "pressure": lambda: pressure().to_string(),
}


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        print(PARTS[part]())
