"""Recorded compaction as demand: what it takes, hands over and moves (S10.4, T7).

Compaction isolates free pages as targets of migration without an allocation event, and frees them,
or what has moved there, with one. How many it takes, when and in which zone is demand, as reclaim's
frees are; which pages they are is the model's choice.

A run empties neighbouring pages, so that what it frees merges. The objects that it moved lie
elsewhere in a replay. Of objects alike it matters to nobody which is moved: those that a replay
has at the recorded place exchange their places with the recorded ones (T10.18).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.arrays import NewArray, filled, in_memory, parts
from pagealloc_model.predicted.demand.event_order import HiddenAllocations, new_events
from pagealloc_model.predicted.demand.reclaim import next_requests
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Trace

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State


_FIELDS: dict[str, tuple[str, ...]] = {
    tp.TRY_TO_COMPACT_PAGES: ("order",),
    tp.COMPACTION_BEGIN: ("zone_start",),
    tp.ISOLATE_MIGRATEPAGES: ("start_pfn", "end_pfn", "nr_taken"),
    tp.MIGRATEPAGES: ("nr_migrated",),
    tp.ISOLATE_FREEPAGES: ("start_pfn", "nr_taken"),
    tp.FAST_ISOLATE_FREEPAGES: ("start_pfn", "nr_taken"),
    tp.COMPACTION_FINISHED: ("ret", "order"),
    tp.COMPACTION_END: ("status",),
    tp.DIRECT_RECLAIM_BEGIN: ("order",),
}
"""Fields that are read of each event; of one instant, events are taken in this order."""
_AROUND_RUNS = (tp.TRY_TO_COMPACT_PAGES, *tp.COMPACTION, tp.DIRECT_RECLAIM_BEGIN)
CONTENDED, SUCCESS = 7, 8
"""Ends of a run, as the events of all three trees number it."""
_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedCompaction:
    """The compaction of a trace's events, in time order.

    Attributes:
        taken: int64, shape (scans, 4): scans of the free scanner that took pages while demand was
            recorded: time_ns, number of the zone, pages, CPU.
        inferred: pages of these that no scan's event shows: runs moved as many more pages than they
            were seen to take.
        drains: DRAIN_LOCAL events: drains of its CPU's lists of the zone by each compactor
            (S9.3, T10.12).
        without_buddy: int64, shape (runs, 6): ends of direct compactors' runs that found no buddy
            yet may have captured a page: time_ns, task, zone, order tried for, time of the task's
            next attempt of any kind, status.
        moved: scans of which a run moved what they took: begin and end in ns, CPU, first page, page
            behind.
    """

    taken: np.ndarray
    inferred: int
    drains: np.ndarray
    without_buddy: np.ndarray
    moved: tuple[tuple[int, int, int, int, int], ...]


@dataclass
class _Compactor:
    """A task's way through a zone; -1 and None stand for what is not known.

    Attributes:
        zone: number of the zone.
        balance: pages taken and not yet moved.
        position: where its source scanner stands.
        block: first page of the block that it moved from last.
        order: asked for, as its turns say.
        turn: time and CPU of the latest event of the turn under way.
        has_moved: that event was a cluster's end.
        scan: time, first page and page behind of the cluster that it is to move.
        tried: order of its attempt.
        result: how its last turn ended.
        open_end: its last end, whose next attempt is awaited.
    """

    zone: int = -1
    balance: int = 0
    position: int = 0
    block: int = -1
    order: int = -1
    turn: tuple[int, int] | None = None
    has_moved: bool = False
    scan: tuple[int, int, int] | None = None
    tried: int | None = None
    result: int = SUCCESS
    open_end: list[int] | None = None


def recorded_compaction(trace: Trace, machine: Machine) -> RecordedCompaction:
    """Follow every task's compaction through its events; the last result of a trace is kept.

    A run cannot move more pages than it has taken. Where it did, as on kernels that do not show
    what the fast search takes (T7), the rest is taken when they had moved.

    A turn ends with a drain if its scanner has left the order-aligned range of the block moved from
    last. A scan right behind a cluster, with no turn between, takes the rest of a block in which a
    folio could not be moved; at huge pages' order nothing is drained for such a block.
    """
    of_machine, latest = trace.memo.get("recorded compaction", (None, None))
    if of_machine is machine:
        return latest
    tasks: dict[int, _Compactor] = defaultdict(_Compactor)
    taken: list[tuple[int, int, int, int]] = []
    drains: list[tuple[int, int, int]] = []
    ends: list[list[int]] = []
    moved: list[tuple[int, int, int, int, int]] = []
    inferred, block_order = 0, machine.pageblock_order
    first_ns, last_ns = trace.demand_span_ns
    for time_ns, kind, pid, cpu, values in _events_of(trace):
        task, value = tasks[pid], values[0]
        in_demand = first_ns <= time_ns <= last_ns
        can_drain = task.zone >= 0 and 0 <= cpu < machine.nr_cpus
        if kind in _AROUND_RUNS and task.open_end is not None:
            task.open_end[4], task.open_end = time_ns, None
        if kind == tp.TRY_TO_COMPACT_PAGES:
            task.tried, task.result = value, SUCCESS
        elif kind == tp.COMPACTION_BEGIN:
            zone = zone_of_page(machine, value)
            known = {"scan": task.scan, "tried": task.tried, "result": task.result}
            tasks[pid] = _Compactor(zone=zone, **known)
        elif kind in (tp.ISOLATE_FREEPAGES, tp.FAST_ISOLATE_FREEPAGES) and None not in values:
            task.balance += values[1]
            zone = zone_of_page(machine, value)
            if values[1] and zone >= 0 and in_demand:
                taken.append((time_ns, zone, values[1], cpu))
        elif kind == tp.ISOLATE_MIGRATEPAGES:
            _, end, pages = values
            if None not in values and pages:
                task.scan = (time_ns, value, end)
            if can_drain and end is not None and pages is not None:
                if task.has_moved and task.order == block_order:
                    task.block = -1
                task.position = end
                if pages:
                    start = (end - 1) >> block_order << block_order
                    task.block = max(start, machine.zones[task.zone].start_pfn)
                task.turn, task.has_moved = (time_ns, cpu), False
        elif kind == tp.MIGRATEPAGES:
            missing = value - task.balance
            task.balance = max(-missing, 0)
            if missing > 0 and task.zone >= 0 and in_demand:
                taken.append((time_ns, task.zone, missing, cpu))
                inferred += missing
            if task.scan is not None:
                moved.append((task.scan[0], time_ns, cpu, *task.scan[1:]))
                task.scan = None
            if can_drain:
                task.turn, task.has_moved = (time_ns, cpu), True
        elif kind == tp.COMPACTION_FINISHED:
            task.result = task.result if value is None else value
            if can_drain and values[1] is not None:
                task.order = values[1]
                left = 0 <= task.block < task.position >> max(task.order, 0) << max(task.order, 0)
                if task.turn is not None and task.order > 0 and left:
                    if first_ns <= task.turn[0] <= last_ns:
                        drains.append((*task.turn, task.zone))
                    task.block = -1
                task.turn, task.has_moved = None, False
        elif (
            kind == tp.COMPACTION_END
            and value in (CONTENDED, SUCCESS)
            and task.tried is not None
            and task.zone >= 0
            and task.result != SUCCESS
        ):
            task.open_end = [time_ns, pid, task.zone, task.tried, _LATEST, value]
            ends.append(task.open_end)
    scans = np.array(taken, np.int64).reshape(-1, 4)
    # What a CPU that the machine lacks takes is gone all the same.
    scans[(scans[:, 3] < 0) | (scans[:, 3] >= machine.nr_cpus), 3] = 0
    drained_ns, cpus, zones = np.array(drains, np.int64).reshape(-1, 3).T
    compaction = RecordedCompaction(
        taken=scans,
        inferred=inferred,
        drains=new_events(at.DRAIN_LOCAL, len(drains), time_ns=drained_ns, cpu=cpus, zone=zones),
        without_buddy=np.array(ends, np.int64).reshape(-1, 6),
        moved=tuple(moved),
    )
    trace.memo["recorded compaction"] = machine, compaction
    return compaction


def _events_of(trace: Trace) -> list[tuple[int, str, int, int, tuple[int | None, ...]]]:
    """Time, kind, task, CPU and fields of compaction's events, in time order.

    A field is None where the table has no numbers for it: text prints some of them otherwise.
    """
    events: list[tuple[int, str, int, int, tuple[int | None, ...]]] = []
    for kind, names in _FIELDS.items():
        table = trace.tables.get(kind, {})
        known = [name in table and table[name].dtype.kind in "iu" for name in names]
        if not (all(known) if len(names) == 1 else any(known)):
            continue
        values = zip(
            *(
                table[name].astype(np.int64).tolist() if is_known else repeat(None)
                for name, is_known in zip(names, known, strict=True)
            ),
            strict=False,
        )
        columns = (table[name].tolist() for name in ("time_ns", "pid", "cpu"))
        events += (
            (time_ns, kind, pid, cpu, value)
            for time_ns, pid, cpu, value in zip(*columns, values, strict=True)
        )
    events.sort(key=lambda event: event[0])
    return events


def zone_of_page(machine: Machine, pfn: int) -> int:
    """The number of the populated zone that holds a page frame, -1 for none."""
    for number, zone in enumerate(machine.zones):
        if zone.managed and zone.start_pfn <= pfn < zone.end_pfn:
            return number
    return -1


def take_isolated(
    taken: np.ndarray, hidden: HiddenAllocations, objects: np.ndarray, machine: Machine
) -> tuple[np.ndarray, np.ndarray, HiddenAllocations, int]:
    """Give each isolation the objects that it became, as later frees tell them (T10.2).

    Pages freed twice without an allocation between were taken unseen in between: by an isolation
    of their zone then, as far as there are any, and by those that are freed first. What no event
    frees stays taken.

    Returns:
        ISOLATE_FREE events in time order, each scan's largest pieces first; `objects.OBJECT`
        records of pages that no later event frees, numbered behind the demand's others; the hidden
        allocations that no isolation explains; pages of isolations that a later event frees.
    """
    by_scan: dict[int, list[int]] = {}
    for number in np.unique(taken[:, 1]).tolist():
        scans = np.flatnonzero(taken[:, 1] == number)
        _match_zone(taken, scans, hidden, objects, machine.zones[number], by_scan)
    rows: list[tuple[int, int, int, int, int, int]] = []
    unfreed: list[int] = []
    orders = hidden.events["order"].astype(np.int64)
    for scan, (time_ns, zone, pages, cpu) in enumerate(taken.tolist()):
        pieces = [
            (int(orders[each]), int(hidden.events["object"][each]))
            for each in by_scan.get(scan, ())
        ]
        rest = pages - sum(1 << order for order, _ in pieces)
        for order in range(machine.pageblock_order - 1, -1, -1):
            while rest >= 1 << order:
                pieces.append((order, len(objects) + len(unfreed)))
                unfreed.append(order)
                rest -= 1 << order
        pieces.sort(key=lambda piece: -piece[0])
        left = pages
        for order, number in pieces:
            rows.append((time_ns, cpu, zone, order, number, left))
            left -= 1 << order
    names = ("time_ns", "cpu", "zone", "order", "object", "offset")
    columns = dict(zip(names, np.array(rows, np.int64).reshape(-1, 6).T, strict=True))
    events = new_events(at.ISOLATE_FREE, len(rows), migratetype=at.MOVABLE, **columns)
    added = np.zeros(len(unfreed), resolved.OBJECT)
    added["pfn"], added["kind"], added["order"] = -1, resolved.HIDDEN, unfreed
    is_taken = np.zeros(len(hidden.events), bool)
    is_taken[[number for numbers in by_scan.values() for number in numbers]] = True
    remaining = hidden.where(~is_taken, in_memory)
    return events, added, remaining, int((np.int64(1) << orders[is_taken]).sum())


def _match_zone(
    taken: np.ndarray,
    scans: np.ndarray,
    hidden: HiddenAllocations,
    objects: np.ndarray,
    zone: Zone,
    by_scan: dict[int, list[int]],
) -> None:
    """Match one zone's scans with hidden allocations, those freed first before others."""
    pfn = objects["pfn"][hidden.events["object"]]
    times, freed = taken[scans, 0], hidden.freed_ns
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
        left = int(taken[scan, 2])
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
            by_scan.setdefault(scan, []).append(number)
        if too_large:
            waiting += too_large
            heapify(waiting)


