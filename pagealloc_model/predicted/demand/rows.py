"""Recorded allocations and frees as rows for matching, and interrupts among them (T2, T3, T10.13).

Kernels fill the rows of a part of the trace; what is recorded twice, or lies outside the machine's
zones, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.jit import entry, inner
from pagealloc_model.measured.stream import CPUS
from pagealloc_model.predicted.demand.elastic import ElasticRows
from pagealloc_model.predicted.demand.event_order import new_events, rows_where
from pagealloc_model.predicted.demand.reclaim import DirectReclaims
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


ALLOC, FREE, FREE_BATCHED = 0, 1, 2
"""Values of `Event`."""
GFP_KERNEL = 0xCC0
GFP_ACCOUNT = 0x400000

BATCH_NS = 50_000_000
"""Time within which a folio batch that frees a page puts it on its list; it frees 31 at most, and
may lose its CPU in between."""
PAGES = 1 << 16
"""Beginnings of the lists in which a page's latest events are looked up."""

FILLED, OUTSIDE, TWICE, STRANGE_CPU, ODD_TYPE = 0, 1, 2, 3, 4
COUNTS = 5
"""Rows filled; events left out as outside all zones, and as recorded twice; rows in the trace of
the first event of a CPU, and of the first request of a type, that the machine does not have."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
NOBODY = -1
"""Key of a place that no task has."""


class _Events(NamedTuple):
    """The trace's columns that rows are made of."""

    time_ns: np.ndarray
    cpu: np.ndarray
    pid: np.ndarray
    event: np.ndarray
    pfn: np.ndarray
    order: np.ndarray
    gfp: np.ndarray
    migratetype: np.ndarray
    in_interrupt: np.ndarray


class _Limits(NamedTuple):
    """Of a machine and a trace, what rows are held against.

    Attributes:
        words: int64: CPUs, largest order, bits of gfp words that are read, type of allocations
            that the recording does not show.
        zones: int64, shape (2, zones): first page and end of each populated zone.
        zone_of_gfp: int8, 16 long: highest zone type by the low gfp nibble.
        realtime: int32, thread ids of realtime tasks.
    """

    words: np.ndarray
    zones: np.ndarray
    zone_of_gfp: np.ndarray
    realtime: np.ndarray


class _Batches(NamedTuple):
    """Folio batches of a window of a trace.

    Attributes:
        begin: int64, 1 long: the window's first row.
        partner: int32 by row of the window: the other row of a free and what puts its page on a
            list, -1 for all others.
        goes_on: int8 by row: whether the batch of a put page had announced the next one before.
        is_late: int8 by row: whether another task ran on the CPU between a free and what puts its
            page on a list, of both.
    """

    begin: np.ndarray
    partner: np.ndarray
    goes_on: np.ndarray
    is_late: np.ndarray


@entry
def _find_batches(
    events: _Events,
    end: int,
    batches: _Batches,
    heads: np.ndarray,
    before: np.ndarray,
    next_free: np.ndarray,
    last_task: np.ndarray,
) -> None:
    """Find the frees that folio batches announced, and batches that went on after a page (T3).

    What a batch prepared after its pause is late, too: it is put behind what it prepared before.
    The working space `last_task` has by CPU, all 0 at first: the row at which its task's events
    began, its last row, that of its last late page.
    """
    begin = batches.begin[0]
    for row in range(begin, end):
        here = row - begin
        batches.partner[here] = -1
        cpu = int(events.cpu[row]) & (CPUS - 1)
        if events.in_interrupt[row] <= 0:
            if events.pid[row] != events.pid[begin + last_task[cpu, 1]]:
                last_task[cpu, 0] = here
            last_task[cpu, 1] = here
        kind = events.event[row]
        if kind != FREE and kind != FREE_BATCHED:
            continue
        page = events.pfn[row]
        place = page & (PAGES - 1)
        earlier = int(heads[place]) - 1 if kind == FREE_BATCHED else -1
        while earlier >= 0 and events.time_ns[row] - events.time_ns[begin + earlier] <= BATCH_NS:
            other = begin + earlier
            if events.pfn[other] == page and events.cpu[other] == events.cpu[row]:
                if events.event[other] == FREE:
                    batches.partner[here] = earlier
                    batches.partner[earlier] = here
                    is_late = (
                        events.pid[other] == events.pid[row]
                        and max(events.in_interrupt[other], events.in_interrupt[row]) <= 0
                        and max(last_task[cpu, 0], last_task[cpu, 2]) > earlier
                    )
                    batches.is_late[here] = batches.is_late[earlier] = is_late
                    if is_late:
                        last_task[cpu, 2] = here
                break
            earlier = int(before[earlier]) - 1
        before[here] = heads[place]
        heads[place] = here + 1
    for here in range(end - begin - 1, -1, -1):
        if events.event[begin + here] == FREE_BATCHED and batches.partner[here] >= 0:
            cpu = int(events.cpu[begin + here]) & (CPUS - 1)
            batches.goes_on[here] = 0 <= next_free[cpu] < here
            next_free[cpu] = batches.partner[here]


