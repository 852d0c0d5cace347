"""Huge pages served from round to round, by policy: shares, their trend and its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.repeated import repeated_rounds

from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

ENDS = 5
"""Rounds at each end whose means make the trend."""
CONFIDENCE, RESAMPLES = 0.95, 9_999


def rounds_of_sides(
    recordings: Sequence[Recording],
    sides: Mapping[str, Policy],
    seeds: Sequence[int],
    *,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Rounds of several recordings under several policies, for each seed.

    Args:
        recordings: each gone through by itself.
        sides: policies by name.
        seeds: of what nothing settles; all sides see the same.
        progress: called with the share done, 0 to 1.
        options: as `repeated_rounds` takes them.

    Returns:
        `RepeatedRounds.rounds` of all, with columns recording, side, seed, and served, the share of
        the huge pages asked for that was served.

    Raises:
        UsageError, PolicyError, RecordingError: as `repeated_rounds`.
    """
    tables: list[pd.DataFrame] = []
    runs = len(recordings) * len(sides) * len(seeds)
    for recording in recordings:
        for seed in seeds:
            for side, policy in sides.items():
                found = repeated_rounds(recording, policy, seed=seed, **options).rounds
                where = {"recording": recording.name, "side": side, "seed": seed}
                served = found["huge_served"] / found["huge_asked"].clip(lower=1)
                tables.append(found.assign(**where, served=served))
                if progress is not None:
                    progress(len(tables) / runs)
    return pd.concat(tables, ignore_index=True)


def trends(rounds: pd.DataFrame, ends: int = ENDS) -> pd.DataFrame:
    """How much the share served changes from the first rounds to the last.

    Args:
        rounds: of `rounds_of_sides`, or others with its columns recording, side, seed, round and
            served. Round 1 is left out: what is free when a recording begins is used up in it.
        ends: rounds at each end whose means are compared.

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
        low, high = _interval((last - first).to_numpy(float))
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


def _interval(values: np.ndarray) -> tuple[float, float]:
    """Return the percentile bootstrap of a mean; NaN for fewer than two values."""
    if len(values) < 2:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values[drawn].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)
