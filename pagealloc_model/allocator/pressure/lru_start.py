"""Pages of the start image put on LRU lists."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.pressure.lru import lruvec_add_folio
from pagealloc_model.base.jit import entry


@entry
def place_on_lists(m: at.MachineArrays, pfns: np.ndarray, lists: np.ndarray) -> None:
    """No kernel function: push allocated pages on their LRU lists' heads, in the order given.

    Args:
        m: the machine; classes of folios are written.
        pfns: int32, first pages of allocations.
        lists: int8, their lists.
    """
    for index in range(len(pfns)):
        pfn = int(pfns[index])
        lst = int(lists[index])
        m.folios[pfn]["kind"] = pr.ANON + lst // 2
        lruvec_add_folio(m, pfn, lst)
