"""A literal replay's oracle: requests, frees, and what else a recording tells (S10.4)."""

from __future__ import annotations

from dataclasses import replace

from tests.oracle.buddy import AllocatedPages
from tests.oracle.dump import Dump, dump_literal
from tests.oracle.machine import Migratetype, OracleMachine
from tests.oracle.page_alloc import Allocator
from tests.oracle.request import Attempt, Bits, Request, gfp_to_alloc_flags, memalloc_attempt
from tests.oracle.rules import OracleAssumptions, OraclePolicy, OracleRules
from tests.oracle.zone import Zone

Pages = tuple[tuple[int, int], ...]
"""(First page, order) of what serves one request: a buddy, or single pages."""


class FreeScanner:
    """Takes free pages as one scan after the other; a buddy is dealt out before the next is taken.

    Nothing that it does is counted as work under zone->lock.
    """

    def __init__(self, allocated: AllocatedPages) -> None:
        self._allocated = allocated
        self._held: list[int] = []

    def next_piece(self, zone: Zone, order: int, wanted: int) -> int | None:
        """fast_isolate_freepages(): return the next piece of a scan, from movable blocks.

        The scan has yet to take so many pages, this piece included. None if no such block has a
        free buddy for it.
        """
        if len(self._held) < 1 << order:
            self._hold(zone, order, wanted, movable_types(zone.machine))
        return self._deal_out(zone, order) if len(self._held) >= 1 << order else None

    def gather(self, zone: Zone, count: int) -> Pages:
        """isolate_freepages(): return single pages, of movable blocks first, and fewer at need."""
        others = [Migratetype.RECLAIMABLE, Migratetype.UNMOVABLE]
        pages: list[tuple[int, int]] = []
        while len(pages) < count:
            if not self._held:
                self._hold(zone, 0, count - len(pages), [*movable_types(zone.machine), *others])
            if not self._held:
                break
            pages.append((self._deal_out(zone, 0), 0))
        return tuple(pages)

    def _deal_out(self, zone: Zone, order: int) -> int:
        """Part of fast_isolate_freepages(): take the first pages of what is held."""
        pfn = self._held[0]
        del self._held[: 1 << order]
        self._allocated.add(pfn, order, movable=True)
        zone.note_taken(pfn, order)
        return pfn

    def _hold(self, zone: Zone, order: int, wanted: int, types: list[int]) -> None:
        """Part of fast_isolate_freepages(): hold a free buddy, the largest that a scan may take."""
        for migratetype in types:
            for size in range(zone.machine.pageblock_order - 1, -1, -1):
                fits = order == size or (order < size and 1 << size <= wanted)
                if fits and not zone.buddy.is_empty(size, migratetype):
                    pfn = zone.buddy.lists[size, migratetype].tail
                    zone.buddy.take(pfn, size)
                    self._held = list(range(pfn, pfn + (1 << size)))
                    return
            smallest = take_uncounted(zone, order, migratetype)
            if smallest is not None:
                self._held = list(range(smallest, smallest + (1 << order)))
                return


def movable_types(machine: OracleMachine) -> list[int]:
    """The types of blocks that compaction's targets lie in."""
    return [Migratetype.MOVABLE, *([] if machine.cma is None else [machine.cma])]


def take_uncounted(zone: Zone, order: int, migratetype: int) -> int | None:
    """__rmqueue_smallest(): return the smallest fit of one type (S5.1), without event or work."""
    splits = zone.events.work.splits
    pfn = zone.buddy.smallest_fit(order, migratetype)
    if pfn is not None:
        zone.buddy.take(pfn, order)
        zone.events.work.splits = splits
    return pfn


