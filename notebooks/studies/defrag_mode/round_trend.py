"""Huge pages served from round to round, by policy: shares, their trend and its interval."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode.repeated_rounds import (
    HugeFaults,
    repeated_rounds,
)

import pagealloc_model as pm
from pagealloc_model.numbers.statistics import resampled_interval
from pagealloc_model.predicted.elastic_values import elastic_values

ENDS = 5
"""Rounds at each end whose means make the trend."""


def rounds_of_sides(
    recordings: Sequence[pm.Recording],
    sides: Mapping[str, pm.Policy],
    seeds: Sequence[int],
    *,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Rounds of several recordings under several policies, for each seed."""
    tables: list[pd.DataFrame] = []
    runs = len(recordings) * len(sides) * len(seeds)
    for recording in recordings:
        for seed in seeds:
            for side, policy in sides.items():
                rounds = repeated_rounds(recording, policy, seed=seed, **options).rounds
                where = {"recording": recording.name, "side": side, "seed": seed}
                served = rounds["huge_served"] / rounds["huge_asked"].clip(lower=1)
                tables.append(rounds.assign(**where, served=served))
                if progress is not None:
                    progress(len(tables) / runs)
    return pd.concat(tables, ignore_index=True)


def trends(rounds: pd.DataFrame, ends: int = ENDS) -> pd.DataFrame:
    """Change of the share served from the first rounds to the last.

    Returns:
        One row a recording and side, and where there are several recordings one a side, recording
        "all": runs; first and last, shares in percent; trend, their difference in points, with low
        and high (bootstrap over runs, NaN for fewer than two); decays: the whole interval is below
        0, NA for fewer than two runs. The null model is no trend, 0.
    """
    after = rounds[rounds["round"] > rounds["round"].min()]
    groups = list(after.groupby(["recording", "side"], sort=False))
    if after["recording"].nunique() > 1:
        groups += [(("all", side), own) for side, own in after.groupby("side", sort=False)]
    rows = []
    for (recording, side), own in groups:
        shares = 100 * own.pivot_table(
            index=["recording", "seed"], columns="round", values="served"
        )
        first, last = shares.iloc[:, :ends].mean(axis=1), shares.iloc[:, -ends:].mean(axis=1)
        low, high = resampled_interval(lambda mean: mean, (last - first).to_numpy(float))
        rows.append(
            {
                "recording": recording,
                "side": side,
                "runs": len(shares),
                "first": first.mean(),
                "last": last.mean(),
                "trend": (last - first).mean(),
                "low": low,
                "high": high,
                "decays": pd.NA if len(shares) < 2 else bool(high < 0),
            }
        )
    return pd.DataFrame(rows).astype({"decays": "boolean"})


SIDES = {"vanilla": pm.Policy(defrag_mode=False), "defrag_mode": pm.Policy(defrag_mode=True)}


def rounds_from_the_first(
    recording: pm.Recording,
    begins_ns: Sequence[int],
    *,
    survivors: Sequence[str] = ("once", "stay", "gone"),
    touched: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
) -> pd.DataFrame:
    """As many rounds as a guest had, from what is recorded of the first one alone.

    The recording is cut where its second round begins, and its demand, huge-page faults included,
    gone through again and again. Reclaim and compaction cost what they did in that part.

    Args:
        recording: of all rounds, or of the first.
        begins_ns: when each round begins, and the last one ends, on the recording's clock, ns.
        survivors: as `repeated_rounds` takes them.
        touched: base pages that a task asks for in place of a refused huge page; None for the
            median of the first round, or all 512 where that refused none.
        seeds: of what nothing settles.

    Returns:
        As `rounds_of_sides`, sides "vanilla" and "defrag_mode", with a column survivors.

    Raises:
        UsageError: fewer than two times, or the second lies outside the recording.
    """
    first_ns = int(recording.trace.time_ns[0])
    if len(begins_ns) < 2 or not first_ns < begins_ns[1] <= int(recording.trace.time_ns[-1]):
        raise pm.UsageError(
            f"{recording.name}: rounds begin at {list(begins_ns)[:2]} ns and so on; give two times "
            "or more, of which the second lies within the recording"
        )
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        seconds = (begins_ns[1] - first_ns) / 1e9
        recording.trim(Path(folder) / "first", seconds=seconds)
        first = pm.open(Path(folder) / "first")
        costs = elastic_values(first).costs_alone
        if touched is not None:
            elastic = replace(costs.elastic, base_pages_per_huge=touched)
            costs = replace(costs, elastic=elastic)
        for words in survivors:
            rounds = rounds_of_sides(
                [first],
                SIDES,
                seeds,
                rounds=len(begins_ns) - 1,
                faults=HugeFaults(per_round=0),
                survivors=words,
                assumptions=costs,
            )
            tables.append(rounds.assign(survivors=words, recording=recording.name))
    return pd.concat(tables, ignore_index=True)


_UNFIXED = pm.Policy(
    defrag_atomic_falls_back=False, defrag_promotes_order=False, promoted_fall_back_afresh=False
)
_OFF = pm.Policy(defrag_mode=False, defrag_kswapd_assist=False, defrag_watermarks=False)
_STEPS: tuple[tuple[str, pm.Policy], ...] = (
    ("vanilla", _OFF),
    ("whole blocks only", pm.Policy(defrag_mode=True)),
    ("kswapd and kcompactd for blocks", pm.Policy(defrag_kswapd_assist=True)),
    ("watermarks in whole blocks", pm.Policy(defrag_watermarks=True)),
    ("atomics fall back", pm.Policy(defrag_atomic_falls_back=True)),
    ("others make whole blocks", pm.Policy(defrag_promotes_order=True)),
    ("and end sooner, as in 7.3", pm.Policy(promoted_fall_back_afresh=True)),
)


def series(setting: pm.Policy | None = None) -> dict[str, pm.Policy]:
    """Each step on top of those before it, all else equal, whatever the rules say of them.

    Steps 3 to 5 of the series of March 2025 come first (S8.6). Then two fixes from production,
    "mm/page_alloc: fix defrag_mode for non-reclaimable allocations" (v2, 20 May 2026) and "mm:
    page_alloc: fix non-movable reclaim storm in defrag_mode" (26 June 2026), and how 7.3 has the
    latter (S8.7).

    Returns:
        Policies by a step's name, vanilla first.
    """
    policy = _UNFIXED if setting is None else _UNFIXED.changed_by(setting)
    steps = {}
    for name, changed in _STEPS:
        policy = policy.changed_by(changed)
        steps[name] = policy
    return steps
