"""One CPU's page lists for one zone in 6.1: a fixed limit, and frees that gather pace (S4)."""

from __future__ import annotations

from tests.oracle.arithmetic import clamp
from tests.oracle.machine import OracleMachine
from tests.oracle.pcp import PerCpuPages, ZoneFlags
from tests.oracle.rules import OraclePolicy, OracleRules
from tests.oracle.sizing import PageSetSize


class FixedPerCpuPages(PerCpuPages):
    """Lists whose limit does not move (S4.3).

    Attributes:
        free_factor: a drain takes batch << this; grows with drains, halved by allocations.
    """

    def __init__(
        self,
        size: PageSetSize,
        flags: ZoneFlags,
        machine: OracleMachine,
        rules: OracleRules,
        policy: OraclePolicy,
    ) -> None:
        super().__init__(size, flags, machine, rules, policy)
        self.high = size.high_min
        self.free_factor = 0

    def note_allocation(self) -> None:
        """Every attempt to allocate from the lists counts against recent drains (S4.5)."""
        self.free_factor >>= 1

    def refill_size(self, order: int) -> int:
        """Objects of `order` to fetch for an empty list: a batch, scaled (S4.4)."""
        return max(self.batch >> order, 2) if self.batch > 1 else self.batch

    def note_free(
        self, index: int, pfn: int, *, counts: bool = True, may_drain: bool = True
    ) -> int | None:
        """List a freed page; arguments and result as ever, but frees alone tell nothing (S4.6)."""
        order = self.layout.order(index)
        self.push_head(index, pfn)
        if not may_drain:
            return None
        flush = self.free_factor > 0 and 1 <= order <= self.layout.costly_order
        limit = 0 if flush else self._limit_now()
        if self.count < limit:
            return None
        return self.count if flush else self._next_drain(limit)

    def decay(self) -> int:
        """Time changes nothing."""
        return 0

    def _limit_now(self) -> int:
        return min(4 * self.batch, self.high) if self.flags.reclaim_active else self.high

    def _next_drain(self, limit: int) -> int:
        """Base pages to drain at once; the next drain in a row takes more (S4.6)."""
        if limit < self.batch:
            return 1
        most = limit - self.batch
        wanted = self.batch << self.free_factor
        if wanted < most and self.free_factor < self._scale_max:
            self.free_factor += 1
        return clamp(wanted, self.batch, most)
