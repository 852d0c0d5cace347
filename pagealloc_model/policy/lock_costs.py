"""Costs in time of work under zone->lock, and where each number comes from (S11.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

SPREAD = 10**0.5
"""Results are shown for constants this much smaller and larger: tenfold from end to end."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A constant in nanoseconds.

    Attributes:
        ns: the value used.
        low_ns: lower end of its 95 % confidence interval, or of what is thought possible.
        high_ns: upper end.
        origin: "assumed" or "fitted from RECORDING".
    """

    ns: float
    low_ns: float
    high_ns: float
    origin: str = "assumed"

    def times(self, factor: float) -> Cost:
        """The same cost on a machine that is slower by a factor."""
        return replace(
            self, ns=self.ns * factor, low_ns=self.low_ns * factor, high_ns=self.high_ns * factor
        )


def _assumed(value: float) -> Cost:
    return Cost(ns=value, low_ns=value / SPREAD, high_ns=value * SPREAD)


@dataclass(frozen=True, kw_only=True)
class LockCosts:
    """Costs of a hold of zone->lock, by units of work (S11.1).

    The assumed ones stand for a few cached instructions, and about half a cache miss for each page
    struct that is touched; no recording that ships here settles them without tracing.

    Attributes:
        acquire: taking and releasing the lock, once per hold.
        object: one page object taken or returned.
        split: one halving of a buddy.
        merge: one buddy taken off its list to be merged.
        insert: one buddy listed after a free or a move.
        scan: one page looked at in a block scan.
        event: writing the trace event that each object causes; 0 on a machine that is not traced.
        handoff: from a release until the next in the queue has the lock.
    """

    acquire: Cost = field(default=_assumed(60))
    object: Cost = field(default=_assumed(40))
    split: Cost = field(default=_assumed(20))
    merge: Cost = field(default=_assumed(40))
    insert: Cost = field(default=_assumed(30))
    scan: Cost = field(default=_assumed(4))
    event: Cost = Cost(ns=0, low_ns=0, high_ns=0, origin="not traced")
    handoff: Cost = field(default=_assumed(100))

    def hold_ns(self, units: Mapping[str, np.ndarray] | np.ndarray) -> np.ndarray:
        """int64 duration of each hold.

        Args:
            units: columns or fields `objects`, `splits`, `merges`, `inserts`, `scanned`.
        """
        total = (
            self.acquire.ns
            + (self.object.ns + self.event.ns) * np.asarray(units["objects"])
            + self.split.ns * np.asarray(units["splits"])
            + self.merge.ns * np.asarray(units["merges"])
            + self.insert.ns * np.asarray(units["inserts"])
            + self.scan.ns * np.asarray(units["scanned"])
        )
        return np.maximum(np.rint(total), 1).astype(np.int64)

    @property
    def single_page_ns(self) -> int:
        """Hold of a single page that goes to or comes from the buddy: one object, one insert."""
        return max(round(self.acquire.ns + self.object.ns + self.event.ns + self.insert.ns), 1)

    @property
    def list_page_ns(self) -> tuple[int, int]:
        """Hold of a pcp->lock that moves one page: under the lock of the page before, or alone."""
        more = round(self.insert.ns)
        return more, max(round(self.acquire.ns) + more, 1)

    def times(self, factor: float) -> LockCosts:
        """All costs on a machine that is slower by a factor."""
        scaled = {cost.name: getattr(self, cost.name).times(factor) for cost in fields(self)}
        return LockCosts(**scaled)

    def untraced(self) -> LockCosts:
        """The same machine without tracing."""
        return replace(self, event=LockCosts().event)

    def lines(self) -> tuple[str, ...]:
        """One line per constant: value, interval, origin."""
        costs = ((cost.name, getattr(self, cost.name)) for cost in fields(self))
        return tuple(
            f"{name}: {cost.ns:.0f} ns ({cost.low_ns:.0f} to {cost.high_ns:.0f}), {cost.origin}"
            for name, cost in costs
        )
