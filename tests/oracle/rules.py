"""The oracle's options: kernels (S13), policy, assumptions, ownership, and what pressure adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from pagealloc_model.policy.ownership_options import OwnershipOptions
from tests.oracle.cpu_time import CpuSpan

SERIES = ("6.1", "6.12", "6.18", "7.2", "7.3")  # kernels with rules of their own, in order


def _by_kernel(*values: Any) -> Any:
    """A behaviour's value in each kernel of `SERIES`; 6.12's is the default."""
    return field(default=values[1], metadata={"values": values})


def _since(first: str) -> Any:
    """A behaviour that kernels have from one on."""
    return _by_kernel(*(place >= SERIES.index(first) for place in range(len(SERIES))))


def _until(last: str) -> Any:
    """A behaviour that no kernel has after one."""
    return _by_kernel(*(place <= SERIES.index(last) for place in range(len(SERIES))))


@dataclass(frozen=True, kw_only=True)
class OracleRules:
    """Behaviours that differ between kernel versions: the named rows of S13.

    Those after `highatomic_slowpath_only` concern reclaim and compaction, which only an elastic
    replay has.
    """

    name: str  # preset name
    # batch starts as managed >> this (S4.2)
    batch_from_managed_shift: int = _by_kernel(10, 10, 10, 12, 12)
    # and is at most this many bytes (S4.2)
    batch_cap_bytes: int = _by_kernel(1 << 20, 1 << 20, 1 << 20, 256 << 10, 256 << 10)
    # batch computed for a tiny zone; page sets never get less than 1 (S4.2)
    tiny_zone_batch: int = _by_kernel(0, 0, 0, 1, 1)
    # threshold of the high-order flush (S4.6)
    high_order_flush_adds_half_high_min: bool = _since("6.18")
    free_batched: bool = _since("7.2")  # the free path drains in chunks of batch (S4.7)
    decay_batched: bool = _since("6.12")  # so does the decay tick (S4.8)
    # requests served by a per-CPU list reserve a block too (S7.1)
    highatomic_from_pcp: bool = _until("6.18")
    # HIGHATOMIC requests may refill per-CPU lists (S4.4)
    highatomic_refills_pcp: bool = _until("6.18")
    # the reserve's cap is its share and one block, in zones of any size; else the share
    # rounded up to blocks, and none for small zones (S7.2)
    highatomic_cap_adds_block: bool = _until("6.1")
    # a page set's limit moves between bounds; else it is fixed, and frees in a row drain ever
    # more at once (S4.3-S4.8)
    pcp_tunes_itself: bool = _since("6.12")
    # a free page is on its block's list; else lists and blocks may disagree, pages on per-CPU
    # lists keep a type of their own, and fallback follows its older rule (S5.3, S5.4, S5.6,
    # S6.5, S7.2)
    free_lists_match_blocks: bool = _since("6.12")
    # whoever may not use the reserve does without all of it, used pages included; else
    # without its free pages (S3.3)
    watermark_subtracts_reserved: bool = _until("6.1")
    # the gfp bit ATOMIC lets requests ignore the boost, not HIGH (S3.3)
    atomic_bit_ignores_boost: bool = _until("6.1")
    # a claim looks for a buddy before it asks whether its block is worth it (S6.7)
    claim_looks_first: bool = _until("6.12")
    # only requests that may wake kswapd act on the flag (S3.2)
    boosted_flag_needs_kswapd: bool = _since("6.12")
    # nodes that kswapd works on are avoided at first (S3.1)
    skips_busy_kswapd_nodes: bool = _since("6.18")
    # the huge-page lists are for pages of a pageblock's order, not of the huge page table
    # entry's (S1.9)
    huge_lists_hold_blocks: bool = _until("6.1")
    # the first attempt may use the highatomic reserve too (S2.5)
    highatomic_fastpath: bool = _since("7.3")
    # only attempts at the MIN mark make the reserve grow (S7.1)
    highatomic_slowpath_only: bool = _since("7.3")
    # a zone without reclaimable pages has its free ones counted as such (S8.3)
    free_counts_as_reclaimable: bool = _until("6.18")
    # a run of kswapd that freed nothing and spared anonymous memory for a large cache begins
    # again without doing so (S10.2)
    tries_without_cache_trim: bool = _since("6.12")
    # direct reclaim that freed nothing is done once more (S8.2)
    fruitless_reclaim_repeated: bool = _since("6.12")
    # free pages are counted exactly where requests may have to wait (S8.2)
    throttle_counts_exactly: bool = _since("6.12")
    # a run that began with a boost is no failure (S10.2)
    boosted_runs_never_fail: bool = _since("7.2")
    # progress makes a node hopeful only if it is balanced then, and a list's free that finds
    # the zone well off does too (S10.2)
    revived_when_balanced: bool = _since("7.2")
    # compaction is ready if it suits by the high mark (S8.2)
    ready_by_high_mark: bool = _since("7.2")
    # one taking passes over so many folios of too high zones, and takes the others (S10.6)
    lru_skips_capped: bool = _since("7.2")
    # single pages of a cluster are freed in reverse order, larger folios as soon as they are
    # seen (S10.6)
    frees_backwards: bool = _until("6.1")
    # compaction before reclaim is the loop's first turn (S8.1)
    initial_compaction_in_loop: bool = _since("7.2")
    compaction_needs_reclaim: bool = _since("7.2")  # only who may reclaim may compact (S8.1)
    gap_cap: int = _by_kernel(0, 0, 0, 32, 32)  # most pages of compact_gap, 0 for any number (S9.1)
    # suitability is measured by the request's own mark (S9.1)
    suitable_by_request_mark: bool = _since("7.2")
    # asynchronous compaction for whole blocks takes movable blocks whoever asks (S9.3)
    async_source_by_order: bool = _since("7.2")
    stall_leaves_out_deferred: bool = _since("7.2")  # deferred attempts are no stalls (S9)
    # who may not reclaim falls back instead of failing (S8.6)
    defrag_mode_fixes: bool = _since("7.2")
    # reclaim and compaction make whole blocks for who may not fragment and is not movable
    # (S8.7)
    promotes_to_blocks: bool = _since("7.2")
    # such requests compact again whatever their order, and count anew once they may fragment
    # (S8.7)
    promoted_begin_afresh: bool = _since("7.3")
    # asynchronous compaction for costly orders that may not use CMA needs the free pages
    # outside CMA (S9.1)
    suitable_beside_cma: bool = _since("7.2")
    # direct compaction empties CMA blocks only for who may use them (S9.3)
    direct_source_needs_cma: bool = _since("7.2")
    # proactive compaction has no lowest score, and begins at most half of the lower score
    # above it (S9.6)
    proactive_leeway_shrinks: bool = _since("7.2")
    # compound pages are moved, if they are smaller than what is made (S9.3)
    moves_compound: bool = _since("6.12")
    # all pages of what scanners step over count as scanned (S9.3)
    counts_stepped_over: bool = _since("6.12")
    # the source scanner has all of a block from the zone's first page on (S9.3)
    begins_at_zone_start: bool = _since("6.12")
    # whatever is isolated first in a block marks it, not only its first page (S9.3)
    any_isolation_marks: bool = _since("6.12")
    marks_found_sources: bool = _until("6.1")  # a block found in free lists is marked (S9.3)
    # the rest of a block is taken where a folio cannot be moved (S9.3)
    finishes_failed_blocks: bool = _since("6.12")
    # the block moved from last is where the scan ended, not where it began (S9.3)
    moved_from_end: bool = _since("6.12")
    # a captured page ends a run before lists are drained (S9.7)
    captured_before_drain: bool = _since("6.12")
    # MOVABLE requests capture from MOVABLE blocks below a block's order (S9.7)
    captures_movable: bool = _since("6.12")
    counts_proactive: bool = _since("6.12")  # proactive rounds are counted as kcompactd's (S9.6)
    holds_whole: bool = _since("6.12")  # targets are held as the buddies they were (S9.3)
    # blocks that begin with a buddy of the order asked are no targets (S9.3)
    target_by_order: bool = _since("6.12")
    # the target scanner steps over what ends in the block (S9.3)
    target_steps_inside: bool = _since("6.12")
    # its cached position goes a block lower than one scanned whole (S9.3)
    target_leaves_block: bool = _since("6.12")
    # the fast search for targets ends at once when it has enough (S9.3)
    ends_at_enough: bool = _since("6.12")
    # after it a block is marked if scanned whole, not if that was too little (S9.3)
    marks_scanned_targets: bool = _since("6.12")
    tests_late_target: bool = _since("6.12")  # the block in the middle has to be a target (S9.3)
    # zones that could serve a request suit for its retry (S8.4)
    served_zones_suit: bool = _since("6.12")


RULES = {
    name: OracleRules(
        name=name,
        **{
            rule.name: rule.metadata["values"][place]
            for rule in fields(OracleRules)
            if rule.metadata
        },
    )
    for place, name in enumerate(SERIES)
}
"""Presets by name."""


@dataclass(frozen=True, kw_only=True)
class OraclePolicy:
    """The choices under test; the defaults are mainline's. Those of `OVERRIDES` may be silent."""

    highatomic_gate_order: int = 0  # no reserve for orders up to this; 0 gates nothing (S7.2)
    highatomic_reserve_percent: int = 1  # cap of the reserve, percent of managed (S7.2)
    costly_order: int = 3  # PAGE_ALLOC_COSTLY_ORDER (S1.9, S4.6)
    pcp_batch: int | None = None  # page set batch, None to compute it (S4.2)
    pcp_high_min: int | None = None  # page set high_min, None to compute it (S4.3)
    pcp_high_max: int | None = None  # page set high_max, None to compute it (S4.3)
    percpu_pagelist_high_fraction: int = 0  # the sysctl; 0 tunes automatically (S4.3)
    pcp_free_batched: bool | None = None  # S4.7
    pcp_decay_batched: bool | None = None  # S4.8
    pcp_drain_batched: bool = False  # full drains go by batch, not by batch << S (S4.9)
    pcp_batch_scale_max: int = 5  # S of S4
    watermark_boost_factor: int = 15000  # 1/10000 of the high watermark; 0 disables (S1.7)
    defrag_mode: bool = False  # NOFRAGMENT everywhere until the slow path gives up (S8.6)
    defrag_atomic_falls_back: bool | None = None  # S8.6
    defrag_promotes_order: bool | None = None  # S8.7
    promoted_fall_back_afresh: bool | None = None  # S8.7
    highatomic_fastpath: bool | None = None  # S2.5
    highatomic_slowpath_only: bool | None = None  # S7.1
    # after a steal the rest of a refill steals; no: each page searches anew (S6.2)
    refill_mode_persists: bool = True
    # CPUs own pageblocks, in this manner; None: they do not (S12)
    ownership: OwnershipOptions | None = None

    def decides(self, name: str, rules: OracleRules) -> bool:
        """The policy's choice, or the kernel's where the policy is silent."""
        choice = getattr(self, name)
        return getattr(rules, OVERRIDES[name]) if choice is None else choice


