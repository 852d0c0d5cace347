"""What of reclaim and compaction, and of the reserve under pressure, can be swept."""

from __future__ import annotations

from dataclasses import dataclass

from pagealloc_model.policy.allocation_policy import HIGHATOMIC, AllocationPolicy
from pagealloc_model.policy.policy_fields import CHOICE, setting

_PRESSURE = "compaction and defragmentation"


@dataclass(frozen=True, kw_only=True)
class PressurePolicy(AllocationPolicy):
    """What is done when memory is short, or in pieces; see `Policy`."""

    defrag_mode: bool | None = setting(
        "vm.defrag_mode",
        "no fallback within a pageblock until the slow path gives up",
        source='S8.6; "mm: page_alloc: defrag_mode"',
        group=_PRESSURE,
        kind="bool",
        elastic_only=True,
    )
    defrag_kswapd_assist: bool | None = setting(
        "wake_all_kswapds() reclaim_order",
        "requests wake kswapd for at least a pageblock; as defrag_mode unless given",
        source='S8.6; "mm: page_alloc: defrag_mode kswapd/kcompactd assistance"',
        group=_PRESSURE,
        kind="bool",
        elastic_only=True,
    )
    defrag_watermarks: bool | None = setting(
        "NR_FREE_PAGES_BLOCKS",
        "kswapd and kcompactd meet watermarks in whole free blocks; as defrag_mode unless given",
        source='S8.6; "mm: page_alloc: defrag_mode kswapd/kcompactd watermarks"',
        group=_PRESSURE,
        kind="bool",
        elastic_only=True,
    )
    defrag_atomic_falls_back: bool | None = setting(
        "!can_direct_reclaim in __alloc_pages_slowpath()",
        "under defrag_mode, requests that wake kswapd but may not reclaim fall back, not fail",
        source='S8.6; "mm/page_alloc: fix defrag_mode for non-reclaimable allocations" (v2)',
        group=_PRESSURE,
        kind="bool",
        rule="defrag_mode_fixes",
        elastic_only=True,
    )
    defrag_promotes_order: bool | None = setting(
        "promoted order in __alloc_pages_slowpath()",
        "under defrag_mode, requests that are not movable reclaim and compact for whole blocks",
        source='S8.7; "mm: page_alloc: fix non-movable reclaim storm in defrag_mode"',
        group=_PRESSURE,
        kind="bool",
        rule="defrag_promotes_order",
        elastic_only=True,
    )
    promoted_fall_back_afresh: bool | None = setting(
        "order_defrag_promoted()",
        "such requests end sooner and count retries anew once they fall back, as in 7.3",
        source="S8.7",
        group=_PRESSURE,
        kind="bool",
        rule="promoted_fall_back_afresh",
        elastic_only=True,
    )
    compact_gap: int | None = setting(
        "compact_gap() cap",
        "most free pages that compaction asks for beside the watermark; 0 for no cap",
        source="S9.1",
        group=_PRESSURE,
        unit="pages",
        maximum=1 << 12,
        elastic_only=True,
    )
    extfrag_threshold: int | None = setting(
        "vm.extfrag_threshold",
        "fragmentation index up to which a costly order is left to reclaim",
        source="S9.2",
        group=_PRESSURE,
        unit="1/1000",
        maximum=1000,
        step=10,
        default=500,
        elastic_only=True,
    )
    compaction_proactiveness: int | None = setting(
        "vm.compaction_proactiveness",
        "how much fragmentation kcompactd tolerates before it compacts unasked; 0 never does",
        source="S9.6",
        group=_PRESSURE,
        unit="%",
        maximum=100,
        step=5,
        default=20,
        elastic_only=True,
    )
    vfs_cache_pressure: int | None = setting(
        "vm.vfs_cache_pressure",
        "how many of the objects that it could free a shrinker of slabs says it could",
        source="S10.8",
        group=_PRESSURE,
        unit="%",
        maximum=10_000,
        step=10,
        default=100,
        elastic_only=True,
    )
    thp_defrag: str | None = setting(
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "what a fault may do to get a huge page",
        source="S8.5",
        group=_PRESSURE,
        kind=CHOICE,
        choices=("always", "defer", "defer+madvise", "madvise", "never"),
        default="madvise",
        elastic_only=True,
    )
    local_thp_reclaims: bool | None = setting(
        "__GFP_THISNODE in __alloc_pages_slowpath()",
        "the attempt at a huge page on the local node alone reclaims once compaction has failed",
        source='S8.8; "mm, page_alloc, thp: prevent reclaim for __GFP_THISNODE THP allocations"',
        group=_PRESSURE,
        kind="bool",
        default=False,
        elastic_only=True,
    )
    highatomic_fastpath: bool | None = setting(
        "ALLOC_HIGHATOMIC in the fast path",
        "atomic requests may draw on the reserve before they are in need",
        source="S2.5",
        group=HIGHATOMIC,
        kind="bool",
        rule="highatomic_fastpath",
    )
    highatomic_slowpath_only: bool | None = setting(
        "ALLOC_WMARK_MIN in rmqueue_buddy()",
        "the reserve grows only for atomic requests that are in need",
        source="S7.1",
        group=HIGHATOMIC,
        kind="bool",
        rule="highatomic_slowpath_only",
    )
    score_without_highatomic: bool | None = setting(
        "fragmentation_score_zone() without MIGRATE_HIGHATOMIC",
        "proactive compaction leaves reserved free pages out of its score",
        source="S9.10; a proposal of this project",
        group=HIGHATOMIC,
        kind="bool",
        default=False,
        elastic_only=True,
    )
    kcompactd_unreserves: bool | None = setting(
        "unreserve in kcompactd()",
        "kcompactd gives back reserved blocks that are wholly free, every half second",
        source="S9.10; a proposal of this project",
        group=HIGHATOMIC,
        kind="bool",
        default=False,
        elastic_only=True,
    )
