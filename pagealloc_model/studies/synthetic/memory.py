"""Contents of memory when a run begins, and of its pageblocks later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.state import State, maximal_buddies, place_buddies
from pagealloc_model.recording.machine import Machine


@dataclass(frozen=True, kw_only=True, eq=False)
class Memory:
    """Contents of memory at first; the rest of what is managed is in use and cannot be moved.

    Attributes:
        block_types: int8 by pageblock, its migratetype; HighAtomic ones count as reserved.
        free: bool by page frame.
        movable: bool by page frame: in use, and can be moved.
        listed: page frames on the inactive LRU lists, in the order that they came there.
        is_file: bool, which of these are of files; the others are anonymous.
        objects: numbers of objects that the demand reads, and where they are, page frames.
    """

    block_types: np.ndarray
    free: np.ndarray
    movable: np.ndarray
    listed: np.ndarray | None = None
    is_file: np.ndarray | None = None
    objects: tuple[np.ndarray, np.ndarray] | None = None

    def put_into(self, state: State, places: np.ndarray) -> None:
        """Put it into a fresh state, and write the places (int32 by object) of what is there."""
        machine = state.machine
        state.blocks["migratetype"] = self.block_types
        for zone in range(len(machine.zones)):
            own = (self.block_types == at.HIGHATOMIC) & (state.blocks["zone"] == zone + 1)
            reserved = np.count_nonzero(own) << machine.pageblock_order
            state.zone_region(zone)[at.ZONE_RESERVED_HIGHATOMIC] = reserved
        pfns, orders = maximal_buddies(
            self.free, self.block_types, machine.pageblock_order, machine.max_order
        )
        place_buddies(state.arrays(), pfns.astype(np.int32), orders.astype(np.int8))
        state.pages["where"][managed_pages(machine) & ~self.free] = at.ALLOCATED
        state.pages["tag"][self.movable] = 1
        if self.listed is not None:
            lists = np.where(self.is_file, pr.INACTIVE_FILE, pr.INACTIVE_ANON).astype(np.int8)
            place_on_lists(state.arrays(), self.listed.astype(np.int32), lists)
        if self.objects is not None:
            numbers, pfns = self.objects
            state.folios["object"][pfns] = numbers + 1
            places[numbers] = pfns


def free_everything(state: State) -> None:
    """Put all managed pages of a fresh state into the buddy, in the largest buddies, Movable."""
    order = state.machine.max_order
    for first, end in managed_spans(state.machine):
        pfns = np.arange(first, end, 1 << order, dtype=np.int32)
        place_buddies(state.arrays(), pfns, np.full(len(pfns), order, np.int8))


def managed_spans(machine: Machine) -> list[tuple[int, int]]:
    """First page and end of each zone's managed pages: whole largest buddies, from its start on."""
    step = 1 << machine.max_order
    spans = []
    for zone in machine.zones:
        first = -(-zone.start_pfn // step) * step
        end = first + min(zone.managed, zone.end_pfn - first) // step * step
        if end > first:
            spans.append((first, end))
    return spans


def managed_pages(machine: Machine) -> np.ndarray:
    """Return, as bool by page frame of all pageblocks, whether the allocator manages it."""
    blocks = -(-machine.end_pfn >> machine.pageblock_order)
    managed = np.zeros(blocks << machine.pageblock_order, bool)
    for first, end in managed_spans(machine):
        managed[first:end] = True
    return managed


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockUse:
    """Pages of each pageblock that lies in a zone, int64, one entry a block.

    Attributes:
        first_pfn: where it begins.
        migratetype: int8, of the block.
        buddy: free in the buddy.
        free: in the buddy or on a per-CPU list.
        movable: allocated pages that can be moved.
        reclaimable: those asked for as reclaimable since the start; 0 in a literal run.
        unmovable: the rest.
    """

    first_pfn: np.ndarray
    migratetype: np.ndarray
    buddy: np.ndarray
    free: np.ndarray
    movable: np.ndarray
    reclaimable: np.ndarray
    unmovable: np.ndarray

    @property
    def fixed(self) -> np.ndarray:
        """int64: pages that cannot be moved."""
        return self.reclaimable + self.unmovable

    @property
    def mixed(self) -> np.ndarray:
        """bool: pages that can be moved lie beside pages that cannot."""
        return (self.movable > 0) & (self.fixed > 0)


def block_use(state: State) -> BlockUse:
    """Count pages by pageblock, ascending by address, of a run or a replay between events."""
    in_zone = state.blocks["zone"] > 0
    where = state.pages["where"]
    allocated = where == at.ALLOCATED
    is_movable = allocated & (state.pages["tag"] == 1)
    is_reclaimable = np.zeros(0, bool)
    if state.is_elastic:
        is_reclaimable = allocated & ~is_movable & (state.folios["kind"] == pr.RECLAIMABLE)
    buddy, listed, movable, reclaimable = (
        _pages_of(state, marked)[in_zone]
        for marked in (where == at.BUDDY, where == at.ON_PCP, is_movable, is_reclaimable)
    )
    whole = 1 << state.machine.pageblock_order
    return BlockUse(
        first_pfn=np.flatnonzero(in_zone) << state.machine.pageblock_order,
        migratetype=state.blocks["migratetype"][in_zone],
        buddy=buddy,
        free=buddy + listed,
        movable=movable,
        reclaimable=reclaimable,
        unmovable=np.maximum(whole - buddy - listed - movable - reclaimable, 0),
    )


def _pages_of(state: State, heads: np.ndarray) -> np.ndarray:
    """Return pages by block of what begins at the marked page frames, int64."""
    block_order = state.machine.pageblock_order
    pfns = np.flatnonzero(heads)
    orders = state.pages["order"][pfns].astype(np.int64)
    sizes = np.int64(1) << np.minimum(orders, block_order)
    pages = np.bincount(pfns >> block_order, sizes, len(state.blocks)).astype(np.int64)
    larger = orders > block_order
    for pfn, order in zip(pfns[larger].tolist(), orders[larger].tolist(), strict=True):
        first = pfn >> block_order
        pages[first : first + (1 << order - block_order)] = 1 << block_order
    return pages


def buddies(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Free buddies: page frames, orders and the migratetypes of their lists, by page frame."""
    pfns = np.flatnonzero(state.pages["where"] == at.BUDDY)
    pages = state.pages[pfns]
    return pfns, pages["order"], pages["tag"]
