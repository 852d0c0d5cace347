"""Memory that a machine gets during a recording, where the demand first shows it (S3.1, T9).

Later snapshots would tell how zones grow; a prediction may not read them. What it may read are page
frames that events touch although the start state knows no memory there. Pages first seen freed
there are what initialisation or hotplug hands to the allocator; pages first seen allocated there
came with their whole section. Either is imposed on the replay as recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.base.arrays import parts, working_arrays
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.demand.event_order import joined, merged, new_events, rows_where
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

SECTION_ORDER = 15
"""Deferred initialisation and hotplug work on whole sections: 128 MiB (x86-64, 4 KiB pages)."""


def with_touched_span(machine: Machine, trace: Trace) -> Machine:
    """The machine, its highest zone spanning the pages that events touch behind it.

    No more than as much again as the machine has is taken for hotplugged.
    """
    limit = machine.end_pfn + sum(zone.present for zone in machine.zones)
    last_end = 0
    for part in parts(len(trace)):
        wanted = trace.event[part] <= Event.FREE
        order = np.clip(trace.order[part][wanted].astype(np.int64), 0, machine.max_order)
        ends = trace.pfn[part][wanted] + (np.int64(1) << order)
        last_end = int(ends[ends <= limit].max(initial=last_end))
    if last_end <= machine.end_pfn:
        return machine
    end = -(-last_end >> SECTION_ORDER) << SECTION_ORDER
    zones = list(machine.zones)
    managed = (index for index, zone in enumerate(zones) if zone.managed)
    last = max(managed, key=lambda index: zones[index].end_pfn)
    zones[last] = replace(zones[last], spanned=end - zones[last].start_pfn)
    return replace(machine, zones=tuple(zones))


def grown_demand(machine: Machine, demand: Demand, block_types: np.ndarray) -> Demand:
    """The demand with GROW events for memory that the start image does not have.

    Images of one start differ in where pages are, seldom in which blocks have memory: then the
    demand that was made for the last one is returned. `block_types` are int8 per pageblock of the
    start image, -1 where there is no memory.
    """
    has_memory = (block_types >= 0).tobytes()
    blocks, latest = demand.memo.get("grown", (None, demand))
    if blocks == has_memory:
        return latest
    # objects with a page in a block without memory; large ones span several
    missing = np.concatenate([[0], np.cumsum(block_types < 0)])
    freed, taken = (np.zeros(len(demand.objects), bool) for _ in range(2))
    for mask, numbers in ((freed, demand.at_start), (taken, demand.fresh)):
        first = demand.objects["pfn"][numbers].astype(np.int64)
        last = first + (np.int64(1) << demand.objects["order"][numbers].astype(np.int64)) - 1
        begin, end = (block >> machine.pageblock_order for block in (first, last))
        end = np.minimum(end + 1, len(block_types))
        mask[numbers] = missing[end] > missing[np.minimum(begin, len(block_types))]
    if not freed.any() and not taken.any():
        return demand
    new_array, events = working_arrays(len(demand.events)), demand.events
    objects = joined(demand.objects, demand.objects[:0], new_array)
    places = rows_where(
        len(events),
        lambda part: (events["operation"][part] == at.FREE) & freed[events["object"][part]],
    )
    handed = events[places]
    handed["operation"] = at.GROW
    handed["offset"] += objects["pfn"][handed["object"]]
    handed["zone"] = machine.zones_of_pages(handed["offset"])
    handed["object"] = -1
    first_taken = demand.first_allocations
    first_taken = first_taken[taken[first_taken["object"]]]
    sections = _sections_needed(machine, block_types, handed, first_taken, objects)
    events = merged(events, sections, np.zeros(len(sections), np.int64), new_array)
    # sections came before all others of their time
    events[places + np.searchsorted(sections["time_ns"], handed["time_ns"], "right")] = handed
    objects["kind"][freed] = resolved.GROWN
    orders = np.concatenate([handed["order"], sections["order"]]).astype(np.int64)
    pages = int((np.int64(1) << orders).sum())
    grown = replace(demand, events=events, objects=objects, grown_pages=pages)
    demand.memo["grown"] = has_memory, grown
    return grown


def _sections_needed(
    machine: Machine,
    block_types: np.ndarray,
    handed: np.ndarray,
    taken: np.ndarray,
    objects: np.ndarray,
) -> np.ndarray:
    """GROW events for sections in which pages are taken that nothing handed over before."""
    order = machine.pageblock_order
    here_since = np.full(len(block_types), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(here_since, handed["offset"].astype(np.int64) >> order, handed["time_ns"])
    here_since[block_types >= 0] = 0
    grown: list[np.ndarray] = [np.zeros(0, at.EVENT)]
    blocks = objects["pfn"][taken["object"]].astype(np.int64) >> order
    # what is taken later in the same block finds it there
    first = np.sort(np.unique(blocks, return_index=True)[1])
    blocks, times = blocks[first], taken["time_ns"][first]
    for block, time_ns in zip(blocks.tolist(), times.tolist(), strict=True):
        if here_since[block] <= time_ns:
            continue
        section = block >> (SECTION_ORDER - order) << (SECTION_ORDER - order)
        new = np.arange(section, section + (1 << (SECTION_ORDER - order)))
        new = new[new < len(block_types)]
        new = new[here_since[new] == np.iinfo(np.int64).max]
        zone = int(machine.zones_of_pages(np.array([block << order]))[0])
        inside = machine.zones[zone]
        new = new[(new << order >= inside.start_pfn) & ((new + 1) << order <= inside.end_pfn)]
        here_since[new] = here_since[block] = time_ns
        columns = {"time_ns": time_ns, "offset": new << order, "order": order, "zone": zone}
        grown.append(new_events(at.GROW, len(new), **columns))
    return np.concatenate(grown)


def size_changes(recording: Recording) -> Iterator[str]:
    """Changes of zones' managed pages from the first snapshot to the last, one line each."""
    sizes = [
        {(zone.node, zone.name): zone.managed for zone in each.zoneinfo.zones}
        for each in recording.snapshots
        if each.zoneinfo is not None
    ]
    if len(sizes) < 2:
        return
    nodes = {node for node, _ in sizes[0]}
    for (node, name), before in sizes[0].items():
        after = sizes[-1].get((node, name), 0)
        if before != after:
            title = f"node {node}, zone {name}" if len(nodes) > 1 else f"zone {name}"
            verb = "grew" if after > before else "shrank"
            yield f"{title} {verb} from {before} to {after} managed pages during the recording"
