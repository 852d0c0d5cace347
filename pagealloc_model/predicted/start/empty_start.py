"""A start without a past: all managed pages free, for synthetic demand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.allocator.core.initial import LISTED, StartImage
from pagealloc_model.base.working_arrays import parts, working_arrays
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.demand.demand_rows import highest_type_by_gfp
from pagealloc_model.predicted.demand.event_order import joined
from pagealloc_model.predicted.demand.row_filling import GFP_KERNEL
from pagealloc_model.predicted.start.page_evidence import NOT_MEMORY, frame_count
from pagealloc_model.recording.machine import Machine


def idle_machine(machine: Machine) -> Machine:
    """The machine before anything ran on it: per-CPU limits at their minimum, no boost."""
    zones = []
    for zone in machine.zones:
        pagesets = tuple(
            replace(each, count=0, high=each.high if each.high_min is None else each.high_min)
            for each in zone.pagesets
        )
        zones.append(replace(zone, boost=0, pagesets=pagesets))
    return replace(machine, zones=tuple(zones))


def empty_image(machine: Machine, page_flags: np.ndarray | None) -> StartImage:
    """A start image in which each zone's managed pages are free, Movable, in the largest buddies.

    Args:
        machine: zones; of a zone with holes, the lowest page frames are taken.
        page_flags: kpageflags words that say where holes are, None if unknown.
    """
    length = frame_count(machine)
    memory = np.zeros(length, bool)
    for zone in machine.zones:
        if zone.managed:
            memory[zone.start_pfn : zone.end_pfn] = True
    if page_flags is not None:
        known = min(len(page_flags), length)
        memory[:known] &= (page_flags[:known] & NOT_MEMORY) == 0
    free = np.zeros(length, bool)
    for zone in machine.zones:
        if zone.managed:
            pages = np.flatnonzero(memory[zone.start_pfn : zone.end_pfn])[: zone.managed]
            free[pages + zone.start_pfn] = True
    in_use = free.reshape(-1, 1 << machine.pageblock_order).any(axis=1)
    return StartImage(
        free=free,
        movable=np.zeros(length, bool),
        block_types=np.where(in_use, at.MOVABLE, -1).astype(np.int8),
        listed=np.zeros(0, LISTED),
        pcp_high=np.zeros((len(machine.zones), machine.nr_cpus), np.int64),
        allocated_pfn=np.zeros(0, np.int32),
        allocated_order=np.zeros(0, np.int8),
        origin=(
            f"empty: all {int(free.sum())} managed pages are free, whatever the recording says of "
            "its start; what it frees without having allocated it is allocated at the beginning",
        ),
    )


def created_demand(machine: Machine, demand: Demand, assumptions: Assumptions) -> Demand:
    """The demand with what lived at the start allocated first of all (T10.2).

    Args:
        machine: zones.
        demand: the recording's.
        assumptions: type of allocations that were not seen.
    """
    numbers = demand.at_start
    new_array = working_arrays(len(demand.events))
    created = np.zeros(len(numbers), at.EVENT)
    created["time_ns"] = demand.first_ns
    created["operation"] = at.HIDDEN_ALLOC
    created["object"] = numbers
    created["order"] = demand.objects["order"][numbers]
    created["cpu"] = _cpu_of_first_free(demand, numbers)
    created["migratetype"] = assumptions.hidden_migratetype
    created["bits"] = GFP_KERNEL & at.GFP_READ_BITS
    created["zone"] = highest_type_by_gfp(machine)[GFP_KERNEL & 15]
    objects = joined(demand.objects, demand.objects[:0], new_array)
    objects["kind"][numbers] = resolved.HIDDEN
    return replace(demand, events=joined(created, demand.events, new_array), objects=objects)


def _cpu_of_first_free(demand: Demand, numbers: np.ndarray) -> np.ndarray:
    """int16: the CPU that was the first to free a part of each of some objects (ascending)."""
    cpus = np.full(len(numbers), -1, np.int16)
    for part in parts(len(demand.events)):
        events = demand.events[part]
        frees = events[events["operation"] == at.FREE]
        place = np.searchsorted(numbers, frees["object"])
        place = np.minimum(place, len(numbers) - 1)
        is_one = numbers[place] == frees["object"] if len(numbers) else np.zeros(len(frees), bool)
        place, frees = place[is_one][::-1], frees[is_one][::-1]
        unknown = cpus[place] < 0
        cpus[place[unknown]] = frees["cpu"][unknown]
    return cpus
