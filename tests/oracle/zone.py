"""A zone at work: its buddy, watermarks, fallback, reserve and per-CPU lists together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.oracle.buddy import AllocatedPages, Buddy, CachedTypes, LooseBuddy, Pageblocks
from tests.oracle.fallback import Fallback, MovingFallback
from tests.oracle.machine import PCP_TYPES, EventLog, Migratetype, OracleMachine
from tests.oracle.ownership import ListLocks, OwnershipCounters
from tests.oracle.pcp import FixedPerCpuPages, PerCpuPages, ZoneFlags
from tests.oracle.request import PLAIN, Attempt, Mark, Request
from tests.oracle.rules import OracleAssumptions, OraclePolicy, OracleRules
from tests.oracle.superpageblocks import SuperpageblockBuddy, SuperpageblockFallback
from tests.oracle.vmstat import FreeCounters, ThisCpu, page_set_size
from tests.oracle.watermark import HighatomicReserve, LooseReserve, Watermarks

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
        note_recovered: called when a list's free lifts the zone above its high mark (S10.2).
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
        self.note_recovered: Callable[[], None] = lambda: None
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
        """Part of get_page_from_freelist(): return whether the marks allow a page (S3.1).

        BELOW_HIGH is noted, also where the recording has another zone serve.
        """
        order, highest_zone = request.order, request.highest_zone
        if self.rules.pcp_tunes_itself and not self.flags.below_high:
            self.note_below_high(request, attempt)
            if not self.flags.below_high:
                return request.may_be_served_by(self.index)
        if not request.may_be_served_by(self.index):
            return False
        if self.watermarks.zone_watermark_fast(order, attempt.mark, highest_zone, attempt):
            return True
        return attempt.no_watermarks

    def note_below_high(self, request: Request, attempt: Attempt) -> None:
        """Part of get_page_from_freelist(): set BELOW_HIGH where a request fails that mark (S3.1).

        Kernels with fixed limits of per-CPU lists have no use for the flag.
        """
        order, highest_zone = request.order, request.highest_zone
        if self.rules.pcp_tunes_itself and not self.flags.below_high:
            holds = self.watermarks.zone_watermark_fast(order, Mark.HIGH, highest_zone, attempt)
            self.flags.below_high = not holds

    def margin(self, request: Request, attempt: Attempt) -> int:
        """No kernel function: return what the zone can spare at MIN; below 0, what it lacks."""
        return self.watermarks.margin(request.order, request.highest_zone, attempt)

    def has_buddy(self, request: Request, attempt: Attempt) -> bool:
        """No kernel function: return whether a buddy is there that the attempt may use."""
        return self.watermarks.has_suitable(request.order, attempt)

    def take(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue(): take a page by way of the list, else the buddy; may reserve (S3.2, S7.1)."""
        pfn = None
        if self.pcp[request.cpu].layout.holds(request.order):
            pfn = self._rmqueue_pcplist(request, attempt)
        reserves = attempt.highatomic and (pfn is None or self.rules.highatomic_from_pcp)
        if self.policy.reserves_at_min_only(self.rules):
            reserves &= attempt.mark is Mark.MIN
        if pfn is None:
            pfn = self._rmqueue_buddy(request, attempt)
        if reserves and pfn is not None:
            self.reserve.reserve(pfn, request.order)
        return pfn

    def free(self, cpu: int, pfn: int, order: int, *, batched: bool = False) -> None:
        """__free_frozen_pages(): free a page to the CPU's list or the buddy (S4.6).

        It goes to the buddy where it has no list, or the list's lock is held (S4.10). Pages of a
        folio batch come one after another and may share one hold of the list's lock.
        """
        migratetype = self.blocks.type_of(pfn)
        is_listed = self.pcp[cpu].layout.holds(order) and not self.machine.is_isolate(migratetype)
        if not is_listed or self._is_locked(cpu):
            self.buddy.free_one_page(pfn, order)
            return
        self.cached_types.note(pfn, migratetype)
        if migratetype >= PCP_TYPES:
            migratetype = Migratetype.MOVABLE
        self._free_frozen_page_commit(cpu, pfn, order, migratetype, batched=batched)

    def begin_request(self, request: Request, attempt: Attempt) -> None:
        """Part of rmqueue_pcplist(): refill a request's list before it comes, if empty (S4.10).

        The list stays locked for the interrupts that have come meanwhile.
        """
        pcp = self.pcp[request.cpu]
        if not pcp.layout.holds(request.order):
            return
        index = pcp.layout.index(request.order, request.migratetype)
        if not pcp.lists[index]:
            self._rmqueue_bulk(pcp, index, request, attempt)
            self.list_locks.keep(self.index, request.cpu)

    def grow(self, pfn: int, order: int) -> None:
        """__free_pages_core(): take memory in, at list tails (S5.5)."""
        grown = replace(self.spec, managed=self.spec.managed + (1 << order))
        self.spec = self.buddy.zone = self.watermarks.zone = grown
        self.buddy.take_in(pfn, order)

    def tick(self, cpu: int) -> None:
        """Part of refresh_cpu_vm_stats(): look after counters, limits and remote lists (S4.8)."""
        pcp = self.pcp[cpu]
        if self.counters.fold(cpu) and self.machine.has_several_nodes:
            pcp.expire = QUIET_TICKS
        self.decay_pcp_high(cpu)
        if pcp.expire and pcp.count:
            self._expire(cpu)

    def decay_pcp_high(self, cpu: int) -> None:
        """decay_pcp_high(): lower the limit of a CPU's lists, drain what exceeds it (S4.8)."""
        pcp = self.pcp[cpu]
        excess = pcp.decay_pcp_high()
        batched = self.policy.pcp_decay_batched
        if batched is None:
            batched = self.rules.decay_batched
        chunk = pcp.batch if batched else max(excess, 1)
        if excess > 0:
            self._begin_drain(cpu)
        while excess > 0:
            self.list_locks.take_to_drain(self.index, cpu)
            self._free_pcppages_bulk(cpu, min(excess, chunk), 0, "decay")
            excess -= chunk

    def drain_all(self, cpu: int) -> None:
        """drain_pages_zone(): empty one CPU's lists (S4.9)."""
        pcp = self.pcp[cpu]
        if pcp.count:
            self._begin_drain(cpu)
        while pcp.count:
            chunk = pcp.batch if self.policy.pcp_drain_batched else pcp.largest_batch
            self.list_locks.take_to_drain(self.index, cpu)
            self._free_pcppages_bulk(cpu, min(pcp.count, chunk), 0, "drain_all")

    def note_taken(self, pfn: int, order: int) -> None:
        """No kernel function: note a page that compaction took; only ownership has use for it."""

    def bury(self, cpu: int) -> None:
        """page_alloc_cpu_dead(): forget a dead CPU, of which nothing is left."""

    def _expire(self, cpu: int) -> None:
        """Part of refresh_cpu_vm_stats(): drain some pages of a remote CPU's list in the end."""
        pcp = self.pcp[cpu]
        is_local = self.machine.node_of(cpu) == self.node
        pcp.expire = 0 if is_local else pcp.expire - 1
        if not is_local and pcp.expire == 0:
            self._begin_drain(cpu)
            self.list_locks.take_to_drain(self.index, cpu)
            self._free_pcppages_bulk(cpu, min(pcp.count, pcp.batch), 0, "decay")

    def _build_core(self, setting: Setting) -> None:
        """No kernel function: build lists, reserve, marks, fallback, strict or loose (S6.5)."""
        zone, machine, blocks, events = self.spec, setting.machine, setting.blocks, setting.events
        rules, policy = setting.rules, setting.policy
        self.buddy: Buddy
        self.reserve: HighatomicReserve
        self.fallback: Fallback | MovingFallback
        boost_factor = policy.watermark_boost_factor
        if rules.free_lists_match_blocks:
            order = policy.superpageblock_order
            if order:
                self.buddy = SuperpageblockBuddy(
                    zone, machine, blocks, events, self.counters, order
                )
            else:
                self.buddy = Buddy(zone, machine, blocks, events, self.counters)
            self.reserve = HighatomicReserve(self.buddy, rules, policy)
            self.watermarks = Watermarks(zone, self.buddy, self.reserve, rules, boost_factor)
            fallback = SuperpageblockFallback if order else Fallback
            self.fallback = fallback(
                self.buddy,
                self.watermarks,
                setting.allocated,
                mode_persists=policy.refill_mode_persists,
            )
        else:
            loose = LooseBuddy(zone, machine, blocks, events, self.counters, self.cached_types)
            self.buddy = loose
            self.reserve = LooseReserve(loose, rules, policy)
            self.watermarks = Watermarks(zone, loose, self.reserve, rules, boost_factor)
            self.fallback = MovingFallback(loose, self.watermarks, setting.allocated)

    def _rmqueue_pcplist(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue_pcplist(): take a page of the CPU's lists, or None."""
        pcp = self.pcp[request.cpu]
        if self._is_locked(request.cpu):
            return None
        self.list_locks.take(self.index, request.cpu)
        pcp.note_allocation()
        index = pcp.layout.index(request.order, request.migratetype)
        if not pcp.lists[index]:
            self._rmqueue_bulk(pcp, index, request, attempt)
        return pcp.pop_head(index) if pcp.lists[index] else None

    def _rmqueue_bulk(
        self, pcp: PerCpuPages, index: int, request: Request, attempt: Attempt
    ) -> None:
        """rmqueue_bulk(): fetch pages under one hold of the lock (S4.4)."""
        wanted = pcp.nr_pcp_alloc(request.order)
        if attempt.highatomic and not self.rules.highatomic_refills_pcp:
            return
        pages = self.fallback.take_many(wanted, request.order, request.migratetype, attempt)
        for pfn in pages:
            pcp.push_tail(index, pfn)
        self.events.hold("refill", "", len(pages))

    def _rmqueue_buddy(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue_buddy(): take one page under one hold, of the reserve first or last (S7.3)."""
        order = request.order
        pfn = None
        if attempt.highatomic:
            pfn = self.buddy.rmqueue_smallest(order, Migratetype.HIGHATOMIC)
        if pfn is None:
            pfn = self.fallback.take_one(order, request.migratetype, attempt)
        if pfn is None and (attempt.oom or attempt.non_block):
            pfn = self.buddy.rmqueue_smallest(order, Migratetype.HIGHATOMIC)
        self.events.hold("buddy_alloc", "", 0 if pfn is None else 1)
        return pfn

    def _free_frozen_page_commit(
        self, cpu: int, pfn: int, order: int, migratetype: int, *, batched: bool
    ) -> None:
        """free_frozen_page_commit(): list a freed page, drain what is too much (S4.6)."""
        pcp = self.pcp[cpu]
        self.list_locks.take_to_free(self.index, cpu, batched=batched)
        index = pcp.layout.index(order, migratetype)
        to_free = pcp.note_free(index, pfn)
        if to_free is not None:
            self.list_locks.note_drain(self.index, cpu)
            self._drain_overflow(cpu, to_free, index)

    def _is_locked(self, cpu: int) -> bool:
        """pcp_spin_trylock(): return whether a CPU fails to take the lock of its lists (S4.10)."""
        return self.list_locks.is_held(self.index, cpu)

    def _begin_drain(self, cpu: int) -> None:
        """No kernel function: begin a drain of a CPU's lists, perhaps in chunks."""

    def _drain_overflow(self, cpu: int, to_free: int, index: int) -> None:
        """Part of free_frozen_page_commit(): drain what is over, in a hold or chunks (S4.7)."""
        self._begin_drain(cpu)
        batched = self.policy.pcp_free_batched
        if batched is None:
            batched = self.rules.free_batched
        if batched:
            self._drain_in_chunks(cpu, to_free, index)
        else:
            self._free_pcppages_bulk(cpu, to_free, index, "commit")
        self._note_recovery()

    def _drain_in_chunks(self, cpu: int, to_free: int, index: int) -> None:
        """Part of free_frozen_page_commit(): drain a batch at a time, letting go between (S4.7)."""
        pcp = self.pcp[cpu]
        left = to_free
        while left > 0 and pcp.count > 0:
            if left < to_free:
                self.list_locks.take_to_drain(self.index, cpu)
            self._free_pcppages_bulk(cpu, min(left, pcp.batch), index, "commit")
            left -= pcp.batch

    def _free_pcppages_bulk(self, cpu: int, budget: int, first: int, cause: str) -> None:
        """free_pcppages_bulk(): return pages to the buddy in one hold of the lock (S5.6)."""
        objects = self.pcp[cpu].free_pcppages_bulk(budget, first, self._free_drained)
        self.events.hold("drain", cause, objects)

    def _free_drained(self, pfn: int, order: int) -> None:
        """Part of free_pcppages_bulk(): free one drained page."""
        migratetype = self._drained_type(pfn)
        self.buddy.free(pfn, order, migratetype)
        self.events.drain(pfn, order, migratetype)

    def _drained_type(self, pfn: int) -> int:
        """Part of free_pcppages_bulk(): return the type a page leaves its list with (S5.6)."""
        if self.rules.free_lists_match_blocks or self.isolated_blocks:
            return self.blocks.type_of(pfn)
        return self.cached_types.of(pfn)

    def _note_recovery(self) -> None:
        """Part of free_frozen_page_commit(): clear BELOW_HIGH if the high mark holds (S4.6)."""
        reserve_index = self.watermarks.highest_reserve_index()
        was_below = self.flags.below_high
        if self.watermarks.ok_at(0, Mark.HIGH, reserve_index, PLAIN):
            self.flags.below_high = False
            if was_below:
                self.note_recovered()
