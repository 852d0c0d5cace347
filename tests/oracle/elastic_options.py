"""What an elastic replay is told besides a literal one: shares, costs, compaction's switches."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class CompactionRules:
    """Behaviours of slow path and compaction that differ between versions; rows of S13.

    Attributes:
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


COMPACTION_RULES_7_2 = CompactionRules(
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
COMPACTION_RULES_6_1 = CompactionRules(
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
COMPACTION_RULES = {
    "6.1": COMPACTION_RULES_6_1,
    "6.12": CompactionRules(),
    "6.18": CompactionRules(),
    "7.2": COMPACTION_RULES_7_2,
    "7.3": replace(COMPACTION_RULES_7_2, promoted_begin_afresh=True),
}
"""By name of the oracle's rules."""


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
        rules: see `CompactionRules`.
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
    rules: CompactionRules = CompactionRules()

    def gap(self, order: int) -> int:
        """compact_gap(): return the free pages wanted beside the watermark (S9.1)."""
        cap = self.rules.gap_cap if self.compact_gap is None else self.compact_gap
        return min(2 << order, cap) if cap else 2 << order
