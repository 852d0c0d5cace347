"""The start of a recording that says how many pages were free, but not which (T10.6)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.initial import LISTED, StartImage
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.start.page_evidence import frame_count, memory_blocks, object_pages
from pagealloc_model.predicted.start.start_counts import StartCounts, with_estimated_blocks
from pagealloc_model.predicted.start.start_lists import (
    NEVER,
    first_touches,
    settle_list_types,
    taken_first,
)
from pagealloc_model.predicted.start.zone_placement import (
    place_zone,
    placement_line,
    put_placement,
    wanted_buddies,
)
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags


def seeded_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    listed_counts: np.ndarray,
    pcp_high: np.ndarray,
    *,
    seed: int = 0,
) -> StartImage:
    """A start image that meets all counts, its pages placed at random where nothing is known.

    Pages that the recording frees first are allocated. Pages that it allocates first are on the
    lists of the CPU that takes them, up to that CPU's count, and free as far as the counts leave
    room for that. The kernel counts blocks with memory only; those that no event touches are taken
    to lie at a zone's beginning.

    Args:
        machine: zones and CPUs.
        demand: only first touches are read.
        counts: what to meet.
        listed_counts: int64, shape (zones, cpus): pages on each CPU's lists.
        pcp_high: int64, shape (zones, cpus): pcp->high of each CPU's lists.
        seed: of the placement.
    """
    random = np.random.default_rng(seed)
    length = frame_count(machine)
    masks = {}
    for name, objects in (("held", demand.at_start), ("fresh", demand.fresh)):
        masks[name] = np.zeros(length, bool)
        for pages in object_pages(demand.objects[objects]):
            masks[name][pages] = True
    held, fresh = masks["held"], masks["fresh"]
    evidence = _type_evidence(machine, demand, length)
    counts, estimated = with_estimated_blocks(machine, counts, evidence)
    nothing = np.zeros(length, bool)
    blocks = memory_blocks(machine, counts, nothing, np.full(length, flags.NOPAGE), held | fresh)
    inside = nothing.copy()
    inside.reshape(-1, 1 << machine.pageblock_order)[np.concatenate(blocks)] = True
    named = _named(machine, demand, listed_counts, ~inside)
    usable = ~held
    for pages in object_pages(named):
        usable[pages] = False
    free = np.zeros(length, bool)
    block_types = np.full(length >> machine.pageblock_order, -1, np.int8)
    lines = [
        *estimated,
        "no kpageflags: free pages are placed at random so that the start's counts are met",
    ]
    listed = [named]
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        on_lists = int(listed_counts[index].sum())
        wanted, note = wanted_buddies(machine, counts, index, on_lists)
        placed = place_zone(
            machine, index, usable, fresh, blocks[index], evidence, wanted, counts, random
        )
        put_placement(machine, index, placed, free, block_types)
        left_over = _left_over(machine, index, usable & ~free, blocks[index])
        listed.append(_made_up(machine, index, named, listed_counts, left_over, random))
        lines += [note, placement_line(machine, wanted, placed, counts, index)]
    records = np.concatenate(listed)
    never = np.full((len(machine.zones), machine.nr_cpus), NEVER, np.int64)
    settle_list_types(records, block_types, machine.pageblock_order, never)
    on_a_list = np.zeros(length, bool)
    for pages in object_pages(records):
        on_a_list[pages] = True
    elsewhere = int((fresh & ~free & ~on_a_list).sum())
    lines.append(
        f"first touches: {elsewhere} of {int(fresh.sum())} pages that the recording takes first "
        "are not free at these places in the start; other pages stand for them"
    )
    in_movable = np.repeat(block_types == at.MOVABLE, 1 << machine.pageblock_order)
    at_start = demand.objects[demand.at_start]
    at_start = at_start[inside[at_start["pfn"]]]
    return StartImage(
        free=free,
        movable=in_movable & ~free & ~on_a_list,
        block_types=block_types,
        listed=records,
        pcp_high=pcp_high,
        allocated_pfn=at_start["pfn"].astype(np.int32),
        allocated_order=at_start["order"].astype(np.int8),
        origin=tuple(lines),
    )


def _named(
    machine: Machine, demand: Demand, listed_counts: np.ndarray, no_memory: np.ndarray
) -> np.ndarray:
    """Pages that a CPU takes first, up to the pages its lists held."""
    touches = first_touches(demand, no_memory)
    pieces = [np.zeros(0, LISTED)]
    for index, zone in enumerate(machine.zones):
        inside = (touches["pfn"] >= zone.start_pfn) & (touches["pfn"] < zone.end_pfn)
        mine = touches[inside]
        mine["zone"] = index
        for cpu in range(machine.nr_cpus):
            wanted = int(listed_counts[index, cpu])
            pieces.append(taken_first(mine[mine["cpu"] == cpu], NEVER, wanted))
    return np.concatenate(pieces)


def _type_evidence(machine: Machine, demand: Demand, length: int) -> np.ndarray:
    """Pages that requests of each type take first, int64, shape (migratetypes, blocks)."""
    order = machine.pageblock_order
    table = np.zeros((at.MIGRATETYPES, length >> order), np.int64)
    events = demand.first_allocations
    block = demand.objects["pfn"][events["object"]].astype(np.int64) >> order
    np.add.at(table, (events["migratetype"].astype(np.int64), block), 1)
    return table


def _left_over(machine: Machine, index: int, unused: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Pages of a zone's memory that are neither free nor known to be in use."""
    zone = machine.zones[index]
    order = machine.pageblock_order
    pages = ((blocks << order)[:, None] + np.arange(1 << order)).ravel()
    pages = pages[(pages >= zone.start_pfn) & (pages < zone.end_pfn)]
    return pages[unused[pages]]


def _made_up(
    machine: Machine,
    index: int,
    named: np.ndarray,
    listed_counts: np.ndarray,
    pages: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Single pages that make up what each CPU's count lacks."""
    mine = named[named["zone"] == index]
    missing = listed_counts[index].copy()
    np.subtract.at(missing, mine["cpu"], np.int64(1) << mine["order"].astype(np.int64))
    wanted = np.maximum(missing, 0)
    pages = random.permutation(pages)[: int(wanted.sum())]
    records = np.zeros(len(pages), LISTED)
    records["pfn"] = pages
    records["cpu"] = np.repeat(np.arange(machine.nr_cpus), wanted)[: len(pages)]
    records["migratetype"] = -1
    records["zone"] = index
    return records
