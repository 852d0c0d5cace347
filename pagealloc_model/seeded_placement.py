"""A start for recordings without kpageflags: free pages placed at random so that counts are met."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.demand import Demand
from pagealloc_model.machine import Machine
from pagealloc_model.proc import kpageflags as flags

if TYPE_CHECKING:
    from pagealloc_model.start_image import StartCounts

FLAG_OF_TYPE = {
    at.UNMOVABLE: np.uint64(0),
    at.MOVABLE: flags.LRU,
    at.RECLAIMABLE: flags.SLAB,
    at.HIGHATOMIC: np.uint64(0),
}
"""Flags of a type's allocated pages; plain kernel pages, and those on per-CPU lists, show none."""


def seeded_page_flags(
    machine: Machine, demand: Demand, counts: StartCounts, seed: int
) -> np.ndarray:
    """Page flags as kpageflags might have shown them.

    Free buddies of every order and type are put where no page is known to be allocated, large
    ones first, each beside an allocated partner so that it cannot merge while there is room for
    that. Other pages of a block
    look like what its type holds.

    The kernel counts blocks with memory only; they are taken to lie at a zone's beginning.

    Args:
        machine: zones and geometry.
        demand: objects known to live at the start.
        counts: free buddies and blocks by type, or just free pages.
        seed: of the placement.

    Returns:
        uint64 flag words, one per page frame.
    """
    block_order = machine.pageblock_order
    length = -(-machine.end_pfn >> block_order) << block_order
    words = np.full(length, flags.NOPAGE, np.uint64)
    taken = np.zeros(length, bool)
    at_start = demand.objects[demand.at_start]
    for order in np.unique(at_start["order"]):
        first = at_start["pfn"][at_start["order"] == order].astype(np.int64)
        taken[(first[:, None] + np.arange(1 << int(order))).ravel()] = True
    random = np.random.default_rng(seed)
    for index, zone in enumerate(machine.zones):
        if zone.managed:
            end = zone.end_pfn
            if counts.blocks is not None:
                end = min(zone.start_pfn + (int(counts.blocks[index].sum()) << block_order), end)
            wanted = _targets(machine, counts, index)
            _fill_zone(machine, zone.start_pfn, end, wanted, words, taken, random)
    return words


def _targets(machine: Machine, counts: StartCounts, zone: int) -> np.ndarray:
    """Wanted free buddies, shape (orders, migratetypes).

    Where only a total is known, the largest ones, Movable.
    """
    if counts.free_buddies is not None:
        return counts.free_buddies[zone]
    wanted = np.zeros((at.ORDERS, at.MIGRATETYPES), np.int64)
    wanted[machine.max_order, at.MOVABLE] = int(counts.free_pages[zone]) >> machine.max_order
    return wanted


def _fill_zone(
    machine: Machine,
    start_pfn: int,
    end_pfn: int,
    wanted: np.ndarray,
    words: np.ndarray,
    taken: np.ndarray,
    random: np.random.Generator,
) -> None:
    block_order, max_order = machine.pageblock_order, machine.max_order
    step = 1 << max_order
    first = start_pfn // step * step
    last = min(-(-end_pfn // step) * step, len(words) // step * step)
    words[start_pfn:end_pfn] = flags.LRU
    types = np.full((last - first) >> block_order, -1, np.int8)
    frames = np.arange(first, last)
    available = ~taken[first:last] & (frames >= start_pfn) & (frames < end_pfn)
    free = np.zeros(len(available), bool)
    for order in range(max_order, -1, -1):
        for migratetype, count in enumerate(wanted[order, : at.HIGHATOMIC + 1].tolist()):
            for region in (min(order + 1, max_order), order):
                whole = available.reshape(-1, 1 << region).all(axis=1)
                starts = np.flatnonzero(whole) << region
                kinds = types[starts >> block_order]
                alike = random.permutation(starts[kinds == migratetype])
                untyped = random.permutation(starts[kinds < 0])
                starts = np.concatenate([alike, untyped])[:count]
                span = (starts[:, None] + np.arange(1 << order)).ravel()
                free[span] = True
                types[span >> block_order] = migratetype
                available[(starts[:, None] + np.arange(1 << region)).ravel()] = False
                count -= len(starts)
    for migratetype, flag in FLAG_OF_TYPE.items():
        mine = np.repeat(types == migratetype, 1 << block_order)
        mine &= (frames >= start_pfn) & (frames < end_pfn)
        words[first:last][mine] = flag
    words[first:last][free] = flags.BUDDY