def as_requests(events: np.ndarray, machine: Machine) -> np.ndarray:
    """Events in which compaction asks for pages as others do, for what knows no isolation.

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


def captured_requests(trace: Trace, without_buddy: np.ndarray) -> dict[int, int]:
    """Requests of direct compactors that got a page without a free buddy having been found.

    A run looks for a free buddy at every turn (mm_compaction_finished). One that ends with success
    though its last turn had found none holds a captured page. So does one that gave way to others,
    if the request then succeeds with nothing tried in between: what its last drain of the CPU's
    lists completed was captured. Runs that found a buddy may have captured one too; nothing shows
    that, and they are left out.

    Returns:
        Number of the zone that was compacted, by the row of the request's allocation.
    """
    time_ns, pid, zone, order, until_ns, status = without_buddy[without_buddy[:, 3] > 0].T
    row = next_requests(trace, pid, order, np.searchsorted(trace.time_ns, time_ns))
    is_captured = (row >= 0) & (trace.pfn[row] >= 0)
    is_captured &= (status == SUCCESS) | (trace.time_ns[row] < until_ns)
    return dict(zip(row[is_captured].tolist(), zone[is_captured].tolist(), strict=True))


def mark_captured(events: np.ndarray, trace: Trace, captured: dict[int, int]) -> int:
    """Turn captured requests' allocations into CAPTURE events; how many there were."""
    count = 0
    for row, zone in sorted(captured.items()):
        # numpy's search would copy the times, which lie among other fields
        first = bisect_left(events["time_ns"], trace.time_ns[row])
        together = events[first : bisect_right(events["time_ns"], trace.time_ns[row])]
        is_it = (together["operation"] == at.ALLOC) & (together["cpu"] == trace.cpu[row])
        is_it &= together["order"] == trace.order[row]
        if is_it.any():
            place = first + int(np.argmax(is_it))
            events["operation"][place] = at.CAPTURE
            events["offset"][place] = zone
            count += 1
    return count


