"""Recorded allocations and frees as rows for matching, freed of what is recorded twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.demand import row_filling as filling
from pagealloc_model.predicted.demand.direct_reclaim import DirectReclaims
from pagealloc_model.predicted.demand.elastic_rows import ElasticRequests, ElasticRows
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

GFP_DMA, GFP_HIGHMEM, GFP_DMA32, GFP_MOVABLE = 0x1, 0x2, 0x4, 0x8

_NEAR = 1 << 12
"""Rows within which others of about the same time are looked for first."""

BATCH_NS = 10_000_000
"""Time within which a folio batch that frees a page puts it on its list; it frees 31 at most."""


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
        self._realtime = np.array(sorted(realtime), np.int32)
        self._trace = trace
        self._reclaims = reclaims
        words = (machine.nr_cpus, machine.max_order, read_bits(trace), hidden_migratetype)
        self._machine = np.array(words, np.int64)
        spans = [(zone.start_pfn, zone.end_pfn) for zone in machine.zones if zone.managed]
        self._zones = np.ascontiguousarray(np.array(spans, np.int64).reshape(-1, 2).T)
        self._zone_of_gfp = highest_type_by_gfp(machine)
        self.last_charged = _last_charged(trace)

    def part(self, part: slice) -> PartRows:
        """Make the rows of a part of the trace; parts can be made at the same time.

        Raises:
            UsageError: an event is of a CPU or migratetype the machine does not have.
        """
        trace = self._trace
        batches = _batches(trace, part)
        room = np.zeros(part.stop - part.start, resolved.ROW)
        kept = np.empty(len(room), np.int64)
        counts = np.zeros(filling.COUNTS, np.int64)
        filling.fill_rows(
            trace.time_ns,
            trace.cpu,
            trace.pid,
            trace.event,
            trace.pfn,
            trace.order,
            trace.gfp,
            trace.migratetype,
            trace.in_interrupt,
            batches.begin,
            part.start,
            part.stop,
            self._machine,
            self._zones,
            self._zone_of_gfp,
            self._realtime,
            batches.partner,
            batches.goes_on,
            np.full(filling.CPUS, -1, np.int32),
            self._last_events(part.start),
            room,
            kept,
            counts,
        )
        self._check_requests(counts)
        rows, kept = room[: counts[filling.FILLED]], kept[: counts[filling.FILLED]]
        self._mark_reclaims(rows, kept)
        return PartRows(
            rows=rows,
            outside=int(counts[filling.OUTSIDE]),
            recorded_twice=int(counts[filling.TWICE]),
            requests=None if self._elastic is None else self._elastic.mark(rows, kept),
        )

    def _last_events(self, first: int) -> np.ndarray:
        """Each CPU's last allocation or free before a row, if of the same nanosecond; -1 if not."""
        trace, last = self._trace, np.full(filling.CPUS, -1)
        begin = _first_since(trace.time_ns, first, int(trace.time_ns[first]))
        earlier = np.flatnonzero(trace.event[begin:first] <= Event.FREE) + begin
        last[trace.cpu[earlier]] = earlier
        return last

    def _check_requests(self, counts: np.ndarray) -> None:
        """Refuse CPUs and migratetypes for which the model has no list."""
        trace = self._trace
        strange, odd = int(counts[filling.STRANGE_CPU]), int(counts[filling.ODD_TYPE])
        if strange >= 0:
            raise UsageError(
                f"{trace.source}: has events of CPU {trace.cpu[strange]}, but zoneinfo at the "
                f"start lists CPUs 0 to {self._machine[0] - 1}; record without bringing CPUs on- "
                "or offline"
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
            done = filling.link_requests(rows, done, len(rows), gfp, *words, last_row)
            if done == len(rows):
                break
            self._widen()

    def _make(self, places: int) -> None:
        self._keys = np.full(places, filling.NOBODY)
        self._codes = np.zeros(places, np.int32)

    def _widen(self) -> None:
        """Make room for as many tasks again."""
        keys, codes, last = self._keys, self._codes, self._last_request
        self._make(2 * len(keys))
        filling.move_tasks(keys, codes, self._keys, self._codes)
        self._last_request = np.concatenate([last, np.full(len(last), -1, np.int32)])


def _last_charged(trace: Trace) -> int:
    """Return the last row of a trace that is a failure charged to a group, -1 for none."""
    last = -1
    for part in parts(len(trace)):
        failed = np.flatnonzero(trace.pfn[part] == -1) + part.start
        failed = failed[trace.event[failed] == Event.ALLOC]
        failed = failed[trace.gfp[failed] & np.uint32(filling.GFP_ACCOUNT) != 0]
        last = int(failed[-1]) if len(failed) else last
    return last


@dataclass(frozen=True, kw_only=True, eq=False)
class _Batches:
    """Folio batches of a window of a trace, as `row_filling.find_batches` finds them.

    Attributes:
        begin: the window's first row.
        partner: int32 by row of the window: the other row of a free and its put, -1 for none.
        goes_on: int8 by row: whether the batch of a put page had announced the next one before.
    """

    begin: int
    partner: np.ndarray
    goes_on: np.ndarray


def _batches(trace: Trace, part: slice) -> _Batches:
    """Which frees of a part a folio batch made, and which batches went on after a page (T3).

    A batch prepares all its pages, then puts one after the other on a list under one lock. What
    its CPU allocates or frees between two of those in the name of the same task is an interrupt's
    (S4.10); another task runs there only while the batch has let go of the lock (S4.7).

    Args:
        trace: the recording's events.
        part: the part.
    """
    # a put page that is followed was announced up to twice as long before
    first, last = trace.time_ns[part][0] - 2 * BATCH_NS, trace.time_ns[part][-1] + BATCH_NS
    begin = _first_since(trace.time_ns, part.start, int(first))
    end = _end_until(trace.time_ns, part.stop, int(last))
    window = slice(begin, end)
    found = _Batches(
        begin=begin,
        partner=np.empty(end - begin, np.int32),
        goes_on=np.zeros(end - begin, np.int8),
    )
    filling.find_batches(
        trace.time_ns[window],
        trace.cpu[window],
        trace.event[window],
        trace.pfn[window],
        BATCH_NS,
        np.zeros(filling.PAGES, np.int32),
        np.empty(end - begin, np.int32),
        found.partner,
        found.goes_on,
        np.full(filling.CPUS, -1, np.int32),
    )
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
