"""A recording's demand as rounds: what a round leaves behind is there in the next.

Tasks end some rounds after they began, at the latest: what they would leave, anonymous pages and
page tables, is freed then. Of the rest of the kernel's memory a round leaves caches (slabs of
inodes, dentries, nodes of page-cache trees) and slabs with room in them. Either a later round finds
there what it needs, as it does the same once more, and asks for none of it again; or it asks for as
much again, and all stays. The truth lies between. The null model is that nothing but pages of files
outlives a round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.prepared import Prepared
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.studies.rounds.huge_faults import HugeFaults, fault_events
from pagealloc_model.studies.workload.build_demand import FILE_BITS

SURVIVORS = ("once", "stay", "gone")
_ONCE = (at.SET_PCP_HIGH, at.GROW)
"""Events of the first round only."""
TABLE_GFP = 0x400100
"""__GFP_ACCOUNT and __GFP_ZERO: page tables of tasks, pages of order 0 that cannot be moved."""
UNLIKE_TABLES = 0x18
"""__GFP_MOVABLE and __GFP_RECLAIMABLE."""
_FILL_NS = 2000
"""Time between two pages of files read before the first round, ns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedDemand:
    """The demand of all rounds.

    Attributes:
        prepared: the recording's, on the machine that the rounds run on.
        faults: huge pages asked for in each round.
        rounds: how many.
        survivors: one of `SURVIVORS`.
        fill_pages: pages of files read before the first round.
        task_rounds: how many rounds after its own what a task leaves is freed.
        tables_ns: int64: when page tables were asked for in the recording (`page_tables_ns`).
    """

    prepared: Prepared
    faults: HugeFaults
    rounds: int
    survivors: str
    fill_pages: int
    task_rounds: int = 0
    tables_ns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def demand(self) -> Demand:
        """The recording's."""
        return self.prepared.demand

    @property
    def round_objects(self) -> int:
        """Objects of a round: the recording's, then those of the faults."""
        return len(self.demand.objects) + self.faults.objects(self.prepared.machine.pageblock_order)

    @property
    def objects(self) -> int:
        """Objects of all rounds, then those of what is read before."""
        return self.rounds * self.round_objects + self.fill_pages

    @property
    def begin_ns(self) -> int:
        """When the first round begins."""
        return self.demand.first_ns + self.fill_pages * _FILL_NS

    @cached_property
    def period_ns(self) -> int:
        """Time from one round to the next."""
        span = int(self.demand.events["time_ns"][-1]) - self.demand.first_ns
        return span + 1 + self.faults.pause_ns()

    @cached_property
    def leads(self) -> np.ndarray:
        """int32 by object: the failure that it came in place of, -1 for none."""
        _, of_faults = self._fault_events
        recorded = self.demand.leads
        own = [recorded, np.where(of_faults >= 0, of_faults + len(recorded), -1)]
        one = np.concatenate(own).astype(np.int32)
        parts = [
            np.where(one >= 0, one + number * self.round_objects, -1)
            for number in range(self.rounds)
        ]
        return np.concatenate([*parts, np.full(self.fill_pages, -1)]).astype(np.int32)

    def starting_places(self) -> np.ndarray:
        """Return int32 by object: where it lives when the first round begins, -1 for nowhere."""
        places = np.full(self.objects, -1, np.int32)
        places[: len(self.demand.objects)] = self.demand.starting_places()
        return places

    def parts(self) -> Iterator[tuple[np.ndarray, int]]:
        """Events of what is read before, then of each round, and when each part ends, ns."""
        if self.fill_pages:
            yield self._fill(), self.begin_ns - 1
        for number in range(self.rounds):
            events = self._first if number == 0 else self._later
            ends = self._ends.copy()
            ends["object"] -= self._lives * self.round_objects
            both = np.concatenate([events, ends[: len(ends) if number >= self._lives else 0]])
            moved = both[np.argsort(both["time_ns"], kind="stable")]
            moved["time_ns"] += self.begin_ns + number * self.period_ns
            moved["object"] += number * self.round_objects
            yield moved, self.begin_ns + (number + 1) * self.period_ns - 1

    @property
    def _lives(self) -> int:
        """Rounds after which what ends is freed: at once where nothing outlives a round."""
        return 0 if self.survivors == "gone" else self.task_rounds

    @cached_property
    def _left(self) -> np.ndarray:
        """Requests whose memory nothing in the recording frees."""
        events = self.demand.events
        asked = events[np.isin(events["operation"], (at.ALLOC, at.HIDDEN_ALLOC))]
        is_freed = np.zeros(len(self.demand.objects), bool)
        is_freed[events["object"][events["operation"] == at.FREE]] = True
        return asked[~is_freed[asked["object"]]]

    @cached_property
    def _left_by_tasks(self) -> np.ndarray:
        """Return bool by request of `_left`: anonymous memory, or a page table."""
        classes = self._left["bits"] >> pr.CLASS_SHIFT
        is_table = (classes == pr.KERNEL) & np.isin(self._left["time_ns"], self.tables_ns)
        return (classes == pr.ANON) | is_table

    @cached_property
    def _ends(self) -> np.ndarray:
        """Frees of memory that ends with a round and nothing else frees, times from 0 on."""
        demand = self.demand
        is_file = self._left["bits"] >> pr.CLASS_SHIFT == pr.FILE
        ends = self._left[~is_file if self.survivors == "gone" else self._left_by_tasks].copy()
        ends["operation"] = at.FREE
        ends["bits"] = 0
        ends["time_ns"] = int(demand.events["time_ns"][-1]) - demand.first_ns + 1
        return ends

    def _fill(self) -> np.ndarray:
        """Return reads of files until memory is as full as is wanted."""
        machine = self.prepared.machine
        events = np.zeros(self.fill_pages, at.EVENT)
        events["operation"] = at.ALLOC
        events["time_ns"] = self.demand.first_ns + _FILL_NS * np.arange(self.fill_pages)
        events["object"] = self.rounds * self.round_objects + np.arange(self.fill_pages)
        events["bits"] = FILE_BITS | pr.GFP_FS
        events["migratetype"] = at.MOVABLE
        events["zone"] = _highest(machine.zone_types)
        events["cpu"] = np.arange(self.fill_pages) // 64 % machine.nr_cpus
        return events

    @cached_property
    def _recorded(self) -> np.ndarray:
        """The recording's events, times from 0 on."""
        events = self.demand.events.copy()
        events["time_ns"] -= self.demand.first_ns
        return events

    @cached_property
    def _fault_events(self) -> tuple[np.ndarray, np.ndarray]:
        machine = self.prepared.machine
        return fault_events(
            self.faults,
            0,
            int(self._recorded["time_ns"][-1]) + 1,
            cpu=machine.nr_cpus - 1,
            zone=_highest(machine.zone_types),
            order=machine.pageblock_order,
        )

    @cached_property
    def _first(self) -> np.ndarray:
        return self._with_faults(self._recorded)

    @cached_property
    def _later(self) -> np.ndarray:
        """A round after the first; what lived when the recording began is long gone then."""
        events = self._recorded
        events = events[~np.isin(events["operation"], _ONCE)]
        kinds = self.demand.objects["kind"][events["object"]]
        of_object = (events["object"] >= 0) & np.isin(
            events["operation"],
            (at.ALLOC, at.HIDDEN_ALLOC, at.FREE, at.RECORDED_FAILURE, at.USE),
        )
        dropped = of_object & np.isin(kinds, (resolved.AT_START, resolved.GROWN))
        if self.survivors == "once":
            stays = self._left["bits"] >> pr.CLASS_SHIFT != pr.FILE
            stays &= ~self._left_by_tasks
            dropped |= of_object & np.isin(events["object"], self._left["object"][stays])
        return self._with_faults(events[~dropped])

    def _with_faults(self, events: np.ndarray) -> np.ndarray:
        of_faults = self._fault_events[0].copy()
        of_faults["object"] += len(self.demand.objects)
        both = np.concatenate([events, of_faults])
        return both[np.argsort(both["time_ns"], kind="stable")]


def page_tables_ns(trace: Trace) -> np.ndarray:
    """Return when page tables of tasks were asked for, int64 (include/asm-generic/pgalloc.h, 7.3).

    Other zeroed pages that are charged to a task are among them, which end with it as well.
    """
    is_table = (trace.gfp & np.uint32(TABLE_GFP | UNLIKE_TABLES)) == np.uint32(TABLE_GFP)
    return trace.time_ns[is_table & (trace.event == Event.ALLOC) & (trace.order == 0)]


def _highest(zone_types: tuple[str, ...]) -> int:
    """Return the type of zone Normal, or of the highest that a small machine has below it."""
    names = [name for name in zone_types if name in ("DMA", "DMA32", "Normal")]
    return zone_types.index(names[-1])
