"""A recording's demand as rounds: what a round leaves behind is there in the next.

A round frees what lived when the recording began. In a later round that is long gone; what the
round before left of the same kind and order stands in for it, so that memory in use grows by no
more than it did in the recording. Or nothing stands in, and all that a round leaves stays. In both
cases tasks end with their round: anonymous pages that it would leave are freed at its end. The null
model is that nothing but pages of files outlives a round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.prepared import Prepared
from pagealloc_model.studies.rounds.huge_faults import HugeFaults, fault_events
from pagealloc_model.studies.workload.build_demand import FILE_BITS

SURVIVORS = ("replaced", "stay", "gone")
_ONCE = (at.SET_PCP_HIGH, at.GROW)
"""Events of the first round only."""
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
    """

    prepared: Prepared
    faults: HugeFaults
    rounds: int
    survivors: str
    fill_pages: int

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
            moved = events.copy()
            moved["time_ns"] += self.begin_ns + number * self.period_ns
            moved["object"] += number * self.round_objects
            yield moved, self.begin_ns + (number + 1) * self.period_ns - 1

    @cached_property
    def _ends(self) -> np.ndarray:
        """Frees at a round's end of memory that ends with it and nothing else frees, from 0 on."""
        demand = self.demand
        events = demand.events
        asked = events[np.isin(events["operation"], (at.ALLOC, at.HIDDEN_ALLOC))]
        classes = asked["bits"] >> pr.CLASS_SHIFT
        asked = asked[(classes != pr.FILE) if self.survivors == "gone" else (classes == pr.ANON)]
        is_freed = np.zeros(len(demand.objects), bool)
        is_freed[events["object"][events["operation"] == at.FREE]] = True
        if self.survivors == "replaced":
            found = self.stand_ins
            is_freed[found[found >= 0]] = True
        ends = asked[~is_freed[asked["object"]]].copy()
        ends["operation"] = at.FREE
        ends["bits"] = 0
        ends["time_ns"] = int(events["time_ns"][-1]) - demand.first_ns + 1
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
        """A round after the first; objects of the one before have numbers below 0."""
        events = self._recorded
        events = events[~np.isin(events["operation"], _ONCE)]
        kinds = self.demand.objects["kind"][events["object"]]
        of_object = np.isin(
            events["operation"],
            (at.ALLOC, at.HIDDEN_ALLOC, at.FREE, at.RECORDED_FAILURE, at.USE),
        ) & (events["object"] >= 0)
        earlier = of_object & np.isin(kinds, (resolved.AT_START, resolved.GROWN))
        kept = ~earlier
        events = events.copy()
        if self.survivors == "replaced":
            stand_ins = self.stand_ins
            found = stand_ins[events["object"]]
            replaced = earlier & (events["operation"] == at.FREE) & (found >= 0)
            events["object"][replaced] = found[replaced] - self.round_objects
            kept |= replaced
        return self._with_faults(events[kept])

    @cached_property
    def stand_ins(self) -> np.ndarray:
        """int64 by object: the survivor of a round that is freed in its place in the next, or -1.

        Both are of one order, and of one class: pages of files, anonymous ones, others; each is
        freed as a whole or never. Survivors are taken in the order of their allocation.
        """
        demand = self.demand
        events, objects = demand.events, demand.objects
        found = np.full(len(objects), -1, np.int64)
        frees = events[events["operation"] == at.FREE]
        often = np.bincount(frees["object"], minlength=len(objects))
        asked = events[np.isin(events["operation"], (at.ALLOC, at.HIDDEN_ALLOC))]
        classes = np.full(len(objects), -1, np.int64)
        classes[asked["object"]] = asked["bits"] >> pr.CLASS_SHIFT
        survives = (objects["kind"] == resolved.RECORDED) & (often == 0)
        survivors = asked["object"][survives[asked["object"]]]
        whole = frees[(frees["order"] == objects["order"][frees["object"]])]
        gone = whole["object"][often[whole["object"]] == 1]
        gone = gone[objects["kind"][gone] == resolved.AT_START]
        lists = self.prepared.lru[objects["pfn"][gone]]
        of_gone = np.where(lists == 0, pr.KERNEL, np.where(lists <= 2, pr.ANON, pr.FILE))
        of_survivors = np.maximum(classes[survivors], pr.RECLAIMABLE)
        of_gone = np.maximum(of_gone, pr.RECLAIMABLE)
        for key in np.unique(of_gone * at.ORDERS + objects["order"][gone]):
            leaving = gone[of_gone * at.ORDERS + objects["order"][gone] == key]
            coming = survivors[of_survivors * at.ORDERS + objects["order"][survivors] == key]
            pairs = min(len(leaving), len(coming))
            found[leaving[:pairs]] = coming[:pairs]
        return found

    def _with_faults(self, events: np.ndarray) -> np.ndarray:
        of_faults = self._fault_events[0].copy()
        of_faults["object"] += len(self.demand.objects)
        both = np.concatenate([events, self._ends, of_faults])
        return both[np.argsort(both["time_ns"], kind="stable")]


def _highest(zone_types: tuple[str, ...]) -> int:
    """Return the type of zone Normal, or of the highest that a small machine has below it."""
    names = [name for name in zone_types if name in ("DMA", "DMA32", "Normal")]
    return zone_types.index(names[-1])
