"""Settings that can be swept: `Policy`, the kernel's choices, and `Assumptions`, ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields
from functools import partial
from typing import Any

from pagealloc_model.base.errors import PolicyError, known_names
from pagealloc_model.policy.assumptions import AUTO as AUTO
from pagealloc_model.policy.assumptions import Assumptions as Assumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy_fields import (
    BOOL,
    INT,
    NESTED,
    NUMBERS,
    Given,
    Setting,
    check_setting,
    documented,
    parse_setting,
    setting,
)

PCP_BATCH_SCALE_MAX = 5
"""CONFIG_PCP_BATCH_SCALE_MAX by default: a refill is at most batch << this objects (S4.4)."""
HIGHATOMIC = "highatomic reserve"
_highatomic = partial(setting, group=HIGHATOMIC)
_per_cpu = partial(setting, group="per-CPU lists")
_fallback = partial(setting, group="fallback and watermarks")
_ownership = partial(setting, group="pageblock ownership")
_pressure = partial(setting, group="compaction and defragmentation", elastic_only=True)


@documented
@dataclass(frozen=True, kw_only=True, repr=False)
class Policy(metaclass=Given):
    """Choices of the kernel that a replay may change; `None` means "as recorded".

    Each field's metadata carries what `setting` takes; sliders, command-line help and docs come
    from it. Options of a nested field have dotted names in settings, as "ownership.fit_test".

    Raises:
        PolicyError: a value outside its range or of the wrong kind, or bounds that cross.
    """

    highatomic_gate_order: int | None = _highatomic(
        "reserve_highatomic_pageblock() gate",
        "reserve no pageblock for atomic requests of this order or below",
        source='S7.2; "mm/page_alloc: skip high atomic reservation at or below costly order"',
        unit="order",
        maximum=10,
        default=0,
    )
    highatomic_reserve_percent: int | None = _highatomic(
        "max_managed in reserve_highatomic_pageblock()",
        "cap of the highatomic reserve as a share of the zone's managed pages",
        source="S7.2",
        unit="%",
        maximum=10,
        default=1,
    )
    highatomic_from_pcp: bool | None = _highatomic(
        "reserve after rmqueue_pcplist()",
        "requests that a per-CPU list served grow the reserve too",
        source="S7.1",
        rule="highatomic_from_pcp",
    )
    costly_order: int | None = _per_cpu(
        "PAGE_ALLOC_COSTLY_ORDER",
        "largest order that is cheap to allocate: per-CPU lists hold orders up to it",
        source="S1.9, S4.6",
        unit="order",
        maximum=9,
        default=3,
    )
    pcp_batch: int | None = _per_cpu(
        "pcp->batch",
        "pages moved between a per-CPU list and the buddy at the base rate",
        source="S4.2",
        unit="pages",
        minimum=1,
        maximum=511,
    )
    pcp_high_min: int | None = _per_cpu(
        "pcp->high_min",
        "lower bound of the tuned per-CPU list length",
        source="S4.3",
        unit="pages",
        maximum=1 << 20,
        step=64,
    )
    pcp_high_max: int | None = _per_cpu(
        "pcp->high_max",
        "upper bound of the tuned per-CPU list length",
        source="S4.3",
        unit="pages",
        maximum=1 << 20,
        step=64,
    )
    percpu_pagelist_high_fraction: int | None = _per_cpu(
        "vm.percpu_pagelist_high_fraction",
        "share 1/N of the zone that all per-CPU lists may hold; 0 tunes automatically",
        source="S4.3",
        unit="1/N",
        maximum=1024,
        step=8,
    )
    pcp_batch_scale_max: int | None = _per_cpu(
        "CONFIG_PCP_BATCH_SCALE_MAX",
        "refills and drains grow up to batch << this",
        source="S4.4, S4.6",
        maximum=6,
        default=PCP_BATCH_SCALE_MAX,
    )
    pcp_free_batched: bool | None = _per_cpu(
        "free_frozen_page_commit() chunks",
        "overflow frees go to the buddy in lock holds of pcp->batch pages each",
        source='S4.7; "mm/page_alloc: batch page freeing in free_frozen_page_commit"',
        rule="free_batched",
    )
    pcp_decay_batched: bool | None = _per_cpu(
        "decay_pcp_high() chunks",
        "so does what the periodic decay returns",
        source='S4.8; "mm/page_alloc: batch page freeing in decay_pcp_high"',
        rule="decay_batched",
    )
    pcp_drain_batched: bool | None = _per_cpu(
        "drain_pages_zone() chunks",
        "full drains take pcp->batch pages a lock hold; otherwise batch << S, or all before 6.1.y",
        source='S4.9; "mm/page_alloc: perform appropriate batching in drain_pages_zone"',
        kind=BOOL,
    )
    min_free_kbytes: int | None = _fallback(
        "vm.min_free_kbytes",
        "memory below the min watermarks of all zones together",
        source="S1.5, S1.6",
        unit="kB",
        minimum=128,
        maximum=1 << 22,
        step=1024,
    )
    watermark_scale_factor: int | None = _fallback(
        "vm.watermark_scale_factor",
        "distance between watermarks in units of managed/10000",
        source="S1.6",
        minimum=1,
        maximum=3000,
        default=10,
    )
    watermark_boost_factor: int | None = _fallback(
        "vm.watermark_boost_factor",
        "cap of the watermark boost after a fallback, in 1/10000 of the high watermark",
        source="S1.7",
        maximum=30000,
        step=1000,
        default=15000,
    )
    refill_mode_persists: bool | None = _fallback(
        "rmqueue_bulk() mode",
        "a refill that had to steal steals its other pages too, without another search",
        source='S6.2; "mm: page_alloc: speed up fallbacks in rmqueue_bulk()"',
        rule="refill_mode_persists",
    )
    atomic_boost: bool | None = _fallback(
        "boost_zones_for_atomic()",
        "an atomic request of order 0 in need boosts its zones' watermarks, once a second each",
        source='S1.11; "mm/page_alloc: boost watermarks on atomic allocation failure"',
        default=False,
        elastic_only=True,
    )
    lowmem_reserve_ratio: str | None = _fallback(
        "vm.lowmem_reserve_ratio",
        "a zone keeps 1/N of the zones above it from requests that may use those; 0 keeps nothing",
        source="S1.8",
        unit="1/N by zone",
        kind=NUMBERS,
        choices=("256 256", "64 64", "16 16", "4 4", "1 1", "0 0"),
        maximum=(1 << 31) - 1,
    )
    pageblock_order: int | None = _fallback(
        "CONFIG_PAGE_BLOCK_MAX_ORDER",
        "size of a pageblock; min_free_kbytes follows where the recorded one is that of boot",
        source='S1.2, S1.12; "mm: add CONFIG_PAGE_BLOCK_ORDER to select page block order"',
        unit="order",
        minimum=1,
        maximum=10,
    )
    pageblock_ownership: str | None = _ownership(
        "pcp buddy",
        "per-CPU lists take whole pageblocks, split and merge them; frees go to a block's owner",
        source='S12; "[RFC 0/2] mm: page_alloc: pcp buddy allocator"',
        choices=("off", "pcp_buddy"),
        default="off",
    )
    ownership: OwnershipOptions | None = _ownership(  # noqa: RUF009  # a field, as the others
        "pcp buddy",
        "what the pcp buddy allocator leaves open; read with pageblock_ownership=pcp_buddy",
        source="S12.6",
        kind=NESTED,
        options=OwnershipOptions,
    )
    defrag_mode: bool | None = _pressure(
        "vm.defrag_mode",
        "no fallback within a pageblock until the slow path gives up",
        source='S8.6; "mm: page_alloc: defrag_mode"',
        kind=BOOL,
    )
    defrag_kswapd_assist: bool | None = _pressure(
        "wake_all_kswapds() reclaim_order",
        "requests wake kswapd for at least a pageblock; as defrag_mode unless given",
        source='S8.6; "mm: page_alloc: defrag_mode kswapd/kcompactd assistance"',
        kind=BOOL,
    )
    defrag_watermarks: bool | None = _pressure(
        "NR_FREE_PAGES_BLOCKS",
        "kswapd and kcompactd meet watermarks in whole free blocks; as defrag_mode unless given",
        source='S8.6; "mm: page_alloc: defrag_mode kswapd/kcompactd watermarks"',
        kind=BOOL,
    )
    defrag_atomic_falls_back: bool | None = _pressure(
        "!can_direct_reclaim in __alloc_pages_slowpath()",
        "under defrag_mode, requests that wake kswapd but may not reclaim fall back, not fail",
        source='S8.6; "mm/page_alloc: fix defrag_mode for non-reclaimable allocations" (v2)',
        rule="defrag_mode_fixes",
    )
    defrag_promotes_order: bool | None = _pressure(
        "promoted order in __alloc_pages_slowpath()",
        "under defrag_mode, requests that are not movable reclaim and compact for whole blocks",
        source='S8.7; "mm: page_alloc: fix non-movable reclaim storm in defrag_mode"',
        rule="defrag_promotes_order",
    )
    promoted_fall_back_afresh: bool | None = _pressure(
        "order_defrag_promoted()",
        "such requests end sooner and count retries anew once they fall back, as in 7.3",
        source="S8.7",
        rule="promoted_fall_back_afresh",
    )
    compact_gap: int | None = _pressure(
        "compact_gap() cap",
        "most free pages that compaction asks for beside the watermark; 0 for no cap",
        source="S9.1",
        unit="pages",
        maximum=1 << 12,
    )
    extfrag_threshold: int | None = _pressure(
        "vm.extfrag_threshold",
        "fragmentation index up to which a costly order is left to reclaim",
        source="S9.2",
        unit="1/1000",
        maximum=1000,
        step=10,
        default=500,
    )
    compaction_proactiveness: int | None = _pressure(
        "vm.compaction_proactiveness",
        "how much fragmentation kcompactd tolerates before it compacts unasked; 0 never does",
        source="S9.6",
        unit="%",
        maximum=100,
        step=5,
        default=20,
    )
    vfs_cache_pressure: int | None = _pressure(
        "vm.vfs_cache_pressure",
        "how many of the objects that it could free a shrinker of slabs says it could",
        source="S10.8",
        unit="%",
        maximum=10_000,
        step=10,
        default=100,
    )
    thp_defrag: str | None = _pressure(
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "what a fault may do to get a huge page",
        source="S8.5",
        choices=("always", "defer", "defer+madvise", "madvise", "never"),
        default="madvise",
    )
    huge_anon_orders: int | None = _pressure(
        "/sys/kernel/mm/transparent_hugepage/hugepages-<size>kB/enabled",
        "orders that anonymous faults ask for (huge_anon_orders_always); 16: 64 KiB",
        source="S10.13",
        unit="mask",
        maximum=(1 << 10) - 4,
        step=4,
    )
    local_thp_reclaims: bool | None = _pressure(
        "__GFP_THISNODE in __alloc_pages_slowpath()",
        "the attempt at a huge page on the local node alone reclaims once compaction has failed",
        source='S8.8; "mm, page_alloc, thp: prevent reclaim for __GFP_THISNODE THP allocations"',
        default=False,
    )
    highatomic_fastpath: bool | None = _highatomic(
        "ALLOC_HIGHATOMIC in the fast path",
        "atomic requests may draw on the reserve before they are in need",
        source="S2.5",
        rule="highatomic_fastpath",
    )
    highatomic_slowpath_only: bool | None = _highatomic(
        "ALLOC_WMARK_MIN in rmqueue_buddy()",
        "the reserve grows only for atomic requests that are in need",
        source="S7.1",
        rule="highatomic_slowpath_only",
    )
    score_without_highatomic: bool | None = _highatomic(
        "fragmentation_score_zone() without MIGRATE_HIGHATOMIC",
        "proactive compaction leaves reserved free pages out of its score",
        source="S9.10; a proposal of this project",
        default=False,
        elastic_only=True,
    )
    index_without_highatomic: bool | None = _highatomic(
        "fragmentation_index() without MIGRATE_HIGHATOMIC",
        "reserved free pages do not keep compaction from being declined",
        source="S9.10; a proposal of this project",
        default=False,
        elastic_only=True,
    )
    kcompactd_unreserves: bool | None = _highatomic(
        "unreserve in kcompactd()",
        "kcompactd gives back reserved blocks that are wholly free, every half second",
        source="S9.10; a proposal of this project",
        default=False,
        elastic_only=True,
    )

    def __post_init__(self) -> None:
        """Check every value that is given against its field's range."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                check_setting(field.name, field.metadata, value)
        fraction = self.percpu_pagelist_high_fraction
        if fraction is not None and 0 < fraction < 8:
            raise PolicyError(
                f"policy percpu_pagelist_high_fraction={fraction}: the kernel takes 0 or 8 and more"
            )
        if (self.huge_anon_orders or 0) & 3:
            raise PolicyError(
                f"policy huge_anon_orders={self.huge_anon_orders}: the smallest size is 16 KiB, so "
                "that bits 0 and 1 stay clear"
            )
        low, high = self.pcp_high_min, self.pcp_high_max
        if low is not None and high is not None and low > high:
            raise PolicyError(
                f"policy pcp_high_min={low} is above pcp_high_max={high}: lower the one or raise "
                "the other"
            )

    @classmethod
    def parse(cls, settings: Iterable[str]) -> Policy:
        """A policy from "field=value" words, as `--set` has them; "none" means as recorded.

        Raises:
            PolicyError: a word without "=", an unknown field, one given twice, or a bad value.
        """
        values: dict[str, Setting | None] = {}
        known = policy_settings()
        for pair in settings:
            name, equals, text = pair.partition("=")
            name = name.strip()
            if not equals:
                raise PolicyError(f"policy setting {pair!r}: write field=value")
            if name not in known:
                raise _no_such_field(name)
            if name in values:
                raise PolicyError(f"policy setting {pair!r}: {name} is given twice")
            values[name] = parse_setting(name, known[name].metadata, text.strip())
        return cls.from_settings(values)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Setting | None]) -> Policy:
        """A policy from plain values, nested fields by dotted names, as `given` returns them.

        None means as recorded, or the default of a nested field.

        Raises:
            PolicyError: an unknown field or a bad value.
        """
        values: dict[str, Any] = {}
        options: dict[str, Setting] = {}
        known = policy_settings()
        for name, value in settings.items():
            if name not in known:
                raise _no_such_field(name)
            _, dot, option = name.partition(".")
            if not dot:
                values[name] = value
            elif value is not None:
                options[option] = value
        if options:
            values["ownership"] = OwnershipOptions(**options)
        return cls(**values)

    def given(self) -> dict[str, Setting]:
        """The settings that are not as recorded, by dotted names where nested, for JSON."""
        settings: dict[str, Setting] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, OwnershipOptions):
                changed = value.given().items()
                settings |= {f"{field.name}.{option}": part for option, part in changed}
            elif value is not None:
                settings[field.name] = value
        return settings

    def changed_by(self, other: Policy) -> Policy:
        """This policy with the settings that another one gives."""
        return Policy.from_settings(self.given() | other.given())

    def __repr__(self) -> str:
        values = self.given()
        if any("." in name for name in values):
            return f"Policy.from_settings({values!r})"
        return f"Policy({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def __str__(self) -> str:
        words = (
            f"{name}={value if isinstance(value, str) else int(value)}"
            for name, value in self.given().items()
        )
        return " ".join(words) or "as recorded"


