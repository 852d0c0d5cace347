"""kswapd in model time: wakes, runs over priorities, naps and sleep (S10.1 to S10.3)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import node_at, zone_at
from pagealloc_model.allocator.core.watermark import (
    is_eligible,
    node_balanced,
    node_boosted,
    start_kswapd,
    stop_kswapd,
)
from pagealloc_model.allocator.pressure.compaction_gates import compact_gap, forget_skips
from pagealloc_model.allocator.pressure.kcompactd import wake_kcompactd
from pagealloc_model.allocator.pressure.lru_scan import (
    balance_lists,
    budget_of,
    reclaim_cost,
    shrink_list,
)
from pagealloc_model.allocator.pressure.pressure_offsets import (
    node_pressure_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import inner

NAP_NS = 100_000_000


@inner
def take_wakes(st: np.ndarray, bits: int) -> None:
    """Act on the wakes that a request has asked for (S10.1)."""
    for node in range(st[at.NR_NODES]):
        region = node_at(st, node)
        if st[region + at.NODE_WAKE_ASKED]:
            st[region + at.NODE_WAKE_ASKED] = 0
            order = st[region + at.NODE_WAKE_ORDER]
            highest = st[region + at.NODE_WAKE_HIGHEST]
            st[region + at.NODE_WAKE_ORDER] = 0
            st[region + at.NODE_WAKE_HIGHEST] = 0
            wake(st, node, order, highest, bits)


@inner
def wake(st: np.ndarray, node: int, order: int, highest_type: int, bits: int) -> None:
    """One request wakes a node's kswapd, or its kcompactd where reclaim would not help."""
    words = node_pressure_at(st, node)
    st[words + pr.KSWAPD_WANTED_ORDER] = max(st[words + pr.KSWAPD_WANTED_ORDER], order)
    st[words + pr.KSWAPD_WANTED_HIGHEST] = max(st[words + pr.KSWAPD_WANTED_HIGHEST], highest_type)
    phase = st[words + pr.KSWAPD_PHASE]
    if phase == pr.RUNNING:
        return
    hopeless = st[words + pr.KSWAPD_FAILURES] >= pr.RETRIES_MAX
    if hopeless or (
        not node_boosted(st, node, highest_type) and node_balanced(st, node, order, highest_type)
    ):
        if not bits & at.GFP_DIRECT_RECLAIM:
            wake_kcompactd(st, node, order, highest_type)
        return
    if phase == pr.NAPPING:
        st[words + pr.KSWAPD_WOKEN_EARLY] = 1
        st[words + pr.KSWAPD_DUE] = st[at.NOW] + value_of(st, pr.KSWAPD_WAKE_NS)
        return
    begin_run(st, node, value_of(st, pr.KSWAPD_WAKE_NS))


@inner
def begin_run(st: np.ndarray, node: int, delay_ns: int) -> None:
    """Begin a run for the order and zones wanted (S10.2)."""
    words = node_pressure_at(st, node)
    highest = st[words + pr.KSWAPD_WANTED_HIGHEST]
    st[words + pr.KSWAPD_PHASE] = pr.RUNNING
    st[words + pr.KSWAPD_DUE] = st[at.NOW] + delay_ns
    st[words + pr.KSWAPD_ORDER] = st[words + pr.KSWAPD_WANTED_ORDER]
    st[words + pr.KSWAPD_ALLOC_ORDER] = st[words + pr.KSWAPD_WANTED_ORDER]
    st[words + pr.KSWAPD_HIGHEST] = highest
    st[words + pr.KSWAPD_WANTED_ORDER] = 0
    st[words + pr.KSWAPD_WANTED_HIGHEST] = 0
    st[words + pr.KSWAPD_WOKEN_EARLY] = 0
    start_kswapd(st, node, highest)
    boost = 0
    first = node * st[at.ZONE_TYPES]
    for zone in range(first, first + highest + 1):
        if is_eligible(st, zone, highest):
            boost += st[zone_at(zone) + at.ZONE_BOOST]
    st[words + pr.KSWAPD_BOOST_LEFT] = boost
    st[words + pr.KSWAPD_BOOSTED] = boost > 0
    st[words + pr.KSWAPD_PRIORITY] = pr.LOWEST_PRIORITY
    st[words + pr.KSWAPD_TOTAL] = 0
    st[words + pr.KSWAPD_GOAL] = 0
    st[word_at(st, pr.PAGEOUTRUN)] += 1


