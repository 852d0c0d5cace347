"""What of the kernel's lists, reserve and fallbacks can be swept."""

from __future__ import annotations

from dataclasses import dataclass, field

from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy_fields import CHOICE, NUMBERS, nested, setting

HIGHATOMIC, _PCP = "highatomic reserve", "per-CPU lists"
_FALLBACK, _OWNERSHIP = "fallback and watermarks", "pageblock ownership"


@dataclass(frozen=True, kw_only=True)
class AllocationPolicy:
    """How pages are taken, listed and given back; see `Policy`."""

    highatomic_gate_order: int | None = setting(
        "reserve_highatomic_pageblock() gate",
        "reserve no pageblock for atomic requests of this order or below",
        source='S7.2; "mm/page_alloc: skip high atomic reservation at or below costly order"',
        group=HIGHATOMIC,
        unit="order",
        maximum=10,
        default=0,
    )
    highatomic_reserve_percent: int | None = setting(
        "max_managed in reserve_highatomic_pageblock()",
        "cap of the highatomic reserve as a share of the zone's managed pages",
        source="S7.2",
        group=HIGHATOMIC,
        unit="%",
        maximum=10,
        default=1,
    )
    highatomic_from_pcp: bool | None = setting(
        "reserve after rmqueue_pcplist()",
        "requests that a per-CPU list served grow the reserve too",
        source="S7.1",
        group=HIGHATOMIC,
        kind="bool",
        rule="highatomic_from_pcp",
    )
    costly_order: int | None = setting(
        "PAGE_ALLOC_COSTLY_ORDER",
        "largest order that is cheap to allocate: per-CPU lists hold orders up to it",
        source="S1.9, S4.6",
        group=_PCP,
        unit="order",
        maximum=9,
        default=3,
    )
    pcp_batch: int | None = setting(
        "pcp->batch",
        "pages moved between a per-CPU list and the buddy at the base rate",
        source="S4.2",
        group=_PCP,
        unit="pages",
        minimum=1,
        maximum=511,
    )
    pcp_high_min: int | None = setting(
        "pcp->high_min",
        "lower bound of the tuned per-CPU list length",
        source="S4.3",
        group=_PCP,
        unit="pages",
        maximum=1 << 20,
        step=64,
    )
    pcp_high_max: int | None = setting(
        "pcp->high_max",
        "upper bound of the tuned per-CPU list length",
        source="S4.3",
        group=_PCP,
        unit="pages",
        maximum=1 << 20,
        step=64,
    )
    percpu_pagelist_high_fraction: int | None = setting(
        "vm.percpu_pagelist_high_fraction",
        "share 1/N of the zone that all per-CPU lists may hold; 0 tunes automatically",
        source="S4.3",
        group=_PCP,
        unit="1/N",
        maximum=1024,
        step=8,
    )
    pcp_batch_scale_max: int | None = setting(
        "CONFIG_PCP_BATCH_SCALE_MAX",
        "refills and drains grow up to batch << this",
        source="S4.4, S4.6",
        group=_PCP,
        maximum=6,
        default=5,
    )
    pcp_free_batched: bool | None = setting(
        "free_frozen_page_commit() chunks",
        "overflow frees go to the buddy in lock holds of pcp->batch pages each",
        source='S4.7; "mm/page_alloc: batch page freeing in free_frozen_page_commit"',
        group=_PCP,
        kind="bool",
        rule="free_batched",
    )
    pcp_decay_batched: bool | None = setting(
        "decay_pcp_high() chunks",
        "so does what the periodic decay returns",
        source='S4.8; "mm/page_alloc: batch page freeing in decay_pcp_high"',
        group=_PCP,
        kind="bool",
        rule="decay_batched",
    )
    pcp_drain_batched: bool | None = setting(
        "drain_pages_zone() chunks",
        "full drains take pcp->batch pages a lock hold; otherwise batch << S, or all before 6.1.y",
        source='S4.9; "mm/page_alloc: perform appropriate batching in drain_pages_zone"',
        group=_PCP,
        kind="bool",
    )
    min_free_kbytes: int | None = setting(
        "vm.min_free_kbytes",
        "memory below the min watermarks of all zones together",
        source="S1.5, S1.6",
        group=_FALLBACK,
        unit="kB",
        minimum=128,
        maximum=1 << 22,
        step=1024,
    )
    watermark_scale_factor: int | None = setting(
        "vm.watermark_scale_factor",
        "distance between watermarks in units of managed/10000",
        source="S1.6",
        group=_FALLBACK,
        minimum=1,
        maximum=3000,
        default=10,
    )
    watermark_boost_factor: int | None = setting(
        "vm.watermark_boost_factor",
        "cap of the watermark boost after a fallback, in 1/10000 of the high watermark",
        source="S1.7",
        group=_FALLBACK,
        maximum=30000,
        step=1000,
        default=15000,
    )
    refill_mode_persists: bool | None = setting(
        "rmqueue_bulk() mode",
        "a refill that had to steal steals its other pages too, without another search",
        source='S6.2; "mm: page_alloc: speed up fallbacks in rmqueue_bulk()"',
        group=_FALLBACK,
        kind="bool",
        rule="refill_mode_persists",
    )
    atomic_boost: bool | None = setting(
        "boost_zones_for_atomic()",
        "an atomic request of order 0 in need boosts its zones' watermarks, once a second each",
        source='S1.11; "mm/page_alloc: boost watermarks on atomic allocation failure"',
        group=_FALLBACK,
        kind="bool",
        default=False,
        elastic_only=True,
    )
    lowmem_reserve_ratio: str | None = setting(
        "vm.lowmem_reserve_ratio",
        "a zone keeps 1/N of the zones above it from requests that may use those; 0 keeps nothing",
        source="S1.8",
        group=_FALLBACK,
        unit="1/N by zone",
        kind=NUMBERS,
        choices=("256 256", "64 64", "16 16", "4 4", "1 1", "0 0"),
        maximum=(1 << 31) - 1,
    )
    superpageblock_order: int | None = setting(
        "superpageblock",
        "unmovable pages keep to ranges of this order that have some already; 18: 1 GiB, 0: off",
        source='S14; "1GB superpageblock memory allocation"',
        group=_FALLBACK,
        unit="order",
        maximum=20,
        default=0,
    )
    pageblock_ownership: str | None = setting(
        "pcp buddy",
        "per-CPU lists take whole pageblocks, split and merge them; frees go to a block's owner",
        source='S12; "[RFC 0/2] mm: page_alloc: pcp buddy allocator"',
        group=_OWNERSHIP,
        kind=CHOICE,
        choices=("off", "pcp_buddy"),
        default="off",
    )
    ownership: OwnershipOptions | None = field(
        default=None,
        metadata=nested(
            "pcp buddy",
            "what the pcp buddy allocator leaves open; read with pageblock_ownership=pcp_buddy",
            source="S12.6",
            group=_OWNERSHIP,
            options=OwnershipOptions,
        ),
    )
