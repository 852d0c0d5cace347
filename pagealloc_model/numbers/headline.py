"""A verdict in one line: each quantity scored once, and chaotic ones as ranges over seeds."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.progress_bar import unreported
from pagealloc_model.base.text import count_of
from pagealloc_model.measured.measured import Measured
from pagealloc_model.numbers.errors import PREDICTED
from pagealloc_model.numbers.quantities import (
    SERIES_WORDS,
    TOTAL_WORDS,
    scoped_quantity,
    was_recorded,
)
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.recording.trace.columns import Event

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

_NEAR = 0.25
"""A prediction is near if it is off by at most this share of what was measured."""
_NAMED, _MISSES_NAMED = 4, 2
"""Quantities that the line names: right ones, and those that are most off."""
NULL_MODELS = "(nothing changes, no per-CPU lists)"
_COLUMNS = ("quantity", "metric", "measured", "predicted", "error", "null_error", "verdict")


def scores(errors: pd.DataFrame, snapshots: pd.DataFrame) -> pd.DataFrame:
    """Score each quantity of the whole machine once; imposed rows are left out.

    Of a series the error is its mean distance over the snapshots, of a total that at the end, both
    in shares of what was measured: infinite where nothing was measured and something predicted.

    Args:
        errors: of a validation: totals come from there.
        snapshots: of a validation: states come from there.

    Returns:
        quantity, metric, measured, predicted, error, null_error, verdict.
    """
    scored = []
    for metric, words in SERIES_WORDS.items():
        series = snapshots[snapshots["metric"] == metric]
        sides = series.groupby("time_s")[["measured", "predicted", "null"]].sum()
        if len(sides):
            measured, predicted, null = (sides[name].to_numpy(float) for name in sides)
            distances = [float(np.abs(side - measured).mean()) for side in (predicted, null)]
            means = float(measured.mean()), float(predicted.mean())
            scored.append((words, metric, *means, *distances))
    known = (errors["kind"] == PREDICTED) & errors[["measured", "predicted"]].notna().all(axis=1)
    totals = errors[known].set_index(["metric", "scope"])
    for key, words in TOTAL_WORDS.items():
        if key in totals.index:
            real, model, null = totals.loc[key, ["measured", "predicted", "null"]].astype(float)
            scored.append((words, key[0], real, model, abs(model - real), abs(null - real)))
    rows = []
    for words, metric, measured, predicted, *distances in scored:
        if measured or predicted:
            errors_of = [
                distance / measured if measured else (np.inf if distance else 0.0)
                for distance in distances
            ]
            verdict = judgement_of(measured, predicted, *errors_of)
            rows.append((words, metric, measured, predicted, *errors_of, verdict))
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def judgement_of(measured: float, predicted: float, error: float, null_error: float) -> str:
    """Say how right one prediction is."""
    if error <= _NEAR:
        worse = error and error >= null_error
        return f"within {max(ceil(100 * error), 1)} %" + (", null no worse" if worse else "")
    if not measured or not predicted:
        return "none predicted" if measured else "none measured"
    ratio = predicted / measured
    if ratio >= 2:
        return f"{ratio:,.0f} times too many"
    if ratio <= 0.5:
        return f"{1 / ratio:,.0f} times too few"
    return f"off by {100 * error:.0f} %"


def headline(table: pd.DataFrame) -> str:
    """One line of verdict on `scores`: what is predicted, what is not, and how many of all."""
    if table.empty:
        return "nothing that was recorded can be held to a prediction"
    near = table["error"] <= _NEAR
    right = table[near & ((table["error"] < table["null_error"]) | (table["error"] == 0))]
    parts = [f"{row.quantity} {row.verdict}" for row in right.head(_NAMED).itertuples()]
    missed = table[~near].sort_values("error", ascending=False, kind="stable")
    misses = [f"{row.quantity} ({row.verdict})" for row in missed.head(_MISSES_NAMED).itertuples()]
    said = [f"the model predicts {', '.join(parts) or 'nothing better than a null model does'}"]
    said += [f"furthest off: {', '.join(misses)}"] if misses else []
    return "; ".join([*said, f"{score_words(table)} {NULL_MODELS}"])


def score_words(table: pd.DataFrame) -> str:
    """Count quantities of `scores` near what was measured, and how many a null model has there."""
    near, null = (int((table[name] <= _NEAR).sum()) for name in ("error", "null_error"))
    return (
        f"{near} of {count_of(len(table), 'quantity', 'quantities')} within {100 * _NEAR:.0f} % of "
        f"what was measured, against {null} for the null model"
    )


@dataclass(frozen=True, kw_only=True)
class SeedRange:
    """One quantity over seeds.

    Attributes:
        quantity: in words.
        metric: of the error table.
        measured: what the kernel did; NaN where the recording does not show it.
        values: one a seed.
    """

    quantity: str
    metric: str
    measured: float
    values: tuple[float, ...]

    @property
    def below(self) -> int:
        """Number of seeds that give less than was measured."""
        return sum(value < self.measured for value in self.values)

    @property
    def inside(self) -> bool:
        """True if the kernel's number lies in the range."""
        return min(self.values) <= self.measured <= max(self.values)

    def __str__(self) -> str:
        count = len(self.values)
        low, middle, high = (float(f(self.values)) for f in (min, np.median, max))
        line = f"Over {count} seeds, {self.quantity}: "
        line += f"{low:,.0f} to {high:,.0f}, median {middle:,.0f}" if low < high else f"{low:,.0f}"
        if np.isnan(self.measured):
            return f"{line}; not measured"
        where = f"in the range, {self.below} of {count} below" if self.inside else "outside"
        return f"{line}; measured {self.measured:,.0f}, {where}"

    def to_dict(self) -> dict[str, object]:
        """Content that `pagealloc validate --json` prints of it."""
        measured = None if np.isnan(self.measured) else self.measured
        more = {"values": list(self.values), "inside": self.inside, "below": self.below}
        return asdict(self) | {"measured": measured} | more


