"""Drains of per-CPU lists besides those by frees: decay, expiry, all of a list (S4.8, S4.9)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.counters import fold_counters
from pagealloc_model.allocator.core.list_locks import lock_list_to_drain
from pagealloc_model.allocator.core.offsets import pcp_at, zone_at
from pagealloc_model.allocator.core.pcp import free_pcppages_bulk
from pagealloc_model.allocator.ownership.owned_lists import merge_before_drain
from pagealloc_model.allocator.ownership.ownership import after_full_drain, age_ownership
from pagealloc_model.base.jit import cold, inner


@inner
def decay_size(m: at.MachineArrays, pcp: int) -> int:
    """Part of decay_pcp_high(): let `high` sink as one tick does (S4.8).

    Returns how many pages now exceed it, if above 0.
    """
    if not m.st[at.RULE_PCP_DECAYS]:
        return 0
    base = m.st[pcp + at.PCP_BATCH]
    high_min = m.st[pcp + at.PCP_HIGH_MIN]
    high = m.st[pcp + at.PCP_HIGH]
    count = m.st[pcp + at.PCP_COUNT]
    if high > high_min:
        sunk = max(count - (base << m.st[at.POLICY_PCP_BATCH_SCALE_MAX]), high - (high >> 3))
        m.st[pcp + at.PCP_HIGH] = max(sunk, high_min)
    return count - m.st[pcp + at.PCP_HIGH]


@inner
def decay_pcp_high(m: at.MachineArrays, zone: int, cpu: int) -> None:
    """decay_pcp_high(): let `high` of a CPU's lists sink and drain what exceeds it (S4.8)."""
    pcp = pcp_at(m, zone, cpu)
    excess = decay_size(m, pcp)
    chunk = m.st[pcp + at.PCP_BATCH] if m.st[at.POLICY_PCP_DECAY_BATCHED] else excess
    if excess > 0:
        merge_before_drain(m, zone, cpu)
    while excess > 0:
        lock_list_to_drain(m, zone, pcp)
        free_pcppages_bulk(m, zone, cpu, min(chunk, excess), 0, at.SITE_DRAIN_DECAY)
        excess -= chunk


@inner
def expiry_size(m: at.MachineArrays, zone: int, cpu: int) -> int:
    """Part of refresh_cpu_vm_stats(): count a tick towards a list's expiry (S4.8).

    Returns how many pages to drain now.
    """
    pcp = pcp_at(m, zone, cpu)
    count = m.st[pcp + at.PCP_COUNT]
    if m.st[pcp + at.PCP_EXPIRE] == 0 or count == 0:
        return 0
    if m.st[zone_at(zone) + at.ZONE_NODE] == m.st[m.st[at.CPU_NODE_BASE] + cpu]:
        m.st[pcp + at.PCP_EXPIRE] = 0
        return 0
    m.st[pcp + at.PCP_EXPIRE] -= 1
    if m.st[pcp + at.PCP_EXPIRE] > 0:
        return 0
    return min(count, m.st[pcp + at.PCP_BATCH])


@cold
def refresh_cpu_vm_stats(m: at.MachineArrays, cpu: int) -> None:
    """refresh_cpu_vm_stats(): do one vmstat tick of a CPU (S4.8).

    Counters fold, lists decay, those of other nodes expire.
    """
    for zone in range(m.st[at.NR_ZONES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] == 0:
            continue
        if m.st[at.COUNTS_BY_CPU]:
            fold_counters(m, zone, cpu)
        age_ownership(m, zone, cpu)
        decay_pcp_high(m, zone, cpu)
        if m.st[at.NR_NODES] > 1:
            expired = expiry_size(m, zone, cpu)
            if expired > 0:
                merge_before_drain(m, zone, cpu)
                lock_list_to_drain(m, zone, pcp_at(m, zone, cpu))
                free_pcppages_bulk(m, zone, cpu, expired, 0, at.SITE_DRAIN_DECAY)


@cold
def drain_pages_zone(m: at.MachineArrays, zone: int, cpu: int) -> None:
    """drain_pages_zone(): drain all lists that a CPU has of a zone (S4.9)."""
    pcp = pcp_at(m, zone, cpu)
    chunk = m.st[pcp + at.PCP_COUNT]
    if m.st[at.FULL_DRAIN_CHUNK] == at.DRAINS_SCALED_BATCH:
        chunk = max(m.st[pcp + at.PCP_BATCH] << m.st[at.POLICY_PCP_BATCH_SCALE_MAX], 1)
    elif m.st[at.FULL_DRAIN_CHUNK] == at.DRAINS_BATCH:
        chunk = max(m.st[pcp + at.PCP_BATCH], 1)
    if m.st[pcp + at.PCP_COUNT] > 0:
        merge_before_drain(m, zone, cpu)
    while m.st[pcp + at.PCP_COUNT] > 0:
        lock_list_to_drain(m, zone, pcp)
        free_pcppages_bulk(m, zone, cpu, chunk, 0, at.SITE_DRAIN_ALL)
    after_full_drain(m, zone, cpu)


@inner
def drain_all_pages(m: at.MachineArrays) -> None:
    """drain_all_pages(): drain every CPU's lists of every zone (S4.9).

    A failing allocation does so. Where recorded drains are imposed this does nothing.
    """
    if m.st[at.DRAINS_RECORDED]:
        return
    for cpu in range(m.st[at.NR_CPUS]):
        for zone in range(m.st[at.NR_ZONES]):
            drain_pages_zone(m, zone, cpu)
