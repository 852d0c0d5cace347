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
        """Part of rmqueue_pcplist(): let an attempt count against recent drains (S4.5).

        Every attempt to allocate from the lists does.
        """
        self.free_factor >>= 1

    def nr_pcp_alloc(self, order: int) -> int:
        """nr_pcp_alloc(): return the objects to fetch for an empty list (S4.4).

        They are of `order`: a batch, scaled.
        """
        return max(self.batch >> order, 2) if self.batch > 1 else self.batch

    def note_free(
        self, index: int, pfn: int, *, counts: bool = True, may_drain: bool = True
    ) -> int | None:
        """nr_pcp_high() and nr_pcp_free(): list a freed page (S4.6).

        Arguments and result are as ever, but frees alone tell nothing.
        """
        order = self.layout.order(index)
        self.push_head(index, pfn)
        if not may_drain:
            return None
        flush = self.free_factor > 0 and 1 <= order <= self.layout.costly_order
        limit = 0 if flush else self._limit_now()
        if self.count < limit:
            return None
        return self.count if flush else self._next_drain(limit)

    def decay_pcp_high(self) -> int:
        """No kernel function: do nothing; time changes nothing."""
        return 0

    def _limit_now(self) -> int:
        """nr_pcp_high(): return the count from which pages are drained."""
        return min(4 * self.batch, self.high) if self.flags.reclaim_active else self.high

    def _next_drain(self, limit: int) -> int:
        """nr_pcp_free(): return the base pages to drain at once (S4.6).

        The next drain in a row takes more.
        """
        if limit < self.batch:
            return 1
        most = limit - self.batch
        wanted = self.batch << self.free_factor
        if wanted < most and self.free_factor < self._scale_max:
            self.free_factor += 1
        return clamp(wanted, self.batch, most)