_UNSEEN, _OF_SOURCE, _OF_TARGET = 1, 2, 3
"""Frees: of a page whose allocation was not seen; of a source and of a target by compaction."""


def without_moves(
    events: np.ndarray,
    hidden: HiddenAllocations,
    hold_ranks: np.ndarray,
    objects: np.ndarray,
    new_array: NewArray,
    task_at: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, HiddenAllocations, np.ndarray, dict[str, int]]:
    """Leave out the frees of recorded compaction; what it moved lives on as the same object.

    - The free of a source goes: its object stays.
    - A page that came by a hidden allocation and is freed by compaction was the target of a move,
      or a target not used: allocation and free go.
    - A hidden allocation freed by anybody else was such a target if there was a move of a page of
      its size before that free: the free is that of the page moved last, of those of the best
      kind not yet found again. Reclaim frees no anonymous page, and a task its own anonymous
      ones, else pages of no task, else others' (T10.14).
    - A piece above order 0 that was never seen before is a target not used: its free stays.

    `task_at` tells tasks by the times of their events.

    Returns:
        Events, hidden allocations and ranks of those left, and counts by fields of `Demand`.
    """
    marked = new_array(len(events), np.int8)
    gone = filled(new_array, len(objects), 0, np.bool_)
    any_freed, stayed = False, 0
    for part in parts(len(events)):
        bits = events["bits"][part] & np.uint32(pr.FREED_BY_RECLAIM)
        is_free = events["operation"][part] == at.FREE
        by_compaction = is_free & (bits == np.uint32(pr.FREED_BY_COMPACTION))
        numbers, orders = events["object"][part], events["order"][part]
        kinds = np.where(is_free, objects["kind"][np.maximum(numbers, 0)], -1)
        dropped = by_compaction & ((kinds != resolved.AT_START) | (orders == 0))
        is_hidden = kinds == resolved.HIDDEN
        marked[part] = np.select(
            [dropped & is_hidden, dropped, is_hidden], [_OF_TARGET, _OF_SOURCE, _UNSEEN], 0
        )
        any_freed |= bool(by_compaction.any())
        gone[numbers[marked[part] == _OF_TARGET]] = True
        sources = orders[marked[part] == _OF_SOURCE].astype(np.int64)
        stayed += int((np.int64(1) << sources).sum())
    if not any_freed:
        return events, hidden, hold_ranks, {"stayed_pages": 0, "moved_frees": 0}
    moved_frees = 0
    owners = filled(new_array, len(objects), _NOBODY, np.int64)
    for part in parts(len(events)):
        bits = events["bits"][part] >> np.uint32(pr.CLASS_SHIFT)
        is_anon = (events["operation"][part] == at.ALLOC) & (bits % pr.CLASSES == pr.ANON)
        own = events[part][is_anon]
        owners[own["object"]] = task_at(own["time_ns"])
    for again, source in _found_again(events, marked, gone, owners, task_at):
        gone[events["object"][again]] = True
        events["object"][again] = events["object"][source]
        moved_frees += 1
    kept = 0
    holds, ranks = (new_array(len(old), np.int64) for old in (hold_ranks, hidden.ranks))
    done = [0, 0]
    for part in parts(len(events)):
        stays = marked[part] < _OF_SOURCE
        count = np.concatenate([np.full(1, kept), kept + np.cumsum(stays)])
        for which, (old, new) in enumerate(((hold_ranks, holds), (hidden.ranks, ranks))):
            end = int(np.searchsorted(old, part.stop, side="right"))
            here = slice(done[which], end)
            new[here], done[which] = count[old[here] - part.start], end
        left = events[part][stays]
        events[kept : kept + len(left)] = left
        kept += len(left)
    lives_on = new_array(len(ranks), np.bool_)
    for part in parts(len(ranks)):
        lives_on[part] = ~gone[hidden.events["object"][part]]
    hidden = replace(hidden, ranks=ranks).where(lives_on, new_array)
    return events[:kept], hidden, holds, {"stayed_pages": stayed, "moved_frees": moved_frees}


