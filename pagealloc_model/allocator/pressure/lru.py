"""LRU lists of a node's allocated pages, inactive and active by class (S10)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.page_lists import list_add, list_del
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, zone_pressure_at
from pagealloc_model.base.jit import inner


@inner
def page_zone(m: at.MachineArrays, pfn: int) -> int:
    """page_zone(): return the zone that a page lies in."""
    return int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["zone"]) - 1


@inner
def update_lru_size(m: at.MachineArrays, node: int, zone: int, lst: int, change: int) -> None:
    """update_lru_size(): count pages that joined a list, or left it.

    `node` and `zone` are the offsets of their words.
    """
    m.st[node + pr.NODE_PAGES + lst] += change
    m.st[zone + pr.ZONE_PAGES + lst] += change


@inner
def lruvec_add_folio(m: at.MachineArrays, pfn: int, lst: int) -> None:
    """lruvec_add_folio(): put an allocated folio at a list's head."""
    zone = page_zone(m, pfn)
    node_words = node_pressure_at(m, m.st[zone_at(zone) + at.ZONE_NODE])
    zone_words = zone_pressure_at(m, zone)
    m.folios[pfn]["place"] = lst + 1
    list_add(m.pages, m.st, node_words + pr.NODE_LISTS + lst * at.LIST_WORDS, pfn)
    update_lru_size(m, node_words, zone_words, lst, 1 << int(m.pages[pfn]["order"]))


@inner
def lruvec_del_folio(m: at.MachineArrays, pfn: int) -> int:
    """lruvec_del_folio(): take a folio off its list, if it is on one; returns the list, or -1."""
    lst = int(m.folios[pfn]["place"]) - 1
    if lst < 0:
        return -1
    zone = page_zone(m, pfn)
    node_words = node_pressure_at(m, m.st[zone_at(zone) + at.ZONE_NODE])
    zone_words = zone_pressure_at(m, zone)
    m.folios[pfn]["place"] = 0
    list_del(m.pages, m.st, node_words + pr.NODE_LISTS + lst * at.LIST_WORDS, pfn)
    update_lru_size(m, node_words, zone_words, lst, -(1 << int(m.pages[pfn]["order"])))
    return lst


@inner
def lru_move(m: at.MachineArrays, pfn: int, lst: int) -> None:
    """No kernel function: move a folio from its list to the head of another, or of the same."""
    lruvec_del_folio(m, pfn)
    lruvec_add_folio(m, pfn, lst)
