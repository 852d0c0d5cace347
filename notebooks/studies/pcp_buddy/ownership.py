"""Pageblock ownership against mainline: traffic at zone->lock, and what it costs elsewhere.

Usage: python notebooks/studies/pcp_buddy/ownership.py
       [traffic | versions | purgers | pressure ...]

`traffic`: locks and phases on xfree and kbuild, and free memory after both. `versions`: mainline
and the three ways to free a page that were posted, with waits at both locks, on xfree and on
made-up loads. `purgers`: many of 2 to 316 CPUs allocate, few free. `pressure`: elastic replays of
highatomic_stock, and of unbatched72 where PAGEALLOC_RECORDINGS has it; beside each change how far
other seeds carry mainline. Ownership runs with its default
options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.pcp_buddy.ownership_effects import (
    OwnershipEffects,
    ownership_effects,
    ownership_rows,
)

import pagealloc_model as pm
from pagealloc_model.numbers.errors import recorded_lock_model

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
    ("zone->lock acquisitions", "failed trylocks"),
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
"""Rows of the summary; locks are held for milliseconds."""
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


VERSIONS = {
    "mainline": None,
    "RFC: spin": "spin",
    "30 April: trylock": "trylock",
    "20 May: lockless": "lockless",
}
"""Ways to take pcp->lock in a free, by what they are called in tables (S12.9)."""
WAITS = ("waits", "sum, ms", "p99, us", "longest, us")


def versions() -> pd.DataFrame:
    """Traffic and waits at both locks, a row for each load and quantity, a column a version."""
    xfree = pm.open("xfree")
    exiting = pm.synthetic.scenario("exit", gib=32, nr_cpus=32, rules="6.18")
    runs: dict[str, Callable[[pm.Policy], pm.Replay | pm.synthetic.Run]] = {
        "xfree": lambda policy: pm.replay(xfree, policy),
        **{f"purgers, {count} CPUs": partial(_run_purgers, count) for count in (8, 32, 128)},
        "exit, 32 CPUs": lambda policy: pm.synthetic.run(exiting, policy, rules="6.18"),
    }
    parts = []
    for load, run in runs.items():
        part = version_table(run)
        part.insert(0, "load", load)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def version_table(run: Callable[[pm.Policy], pm.Replay | pm.synthetic.Run]) -> pd.DataFrame:
    """The same of one load, which `run` goes through under a policy."""
    sides = {name: _version_values(run(_version(way))) for name, way in VERSIONS.items()}
    return pd.DataFrame(sides).reset_index(names="what")


def _version(way: str | None) -> pm.Policy:
    if way is None:
        return pm.Policy()
    return OWNED.changed_by(pm.Policy.parse([f"ownership.remote_free={way}"]))


def _version_values(run: pm.Replay | pm.synthetic.Run) -> dict[str, float]:
    is_recorded = isinstance(run, pm.Replay)
    times = run.lock_times(recorded_lock_model(run.recording) if is_recorded else None)
    effects = ownership_effects(run, times).rows.set_index(["metric", "scope"])["value"]
    failed = times.trylocks[["frees", "allocations"]].sum()
    zone, lists = times.acquisitions["wait_ns"], times.list_waits["wait_ns"]
    return {
        "zone->lock acquisitions": float(len(times.acquisitions)),
        "zone->lock held, ms": times.acquisitions["hold_ns"].sum() / 1e6,
        **_waits("zone->lock", zone),
        "pcp->lock acquisitions": effects["pcp->lock acquisitions", "all"],
        "pcp->lock hand-overs": effects["pcp->lock hand-overs", "all"],
        **_waits("pcp->lock", lists),
        "failed trylocks of allocations": float(failed["allocations"]),
        "failed trylocks of frees": float(failed["frees"]),
        "blocks touched": effects["blocks touched", "end"],
        "unusable index order 9": effects["unusable index", "order 9"],
    }


def _waits(lock: str, wait_ns: pd.Series) -> dict[str, float]:
    """Of those that waited at a lock: how many, the sum, p99 and the longest."""
    waited = wait_ns[wait_ns > 0]
    longest = (waited.quantile(0.99) / 1e3, waited.max() / 1e3) if len(waited) else (0.0, 0.0)
    values = (float(len(waited)), waited.sum() / 1e6, *longest)
    return {f"{lock} {name}": value for name, value in zip(WAITS, values, strict=True)}


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
    model = recorded_lock_model(recording)
    mainline, owned = (pm.replay(recording, policy) for policy in (None, OWNED))
    return tuple(ownership_effects(run, run.lock_times(model)) for run in (mainline, owned))


def purgers() -> pd.DataFrame:
    """The same where many CPUs allocate and an eighth of them, or one, free."""
    return pd.DataFrame([_share_row("purgers", _purging(count), "6.18") for count in CPUS])


def _purging(count: int) -> pm.synthetic.Demand:
    return pm.synthetic.scenario(
        "purgers",
        gib=max(16, count),
        nr_cpus=count,
        purging_cpus=max(count // 8, 1),
        pages=2048,
        rounds=4,
        rules="6.18",
    )


def _run_purgers(count: int, policy: pm.Policy) -> pm.synthetic.Run:
    return pm.synthetic.run(_purging(count), policy, rules="6.18")


def _share_row(name: str, scenario: pm.synthetic.Demand, rules: str) -> dict[str, object]:
    runs = [pm.synthetic.run(scenario, policy, rules=rules) for policy in (None, OWNED)]
    table = ownership_rows(*(ownership_effects(run, run.lock_times()) for run in runs))
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
    """The counters named in PRESSED at the end of a replay in the mode that is chosen for it."""
    table = pm.replay(recording, policy, seed=seed).vmstat
    last = table[table["time_ns"] == table["time_ns"].max()]
    return last.set_index("name")["value"].reindex(list(PRESSED))


PARTS: dict[str, Callable[[], object]] = {
    "traffic": lambda: traffic().to_string(),
    "versions": lambda: versions().to_string(),
    "purgers": lambda: purgers().to_string(),
    "pressure": lambda: pressure().to_string(),
}


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        print(PARTS[part]())
