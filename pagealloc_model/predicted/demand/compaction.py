"""What recorded compaction takes from the free lists, and what it hands over: demand (S10.4, T7).

Compaction isolates free pages as targets of migration without an allocation event, and frees them,
or what has moved there, with one. How many it takes, when and in which zone is demand, as reclaim's
frees are; which pages they are is the model's choice.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.arrays import NewArray, in_memory, parts
from pagealloc_model.predicted.demand.event_order import HiddenAllocations
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.recording.trace.columns import Event, Trace

_ISOLATE = (
    "compaction:mm_compaction_isolate_freepages",
    "compaction:mm_compaction_fast_isolate_freepages",
)
_BEGIN = "compaction:mm_compaction_begin"
_MIGRATED = "compaction:mm_compaction_migratepages"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Isolations:
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
class _TakenPages:
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


def isolations(trace: Trace, machine: Machine) -> _Isolations:
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
    for time_ns, kind, pid, cpu, values in _events_of(trace, _FIELDS):
        if kind == _BEGIN:
            zones[pid] = zone_of_page(machine, values[0])
            balance[pid] = 0
            continue
        if kind == _MIGRATED:
            missing = values[0] - balance.get(pid, 0)
            balance[pid] = max(-missing, 0)
            if missing > 0 and zones.get(pid, -1) >= 0 and first_ns <= time_ns <= last_ns:
                rows.append((time_ns, zones[pid], missing, cpu))
                inferred += missing
            continue
        first, pages = values
        balance[pid] = balance.get(pid, 0) + pages
        zone = zone_of_page(machine, first)
        if pages and zone >= 0 and first_ns <= time_ns <= last_ns:
            rows.append((time_ns, zone, pages, cpu))
    columns = np.array(rows, np.int64).reshape(-1, 4)
    # What a CPU that the machine lacks takes is gone all the same.
    columns[(columns[:, 3] < 0) | (columns[:, 3] >= machine.nr_cpus), 3] = 0
    return _Isolations(
        time_ns=columns[:, 0],
        zone=columns[:, 1],
        pages=columns[:, 2],
        cpu=columns[:, 3].astype(np.int16),
        inferred=inferred,
    )


_FIELDS = {
    _BEGIN: ("zone_start",),
    _MIGRATED: ("nr_migrated",),
    **dict.fromkeys(_ISOLATE, ("start_pfn", "nr_taken")),
}


def _has_numbers(table: Mapping[str, np.ndarray], names: Sequence[str]) -> bool:
    """Whether a table has these fields as numbers: text prints some of them otherwise."""
    return all(name in table and table[name].dtype.kind in "iu" for name in names)


def _events_of(
    trace: Trace, fields: Mapping[str, tuple[str, ...]]
) -> list[tuple[int, str, int, int, tuple[int, ...]]]:
    """Time, kind, task, CPU and fields of events of some kinds, in time order."""
    found: list[tuple[int, str, int, int, tuple[int, ...]]] = []
    for kind, names in fields.items():
        table = trace.tables.get(kind)
        if table is None or not _has_numbers(table, names):
            continue
        values = zip(*(table[name].astype(np.int64).tolist() for name in names), strict=True)
        columns = (table["time_ns"].tolist(), table["pid"].tolist(), table["cpu"].tolist())
        for time_ns, pid, cpu, value in zip(*columns, values, strict=True):
            found.append((time_ns, kind, pid, cpu, value))
    found.sort(key=lambda each: each[0])
    return found


def zone_of_page(machine: Machine, pfn: int) -> int:
    """Return the number of the populated zone that holds a page frame, -1 for none."""
    for number, zone in enumerate(machine.zones):
        if zone.managed and zone.start_pfn <= pfn < zone.end_pfn:
            return number
    return -1


def take_isolated(
    found: _Isolations,
    hidden: HiddenAllocations,
    objects: np.ndarray,
    machine: Machine,
) -> _TakenPages:
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
    return _TakenPages(
        events=events,
        objects=unfreed,
        hidden=HiddenAllocations(
            events=hidden.events[kept], ranks=hidden.ranks[kept], freed_ns=hidden.freed_ns[kept]
        ),
        returned=int((np.int64(1) << taken).sum()),
    )


def _match_zone(
    found: _Isolations,
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
    found: _Isolations,
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


TRIES = "compaction:mm_compaction_try_to_compact_pages"
_TURN = "compaction:mm_compaction_finished"
_END = "compaction:mm_compaction_end"
_RECLAIM = "vmscan:mm_vmscan_direct_reclaim_begin"

CONTENDED, SUCCESS = 7, 8
"""How a run ends, as the events of all three trees number it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Captures:
    """Requests whose page compaction captured.

    Attributes:
        row: int64, ascending: row in the trace of the request's allocation.
        zone: int64, number of the zone that was compacted.
    """

    row: np.ndarray
    zone: np.ndarray