class Oracle(Allocator):
    """An allocator that is replayed literally.

    A trace decides which requests succeed; reclaim's frees, and what compaction takes, come from
    the trace (S10.4).

    Attributes:
        forced: requests that succeeded only by ignoring the watermarks, as the recording did.
    """

    def __init__(
        self,
        machine: OracleMachine,
        rules: OracleRules,
        policy: OraclePolicy,
        assumptions: OracleAssumptions | None = None,
    ) -> None:
        super().__init__(machine, rules, policy, assumptions)
        self._free_scanner = FreeScanner(self.allocated)
        self._reclaim_margins: dict[int, int] = {}
        self.forced = 0
        self.recorded_failures = 0  # requests that the recording saw fail
        self.hidden = 0  # requests that no event shows
        self.orphan_frees = 0  # frees of pages that are not in use here

    def dump(self) -> Dump:
        return super().dump() | dump_literal(self)

    def alloc(self, request: Request, *, recorded_success: bool = True) -> int | None:
        """__alloc_frozen_pages(): allocate; returns the page, or None.

        Args:
            request: what is asked for.
            recorded_success: what the recording saw. Only then are watermarks overridden in the
                end, and only then is that, or a failure, a divergence.
        """
        self._begin(request)
        pfn = self._alloc(request, recorded_success=recorded_success)
        self.failed += pfn is None and recorded_success
        return pfn

    def alloc_as_recorded(self, request: Request, *, is_hidden: bool = False) -> Pages:
        """Serve a request that succeeded in the recording, in single pages if no buddy will do.

        A hidden one has no event, but a later free (T10.2).

        Returns:
            The buddy; or single pages in the order they were handed out, at most as many as were
            asked for; or nothing.
        """
        self.hidden += is_hidden
        self._begin(request)
        order = request.order
        pfn = self._alloc(request, recorded_success=True)
        if pfn is not None:
            return ((pfn, order),)
        single = replace(request, order=0)
        pages: list[tuple[int, int]] = []
        while order and len(pages) < 1 << order:
            pfn = self._alloc(single, recorded_success=True)
            if pfn is None:
                break
            pages.append((pfn, 0))
        self.in_base_pages += order > 0
        self.failed += len(pages) < 1 << order
        return tuple(pages)

    def fail_as_recorded(self, request: Request) -> None:
        """Take up a request that failed in the recording (S10.4). It is not tried."""
        self.recorded_failures += 1
        self._begin(request)
        zonelist = self.zonelist(request)
        attempt = self._first_attempt(request, zonelist)
        for zone in zonelist:
            zone.note_below_high(request, attempt)
        if attempt.kswapd:
            self._wake_all_kswapds(request, zonelist)
        if request.reclaim:
            self._make_room(request, zonelist)

    def free_singly(self, cpu: int, pages: Pages, *, batched: bool = False) -> None:
        """Free single pages that served one request, the last one first.

        All are one free to the interrupts that come as its drain ends (S4.10).
        """
        self.this_cpu.number = cpu
        self.list_locks.begin(cpu, batched=batched)
        for pfn, order in reversed(pages):
            self._free_pages(cpu, pfn, order, batched=batched)

    def free_nothing(self, cpu: int, order: int, *, batched: bool = False) -> None:
        """Take up a free of pages, of whatever order, that are not in use here (T10.2)."""
        self.this_cpu.number = cpu
        self.list_locks.begin(cpu, batched=batched)
        self.orphan_frees += 1

    def begin_request(self, request: Request) -> None:
        """Let interrupts come into a request's refill, if it has one (S4.10).

        It refills now; the request itself comes later.
        """
        self._begin(request)
        is_listed = self.zones[0].pcp[request.cpu].layout.holds(request.order)
        if self.policy.ownership is not None or not is_listed:
            return

        def refill(zone: Zone, request: Request, attempt: Attempt) -> int:
            zone.begin_request(request, attempt)
            return 0

        zonelist = self.zonelist(request)
        self.get_page(request, self._first_attempt(request, zonelist), zonelist, refill)

    def hold_drained(self, cpu: int) -> None:
        """Let interrupts come into the drain of a CPU's last free (S4.10).

        It is the CPU's last event that was no interrupt's. It may have drained nothing, or it was
        none; then they find no list locked.
        """
        self.this_cpu.number = cpu
        self.list_locks.keep_drained()

    def isolate(
        self, cpu: int, zone: int, orders: tuple[int, ...], *, wanted: int | None = None
    ) -> tuple[Pages, ...]:
        """fast_isolate_freepages(): let a scan of recorded compaction take free pages (S10.4).

        Returns:
            The pages of each piece: one buddy, or single pages in the order they were taken.
        """
        self._act(cpu)
        left = sum(1 << order for order in orders) if wanted is None else wanted
        pieces = []
        for order in orders:
            pfn = self._free_scanner.next_piece(self.zones[zone], order, left)
            left -= 1 << order
            pieces.append(self._gather(zone, order) if pfn is None else ((pfn, order),))
        return tuple(pieces)

    def _gather(self, zone: int, order: int) -> Pages:
        """Part of isolate_freepages(): return single pages in place of a buddy, and count that."""
        pages = self._free_scanner.gather(self.zones[zone], 1 << order)
        self.in_base_pages += order > 0
        self.failed += len(pages) < 1 << order
        return pages

    def capture(self, cpu: int, zone: int, order: int, migratetype: int) -> Pages:
        """compaction_capture(): serve a request past the lists, whole or in single pages (S9.7)."""
        self._act(cpu)
        pfn = take_uncounted(self.zones[zone], order, migratetype)
        if pfn is None:
            return self._gather(zone, order)
        self.allocated.add(pfn, order, movable=migratetype == Migratetype.MOVABLE)
        self.zones[zone].note_taken(pfn, order)
        return ((pfn, order),)

    def begin_reclaim(self, request: Request) -> None:
        """Begin a recorded direct reclaim for a request, by its number.

        The number is free for others once the request has been served.
        """
        self._begin(request)
        attempt = gfp_to_alloc_flags(request, defrag_mode=self.policy.defrag_mode)
        margins = [zone.margin(request, attempt) for zone in self.zonelist(request)]
        self._reclaim_margins[request.reclaim] = min(0, max(margins, default=0))

    def reclaim_in_vain(self, request: Request) -> None:
        """__alloc_pages_direct_reclaim(): end a recorded direct reclaim that another followed."""
        self._begin(request)
        self._make_room(request, self.zonelist(request))

    def drain_local(self, zone: int, cpu: int) -> None:
        """drain_local_pages(): empty the lists of the CPU that compacts a zone (S9.3).

        Where the recording tells of drains, it alone has them.
        """
        self._act(cpu)
        if not self.assumptions.drains_recorded:
            self.zones[zone].drain_all(cpu)

    def start_kswapd(self, node: int, highest_zone: int, cpu: int = 0) -> None:
        """Begin a recorded run, for zones up to a type, on a CPU, whose folio batch is over."""
        self.list_locks.end_run(cpu)
        self.kswapd[node].start(highest_zone)

    def stop_kswapd(self, node: int, cpu: int = 0) -> None:
        """End a recorded run, on a CPU."""
        self.list_locks.end_run(cpu)
        self.kswapd[node].stop()

    def tick_as_recorded(self, cpu: int) -> None:
        """refresh_cpu_vm_stats(): run the CPU's vmstat worker when the recording says so (S4.8).

        It is a task: a folio batch of the CPU has let go of its lock before (T10.5). An assumed
        tick may fall into a batch, and in the kernel would come after it.
        """
        self.list_locks.end_run(cpu)
        self.tick(cpu)

    def set_boost(self, zone: int, pages: int, cpu: int = 0) -> None:
        """Set a zone's boost to what a task on a CPU found (S1.7)."""
        self.list_locks.end_run(cpu)
        self.zones[zone].watermarks.boost = pages

    def drain_zone(self, zone: int, cpu: int, by: int) -> None:
        """drain_pages_zone(): let a CPU empty another's lists of a zone, as recorded (S4.9)."""
        self._act(by)
        self.zones[zone].drain_all(cpu)

    def kill_cpu(self, cpu: int, by: int) -> None:
        """page_alloc_cpu_dead(): take a CPU offline; another empties its lists (S4.9)."""
        self._act(by)
        self.list_locks.end_run(cpu)
        self.dead_cpus.add(cpu)
        for zone in self.zones:
            zone.drain_all(cpu)
            zone.bury(cpu)

    def revive_cpu(self, cpu: int) -> None:
        """page_alloc_cpu_online(): bring a CPU online again."""
        self.dead_cpus.discard(cpu)

    def _alloc(self, request: Request, *, recorded_success: bool) -> int | None:
        """Part of __alloc_frozen_pages(): serve a request, slowly if it must be."""
        zones = self.zonelist(request)
        pfn = self.get_page(request, self._first_attempt(request, zones), zones)
        if pfn is None:
            pfn = self._alloc_pages_slowpath(request, zones, recorded_success=recorded_success)
        if pfn is not None:
            self.allocated.add(pfn, request.order, request.is_movable)
        return pfn

    def _alloc_pages_slowpath(
        self, request: Request, zonelist: list[Zone], *, recorded_success: bool
    ) -> int | None:
        """__alloc_pages_slowpath(): wake kswapd, try harder, make room (S8).

        At last it gives up caution. The replay is literal.
        """
        attempt = gfp_to_alloc_flags(request, defrag_mode=self.policy.defrag_mode)
        if attempt.kswapd:
            self._wake_all_kswapds(request, zonelist)
        pfn = self.get_page(request, attempt, zonelist)
        if pfn is None and request.gfp_pfmemalloc_allowed:
            attempt = memalloc_attempt(request)
            pfn = self.get_page(request, attempt, zonelist)
        has_room = self._reclaim_sufficed(request, attempt, zonelist)
        may_reclaim = request.reclaim > 0 or not self.assumptions.direct_reclaim_recorded
        may_reclaim &= Bits.DIRECT_RECLAIM in request.bits
        if pfn is None and may_reclaim and not has_room:
            self._make_room(request, zonelist)
            pfn = self.get_page(request, attempt, zonelist)
        may_wait = request.bits & (Bits.DIRECT_RECLAIM | Bits.KSWAPD)
        if pfn is None and attempt.nofragment and may_wait:
            attempt = replace(attempt, nofragment=False)
            pfn = self.get_page(request, attempt, zonelist)
        if pfn is None and recorded_success and not attempt.no_watermarks:
            pfn = self._force_page(request, attempt, zonelist)
            self.forced += pfn is not None
        return pfn

    def _reclaim_sufficed(self, request: Request, attempt: Attempt, zonelist: list[Zone]) -> bool:
        """Whether recorded reclaim left more than there was before it.

        Then the kernel found its page. It was at its mark when reclaim began, however much is
        missing here (S10.4).
        """
        if not request.reclaim or not zonelist:
            return False
        nearest = max(zonelist, key=lambda zone: zone.margin(request, attempt))
        before = self._reclaim_margins.get(request.reclaim, 0)
        has_more = nearest.margin(request, attempt) > before
        return has_more and nearest.watermarks.has_suitable(request.order, attempt)

    def _force_page(self, request: Request, attempt: Attempt, zonelist: list[Zone]) -> int | None:
        """Take a page whatever the watermarks say.

        The request succeeded in the recording. There reclaim had made room that is missing here:
        most likely in the zone that lacks least. That one is tried first, of equals the preferred;
        then all as ever. An imposed zone is tried first whether or not the list has it: a request
        may ask for another node than its CPU's, which no event tells.
        """
        imposed = [] if request.only_zone is None else [self.zones[request.only_zone]]
        candidates = imposed or zonelist
        if not candidates:
            return None
        attempt = replace(attempt, no_watermarks=True)
        nearest = max(candidates, key=lambda zone: zone.margin(request, attempt))
        pfn = self._rmqueue(nearest, request, attempt)
        return self.get_page(request, attempt, zonelist) if pfn is None else pfn

    def _wake_all_kswapds(self, request: Request, zonelist: list[Zone]) -> None:
        """wake_all_kswapds(): wake the thread of every node whose memory it may use (S8.1)."""
        order = request.order
        if self.policy.defrag_mode:
            order = max(order, self.machine.pageblock_order)
        for node in dict.fromkeys(zone.node for zone in zonelist if zone.spec.managed):
            self.kswapd[node].wake(order, request.highest_zone)

    def _make_room(self, request: Request, zonelist: list[Zone]) -> None:
        """Part of __alloc_pages_direct_reclaim(): make room after reclaim in vain (S8.2)."""
        any(zone.reserve.unreserve(request.migratetype) for zone in zonelist)
        self._drain_all_pages(request.cpu)
