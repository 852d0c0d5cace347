"""Chaotic quantities as ranges: what a replay says of them depends on the seed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.progress_bar import unreported
from pagealloc_model.measured.measured import Measured
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.verdict.quantities import (
    SERIES_WORDS,
    TOTAL_WORDS,
    scoped_quantity,
    was_recorded,
)

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


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
        line = (
            f"{self.quantity}: {min(self.values):,.0f} to {max(self.values):,.0f} over {count} "
            f"seeds, in the middle {float(np.median(self.values)):,.0f}"
        )
        if np.isnan(self.measured):
            return f"{line}; not measured"
        where = "in" if self.inside else "outside"
        return (
            f"{line}; measured {self.measured:,.0f}, {where} the range, {self.below} of {count} "
            "are less"
        )

    def to_dict(self) -> dict[str, object]:
        """Content that `pagealloc validate --json` prints of it."""
        return {
            "quantity": self.quantity,
            "metric": self.metric,
            "measured": None if np.isnan(self.measured) else self.measured,
            "values": list(self.values),
            "inside": self.inside,
            "below": self.below,
        }


_CHAOTIC = {
    "highatomic_blocks": SERIES_WORDS["highatomic_blocks"],
    "watermark_boost": SERIES_WORDS["watermark_boost"],
    "extfrag_events": TOTAL_WORDS["extfrag_events", "all"],
}


def seed_ranges(
    recording: Recording, measured: Measured, first: Replay, scored: np.ndarray, seeds: int
) -> tuple[SeedRange, ...]:
    """Replay a recording under further seeds, side by side on the cores."""

    def numbers(tables: Measured | Replay) -> tuple[float, ...]:
        values = []
        for metric in ("highatomic_blocks", "watermark_boost"):
            quantity = scoped_quantity(tables, metric, "all")
            at_scored = np.zeros(0)
            if quantity is not None:
                known = np.isin(quantity.time_ns, scored) & ~np.isnan(quantity.values)
                at_scored = quantity.values[known]
            if metric == "highatomic_blocks":
                at_scored = at_scored[-1:]
            values.append(float(at_scored.mean()) if len(at_scored) else float("nan"))
        return (*values, float(tables.fallbacks["count"].sum()))

    def again(seed: int) -> tuple[float, ...]:
        asked = {"rules": first.rules, "assumptions": first.assumptions, "seed": seed}
        return numbers(replay(recording, first.asked_policy, **asked, progress=unreported))

    real = list(numbers(measured))
    if not was_recorded(recording, Event.EXTFRAG):
        real[-1] = float("nan")
    more = range(first.seed + 1, first.seed + seeds)
    with ThreadPoolExecutor(min(seeds, os.cpu_count() or 1)) as threads:
        by_seed = [numbers(first), *threads.map(again, more)]
    return tuple(
        SeedRange(quantity=words, metric=metric, measured=kernel, values=values)
        for (metric, words), kernel, values in zip(
            _CHAOTIC.items(), real, zip(*by_seed, strict=True), strict=True
        )
        if not np.isnan(values).any() and (any(values) or kernel > 0)
    )
