"""Chaotic quantities as ranges: what a replay says of them depends on the seed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
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
        """How many seeds give less than was measured."""
        return sum(value < self.measured for value in self.values)

    @property
    def inside(self) -> bool:
        """Whether the kernel's number lies in the range."""
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
        """What `pagealloc validate --json` prints of it."""
        return {
            "quantity": self.quantity,
            "metric": self.metric,
            "measured": None if np.isnan(self.measured) else self.measured,
            "values": list(self.values),
            "inside": self.inside,
            "below": self.below,
        }


def seed_ranges(
    recording: Recording, measured: Measured, first: Replay, scored: np.ndarray, seeds: int
) -> tuple[SeedRange, ...]:
    """Replay a recording under further seeds, side by side on the cores.

    Args:
        recording: an opened recording.
        measured: its tables.
        first: a replay of it, whose seed is the first.
        scored: int64, instants of the snapshots that are compared.
        seeds: how many in all, 1 or more.

    Returns:
        The reserve at the last snapshot, the mean boost at the snapshots, and fallbacks; what is 0
        everywhere is left out.
    """

    def again(seed: int) -> list[float]:
        other = replay(
            recording,
            first.asked_policy,
            rules=first.rules,
            assumptions=first.assumptions,
            seed=seed,
            progress=unreported,
        )
        return list(_numbers(other, scored))

    real = list(_numbers(measured, scored))
    if not was_recorded(recording, Event.EXTFRAG):
        real[-1] = float("nan")
    more = range(first.seed + 1, first.seed + seeds)
    with ThreadPoolExecutor(min(seeds, os.cpu_count() or 1)) as threads:
        by_seed = [list(_numbers(first, scored)), *threads.map(again, more)]
    return tuple(_ranges(real, by_seed))


_CHAOTIC = ("highatomic_blocks", "watermark_boost")


def _numbers(tables: Measured | Replay, scored: np.ndarray) -> Iterator[float]:
    for metric in _CHAOTIC:
        found = scoped_quantity(tables, metric, "all")
        values = np.zeros(0)
        if found is not None:
            values = found.values[np.isin(found.time_ns, scored) & ~np.isnan(found.values)]
        if not len(values):
            yield float("nan")
        else:
            yield float(values[-1] if metric == "highatomic_blocks" else values.mean())
    yield float(tables.fallbacks["count"].sum())


def _ranges(measured: list[float], by_seed: Iterable[list[float]]) -> Iterator[SeedRange]:
    names = {name: SERIES_WORDS[name] for name in _CHAOTIC}
    names["extfrag_events"] = TOTAL_WORDS["extfrag_events", "all"]
    columns = zip(*by_seed, strict=True)
    for (metric, words), real, values in zip(names.items(), measured, columns, strict=True):
        if not np.isnan(values).any() and (any(values) or real > 0):
            yield SeedRange(quantity=words, metric=metric, measured=real, values=values)
