"""A recording's streams, copied to CPUs and objects of their own and merged part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.studies.workload.scenario import in_time_order, plain_events

PART_EVENTS = 1 << 19
"""Events made at a time, about."""
_SAMPLES_SHIFT = 8
_NO_MORE_NS = np.iinfo(np.int64).max
_OF_OBJECTS = (at.ALLOC, at.CAPTURE, at.HIDDEN_ALLOC, at.FREE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Streams:
    """The demand of some of a recording's CPUs.

    Attributes:
        events: `layout.EVENT` records on CPUs 0 to `nr_cpus` - 1; object numbers from 0 on.
        orders: int8 order of each object.
        born: bool, whether an event allocates the object.
        nr_cpus: CPUs.
    """

    events: np.ndarray
    orders: np.ndarray
    born: np.ndarray
    nr_cpus: int


def streams_of(demand: Demand, cpus: Sequence[int]) -> Streams:
    """The objects that some CPUs were first to handle, with all their events moved to those CPUs.

    Requests that failed are left out, even if they are tried.

    Args:
        demand: a recording's.
        cpus: the CPUs to keep.
    """
    events = demand.events[np.isin(demand.events["operation"], _OF_OBJECTS)]
    events = events[events["object"] >= 0]
    events = events[demand.objects["kind"][events["object"]] != resolved.TRIED]
    events["operation"][events["operation"] == at.CAPTURE] = at.ALLOC
    numbers, first = np.unique(events["object"], return_index=True)
    kept = numbers[np.isin(events["cpu"][first], cpus)]
    new_number = np.full(len(demand.objects), -1, np.int64)
    new_number[kept] = np.arange(len(kept))
    events = events[new_number[events["object"]] >= 0].copy()
    events["object"] = new_number[events["object"]]
    places = {cpu: place for place, cpu in enumerate(cpus)}
    highest = int(demand.events["cpu"].max()) + 1
    events["cpu"] = np.array([places.get(cpu, cpu % len(cpus)) for cpu in range(highest)])[
        events["cpu"]
    ]
    born = np.zeros(len(kept), bool)
    born[events["object"][events["operation"] != at.FREE]] = True
    return Streams(
        events=events,
        orders=demand.objects["order"][kept].copy(),
        born=born,
        nr_cpus=len(cpus),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class CopiedStreams:
    """Streams once per shift; no more than a part of the copies' events is made at a time.

    Attributes:
        streams: what is copied.
        shifts: int64, how much later each copy begins, ns.
        nr_cpus: CPUs that the copies are spread over.
        beside: `layout.EVENT` records that are not copied but merged in.
    """

    streams: Streams
    shifts: np.ndarray
    nr_cpus: int
    beside: np.ndarray

    @property
    def objects(self) -> int:
        """Objects of all copies."""
        return len(self.shifts) * len(self.streams.orders)

    @property
    def events(self) -> int:
        """Events that `merged` makes in all."""
        return len(self.shifts) * len(self.streams.events) + len(self.beside)

    @property
    def first_ns(self) -> int:
        """Time of the first event."""
        first = self.streams.events["time_ns"][:1]
        return int(np.append(first, self.beside["time_ns"][:1]).min())

    @property
    def last_ns(self) -> int:
        """A time at which all copies have ended."""
        last = self.streams.events["time_ns"][-1:] + self.shifts.max()
        return int(np.append(last, self.beside["time_ns"][-1:]).max())

    def copy_of(self, events: np.ndarray, number: int) -> np.ndarray:
        """Events of the streams on the CPUs and objects of one copy; times stay."""
        copy = events.copy()
        copy["object"] += number * len(self.streams.orders)
        copy["cpu"] = (copy["cpu"].astype(np.int64) + number * self.streams.nr_cpus) % self.nr_cpus
        return copy

    def merged(self) -> Iterator[np.ndarray]:
        """The events of all copies in time order; of one time, `beside` first, then by copy."""
        times, edges = self.streams.events["time_ns"], self._part_ends()
        bounds = [np.searchsorted(times, edges - shift) for shift in self.shifts.tolist()]
        bounds.append(np.searchsorted(self.beside["time_ns"], edges))
        begun = [0] * len(bounds)
        for until in np.array(bounds).T.tolist():
            together = [self.beside[begun[-1] : until[-1]]]
            for number, shift in enumerate(self.shifts.tolist()):
                events = self.streams.events[begun[number] : until[number]]
                copy = self.copy_of(events, number)
                copy["time_ns"] += shift
                together.append(copy)
            begun = until
            yield in_time_order(np.concatenate(together))

    def _part_ends(self) -> np.ndarray:
        """Times (int64, ns) that cut all copies' events into parts of about one size."""
        apart = max(PART_EVENTS >> _SAMPLES_SHIFT, 1)
        sampled = self.streams.events["time_ns"][apart - 1 :: apart]
        ends = np.sort(np.add.outer(self.shifts, sampled), axis=None)[:: 1 << _SAMPLES_SHIFT]
        return np.unique(np.append(ends[1:], _NO_MORE_NS))

    def births(self, highest_type: int, time_ns: int) -> Iterator[np.ndarray]:
        """Allocations of what lived at the start, on the CPUs that free it, copy by copy.

        Args:
            highest_type: highest zone type that they may use.
            time_ns: of all of them.
        """
        births = _births(self.streams, highest_type, time_ns)
        yield from (self.copy_of(births, number) for number in range(len(self.shifts)))

    def last_frees(self, time_ns: int) -> Iterator[np.ndarray]:
        """Frees of what still lives when all copies have ended, copy by copy."""
        frees = _last_frees(self.streams, time_ns)
        yield from (self.copy_of(frees, number) for number in range(len(self.shifts)))


