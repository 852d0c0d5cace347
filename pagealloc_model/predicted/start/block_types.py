"""Which pageblock has which migratetype at the start: page flags, fitted to counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.initial import maximal_buddies
from pagealloc_model.base.jit import entry
from pagealloc_model.predicted.start.page_evidence import NO_MEMORY, PageEvidence, count_per_block
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags

if TYPE_CHECKING:
    from pagealloc_model.predicted.start.start_counts import StartCounts

SWAPS = 4000
SUBSET_STARTS = 8


def assign_block_types(
    machine: Machine,
    counts: StartCounts,
    evidence: PageEvidence,
    free: np.ndarray,
    on_movable_lists: np.ndarray,
    *,
    seed: int,
) -> np.ndarray:
    """Give each pageblock a type so that the snapshot's counts are met.

    Blocks whose type page_owner names keep it. The others are ranked by evidence (slab pages speak
    for Reclaimable or Unmovable, migratable and free pages for Movable) and dealt out to the counts
    of pagetypeinfo; random swaps then bring free buddies by order and type closer to the snapshot's
    table. HighAtomic blocks, whose free pages ordinary requests leave alone, are those that add up
    to the table's row.

    Args:
        machine: zones and geometry.
        counts: what to meet; without pagetypeinfo every block is Movable.
        evidence: flags, owners and blocks with memory.
        free: bool per page frame: in a free buddy.
        on_movable_lists: bool per page frame: on a per-CPU list of Movable pages.
        seed: for the swaps.

    Returns:
        int8, one type per pageblock; NO_MEMORY where the kernel counts none.
    """
    order = machine.pageblock_order
    types = evidence.block_types.copy()
    types[types < NO_MEMORY] = at.MOVABLE
    if counts.blocks is None:
        return types
    slab = count_per_block((evidence.words & flags.SLAB) != 0, order)
    migratable = count_per_block(evidence.migratable | on_movable_lists, order)
    kernel = count_per_block(~free, order) - migratable - slab
    random = np.random.default_rng(seed)
    shapes, in_larger = _buddiescount_per_block(free, types, machine)
    for zone in machine.zones:
        if zone.managed:
            types[zone.start_pfn >> order : -(-zone.end_pfn >> order)] = NO_MEMORY
    for index, blocks in enumerate(evidence.memory_blocks):
        exact = evidence.block_types[blocks]
        types[blocks] = np.maximum(exact, -1)
        types[blocks[(exact < 0) & in_larger[blocks]]] = at.MOVABLE
        blocks = blocks[(exact < 0) & ~in_larger[blocks]]
        if not len(blocks):
            continue
        wanted = _left_over(counts.blocks[index], exact)
        found = _free_by_type(shapes, types, evidence.memory_blocks[index])
        zone_types = np.full(len(blocks), at.MOVABLE, np.int8)
        if wanted[at.HIGHATOMIC] and counts.free_buddies is not None:
            target = counts.free_buddies[index, : order + 1, at.HIGHATOMIC]
            target = target - found[:, at.HIGHATOMIC]
            reserved = min(int(wanted[at.HIGHATOMIC]), len(blocks))
            zone_types[_best_subset(shapes[blocks], target, reserved, random)] = at.HIGHATOMIC
        scores = {
            at.RECLAIMABLE: slab[blocks] * 2 - migratable[blocks] - kernel[blocks],
            at.UNMOVABLE: slab[blocks] + kernel[blocks] - migratable[blocks],
        }
        for migratetype, score in scores.items():
            ranked = np.argsort(-score, kind="stable")
            ranked = ranked[zone_types[ranked] == at.MOVABLE]
            zone_types[ranked[: int(wanted[migratetype])]] = migratetype
        if counts.free_buddies is not None:
            target = counts.free_buddies[index, : order + 1, : at.PCP_TYPES]
            target = target - found[:, : at.PCP_TYPES]
            _swap_towards(zone_types, shapes[blocks], target.T, random)
        types[blocks] = zone_types
    return types


def _left_over(counted: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Blocks by type that remain once those of known type are taken off."""
    known = np.bincount(exact[exact >= 0].astype(np.int64), minlength=at.MIGRATETYPES)
    return np.maximum(counted - known[: at.MIGRATETYPES], 0)


def _free_by_type(shapes: np.ndarray, types: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Free buddies in blocks of known type, shape (orders, migratetypes)."""
    found = np.zeros((shapes.shape[1], at.MIGRATETYPES), np.int64)
    known = blocks[types[blocks] >= 0]
    np.add.at(found.T, types[known].astype(np.int64), shapes[known])
    return found


def _buddiescount_per_block(
    free: np.ndarray, types: np.ndarray, machine: Machine
) -> tuple[np.ndarray, np.ndarray]:
    """Free buddies up to pageblock order, shape (blocks, pageblock order + 1); who is in larger.

    Blocks of a larger buddy share a type, which merging saw to (S5.3): the most common one.
    """
    order = machine.pageblock_order
    pfns, orders = maximal_buddies(free, types, order, machine.max_order)
    shapes = np.zeros((len(types), order + 1), np.int64)
    small = orders <= order
    np.add.at(shapes, (pfns[small] >> order, orders[small].astype(np.int64)), 1)
    in_larger = np.zeros(len(types), bool)
    for larger in range(order + 1, machine.max_order + 1):
        first = pfns[orders == larger] >> order
        in_larger[(first[:, None] + np.arange(1 << (larger - order))).ravel()] = True
    return shapes, in_larger


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
    gaps = -target
    ordinary = types < at.PCP_TYPES
    np.add.at(gaps, types[ordinary].astype(np.int64), shapes[ordinary])
    rare = np.flatnonzero(ordinary & (types != at.MOVABLE))
    partial = np.flatnonzero(ordinary & (shapes.any(axis=1) | (types != at.MOVABLE)))
    if not len(rare) or len(partial) < 2:
        return
    lefts = random.choice(rare, SWAPS)
    rights = random.choice(partial, SWAPS)
    pages = 1 << np.arange(shapes.shape[1])
    changes = (shapes[rights] - shapes[lefts]) * pages
    swap_closer(types, lefts, rights, changes, np.ascontiguousarray(gaps * pages))


@entry
def swap_closer(
    types: np.ndarray, lefts: np.ndarray, rights: np.ndarray, changes: np.ndarray, off: np.ndarray
) -> None:
    """No kernel function: swap types of pairs where free pages by type and order come closer.

    Args:
        types: int8 per block of the zone, changed in place.
        lefts: int64: blocks.
        rights: int64, as long: others.
        changes: int64, shape (pairs, orders): pages that the left one's type gains by a swap.
        off: int64, shape (types, orders): pages that each type has too many; changed.
    """
    for pair in range(len(lefts)):
        a, b = int(types[lefts[pair]]), int(types[rights[pair]])
        if a == b:
            continue
        closer = 0
        for order in range(changes.shape[1]):
            change = changes[pair, order]
            closer += abs(off[a, order]) - abs(off[a, order] + change)
            closer += abs(off[b, order]) - abs(off[b, order] - change)
        if closer > 0:
            for order in range(changes.shape[1]):
                off[a, order] += changes[pair, order]
                off[b, order] -= changes[pair, order]
            types[lefts[pair]], types[rights[pair]] = b, a
