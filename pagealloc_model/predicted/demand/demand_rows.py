"""Recorded allocations and frees as rows for matching, freed of what is recorded twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.allocator.core.interrupted_rows import mark_interrupted
from pagealloc_model.base.column_space import NewArray
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.demand import row_filling as filling
from pagealloc_model.predicted.demand.direct_reclaim import DirectReclaims
from pagealloc_model.predicted.demand.elastic_rows import ElasticRows
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

GFP_DMA, GFP_HIGHMEM, GFP_DMA32, GFP_MOVABLE = 0x1, 0x2, 0x4, 0x8

BATCH_NS = 10_000_000
"""Time within which a folio batch that frees a page puts it on its list; it frees 31 at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DemandRows:
    """Rows in time order, and what was left out.

    Attributes:
        rows: `objects.ROW` records.
        outside: events whose pages lie in no zone of the machine, or are no buddy.
        recorded_twice: events that repeat the one before them to the nanosecond.
    """

    rows: np.ndarray
    outside: int
    recorded_twice: int


def demand_rows(
    trace: Trace,
    machine: Machine,
    hidden_migratetype: int,
    reclaims: DirectReclaims,
    new_array: NewArray,
    progress: Report | None = None,
    elastic: ElasticRows | None = None,
    realtime: frozenset[int] = frozenset(),
) -> DemandRows:
    """The allocations and frees of a trace that lie inside the machine's zones.

    Args:
        trace: the recording's events.
        machine: its zones.
        hidden_migratetype: type of allocations that the recording does not show.
        reclaims: direct reclaims, whose numbers mark the requests they ran for.
        new_array: makes the array of rows.
        progress: called with the share done, 0 to 1.
        elastic: adds what an elastic replay reads.
        realtime: thread ids of realtime tasks (S2.6).

    Raises:
        UsageError: there are none, or one is of a CPU or migratetype the machine does not have.
    """
    filler = _RowFiller(trace, machine, hidden_migratetype, reclaims, new_array, elastic, realtime)
    for part in parts(len(trace)):
        filler.add(part)
        if progress is not None:
            progress(part.stop / len(trace))
    if np.any(trace.in_interrupt > 0):
        cpus = machine.nr_cpus
        rows = filler.rows[: filler.filled]
        mark_interrupted(rows, np.full(cpus, -1), np.full((cpus, 2), -1))
    if not filler.filled:
        raise UsageError(f"{trace.source}: no allocation or free inside the machine's zones")
    return DemandRows(
        rows=filler.rows[: filler.filled],
        outside=filler.outside,
        recorded_twice=filler.recorded_twice,
    )


class _RowFiller:
    """Makes rows of one part of a trace after the other; carries what a part tells the next."""

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        hidden_migratetype: int,
        reclaims: DirectReclaims,
        new_array: NewArray,
        elastic: ElasticRows | None,
        realtime: frozenset[int],
    ) -> None:
        self._elastic = elastic
        self._realtime = np.array(sorted(realtime), np.int32)
        self._trace = trace
        self._reclaims = reclaims
        words = (machine.nr_cpus, machine.max_order, read_bits(trace), hidden_migratetype)
        self._machine = np.array(words, np.int64)
        spans = [(zone.start_pfn, zone.end_pfn) for zone in machine.zones if zone.managed]
        self._zones = np.ascontiguousarray(np.array(spans, np.int64).reshape(-1, 2).T)
        self._zone_of_gfp = highest_type_by_gfp(machine)
        self._last_event = np.full(filling.CPUS, -1)
        self._last_row = np.full(filling.CPUS, -1)
        self._tasks = _Tasks()
        self._counts = np.zeros(filling.COUNTS, np.int64)
        demanded = (np.count_nonzero(trace.event[part] <= Event.FREE) for part in parts(len(trace)))
        self.rows = new_array(sum(demanded), resolved.ROW)
        self.filled = 0

    @property
    def outside(self) -> int:
        """Events left out as their pages lie in no zone, or are no buddy."""
        return int(self._counts[filling.OUTSIDE])

    @property
    def recorded_twice(self) -> int:
        """Events left out as they repeat the one before them."""
        return int(self._counts[filling.TWICE])

    def add(self, part: slice) -> None:
        """Append the rows of a part of the trace."""
        first = self.filled
        kept = self._fill(part)
        self._check_requests()
        rows = self.rows[first : self.filled]
        self._mark_reclaims(rows, kept)
        if self._elastic is not None:
            self._elastic.mark(rows, kept)
        self._link_requests(first, kept)

    def _fill(self, part: slice) -> np.ndarray:
        """Fill in what each event says by itself; returns the rows' places in the trace."""
        trace = self._trace
        batches = _batches(trace, part)
        room = self.rows[self.filled : self.filled + part.stop - part.start]
        kept = np.empty(len(room), np.int64)
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
            self._last_event,
            room,
            kept,
            self._counts,
        )
        self.filled += int(self._counts[filling.FILLED])
        return kept[: self._counts[filling.FILLED]]

    def _check_requests(self) -> None:
        """Refuse CPUs and migratetypes for which the model has no list."""
        trace, counts = self._trace, self._counts
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

    def _link_requests(self, first: int, kept: np.ndarray) -> None:
        """Fill in each row's task and its last request, and mark failed charges."""
        trace, tasks = self._trace, self._tasks
        done = first
        while True:
            done = filling.link_requests(
                self.rows,
                done,
                self.filled,
                first,
                kept,
                trace.pid,
                trace.gfp,
                tasks.keys,
                tasks.codes,
                tasks.count,
                tasks.last_request,
                self._last_row,
            )
            if done == self.filled:
                break
            tasks.widen()


class _Tasks:
    """Codes of tasks by CPU, numbered as they are first seen, and each one's last request."""

    def __init__(self) -> None:
        self.count = np.zeros(1, np.int64)
        self._make(1 << 12)
        self.last_request = np.full(len(self.keys) // 2, -1, np.int32)

    def _make(self, places: int) -> None:
        self.keys = np.full(places, filling.NOBODY)
        self.codes = np.zeros(places, np.int32)

    def widen(self) -> None:
        """Make room for as many tasks again."""
        keys, codes, last = self.keys, self.codes, self.last_request
        self._make(2 * len(keys))
        filling.move_tasks(keys, codes, self.keys, self.codes)
        self.last_request = np.concatenate([last, np.full(len(last), -1, np.int32)])


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
    begin = int(np.searchsorted(trace.time_ns, first, side="left"))
    end = int(np.searchsorted(trace.time_ns, last, side="right"))
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
