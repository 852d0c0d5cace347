"""A zone at work: its buddy, watermarks, fallback, reserve and per-CPU lists together."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle.allocated import AllocatedPages
from tests.oracle.buddy import Buddy
from tests.oracle.buddy_6_1 import LooseBuddy
from tests.oracle.cached_types import CachedTypes
from tests.oracle.counters import FreeCounters, ThisCpu
from tests.oracle.events import EventLog
from tests.oracle.fallback import Fallback
from tests.oracle.fallback_6_1 import MovingFallback
from tests.oracle.highatomic import HighatomicReserve
from tests.oracle.highatomic_6_1 import LooseReserve
from tests.oracle.machine import PCP_TYPES, Migratetype, OracleMachine
from tests.oracle.ownership_counters import ListLocks, OwnershipCounters
from tests.oracle.pageblocks import Pageblocks
from tests.oracle.pcp import PerCpuPages, ZoneFlags
from tests.oracle.pcp_6_1 import FixedPerCpuPages
from tests.oracle.request import PLAIN, Attempt, Mark, Request
from tests.oracle.rules import OracleAssumptions, OraclePolicy, OracleRules
from tests.oracle.sizing import page_set_size
from tests.oracle.watermark import Watermarks

QUIET_TICKS = 3
"""Ticks without a change after which a CPU's lists for another node's zone are drained (S4.8)."""


@dataclass(frozen=True)
class Setting:
    """What all zones of one oracle share."""

    machine: OracleMachine
    rules: OracleRules
    policy: OraclePolicy
    blocks: Pageblocks
    allocated: AllocatedPages
    events: EventLog
    assumptions: OracleAssumptions
    this_cpu: ThisCpu
    ownership_counters: OwnershipCounters
    list_locks: ListLocks
    dead_cpus: set[int]


class Zone:
    """One zone; pages enter and leave it here.

    Attributes:
        index: zone index.
        type: position among its node's zones.
        node: number of its node.
        spec: the zone as found.
        pcp: page set of each CPU.
        counters: free pages as counted.
        cached_types: types of pages outside the buddy (6.1).
        isolated_blocks: ISOLATE blocks of the zone.
    """

    def __init__(self, index: int, setting: Setting) -> None:
        self.index = index
        self.type = setting.machine.zone_type(index)
        self.spec = setting.machine.zones[index]
        self.node = self.spec.node
        self.rules = setting.rules
        self.policy = setting.policy
        self.machine = setting.machine
        self.blocks = setting.blocks
        self.events = setting.events
        self.list_locks = setting.list_locks
        self.flags = ZoneFlags()
        lags = setting.assumptions.counters == "lagged"
        self.counters = FreeCounters(self.spec, self.machine, setting.this_cpu, lags=lags)
        self.cached_types = CachedTypes()
        self.isolated_blocks = 0
        self._build_core(setting)
        size = page_set_size(self.spec, setting.machine, setting.rules, setting.policy)
        page_set = PerCpuPages if setting.rules.pcp_tunes_itself else FixedPerCpuPages
        self.pcp = [
            page_set(size, self.flags, setting.machine, setting.rules, setting.policy)
            for _ in range(setting.machine.nr_cpus)
        ]

    def may_take(self, request: Request, attempt: Attempt) -> bool:
        """Whether the watermarks let the request take a page here; notes BELOW_HIGH (S3.1)."""
        order, highest_zone = request.order, request.highest_zone
        if self.rules.pcp_tunes_itself and not self.flags.below_high:
            if self.watermarks.ok_fast(order, Mark.HIGH, highest_zone, attempt):
                return True
            self.flags.below_high = True
        if self.watermarks.ok_fast(order, attempt.mark, highest_zone, attempt):
            return True
        return attempt.no_watermarks

    def margin(self, request: Request, attempt: Attempt) -> int:
        """Pages the zone has to spare for the request at its MIN mark; below 0: it lacks some."""
        return self.watermarks.margin(request.order, request.highest_zone, attempt)

    def has_buddy(self, request: Request, attempt: Attempt) -> bool:
        """Whether the zone has a buddy that is large enough and that the attempt may use."""
        return self.watermarks.has_suitable(request.order, attempt)

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

    def free(self, cpu: int, pfn: int, order: int, *, batched: bool = False) -> None:
        """Free a page to the CPU's list or, where it has none, to the buddy (S4.6).

        Pages of a folio batch come one after another and may share one hold of the list's lock.
        """
        migratetype = self.blocks.type_of(pfn)
        if not self.pcp[cpu].layout.holds(order) or self.machine.is_isolate(migratetype):
            self.buddy.free_direct(pfn, order)
            return
        self.cached_types.note(pfn, migratetype)
        if migratetype >= PCP_TYPES:
            migratetype = Migratetype.MOVABLE
        self._free_to_list(cpu, pfn, order, migratetype, batched=batched)

    def tick(self, cpu: int) -> None:
        """The vmstat worker's visit: counters, limits, lists of another node's zone (S4.8)."""
        pcp = self.pcp[cpu]
        if self.counters.fold(cpu) and self.machine.has_several_nodes:
            pcp.expire = QUIET_TICKS
        self.decay(cpu)
        if pcp.expire and pcp.count:
            self._expire(cpu)

    def decay(self, cpu: int) -> None:
        """Lower the limit of a CPU's lists, and drain what is above it (S4.8)."""
        pcp = self.pcp[cpu]
        excess = pcp.decay()
        batched = self.policy.pcp_decay_batched
        if batched is None:
            batched = self.rules.decay_batched
        chunk = pcp.batch if batched else max(excess, 1)
        if excess > 0:
            self._begin_drain(cpu)
        while excess > 0:
            self.list_locks.take_to_drain(self.index, cpu)
            self._drain(cpu, min(excess, chunk), 0, "decay")
            excess -= chunk

    def drain_all(self, cpu: int) -> None:
        """Empty one CPU's lists (S4.9)."""
        pcp = self.pcp[cpu]
        if pcp.count:
            self._begin_drain(cpu)
        while pcp.count:
            chunk = pcp.batch if self.policy.pcp_drain_batched else pcp.largest_batch
            self.list_locks.take_to_drain(self.index, cpu)
            self._drain(cpu, min(pcp.count, chunk), 0, "drain_all")

    def bury(self, cpu: int) -> None:
        """A CPU is dead; its lists have been emptied, and nothing else is left of it."""

    def _expire(self, cpu: int) -> None:
        """Another quiet tick for lists that only a remote CPU uses; in the end, drain some."""
        pcp = self.pcp[cpu]
        is_local = self.machine.node_of(cpu) == self.node
        pcp.expire = 0 if is_local else pcp.expire - 1
        if not is_local and pcp.expire == 0:
            self._begin_drain(cpu)
            self.list_locks.take_to_drain(self.index, cpu)
            self._drain(cpu, min(pcp.count, pcp.batch), 0, "decay")

    def _build_core(self, setting: Setting) -> None:
        """Lists, reserve, watermarks and fallback, as strict or loose as the kernel is (S6.5)."""
        zone, machine, blocks, events = self.spec, setting.machine, setting.blocks, setting.events
        rules, policy = setting.rules, setting.policy
        self.buddy: Buddy
        self.reserve: HighatomicReserve
        self.fallback: Fallback | MovingFallback
        boost_factor = policy.watermark_boost_factor
        if rules.free_lists_match_blocks:
            self.buddy = Buddy(zone, machine, blocks, events, self.counters)
            self.reserve = HighatomicReserve(self.buddy, rules, policy)
            self.watermarks = Watermarks(zone, self.buddy, self.reserve, rules, boost_factor)
            self.fallback = Fallback(self.buddy, self.watermarks, setting.allocated)
        else:
            loose = LooseBuddy(zone, machine, blocks, events, self.counters, self.cached_types)
            self.buddy = loose
            self.reserve = LooseReserve(loose, rules, policy)
            self.watermarks = Watermarks(zone, loose, self.reserve, rules, boost_factor)
            self.fallback = MovingFallback(loose, self.watermarks, setting.allocated)

    def _take_from_pcp(self, request: Request, attempt: Attempt) -> int | None:
        pcp = self.pcp[request.cpu]
        self.list_locks.take(self.index, request.cpu)
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

    def _free_to_list(
        self, cpu: int, pfn: int, order: int, migratetype: int, *, batched: bool
    ) -> None:
        """List a freed page, and drain what is too much (S4.6)."""
        pcp = self.pcp[cpu]
        self.list_locks.take_to_free(self.index, cpu, batched=batched)
        index = pcp.layout.index(order, migratetype)
        to_free = pcp.note_free(index, pfn)
        if to_free is not None:
            self._drain_overflow(cpu, to_free, index)

    def _begin_drain(self, cpu: int) -> None:
        """A CPU's lists are about to be drained, perhaps in several chunks."""

    def _drain_overflow(self, cpu: int, to_free: int, index: int) -> None:
        """Drain what a free pushed over the limit, in one hold or in chunks of batch (S4.7)."""
        self._begin_drain(cpu)
        batched = self.policy.pcp_free_batched
        if batched is None:
            batched = self.rules.free_batched
        if batched:
            self._drain_in_chunks(cpu, to_free, index)
        else:
            self._drain(cpu, to_free, index, "commit")
        self._note_recovery()

    def _drain_in_chunks(self, cpu: int, to_free: int, index: int) -> None:
        """Drain a batch at a time; between two of them the list's lock is let go (S4.7)."""
        pcp = self.pcp[cpu]
        left = to_free
        while left > 0 and pcp.count > 0:
            if left < to_free:
                self.list_locks.take_to_drain(self.index, cpu)
            self._drain(cpu, min(left, pcp.batch), index, "commit")
            left -= pcp.batch

    def _drain(self, cpu: int, budget: int, first: int, cause: str) -> None:
        """One hold of the lock that returns pages to the buddy (S5.6)."""
        objects = self.pcp[cpu].drain_one_by_one(budget, first, self._free_drained)
        self.events.hold("drain", cause, objects)

    def _free_drained(self, pfn: int, order: int) -> None:
        migratetype = self._drained_type(pfn)
        self.buddy.free(pfn, order, migratetype)
        self.events.drain(pfn, order, migratetype)

    def _drained_type(self, pfn: int) -> int:
        """Type a page leaves its per-CPU list with (S5.6)."""
        if self.rules.free_lists_match_blocks or self.isolated_blocks:
            return self.blocks.type_of(pfn)
        return self.cached_types.of(pfn)

    def _note_recovery(self) -> None:
        """After an overflow: clear BELOW_HIGH once the high watermark holds (S4.6)."""
        reserve_index = self.watermarks.highest_reserve_index()
        if self.watermarks.ok_at(0, Mark.HIGH, reserve_index, PLAIN):
            self.flags.below_high = False
