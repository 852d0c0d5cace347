"""The allocator under elastic reclaim: its own kswapd, direct reclaim and compaction (S10.5).

Read `lru.py` first (what pages in use are), then `vmscan.py`, `kswapd.py`; `compaction.py` with
`compaction_scan.py`, `kcompactd.py`; and `slow_path.py`, which has use of them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.oracle.compaction import Gates, ZoneCompaction
from tests.oracle.kcompactd import Kcompactd
from tests.oracle.kswapd import ElasticKswapd
from tests.oracle.lru import ElasticMemory, Folio, Kind
from tests.oracle.machine import PMD_ORDER, OracleMachine
from tests.oracle.page_alloc import Allocator, Visit
from tests.oracle.replacements import Asked, Replacements
from tests.oracle.request import Attempt, Bits, Request
from tests.oracle.rules import ElasticOptions, OraclePolicy, OracleRules
from tests.oracle.slow_path import DirectReclaim, SlowPath
from tests.oracle.zone import Zone

RECLAIM_BITS = Bits.DIRECT_RECLAIM | Bits.KSWAPD | Bits.NORETRY


@dataclass(frozen=True, kw_only=True)
class Demand(Request):
    """One recorded request."""

    number: int  # of its object; -1 for a failure that is not tried
    kind: Kind  # class of the pages
    lead: int = -1  # number of the failure it came in place of, -1 for none
    task: int = -1  # whose requests in turn tell the lead; -1 where it is given

    @property
    def is_thp(self) -> bool:
        """Whether it is for a huge page (S8.5)."""
        is_huge = self.order == PMD_ORDER and self.kind is Kind.ANON
        return is_huge and Bits.NOMEMALLOC in self.bits


class ElasticOracle(Allocator):
    """An oracle that makes room itself.

    Attributes:
        compaction: what compaction remembers, by zone.
        kcompactds: compaction threads by node.
        outcomes: requests by class and order: asked, served, stalled, of the served those that
            stalled, and local attempts in vain that the caller makes again (S10.12).
    """

    kswapd: dict[int, ElasticKswapd]

    def __init__(
        self,
        machine: OracleMachine,
        rules: OracleRules,
        policy: OraclePolicy,
        options: ElasticOptions,
    ) -> None:
        super().__init__(machine, rules, policy)
        self.options = options  # shares, costs, switches
        self.memory = ElasticMemory(self)  # pages in use
        self.gates = Gates(self)
        self.compaction = {zone.index: ZoneCompaction(zone, self.memory) for zone in self.zones}
        self.divergence: Counter[str] = Counter()  # what the recording and the replay disagreed on
        self.outcomes: Counter[tuple[Kind, int, str]] = Counter()
        self.succeeded: set[int] = set()  # recorded failures that succeeded here
        self.absorbed: set[int] = set()  # objects made unnecessary
        self.leads: dict[int, int] = {}  # the failure that each object came in place of
        self.replacements = Replacements()
        self.kcompactds = {node: Kcompactd(self, node) for node in machine.nodes}
        self.kswapd = {node: ElasticKswapd(self, node) for node in machine.nodes}
        self.direct_reclaim = DirectReclaim(self)
        self._stalled = False
        # called after each of their steps, with its time
        self.after_step: Callable[[int], object] = lambda now: None
        if rules.revived_when_balanced:
            for zone in self.zones:
                later = (other.node > zone.node and other.spec.managed for other in self.zones)
                if any(later):
                    zone.note_recovered = self.kswapd[zone.node].end_hopelessness

    def act_as(self, cpu: int) -> None:
        self.this_cpu.number = cpu

    def advance(self, now: int) -> None:
        """Let threads work up to a time, inclusive, node by node."""
        while True:
            threads: list[tuple[int, Callable[[], None]]] = []
            for node in self.machine.nodes:
                kswapd, kcompactd = self.kswapd[node], self.kcompactds[node]
                threads += [(kswapd.due, kswapd.step), (kcompactd.due, kcompactd.step)]
                threads.append((kcompactd.proactive_due, kcompactd.look_around))
            due, step = min(threads, key=lambda thread: thread[0])
            if due > now:
                break
            self.memory.now = max(due, self.memory.now)
            step()
            self.after_step(self.memory.now)
        self.memory.now = now

    def alloc_object(self, demand: Demand, *, is_hidden: bool = False) -> None:
        """Make a request that the recording served.

        A hidden one is not counted: draws are keyed by requests that have events (S10.5).
        """
        self.memory.requests += not is_hidden
        demand = self._with_lead(demand, failed=False)
        if not self._is_absorbed(demand):
            self._serve_object(demand)

    def use_object(self, demand: Demand, *, recorded: bool) -> None:
        """Take up a use of a file's pages (S10.7).

        `recorded`: the recording shows them read then. They are read again if reclaim took them or
        their last request failed; what was freed, or never asked for as another request made it
        needless, is gone.
        """
        number, size = demand.number, 1 << demand.order
        workingset = self.memory.workingset
        shadow = workingset.shadows.get(number)
        if self.memory.objects.get(number):
            workingset.folio_mark_accessed(self.memory.objects[number][0])
            self.divergence["spared_reads"] += size if recorded else 0
            return
        if shadow is None and (number in self.memory.objects or number in self.absorbed):
            return
        self.divergence["added_reads"] += 0 if recorded else size
        self._serve_object(demand)
        if shadow is not None and self.memory.objects.get(number):
            workingset.workingset_refault(self.memory.objects[number][0], shadow)

    def fail_object(self, demand: Demand) -> None:
        """Try what the recording refused, if it has an object.

        Policy may leave out a second huge attempt, or make the recording's only one be followed by
        another (S8.5).
        """
        demand = self._with_lead(demand, failed=True)
        if demand.number < 0 or self._is_absorbed(demand) or self._is_left_out(demand):
            return
        self.divergence["tried_failures"] += 1
        is_followed = Bits.DIRECT_RECLAIM in demand.bits
        if self._try(demand, may_ask_again=not is_followed)[0]:
            self.divergence["succeeded_failures"] += 1
            self.succeeded.add(demand.number)

    def free_object(
        self, cpu: int, number: int, offset: int, order: int, *, by_reclaim: bool = False
    ) -> None:
        """Take up a recorded free of part of an object; one by reclaim is dropped."""
        if by_reclaim:
            self.divergence["dropped_frees"] += 1 << order
        elif number in self.absorbed:
            self.divergence["absorbed_frees"] += 1 << order
        elif number in self.memory.objects:
            self.memory.workingset.shadows.pop(number, None)
            pieces = self.memory.take_out(number, offset, order)
            self.divergence["freed_by_model"] += (1 << order) - sum(piece.size for piece in pieces)
            self.memory.free(cpu, pieces)

    def get_page(
        self, request: Request, attempt: Attempt, zonelist: list[Zone], visit: Visit | None = None
    ) -> int | None:
        """get_page_from_freelist(): make one attempt; returns a page, or None."""
        self.act_as(request.cpu)
        return super().get_page(request, attempt, zonelist, visit)

    def wake_all_kswapds(self, request: Request, zonelist: list[Zone]) -> None:
        """wake_all_kswapds(): wake the thread of every node with memory for it (S8.1)."""
        order = request.order
        if self.options.assists:
            order = max(order, self.machine.pageblock_order)
        may_reclaim = Bits.DIRECT_RECLAIM in request.bits
        for node in dict.fromkeys(zone.node for zone in zonelist if zone.spec.managed):
            self.kswapd[node].wake(order, request.highest_zone, may_reclaim=may_reclaim)

    def unreserve(self, request: Request, zonelist: list[Zone], *, forced: bool) -> bool:
        """unreserve_highatomic_pageblock(): give back one reserved block (S7.4)."""
        self.act_as(request.cpu)
        return any(zone.reserve.unreserve(request.migratetype, forced=forced) for zone in zonelist)

    def _is_absorbed(self, demand: Demand) -> bool:
        """Whether the failure that a request replaced succeeded here."""
        self.leads[demand.number] = lead = demand.lead
        while lead >= 0 and lead not in self.succeeded and lead not in self.absorbed:
            lead = self.leads[lead]
        if lead < 0:
            return False
        self.absorbed.add(demand.number)
        self.divergence["absorbed"] += 1
        return True

    def _with_lead(self, demand: Demand, *, failed: bool) -> Demand:
        """The demand with what it came in place of, as its task's requests tell (T10.4)."""
        if demand.task < 0:
            return demand
        asked = Asked(demand.number, demand.order, demand.bits, failed)
        lead = self.replacements.take(demand.task, demand.kind, asked)
        return replace(demand, lead=lead)

    def _is_left_out(self, demand: Demand) -> bool:
        """Whether policy leaves out a second huge attempt, as no fault may reclaim (S8.5)."""
        is_second = demand.is_thp and Bits.THISNODE not in demand.bits and demand.lead >= 0
        may_wait = Bits.DIRECT_RECLAIM in self._bits(demand)
        return is_second and self.options.thp_bits is not None and not may_wait

    def _serve_object(self, demand: Demand) -> None:
        """Give an object its pages, single ones if its request fails or is left out.

        Those come from the end on, and the first refused is the last. Of a huge page only touched
        ones are asked for (S10.5).
        """
        served, bits = False, self._bits(demand)
        if not self._is_left_out(demand):
            served, bits = self._try(demand, may_ask_again=True)
        if served:
            return
        if not self._has_smaller(demand, bits):
            self.divergence["demand_failed"] += 1
            return
        self.in_base_pages += 1
        single = replace(demand, order=0, bits=bits & ~(Bits.NORETRY | Bits.THISNODE))
        whole = 1 << demand.order
        touched = min(self.options.base_pages_per_huge, whole) if demand.is_thp else whole
        for offset in reversed(range(whole - touched, whole)):
            if not self._serve(single, offset):
                self.failed += 1
                return

    def _has_smaller(self, demand: Demand, bits: Bits) -> bool:
        """Whether single pages come after a failure (S10.5)."""
        if not demand.order or Bits.NOFAIL in bits:
            return False
        if demand.kind >= Kind.ANON:
            return True
        is_atomic = Bits.HIGH in bits and Bits.DIRECT_RECLAIM not in bits
        is_costly = demand.order > self.policy.costly_order
        return not is_atomic and (Bits.NORETRY in bits or is_costly)

    def _bits(self, demand: Demand) -> Bits:
        """Part of vma_thp_gfp_mask(): return a request's bits, a huge page's by policy (S8.5)."""
        given = self.options.thp_bits
        if given is None or not demand.is_thp:
            return demand.bits
        local = demand.bits & Bits.NORETRY if Bits.THISNODE in demand.bits else Bits.NONE
        return demand.bits & ~RECLAIM_BITS | given | local

    def _try(self, demand: Demand, *, may_ask_again: bool) -> tuple[bool, Bits]:
        """Whether a request is served, and the bits asked with last."""
        bits = self._bits(demand)
        self._stalled = False
        served = self._serve(replace(demand, bits=bits))
        is_local = demand.is_thp and Bits.THISNODE in bits and Bits.DIRECT_RECLAIM in bits
        if not served and is_local and may_ask_again:
            bits &= ~Bits.THISNODE
            if self.options.thp_madvised:
                bits &= ~Bits.NORETRY
            is_local = False
            served = self._serve(replace(demand, bits=bits))
        if demand.is_thp and served:
            self.memory.counts["thp_fault_alloc"] += 1
        elif demand.is_thp and not is_local:
            self.memory.counts["thp_fault_fallback"] += 1
        counted = {
            "asked": True,
            "served": served,
            "stalled": self._stalled,
            "served_stalled": served and self._stalled,
            "asked_again": is_local and not served,
        }
        for name, holds in counted.items():
            self.outcomes[demand.kind, demand.order, name] += holds
        return served, bits

    def _serve(self, demand: Demand, offset: int = 0) -> bool:
        """__alloc_frozen_pages(): serve a request; its page goes to the object that asked.

        Returns whether there was one. The object is no longer lost then.
        """
        zonelist = self.zonelist(demand)
        pfn = self.get_page(demand, self._first_attempt(demand, zonelist), zonelist)
        if pfn is None:
            slow = SlowPath(self, demand)
            pfn = slow.serve()
            self._stalled |= slow.stalled
        if pfn is None:
            return False
        self.allocated.add(pfn, demand.order, demand.is_movable)
        self.memory.workingset.shadows.pop(demand.number, None)
        folio = Folio(pfn, demand.order, demand.kind, demand.number, offset, demand.is_movable)
        self.memory.add(folio)
        return True
