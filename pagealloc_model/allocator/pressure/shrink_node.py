"""One round of reclaim over a node's lists, for kswapd and for direct reclaim (S10.6)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.kswapd_runs import pgdat_balanced
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.watermark import __zone_watermark_ok, wmark_pages
from pagealloc_model.allocator.pressure.compaction_gates import (
    __compaction_suitable,
    compact_gap,
    fragmentation_index,
)
from pagealloc_model.allocator.pressure.lru_scan import (
    inactive_is_low,
    node_lru_pages,
    reclaim_cost,
    shrink_active_list,
    shrink_inactive_list,
)
from pagealloc_model.allocator.pressure.pressure_offsets import (
    node_pressure_at,
    value_of,
    word_at,
)
from pagealloc_model.allocator.pressure.scan_count import get_scan_count, prepare_scan_control
from pagealloc_model.allocator.pressure.shrink_slab import shrink_slab
from pagealloc_model.base.jit import inner


@inner
def begin_control(m: at.MachineArrays, sc: int, order: int, highest_type: int) -> None:
    """No kernel function: set up what reclaim goes by, for an order and zones up to a type."""
    for word in range(sc, sc + pr.SC_WORDS):
        m.st[word] = 0
    m.st[sc + pr.SC_ORDER] = order
    m.st[sc + pr.SC_HIGHEST] = highest_type
    m.st[sc + pr.SC_PRIORITY] = pr.LOWEST_PRIORITY


@inner
def begin_shrinking(m: at.MachineArrays, node: int, sc: int) -> None:
    """Part of shrink_node(): set up one round over a node's lists."""
    prepare_scan_control(m, node, sc)
    get_scan_count(m, node, sc)
    m.st[sc + pr.SC_LRU_RECLAIMED] = 0


@inner
def shrink_list(m: at.MachineArrays, node: int, lst: int, budget: int, sc: int) -> tuple[int, int]:
    """shrink_list(): look at pages of one list.

    Returns:
        Pages looked at and pages freed.
    """
    if lst & 1 == 0:
        return shrink_inactive_list(m, node, lst, budget, sc)
    bit = pr.DEACTIVATE_FILE if lst == pr.ACTIVE_FILE else pr.DEACTIVATE_ANON
    if m.st[sc + pr.SC_MAY_DEACTIVATE] & bit:
        shrink_active_list(m, node, lst - 1, budget, m.st[sc + pr.SC_HIGHEST])
    else:
        m.st[sc + pr.SC_SKIPPED_DEACTIVATE] = 1
    return 0, 0


@inner
def is_left(m: at.MachineArrays, sc: int) -> bool:
    """Part of shrink_lruvec(): return whether any list has pages to look at yet.

    ANON's active list alone does not count.
    """
    left = sc + pr.SC_LEFT
    return (
        m.st[left + pr.INACTIVE_ANON] > 0
        or m.st[left + pr.ACTIVE_FILE] > 0
        or m.st[left + pr.INACTIVE_FILE] > 0
    )


@inner
def shrink_cluster(m: at.MachineArrays, node: int, sc: int) -> int:
    """Part of shrink_lruvec(): look at up to a cluster of each list; returns the time, ns."""
    looked = 0
    freed = 0
    for lst in range(pr.LRU_LISTS):
        left = sc + pr.SC_LEFT + lst
        if m.st[left] > 0:
            budget = min(m.st[left], pr.CLUSTER)
            m.st[left] -= budget
            scanned, stolen = shrink_list(m, node, lst, budget, sc)
            looked += scanned
            freed += stolen
    m.st[sc + pr.SC_LRU_RECLAIMED] += freed
    is_kswapd = m.st[sc + pr.SC_IS_KSWAPD]
    m.st[word_at(m, pr.PGSCAN_KSWAPD if is_kswapd else pr.PGSCAN_DIRECT)] += looked
    m.st[word_at(m, pr.PGSTEAL_KSWAPD if is_kswapd else pr.PGSTEAL_DIRECT)] += freed
    is_first_pass = m.st[sc + pr.SC_PRIORITY] == pr.LOWEST_PRIORITY
    if m.st[sc + pr.SC_LRU_RECLAIMED] >= m.st[sc + pr.SC_GOAL] and (is_kswapd or not is_first_pass):
        end_in_proportion(m, sc)
    return reclaim_cost(m, node, looked, freed, is_kswapd)


