"""Direct reclaim by a request of an elastic replay (S8.2)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.watermark import __zone_watermark_ok, wmark_pages
from pagealloc_model.allocator.pressure.compaction_gates import (
    compact_gap,
    compaction_suit_allocation_order,
)
from pagealloc_model.allocator.pressure.lru_scan import (
    balance_lists,
    get_scan_count,
    reclaim_cost,
    shrink_inactive_list,
)
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, value_of, word_at
from pagealloc_model.base.jit import inner


@inner
def begin_direct_reclaim(m: at.MachineArrays) -> None:
    """Part of do_try_to_free_pages(): count the stall and begin with the gentlest pass."""
    m.st[word_at(m, pr.ALLOCSTALL + value_of(m, pr.REQUEST_HIGHEST))] += 1
    m.st[word_at(m, pr.REQUEST_STALLED)] = 1
    m.st[word_at(m, pr.RECLAIMED)] = 0
    m.st[word_at(m, pr.RECLAIM_PRIORITY)] = pr.LOWEST_PRIORITY


@inner
def compaction_ready(m: at.MachineArrays, zone: int, order: int, highest_type: int) -> bool:
    """compaction_ready(): return whether compaction can do the rest for a costly order."""
    if order <= m.st[at.POLICY_COSTLY_ORDER] or not value_of(m, pr.REQUEST_BITS) & pr.GFP_IO:
        return False
    verdict = compaction_suit_allocation_order(
        m, zone, order, at.WMARK_MIN, 0, highest_type, seen_free(m, zone)
    )
    if verdict != pr.CONTINUE:
        return verdict == pr.SUCCESS
    mark = wmark_pages(m, zone, at.WMARK_HIGH) + compact_gap(m, order)
    return __zone_watermark_ok(m, zone, 0, mark, highest_type, 0, seen_free(m, zone))


@inner
def shrink_node(m: at.MachineArrays, node: int) -> None:
    """shrink_node(): scan a node's lists once, until enough is reclaimed.

    The current priority sets how far. The first, gentlest pass looks at all it may.
    """
    priority = value_of(m, pr.RECLAIM_PRIORITY)
    for kind in (pr.FILE, pr.ANON):
        left = get_scan_count(m, node, kind, priority)
        while left > 0 and (
            priority == pr.LOWEST_PRIORITY or value_of(m, pr.RECLAIMED) < pr.CLUSTER
        ):
            budget = min(left, pr.CLUSTER)
            balance_lists(m, node, kind, budget)
            scanned, freed = shrink_inactive_list(
                m,
                node,
                kind,
                budget,
                value_of(m, pr.REQUEST_HIGHEST),
                budget,
                True,
            )
            left = left - scanned if scanned > 0 else 0
            m.st[word_at(m, pr.RECLAIMED)] += freed
            if freed > 0:
                m.st[node_pressure_at(m, node) + pr.KSWAPD_FAILURES] = 0
            m.st[word_at(m, pr.PGSCAN_DIRECT)] += scanned
            m.st[word_at(m, pr.PGSTEAL_DIRECT)] += freed
            m.st[word_at(m, pr.STALLED_NS)] += reclaim_cost(m, scanned, freed)


@inner
def reclaim_pass(m: at.MachineArrays) -> bool:
    """Part of do_try_to_free_pages(): pass once over the nodes, as shrink_zones() does.

    Returns True once direct reclaim is over. `RECLAIMED` then says how much progress it made: 1 if
    compaction is to do the rest.
    """
    order = value_of(m, pr.REQUEST_ORDER)
    highest = value_of(m, pr.REQUEST_HIGHEST)
    position = value_of(m, pr.REQUEST_ZONELIST)
    ready = False
    scanned_node = -1
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        node = m.st[zone_at(zone) + at.ZONE_NODE]
        if compaction_ready(m, zone, order, highest):
            ready = True
        elif node != scanned_node:
            scanned_node = node
            shrink_node(m, node)
    freed = value_of(m, pr.RECLAIMED)
    if freed == 0 and ready:
        m.st[word_at(m, pr.RECLAIMED)] = 1
    m.st[word_at(m, pr.RECLAIM_PRIORITY)] -= 1
    return freed >= pr.CLUSTER or ready or value_of(m, pr.RECLAIM_PRIORITY) < 0
