"""Where an elastic replay keeps what a literal one does not have: reclaim, compaction, requests.

`folios` has one `FOLIO` record per page frame; the first frame of an allocation is described. The
rest are words of `st` from `st[PRESSURE_BASE]` on: scalars, counters, then one region per node,
per zone and per compactor. Names below are offsets within those regions.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at

FOLIO = np.dtype(
    [
        ("object", np.int32),
        ("offset", np.int32),
        ("sibling", np.int32),
        ("place", np.int8),
        ("kind", np.int8),
        ("scans", np.uint8),
        ("writes", np.uint8),
        ("moves", np.uint8),
        ("skip", np.int8),
    ],
    align=True,
)
"""An allocation: `object` is its object's number plus one, 0 if no event is about it; `offset` its
distance in pages from the object's beginning; `sibling` the next piece's page frame plus one;
`place` the LRU list plus one, 0 for none; `kind` its class; `scans`, `writes`, `moves` count draws
(see `draws`). `skip`, of a pageblock's first frame: compaction leaves the block out."""

KERNEL, RECLAIMABLE, ANON, FILE = 0, 1, 2, 3
"""Classes of allocated pages; those from ANON on are on LRU lists."""
CLASS_SHIFT = 30
FREED_BY_RECLAIM = 3 << CLASS_SHIFT
"""Bits of a request: its class. On a free: reclaim made it."""

INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE = 0, 1, 2, 3
LRU_LISTS = 4
CLUSTER = 32
"""Pages that reclaim and compaction take up at a time."""
LOWEST_PRIORITY = 12
RETRIES_MAX = 16

GFP_IO = 0x40
GFP_FS = 0x80
GFP_RETRY_MAYFAIL = 0x4000
GFP_NOFAIL = 0x8000
GFP_NORETRY = 0x10000
ELASTIC_BITS = GFP_IO | GFP_RETRY_MAYFAIL | GFP_NOFAIL | GFP_NORETRY

ABSORBED, LOST = -3, -4
"""An object's place: made unnecessary by another's success; reclaimed or never allocated. Other
places below -1 do not occur: pieces are linked through `folios`."""

# Assumptions and policy.
SEED = 0
FILE_REFERENCED, ANON_REFERENCED, FILE_DIRTY = 1, 2, 3
ANON_SCAN_PERCENT = 4
RECLAIM_SCAN_NS, RECLAIM_FREE_NS, KSWAPD_WAKE_NS = 5, 6, 7
COMPACT_SCAN_NS, COMPACT_MIGRATE_NS = 8, 9
ANON_MIGRATION_FAILS, FILE_MIGRATION_FAILS, COMPACTION_CONTENDED = 10, 11, 12
COMPACT_GAP_MAX = 13
EXTFRAG_THRESHOLD = 14
PROACTIVENESS = 15
KSWAPD_ASSISTS = 16
DEFRAG_FIXES = 18
INITIAL_COMPACTION_IN_LOOP = 19
SUITABLE_BY_REQUEST_MARK = 20
STALL_LEAVES_OUT_DEFERRED = 21
ASYNC_SOURCE_BY_ORDER = 22
COMPACTION_NEEDS_RECLAIM = 23
NODES_BASE, ZONES_BASE, COMPACTORS_BASE = 24, 25, 26
HIGHATOMIC_FASTPATH = 17
# Pages that one reclaim pass or compaction unit frees at its end, linked by `next`.
QUEUE_HEAD, QUEUE_TAIL = 28, 29
STALLED_NS = 50
REQUEST_STALLED = 56
"""Whether the newest recorded request reclaimed or compacted."""
THP_DEFRAG = 57
"""Bits that huge-page requests have instead of recorded ones, plus one; 0: as recorded."""
# Counters.
COUNTERS = 64
COUNTER_NAMES = (
    "pgscan_kswapd",
    "pgscan_direct",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pgactivate",
    "pgdeactivate",
    "pageoutrun",
    "kswapd_low_wmark_hit_quickly",
    "kswapd_high_wmark_hit_quickly",
    "compact_stall",
    "compact_fail",
    "compact_success",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "compact_isolated",
    "compact_daemon_wake",
    "compact_daemon_migrate_scanned",
    "compact_daemon_free_scanned",
    "pgmigrate_success",
    "pgmigrate_fail",
    "thp_fault_alloc",
    "thp_fault_fallback",
    "oom_kill",
)
"""Counters under the kernel's names, in the order of their words; `allocstall` is per zone type."""
(
    PGSCAN_KSWAPD,
    PGSCAN_DIRECT,
    PGSTEAL_KSWAPD,
    PGSTEAL_DIRECT,
    PGACTIVATE,
    PGDEACTIVATE,
    PAGEOUTRUN,
    HIT_LOW_QUICKLY,
    HIT_HIGH_QUICKLY,
    COMPACT_STALL,
    COMPACT_FAIL,
    COMPACT_SUCCESS,
    COMPACT_MIGRATE_SCANNED,
    COMPACT_FREE_SCANNED,
    COMPACT_ISOLATED,
    DAEMON_WAKE,
    DAEMON_MIGRATE_SCANNED,
    DAEMON_FREE_SCANNED,
    PGMIGRATE_SUCCESS,
    PGMIGRATE_FAIL,
    THP_FAULT_ALLOC,
    THP_FAULT_FALLBACK,
    OOM_KILL,
) = range(COUNTERS, COUNTERS + len(COUNTER_NAMES))
ALLOCSTALL = 96
"""First of one word per zone type."""
DIVERGENCE_NAMES = (
    "dropped_frees",
    "freed_by_model",
    "absorbed",
    "absorbed_frees",
    "tried_failures",
    "succeeded_failures",
    "demand_failed",
    "forced_by_nofail",
)
(
    DROPPED_FREES,
    FREED_BY_MODEL,
    COUNT_ABSORBED,
    ABSORBED_FREES,
    TRIED_FAILURES,
    SUCCEEDED_FAILURES,
    DEMAND_FAILED,
    FORCED_BY_NOFAIL,
) = range(112, 112 + len(DIVERGENCE_NAMES))
OUTCOMES = 128
"""By order: recorded requests asked, those served as asked, those that reclaimed or compacted."""
OUTCOME_WORDS = 3
SCALARS = OUTCOMES + at.ORDERS * OUTCOME_WORDS + 3

