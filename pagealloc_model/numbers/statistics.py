"""Intervals of numbers that vary from run to run, a paired test, and verdicts in words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

WITHIN = "predicted"
RIGHT = "right direction"
WRONG = "wrong"
NO_EFFECT = "no measurable effect"
NOT_PREDICTED = "not predicted"
TOO_FEW = "too few runs"
EFFECTS = (WITHIN, RIGHT, WRONG, NOT_PREDICTED)
"""Verdicts on what had a measurable effect."""

CONFIDENCE = 0.95
INTERVAL = "Welch's t"
RESAMPLES = 9_999
HALF = 0.5
"""Of one event: added to what is counted, so that none has a logarithm too."""
SHARE = "share"
"""Unit of what lies between 0 and 1."""
_LITTLE = 0.005
"""Of a share: added to it and to the rest."""


def scaled(values: np.ndarray | float, unit: str) -> np.ndarray:
    """Put what cannot be negative on a scale without ends: logarithms, logits of shares."""
    known = np.asarray(values, float)
    if unit == SHARE:
        return np.log((known + _LITTLE) / (1 - known + _LITTLE))
    return np.log(known + HALF)


def slope(value: float, unit: str) -> float:
    """Distance that the place on its scale moves for a small change of a value; see `scaled`."""
    if unit == SHARE:
        return 1 / (value + _LITTLE) + 1 / (1 - value + _LITTLE)
    return 1 / (value + HALF)


def unscaled(places: np.ndarray | float, unit: str) -> np.ndarray:
    """The values at places of a scale; see `scaled`."""
    known = np.asarray(places, float)
    with np.errstate(over="ignore"):
        if unit == SHARE:
            return np.clip((1 + 2 * _LITTLE) / (1 + np.exp(-known)) - _LITTLE, 0.0, 1.0)
        return np.maximum(np.exp(known) - HALF, 0.0)


def widths(freedom: float) -> float:
    """Standard errors on either side of an interval at `CONFIDENCE`, by Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def _known(values: Sequence[float] | np.ndarray) -> np.ndarray:
    numbers = np.asarray(values, float)
    return numbers[~np.isnan(numbers)]


def change_interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Interval of mean(after) - mean(before) at `CONFIDENCE`, for unequal variances.

    Each side has one value a run; unknown ones are left out. Both ends are NaN if a side has fewer
    than two known values, and the difference where no side varies.
    """
    sides = [_known(before), _known(after)]
    if min(map(len, sides)) < 2:
        return float("nan"), float("nan")
    difference = float(sides[1].mean() - sides[0].mean())
    parts = [float(side.var(ddof=1)) / len(side) for side in sides]
    total = sum(parts)
    if total == 0:
        return difference, difference
    shares = [(part / total) ** 2 for part in parts]
    freedom = 1 / sum(share / (len(side) - 1) for share, side in zip(shares, sides, strict=True))
    half = widths(freedom) * math.sqrt(total)
    return difference - half, difference + half


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean of independent runs, and the ends of its interval at `CONFIDENCE` by Student's t.

    Unknown values are left out; what too few are known for is NaN.
    """
    known = _known(values)
    mean = float(known.mean()) if len(known) else float("nan")
    if len(known) < 2:
        return mean, float("nan"), float("nan")
    half = widths(len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    return mean, mean - half, mean + half


def verdict(predicted: float, low: float, high: float) -> str:
    """A predicted change in words, beside the ends of the interval of the measured one.

    `TOO_FEW` without an interval; `NO_EFFECT` if 0 is in it, whatever was predicted; otherwise
    `WITHIN`, `RIGHT`, `WRONG` or, where the model has none, `NOT_PREDICTED`.
    """
    if math.isnan(low) or math.isnan(high):
        return TOO_FEW
    if low <= 0 <= high:
        return NO_EFFECT
    if math.isnan(predicted):
        return NOT_PREDICTED
    if low <= predicted <= high:
        return WITHIN
    return RIGHT if predicted and (predicted > 0) == (low > 0) else WRONG


LEVEL = 0.05
EXACT_RUNS = 14
"""With more runs, signs are drawn instead of gone through."""

DRAWS = 1 << 14
TEST = "two-sided sign-flip permutation test on the paired differences of runs"


def paired_p(base: Sequence[float], patch: Sequence[float], seed: int = 0) -> float:
    """Share of differences at least as large that come about if base and patch are exchangeable.

    Every run has its value under both; if the policy did nothing, each pair's difference could
    as well have the other sign. Exact up to `EXACT_RUNS` runs, beyond by drawn signs.
    """
    differences = _known(np.asarray(patch, float) - np.asarray(base, float))
    runs = len(differences)
    if runs < 2:
        return float("nan")
    seen = abs(differences.sum())
    if runs <= EXACT_RUNS:
        signs = np.array(list(itertools.product((-1, 1), repeat=runs)), np.int8)
    else:
        signs = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), (DRAWS, runs))
        signs[0] = 1
    sums = np.abs(signs @ differences)
    return float(np.mean(sums >= seen * (1 - 1e-12)))


def smallest_p(runs: int) -> float:
    """The smallest value that `paired_p` can have with so many runs."""
    return 2.0 / 2**runs if runs <= EXACT_RUNS else 1.0 / DRAWS


def relative(value: float, reference: float) -> float:
    """(value - reference) / reference; 0 where both are 0, NA where only the reference is."""
    if reference:
        return (value - reference) / reference
    return 0.0 if value == reference else float("nan")


def quantile_of_counts(counts: np.ndarray, levels: np.ndarray, share: float) -> np.ndarray:
    """A quantile of each row of counts by ascending level; NaN where there is none."""
    if not len(levels):
        return np.full(len(counts), np.nan)
    reached = np.cumsum(counts, axis=1)
    total = reached[:, -1:]
    place = (reached >= np.maximum(np.ceil(share * total), 1)).argmax(axis=1)
    return np.where(total[:, 0] > 0, levels[place], np.nan)


def resampled_interval(
    statistic: Callable[..., np.ndarray],
    *samples: np.ndarray,
    paired: bool = False,
) -> tuple[float, float]:
    """The percentile bootstrap at `CONFIDENCE` of a number made of means; NaN where unknown.

    Args:
        statistic: from the means of each sample's resamples, a value for each resample.
        samples: one value a run or host.
        paired: each resample takes the same runs of all samples.
    """
    if min(map(len, samples)) < 2:
        return float("nan"), float("nan")
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, len(samples[0]), (RESAMPLES, len(samples[0])))]
    for sample in samples[1:]:
        drawn.append(drawn[0] if paired else rng.integers(0, len(sample), (RESAMPLES, len(sample))))
    means = (sample[chosen].mean(axis=1) for sample, chosen in zip(samples, drawn, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(*means)
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high)
