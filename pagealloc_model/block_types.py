"""Which pageblock has which migratetype at the start: page flags, fitted to counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.initial import maximal_buddies
from pagealloc_model.machine import Machine
from pagealloc_model.proc import kpageflags as flags

if TYPE_CHECKING:
    from pagealloc_model.start_image import StartCounts

MIGRATABLE = flags.LRU | flags.MMAP | flags.ANON
SWAPS = 4000
SUBSET_STARTS = 8
NO_MEMORY = -1
"""Type of a block in a hole or not yet initialised: the kernel does not count it."""


def assign_block_types(
    machine: Machine,
    counts: StartCounts,
    free: np.ndarray,
    words: np.ndarray,
    touched: np.ndarray,
    *,
    seed: int,
) -> np.ndarray:
    """Give each pageblock a type so that the snapshot's counts are met.

    Blocks are ranked by evidence (slab pages speak for Reclaimable or Unmovable, migratable and
    free pages for Movable) and dealt out to the counts of pagetypeinfo; random swaps then bring
    free buddies by order and type closer to the snapshot's table. HighAtomic blocks, whose free
    pages ordinary requests leave alone, are those that add up to the table's row.

    Args:
        machine: zones and geometry.
        counts: what to meet; without pagetypeinfo every block is Movable.
        free: bool per page frame.
        words: kpageflags words per page frame.
        touched: bool per page frame: some event is about it, so its block has memory.
        seed: for the swaps.

    Returns:
        int8, one type per pageblock; NO_MEMORY where the kernel counts none.
    """
    order = machine.pageblock_order
    types = np.full(len(free) >> order, at.MOVABLE, np.int8)
    if counts.blocks is None:
        return types
    used = _per_block(_shows_memory(free, words) | touched, order)
    slab = _per_block((words & flags.SLAB) != 0, order)
    migratable = _per_block((words & MIGRATABLE) != 0, order)
    unfree = _per_block(~free, order)
    kernel = unfree - migratable - slab
    random = np.random.default_rng(seed)
    shapes = _buddies_per_block(free, types, machine)
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        blocks = np.arange(zone.start_pfn >> order, -(-zone.end_pfn >> order))
        types[blocks] = NO_MEMORY
        blocks = _blocks_with_memory(blocks, used[blocks], int(counts.blocks[index].sum()))
        scores = {
            at.RECLAIMABLE: slab[blocks] * 2 - migratable[blocks] - kernel[blocks],
            at.UNMOVABLE: slab[blocks] + kernel[blocks] - migratable[blocks],
        }
        zone_types = np.full(len(blocks), at.MOVABLE, np.int8)
        reserved = int(counts.blocks[index, at.HIGHATOMIC])
        if reserved and counts.free_buddies is not None:
            target = counts.free_buddies[index, : order + 1, at.HIGHATOMIC]
            zone_types[_best_subset(shapes[blocks], target, reserved, random)] = at.HIGHATOMIC
        for migratetype, score in scores.items():
            wanted = int(counts.blocks[index, migratetype])
            ranked = np.argsort(-score, kind="stable")
            ranked = ranked[zone_types[ranked] == at.MOVABLE]
            zone_types[ranked[:wanted]] = migratetype
        if counts.free_buddies is not None:
            target = counts.free_buddies[index, : order + 1, : at.PCP_TYPES]
            _swap_towards(zone_types, shapes[blocks], target.T, random)
        types[blocks] = zone_types
    return types


def _blocks_with_memory(blocks: np.ndarray, used: np.ndarray, wanted: int) -> np.ndarray:
    """The blocks the kernel counts: those with a flagged page, then the lowest of the others.

    Flags alone do not tell a block of plain kernel pages from a hole or from memory whose
    initialisation was deferred, which lies at the zone's end.
    """
    flagged = blocks[used > 0]
    others = blocks[used == 0]
    return np.sort(np.concatenate([flagged, others[: max(wanted - len(flagged), 0)]]))


def in_used_blocks(free: np.ndarray, words: np.ndarray, pageblock_order: int) -> np.ndarray:
    """Whether some page of its block is free or flagged, bool per page frame.

    Pages of other blocks may be memory that was not initialised yet, and so on no list.
    """
    used = _per_block(_shows_memory(free, words), pageblock_order) > 0
    return np.repeat(used, 1 << pageblock_order)


def _shows_memory(free: np.ndarray, words: np.ndarray) -> np.ndarray:
    return free | (words & ~flags.NOPAGE != 0)


def _per_block(mask: np.ndarray, pageblock_order: int) -> np.ndarray:
    return mask.reshape(-1, 1 << pageblock_order).sum(axis=1).astype(np.int64)


def _buddies_per_block(free: np.ndarray, types: np.ndarray, machine: Machine) -> np.ndarray:
    """Free buddies up to pageblock order in each block, shape (blocks, pageblock order + 1)."""
    order = machine.pageblock_order
    pfns, orders = maximal_buddies(free, types, order, machine.max_order)
    shapes = np.zeros((len(types), order + 1), np.int64)
    small = orders <= order
    np.add.at(shapes, (pfns[small] >> order, orders[small].astype(np.int64)), 1)
    return shapes


def _best_subset(
    shapes: np.ndarray, target: np.ndarray, size: int, random: np.random.Generator
) -> np.ndarray:
    """The `size` blocks whose free buddies by order add up closest to `target`.

    Steepest descent over exchanges of one block, from several random beginnings.

    Args:
        shapes: free buddies per block and order.
        target: wanted free buddies per order.
        size: blocks to choose.
        random: draws the beginnings.
    """
    best, best_cost = np.arange(size), np.inf
    for _ in range(SUBSET_STARTS):
        chosen = random.choice(len(shapes), size, replace=False)
        cost = np.inf
        while True:
            gap = shapes[chosen].sum(axis=0) - target
            trials = gap[None, None, :] - shapes[chosen][:, None, :] + shapes[None, :, :]
            costs = np.abs(trials).sum(axis=2)
            costs[:, chosen] = np.iinfo(np.int64).max
            out, into = np.unravel_index(int(np.argmin(costs)), costs.shape)
            if costs[out, into] >= cost:
                break
            cost = costs[out, into]
            chosen[out] = into
        if cost < best_cost:
            best, best_cost = chosen, cost
    return best


def _swap_towards(
    types: np.ndarray, shapes: np.ndarray, target: np.ndarray, random: np.random.Generator
) -> None:
    """Swap types of pairs of blocks while that brings free buddies by type and order closer.

    Args:
        types: int8 per block of the zone, changed in place.
        shapes: free buddies per block and order.
        target: wanted free buddies, shape (types, orders).
        random: draws the pairs.
    """
    weights = 1 << np.arange(shapes.shape[1])
    current = np.zeros_like(target)
    ordinary = types < at.PCP_TYPES
    np.add.at(current, types[ordinary].astype(np.int64), shapes[ordinary])
    rare = np.flatnonzero(ordinary & (types != at.MOVABLE))
    partial = np.flatnonzero(ordinary & (shapes.any(axis=1) | (types != at.MOVABLE)))
    if not len(rare) or len(partial) < 2:
        return
    lefts = random.choice(rare, SWAPS)
    rights = random.choice(partial, SWAPS)
    for left, right in zip(lefts, rights, strict=True):
        a, b = int(types[left]), int(types[right])
        if a == b:
            continue
        change = shapes[right] - shapes[left]
        before = np.abs(current[[a, b]] - target[[a, b]]) @ weights
        after = np.abs(np.stack([current[a] + change, current[b] - change]) - target[[a, b]])
        if (after @ weights).sum() < before.sum():
            current[a] += change
            current[b] -= change
            types[left], types[right] = b, a
