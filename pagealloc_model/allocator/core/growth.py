"""Memory that a zone gets while it runs: deferred initialisation, hotplug (S3.1, T9)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import add_buddy, free_to_buddy, remove_buddy
from pagealloc_model.allocator.core.event_log import forget_work
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.base.jit import inner


@inner
def grow_zone(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, zone: int, pfn: int, order: int
) -> None:
    """Give a zone one more free buddy, Movable; one of the largest order comes last on its list."""
    block_order = st[at.PAGEBLOCK_ORDER]
    for block in range(pfn >> block_order, ((pfn + (1 << order) - 1) >> block_order) + 1):
        if int(blocks[block]["zone"]) == 0:
            blocks[block]["zone"] = zone + 1
            blocks[block]["migratetype"] = at.MOVABLE
    st[zone_at(zone) + at.ZONE_MANAGED] += 1 << order
    migratetype = int(blocks[pfn >> block_order]["migratetype"])
    free_to_buddy(pages, blocks, st, zone, pfn, order, migratetype)
    if order == st[at.MAX_ORDER]:
        remove_buddy(pages, st, zone, pfn)
        add_buddy(pages, st, zone, pfn, order, migratetype, True)
    forget_work(st)
