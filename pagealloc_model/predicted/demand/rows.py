"""Recorded allocations and frees as rows for matching, and interrupts among them (T2, T3, T10.13).

Kernels fill the rows of a part of the trace; what is recorded twice, or lies outside the machine's
zones, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.base.arrays import NewArray, parts
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.jit import entry, inner
from pagealloc_model.measured.stream import CPUS
from pagealloc_model.predicted.demand.elastic import ElasticRequests, ElasticRows
from pagealloc_model.predicted.demand.reclaim import DirectReclaims
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


ALLOC, FREE, FREE_BATCHED = 0, 1, 2
"""Values of `Event`."""
GFP_KERNEL = 0xCC0
GFP_ACCOUNT = 0x400000

BATCH_NS = 10_000_000
"""Time within which a folio batch that frees a page puts it on its list; it frees 31 at most."""
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
    """

    begin: np.ndarray
    partner: np.ndarray
    goes_on: np.ndarray


@entry
def _find_batches(
    events: _Events,
    end: int,
    found: _Batches,
    heads: np.ndarray,
    before: np.ndarray,
    next_free: np.ndarray,
) -> None:
    """Find the frees that folio batches announced, and batches that went on after a page (T3)."""
    begin = found.begin[0]
    for row in range(begin, end):
        here = row - begin
        found.partner[here] = -1
        kind = events.event[row]
        if kind != FREE and kind != FREE_BATCHED:
            continue
        page = events.pfn[row]
        place = page & (PAGES - 1)
        if kind == FREE_BATCHED:
            earlier = int(heads[place]) - 1
            while (
                earlier >= 0 and events.time_ns[row] - events.time_ns[begin + earlier] <= BATCH_NS
            ):
                other = begin + earlier
                if events.pfn[other] == page and events.cpu[other] == events.cpu[row]:
                    if events.event[other] == FREE:
                        found.partner[here] = earlier
                        found.partner[earlier] = here
                    break
                earlier = int(before[earlier]) - 1
        before[here] = heads[place]
        heads[place] = here + 1
    for here in range(end - begin - 1, -1, -1):
        if events.event[begin + here] == FREE_BATCHED and found.partner[here] >= 0:
            cpu = int(events.cpu[begin + here]) & (CPUS - 1)
            found.goes_on[here] = 0 <= next_free[cpu] < here
            next_free[cpu] = found.partner[here]


@inner
def _is_again(events: _Events, row: int, earlier: int) -> bool:
    """Return whether an event is an earlier one once more, of the same nanosecond."""
    return (
        events.time_ns[row] == events.time_ns[earlier]
        and events.pfn[row] >= 0
        and events.pfn[row] == events.pfn[earlier]
        and events.event[row] == events.event[earlier]
        and events.order[row] == events.order[earlier]
        and events.pid[row] == events.pid[earlier]
        and events.gfp[row] == events.gfp[earlier]
        and events.cpu[row] == events.cpu[earlier]
    )


@inner
def _is_inside(page: int, order: int, max_order: int, zones: np.ndarray) -> bool:
    """Return whether pages are an aligned run, no larger than a buddy, inside one zone."""
    if order < 0 or order > max_order or page & ((1 << order) - 1):
        return False
    for zone in range(zones.shape[1]):
        if page >= zones[0, zone] and page + (1 << order) <= zones[1, zone]:
            return True
    return False


