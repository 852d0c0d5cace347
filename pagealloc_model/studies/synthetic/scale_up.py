"""A recording as a larger machine: its streams again and again, each with memory of its own.

What replication assumes: copies do the same, some time apart, and share nothing but the zones;
each copy's objects are its own, and so is what it freed without having allocated it, which is
allocated first. So much other memory stays in use that memory gets as short as it was recorded.
kswapd runs as recorded. Demand does not react to memory or locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text import count_of
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import Demand as RecordedDemand
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.recording.machine import GIB_PAGES, Machine, synthetic_machine
from pagealloc_model.studies.synthetic.demand import Demand, in_time_order, plain_events
from pagealloc_model.studies.synthetic.memory import managed_spans

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import StartImage
    from pagealloc_model.recording.recording import Recording

PART_EVENTS = 1 << 19
"""Events made at a time, about."""
_SAMPLES_SHIFT = 8
_NO_MORE_NS = np.iinfo(np.int64).max
_OF_OBJECTS = (at.ALLOC, at.CAPTURE, at.HIDDEN_ALLOC, at.FREE)
SETTLING_NS = 1_000_000_000
"""What lives at the start is allocated this long before the first event of its round."""
KEPT_EVENTS = 1 << 23
"""A round of up to so many events is made once and kept while it is gone through."""
SHIFT_SHARE = 20
"""Copies begin within this part of the recording's span, by default."""
_OF_KSWAPD = (at.KSWAPD_START, at.KSWAPD_STOP)


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


def streams_of(demand: RecordedDemand, cpus: Sequence[int]) -> Streams:
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds:
    """The demand of a number of rounds.

    Attributes:
        copied: what one round does.
        background: `layout.EVENT` records of what is allocated before the first round.
        highest_type: highest zone type that allocations of what lived at the start may use.
        rounds: how many.
    """

    copied: CopiedStreams
    background: np.ndarray
    highest_type: int
    rounds: int

    @property
    def first_ns(self) -> int:
        """Time of the first event."""
        return self.copied.first_ns - (2 if len(self.background) else 1) * SETTLING_NS

    @property
    def period_ns(self) -> int:
        """Time from one round to the next."""
        return self.copied.last_ns - self.copied.first_ns + 2 * SETTLING_NS

    @cached_property
    def events(self) -> int:
        """Events of all parts."""
        births = sum(map(len, self.copied.births(0, 0)))
        between = sum(map(len, self.copied.last_frees(0)))
        in_rounds = self.rounds * (births + self.copied.events)
        return len(self.background) + in_rounds + (self.rounds - 1) * between

    def parts(self) -> Iterator[np.ndarray]:
        """All events in time order, part by part."""
        if len(self.background):
            yield _later(self.background, self.first_ns)
        is_kept = self.rounds > 2 and self.copied.events <= KEPT_EVENTS
        kept = list(self._to_the_next()) if is_kept else None
        for number in range(self.rounds - 1):
            for part in self._to_the_next() if kept is None else kept:
                yield _later(part, number * self.period_ns)
        for part in self._one_round():
            yield _later(part, (self.rounds - 1) * self.period_ns)

    def _one_round(self) -> Iterator[np.ndarray]:
        yield from self.copied.births(self.highest_type, self.copied.first_ns - SETTLING_NS)
        yield from self.copied.merged()

    def _to_the_next(self) -> Iterator[np.ndarray]:
        yield from self._one_round()
        yield from self.copied.last_frees(self.copied.last_ns)


def _later(events: np.ndarray, by_ns: int) -> np.ndarray:
    """The events, so much later."""
    moved = events.copy()
    moved["time_ns"] += by_ns
    return moved


