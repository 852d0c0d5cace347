"""The whole allocator at work: requests over the zonelist, frees, ticks, drains."""

from __future__ import annotations

from dataclasses import replace

from tests.oracle.arithmetic import clamp
from tests.oracle.machine import Migratetype, OracleMachine
from tests.oracle.oracle_state import OracleState
from tests.oracle.request import (
    Attempt,
    Bits,
    Request,
    fast_attempt,
    gfp_to_alloc_flags,
    memalloc_attempt,
)
from tests.oracle.rules import OracleAssumptions, OraclePolicy, OracleRules
from tests.oracle.zone import Zone
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


class Allocator(OracleState):
    """A page allocator that can be read."""

    def __init__(
        self,
        machine: OracleMachine,
        rules: OracleRules,
        policy: OraclePolicy,
        assumptions: OracleAssumptions | None = None,
    ) -> None:
        super().__init__(machine, rules, policy, assumptions)
        self._node_orders = node_orders(machine)
        self._walk = ZoneWalk(self.kswapd, rules, policy)
        self._reclaim_margins: dict[int, int] = {}

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
        only_zone: int | None = None,
    ) -> tuple[tuple[int, int], ...]:
        """No kernel function: serve a request that succeeded in the recording.

        It is served in single pages if no buddy will do. Arguments are those of `alloc`, and
        `only_zone`: index of the zone that is to serve it, None for any (S10.4).

        Returns:
            (first page, order) of the buddy; or of single pages in the order they were handed
            out, at most as many as were asked for; or nothing.
        """
        request = self._request(cpu, order, migratetype, highest_zone, bits, reclaimed)
        request = replace(request, only_zone=only_zone)
        pfn = self._alloc(request, recorded_success=True)
        if pfn is not None:
            return ((pfn, order),)
        pages = self._alloc_singly(replace(request, order=0), 1 << order) if order else ()
        self.in_base_pages += order > 0
        self.failed += len(pages) < 1 << order
        return pages

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
            interrupts: by an interrupt, while its CPU holds the lock of a list (S4.10).
        """
        self._this_cpu.number = cpu
        self._list_locks.begin(cpu, batched=batched, interrupts=interrupts)
        self._free_pages(cpu, pfn, order, batched=batched)

    def free_singly(
        self, cpu: int, pages: tuple[tuple[int, int], ...], *, batched: bool = False
    ) -> None:
        """No kernel function: free single pages that served one request, the last one first.

        All are one free to the interrupts that come as its drain ends (S4.10).
        """
        self._this_cpu.number = cpu
        self._list_locks.begin(cpu, batched=batched)
        for pfn, order in reversed(pages):
            self._free_pages(cpu, pfn, order, batched=batched)

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

    def _free_pages(self, cpu: int, pfn: int, order: int, *, batched: bool) -> None:
        """Part of __free_frozen_pages(): free pages, whoever holds a lock."""
        self.allocated.remove(pfn, order)
        self.zone_of(pfn).free(cpu, pfn, order, batched=batched)
        for kswapd in self.kswapd.values():
            kswapd.note_free()

    def set_pcp_high(self, zone: int, cpu: int, high: int) -> None:
        """No kernel function: set the tuned limit of a page set within its bounds.

        A recording found it so.
        """
        self._list_locks.end_run(cpu)
        pcp = self.zones[zone].pcp[cpu]
        pcp.high = clamp(high, pcp.high_min, pcp.high_max)

    def grow(self, zone: int, pfn: int, order: int, cpu: int = 0) -> None:
        """__free_pages_core(): give a zone memory that it had not (S3.1, S5.5).

        Its watermarks, and the limits of its lists, stay as they are.
        """
        self._this_cpu.number = cpu
        self._list_locks.end_run(cpu)
        self.placed_pages += 1 << order
        self.zones[zone].grow(pfn, order)

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
        self._list_locks.begin(cpu, interrupts=Bits.INTERRUPTS_HOLDER in Bits(bits))
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
            imposed = None if request.only_zone is None else self.zones[request.only_zone]
            pfn = self._walk.force_page(request, attempt, zonelist, imposed)
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
        """drain_all_pages(): empty the lists of every CPU, CPU by CPU (S4.9).

        Where the recording tells of drains, it alone has them.
        """
        if self.assumptions.drains_recorded:
            return
        self._this_cpu.number = by
        for cpu in range(self.machine.nr_cpus):
            for zone in self.zones:
                zone.drain_all(cpu)
