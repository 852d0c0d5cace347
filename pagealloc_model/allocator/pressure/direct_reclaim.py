"""Direct reclaim by a request of an elastic replay (S8.2)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.watermark import above_mark, mark_pages
from pagealloc_model.allocator.pressure.compaction_gates import compact_gap, gate
from pagealloc_model.allocator.pressure.lru_scan import (
    balance_lists,
    budget_of,
    reclaim_cost,
    shrink_list,
)
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, value_of, word_at
from pagealloc_model.base.jit import inner


@inner
def begin_direct_reclaim(st: np.ndarray) -> None:
    """Count the stall and begin with the gentlest pass."""
    st[word_at(st, pr.ALLOCSTALL + value_of(st, pr.REQUEST_HIGHEST))] += 1
    st[word_at(st, pr.REQUEST_STALLED)] = 1
    st[word_at(st, pr.RECLAIMED)] = 0
    st[word_at(st, pr.RECLAIM_PRIORITY)] = pr.LOWEST_PRIORITY


@inner
def is_ready_to_compact(st: np.ndarray, zone: int, order: int, highest_type: int) -> bool:
    """Whether a zone has enough free for compaction of a costly order to do the rest."""
    if order <= st[at.COSTLY_ORDER] or not value_of(st, pr.REQUEST_BITS) & pr.GFP_IO:
        return False
    verdict = gate(st, zone, order, at.WMARK_MIN, 0, highest_type, seen_free(st, zone))
    if verdict != pr.CONTINUE:
        return verdict == pr.SUCCESS
    mark = mark_pages(st, zone, at.WMARK_HIGH) + compact_gap(st, order)
    return above_mark(st, zone, 0, mark, highest_type, 0, seen_free(st, zone))


@inner
def pass_over_node(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    node: int,
) -> None:
    """Scan a node's lists once at the current priority, until enough is reclaimed.

    The first, gentlest pass looks at all it may.
    """
    priority = value_of(st, pr.RECLAIM_PRIORITY)
    for kind in (pr.FILE, pr.ANON):
        left = budget_of(st, node, kind, priority)
        while left > 0 and (
            priority == pr.LOWEST_PRIORITY or value_of(st, pr.RECLAIMED) < pr.CLUSTER
        ):
            budget = min(left, pr.CLUSTER)
            balance_lists(pages, blocks, st, folios, node, kind, budget)
            scanned, freed = shrink_list(
                pages,
                blocks,
                st,
                folios,
                places,
                node,
                kind,
                budget,
                value_of(st, pr.REQUEST_HIGHEST),
                budget,
                True,
            )
            left = left - scanned if scanned > 0 else 0
            st[word_at(st, pr.RECLAIMED)] += freed
            if freed > 0:
                st[node_pressure_at(st, node) + pr.KSWAPD_FAILURES] = 0
            st[word_at(st, pr.PGSCAN_DIRECT)] += scanned
            st[word_at(st, pr.PGSTEAL_DIRECT)] += freed
            st[word_at(st, pr.STALLED_NS)] += reclaim_cost(st, scanned, freed)


@inner
def reclaim_pass(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
) -> bool:
    """One pass over the request's nodes; True once direct reclaim is over.

    `RECLAIMED` then says how much progress it made: 1 if compaction is to do the rest.
    """
    order = value_of(st, pr.REQUEST_ORDER)
    highest = value_of(st, pr.REQUEST_HIGHEST)
    position = value_of(st, pr.REQUEST_ZONELIST)
    ready = False
    scanned_node = -1
    while st[position] >= 0:
        zone = st[position]
        position += 1
        node = st[zone_at(zone) + at.ZONE_NODE]
        if is_ready_to_compact(st, zone, order, highest):
            ready = True
        elif node != scanned_node:
            scanned_node = node
            pass_over_node(pages, blocks, st, folios, places, node)
    freed = value_of(st, pr.RECLAIMED)
    if freed == 0 and ready:
        st[word_at(st, pr.RECLAIMED)] = 1
    st[word_at(st, pr.RECLAIM_PRIORITY)] -= 1
    return freed >= pr.CLUSTER or ready or value_of(st, pr.RECLAIM_PRIORITY) < 0