@inner
def _is_among(value: int, others: np.ndarray) -> bool:
    """Return whether a few numbers have one among them."""
    found = False
    for other in range(len(others)):
        found |= others[other] == value
    return found


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
    nr_cpus, max_order, read_bits, hidden_type = (
        limits.words[0],
        limits.words[1],
        limits.words[2],
        limits.words[3],
    )
    window = batches.begin[0]
    counts[FILLED], counts[STRANGE_CPU], counts[ODD_TYPE] = 0, -1, -1
    filled = 0
    for row in range(window, low):
        if events.event[row] == FREE_BATCHED and batches.partner[row - window] >= 0:
            last_put[int(events.cpu[row]) & (CPUS - 1)] = row - window
    for row in range(low, high):
        kind = events.event[row]
        here = int(events.cpu[row]) & (CPUS - 1)
        if kind > FREE:
            if kind == FREE_BATCHED and batches.partner[row - window] >= 0:
                last_put[here] = row - window
            continue
        earlier = last_event[here]
        last_event[here] = row
        if earlier >= 0 and _is_again(events, row, earlier):
            counts[TWICE] += 1
            continue
        size = int(events.order[row])
        failed = events.pfn[row] == -1 and kind == ALLOC and 0 <= size <= max_order
        if not failed and not _is_inside(events.pfn[row], size, max_order, limits.zones):
            counts[OUTSIDE] += 1
            continue
        if counts[STRANGE_CPU] < 0 and (events.cpu[row] < 0 or events.cpu[row] >= nr_cpus):
            counts[STRANGE_CPU] = row
        word = int(events.gfp[row])
        if word & at.GFP_DIRECT_RECLAIM and _is_among(events.pid[row], limits.realtime):
            word |= at.GFP_HIGH
        wanted_type = int(events.migratetype[row])
        bits = word & read_bits
        if kind == FREE:
            wanted_type, bits = hidden_type, GFP_KERNEL & at.GFP_READ_BITS
        elif counts[ODD_TYPE] < 0 and (wanted_type < 0 or wanted_type >= at.PCP_TYPES):
            counts[ODD_TYPE] = row
        put = int(last_put[here])
        if batches.partner[row - window] >= 0:
            bits |= at.FREED_IN_BATCH
        elif put >= 0 and batches.goes_on[put] and events.pid[window + put] == events.pid[row]:
            bits |= at.INTERRUPTS_HOLDER
        if events.in_interrupt[row] > 0:
            bits |= at.IN_INTERRUPT
        rows[filled]["row"] = row
        rows[filled]["pid"] = events.pid[row]
        rows[filled]["pfn"] = events.pfn[row]
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
    keys: np.ndarray, codes: np.ndarray, wider_keys: np.ndarray, wider_codes: np.ndarray
) -> None:
    """Enter all tasks of a table into a wider one.

    Args:
        keys: int64, task and CPU; NOBODY in places that are not used.
        codes: int32, as long.
        wider_keys: int64, a power of two long, filled with NOBODY.
        wider_codes: int32, as long.
    """
    for place in range(len(keys)):
        if keys[place] != NOBODY:
            there = _place_of(keys[place], wider_keys)
            wider_keys[there] = keys[place]
            wider_codes[there] = codes[place]


@entry
def _link_requests(
    rows: np.ndarray,
    low: int,
    high: int,
    gfp: np.ndarray,
    keys: np.ndarray,
    codes: np.ndarray,
    tasks: np.ndarray,
    last_request: np.ndarray,
    last_row: np.ndarray,
) -> int:
    """Fill in the last requests of tasks, and mark frees that stand for a failed charge (T2).

    Such a free precedes the failure of the same request on its CPU.
    """
    for row in range(low, high):
        here = int(rows[row]["cpu"])
        key = (int(rows[row]["pid"]) << 16) | here
        place = _place_of(key, keys)
        if keys[place] == NOBODY:
            if 2 * tasks[0] >= len(keys):
                return row
            keys[place] = key
            codes[place] = tasks[0]
            tasks[0] += 1
        code = int(codes[place])
        rows[row]["task_request"] = last_request[code]
        free = last_row[here]
        last_row[here] = row
        if int(rows[row]["is_free"]) == 1:
            continue
        number = int(rows[row]["row"])
        last_request[code] = number
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

