"""What a scan of the LRU lists frees (S10): the model's vmscan."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.pressure.draws import is_dirty, is_referenced
from pagealloc_model.allocator.pressure.folios import queue_free, remove_piece
from pagealloc_model.allocator.pressure.lru import lru_move, zone_of
from pagealloc_model.allocator.pressure.pressure_offsets import (
    node_pressure_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import inner


@inner
def root_of(value: int) -> int:
    """The integer square root of a small number."""
    root = 0
    while (root + 1) * (root + 1) <= value:
        root += 1
    return root


@inner
def list_size(st: np.ndarray, node: int, lst: int) -> int:
    """Pages on one of a node's lists."""
    return st[node_pressure_at(st, node) + pr.NODE_PAGES + lst]


@inner
def budget_of(st: np.ndarray, node: int, kind: int, priority: int) -> int:
    """Pages of a class that a pass of some priority looks at."""
    inactive = 2 * (kind - pr.ANON)
    size = (list_size(st, node, inactive) + list_size(st, node, inactive + 1)) >> priority
    return size * value_of(st, pr.ANON_SCAN_PERCENT) // 100 if kind == pr.ANON else size


@inner
def balance_lists(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    node: int,
    kind: int,
    budget: int,
) -> None:
    """Move pages from an active list's tail to the inactive one, where that is short."""
    inactive = 2 * (kind - pr.ANON)
    size = list_size(st, node, inactive) + list_size(st, node, inactive + 1)
    ratio = max(1, root_of(10 * (size >> 18)))
    tail = node_pressure_at(st, node) + pr.NODE_LISTS + (inactive + 1) * at.LIST_WORDS + at.TAIL
    moved = 0
    while moved < budget and list_size(st, node, inactive) * ratio < list_size(
        st, node, inactive + 1
    ):
        pfn = st[tail]
        moved += 1 << int(pages[pfn]["order"])
        lru_move(pages, blocks, st, folios, pfn, inactive)
    st[word_at(st, pr.PGDEACTIVATE)] += moved


@inner
def shrink_list(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    node: int,
    kind: int,
    budget: int,
    highest_type: int,
    goal: int,
    writes: bool,
) -> tuple[int, int]:
    """Look at up to `budget` pages from an inactive list's tail; queue what can be freed.

    Returns:
        Pages looked at and pages queued.
    """
    inactive = 2 * (kind - pr.ANON)
    tail = node_pressure_at(st, node) + pr.NODE_LISTS + inactive * at.LIST_WORDS + at.TAIL
    scanned = 0
    freed = 0
    while scanned < budget and freed < goal and st[tail] >= 0:
        pfn = st[tail]
        size = 1 << int(pages[pfn]["order"])
        scanned += size
        if st[zone_at(zone_of(blocks, st, pfn)) + at.ZONE_TYPE] > highest_type:
            lru_move(pages, blocks, st, folios, pfn, inactive)
        elif is_referenced(folios, st, pfn):
            lru_move(pages, blocks, st, folios, pfn, inactive + 1)
            st[word_at(st, pr.PGACTIVATE)] += size
        elif is_dirty(folios, st, pfn) and writes:
            lru_move(pages, blocks, st, folios, pfn, inactive)
        else:
            remove_piece(folios, places, pfn)
            queue_free(pages, blocks, st, folios, pfn)
            freed += size
    return scanned, freed


@inner
def reclaim_cost(st: np.ndarray, scanned: int, freed: int) -> int:
    """Time that a scan takes, ns."""
    cost = scanned * value_of(st, pr.RECLAIM_SCAN_NS) + freed * value_of(st, pr.RECLAIM_FREE_NS)
    return max(cost, 1000)


@inner
def reclaimable_pages(st: np.ndarray, zone: int) -> int:
    """Pages of a zone that reclaim could free (S8.3)."""
    words = zone_pressure_at(st, zone) + pr.ZONE_PAGES
    size = st[words + pr.INACTIVE_FILE] + st[words + pr.ACTIVE_FILE]
    if value_of(st, pr.ANON_SCAN_PERCENT) > 0:
        size += st[words + pr.INACTIVE_ANON] + st[words + pr.ACTIVE_ANON]
    return size
