"""What a recording asked of the allocator, without what the allocator answered.

A free-running replay sees requests and frees, when and where; recorded page frames serve as
identities of objects and for the start image only (T10.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.demand_rows import demand_rows
from pagealloc_model.errors import UsageError
from pagealloc_model.machine import Machine
from pagealloc_model.policy import Assumptions
from pagealloc_model.snapshot import Snapshot
from pagealloc_model.trace.columns import Event, Losses, Trace

KSWAPD_NAP_NS = 100_000_000


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
        failed_charges: pages allocated unseen and freed at once, as a charge failed (T2).
        recorded_twice: events left out as they repeat the one before.
        grown_pages: pages of memory that the machine did not have at the start.
        outside: events whose pages lie in no zone of the machine, or are no buddy; left out.
        kswapd_recorded: kswapd's runs are events here, not the model's to decide.
        direct_reclaim_recorded: direct reclaim is marked on the requests it ran for.
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
    grown_pages: int = 0
    outside: int
    kswapd_recorded: bool
    direct_reclaim_recorded: bool

    @property
    def first_ns(self) -> int:
        """Time of the first allocation or free."""
        return int(self.events["time_ns"][0])

    @cached_property
    def at_start(self) -> np.ndarray:
        """Numbers of the objects that were live when the recording began (T10.2)."""
        return np.flatnonzero(self.objects["kind"] == resolved.AT_START)

    @cached_property
    def fresh(self) -> np.ndarray:
        """Numbers of the objects whose pages were free when the recording began (T10.6)."""
        return np.flatnonzero(self.objects["fresh"])

    def starting_places(self) -> np.ndarray:
        """int32, where each object lives when a replay starts: -1 unless live at the start."""
        places = np.full(len(self.objects), -1, np.int32)
        places[self.at_start] = self.objects["pfn"][self.at_start]
        return places


def resolve_demand(
    trace: Trace,
    machine: Machine,
    assumptions: Assumptions | None = None,
    *,
    start: Snapshot | None = None,
) -> Demand:
    """Match every free to its allocation.

    Args:
        trace: the recording's events.
        machine: its zones.
        assumptions: ours.
        start: the start snapshot, if taken during the recording: the limits it shows for per-CPU
            lists, which setting up the recording had moved, take effect at its time.

    Raises:
        UsageError: the trace has no mm_page_alloc or mm_page_free inside the machine's zones, or
            one of a CPU or migratetype that the machine does not have.
    """
    assumptions = assumptions or Assumptions()
    found = demand_rows(trace, machine, assumptions.hidden_migratetype)
    rows = found.rows
    reclaimed = requests_that_reclaimed(trace)
    rows["bits"][np.isin(found.trace_rows, reclaimed)] |= np.uint32(at.REQUEST_RECLAIMED)
    events, objects, counts = _resolve(rows, machine.end_pfn)
    reclaim = kswapd_runs(trace, machine)
    limits = _limits_found(machine, start)
    beside = [limits] if reclaim is None else [limits, reclaim]
    events = np.concatenate([*beside, events])
    events = events[np.argsort(events["time_ns"], kind="stable")]
    return Demand(
        events=events,
        objects=objects,
        missed_frees=int(counts[resolved.COUNT_MISSED_FREE]),
        split_frees=int(counts[resolved.COUNT_SPLIT_FREE]),
        hidden_allocations=int(counts[resolved.COUNT_HIDDEN_ALLOC]),
        hidden_over_losses=hidden_over_losses(events, trace.losses),
        repeated_frees=int(counts[resolved.COUNT_REPEATED_FREE]),
        failed_charges=int(counts[resolved.COUNT_FAILED_CHARGE]),
        recorded_twice=found.recorded_twice,
        outside=found.outside,
        kswapd_recorded=reclaim is not None,
        direct_reclaim_recorded=len(reclaimed) > 0,
    )


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


def requests_that_reclaimed(trace: Trace) -> np.ndarray:
    """Rows of the allocations on whose behalf direct reclaim ran: the task's next one after it."""
    ends = trace.tables.get("vmscan:mm_vmscan_direct_reclaim_end")
    if ends is None or not len(ends["row"]):
        return np.zeros(0, np.int64)
    allocations = np.flatnonzero(trace.event == Event.ALLOC)
    by_task = np.lexsort((allocations, trace.pid[allocations]))
    ranked = allocations[by_task]
    keys = (trace.pid[ranked].astype(np.int64) << 40) + ranked
    wanted = (np.asarray(ends["pid"]).astype(np.int64) << 40) + np.asarray(ends["row"])
    found = np.searchsorted(keys, wanted)
    found = found[found < len(ranked)]
    same = trace.pid[ranked[found]] == np.asarray(ends["pid"])[: len(found)]
    return np.unique(ranked[found[same]])