def captured_requests(trace: Trace, machine: Machine) -> _Captures:
    """Requests of direct compactors that got a page without a free buddy having been found.

    A run looks for a free buddy at every turn (mm_compaction_finished). One that ends with success
    though its last turn had found none holds a captured page. So does one that gave way to others,
    if the request then succeeds with nothing tried in between: what its last drain of the CPU's
    lists completed was captured. Runs that found a buddy may have captured one too; that is not
    told, and they are left out.

    Args:
        trace: the recording's events; of the main ones, only requests are read.
        machine: its zones.
    """
    ends = _ends_without_buddy(trace, machine)
    found: dict[int, int] = {}
    if len(ends):
        requests = _requests_above_order_0(trace, np.unique(ends[:, 1]))
        for time_ns, pid, zone, order, until_ns, status in ends.tolist():
            mine = requests.get((pid, order), np.zeros(0, np.int64))
            place = int(np.searchsorted(trace.time_ns[mine], time_ns))
            if place == len(mine):
                continue
            row = int(mine[place])
            in_time = status == SUCCESS or trace.time_ns[row] < until_ns
            if in_time and trace.pfn[row] >= 0:
                found[row] = zone
    row = np.array(sorted(found), np.int64)
    return _Captures(row=row, zone=np.array([found[each] for each in row.tolist()], np.int64))


def _ends_without_buddy(trace: Trace, machine: Machine) -> np.ndarray:
    """Ends of runs of direct compactors that found no buddy yet may have captured a page.

    int64, shape (runs, 6): time, task, zone, order tried for, time of the task's next attempt of
    any kind, status.
    """
    rows: list[list[int]] = []
    order: dict[int, int] = {}
    zone: dict[int, int] = {}
    turn: dict[int, int] = {}
    open_row: dict[int, list[int]] = {}
    fields = {TRIES: ("order",), _BEGIN: ("zone_start",), _TURN: ("ret",), _END: ("status",)}
    for time_ns, kind, pid, _, (value,) in _events_of(trace, fields | {_RECLAIM: ("order",)}):
        if kind == _TURN:
            turn[pid] = value
            continue
        if pid in open_row:
            open_row.pop(pid)[4] = time_ns
        if kind == TRIES:
            order[pid] = value
            turn.pop(pid, None)
        elif kind == _BEGIN:
            zone[pid] = zone_of_page(machine, value)
        elif kind == _END and pid in order and zone.get(pid, -1) >= 0:
            found_none = turn.get(pid, SUCCESS) != SUCCESS
            if found_none and value in (CONTENDED, SUCCESS):
                row = [time_ns, pid, zone[pid], order[pid], np.iinfo(np.int64).max, value]
                rows.append(row)
                open_row[pid] = row
    return np.array(rows, np.int64).reshape(-1, 6)