_NEAR = 1 << 12
"""Rows within which others of about the same time are looked for first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PartRows:
    """Rows of a part of a trace, as far as the part tells.

    Attributes:
        rows: `objects.ROW` records; `task_request` is not filled in.
        outside: events whose pages lie in no zone of the machine, or are no buddy.
        recorded_twice: events that repeat the one before them to the nanosecond.
        requests: what an elastic replay wants to know of requests.
    """

    rows: np.ndarray
    outside: int
    recorded_twice: int
    requests: ElasticRequests | None


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
        reclaims: DirectReclaims,
        elastic: ElasticRows | None = None,
        realtime: frozenset[int] = frozenset(),
    ) -> None:
        """Take what all parts need.

        Args:
            trace: the recording's events.
            machine: its zones.
            hidden_migratetype: type of allocations that the recording does not show.
            reclaims: direct reclaims, whose numbers mark the requests they ran for.
            elastic: adds what an elastic replay reads.
            realtime: thread ids of realtime tasks (S2.6).
        """
        self._elastic = elastic
        self._trace = trace
        self._reclaims = reclaims
        spans = [(zone.start_pfn, zone.end_pfn) for zone in machine.zones if zone.managed]
        words = (machine.nr_cpus, machine.max_order, read_bits(trace), hidden_migratetype)
        self._limits = _Limits(
            words=np.array(words, np.int64),
            zones=np.ascontiguousarray(np.array(spans, np.int64).reshape(-1, 2).T),
            zone_of_gfp=highest_type_by_gfp(machine),
            realtime=np.array(sorted(realtime), np.int32),
        )
        self._events = _Events(*(getattr(trace, name) for name in _Events._fields))
        self.last_charged = _last_charged(trace)

    def part(self, part: slice) -> PartRows:
        """Make the rows of a part of the trace; parts can be made at the same time.

        Raises:
            UsageError: an event is of a CPU or migratetype the machine does not have.
        """
        room = np.zeros(part.stop - part.start, resolved.ROW)
        kept = np.empty(len(room), np.int64)
        counts = np.zeros(COUNTS, np.int64)
        last_put, last_event = np.full(CPUS, -1, np.int32), self._last_events(part.start)
        _fill_rows(
            self._events,
            part.start,
            part.stop,
            self._limits,
            _batches(self._events, part),
            last_put,
            last_event,
            room,
            kept,
            counts,
        )
        self._check_requests(counts)
        rows, kept = room[: counts[FILLED]], kept[: counts[FILLED]]
        self._mark_reclaims(rows, kept)
        return PartRows(
            rows=rows,
            outside=int(counts[OUTSIDE]),
            recorded_twice=int(counts[TWICE]),
            requests=None if self._elastic is None else self._elastic.mark(rows, kept),
        )

    def _last_events(self, first: int) -> np.ndarray:
        """Each CPU's last allocation or free before a row, if of the same nanosecond; -1 if not."""
        trace, last = self._trace, np.full(CPUS, -1)
        begin = _first_since(trace.time_ns, first, int(trace.time_ns[first]))
        earlier = np.flatnonzero(trace.event[begin:first] <= Event.FREE) + begin
        last[trace.cpu[earlier]] = earlier
        return last

    def _check_requests(self, counts: np.ndarray) -> None:
        """Refuse CPUs and migratetypes for which the model has no list."""
        trace = self._trace
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

    def _mark_reclaims(self, rows: np.ndarray, kept: np.ndarray) -> None:
        """Give requests for which direct reclaim ran the number of its last run."""
        if not len(kept):
            return
        part = slice(*np.searchsorted(self._reclaims.row, [kept[0], kept[-1] + 1]))
        requests, numbers = self._reclaims.row[part], self._reclaims.number[part]
        if not len(requests):
            return
        place = np.flatnonzero(np.isin(kept, requests))
        number = numbers[np.searchsorted(requests, kept[place])]
        rows["bits"][place] |= (number << at.RECLAIM_SHIFT).astype(np.uint32)


