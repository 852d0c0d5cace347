"""The whole allocator: requests over the zonelist, frees, ticks; and its state for comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.oracle import invariants
from tests.oracle.allocated import AllocatedPages
from tests.oracle.arithmetic import clamp
from tests.oracle.counters import ThisCpu
from tests.oracle.dump import dump_counters, dump_state
from tests.oracle.events import Event, EventLog, Work
from tests.oracle.isolation import FreeScanner, take_uncounted
from tests.oracle.kswapd import Kswapd
from tests.oracle.machine import Migratetype, OracleMachine
from tests.oracle.ownership import new_blocks
from tests.oracle.ownership_counters import ListLocks, OwnershipCounters
from tests.oracle.ownership_zone import new_zone
from tests.oracle.request import (
    Attempt,
    Bits,
    Request,
    fast_attempt,
    gfp_to_alloc_flags,
    memalloc_attempt,
)
from tests.oracle.rules import OracleAssumptions, OraclePolicy, OracleRules
from tests.oracle.zone import Setting, Zone
from tests.oracle.zone_walk import ZoneWalk
from tests.oracle.zonelist import node_orders, zonelist

READ_BITS = (
    Bits.HIGH
    | Bits.ATOMIC
    | Bits.DIRECT_RECLAIM
    | Bits.KSWAPD
    | Bits.MEMALLOC
    | Bits.NOMEMALLOC
    | Bits.THISNODE
)
"""gfp bits that matter here."""


class Oracle:
    """A page allocator that can be read.

    It starts with no page anywhere; `put_*` and `set_block_type` lay out the start state. Events
    are replayed literally: a trace decides which requests succeed, and reclaim's frees come from
    the trace (S10.4).

    Attributes:
        zones: all zones by index.
        kswapd: the reclaim thread of each node.
        forced: requests that succeeded only by ignoring the watermarks, as the recording did.
        in_base_pages: requests that asked for single pages where the recording had a buddy.
        failed: requests that failed here, wholly or in part, though the recording served them.
        placed_pages: base pages laid out at the start.
        ownership_counters: acquisitions of pcp->lock, and what ownership does.
    """

    def __init__(
        self,
        machine: OracleMachine,
        rules: OracleRules,
        policy: OraclePolicy,
        assumptions: OracleAssumptions | None = None,
    ) -> None:
        self.machine = machine
        self.rules = rules
        self.policy = policy
        self.assumptions = assumptions or OracleAssumptions()
        self.allocated = AllocatedPages()
        self._log = EventLog()
        self._this_cpu = ThisCpu()
        self.ownership_counters = OwnershipCounters(self._this_cpu)
        self._list_locks = ListLocks(self._this_cpu, self.ownership_counters)
        self._dead_cpus: set[int] = set()
        self.blocks = new_blocks(machine, policy, self.ownership_counters)
        setting = Setting(
            machine=machine,
            rules=rules,
            policy=policy,
            blocks=self.blocks,
            allocated=self.allocated,
            events=self._log,
            assumptions=self.assumptions,
            this_cpu=self._this_cpu,
            ownership_counters=self.ownership_counters,
            list_locks=self._list_locks,
            dead_cpus=self._dead_cpus,
        )
        self.zones = [new_zone(index, setting) for index in range(len(machine.zones))]
        self.kswapd = {node: self._new_kswapd(node) for node in machine.nodes}
        self._node_orders = node_orders(machine)
        self._walk = ZoneWalk(self.kswapd, rules, policy)
        self._reclaim_margins: dict[int, int] = {}
        self._free_scanner = FreeScanner(self.allocated)
        self.forced = 0
        self.in_base_pages = 0
        self.failed = 0
        self.placed_pages = 0

    @property
    def events(self) -> list[Event]:
        """No kernel function: return what happened under zone->lock so far, oldest first.

        The caller may clear it.
        """
        return self._log.entries

    @property
    def work(self) -> list[Work]:
        """No kernel function: return what each hold of zone->lock did, oldest first.

        The caller may clear it.
        """
        return self._log.work_of_holds

    def zone_of(self, pfn: int) -> Zone:
        """page_zone(): return the zone a page lies in.

        Raises:
            ValueError: it lies in none.
        """
        for zone in self.zones:
            if zone.spec.spans(pfn):
                return zone
        raise ValueError(f"page {pfn} lies in no zone")

    def put_free(self, pfn: int, order: int, migratetype: int) -> None:
        """No kernel function: lay out a free buddy at the tail of its list.

        Block types are set apart.
        """
        self.zone_of(pfn).buddy.seed(pfn, order, migratetype)
        self.placed_pages += 1 << order

    def put_allocated(self, pfn: int, order: int, movable: bool) -> None:
        """No kernel function: lay out a page in use."""
        self.zone_of(pfn)
        self.allocated.add(pfn, order, movable)
        self.placed_pages += 1 << order

    def put_pcp(self, zone: int, cpu: int, index: int, pfn: int) -> None:
        """No kernel function: lay out a page at the tail of a per-CPU list.

        It carries its block's type of now.
        """
        pcp = self.zones[zone].pcp[cpu]
        pcp.push_tail(index, pfn)
        self.zones[zone].cached_types.note(pfn, self.blocks.type_of(pfn))
        self.placed_pages += 1 << pcp.layout.order(index)

    def set_pcp_high(self, zone: int, cpu: int, high: int) -> None:
        """No kernel function: set the tuned limit of a page set within its bounds.

        A recording found it so.
        """
        self._list_locks.end_run(cpu)
        pcp = self.zones[zone].pcp[cpu]
        pcp.high = clamp(high, pcp.high_min, pcp.high_max)

    def set_block_type(self, block: int, migratetype: int) -> None:
        """No kernel function: tag a pageblock, given by number (S7.2).

        HIGHATOMIC blocks count as reserved.

        Raises:
            ValueError: the block lies in no zone.
        """
        start = block << self.machine.pageblock_order
        zone = self._first_zone_between(start, start + self.machine.pages_per_block)
        old = self.blocks.type_of(start)
        was, now = (each == Migratetype.HIGHATOMIC for each in (old, migratetype))
        zone.reserve.reserved += (now - was) * self.machine.pages_per_block
        was, now = (self.machine.is_isolate(each) for each in (old, migratetype))
        zone.isolated_blocks += now - was
        self.blocks.set_type(block, migratetype)

    def alloc(
        self,
        cpu: int,
        order: int,
        migratetype: int,
        highest_zone: int,
        bits: int,
        *,
        recorded_success: bool = True,
        reclaimed: int = 0,
    ) -> int | None:
        """__alloc_frozen_pages(): allocate; returns the page, or None.

        Args:
            cpu: CPU of the request.
            order: power of two of pages.
            migratetype: 0 to 2.
            highest_zone: highest type of zone allowed, by position within a node.
            bits: gfp bits, see `Bits`; others are ignored.
            recorded_success: what the recording saw. Only then are watermarks overridden in the
                end, and only then is that, or a failure, a divergence.
            reclaimed: number of the direct reclaim that ran for it, if the recording tells.
        """
        request = self._request(cpu, order, migratetype, highest_zone, bits, reclaimed)
        pfn = self._alloc(request, recorded_success)
        self.failed += pfn is None and recorded_success
        return pfn

    def alloc_as_recorded(
        self,
        cpu: int,
        order: int,
        migratetype: int,
        highest_zone: int,
        bits: int,
        *,
        reclaimed: int = 0,
    ) -> tuple[tuple[int, int], ...]:
        """No kernel function: serve a request that succeeded in the recording.

        It is served in single pages if no buddy will do. Arguments are those of `alloc`.

        Returns:
            (first page, order) of the buddy; or of single pages in the order they were handed
            out, at most as many as were asked for; or nothing.
        """
        request = self._request(cpu, order, migratetype, highest_zone, bits, reclaimed)
        pfn = self._alloc(request, recorded_success=True)
        if pfn is not None:
            return ((pfn, order),)
        pages = self._alloc_singly(replace(request, order=0), 1 << order) if order else ()
        self.in_base_pages += order > 0
        self.failed += len(pages) < 1 << order
        return pages

    def isolate(self, cpu: int, zone: int, orders: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """fast_isolate_freepages(): let a scan of recorded compaction take free pages (S10.4).

        Args:
            cpu: CPU that compacts.
            zone: by index.
            orders: of the pieces, descending.

        Returns:
            (first page, order) of the pieces that there were.
        """
        self._this_cpu.number = cpu
        self._list_locks.end_run(cpu)
        left = sum(1 << order for order in orders)
        pieces = []
        for order in orders:
            pfn = self._free_scanner.next_piece(self.zones[zone], order, left)
            left -= 1 << order
            if pfn is not None:
                pieces.append((pfn, order))
        return tuple(pieces)

    def capture(
        self, cpu: int, zone: int, order: int, migratetype: int
    ) -> tuple[tuple[int, int], ...]:
        """compaction_capture(): serve a request past the lists, whole or in single pages (S9.7).

        Arguments and result are those of `alloc_as_recorded`, for one zone.
        """
        self._this_cpu.number = cpu
        self._list_locks.end_run(cpu)
        pfn = take_uncounted(self.zones[zone], order, migratetype)
        if pfn is not None:
            self.allocated.add(pfn, order, movable=migratetype == Migratetype.MOVABLE)
            return ((pfn, order),)
        self.in_base_pages += 1
        pages: list[tuple[int, int]] = []
        while len(pages) < 1 << order:
            pfn = self._free_scanner.next_piece(self.zones[zone], 0, (1 << order) - len(pages))
            if pfn is None:
                self.failed += 1
                break
            pages.append((pfn, 0))
        return tuple(pages)

    def free(
        self, cpu: int, pfn: int, order: int, *, batched: bool = False, interrupts: bool = False
    ) -> None:
        """__free_frozen_pages(): free pages in use (S4.6, T10.1).

        They are all or part of what was handed out.

        Args:
            cpu: CPU that frees.
            pfn: first page.
            order: power of two of pages.
            batched: as one of a folio batch (S4.11).
            interrupts: by an interrupt, during a folio batch of the CPU (S4.10).
        """
        self._this_cpu.number = cpu
        self._list_locks.begin(cpu, batched=batched, interrupts=interrupts)
        self.allocated.remove(pfn, order)
        self.zone_of(pfn).free(cpu, pfn, order, batched=batched)
        for kswapd in self.kswapd.values():
            kswapd.note_free()

    def tick(self, cpu: int) -> None:
        """refresh_cpu_vm_stats(): run the CPU's vmstat worker (S4.8)."""
        self._this_cpu.number = cpu
        for zone in self.zones:
            zone.tick(cpu)

    def drain_all(self, by: int = 0) -> None:
        """drain_all_pages(): empty the lists of every CPU, CPU by CPU (S4.9)."""
        self._list_locks.end_run(by)
        self._drain_all_pages(by)

    def kill_cpu(self, cpu: int, by: int) -> None:
        """page_alloc_cpu_dead(): take a CPU offline (S4.9).

        Another one empties its lists.
        """
        self._this_cpu.number = by
        self._list_locks.end_run(by)
        self._list_locks.end_run(cpu)
        self._dead_cpus.add(cpu)
        for zone in self.zones:
            zone.drain_all(cpu)
            zone.bury(cpu)

    def revive_cpu(self, cpu: int) -> None:
        """page_alloc_cpu_online(): bring a CPU online again."""
        self._dead_cpus.discard(cpu)

    def begin_reclaim(
        self, number: int, cpu: int, order: int, migratetype: int, highest_zone: int, bits: int
    ) -> None:
        """No kernel function: begin a recorded direct reclaim for a request.

        Arguments are as of `alloc`. Its number is free for others once the request has been served.
        """
        request = self._request(cpu, order, migratetype, highest_zone, bits, number)
        attempt = gfp_to_alloc_flags(request, defrag_mode=self.policy.defrag_mode)
        margins = [zone.margin(request, attempt) for zone in self._zonelist(request)]
        self._reclaim_margins[number] = min(0, max(margins, default=0))

    def start_kswapd(self, node: int, highest_zone: int) -> None:
        """No kernel function: begin a recorded run, for zones up to a type (S10.2)."""
        self.kswapd[node].start(highest_zone)

    def stop_kswapd(self, node: int) -> None:
        """No kernel function: end a recorded run."""
        self.kswapd[node].stop()

    def dump(self) -> dict[str, Any]:
        """No kernel function: return the comparable state, see `dump_state`."""
        return dump_state(self)

    def dump_counters(self) -> dict[str, Any]:
        """No kernel function: return what only larger machines have of state.

        See `dump_counters`.
        """
        return dump_counters(self)

    def settle_counters(self) -> None:
        """No kernel function: start with settled counters.

        No CPU keeps anything back, no list is about to expire, no lock was ever taken.
        """
        self.ownership_counters.clear()
        self._list_locks.forget()
        for zone in self.zones:
            for cpu, pcp in enumerate(zone.pcp):
                zone.counters.fold(cpu)
                pcp.expire = 0

    def check(self) -> None:
        """No kernel function: raise AssertionError unless every invariant holds.

        See `invariants.check`.
        """
        invariants.check(self)

    def _first_zone_between(self, start: int, end: int) -> Zone:
        """No kernel function: return the first zone that begins in a range."""
        for zone in self.zones:
            if max(start, zone.spec.start_pfn) < min(end, zone.spec.end_pfn):
                return zone
        raise ValueError(f"pages {start} to {end - 1} lie in no zone")

    def _new_kswapd(self, node: int) -> Kswapd:
        """No kernel function: return a node's reclaim thread."""
        return Kswapd(
            [self.zones[index] for index in self.machine.zones_of(node)],
            is_recorded=self.assumptions.kswapd_recorded,
        )

    def _request(
        self,
        cpu: int,
        order: int,
        migratetype: int,
        highest_zone: int,
        bits: int,
        reclaimed: int,
    ) -> Request:
        """prepare_alloc_pages(): return a request with the node of its CPU."""
        self._this_cpu.number = cpu
        self._list_locks.begin(cpu, interrupts=Bits.INTERRUPTS_BATCH in Bits(bits))
        is_sure = not self.assumptions.direct_reclaim_recorded
        return Request(
            cpu=cpu,
            order=order,
            migratetype=migratetype,
            highest_zone=highest_zone,
            bits=Bits(bits) & READ_BITS,
            makes_room=Bits.DIRECT_RECLAIM in Bits(bits) and (is_sure or reclaimed > 0),
            reclaim=reclaimed,
        )

    def _zonelist(self, request: Request) -> list[Zone]:
        """node_zonelist(): return the zones the request may use, preferred first (S1.4).

        Its CPU's node's come first.
        """
        node = self.machine.node_of(request.cpu)
        nodes = (node,) if Bits.THISNODE in request.bits else self._node_orders[node]
        return [self.zones[zone] for zone in zonelist(self.machine, nodes, request.highest_zone)]

    def _avoids_fragmenting(self, zonelist: list[Zone]) -> bool:
        """alloc_flags_nofragment(): return whether the first attempt avoids it (S2.7).

        The zone below may take what does not fit. With several nodes the zone below must be there.
        """
        if self.policy.defrag_mode:
            return True
        if not zonelist or zonelist[0].spec.name != "Normal":
            return False
        preferred = zonelist[0]
        has_below = preferred.type > 0 and self.machine.zones[preferred.index - 1].present > 0
        return has_below or not self.machine.has_several_nodes

    def _alloc(self, request: Request, recorded_success: bool) -> int | None:
        """Part of __alloc_frozen_pages(): serve a request, slowly if it must be."""
        pfn = self._alloc_fast(request)
        if pfn is None:
            pfn = self._alloc_pages_slowpath(request, recorded_success)
        if pfn is not None:
            is_movable = request.migratetype == Migratetype.MOVABLE
            self.allocated.add(pfn, request.order, is_movable)
        return pfn

    def _alloc_singly(self, request: Request, count: int) -> tuple[tuple[int, int], ...]:
        """No kernel function: serve a request page by page."""
        pages: list[tuple[int, int]] = []
        while len(pages) < count:
            pfn = self._alloc(request, recorded_success=True)
            if pfn is None:
                break
            pages.append((pfn, 0))
        return tuple(pages)

    def _alloc_fast(self, request: Request) -> int | None:
        """Part of __alloc_frozen_pages(): make the first attempt."""
        zonelist = self._zonelist(request)
        return self._walk.get_page(request, self._first_attempt(request, zonelist), zonelist)

    def _first_attempt(self, request: Request, zonelist: list[Zone]) -> Attempt:
        """Part of __alloc_frozen_pages(): return the flags of the first attempt."""
        return fast_attempt(
            request,
            avoids_fragmenting=self._avoids_fragmenting(zonelist),
            uses_reserve=self.policy.uses_reserve_at_once(self.rules),
        )

    def _alloc_pages_slowpath(self, request: Request, recorded_success: bool) -> int | None:
        """__alloc_pages_slowpath(): wake kswapd, try harder, make room (S8).

        At last it gives up caution. The replay is literal.
        """
        zonelist = self._zonelist(request)
        get_page = self._walk.get_page
        attempt = gfp_to_alloc_flags(request, defrag_mode=self.policy.defrag_mode)
        if attempt.kswapd:
            self._wake_all_kswapds(request, zonelist)
        pfn = get_page(request, attempt, zonelist)
        if pfn is None and request.gfp_pfmemalloc_allowed:
            attempt = memalloc_attempt(request)
            pfn = get_page(request, attempt, zonelist)
        has_room = self._reclaim_sufficed(request, attempt, zonelist)
        if pfn is None and request.makes_room and not has_room:
            self._make_room(request, zonelist)
            pfn = get_page(request, attempt, zonelist)
        if pfn is None and attempt.nofragment and request.may_give_up_nofragment:
            attempt = attempt.may_fragment()
            pfn = get_page(request, attempt, zonelist)
        if pfn is None and recorded_success and not attempt.no_watermarks:
            pfn = self._walk.force_page(request, attempt, zonelist)
            self.forced += pfn is not None
        return pfn

    def _wake_all_kswapds(self, request: Request, zonelist: list[Zone]) -> None:
        """wake_all_kswapds(): wake the reclaim thread of every node it may use (S8.1).

        It may use nodes with memory.
        """
        order = request.order
        if self.policy.defrag_mode:
            order = max(order, self.machine.pageblock_order)
        for node in dict.fromkeys(zone.node for zone in zonelist if zone.spec.managed):
            self.kswapd[node].wake(order, request.highest_zone)

    def _reclaim_sufficed(self, request: Request, attempt: Attempt, zonelist: list[Zone]) -> bool:
        """No kernel function: return whether recorded reclaim left more than before.

        Then the kernel found its page. It was at its mark when reclaim began, however much is
        missing here (S10.4).
        """
        if not request.reclaim or not zonelist:
            return False
        nearest = max(zonelist, key=lambda zone: zone.margin(request, attempt))
        before = self._reclaim_margins.get(request.reclaim, 0)
        has_more = nearest.margin(request, attempt) > before
        return has_more and nearest.has_buddy(request, attempt)

    def _make_room(self, request: Request, zonelist: list[Zone]) -> None:
        """Part of __alloc_pages_direct_reclaim(): make room after reclaim in vain (S8.2)."""
        for zone in zonelist:
            if zone.reserve.unreserve(request.migratetype):
                break
        self._drain_all_pages(request.cpu)

    def _drain_all_pages(self, by: int) -> None:
        """drain_all_pages(): empty the lists of every CPU, CPU by CPU (S4.9)."""
        self._this_cpu.number = by
        for cpu in range(self.machine.nr_cpus):
            for zone in self.zones:
                zone.drain_all(cpu)