def _requests_above_order_0(trace: Trace, tasks: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    """Rows of requests by some tasks that may reclaim directly, by task and order."""
    found = [np.zeros(0, np.int64)]
    for part in parts(len(trace)):
        wanted = (trace.event[part] == Event.ALLOC) & (trace.order[part] > 0)
        wanted &= trace.gfp[part] & np.uint32(at.GFP_DIRECT_RECLAIM) != 0
        wanted &= np.isin(trace.pid[part], tasks)
        found.append(np.flatnonzero(wanted) + part.start)
    rows = np.concatenate(found)
    if not len(rows):
        return {}
    rows = rows[np.lexsort((rows, trace.order[rows], trace.pid[rows]))]
    pid, order = trace.pid[rows], trace.order[rows]
    begins = np.flatnonzero((np.diff(pid) != 0) | (np.diff(order) != 0)) + 1
    return {
        (int(trace.pid[each[0]]), int(trace.order[each[0]])): each
        for each in np.split(rows, begins)
    }


def mark_captured(events: np.ndarray, trace: Trace, captures: _Captures) -> int:
    """Turn captured requests' allocations into CAPTURE events; how many there were.

    Args:
        events: `layout.EVENT` records in time order, changed in place.
        trace: the recording's events.
        captures: of that trace.
    """
    count = 0
    times = trace.time_ns[captures.row]
    for number, row in enumerate(captures.row.tolist()):
        # numpy's search would copy the times, which lie among other fields
        first = bisect_left(events["time_ns"], times[number])
        together = events[first : bisect_right(events["time_ns"], times[number])]
        mine = (together["operation"] == at.ALLOC) & (together["cpu"] == trace.cpu[row])
        mine &= together["order"] == trace.order[row]
        if mine.any():
            place = first + int(np.argmax(mine))
            events["operation"][place] = at.CAPTURE
            events["offset"][place] = captures.zone[number]
            count += 1
    return count


_ISOLATED = "compaction:mm_compaction_isolate_migratepages"
_OF_RUN = {
    _BEGIN: ("zone_start",),
    _ISOLATED: ("end_pfn", "nr_taken"),
    _MIGRATED: ("nr_migrated",),
    _TURN: ("order",),
}


@dataclass
class _Run:
    """A compactor's way through a zone, as far as its drains go by it.

    Attributes:
        zone: number of the zone.
        order: asked for; -1 until a turn has told.
        block: first page of the block that it moved from last, -1 for none.
        position: where its source scanner stands.
        turn: time and CPU of the latest event of the turn under way, None before the first.
        has_moved: that event was a cluster's end.
    """

    zone: int
    order: int = -1
    block: int = -1
    position: int = 0
    turn: tuple[int, int] | None = None
    has_moved: bool = False


def local_drains(trace: Trace, machine: Machine) -> np.ndarray:
    """DRAIN_LOCAL events: drains of its CPU's lists of the zone by each compactor (S9.3, T10.12).

    A turn ends with one if its scanner has left the order-aligned range of the block moved from
    last. A scan right behind a cluster, with no turn between, takes the rest of a block in which a
    folio could not be moved; at huge pages' order nothing is drained for such a block.

    Args:
        trace: the recording's events; only those of compaction are read.
        machine: its zones.
    """
    runs: dict[int, _Run] = {}
    rows: list[tuple[int, int, int]] = []
    first_ns, last_ns = trace.demand_span_ns
    for time_ns, kind, pid, cpu, values in _events_of(trace, _OF_RUN):
        if kind == _BEGIN:
            runs[pid] = _Run(zone=zone_of_page(machine, values[0]))
            continue
        run = runs.get(pid)
        if run is None or run.zone < 0 or not 0 <= cpu < machine.nr_cpus:
            continue
        if kind == _ISOLATED:
            if run.has_moved and run.order == machine.pageblock_order:
                run.block = -1
            run.position, taken = values
            if taken:
                start = (run.position - 1) >> machine.pageblock_order << machine.pageblock_order
                run.block = max(start, machine.zones[run.zone].start_pfn)
        if kind == _TURN:
            run.order = values[0]
            may_drain = run.turn is not None and run.order > 0
            if may_drain and 0 <= run.block < run.position >> run.order << run.order:
                rows.append((*run.turn, run.zone))
                run.block = -1
        run.turn = None if kind == _TURN else (time_ns, cpu)
        run.has_moved = kind == _MIGRATED
    drains = np.zeros(len(rows), at.EVENT)
    drains["operation"], drains["object"] = at.DRAIN_LOCAL, -1
    for name, column in zip(
        ("time_ns", "cpu", "zone"), np.array(rows, np.int64).reshape(-1, 3).T, strict=True
    ):
        drains[name] = column
    return drains[(drains["time_ns"] >= first_ns) & (drains["time_ns"] <= last_ns)]


def moved_scans(trace: Trace) -> list[tuple[int, int, int, int, int]]:
    """Scans of which a run moved what they took: begin and end in ns, CPU, first page, page behind.

    Args:
        trace: the recording's events; only those of compaction are read.
    """
    fields = {_ISOLATED: ("start_pfn", "end_pfn", "nr_taken"), _MIGRATED: ("nr_migrated",)}
    begun: dict[int, tuple[int, int, int, int]] = {}
    found = []
    for time_ns, kind, pid, cpu, values in _events_of(trace, fields):
        if kind == _MIGRATED and pid in begun:
            begin_ns, _, first, end = begun.pop(pid)
            found.append((begin_ns, time_ns, cpu, first, end))
        elif kind == _ISOLATED and values[2]:
            begun[pid] = (time_ns, cpu, values[0], values[1])
    return found


_UNSEEN, _OF_SOURCE, _OF_TARGET = 1, 2, 3
"""Frees: of a page whose allocation was not seen; of a source and of a target by compaction."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _WithoutMoves:
    """Demand without what recorded compaction freed.

    Attributes:
        events: `layout.EVENT` records, those left.
        hidden: hidden allocations left; ranks are among the events left.
        hold_ranks: int64, as given, among the events left.
        stayed_pages: pages whose free was the source of a move.
        moved_frees: frees found to be of pages that compaction had moved.
    """

    events: np.ndarray
    hidden: HiddenAllocations
    hold_ranks: np.ndarray
    stayed_pages: int
    moved_frees: int


def without_moves(
    events: np.ndarray,
    hidden: HiddenAllocations,
    hold_ranks: np.ndarray,
    objects: np.ndarray,
    new_array: NewArray = in_memory,
) -> _WithoutMoves:
    """Leave out the frees of recorded compaction; what it moved lives on as the same object.

    - The free of a source goes: its object stays.
    - A page that came by a hidden allocation and is freed by compaction was the target of a move,
      or a target not used: allocation and free go.
    - A hidden allocation freed by anybody else was such a target if there was a move of a page of
      its size before that free: the free is that of the page moved last of those not yet found
      again. Which of them it was, no event tells.
    - A piece above order 0 that was never seen before is a target not used: its free stays.

    Args:
        events: `layout.EVENT` records without hidden allocations; changed, those left move up.
        hidden: hidden allocations.
        hold_ranks: int64, how many events stand before each of some others.
        objects: `objects.OBJECT` records.
        new_array: makes what is as long as events, objects or hidden allocations.
    """
    marked = new_array(len(events), np.int8)
    if not _mark_frees(events, objects, marked):
        return _WithoutMoves(
            events=events, hidden=hidden, hold_ranks=hold_ranks, stayed_pages=0, moved_frees=0
        )
    gone = new_array(len(objects), np.bool_)
    gone[:] = False
    stayed = 0
    for part in parts(len(events)):
        numbers = events["object"][part]
        gone[numbers[marked[part] == _OF_TARGET]] = True
        orders = events["order"][part][marked[part] == _OF_SOURCE]
        stayed += int((np.int64(1) << orders.astype(np.int64)).sum())
    moved_frees = 0
    for again, moved in _found_again(events, marked, gone):
        gone[events["object"][again]] = True
        events["object"][again] = events["object"][moved]
        moved_frees += 1
    kept = 0
    holds, ranks = (new_array(rows, np.int64) for rows in (len(hold_ranks), len(hidden.events)))
    before = ((hold_ranks, holds), (hidden.ranks, ranks))
    done = [0, 0]
    for part in parts(len(events)):
        stays = marked[part] < _OF_SOURCE
        count = np.concatenate([np.full(1, kept), kept + np.cumsum(stays)])
        for which, (old, new) in enumerate(before):
            end = int(np.searchsorted(old, part.stop, side="right"))
            here = slice(done[which], end)
            new[here], done[which] = count[old[here] - part.start], end
        left = events[part][stays]
        events[kept : kept + len(left)] = left
        kept += len(left)
    return _WithoutMoves(
        events=events[:kept],
        hidden=_remaining(hidden, ranks, gone, new_array),
        hold_ranks=holds,
        stayed_pages=stayed,
        moved_frees=moved_frees,
    )


def _mark_frees(events: np.ndarray, objects: np.ndarray, marked: np.ndarray) -> bool:
    """Tell what each event is to moves (int8 by event); returns whether compaction freed any."""
    any_freed = False
    for part in parts(len(events)):
        bits = events["bits"][part] & np.uint32(pr.FREED_BY_RECLAIM)
        is_free = events["operation"][part] == at.FREE
        by_compaction = is_free & (bits == np.uint32(pr.FREED_BY_COMPACTION))
        kinds = np.where(is_free, objects["kind"][np.maximum(events["object"][part], 0)], -1)
        dropped = by_compaction & ((kinds != resolved.AT_START) | (events["order"][part] == 0))
        is_hidden = kinds == resolved.HIDDEN
        marked[part] = np.select(
            [dropped & is_hidden, dropped, is_hidden], [_OF_TARGET, _OF_SOURCE, _UNSEEN], 0
        )
        any_freed |= bool(by_compaction.any())
    return any_freed


def _remaining(
    hidden: HiddenAllocations, ranks: np.ndarray, gone: np.ndarray, new_array: NewArray
) -> HiddenAllocations:
    """Hidden allocations of objects that are not gone."""
    rows = len(hidden.events)
    count = sum(int(np.count_nonzero(~gone[hidden.events["object"][part]])) for part in parts(rows))
    left = HiddenAllocations(
        events=new_array(count, hidden.events.dtype),
        ranks=new_array(count, np.int64),
        freed_ns=new_array(count, np.int64),
    )
    end = 0
    for part in parts(rows):
        stays = ~gone[hidden.events["object"][part]]
        begin, end = end, end + int(np.count_nonzero(stays))
        left.events[begin:end] = hidden.events[part][stays]
        left.ranks[begin:end] = ranks[part][stays]
        left.freed_ns[begin:end] = hidden.freed_ns[part][stays]
    return left


def _found_again(
    events: np.ndarray, marked: np.ndarray, gone: np.ndarray
) -> Iterator[tuple[int, int]]:
    """Frees of moved pages, and the source of each: the last before it not yet taken."""
    waiting: dict[int, array[int]] = {}
    for part in parts(len(events)):
        kinds = marked[part]
        unseen = (kinds == _UNSEEN) & ~gone[np.maximum(events["object"][part], 0)]
        places = np.flatnonzero((kinds == _OF_SOURCE) | unseen)
        orders = events["order"][part][places].tolist()
        is_source = (kinds[places] == _OF_SOURCE).tolist()
        for place, order, source in zip(places.tolist(), orders, is_source, strict=True):
            alike = waiting.setdefault(order, array("q"))
            if source:
                alike.append(part.start + place)
            elif alike:
                yield part.start + place, alike.pop()
