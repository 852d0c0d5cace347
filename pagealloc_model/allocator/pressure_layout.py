"""Where an elastic replay keeps what a literal one does not have: reclaim, compaction, requests.

`folios` has one `FOLIO` record per page frame; the first frame of an allocation is described. The
rest are words of `st` from `st[PRESSURE_BASE]` on: scalars, counters, then one region per node,
per zone and per compactor. Names below are offsets within those regions.
"""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.layout import Region
from pagealloc_model.base.jit import inner
from pagealloc_model.recording.machine import ZONE_TYPES_MAX

FOLIO = at.record(
    "int32 object offset sibling; int8 place kind; uint8 scans writes; int8 skip referenced; "
    "int16 slab",
    align=True,
)
"""An allocation: `object` is its object's number plus one, 0 if no event is about it; `offset` its
distance in pages from the object's beginning; `sibling` the next piece's page frame plus one;
`place` the LRU list plus one, 0 for none; `kind` its class; `scans` and `writes` count draws
(see `draws`). `skip`, of a pageblock's first frame: compaction leaves the block out. `referenced`:
a file's pages were used since. `slab`: objects that a slab which shrinkers can
empty has left; 0: it is on no list of such."""

KERNEL, RECLAIMABLE, ANON, FILE, CLASSES = range(5)
"""Classes of allocated pages; those from ANON on are on LRU lists."""
CLASS_SHIFT = 30
FREED_BY_RECLAIM = 3 << CLASS_SHIFT
FREED_BY_COMPACTION = 2 << CLASS_SHIFT
"""Bits of a request: its class. On a free: reclaim made it, or compaction (T10.10, T10.14)."""

THP_ORDER = 9
"""Order of a huge page; free pages in smaller buddies are fragmented, for proactive compaction."""

INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE = 0, 1, 2, 3
LRU_LISTS = 4
CLUSTER = 32
"""Pages that reclaim and compaction take up at a time."""
RUN_SHIFT = 4
"""Of the 16 pages that a fault maps around its own: `fault_around_pages` (mm/memory.c, 6.12)."""
LOWEST_PRIORITY = 12
RETRIES_MAX = 16
SHRINK_BATCH = 128
"""Objects of slabs that a shrinker takes up at a time."""
DEFAULT_SEEKS = 2
"""What objects cost to make again, as nearly all shrinkers say."""

GFP_IO = 0x40
GFP_FS = 0x80
GFP_RETRY_MAYFAIL = 0x4000
GFP_NOFAIL = 0x8000
GFP_NORETRY = 0x10000
ELASTIC_BITS = GFP_IO | GFP_FS | GFP_RETRY_MAYFAIL | GFP_NOFAIL | GFP_NORETRY

ABSORBED, LOST = -3, -4
"""An object's place: made unnecessary by another's success; freed, reclaimed or never allocated.
Pages of a file that reclaim took have LOST - 1 less their node's age then (S10.7). Other places
below -1 do not occur: pieces are linked through `folios`."""

# What a round of reclaim goes by (the kernel's scan_control, and shrink_lruvec()'s own numbers).
_scan = Region()
SC_ORDER, SC_PRIORITY, SC_HIGHEST, SC_GOAL, SC_SCANNED, SC_RECLAIMED, SC_IS_KSWAPD = _scan.each(7)
SC_MAY_COMPACT, SC_MAY_SWAP, SC_MAY_FS = _scan.each(3)
SC_MAY_DEACTIVATE = _scan.word()
"""Bits: 1 for ANON, 2 for FILE."""
SC_FORCE_DEACTIVATE, SC_SKIPPED_DEACTIVATE, SC_CACHE_TRIM, SC_NO_CACHE_TRIM = _scan.each(4)
SC_CACHE_TRIM_FAILED, SC_FILE_IS_TINY, SC_COMPACTION_READY, SC_RECLAIMABLE = _scan.each(4)
SC_LRU_RECLAIMED = _scan.word()
SC_LEFT = _scan.words(LRU_LISTS)
"""Pages to look at yet, by list; then what each list began with."""
SC_TARGETS = _scan.words(LRU_LISTS)
SC_WORDS = _scan.size
DEACTIVATE_ANON, DEACTIVATE_FILE = 1, 2

