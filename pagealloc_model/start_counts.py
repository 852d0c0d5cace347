"""What the start's snapshots count: free buddies, pageblocks and free pages by zone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.errors import UsageError
from pagealloc_model.machine import Machine
from pagealloc_model.snapshot import Snapshot
from pagealloc_model.trace.columns import Event, Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class StartCounts:
    """What the state files say about the start, as arrays.

    Attributes:
        free_buddies: int64, shape (zones, orders, migratetypes); None without pagetypeinfo.
        blocks: int64, shape (zones, migratetypes); None without pagetypeinfo.
        free_pages: int64, shape (zones,): free pages, those on per-CPU lists included.
        time_ns: when the start snapshot was taken.
    """

    free_buddies: np.ndarray | None
    blocks: np.ndarray | None
    free_pages: np.ndarray
    time_ns: int


def start_counts(machine: Machine, snapshot: Snapshot, trace: Trace) -> StartCounts:
    """The start snapshot's counts, its free pages carried back to the first event.

    Setting a recording up allocates the ring buffers, so a snapshot from before the first event
    is off by them; the first one taken during the recording is not, and what was allocated and
    freed until then is known.

    Args:
        machine: zones and migratetypes.
        snapshot: the start snapshot; its zoneinfo is there.
        trace: the recording's events.

    Raises:
        UsageError: the snapshot has a zone that the machine has not.
    """
    totals = np.zeros(len(machine.zones), np.int64)
    until = int(np.searchsorted(trace.time_ns, snapshot.time_ns))
    event = trace.event[:until]
    sizes = np.where(event == Event.FREE, 1, np.where(event == Event.ALLOC, -1, 0))
    sizes = sizes * (1 << trace.order[:until].astype(np.int64))
    pfn = trace.pfn[:until]
    for each in snapshot.zoneinfo.zones:
        index = machine.zone_index(each.node, each.name)
        if index < 0:
            raise UsageError(
                f"{snapshot.directory}: zone {each.name} is not in the snapshot before the first "
                "event; take out the snapshot that is not of this recording"
            )
        zone = machine.zones[index]
        inside = (pfn >= zone.start_pfn) & (pfn < zone.end_pfn)
        listed = sum(pageset.count for pageset in each.pagesets)
        totals[index] = each.free + listed - int(sizes[inside].sum())
    buddies, blocks = _typed_counts(machine, snapshot)
    return StartCounts(
        free_buddies=buddies, blocks=blocks, free_pages=totals, time_ns=snapshot.time_ns
    )


def _typed_counts(
    machine: Machine, snapshot: Snapshot
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Free buddies and blocks by zone and type, None for both without pagetypeinfo."""
    tables = snapshot.pagetypeinfo
    if tables is None:
        return None, None
    buddies = np.zeros((len(machine.zones), at.ORDERS, at.MIGRATETYPES), np.int64)
    blocks = np.zeros((len(machine.zones), at.MIGRATETYPES), np.int64)
    types = list(tables.migratetypes)
    for row in tables.free_lists:
        zone = machine.zone_index(row.node, row.zone)
        buddies[zone, : len(row.buddies), types.index(row.migratetype)] = row.buddies
    for row in tables.pageblocks:
        blocks[machine.zone_index(row.node, row.zone), : len(row.blocks)] = row.blocks
    return buddies, blocks


def pageset_values(machine: Machine, snapshot: Snapshot | None, field: str) -> np.ndarray:
    """One value of every pageset, int64, shape (zones, cpus); 0 where there is none.

    Args:
        machine: zones and CPUs.
        snapshot: whose zoneinfo is read; None: the machine's own pagesets.
        field: "count" or "high".
    """
    values = np.zeros((len(machine.zones), machine.nr_cpus), np.int64)
    if snapshot is None:
        zones = machine.zones
    else:
        zones = snapshot.zoneinfo.zones if snapshot.zoneinfo else ()
    for zone in zones:
        for pageset in zone.pagesets:
            if pageset.cpu < machine.nr_cpus:
                index = machine.zone_index(zone.node, zone.name)
                values[index, pageset.cpu] = getattr(pageset, field)
    return values
