"""What the start's snapshots count: free buddies, pageblocks and free pages by zone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.demand.compaction_demand import isolations
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Event, Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class StartCounts:
    """What the state files say about the start, as arrays.

    Attributes:
        free_buddies: int64, shape (zones, orders, migratetypes): of the snapshot whose free pages
            are nearer to `free_pages`, zone by zone; None without pagetypeinfo.
        other_buddies: the same of the other snapshot of the start.
        blocks: int64, shape (zones, migratetypes), of the same snapshots; None without
            pagetypeinfo.
        free_pages: int64, shape (zones,): free pages, those on per-CPU lists included.
        time_ns: when the start snapshot was taken.
    """

    free_buddies: np.ndarray | None
    other_buddies: np.ndarray | None
    blocks: np.ndarray | None
    free_pages: np.ndarray
    time_ns: int


def start_counts(
    machine: Machine, snapshot: Snapshot, trace: Trace, early: Snapshot | None = None
) -> StartCounts:
    """The start snapshot's counts, its free pages carried back to the first event.

    Setting a recording up allocates the ring buffers, so a snapshot from before the first event
    is off by them; the first one taken during the recording is not, and what was allocated,
    freed and taken by compaction until then is known. Free lists are those of the snapshot that is
    nearer in pages.

    Args:
        machine: zones and migratetypes.
        snapshot: the start snapshot; its zoneinfo is there.
        trace: the recording's events.
        early: the last one before the first event, if another one.

    Raises:
        UsageError: the snapshot has a zone that the machine has not.
    """
    totals = _free_pages(machine, snapshot)
    until = int(np.searchsorted(trace.time_ns, snapshot.time_ns))
    for part in parts(until):
        totals -= _pages_freed(machine, trace, part)
    taken = isolations(trace, machine)
    is_early = taken.time_ns < snapshot.time_ns
    np.add.at(totals, taken.zone[is_early], taken.pages[is_early])
    buddies, blocks = _typed_counts(machine, snapshot)
    others = buddies
    if early is not None and early.pagetypeinfo is not None:
        others, early_blocks = _typed_counts(machine, early)
        is_nearer = np.abs(_free_pages(machine, early) - totals) < np.abs(
            _free_pages(machine, snapshot) - totals
        )
        if buddies is None or blocks is None:
            buddies, blocks = others, early_blocks
        else:
            nearer = is_nearer[:, None, None]
            buddies, others = np.where(nearer, others, buddies), np.where(nearer, buddies, others)
            blocks = np.where(is_nearer[:, None], early_blocks, blocks)
    return StartCounts(
        free_buddies=buddies,
        other_buddies=others,
        blocks=blocks,
        free_pages=totals,
        time_ns=snapshot.time_ns,
    )


def _pages_freed(machine: Machine, trace: Trace, part: slice) -> np.ndarray:
    """Pages freed less those allocated in a part of a trace, int64, shape (zones,)."""
    event, pfn = trace.event[part], trace.pfn[part]
    sizes = np.where(event == Event.FREE, 1, np.where(event == Event.ALLOC, -1, 0))
    sizes = sizes * (1 << trace.order[part].astype(np.int64))
    freed = np.zeros(len(machine.zones), np.int64)
    for index, zone in enumerate(machine.zones):
        inside = (pfn >= zone.start_pfn) & (pfn < zone.end_pfn)
        freed[index] = int(sizes[inside].sum())
    return freed


def _free_pages(machine: Machine, snapshot: Snapshot) -> np.ndarray:
    """Free pages by zone with those on per-CPU lists, int64, shape (zones,).

    Raises:
        UsageError: the snapshot has a zone that the machine has not.
    """
    totals = np.zeros(len(machine.zones), np.int64)
    for each in snapshot.zoneinfo.zones if snapshot.zoneinfo else ():
        index = machine.zone_index(each.node, each.name)
        if index < 0:
            raise UsageError(
                f"{snapshot.directory}: zone {each.name} of node {each.node} is not in the "
                "snapshot before the first event; take out the snapshot that is not of this "
                "recording"
            )
        totals[index] = each.free + sum(pageset.count for pageset in each.pagesets)
    return totals


def _typed_counts(
    machine: Machine, snapshot: Snapshot
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Free buddies and blocks by zone and type, None for what no file says.

    Only root may read pagetypeinfo: where there is buddyinfo alone, all buddies count as Movable.
    Where the kernel stopped counting a list, buddyinfo, which counts all types together, says how
    much it left out.
    """
    tables = snapshot.pagetypeinfo
    if tables is None:
        return _untyped_counts(machine, snapshot), None
    buddies = np.zeros((len(machine.zones), at.ORDERS, at.MIGRATETYPES), np.int64)
    blocks = np.zeros((len(machine.zones), at.MIGRATETYPES), np.int64)
    capped = np.zeros(buddies.shape, bool)
    types = list(tables.migratetypes)
    for row in tables.free_lists:
        cell = machine.zone_index(row.node, row.zone), slice(len(row.buddies))
        buddies[(*cell, types.index(row.migratetype))] = row.buddies
        capped[(*cell, types.index(row.migratetype))] = row.lower_bound
    for row in tables.pageblocks:
        blocks[machine.zone_index(row.node, row.zone), : len(row.blocks)] = row.blocks
    for each in snapshot.buddyinfo.zones if snapshot.buddyinfo else ():
        zone = machine.zone_index(each.node, each.zone)
        for order in np.flatnonzero(capped[zone].any(axis=1)):
            left_out = each.free_buddies[order] - int(buddies[zone, order].sum())
            buddies[zone, order, np.argmax(capped[zone, order])] += max(left_out, 0)
    return buddies, blocks


