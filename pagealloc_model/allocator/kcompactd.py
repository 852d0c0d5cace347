"""kcompactd in model time: wakes, zones one after the other, proactive rounds (S9.6)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.compaction import (
    begin_compaction,
    compact_unit,
    compaction_defer_reset,
    compaction_deferred,
    compaction_suit_allocation_order,
    defer_compaction,
    fragmentation_score_zone,
    proactive_marks,
    set_control,
)
from pagealloc_model.allocator.cpu_time import begin_on_cpu, time_of_work
from pagealloc_model.allocator.highatomic import unreserve_whole_blocks
from pagealloc_model.allocator.layout import node_at, zone_at
from pagealloc_model.allocator.pcp import __drain_all_pages
from pagealloc_model.allocator.pressure_layout import (
    compactor_at,
    node_pressure_at,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.allocator.watermark import nr_free_pages_blocks, seen_free
from pagealloc_model.base.jit import inner

CHECK_NS = 500_000_000
"""Time between two looks at whether to compact proactively."""
BEGIN_NS = 20_000


@inner
def background_gate(m: at.Arrays, zone: int, order: int, highest_type: int) -> int:
    """Part of kcompactd_node_suitable(): return whether kcompactd works on a zone (S9.1)."""
    if m.st[zone_at(zone) + at.ZONE_MANAGED] == 0:
        return pr.SKIPPED
    flags = background_flags(m)
    free = nr_free_pages_blocks(m, zone) if m.st[at.BLOCK_WATERMARKS] else seen_free(m, zone)
    return compaction_suit_allocation_order(m, zone, order, flags, highest_type, free, False)


@inner
def background_flags(m: at.Arrays) -> int:
    """Part of kcompactd_do_work(): return the mark that kcompactd works for (S9.1, S8.6)."""
    return at.WMARK_HIGH if m.st[at.BLOCK_WATERMARKS] else at.WMARK_MIN


@inner
def wakeup_kcompactd(m: at.Arrays, node: int, order: int, highest_type: int) -> None:
    """wakeup_kcompactd(): wake a node's kcompactd if it could do something (S9.6)."""
    if order <= 0:
        return
    words = node_pressure_at(m, node)
    m.st[words + pr.KCOMPACTD_ORDER] = max(m.st[words + pr.KCOMPACTD_ORDER], order)
    m.st[words + pr.KCOMPACTD_HIGHEST] = min(m.st[words + pr.KCOMPACTD_HIGHEST], highest_type)
    if m.st[words + pr.KCOMPACTD_DUE] != at.NEVER:
        return
    first = node * m.st[at.ZONE_TYPES]
    wanted = m.st[words + pr.KCOMPACTD_ORDER]
    highest = m.st[words + pr.KCOMPACTD_HIGHEST]
    for zone in range(first, first + highest + 1):
        if background_gate(m, zone, wanted, highest) == pr.CONTINUE:
            m.st[words + pr.KCOMPACTD_DUE] = m.st[at.NOW] + BEGIN_NS
            m.st[words + pr.KCOMPACTD_ZONE] = -1
            return


@inner
def begin_work(m: at.Arrays, node: int) -> None:
    """Part of kcompactd_do_work(): take up what was asked for; the zones follow."""
    words = node_pressure_at(m, node)
    m.st[words + pr.KCOMPACTD_RUN_ORDER] = m.st[words + pr.KCOMPACTD_ORDER]
    m.st[words + pr.KCOMPACTD_RUN_HIGHEST] = m.st[words + pr.KCOMPACTD_HIGHEST]
    m.st[words + pr.KCOMPACTD_ZONE] = 0
    m.st[word_at(m, pr.COMPACT_DAEMON_WAKE)] += 1
    set_background_control(m, node)


@inner
def set_background_control(m: at.Arrays, node: int) -> None:
    """Part of kcompactd_do_work(): fill the control block that all zones of a round share."""
    words = node_pressure_at(m, node)
    order = m.st[words + pr.KCOMPACTD_RUN_ORDER]
    begin_on_cpu(m, words + pr.KCOMPACTD_CPU_TIME)
    set_control(m, 1 + node, order, at.UNMOVABLE, pr.SYNC_LIGHT, m.st[words + pr.KSWAPD_CPU])
    run = compactor_at(m, 1 + node)
    m.st[run + pr.RUN_FLAGS] = background_flags(m) if order > 0 else 0
    m.st[run + pr.RUN_HIGHEST] = m.st[words + pr.KCOMPACTD_RUN_HIGHEST] if order > 0 else 0


