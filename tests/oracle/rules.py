"""What the oracle can be told: the kernel's version rules (S13) and the policy under test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tests.oracle.ownership_options import OracleOwnership


@dataclass(frozen=True, kw_only=True)
class OracleRules:
    """Behaviours that differ between kernel versions; the named rows of S13.

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
    """

    name: str
    batch_from_managed_shift: int
    batch_cap_bytes: int
    tiny_zone_batch: int
    high_order_flush_adds_half_high_min: bool
    free_batched: bool
    decay_batched: bool
    highatomic_from_pcp: bool
    highatomic_refills_pcp: bool
    highatomic_cap_adds_block: bool
    pcp_tunes_itself: bool
    free_lists_match_blocks: bool
    watermark_subtracts_reserved: bool
    atomic_bit_ignores_boost: bool
    boosted_flag_needs_kswapd: bool
    skips_busy_kswapd_nodes: bool
    huge_lists_hold_blocks: bool
    highatomic_fastpath: bool = False
    highatomic_slowpath_only: bool = False


RULES_6_1 = OracleRules(
    name="6.1",
    batch_from_managed_shift=10,
    batch_cap_bytes=1 << 20,
    tiny_zone_batch=0,
    high_order_flush_adds_half_high_min=False,
    free_batched=False,
    decay_batched=False,
    highatomic_from_pcp=True,
    highatomic_refills_pcp=True,
    highatomic_cap_adds_block=True,
    pcp_tunes_itself=False,
    free_lists_match_blocks=False,
    watermark_subtracts_reserved=True,
    atomic_bit_ignores_boost=True,
    boosted_flag_needs_kswapd=False,
    skips_busy_kswapd_nodes=False,
    huge_lists_hold_blocks=True,
)

RULES_6_12 = OracleRules(
    name="6.12",
    batch_from_managed_shift=10,
    batch_cap_bytes=1 << 20,
    tiny_zone_batch=0,
    high_order_flush_adds_half_high_min=False,
    free_batched=False,
    decay_batched=True,
    highatomic_from_pcp=True,
    highatomic_refills_pcp=True,
    highatomic_cap_adds_block=False,
    pcp_tunes_itself=True,
    free_lists_match_blocks=True,
    watermark_subtracts_reserved=False,
    atomic_bit_ignores_boost=False,
    boosted_flag_needs_kswapd=True,
    skips_busy_kswapd_nodes=False,
    huge_lists_hold_blocks=False,
)

RULES_6_18 = OracleRules(
    name="6.18",
    batch_from_managed_shift=10,
    batch_cap_bytes=1 << 20,
    tiny_zone_batch=0,
    high_order_flush_adds_half_high_min=True,
    free_batched=False,
    decay_batched=True,
    highatomic_from_pcp=True,
    highatomic_refills_pcp=True,
    highatomic_cap_adds_block=False,
    pcp_tunes_itself=True,
    free_lists_match_blocks=True,
    watermark_subtracts_reserved=False,
    atomic_bit_ignores_boost=False,
    boosted_flag_needs_kswapd=True,
    skips_busy_kswapd_nodes=True,
    huge_lists_hold_blocks=False,
)

RULES_7_2 = OracleRules(
    name="7.2",
    batch_from_managed_shift=12,
    batch_cap_bytes=256 << 10,
    tiny_zone_batch=1,
    high_order_flush_adds_half_high_min=True,
    free_batched=True,
    decay_batched=True,
    highatomic_from_pcp=False,
    highatomic_refills_pcp=False,
    highatomic_cap_adds_block=False,
    pcp_tunes_itself=True,
    free_lists_match_blocks=True,
    watermark_subtracts_reserved=False,
    atomic_bit_ignores_boost=False,
    boosted_flag_needs_kswapd=True,
    skips_busy_kswapd_nodes=True,
    huge_lists_hold_blocks=False,
)

RULES_7_3 = replace(RULES_7_2, name="7.3", highatomic_fastpath=True, highatomic_slowpath_only=True)

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
