"""kswapd in model time: wakes, runs over priorities, naps and sleep (S10.1 to S10.3)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.compaction import compact_gap
from pagealloc_model.allocator.compaction_scan import __reset_isolation_suitable
from pagealloc_model.allocator.cpu_time import begin_on_cpu, time_of_work
from pagealloc_model.allocator.kcompactd import wakeup_kcompactd
from pagealloc_model.allocator.layout import node_at, zone_at
from pagealloc_model.allocator.pressure_layout import node_pressure_at, value_of, word_at
from pagealloc_model.allocator.vmscan import (
    begin_control,
    begin_shrinking,
    end_shrinking,
    inactive_is_low,
    is_left,
    kswapd_test_hopeless,
    shrink_active_list,
    shrink_cluster,
    wake_sleeper,
)
from pagealloc_model.allocator.watermark import (
    count_boosts_taken_back,
    is_eligible,
    note_reclaim,
    pgdat_balanced,
    pgdat_watermark_boosted,
    set_pgdat_percpu_threshold,
    take_boosts_back,
    wmark_pages,
)
from pagealloc_model.base.jit import cold, inner

NAP_NS = 100_000_000
STEP_NS = 1000
"""Time that a decision takes."""


@inner
def take_wakes(m: at.Arrays, bits: int) -> None:
    """Act on the wakes that a request has asked for (S10.1)."""
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
def wake_node(m: at.Arrays, node: int, order: int, highest_type: int, bits: int) -> None:
    """Part of wakeup_kswapd(): wake a node's kswapd, or kcompactd where reclaim is no help."""
    words = node_pressure_at(m, node)
    m.st[words + pr.KSWAPD_WANTED_ORDER] = max(m.st[words + pr.KSWAPD_WANTED_ORDER], order)
    m.st[words + pr.KSWAPD_WANTED_HIGHEST] = max(
        m.st[words + pr.KSWAPD_WANTED_HIGHEST], highest_type
    )
    if m.st[words + pr.KSWAPD_PHASE] == pr.RUNNING or m.st[words + pr.KSWAPD_WOKEN]:
        return
    if kswapd_test_hopeless(m, node) or (
        not pgdat_watermark_boosted(m, node, highest_type)
        and pgdat_balanced(m, node, order, highest_type)
    ):
        if not bits & at.GFP_DIRECT_RECLAIM:
            wakeup_kcompactd(m, node, order, highest_type)
        return
    wake_sleeper(m, node)


@inner
def kswapd_highest_zoneidx(m: at.Arrays, node: int) -> int:
    """kswapd_highest_zoneidx(): return the zones wanted now, or else those of the last run."""
    words = node_pressure_at(m, node)
    wanted = m.st[words + pr.KSWAPD_WANTED_HIGHEST]
    return wanted if wanted >= 0 else m.st[words + pr.KSWAPD_HIGHEST]


@inner
def begin_run(m: at.Arrays, node: int) -> None:
    """Part of kswapd(): begin a run for the order and zones wanted (S10.2)."""
    words = node_pressure_at(m, node)
    sc = words + pr.KSWAPD_SCAN
    order = m.st[words + pr.KSWAPD_WANTED_ORDER]
    highest = kswapd_highest_zoneidx(m, node)
    if m.st[words + pr.KSWAPD_PHASE] != pr.RUNNING:
        begin_on_cpu(m, words + pr.KSWAPD_CPU_TIME)
    m.st[words + pr.KSWAPD_PHASE] = pr.RUNNING
    m.st[words + pr.KSWAPD_WOKEN] = 0
    m.st[words + pr.KSWAPD_DUE] = m.st[at.NOW] + STEP_NS
    m.st[words + pr.KSWAPD_ALLOC_ORDER] = order
    m.st[words + pr.KSWAPD_HIGHEST] = highest
    m.st[words + pr.KSWAPD_WANTED_ORDER] = 0
    m.st[words + pr.KSWAPD_WANTED_HIGHEST] = -1
    note_reclaim(m, node, highest)
    boost = 0
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest + 1):
        if is_eligible(m, zone, highest):
            boost += m.st[zone_at(zone) + at.ZONE_BOOST]
    m.st[words + pr.KSWAPD_BOOST_LEFT] = boost
    m.st[words + pr.KSWAPD_BOOSTED] = boost > 0
    m.st[words + pr.KSWAPD_IN_PASS] = 0
    begin_control(m, sc, order, highest)
    m.st[sc + pr.SC_IS_KSWAPD] = 1
    m.st[sc + pr.SC_MAY_COMPACT] = 1
    m.st[sc + pr.SC_MAY_FS] = 1
    m.st[word_at(m, pr.PAGEOUTRUN)] += 1


