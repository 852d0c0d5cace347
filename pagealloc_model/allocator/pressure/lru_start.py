"""Pages of the start image put on LRU lists."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.pressure.lru import lru_add
from pagealloc_model.base.jit import entry


@entry
def place_on_lists(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    pfns: np.ndarray,
    lists: np.ndarray,
) -> None:
    """Push allocated pages on the heads of their LRU lists, in the order given.

    Args:
        pages: `layout.PAGE` records.
        blocks: `layout.BLOCK` records.
        st: int64 state.
        folios: `pressure_layout.FOLIO` records; classes are written.
        pfns: int32, first pages of allocations.
        lists: int8, their lists.
    """
    for index in range(len(pfns)):
        pfn = int(pfns[index])
        lst = int(lists[index])
        folios[pfn]["kind"] = pr.ANON + lst // 2
        lru_add(pages, blocks, st, folios, pfn, lst)