_NOBODY, _BY_RECLAIM = -1, -2
"""In place of a task: of pages that are not anonymous, and of what reclaim frees."""


def _found_again(
    events: np.ndarray,
    marked: np.ndarray,
    gone: np.ndarray,
    owners: np.ndarray,
    task_at: Callable[[np.ndarray], np.ndarray],
) -> Iterator[tuple[int, int]]:
    """Frees of moved pages, and the source of each: the last before it that suits, not yet taken.

    `owners` has by object the task that asked for it, if it is anonymous, else `_NOBODY`.
    """
    waiting: dict[tuple[int, int], array[int]] = {}
    by_order: dict[int, array[int]] = {}
    taken: set[int] = set()
    for part in parts(len(events)):
        kinds = marked[part]
        unseen = (kinds == _UNSEEN) & ~gone[np.maximum(events["object"][part], 0)]
        places = np.flatnonzero((kinds == _OF_SOURCE) | unseen)
        own = events[part][places]
        is_source = kinds[places] == _OF_SOURCE
        by_reclaim = own["bits"] & np.uint32(pr.FREED_BY_RECLAIM) == pr.FREED_BY_RECLAIM
        who = np.where(by_reclaim, _BY_RECLAIM, task_at(own["time_ns"]))
        who = np.where(is_source, owners[np.maximum(own["object"], 0)], who)
        rows = zip(
            places.tolist(), own["order"].tolist(), is_source.tolist(), who.tolist(), strict=True
        )
        for place, order, source, task in rows:
            place += part.start
            if source:
                waiting.setdefault((order, task), array("q")).append(place)
                by_order.setdefault(order, array("q")).append(place)
                continue
            for key in ((order, task), (order, _NOBODY)):
                found = _last(waiting.get(key), taken)
                if found >= 0:
                    break
            else:
                found = -1 if task == _BY_RECLAIM else _last(by_order.get(order), taken)
            if found >= 0:
                taken.add(found)
                yield place, found


