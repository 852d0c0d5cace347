"""The whole allocator at work: requests over the zonelist, frees, ticks, drains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.oracle.buddy import AllocatedPages, Pageblocks
from tests.oracle.dump import Dump, dump_state
from tests.oracle.kswapd import Kswapd
from tests.oracle.machine import Event, EventLog, Migratetype, OracleMachine, Work
from tests.oracle.ownership import ListLocks, OwnedPageblocks, OwnershipCounters
from tests.oracle.ownership_refill import OwningZone
from tests.oracle.request import Attempt, Bits, Mark, Request
from tests.oracle.rules import OracleAssumptions, OraclePolicy, OracleRules
from tests.oracle.vmstat import ThisCpu, clamp
from tests.oracle.zone import Zone

Visit = Callable[[Zone, Request, Attempt], int | None]
"""What a walk does in a zone that the marks allow; None: it goes on to the next."""


def node_orders(machine: OracleMachine) -> dict[int, tuple[int, ...]]:
    """build_zonelists(): return for each node the order in which its requests go on (S1.4).

    It holds nodes with memory. A node's own memory comes first. The others follow by distance; a
    node of a lower number, and one with CPUs, counts as a little farther away. Between equals that
    one is chosen which came less often first among its equals in the lists built before, then the
    lower number.
    """
    with_memory = [
        node
        for node in machine.nodes
        if any(machine.zones[zone].present for zone in machine.zones_of(node))
    ]
    load = dict.fromkeys(machine.nodes, 0)
    orders = {}
    for local in machine.nodes:
        order: list[int] = []
        previous = local
        while len(order) < len(with_memory):
            unused = [node for node in with_memory if node not in order]
            node = _find_next_best_node(machine, local, unused, load)
            if _distance(machine, local, node) != _distance(machine, local, previous):
                load[node] += 1
            order.append(node)
            previous = node
        orders[local] = tuple(order)
    return orders


def _distance(machine: OracleMachine, here: int, there: int) -> int:
    return machine.distance(machine.nodes.index(here), machine.nodes.index(there))


def _find_next_best_node(
    machine: OracleMachine, local: int, unused: list[int], load: dict[int, int]
) -> int:
    """find_next_best_node(): return the next node to try."""

    def rank(node: int) -> tuple[int, int, int]:
        remoteness = _distance(machine, local, node) + (node < local)
        return remoteness + bool(machine.cpus_of(node)), load[node], node

    return local if local in unused else min(unused, key=rank)


def zonelist(machine: OracleMachine, nodes: tuple[int, ...], highest_type: int) -> list[int]:
    """build_zonerefs_node(): return the zones with memory by node, from the highest type down."""
    return [
        zone
        for node in nodes
        for zone in machine.zones_of(node)[highest_type::-1]
        if machine.zones[zone].present
    ]


class Allocator:
    """A page allocator that can be read: a machine's memory, zone by zone.

    It starts with no page anywhere; `put_*` and `set_block_type` lay out the start state.

    Attributes:
        zones: all zones by index.
        kswapd: the reclaim thread of each node.
        in_base_pages: requests that asked for single pages where the recording had a buddy.
        failed: requests that failed here, wholly or in part, though the recording served them.
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
        self.huge_pages: set[int] = set()  # those at the start that lie in several blocks
        self.log = EventLog()
        self.this_cpu = ThisCpu()
        self.ownership_counters = OwnershipCounters(self.this_cpu)
        self.list_locks = ListLocks(self.this_cpu, self.ownership_counters)
        self.dead_cpus: set[int] = set()
        self.blocks = Pageblocks(machine)
        kind = Zone
        if policy.ownership is not None:
            kind = OwningZone
            self.blocks = OwnedPageblocks(machine, policy.ownership, self.ownership_counters)
        self.zones = [kind(index, self) for index in range(len(machine.zones))]
        self.kswapd = {
            node: Kswapd(self.zones_of(node), is_recorded=self.assumptions.kswapd_recorded)
            for node in machine.nodes
        }
        self.in_base_pages = 0
        self.failed = 0
        self._node_orders = node_orders(machine)

    @property
    def events(self) -> list[Event]:
        """What happened under zone->lock; the caller may clear it."""
        return self.log.entries

    @property
    def work(self) -> list[Work]:
        """What each hold of zone->lock did; the caller may clear it."""
        return self.log.work_of_holds

    def zones_of(self, node: int) -> list[Zone]:
        """A node's zones, lowest type first."""
        return [self.zones[index] for index in self.machine.zones_of(node)]

    def zone_of(self, pfn: int) -> Zone:
        """page_zone(): return the zone a page lies in."""
        for zone in self.zones:
            if zone.spec.spans(pfn):
                return zone
        raise ValueError(f"page {pfn} lies in no zone")

    def put_free(self, pfn: int, order: int, migratetype: int) -> None:
        self.zone_of(pfn).buddy.seed(pfn, order, migratetype)

    def put_allocated(self, pfn: int, order: int, movable: bool) -> None:
        self.zone_of(pfn)
        self.allocated.add(pfn, order, movable)

    def put_pcp(self, zone: int, cpu: int, index: int, pfn: int) -> None:
        """Lay out a page of its block's type at the tail of a list."""
        pcp = self.zones[zone].pcp[cpu]
        pcp.lists[index].push_tail(pfn)
        self.zones[zone].cached_types[pfn] = self.blocks.type_of(pfn)

    def set_block_type(self, block: int, migratetype: int) -> None:
        """Tag a pageblock, given by number; HIGHATOMIC blocks count as reserved (S7.2)."""
        start = block << self.machine.pageblock_order
        end = start + self.machine.pages_per_block
        zones = [
            zone
            for zone in self.zones
            if max(start, zone.spec.start_pfn) < min(end, zone.spec.end_pfn)
        ]
        if not zones:
            raise ValueError(f"pages {start} to {end - 1} lie in no zone")
        old, is_isolate = self.blocks.type_of(start), self.machine.is_isolate
        reserved = (migratetype == Migratetype.HIGHATOMIC) - (old == Migratetype.HIGHATOMIC)
        zones[0].reserve.reserved += reserved * self.machine.pages_per_block
        zones[0].isolated_blocks += is_isolate(migratetype) - is_isolate(old)
        self.blocks.set_type(block, migratetype)

    def settle_counters(self) -> None:
        """Start with settled counters.

        No CPU keeps anything back, no list is about to expire, no lock was ever taken.
        """
        self.ownership_counters.clear()
        self.list_locks.forget()
        for zone in self.zones:
            for cpu, pcp in enumerate(zone.pcp):
                zone.counters.fold(cpu)
                pcp.expire = 0

    def dump(self) -> Dump:
        return dump_state(self)

    def free(
        self, cpu: int, pfn: int, order: int, *, batched: bool = False, interrupts: bool = False
    ) -> None:
        """__free_frozen_pages(): free pages in use (S4.6, T10.1).

        They are all or part of what was handed out.
        """
        self.this_cpu.number = cpu
        self.list_locks.begin(cpu, batched=batched, interrupts=interrupts)
        self._free_pages(cpu, pfn, order, batched=batched)

    def tick(self, cpu: int) -> None:
        """refresh_cpu_vm_stats(): run the CPU's vmstat worker (S4.8)."""
        self.this_cpu.number = cpu
        for zone in self.zones:
            zone.tick(cpu)

    def drain_all(self, by: int = 0) -> None:
        """drain_all_pages(): empty the lists of every CPU, CPU by CPU (S4.9)."""
        self.list_locks.end_run(by)
        self._drain_all_pages(by)

    def set_pcp_high(self, zone: int, cpu: int, high: int) -> None:
        """Set a page set's limit, within bounds, as a recording found it."""
        self.list_locks.end_run(cpu)
        pcp = self.zones[zone].pcp[cpu]
        pcp.high = clamp(high, pcp.high_min, pcp.high_max)

    def grow(self, zone: int, pfn: int, order: int, cpu: int = 0) -> None:
        """__free_pages_core(): give a zone memory that it had not (S3.1, S5.5).

        Its watermarks, and the limits of its lists, stay as they are.
        """
        self._act(cpu)
        self.zones[zone].grow(pfn, order)

    def _act(self, cpu: int) -> None:
        """Let a CPU do what follows; what it did under a list's lock is over."""
        self.this_cpu.number = cpu
        self.list_locks.end_run(cpu)

    def _begin(self, request: Request) -> None:
        """Let a request's CPU do what follows, perhaps in an interrupt."""
        self.this_cpu.number = request.cpu
        self.list_locks.begin(request.cpu, interrupts=Bits.INTERRUPTS_HOLDER in request.bits)

    def _free_pages(self, cpu: int, pfn: int, order: int, *, batched: bool) -> None:
        """Part of __free_frozen_pages(): free pages, whoever holds a lock."""
        self.allocated.remove(pfn, order)
        self.zone_of(pfn).free(cpu, pfn, order, batched=batched)
        for kswapd in self.kswapd.values():
            kswapd.note_free()

    def zonelist(self, request: Request) -> list[Zone]:
        """node_zonelist(): return the zones the request may use, its node's first (S1.4)."""
        node = self.machine.node_of(request.cpu)
        nodes = (node,) if Bits.THISNODE in request.bits else self._node_orders[node]
        return [self.zones[zone] for zone in zonelist(self.machine, nodes, request.highest_zone)]

    def _first_attempt(self, request: Request, zonelist: list[Zone]) -> Attempt:
        """Part of prepare_alloc_pages(): return the first attempt's flags (S2.5)."""
        uses_reserve = self.policy.decides("highatomic_fastpath", self.rules)
        return Attempt(
            mark=Mark.LOW,
            kswapd=Bits.KSWAPD in request.bits,
            highatomic=uses_reserve and request.is_highatomic,
            nofragment=self._avoids_fragmenting(zonelist),
            cma=request.is_movable,
        )

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

    def get_page(
        self, request: Request, attempt: Attempt, zonelist: list[Zone], visit: Visit | None = None
    ) -> int | None:
        """get_page_from_freelist(): take a page from the first zone that may and can give one.

        Each sweep over the zonelist is less choosy than the one before. Fragmenting the own node
        is better than going to another, so NOFRAGMENT is given up before the first remote zone.
        Nodes that kswapd works on are avoided as long as another serves. What is left to give up
        in the end is NOFRAGMENT.
        """
        keeps_nofragment = self.policy.defrag_mode
        skips_busy = self.rules.skips_busy_kswapd_nodes and self.machine.has_several_nodes
        has_skipped = False
        while True:
            for zone in zonelist:
                is_remote = zone.node != zonelist[0].node
                if attempt.nofragment and is_remote and not keeps_nofragment:
                    attempt = replace(attempt, nofragment=False)
                    break
                if skips_busy and self.kswapd[zone.node].active:
                    has_skipped = True
                elif zone.may_take(request, attempt):
                    pfn = (visit or self._rmqueue)(zone, request, attempt)
                    if pfn is not None:
                        return pfn
            else:
                if skips_busy and has_skipped:
                    skips_busy = False
                elif attempt.nofragment and not keeps_nofragment:
                    attempt = replace(attempt, nofragment=False)
                else:
                    return None

    def _rmqueue(self, zone: Zone, request: Request, attempt: Attempt) -> int | None:
        """rmqueue(): take a page from a zone; wakes kswapd if a fallback boosted it (S3.2)."""
        pfn = zone.take(request, attempt)
        may_act = attempt.kswapd or not self.rules.boosted_flag_needs_kswapd
        if zone.fallback.boosted and may_act:
            zone.fallback.boosted = False
            self.kswapd[zone.node].wake(0, zone.type)
        return pfn

    def _drain_all_pages(self, by: int) -> None:
        """drain_all_pages(): empty all lists, CPU by CPU, unless drains are recorded (S4.9)."""
        if self.assumptions.drains_recorded:
            return
        self.this_cpu.number = by
        for cpu in range(self.machine.nr_cpus):
            has_pages = any(zone.pcp[cpu].count for zone in self.zones)
            for zone in self.zones:
                zone.drain_all(cpu, is_visited=has_pages)