_scalars = Region()
# Assumptions and policy.
SEED, FILE_REFERENCED, ANON_REFERENCED, FILE_DIRTY, ANON_SCAN_PERCENT = _scalars.each(5)
RECLAIM_SCAN_NS, KSWAPD_WAKE_NS, COMPACT_SCAN_NS = _scalars.each(3)
COMPACT_MIGRATE_NS, ANON_MIGRATION_FAILS, FILE_MIGRATION_FAILS = _scalars.each(3)
COMPACTION_CONTENDED, BASE_PAGES_PER_HUGE, SLAB_SURVIVORS = _scalars.each(3)
SLAB_OBJECTS = _scalars.word()
"""Objects of a slab, of any order (S10.8)."""
COMPACT_GAP_MAX, KSWAPD_ASSISTS, DEFRAG_FIXES = _scalars.each(3)
THP_DEFRAG = _scalars.word()
"""Bits that huge-page requests have instead of recorded ones, plus one; 0: as recorded."""
THP_MADVISED = _scalars.word()
"""Whether huge pages are asked for in madvised memory."""
HIGHEST_NORMAL = _scalars.word()
"""Number of zone type Normal, or of the highest below it."""
# Where regions begin.
NODES_BASE, ZONES_BASE, COMPACTORS_BASE = _scalars.each(3)
# Pages that one reclaim pass or compaction unit frees at its end, linked by `next`.
QUEUE_HEAD, QUEUE_TAIL = _scalars.each(2)
REQUEST_STALLED = _scalars.word()
"""Whether the newest recorded request reclaimed or compacted."""
DIRECT_SCAN = _scalars.words(SC_WORDS)
# Counters.
_COUNTER_NAMES = """
    pgscan_kswapd pgscan_direct pgsteal_kswapd pgsteal_direct pgactivate pgdeactivate
    pageoutrun kswapd_low_wmark_hit_quickly kswapd_high_wmark_hit_quickly
    pgscan_direct_throttle compact_stall compact_fail compact_success compact_migrate_scanned
    compact_free_scanned compact_isolated compact_daemon_wake compact_daemon_migrate_scanned
    compact_daemon_free_scanned pgmigrate_success pgmigrate_fail thp_fault_alloc
    thp_fault_fallback oom_kill workingset_refault_file workingset_activate_file slabs_scanned
"""
COUNTER_NAMES = tuple(_COUNTER_NAMES.split())
"""Counters under the kernel's names, in the order of their words; `allocstall` is per zone type."""
COUNTERS = _scalars.words(len(COUNTER_NAMES))
_counter_words = {name: COUNTERS + number for number, name in enumerate(COUNTER_NAMES)}
PGSCAN_KSWAPD = _counter_words["pgscan_kswapd"]
PGSCAN_DIRECT = _counter_words["pgscan_direct"]
PGSTEAL_KSWAPD = _counter_words["pgsteal_kswapd"]
PGSTEAL_DIRECT = _counter_words["pgsteal_direct"]
PGACTIVATE = _counter_words["pgactivate"]
PGDEACTIVATE = _counter_words["pgdeactivate"]
PAGEOUTRUN = _counter_words["pageoutrun"]
KSWAPD_LOW_WMARK_HIT_QUICKLY = _counter_words["kswapd_low_wmark_hit_quickly"]
KSWAPD_HIGH_WMARK_HIT_QUICKLY = _counter_words["kswapd_high_wmark_hit_quickly"]
PGSCAN_DIRECT_THROTTLE = _counter_words["pgscan_direct_throttle"]
COMPACT_STALL = _counter_words["compact_stall"]
COMPACT_FAIL = _counter_words["compact_fail"]
COMPACT_SUCCESS = _counter_words["compact_success"]
COMPACT_MIGRATE_SCANNED = _counter_words["compact_migrate_scanned"]
COMPACT_FREE_SCANNED = _counter_words["compact_free_scanned"]
COMPACT_ISOLATED = _counter_words["compact_isolated"]
COMPACT_DAEMON_WAKE = _counter_words["compact_daemon_wake"]
COMPACT_DAEMON_MIGRATE_SCANNED = _counter_words["compact_daemon_migrate_scanned"]
COMPACT_DAEMON_FREE_SCANNED = _counter_words["compact_daemon_free_scanned"]
PGMIGRATE_SUCCESS = _counter_words["pgmigrate_success"]
PGMIGRATE_FAIL = _counter_words["pgmigrate_fail"]
THP_FAULT_ALLOC = _counter_words["thp_fault_alloc"]
THP_FAULT_FALLBACK = _counter_words["thp_fault_fallback"]
OOM_KILL = _counter_words["oom_kill"]
WORKINGSET_REFAULT_FILE = _counter_words["workingset_refault_file"]
WORKINGSET_ACTIVATE_FILE = _counter_words["workingset_activate_file"]
SLABS_SCANNED = _counter_words["slabs_scanned"]
ALLOCSTALL = _scalars.words(ZONE_TYPES_MAX)
"""First of one word per zone type."""
_DIVERGENCE_NAMES = """
    dropped_frees freed_by_model absorbed absorbed_frees tried_failures succeeded_failures
    demand_failed forced_by_nofail spared_reads added_reads reclaimed_slabs
"""
DIVERGENCE_NAMES = tuple(_DIVERGENCE_NAMES.split())
_divergences = _scalars.each(len(DIVERGENCE_NAMES))
DROPPED_FREES, FREED_BY_MODEL, COUNT_ABSORBED, ABSORBED_FREES, TRIED_FAILURES = _divergences[:5]
SUCCEEDED_FAILURES, DEMAND_FAILED, FORCED_BY_NOFAIL, SPARED_READS = _divergences[5:9]
ADDED_READS, RECLAIMED_SLABS = _divergences[9:]
OUTCOME_NAMES = ("asked", "served", "stalled", "served_stalled", "asked_again")
OUTCOME_WORDS = len(OUTCOME_NAMES)
OUTCOMES = _scalars.words(CLASSES * at.ORDERS * OUTCOME_WORDS)
"""By class and order: recorded requests asked, served as asked, those that reclaimed or compacted,
the served among them, and local attempts in vain that the caller makes again (S10.12)."""
SCALARS = _scalars.size

