"""What an elastic replay's state has beyond a literal one's, set up from policy and assumptions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State, set_switches
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine

GAP_CAP = 32
"""Pages to which newer kernels cap compact_gap (S9.1)."""


def with_pressure(
    state: State,
    rules: KernelRules,
    policy: Policy,
    assumptions: Assumptions,
    *,
    seed: int = 0,
    start_ns: int | None = None,
) -> State:
    """No kernel function: return a state with room for LRU lists, kswapd and compaction.

    All of it is idle and empty.

    Args:
        state: a literal one; its arrays are taken over.
        rules: the kernel generation.
        policy: swept fields.
        assumptions: ours.
        seed: of the draws.
        start_ns: when the first half second until proactive compaction begins; None: now.
    """
    machine = state.machine
    base = len(state.st)
    nodes = base + pr.SCALARS
    zones = nodes + len(machine.nodes) * pr.NODE_WORDS
    compactors = zones + len(machine.zones) * pr.ZONE_WORDS
    end = compactors + (1 + len(machine.nodes)) * pr.COMPACTOR_WORDS
    st = np.zeros(end, np.int64)
    st[:base] = state.st
    st[at.PRESSURE_BASE] = base
    set_switches(st, rules, policy)
    _set_switches(st, policy)
    words = _scalars(rules, policy, assumptions) | {
        pr.SEED: seed,
        pr.NODES_BASE: nodes,
        pr.ZONES_BASE: zones,
        pr.COMPACTORS_BASE: compactors,
        pr.SLAB_OBJECTS: slab_objects(machine.nr_cpus),
        pr.HIGHEST_NORMAL: max(
            (
                number
                for number, name in enumerate(machine.zone_types)
                if name in ("DMA", "DMA32", "Normal")
            ),
            default=0,
        ),
        pr.QUEUE_HEAD: -1,
        pr.QUEUE_TAIL: -1,
    }
    for offset, value in words.items():
        st[base + offset] = int(value)
    begun = int(st[at.NOW]) if start_ns is None else start_ns
    for node in range(len(machine.nodes)):
        of_node = st[nodes + node * pr.NODE_WORDS :]
        _set_node(of_node, machine, node, begun)
        of_node[pr.KSWAPD_FREE_NS] = assumptions.elastic.kswapd_free_ns
    for zone in range(len(machine.zones)):
        _set_zone(st[zones + zone * pr.ZONE_WORDS :], machine, zone)
    lists = st[compactors:].reshape(-1, pr.COMPACTOR_WORDS)
    lists[:, pr.RUN_TARGETS : pr.RUN_TARGETS + at.ORDERS] = -1
    lists[:, pr.RUN_SOURCES] = -1
    return replace(state, st=st, folios=np.zeros(len(state.pages), pr.FOLIO))


def _set_switches(st: np.ndarray, policy: Policy) -> None:
    """No kernel function: set what shared decisions read.

    That is defrag_mode, and that a free ends no run of kswapd.
    """
    watermarks = policy.defrag_watermarks
    if watermarks is None:
        watermarks = policy.defrag_mode
    st[at.KSWAPD_RECORDED] = 1
    st[at.BLOCK_WATERMARKS] = bool(watermarks)


def _scalars(rules: KernelRules, policy: Policy, assumptions: Assumptions) -> dict[int, int]:
    """No kernel function: return the scalars of an elastic replay by name."""
    elastic = assumptions.elastic
    assists = policy.defrag_kswapd_assist
    if assists is None:
        assists = policy.defrag_mode
    falls_back = policy.defrag_atomic_falls_back
    if falls_back is None:
        falls_back = rules.defrag_mode_fixes
    gap = policy.compact_gap
    if gap is None:
        gap = GAP_CAP if rules.compact_gap_capped else 0
    return {
        pr.FILE_REFERENCED: elastic.file_referenced_per_mille,
        pr.ANON_REFERENCED: elastic.anon_referenced_per_mille,
        pr.FILE_DIRTY: elastic.file_dirty_per_mille,
        pr.ANON_SCAN_PERCENT: elastic.anon_scan_percent,
        pr.RECLAIM_SCAN_NS: elastic.reclaim_scan_ns,
        pr.RECLAIM_FREE_NS: elastic.reclaim_free_ns,
        pr.KSWAPD_WAKE_NS: elastic.kswapd_wake_ns,
        pr.COMPACT_SCAN_NS: elastic.compact_scan_ns,
        pr.COMPACT_MIGRATE_NS: elastic.compact_migrate_ns,
        pr.ANON_MIGRATION_FAILS: elastic.anon_migration_fails_per_mille,
        pr.FILE_MIGRATION_FAILS: elastic.file_migration_fails_per_mille,
        pr.COMPACTION_CONTENDED: elastic.compaction_contended_per_mille,
        pr.BASE_PAGES_PER_HUGE: elastic.base_pages_per_huge,
        pr.SLAB_SURVIVORS: elastic.slab_survivors_per_mille,
        pr.COMPACT_GAP_MAX: gap,
        pr.KSWAPD_ASSISTS: bool(assists),
        pr.THP_DEFRAG: (
            thp_reclaim_bits(policy.thp_defrag, elastic.thp_madvised) + 1
            if policy.thp_defrag
            else 0
        ),
        pr.THP_MADVISED: elastic.thp_madvised,
        pr.DEFRAG_FIXES: bool(policy.defrag_mode) and falls_back,
    }


def slab_objects(nr_cpus: int) -> int:
    """Part of calculate_order(): return the objects that SLUB wants in a slab at least (S10.8).

    A slab's order is the smallest that holds them, up to 3.
    """
    return 4 * (nr_cpus.bit_length() + 1)


def thp_reclaim_bits(setting: str, madvised: bool) -> int:
    """vma_thp_gfp_mask(): return the bits by which faults for huge pages may reclaim (S8.5).

    Args:
        setting: of transparent_hugepage/defrag: always, defer, defer+madvise, madvise or never.
        madvised: the memory is.
    """
    direct, kswapd = at.GFP_DIRECT_RECLAIM, at.GFP_KSWAPD_RECLAIM
    with_advice, without = {
        "always": (direct, direct | pr.GFP_NORETRY),
        "defer": (kswapd, kswapd),
        "defer+madvise": (direct, kswapd),
        "madvise": (direct, 0),
        "never": (0, 0),
    }[setting]
    return with_advice if madvised else without


def _set_zone(words: np.ndarray, machine: Machine, index: int) -> None:
    """No kernel function: describe a zone never compacted.

    Scanners are at its ends, nothing is deferred.
    """
    zone, order = machine.zones[index], machine.pageblock_order
    words[pr.ZONE_ORDER_FAILED] = machine.max_order + 1
    if zone.managed:
        words[pr.ZONE_MIGRATE_ASYNC] = words[pr.ZONE_MIGRATE_SYNC] = zone.start_pfn
        words[pr.ZONE_INIT_MIGRATE] = zone.start_pfn
        words[pr.ZONE_FREE_FROM] = (zone.end_pfn - 1) >> order << order
        words[pr.ZONE_INIT_FREE] = words[pr.ZONE_FREE_FROM]


def _set_node(words: np.ndarray, machine: Machine, node: int, begun: int) -> None:
    """No kernel function: describe an idle node.

    Its lists are empty, kswapd sleeps on the node's first CPU.
    """
    lists = words[: pr.NODE_PAGES].reshape(-1, at.LIST_WORDS)
    lists[:, at.HEAD] = -1
    lists[:, at.TAIL] = -1
    words[pr.SLAB_LIST + at.HEAD] = -1
    words[pr.SLAB_LIST + at.TAIL] = -1
    words[pr.KSWAPD_DUE] = at.NEVER
    words[pr.KSWAPD_HIGHEST] = len(machine.zone_types) - 1
    words[pr.KSWAPD_WANTED_HIGHEST] = -1
    words[pr.KCOMPACTD_DUE] = at.NEVER
    words[pr.KCOMPACTD_ZONE] = -1
    words[pr.KCOMPACTD_HIGHEST] = len(machine.zone_types) - 1
    words[pr.PROACTIVE_DUE] = begun + 500_000_000
    own = [cpu for cpu, of in enumerate(machine.cpu_node_indices) if of == node]
    words[pr.KSWAPD_CPU] = own[0] if own else 0
