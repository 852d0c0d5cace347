"""kcompactd in model time: wakes, zones one after the other, proactive rounds (S9.6)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import node_at, zone_at
from pagealloc_model.allocator.core.watermark import free_in_whole_blocks
from pagealloc_model.allocator.pressure.compaction import (
    begin_compaction,
    compact_unit,
    end_compaction,
)
from pagealloc_model.allocator.pressure.compaction_gates import (
    defer,
    defer_no_more,
    fragmentation_score,
    gate,
    is_deferred,
)
from pagealloc_model.allocator.pressure.pressure_offsets import (
    compactor_at,
    node_pressure_at,
    value_of,
    word_at,
)
from pagealloc_model.base.jit import inner

CHECK_NS = 500_000_000
"""Time between two looks at whether to compact proactively."""
BEGIN_NS = 20_000


@inner
def background_gate(st: np.ndarray, zone: int, order: int, highest_type: int) -> int:
    """Whether kcompactd works on a zone (S9.1)."""
    if st[zone_at(zone) + at.ZONE_MANAGED] == 0:
        return pr.SKIPPED
    if st[at.BLOCK_WATERMARKS]:
        free = free_in_whole_blocks(st, zone)
        return gate(st, zone, order, at.WMARK_HIGH, 0, highest_type, free)
    return gate(st, zone, order, at.WMARK_MIN, 0, highest_type, seen_free(st, zone))


@inner
def wake_kcompactd(st: np.ndarray, node: int, order: int, highest_type: int) -> None:
    """Wake a node's kcompactd if it could do something for an order (S9.6)."""
    if order <= 0:
        return
    words = node_pressure_at(st, node)
    st[words + pr.KCOMPACTD_ORDER] = max(st[words + pr.KCOMPACTD_ORDER], order)
    st[words + pr.KCOMPACTD_HIGHEST] = min(st[words + pr.KCOMPACTD_HIGHEST], highest_type)
    if st[words + pr.KCOMPACTD_DUE] != at.NEVER:
        return
    first = node * st[at.ZONE_TYPES]
    wanted = st[words + pr.KCOMPACTD_ORDER]
    highest = st[words + pr.KCOMPACTD_HIGHEST]
    for zone in range(first, first + highest + 1):
        if background_gate(st, zone, wanted, highest) == pr.CONTINUE:
            st[words + pr.KCOMPACTD_DUE] = st[at.NOW] + BEGIN_NS
            st[words + pr.KCOMPACTD_ZONE] = -1
            return


@inner
def begin_work(st: np.ndarray, node: int) -> None:
    """Take up what was asked for; the zones follow."""
    words = node_pressure_at(st, node)
    st[words + pr.KCOMPACTD_RUN_ORDER] = st[words + pr.KCOMPACTD_ORDER]
    st[words + pr.KCOMPACTD_RUN_HIGHEST] = st[words + pr.KCOMPACTD_HIGHEST]
    st[words + pr.KCOMPACTD_ZONE] = 0
    st[word_at(st, pr.DAEMON_WAKE)] += 1


@inner
def next_zone(st: np.ndarray, blocks: np.ndarray, folios: np.ndarray, node: int) -> bool:
    """Begin the run of the next zone that needs one; False once there is none (S9.6)."""
    words = node_pressure_at(st, node)
    order = st[words + pr.KCOMPACTD_RUN_ORDER]
    highest = st[words + pr.KCOMPACTD_RUN_HIGHEST]
    index = st[words + pr.KCOMPACTD_ZONE]
    while index <= highest:
        zone = node * st[at.ZONE_TYPES] + index
        index += 1
        if st[zone_at(zone) + at.ZONE_MANAGED] == 0:
            continue
        if order > 0 and (
            is_deferred(st, zone, order)
            or background_gate(st, zone, order, index - 1) != pr.CONTINUE
            or background_gate(st, zone, order, highest) != pr.CONTINUE
        ):
            continue
        cpu = st[words + pr.KSWAPD_CPU]
        begin_compaction(
            st, blocks, folios, 1 + node, zone, order, at.UNMOVABLE, pr.SYNC_LIGHT, cpu
        )
        st[words + pr.KCOMPACTD_ZONE] = index
        return True
    st[words + pr.KCOMPACTD_ZONE] = -1
    return False


