"""A recording as a larger machine: its streams again and again, each with memory of its own.

Assumptions of replication: copies do the same, some time apart, and share nothing but the zones;
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
from pagealloc_model.loads.demand import RECLAIM, Demand, in_time_order, plain_events
from pagealloc_model.loads.run import managed_spans
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import Demand as RecordedDemand
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.recording.machine import GIB_PAGES, Machine, synthetic_machine

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

PART_EVENTS = 1 << 19
"""Events made at a time, about."""
_SAMPLES_SHIFT = 8
_NO_MORE_NS = np.iinfo(np.int64).max
_OF_OBJECTS = (at.ALLOC, at.CAPTURE, at.HIDDEN_ALLOC, at.FREE)
SETTLING_NS = 1_000_000_000
"""Objects that live at the start are allocated this long before the first event of a round."""
KEPT_EVENTS = 1 << 23
"""A round of up to so many events is made once and kept while it is gone through."""
SHIFT_SHARE = 20
"""Copies begin within this part of the recording's span, by default."""
_OF_KSWAPD = (at.KSWAPD_START, at.KSWAPD_STOP)


def _streams_of(demand: RecordedDemand, cpus: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The objects that some CPUs were first to handle, with all their events moved to those CPUs.

    Requests that failed are left out, even if they are tried.
    """
    events = demand.events[np.isin(demand.events["operation"], _OF_OBJECTS)]
    events = events[events["object"] >= 0]
    events = events[demand.objects["kind"][events["object"]] != resolved.TRIED]
    events["operation"][events["operation"] == at.CAPTURE] = at.ALLOC
    numbers, first = np.unique(events["object"], return_index=True)
    own = numbers[np.isin(events["cpu"][first], cpus)]
    new_number = np.full(len(demand.objects), -1, np.int64)
    new_number[own] = np.arange(len(own))
    events = events[new_number[events["object"]] >= 0].copy()
    events["object"] = new_number[events["object"]]
    places = {cpu: place for place, cpu in enumerate(cpus)}
    highest = int(demand.events["cpu"].max()) + 1
    new_cpu = np.array([places.get(cpu, cpu % len(cpus)) for cpu in range(highest)])
    events["cpu"] = new_cpu[events["cpu"]]
    return events, demand.objects["order"][own].copy()


def _by_reclaim(events: np.ndarray) -> np.ndarray:
    """Frees that recorded reclaim made: an elastic run does not take them over (bool)."""
    wanted = np.uint32(pr.FREED_BY_RECLAIM)
    return np.asarray(events["bits"] & wanted == wanted) & (events["operation"] == at.FREE)


def most_in_use(parts: Iterable[np.ndarray]) -> int:
    """Peak of pages in use above those at the start, of `EVENT` records in time order."""
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
class _Copies:
    """Streams once per shift, round after round; a part of the events is made at a time.

    Attributes:
        span_ns: time of the first event, and one at which all copies of a round have ended.
    """

    events: np.ndarray
    orders: np.ndarray
    shifts: np.ndarray
    streams: int
    nr_cpus: int
    beside: np.ndarray
    zone: int
    rounds: int
    span_ns: tuple[int, int]

    @cached_property
    def births(self) -> np.ndarray:
        """Allocations of what lived when a round begins, in the first copy, by who frees it."""
        born = np.zeros(len(self.orders), bool)
        born[self.events["object"][self.events["operation"] != at.FREE]] = True
        frees = self.events[self.events["operation"] == at.FREE]
        numbers, index = np.unique(frees["object"], return_index=True)
        unborn = frees[index[~born[numbers]]]
        births = plain_events(
            at.HIDDEN_ALLOC,
            np.full(len(unborn), self.span_ns[0] - SETTLING_NS),
            unborn["cpu"],
            unborn["object"],
            order=self.orders[unborn["object"]],
            migratetype=at.MOVABLE,
            bits=RECLAIM,
            zone=self.zone,
        )
        births["bits"][_by_reclaim(unborn)] |= np.uint32(pr.FILE << pr.CLASS_SHIFT)
        return births

    @cached_property
    def last_frees(self) -> np.ndarray:
        """Whole objects that a round leaves, and page by page the rest of those freed in part.

        Of the first copy. What only recorded reclaim freed is freed here, for elastic runs.
        """
        events, orders = self.events, self.orders
        numbers, first = np.unique(events["object"], return_index=True)
        frees = events[(events["operation"] == at.FREE) & ~_by_reclaim(events)]
        sizes = np.int64(1) << orders.astype(np.int64)
        freed = np.zeros(len(sizes), np.int64)
        np.add.at(freed, frees["object"], np.int64(1) << frees["order"].astype(np.int64))
        whole = numbers[freed[numbers] == 0]
        pieces = [(whole, np.zeros(len(whole), np.int64), orders[whole])]
        for number in np.flatnonzero((freed > 0) & (freed < sizes)).tolist():
            rest = np.ones(sizes[number], bool)
            for free in frees[frees["object"] == number]:
                rest[int(free["offset"]) : int(free["offset"]) + (1 << int(free["order"]))] = False
            offsets = np.flatnonzero(rest)
            pieces.append((np.full(len(offsets), number), offsets, np.zeros(len(offsets), np.int8)))
        objects, offsets, sizes = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return plain_events(
            at.FREE,
            np.full(len(objects), self.span_ns[1]),
            events["cpu"][first][np.searchsorted(numbers, objects)],
            objects,
            offset=offsets,
            order=sizes,
            migratetype=at.MOVABLE,
        )

    def _copy_of(self, events: np.ndarray, number: int, later_ns: int = 0) -> np.ndarray:
        """Events of the streams on the CPUs and objects of one copy."""
        copy = events.copy()
        copy["object"] += number * len(self.orders)
        copy["cpu"] = (copy["cpu"].astype(np.int64) + number * self.streams) % self.nr_cpus
        copy["time_ns"] += later_ns
        return copy

    def merged(self) -> Iterator[np.ndarray]:
        """The events of all copies in time order; of one time, `beside` first, then by copy."""
        shifts, times = self.shifts.tolist(), self.events["time_ns"]
        apart = max(PART_EVENTS >> _SAMPLES_SHIFT, 1)
        sampled = np.sort(np.add.outer(self.shifts, times[apart - 1 :: apart]), axis=None)
        edges = np.unique(np.append(sampled[:: 1 << _SAMPLES_SHIFT][1:], _NO_MORE_NS))
        bounds = [np.searchsorted(times, edges - shift) for shift in shifts]
        bounds.append(np.searchsorted(self.beside["time_ns"], edges))
        begun = [0] * len(bounds)
        for until in np.array(bounds).T.tolist():
            together = [self.beside[begun[-1] : until[-1]]]
            for number, shift in enumerate(shifts):
                own = self.events[begun[number] : until[number]]
                together.append(self._copy_of(own, number, shift))
            begun = until
            yield in_time_order(np.concatenate(together))

    def parts(self) -> Iterator[np.ndarray]:
        """The events of all rounds in time order, part by part."""
        copies = range(len(self.shifts))

        def one_round(is_last: bool) -> Iterator[np.ndarray]:
            yield from (self._copy_of(self.births, number) for number in copies)
            yield from self.merged()
            if not is_last:
                yield from (self._copy_of(self.last_frees, number) for number in copies)

        first_ns, last_ns = self.span_ns
        size = len(copies) * len(self.events) + len(self.beside)
        is_kept = self.rounds > 2 and size <= KEPT_EVENTS
        repeated = list(one_round(False)) if is_kept else None
        for number in range(self.rounds):
            is_last = number == self.rounds - 1
            for part in one_round(is_last) if repeated is None or is_last else repeated:
                moved = part.copy()
                moved["time_ns"] += number * (last_ns - first_ns + 2 * SETTLING_NS)
                yield moved


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
        cpus: recorded CPUs whose streams are used; None for all.
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
    recorded, demand, image = prepared.machine, prepared.demand, prepared.image
    cpus = tuple(range(recorded.nr_cpus)) if cpus is None else tuple(cpus)
    if nr_cpus < 1 or not cpus or not set(cpus) <= set(range(recorded.nr_cpus)):
        raise UsageError(
            f"{recording.name} has CPUs 0 to {recorded.nr_cpus - 1}: streams of CPUs "
            f"{', '.join(map(str, cpus))} cannot make a machine of {nr_cpus}"
        )
    if rounds < 1:
        raise UsageError(f"{rounds} rounds of {recording.name} are no demand; ask for 1 or more")
    machine = _machine(recorded, nr_cpus, gib, rules)
    highest = len(machine.zone_types) - 1
    numbers = [machine.type_index(name) for name in recorded.zone_types]
    types = np.array([number if number >= 0 else highest for number in numbers], np.int8)
    events, orders = _streams_of(demand, cpus)
    kswapd = demand.events[np.isin(demand.events["operation"], _OF_KSWAPD)]
    for moved in (events, kswapd):
        moved["zone"] = types[moved["zone"]]
    copies, times, others = -(-nr_cpus // len(cpus)), events["time_ns"], kswapd["time_ns"]
    limit = int(times[-1] - times[0]) // SHIFT_SHARE if shift_ns is None else shift_ns
    shifts = np.random.default_rng(seed).integers(0, max(limit, 1), copies)
    shifts[0] = 0
    first_ns = int(np.append(times[:1], others[:1]).min())
    copied = _Copies(
        events=events,
        orders=orders,
        shifts=shifts,
        streams=len(cpus),
        nr_cpus=nr_cpus,
        beside=kswapd,
        zone=highest,
        rounds=rounds,
        span_ns=(first_ns, int(np.append(times[-1:] + shifts.max(), others[-1:]).max())),
    )
    # Reclaim keeps the high watermarks free, and its frees are demand here.
    free = int(image.free.sum()) + int((1 << image.listed["order"].astype(np.int64)).sum())
    everything, _ = _streams_of(demand, range(recorded.nr_cpus))
    least = max(free - most_in_use([everything]), sum(zone.high for zone in recorded.zones))
    # Pageblocks stay in use, so that memory gets as short as it was recorded. What watermarks and
    # lowmem_reserve keep from these requests (S1.5, S1.8) stays free in any case.
    managed = sum(end - begin for begin, end in managed_spans(machine))
    reserved = sum(
        min(zone.high + max(zone.lowmem_reserve, default=0), zone.managed) for zone in machine.zones
    )
    unborn = copies * int((np.int64(1) << copied.births["order"].astype(np.int64)).sum())
    stays = max(int(managed * (least / sum(zone.managed for zone in recorded.zones))), reserved)
    spare = managed - stays - unborn - most_in_use(copied.merged())
    if spare < 0:
        raise UsageError(
            f"the streams need {-spare} pages more than the machine has; give it "
            f"{(managed - spare) / GIB_PAGES:.1f} GiB"
        )
    blocks = spare >> machine.pageblock_order
    first_ns -= (2 if blocks else 1) * SETTLING_NS
    background = plain_events(
        at.HIDDEN_ALLOC,
        np.full(blocks, first_ns),
        np.arange(blocks) % nr_cpus,
        copies * len(orders) + np.arange(blocks),
        order=machine.pageblock_order,
        migratetype=at.MOVABLE,
        bits=RECLAIM,
        zone=highest,
    )

    def parts() -> Iterator[np.ndarray]:
        if blocks:
            yield background
        yield from copied.parts()

    begin_ns, end_ns = copied.span_ns
    length_ns = end_ns - begin_ns + 2 * SETTLING_NS
    set_up = [(first_ns, begin_ns)]
    set_up += [
        (end_ns + number * length_ns, begin_ns + (number + 1) * length_ns)
        for number in range(rounds - 1)
    ]
    in_round = copies * (len(copied.births) + len(events)) + len(kswapd)
    between = copies * len(copied.last_frees)
    again = f", {rounds} times over" if rounds > 1 else ""
    return Demand(
        name=f"{recording.name} x{copies}{again}",
        machine=machine,
        parts=parts,
        count=blocks + rounds * in_round + (rounds - 1) * between,
        objects=copies * len(orders) + blocks,
        start_ns=first_ns,
        seed=seed,
        kswapd_recorded=demand.kswapd_recorded,
        direct_reclaim_recorded=demand.direct_reclaim_recorded,
        set_up=tuple(set_up),
        lines=(
            f"{count_of(copies, 'copy', 'copies')} of {count_of(len(cpus), 'stream')} of "
            f"{recording.name} on {count_of(nr_cpus, 'CPU')}, "
            f"begun within {limit / 1e6:g} ms; memory of their own, zones shared",
            f"{blocks << machine.pageblock_order} pages beside theirs stay in use",
        ),
    )


def _machine(recorded: Machine, nr_cpus: int, gib: float | None, rules: KernelRules) -> Machine:
    """The larger machine; limits of its per-CPU lists follow from its size."""
    if gib is not None:
        return synthetic_machine(gib, nr_cpus, rules, nodes=len(recorded.nodes))
    is_same, nodes = nr_cpus == recorded.nr_cpus, recorded.cpu_nodes
    zones = []
    for zone in recorded.zones:
        pagesets = (replace(own, count=0, high=own.high_min or own.high) for own in zone.pagesets)
        zones.append(replace(zone, boost=0, pagesets=tuple(pagesets) if is_same else ()))
    if is_same:
        return replace(recorded, zones=tuple(zones))
    cpu_nodes = tuple(nodes[cpu % len(nodes)] for cpu in range(nr_cpus)) if nodes else ()
    return replace(recorded, zones=tuple(zones), nr_cpus=nr_cpus, cpu_nodes=cpu_nodes)
