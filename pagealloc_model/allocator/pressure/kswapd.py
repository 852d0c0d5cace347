"""kswapd in model time: wakes, runs over priorities, naps and sleep (S10.1 to S10.3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.kswapd_runs import (
    is_eligible,
    pgdat_balanced,
    pgdat_watermark_boosted,
    start_kswapd,
    stop_kswapd,
)
from pagealloc_model.allocator.core.offsets import node_at, zone_at
from pagealloc_model.allocator.pressure.compaction_blocks import __reset_isolation_suitable
from pagealloc_model.allocator.pressure.compaction_gates import compact_gap
from pagealloc_model.allocator.pressure.folios import free_waiting
from pagealloc_model.allocator.pressure.kcompactd import wakeup_kcompactd
from pagealloc_model.allocator.pressure.lru_scan import (
    balance_lists,
    get_scan_count,
    reclaim_cost,
    shrink_inactive_list,
)
from pagealloc_model.allocator.pressure.pressure_offsets import (
    node_pressure_at,
    value_of,
    word_at,
)
from pagealloc_model.base.jit import cold, inner

NAP_NS = 100_000_000


@inner
def take_wakes(m: at.MachineArrays, bits: int) -> None:
    """No kernel function: act on the wakes that a request has asked for (S10.1)."""
    for node in range(m.st[at.NR_NODES]):
        region = node_at(m, node)
        if m.st[region + at.NODE_WAKE_ASKED]:
            m.st[region + at.NODE_WAKE_ASKED] = 0
            order = m.st[region + at.NODE_WAKE_ORDER]
            highest = m.st[region + at.NODE_WAKE_HIGHEST]
            m.st[region + at.NODE_WAKE_ORDER] = 0
            m.st[region + at.NODE_WAKE_HIGHEST] = 0
            wake_node(m, node, order, highest, bits)


@cold
def wake_node(m: at.MachineArrays, node: int, order: int, highest_type: int, bits: int) -> None:
    """Part of wakeup_kswapd(): wake a node's kswapd for one request.

    It wakes kcompactd where reclaim would not help.
    """
    words = node_pressure_at(m, node)
    m.st[words + pr.KSWAPD_WANTED_ORDER] = max(m.st[words + pr.KSWAPD_WANTED_ORDER], order)
    m.st[words + pr.KSWAPD_WANTED_HIGHEST] = max(
        m.st[words + pr.KSWAPD_WANTED_HIGHEST], highest_type
    )
    phase = m.st[words + pr.KSWAPD_PHASE]
    if phase == pr.RUNNING:
        return
    hopeless = m.st[words + pr.KSWAPD_FAILURES] >= pr.RETRIES_MAX
    if hopeless or (
        not pgdat_watermark_boosted(m, node, highest_type)
        and pgdat_balanced(m, node, order, highest_type)
    ):
        if not bits & at.GFP_DIRECT_RECLAIM:
            wakeup_kcompactd(m, node, order, highest_type)
        return
    if phase == pr.NAPPING:
        m.st[words + pr.KSWAPD_WOKEN_EARLY] = 1
        m.st[words + pr.KSWAPD_DUE] = m.st[at.NOW] + value_of(m, pr.KSWAPD_WAKE_NS)
        return
    begin_run(m, node, value_of(m, pr.KSWAPD_WAKE_NS))


@inner
def begin_run(m: at.MachineArrays, node: int, delay_ns: int) -> None:
    """Part of balance_pgdat(): begin a run for the order and zones wanted (S10.2)."""
    words = node_pressure_at(m, node)
    highest = m.st[words + pr.KSWAPD_WANTED_HIGHEST]
    m.st[words + pr.KSWAPD_PHASE] = pr.RUNNING
    m.st[words + pr.KSWAPD_DUE] = m.st[at.NOW] + delay_ns
    m.st[words + pr.KSWAPD_ORDER] = m.st[words + pr.KSWAPD_WANTED_ORDER]
    m.st[words + pr.KSWAPD_ALLOC_ORDER] = m.st[words + pr.KSWAPD_WANTED_ORDER]
    m.st[words + pr.KSWAPD_HIGHEST] = highest
    m.st[words + pr.KSWAPD_WANTED_ORDER] = 0
    m.st[words + pr.KSWAPD_WANTED_HIGHEST] = 0
    m.st[words + pr.KSWAPD_WOKEN_EARLY] = 0
    start_kswapd(m, node, highest)
    boost = 0
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest + 1):
        if is_eligible(m, zone, highest):
            boost += m.st[zone_at(zone) + at.ZONE_BOOST]
    m.st[words + pr.KSWAPD_BOOST_LEFT] = boost
    m.st[words + pr.KSWAPD_BOOSTED] = boost > 0
    m.st[words + pr.KSWAPD_PRIORITY] = pr.LOWEST_PRIORITY
    m.st[words + pr.KSWAPD_TOTAL] = 0
    m.st[words + pr.KSWAPD_GOAL] = 0
    m.st[word_at(m, pr.PAGEOUTRUN)] += 1


@inner
def begin_loop(m: at.MachineArrays, node: int) -> bool:
    """Part of balance_pgdat(): set up the next pass; returns whether the run goes on (S10.2)."""
    words = node_pressure_at(m, node)
    highest = m.st[words + pr.KSWAPD_HIGHEST]
    balanced = pgdat_balanced(m, node, m.st[words + pr.KSWAPD_ORDER], highest)
    if not balanced and m.st[words + pr.KSWAPD_BOOST_LEFT] > 0:
        m.st[words + pr.KSWAPD_BOOST_LEFT] = 0
        m.st[words + pr.KSWAPD_PRIORITY] = pr.LOWEST_PRIORITY
    if balanced and m.st[words + pr.KSWAPD_BOOST_LEFT] == 0:
        return False
    goal = 0
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest + 1):
        if is_eligible(m, zone, highest):
            region = zone_at(zone)
            goal += max(m.st[region + at.ZONE_HIGH] + m.st[region + at.ZONE_BOOST], pr.CLUSTER)
    priority = m.st[words + pr.KSWAPD_PRIORITY]
    m.st[words + pr.KSWAPD_GOAL] = goal
    m.st[words + pr.KSWAPD_FREED] = 0
    m.st[words + pr.KSWAPD_SCANNED] = 0
    m.st[words + pr.KSWAPD_LEFT + 1] = get_scan_count(m, node, pr.FILE, priority)
    m.st[words + pr.KSWAPD_LEFT] = 0
    if m.st[words + pr.KSWAPD_BOOST_LEFT] == 0:
        m.st[words + pr.KSWAPD_LEFT] = get_scan_count(m, node, pr.ANON, priority)
    return True


@inner
def scan_cluster(m: at.MachineArrays, node: int) -> bool:
    """Part of shrink_node(): do one piece of a pass; returns False once the pass is over."""
    words = node_pressure_at(m, node)
    kind = pr.FILE if m.st[words + pr.KSWAPD_LEFT + 1] > 0 else pr.ANON
    left = words + pr.KSWAPD_LEFT + kind - pr.ANON
    goal = m.st[words + pr.KSWAPD_GOAL] - m.st[words + pr.KSWAPD_FREED]
    if m.st[left] <= 0 or goal <= 0:
        return False
    budget = min(m.st[left], pr.CLUSTER)
    balance_lists(m, node, kind, budget)
    scanned, freed = shrink_inactive_list(
        m,
        node,
        kind,
        budget,
        m.st[words + pr.KSWAPD_HIGHEST],
        goal,
        True,
    )
    m.st[left] = m.st[left] - scanned if scanned > 0 else 0
    m.st[words + pr.KSWAPD_SCANNED] += scanned
    m.st[words + pr.KSWAPD_FREED] += freed
    m.st[word_at(m, pr.PGSCAN_KSWAPD)] += scanned
    m.st[word_at(m, pr.PGSTEAL_KSWAPD)] += freed
    m.st[words + pr.KSWAPD_DUE] += reclaim_cost(m, scanned, freed)
    return True


@inner
def end_pass(m: at.MachineArrays, node: int) -> bool:
    """Part of kswapd_shrink_node(): take stock of a pass; returns False to end the run (S10.2).

    It looks at lower orders and boosts.
    """
    words = node_pressure_at(m, node)
    freed = m.st[words + pr.KSWAPD_FREED]
    m.st[words + pr.KSWAPD_GOAL] = 0
    m.st[words + pr.KSWAPD_TOTAL] += freed
    order = m.st[words + pr.KSWAPD_ORDER]
    if order > 0 and m.st[words + pr.KSWAPD_TOTAL] >= compact_gap(m, order):
        m.st[words + pr.KSWAPD_ORDER] = 0
    return freed > 0 or m.st[words + pr.KSWAPD_BOOST_LEFT] == 0


@inner
def lower_priority(m: at.MachineArrays, node: int, wanted: int) -> bool:
    """Part of balance_pgdat(): choose the next pass's priority; returns False if none is left.

    `wanted` pages were the goal.
    """
    words = node_pressure_at(m, node)
    freed = m.st[words + pr.KSWAPD_FREED]
    priority = words + pr.KSWAPD_PRIORITY
    raises = m.st[words + pr.KSWAPD_SCANNED] < wanted
    if m.st[words + pr.KSWAPD_BOOST_LEFT] > 0 and m.st[priority] == pr.LOWEST_PRIORITY - 2:
        raises = False
    left = m.st[words + pr.KSWAPD_BOOST_LEFT]
    m.st[words + pr.KSWAPD_BOOST_LEFT] = left - min(left, freed)
    if raises or freed == 0:
        m.st[priority] -= 1
    return m.st[priority] >= 1


@inner
def end_run(m: at.MachineArrays, node: int, fruitless: bool) -> None:
    """Part of balance_pgdat(): take boosts back; kswapd tries to sleep (S10.2, S10.3)."""
    words = node_pressure_at(m, node)
    m.st[at.NOW] = m.st[words + pr.KSWAPD_DUE]
    highest = m.st[words + pr.KSWAPD_HIGHEST]
    stop_kswapd(m, node)
    if m.st[words + pr.KSWAPD_TOTAL] > 0:
        m.st[words + pr.KSWAPD_FAILURES] = 0
    elif fruitless:
        m.st[words + pr.KSWAPD_FAILURES] += 1
    if m.st[words + pr.KSWAPD_BOOSTED]:
        wakeup_kcompactd(m, node, m.st[at.PAGEBLOCK_ORDER], highest)
    order = m.st[words + pr.KSWAPD_ORDER]
    if prepare_kswapd_sleep(m, node, order, highest):
        reset_isolation_suitable(m, node)
        wakeup_kcompactd(m, node, m.st[words + pr.KSWAPD_ALLOC_ORDER], highest)
        m.st[words + pr.KSWAPD_PHASE] = pr.NAPPING
        m.st[words + pr.KSWAPD_DUE] += NAP_NS
    else:
        m.st[word_at(m, pr.HIT_HIGH_QUICKLY)] += 1
        run_again(m, node)


@inner
def prepare_kswapd_sleep(m: at.MachineArrays, node: int, order: int, highest_type: int) -> bool:
    """prepare_kswapd_sleep(): return whether a node's kswapd may sleep (S10.3)."""
    if m.st[node_pressure_at(m, node) + pr.KSWAPD_FAILURES] >= pr.RETRIES_MAX:
        return True
    return pgdat_balanced(m, node, order, highest_type)