class RequestsOfTasks:
    """Tasks by CPU, numbered as they are first seen, and each one's last request."""

    def __init__(self) -> None:
        """Begin without any."""
        self._count = np.zeros(1, np.int64)
        self._make(1 << 12)
        self._last_request = np.full(len(self._keys) // 2, -1, np.int32)

    def link(self, rows: np.ndarray, first: int, gfp: np.ndarray, last_row: np.ndarray) -> None:
        """Fill in the last request before each row's, and mark failed charges.

        Args:
            rows: `objects.ROW` records.
            first: of these, the first to look at.
            gfp: uint32, the trace's.
            last_row: int64 by CPU, the last row before these, -1; changed.
        """
        done = first
        while True:
            words = (self._keys, self._codes, self._count, self._last_request)
            done = _link_requests(rows, done, len(rows), gfp, *words, last_row)
            if done == len(rows):
                break
            self._widen()

    def _make(self, places: int) -> None:
        self._keys = np.full(places, NOBODY)
        self._codes = np.zeros(places, np.int32)

    def _widen(self) -> None:
        """Make room for as many tasks again."""
        keys, codes, last = self._keys, self._codes, self._last_request
        self._make(2 * len(keys))
        move_tasks(keys, codes, self._keys, self._codes)
        self._last_request = np.concatenate([last, np.full(len(last), -1, np.int32)])


def _last_charged(trace: Trace) -> int:
    """Return the last row of a trace that is a failure charged to a group, -1 for none."""
    last = -1
    for part in parts(len(trace)):
        failed = np.flatnonzero(trace.pfn[part] == -1) + part.start
        failed = failed[trace.event[failed] == Event.ALLOC]
        failed = failed[trace.gfp[failed] & np.uint32(GFP_ACCOUNT) != 0]
        last = int(failed[-1]) if len(failed) else last
    return last


def _batches(events: _Events, part: slice) -> _Batches:
    """Which frees of a part a folio batch made, and which batches went on after a page (T3).

    A batch prepares all its pages, then puts one after the other on a list under one lock. What
    its CPU allocates or frees between two of those in the name of the same task is an interrupt's
    (S4.10); another task runs there only while the batch has let go of the lock (S4.7).
    """
    time_ns = events.time_ns
    # a put page that is followed was announced up to twice as long before
    begin = _first_since(time_ns, part.start, int(time_ns[part.start]) - 2 * BATCH_NS)
    end = _end_until(time_ns, part.stop, int(time_ns[part.stop - 1]) + BATCH_NS)
    rows = end - begin
    found = _Batches(np.array([begin]), np.empty(rows, np.int32), np.zeros(rows, np.int8))
    heads, next_free = np.zeros(PAGES, np.int32), np.full(CPUS, -1, np.int32)
    _find_batches(events, end, found, heads, np.empty(rows, np.int32), next_free)
    return found


def _first_since(time_ns: np.ndarray, row: int, since_ns: int) -> int:
    """Return the first row up to one that is not before a time; only rows near it are looked at."""
    step = _NEAR
    while step < row and time_ns[row - step] >= since_ns:
        step *= 2
    begin = max(row - step, 0)
    return begin + int(np.searchsorted(time_ns[begin:row], since_ns))


def _end_until(time_ns: np.ndarray, row: int, until_ns: int) -> int:
    """Return one past the last row, from one on, that is not after a time; looks at rows near."""
    step = _NEAR
    while row + step < len(time_ns) and time_ns[row + step] <= until_ns:
        step *= 2
    return row + int(np.searchsorted(time_ns[row : row + step], until_ns, side="right"))


def highest_type_by_gfp(machine: Machine) -> np.ndarray:
    """int8, shape (16,): the highest zone type allowed for each low gfp nibble (S2.2).

    A zone that the machine lacks degrades to Normal, and Normal to the highest populated one.
    """
    populated = [machine.type_index(zone.name) for zone in machine.zones if zone.managed]
    normal = machine.type_index("Normal")
    normal = normal if normal >= 0 else max(populated)
    wanted = {name: machine.type_index(name) for name in ("DMA", "DMA32", "HighMem", "Movable")}
    table = np.full(16, normal, np.int8)
    for nibble in range(16):
        name = ""
        if nibble & GFP_DMA:
            name = "DMA"
        elif nibble & GFP_DMA32:
            name = "DMA32"
        elif nibble & GFP_HIGHMEM:
            name = "Movable" if nibble & GFP_MOVABLE else "HighMem"
        if name and wanted[name] >= 0:
            table[nibble] = wanted[name]
    return table


def read_bits(trace: Trace) -> int:
    """Bits of a gfp word that the kernels read; bit 0x200 only where it is ATOMIC (S2.3)."""
    if "__GFP_ATOMIC" in trace.gfp_bits:
        return at.GFP_READ_BITS
    return at.GFP_READ_BITS & ~at.GFP_ATOMIC


_REQUESTS = (at.ALLOC, at.RECORDED_FAILURE)
"""What a request becomes, after the frees of what was live where it was served (T10.3)."""
_TOGETHER = 1 << 13
_NEAR_INTERRUPT = 64
"""Events behind a mark that are looked at one after the other."""

MARK = np.dtype([("place", np.int64), ("bits", np.uint32)], align=True)
"""An event's place among the others and its CONTEXT_BITS, if it has any."""


def interrupted_holds(
    events: np.ndarray, marks: np.ndarray, new_array: NewArray
) -> tuple[np.ndarray, np.ndarray]:
    """Make events of the marks of interrupts.

    Args:
        events: `layout.EVENT` records in time order, without their marks.
        marks: `MARK` records, ascending.
        new_array: makes the result.

    Returns:
        BEGIN_REQUEST and HOLD_DRAINED events in time order, each to stand before the interrupt's
        first event; int64, how many of `events` stand before that.
    """
    count = sum(len(_first_of_rows(marks, part, events)) for part in _near(len(marks)))
    places, holds = new_array(count, np.int64), new_array(count, at.EVENT)
    end = 0
    for part in _near(len(marks)):
        first = _first_of_rows(marks, part, events)
        begin, end = end, end + len(first)
        places[begin:end] = marks["place"][first]
        holds[begin:end] = _holds(events, marks, first)
    return holds, places


def _near(marks: int) -> Iterator[slice]:
    """Slices of so few marks that the events about them stay in memory meanwhile."""
    for begin in range(0, marks, _TOGETHER):
        yield slice(begin, min(begin + _TOGETHER, marks))


def _first_of_rows(marks: np.ndarray, part: slice, events: np.ndarray) -> np.ndarray:
    """Numbers of a part's marks of holds: of a row that became several events the first one's."""
    begin = max(part.start - 1, 0)
    own = marks[begin : part.stop]
    is_hold = own["bits"] & np.uint32(at.AFTER_FREE | at.BEFORE_REQUEST) != 0
    cpu = events["cpu"][own["place"]]
    goes_on = is_hold[1:] & is_hold[:-1] & (cpu[1:] == cpu[:-1]) & (np.diff(own["place"]) == 1)
    is_hold[1:] &= ~goes_on
    is_hold[: part.start - begin] = False
    return np.flatnonzero(is_hold) + begin


def _holds(events: np.ndarray, marks: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The events of some marks of holds; those that precede a request have that request."""
    places = marks["place"][first]
    holds = np.zeros(len(first), at.EVENT)
    holds["time_ns"] = events["time_ns"][places]
    holds["cpu"] = events["cpu"][places]
    holds["object"] = -1
    holds["operation"] = at.HOLD_DRAINED
    holds["bits"] = at.INTERRUPTS_HOLDER
    own = np.flatnonzero(marks["bits"][first] & np.uint32(at.BEFORE_REQUEST))
    following = _next_request(events, marks, places[own])
    for name in ("order", "migratetype", "zone"):
        holds[name][own] = events[name][following]
    bits = events["bits"][following]
    holds["bits"][own] = bits & np.uint32(~at.INTERRUPTS_HOLDER & 0xFFFFFFFF)
    holds["operation"][own] = at.BEGIN_REQUEST
    return holds


def _next_request(events: np.ndarray, marks: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the place of the next request on each one's CPU that is not an interrupt's (int64)."""
    found = np.full(len(places), -1, np.int64)
    cpus = events["cpu"][places]
    waiting = np.arange(len(places))
    for step in range(_NEAR_INTERRUPT):
        if not len(waiting):
            break
        near = places[waiting] + step
        waiting, near = waiting[near < len(events)], near[near < len(events)]
        is_next = _are_requests(events, marks, near, cpus[waiting])
        found[waiting[is_next]] = near[is_next]
        waiting = waiting[~is_next]
    for number in waiting.tolist():
        begin, step = int(places[number]) + _NEAR_INTERRUPT, _NEAR_INTERRUPT
        while found[number] < 0 and begin < len(events):
            near = np.arange(begin, min(begin + step, len(events)))
            is_next = _are_requests(events, marks, near, cpus[number])
            if is_next.any():
                found[number] = near[np.argmax(is_next)]
            begin, step = begin + step, min(2 * step, 1 << 16)
    return found


def _are_requests(
    events: np.ndarray, marks: np.ndarray, places: np.ndarray, cpus: np.ndarray | int
) -> np.ndarray:
    """Return whether events are requests on CPUs, and not an interrupt's (bool)."""
    is_one = (events["cpu"][places] == cpus) & np.isin(events["operation"][places], _REQUESTS)
    own = places[is_one]
    mark = np.minimum(np.searchsorted(marks["place"], own), max(len(marks) - 1, 0))
    in_interrupt = (marks["place"][mark] == own) & (
        marks["bits"][mark] & np.uint32(at.IN_INTERRUPT) != 0
    )
    is_one[is_one] = ~in_interrupt
    return is_one


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
