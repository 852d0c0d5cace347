"""What a request does after its first attempt: direct reclaim and the slow path (S8)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.oracle.compaction import Priority, Result, try_to_compact_pages
from tests.oracle.request import (
    PLAIN,
    Attempt,
    Bits,
    Mark,
    Request,
    gfp_to_alloc_flags,
    memalloc_attempt,
)
from tests.oracle.vmscan import CLUSTER, LOWEST_PRIORITY, ScanControl
from tests.oracle.zone import Zone

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle


class DirectReclaim:
    """Frees a cluster of pages for a request, node by node."""

    def __init__(self, oracle: ElasticOracle) -> None:
        self.memory = oracle.memory
        self.gates = oracle.gates
        self.rules = oracle.rules
        self.kswapd = oracle.kswapd
        # from when to when each CPU reclaims, ns (S10.10)
        self.spans: dict[int, tuple[int, int]] = {}

    def holds_up(self, request: Request) -> bool:
        """Return whether a request's CPU is still busy with an earlier request's reclaim."""
        begin, end = self.spans.get(request.cpu, (0, 0))
        return begin < self.memory.now < end

    def reclaim(self, request: Request, zonelist: list[Zone], order: int) -> int:
        """try_to_free_pages(): return the pages freed so that an order can be had (S8.2, S8.7).

        It is 1 if none was freed, but compaction could begin anyway.
        """
        now = self.memory.now
        if self.spans.get(request.cpu, (-1, 0))[0] != now:
            self.spans[request.cpu] = (now, now)
        if Bits.KERNEL_THREAD not in request.bits:
            self._throttle_direct_reclaim(zonelist)
        control = ScanControl(
            order=order,
            highest=request.highest_zone,
            goal=CLUSTER,
            is_kswapd=False,
            may_compact=Bits.IO in request.bits,
            cpu=request.cpu,
        )
        self._walk_priorities(zonelist, control)
        if self.rules.fruitless_reclaim_repeated and not control.success:
            self._walk_priorities(zonelist, control)
        if control.skipped_deactivate and not control.success:
            control.force_deactivate = True
            self._walk_priorities(zonelist, control)
        return control.success

    def _walk_priorities(self, zonelist: list[Zone], control: ScanControl) -> None:
        """Part of do_try_to_free_pages(): press ever harder until it suffices."""
        self.memory.counts[f"allocstall_{control.highest}"] += 1
        for priority in range(LOWEST_PRIORITY, -1, -1):
            control.priority = priority
            control.scanned = 0
            self._shrink_zones(zonelist, control)
            if control.reclaimed >= control.goal or control.compaction_ready:
                return

    def _shrink_zones(self, zonelist: list[Zone], control: ScanControl) -> None:
        """shrink_zones(): make a round over each node that has a zone where reclaim is needed."""
        last = None
        for zone in zonelist:
            if self._compaction_ready(zone, control):
                control.compaction_ready = True
            elif zone.node != last:
                last = zone.node
                for work_ns in self.kswapd[zone.node].reclaimer.shrink_node(control):
                    begin, end = self.spans[control.cpu]
                    self.spans[control.cpu] = (begin, end + work_ns)

    def _compaction_ready(self, zone: Zone, control: ScanControl) -> bool:
        """compaction_ready(): return whether a zone needs no reclaim for a costly order (S8.2)."""
        order, highest, marks = control.order, control.highest, zone.watermarks
        if order <= self.gates.costly_order or not control.may_compact:
            return False
        if marks.ok(order, Mark.MIN, highest, PLAIN):
            return True
        if self.rules.ready_by_high_mark:
            return self.gates.is_suitable(zone, order, highest, Mark.HIGH)
        if not self.gates.is_suitable(zone, order, highest, Mark.MIN):
            return False
        pages = marks.wmark_pages(Mark.HIGH) + self.gates.compact_gap(order)
        return marks.ok(0, pages, highest, PLAIN, zone.counters.free_for_balance())

    def _throttle_direct_reclaim(self, zonelist: list[Zone]) -> None:
        """throttle_direct_reclaim(): count a request that would have to wait for kswapd."""
        for zone in zonelist:
            if zone.type <= self.kswapd[zone.node].normal_type:
                if not self._allow_direct_reclaim(zone.node):
                    self.memory.counts["pgscan_direct_throttle"] += 1
                return

    def _allow_direct_reclaim(self, node: int) -> bool:
        """allow_direct_reclaim(): return whether a node has something left for those who free.

        Zones count that have reclaimable pages; since 7.2 also those with no free ones.
        """
        kswapd, rules = self.kswapd[node], self.rules
        if kswapd.kswapd_test_hopeless:
            return True
        counted = [
            zone
            for zone in kswapd.zones[: kswapd.normal_type + 1]
            if zone.spec.managed
            and (
                self.memory.zone_reclaimable_pages(zone)
                or (not rules.free_counts_as_reclaimable and not zone.counters.free.total)
            )
        ]
        least = sum(zone.watermarks.wmark_pages(Mark.MIN) for zone in counted)
        exact = rules.throttle_counts_exactly
        free = sum(
            zone.counters.free.total if exact else zone.counters.free.read() for zone in counted
        )
        if not least or free > least // 2:
            return True
        kswapd.wake_for_throttled()
        return False


PROMOTED_ROUNDS = 64  # rounds after which a promoted request no longer waits for a block (S8.7)
RETRIES_MAX = 16  # fruitless rounds of reclaim, and compactions that others profited from


class SlowPath:
    """One request's way once the fast path has failed."""

    def __init__(self, oracle: ElasticOracle, request: Request) -> None:
        self.oracle = oracle
        self.rules, self.policy, self.options = oracle.rules, oracle.policy, oracle.options
        self.memory = oracle.memory
        self.request = request
        self.bits = request.bits
        self.zonelist = oracle.zonelist(request)
        self.attempt: Attempt = gfp_to_alloc_flags(request, defrag_mode=self.policy.defrag_mode)
        self.is_costly = request.order > self.policy.costly_order
        self.reclaims = Bits.DIRECT_RECLAIM in self.bits
        may_compact = self.reclaims or not self.rules.compaction_needs_reclaim
        self.compacts = Bits.IO in self.bits and may_compact
        self.priority = Priority.SYNC_LIGHT
        self.result = Result.SKIPPED
        self.progress = 0
        self.no_progress = 0
        self.promoted_rounds = 0
        self.compact_retries = 0
        self.stalled = False  # it reclaimed or compacted

    def serve(self) -> int | None:
        """__alloc_pages_slowpath(): return a page, or None (S8.1).

        Compaction before reclaim precedes the loop until 6.18, where it may end it; later it is
        the loop's first turn.
        """
        is_atomic = Bits.HIGH in self.bits and not self.reclaims
        if self.options.atomic_boost and is_atomic and self.request.order == 0:
            for zone in self.zonelist:
                zone.watermarks.boost_for_atomic(self.memory.now)
        not_movable = self.request.order > 0 and not self.request.is_movable
        compacts_first = self.compacts and (self.is_costly or not_movable)
        if self.rules.initial_compaction_in_loop:
            self.priority = Priority.ASYNC if compacts_first else Priority.SYNC_LIGHT
            return self._loop(compact_first=compacts_first)
        self._wake()
        pfn = self._get_page()
        if pfn is not None:
            return pfn
        if self.request.gfp_pfmemalloc_allowed:
            self._wake()
            self.attempt = memalloc_attempt(self.request)
            return self._get_page()
        if self.reclaims and compacts_first:
            pfn = self._alloc_pages_direct_compact(Priority.ASYNC)
            if pfn is not None:
                return pfn
            if self.is_costly and Bits.NORETRY in self.bits:
                if self.result in (Result.SKIPPED, Result.DEFERRED) or self._is_local_only:
                    return None
                self.priority = Priority.ASYNC
        return self._loop(compact_first=False)

    @property
    def _is_local_only(self) -> bool:
        """Part of __alloc_pages_slowpath(): return whether a local attempt ends early (S8.8)."""
        return Bits.THISNODE in self.bits and not self.options.local_thp_reclaims

    def _loop(self, *, compact_first: bool) -> int | None:
        """Part of __alloc_pages_slowpath(): try until a page is found or hope is lost.

        A request that must not fail takes what there is then.
        """
        while True:
            self._wake()
            pfn = self._get_page()
            if pfn is not None:
                return pfn
            if self.request.gfp_pfmemalloc_allowed:
                self.attempt = memalloc_attempt(self.request)
                return self._get_page()
            if not self.reclaims:
                falls_back = self.policy.decides("defrag_atomic_falls_back", self.rules)
                falls_back = falls_back and self.policy.defrag_mode and self.attempt.nofragment
                if falls_back and Bits.KSWAPD in self.bits:
                    self.attempt = replace(self.attempt, nofragment=False)
                    continue
                return None
            if not compact_first:
                pfn = self._alloc_pages_direct_reclaim()
            if pfn is None:
                pfn = self._alloc_pages_direct_compact(self.priority)
            if pfn is not None:
                return pfn
            if compact_first:
                if Bits.NORETRY in self.bits and self._is_local_only:
                    return None
                if Bits.NORETRY not in self.bits:
                    self.priority = Priority.SYNC_LIGHT
                compact_first = False
            elif not self._goes_on():
                break
        if Bits.NOFAIL not in self.bits:
            return None
        self.oracle.divergence["forced_by_nofail"] += 1
        self.attempt = replace(self.attempt, no_watermarks=True)
        return self._get_page()

    def _goes_on(self) -> bool:
        """Part of __alloc_pages_slowpath(): return whether another turn may help (S8.1-S8.4)."""
        if Bits.NORETRY in self.bits:
            return False
        if self.is_costly and not (Bits.RETRY_MAYFAIL in self.bits and self.compacts):
            return False
        self.promoted_rounds += 1
        if self._made_order == self.request.order:
            self.promoted_rounds = 0
        if self.promoted_rounds < PROMOTED_ROUNDS:
            if self._should_reclaim_retry():
                return True
            if self.progress and self.compacts and self._should_compact_retry():
                return True
        if self.policy.defrag_mode and self.attempt.nofragment:
            if self._begins_afresh:
                self.no_progress = self.compact_retries = 0
            self.attempt = replace(self.attempt, nofragment=False)
            return True
        optional = Bits.RETRY_MAYFAIL | Bits.THISNODE
        if not self.is_costly and not self.bits & optional:
            self.memory.counts["oom_kill"] += 1
        return False

    @property
    def _made_order(self) -> int:
        """Part of __alloc_pages_slowpath(): return the order to reclaim and compact for (S8.7).

        Who may not fragment and is not movable needs whole blocks.
        """
        order = self.request.order
        needs_block = self.attempt.nofragment and not self.request.is_movable
        if needs_block and self.policy.decides("defrag_promotes_order", self.rules):
            return max(order, self.oracle.machine.pageblock_order)
        return order

    @property
    def _begins_afresh(self) -> bool:
        """order_defrag_promoted(): return whether promotion changes retries (S8.7)."""
        promoted = self._made_order != self.request.order
        return promoted and self.policy.decides("promoted_fall_back_afresh", self.rules)

    def _wake(self) -> None:
        """Part of __alloc_pages_slowpath(): wake kswapd, if the attempt may."""
        if self.attempt.kswapd:
            self.oracle.wake_all_kswapds(self.request, self.zonelist)

    def _get_page(self) -> int | None:
        """get_page_from_freelist(): make one attempt; returns a page, or None."""
        return self.oracle.get_page(self.request, self.attempt, self.zonelist)

    def _alloc_pages_direct_reclaim(self) -> int | None:
        """__alloc_pages_direct_reclaim(): free a cluster, try, make room, try again (S8.2)."""
        if self.oracle.direct_reclaim.holds_up(self.request):
            pfn = self._page_of_a_list()
            if pfn is not None:
                self.oracle.memory.seen["taken_while_reclaiming"] += 1
                self.progress = 1
                return pfn
        self.stalled = True
        self.progress = self.oracle.direct_reclaim.reclaim(
            self.request, self.zonelist, self._made_order
        )
        if not self.progress:
            return None
        pfn = self._get_page()
        if pfn is None:
            self.oracle.unreserve(self.request, self.zonelist, forced=False)
            self.oracle.drain_all(self.request.cpu)
            pfn = self._get_page()
        return pfn

    def _page_of_a_list(self) -> int | None:
        """Take a page past the marks where a list of this CPU has one (S10.10)."""
        request = self.request
        for zone in self.zonelist:
            pcp = zone.pcp[request.cpu]
            listed = pcp.layout.holds(request.order)
            if listed and pcp.list_of(request.order, request.migratetype):
                return self.oracle._rmqueue(zone, request, self.attempt)
        return None

    def _alloc_pages_direct_compact(self, priority: Priority) -> int | None:
        """__alloc_pages_direct_compact(): compact, then try; returns a page, or None."""
        order = self._made_order
        if not order or not self.compacts:
            return None
        self.stalled = True
        self.result, pfn = try_to_compact_pages(
            self.oracle, self.request, self.attempt, self.zonelist, priority, order
        )
        is_deferred = self.result is Result.DEFERRED and self.rules.stall_leaves_out_deferred
        if is_deferred or self.result is Result.SKIPPED:
            return None
        counts = self.memory.counts
        counts["compact_stall"] += 1
        if pfn is None:
            pfn = self._get_page()
        if pfn is None:
            counts["compact_fail"] += 1
            return None
        counts["compact_success"] += 1
        place = self.oracle.compaction[self.oracle.zone_of(pfn).index]
        place.flush = False
        place.deferral.compaction_defer_reset(order, allocated=True)
        return pfn

    def _should_reclaim_retry(self) -> bool:
        """should_reclaim_retry(): return whether more reclaim may help."""
        if self.progress and not self.is_costly and not self._begins_afresh:
            self.no_progress = 0
        else:
            self.no_progress += 1
        if self.no_progress <= RETRIES_MAX:
            order, highest = self.request.order, self.request.highest_zone
            for zone in self.zonelist:
                free = zone.counters.free.total + self.memory.zone_reclaimable_pages(zone)
                if zone.watermarks.ok(order, Mark.MIN, highest, self.attempt, free):
                    return True
        return self.oracle.unreserve(self.request, self.zonelist, forced=True)

    def _should_compact_retry(self) -> bool:
        """should_compact_retry(): return whether more compaction may help."""
        if not self.request.order and not self._begins_afresh:
            return False
        if self.result is Result.SKIPPED:
            return not self._begins_afresh and any(self._would_suit(zone) for zone in self.zonelist)
        if self.result is Result.SUCCESS:
            self.compact_retries += 1
            if self.compact_retries <= (RETRIES_MAX // 4 if self.is_costly else RETRIES_MAX):
                return True
        least = Priority.SYNC_LIGHT if self.is_costly else Priority.SYNC_FULL
        if self.priority <= least:
            return False
        self.priority = Priority(self.priority - 1)
        self.compact_retries = 0
        return True

    def _would_suit(self, zone: Zone) -> bool:
        """Part of compaction_zonelist_suitable(): return whether a zone would suit."""
        order, highest = self.request.order, self.request.highest_zone
        is_served = zone.watermarks.ok(order, self.attempt.mark, highest, self.attempt)
        if is_served and not self.rules.served_zones_suit:
            return False
        free = zone.counters.free.read() + self.memory.zone_reclaimable_pages(zone) // order
        return self.oracle.gates.compaction_suitable(zone, order, highest, Mark.MIN, free)
