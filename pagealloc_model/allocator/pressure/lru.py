"""LRU lists of a node's allocated pages, inactive and active by class (S10)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.buddy import list_add, list_del
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, zone_pressure_at
from pagealloc_model.base.jit import inner


@inner
def page_zone(blocks: np.ndarray, st: np.ndarray, pfn: int) -> int:
    """page_zone(): return the zone that a page lies in."""
    return int(blocks[pfn >> st[at.PAGEBLOCK_ORDER]]["zone"]) - 1


@inner
def lru_words(st: np.ndarray, zone: int, lst: int) -> int:
    """No kernel function: return the offset of the list of a zone's node."""
    node = st[zone_at(zone) + at.ZONE_NODE]
    return node_pressure_at(st, node) + pr.NODE_LISTS + lst * at.LIST_WORDS


@inner
def update_lru_size(st: np.ndarray, zone: int, lst: int, change: int) -> None:
    """update_lru_size(): count pages that joined a list, or left it."""
    node = st[zone_at(zone) + at.ZONE_NODE]
    st[node_pressure_at(st, node) + pr.NODE_PAGES + lst] += change
    st[zone_pressure_at(st, zone) + pr.ZONE_PAGES + lst] += change


@inner
def lruvec_add_folio(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, pfn: int, lst: int
) -> None:
    """lruvec_add_folio(): put an allocated folio at a list's head."""
    zone = page_zone(blocks, st, pfn)
    folios[pfn]["place"] = lst + 1
    list_add(pages, st, lru_words(st, zone, lst), pfn)
    update_lru_size(st, zone, lst, 1 << int(pages[pfn]["order"]))


@inner
def lruvec_del_folio(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, pfn: int
) -> int:
    """lruvec_del_folio(): take a folio off its list, if it is on one; returns the list, or -1."""
    lst = int(folios[pfn]["place"]) - 1
    if lst < 0:
        return -1
    zone = page_zone(blocks, st, pfn)
    folios[pfn]["place"] = 0
    list_del(pages, st, lru_words(st, zone, lst), pfn)
    update_lru_size(st, zone, lst, -(1 << int(pages[pfn]["order"])))
    return lst


@inner
def lru_move(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, pfn: int, lst: int
) -> None:
    """No kernel function: move a folio from its list to the head of another, or of the same."""
    lruvec_del_folio(pages, blocks, st, folios, pfn)
    lruvec_add_folio(pages, blocks, st, folios, pfn, lst)
