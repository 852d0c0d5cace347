"""The allocator under elastic reclaim: its own kswapd, direct reclaim and compaction (S10.5).

Read `lru.py` first (what pages in use are), then `vmscan.py`, `kswapd.py`; `compaction.py` with
`compaction_scan.py`, `kcompactd.py`; and `slow_path.py`, which has use of them all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.oracle.compaction import DirectCompactor, Gates, ZoneCompaction
from tests.oracle.kcompactd import Kcompactd
from tests.oracle.kswapd import ElasticKswapd
from tests.oracle.lru import ElasticMemory, Folio, Kind
from tests.oracle.machine import PMD_ORDER, Migratetype, OracleMachine
from tests.oracle.page_alloc import READ_BITS, Allocator
from tests.oracle.request import Attempt, Bits, Request
from tests.oracle.rules import ElasticOptions, OraclePolicy, OracleRules
from tests.oracle.slow_path import DirectReclaim, SlowPath
from tests.oracle.zone import Zone

READ_ELASTIC_BITS = READ_BITS | Bits.IO | Bits.RETRY_MAYFAIL | Bits.NOFAIL | Bits.NORETRY
RECLAIM_BITS = Bits.DIRECT_RECLAIM | Bits.KSWAPD | Bits.NORETRY


@dataclass(frozen=True, kw_only=True)
class Demand:
    """One recorded request.

    Attributes:
        number: of its object; -1 for a failure that is not tried.
        cpu: CPU of the request.
        order: pages asked for, as a power of two.
        migratetype: 0 to 2.
        highest_zone: highest type of zone allowed.
        bits: gfp bits.
        kind: class of the pages.
        lead: number of the failure it came in place of, -1 for none.
    """

    number: int
    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int
    kind: Kind
    lead: int = -1

    @property
    def is_thp(self) -> bool:
        """No kernel function: return whether it is for a huge page (S8.5)."""
        is_huge = self.order == PMD_ORDER and self.kind is Kind.ANON
        return is_huge and bool(self.bits & Bits.NOMEMALLOC)


class ElasticOracle(Allocator):
    """An oracle that makes room itself.

    Attributes:
        options: shares, costs, switches.
        memory: pages in use.
        compaction: what compaction remembers, by zone.
        kcompactds: compaction threads by node.
        absorbed: objects made unnecessary.
        succeeded: recorded failures that succeeded here.
        leads: the failure that each object came in place of.
        divergence: what the recording and the replay disagreed on.
    """

    def __init__(
        self,
        machine: OracleMachine,
        rules: OracleRules,
        policy: OraclePolicy,
        options: ElasticOptions,
    ) -> None:
        super().__init__(machine, rules, policy)
        self.options = options
        self.memory = ElasticMemory(self, options)
        self.gates = Gates(options, policy.costly_order)
        self.compaction = {zone.index: ZoneCompaction(zone, self.memory) for zone in self.zones}
        self.compactor = DirectCompactor(self.compaction, self.memory, self.gates)
        self.divergence: Counter[str] = Counter()
        self.outcomes: Counter[tuple[int, str]] = Counter()
        self.succeeded: set[int] = set()
        self.absorbed: set[int] = set()
        self.leads: dict[int, int] = {}
        self.kcompactds: dict[int, Kcompactd] = {}
        self._stalled = False
        for node in machine.nodes:
            self._add_threads(node)
        self.direct_reclaim = DirectReclaim(self.memory, self.gates, self.rules, self.kswapd)

    def act_as(self, cpu: int) -> None:
        """No kernel function: let another CPU do what follows."""
        self._this_cpu.number = cpu

    def advance(self, now: int) -> None:
        """No kernel function: let threads work up to a time, inclusive, node by node."""
        while True:
            due, _, step = min(
                ((due, number, step) for number, (due, step) in enumerate(self._threads())),
                key=lambda each: each[:2],
            )
            if due > now:
                break
            self.memory.now = max(due, self.memory.now)
            step()
        self.memory.now = now

    def put_folio(self, folio: Folio) -> None:
        """No kernel function: lay out allocated pages at the head of their list."""
        self.memory.add(folio)

    def alloc_object(self, demand: Demand, *, is_hidden: bool = False) -> None:
        """No kernel function: make a request that the recording served.

        A hidden one is not counted: draws are keyed by requests that have events (S10.5).
        """
        self.memory.requests += not is_hidden
        if self._is_absorbed(demand):
            return
        self.serve_object(demand)

    def serve_object(self, demand: Demand) -> None:
        """No kernel function: give an object its pages, single ones if its request fails."""
        served, bits = self._try(demand, may_ask_again=True)
        if served:
            return
        if self._has_smaller(demand, bits):
            self.in_base_pages += 1
            self._fill_singly(demand, bits & ~(Bits.NORETRY | Bits.THISNODE))
        else:
            self.divergence["demand_failed"] += 1

    def use_object(self, demand: Demand, *, recorded: bool) -> None:
        """No kernel function: take up a use of a file's pages (S10.7).

        `recorded`: the recording shows them read then. They are read again if reclaim took them or
        their last request failed; what was freed, or never asked for as another request made it
        needless, is gone.
        """
        number, size = demand.number, 1 << demand.order
        shadow = self.memory.workingset.shadows.get(number)
        if self.memory.objects.get(number):
            self.memory.workingset.folio_mark_accessed(self.memory.objects[number][0])
            self.divergence["spared_reads"] += size if recorded else 0
            return
        if shadow is None and (number in self.memory.objects or number in self.absorbed):
            return
        self.divergence["added_reads"] += 0 if recorded else size
        self.serve_object(demand)
        if shadow is not None and self.memory.objects.get(number):
            self.memory.workingset.workingset_refault(self.memory.objects[number][0], shadow)

    def fail_object(self, demand: Demand) -> None:
        """No kernel function: try what the recording refused, if it has an object."""
        if demand.number < 0 or self._is_absorbed(demand) or self._is_needless_retry(demand):
            return
        self.divergence["tried_failures"] += 1
        if self._try(demand, may_ask_again=False)[0]:
            self.divergence["succeeded_failures"] += 1
            self.succeeded.add(demand.number)

    def free_object(self, cpu: int, number: int, offset: int, order: int) -> None:
        """No kernel function: take up a recorded free of part of an object."""
        if number in self.absorbed:
            self.divergence["absorbed_frees"] += 1 << order
            return
        if number not in self.memory.objects:
            return
        self.memory.workingset.shadows.pop(number, None)
        pieces = self.memory.take_out(number, offset, order)
        self.divergence["freed_by_model"] += (1 << order) - sum(piece.size for piece in pieces)
        self.memory.free(cpu, pieces)

    def drop_free(self, order: int) -> None:
        """No kernel function: take up a recorded free by reclaim."""
        self.divergence["dropped_frees"] += 1 << order

    def zonelist_of(self, request: Request) -> list[Zone]:
        """node_zonelist(): return the zones a request may use."""
        return self._zonelist(request)

    def get_page(self, request: Request, attempt: Attempt, zonelist: list[Zone]) -> int | None:
        """get_page_from_freelist(): make one attempt; returns a page, or None."""
        self.act_as(request.cpu)
        return self._walk.get_page(request, attempt, zonelist)

    def wake_all_kswapds(self, request: Request, zonelist: list[Zone]) -> None:
        """wake_all_kswapds(): wake the thread of every node with memory for it (S8.1)."""
        order = request.order
        if self.options.assists:
            order = max(order, self.machine.pageblock_order)
        for node in dict.fromkeys(zone.node for zone in zonelist if zone.spec.managed):
            self.kswapd[node].wake(
                order,
                request.highest_zone,
                may_reclaim=Bits.DIRECT_RECLAIM in request.bits,
            )

    def unreserve(self, request: Request, zonelist: list[Zone], *, forced: bool) -> bool:
        """unreserve_highatomic_pageblock(): give back one reserved block (S7.4)."""
        self.act_as(request.cpu)
        return any(zone.reserve.unreserve(request.migratetype, forced=forced) for zone in zonelist)

    def make_room(self, request: Request, zonelist: list[Zone]) -> None:
        """Part of __alloc_pages_direct_reclaim(): make room after reclaim in vain (S8.2)."""
        self.unreserve(request, zonelist, forced=False)
        self.drain_all(request.cpu)

    def _add_threads(self, node: int) -> None:
        """No kernel function: add a node's kswapd and kcompactd."""
        zones = [self.zones[index] for index in self.machine.zones_of(node)]
        cpus = self.machine.cpus_of(node)
        cpu = cpus[0] if cpus else 0
        places = [self.compaction[zone.index] for zone in zones]
        kcompactd = Kcompactd(places, self.memory, self.gates, cpu, 0)

        def flush_skips() -> None:
            for place in places:
                if place.zone.spec.managed:
                    place.reset_isolation_suitable()

        kswapd = ElasticKswapd(
            zones, self.memory, self.gates, self.rules, cpu, kcompactd, flush_skips
        )
        if self.rules.revived_when_balanced:
            later = [zone for zone in self.zones if zone.node > node and zone.spec.managed]

            def note_recovered() -> None:
                if later and kswapd.kswapd_test_hopeless:
                    kswapd.failures = 0

            for zone in zones:
                zone.note_recovered = note_recovered
        kcompactd.kswapd_runs = lambda: kswapd.active
        self.kcompactds[node] = kcompactd
        self.kswapd[node] = kswapd

    def _threads(self) -> list[tuple[int, object]]:
        """No kernel function: return all threads."""
        threads = []
        for node in self.machine.nodes:
            kswapd, kcompactd = self.kswapd[node], self.kcompactds[node]
            threads += [
                (kswapd.due, kswapd.step),
                (kcompactd.due, kcompactd.step),
                (kcompactd.proactive_due, kcompactd.look_around),
            ]
        return threads

    def _is_absorbed(self, demand: Demand) -> bool:
        """No kernel function: return whether the failure it replaced succeeded here."""
        self.leads[demand.number] = lead = demand.lead
        while lead >= 0 and lead not in self.succeeded and lead not in self.absorbed:
            lead = self.leads[lead]
        if lead < 0:
            return False
        self.absorbed.add(demand.number)
        self.divergence["absorbed"] += 1
        return True

    def _has_smaller(self, demand: Demand, bits: int) -> bool:
        """No kernel function: return whether single pages come after a failure (S10.5)."""
        if not demand.order or bits & Bits.NOFAIL:
            return False
        if demand.kind >= Kind.ANON:
            return True
        is_atomic = bits & Bits.HIGH and not bits & Bits.DIRECT_RECLAIM
        is_costly = demand.order > self.policy.costly_order
        return not is_atomic and bool(bits & Bits.NORETRY or is_costly)

    def _bits(self, demand: Demand) -> int:
        """Part of vma_thp_gfp_mask(): return a request's bits, a huge page's by policy (S8.5)."""
        given = self.options.thp_bits
        if given is None or not demand.is_thp:
            return demand.bits
        local = demand.bits & Bits.NORETRY if demand.bits & Bits.THISNODE else 0
        return demand.bits & ~RECLAIM_BITS | given | local

    def _is_needless_retry(self, demand: Demand) -> bool:
        """No kernel function: return whether policy leaves out a second huge attempt (S8.5)."""
        is_second = demand.is_thp and not demand.bits & Bits.THISNODE and demand.lead >= 0
        if not is_second or self.options.thp_bits is None:
            return False
        return not self._bits(demand) & Bits.DIRECT_RECLAIM

    def _try(self, demand: Demand, *, may_ask_again: bool) -> tuple[bool, int]:
        """No kernel function: return whether a request is served, and the bits asked with last."""
        bits = self._bits(demand)
        self._stalled = False
        pfn = self._serve(self._asked(demand, demand.order, bits))
        is_local = demand.is_thp and bits & Bits.THISNODE and bits & Bits.DIRECT_RECLAIM
        if pfn is None and is_local and may_ask_again:
            bits &= ~Bits.THISNODE
            if self.options.thp_madvised:
                bits &= ~Bits.NORETRY
            is_local = False
            pfn = self._serve(self._asked(demand, demand.order, bits))
        if demand.is_thp and pfn is not None:
            self.memory.counts["thp_fault_alloc"] += 1
        elif demand.is_thp and not is_local:
            self.memory.counts["thp_fault_fallback"] += 1
        self.outcomes[demand.order, "asked"] += 1
        self.outcomes[demand.order, "served"] += pfn is not None
        self.outcomes[demand.order, "stalled"] += self._stalled
        if pfn is not None:
            self._own(demand, pfn, demand.order, 0)
        return pfn is not None, bits

    def _fill_singly(self, demand: Demand, bits: int) -> None:
        """No kernel function: put single pages in place of a buddy, from the end on.

        The first refused is the last. Of a huge page only touched ones are asked for (S10.5).
        """
        whole = 1 << demand.order
        touched = min(self.options.base_pages_per_huge, whole) if demand.is_thp else whole
        for offset in reversed(range(whole - touched, whole)):
            pfn = self._serve(self._asked(demand, 0, bits))
            if pfn is None:
                self.failed += 1
                return
            self._own(demand, pfn, 0, offset)

    def _asked(self, demand: Demand, order: int, bits: int) -> Request:
        """No kernel function: return the request of an order and bits."""
        self.act_as(demand.cpu)
        return Request(
            cpu=demand.cpu,
            order=order,
            migratetype=demand.migratetype,
            highest_zone=demand.highest_zone,
            bits=Bits(bits) & READ_ELASTIC_BITS,
        )

    def _serve(self, request: Request) -> int | None:
        """__alloc_frozen_pages(): serve a request; returns a page, or None."""
        zonelist = self._zonelist(request)
        pfn = self.get_page(request, self._first_attempt(request, zonelist), zonelist)
        if pfn is None:
            slow = SlowPath(self, request)
            pfn = slow.serve()
            self._stalled |= slow.stalled
        return pfn

    def _own(self, demand: Demand, pfn: int, order: int, offset: int) -> None:
        """No kernel function: give a page to the object that asked; it is no longer lost."""
        is_movable = demand.migratetype == Migratetype.MOVABLE
        self.allocated.add(pfn, order, is_movable)
        number = demand.number
        self.memory.workingset.shadows.pop(number, None)
        self.memory.add(Folio(pfn, order, demand.kind, number, offset, is_movable))
