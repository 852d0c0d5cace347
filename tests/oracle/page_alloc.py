"""The whole allocator at work: requests over the zonelist, frees, ticks, drains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.oracle.buddy import AllocatedPages
from tests.oracle.dump import check, dump_counters, dump_state
from tests.oracle.kswapd import Kswapd
from tests.oracle.machine import Event, EventLog, Migratetype, OracleMachine, Work
from tests.oracle.ownership import ListLocks, OwnershipCounters, new_blocks
from tests.oracle.ownership_refill import new_zone
from tests.oracle.request import (
    Attempt,
    Bits,
    Request,
    fast_attempt,
    gfp_to_alloc_flags,
    memalloc_attempt,
)
from tests.oracle.rules import OracleAssumptions, OraclePolicy, OracleRules
from tests.oracle.vmstat import ThisCpu, clamp
from tests.oracle.zone import Setting, Zone


def node_orders(machine: OracleMachine) -> dict[int, tuple[int, ...]]:
    """find_next_best_node(): return for each node the order in which its requests go on.

    It holds nodes with memory. A node's own memory comes first. The others follow by distance; a
    node of a lower number, and one with CPUs, counts as a little farther away. Between equals that
    one is chosen which came less often first among its equals in the lists built before, then the
    lower number.
    """
    load = dict.fromkeys(machine.nodes, 0)
    return {node: _node_order(machine, node, load) for node in machine.nodes}


def zonelist(machine: OracleMachine, nodes: tuple[int, ...], highest_type: int) -> list[int]:
    """build_zonerefs_node(): return the zones with memory by node, from the highest type down."""
    return [
        zone
        for node in nodes
        for zone in machine.zones_of(node)[highest_type::-1]
        if machine.zones[zone].present
    ]


def _node_order(machine: OracleMachine, local: int, load: dict[int, int]) -> tuple[int, ...]:
    """build_zonelists(): return the order of nodes for one node."""
    order: list[int] = []
    previous = local
    for _ in range(len(_with_memory(machine))):
        node = _find_next_best_node(machine, local, order, load)
        if machine.distance(local, node) != machine.distance(local, previous):
            load[node] += 1
        order.append(node)
        previous = node
    return tuple(order)


def _find_next_best_node(
    machine: OracleMachine, local: int, used: list[int], load: dict[int, int]
) -> int:
    """find_next_best_node(): return the next node to try."""
    unused = [node for node in _with_memory(machine) if node not in used]
    if local in unused:
        return local
    return min(unused, key=lambda node: (_remoteness(machine, local, node), load[node], node))


def _remoteness(machine: OracleMachine, local: int, node: int) -> int:
    """Part of find_next_best_node(): return how far away a node counts as."""
    return machine.distance(local, node) + (node < local) + bool(machine.cpus_of(node))


def _with_memory(machine: OracleMachine) -> list[int]:
    """No kernel function: return the nodes with memory."""
    return [
        node
        for node in machine.nodes
        if any(machine.zones[zone].present for zone in machine.zones_of(node))
    ]


Visit = Callable[[Zone, Request, Attempt], int | None]
"""What a walk does in a zone that the marks allow; None: it goes on to the next."""


@dataclass(frozen=True)
class Sweep:
    """How one sweep over a zonelist ended.

    Attributes:
        pfn: the page, None if no zone gave one.
        would_leave_node: it stopped before another node's zone, to fragment the own one first.
        skipped_busy: zones were passed over because kswapd works on their node.
    """

    pfn: int | None = None
    would_leave_node: bool = False
    skipped_busy: bool = False


class ZoneWalk:
    """Sweeps over zonelists, each sweep less choosy than the one before."""

    def __init__(
        self,
        kswapd: dict[int, Kswapd],
        rules: OracleRules,
        policy: OraclePolicy,
    ) -> None:
        self.kswapd = kswapd
        self.skips_busy_nodes = rules.skips_busy_kswapd_nodes and len(kswapd) > 1
        self.boosted_flag_needs_kswapd = rules.boosted_flag_needs_kswapd
        self.keeps_nofragment = policy.defrag_mode

    def get_page(self, request: Request, attempt: Attempt, zonelist: list[Zone]) -> int | None:
        """get_page_from_freelist(): take a page from the first zone that gives one.

        It may and can. Fragmenting the own node is better than going to another, so NOFRAGMENT is
        given up before the first remote zone. Nodes that kswapd works on are avoided as long as
        another serves. What is left to give up in the end is NOFRAGMENT.
        """
        return self._walk(request, attempt, zonelist, self._take)

    def begin_request(self, request: Request, attempt: Attempt, zonelist: list[Zone]) -> None:
        """Part of get_page_from_freelist(): refill the first usable zone early (S4.10)."""

        def refill(zone: Zone, request: Request, attempt: Attempt) -> int:
            zone.begin_request(request, attempt)
            return 0

        self._walk(request, attempt, zonelist, refill)

    def _walk(
        self, request: Request, attempt: Attempt, zonelist: list[Zone], visit: Visit
    ) -> int | None:
        """Part of get_page_from_freelist(): go over the zonelist until a visit gives something."""
        skips_busy = self.skips_busy_nodes
        has_skipped = False
        while True:
            sweep = self._sweep(request, attempt, zonelist, visit, skips_busy=skips_busy)
            has_skipped |= sweep.skipped_busy
            if sweep.pfn is not None:
                return sweep.pfn
            if sweep.would_leave_node:
                attempt = attempt.may_fragment()
            elif skips_busy and has_skipped:
                skips_busy = False
            elif attempt.nofragment and not self.keeps_nofragment:
                attempt = attempt.may_fragment()
            else:
                return None

    def force_page(
        self, request: Request, attempt: Attempt, zonelist: list[Zone], imposed: Zone | None
    ) -> int | None:
        """No kernel function: take a page whatever the watermarks say.

        The request succeeded in the recording. There reclaim had made room that is missing here:
        most likely in the zone that lacks least. That one is tried first, of equals the preferred;
        then all as ever. An imposed zone is tried first whether or not the list has it: a request
        may ask for another node than its CPU's, which no event tells.
        """
        if not zonelist and imposed is None:
            return None
        attempt = attempt.ignoring_watermarks()
        nearest = imposed or max(zonelist, key=lambda zone: zone.margin(request, attempt))
        pfn = self._take(nearest, request, attempt)
        return self.get_page(request, attempt, zonelist) if pfn is None else pfn

    def _sweep(
        self,
        request: Request,
        attempt: Attempt,
        zonelist: list[Zone],
        visit: Visit,
        *,
        skips_busy: bool,
    ) -> Sweep:
        """Part of get_page_from_freelist(): go over the zonelist once."""
        skipped_busy = False
        for zone in zonelist:
            stays_local = attempt.nofragment and not self.keeps_nofragment
            if stays_local and zone.node != zonelist[0].node:
                return Sweep(would_leave_node=True, skipped_busy=skipped_busy)
            if skips_busy and self.kswapd[zone.node].active:
                skipped_busy = True
                continue
            if not zone.may_take(request, attempt):
                continue
            pfn = visit(zone, request, attempt)
            if pfn is not None:
                return Sweep(pfn=pfn)
        return Sweep(skipped_busy=skipped_busy)

    def _take(self, zone: Zone, request: Request, attempt: Attempt) -> int | None:
        """Part of get_page_from_freelist(): take a page from a zone; it may boost."""
        pfn = zone.take(request, attempt)
        self._note_boost(zone, attempt)
        return pfn

    def _note_boost(self, zone: Zone, attempt: Attempt) -> None:
        """Part of rmqueue(): wake the node's kswapd for a zone boosted by a fallback (S3.2)."""
        may_act = attempt.kswapd or not self.boosted_flag_needs_kswapd
        if zone.fallback.boosted and may_act:
            zone.fallback.boosted = False
            self.kswapd[zone.node].wake(0, zone.type)