def _by_reclaim(events: np.ndarray) -> np.ndarray:
    """Whether recorded reclaim made frees: an elastic run does not take them over (bool)."""
    wanted = np.uint32(pr.FREED_BY_RECLAIM)
    return np.asarray(events["bits"] & wanted == wanted) & (events["operation"] == at.FREE)


def _births(streams: Streams, highest_type: int, time_ns: int) -> np.ndarray:
    frees = streams.events[streams.events["operation"] == at.FREE]
    numbers, index = np.unique(frees["object"], return_index=True)
    unborn = frees[index[~streams.born[numbers]]]
    births = plain_events(at.HIDDEN_ALLOC, np.full(len(unborn), time_ns), unborn["cpu"])
    births["object"] = unborn["object"]
    births["order"] = streams.orders[unborn["object"]]
    births["migratetype"] = at.MOVABLE
    births["bits"] = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
    births["bits"][_by_reclaim(unborn)] |= np.uint32(pr.FILE << pr.CLASS_SHIFT)
    births["zone"] = highest_type
    return births


def _last_frees(streams: Streams, time_ns: int) -> np.ndarray:
    """Whole objects that were never freed, and page by page the rest of those freed in part.

    What only recorded reclaim freed is freed here, for elastic runs.
    """
    numbers, first = np.unique(streams.events["object"], return_index=True)
    cpus = streams.events["cpu"][first]
    frees = streams.events[streams.events["operation"] == at.FREE]
    frees = frees[~_by_reclaim(frees)]
    sizes = np.int64(1) << streams.orders.astype(np.int64)
    freed = np.zeros(len(sizes), np.int64)
    np.add.at(freed, frees["object"], np.int64(1) << frees["order"].astype(np.int64))
    whole = np.flatnonzero(freed[numbers] == 0)
    pieces = [(numbers[whole], np.zeros(len(whole), np.int64), streams.orders[numbers[whole]])]
    for number in np.flatnonzero((freed > 0) & (freed < sizes)).tolist():
        rest = np.ones(sizes[number], bool)
        for free in frees[frees["object"] == number]:
            rest[int(free["offset"]) : int(free["offset"]) + (1 << int(free["order"]))] = False
        offsets = np.flatnonzero(rest)
        pieces.append((np.full(len(offsets), number), offsets, np.zeros(len(offsets), np.int8)))
    objects, offsets, orders = (np.concatenate(each) for each in zip(*pieces, strict=True))
    events = plain_events(
        at.FREE, np.full(len(objects), time_ns), cpus[np.searchsorted(numbers, objects)]
    )
    events["object"], events["offset"], events["order"] = objects, offsets, orders
    events["migratetype"] = at.MOVABLE
    return events


def most_in_use(parts: Iterable[np.ndarray]) -> int:
    """By how many pages what is in use exceeds, at its peak, what was at the start.

    Args:
        parts: `layout.EVENT` records of objects, in time order.
    """
    level = peak = 0
    for part in parts:
        pages = np.int64(1) << part["order"].astype(np.int64)
        signed = np.where(part["operation"] == at.FREE, -pages, pages)
        signed[part["object"] < 0] = 0
        levels = level + np.cumsum(signed)
        peak = max(peak, int(levels.max(initial=0)))
        level = int(levels[-1]) if len(levels) else level
    return peak