@inner
def run_again(m: at.MachineArrays, node: int) -> None:
    """Part of kswapd(): begin a run for what is wanted now, at least the zones of the last."""
    words = node_pressure_at(m, node)
    highest = max(m.st[words + pr.KSWAPD_WANTED_HIGHEST], m.st[words + pr.KSWAPD_HIGHEST])
    m.st[words + pr.KSWAPD_WANTED_HIGHEST] = highest
    begin_run(m, node, 1000)


@inner
def reset_isolation_suitable(m: at.MachineArrays, node: int) -> None:
    """reset_isolation_suitable(): let compaction look at all blocks of a node again (S9.3).

    That is for zones that a direct run saw as a whole.
    """
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            __reset_isolation_suitable(m, zone)


@inner
def end_nap(m: at.MachineArrays, node: int) -> None:
    """Part of kswapd_try_to_sleep(): end a nap; kswapd sleeps or runs again (S10.3).

    The nap may have been cut short.
    """
    words = node_pressure_at(m, node)
    order = m.st[words + pr.KSWAPD_ORDER]
    if m.st[words + pr.KSWAPD_WOKEN_EARLY]:
        m.st[word_at(m, pr.HIT_LOW_QUICKLY)] += 1
        wanted = max(m.st[words + pr.KSWAPD_WANTED_ORDER], order)
        m.st[words + pr.KSWAPD_WANTED_ORDER] = wanted
        run_again(m, node)
    elif prepare_kswapd_sleep(m, node, order, m.st[words + pr.KSWAPD_HIGHEST]):
        m.st[words + pr.KSWAPD_PHASE] = pr.ASLEEP
        m.st[words + pr.KSWAPD_DUE] = at.NEVER
    else:
        m.st[word_at(m, pr.HIT_HIGH_QUICKLY)] += 1
        run_again(m, node)


@inner
def step_kswapd(m: at.MachineArrays, node: int) -> None:
    """Part of kswapd(): do what a node's kswapd has due.

    It is a piece of a pass, or what comes between.
    """
    words = node_pressure_at(m, node)
    m.st[at.NOW] = m.st[words + pr.KSWAPD_DUE]
    m.st[at.EVENT_CPU] = m.st[words + pr.KSWAPD_CPU]
    if m.st[words + pr.KSWAPD_PHASE] == pr.NAPPING:
        end_nap(m, node)
        return
    if m.st[words + pr.KSWAPD_GOAL] == 0:
        if not begin_loop(m, node):
            end_run(m, node, False)
        return
    if scan_cluster(m, node):
        free_waiting(m)
        return
    wanted = m.st[words + pr.KSWAPD_GOAL]
    if not end_pass(m, node) or not lower_priority(m, node, wanted):
        end_run(m, node, True)