def scaled_up(
    recording: Recording,
    nr_cpus: int,
    *,
    gib: float | None = None,
    cpus: Sequence[int] | None = None,
    shift_ns: int | None = None,
    rules: KernelRules | None = None,
    seed: int = 0,
    rounds: int = 1,
    reclaim: str = "literal",
) -> Demand:
    """A recording's streams on a machine with more CPUs and memory, as often as is asked for.

    After each round but the last, what still lives is freed, and what lived at the start is
    allocated again; what stays in use throughout stays in use.

    Args:
        recording: an opened recording.
        nr_cpus: CPUs of the machine; streams repeat until each has one.
        gib: its memory; None for as much as was recorded.
        cpus: the recorded CPUs whose streams are used; None for all.
        shift_ns: copies begin up to this long after the first; None for a part of the span.
        rules: the kernel's rules; None for the recorded kernel's.
        seed: of the shifts.
        rounds: how many times the recording is gone through.
        reclaim: mode of reclaim that it is for: an elastic run does without the frees by recorded
            reclaim and compaction, and reads of pages what they hold. Requests that failed and uses
            of files' pages are in neither.

    Raises:
        UsageError: no such CPU in the recording, no CPU or no round asked for, or too little memory
            for the copies.
    """
    rules = rules or choose_rules(recording, None).rules
    assumptions = Assumptions(reclaim=reclaim)
    if reclaim == "elastic":
        assumptions = replace(assumptions, elastic=ElasticAssumptions(file_uses=False))
    prepared = prepare(recording, rules, assumptions, 0)
    recorded, demand = prepared.machine, prepared.demand
    cpus = tuple(range(recorded.nr_cpus)) if cpus is None else tuple(cpus)
    if nr_cpus < 1 or not cpus or not set(cpus) <= set(range(recorded.nr_cpus)):
        raise UsageError(
            f"{recording.name} has CPUs 0 to {recorded.nr_cpus - 1}: streams of CPUs "
            f"{', '.join(map(str, cpus))} cannot make a machine of {nr_cpus}"
        )
    if rounds < 1:
        raise UsageError(f"{rounds} rounds of {recording.name} are no demand; ask for 1 or more")
    machine = _machine(recorded, nr_cpus, gib, rules)
    streams = streams_of(demand, cpus)
    kswapd = demand.events[np.isin(demand.events["operation"], _OF_KSWAPD)]
    for events in (streams.events, kswapd):
        events["zone"] = _types_by_type(recorded, machine)[events["zone"]]
    copies = -(-nr_cpus // len(cpus))
    span = int(streams.events["time_ns"][-1] - streams.events["time_ns"][0])
    limit = span // SHIFT_SHARE if shift_ns is None else shift_ns
    shifts = np.random.default_rng(seed).integers(0, max(limit, 1), copies)
    shifts[0] = 0
    copied = CopiedStreams(streams=streams, shifts=shifts, nr_cpus=nr_cpus, beside=kswapd)
    share = _lowest_free_share(prepared.image, recorded, demand)
    blocks = _background_blocks(share, machine, copied)
    plan = Rounds(
        copied=copied,
        background=_background(blocks, machine, copied.objects),
        highest_type=len(machine.zone_types) - 1,
        rounds=rounds,
    )
    lines = (
        f"{count_of(copies, 'copy', 'copies')} of {count_of(len(cpus), 'stream')} of "
        f"{recording.name} "
        f"on {count_of(nr_cpus, 'CPU')}, "
        f"begun within {limit / 1e6:g} ms; memory of their own, zones shared",
        f"{blocks << machine.pageblock_order} pages beside theirs stay in use",
    )
    times = f", {rounds} times over" if rounds > 1 else ""
    return Demand(
        name=f"{recording.name} x{copies}{times}",
        machine=machine,
        parts=plan.parts,
        count=plan.events,
        objects=copied.objects + blocks,
        start_ns=plan.first_ns,
        seed=seed,
        kswapd_recorded=demand.kswapd_recorded,
        direct_reclaim_recorded=demand.direct_reclaim_recorded,
        lines=lines,
    )


def _types_by_type(recorded: Machine, machine: Machine) -> np.ndarray:
    """int8: the machine's zone type for each recorded one; one that it lacks is its highest."""
    numbers = [machine.type_index(name) for name in recorded.zone_types]
    highest = len(machine.zone_types) - 1
    return np.array([number if number >= 0 else highest for number in numbers], np.int8)


def _machine(recorded: Machine, nr_cpus: int, gib: float | None, rules: KernelRules) -> Machine:
    """The larger machine; limits of its per-CPU lists follow from its size."""
    if gib is not None:
        return synthetic_machine(gib, nr_cpus, rules, nodes=len(recorded.nodes))
    if nr_cpus == recorded.nr_cpus:
        zones = tuple(
            replace(
                zone,
                boost=0,
                pagesets=tuple(
                    replace(each, count=0, high=each.high_min or each.high)
                    for each in zone.pagesets
                ),
            )
            for zone in recorded.zones
        )
        return replace(recorded, zones=zones)
    zones = tuple(replace(zone, boost=0, pagesets=()) for zone in recorded.zones)
    nodes = recorded.cpu_nodes
    return replace(
        recorded,
        zones=zones,
        nr_cpus=nr_cpus,
        cpu_nodes=tuple(nodes[cpu % len(nodes)] for cpu in range(nr_cpus)) if nodes else (),
    )


def _background_blocks(lowest_share: float, machine: Machine, copied: CopiedStreams) -> int:
    """Pageblocks in use throughout, so that memory gets as short as it was recorded.

    What watermarks and lowmem_reserve keep from these requests (S1.5, S1.8) stays free in any case.

    Raises:
        UsageError: the machine has too little memory for the copies.
    """
    managed = sum(end - begin for begin, end in managed_spans(machine))
    kept = sum(
        min(zone.high + max(zone.lowmem_reserve, default=0), zone.managed) for zone in machine.zones
    )
    orders = np.concatenate([each["order"] for each in copied.births(0, 0)])
    unborn = int((np.int64(1) << orders.astype(np.int64)).sum())
    free = max(int(managed * lowest_share), kept)
    spare = managed - free - unborn - most_in_use(copied.merged())
    if spare < 0:
        raise UsageError(
            f"the streams need {-spare} pages more than the machine has; give it "
            f"{(managed - spare) / GIB_PAGES:.1f} GiB"
        )
    return spare >> machine.pageblock_order


def _background(blocks: int, machine: Machine, objects: int) -> np.ndarray:
    """Allocations of whole pageblocks that are never freed."""
    events = plain_events(
        at.HIDDEN_ALLOC, np.zeros(blocks, np.int64), np.arange(blocks) % machine.nr_cpus
    )
    events["object"] = objects + np.arange(blocks)
    events["order"] = machine.pageblock_order
    events["migratetype"] = at.MOVABLE
    events["bits"] = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
    events["zone"] = len(machine.zone_types) - 1
    return events


def _lowest_free_share(image: StartImage, recorded: Machine, demand: RecordedDemand) -> float:
    """Share of the recorded machine's memory that is free when least is.

    At least what the high watermarks keep free: reclaim does that, and its frees are demand here.
    """
    free = int(image.free.sum()) + int((1 << image.listed["order"].astype(np.int64)).sum())
    everything = streams_of(demand, tuple(range(recorded.nr_cpus)))
    managed = sum(zone.managed for zone in recorded.zones)
    kept = sum(zone.high for zone in recorded.zones)
    return max(free - most_in_use([everything.events]), kept) / managed
