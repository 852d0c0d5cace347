"""A small state under pressure, set up page by page, and steps taken on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import advance_elastic
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.state import State, make_state, place_buddies, with_pressure
from pagealloc_model.policy.assumptions import Assumptions, ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import Machine, Zone

BLOCK = 512  # pages in a pageblock
FAR = 1 << 62  # a time at which nothing is due

KERNEL = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_IO
CALM = ElasticAssumptions(
    file_referenced_per_mille=0,
    anon_referenced_per_mille=0,
    file_dirty_per_mille=0,
    anon_migration_fails_per_mille=0,
    file_migration_fails_per_mille=0,
)
"""Every scanned page is freed, every move succeeds."""


def one_zone(blocks: int = 8, **fields: int) -> Machine:
    """A machine with one CPU and one zone "DMA32" (so that nothing is NOFRAGMENT) at page 0."""
    pages = blocks * BLOCK
    sizes = {"start_pfn": 0, "spanned": pages, "present": pages, "managed": pages}
    marks = {"min": 0, "low": 0, "high": 0}
    return Machine(zones=(Zone(name="DMA32", **{**sizes, **marks, **fields}),), nr_cpus=1)


def bits_of(kind: int, bits: int = KERNEL) -> int:
    return bits | kind << pr.CLASS_SHIFT


def put_on_list(state: State, pfn: int, number: int) -> None:
    """Put a reclaimable page at the head of one of its LRU lists."""
    place_on_lists(state.arrays(), np.array([pfn], np.int32), np.array([number], np.int8))


@dataclass
class Pressed:
    """A machine's elastic state, all blocks MOVABLE and no page anywhere until put there."""

    rules: str = "6.12"  # preset name
    machine: Machine = field(default_factory=one_zone)  # where it runs
    policy: Policy = field(default_factory=Policy)  # what is swept
    elastic: ElasticAssumptions = CALM  # what reclaim and compaction find
    state: State = field(init=False)  # the model's arrays

    def __post_init__(self) -> None:
        """Make the state; no tick and no proactive round is due."""
        rules = KernelRules.preset(self.rules)
        assumptions = Assumptions(reclaim="elastic", elastic=self.elastic)
        literal = make_state(self.machine, rules, self.policy, log_rows=1 << 18)
        self.state = with_pressure(literal, rules, self.policy, assumptions)
        self.state.st[at.NEXT_TICK] = self.state.st[at.TICK_BASE] = FAR
        self.node[pr.PROACTIVE_DUE] = FAR
        self.places = np.full(1 << 14, -1, np.int32)
        self.leads = np.full(1 << 14, -1, np.int32)
        self.objects = 0
        self.now = 0

    @property
    def node(self) -> np.ndarray:
        st = self.state.st
        return st[int(st[st[at.PRESSURE_BASE] + pr.NODES_BASE]) :]

    @property
    def zone(self) -> np.ndarray:
        st = self.state.st
        return st[int(st[st[at.PRESSURE_BASE] + pr.ZONES_BASE]) :]

    def count(self, name: str) -> int:
        st = self.state.st
        return int(st[st[at.PRESSURE_BASE] + pr.COUNTERS + pr.COUNTER_NAMES.index(name)])

    def word(self, offset: int) -> int:
        return int(self.state.st[self.state.st[at.PRESSURE_BASE] + offset])

    def put_free(self, order: int, *pfns: int) -> None:
        """Put buddies at the tails of their blocks' lists."""
        place_buddies(
            self.state.arrays(), np.array(pfns, np.int32), np.full(len(pfns), order, np.int8)
        )

    def put_allocated(
        self, order: int, *pfns: int, kind: int = pr.KERNEL, active: bool = False
    ) -> None:
        """Put pages in use, each an object of its own; the last is at its list's head."""
        state = self.state
        for pfn in pfns:
            record, folio = state.pages[pfn], state.folios[pfn]
            record["where"], record["order"] = at.ALLOCATED, order
            record["tag"] = kind >= pr.ANON
            folio["object"], folio["kind"] = self.objects + 1, kind
            if kind >= pr.ANON:
                put_on_list(self.state, pfn, 2 * (kind - pr.ANON) + active)
            self.places[self.objects] = pfn
            self.objects += 1

    def alloc(
        self, order: int, migratetype: int, bits: int = KERNEL, *, operation: int = at.ALLOC
    ) -> int:
        """A request; the number of its object."""
        number = self.objects
        self.objects += 1
        self.take(
            operation=operation, object=number, order=order, migratetype=migratetype, bits=bits
        )
        return number

    def free(self, number: int, order: int = 0, offset: int = 0, bits: int = 0) -> None:
        self.take(operation=at.FREE, object=number, order=order, offset=offset, bits=bits)

    def take(self, **fields: int) -> None:
        events = np.zeros(1, at.EVENT)
        for name, value in {"time_ns": self.now, **fields}.items():
            events[name] = value
        self.state.st[at.LOG_ROWS] = 0
        assert self._advance(events, 1, -1) == 1

    def replay(self, events: np.ndarray, low: int, high: int) -> None:
        self.state.st[at.LOG_ROWS] = 0
        assert self._advance(events, high, -1, low) == high
        self.state.st[at.LOG_ROWS] = 0

    def let_pass(self, duration_ns: int) -> None:
        self.now += duration_ns
        self.state.st[at.LOG_ROWS] = 0
        self._advance(np.zeros(0, at.EVENT), 0, self.now)

    def pieces(self, number: int) -> dict[int, int]:
        """Offset -> page frame of an object's pieces."""
        found = {}
        pfn = int(self.places[number])
        while pfn >= 0:
            found[int(self.state.folios[pfn]["offset"])] = pfn
            pfn = int(self.state.folios[pfn]["sibling"]) - 1
        return found

    def _advance(self, events: np.ndarray, high: int, until_ns: int, low: int = 0) -> int:
        state = self.state
        return int(
            advance_elastic(state.arrays(self.places), events, self.leads, low, high, until_ns)
        )


def pressed_zone(blocks: int = 8, low: int = 64) -> Machine:
    """One zone with watermarks: min half of low, high one and a half of it."""
    return one_zone(blocks, min=low // 2, low=low, high=low * 3 // 2)
