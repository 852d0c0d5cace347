"""One number of a replay with what it is made of, window by window, so that it can be resampled."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

Direction = Literal["lower", "higher", ""]
How = Literal["sum", "ratio", "most", "quantile", "count", "last"]
WINDOWS = 20
"""Windows of equal length that a replay is cut into; they are the blocks of the bootstrap."""
DRAWS = 400
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Quantity:
    """A metric of one replay.

    Attributes:
        metric: its name.
        scope: what part of the machine it is of.
        unit: of the value.
        better: which direction is better, "" if neither.
        value: over the whole replay, NaN if unknown.
        how: from parts to value: their sum, a ratio of two sums, their maximum, a quantile of the
            counts of `levels`; "count" and "last" know no parts: a total of rare events, and a
            state at the end.
        parts: float, shape (windows,); of a quantile (windows, levels).
        per: float, shape (windows,), what a ratio's parts are divided by.
        levels: float, shape (levels,), ascending.
        share: of a quantile, 0 to 1.
    """

    metric: str
    scope: str
    unit: str
    better: Direction
    value: float
    how: How
    parts: np.ndarray = field(default_factory=lambda: np.zeros(0))
    per: np.ndarray = field(default_factory=lambda: np.zeros(0))
    levels: np.ndarray = field(default_factory=lambda: np.zeros(0))
    share: float = 0.0

    def resampled(self, drawn: np.ndarray) -> np.ndarray:
        """Return the value for each draw of windows.

        Args:
            drawn: int64, shape (draws, windows): how often each window is in a draw.
        """
        if self.how == "sum":
            return drawn @ self.parts
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.how == "ratio":
                return (drawn @ self.parts) / (drawn @ self.per)
            if self.how == "most":
                return np.where(drawn > 0, self.parts, -np.inf).max(axis=1)
            if self.how == "quantile":
                return _quantiles(drawn @ self.parts, self.levels, self.share)
        return np.full(len(drawn), self.value)


def absent(other: Quantity | None) -> Quantity:
    """The metric on a side that lacks it: nothing happened there if it counts, else unknown."""
    if other is None:
        raise ValueError("a metric of neither side")
    nothing = 0.0 if other.how in ("count", "sum") else float("nan")
    return replace(other, value=nothing, parts=other.parts * 0)


def draws(seed: int = 0) -> np.ndarray:
    """Return `DRAWS` draws of `WINDOWS` windows with replacement, as `Quantity.resampled` takes."""
    chosen = np.random.default_rng(seed).integers(0, WINDOWS, (DRAWS, WINDOWS))
    return (chosen[:, :, None] == np.arange(WINDOWS)).sum(axis=1)


def windows_interval(
    before: Quantity,
    after: Quantity,
    drawn: tuple[np.ndarray, np.ndarray],
    dispersion: float = 1.0,
) -> tuple[float, float]:
    """Return the interval of a change at `CONFIDENCE`, each side's windows drawn by themselves.

    The two sides of a comparison share their demand, but two runs of a machine do not: drawn apart,
    windows show how far runs of one policy can differ. Of a total of rare events the interval is
    that of a difference of two counts; of a state at the end there is none, and both ends are the
    change.

    Args:
        before: of the base.
        after: the same metric of the patch.
        drawn: of `draws`, for either side.
        dispersion: variance over mean of rare events by window; they come in bursts.
    """
    change = after.value - before.value
    if before.how == "count":
        half = 1.96 * float(np.sqrt(dispersion * (max(before.value, 0) + max(after.value, 0))))
        return change - half, change + half
    if before.how == "last" or np.isnan(change):
        return change, change
    found = after.resampled(drawn[1]) - before.resampled(drawn[0])
    found = found[np.isfinite(found)]
    if not len(found):
        return float("nan"), float("nan")
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return min(float(low), change), max(float(high), change)


def _quantiles(counts: np.ndarray, levels: np.ndarray, share: float) -> np.ndarray:
    """Of each row of counts by level; NaN where there is none."""
    if not len(levels):
        return np.full(len(counts), np.nan)
    reached = np.cumsum(counts, axis=1)
    total = reached[:, -1:]
    place = (reached >= np.maximum(np.ceil(share * total), 1)).argmax(axis=1)
    return np.where(total[:, 0] > 0, levels[place], np.nan)
