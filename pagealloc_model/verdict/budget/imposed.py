"""What a recording tells of the kernel's own decisions, put into its demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.initial import maximal_buddies
from pagealloc_model.measured.probes import zone_drains
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.predicted.demand.compaction_demand import as_requests, zone_of_page
from pagealloc_model.predicted.demand.event_order import merged
from pagealloc_model.predicted.growth import grown_demand
from pagealloc_model.predicted.prepared import Imposed, Prepared
from pagealloc_model.predicted.start.start_counts import start_counts
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.zone_map import ZoneMap
from pagealloc_model.verdict.choices.recorded_moves import recorded_moves
from pagealloc_model.verdict.choices.true_start import true_start

if TYPE_CHECKING:
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.snapshot import Snapshot

_DRAIN_PROBE = "pa:drain_zone"
_BULK_FREE_PROBE = "pa:pcp_bulk_free"
_RELEASE_PROBE = "pa:ha_unreserve"
_REMOVALS = "kmem:mm_page_alloc_zone_locked"


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Something of the kernel's that a recording may tell, and a replay can be given.

    Attributes:
        name: one word, as tables name it.
        meaning: what is imposed.
        decided: whether the kernel decides it, and the model too; else it is information about
            the machine that the model cannot have.
        record: what to record so that it, or what it rests on, is known better.
        missing: why a recording does not tell it, "" if it does.
        put: put it into a recording made ready; what is given is not changed.
    """

    name: str
    meaning: str
    decided: bool
    record: str
    missing: Callable[[Recording], str]
    put: Callable[[Recording, Prepared], Prepared]


def imposed(recording: Recording, prepared: Prepared, truths: tuple[Truth, ...]) -> Imposed:
    """Put truths into a recording made ready: what is then replayed is no prediction.

    Args:
        recording: an opened bundle, with its answers.
        prepared: the same recording for a free-running replay; it stays as it is.
        truths: those that the recording tells.
    """
    for truth in truths:
        prepared = truth.put(recording, prepared)
    return Imposed(names=tuple(each.name for each in truths), prepared=prepared)


def in_recorded_zones(recording: Recording, prepared: Prepared) -> Prepared:
    """Let each request be served by the zone of its recorded page only (S3.1).

    The zone's own watermark tests stand; the slow path works as before.
    """
    demand = prepared.demand
    events = demand.events.copy()
    zone = zones_of_pages(prepared.machine, demand.objects["pfn"])
    operations = {at.ALLOC: at.ALLOC_IN_ZONE, at.HIDDEN_ALLOC: at.HIDDEN_ALLOC_IN_ZONE}
    for operation, in_zone in operations.items():
        rows = np.flatnonzero(events["operation"] == operation)
        place = zone[events["object"][rows]]
        rows, place = rows[place >= 0], place[place >= 0]
        events["operation"][rows] = in_zone
        events["offset"][rows] = place
    return _with_events(prepared, events)


def zones_of_pages(machine: Machine, pfn: np.ndarray) -> np.ndarray:
    """Return the number of the populated zone of each page frame, int64; -1 for none."""
    numbers = np.full(len(pfn), -1)
    for number, zone in enumerate(machine.zones):
        if zone.managed:
            numbers[(pfn >= zone.start_pfn) & (pfn < zone.end_pfn)] = number
    return numbers


def without_compaction(prepared: Prepared) -> Prepared:
    """Take recorded compaction out of a demand: the reference that shows what it tells.

    What it took and an event frees later is an allocation that no event shows; the rest stays
    free. Captured requests are refilled like others.
    """
    demand = prepared.demand
    events = demand.events
    unfreed = (events["operation"] == at.ISOLATE_FREE) & (
        demand.objects["pfn"][np.maximum(events["object"], 0)] < 0
    )
    return _with_events(prepared, as_requests(events[~unfreed], prepared.machine))


def with_recorded_boosts(recording: Recording, prepared: Prepared) -> Prepared:
    """Set each zone's watermark boost to what a snapshot prints, at that instant (S1.7)."""
    machine = prepared.machine
    rows = [
        (snapshot.time_ns, machine.zone_index(zone.node, zone.name), zone.boost)
        for snapshot in recording.dated_snapshots
        for zone in (snapshot.zoneinfo.zones if snapshot.zoneinfo else ())
        if zone.boost is not None and snapshot.time_ns >= prepared.demand.first_ns
    ]
    found = np.array([row for row in rows if row[1] >= 0], np.int64).reshape(-1, 3)
    return _with_extra(prepared, at.SET_BOOST, found[:, 0], found[:, 1], found[:, 2])