def _untyped_counts(machine: Machine, snapshot: Snapshot) -> np.ndarray | None:
    """Free buddies as buddyinfo counts them, as if all were Movable; None without it."""
    if snapshot.buddyinfo is None:
        return None
    buddies = np.zeros((len(machine.zones), at.ORDERS, at.MIGRATETYPES), np.int64)
    for each in snapshot.buddyinfo.zones:
        zone = machine.zone_index(each.node, each.zone)
        buddies[zone, : len(each.free_buddies), at.MOVABLE] = each.free_buddies
    return buddies


def with_estimated_blocks(
    machine: Machine, counts: StartCounts, evidence: np.ndarray
) -> tuple[StartCounts, tuple[str, ...]]:
    """The counts with pageblocks by type where no pagetypeinfo counted them.

    A zone has as many as hold its managed pages. A block from which requests of one type take most
    of the pages that they are first to take is of that type; all others are Movable.

    Args:
        machine: zones and geometry.
        counts: what the snapshots count.
        evidence: int64, shape (migratetypes, blocks of the machine): pages taken first.

    Returns:
        The counts, and a line that says so, none where they were counted.
    """
    if counts.blocks is not None:
        return counts, ()
    order = machine.pageblock_order
    blocks = np.zeros((len(machine.zones), at.MIGRATETYPES), np.int64)
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        seen = evidence[:, zone.start_pfn >> order : -(-zone.end_pfn >> order)]
        types = np.argmax(seen, axis=0)[seen.any(axis=0)]
        total = min(
            -(-zone.managed >> order), -(-zone.end_pfn >> order) - (zone.start_pfn >> order)
        )
        blocks[index] = np.bincount(types, minlength=at.MIGRATETYPES)[: at.MIGRATETYPES]
        blocks[index, at.MOVABLE] += max(total - int(blocks[index].sum()), 0)
    note = (
        "ESTIMATED START: no pagetypeinfo, so pageblocks are as many as hold each zone's pages, "
        "of the type that first takes pages of theirs, else Movable"
    )
    return replace(counts, blocks=blocks), (note,)


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
