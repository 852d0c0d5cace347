"""The requests of a recording to the allocator, without what the allocator answered.

A free-running replay sees requests and frees, when and where; recorded page frames serve as
identities of objects and for the start image only (T10.7). Allocations and frees are matched part
by part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator.objects import mark_interrupted
from pagealloc_model.base import arrays
from pagealloc_model.base.arrays import Column, filled, parts, working_arrays, working_directory
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.memo import Memo
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.bulk import bulk_allocations, bulk_calls, frees_after_calls
from pagealloc_model.predicted.demand.compaction import (
    Cluster,
    captured_requests,
    mark_captured,
    moved_clusters,
    recorded_compaction,
    take_isolated,
    without_moves,
)
from pagealloc_model.predicted.demand.elastic import (
    REQUEST_SEEN,
    ElasticRows,
    file_uses,
    tried_failures,
)
from pagealloc_model.predicted.demand.event_order import (
    HiddenAllocations,
    joined,
    merged,
    new_events,
    rows_where,
)
from pagealloc_model.predicted.demand.reclaim import DirectReclaims, direct_reclaims, kswapd_runs
from pagealloc_model.predicted.demand.rows import (
    GFP_HIGHMEM,
    GFP_MOVABLE,
    MARK,
    PartRows,
    RequestsOfTasks,
    RowMaker,
    highest_type_by_gfp,
    interrupted_holds,
    read_bits,
)
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Losses, Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand(Memo):
    """Resolved events and the objects they are about.

    Attributes:
        events: `layout.EVENT` records in time order.
        objects: `objects.OBJECT` records; `pfn` is where the kernel had put the object.
        missed_frees: pages of objects that were live where another was allocated (T10.3).
        split_frees: frees of part of an object (T10.1).
        hidden_allocations: objects freed twice without an allocation between (T10.2).
        hidden_over_losses: those between whose two frees events were lost.
        repeated_frees: frees by a task that had freed the same pages and asked for none since: not
            seen by the allocator (T3).
        isolated_pages: pages that compaction took from the free lists (T7).
        isolated_returned: those of them that a later event frees.
        isolated_unseen: those of them that only show in what compaction moved.
        captured: requests that compaction served past the free lists (S9.7).
        stayed_pages: pages that recorded compaction moved, in use throughout an elastic replay.
        moved_frees: frees of such pages elsewhere than where they were allocated (T10.14).
        unplaced_pages: pages that were in the page cache throughout, and are used (T10.15): page k
            is object -1 - k in uses.
        failed_charges: pages allocated unseen and freed at once, as a charge failed (T2).
        recorded_twice: events left out as they repeat the one before.
        grown_pages: pages of memory that the machine did not have at the start.
        outside: events whose pages lie in no zone of the machine, or are no buddy; left out.
        kswapd_recorded: kswapd's runs are events here, not the model's to decide.
        direct_reclaim_recorded: direct reclaim is marked on the requests it ran for.
        drains_recorded: drains of all lists are events here, not the model's to decide: imposed.
        releases_recorded: so are releases of blocks reserved for atomic requests: imposed.
        ticks_recorded: each CPU's vmstat ticks are events here, not assumed.
        leads: int32 by object: the failure it came in place of, -1 for none; empty but for an
            elastic replay.
        clusters: what recorded compaction moved together (T10.18), of a literal replay.
        by_orders: counts of what was asked for by other orders than recorded (S10.13).
        recorded: the events before that.
    """

    events: np.ndarray
    objects: np.ndarray
    missed_frees: int
    split_frees: int
    hidden_allocations: int
    hidden_over_losses: int
    repeated_frees: int
    failed_charges: int
    recorded_twice: int
    isolated_pages: int = 0
    isolated_returned: int = 0
    isolated_unseen: int = 0
    captured: int = 0
    stayed_pages: int = 0
    moved_frees: int = 0
    unplaced_pages: int = 0
    grown_pages: int = 0
    outside: int
    kswapd_recorded: bool
    direct_reclaim_recorded: bool
    drains_recorded: bool = False
    releases_recorded: bool = False
    ticks_recorded: bool = False
    leads: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    clusters: tuple[Cluster, ...] = ()
    by_orders: Mapping[str, int] = field(default_factory=dict)
    recorded: np.ndarray = field(default_factory=lambda: np.zeros(0, at.EVENT))

    @property
    def first_ns(self) -> int:
        """Time of the first allocation or free."""
        return int(self.events["time_ns"][0])

    @cached_property
    def at_start(self) -> np.ndarray:
        """Numbers of the objects that were live when the recording began (T10.2)."""
        kinds = self.objects["kind"]
        return rows_where(len(kinds), lambda part: kinds[part] == resolved.AT_START)

    @cached_property
    def fresh(self) -> np.ndarray:
        """Numbers of the objects whose pages were free when the recording began (T10.6)."""
        fresh = self.objects["fresh"]
        return rows_where(len(fresh), lambda part: fresh[part] == 1)

    @cached_property
    def first_allocations(self) -> np.ndarray:
        """`layout.EVENT` records: the allocations of those objects, in time order."""
        fresh = self.objects["fresh"]
        firsts = [self.events[:0]]
        for part in parts(len(self.events)):
            events = self.events[part]
            events = events[np.isin(events["operation"], (at.ALLOC, at.CAPTURE))]
            firsts.append(events[fresh[events["object"]] == 1])
        return np.concatenate(firsts)

    def starting_places(self) -> np.ndarray:
        """int32, where each object lives when a replay starts: -1 unless live at the start."""
        places = filled(working_arrays(len(self.events)), len(self.objects), -1, np.int32)
        places[self.at_start] = self.objects["pfn"][self.at_start]
        return places


class KnownStart(NamedTuple):
    """What a state file tells of the start: its instant, and the page frames on a list then.

    Attributes:
        time_ns: on the recording's clock.
        on_lists: bool by page frame: free, or on a per-CPU list.
    """

    time_ns: int
    on_lists: np.ndarray


def resolve_demand(
    trace: Trace,
    machine: Machine,
    assumptions: Assumptions | None = None,
    *,
    start: Snapshot | None = None,
    seed: int = 0,
    realtime: frozenset[int] = frozenset(),
    ticks: np.ndarray | None = None,
    known: KnownStart | None = None,
    progress: Report | None = None,
) -> Demand:
    """Match every free to its allocation.

    Of a long recording what it makes lies in files (see `working_arrays`).

    Args:
        trace: the recording's events.
        machine: its zones.
        assumptions: ours.
        start: the start snapshot, if taken during the recording: the limits it shows for per-CPU
            lists, which setting up the recording had moved, take effect at its time.
        seed: for how long a success lives that the recording did not have.
        realtime: thread ids of realtime tasks (S2.6).
        ticks: TICK events in time order, None where none were recorded. Those from before all
            other events are left out, but not those after a known start.
        known: the start's instant and free pages, where a state file tells them.
        progress: called with the share done, 0 to 1.

    Raises:
        UsageError: the trace has no mm_page_alloc or mm_page_free inside the machine's zones, or
            one of a CPU or migratetype that the machine does not have.
    """
    assumptions = assumptions or Assumptions()
    new_array = working_arrays(len(trace))
    reclaims = direct_reclaims(trace, is_start_known=known is not None)
    elastic = ElasticRows(trace) if assumptions.reclaim == "elastic" else None
    maker = RowMaker(trace, machine, assumptions.hidden_migratetype, reclaims, elastic, realtime)
    calls, pfns = bulk_calls(trace, machine)
    taken = frees_after_calls(trace, calls, pfns) if len(calls) else None
    resolution = ResolvedTrace(trace, machine, maker, progress, known, taken)
    others, hidden = resolution.events.values, resolution.hidden
    objects, clusters = resolution.objects.values, ()
    if len(calls):
        calls, hidden, objects = bulk_allocations(hidden, calls, pfns, objects)
    holds, hold_ranks = interrupted_holds(others, resolution.marks.values)
    # limits of every pageset of the start snapshot (S4.3, T12.3)
    limits = [
        (start.time_ns, machine.zone_index(zone.node, zone.name), pageset.cpu, pageset.high)
        for zone in (start.zoneinfo.zones if start and start.zoneinfo else ())
        for pageset in zone.pagesets
        if pageset.cpu < machine.nr_cpus and machine.zone_index(zone.node, zone.name) >= 0
    ]
    columns = zip(("time_ns", "zone", "cpu", "offset"), zip(*limits, strict=True), strict=False)
    beside = [new_events(at.SET_PCP_HIGH, len(limits), **dict(columns)), calls]
    reclaim = kswapd_runs(trace, machine)
    leads = np.zeros(0, np.int32)
    counts: dict[str, int] = {}
    if elastic is None:
        compaction = recorded_compaction(trace, machine)
        beside += [] if reclaims is None else [reclaim_events(trace, machine, reclaims)]
        beside += [] if reclaim is None else [reclaim]
        beside.append(compaction.drains)
        captured = captured_requests(trace, compaction.without_buddy)
        counts = {"captured": mark_captured(others, trace, captured)}
        if len(compaction.taken):
            isolated, unfreed, hidden, returned = take_isolated(
                compaction.taken, hidden, objects, machine
            )
            beside.append(isolated)
            objects = joined(objects, unfreed, new_array)
            counts |= {
                "isolated_pages": int(compaction.taken[:, 2].sum()),
                "isolated_returned": returned,
                "isolated_unseen": compaction.inferred,
            }
    else:
        if elastic.any_by_compaction:
            others, hidden, hold_ranks, counts = without_moves(
                others, hidden, hold_ranks, objects, new_array, _task_at(trace)
            )
        objects, leads, frees = tried_failures(
            resolution.requests.values, trace.time_ns, others, objects, seed, new_array
        )
        beside.append(frees)
        uses = None
        if assumptions.elastic is None or assumptions.elastic.file_uses:
            uses = file_uses(trace, resolution.alloc_rows.values, others, objects, new_array)
        if uses is not None:
            uses[0]["zone"] = highest_type_by_gfp(machine)[GFP_HIGHMEM | GFP_MOVABLE]
            beside.append(uses[0])
            counts["unplaced_pages"] = uses[1]
    if ticks is not None:
        earliest = (others[:1], *beside, holds, hidden.events)
        first_ns = min(int(each["time_ns"].min(initial=LATEST_NS)) for each in earliest)
        if known is not None:
            first_ns = known.time_ns
        beside.insert(0, ticks[ticks["time_ns"] >= first_ns])
    together = np.concatenate(beside)
    ranks = np.zeros(len(together), np.int64)
    extra = joined(joined(together, holds, new_array), hidden.events, new_array)
    ranks = joined(joined(ranks, hold_ranks, new_array), hidden.ranks, new_array)
    events = merged(others, extra, ranks, new_array, held=resolution.events)
    if elastic is None:
        clusters = moved_clusters(compaction.moved, events, objects)
    failed_charges = int(resolution.counts[resolved.COUNT_FAILED_CHARGE])
    return Demand(
        events=events,
        objects=objects,
        hidden_allocations=len(hidden.events) + len(calls) - failed_charges,
        hidden_over_losses=hidden_over_losses(hidden, trace.losses),
        **resolution.left_out,
        kswapd_recorded=reclaim is not None,
        direct_reclaim_recorded=reclaims is not None and len(reclaims.row) > 0,
        ticks_recorded=ticks is not None,
        leads=leads,
        clusters=clusters,
        **counts,
    )


LATEST_NS = np.iinfo(np.int64).max


def _task_at(trace: Trace) -> Callable[[np.ndarray], np.ndarray]:
    """Tasks, int64, of the first events at or after some times."""

    def task_at(time_ns: np.ndarray) -> np.ndarray:
        rows = np.minimum(np.searchsorted(trace.time_ns, time_ns), len(trace) - 1)
        return trace.pid[rows].astype(np.int64)

    return task_at


def reclaim_events(trace: Trace, machine: Machine, reclaims: DirectReclaims) -> np.ndarray:
    """RECLAIM_BEGIN and RECLAIM_IN_VAIN events, with the requests that the reclaims ran for."""

    def events(operation: int, which: np.ndarray, edge: str) -> np.ndarray:
        cpu = getattr(reclaims, f"{edge}_cpu")
        known = np.flatnonzero(which & (cpu >= 0) & (cpu < machine.nr_cpus))
        row, gfp = reclaims.row[known], trace.gfp[reclaims.row[known]]
        numbers = (reclaims.number[known] << at.RECLAIM_SHIFT).astype(np.uint32)
        return new_events(
            operation,
            len(row),
            time_ns=getattr(reclaims, f"{edge}_ns")[known],
            cpu=cpu[known],
            order=trace.order[row],
            migratetype=trace.migratetype[row],
            zone=highest_type_by_gfp(machine)[gfp & np.uint32(15)],
            bits=(gfp & np.uint32(read_bits(trace))) | numbers,
        )

    begins = events(at.RECLAIM_BEGIN, reclaims.number > 0, "begin")
    return np.concatenate([begins, events(at.RECLAIM_IN_VAIN, reclaims.in_vain, "end")])


def hidden_over_losses(hidden: HiddenAllocations, losses: Losses) -> int:
    """Hidden allocations between whose frees the recording lost events.

    Each stands midway between the two frees.
    """
    if not len(losses.count):
        return 0
    order = np.argsort(losses.start_ns)
    starts, ends = losses.start_ns[order], np.maximum.accumulate(losses.end_ns[order])
    count = 0
    for part in parts(len(hidden.freed_ns)):
        end = hidden.freed_ns[part]
        begin = 2 * hidden.events["time_ns"][part] - end
        before = np.searchsorted(starts, end, side="right") - 1
        count += int(((before >= 0) & (ends[np.maximum(before, 0)] >= begin)).sum())
    return count


def recorded_ticks(trace: Trace, meta: Mapping[str, object], machine: Machine) -> np.ndarray | None:
    """TICK events in time order; None if the recording has none."""
    table = trace.tables.get(tp.WORKQUEUE_EXECUTE_START)
    words = meta.get("perf")
    if table is None or not isinstance(words, list) or tp.TICK_FILTER not in words:
        return None
    time_ns, cpu = np.asarray(table["time_ns"]), np.asarray(table["cpu"])
    known = cpu < machine.nr_cpus
    ticks = new_events(at.TICK, int(known.sum()), time_ns=time_ns[known], cpu=cpu[known])
    return ticks if len(ticks) else None


_WITHOUT_MARKS = np.uint32(~at.CONTEXT_BITS & 0xFFFFFFFF)
_AT_A_TIME = 8
"""Parts whose rows are made at the same time, at most."""


class ResolvedTrace:
    """Events on objects: every free of a trace with its allocation.

    Rows live from when they are made until nothing that follows can change them.

    Attributes:
        events: column of `layout.EVENT` records in time order, but for hidden allocations.
        objects: column of `objects.OBJECT` records.
        requests: column of `elastic.REQUEST_SEEN` records, in time order.
        alloc_rows: column of int32, rows of the allocations where files are known.
        marks: column of `rows.MARK` records: the marks of interrupts that events had.
        counts: int64, `objects.COUNT_...`.
        outside: events whose pages lie in no zone of the machine, or are no buddy.
        recorded_twice: events that repeat the one before them to the nanosecond.
    """

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        maker: RowMaker,
        progress: Report | None = None,
        known: KnownStart | None = None,
        allocated_before: np.ndarray | None = None,
    ) -> None:
        """Match every free to its allocation.

        `allocated_before`: rows of frees whose pages are known to have been allocated since they
        were freed last, though no event shows it.
        """
        if len(trace) > resolved.LAST_ROW:
            raise UsageError(
                f"{trace.source}: has {len(trace)} events; a replay takes {resolved.LAST_ROW} at "
                "most, so trim the recording"
            )
        directory = working_directory(len(trace))
        expected = len(trace) + len(trace) // 8 + 4096
        self._trace = trace
        self._columns = resolved.SeenColumns(trace.time_ns, trace.pid, trace.cpu)
        self._has_interrupts = any((trace.in_interrupt[p] > 0).any() for p in parts(len(trace)))
        self._last_rows = np.full(machine.nr_cpus, -1)
        self._last_task = np.zeros(machine.nr_cpus, resolved.ROW)
        self._last_task["row"] = -1
        self._bursts = np.full((machine.nr_cpus, 2), -1)
        self._rows = Column(resolved.ROW, directory)
        self._marked = 0
        self._hidden = Column(at.EVENT, directory, expected >> 5)
        self._hidden_words = Column((np.int64, 2), directory, expected >> 5)
        self._frames = resolved.FramesSeen(
            np.zeros(machine.end_pfn, np.int32), np.zeros(machine.end_pfn, resolved.FREED)
        )
        if known is not None:
            # What is on a list there is as if it had been freed by no row.
            on_lists = known.on_lists[: machine.end_pfn]
            self._frames.last_free["time_ns"][: len(on_lists)][on_lists] = known.time_ns
            self._frames.last_free["row"][: len(on_lists)][on_lists] = resolved.BEFORE_ROWS
        self.events = Column(at.EVENT, directory, expected)
        self.objects = Column(resolved.OBJECT, directory, expected)
        self.requests = Column(REQUEST_SEEN, directory)
        self.alloc_rows = Column(np.int32, directory)
        self.marks = Column(MARK, directory)
        self.counts = np.zeros(resolved.COUNTS, np.int64)
        self.outside = self.recorded_twice = taken = 0
        tasks = RequestsOfTasks()
        for part, made in _made_ahead(maker, len(trace)):
            self.outside += made.outside
            self.recorded_twice += made.recorded_twice
            if made.requests is not None:
                self.requests.append(made.requests[0])
                self.alloc_rows.append(made.requests[1])
            before = len(self._rows.values)
            self._rows.append(made.rows)
            tasks.link(self._rows.values, before, trace.gfp, self._last_rows)
            if allocated_before is not None:
                new = self._rows.values[before:]
                allocated = np.isin(new["row"], allocated_before)
                # so no free of pages that a scan of compaction did not use (T3)
                new["task_request"][allocated] = new["row"][allocated]
            taken += len(made.rows)
            self._match(self._settled(awaits_charge=part.stop <= maker.last_charged))
            if progress is not None:
                progress(part.stop / len(trace))
        # rows that wait for what does not come are as they are
        self._match(len(self._rows.values))
        if not taken:
            raise UsageError(f"{trace.source}: no allocation or free inside the machine's zones")

    @property
    def hidden(self) -> HiddenAllocations:
        """Allocations that the trace does not show."""
        ranks, freed_ns = self._hidden_words.values.T
        return HiddenAllocations(events=self._hidden.values, ranks=ranks, freed_ns=freed_ns)

    @property
    def left_out(self) -> dict[str, int]:
        """Counts of what is left out or made up, by the names that `Demand` has for them."""
        return {
            "missed_frees": int(self.counts[resolved.COUNT_MISSED_FREE]),
            "split_frees": int(self.counts[resolved.COUNT_SPLIT_FREE]),
            "repeated_frees": int(self.counts[resolved.COUNT_REPEATED_FREE]),
            "failed_charges": int(self.counts[resolved.COUNT_FAILED_CHARGE]),
            "recorded_twice": self.recorded_twice,
            "outside": self.outside,
        }

    def _settled(self, *, awaits_charge: bool) -> int:
        """Count of the rows kept that nothing which follows can change."""
        rows = self._rows.values
        settled = len(rows)
        if awaits_charge:
            last = self._last_rows[self._last_rows >= 0]
            last = last[rows["is_free"][last] == 1]
            settled = min(settled, int(last.min(initial=settled)))
        if self._has_interrupts:
            mark_interrupted(
                rows, self._marked, settled, self._trace.time_ns, self._last_task, self._bursts
            )
            self._marked = settled
            open_bursts = self._bursts[self._bursts[:, 0] >= 0, 0]
            settled = min(settled, int(open_bursts.min(initial=settled)))
        return settled

    def _match(self, settled: int) -> None:
        """Make events of so many of the rows kept, and let go of these."""
        done, rows, counts = 0, self._rows.values, self.counts
        room = settled + settled // 8 + 4096
        while done < settled:
            columns = (self.events, self._hidden, self._hidden_words, self.objects)
            into = resolved.Resolved(*(column.room(room) for column in columns), counts)
            before, hidden_before = self.events.rows, self._hidden.rows
            done = resolved.resolve_objects(rows, done, settled, self._columns, self._frames, into)
            self.events.rows = int(counts[resolved.COUNT_EVENTS])
            self._hidden.rows = int(counts[resolved.COUNT_HIDDEN_EVENTS])
            self._hidden_words.rows = self._hidden.rows
            self.objects.rows = int(counts[resolved.COUNT_OBJECTS])
            # marks of interrupts are kept beside the events
            bits = self.events.values["bits"][before:]
            places = np.flatnonzero(bits & np.uint32(at.CONTEXT_BITS))
            marks = np.zeros(len(places), MARK)
            marks["place"], marks["bits"] = places + before, bits[places]
            self.marks.append(marks)
            bits[places] &= _WITHOUT_MARKS
            self._hidden.values["bits"][hidden_before:] &= _WITHOUT_MARKS
            room *= 2
        self._rows.drop(settled)
        self._marked -= settled
        for numbers in (self._last_rows, self._bursts):
            numbers[numbers >= 0] -= settled
        # Of a row that is settled only its being there could matter.
        np.maximum(self._last_rows, -1, out=self._last_rows)


def _made_ahead(maker: RowMaker, rows: int) -> Iterator[tuple[slice, PartRows]]:
    """Parts and their rows, in order; those that follow are made meanwhile.

    As several are worked on, a part is a fourth of what is otherwise worked on at a time.
    """
    at_a_time = min(len(os.sched_getaffinity(0)), _AT_A_TIME)
    step = max(arrays.ROWS_TOGETHER // 4, 1)
    with ThreadPoolExecutor(at_a_time) as threads:
        waiting: list[tuple[slice, Future[PartRows]]] = []
        for begin in range(0, rows, step):
            part = slice(begin, min(begin + step, rows))
            waiting.append((part, threads.submit(maker.part, part)))
            if len(waiting) > at_a_time:
                first, made = waiting.pop(0)
                yield first, made.result()
        for part, made in waiting:
            yield part, made.result()