def with_recorded_drains(recording: Recording, prepared: Prepared) -> Prepared:
    """Drain whole lists when the kernel did (S4.9), and only then; overflows stay the model's."""
    zoneinfo = next(each.zoneinfo for each in recording.dated_snapshots if each.zoneinfo)
    zones = ZoneMap.of(zoneinfo)
    found = zone_drains(allocator_stream(recording.trace, with_probes=True), zones)
    machine = prepared.machine
    numbers = np.array(
        [zone_of_page(machine, each.start_pfn or 0) for each in zones.zones], np.int64
    )
    zone = numbers[found.zone]
    known = (zone >= 0) & (found.drained >= 0) & (found.drained < machine.nr_cpus)
    known &= found.cpu < machine.nr_cpus
    known &= found.time_ns >= prepared.demand.first_ns
    drained = _with_extra(
        prepared,
        at.DRAIN_ZONE,
        found.time_ns[known],
        zone[known],
        found.drained[known],
        found.cpu[known],
    )
    return replace(drained, demand=replace(drained.demand, drains_recorded=True))


def with_recorded_releases(recording: Recording, prepared: Prepared) -> Prepared:
    """Release a reserved block when the kernel released one (S7.4), and only then.

    It is released for a movable request of a page, as the kernel's requests are that reclaim.
    """
    calls = recording.trace.tables.get(_RELEASE_PROBE, {})
    done = np.flatnonzero(np.asarray(calls.get("done", np.zeros(0, np.int64))) != 0)
    time_ns = np.asarray(calls.get("time_ns", np.zeros(0, np.int64)))[done]
    cpu = np.asarray(calls.get("cpu", np.zeros(0, np.int64)))[done]
    known = (time_ns >= prepared.demand.first_ns) & (cpu < prepared.machine.nr_cpus)
    highest = np.full(int(known.sum()), len(prepared.machine.zone_types) - 1)
    released = _with_extra(
        prepared,
        at.RELEASE_BLOCK,
        time_ns[known],
        highest,
        np.zeros(len(highest), np.int64),
        cpu[known],
        at.MOVABLE,
    )
    return replace(released, demand=replace(released.demand, releases_recorded=True))


def with_true_start(recording: Recording, prepared: Prepared) -> Prepared:
    """Begin with pages where the first event on each shows that they were (T10.6).

    The limits of per-CPU lists stay as calibrated, and so do types of blocks that no event shows.
    Of pages that only old flags show free, as many stay as the start snapshot has room for, given
    what was asked for and freed up to it.
    """
    machine = prepared.machine
    moves, first = recorded_moves(recording.trace, machine)
    early, snapshot = start_snapshots(recording)
    counts = start_counts(machine, snapshot, recording.trace, early)
    calibrated = prepared.image
    types = calibrated.block_types
    image = true_start(machine, moves, first, recording.flags_at_start, counts, types)
    at_start = prepared.demand.objects[prepared.demand.at_start]
    free = image.free & np.repeat(types >= 0, 1 << machine.pageblock_order)[: len(image.free)]
    untouched = first[: len(free)] == rec.NOTHING
    room = _pages_at_start(snapshot, prepared) - _pages_listed(machine, image.listed)
    pfns, orders = maximal_buddies(
        free & untouched, image.block_types, machine.pageblock_order, machine.max_order
    )
    small_first = np.argsort(orders, kind="stable")
    for number, zone in enumerate(machine.zones):
        excess = int(free[zone.start_pfn : zone.end_pfn].sum()) - int(room[number])
        mine = small_first[
            (pfns[small_first] >= zone.start_pfn) & (pfns[small_first] < zone.end_pfn)
        ]
        for pfn, order in zip(pfns[mine].tolist(), orders[mine].tolist(), strict=True):
            pages = min(1 << order, max(excess, 0))
            free[pfn : pfn + pages] = False
            excess -= pages
    image = replace(
        image,
        free=free,
        block_types=np.where(types < 0, types, image.block_types),
        pcp_high=calibrated.pcp_high,
        allocated_pfn=at_start["pfn"].astype(np.int32),
        allocated_order=at_start["order"].astype(np.int8),
        origin=("imposed: pages where their first event shows them", *image.origin),
    )
    demand = grown_demand(machine, prepared.demand, image.block_types)
    return replace(prepared, image=image, demand=demand)


def _pages_listed(machine: Machine, listed: np.ndarray) -> np.ndarray:
    """int64 by zone: pages on per-CPU lists, of `LISTED` records."""
    sizes = np.int64(1) << listed["order"].astype(np.int64)
    count = np.bincount(listed["zone"], weights=sizes, minlength=len(machine.zones))
    return count.astype(np.int64)


_TAKING = (
    at.ALLOC,
    at.HIDDEN_ALLOC,
    at.ALLOC_IN_ZONE,
    at.HIDDEN_ALLOC_IN_ZONE,
    at.CAPTURE,
    at.ISOLATE_FREE,
)