@inner
def begin_loop(st: np.ndarray, node: int) -> bool:
    """Whether a run goes on; sets up its next pass over the lists (S10.2)."""
    words = node_pressure_at(st, node)
    highest = st[words + pr.KSWAPD_HIGHEST]
    balanced = node_balanced(st, node, st[words + pr.KSWAPD_ORDER], highest)
    if not balanced and st[words + pr.KSWAPD_BOOST_LEFT] > 0:
        st[words + pr.KSWAPD_BOOST_LEFT] = 0
        st[words + pr.KSWAPD_PRIORITY] = pr.LOWEST_PRIORITY
    if balanced and st[words + pr.KSWAPD_BOOST_LEFT] == 0:
        return False
    goal = 0
    first = node * st[at.ZONE_TYPES]
    for zone in range(first, first + highest + 1):
        if is_eligible(st, zone, highest):
            region = zone_at(zone)
            goal += max(st[region + at.ZONE_HIGH] + st[region + at.ZONE_BOOST], pr.CLUSTER)
    priority = st[words + pr.KSWAPD_PRIORITY]
    st[words + pr.KSWAPD_GOAL] = goal
    st[words + pr.KSWAPD_FREED] = 0
    st[words + pr.KSWAPD_SCANNED] = 0
    st[words + pr.KSWAPD_LEFT + 1] = budget_of(st, node, pr.FILE, priority)
    st[words + pr.KSWAPD_LEFT] = 0
    if st[words + pr.KSWAPD_BOOST_LEFT] == 0:
        st[words + pr.KSWAPD_LEFT] = budget_of(st, node, pr.ANON, priority)
    return True


@inner
def scan_cluster(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    node: int,
) -> bool:
    """One piece of a pass; False once the pass is over."""
    words = node_pressure_at(st, node)
    kind = pr.FILE if st[words + pr.KSWAPD_LEFT + 1] > 0 else pr.ANON
    left = words + pr.KSWAPD_LEFT + kind - pr.ANON
    goal = st[words + pr.KSWAPD_GOAL] - st[words + pr.KSWAPD_FREED]
    if st[left] <= 0 or goal <= 0:
        return False
    budget = min(st[left], pr.CLUSTER)
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
        st[words + pr.KSWAPD_HIGHEST],
        goal,
        True,
    )
    st[left] = st[left] - scanned if scanned > 0 else 0
    st[words + pr.KSWAPD_SCANNED] += scanned
    st[words + pr.KSWAPD_FREED] += freed
    st[word_at(st, pr.PGSCAN_KSWAPD)] += scanned
    st[word_at(st, pr.PGSTEAL_KSWAPD)] += freed
    st[words + pr.KSWAPD_DUE] += reclaim_cost(st, scanned, freed)
    return True


@inner
def end_pass(st: np.ndarray, node: int) -> bool:
    """Take stock of a pass: lower orders, boosts, priority (S10.2); False ends the run."""
    words = node_pressure_at(st, node)
    freed = st[words + pr.KSWAPD_FREED]
    st[words + pr.KSWAPD_GOAL] = 0
    st[words + pr.KSWAPD_TOTAL] += freed
    order = st[words + pr.KSWAPD_ORDER]
    if order > 0 and st[words + pr.KSWAPD_TOTAL] >= compact_gap(st, order):
        st[words + pr.KSWAPD_ORDER] = 0
    return freed > 0 or st[words + pr.KSWAPD_BOOST_LEFT] == 0


@inner
def lower_priority(st: np.ndarray, node: int, wanted: int) -> bool:
    """Choose the next pass's priority, `wanted` pages having been the goal; False: none is left."""
    words = node_pressure_at(st, node)
    freed = st[words + pr.KSWAPD_FREED]
    priority = words + pr.KSWAPD_PRIORITY
    raises = st[words + pr.KSWAPD_SCANNED] < wanted
    if st[words + pr.KSWAPD_BOOST_LEFT] > 0 and st[priority] == pr.LOWEST_PRIORITY - 2:
        raises = False
    left = st[words + pr.KSWAPD_BOOST_LEFT]
    st[words + pr.KSWAPD_BOOST_LEFT] = left - min(left, freed)
    if raises or freed == 0:
        st[priority] -= 1
    return st[priority] >= 1