@inner
def _is_inside(page: int, order: int, max_order: int, zones: np.ndarray) -> bool:
    """Return whether pages are an aligned run, no larger than a buddy, inside one zone."""
    if order < 0 or order > max_order or page & ((1 << order) - 1):
        return False
    for zone in range(zones.shape[1]):
        if page >= zones[0, zone] and page + (1 << order) <= zones[1, zone]:
            return True
    return False


@entry
def _fill_rows(
    events: _Events,
    low: int,
    high: int,
    limits: _Limits,
    batches: _Batches,
    last_put: np.ndarray,
    last_event: np.ndarray,
    rows: np.ndarray,
    kept: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Fill in what each allocation and free of a part says by itself.

    `task_request` of `objects.ROW` stays as it is; `kept` gets each row's place in the trace. The
    working space, `CPUS` long and filled with -1, has each CPU's last put page and, from the part
    before, its last allocation or free.
    """
    nr_cpus, max_order = limits.words[0], limits.words[1]
    read_bits, hidden_type = limits.words[2], limits.words[3]
    window = batches.begin[0]
    counts[FILLED], counts[STRANGE_CPU], counts[ODD_TYPE] = 0, -1, -1
    filled = 0
    for row in range(window, high):
        kind = events.event[row]
        here = int(events.cpu[row]) & (CPUS - 1)
        partner = batches.partner[row - window]
        if kind == FREE_BATCHED and partner >= 0:
            last_put[here] = row - window
        # what another task does before a page is on its list does not find it there (T3)
        source, is_late = row, partner >= 0 and batches.is_late[row - window] != 0
        if is_late and kind == FREE_BATCHED:
            source, kind = window + partner, FREE
        elif is_late:
            continue
        if row < low or kind > FREE:
            continue
        earlier = last_event[here]
        last_event[here] = row
        page, size = events.pfn[source], int(events.order[source])
        if (
            earlier >= 0
            and page >= 0
            and events.time_ns[row] == events.time_ns[earlier]
            and page == events.pfn[earlier]
            and kind == events.event[earlier]
            and size == events.order[earlier]
            and events.pid[row] == events.pid[earlier]
            and events.gfp[row] == events.gfp[earlier]
            and events.cpu[row] == events.cpu[earlier]
        ):
            counts[TWICE] += 1
            continue
        failed = page == -1 and kind == ALLOC and 0 <= size <= max_order
        if not failed and not _is_inside(page, size, max_order, limits.zones):
            counts[OUTSIDE] += 1
            continue
        if counts[STRANGE_CPU] < 0 and (events.cpu[row] < 0 or events.cpu[row] >= nr_cpus):
            counts[STRANGE_CPU] = row
        word = int(events.gfp[row])
        if word & at.GFP_DIRECT_RECLAIM:
            for task in limits.realtime:
                if task == events.pid[row]:
                    word |= at.GFP_HIGH
        wanted_type = int(events.migratetype[row])
        bits = word & read_bits
        if kind == FREE:
            wanted_type, bits = hidden_type, GFP_KERNEL & at.GFP_READ_BITS
        elif counts[ODD_TYPE] < 0 and (wanted_type < 0 or wanted_type >= at.PCP_TYPES):
            counts[ODD_TYPE] = row
        put = int(last_put[here])
        if partner >= 0:
            bits |= at.FREED_IN_BATCH
        elif put >= 0 and batches.goes_on[put] and events.pid[window + put] == events.pid[row]:
            bits |= at.INTERRUPTS_HOLDER
        if events.in_interrupt[row] > 0:
            bits |= at.IN_INTERRUPT
        rows[filled]["row"] = row
        rows[filled]["pid"] = events.pid[row]
        rows[filled]["pfn"] = page
        rows[filled]["bits"] = bits
        rows[filled]["cpu"] = events.cpu[row]
        rows[filled]["is_free"] = kind == FREE
        rows[filled]["order"] = size
        rows[filled]["migratetype"] = wanted_type
        rows[filled]["zone"] = limits.zone_of_gfp[word & 15]
        rows[filled]["failed_charge"] = 0
        kept[filled] = row
        filled += 1
    counts[FILLED] = filled


@inner
def _place_of(key: int, keys: np.ndarray) -> int:
    """Return where a task is in a table with room, or would be."""
    mask = len(keys) - 1
    place = int((np.uint64(key) * _MIX) >> np.uint64(32)) & mask
    while keys[place] != NOBODY and keys[place] != key:
        place = (place + 1) & mask
    return place


@entry
def move_tasks(
    keys: np.ndarray, last: np.ndarray, wider_keys: np.ndarray, wider_last: np.ndarray
) -> None:
    """Enter all tasks of a table into a wider one, a power of two long and filled with NOBODY."""
    for place in range(len(keys)):
        if keys[place] != NOBODY:
            there = _place_of(keys[place], wider_keys)
            wider_keys[there] = keys[place]
            wider_last[there] = last[place]


@entry
def _link_requests(
    rows: np.ndarray,
    low: int,
    high: int,
    gfp: np.ndarray,
    keys: np.ndarray,
    last_request: np.ndarray,
    tasks: np.ndarray,
    last_row: np.ndarray,
) -> int:
    """Fill in the last requests of tasks, and mark frees that stand for a failed charge (T2).

    Such a free precedes the failure of the same request on its CPU. Ends where the table of tasks
    is half full.
    """
    for row in range(low, high):
        here = int(rows[row]["cpu"])
        key = (int(rows[row]["pid"]) << 16) | here
        place = _place_of(key, keys)
        if keys[place] == NOBODY:
            if 2 * tasks[0] >= len(keys):
                return row
            keys[place] = key
            tasks[0] += 1
        rows[row]["task_request"] = last_request[place]
        free = last_row[here]
        last_row[here] = row
        if int(rows[row]["is_free"]) == 1:
            continue
        number = int(rows[row]["row"])
        last_request[place] = number
        if free < 0 or int(rows[row]["pfn"]) != -1 or int(rows[free]["is_free"]) != 1:
            continue
        same = rows[free]["pid"] == rows[row]["pid"] and rows[free]["order"] == rows[row]["order"]
        if same and int(gfp[number]) & GFP_ACCOUNT:
            rows[free]["failed_charge"] = 1
            rows[free]["migratetype"] = rows[row]["migratetype"]
            rows[free]["zone"] = rows[row]["zone"]
            rows[free]["bits"] = int(rows[row]["bits"]) & (0xFFFFFFFF ^ at.REQUEST_RECLAIMED)
    return high


GFP_DMA, GFP_HIGHMEM, GFP_DMA32, GFP_MOVABLE = 0x1, 0x2, 0x4, 0x8


@dataclass(frozen=True, kw_only=True, eq=False)
class PartRows:
    """Rows of a part of a trace, as far as the part tells.

    Attributes:
        rows: `objects.ROW` records; `task_request` is not filled in.
        outside: events whose pages lie in no zone of the machine, or are no buddy.
        recorded_twice: events that repeat the one before them to the nanosecond.
        requests: as `ElasticRows.mark` returns them.
    """

    rows: np.ndarray
    outside: int
    recorded_twice: int
    requests: tuple[np.ndarray, np.ndarray] | None = None


class RowMaker:
    """Makes rows of the allocations and frees of a trace that lie inside the machine's zones.

    Attributes:
        last_charged: the last row of the trace that is a failure charged to a group, -1 for none.
    """

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        hidden_migratetype: int,
        reclaims: DirectReclaims | None,
        elastic: ElasticRows | None = None,
        realtime: frozenset[int] = frozenset(),
    ) -> None:
        """Take what all parts need."""
        self._trace, self._elastic = trace, elastic
        self._reclaimed = np.zeros((2, 0), np.int64)
        if reclaims is not None:
            marked = reclaims.number > 0
            self._reclaimed = np.stack([reclaims.row[marked], reclaims.number[marked]])
        spans = [(zone.start_pfn, zone.end_pfn) for zone in machine.zones if zone.managed]
        words = (machine.nr_cpus, machine.max_order, read_bits(trace), hidden_migratetype)
        self._limits = _Limits(
            words=np.array(words, np.int64),
            zones=np.ascontiguousarray(np.array(spans, np.int64).reshape(-1, 2).T),
            zone_of_gfp=highest_type_by_gfp(machine),
            realtime=np.array(sorted(realtime), np.int32),
        )
        self._events = _Events(*(getattr(trace, name) for name in _Events._fields))
        charged = rows_where(
            len(trace),
            lambda part: (
                (trace.pfn[part] == -1)
                & (trace.event[part] == Event.ALLOC)
                & (trace.gfp[part] & np.uint32(GFP_ACCOUNT) != 0)
            ),
        )
        self.last_charged = int(charged[-1]) if len(charged) else -1

    def part(self, part: slice) -> PartRows:
        """Make the rows of a part of the trace; parts can be made at the same time."""
        trace = self._trace
        rows = np.zeros(part.stop - part.start, resolved.ROW)
        kept, counts = np.empty(len(rows), np.int64), np.zeros(COUNTS, np.int64)
        last_put, last_event = np.full(CPUS, -1, np.int32), np.full(CPUS, -1)
        # each CPU's last event before the part, if of the same nanosecond
        begin = int(np.searchsorted(trace.time_ns, trace.time_ns[part.start]))
        earlier = np.flatnonzero(trace.event[begin : part.start] <= Event.FREE) + begin
        last_event[trace.cpu[earlier]] = earlier
        _fill_rows(
            self._events,
            part.start,
            part.stop,
            self._limits,
            _batches(self._events, part),
            last_put,
            last_event,
            rows,
            kept,
            counts,
        )
        strange, odd = int(counts[STRANGE_CPU]), int(counts[ODD_TYPE])
        if strange >= 0:
            raise UsageError(
                f"{trace.source}: has events of CPU {trace.cpu[strange]}, but zoneinfo at the "
                f"start lists CPUs 0 to {self._limits.words[0] - 1}; record without bringing CPUs "
                "on- or offline"
            )
        if odd >= 0:
            raise UsageError(
                f"{trace.source}: a request has migratetype {trace.migratetype[odd]}; requests "
                "have 0 to 2 (S2.1)"
            )
        rows, kept = rows[: counts[FILLED]], kept[: counts[FILLED]]
        if len(kept):
            near = slice(*np.searchsorted(self._reclaimed[0], [kept[0], kept[-1] + 1]))
            requests, numbers = self._reclaimed[:, near]
            place = np.flatnonzero(np.isin(kept, requests))
            number = numbers[np.searchsorted(requests, kept[place])]
            rows["bits"][place] |= (number << at.RECLAIM_SHIFT).astype(np.uint32)
        return PartRows(
            rows=rows,
            outside=int(counts[OUTSIDE]),
            recorded_twice=int(counts[TWICE]),
            requests=None if self._elastic is None else self._elastic.mark(rows, kept),
        )


class RequestsOfTasks:
    """Tasks by CPU, numbered as they are first seen, and each one's last request."""

    def __init__(self) -> None:
        """Begin without any."""
        self._tasks = np.zeros(1, np.int64)
        self._keys = np.full(1 << 12, NOBODY)
        self._last = np.full(1 << 12, -1, np.int32)

    def link(self, rows: np.ndarray, first: int, gfp: np.ndarray, last_row: np.ndarray) -> None:
        """Fill in the last request before each row's, and mark failed charges."""
        end = len(rows)
        while True:
            table = (self._keys, self._last, self._tasks)
            first = _link_requests(rows, first, end, gfp, *table, last_row)
            if first == end:
                return
            keys, last = self._keys, self._last
            self._keys = np.full(2 * len(keys), NOBODY)
            self._last = np.full(2 * len(keys), -1, np.int32)
            move_tasks(keys, last, self._keys, self._last)


def _batches(events: _Events, part: slice) -> _Batches:
    """Frees of a part that a folio batch made, and batches that went on after a page (T3).

    A batch prepares all its pages, then puts one after the other on a list under one lock. What
    its CPU allocates or frees between two of those in the name of the same task is an interrupt's
    (S4.10); another task runs there only while the batch has let go of the lock (S4.7).
    """
    time_ns = events.time_ns
    # a put page that is followed was announced up to twice as long before
    begin = int(np.searchsorted(time_ns, time_ns[part.start] - 2 * BATCH_NS))
    end = int(np.searchsorted(time_ns, time_ns[part.stop - 1] + BATCH_NS, side="right"))
    rows = end - begin
    flags = (np.zeros(rows, np.int8), np.zeros(rows, np.int8))
    batches = _Batches(np.array([begin]), np.empty(rows, np.int32), *flags)
    heads, next_free = np.zeros(PAGES, np.int32), np.full(CPUS, -1, np.int32)
    last_task = np.zeros((CPUS, 3), np.int64)
    _find_batches(events, end, batches, heads, np.empty(rows, np.int32), next_free, last_task)
    return batches


def highest_type_by_gfp(machine: Machine) -> np.ndarray:
    """int8, shape (16,): the highest zone type allowed for each low gfp nibble (S2.2).

    A zone that the machine lacks degrades to Normal, and Normal to the highest populated one.
    """
    normal = machine.type_index("Normal")
    if normal < 0:
        normal = max(machine.type_index(zone.name) for zone in machine.zones if zone.managed)
    table = np.full(16, normal, np.int8)
    for nibble in range(16):
        name = ""
        if nibble & GFP_DMA:
            name = "DMA"
        elif nibble & GFP_DMA32:
            name = "DMA32"
        elif nibble & GFP_HIGHMEM:
            name = "Movable" if nibble & GFP_MOVABLE else "HighMem"
        if name and machine.type_index(name) >= 0:
            table[nibble] = machine.type_index(name)
    return table


def read_bits(trace: Trace) -> int:
    """Bits of a gfp word that the kernels read; bit 0x200 only where it is ATOMIC (S2.3)."""
    if "__GFP_ATOMIC" in trace.gfp_bits:
        return at.GFP_READ_BITS
    return at.GFP_READ_BITS & ~at.GFP_ATOMIC


MARK = np.dtype([("place", np.int64), ("bits", np.uint32)], align=True)
"""An event's place among the others and its CONTEXT_BITS, if it has any."""


def interrupted_holds(events: np.ndarray, marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Make events of the marks of interrupts.

    Returns:
        BEGIN_REQUEST and HOLD_DRAINED events in time order, each to stand before the interrupt's
        first event, those before a request with that request; int64, how many of `events` stand
        before each.
    """
    is_hold = marks["bits"] & np.uint32(at.AFTER_FREE | at.BEFORE_REQUEST) != 0
    cpu = events["cpu"][marks["place"]]
    # of a row that became several events the first one's
    goes_on = is_hold[1:] & is_hold[:-1] & (cpu[1:] == cpu[:-1]) & (np.diff(marks["place"]) == 1)
    is_hold[1:] &= ~goes_on
    places, bits = marks["place"][is_hold], marks["bits"][is_hold]
    holds = new_events(at.HOLD_DRAINED, len(places), bits=at.INTERRUPTS_HOLDER)
    for name in ("time_ns", "cpu"):
        holds[name] = events[name][places]
    before = np.flatnonzero(bits & np.uint32(at.BEFORE_REQUEST))
    following = np.full(len(before), -1)
    _find_requests(events, marks, places[before], following)
    requests = events[following]
    holds["operation"][before] = at.BEGIN_REQUEST
    for name in ("order", "migratetype", "zone"):
        holds[name][before] = requests[name]
    holds["bits"][before] = requests["bits"] & np.uint32(~at.INTERRUPTS_HOLDER & 0xFFFFFFFF)
    return holds, places


@entry
def _find_requests(
    events: np.ndarray, marks: np.ndarray, places: np.ndarray, following: np.ndarray
) -> None:
    """Find the next request on each one's CPU that is not an interrupt's.

    It comes after the frees of what was live where it was served (T10.3).
    """
    first = 0
    for number in range(len(places)):
        row = places[number]
        while first < len(marks) and marks[first]["place"] < row:
            first += 1
        mark = first
        while row < len(events) and following[number] < 0:
            while mark < len(marks) and marks[mark]["place"] < row:
                mark += 1
            bits = 0
            if mark < len(marks) and marks[mark]["place"] == row:
                bits = int(marks[mark]["bits"])
            kind = events[row]["operation"]
            is_request = kind == at.ALLOC or kind == at.RECORDED_FAILURE
            is_request &= bits & at.IN_INTERRUPT == 0
            if is_request and events[row]["cpu"] == events[places[number]]["cpu"]:
                following[number] = row
            row += 1


_REALTIME_OPTIONS = ("-r", "--realtime")
_RECORDER = "perf"


def realtime_tasks(recording: Recording) -> frozenset[int]:
    """Thread ids of the recorder, if it was started with a realtime priority.

    No event tells a task's scheduling class; of the recorder the command line does.
    """
    command = [str(word) for word in recording.meta.get("perf") or ()]
    if not any(word.split("=")[0] in _REALTIME_OPTIONS for word in command):
        return frozenset()
    comms = recording.trace.comms
    return frozenset(pid for pid, comm in comms.items() if comm == _RECORDER)


def with_reserve(gfp: np.ndarray) -> np.ndarray:
    """Words (gfp) of a realtime task's requests: those that may reclaim count as __GFP_HIGH ones.

    The kernel gives both the same allocation flag, and reads it from nowhere else. What an
    interrupt asks for in the task's name may not reclaim.

    Args:
        gfp: uint32.
    """
    may_reclaim = gfp & np.uint32(at.GFP_DIRECT_RECLAIM) != 0
    return np.where(may_reclaim, gfp | np.uint32(at.GFP_HIGH), gfp)