@inner
def begin_pass(m: at.Arrays, node: int) -> bool:
    """Part of balance_pgdat(): set up the next pass; returns whether there is one (S10.2)."""
    words = node_pressure_at(m, node)
    sc = words + pr.KSWAPD_SCAN
    highest = m.st[words + pr.KSWAPD_HIGHEST]
    balanced = pgdat_balanced(m, node, m.st[sc + pr.SC_ORDER], highest)
    if not balanced and m.st[words + pr.KSWAPD_BOOST_LEFT] > 0:
        m.st[words + pr.KSWAPD_BOOST_LEFT] = 0
        m.st[sc + pr.SC_PRIORITY] = pr.LOWEST_PRIORITY
    if balanced and m.st[words + pr.KSWAPD_BOOST_LEFT] == 0:
        return False
    m.st[sc + pr.SC_MAY_SWAP] = m.st[words + pr.KSWAPD_BOOST_LEFT] == 0
    m.st[sc + pr.SC_SCANNED] = 0
    m.st[words + pr.KSWAPD_PASS_FROM] = m.st[sc + pr.SC_RECLAIMED]
    kswapd_age_node(m, node)
    goal = 0
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest + 1):
        if is_eligible(m, zone, highest):
            goal += max(wmark_pages(m, zone, at.WMARK_HIGH), pr.CLUSTER)
    m.st[sc + pr.SC_GOAL] = goal
    m.st[words + pr.KSWAPD_IN_PASS] = 1
    begin_shrinking(m, node, sc)
    return True


@inner
def kswapd_age_node(m: at.Arrays, node: int) -> None:
    """kswapd_age_node(): feed a short inactive list of ANON where there is swap."""
    highest = m.st[node_pressure_at(m, node) + pr.KSWAPD_HIGHEST]
    if value_of(m, pr.ANON_SCAN_PERCENT) > 0 and inactive_is_low(m, node, pr.INACTIVE_ANON):
        shrink_active_list(m, node, pr.INACTIVE_ANON, pr.CLUSTER, highest)


@inner
def end_pass(m: at.Arrays, node: int) -> bool:
    """Part of balance_pgdat(): take stock of a pass; returns False if the run is over (S10.2)."""
    words = node_pressure_at(m, node)
    sc = words + pr.KSWAPD_SCAN
    total = m.st[sc + pr.SC_RECLAIMED]
    order = m.st[sc + pr.SC_ORDER]
    priority = m.st[sc + pr.SC_PRIORITY]
    boost = m.st[words + pr.KSWAPD_BOOST_LEFT]
    freed = total - m.st[words + pr.KSWAPD_PASS_FROM]
    m.st[words + pr.KSWAPD_IN_PASS] = 0
    if order > 0 and total >= compact_gap(m, order):
        m.st[sc + pr.SC_ORDER] = 0
    raises = max(m.st[sc + pr.SC_SCANNED], freed) < m.st[sc + pr.SC_GOAL]
    if boost > 0 and priority == pr.LOWEST_PRIORITY - 2:
        raises = False
    boost -= min(boost, freed)
    m.st[words + pr.KSWAPD_BOOST_LEFT] = boost
    if boost > 0 and freed == 0:
        return False
    if raises or freed == 0:
        m.st[sc + pr.SC_PRIORITY] = priority - 1
    return m.st[sc + pr.SC_PRIORITY] >= 1 or tries_without_trim(m, sc)


@inner
def tries_without_trim(m: at.Arrays, sc: int) -> bool:
    """Part of balance_pgdat(): return whether a run that left ANON out starts over once (S10.2)."""
    if m.st[sc + pr.SC_RECLAIMED] > 0 or not m.st[at.RULE_TRIES_WITHOUT_CACHE_TRIM]:  # 6.1 only
        return False
    if m.st[sc + pr.SC_NO_CACHE_TRIM] or not m.st[sc + pr.SC_CACHE_TRIM_FAILED]:
        return False
    m.st[sc + pr.SC_NO_CACHE_TRIM] = 1
    m.st[sc + pr.SC_PRIORITY] = pr.LOWEST_PRIORITY
    return True


