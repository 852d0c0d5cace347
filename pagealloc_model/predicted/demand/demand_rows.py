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
from pagealloc_model.predicted.demand.direct_reclaim import DirectReclaims
from pagealloc_model.predicted.demand.elastic_rows import ElasticRows
from pagealloc_model.predicted.demand.realtime_tasks import with_reserve
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

GFP_DMA, GFP_HIGHMEM, GFP_DMA32, GFP_MOVABLE = 0x1, 0x2, 0x4, 0x8
GFP_KERNEL = 0xCC0
GFP_ACCOUNT = 0x400000

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
        self._trace, self._machine = trace, machine
        self._hidden_migratetype = hidden_migratetype
        self._reclaims = reclaims
        self._zone_of_gfp = highest_type_by_gfp(machine)
        self._read_bits = np.uint32(read_bits(trace))
        self._code_of_task: dict[int, int] = {}
        self._request_of_task = np.zeros(0, np.int32)
        self._last_events = np.zeros(0, np.int64)
        self._last_rows = np.zeros(0, np.int64)
        demanded = (np.count_nonzero(trace.event[part] <= Event.FREE) for part in parts(len(trace)))
        self.rows = new_array(sum(demanded), resolved.ROW)
        self.filled = self.outside = self.recorded_twice = 0

    def add(self, part: slice) -> None:
        """Append the rows of a part of the trace."""
        trace, machine = self._trace, self._machine
        wanted = np.flatnonzero(trace.event[part] <= Event.FREE) + part.start
        is_again = self._repeats_the_one_before(wanted)
        seen = wanted[~is_again]
        pfn, order = trace.pfn[seen], trace.order[seen].astype(np.int64)
        failed = (pfn == -1) & (trace.event[seen] == Event.ALLOC)
        inside = (failed | _within_zones(machine, pfn, order)) & (order >= 0)
        inside &= order <= machine.max_order
        kept = seen[inside]
        self.outside += len(seen) - len(kept)
        self.recorded_twice += int(is_again.sum())
        _check_requests(trace, kept, machine)
        self._batched, self._interrupting = _of_batches(trace, part, kept)
        first, self.filled = self.filled, self.filled + len(kept)
        self._fill(self.rows[first : self.filled], kept)
        self._fill_requests(first)
        self._mark_failed_charges(first, trace.gfp[kept])

    def _repeats_the_one_before(self, events: np.ndarray) -> np.ndarray:
        """Whether an event is its CPU's preceding one once more, of the same nanosecond (bool)."""
        trace = self._trace
        together = np.concatenate([self._last_events, events])
        by_cpu = together[np.argsort(trace.cpu[together], kind="stable")]
        self._last_events = _last_of_each(trace.cpu[together], together)
        times = trace.time_ns[by_cpu]
        places = np.flatnonzero(times[1:] == times[:-1])
        before, again = by_cpu[places], by_cpu[places + 1]
        same = trace.pfn[again] >= 0
        for name in ("cpu", "event", "pfn", "order", "pid", "gfp"):
            column = getattr(trace, name)
            same &= column[before] == column[again]
        found = np.zeros(len(together), bool)
        found[np.searchsorted(together, again[same])] = True
        return found[len(together) - len(events) :]

    def _fill(self, rows: np.ndarray, kept: np.ndarray) -> None:
        """Fill in what each event says by itself."""
        trace = self._trace
        gfp = trace.gfp[kept]
        if len(self._realtime):
            of_realtime = np.isin(trace.pid[kept], self._realtime)
            gfp = np.where(of_realtime, with_reserve(gfp), gfp)
        rows["time_ns"] = trace.time_ns[kept]
        rows["pfn"] = trace.pfn[kept]
        rows["cpu"] = trace.cpu[kept]
        rows["is_free"] = trace.event[kept] == Event.FREE
        rows["order"] = trace.order[kept]
        rows["migratetype"] = trace.migratetype[kept]
        rows["bits"] = gfp & self._read_bits
        rows["zone"] = self._zone_of_gfp[gfp & np.uint32(15)]
        rows["failed_charge"] = 0
        frees = rows["is_free"] == 1
        rows["migratetype"][frees] = self._hidden_migratetype
        rows["bits"][frees] = GFP_KERNEL & at.GFP_READ_BITS
        rows["bits"][self._batched] |= at.FREED_IN_BATCH
        rows["bits"][self._interrupting] |= at.INTERRUPTS_HOLDER
        rows["bits"][trace.in_interrupt[kept] > 0] |= at.IN_INTERRUPT
        self._mark_reclaims(rows, kept)
        rows["task"] = self._tasks(trace.pid[kept], trace.cpu[kept])
        if self._elastic is not None:
            self._elastic.mark(rows, kept)

    def _tasks(self, pid: np.ndarray, cpu: np.ndarray) -> np.ndarray:
        """Return the number of each event's task and CPU: those not seen before, in their order."""
        task = (pid.astype(np.int64) << 16) | cpu.astype(np.int64)
        # a task does many things in a row, and few of them sort faster
        begins = np.flatnonzero(np.diff(task, prepend=task[:1] - 1))
        tasks, inverse = np.unique(task[begins], return_inverse=True)
        known = self._code_of_task
        codes = [known.setdefault(each, len(known)) for each in tasks.tolist()]
        lengths = np.diff(begins, append=len(task))
        return np.repeat(np.array(codes, np.int32)[inverse], lengths)

    def _mark_reclaims(self, rows: np.ndarray, kept: np.ndarray) -> None:
        """Give requests for which direct reclaim ran the number of its last run."""
        if not len(kept):
            return
        part = slice(*np.searchsorted(self._reclaims.row, [kept[0], kept[-1] + 1]))
        requests, numbers = self._reclaims.row[part], self._reclaims.number[part]
        place = np.flatnonzero(np.isin(kept, requests))
        number = numbers[np.searchsorted(requests, kept[place])]
        rows["bits"][place] |= (number << at.RECLAIM_SHIFT).astype(np.uint32)

    def _fill_requests(self, first: int) -> None:
        """Fill in each row's last earlier row of the same task that is an allocation."""
        rows = self.rows[first : self.filled]
        new_tasks = len(self._code_of_task) - len(self._request_of_task)
        last = np.concatenate([self._request_of_task, np.full(new_tasks, -1, np.int32)])
        rows["task_request"] = _last_request(rows, first, last)
        requests = np.flatnonzero(rows["is_free"] == 0)
        last[rows["task"][requests]] = first + requests
        self._request_of_task = last

    def _mark_failed_charges(self, first: int, gfp: np.ndarray) -> None:
        """Mark frees that precede the failure of the same request, which they stand for (T2)."""
        rows = self.rows
        together = np.concatenate([self._last_rows, np.arange(first, self.filled)])
        cpus = rows["cpu"][together]
        by_cpu = together[np.argsort(cpus, kind="stable")]
        self._last_rows = _last_of_each(cpus, together)
        free, failure = by_cpu[:-1], by_cpu[1:]
        is_one = (failure >= first) & (rows["pfn"][failure] == -1)
        free, failure = free[is_one], failure[is_one]
        is_one = (rows["is_free"][free] == 1) & (rows["is_free"][failure] == 0)
        is_one &= gfp[failure - first] & np.uint32(GFP_ACCOUNT) != 0
        for name in ("task", "order"):
            is_one &= rows[name][free] == rows[name][failure]
        free, failure = free[is_one], failure[is_one]
        rows["failed_charge"][free] = 1
        for name in ("migratetype", "bits", "zone"):
            rows[name][free] = rows[name][failure]
        rows["bits"][free] &= ~np.uint32(at.REQUEST_RECLAIMED)