def policy_settings() -> dict[str, Field[Any]]:
    """Every single value that a policy has: its fields, those of nested ones by dotted names."""
    settings: dict[str, Field[Any]] = {}
    for field in fields(Policy):
        if options := field.metadata["options"]:
            settings |= {f"{field.name}.{option.name}": option for option in fields(options)}
        else:
            settings[field.name] = field
    return settings


def _no_such_field(name: str) -> PolicyError:
    return PolicyError(
        f"policy has no field {name!r}; {known_names(name, policy_settings(), 'fields')}"
    )


POLICY_KINDS: dict[str, str] = {field.name: field.metadata["kind"] for field in fields(Policy)}
"""A policy's own fields: INT, BOOL, CHOICE, NUMBERS or NESTED."""
DEMAND_FIELDS = ("huge_anon_orders",)
"""Those that change what a recording asks for: orders of folios (S10.13)."""
NUMBER_FIELDS = tuple(
    name
    for name, kind in POLICY_KINDS.items()
    if kind in (INT, BOOL) and name not in ("pageblock_order", *DEMAND_FIELDS)
)
"""Those that are numbers or switches, in their order; the pageblock's order is the machine's."""
ELASTIC_SETTINGS = tuple(field.name for field in fields(Policy) if field.metadata["elastic_only"])
"""Those that only an elastic replay reads."""


def policy_numbers(policy: Policy, rules: KernelRules) -> dict[str, int]:
    """Return what a kernel goes by for each of `NUMBER_FIELDS`.

    That is the policy's value; where it is None, the kernel's rule, if the field names one, or
    what mainline does; 0 where nothing says.
    """
    numbers = {}
    for field in fields(Policy):
        if field.name in NUMBER_FIELDS:
            value, about = getattr(policy, field.name), field.metadata
            if value is None:
                value = getattr(rules, about["rule"]) if about["rule"] else about["default"]
            numbers[field.name] = int(value or 0)
    return numbers