# Times of a daemon on its CPU (S10.14): the first span's offset, how many there are (0: none are
# known), the one that it is at and what that has left, ns. Spans lie behind all else.
_daemon = Region()
SPANS_FROM, SPANS, SPAN, SPAN_LEFT = _daemon.each(4)
DAEMON_WORDS = _daemon.size
_span = Region()
SPAN_BEGIN, SPAN_RAN, SPAN_WAITED = _span.each(3)
SPAN_WORDS = _span.size

# One node: LRU lists as (head, tail, entries), pages on them, then its kswapd and kcompactd.
_node = Region()
NODE_LISTS = _node.words(LRU_LISTS * at.LIST_WORDS)
NODE_PAGES = _node.words(LRU_LISTS)
NODE_AGE = _node.word()
"""Pages of files evicted or activated so far (S10.7)."""
KSWAPD_PHASE, KSWAPD_DUE, KSWAPD_ALLOC_ORDER = _node.each(3)
KSWAPD_ORDER = _node.word()
"""Order that the last run ended with, for the sleep that follows."""
KSWAPD_HIGHEST, KSWAPD_BOOST_LEFT, KSWAPD_BOOSTED = _node.each(3)
KSWAPD_PASS_FROM = _node.word()
"""Pages that the run had freed when its pass began."""
KSWAPD_IN_PASS = _node.word()
KSWAPD_SCAN = _node.words(SC_WORDS)
KSWAPD_FAILURES, KSWAPD_WANTED_ORDER = _node.each(2)
KSWAPD_WANTED_HIGHEST = _node.word()
"""Highest zone that a waker may use; -1: none has asked since the run began."""
KSWAPD_WOKEN = _node.word()
"""Whether kswapd sleeps no more and has not run yet."""
KSWAPD_CPU, KSWAPD_FREE_NS, KCOMPACTD_DUE, KCOMPACTD_ORDER, KCOMPACTD_HIGHEST = _node.each(5)
KCOMPACTD_ZONE, KCOMPACTD_RUN_ORDER, KCOMPACTD_RUN_HIGHEST, PROACTIVE_DUE = _node.each(4)
PROACTIVE_SCORE = _node.word()
# Slabs that shrinkers can empty: a list as (head, tail, entries), the next to lose an object at the
# tail; their objects; objects that earlier passes left over.
SLAB_LIST = _node.words(at.LIST_WORDS)
SLAB_FREEABLE, SLAB_DEFERRED = _node.each(2)
KSWAPD_CPU_TIME = _node.words(DAEMON_WORDS)
KCOMPACTD_CPU_TIME = _node.words(DAEMON_WORDS)
NODE_WORDS = _node.size
ASLEEP, RUNNING, NAPPING = range(3)

