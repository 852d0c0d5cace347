"""Direct reclaim by a request of an elastic replay (S8.2)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_context import AllocContext
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.watermark import __zone_watermark_ok, wmark_pages
from pagealloc_model.allocator.pressure.compaction_gates import (
    compact_gap,
    compaction_suit_allocation_order,
)
from pagealloc_model.allocator.pressure.folios import free_waiting
from pagealloc_model.allocator.pressure.lru_scan import (
    balance_lists,
    get_scan_count,
    reclaim_cost,
    shrink_inactive_list,
)
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, word_at
from pagealloc_model.base.jit import inner


@inner
def compaction_ready(m: at.MachineArrays, ac: AllocContext, zone: int, order: int) -> bool:
    """compaction_ready(): return whether compaction can do the rest for a costly order."""
    if order <= m.st[at.POLICY_COSTLY_ORDER] or not ac.bits & pr.GFP_IO:
        return False
    verdict = compaction_suit_allocation_order(
        m, zone, order, at.WMARK_MIN, 0, ac.highest_type, seen_free(m, zone)
    )
    if verdict != pr.CONTINUE:
        return verdict == pr.SUCCESS
    mark = wmark_pages(m, zone, at.WMARK_HIGH) + compact_gap(m, order)
    return __zone_watermark_ok(m, zone, 0, mark, ac.highest_type, 0, seen_free(m, zone))


@inner
def shrink_node(
    m: at.MachineArrays, node: int, priority: int, highest_type: int, reclaimed: int
) -> int:
    """shrink_node(): scan a node's lists once, until enough is reclaimed.

    `priority` sets how far; the first, gentlest pass looks at all it may. `reclaimed` says how many
    pages direct reclaim has freed so far; returned is how many it has then.
    """
    for kind in (pr.FILE, pr.ANON):
        left = get_scan_count(m, node, kind, priority)
        while left > 0 and (priority == pr.LOWEST_PRIORITY or reclaimed < pr.CLUSTER):
            budget = min(left, pr.CLUSTER)
            balance_lists(m, node, kind, budget)
            scanned, freed = shrink_inactive_list(
                m,
                node,
                kind,
                budget,
                highest_type,
                budget,
                True,
            )
            left = left - scanned if scanned > 0 else 0
            reclaimed += freed
            if freed > 0:
                m.st[node_pressure_at(m, node) + pr.KSWAPD_FAILURES] = 0
            m.st[word_at(m, pr.PGSCAN_DIRECT)] += scanned
            m.st[word_at(m, pr.PGSTEAL_DIRECT)] += freed
            m.st[word_at(m, pr.STALLED_NS)] += reclaim_cost(m, scanned, freed)
    return reclaimed


@inner
def try_to_free_pages(m: at.MachineArrays, ac: AllocContext, order: int) -> int:
    """try_to_free_pages() and do_try_to_free_pages(): reclaim for a request, harder and harder.

    `order` is what is wanted in the end, which may be more than the request's (S8.7). Returns how
    much progress it made: pages freed, or 1 if compaction is to do the rest (S8.2).
    """
    m.st[word_at(m, pr.ALLOCSTALL + ac.highest_type)] += 1
    m.st[word_at(m, pr.REQUEST_STALLED)] = 1
    reclaimed = 0
    for priority in range(pr.LOWEST_PRIORITY, -1, -1):
        reclaimed, ready = shrink_zones(m, ac, priority, reclaimed, order)
        free_waiting(m)
        if reclaimed >= pr.CLUSTER or ready:
            return max(reclaimed, 1)
    return reclaimed


@inner
def shrink_zones(
    m: at.MachineArrays, ac: AllocContext, priority: int, reclaimed: int, order: int
) -> tuple[int, bool]:
    """shrink_zones(): pass once over the nodes of a request.

    Returns:
        Pages that direct reclaim has freed so far, and whether compaction can do the rest.
    """
    position = ac.zonelist
    ready = False
    scanned_node = -1
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        node = m.st[zone_at(zone) + at.ZONE_NODE]
        if compaction_ready(m, ac, zone, order):
            ready = True
        elif node != scanned_node:
            scanned_node = node
            reclaimed = shrink_node(m, node, priority, ac.highest_type, reclaimed)
    return reclaimed, ready
