"""Copied streams gone through several times, on memory that stays in use throughout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pagealloc_model.studies.workload.copied_streams import CopiedStreams

SETTLING_NS = 1_000_000_000
"""What lives at the start is allocated this long before the first event of its round."""
KEPT_EVENTS = 1 << 23
"""A round of up to so many events is made once and kept while it is gone through."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds:
    """The demand of a number of rounds.

    Attributes:
        copied: what one round does.
        background: `layout.EVENT` records of what is allocated before the first round.
        highest_type: highest zone type that allocations of what lived at the start may use.
        rounds: how many.
    """

    copied: CopiedStreams
    background: np.ndarray
    highest_type: int
    rounds: int

    @property
    def first_ns(self) -> int:
        """Time of the first event."""
        return self.copied.first_ns - (2 if len(self.background) else 1) * SETTLING_NS

    @property
    def period_ns(self) -> int:
        """Time from one round to the next."""
        return self.copied.last_ns - self.copied.first_ns + 2 * SETTLING_NS

    @cached_property
    def events(self) -> int:
        """Events of all parts."""
        births = sum(map(len, self.copied.births(0, 0)))
        between = sum(map(len, self.copied.last_frees(0)))
        in_rounds = self.rounds * (births + self.copied.events)
        return len(self.background) + in_rounds + (self.rounds - 1) * between

    def parts(self) -> Iterator[np.ndarray]:
        """All events in time order, part by part."""
        if len(self.background):
            yield _later(self.background, self.first_ns)
        is_kept = self.rounds > 2 and self.copied.events <= KEPT_EVENTS
        kept = list(self._to_the_next()) if is_kept else None
        for number in range(self.rounds - 1):
            for part in self._to_the_next() if kept is None else kept:
                yield _later(part, number * self.period_ns)
        for part in self._one_round():
            yield _later(part, (self.rounds - 1) * self.period_ns)

    def _one_round(self) -> Iterator[np.ndarray]:
        yield from self.copied.births(self.highest_type, self.copied.first_ns - SETTLING_NS)
        yield from self.copied.merged()

    def _to_the_next(self) -> Iterator[np.ndarray]:
        yield from self._one_round()
        yield from self.copied.last_frees(self.copied.last_ns)


def _later(events: np.ndarray, by_ns: int) -> np.ndarray:
    """The events, so much later."""
    moved = events.copy()
    moved["time_ns"] += by_ns
    return moved