def _last_of_each(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The last value of each key, ascending."""
    _, from_end = np.unique(keys[::-1], return_index=True)
    return np.sort(values[len(values) - 1 - from_end])


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


def _last_request(rows: np.ndarray, first: int, before: np.ndarray) -> np.ndarray:
    """Each row's last earlier row of the same task that is an allocation, -1 if none.

    Args:
        rows: of one part; the number of the first one is `first`.
        first: rows before these.
        before: int32 by task, the same as of this part's beginning.
    """
    number = np.arange(len(rows))
    tasks = rows["task"]
    # numbers of 16 bits are sorted by counting
    narrow = tasks.astype(np.uint16) if tasks.max(initial=0) < 1 << 16 else tasks
    by_task = np.argsort(narrow, kind="stable")
    request = np.where(rows["is_free"][by_task] == 0, number[by_task], -1)
    starts = np.flatnonzero(np.diff(rows["task"][by_task], prepend=-1))
    latest = np.maximum.accumulate(np.where(request >= 0, np.arange(len(rows)), -1))
    begin = np.repeat(starts, np.diff(np.append(starts, len(rows))))
    here = first + request[np.maximum(latest, 0)]
    result = np.empty(len(rows), np.int32)
    result[by_task] = np.where(latest >= begin, here, before[rows["task"][by_task]])
    return result


def read_bits(trace: Trace) -> int:
    """Bits of a gfp word that the kernels read; bit 0x200 only where it is ATOMIC (S2.3)."""
    if "__GFP_ATOMIC" in trace.gfp_bits:
        return at.GFP_READ_BITS
    return at.GFP_READ_BITS & ~at.GFP_ATOMIC


def _of_batches(trace: Trace, part: slice, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of a part a folio batch freed, and which interrupt a batch of their CPU (T3).

    A batch prepares all its pages, then puts one after the other on a list under one lock. What
    its CPU allocates or frees between two of those in the name of the same task is an interrupt's
    (S4.10); another task runs there only while the batch has let go of the lock (S4.7).

    Args:
        trace: the recording's events.
        part: the part.
        kept: its rows.

    Returns:
        Two bool arrays, one value per row kept.
    """
    first, last = trace.time_ns[part][0] - BATCH_NS, trace.time_ns[part][-1] + BATCH_NS
    begin = int(np.searchsorted(trace.time_ns, first, side="left"))
    end = int(np.searchsorted(trace.time_ns, last, side="right"))
    kinds = trace.event[begin:end]
    rows = np.flatnonzero((kinds == Event.FREE) | (kinds == Event.FREE_BATCHED)) + begin
    rows = rows[_by_page(trace.cpu[rows], trace.pfn[rows])]
    frees, puts = rows[:-1], rows[1:]
    same = (trace.pfn[frees] == trace.pfn[puts]) & (trace.cpu[frees] == trace.cpu[puts])
    soon = trace.time_ns[puts] - trace.time_ns[frees] <= BATCH_NS
    kinds = (trace.event[frees] == Event.FREE) & (trace.event[puts] == Event.FREE_BATCHED)
    frees, puts = frees[same & soon & kinds], puts[same & soon & kinds]
    is_freed = np.zeros(end - begin, bool)
    is_freed[frees - begin] = True
    is_batched = is_freed[kept - begin]
    if not len(puts):
        return is_batched, np.zeros(len(kept), bool)
    put_on = (trace.cpu[puts].astype(np.int64) << 40) | puts
    order = np.argsort(put_on)
    frees, puts, put_on = frees[order], puts[order], put_on[order]
    goes_on = np.append((put_on[1:] - put_on[:-1] < 1 << 39) & (frees[1:] < puts[:-1]), False)
    before = np.searchsorted(put_on, (trace.cpu[kept].astype(np.int64) << 40) | kept) - 1
    within = (before >= 0) & goes_on[before] & ~is_batched
    for column in (trace.cpu, trace.pid):
        within &= column[puts[before]] == column[kept]
    return is_batched, within


def _by_page(cpu: np.ndarray, pfn: np.ndarray) -> np.ndarray:
    """Return the stable order of events by CPU, then page: 16 bits at a time, by counting."""
    order = np.argsort(pfn.astype(np.uint16), kind="stable")
    for shift in (16, 32):
        higher = pfn >> shift
        if higher.any():
            order = order[np.argsort(higher.astype(np.uint16)[order], kind="stable")]
    return order[np.argsort(cpu[order], kind="stable")]


def _within_zones(machine: Machine, pfn: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Whether pages are an aligned run inside one populated zone."""
    size = np.int64(1) << np.clip(order, 0, machine.max_order)
    inside = np.zeros(len(pfn), bool)
    for zone in machine.zones:
        if zone.managed:
            inside |= (pfn >= zone.start_pfn) & (pfn + size <= zone.end_pfn)
    return inside & (pfn & (size - 1) == 0)


def _check_requests(trace: Trace, rows: np.ndarray, machine: Machine) -> None:
    """Refuse CPUs and migratetypes for which the model has no list."""
    cpus = trace.cpu[rows]
    strange = cpus[(cpus < 0) | (cpus >= machine.nr_cpus)]
    if len(strange):
        raise UsageError(
            f"{trace.source}: has events of CPU {strange[0]}, but zoneinfo at the start lists CPUs "
            f"0 to {machine.nr_cpus - 1}; record without bringing CPUs on- or offline"
        )
    types = trace.migratetype[rows][trace.event[rows] == Event.ALLOC]
    odd = types[(types < 0) | (types >= at.PCP_TYPES)]
    if len(odd):
        raise UsageError(
            f"{trace.source}: a request has migratetype {odd[0]}; requests have 0 to 2 (S2.1)"
        )
