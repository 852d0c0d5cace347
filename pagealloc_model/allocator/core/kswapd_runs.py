"""When kswapd wakes, what a run of it marks, when a node is balanced (S1.7, S10)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.counters import carefully_seen_free
from pagealloc_model.allocator.core.event_log import count_transaction
from pagealloc_model.allocator.core.offsets import node_at, zone_at
from pagealloc_model.allocator.core.watermark import (
    __zone_watermark_ok,
    free_in_whole_blocks,
    wmark_pages,
)
from pagealloc_model.base.jit import cold, inner


@inner
def is_eligible(m: at.MachineArrays, zone: int, highest_type: int) -> bool:
    """Part of pgdat_balanced(): return whether a run's waker may use a zone with pages (S10.2)."""
    region = zone_at(zone)
    return m.st[region + at.ZONE_MANAGED] > 0 and m.st[region + at.ZONE_TYPE] <= highest_type


@inner
def pgdat_balanced(m: at.MachineArrays, node: int, order: int, highest_type: int) -> bool:
    """pgdat_balanced(): return whether an eligible zone passes its high mark (S10.2).

    Also True if the node has no such zone.
    """
    first = node * m.st[at.ZONE_TYPES]
    balanced = True
    for zone in range(first, first + highest_type + 1):
        if is_eligible(m, zone, highest_type):
            mark = wmark_pages(m, zone, at.WMARK_HIGH)
            free = carefully_seen_free(m, zone)
            if order > 0 and m.st[at.BLOCK_WATERMARKS]:
                free = free_in_whole_blocks(m, zone)
            if __zone_watermark_ok(m, zone, order, mark, highest_type, 0, free):
                return True
            balanced = False
    return balanced


@inner
def pgdat_watermark_boosted(m: at.MachineArrays, node: int, highest_type: int) -> bool:
    """pgdat_watermark_boosted(): return whether an eligible zone has a boost (S10.1)."""
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest_type + 1):
        if m.st[zone_at(zone) + at.ZONE_BOOST] > 0:
            return True
    return False


@inner
def set_pgdat_percpu_threshold(m: at.MachineArrays, node: int, which: int) -> None:
    """set_pgdat_percpu_threshold(): let a node's counters lag as while kswapd sleeps, or runs.

    `which` is ZONE_THRESHOLD_ASLEEP or ZONE_THRESHOLD_AWAKE (S1.10).
    """
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        region = zone_at(zone)
        m.st[region + at.ZONE_THRESHOLD] = m.st[region + which]


@inner
def take_boosts_back(m: at.MachineArrays, node: int) -> None:
    """Part of balance_pgdat(): end a node's reclaim run (S1.7).

    The boosts it saw at its start are taken back.
    """
    region = node_at(m, node)
    if not m.st[region + at.NODE_KSWAPD_ACTIVE]:
        return
    m.st[region + at.NODE_KSWAPD_ACTIVE] = 0
    m.st[at.KSWAPD_RUNS] -= 1
    first = node * m.st[at.ZONE_TYPES]
    highest_type = m.st[region + at.NODE_KSWAPD_HIGHEST]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        region = zone_at(zone)
        if is_eligible(m, zone, highest_type):
            m.st[region + at.ZONE_RECLAIM_ACTIVE] = 0
            remaining = m.st[region + at.ZONE_BOOST] - m.st[region + at.ZONE_REMEMBERED_BOOST]
            m.st[region + at.ZONE_BOOST] = max(remaining, 0)


@inner
def stop_kswapd(m: at.MachineArrays, node: int) -> None:
    """No kernel function: end a node's reclaim run and let its kswapd sleep at once (S10.3)."""
    if m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE]:
        take_boosts_back(m, node)
        set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_ASLEEP)


@inner
def count_boosts_taken_back(m: at.MachineArrays, node: int) -> None:
    """Part of balance_pgdat(): count a hold of zone->lock for each boost of a run (S11.1)."""
    region = node_at(m, node)
    if not m.st[region + at.NODE_KSWAPD_ACTIVE]:
        return
    highest_type = m.st[region + at.NODE_KSWAPD_HIGHEST]
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if (
            is_eligible(m, zone, highest_type)
            and m.st[zone_at(zone) + at.ZONE_REMEMBERED_BOOST] > 0
        ):
            cpu = m.st[at.EVENT_CPU]
            count_transaction(m, at.SITE_BOOST_RESET, zone, cpu, 0, -1, 0, 0)


@cold
def end_kswapd(m: at.MachineArrays, node: int) -> None:
    """No kernel function: end a run, its holds of zone->lock counted, and let kswapd sleep."""
    count_boosts_taken_back(m, node)
    stop_kswapd(m, node)


@inner
def note_reclaim(m: at.MachineArrays, node: int, highest_type: int) -> None:
    """Part of balance_pgdat(): begin a node's reclaim run (S10.2).

    Eligible zones are RECLAIM_ACTIVE, their boosts noted. A run that is under way must have been
    ended.
    """
    region = node_at(m, node)
    m.st[region + at.NODE_KSWAPD_ACTIVE] = 1
    m.st[region + at.NODE_KSWAPD_HIGHEST] = highest_type
    m.st[at.KSWAPD_RUNS] += 1
    m.st[at.COUNT_KSWAPD_WAKES] += 1
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if is_eligible(m, zone, highest_type):
            region = zone_at(zone)
            m.st[region + at.ZONE_RECLAIM_ACTIVE] = 1
            m.st[region + at.ZONE_REMEMBERED_BOOST] = m.st[region + at.ZONE_BOOST]


@inner
def start_kswapd(m: at.MachineArrays, node: int, highest_type: int) -> None:
    """No kernel function: wake a node's kswapd and begin its run at once (S10.2)."""
    set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_AWAKE)
    note_reclaim(m, node, highest_type)


@cold
def wakeup_kswapd(m: at.MachineArrays, node: int, order: int, highest_type: int) -> None:
    """wakeup_kswapd(): start a node's reclaim run unless it is balanced and not boosted (S10.1).

    Where the recording has kswapd's own events, runs are theirs and this does nothing. An elastic
    replay notes the wake, for its kswapd to act on.
    """
    if m.st[at.PRESSURE_BASE]:
        region = node_at(m, node)
        m.st[region + at.NODE_WAKE_ASKED] = 1
        m.st[region + at.NODE_WAKE_ORDER] = max(m.st[region + at.NODE_WAKE_ORDER], order)
        m.st[region + at.NODE_WAKE_HIGHEST] = max(m.st[region + at.NODE_WAKE_HIGHEST], highest_type)
        return
    if m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE] or m.st[at.KSWAPD_RECORDED]:
        return
    if pgdat_watermark_boosted(m, node, highest_type) or not pgdat_balanced(
        m, node, order, highest_type
    ):
        start_kswapd(m, node, highest_type)


@cold
def stop_balanced_kswapds(m: at.MachineArrays) -> None:
    """No kernel function: end every run of a node that is balanced at order 0 (S10.2)."""
    for node in range(m.st[at.NR_NODES]):
        region = node_at(m, node)
        active = m.st[region + at.NODE_KSWAPD_ACTIVE]
        if active and pgdat_balanced(m, node, 0, m.st[region + at.NODE_KSWAPD_HIGHEST]):
            end_kswapd(m, node)