# One zone: pages on LRU lists; compaction's positions and deferral; pages that exist.
_zone = Region()
ZONE_PAGES = _zone.words(LRU_LISTS)
ZONE_MIGRATE_ASYNC, ZONE_MIGRATE_SYNC, ZONE_FREE_FROM, ZONE_CONSIDERED = _zone.each(4)
ZONE_DEFER_SHIFT, ZONE_ORDER_FAILED, ZONE_FLUSH_SKIPS, ZONE_INIT_MIGRATE = _zone.each(4)
ZONE_INIT_FREE, ZONE_PRESENT = _zone.each(2)
ZONE_WORDS = _zone.size

# One compactor's control block: 0 is direct, 1 + node is that node's kcompactd.
_compactor = Region()
RUN_ZONE = _compactor.word()
"""Zone number plus one; 0: no run."""
RUN_ORDER = _compactor.word()
"""-1: all of a node is compacted, for no request."""
RUN_TYPE, RUN_MODE, RUN_FLAGS, RUN_HIGHEST, RUN_DIRECT, RUN_PROACTIVE = _compactor.each(6)
RUN_IGNORES_SKIPS, RUN_TAKES_ANY_BLOCK, RUN_WHOLE, RUN_FINISHES_BLOCK = _compactor.each(4)
RUN_CONTENDED = _compactor.word()
"""Whether an asynchronous run met others at a lock."""
RUN_SYNCS_POSITIONS = _compactor.word()
"""Asynchronous and other runs go on at the same place until a folio is isolated."""
RUN_MIGRATE, RUN_FREE = _compactor.each(2)
RUN_FAST_START = _compactor.word()
"""Lowest page that fast searches for sources found; 0: none, SEARCHED: already gone back to it."""
RUN_SEARCH_FAIL, RUN_SEARCH_ORDER = _compactor.each(2)
RUN_LAST_MIGRATED = _compactor.word()
"""First page of the pageblock moved from last, 0 for none."""
RUN_MIGRATE_SCANNED, RUN_FREE_SCANNED = _compactor.each(2)
RUN_HELD = _compactor.word()
"""Pages in the lists of free pages."""
RUN_CPU = _compactor.word()
RUN_SOURCES = _compactor.word()
"""Head of the folios isolated as sources, linked by `next`."""
RUN_SOURCE_PAGES = _compactor.word()
"""Pages isolated that have no target yet."""
RUN_TARGETS = _compactor.words(at.ORDERS)
"""Heads of the free pages held, by order, linked by `next`."""
RUN_TARGET_TAILS = _compactor.words(at.ORDERS)
COMPACTOR_WORDS = _compactor.size
SEARCHED = -1

ASYNC, SYNC_LIGHT, SYNC_FULL = 2, 1, 0
"""Priorities of compaction as events print them (T7)."""
SYNC = -1
"""Mode of a run for all of a node that no daemon began: it waits for pages under writeback."""
SKIPPED, DEFERRED, CONTINUE, COMPLETE, PARTIAL_SKIPPED, CONTENDED, SUCCESS = 1, 2, 4, 5, 6, 7, 8
"""Results of compaction; a walk over zones has its highest (S9)."""
DEFER_SHIFT_MAX = 6

HELD = 5
"""`where` of a page that compaction has taken off the free lists and not used yet."""

# Operations that the kernel judge takes, and how much time one of them lets pass.
JUDGED_DIRECT, JUDGED_WAKE, JUDGED_TIME, JUDGED_NODE, JUDGED_RESET = range(5)
JUDGED_KSWAPD, JUDGED_TAKE, JUDGED_FREE = range(5, 8)
JUDGED_TIME_MS = 251


@inner
def word_at(m: at.Arrays, name: int) -> int:
    """Return the offset of a scalar or counter."""
    return m.st[at.PRESSURE_BASE] + name


@inner
def value_of(m: at.Arrays, name: int) -> int:
    """Return a scalar's value."""
    return m.st[m.st[at.PRESSURE_BASE] + name]


@inner
def node_pressure_at(m: at.Arrays, node: int) -> int:
    """Return the offset of a node's words."""
    return m.st[m.st[at.PRESSURE_BASE] + NODES_BASE] + node * NODE_WORDS


@inner
def zone_pressure_at(m: at.Arrays, zone: int) -> int:
    """Return the offset of a zone's words."""
    return m.st[m.st[at.PRESSURE_BASE] + ZONES_BASE] + zone * ZONE_WORDS


@inner
def compactor_at(m: at.Arrays, number: int) -> int:
    """Return the offset of a compactor's words."""
    return m.st[m.st[at.PRESSURE_BASE] + COMPACTORS_BASE] + number * COMPACTOR_WORDS
