"""When a daemon gets its CPU: spans of a recording, and the waits between them (S10.14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class CpuSpan(NamedTuple):
    """A time on the CPU: when it began, how long it was, and the wait behind it, ns."""

    begin: int
    ran: int
    waited: int


class CpuTime:
    """Counts the work that a daemon has done since it slept; the spans say when it had to wait."""

    def __init__(self, spans: Sequence[CpuSpan]) -> None:
        self.spans = list(spans)  # by begin
        self._coming = list(spans)  # in the order in which they are used up, again and again
        self._used = 0  # work since the daemon slept, and what had passed of its first span then

    def wake(self, now: int) -> None:
        """Begin at a time: with the first span that is not over."""
        over = [span for span in self.spans if span.begin + span.ran <= now]
        self._coming = self.spans[len(over) :] + over
        self._used = 0
        if len(over) < len(self.spans):
            self._used = max(now - self._coming[0].begin, 0)

    def takes(self, work: int) -> int:
        """Return how long work takes, and count it."""
        if not self.spans:
            return work
        before = self._waited_by(self._used)
        self._used += work
        return work + self._waited_by(self._used) - before

    def _waited_by(self, used: int) -> int:
        """All waits behind spans that so much work uses up."""
        whole = sum(span.ran for span in self._coming)
        rounds, rest = divmod(used, whole)
        waited = rounds * sum(span.waited for span in self._coming)
        for span in self._coming:
            rest -= span.ran
            if rest < 0:
                break
            waited += span.waited
        return waited