@inner
def end_in_proportion(m: at.MachineArrays, sc: int) -> None:
    """Part of shrink_lruvec(): leave the class with less to scan; scan the other as far.

    The goal is reached. If one class has nothing left, all is left.
    """
    left = sc + pr.SC_LEFT
    targets = sc + pr.SC_TARGETS
    anon = m.st[left + pr.INACTIVE_ANON] + m.st[left + pr.ACTIVE_ANON]
    file = m.st[left + pr.INACTIVE_FILE] + m.st[left + pr.ACTIVE_FILE]
    if anon == 0 or file == 0:
        for lst in range(pr.LRU_LISTS):
            m.st[left + lst] = 0
        return
    smaller = pr.INACTIVE_ANON if file > anon else pr.INACTIVE_FILE
    target = m.st[targets + smaller] + m.st[targets + smaller + 1] + 1
    percent = min(anon, file) * 100 // target
    m.st[left + smaller] = 0
    m.st[left + smaller + 1] = 0
    larger = pr.INACTIVE_FILE - smaller
    for lst in range(larger, larger + 2):
        scanned = m.st[targets + lst] - m.st[left + lst]
        wanted = m.st[targets + lst] * (100 - percent) // 100
        m.st[left + lst] = max(wanted - scanned, 0)


@inner
def end_shrinking(m: at.MachineArrays, node: int, sc: int) -> bool:
    """Part of shrink_node(): shrink slabs, end a round; returns whether another follows."""
    if value_of(m, pr.ANON_SCAN_PERCENT) > 0 and inactive_is_low(m, node, pr.INACTIVE_ANON):
        shrink_active_list(m, node, pr.INACTIVE_ANON, pr.CLUSTER, m.st[sc + pr.SC_HIGHEST])
    freed = m.st[sc + pr.SC_LRU_RECLAIMED] + shrink_slab(m, node, sc)
    m.st[sc + pr.SC_RECLAIMED] += freed
    if freed > 0:
        m.st[sc + pr.SC_RECLAIMABLE] = 1
    if should_continue_reclaim(m, node, freed, sc):
        begin_shrinking(m, node, sc)
        return True
    if m.st[sc + pr.SC_RECLAIMABLE]:
        clear_failures(m, node, sc)
    elif m.st[sc + pr.SC_CACHE_TRIM]:
        m.st[sc + pr.SC_CACHE_TRIM_FAILED] = 1
    m.st[sc + pr.SC_RECLAIMABLE] = 0
    return False


@inner
def clear_failures(m: at.MachineArrays, node: int, sc: int) -> None:
    """kswapd_try_clear_hopeless(): forget a node's failures after progress.

    Newer kernels do so only once the node is balanced.
    """
    if not m.st[at.RULE_REVIVED_WHEN_BALANCED] or pgdat_balanced(
        m, node, m.st[sc + pr.SC_ORDER], m.st[sc + pr.SC_HIGHEST]
    ):
        m.st[node_pressure_at(m, node) + pr.KSWAPD_FAILURES] = 0


@inner
def in_reclaim_compaction(m: at.MachineArrays, sc: int) -> bool:
    """in_reclaim_compaction(): return whether reclaim is to help compaction."""
    order = m.st[sc + pr.SC_ORDER]
    if order == 0 or not m.st[sc + pr.SC_MAY_COMPACT]:
        return False
    is_pressed = m.st[sc + pr.SC_PRIORITY] < pr.LOWEST_PRIORITY - 2
    return order > m.st[at.POLICY_COSTLY_ORDER] or is_pressed


@inner
def should_continue_reclaim(m: at.MachineArrays, node: int, freed: int, sc: int) -> bool:
    """should_continue_reclaim(): return whether the round is repeated for compaction's sake."""
    if not in_reclaim_compaction(m, sc) or freed == 0:
        return False
    order = m.st[sc + pr.SC_ORDER]
    highest = m.st[sc + pr.SC_HIGHEST]
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest + 1):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            mark = wmark_pages(m, zone, at.WMARK_MIN)
            if __zone_watermark_ok(m, zone, order, mark, highest, 0, seen_free(m, zone)):
                return False
            if compaction_suitable(m, zone, order, mark, highest):
                return False
    pages = node_lru_pages(m, node, pr.INACTIVE_FILE)
    if value_of(m, pr.ANON_SCAN_PERCENT) > 0:
        pages += node_lru_pages(m, node, pr.INACTIVE_ANON)
    return pages > compact_gap(m, order)


@inner
def compaction_suitable(
    m: at.MachineArrays, zone: int, order: int, mark: int, highest_type: int
) -> bool:
    """compaction_suitable(): return whether compaction of a zone is worth a try (S9.1).

    `mark` is the request's, pages.
    """
    if not __compaction_suitable(m, zone, order, mark, highest_type, seen_free(m, zone)):
        return False
    if order <= m.st[at.POLICY_COSTLY_ORDER]:
        return True
    index = fragmentation_index(m, zone, order)
    return index < 0 or index > m.st[at.POLICY_EXTFRAG_THRESHOLD]