# One node: LRU lists as (head, tail, entries), pages on them, then its kswapd.
NODE_LISTS = 0
NODE_PAGES = NODE_LISTS + LRU_LISTS * at.LIST_WORDS
KSWAPD_PHASE = NODE_PAGES + LRU_LISTS
KSWAPD_DUE = KSWAPD_PHASE + 1
KSWAPD_ORDER = KSWAPD_PHASE + 2
KSWAPD_ALLOC_ORDER = KSWAPD_PHASE + 3
KSWAPD_HIGHEST = KSWAPD_PHASE + 4
KSWAPD_PRIORITY = KSWAPD_PHASE + 5
KSWAPD_BOOST_LEFT = KSWAPD_PHASE + 6
KSWAPD_BOOSTED = KSWAPD_PHASE + 7
KSWAPD_TOTAL = KSWAPD_PHASE + 8
KSWAPD_GOAL = KSWAPD_PHASE + 9
KSWAPD_FREED = KSWAPD_PHASE + 10
KSWAPD_SCANNED = KSWAPD_PHASE + 11
KSWAPD_LEFT = KSWAPD_PHASE + 12
"""Budgets left of the pass under way: ANON's, FILE's."""
KSWAPD_FAILURES = KSWAPD_PHASE + 14
KSWAPD_WANTED_ORDER = KSWAPD_PHASE + 15
KSWAPD_WANTED_HIGHEST = KSWAPD_PHASE + 16
KSWAPD_WOKEN_EARLY = KSWAPD_PHASE + 17
KSWAPD_CPU = KSWAPD_PHASE + 18
KCOMPACTD_DUE = KSWAPD_PHASE + 20
KCOMPACTD_ORDER = KSWAPD_PHASE + 21
KCOMPACTD_HIGHEST = KSWAPD_PHASE + 22
KCOMPACTD_ZONE = KSWAPD_PHASE + 23
KCOMPACTD_RUN_ORDER = KSWAPD_PHASE + 24
PROACTIVE_DUE = KSWAPD_PHASE + 25
KCOMPACTD_RUN_HIGHEST = KSWAPD_PHASE + 26
PROACTIVE_SCORE = KSWAPD_PHASE + 27
NODE_WORDS = 48
ASLEEP, RUNNING, NAPPING = 0, 1, 2

# One zone: pages on LRU lists; compaction's positions and deferral.
ZONE_PAGES = 0
ZONE_MIGRATE_ASYNC = LRU_LISTS
ZONE_MIGRATE_SYNC = LRU_LISTS + 1
ZONE_FREE_FROM = LRU_LISTS + 2
ZONE_CONSIDERED = LRU_LISTS + 3
ZONE_DEFER_SHIFT = LRU_LISTS + 4
ZONE_ORDER_FAILED = LRU_LISTS + 5
ZONE_FLUSH_SKIPS = LRU_LISTS + 6
ZONE_WORDS = 16

# One compactor: 0 is direct, 1 + node is that node's kcompactd.
RUN_ZONE = 0
"""Zone number plus one; 0: no run."""
RUN_ORDER = 1
RUN_TYPE = 2
RUN_MODE = 3
RUN_DIRECT = 4
RUN_MIGRATE = 7
RUN_FREE = 8
RUN_WHOLE = 9
RUN_LAST_MIGRATED = 10
RUN_HELD = 11
RUN_CAPTURED = 12
RUN_CPU = 14
RUN_SOURCES = 17
"""Head of the folios isolated as sources, linked by `next`."""
RUN_SOURCE_TAIL = 18
RUN_SOURCE_PAGES = 19
RUN_TARGETS = 20
"""Heads of the free pages held, by order, linked by `next`."""
COMPACTOR_WORDS = RUN_TARGETS + at.ORDERS + 1

ASYNC, SYNC_LIGHT, SYNC_FULL = 2, 1, 0
"""Priorities of compaction as events print them (T7)."""
SKIPPED, DEFERRED, CONTINUE, COMPLETE, PARTIAL_SKIPPED, CONTENDED, SUCCESS = 1, 2, 4, 5, 6, 7, 8
"""Results of compaction; a walk over zones has its highest (S9)."""
DEFER_SHIFT_MAX = 6

HELD = 5
"""`where` of a page that compaction has taken off the free lists and not used yet."""
