"""The oracle's options: kernels (S13), policy, assumptions, ownership, and what pressure adds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class OracleOwnership:
    """Named switches of the proposal; the defaults are its most likely reading.

    Attributes:
        fit_test: what a claimed block must fit under: the current limit of the lists, its upper
            bound, or nothing.
        ownership_ends: when a block is whole again only, with the first page drained from it, or
            at its owner's next tick after that.
        remote_busy: what a free does that finds its owner's lists locked: free to the zone, to the
            freer's own list, or wait.
        remote_busy_per_1000: how many remote frees of 1000 find them locked.
        remote_overflow: who drains lists that a remote free pushed over their limit.
        remote_counts: remote frees change alloc_factor, free_count and prev_free_high_order.
        plain_frees: where pages of an owned block go that were handed out as plain ones.
        owning_types: types of requests that claim blocks.
        claims_up_to_order: largest order of requests that claim blocks.
        type_change: whether a block stays owned when it changes between types 0 to 2.
        offline_owner: whether a dead CPU's blocks stay owned.
        merges_at: buddies on the lists are merged before a drain, or with every free instead.
        full_drain: whether a full drain ends the ownership of the blocks recorded by the lists.
        recorded_cap: most blocks recorded by a page set; 0: any number.
        recorded_lists: recorded blocks are on one list, or on one for each type.
        pressure_claims: blocks are claimed while the zone is below its high mark or reclaiming.
        recover_limit: most recorded blocks a refill looks at; 0: any number.
        fragments: where pages drained from owned blocks queue in the zone.
        chunk_search: chunks are sought from the largest that fits down, or from the smallest up.
        drain_from: drains take the largest pages first, or begin at the freed page's list.
        cma_first: where CMA would come before the own type, only the last phase runs.
        routes_frees: frees go to the block's owner.
        claims_blocks: refills claim blocks.
        recovers: refills recover what was drained from owned blocks.
    """

    fit_test: Literal["high", "high_max", "always"] = "high"
    ownership_ends: Literal["whole", "drained", "aged"] = "whole"
    remote_busy: Literal["zone", "local", "spin"] = "zone"
    remote_busy_per_1000: int = 0
    remote_overflow: Literal["freer", "owner"] = "freer"
    remote_counts: bool = True
    plain_frees: Literal["owner", "local"] = "owner"
    owning_types: Literal["all", "movable"] = "all"
    claims_up_to_order: int = 10
    type_change: Literal["keep", "end"] = "keep"
    offline_owner: Literal["end", "keep"] = "end"
    merges_at: Literal["drain", "free"] = "drain"
    full_drain: Literal["keep", "end"] = "keep"
    recorded_cap: int = 0
    recorded_lists: Literal["one", "per_type"] = "one"
    pressure_claims: bool = True
    recover_limit: int = 0
    fragments: Literal["tail", "as_usual"] = "tail"
    chunk_search: Literal["largest", "smallest"] = "largest"
    drain_from: Literal["largest", "freed_list"] = "largest"
    cma_first: bool = False
    routes_frees: bool = True
    claims_blocks: bool = True
    recovers: bool = True


@dataclass(frozen=True, kw_only=True)
class OracleRules:
    """Behaviours that differ between kernel versions: the named rows of S13.

    The defaults are 6.12's. Those after `highatomic_slowpath_only` concern reclaim and compaction,
    which only an elastic replay has.

    Attributes:
        name: preset name.
        batch_from_managed_shift: batch starts as managed >> this (S4.2).
        batch_cap_bytes: and is at most this many bytes (S4.2).
        tiny_zone_batch: batch computed for a tiny zone; page sets never get less than 1 (S4.2).
        high_order_flush_adds_half_high_min: threshold of the high-order flush (S4.6).
        free_batched: the free path drains in chunks of batch (S4.7).
        decay_batched: so does the decay tick (S4.8).
        highatomic_from_pcp: requests served by a per-CPU list reserve a block too (S7.1).
        highatomic_refills_pcp: HIGHATOMIC requests may refill per-CPU lists (S4.4).
        highatomic_cap_adds_block: the reserve's cap is its share and one block, in zones of any
            size; else the share rounded up to blocks, and none for small zones (S7.2).
        pcp_tunes_itself: a page set's limit moves between bounds; else it is fixed, and frees in
            a row drain ever more at once (S4.3-S4.8).
        free_lists_match_blocks: a free page is on its block's list; else lists and blocks may
            disagree, pages on per-CPU lists keep a type of their own, and fallback follows its
            older rule (S5.3, S5.4, S5.6, S6.5, S7.2).
        watermark_subtracts_reserved: whoever may not use the reserve does without all of it, used
            pages included; else without its free pages (S3.3).
        atomic_bit_ignores_boost: the gfp bit ATOMIC lets requests ignore the boost, not HIGH
            (S3.3).
        boosted_flag_needs_kswapd: only requests that may wake kswapd act on the flag (S3.2).
        skips_busy_kswapd_nodes: nodes that kswapd works on are avoided at first (S3.1).
        huge_lists_hold_blocks: the huge-page lists are for pages of a pageblock's order, not of the
            huge page table entry's (S1.9).
        highatomic_fastpath: the first attempt may use the highatomic reserve too (S2.5).
        highatomic_slowpath_only: only attempts at the MIN mark make the reserve grow (S7.1).
        free_counts_as_reclaimable: a zone without reclaimable pages has its free ones counted as
            such (S8.3).
        tries_without_cache_trim: a run of kswapd that freed nothing and spared anonymous memory for
            a large cache begins again without doing so (S10.2).
        fruitless_reclaim_repeated: direct reclaim that freed nothing is done once more (S8.2).
        throttle_counts_exactly: free pages are counted exactly where requests may have to wait
            (S8.2).
        boosted_runs_never_fail: a run that began with a boost is no failure (S10.2).
        revived_when_balanced: progress makes a node hopeful only if it is balanced then, and a
            list's free that finds the zone well off does too (S10.2).
        ready_by_high_mark: compaction is ready if it suits by the high mark (S8.2).
        lru_skips_capped: one taking passes over so many folios of too high zones, and takes the
            others (S10.6).
        frees_backwards: single pages of a cluster are freed in reverse order, larger folios as soon
            as they are seen (S10.6).
        initial_compaction_in_loop: compaction before reclaim is the loop's first turn (S8.1).
        compaction_needs_reclaim: only who may reclaim may compact (S8.1).
        gap_cap: most pages of compact_gap, 0 for any number (S9.1).
        suitable_by_request_mark: suitability is measured by the request's own mark (S9.1).
        async_source_by_order: asynchronous compaction for whole blocks takes movable blocks
            whoever asks (S9.3).
        stall_leaves_out_deferred: deferred attempts are no stalls (S9).
        defrag_mode_fixes: who may not reclaim falls back instead of failing (S8.6).
        promotes_to_blocks: reclaim and compaction make whole blocks for who may not fragment and
            is not movable (S8.7).
        suitable_beside_cma: asynchronous compaction for costly orders that may not use CMA needs
            the free pages outside CMA (S9.1).
        direct_source_needs_cma: direct compaction empties CMA blocks only for who may use them
            (S9.3).
        proactive_leeway_shrinks: proactive compaction has no lowest score, and begins at most half
            of the lower score above it (S9.6).
        promoted_begin_afresh: such requests compact again whatever their order, and count anew
            once they may fragment (S8.7).
        moves_compound: compound pages are moved, if they are smaller than what is made (S9.3).
        counts_stepped_over: all pages of what scanners step over count as scanned (S9.3).
        begins_at_zone_start: the source scanner has all of a block from the zone's first page on
            (S9.3).
        any_isolation_marks: whatever is isolated first in a block marks it, not only its first page
            (S9.3).
        marks_found_sources: a block found in free lists is marked (S9.3).
        finishes_failed_blocks: the rest of a block is taken where a folio cannot be moved (S9.3).
        moved_from_end: the block moved from last is where the scan ended, not where it began
            (S9.3).
        captured_before_drain: a captured page ends a run before lists are drained (S9.7).
        captures_movable: MOVABLE requests capture from MOVABLE blocks below a block's order (S9.7).
        counts_proactive: proactive rounds are counted as kcompactd's (S9.6).
        holds_whole: targets are held as the buddies they were (S9.3).
        target_by_order: blocks that begin with a buddy of the order asked are no targets (S9.3).
        target_steps_inside: the target scanner steps over what ends in the block (S9.3).
        target_leaves_block: its cached position goes a block lower than one scanned whole (S9.3).
        ends_at_enough: the fast search for targets ends at once when it has enough (S9.3).
        marks_scanned_targets: after it a block is marked if scanned whole, not if that was too
            little (S9.3).
        tests_late_target: the block in the middle has to be a target (S9.3).
        served_zones_suit: zones that could serve a request suit for its retry (S8.4).
    """

    name: str
    batch_from_managed_shift: int = 10
    batch_cap_bytes: int = 1 << 20
    tiny_zone_batch: int = 0
    high_order_flush_adds_half_high_min: bool = False
    free_batched: bool = False
    decay_batched: bool = True
    highatomic_from_pcp: bool = True
    highatomic_refills_pcp: bool = True
    highatomic_cap_adds_block: bool = False
    pcp_tunes_itself: bool = True
    free_lists_match_blocks: bool = True
    watermark_subtracts_reserved: bool = False
    atomic_bit_ignores_boost: bool = False
    boosted_flag_needs_kswapd: bool = True
    skips_busy_kswapd_nodes: bool = False
    huge_lists_hold_blocks: bool = False
    highatomic_fastpath: bool = False
    highatomic_slowpath_only: bool = False
    free_counts_as_reclaimable: bool = True
    tries_without_cache_trim: bool = True
    fruitless_reclaim_repeated: bool = True
    throttle_counts_exactly: bool = True
    boosted_runs_never_fail: bool = False
    revived_when_balanced: bool = False
    ready_by_high_mark: bool = False
    lru_skips_capped: bool = False
    frees_backwards: bool = False
    initial_compaction_in_loop: bool = False
    compaction_needs_reclaim: bool = False
    gap_cap: int = 0
    suitable_by_request_mark: bool = False
    async_source_by_order: bool = False
    stall_leaves_out_deferred: bool = False
    defrag_mode_fixes: bool = False
    promotes_to_blocks: bool = False
    promoted_begin_afresh: bool = False
    suitable_beside_cma: bool = False
    direct_source_needs_cma: bool = False
    proactive_leeway_shrinks: bool = False
    moves_compound: bool = True
    counts_stepped_over: bool = True
    begins_at_zone_start: bool = True
    any_isolation_marks: bool = True
    marks_found_sources: bool = False
    finishes_failed_blocks: bool = True
    moved_from_end: bool = True
    captured_before_drain: bool = True
    captures_movable: bool = True
    counts_proactive: bool = True
    holds_whole: bool = True
    target_by_order: bool = True
    target_steps_inside: bool = True
    target_leaves_block: bool = True
    ends_at_enough: bool = True
    marks_scanned_targets: bool = True
    tests_late_target: bool = True
    served_zones_suit: bool = True


RULES_6_12 = OracleRules(name="6.12")

RULES_6_1 = OracleRules(
    name="6.1",
    decay_batched=False,
    highatomic_cap_adds_block=True,
    pcp_tunes_itself=False,
    free_lists_match_blocks=False,
    watermark_subtracts_reserved=True,
    atomic_bit_ignores_boost=True,
    boosted_flag_needs_kswapd=False,
    huge_lists_hold_blocks=True,
    tries_without_cache_trim=False,
    fruitless_reclaim_repeated=False,
    throttle_counts_exactly=False,
    frees_backwards=True,
    moves_compound=False,
    counts_stepped_over=False,
    begins_at_zone_start=False,
    any_isolation_marks=False,
    marks_found_sources=True,
    finishes_failed_blocks=False,
    moved_from_end=False,
    captured_before_drain=False,
    captures_movable=False,
    counts_proactive=False,
    holds_whole=False,
    target_by_order=False,
    target_steps_inside=False,
    target_leaves_block=False,
    ends_at_enough=False,
    marks_scanned_targets=False,
    tests_late_target=False,
    served_zones_suit=False,
)

RULES_6_18 = replace(
    RULES_6_12,
    name="6.18",
    high_order_flush_adds_half_high_min=True,
    skips_busy_kswapd_nodes=True,
)

RULES_7_2 = replace(
    RULES_6_18,
    name="7.2",
    batch_from_managed_shift=12,
    batch_cap_bytes=256 << 10,
    tiny_zone_batch=1,
    free_batched=True,
    highatomic_from_pcp=False,
    highatomic_refills_pcp=False,
    free_counts_as_reclaimable=False,
    boosted_runs_never_fail=True,
    revived_when_balanced=True,
    ready_by_high_mark=True,
    lru_skips_capped=True,
    initial_compaction_in_loop=True,
    compaction_needs_reclaim=True,
    gap_cap=32,
    suitable_by_request_mark=True,
    async_source_by_order=True,
    stall_leaves_out_deferred=True,
    defrag_mode_fixes=True,
    promotes_to_blocks=True,
    suitable_beside_cma=True,
    direct_source_needs_cma=True,
    proactive_leeway_shrinks=True,
)

RULES_7_3 = replace(
    RULES_7_2,
    name="7.3",
    highatomic_fastpath=True,
    highatomic_slowpath_only=True,
    promoted_begin_afresh=True,
)

RULES: dict[str, OracleRules] = {
    each.name: each for each in (RULES_6_1, RULES_6_12, RULES_6_18, RULES_7_2, RULES_7_3)
}
"""Presets by name."""


@dataclass(frozen=True, kw_only=True)
class OraclePolicy:
    """The choices under test, all resolved; the defaults are mainline's.

    Attributes:
        highatomic_gate_order: no reserve for orders up to this; 0 gates nothing (S7.2).
        highatomic_reserve_percent: cap of the reserve, percent of managed (S7.2).
        costly_order: PAGE_ALLOC_COSTLY_ORDER (S1.9, S4.6).
        pcp_batch: page set batch, None to compute it (S4.2).
        pcp_high_min: page set high_min, None to compute it (S4.3).
        pcp_high_max: page set high_max, None to compute it (S4.3).
        percpu_pagelist_high_fraction: the sysctl; 0 tunes automatically (S4.3).
        pcp_free_batched: overrides the rules' free_batched unless None (S4.7).
        pcp_decay_batched: overrides the rules' decay_batched unless None (S4.8).
        pcp_drain_batched: full drains go by batch, not by batch << S (S4.9).
        pcp_batch_scale_max: S of S4.
        watermark_boost_factor: 1/10000 of the high watermark; 0 disables (S1.7).
        defrag_mode: NOFRAGMENT everywhere until the slow path gives up (S8.6).
        defrag_atomic_falls_back: overrides the rules' defrag_mode_fixes unless None (S8.6).
        defrag_promotes_order: overrides the rules' promotes_to_blocks unless None (S8.7).
        promoted_fall_back_afresh: overrides the rules' promoted_begin_afresh unless None (S8.7).
        highatomic_fastpath: overrides the rules' highatomic_fastpath unless None (S2.5).
        highatomic_slowpath_only: overrides the rules' highatomic_slowpath_only unless None (S7.1).
        refill_mode_persists: after a steal the rest of a refill steals; no: each page searches
            anew (S6.2).
        superpageblock_order: kernel memory keeps to ranges of this order that have some; 0: no
            such ranges (S14).
        ownership: CPUs own pageblocks, in this manner; None: they do not (S12).
    """

    highatomic_gate_order: int = 0
    highatomic_reserve_percent: int = 1
    costly_order: int = 3
    pcp_batch: int | None = None
    pcp_high_min: int | None = None
    pcp_high_max: int | None = None
    percpu_pagelist_high_fraction: int = 0
    pcp_free_batched: bool | None = None
    pcp_decay_batched: bool | None = None
    pcp_drain_batched: bool = False
    pcp_batch_scale_max: int = 5
    watermark_boost_factor: int = 15000
    defrag_mode: bool = False
    defrag_atomic_falls_back: bool | None = None
    defrag_promotes_order: bool | None = None
    promoted_fall_back_afresh: bool | None = None
    highatomic_fastpath: bool | None = None
    highatomic_slowpath_only: bool | None = None
    refill_mode_persists: bool = True
    superpageblock_order: int = 0
    ownership: OracleOwnership | None = None

    def uses_reserve_at_once(self, rules: OracleRules) -> bool:
        """No kernel function: return whether first attempts may use the reserve (S2.5)."""
        given = self.highatomic_fastpath
        return rules.highatomic_fastpath if given is None else given

    def reserves_at_min_only(self, rules: OracleRules) -> bool:
        """No kernel function: return whether only the MIN mark lets the reserve grow (S7.1)."""
        given = self.highatomic_slowpath_only
        return rules.highatomic_slowpath_only if given is None else given


@dataclass(frozen=True, kw_only=True)
class OracleAssumptions:
    """What the oracle takes for granted where a recording is silent, or takes from it.

    Attributes:
        counters: "exact", or "lagged": CPUs keep small changes of free pages back (S1.10).
        kswapd_recorded: kswapd runs when it is told to, and only then (S10.2).
        direct_reclaim_recorded: requests make room if the recording says they reclaimed, and only
            then (S8.2).
        drains_recorded: whole lists are drained when the recording says so, and only then (S4.9).
    """

    counters: Literal["exact", "lagged"] = "exact"
    kswapd_recorded: bool = False
    direct_reclaim_recorded: bool = False
    drains_recorded: bool = False


@dataclass(frozen=True, kw_only=True)
class ElasticOptions:
    """Shares, costs and policy of an elastic replay (S9.8, S10.5).

    Attributes:
        seed: of the draws.
        file_referenced_per_mille: scanned pages of files that are in use.
        anon_referenced_per_mille: the same of anonymous pages.
        file_dirty_per_mille: scanned pages of files that must be written.
        anon_scan_percent: how much anonymous lists are scanned, 0: no swap (S10.5).
        reclaim_scan_ns: time to look at a page.
        reclaim_free_ns: time of a direct reclaim to free one.
        kswapd_free_ns: time of kswapd to free one.
        kswapd_wake_ns: time from a wake to kswapd's first step.
        compact_scan_ns: time for compaction to look at a page.
        compact_migrate_ns: time to move one.
        anon_migration_fails_per_mille: anonymous folios that cannot be moved (S9.9).
        file_migration_fails_per_mille: the same of pages of files.
        compaction_contended_per_mille: blocks in which asynchronous compaction meets others.
        base_pages_per_huge: asked for in place of a refused huge page (S10.5).
        compact_gap: replaces the rules' cap of compact_gap unless None.
        extfrag_threshold: largest fragmentation index that lacks memory (S9.2).
        proactiveness: of background compaction, in percent (S9.6).
        assists: wakes of kswapd ask for a block at least (S8.6).
        block_watermarks: kswapd and kcompactd count free pages in whole blocks (S8.6).
        score_without_highatomic: free reserved pages do not count in the score (S9.10).
        kcompactd_unreserves: kcompactd gives back reserved blocks that are wholly free (S9.10).
        atomic_boost: atomic requests of order 0 in need boost their zones (S1.11).
        local_thp_reclaims: local-only attempts at huge pages reclaim after compaction (S8.8).
        thp_bits: reclaim bits of huge-page requests instead of their own; None keeps them (S8.5).
        thp_madvised: a second attempt for a huge page has no NORETRY (S8.5).
        rules: the kernel's.
    """

    seed: int = 0
    file_referenced_per_mille: int = 50
    anon_referenced_per_mille: int = 500
    file_dirty_per_mille: int = 20
    anon_scan_percent: int = 0
    reclaim_scan_ns: int = 300
    reclaim_free_ns: int = 500
    kswapd_free_ns: int = 500
    kswapd_wake_ns: int = 20_000
    compact_scan_ns: int = 50
    compact_migrate_ns: int = 2_000
    anon_migration_fails_per_mille: int = 20
    file_migration_fails_per_mille: int = 50
    compaction_contended_per_mille: int = 0
    base_pages_per_huge: int = 512
    compact_gap: int | None = None
    extfrag_threshold: int = 500
    proactiveness: int = 20
    assists: bool = False
    block_watermarks: bool = False
    score_without_highatomic: bool = False
    kcompactd_unreserves: bool = False
    atomic_boost: bool = False
    local_thp_reclaims: bool = False
    thp_bits: int | None = None
    thp_madvised: bool = False
    rules: OracleRules = RULES_6_12

    def gap(self, order: int) -> int:
        """compact_gap(): return the free pages wanted beside the watermark (S9.1)."""
        cap = self.rules.gap_cap if self.compact_gap is None else self.compact_gap
        return min(2 << order, cap) if cap else 2 << order
