"""Direct reclaim by a request of an elastic replay (S8.2)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_context import AllocContext
from pagealloc_model.allocator.core.counters import carefully_seen_free, seen_free
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.watermark import __zone_watermark_ok, wmark_pages
from pagealloc_model.allocator.pressure.compaction_gates import compact_gap
from pagealloc_model.allocator.pressure.kswapd import kswapd_test_hopeless, wake_sleeper
from pagealloc_model.allocator.pressure.lru_scan import zone_reclaimable_pages
from pagealloc_model.allocator.pressure.pressure_offsets import (
    node_pressure_at,
    value_of,
    word_at,
)
from pagealloc_model.allocator.pressure.shrink_node import (
    begin_control,
    begin_shrinking,
    compaction_suitable,
    end_shrinking,
    is_left,
    shrink_cluster,
)
from pagealloc_model.base.jit import inner


@inner
def compaction_ready(m: at.MachineArrays, zone: int, sc: int) -> bool:
    """compaction_ready(): return whether compaction can do the rest for a costly order."""
    order = m.st[sc + pr.SC_ORDER]
    highest = m.st[sc + pr.SC_HIGHEST]
    if order <= m.st[at.POLICY_COSTLY_ORDER] or not m.st[sc + pr.SC_MAY_COMPACT]:
        return False
    mark = wmark_pages(m, zone, at.WMARK_MIN)
    if __zone_watermark_ok(m, zone, order, mark, highest, 0, seen_free(m, zone)):
        return True
    high = wmark_pages(m, zone, at.WMARK_HIGH)
    if m.st[at.RULE_READY_BY_HIGH_MARK]:
        return compaction_suitable(m, zone, order, high, highest)
    if not compaction_suitable(m, zone, order, mark, highest):
        return False
    free = carefully_seen_free(m, zone)
    return __zone_watermark_ok(m, zone, 0, high + compact_gap(m, order), highest, 0, free)


@inner
def shrink_node(m: at.MachineArrays, node: int, sc: int) -> None:
    """shrink_node(): scan a node's lists for a request; the time that takes is counted."""
    begin_shrinking(m, node, sc)
    goes_on = True
    while goes_on:
        while is_left(m, sc):
            m.st[word_at(m, pr.STALLED_NS)] += shrink_cluster(m, node, sc)
        goes_on = end_shrinking(m, node, sc)


@inner
def try_to_free_pages(m: at.MachineArrays, ac: AllocContext, order: int) -> int:
    """try_to_free_pages(): reclaim for a request.

    `order` is what is wanted in the end, which may be more than the request's (S8.7). Returns how
    much progress it made: pages freed, or 1 if compaction is to do the rest (S8.2).
    """
    throttle_direct_reclaim(m, ac)
    m.st[word_at(m, pr.REQUEST_STALLED)] = 1
    sc = word_at(m, pr.DIRECT_SCAN)
    begin_control(m, sc, order, ac.highest_type)
    m.st[sc + pr.SC_GOAL] = pr.CLUSTER
    m.st[sc + pr.SC_MAY_SWAP] = 1
    m.st[sc + pr.SC_MAY_COMPACT] = ac.bits & pr.GFP_IO != 0
    m.st[sc + pr.SC_MAY_FS] = ac.bits & pr.GFP_FS != 0
    progress = do_try_to_free_pages(m, ac, sc)
    if progress == 0 and m.st[at.RULE_FRUITLESS_RECLAIM_REPEATED]:
        progress = do_try_to_free_pages(m, ac, sc)
    if progress == 0 and m.st[sc + pr.SC_SKIPPED_DEACTIVATE]:
        m.st[sc + pr.SC_FORCE_DEACTIVATE] = 1
        progress = do_try_to_free_pages(m, ac, sc)
    return progress


@inner
def do_try_to_free_pages(m: at.MachineArrays, ac: AllocContext, sc: int) -> int:
    """do_try_to_free_pages(): reclaim harder and harder until a cluster is freed.

    Returns how much progress was made: pages freed, or 1 if compaction is to do the rest.
    """
    m.st[word_at(m, pr.ALLOCSTALL + ac.highest_type)] += 1
    for priority in range(pr.LOWEST_PRIORITY, -1, -1):
        m.st[sc + pr.SC_PRIORITY] = priority
        shrink_zones(m, ac, sc)
        if m.st[sc + pr.SC_RECLAIMED] >= m.st[sc + pr.SC_GOAL]:
            break
        if m.st[sc + pr.SC_COMPACTION_READY]:
            break
    return max(m.st[sc + pr.SC_RECLAIMED], m.st[sc + pr.SC_COMPACTION_READY])


@inner
def shrink_zones(m: at.MachineArrays, ac: AllocContext, sc: int) -> None:
    """shrink_zones(): pass once over the nodes of a request."""
    position = ac.zonelist
    scanned_node = -1
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        node = m.st[zone_at(zone) + at.ZONE_NODE]
        if compaction_ready(m, zone, sc):
            m.st[sc + pr.SC_COMPACTION_READY] = 1
        elif node != scanned_node:
            scanned_node = node
            shrink_node(m, node, sc)


@inner
def allow_direct_reclaim(m: at.MachineArrays, node: int) -> bool:
    """allow_direct_reclaim(): return whether a node has half of its min marks free (S8.2).

    Zones without anything to reclaim do not count. Else kswapd is woken, if it sleeps.
    Older kernels count free pages with their lag.
    """
    if kswapd_test_hopeless(m, node):
        return True
    marks = 0
    free = 0
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest_normal(m) + 1):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] == 0:
            continue
        has_free = m.st[zone_at(zone) + at.ZONE_FREE] > 0
        if zone_reclaimable_pages(m, zone) == 0 and (
            has_free or m.st[at.RULE_FREE_COUNTS_AS_RECLAIMABLE]
        ):
            continue
        marks += wmark_pages(m, zone, at.WMARK_MIN)
        if m.st[at.RULE_THROTTLE_COUNTS_EXACTLY]:
            free += m.st[zone_at(zone) + at.ZONE_FREE]
        else:
            free += seen_free(m, zone)
    if marks == 0 or free > marks // 2:
        return True
    words = node_pressure_at(m, node)
    if m.st[words + pr.KSWAPD_PHASE] != pr.RUNNING and not m.st[words + pr.KSWAPD_WOKEN]:
        wanted = m.st[words + pr.KSWAPD_WANTED_HIGHEST]
        if wanted < 0 or wanted > highest_normal(m):
            m.st[words + pr.KSWAPD_WANTED_HIGHEST] = highest_normal(m)
        wake_sleeper(m, node)
    return False


@inner
def highest_normal(m: at.MachineArrays) -> int:
    """No kernel function: return the highest zone type that any kernel memory may come from."""
    return value_of(m, pr.HIGHEST_NORMAL)


@inner
def throttle_direct_reclaim(m: at.MachineArrays, ac: AllocContext) -> None:
    """throttle_direct_reclaim(): wake kswapd where reserves run out; count the request (S8.2).

    The first node with a usable zone decides. The wait itself is left out.
    """
    position = ac.zonelist
    while m.st[position] >= 0:
        region = zone_at(m.st[position])
        position += 1
        if m.st[region + at.ZONE_TYPE] <= highest_normal(m):
            if not allow_direct_reclaim(m, m.st[region + at.ZONE_NODE]):
                m.st[word_at(m, pr.DIRECT_THROTTLE)] += 1
            return