def seed_ranges(
    recording: Recording, measured: Measured, first: Replay, scored: np.ndarray, seeds: int
) -> tuple[SeedRange, ...]:
    """Ranges of chaotic quantities: replays under further seeds, side by side on the cores."""

    def numbers(tables: Measured | Replay) -> tuple[float, ...]:
        means = []
        for metric in ("highatomic_blocks", "watermark_boost"):
            quantity = scoped_quantity(tables, metric, "all")
            known = np.zeros(0)
            if quantity is not None:
                at_scored = np.isin(quantity.time_ns, scored) & ~np.isnan(quantity.values)
                known = quantity.values[at_scored]
            known = known[-1:] if metric == "highatomic_blocks" else known
            means.append(float(known.mean()) if len(known) else float("nan"))
        return (*means, float(tables.fallbacks["count"].sum()))

    def again(seed: int) -> tuple[float, ...]:
        options = {"rules": first.rules, "assumptions": first.assumptions, "seed": seed}
        return numbers(replay(recording, first.asked_policy, **options, progress=unreported))

    real = list(numbers(measured))
    if not was_recorded(recording, Event.EXTFRAG):
        real[-1] = float("nan")
    more = range(first.seed + 1, first.seed + seeds)
    with ThreadPoolExecutor(min(seeds, os.cpu_count() or 1)) as threads:
        by_seed = [numbers(first), *threads.map(again, more)]
    words = {name: SERIES_WORDS[name] for name in ("highatomic_blocks", "watermark_boost")}
    words["highatomic_blocks"] += " at the end"
    words["extfrag_events"] = TOTAL_WORDS["extfrag_events", "all"]
    ranges = zip(words.items(), real, zip(*by_seed, strict=True), strict=True)
    return tuple(
        SeedRange(quantity=quantity, metric=metric, measured=kernel, values=values)
        for (metric, quantity), kernel, values in ranges
        if not np.isnan(values).any() and (any(values) or kernel > 0)
    )
