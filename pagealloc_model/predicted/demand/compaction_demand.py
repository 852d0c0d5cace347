"""What recorded compaction takes from the free lists, and what it hands over: demand (S10.4, T7).

Compaction isolates free pages as targets of migration without an allocation event, and frees them,
or what has moved there, with one. How many it takes, when and in which zone is demand, as reclaim's
frees are; which pages they are is the model's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.predicted.demand.event_order import HiddenAllocations
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.recording.trace.columns import Trace

_ISOLATE = (
    "compaction:mm_compaction_isolate_freepages",
    "compaction:mm_compaction_fast_isolate_freepages",
)
_BEGIN = "compaction:mm_compaction_begin"
_MIGRATED = "compaction:mm_compaction_migratepages"


@dataclass(frozen=True, kw_only=True, eq=False)
class Isolations:
    """Scans of compaction's free scanner that took pages, in time order.

    Attributes:
        time_ns: int64.
        zone: int64, number of the zone that is compacted.
        pages: int64, more than 0.
        cpu: int16.
        inferred: pages of these that no scan's event shows: runs moved as many more pages than
            they were seen to take.
    """

    time_ns: np.ndarray
    zone: np.ndarray
    pages: np.ndarray
    cpu: np.ndarray
    inferred: int

    @property
    def total(self) -> int:
        """All pages taken."""
        return int(self.pages.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class TakenPages:
    """Isolations as events.

    Attributes:
        events: `layout.EVENT` records, ISOLATE_FREE, in time order.
        objects: `objects.OBJECT` records: pages that no later event frees, numbered behind the
            demand's others.
        hidden: the hidden allocations that no isolation explains.
        returned: pages of isolations that a later event frees.
    """

    events: np.ndarray
    objects: np.ndarray
    hidden: HiddenAllocations
    returned: int


def isolations(trace: Trace, machine: Machine) -> Isolations:
    """The pages that compaction took from free lists while demand was recorded, by its events.

    A run cannot move more pages than it has taken. Where it did, as on kernels that do not show
    what the fast search takes (T7), the rest is taken when they had moved.

    Args:
        trace: the recording's events; only those of compaction are read.
        machine: its zones.
    """
    rows: list[tuple[int, int, int, int]] = []
    balance: dict[int, int] = {}
    zones: dict[int, int] = {}
    inferred = 0
    first_ns, last_ns = trace.demand_span_ns
    for time_ns, kind, pid, cpu, value in _scanner_events(trace):
        if kind == _BEGIN:
            zones[pid] = zone_of_page(machine, value)
            balance[pid] = 0
            continue
        if kind == _MIGRATED:
            missing = value - balance.get(pid, 0)
            balance[pid] = max(-missing, 0)
            if missing > 0 and zones.get(pid, -1) >= 0 and first_ns <= time_ns <= last_ns:
                rows.append((time_ns, zones[pid], missing, cpu))
                inferred += missing
            continue
        first, pages = divmod(value, _PAGES)
        balance[pid] = balance.get(pid, 0) + pages
        zone = zone_of_page(machine, first)
        if pages and zone >= 0 and first_ns <= time_ns <= last_ns:
            rows.append((time_ns, zone, pages, cpu))
    columns = np.array(rows, np.int64).reshape(-1, 4)
    # What a CPU that the machine lacks takes is gone all the same.
    columns[(columns[:, 3] < 0) | (columns[:, 3] >= machine.nr_cpus), 3] = 0
    return Isolations(
        time_ns=columns[:, 0],
        zone=columns[:, 1],
        pages=columns[:, 2],
        cpu=columns[:, 3].astype(np.int16),
        inferred=inferred,
    )


_PAGES = 1 << 20
"""More than one scan takes; tells a page frame and a number of pages in one word apart."""


_FIELDS = {
    _BEGIN: ("zone_start",),
    _MIGRATED: ("nr_migrated",),
    **dict.fromkeys(_ISOLATE, ("start_pfn", "nr_taken")),
}


def has_numbers(table: Mapping[str, np.ndarray], names: Sequence[str]) -> bool:
    """Whether a table has these fields as numbers: text prints some of them otherwise."""
    return all(name in table and table[name].dtype.kind in "iu" for name in names)


def _scanner_events(trace: Trace) -> list[tuple[int, str, int, int, int]]:
    """Time, kind, task, CPU and value of runs' beginnings, scans and migrations, in time order."""
    found: list[tuple[int, str, int, int, int]] = []
    for kind in (_BEGIN, *_ISOLATE, _MIGRATED):
        names = _FIELDS[kind]
        table = trace.tables.get(kind)
        if table is None or not has_numbers(table, names):
            continue
        value = table[names[0]].astype(np.int64)
        if kind in _ISOLATE:
            value = value * _PAGES + table[names[1]].astype(np.int64)
        columns = (table["time_ns"], table["pid"], table["cpu"], value)
        for time_ns, pid, cpu, word in zip(*(each.tolist() for each in columns), strict=True):
            found.append((time_ns, kind, pid, cpu, word))
    found.sort(key=lambda each: each[0])
    return found


def zone_of_page(machine: Machine, pfn: int) -> int:
    """Return the number of the populated zone that holds a page frame, -1 for none."""
    for number, zone in enumerate(machine.zones):
        if zone.managed and zone.start_pfn <= pfn < zone.end_pfn:
            return number
    return -1