@inner
def end_work(st: np.ndarray, node: int) -> None:
    """All zones are done: sleep, or go on with more that was asked meanwhile."""
    words = node_pressure_at(st, node)
    order = st[words + pr.KCOMPACTD_RUN_ORDER]
    if order < 0:
        wait = CHECK_NS
        if node_score(st, node) >= st[words + pr.PROACTIVE_SCORE]:
            wait <<= pr.DEFER_SHIFT_MAX
        st[words + pr.PROACTIVE_DUE] = st[words + pr.KCOMPACTD_DUE] + wait
    elif st[words + pr.KCOMPACTD_HIGHEST] >= st[words + pr.KCOMPACTD_RUN_HIGHEST]:
        st[words + pr.KCOMPACTD_HIGHEST] = st[at.ZONE_TYPES] - 1
    if st[words + pr.KCOMPACTD_ORDER] > max(order, 0):
        return
    st[words + pr.KCOMPACTD_ORDER] = 0
    st[words + pr.KCOMPACTD_DUE] = at.NEVER


@inner
def end_zone(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    node: int,
    status: int,
) -> None:
    """A zone's run has ended: note what it means for later ones (S9.5)."""
    zone = st[compactor_at(st, 1 + node) + pr.RUN_ZONE] - 1
    order = st[node_pressure_at(st, node) + pr.KCOMPACTD_RUN_ORDER]
    end_compaction(pages, blocks, st, folios, 1 + node)
    if order < 0:
        return
    if status == pr.SUCCESS:
        defer_no_more(st, zone, order, False)
    elif status == pr.COMPLETE or status == pr.PARTIAL_SKIPPED:
        st[word_at(st, pr.DRAINED_ZONE)] = -1 - zone
        defer(st, zone, order)


@inner
def step_kcompactd(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    node: int,
) -> None:
    """What a node's kcompactd does when it is due."""
    words = node_pressure_at(st, node)
    st[at.NOW] = st[words + pr.KCOMPACTD_DUE]
    st[at.EVENT_CPU] = st[words + pr.KSWAPD_CPU]
    run = compactor_at(st, 1 + node)
    if st[run + pr.RUN_ZONE] > 0:
        st[run + pr.RUN_COST_NS] = 0
        status = compact_unit(pages, blocks, st, folios, places, 1 + node)
        st[words + pr.KCOMPACTD_DUE] += st[run + pr.RUN_COST_NS]
        if status != pr.CONTINUE:
            end_zone(pages, blocks, st, folios, node, status)
        return
    if st[words + pr.KCOMPACTD_ZONE] < 0:
        begin_work(st, node)
    if not next_zone(st, blocks, folios, node):
        end_work(st, node)


@inner
def node_score(st: np.ndarray, node: int) -> int:
    """How fragmented a node's free memory is: zones by size, percent (S9.6)."""
    first = node * st[at.ZONE_TYPES]
    total = 1
    for zone in range(first, first + st[at.ZONE_TYPES]):
        total += st[zone_at(zone) + at.ZONE_MANAGED]
    score = 0
    for zone in range(first, first + st[at.ZONE_TYPES]):
        score += fragmentation_score(st, zone) * st[zone_at(zone) + at.ZONE_MANAGED] // total
    return score


@inner
def look_proactively(st: np.ndarray, node: int) -> None:
    """Every half second: begin a proactive round where memory is too fragmented (S9.6)."""
    words = node_pressure_at(st, node)
    st[at.NOW] = st[words + pr.PROACTIVE_DUE]
    st[words + pr.PROACTIVE_DUE] += CHECK_NS
    share = value_of(st, pr.PROACTIVENESS)
    idle = st[words + pr.KCOMPACTD_DUE] == at.NEVER
    if share == 0 or not idle or st[node_at(st, node) + at.NODE_KSWAPD_ACTIVE]:
        return
    score = node_score(st, node)
    if score > min(max(100 - share, 5) + 10, 100):
        st[words + pr.PROACTIVE_SCORE] = score
        st[words + pr.KCOMPACTD_RUN_ORDER] = -1
        st[words + pr.KCOMPACTD_RUN_HIGHEST] = st[at.ZONE_TYPES] - 1
        st[words + pr.KCOMPACTD_ZONE] = 0
        st[words + pr.KCOMPACTD_DUE] = st[at.NOW] + BEGIN_NS
