"""What a recording asked of the allocator, without what the allocator answered.

A free-running replay sees requests and frees, when and where; recorded page frames serve as
identities of objects and for the start image only (T10.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.base.arrays import NewArray, parts, working_arrays
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.compaction import (
    captured_requests,
    isolations,
    local_drains,
    mark_captured,
    take_isolated,
    without_moves,
)
from pagealloc_model.predicted.demand.elastic import (
    ElasticRows,
    file_uses,
    tried_failures,
    with_file_uses,
)
from pagealloc_model.predicted.demand.event_order import (
    HiddenAllocations,
    joined,
    merged_in_place,
)
from pagealloc_model.predicted.demand.reclaim import DirectReclaims, direct_reclaims, kswapd_runs
from pagealloc_model.predicted.demand.resolving import resolved_trace
from pagealloc_model.predicted.demand.rows import (
    GFP_HIGHMEM,
    GFP_MOVABLE,
    RowMaker,
    highest_type_by_gfp,
    interrupted_holds,
    read_bits,
)
from pagealloc_model.predicted.demand.sources import Cluster, moved_clusters
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Losses, Trace

if TYPE_CHECKING:
    from pagealloc_model.policy.policy import Assumptions
    from pagealloc_model.recording.machine import Machine
    from pagealloc_model.recording.trace.columns import Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand:
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

    @property
    def first_ns(self) -> int:
        """Time of the first allocation or free."""
        return int(self.events["time_ns"][0])

    @cached_property
    def at_start(self) -> np.ndarray:
        """Numbers of the objects that were live when the recording began (T10.2)."""
        return self._numbers("kind", resolved.AT_START)

    @cached_property
    def fresh(self) -> np.ndarray:
        """Numbers of the objects whose pages were free when the recording began (T10.6)."""
        return self._numbers("fresh", 1)

    @cached_property
    def first_allocations(self) -> np.ndarray:
        """`layout.EVENT` records: the allocations of those objects, in time order."""
        fresh = self.objects["fresh"]
        found = [self.events[:0]]
        for part in parts(len(self.events)):
            operation = self.events["operation"][part]
            places = np.flatnonzero((operation == at.ALLOC) | (operation == at.CAPTURE))
            places += part.start
            found.append(self.events[places[fresh[self.events["object"][places]] == 1]])
        return np.concatenate(found)

    def _numbers(self, field_name: str, value: int) -> np.ndarray:
        """int64, ascending: numbers of the objects of which a field has a value."""
        values = self.objects[field_name]
        found = [part.start + np.flatnonzero(values[part] == value) for part in parts(len(values))]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def starting_places(self) -> np.ndarray:
        """int32, where each object lives when a replay starts: -1 unless live at the start."""
        places = working_arrays(len(self.events))(len(self.objects), np.int32)
        places[:] = -1
        places[self.at_start] = self.objects["pfn"][self.at_start]
        return places


def resolve_demand(
    trace: Trace,
    machine: Machine,
    assumptions: Assumptions | None = None,
    *,
    start: Snapshot | None = None,
    seed: int = 0,
    realtime: frozenset[int] = frozenset(),
    ticks: np.ndarray | None = None,
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
            other events are left out.
        progress: called with the share done, 0 to 1.

    Raises:
        UsageError: the trace has no mm_page_alloc or mm_page_free inside the machine's zones, or
            one of a CPU or migratetype that the machine does not have.
    """
    assumptions = assumptions or Assumptions()
    new_array = working_arrays(len(trace))
    reclaims = direct_reclaims(trace)
    elastic = ElasticRows(trace) if assumptions.reclaim == "elastic" else None
    maker = RowMaker(trace, machine, assumptions.hidden_migratetype, reclaims, elastic, realtime)
    found = resolved_trace(trace, machine, maker, progress)
    others, hidden, objects, counts = found.events, found.hidden, found.objects, found.counts
    holds, hold_ranks = interrupted_holds(others, found.marks, new_array)
    reclaim = kswapd_runs(trace, machine)
    limits = _limits_found(machine, start)
    begins = _reclaim_begins(trace, machine, reclaims)
    beside = np.concatenate([limits, begins] if reclaim is None else [limits, begins, reclaim])
    leads = np.zeros(0, np.int32)
    compaction = {}
    if elastic is None:
        beside, hidden, objects, compaction = _with_compaction(
            trace, machine, others, beside, hidden, objects, new_array
        )
    else:
        if elastic.any_by_compaction:
            without = without_moves(others, hidden, hold_ranks, objects, new_array)
            others, hidden, hold_ranks = without.events, without.hidden, without.hold_ranks
            compaction = {"stayed_pages": without.stayed_pages, "moved_frees": without.moved_frees}
        tried = tried_failures(found.requests, trace.time_ns, others, objects, seed, new_array)
        objects, leads = tried.objects, tried.leads
        beside = np.concatenate([limits, tried.frees])
        if assumptions.elastic.file_uses:
            files = file_uses(trace, found.alloc_rows, others, objects, new_array)
            if files is not None:
                with_file_uses(others, files)
                files.uses["zone"] = highest_type_by_gfp(machine)[GFP_HIGHMEM | GFP_MOVABLE]
                beside = np.concatenate([beside, files.uses])
                compaction |= {"unplaced_pages": files.unplaced}
    if ticks is not None:
        first_ns = min(_first_ns(each) for each in (others[:1], beside, holds, hidden.events))
        beside = np.concatenate([ticks[ticks["time_ns"] >= first_ns], beside])
    events = merged_in_place(
        others,
        found.held,
        joined(joined(beside, holds, new_array), hidden.events, new_array),
        joined(
            joined(np.zeros(len(beside), np.int64), hold_ranks, new_array), hidden.ranks, new_array
        ),
        new_array,
    )
    return Demand(
        events=events,
        objects=objects,
        hidden_allocations=len(hidden.events) - int(counts[resolved.COUNT_FAILED_CHARGE]),
        hidden_over_losses=hidden_over_losses(hidden, trace.losses),
        **found.left_out,
        kswapd_recorded=reclaim is not None,
        direct_reclaim_recorded=len(reclaims.row) > 0,
        ticks_recorded=ticks is not None,
        leads=leads,
        clusters=moved_clusters(trace, events, objects) if elastic is None else (),
        **compaction,
    )