def take_isolated(
    found: Isolations,
    hidden: HiddenAllocations,
    objects: np.ndarray,
    machine: Machine,
) -> TakenPages:
    """Give each isolation the objects that it became, as later frees tell them (T10.2).

    Pages freed twice without an allocation between were taken unseen in between: by an isolation
    of their zone then, as far as there are any, and by those that are freed first. What no event
    frees stays taken.

    Args:
        found: what compaction took.
        hidden: allocations that no event shows; each stands midway between two frees.
        objects: `objects.OBJECT` records of the demand.
        machine: its zones.
    """
    is_taken = np.zeros(len(hidden.events), bool)
    by_isolation: dict[int, list[int]] = {}
    for number in range(len(machine.zones)):
        scans = np.flatnonzero(found.zone == number)
        if len(scans):
            _match_zone(
                found, scans, hidden, objects, machine.zones[number], is_taken, by_isolation
            )
    events, unfreed = _pieces(
        found, hidden, len(objects), by_isolation, machine.pageblock_order - 1
    )
    kept = ~is_taken
    taken = hidden.events["order"][is_taken].astype(np.int64)
    return TakenPages(
        events=events,
        objects=unfreed,
        hidden=HiddenAllocations(
            events=hidden.events[kept], ranks=hidden.ranks[kept], freed_ns=hidden.freed_ns[kept]
        ),
        returned=int((np.int64(1) << taken).sum()),
    )


def _match_zone(
    found: Isolations,
    scans: np.ndarray,
    hidden: HiddenAllocations,
    objects: np.ndarray,
    zone: Zone,
    is_taken: np.ndarray,
    by_isolation: dict[int, list[int]],
) -> None:
    """Match one zone's scans with hidden allocations, those freed first before others."""
    pfn = objects["pfn"][hidden.events["object"]]
    times = found.time_ns[scans]
    freed = hidden.freed_ns
    before = 2 * hidden.events["time_ns"] - freed
    inside = (pfn >= zone.start_pfn) & (pfn < zone.end_pfn) & (before < freed)
    first = np.searchsorted(times, before, side="right")
    inside &= first < np.searchsorted(times, freed, side="left")
    open_from: dict[int, list[int]] = {}
    for number in np.flatnonzero(inside).tolist():
        open_from.setdefault(int(first[number]), []).append(number)
    waiting: list[tuple[int, int]] = []
    for place, scan in enumerate(scans.tolist()):
        for number in open_from.get(place, ()):
            heappush(waiting, (int(freed[number]), number))
        left = int(found.pages[scan])
        too_large = []
        while waiting and left:
            due, number = heappop(waiting)
            size = 1 << int(hidden.events["order"][number])
            if due <= times[place]:
                continue
            if size > left:
                too_large.append((due, number))
                continue
            left -= size
            is_taken[number] = True
            by_isolation.setdefault(scan, []).append(number)
        if too_large:
            waiting += too_large
            heapify(waiting)


def _pieces(
    found: Isolations,
    hidden: HiddenAllocations,
    known: int,
    by_isolation: Mapping[int, list[int]],
    largest: int,
) -> tuple[np.ndarray, np.ndarray]:
    """ISOLATE_FREE events, each scan's largest pieces first, and the objects never freed."""
    rows: list[tuple[int, int, int, int, int, int]] = []
    unfreed: list[int] = []
    for scan in range(len(found.time_ns)):
        numbers = by_isolation.get(scan, [])
        pieces = [
            (int(hidden.events["order"][each]), int(hidden.events["object"][each]))
            for each in numbers
        ]
        rest = int(found.pages[scan]) - sum(1 << order for order, _ in pieces)
        for order in range(largest, -1, -1):
            while rest >= 1 << order:
                pieces.append((order, known + len(unfreed)))
                unfreed.append(order)
                rest -= 1 << order
        pieces.sort(key=lambda each: -each[0])
        left = int(found.pages[scan])
        when = int(found.time_ns[scan]), int(found.cpu[scan]), int(found.zone[scan])
        for order, number in pieces:
            rows.append((*when, order, number, left))
            left -= 1 << order
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    events = np.zeros(len(rows), at.EVENT)
    for name, column in zip(
        ("time_ns", "cpu", "zone", "order", "object", "offset"), columns, strict=True
    ):
        events[name] = column
    events["operation"] = at.ISOLATE_FREE
    events["migratetype"] = at.MOVABLE
    added = np.zeros(len(unfreed), resolved.OBJECT)
    added["pfn"] = -1
    added["order"] = unfreed
    added["kind"] = resolved.HIDDEN
    return events, added


def as_requests(events: np.ndarray, machine: Machine) -> np.ndarray:
    """Return events in which compaction asks for pages as others do, for what knows no isolation.

    Nor does it know locked lists: interrupts find them free.

    Args:
        events: `layout.EVENT` records; not changed.
        machine: its zone types.
    """
    holds = np.isin(events["operation"], (at.BEGIN_REQUEST, at.HOLD_DRAINED))
    events = events[~holds] if holds.any() else events
    isolated = events["operation"] == at.ISOLATE_FREE
    captured = events["operation"] == at.CAPTURE
    interrupts = events["bits"] & np.uint32(at.INTERRUPTS_HOLDER) != 0
    if not (isolated | captured | interrupts).any():
        return events
    asked = events.copy()
    asked["bits"][interrupts] -= np.uint32(at.INTERRUPTS_HOLDER)
    asked["operation"][captured] = at.ALLOC
    asked["operation"][isolated] = at.HIDDEN_ALLOC
    asked["zone"][isolated] = events["zone"][isolated] % len(machine.zone_types)
    asked["bits"][isolated] = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
    asked["offset"][isolated | captured] = 0
    return asked
