"""A zone at work: its buddy, watermarks, fallback, reserve and per-CPU lists together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.oracle.buddy import Buddy, LooseBuddy
from tests.oracle.fallback import Fallback, MovingFallback
from tests.oracle.machine import PCP_TYPES, Migratetype
from tests.oracle.pcp import FixedPerCpuPages, PerCpuPages, ZoneFlags
from tests.oracle.request import PLAIN, Attempt, Mark, Request
from tests.oracle.vmstat import FreeCounters
from tests.oracle.watermark import HighatomicReserve, LooseReserve, Watermarks

if TYPE_CHECKING:
    from tests.oracle.page_alloc import Allocator

QUIET_TICKS = 3
"""Ticks without a change after which a CPU's lists for another node's zone are drained (S4.8)."""


class Zone:
    """One zone; pages enter and leave it here.

    Attributes:
        counters: free pages as counted.
        cached_types: of pages outside the buddy: the type of the list that a page was taken from,
            later that of its block when it was freed. A page goes from a per-CPU list back to the
            buddy under this type, whatever has become of its block meanwhile (6.1).
        buddy: free lists; `reserve`, `watermarks` and `fallback` work on them.
        note_recovered: called when a list's free lifts the zone above its high mark (S10.2).
    """

    def __init__(self, index: int, oracle: Allocator) -> None:
        self.index = index  # zone index
        self.machine, self.rules, self.policy = oracle.machine, oracle.rules, oracle.policy
        self.type = self.machine.zone_type(index)  # position among its node's zones
        self.spec = self.machine.zones[index]  # the zone as found, with the memory that came since
        self.node = self.spec.node  # number of its node
        self.blocks, self.allocated, self.events = oracle.blocks, oracle.allocated, oracle.log
        self.list_locks = oracle.list_locks
        self.flags = ZoneFlags()
        self.note_recovered: Callable[[], None] = lambda: None
        lags = oracle.assumptions.counters == "lagged"
        self.counters = FreeCounters(self.spec, self.machine, oracle.this_cpu, lags=lags)
        self.cached_types: dict[int, int] = {}
        self.isolated_blocks = 0  # ISOLATE blocks of the zone
        buddy, reserve, fallback = Buddy, HighatomicReserve, Fallback
        if not self.rules.free_lists_match_blocks:
            buddy, reserve, fallback = LooseBuddy, LooseReserve, MovingFallback
        self.buddy: Buddy = buddy(self)
        self.reserve: HighatomicReserve = reserve(self)
        self.watermarks = Watermarks(self)
        self.fallback: Fallback = fallback(self)
        page_set = PerCpuPages if self.rules.pcp_tunes_itself else FixedPerCpuPages
        self.pcp = [page_set(self) for _ in range(self.machine.nr_cpus)]  # page set of each CPU

    def may_take(self, request: Request, attempt: Attempt) -> bool:
        """Part of get_page_from_freelist(): return whether the marks allow a page (S3.1).

        BELOW_HIGH is noted, also where the recording has another zone serve.
        """
        may_serve = request.only_zone in (None, self.index)
        if self.rules.pcp_tunes_itself and not self.flags.below_high:
            self.note_below_high(request, attempt)
            if not self.flags.below_high:
                return may_serve
        if not may_serve:
            return False
        order, highest_zone = request.order, request.highest_zone
        if self.watermarks.zone_watermark_fast(order, attempt.mark, highest_zone, attempt):
            return True
        return attempt.no_watermarks

    def note_below_high(self, request: Request, attempt: Attempt) -> None:
        """Part of get_page_from_freelist(): set BELOW_HIGH where a request fails that mark (S3.1).

        Kernels with fixed limits of per-CPU lists have no use for the flag.
        """
        if self.rules.pcp_tunes_itself and not self.flags.below_high:
            self.flags.below_high = not self.watermarks.zone_watermark_fast(
                request.order, Mark.HIGH, request.highest_zone, attempt
            )

    def margin(self, request: Request, attempt: Attempt) -> int:
        """What the zone can spare at MIN; below 0, what it lacks."""
        return self.watermarks.margin(request.order, request.highest_zone, attempt)

    def take(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue(): take a page by way of the list, else the buddy; may reserve (S3.2, S7.1)."""
        pfn = None
        if self.pcp[request.cpu].layout.holds(request.order):
            pfn = self._rmqueue_pcplist(request, attempt)
        reserves = attempt.highatomic and (pfn is None or self.rules.highatomic_from_pcp)
        if self.policy.decides("highatomic_slowpath_only", self.rules):
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
        self.cached_types[pfn] = migratetype
        if migratetype >= PCP_TYPES:
            migratetype = Migratetype.MOVABLE
        self._free_frozen_page_commit(cpu, pfn, order, migratetype, batched=batched)

    def begin_request(self, request: Request, attempt: Attempt) -> None:
        """Part of rmqueue_pcplist(): refill a request's list before it comes, if empty (S4.10).

        The list stays locked for the interrupts that have come meanwhile.
        """
        pcp = self.pcp[request.cpu]
        if pcp.layout.holds(request.order):
            index = pcp.layout.index(request.order, request.migratetype)
            if not pcp.lists[index]:
                self._rmqueue_bulk(pcp, index, request, attempt)
                self.list_locks.keep(self.index, request.cpu)

    def grow(self, pfn: int, order: int) -> None:
        """__free_pages_core(): take memory in, at list tails (S5.5)."""
        self.spec = replace(self.spec, managed=self.spec.managed + (1 << order))
        self.buddy.take_in(pfn, order)

    def tick(self, cpu: int) -> None:
        """Part of refresh_cpu_vm_stats(): look after counters, limits and remote lists (S4.8)."""
        pcp = self.pcp[cpu]
        if self.counters.fold(cpu) and self.machine.has_several_nodes:
            pcp.expire = QUIET_TICKS
        self._decay_pcp_high(cpu)
        if pcp.expire and pcp.count:
            is_local = self.machine.node_of(cpu) == self.node
            pcp.expire = 0 if is_local else pcp.expire - 1
            if not is_local and pcp.expire == 0:
                self._begin_drain(cpu)
                self.list_locks.take_to_drain(self.index, cpu)
                self._free_pcppages_bulk(cpu, min(pcp.count, pcp.batch), 0, "decay")

    def _decay_pcp_high(self, cpu: int) -> None:
        """decay_pcp_high(): lower the limit of a CPU's lists, drain what exceeds it (S4.8)."""
        pcp = self.pcp[cpu]
        excess = pcp.decay_pcp_high()
        batched = self.policy.decides("pcp_decay_batched", self.rules)
        chunk = pcp.batch if batched else max(excess, 1)
        if excess > 0:
            self._begin_drain(cpu)
        while excess > 0:
            self.list_locks.take_to_drain(self.index, cpu)
            self._free_pcppages_bulk(cpu, min(excess, chunk), 0, "decay")
            excess -= chunk

    def drain_all(self, cpu: int, *, is_visited: bool = True) -> None:
        """drain_pages_zone(): empty one CPU's lists (S4.9).

        A drain does not visit a CPU that has no page on a list; only ownership may notice.
        """
        pcp = self.pcp[cpu]
        if pcp.count:
            self._begin_drain(cpu)
        while pcp.count:
            chunk = pcp.batch if self.policy.pcp_drain_batched else pcp.largest_batch
            self.list_locks.take_to_drain(self.index, cpu)
            self._free_pcppages_bulk(cpu, min(pcp.count, chunk), 0, "drain_all")

    def note_taken(self, pfn: int, order: int) -> None:
        """Note a page that compaction took; only ownership has use for it."""

    def bury(self, cpu: int) -> None:
        """page_alloc_cpu_dead(): forget a dead CPU, of which nothing is left."""

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
        return pcp.lists[index].pop_head() if pcp.lists[index] else None

    def _rmqueue_bulk(
        self, pcp: PerCpuPages, index: int, request: Request, attempt: Attempt
    ) -> None:
        """rmqueue_bulk(): fetch pages under one hold of the lock (S4.4)."""
        wanted = pcp.nr_pcp_alloc(request.order)
        if attempt.highatomic and not self.rules.highatomic_refills_pcp:
            return
        pages = self.fallback.take_many(wanted, request.order, request.migratetype, attempt)
        for pfn in pages:
            pcp.lists[index].push_tail(pfn)
        self.events.hold("refill", "", len(pages), self.index)

    def _rmqueue_buddy(self, request: Request, attempt: Attempt) -> int | None:
        """rmqueue_buddy(): take one page under one hold, of the reserve first or last (S7.3)."""
        order = request.order
        pfn = None
        if attempt.highatomic:
            pfn = self.buddy.rmqueue_smallest(order, Migratetype.HIGHATOMIC)
        if pfn is None:
            pfn = self.fallback.take_one(order, request.migratetype, attempt)
        if pfn is None and attempt.non_block:
            pfn = self.buddy.rmqueue_smallest(order, Migratetype.HIGHATOMIC)
        self.events.hold("buddy_alloc", "", 0 if pfn is None else 1, self.index)
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
        """Begin a drain of a CPU's lists, perhaps in chunks; only ownership has use for it."""

    def _drain_overflow(self, cpu: int, to_free: int, index: int) -> None:
        """Part of free_frozen_page_commit(): drain what is over, in a hold or chunks (S4.7).

        Between chunks of a batch it lets go. BELOW_HIGH is cleared if the high mark holds then.
        """
        pcp = self.pcp[cpu]
        self._begin_drain(cpu)
        batched = self.policy.decides("pcp_free_batched", self.rules)
        if not batched:
            self._free_pcppages_bulk(cpu, to_free, index, "commit")
        left = to_free if batched else 0
        while left > 0 and pcp.count > 0:
            if left < to_free:
                self.list_locks.take_to_drain(self.index, cpu)
            self._free_pcppages_bulk(cpu, min(left, pcp.batch), index, "commit")
            left -= pcp.batch
        was_below = self.flags.below_high
        highest = max(len(self.spec.lowmem_reserve) - 1, 0)
        if self.watermarks.ok(0, Mark.HIGH, highest, PLAIN):
            self.flags.below_high = False
            if was_below:
                self.note_recovered()

    def _free_pcppages_bulk(self, cpu: int, budget: int, first: int, cause: str) -> None:
        """free_pcppages_bulk(): return pages to the buddy in one hold of the lock (S5.6)."""
        objects = self.pcp[cpu].free_pcppages_bulk(budget, first, self._free_drained)
        self.events.hold("drain", cause, objects, self.index)

    def _free_drained(self, pfn: int, order: int, *, to_tail: bool = False) -> None:
        """Part of free_pcppages_bulk(): free one drained page, of its type (S5.6)."""
        by_block = self.rules.free_lists_match_blocks or self.isolated_blocks
        migratetype = self.blocks.type_of(pfn) if by_block else self.cached_types[pfn]
        self.buddy.free(pfn, order, migratetype, to_tail=to_tail)
        self.events.note("drain", pfn, order, migratetype)