def kswapd_runs(trace: Trace, machine: Machine) -> np.ndarray | None:
    """Kswapd's recorded runs as KSWAPD_START and KSWAPD_STOP events; None if none were recorded.

    In a literal replay reclaim is the recording's, and so are the times at which it is active
    (S10.2). A run ends a nap before the node's kswapd sleeps (S10.3), or where its next one begins.

    Args:
        trace: the recording's events.
        machine: its nodes and zone types.

    Raises:
        UsageError: an event of a node that the machine does not have.
    """
    wakes = trace.tables.get("vmscan:mm_vmscan_kswapd_wake")
    sleeps = trace.tables.get("vmscan:mm_vmscan_kswapd_sleep")
    if wakes is None or sleeps is None or not len(wakes["time_ns"]):
        return None
    last = trace.demand_span_ns[1] + 1
    strange = np.setdiff1d(_nodes_of(wakes), machine.nodes)
    if len(strange):
        raise UsageError(
            f"{trace.source}: kswapd of node {strange[0]} woke, but zoneinfo at the start has no "
            "such node; record without bringing nodes on- or offline"
        )
    runs = [
        _runs_of_node(
            index,
            {name: np.asarray(column)[_nodes_of(wakes) == node] for name, column in wakes.items()},
            np.asarray(sleeps["time_ns"])[_nodes_of(sleeps) == node],
            len(machine.zone_types),
            last,
        )
        for index, node in enumerate(machine.nodes)
    ]
    together = np.concatenate(runs)
    return together[np.argsort(together["time_ns"], kind="stable")]


def _nodes_of(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Node numbers of kswapd's events."""
    return np.asarray(table["nid"], np.int64)


def _runs_of_node(
    index: int, wakes: Mapping[str, np.ndarray], sleeps: np.ndarray, zone_types: int, last: int
) -> np.ndarray:
    """One node's runs; those whose wake does not name its highest zone may use all zones."""
    starts = np.asarray(wakes["time_ns"])
    naps = sleeps - KSWAPD_NAP_NS
    following = np.append(starts[1:], last)[: len(starts)]
    slept = np.append(naps, last)[np.searchsorted(naps, starts)]
    runs = np.zeros(2 * len(starts), at.EVENT)
    runs["time_ns"][0::2] = starts
    runs["time_ns"][1::2] = np.maximum(np.minimum(following, slept), starts)
    runs["operation"][0::2] = at.KSWAPD_START
    runs["operation"][1::2] = at.KSWAPD_STOP
    runs["object"] = -1
    runs["offset"] = index
    highest = np.asarray(wakes.get("zid", np.full(len(starts), zone_types - 1)))
    runs["zone"][0::2] = np.clip(highest, 0, zone_types - 1)
    return runs


def hidden_over_losses(events: np.ndarray, losses: Losses) -> int:
    """Hidden allocations between whose frees the recording lost events.

    Args:
        events: resolved events; a hidden allocation stands midway between the two frees.
        losses: intervals in which events were dropped.
    """
    if not len(losses.count):
        return 0
    hidden = events[events["operation"] == at.HIDDEN_ALLOC]
    frees = events[events["operation"] == at.FREE]
    last = frees[np.argsort(frees["object"], kind="stable")]
    end = last["time_ns"][np.searchsorted(last["object"], hidden["object"])]
    begin = 2 * hidden["time_ns"] - end
    order = np.argsort(losses.start_ns)
    ends = np.maximum.accumulate(losses.end_ns[order])
    before = np.searchsorted(losses.start_ns[order], end, side="right") - 1
    return int(((before >= 0) & (ends[np.maximum(before, 0)] >= begin)).sum())


def _resolve(rows: np.ndarray, end_pfn: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    room = len(rows) + len(rows) // 8 + 4096
    while True:
        events = np.zeros(room, at.EVENT)
        objects = np.zeros(room, resolved.OBJECT)
        counts = np.zeros(resolved.COUNTS, np.int64)
        owner = np.zeros(end_pfn, np.int32)
        last_free = np.zeros(end_pfn, np.int32)
        done = resolved.resolve_objects(rows, owner, last_free, events, objects, counts)
        if done == len(rows):
            break
        room *= 2
    return (
        events[: counts[resolved.COUNT_EVENTS]],
        objects[: counts[resolved.COUNT_OBJECTS]],
        counts,
    )