def _last(places: array[int] | None, taken: set[int]) -> int:
    """Remove and return the last place that is not taken, -1 where there is none."""
    while places:
        place = places.pop()
        if place not in taken:
            return place
    return -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster:
    """Single pages that a run moved together.

    Attributes:
        objects: int64, what they are of, in the order in which they were freed.
        pages: int64, where each lay in the recording.
    """

    objects: np.ndarray
    pages: np.ndarray


def moved_clusters(
    moved: Sequence[tuple[int, int, int, int, int]], events: np.ndarray, objects: np.ndarray
) -> tuple[Cluster, ...]:
    """The clusters that recorded compaction moved, of single pages alone."""
    clusters = []
    times = np.ascontiguousarray(events["time_ns"]) if moved else events["time_ns"][:0]
    for begin_ns, end_ns, cpu, first, end in moved:
        part = events[slice(*np.searchsorted(times, [begin_ns, end_ns + 1]))]
        part = part[(part["operation"] == at.FREE) & (part["cpu"] == cpu)]
        numbers = part["object"].astype(np.int64)
        pages = objects["pfn"][numbers].astype(np.int64)
        is_source = (objects["order"][numbers] == 0) & (pages >= first) & (pages < end)
        if is_source.any():
            clusters.append(Cluster(objects=numbers[is_source], pages=pages[is_source]))
    return tuple(clusters)