@inner
def end_run(m: at.Arrays, node: int, gave_up: bool) -> None:
    """Part of balance_pgdat(): take boosts back; `gave_up`: perhaps not balanced (S10.2, S10.3)."""
    words = node_pressure_at(m, node)
    sc = words + pr.KSWAPD_SCAN
    boosted = m.st[words + pr.KSWAPD_BOOSTED]
    is_counted = not boosted or not m.st[at.RULE_BOOSTED_RUNS_NEVER_FAIL]  # up to 6.18
    if gave_up and is_counted and m.st[sc + pr.SC_RECLAIMED] == 0:
        m.st[words + pr.KSWAPD_FAILURES] += 1
    count_boosts_taken_back(m, node)
    take_boosts_back(m, node)
    if boosted:
        wakeup_kcompactd(m, node, m.st[at.PAGEBLOCK_ORDER], m.st[words + pr.KSWAPD_HIGHEST])
    m.st[words + pr.KSWAPD_ORDER] = m.st[sc + pr.SC_ORDER]
    if m.st[words + pr.KSWAPD_ORDER] >= m.st[words + pr.KSWAPD_ALLOC_ORDER]:
        m.st[words + pr.KSWAPD_ORDER] = m.st[words + pr.KSWAPD_WANTED_ORDER]
        m.st[words + pr.KSWAPD_ALLOC_ORDER] = m.st[words + pr.KSWAPD_WANTED_ORDER]
        m.st[words + pr.KSWAPD_HIGHEST] = kswapd_highest_zoneidx(m, node)
    # Nap if the node is balanced, else run again (S10.3).
    highest = m.st[words + pr.KSWAPD_HIGHEST]
    if prepare_kswapd_sleep(m, node, m.st[words + pr.KSWAPD_ORDER], highest):
        reset_isolation_suitable(m, node)
        wakeup_kcompactd(m, node, m.st[words + pr.KSWAPD_ALLOC_ORDER], highest)
        m.st[words + pr.KSWAPD_PHASE] = pr.NAPPING
        m.st[words + pr.KSWAPD_DUE] = m.st[at.NOW] + NAP_NS
    else:
        m.st[word_at(m, pr.KSWAPD_HIGH_WMARK_HIT_QUICKLY)] += 1
        begin_run(m, node)


@inner
def prepare_kswapd_sleep(m: at.Arrays, node: int, order: int, highest_type: int) -> bool:
    """prepare_kswapd_sleep(): return whether a node's kswapd may sleep (S10.3)."""
    return kswapd_test_hopeless(m, node) or pgdat_balanced(m, node, order, highest_type)


@inner
def reset_isolation_suitable(m: at.Arrays, node: int) -> None:
    """reset_isolation_suitable(): let compaction see blocks again after whole runs (S9.3)."""
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            __reset_isolation_suitable(m, zone)


@inner
def go_on(m: at.Arrays, node: int) -> None:
    """Part of balance_pgdat(): take the next step of a run: a cluster, or what comes between."""
    words = node_pressure_at(m, node)
    sc = words + pr.KSWAPD_SCAN
    if not m.st[words + pr.KSWAPD_IN_PASS] and not begin_pass(m, node):
        end_run(m, node, False)
    elif is_left(m, sc):
        work_ns = shrink_cluster(m, node, sc)
        m.st[words + pr.KSWAPD_DUE] += time_of_work(m, words + pr.KSWAPD_CPU_TIME, work_ns)
    elif not end_shrinking(m, node, sc) and not end_pass(m, node):
        end_run(m, node, True)


@inner
def step_kswapd(m: at.Arrays, node: int) -> None:
    """Part of kswapd(): do what a node's kswapd has due."""
    words = node_pressure_at(m, node)
    m.st[at.NOW] = m.st[words + pr.KSWAPD_DUE]
    m.st[at.EVENT_CPU] = m.st[words + pr.KSWAPD_CPU]
    if m.st[words + pr.KSWAPD_PHASE] == pr.NAPPING:
        # End a nap, perhaps cut short: sleep or run again (S10.3).
        order = m.st[words + pr.KSWAPD_ORDER]
        if m.st[words + pr.KSWAPD_WOKEN]:
            m.st[word_at(m, pr.KSWAPD_LOW_WMARK_HIT_QUICKLY)] += 1
            wanted = max(m.st[words + pr.KSWAPD_WANTED_ORDER], order)
            m.st[words + pr.KSWAPD_WANTED_ORDER] = wanted
            begin_run(m, node)
        elif prepare_kswapd_sleep(m, node, order, m.st[words + pr.KSWAPD_HIGHEST]):
            set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_ASLEEP)
            m.st[words + pr.KSWAPD_PHASE] = pr.ASLEEP
            m.st[words + pr.KSWAPD_DUE] = at.NEVER
        else:
            m.st[word_at(m, pr.KSWAPD_HIGH_WMARK_HIT_QUICKLY)] += 1
            begin_run(m, node)
    elif m.st[words + pr.KSWAPD_PHASE] == pr.ASLEEP:
        set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_AWAKE)
        begin_run(m, node)
    else:
        go_on(m, node)