def _pages_at_start(snapshot: Snapshot, prepared: Prepared) -> np.ndarray:
    """int64 by zone: pages free or on lists at the first event, from the start snapshot.

    Less what was freed up to the snapshot, and more what was taken.
    """
    machine, demand = prepared.machine, prepared.demand
    pages = np.zeros(len(machine.zones), np.int64)
    for zone in snapshot.zoneinfo.zones if snapshot.zoneinfo else ():
        number = machine.zone_index(zone.node, zone.name)
        if number >= 0:
            pages[number] = zone.free + sum(each.count for each in zone.pagesets)
    events = demand.events[: np.searchsorted(demand.events["time_ns"], snapshot.time_ns)]
    taken = np.isin(events["operation"], _TAKING)
    moved = events[taken | (events["operation"] == at.FREE)]
    place = zones_of_pages(machine, demand.objects["pfn"][moved["object"]])
    unfreed = (place < 0) & (moved["operation"] == at.ISOLATE_FREE)
    place[unfreed] = moved["zone"][unfreed]
    sizes = np.int64(1) << moved["order"].astype(np.int64)
    sizes[moved["operation"] != at.FREE] *= -1
    known = place >= 0
    net = np.bincount(place[known], weights=sizes[known], minlength=len(pages))
    return pages - net.astype(np.int64)


def _with_extra(
    prepared: Prepared,
    operation: int,
    time_ns: np.ndarray,
    zone: np.ndarray,
    offset: np.ndarray,
    cpu: np.ndarray | None = None,
    migratetype: int = 0,
) -> Prepared:
    """The recording with more events of one kind, each before others of its time."""
    extra = np.zeros(len(time_ns), at.EVENT)
    extra["operation"] = operation
    extra["object"] = -1
    extra["time_ns"] = time_ns
    extra["zone"] = zone
    extra["offset"] = offset
    extra["cpu"] = 0 if cpu is None else cpu
    extra["migratetype"] = migratetype
    ranks = np.zeros(len(extra), np.int64)
    return _with_events(prepared, merged(prepared.demand.events, extra, ranks, np.zeros))


def _with_events(prepared: Prepared, events: np.ndarray) -> Prepared:
    demand: Demand = replace(prepared.demand, events=events)
    return replace(prepared, demand=demand)


def _lacks_boosts(recording: Recording) -> str:
    zones = [z for each in recording.dated_snapshots if each.zoneinfo for z in each.zoneinfo.zones]
    if any(zone.boost is not None for zone in zones):
        return ""
    return "its snapshots print no boost"


def _lacks_drains(recording: Recording) -> str:
    tables, asked = recording.trace.tables, recording.meta.get("perf") or ()
    for name in (_DRAIN_PROBE, _BULK_FREE_PROBE):
        if name not in tables and name not in asked:
            return f"no {name}"
    return ""


def _lacks_releases(recording: Recording) -> str:
    asked = recording.meta.get("perf") or ()
    shown = _RELEASE_PROBE in recording.trace.tables or _RELEASE_PROBE in asked
    return "" if shown else f"no {_RELEASE_PROBE}"


def _lacks_start(recording: Recording) -> str:
    if recording.flags_at_start is None:
        return "no kpageflags"
    asked = recording.meta.get("perf") or ()
    shown = np.any(recording.trace.percpu_refill >= 0) or _REMOVALS in asked
    return "" if shown else f"no {_REMOVALS}"


TRUTHS = (
    Truth(
        name="zone",
        meaning="each request is served by the zone of its recorded page",
        decided=True,
        record="free pages and boosts of each zone at shorter intervals (record --interval 0.1), "
        "on which the zone rests",
        missing=lambda _: "",
        put=in_recorded_zones,
    ),
    Truth(
        name="drains",
        meaning="whole lists are drained when the kernel drained them (pa:drain_zone), and only "
        "then",
        decided=True,
        record="kprobes (record --probes, as root), compaction:* and vmscan:* events, which tell "
        "who drains",
        missing=_lacks_drains,
        put=with_recorded_drains,
    ),
    Truth(
        name="room",
        meaning="a block reserved for atomic requests is released when the kernel released one "
        "(pa:ha_unreserve), and only then",
        decided=True,
        record="kprobes (record --probes, as root), which tell when a retry after direct reclaim "
        "found nothing",
        missing=_lacks_releases,
        put=with_recorded_releases,
    ),
    Truth(
        name="boosts",
        meaning="watermark boosts are set to what each snapshot prints, at its instant",
        decided=True,
        record="zoneinfo of a kernel that prints boosts, at shorter intervals (record --interval "
        "0.1)",
        missing=_lacks_boosts,
        put=with_recorded_boosts,
    ),
    Truth(
        name="start",
        meaning="pages are at the start where their first event shows them",
        decided=False,
        record="kpageflags and page_owner just before the first event (as root)",
        missing=_lacks_start,
        put=with_true_start,
    ),
)
"""What can be imposed."""
