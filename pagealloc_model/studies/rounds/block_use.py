"""What each pageblock holds: free pages, pages that can be moved, and those that cannot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import State


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockUse:
    """Pages of each pageblock that lies in a zone, one entry a block.

    Attributes:
        migratetype: int8, of the block.
        free: int64, in the buddy or on a per-CPU list.
        movable: int64, allocated pages that can be moved.
        reclaimable: int64, of those asked for as reclaimable since the start.
        unmovable: int64, the rest.
    """

    migratetype: np.ndarray
    free: np.ndarray
    movable: np.ndarray
    reclaimable: np.ndarray
    unmovable: np.ndarray

    @property
    def mixed(self) -> np.ndarray:
        """bool: pages that can be moved lie beside pages that cannot."""
        return (self.movable > 0) & (self.reclaimable + self.unmovable > 0)


def block_use(state: State) -> BlockUse:
    """Count pages by pageblock.

    Args:
        state: an elastic replay's, between events.

    Returns:
        One entry a pageblock of a zone, ascending by address.
    """
    in_zone = state.blocks["zone"] > 0
    pages = state.pages
    where, kind = pages["where"], state.folios["kind"]
    allocated = where == at.ALLOCATED
    is_movable = allocated & (pages["tag"] == 1)
    is_reclaimable = allocated & ~is_movable & (kind == pr.RECLAIMABLE)
    is_free = (where == at.BUDDY) | (where == at.ON_PCP)
    free, movable, reclaimable = (
        _pages_of(state, marked)[in_zone] for marked in (is_free, is_movable, is_reclaimable)
    )
    whole = 1 << state.machine.pageblock_order
    return BlockUse(
        migratetype=state.blocks["migratetype"][in_zone],
        free=free,
        movable=movable,
        reclaimable=reclaimable,
        unmovable=np.maximum(whole - free - movable - reclaimable, 0),
    )


def _pages_of(state: State, heads: np.ndarray) -> np.ndarray:
    """Return pages by block of what begins at the marked page frames, int64."""
    block_order = state.machine.pageblock_order
    pfns = np.flatnonzero(heads)
    orders = state.pages["order"][pfns].astype(np.int64)
    large = orders > block_order
    blocks = np.append(
        np.repeat(pfns[large] >> block_order, 1 << (orders[large] - block_order)),
        pfns[~large] >> block_order,
    )
    within = _within(orders[large], block_order)
    blocks[: len(within)] += within
    sizes = np.append(np.full(len(within), 1 << block_order), np.int64(1) << orders[~large]).astype(
        np.int64
    )
    return np.bincount(blocks, weights=sizes, minlength=len(state.blocks)).astype(np.int64)


def _within(orders: np.ndarray, block_order: int) -> np.ndarray:
    """Return 0, 1, ... for the blocks of each buddy larger than one."""
    counts = np.int64(1) << (orders - block_order)
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
