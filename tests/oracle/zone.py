"""A zone at work: its buddy, watermarks, fallback, reserve and per-CPU lists together."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle.allocated import AllocatedPages
from tests.oracle.buddy import Buddy
from tests.oracle.events import EventLog
from tests.oracle.fallback import Fallback
from tests.oracle.highatomic import HighatomicReserve
from tests.oracle.machine import PCP_TYPES, Migratetype, OracleMachine
from tests.oracle.pageblocks import Pageblocks
from tests.oracle.pcp import PerCpuPages, ZoneFlags
from tests.oracle.request import PLAIN, Attempt, Mark, Request
from tests.oracle.rules import OraclePolicy, OracleRules
from tests.oracle.sizing import page_set_size
from tests.oracle.watermark import Watermarks


@dataclass(frozen=True)
class Setting:
    """What all zones of one oracle share."""

    machine: OracleMachine
    rules: OracleRules
    policy: OraclePolicy
    blocks: Pageblocks
    allocated: AllocatedPages
    events: EventLog


class Zone:
    """One zone; pages enter and leave it here.

    Attributes:
        index: zone index.
        spec: the zone as found.
        pcp: page set of each CPU.
    """

    def __init__(self, index: int, setting: Setting) -> None:
        self.index = index
        self.spec = setting.machine.zones[index]
        self.rules = setting.rules
        self.policy = setting.policy
        self.machine = setting.machine
        self.blocks = setting.blocks
        self.events = setting.events
        self.flags = ZoneFlags()
        self.buddy = Buddy(self.spec, setting.machine, setting.blocks, setting.events)
        self.watermarks = Watermarks(self.spec, self.buddy, setting.policy.watermark_boost_factor)
        self.fallback = Fallback(self.buddy, self.watermarks, setting.allocated)
        self.reserve = HighatomicReserve(self.buddy, setting.policy)
        size = page_set_size(self.spec, setting.machine, setting.rules, setting.policy)
        self.pcp = [
            PerCpuPages(size, self.flags, setting.machine, setting.rules, setting.policy)
            for _ in range(setting.machine.nr_cpus)
        ]

    def may_take(self, request: Request, attempt: Attempt) -> bool:
        """Whether the watermarks let the request take a page here; notes BELOW_HIGH (S3.1)."""
        order, highest_zone = request.order, request.highest_zone
        if not self.flags.below_high:
            if self.watermarks.ok_fast(order, Mark.HIGH, highest_zone, attempt):
                return True
            self.flags.below_high = True
        if self.watermarks.ok_fast(order, attempt.mark, highest_zone, attempt):
            return True
        return attempt.no_watermarks

    def take(self, request: Request, attempt: Attempt) -> int | None:
        """A page by way of the per-CPU list, else from the buddy (S3.2); may reserve (S7.1)."""
        pfn = None
        if self.pcp[request.cpu].layout.holds(request.order):
            pfn = self._take_from_pcp(request, attempt)
        reserves = attempt.highatomic and (pfn is None or self.rules.highatomic_from_pcp)
        if pfn is None:
            pfn = self._take_from_buddy(request, attempt)
        if reserves and pfn is not None:
            self.reserve.reserve(pfn, request.order)
        return pfn

    def free(self, cpu: int, pfn: int, order: int) -> None:
        """Free a page to the CPU's list or, where it has none, to the buddy (S4.6)."""
        pcp = self.pcp[cpu]
        migratetype = self.blocks.type_of(pfn)
        if not pcp.layout.holds(order) or self.machine.is_isolate(migratetype):
            self.buddy.free_direct(pfn, order)
            return
        if migratetype >= PCP_TYPES:
            migratetype = Migratetype.MOVABLE
        index = pcp.layout.index(order, migratetype)
        to_free = pcp.note_free(index, pfn)
        if to_free is not None:
            self._drain_overflow(pcp, to_free, index)
            self._note_recovery()

    def decay(self, cpu: int) -> None:
        """The vmstat worker's visit (S4.8)."""
        pcp = self.pcp[cpu]
        excess = pcp.decay()
        chunk = pcp.batch if self.rules.decay_batched else max(excess, 1)
        while excess > 0:
            self._drain(pcp, min(excess, chunk), 0, "decay")
            excess -= chunk

    def drain_all(self, cpu: int) -> None:
        """Empty one CPU's lists (S4.9)."""
        pcp = self.pcp[cpu]
        while pcp.count:
            self._drain(pcp, min(pcp.count, pcp.largest_batch), 0, "drain_all")

    def _take_from_pcp(self, request: Request, attempt: Attempt) -> int | None:
        pcp = self.pcp[request.cpu]
        pcp.note_allocation()
        index = pcp.layout.index(request.order, request.migratetype)
        if not pcp.lists[index]:
            self._refill(pcp, index, request, attempt)
        return pcp.pop_head(index) if pcp.lists[index] else None

    def _refill(self, pcp: PerCpuPages, index: int, request: Request, attempt: Attempt) -> None:
        """Fetch pages under one hold of the lock (S4.4)."""
        wanted = pcp.refill_size(request.order)
        if attempt.highatomic and not self.rules.highatomic_refills_pcp:
            return
        pages = self.fallback.take_many(wanted, request.order, request.migratetype, attempt)
        for pfn in pages:
            pcp.push_tail(index, pfn)
        self.events.hold("refill", "", len(pages))

    def _take_from_buddy(self, request: Request, attempt: Attempt) -> int | None:
        """One page under one hold; the reserve comes first or last, by right (S7.3)."""
        order = request.order
        pfn = None
        if attempt.highatomic:
            pfn = self.buddy.take_smallest(order, Migratetype.HIGHATOMIC)
        if pfn is None:
            pfn = self.fallback.take_one(order, request.migratetype, attempt)
        if pfn is None and (attempt.oom or attempt.non_block):
            pfn = self.buddy.take_smallest(order, Migratetype.HIGHATOMIC)
        self.events.hold("buddy_alloc", "", 0 if pfn is None else 1)
        return pfn

    def _drain_overflow(self, pcp: PerCpuPages, to_free: int, index: int) -> None:
        """Drain what a free pushed over the limit, in one hold or in chunks of batch (S4.7)."""
        batched = self.policy.pcp_free_batched
        if batched is None:
            batched = self.rules.free_batched
        if not batched:
            self._drain(pcp, to_free, index, "commit")
            return
        while to_free > 0 and pcp.count > 0:
            self._drain(pcp, min(to_free, pcp.batch), index, "commit")
            to_free -= pcp.batch

    def _drain(self, pcp: PerCpuPages, budget: int, first: int, cause: str) -> None:
        """One hold of the lock that returns pages to the buddy (S5.6)."""
        objects = pcp.drain_one_by_one(budget, first, self._free_drained)
        self.events.hold("drain", cause, objects)

    def _free_drained(self, pfn: int, order: int) -> None:
        migratetype = self.blocks.type_of(pfn)
        self.buddy.free(pfn, order, migratetype)
        self.events.drain(pfn, order, migratetype)

    def _note_recovery(self) -> None:
        """After an overflow: clear BELOW_HIGH once the high watermark holds (S4.6)."""
        reserve_index = self.watermarks.highest_reserve_index()
        if self.watermarks.ok_at(0, Mark.HIGH, reserve_index, PLAIN):
            self.flags.below_high = False
