"""Recorded allocations and frees as rows for matching, freed of what is recorded twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.demand.direct_reclaim import DirectReclaims
from pagealloc_model.predicted.demand.elastic_rows import ElasticRequests, ElasticRows
from pagealloc_model.predicted.demand.realtime_tasks import with_reserve
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

GFP_DMA, GFP_HIGHMEM, GFP_DMA32, GFP_MOVABLE = 0x1, 0x2, 0x4, 0x8
GFP_KERNEL = 0xCC0
GFP_ACCOUNT = 0x400000

BATCH_NS = 10_000_000
"""Time within which a folio batch that frees a page puts it on its list; it frees 31 at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PartRows:
    """Rows of a part of a trace, without what only the parts before and behind it tell.

    Attributes:
        rows: `objects.ROW` records; `task_request` is right but for those in `unknown`.
        unknown: int64, rows whose task on their CPU had asked for nothing before in this part.
        tasks: int64, the tasks on CPUs that the part has, thread id and CPU in one number.
        of_unknown: int64, which of the tasks each unknown row is of.
        last_request: int64 by task: row of the trace of its last allocation in this part, or -1.
        charged: int64, rows that are failures of requests charged to a group.
        outside: events whose pages lie in no zone of the machine, or are no buddy.
        recorded_twice: events that repeat the one before them to the nanosecond.
        requests: what an elastic replay wants to know of requests.
    """

    rows: np.ndarray
    unknown: np.ndarray
    tasks: np.ndarray
    of_unknown: np.ndarray
    last_request: np.ndarray
    charged: np.ndarray
    outside: int
    recorded_twice: int
    requests: ElasticRequests | None


class RowMaker:
    """Makes rows of the allocations and frees of a trace that lie inside the machine's zones."""

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
        self._trace, self._machine = trace, machine
        self._hidden_migratetype = hidden_migratetype
        self._reclaims = reclaims
        self._zone_of_gfp = highest_type_by_gfp(machine)
        self._read_bits = np.uint32(read_bits(trace))

    def part(self, part: slice) -> PartRows:
        """Make the rows of a part of the trace; parts can be made at the same time.

        Raises:
            UsageError: an event is of a CPU or migratetype the machine does not have.
        """
        trace, machine = self._trace, self._machine
        wanted = np.flatnonzero(trace.event[part] <= Event.FREE) + part.start
        is_again = self._repeats_the_one_before(wanted)
        seen = wanted[~is_again]
        pfn, order = trace.pfn[seen], trace.order[seen].astype(np.int64)
        failed = (pfn == -1) & (trace.event[seen] == Event.ALLOC)
        inside = (failed | _within_zones(machine, pfn, order)) & (order >= 0)
        inside &= order <= machine.max_order
        kept = seen[inside]
        _check_requests(trace, kept, machine)
        rows = np.zeros(len(kept), resolved.ROW)
        self._fill(rows, kept, *_of_batches(trace, part, kept))
        requests = None if self._elastic is None else self._elastic.mark(rows, kept)
        tasks, code = _tasks(trace.pid[kept], trace.cpu[kept])
        unknown, last_request = _fill_requests(rows, tasks, code)
        is_charged = (rows["pfn"] == -1) & (rows["is_free"] == 0)
        is_charged &= trace.gfp[kept] & np.uint32(GFP_ACCOUNT) != 0
        return PartRows(
            rows=rows,
            unknown=unknown,
            tasks=tasks,
            of_unknown=code[unknown],
            last_request=last_request,
            charged=np.flatnonzero(is_charged),
            outside=len(seen) - len(kept),
            recorded_twice=int(is_again.sum()),
            requests=requests,
        )

    def last_charged(self) -> int:
        """Return the last row of the trace that is a failure charged to a group, -1 for none."""
        trace, last = self._trace, -1
        for part in parts(len(trace)):
            failed = np.flatnonzero(trace.pfn[part] == -1) + part.start
            failed = failed[trace.event[failed] == Event.ALLOC]
            failed = failed[trace.gfp[failed] & np.uint32(GFP_ACCOUNT) != 0]
            last = int(failed[-1]) if len(failed) else last
        return last

    def _repeats_the_one_before(self, events: np.ndarray) -> np.ndarray:
        """Whether an event is its CPU's preceding one once more, of the same nanosecond (bool).

        Of what lies before the first event, only that of its nanosecond matters.
        """
        if not len(events):
            return np.zeros(0, bool)
        trace = self._trace
        first = int(events[0])
        begin = int(np.searchsorted(trace.time_ns[:first], trace.time_ns[first]))
        earlier = np.flatnonzero(trace.event[begin:first] <= Event.FREE) + begin
        together = np.concatenate([earlier, events])
        by_cpu = together[np.argsort(trace.cpu[together], kind="stable")]
        times = trace.time_ns[by_cpu]
        places = np.flatnonzero(times[1:] == times[:-1])
        before, again = by_cpu[places], by_cpu[places + 1]
        same = trace.pfn[again] >= 0
        for name in ("cpu", "event", "pfn", "order", "pid", "gfp"):
            column = getattr(trace, name)
            same &= column[before] == column[again]
        found = np.zeros(len(together), bool)
        found[np.searchsorted(together, again[same])] = True
        return found[len(earlier) :]

    def _fill(
        self, rows: np.ndarray, kept: np.ndarray, batched: np.ndarray, interrupting: np.ndarray
    ) -> None:
        """Fill in what each event says by itself, and what its folio batch does."""
        trace = self._trace
        gfp = trace.gfp[kept]
        pid = trace.pid[kept]
        if len(self._realtime):
            of_realtime = np.isin(pid, self._realtime)
            gfp = np.where(of_realtime, with_reserve(gfp), gfp)
        rows["row"] = kept
        rows["pfn"] = trace.pfn[kept]
        rows["cpu"] = trace.cpu[kept]
        rows["pid"] = pid
        rows["order"] = trace.order[kept]
        frees = trace.event[kept] == Event.FREE
        rows["is_free"] = frees
        rows["migratetype"] = np.where(frees, self._hidden_migratetype, trace.migratetype[kept])
        rows["zone"] = self._zone_of_gfp[gfp & np.uint32(15)]
        bits = np.where(frees, np.uint32(GFP_KERNEL & at.GFP_READ_BITS), gfp & self._read_bits)
        bits[batched] |= np.uint32(at.FREED_IN_BATCH)
        bits[interrupting] |= np.uint32(at.INTERRUPTS_HOLDER)
        bits[trace.in_interrupt[kept] > 0] |= np.uint32(at.IN_INTERRUPT)
        rows["bits"] = bits
        self._mark_reclaims(rows, kept)

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


