"""The proposals of docs/proposals.md: what each changes, its posted figures, hosts and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pagealloc_model.notebooks.studies.full_host import FullHost

import pagealloc_model as pm


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison.

    Attributes:
        words: settings of the policy as `--patch` takes them, "" for none.
        rules: the kernel's, as `--rules` takes them.
    """

    words: str = ""
    rules: str = "6.12"

    @property
    def policy(self) -> pm.Policy:
        """The settings as a policy."""
        return pm.Policy.parse([word for word in self.words.split(",") if word])


@dataclass(frozen=True, kw_only=True)
class Row:
    """A quantity of a made-up host.

    Attributes:
        what: its name.
        counters: columns of `run_full_host` that make it up; with " at the end" a level.
        out_of: it is a share of these; none: a count.
        posted: quantity in the posted figures, "" for none.
    """

    what: str
    counters: tuple[str, ...]
    out_of: tuple[str, ...] = ()
    posted: str = ""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A proposal as a policy.

    Attributes:
        name: short, to choose it by.
        title: what it does.
        post: its subject, and when.
        file: where the model has it.
        posted: file of its figures in data/posted, "" for none.
        base: without it.
        patch: with it.
        host: a made-up host.
        rows: what is shown of the host; none: no host.
        recordings: names and modes of reclaim.
        recorded_words: settings with it on recordings, where the patch's do not fit them.
        metrics: of `compare`, that are shown.
    """

    name: str
    title: str
    post: str
    file: str
    patch: Side
    posted: str = ""
    base: Side = field(default_factory=Side)
    host: FullHost = field(default_factory=FullHost)
    rows: tuple[Row, ...] = ()
    recordings: tuple[tuple[str, str], ...] = ()
    recorded_words: str = ""
    metrics: tuple[str, ...] = ()


FRAGMENTED = FullHost(
    gib=64,
    nr_cpus=32,
    scattered_per_mille=990,
    huge_per_s=100,
    huge_s=30,
    atomic_per_s=2_000,
    cache_pages_per_s=60_000,
    seconds=6,
)
"""A host of the posted size on which few huge pages are to be had, as on the unpatched ones: a
kernel page sits in 99 of 100 movable blocks, and page cache fills up all the time."""
SMALL = replace(FRAGMENTED, gib=8, nr_cpus=8, cache_pages_per_s=30_000)
ATOMIC = FullHost(gib=8, nr_cpus=8, atomic_per_s=30_000, cache_pages_per_s=60_000, seconds=8)
LOCAL = FullHost(
    gib=8,
    nr_cpus=8,
    thp_local_first=True,
    scattered_per_mille=900,
    huge_per_s=100,
    huge_s=30,
    atomic_per_s=1_000,
    cache_pages_per_s=30_000,
    seconds=6,
)
HASTY = replace(LOCAL, thp_local_first=False, thp_madvised=False)
"""Faults that may not retry (S8.5): whether a skipped compaction ends them is what is changed."""
SCAN = Row(
    what="pages scanned by kswapd",
    counters=("pgscan_kswapd",),
    posted="pgscan_kswapd, mean of a host",
)
DIRECT = Row(what="pages scanned by direct reclaim", counters=("pgscan_direct",))
STALLS = Row(what="stalls in direct reclaim", counters=("allocstall",))
THP = Row(
    what="THP success",
    counters=("thp_fault_alloc",),
    out_of=("thp_fault_alloc", "thp_fault_fallback"),
    posted="THP success (alloc/alloc+fallback)",
)
COMPACTION = Row(
    what="compaction success",
    counters=("compact_success",),
    out_of=("compact_stall",),
    posted="compaction success (success/stall)",
)
EFFICIENCY = Row(
    what="reclaim efficiency",
    counters=("pgsteal_kswapd",),
    out_of=("pgscan_kswapd",),
    posted="reclaim efficiency (steal/scan)",
)
RESERVED = Row(what="reserved blocks at the end", counters=("reserved_blocks at the end",))
GATED = replace(RESERVED, posted="HighAtomic pageblocks per host")
TAKEN = Row(what="blocks reserved", counters=("blocks_taken",))
FAILED = Row(what="atomic requests failed", counters=("requests_failed",))
PRESSED = (
    "reclaim_scanned",
    "reclaim_efficiency",
    "allocstall",
    "compact_stall",
    "compact_success",
    "compact_fail",
    "thp_success",
    "thp_fault_alloc",
    "thp_fault_fallback",
)
RESERVE = (
    "highatomic_blocks",
    "free_in_whole_blocks_not_highatomic",
    "thp_success",
    "allocstall",
    "extfrag_events",
)
UNDER_PRESSURE = (("highatomic_stock", "elastic"), ("highatomic_gate3", "elastic"))
BOTH_MODES = (("highatomic_stock", "literal"), ("highatomic_stock", "elastic"))


def _unposted(*rows: Row) -> tuple[Row, ...]:
    return tuple(replace(row, posted="") for row in rows)


PROPOSALS = (
    Proposal(
        name="compact-gap",
        title="compact_gap() capped",
        post="mm/compaction: cap compact_gap() at COMPACT_CLUSTER_MAX (May and June 2026)",
        file="allocator/compaction.py",
        posted="compact_gap",
        base=Side(words="compact_gap=0"),
        patch=Side(words="compact_gap=32"),
        host=FRAGMENTED,
        rows=(SCAN, EFFICIENCY, COMPACTION, THP, DIRECT, STALLS),
        recordings=UNDER_PRESSURE,
        metrics=PRESSED,
    ),
    Proposal(
        name="reserve-pcp",
        title="no reserve after a per-CPU allocation",
        post="mm/page_alloc: don't increase highatomic reserve after pcp alloc (March 2026)",
        file="allocator/page_alloc.py",
        posted="highatomic_reserves",
        patch=Side(words="highatomic_from_pcp=0"),
        host=ATOMIC,
        rows=(RESERVED, TAKEN, *_unposted(THP), FAILED),
        recordings=BOTH_MODES,
        metrics=RESERVE,
    ),
    Proposal(
        name="reserve-fastpath",
        title="atomics use the reserve at once, which grows in the slow path only",
        post="mm/page_alloc: use existing highatomic reserves on the buddy fastpath (June 2026)",
        file="allocator/watermark.py",
        posted="highatomic_reserves",
        base=Side(rules="7.2"),
        patch=Side(words="highatomic_fastpath=1,highatomic_slowpath_only=1", rules="7.2"),
        host=ATOMIC,
        rows=(RESERVED, TAKEN, *_unposted(THP), FAILED),
        recordings=BOTH_MODES,
        metrics=RESERVE,
    ),
    Proposal(
        name="reserve-gate",
        title="no reserve at or below the costly order",
        post="mm/page_alloc: skip high atomic reservation at or below costly order (May 2026)",
        file="allocator/highatomic.py",
        posted="highatomic",
        patch=Side(words="highatomic_gate_order=3"),
        host=ATOMIC,
        rows=(GATED, TAKEN, *_unposted(THP), FAILED),
        recordings=BOTH_MODES,
        metrics=RESERVE,
    ),
    Proposal(
        name="refill-mode",
        title="a refill that stole goes on stealing",
        post="mm: page_alloc: speed up fallbacks in rmqueue_bulk() (2025)",
        file="allocator/pcp.py",
        posted="fallback_search",
        base=Side(words="refill_mode_persists=0"),
        patch=Side(words="refill_mode_persists=1"),
        host=SMALL,
        rows=(
            Row(what="list probes in refills", counters=("refill_probes",)),
            Row(what="refills", counters=("refills",)),
            *_unposted(SCAN),
        ),
        recordings=BOTH_MODES,
        metrics=("extfrag_events", "hold_time", "refill_transactions", "allocstall"),
    ),
    Proposal(
        name="atomic-boost",
        title="watermarks boosted for atomic requests in need",
        post="mm/page_alloc: boost watermarks on atomic allocation failure (v10, February 2026)",
        file="allocator/watermark.py",
        posted="atomic_boost",
        patch=Side(words="atomic_boost=1"),
        host=ATOMIC,
        rows=(FAILED, *_unposted(SCAN), STALLS, *_unposted(THP)),
        recordings=UNDER_PRESSURE,
        metrics=PRESSED,
    ),
    Proposal(
        name="local-thp",
        title="no reclaim for local-only huge pages",
        post="mm, page_alloc, thp: prevent reclaim for __GFP_THISNODE THP allocations",
        file="allocator/page_alloc.py",
        base=Side(words="local_thp_reclaims=1"),
        patch=Side(words="local_thp_reclaims=0"),
        host=LOCAL,
        rows=_unposted(STALLS, DIRECT, SCAN, THP, COMPACTION),
        recordings=UNDER_PRESSURE,
        metrics=PRESSED,
    ),
    Proposal(
        name="initial-compaction",
        title="the initial compaction's result is ignored",
        post="the slow path's initial compaction (669872181549)",
        file="allocator/page_alloc.py",
        patch=Side(rules="6.12,initial_compaction_in_loop=true"),
        host=HASTY,
        rows=_unposted(STALLS, DIRECT, SCAN, THP, COMPACTION),
    ),
    Proposal(
        name="superpageblocks",
        title="unmovable memory keeps to gigabytes that have some",
        post="mm: reliable 1GB page allocation (April and May 2026)",
        file="allocator/superpageblocks.py",
        posted="superpageblocks",
        base=Side(rules="7.2"),
        patch=Side(words="superpageblock_order=18", rules="7.2"),
        recordings=(("highatomic_stock", "literal"), ("kbuild", "literal"), ("xfree", "literal")),
        recorded_words="superpageblock_order=14",
        metrics=("extfrag_events", "free_in_whole_blocks_not_highatomic", "hold_time"),
    ),
    Proposal(
        name="batch-scale",
        title="refills and drains of at most pcp->batch",
        post="CONFIG_PCP_BATCH_SCALE_MAX found difficult to use (2024)",
        file="allocator/pcp.py",
        posted="pcp_batch_scale",
        patch=Side(words="pcp_batch_scale_max=0"),
        recordings=(("xfree", "literal"), ("kbuild", "literal")),
        metrics=(
            "refill_transactions",
            "drain_transactions",
            "zone_lock_acquisitions",
            "longest_drain",
            "pages_per_refill",
        ),
    ),
    Proposal(
        name="contiguous-frees",
        title="contiguous pages freed in high-order chunks",
        post="mm: Free contiguous order-0 pages efficiently (v5, March 2026)",
        file="notebooks/studies/contiguous_frees.py",
        posted="contiguous_frees",
        patch=Side(words="", rules="7.2"),
    ),
    Proposal(
        name="batched-frees",
        title="frees in lock holds of pcp->batch pages",
        post="mm/page_alloc: Batch page freeing in free_frozen_page_commit (v1 to v4, 2025)",
        file="allocator/pcp.py",
        posted="pcp_batching",
        base=Side(words="pcp_free_batched=0"),
        patch=Side(words="pcp_free_batched=1"),
        recordings=(("xfree", "literal"), ("kbuild", "literal")),
        metrics=("drain_transactions", "drain_pages", "zone_lock_acquisitions", "longest_drain"),
    ),
)
