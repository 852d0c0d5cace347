"""Free buddies of a machine's zones placed so that the start snapshot's counts are met."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.predicted.start.exact_placement import ZonePlacement, place_exactly
from pagealloc_model.predicted.start.start_counts import StartCounts
from pagealloc_model.recording.machine import Machine


def wanted_buddies(
    machine: Machine, counts: StartCounts, zone: int, on_lists: int
) -> tuple[np.ndarray, str]:
    """Free buddies by order and type at the first event, and how they were had.

    What the snapshot's free lists have too few or too many is given to, or taken from, Movable
    buddies: those by which the other snapshot of the start differs, large ones first, then the
    largest.

    Args:
        machine: zones and geometry.
        counts: what the snapshots count.
        zone: index of the zone.
        on_lists: pages on its per-CPU lists.

    Returns:
        int64, shape (orders, migratetypes), and one line.
    """
    name = machine.zone_title(zone)
    free_pages = int(counts.free_pages[zone]) - on_lists
    sizes = np.int64(1) << np.arange(at.ORDERS)
    wanted = np.zeros((at.ORDERS, at.MIGRATETYPES), np.int64)
    if counts.free_buddies is None or counts.other_buddies is None:
        _change_by(wanted[:, at.MOVABLE], free_pages, machine.max_order)
        return wanted, f"{name}: {free_pages} free pages, their orders unknown: large ones"
    wanted = counts.free_buddies[zone].copy()
    missing = free_pages - int((wanted.sum(axis=1) * sizes).sum())
    difference = counts.other_buddies[zone, :, at.MOVABLE] - wanted[:, at.MOVABLE]
    left = _move_towards(wanted[:, at.MOVABLE], difference, missing)
    _change_by(wanted[:, at.MOVABLE], left, machine.max_order)
    return wanted, (
        f"{name}: {free_pages} pages free in the buddy, {on_lists} on per-CPU lists; "
        f"{abs(missing)} pages {'more' if missing >= 0 else 'fewer'} in the buddy than the nearest "
        "snapshot's free lists show, put into or taken from Movable ones"
    )


def _move_towards(buddies: np.ndarray, difference: np.ndarray, pages: int) -> int:
    """Change buddies by order in the direction and at most by the amount given; in place.

    Args:
        buddies: by order.
        difference: by order, what may be added or, where negative, taken.
        pages: to be added, or taken if negative.

    Returns:
        Pages that remain to be added or taken.
    """
    sign = 1 if pages >= 0 else -1
    left = abs(pages)
    for order in range(len(buddies) - 1, -1, -1):
        moved = min(max(sign * int(difference[order]), 0), left >> order)
        buddies[order] += sign * moved
        left -= moved << order
    return sign * left


def _change_by(buddies: np.ndarray, pages: int, max_order: int) -> None:
    """Add pages to, or take them from, buddies by order, the largest first; in place."""
    order = max_order
    while pages > 0:
        buddies[order] += pages >> order
        pages &= (1 << order) - 1
        order -= 1
    pages = -pages
    for order in range(max_order, -1, -1):
        if pages <= 0:
            break
        taken = min(int(buddies[order]), -(-pages >> order))
        buddies[order] -= taken
        pages -= taken << order
    if pages < 0:
        _change_by(buddies, -pages, max_order)


def place_zone(
    machine: Machine,
    index: int,
    usable: np.ndarray,
    preferred: np.ndarray,
    blocks: np.ndarray,
    evidence: np.ndarray,
    wanted: np.ndarray,
    counts: StartCounts,
    random: np.random.Generator,
) -> ZonePlacement:
    """One zone's free buddies, in arrays that begin and end at a multiple of the largest order.

    Args:
        machine: zones and geometry.
        index: the zone.
        usable: bool per page frame of the machine: may be free.
        preferred: per page frame: how much speaks for its being free.
        blocks: numbers of the zone's pageblocks with memory.
        evidence: int64, shape (migratetypes, blocks of the machine).
        wanted: from `wanted_buddies`.
        counts: pageblocks by type.
        random: decides what nothing else does.
    """
    first, last = _span(machine, index)
    order = machine.pageblock_order
    memory = np.zeros((last - first) >> order, bool)
    memory[blocks - (first >> order)] = True
    zone = machine.zones[index]
    frames = np.arange(first, last)
    inside = (frames >= zone.start_pfn) & (frames < zone.end_pfn)
    inside &= np.repeat(memory, 1 << order)
    inside &= _filled_up(usable, first, last)
    block_counts = np.zeros(at.MIGRATETYPES, np.int64)
    block_counts[at.MOVABLE] = int(memory.sum())
    if counts.blocks is not None:
        block_counts = counts.blocks[index]
    near = np.zeros((at.MIGRATETYPES, len(memory)), np.int64)
    found = evidence[:, first >> order : last >> order]
    near[:, : found.shape[1]] = found
    return place_exactly(
        inside,
        _filled_up(preferred, first, last),
        memory,
        near,
        wanted,
        block_counts,
        order,
        machine.max_order,
        random,
    )


def _span(machine: Machine, index: int) -> tuple[int, int]:
    zone, step = machine.zones[index], 1 << machine.max_order
    return zone.start_pfn // step * step, -(-zone.end_pfn // step) * step


def _filled_up(mask: np.ndarray, first: int, last: int) -> np.ndarray:
    """Part of an array by page frame; 0 behind its end."""
    part = np.zeros(last - first, mask.dtype)
    found = mask[first:last]
    part[: len(found)] = found
    return part


def put_placement(
    machine: Machine,
    index: int,
    placed: ZonePlacement,
    free: np.ndarray,
    block_types: np.ndarray,
) -> None:
    """Enter one zone's placement into the machine's arrays."""
    first, last = _span(machine, index)
    last = min(last, len(free))
    free[first:last] |= placed.free[: last - first]
    order = machine.pageblock_order
    mine = placed.block_types[: (last >> order) - (first >> order)]
    part = block_types[first >> order : last >> order]
    part[mine >= 0] = mine[mine >= 0]


def placement_line(
    machine: Machine, wanted: np.ndarray, placed: ZonePlacement, counts: StartCounts, index: int
) -> str:
    """One line: which counts of a zone are met, which are not."""
    name = machine.zone_title(index)
    off = []
    sizes = np.int64(1) << np.arange(at.ORDERS)
    split = int((placed.unmet.sum(axis=1) * sizes)[1:].sum())
    if placed.unmet.any():
        lost = int(placed.unmet[0].sum())
        off.append(f"{split} pages found no room at their order, {lost} none at all")
    if counts.blocks is not None:
        found = np.bincount(
            placed.block_types[placed.block_types >= 0].astype(np.int64),
            minlength=at.MIGRATETYPES,
        )
        blocks = int(np.abs(found - counts.blocks[index]).sum()) // 2
        if blocks:
            off.append(f"{blocks} pageblocks have another type than counted")
    total = int(wanted.sum())
    if not off:
        return f"{name}: {total} free buddies by order and type, and blocks by type: all met"
    return f"{name}: of {total} free buddies by order and type, {'; '.join(off)}"