@inner
def kcompactd_do_work(m: at.Arrays, node: int) -> bool:
    """kcompactd_do_work(): take a round's next step; returns whether it is over (S9.5, S9.6)."""
    words = node_pressure_at(m, node)
    zone = m.st[compactor_at(m, 1 + node) + pr.RUN_ZONE] - 1
    if zone >= 0:
        order = m.st[words + pr.KCOMPACTD_RUN_ORDER]
        status, cost = compact_unit(m, 1 + node)
        m.st[words + pr.KCOMPACTD_DUE] += time_of_work(m, words + pr.KCOMPACTD_CPU_TIME, cost)
        if order >= 0 and status == pr.SUCCESS:
            compaction_defer_reset(m, zone, order, False)
        elif order >= 0 and (status == pr.COMPLETE or status == pr.PARTIAL_SKIPPED):
            __drain_all_pages(m, zone, zone + 1)
            defer_compaction(m, zone, order)
        return False
    if m.st[words + pr.KCOMPACTD_ZONE] < 0:
        begin_work(m, node)
    order = m.st[words + pr.KCOMPACTD_RUN_ORDER]
    highest = m.st[words + pr.KCOMPACTD_RUN_HIGHEST]
    for index in range(m.st[words + pr.KCOMPACTD_ZONE], highest + 1):
        zone = node * m.st[at.ZONE_TYPES] + index
        if m.st[zone_at(zone) + at.ZONE_MANAGED] == 0:
            continue
        if order > 0 and (
            compaction_deferred(m, zone, order)
            or background_gate(m, zone, order, index) != pr.CONTINUE
            or background_gate(m, zone, order, highest) != pr.CONTINUE
        ):
            continue
        begin_compaction(m, 1 + node, zone)
        m.st[words + pr.KCOMPACTD_ZONE] = index + 1
        return False
    m.st[words + pr.KCOMPACTD_ZONE] = -1
    return True


@inner
def fragmentation_score_node(m: at.Arrays, node: int) -> int:
    """fragmentation_score_node(): return how fragmented free memory is, percent by size (S9.6)."""
    first = node * m.st[at.ZONE_TYPES]
    total = 1
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        total += m.st[zone_pressure_at(m, zone) + pr.ZONE_PRESENT]
    score = 0
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        present = m.st[zone_pressure_at(m, zone) + pr.ZONE_PRESENT]
        score += fragmentation_score_zone(m, zone) * present // total
    return score


@inner
def kcompactd(m: at.Arrays, node: int, timed_out: bool) -> None:
    """kcompactd(): do what a node's kcompactd has due: a step of a round, or a look (S9.6).

    It looks every half second, where its sleep `timed_out`: first for a wake without anything to
    do by then, then for memory that is too fragmented, the occasion of a proactive round. A policy
    gives free reserved blocks back then (S9.10). After a round the next look is a full sleep away,
    a long one only after a proactive round that was no use.
    """
    words = node_pressure_at(m, node)
    if not timed_out:
        m.st[at.NOW] = m.st[words + pr.KCOMPACTD_DUE]
        m.st[at.EVENT_CPU] = m.st[words + pr.KSWAPD_CPU]
        if not kcompactd_do_work(m, node):
            return
        order = m.st[words + pr.KCOMPACTD_RUN_ORDER]
        highest = m.st[words + pr.KCOMPACTD_RUN_HIGHEST]
        sleep = CHECK_NS
        if order < 0 and fragmentation_score_node(m, node) >= m.st[words + pr.PROACTIVE_SCORE]:
            sleep <<= pr.DEFER_SHIFT_MAX
        m.st[words + pr.PROACTIVE_DUE] = m.st[words + pr.KCOMPACTD_DUE] + sleep
        if order >= 0 and m.st[words + pr.KCOMPACTD_HIGHEST] >= highest:
            m.st[words + pr.KCOMPACTD_HIGHEST] = m.st[at.ZONE_TYPES] - 1
        if m.st[words + pr.KCOMPACTD_ORDER] <= max(order, 0):
            m.st[words + pr.KCOMPACTD_ORDER] = 0
            m.st[words + pr.KCOMPACTD_DUE] = at.NEVER
        return
    m.st[at.NOW] = m.st[words + pr.PROACTIVE_DUE]
    m.st[words + pr.PROACTIVE_DUE] += CHECK_NS
    if m.st[words + pr.KCOMPACTD_DUE] != at.NEVER:
        return
    if m.st[at.POLICY_KCOMPACTD_UNRESERVES]:
        first = node * m.st[at.ZONE_TYPES]
        for zone in range(first, first + m.st[at.ZONE_TYPES]):
            unreserve_whole_blocks(m, zone, m.st[words + pr.KSWAPD_CPU])
    if m.st[at.POLICY_COMPACTION_PROACTIVENESS] == 0:
        return
    if m.st[words + pr.KCOMPACTD_ORDER] > 0:
        m.st[words + pr.KCOMPACTD_DUE] = m.st[at.NOW] + BEGIN_NS
        m.st[words + pr.KCOMPACTD_ZONE] = -1
        return
    if m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE]:
        return
    score = fragmentation_score_node(m, node)
    if score > proactive_marks(m)[1]:
        m.st[words + pr.PROACTIVE_SCORE] = score
        m.st[words + pr.KCOMPACTD_RUN_ORDER] = -1
        m.st[words + pr.KCOMPACTD_RUN_HIGHEST] = m.st[at.ZONE_TYPES] - 1
        m.st[words + pr.KCOMPACTD_ZONE] = 0
        m.st[words + pr.KCOMPACTD_DUE] = m.st[at.NOW] + BEGIN_NS
        set_background_control(m, node)