class OracleState:
    """A machine's memory, zone by zone.

    It starts with no page anywhere; `put_*` and `set_block_type` lay out the start state.

    Attributes:
        zones: all zones by index.
        kswapd: the reclaim thread of each node.
        forced: requests that succeeded only by ignoring the watermarks, as the recording did.
        in_base_pages: requests that asked for single pages where the recording had a buddy.
        failed: requests that failed here, wholly or in part, though the recording served them.
        placed_pages: base pages that there are.
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
        self.forced = 0
        self.in_base_pages = 0
        self.failed = 0
        self.placed_pages = 0

    @property
    def events(self) -> list[Event]:
        """No kernel function: return what happened under zone->lock; the caller may clear it."""
        return self._log.entries

    @property
    def work(self) -> list[Work]:
        """No kernel function: return what each hold of zone->lock did; the caller may clear it."""
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
        """No kernel function: lay out a free buddy at a list's tail, whatever its block's type."""
        self.zone_of(pfn).buddy.seed(pfn, order, migratetype)
        self.placed_pages += 1 << order

    def put_allocated(self, pfn: int, order: int, movable: bool) -> None:
        """No kernel function: lay out a page in use."""
        self.zone_of(pfn)
        self.allocated.add(pfn, order, movable)
        self.placed_pages += 1 << order

    def put_pcp(self, zone: int, cpu: int, index: int, pfn: int) -> None:
        """No kernel function: lay out a page of its block's type at the tail of a list."""
        pcp = self.zones[zone].pcp[cpu]
        pcp.push_tail(index, pfn)
        self.zones[zone].cached_types.note(pfn, self.blocks.type_of(pfn))
        self.placed_pages += 1 << pcp.layout.order(index)

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

    def dump(self) -> dict[str, Any]:
        """No kernel function: return the comparable state, see `dump_state`."""
        return dump_state(self)

    def dump_counters(self) -> dict[str, Any]:
        """No kernel function: return what only larger machines have of state."""
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
        """No kernel function: raise AssertionError unless every invariant holds."""
        check(self)

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
        """page_alloc_cpu_dead(): take a CPU offline; another empties its lists (S4.9)."""
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
        """No kernel function: set a page set's limit, within bounds, as a recording found it."""
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
        """node_zonelist(): return the zones the request may use, its node's first (S1.4)."""
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
        """wake_all_kswapds(): wake the thread of every node whose memory it may use (S8.1)."""
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
        """drain_all_pages(): empty all lists, CPU by CPU, unless drains are recorded (S4.9)."""
        if self.assumptions.drains_recorded:
            return
        self._this_cpu.number = by
        for cpu in range(self.machine.nr_cpus):
            for zone in self.zones:
                zone.drain_all(cpu)
