"""LRU lists of a node's allocated pages, inactive and active by class (S10)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.buddy import push_head, unlink
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, zone_pressure_at
from pagealloc_model.base.jit import inner


@inner
def zone_of(blocks: np.ndarray, st: np.ndarray, pfn: int) -> int:
    """The zone that a page lies in."""
    return int(blocks[pfn >> st[at.PAGEBLOCK_ORDER]]["zone"]) - 1


@inner
def lru_words(st: np.ndarray, zone: int, lst: int) -> int:
    """Offset of the list of a zone's node."""
    node = st[zone_at(zone) + at.ZONE_NODE]
    return node_pressure_at(st, node) + pr.NODE_LISTS + lst * at.LIST_WORDS


@inner
def count_lru(st: np.ndarray, zone: int, lst: int, change: int) -> None:
    """Count pages that joined a list, or left it."""
    node = st[zone_at(zone) + at.ZONE_NODE]
    st[node_pressure_at(st, node) + pr.NODE_PAGES + lst] += change
    st[zone_pressure_at(st, zone) + pr.ZONE_PAGES + lst] += change


@inner
def lru_add(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, pfn: int, lst: int
) -> None:
    """Put an allocated folio at a list's head."""
    zone = zone_of(blocks, st, pfn)
    folios[pfn]["place"] = lst + 1
    push_head(pages, st, lru_words(st, zone, lst), pfn)
    count_lru(st, zone, lst, 1 << int(pages[pfn]["order"]))


@inner
def lru_remove(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, pfn: int
) -> int:
    """Take a folio off its list, if it is on one; returns the list, -1 if none."""
    lst = int(folios[pfn]["place"]) - 1
    if lst < 0:
        return -1
    zone = zone_of(blocks, st, pfn)
    folios[pfn]["place"] = 0
    unlink(pages, st, lru_words(st, zone, lst), pfn)
    count_lru(st, zone, lst, -(1 << int(pages[pfn]["order"])))
    return lst


@inner
def lru_move(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, pfn: int, lst: int
) -> None:
    """Move a folio from its list to the head of another, or of the same."""
    lru_remove(pages, blocks, st, folios, pfn)
    lru_add(pages, blocks, st, folios, pfn, lst)