def _tasks(pid: np.ndarray, cpu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tasks on CPUs there are, as int64, and which of them each event is of."""
    task = (pid.astype(np.int64) << 16) | cpu.astype(np.int64)
    # a task does many things in a row, and few of them sort faster
    begins = np.flatnonzero(np.diff(task, prepend=task[:1] - 1))
    tasks, inverse = np.unique(task[begins], return_inverse=True)
    lengths = np.diff(begins, append=len(task))
    return tasks, np.repeat(inverse, lengths)


def _fill_requests(
    rows: np.ndarray, tasks: np.ndarray, code: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fill in each free's last earlier allocation of its task on its CPU, as far as a part tells.

    Args:
        rows: of the part.
        tasks: the tasks.
        code: which of them each row is of.

    Returns:
        Rows of which it does not tell, and the last allocation of each task: row of the trace.
    """
    # numbers of 16 bits are sorted by counting
    narrow = code.astype(np.uint16) if len(tasks) < 1 << 16 else code
    by_task = np.argsort(narrow, kind="stable")
    sorted_code = narrow[by_task]
    is_request = rows["is_free"][by_task] == 0
    latest = np.maximum.accumulate(np.where(is_request, np.arange(len(rows)), -1))
    starts = np.flatnonzero(np.diff(sorted_code.astype(np.int64), prepend=-1))
    lengths = np.diff(starts, append=len(rows))
    last_request = np.full(len(tasks), -1, np.int64)
    if not len(rows):
        return np.zeros(0, np.int64), last_request
    last = latest[starts + lengths - 1]
    asked = last >= starts
    last_request[asked] = rows["row"][by_task[last[asked]]]
    is_known = latest >= np.repeat(starts, lengths)
    rows["task_request"][by_task[is_known]] = rows["row"][by_task[latest[is_known]]]
    return by_task[~is_known], last_request


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
