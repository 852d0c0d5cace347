"""Two samples of hosts: ranges, bootstrap intervals, and a test of whether they differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

CONFIDENCE = 0.95
RESAMPLES = 9_999
SIGNIFICANT = 0.05
INTERVAL = "percentile bootstrap"
TEST = "two-sided Mann-Whitney U test"
ADJUSTMENT = "Benjamini-Hochberg"


def mean_interval(values: np.ndarray, *, seed: int = 0) -> tuple[float, float]:
    """Interval of the mean (`INTERVAL`, scipy.stats.bootstrap); NaN for fewer than two hosts.

    Args:
        values: one for each host.
        seed: of the resamples.
    """
    if len(values) < 2:
        return float("nan"), float("nan")
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    from scipy.stats import bootstrap

    found = bootstrap(
        (values,),
        np.mean,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=seed,
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def difference_interval(
    base: np.ndarray, patch: np.ndarray, *, seed: int = 0
) -> tuple[float, float]:
    """Interval of mean(patch) - mean(base), hosts of both sides resampled; NaN for single hosts.

    Args:
        base: one value for each host.
        patch: the same of the other side.
        seed: of the resamples.
    """
    if min(len(base), len(patch)) < 2:
        return float("nan"), float("nan")
    if np.ptp(base) == 0 and np.ptp(patch) == 0:
        difference = float(patch[0] - base[0])
        return difference, difference
    from scipy.stats import bootstrap

    found = bootstrap(
        (base, patch),
        lambda one, other, axis: np.mean(other, axis=axis) - np.mean(one, axis=axis),
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=seed,
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def p_value(base: np.ndarray, patch: np.ndarray) -> float:
    """Of `TEST`; NaN for fewer than two hosts on a side."""
    if min(len(base), len(patch)) < 2:
        return float("nan")
    if np.ptp(np.concatenate([base, patch])) == 0:
        return 1.0
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(base, patch, alternative="two-sided").pvalue)


def adjusted(p_values: Sequence[float]) -> np.ndarray:
    """p-values of several metrics, adjusted by `ADJUSTMENT`; NaN stays NaN."""
    values = np.asarray(p_values, float)
    known = ~np.isnan(values)
    if known.any():
        from scipy.stats import false_discovery_control

        values[known] = false_discovery_control(values[known])
    return values


def compared_sides(hosts: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """What both sides' hosts did, metric by metric.

    Args:
        hosts: side ("base" or "patch") and metrics, one row a host; NaN where a host failed.
        metrics: columns to compare.

    Returns:
        metric; for each side hosts, lowest, highest, mean, mean_low, mean_high; difference of the
        means (patch - base) with difference_low and difference_high; change (difference relative
        to the base's mean); p, p_adjusted; significant.
    """
    rows = []
    for metric in metrics:
        sides = {
            side: hosts.loc[hosts["side"] == side, metric].dropna().to_numpy(float)
            for side in ("base", "patch")
        }
        row: dict[str, object] = {"metric": metric}
        for side, values in sides.items():
            row |= {f"{side}_{name}": value for name, value in _summary(values).items()}
        base, patch = sides["base"], sides["patch"]
        difference = float(row["patch_mean"]) - float(row["base_mean"])  # type: ignore[arg-type]
        low, high = difference_interval(base, patch)
        row |= {"difference": difference, "difference_low": low, "difference_high": high}
        mean = float(row["base_mean"])  # type: ignore[arg-type]
        row["change"] = difference / mean if mean else float("nan")
        row["p"] = p_value(base, patch)
        rows.append(row)
    table = pd.DataFrame(rows)
    table["p_adjusted"] = adjusted(table["p"].tolist())
    table["significant"] = table["p_adjusted"] < SIGNIFICANT
    return table


def _summary(values: np.ndarray) -> dict[str, float]:
    low, high = mean_interval(values)
    known = len(values) > 0
    return {
        "hosts": len(values),
        "lowest": float(values.min()) if known else float("nan"),
        "highest": float(values.max()) if known else float("nan"),
        "mean": float(values.mean()) if known else float("nan"),
        "mean_low": low,
        "mean_high": high,
    }