OVERRIDES = {
    "pcp_free_batched": "free_batched",
    "pcp_decay_batched": "decay_batched",
    "defrag_atomic_falls_back": "defrag_mode_fixes",
    "defrag_promotes_order": "promotes_to_blocks",
    "promoted_fall_back_afresh": "promoted_begin_afresh",
    "highatomic_fastpath": "highatomic_fastpath",
    "highatomic_slowpath_only": "highatomic_slowpath_only",
}
"""Choices of a policy, and the rule that each takes the place of."""


@dataclass(frozen=True, kw_only=True)
class OracleAssumptions:
    """What the oracle takes for granted where a recording is silent, or takes from it."""

    # "exact", or "lagged": CPUs keep small changes of free pages back (S1.10)
    counters: Literal["exact", "lagged"] = "exact"
    kswapd_recorded: bool = False  # kswapd runs when it is told to, and only then (S10.2)
    # requests make room if the recording says they reclaimed, and only then (S8.2)
    direct_reclaim_recorded: bool = False
    # whole lists are drained when the recording says so, and only then (S4.9)
    drains_recorded: bool = False


@dataclass(frozen=True, kw_only=True)
class ElasticOptions:
    """Shares, costs and policy of an elastic replay (S9.8, S10.5)."""

    seed: int = 0  # of the draws
    file_referenced_per_mille: int = 50  # scanned pages of files that are in use
    anon_referenced_per_mille: int = 500  # the same of anonymous pages
    file_dirty_per_mille: int = 20  # scanned pages of files that must be written
    anon_scan_percent: int = 0  # how much anonymous lists are scanned, 0: no swap (S10.5)
    reclaim_scan_ns: int = 300  # time of kswapd to look at a page
    kswapd_free_ns: int = 500  # time of kswapd to free one
    kswapd_wake_ns: int = 20_000  # time from a wake to kswapd's first step
    compact_scan_ns: int = 50  # time for compaction to look at a page
    compact_migrate_ns: int = 2_000  # time to move one
    anon_migration_fails_per_mille: int = 20  # anonymous folios that cannot be moved (S9.9)
    file_migration_fails_per_mille: int = 50  # the same of pages of files
    compaction_contended_per_mille: int = 0  # blocks in which asynchronous compaction meets others
    base_pages_per_huge: int = 512  # asked for in place of a refused huge page (S10.5)
    compact_gap: int | None = None  # replaces the rules' cap of compact_gap unless None
    extfrag_threshold: int = 500  # largest fragmentation index that lacks memory (S9.2)
    proactiveness: int = 20  # of background compaction, in percent (S9.6)
    assists: bool = False  # wakes of kswapd ask for a block at least (S8.6)
    block_watermarks: bool = False  # kswapd and kcompactd count free pages in whole blocks (S8.6)
    score_without_highatomic: bool = False  # free reserved pages do not count in the score (S9.10)
    index_without_highatomic: bool = False  # nor in the fragmentation index (S9.10)
    # kcompactd gives back reserved blocks that are wholly free (S9.10)
    kcompactd_unreserves: bool = False
    atomic_boost: bool = False  # atomic requests of order 0 in need boost their zones (S1.11)
    # local-only attempts at huge pages reclaim after compaction (S8.8)
    local_thp_reclaims: bool = False
    # reclaim bits of huge-page requests instead of their own; None keeps them (S8.5)
    thp_bits: int | None = None
    thp_madvised: bool = False  # a second attempt for a huge page has no NORETRY (S8.5)
    # when the daemons of nodes were on a CPU (S10.14); a node without any never waits for one
    kswapd_spans: Mapping[int, tuple[CpuSpan, ...]] = field(default_factory=dict)
    kcompactd_spans: Mapping[int, tuple[CpuSpan, ...]] = field(default_factory=dict)
