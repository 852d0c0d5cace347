"""How broken up free memory is: by order, and how many pageblocks are free in part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.state import State


@dataclass(frozen=True, kw_only=True)
class Fragmentation:
    """Free memory of a state, all zones together.

    Attributes:
        free_by_order: pages free in buddies of each order.
        listed: pages on per-CPU lists.
        whole_blocks: pageblocks that are free as a whole.
        partial_blocks: pageblocks that are free in part; pages on per-CPU lists are not free.
        touched_blocks: pageblocks that are not free as a whole, partial ones included.
        block_order: pageblock order.
    """

    free_by_order: tuple[int, ...]
    listed: int
    whole_blocks: int
    partial_blocks: int
    touched_blocks: int
    block_order: int

    @property
    def free(self) -> int:
        """Pages in free buddies."""
        return sum(self.free_by_order)

    def unusable_index(self, order: int) -> float:
        """Share of free memory that is of no use to a request of this order."""
        return sum(self.free_by_order[:order]) / self.free if self.free else 0.0


def fragmentation(state: State) -> Fragmentation:
    """Look at every page of a state."""
    order = state.machine.pageblock_order
    block_pages = 1 << order
    heads = np.flatnonzero(state.pages["where"] == at.BUDDY)
    sizes = np.int64(1) << state.pages["order"][heads].astype(np.int64)
    free_in_block = np.zeros(len(state.blocks), np.int64)
    np.add.at(free_in_block, heads >> order, np.minimum(sizes, block_pages))
    for head, size in zip(heads[sizes > block_pages], sizes[sizes > block_pages], strict=True):
        first = int(head) >> order
        free_in_block[first : first + (int(size) >> order)] = block_pages
    inside = state.blocks["zone"] > 0
    whole = int((free_in_block[inside] == block_pages).sum())
    by_order = state.free_buddies().sum(axis=(0, 2)) << np.arange(at.ORDERS)
    return Fragmentation(
        free_by_order=tuple(by_order[: state.machine.max_order + 1].tolist()),
        listed=int(state.pcp_words(at.PCP_COUNT, 1).sum()),
        whole_blocks=whole,
        partial_blocks=int(((free_in_block > 0) & (free_in_block < block_pages))[inside].sum()),
        touched_blocks=int(inside.sum()) - whole,
        block_order=order,
    )
