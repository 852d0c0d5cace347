"""Every pageblock of a machine at one instant: its type and what is free in it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.state import State


def pageblock_map(state: State) -> pd.DataFrame:
    """One row per pageblock, by address.

    Columns: pfn (of its first page), node, zone, migratetype, free_pages (in the buddy),
    pcp_pages (on per-CPU lists), pages (its size).

    Args:
        state: such as a replay's `final`.
    """
    machine = state.machine
    order = machine.pageblock_order
    where = np.ascontiguousarray(state.pages["where"])
    in_zone = np.flatnonzero(state.blocks["zone"])
    zones = state.blocks["zone"][in_zone].astype(np.intp) - 1
    names = np.array([zone.name for zone in machine.zones], object)
    nodes = np.array([zone.node for zone in machine.zones])
    types = np.array(machine.migratetypes, object)
    return pd.DataFrame(
        {
            "pfn": in_zone << order,
            "node": nodes[zones],
            "zone": names[zones],
            "migratetype": types[state.blocks["migratetype"][in_zone]],
            "free_pages": _pages_per_block(state, where == at.BUDDY)[in_zone],
            "pcp_pages": _pages_per_block(state, where == at.ON_PCP)[in_zone],
            "pages": 1 << order,
        }
    )


def _pages_per_block(state: State, is_there: np.ndarray) -> np.ndarray:
    """int64 per pageblock: pages of the runs whose first frames are given, bool by page frame."""
    order = state.machine.pageblock_order
    heads = np.flatnonzero(is_there)
    orders = state.pages["order"][heads].astype(np.int64)
    counts = np.zeros(len(state.blocks), np.int64)
    small = orders <= order
    pages = np.bincount(heads[small] >> order, 1 << orders[small], minlength=len(counts))
    counts += pages.astype(np.int64)
    for head, larger in zip(heads[~small].tolist(), orders[~small].tolist(), strict=True):
        first = head >> order
        counts[first : first + (1 << (larger - order))] += 1 << order
    return counts
