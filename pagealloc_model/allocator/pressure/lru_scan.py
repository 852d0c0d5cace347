"""What a scan of the LRU lists frees (S10): the model's vmscan."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.pressure.draws import is_dirty, is_referenced
from pagealloc_model.allocator.pressure.folios import queue_free
from pagealloc_model.allocator.pressure.lru import lru_move, page_zone
from pagealloc_model.allocator.pressure.pressure_offsets import (
    node_pressure_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.allocator.pressure.refaults import workingset_eviction
from pagealloc_model.base.jit import inner


@inner
def int_sqrt(value: int) -> int:
    """int_sqrt(): return the integer square root of a small number."""
    root = 0
    while (root + 1) * (root + 1) <= value:
        root += 1
    return root


@inner
def lruvec_lru_size(m: at.MachineArrays, node: int, lst: int) -> int:
    """lruvec_lru_size(): return the number of pages on one of a node's lists."""
    return m.st[node_pressure_at(m, node) + pr.NODE_PAGES + lst]


@inner
def get_scan_count(m: at.MachineArrays, node: int, kind: int, priority: int) -> int:
    """get_scan_count(): return how many pages of a class a pass of some priority looks at."""
    inactive = 2 * (kind - pr.ANON)
    size = (lruvec_lru_size(m, node, inactive) + lruvec_lru_size(m, node, inactive + 1)) >> priority
    return size * value_of(m, pr.ANON_SCAN_PERCENT) // 100 if kind == pr.ANON else size


@inner
def balance_lists(m: at.MachineArrays, node: int, kind: int, budget: int) -> None:
    """inactive_is_low() and shrink_active_list(): feed a short inactive list.

    Pages come from the active list's tail.
    """
    inactive = 2 * (kind - pr.ANON)
    size = lruvec_lru_size(m, node, inactive) + lruvec_lru_size(m, node, inactive + 1)
    ratio = max(1, int_sqrt(10 * (size >> 18)))
    tail = node_pressure_at(m, node) + pr.NODE_LISTS + (inactive + 1) * at.LIST_WORDS + at.TAIL
    moved = 0
    while moved < budget and lruvec_lru_size(m, node, inactive) * ratio < lruvec_lru_size(
        m, node, inactive + 1
    ):
        pfn = m.st[tail]
        moved += 1 << int(m.pages[pfn]["order"])
        lru_move(m, pfn, inactive)
    m.st[word_at(m, pr.PGDEACTIVATE)] += moved


@inner
def shrink_inactive_list(
    m: at.MachineArrays,
    node: int,
    kind: int,
    budget: int,
    highest_type: int,
    goal: int,
    writes: bool,
) -> tuple[int, int]:
    """shrink_inactive_list(): look at pages from an inactive list's tail; queue what is freed.

    It looks at `budget` pages at most.

    Returns:
        Pages looked at and pages queued.
    """
    inactive = 2 * (kind - pr.ANON)
    tail = node_pressure_at(m, node) + pr.NODE_LISTS + inactive * at.LIST_WORDS + at.TAIL
    scanned = 0
    freed = 0
    while scanned < budget and freed < goal and m.st[tail] >= 0:
        pfn = m.st[tail]
        size = 1 << int(m.pages[pfn]["order"])
        scanned += size
        if m.st[zone_at(page_zone(m, pfn)) + at.ZONE_TYPE] > highest_type:
            lru_move(m, pfn, inactive)
        elif is_referenced(m, pfn):
            lru_move(m, pfn, inactive + 1)
            m.st[word_at(m, pr.PGACTIVATE)] += size
        elif is_dirty(m, pfn) and writes:
            lru_move(m, pfn, inactive)
        else:
            workingset_eviction(m, pfn)
            queue_free(m, pfn)
            freed += size
    return scanned, freed


@inner
def reclaim_cost(m: at.MachineArrays, scanned: int, freed: int) -> int:
    """No kernel function: return the time that a scan takes, ns."""
    cost = scanned * value_of(m, pr.RECLAIM_SCAN_NS) + freed * value_of(m, pr.RECLAIM_FREE_NS)
    return max(cost, 1000)


@inner
def zone_reclaimable_pages(m: at.MachineArrays, zone: int) -> int:
    """zone_reclaimable_pages(): return the pages of a zone that reclaim could free (S8.3)."""
    words = zone_pressure_at(m, zone) + pr.ZONE_PAGES
    size = m.st[words + pr.INACTIVE_FILE] + m.st[words + pr.ACTIVE_FILE]
    if value_of(m, pr.ANON_SCAN_PERCENT) > 0:
        size += m.st[words + pr.INACTIVE_ANON] + m.st[words + pr.ACTIVE_ANON]
    return size