@inner
def end_run(
    st: np.ndarray, blocks: np.ndarray, folios: np.ndarray, node: int, fruitless: bool
) -> None:
    """End a run: boosts are taken back, and kswapd tries to sleep (S10.2, S10.3)."""
    words = node_pressure_at(st, node)
    st[at.NOW] = st[words + pr.KSWAPD_DUE]
    highest = st[words + pr.KSWAPD_HIGHEST]
    stop_kswapd(st, node)
    if st[words + pr.KSWAPD_TOTAL] > 0:
        st[words + pr.KSWAPD_FAILURES] = 0
    elif fruitless:
        st[words + pr.KSWAPD_FAILURES] += 1
    if st[words + pr.KSWAPD_BOOSTED]:
        wake_kcompactd(st, node, st[at.PAGEBLOCK_ORDER], highest)
    order = st[words + pr.KSWAPD_ORDER]
    if sleeps(st, node, order, highest):
        forget_skips_of_node(st, blocks, folios, node)
        wake_kcompactd(st, node, st[words + pr.KSWAPD_ALLOC_ORDER], highest)
        st[words + pr.KSWAPD_PHASE] = pr.NAPPING
        st[words + pr.KSWAPD_DUE] += NAP_NS
    else:
        st[word_at(st, pr.HIT_HIGH_QUICKLY)] += 1
        run_again(st, node)


@inner
def sleeps(st: np.ndarray, node: int, order: int, highest_type: int) -> bool:
    """Whether a node's kswapd may sleep (S10.3)."""
    if st[node_pressure_at(st, node) + pr.KSWAPD_FAILURES] >= pr.RETRIES_MAX:
        return True
    return node_balanced(st, node, order, highest_type)


@inner
def run_again(st: np.ndarray, node: int) -> None:
    """Begin a run for what is wanted now, at least the zones of the last."""
    words = node_pressure_at(st, node)
    highest = max(st[words + pr.KSWAPD_WANTED_HIGHEST], st[words + pr.KSWAPD_HIGHEST])
    st[words + pr.KSWAPD_WANTED_HIGHEST] = highest
    begin_run(st, node, 1000)


@inner
def forget_skips_of_node(st: np.ndarray, blocks: np.ndarray, folios: np.ndarray, node: int) -> None:
    """Let compaction look at all blocks again, where a direct run saw them all (S9.3)."""
    first = node * st[at.ZONE_TYPES]
    for zone in range(first, first + st[at.ZONE_TYPES]):
        if st[zone_pressure_at(st, zone) + pr.ZONE_FLUSH_SKIPS]:
            forget_skips(st, blocks, folios, zone)


@inner
def end_nap(st: np.ndarray, node: int) -> None:
    """A nap is over, or cut short: sleep, or run again (S10.3)."""
    words = node_pressure_at(st, node)
    order = st[words + pr.KSWAPD_ORDER]
    if st[words + pr.KSWAPD_WOKEN_EARLY]:
        st[word_at(st, pr.HIT_LOW_QUICKLY)] += 1
        wanted = max(st[words + pr.KSWAPD_WANTED_ORDER], order)
        st[words + pr.KSWAPD_WANTED_ORDER] = wanted
        run_again(st, node)
    elif sleeps(st, node, order, st[words + pr.KSWAPD_HIGHEST]):
        st[words + pr.KSWAPD_PHASE] = pr.ASLEEP
        st[words + pr.KSWAPD_DUE] = at.NEVER
    else:
        st[word_at(st, pr.HIT_HIGH_QUICKLY)] += 1
        run_again(st, node)


@inner
def step_kswapd(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    node: int,
) -> None:
    """What a node's kswapd does when it is due: a piece of a pass, or what comes between."""
    words = node_pressure_at(st, node)
    st[at.NOW] = st[words + pr.KSWAPD_DUE]
    st[at.EVENT_CPU] = st[words + pr.KSWAPD_CPU]
    if st[words + pr.KSWAPD_PHASE] == pr.NAPPING:
        end_nap(st, node)
        return
    if st[words + pr.KSWAPD_GOAL] == 0:
        if not begin_loop(st, node):
            end_run(st, blocks, folios, node, False)
        return
    if scan_cluster(pages, blocks, st, folios, places, node):
        return
    wanted = st[words + pr.KSWAPD_GOAL]
    if not end_pass(st, node) or not lower_priority(st, node, wanted):
        end_run(st, blocks, folios, node, True)