class Exchange:
    """Lets objects that recorded compaction moves lie where it found them.

    Attributes:
        due: the event before which the next cluster's places are exchanged; one past all events
            after the last.
        unowned: bool by page, in use throughout and no object's; changed as places are exchanged.
    """

    def __init__(
        self,
        clusters: tuple[Cluster, ...],
        events: np.ndarray,
        objects: np.ndarray,
        state: State,
        places: np.ndarray,
    ) -> None:
        """Find when each object is in use, and the pages in use throughout that no object has."""
        self._places, self._pages = places, state.pages
        self._order = state.machine.pageblock_order
        self._is_single = objects["order"] == 0
        is_free = events["operation"] == at.FREE
        frees, others = np.flatnonzero(is_free), np.flatnonzero(~is_free & (events["object"] >= 0))
        self._freed = np.full(len(objects), len(events), np.int64)
        self._freed[events["object"][frees]] = frees
        self._made = np.full(len(objects), -1, np.int64)
        self._made[events["object"][others]] = others
        self.unowned = state.pages["where"] == at.ALLOCATED
        for order in np.unique(objects["order"][places >= 0]).tolist():
            own = places[(places >= 0) & (objects["order"] == order)]
            self.unowned[(own[:, None] + np.arange(1 << order)).ravel()] = False
        self._clusters = sorted(clusters, key=lambda each: self._freed[each.objects[0]])
        self._number, self._end = -1, len(events)
        self._go_on()

    def _go_on(self) -> None:
        self._number += 1
        self.due = self._end
        if self._number < len(self._clusters):
            self.due = int(self._freed[self._clusters[self._number].objects[0]])

    def make(self, position: int) -> None:
        """Exchange the places of clusters that are due.

        What finds no page in its cluster's block lies together elsewhere.
        """
        while self.due <= position < self._end:
            if self.due == position:
                cluster = self._clusters[self._number]
                whole = self._places[cluster.objects] >= 0
                left, pages = cluster.objects[whole], cluster.pages[whole]
                block = int(cluster.pages[0]) >> self._order
                tried = set()
                while len(left) and block not in tried:
                    tried.add(block)
                    left = left[self._move_into(block, left, pages, position)]
                    if len(left):
                        pages = self._places[left].astype(np.int64)
                        block = int(pages[0]) >> self._order
            self._go_on()

    def _move_into(
        self, block: int, numbers: np.ndarray, wanted: np.ndarray, position: int
    ) -> np.ndarray:
        """Give objects pages of a block: those wanted first, then the next; mask of those left."""
        first, size = block << self._order, 1 << self._order
        # the object in use at each page; none where one has several pages
        here = np.flatnonzero((self._places >= first) & (self._places < first + size))
        here = here[self._is_single[here] & (self._made[here] < position)]
        here = here[self._freed[here] >= position]
        owners = np.full(size, -1, np.int64)
        owners[self._places[here] - first] = here
        records = self._pages[first : first + size]
        suits = (records["where"] == at.ALLOCATED) & (records["order"] == 0)
        suits &= records["tag"] == 1
        suits &= self.unowned[first : first + len(records)] | (owners >= 0)[: len(records)]
        there = first + np.flatnonzero(suits)
        is_exact = np.isin(wanted, there)
        others = np.setdiff1d(there, wanted)
        others = np.concatenate([others[others >= wanted.min()], others[others < wanted.min()]])
        chosen = np.where(is_exact, wanted, -1)
        lacking = np.flatnonzero(~is_exact)[: len(others)]
        chosen[lacking] = others[: len(lacking)]
        for number, page in zip(numbers.tolist(), chosen.tolist(), strict=True):
            if page < 0:
                continue
            old, other = int(self._places[number]), int(owners[page - first])
            self._places[number] = page
            if other >= 0:
                self._places[other] = old
            else:
                self.unowned[page], self.unowned[old] = False, True
            owners[page - first] = number
            if first <= old < first + len(records):
                owners[old - first] = other
        return chosen < 0