def _first_ns(events: np.ndarray) -> int:
    """The least time of events, later than all where there are none."""
    return int(events["time_ns"].min(initial=np.iinfo(np.int64).max))


def _with_compaction(
    trace: Trace,
    machine: Machine,
    events: np.ndarray,
    beside: np.ndarray,
    hidden: HiddenAllocations,
    objects: np.ndarray,
    new_array: NewArray,
) -> tuple[np.ndarray, HiddenAllocations, np.ndarray, dict[str, int]]:
    """Return what stands beside events, hidden allocations and objects, with compaction's.

    Captured requests are marked in `events`. The last value counts, by fields of `Demand`.
    """
    captured = mark_captured(events, trace, captured_requests(trace, machine))
    beside = np.concatenate([beside, local_drains(trace, machine)])
    found = isolations(trace, machine)
    if not len(found.pages):
        return beside, hidden, objects, {"captured": captured}
    taken = take_isolated(found, hidden, objects, machine)
    counts = {
        "captured": captured,
        "isolated_pages": found.total,
        "isolated_returned": taken.returned,
        "isolated_unseen": found.inferred,
    }
    objects = joined(objects, taken.objects, new_array)
    return np.concatenate([beside, taken.events]), taken.hidden, objects, counts


def _limits_found(machine: Machine, start: Snapshot | None) -> np.ndarray:
    """SET_PCP_HIGH events for every pageset of the start snapshot (S4.3, T12.3)."""
    zones = () if start is None or start.zoneinfo is None else start.zoneinfo.zones
    found = [
        (start.time_ns, machine.zone_index(zone.node, zone.name), pageset.cpu, pageset.high)
        for zone in zones
        for pageset in zone.pagesets
        if pageset.cpu < machine.nr_cpus and machine.zone_index(zone.node, zone.name) >= 0
    ]
    limits = np.zeros(len(found), at.EVENT)
    limits["operation"] = at.SET_PCP_HIGH
    limits["object"] = -1
    for index, (time_ns, zone, cpu, high) in enumerate(found):
        limits["time_ns"][index] = time_ns
        limits["zone"][index] = zone
        limits["cpu"][index] = cpu
        limits["offset"][index] = high
    return limits


def _reclaim_begins(trace: Trace, machine: Machine, reclaims: DirectReclaims) -> np.ndarray:
    """RECLAIM_BEGIN and RECLAIM_IN_VAIN events, with the requests that the reclaims ran for."""
    number = np.concatenate([reclaims.number, np.zeros_like(reclaims.vain_row)])
    row = np.concatenate([reclaims.row, reclaims.vain_row])
    gfp = trace.gfp[row]
    begins = np.zeros(len(row), at.EVENT)
    begins["time_ns"] = np.concatenate([reclaims.begin_ns, reclaims.vain_ns])
    begins["cpu"] = np.concatenate([reclaims.cpu, reclaims.vain_cpu])
    begins["operation"] = np.where(number > 0, at.RECLAIM_BEGIN, at.RECLAIM_IN_VAIN)
    begins["object"] = -1
    begins["order"] = trace.order[row]
    begins["migratetype"] = trace.migratetype[row]
    begins["zone"] = highest_type_by_gfp(machine)[gfp & np.uint32(15)]
    numbers = (number << at.RECLAIM_SHIFT).astype(np.uint32)
    begins["bits"] = (gfp & np.uint32(read_bits(trace))) | numbers
    return begins[(begins["cpu"] >= 0) & (begins["cpu"] < machine.nr_cpus)]


def hidden_over_losses(hidden: HiddenAllocations, losses: Losses) -> int:
    """Hidden allocations between whose frees the recording lost events.

    Args:
        hidden: each stands midway between the two frees.
        losses: intervals in which events were dropped.
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


TICK_EVENT = "workqueue:workqueue_execute_start"
TICK_FILTER = "function == vmstat_update"
"""As `pagealloc record` spells perf's filter in meta.json."""


def recorded_ticks(trace: Trace, meta: Mapping[str, object], machine: Machine) -> np.ndarray | None:
    """TICK events in time order; None if the recording has none.

    Args:
        trace: the recording's events.
        meta: meta.json: only the filter it names tells that the work is the tick's.
        machine: its CPUs.
    """
    table = trace.tables.get(TICK_EVENT)
    words = meta.get("perf")
    if table is None or not isinstance(words, list) or TICK_FILTER not in words:
        return None
    is_known = np.asarray(table["cpu"]) < machine.nr_cpus
    ticks = np.zeros(int(is_known.sum()), at.EVENT)
    ticks["time_ns"] = np.asarray(table["time_ns"])[is_known]
    ticks["cpu"] = np.asarray(table["cpu"])[is_known]
    ticks["operation"] = at.TICK
    ticks["object"] = -1
    return ticks if len(ticks) else None
