"""Where everything is in the model's arrays.

The state is three arrays:

- `pages`, one `PAGE` record per page frame. Only the first frame of a buddy, of a page on a
  per-CPU list and of an allocation is described; all other records stay zero, so memory that is
  never touched is never resident.
- `blocks`, one `BLOCK` record per pageblock.
- `st`, int64: scalars, then one region per zone, per (zone, CPU) and per node, then the zonelists.

Zones are numbered node by node: zone number = node index * zone types + type.

Names below are offsets: `st[ZONES + zone * ZONE_STRIDE + ZONE_FREE]`. A list takes three words:
head, tail, entries.
"""

from __future__ import annotations

from dataclasses import fields
from math import prod
from typing import NamedTuple

import numpy as np

from pagealloc_model.base.jit import inner
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import NUMBER_FIELDS
from pagealloc_model.recording.machine import ZONE_TYPES_MAX


class Region:
    """A stretch of int64 words; a name's offset follows from what was declared before it.

    Attributes:
        size: words declared so far: the stretch's length once all are.
    """

    def __init__(self) -> None:
        """Begin with no word."""
        self.size = 0

    def word(self) -> int:
        """Declare one word; returns its offset."""
        return self.words(1)

    def each(self, count: int) -> range:
        """Declare several words by names of their own; returns the offsets."""
        first = self.words(count)
        return range(first, first + count)

    def words(self, count: int) -> int:
        """Declare several words in a row; returns the first one's offset."""
        first = self.size
        self.size += count
        return first


def record(fields: str, align: bool = False) -> np.dtype:
    """A record's type, of fields such as "int32 next prev; int8 order"."""
    groups = (group.split() for group in fields.split(";"))
    return np.dtype([(name, kind) for kind, *names in groups for name in names], align=align)


PAGE = record("int32 next prev; int8 order where tag flags")
"""Links by page frame (-1 ends a list); `where` as below; `tag`: the migratetype of a free buddy's
list, the type a per-CPU page had when it was freed or taken from the buddy, an allocation's
movability (1 if requested MOVABLE); `flags`: of a per-CPU page, and of an allocation that was
one."""

NOWHERE, ALLOCATED, BUDDY, ON_PCP = 0, 1, 2, 3

MERGEABLE = 1
"""Flag: the page is of a block that its list's CPU owns (S12.2)."""

BLOCK = np.dtype([("migratetype", np.int8), ("zone", np.int8)])
"""`zone` is the zone's number plus one; 0 means no zone."""

UNMOVABLE, MOVABLE, RECLAIMABLE, HIGHATOMIC = 0, 1, 2, 3
PCP_TYPES = 3
MIGRATETYPES = 6
ORDERS = 15

HEAD, TAIL, ENTRIES, LIST_WORDS = range(4)

_scalars = Region()
NR_ZONES, NR_CPUS, PAGEBLOCK_ORDER, MAX_ORDER, ZONE_TYPES, MOVABLE_TYPE, ISOLATE = _scalars.each(7)
CMA, END_PFN, NR_NODES, THP_LISTS, HUGE_ORDER, SKIPS_BUSY_NODES, COUNTS_BY_CPU = _scalars.each(7)
FREE_HIGH_BATCH = _scalars.word()
# Where regions begin: those of pagesets, nodes, CPUs, zonelists, CPUs' nodes. OWNERSHIP is 0 if
# blocks are never owned (see OPTION_WORDS), PRESSURE_BASE in a literal replay (see
# `pressure_layout`).
PCP_BASE, NODE_BASE, CPU_BASE, ZONELIST_BASE, CPU_NODE_BASE, OWNERSHIP = _scalars.each(6)
PRESSURE_BASE = _scalars.word()
# Capture by direct compaction (S9.7): its zone plus one, 0 for none; what it would take; the page
# taken, -1 for none.
CAPTURE_ZONE, CAPTURE_ORDER, CAPTURE_TYPE, CAPTURED = _scalars.each(4)
# What follows from rules and policy together.
FULL_DRAIN_CHUNK = _scalars.word()
DRAINS_ALL, DRAINS_SCALED_BATCH, DRAINS_BATCH = range(3)
"""What one hold of a full drain covers: everything, batch << S pages, or a batch (S4.9)."""
WATERMARK_SUBTRACTS, BOOST_RETRY_MASK, BOOST_RETRY_BITS, BLOCK_WATERMARKS = _scalars.each(4)
# Work done under zone->lock since the last hold was counted (S11.1).
WORK_UNITS = 4
WORK = _scalars.words(WORK_UNITS)
WORK_SPLITS, WORK_MERGES, WORK_INSERTS, WORK_SCANNED = range(WORK, WORK + WORK_UNITS)
# Free lists looked at in the search for pages: since a refill began, in all refills, at most in one
# of them.
LIST_PROBES, REFILL_PROBES, REFILL_PROBES_MOST = _scalars.each(3)
# Scalars that change.
NOW, EVENT_CPU, NEXT_TICK, TICK_PERIOD, TICK_CPU, TICK_BASE, TICK_STAGGER = _scalars.each(7)
LOG_ROWS, LOG_DROPPED, LOG_PAGES, KSWAPD_RUNS, KSWAPD_RECORDED = _scalars.each(5)
DIRECT_RECLAIM_RECORDED = _scalars.word()
# What diverged, and what was asked.
COUNT_ALLOC, COUNT_FREE, COUNT_FORCED, COUNT_FAILED, COUNT_ORPHAN_FREE = _scalars.each(5)
COUNT_RECORDED_FAILURE, COUNT_SLOW_PATH, COUNT_UNRESERVE_CALLS = _scalars.each(3)
COUNT_KSWAPD_WAKES, COUNT_HIDDEN, COUNT_IN_BASE_PAGES = _scalars.each(3)
# What recorded compaction holds: where it is, pages left of it. A corrupt list: its page plus one.
ISOLATED_FROM, ISOLATED_PAGES, CORRUPT_AT = _scalars.each(3)
# What is imposed on a run that is no prediction: the only zone that may serve the request at hand,
# its number plus one, 0 for any; whether drains of all lists, and releases of reserved blocks, are
# events and not the model's.
ONLY_ZONE, DRAINS_RECORDED, RELEASES_RECORDED = _scalars.each(3)

RULE_WORDS = {name: _scalars.word() for name in KernelRules.decision_names()}
"""Offset of each kernel rule's word; kernels read the rule `pcp_decays` as `RULE_PCP_DECAYS`."""
POLICY_WORDS = {name: _scalars.word() for name in NUMBER_FIELDS}
"""The same for policy fields that are numbers or switches: `POLICY_HIGHATOMIC_GATE_ORDER`."""
# Those that kernels read by name. A comment where they read a rule says in which kernels, of those
# that have a preset, what the line says of it holds.
RULE_SUITABLE_BY_REQUEST_MARK = RULE_WORDS["suitable_by_request_mark"]
RULE_SUITABLE_BESIDE_CMA = RULE_WORDS["suitable_beside_cma"]
RULE_DIRECT_SOURCE_NEEDS_CMA = RULE_WORDS["direct_source_needs_cma"]
RULE_PROACTIVE_LEEWAY_SHRINKS = RULE_WORDS["proactive_leeway_shrinks"]
RULE_ASYNC_SOURCE_BY_ORDER = RULE_WORDS["async_source_by_order"]
RULE_COMPACTION_MOVES_COMPOUND_PAGES = RULE_WORDS["compaction_moves_compound_pages"]
RULE_SCANS_COUNT_SKIPPED_PAGES = RULE_WORDS["scans_count_skipped_pages"]
RULE_ZONE_START_BEGINS_BLOCK = RULE_WORDS["zone_start_begins_block"]
RULE_ANY_ISOLATION_MARKS_BLOCK = RULE_WORDS["any_isolation_marks_block"]
RULE_FAST_SOURCES_MARKED = RULE_WORDS["fast_sources_marked"]
RULE_FAILED_BLOCKS_FINISHED = RULE_WORDS["failed_blocks_finished"]
RULE_MOVED_FROM_WHERE_SCAN_ENDED = RULE_WORDS["moved_from_where_scan_ended"]
RULE_CAPTURE_ENDS_BEFORE_DRAIN = RULE_WORDS["capture_ends_before_drain"]
RULE_MOVABLE_CAPTURE_BELOW_BLOCK = RULE_WORDS["movable_capture_below_block"]
RULE_PROACTIVE_SCANS_COUNTED = RULE_WORDS["proactive_scans_counted"]
RULE_TARGETS_KEPT_WHOLE = RULE_WORDS["targets_kept_whole"]
RULE_TARGET_BLOCK_BY_ORDER = RULE_WORDS["target_block_by_order"]
RULE_TARGET_STEPS_END_IN_BLOCK = RULE_WORDS["target_steps_end_in_block"]
RULE_TARGET_POSITION_LEAVES_BLOCK = RULE_WORDS["target_position_leaves_block"]
RULE_FAST_TARGETS_END_AT_ENOUGH = RULE_WORDS["fast_targets_end_at_enough"]
RULE_FAST_TARGETS_MARKED_AT_END = RULE_WORDS["fast_targets_marked_at_end"]
RULE_LATE_TARGET_BLOCK_TESTED = RULE_WORDS["late_target_block_tested"]
RULE_RETRY_COUNTS_SERVED_ZONES = RULE_WORDS["retry_counts_served_zones"]
RULE_STALL_LEAVES_OUT_DEFERRED = RULE_WORDS["stall_leaves_out_deferred"]
RULE_HIGH_ORDER_FLUSH_ADDS_HALF_HIGH_MIN = RULE_WORDS["high_order_flush_adds_half_high_min"]
RULE_PCP_AUTO_TUNED = RULE_WORDS["pcp_auto_tuned"]
RULE_PCP_DECAYS = RULE_WORDS["pcp_decays"]
RULE_FALLBACK_FROM_LARGEST = RULE_WORDS["fallback_from_largest"]
RULE_LISTS_MATCH_BLOCKS = RULE_WORDS["lists_match_blocks"]
RULE_FREE_SPLIT_BY_BLOCK = RULE_WORDS["free_split_by_block"]
RULE_HIGHATOMIC_NEEDS_HIGH = RULE_WORDS["highatomic_needs_high"]
RULE_HIGHATOMIC_REFILLS_PCP = RULE_WORDS["highatomic_refills_pcp"]
RULE_RESERVE_CAP_ROUNDED = RULE_WORDS["reserve_cap_rounded"]
RULE_BELOW_HIGH_TESTED = RULE_WORDS["below_high_tested"]
RULE_BOOSTED_WAKE_NEEDS_BIT = RULE_WORDS["boosted_wake_needs_bit"]
RULE_REFILL_COUNTED_AT_END = RULE_WORDS["refill_counted_at_end"]
RULE_INITIAL_COMPACTION_IN_LOOP = RULE_WORDS["initial_compaction_in_loop"]
RULE_COMPACTION_NEEDS_RECLAIM = RULE_WORDS["compaction_needs_reclaim"]
RULE_FREE_COUNTS_AS_RECLAIMABLE = RULE_WORDS["free_counts_as_reclaimable"]
RULE_TRIES_WITHOUT_CACHE_TRIM = RULE_WORDS["tries_without_cache_trim"]
RULE_FRUITLESS_RECLAIM_REPEATED = RULE_WORDS["fruitless_reclaim_repeated"]
RULE_THROTTLE_COUNTS_EXACTLY = RULE_WORDS["throttle_counts_exactly"]
RULE_BOOSTED_RUNS_NEVER_FAIL = RULE_WORDS["boosted_runs_never_fail"]
RULE_REVIVED_WHEN_BALANCED = RULE_WORDS["revived_when_balanced"]
RULE_READY_BY_HIGH_MARK = RULE_WORDS["ready_by_high_mark"]
RULE_LRU_SKIPS_CAPPED = RULE_WORDS["lru_skips_capped"]
RULE_RECLAIM_FREES_BACKWARDS = RULE_WORDS["reclaim_frees_backwards"]
RULE_CLAIM_LOOKS_FIRST = RULE_WORDS["claim_looks_first"]
POLICY_HIGHATOMIC_GATE_ORDER = POLICY_WORDS["highatomic_gate_order"]
POLICY_HIGHATOMIC_RESERVE_PERCENT = POLICY_WORDS["highatomic_reserve_percent"]
POLICY_HIGHATOMIC_FROM_PCP = POLICY_WORDS["highatomic_from_pcp"]
POLICY_COSTLY_ORDER = POLICY_WORDS["costly_order"]
POLICY_PCP_BATCH_SCALE_MAX = POLICY_WORDS["pcp_batch_scale_max"]
POLICY_PCP_FREE_BATCHED = POLICY_WORDS["pcp_free_batched"]
POLICY_PCP_DECAY_BATCHED = POLICY_WORDS["pcp_decay_batched"]
POLICY_WATERMARK_BOOST_FACTOR = POLICY_WORDS["watermark_boost_factor"]
POLICY_REFILL_MODE_PERSISTS = POLICY_WORDS["refill_mode_persists"]
POLICY_ATOMIC_BOOST = POLICY_WORDS["atomic_boost"]
POLICY_DEFRAG_MODE = POLICY_WORDS["defrag_mode"]
POLICY_DEFRAG_PROMOTES_ORDER = POLICY_WORDS["defrag_promotes_order"]
POLICY_PROMOTED_FALL_BACK_AFRESH = POLICY_WORDS["promoted_fall_back_afresh"]
POLICY_EXTFRAG_THRESHOLD = POLICY_WORDS["extfrag_threshold"]
POLICY_COMPACTION_PROACTIVENESS = POLICY_WORDS["compaction_proactiveness"]
POLICY_VFS_CACHE_PRESSURE = POLICY_WORDS["vfs_cache_pressure"]
POLICY_LOCAL_THP_RECLAIMS = POLICY_WORDS["local_thp_reclaims"]
POLICY_HIGHATOMIC_FASTPATH = POLICY_WORDS["highatomic_fastpath"]
POLICY_HIGHATOMIC_SLOWPATH_ONLY = POLICY_WORDS["highatomic_slowpath_only"]
POLICY_SCORE_WITHOUT_HIGHATOMIC = POLICY_WORDS["score_without_highatomic"]
POLICY_INDEX_WITHOUT_HIGHATOMIC = POLICY_WORDS["index_without_highatomic"]
POLICY_KCOMPACTD_UNRESERVES = POLICY_WORDS["kcompactd_unreserves"]

CLAIM_BLOCK, CLAIM, STEAL = range(3)
FALLBACK_KINDS = 3
FALLBACK_SHAPE = (PCP_TYPES, PCP_TYPES, FALLBACK_KINDS, ORDERS, ORDERS)
FALLBACKS = _scalars.words(prod(FALLBACK_SHAPE))
"""Fallbacks by requested type, type taken from, kind, requested order, order of the buddy found."""
MISSING_PAGES = _scalars.word()
"""Pages in use in the recording that were not to be had here."""
RECLAIMS = 63
RECLAIM_MARGINS = _scalars.words(RECLAIMS) - 1
"""By number of a direct reclaim, from 1 on: how far its request was from its mark when it began, at
most 0."""
ZONES = _scalars.size
"""The first zone's words; regions of pagesets and nodes follow those of the zones."""

_zone = Region()
ZONE_MANAGED, ZONE_START, ZONE_END, ZONE_MIN, ZONE_LOW, ZONE_HIGH, ZONE_BOOST = _zone.each(7)
ZONE_FREE, ZONE_FREE_HIGHATOMIC, ZONE_RESERVED_HIGHATOMIC, ZONE_BELOW_HIGH = _zone.each(4)
ZONE_RECLAIM_ACTIVE, ZONE_BOOSTED, ZONE_REMEMBERED_BOOST, ZONE_NODE, ZONE_TYPE = _zone.each(5)
ZONE_AVOIDS_FRAGMENTATION, ZONE_FREE_CMA, ZONE_FREE_UNFOLDED, ZONE_FREE_CMA_UNFOLDED = _zone.each(4)
ZONE_THRESHOLD, ZONE_THRESHOLD_ASLEEP, ZONE_THRESHOLD_AWAKE, ZONE_DRIFT_MARK = _zone.each(4)
ZONE_LOWMEM_RESERVE = _zone.words(ZONE_TYPES_MAX)
ZONE_HAS_ISOLATED, ZONE_ATOMIC_BOOST_DUE = _zone.each(2)
ZONE_LISTS = _zone.words(ORDERS * MIGRATETYPES * LIST_WORDS)
ZONE_STRIDE = _zone.size

# zone->lock sites (S11.1), each with counters. A drain's site tells its cause.
SITE_REFILL, SITE_DRAIN_COMMIT, SITE_DRAIN_DECAY, SITE_DRAIN_ALL, SITE_BUDDY_ALLOC = range(5)
SITE_DIRECT_FREE, SITE_RESERVE, SITE_UNRESERVE, SITE_BOOST_RESET, SITES = range(5, 10)
_site = Region()
SITE_ACQUISITIONS, SITE_OBJECTS, SITE_PAGES = _site.each(3)
SITE_WORK = _site.words(WORK_UNITS)
SITE_WORDS = _site.size

# One CPU's per-CPU lists of one zone.
_pageset = Region()
PCP_COUNT, PCP_HIGH, PCP_HIGH_MIN, PCP_HIGH_MAX, PCP_BATCH, PCP_ALLOC_FACTOR = _pageset.each(6)
PCP_FREE_COUNT = PCP_FREE_FACTOR = _pageset.word()
PCP_PREV_FREE_HIGH_ORDER, PCP_EXPIRE, PCP_TOUCHED, PCP_FREE_DELTA = _pageset.each(4)
PCP_FREE_CMA_DELTA = _pageset.word()
# pcp->lock: the CPU that had it last, plus one; what this CPU did to such locks of the zone.
PCP_LOCK_HOLDER, PCP_LOCKS, PCP_LOCK_HANDOVERS, PCP_DRAIN_LOCKS = _pageset.each(4)
PCP_LISTS_MAX = 3 * ORDERS
# Entries from a list's head on among which a page may have its buddy on the list (S12.5).
PCP_UNMERGED = _pageset.words(PCP_LISTS_MAX)
PCP_LISTS = _pageset.words(PCP_LISTS_MAX * LIST_WORDS)
PCP_SITES = _pageset.words(SITES * SITE_WORDS)
PCP_STRIDE = _pageset.size

_node = Region()
NODE_KSWAPD_ACTIVE, NODE_KSWAPD_HIGHEST = _node.each(2)
# Wakes that an elastic replay has yet to act on.
NODE_WAKE_ASKED, NODE_WAKE_ORDER, NODE_WAKE_HIGHEST = _node.each(3)
NODE_STRIDE = _node.size

# One CPU: offline or not; the pageset whose lock it holds for a folio batch, and pages so far; the
# pageset whose lock it holds at the end of a refill or a drain, that interrupts have come into, or
# minus the one that its last free drained; from when to when it reclaims directly (S10.10).
_cpu = Region()
CPU_IS_DEAD, CPU_BATCH_SET, CPU_BATCHED, CPU_LOCKED_SET = _cpu.each(4)
CPU_RECLAIMS_FROM, CPU_RECLAIMS_UNTIL = _cpu.each(2)
CPU_STRIDE = _cpu.size

LOG = record(
    "int32 kind zone cpu ran_on order migratetype pfn fallback_order fallback_migratetype; "
    "int16 change_ownership takes_lock; int64 time_ns objects pages splits merges inserts scanned",
    align=True,
)
"""A row of the log. Of kinds below SITES, a hold of zone->lock at that site: `objects`, `pages` and
the work on them; `cpu` is that of the per-CPU list, `ran_on` the one that held the lock. Of
LOG_ZONE_LOCKED and LOG_PCPU_DRAIN, a page that moved under it: `pfn`, `order`, `migratetype`; of
LOG_EXTFRAG, a fallback, with its three fields as in T6; of LOG_LIST_FREE, a free to
`cpu`'s lists and whether it `takes_lock`. Fields of other kinds are 0."""
LOG_WORK = ("objects", "pages", "splits", "merges", "inserts", "scanned")
"""Fields that say what was done under a hold (S11.1)."""
LOG_ZONE_LOCKED = 16
LOG_PCPU_DRAIN = 17
LOG_EXTFRAG = 18
LOG_LIST_FREE = 19
LOG_MARGIN = 1 << 16

# Bits of the gfp word that the allocator's decisions read (S2.3); GFP_ATOMIC is 6.1's.
GFP_HIGH = 0x20
GFP_ATOMIC = 0x200
GFP_DIRECT_RECLAIM = 0x400
GFP_KSWAPD_RECLAIM = 0x800
GFP_WRITE = 0x1000
GFP_MEMALLOC = 0x20000
GFP_NOMEMALLOC = 0x80000
GFP_THISNODE = 0x200000
GFP_READ_BITS = GFP_HIGH | GFP_ATOMIC | GFP_DIRECT_RECLAIM | GFP_KSWAPD_RECLAIM | GFP_WRITE
GFP_READ_BITS |= GFP_MEMALLOC | GFP_NOMEMALLOC | GFP_THISNODE
RECLAIM_SHIFT = 24
REQUEST_RECLAIMED = 63 << RECLAIM_SHIFT
"""Not a gfp bit: the recording shows direct reclaim on behalf of this request."""

# Allocation flags (S2.5, S2.6).
WMARK_MIN, WMARK_LOW, WMARK_HIGH = 0, 1, 2
WMARK_MASK = 3
ALLOC_NO_WATERMARKS = 4
ALLOC_MIN_RESERVE = 8
ALLOC_NON_BLOCK = 16
ALLOC_HIGHATOMIC = 32
ALLOC_NOFRAGMENT = 64
ALLOC_KSWAPD = 128
ALLOC_CMA = 256
ALLOC_IGNORES_BOOST = 512

EVENT = record(
    "int64 time_ns; int32 object offset; uint32 bits; int16 cpu; int8 operation order "
    "migratetype zone",
    align=True,
)
"""A resolved event: `object` indexes the object table, `offset` is the freed piece's distance
from the object's first page, `zone` the highest zone type the request may use. SET_PCP_HIGH puts
`offset` into pcp->high of the event's CPU and zone number. KSWAPD_START and KSWAPD_STOP have the
node's index in `offset`, the start also the highest zone type in `zone`. GROW gives the free buddy
of page frame `offset` to the zone numbered `zone`. DRAIN_ALL empties all per-CPU lists from the
event's CPU, DRAIN_LOCAL that CPU's of the zone numbered `zone`. RECLAIM_BEGIN carries the request
that direct reclaim begins for, RECLAIM_IN_VAIN one that goes on to reclaim again. TICK is a vmstat
tick of the event's CPU. CPU_DIES takes the CPU numbered `offset` offline, CPU_RETURNS brings it
back.
ISOLATE_FREE takes a piece of what compaction isolates in the zone numbered `zone`; `offset` pages
of that scan are yet to be taken, the piece included. CAPTURE is an allocation that compaction
serves from the zone numbered `offset`. BEGIN_REQUEST carries the request that an interrupt comes
into: what it refills is refilled now, under the lock of the list. HOLD_DRAINED says that interrupts
come as the drain of the CPU's last event, a free, ends; its `bits` are INTERRUPTS_HOLDER. USE, of
an elastic replay, is a use of a file's pages, with the request that reads them again if they are
no longer there; `offset` is 1 where the recording shows that request. Imposed
events, of runs that are no predictions: ALLOC_IN_ZONE and HIDDEN_ALLOC_IN_ZONE are served by the
zone numbered `offset` only; SET_BOOST gives the zone numbered `zone` a watermark boost of `offset`
pages; DRAIN_ZONE empties what the CPU numbered `offset` holds of that zone; RELEASE_BLOCK releases
a reserved block for the request that it carries."""

FREED_IN_BATCH = 1
"""A free's `bits`: a folio batch freed it (T3)."""
INTERRUPTS_HOLDER = 2
"""Not a gfp bit: an interrupt's, while its CPU held the lock of a list: it was putting a folio
batch on lists, refilling one or draining them (S4.10)."""
IN_INTERRUPT, AFTER_FREE, BEFORE_REQUEST = 4, 8, 16
"""Not gfp bits, of rows alone: an interrupt's; it is the first of an interrupt that came just after
a free, or just before a request."""
KERNEL_THREAD = 0x100
"""Not a gfp bit: a request's, whose task has PF_KTHREAD (S8.2)."""
CONTEXT_BITS = IN_INTERRUPT | AFTER_FREE | BEFORE_REQUEST

CHAINED = -2
"""An object's place: a page frame, -1 for nowhere, or CHAINED minus the first page frame of a
chain, linked by `next`, of single pages that stand for an allocation of higher order."""

ALLOC, FREE, RECORDED_FAILURE, HIDDEN_ALLOC = 0, 1, 2, 3
KSWAPD_START, KSWAPD_STOP, SET_PCP_HIGH, GROW = 4, 5, 6, 7
DRAIN_ALL, RECLAIM_BEGIN, TICK = 8, 9, 10
CPU_DIES, CPU_RETURNS = 11, 12
ISOLATE_FREE, CAPTURE = 13, 14
ALLOC_IN_ZONE, HIDDEN_ALLOC_IN_ZONE, SET_BOOST, DRAIN_ZONE = 15, 16, 17, 18
BEGIN_REQUEST, HOLD_DRAINED = 19, 20
RELEASE_BLOCK = 21
USE = 22
DRAIN_LOCAL, RECLAIM_IN_VAIN = 23, 24

NEVER = 1 << 62
"""A time at which no periodic tick is due, ns."""


class Arrays(NamedTuple):
    """One machine value: the arrays that all kernels work on; kernels call it `m`.

    Attributes:
        pages: `PAGE` records, one per page frame.
        blocks: `BLOCK` records, one per pageblock.
        st: int64 state, laid out as above.
        log: `LOG` records; the caller empties it and sets LOG_ROWS to 0.
        folios: `pressure_layout.FOLIO` records, one per page frame; none in a literal replay.
        places: int32, where each object lives (see `CHAINED`); written by the event loops.
    """

    pages: np.ndarray
    blocks: np.ndarray
    st: np.ndarray
    log: np.ndarray
    folios: np.ndarray
    places: np.ndarray


_ownership = Region()
OPTION_WORDS = {each.name: _ownership.word() for each in fields(OwnershipOptions)}
"""Offset of each option's word, choices by their number; kernels read `fit_test` as
`OPTION_FIT_TEST`."""
OPTION_FIT_TEST = OPTION_WORDS["fit_test"]
OPTION_CLAIMS_UP_TO_ORDER = OPTION_WORDS["claims_up_to_order"]
OPTION_OWNING_TYPES = OPTION_WORDS["owning_types"]
OPTION_PRESSURE_CLAIMS = OPTION_WORDS["pressure_claims"]
OPTION_RECOVER_LIMIT = OPTION_WORDS["recover_limit"]
OPTION_RECORDED_LISTS = OPTION_WORDS["recorded_lists"]
OPTION_CHUNK_SEARCH = OPTION_WORDS["chunk_search"]
OPTION_CMA_FIRST = OPTION_WORDS["cma_first"]
OPTION_REMOTE_FREE = OPTION_WORDS["remote_free"]
OPTION_REMOTE_OVERFLOW = OPTION_WORDS["remote_overflow"]
OPTION_REMOTE_COUNTS = OPTION_WORDS["remote_counts"]
OPTION_PLAIN_FREES = OPTION_WORDS["plain_frees"]
OPTION_MERGES_AT = OPTION_WORDS["merges_at"]
OPTION_DRAIN_FROM = OPTION_WORDS["drain_from"]
OPTION_FRAGMENTS = OPTION_WORDS["fragments"]
OPTION_RECORDED_CAP = OPTION_WORDS["recorded_cap"]
OPTION_OWNERSHIP_ENDS = OPTION_WORDS["ownership_ends"]
OPTION_TYPE_CHANGE = OPTION_WORDS["type_change"]
OPTION_FULL_DRAIN = OPTION_WORDS["full_drain"]
OPTION_OFFLINE_OWNER = OPTION_WORDS["offline_owner"]
OPTION_ROUTES_FREES = OPTION_WORDS["routes_frees"]
OPTION_CLAIMS_BLOCKS = OPTION_WORDS["claims_blocks"]
OPTION_RECOVERS = OPTION_WORDS["recovers"]
FITS_HIGH, FITS_HIGH_MAX, FITS_ALWAYS = 0, 1, 2
OWNS_MOVABLE_ONLY = 1
LISTS_PER_TYPE = 1
CHUNKS_SMALLEST = 1
REMOTE_FREE_IS_LOCKLESS = 2
OWNER_DRAINS = 1
PLAIN_STAYS_LOCAL = 1
MERGES_AT_FREE = 1
DRAINS_FREED_LIST = 1
FRAGMENTS_AS_USUAL = 1
ENDS_WHOLE, ENDS_DRAINED, ENDS_AGED = 0, 1, 2
TYPE_CHANGE_ENDS = 1
FULL_DRAIN_ENDS = 1
OFFLINE_KEEPS = 1

# Scalars: where the regions begin.
OWNED_SETS, OWNERS, OWNED_BLOCKS = _ownership.each(3)
OWNERSHIP_SCALARS = _ownership.size
"""Words before the first region."""

# One CPU's part in a zone: its list of recorded blocks (head, tail, entries), then counters of
# what it did there.
PHASE_RECOVER, PHASE_CLAIM, PHASE_CHUNK, PHASE_CLASSIC = range(4)
PHASES = 4
PHASE_REFILLS, PHASE_OBJECTS, PHASE_PAGES, PHASE_STRIDE = range(4)
_set = Region()
SET_RECORDED = _set.words(LIST_WORDS)
SET_PHASES = _set.words(PHASES * PHASE_STRIDE)
BLOCKS_CLAIMED, BLOCKS_RECORDED, BLOCKS_RECOVERED, OWNERSHIPS_ENDED, REMOTE_FREES = _set.each(5)
LIST_SPLITS, LIST_MERGES, MERGE_ENTRIES, RECORDED_ENTRIES = _set.each(4)
OWNED_SET_STRIDE = _set.size

# Owners: one word per pageblock, its owner's CPU number plus one or 0. Every free reads one, so
# they lie close together. Then what concerns few blocks: whether one is recorded, and its
# neighbours on the owner's list of recorded blocks.
_block = Region()
BLOCK_IS_RECORDED, BLOCK_NEXT, BLOCK_PREV = _block.each(3)
OWNED_BLOCK_WORDS = _block.size

# Last, only where frees on other CPUs than the owner take no lock: one CPU's lockless list of a
# zone. Its newest page, which the others follow by `next`, and how many pages are on it.
LOCKLESS_HEAD, LOCKLESS_PAGES, LOCKLESS_WORDS = range(3)


@inner
def zone_at(zone: int) -> int:
    """Return the offset of a zone's region."""
    return ZONES + zone * ZONE_STRIDE


@inner
def free_list_at(zone: int, order: int, migratetype: int) -> int:
    """Return the offset of a free list."""
    return (
        ZONES + zone * ZONE_STRIDE + ZONE_LISTS + (order * MIGRATETYPES + migratetype) * LIST_WORDS
    )


@inner
def pcp_at(m: Arrays, zone: int, cpu: int) -> int:
    """Return the offset of a CPU's pageset of a zone."""
    return m.st[PCP_BASE] + (zone * m.st[NR_CPUS] + cpu) * PCP_STRIDE


@inner
def node_at(m: Arrays, node: int) -> int:
    """Return the offset of a node's region, by node index."""
    return m.st[NODE_BASE] + node * NODE_STRIDE


@inner
def cpu_at(m: Arrays, cpu: int) -> int:
    """Return the offset of what concerns a CPU as a whole."""
    return m.st[CPU_BASE] + cpu * CPU_STRIDE


@inner
def owned_set_at(m: Arrays, zone: int, cpu: int) -> int:
    """Return the offset of a CPU's part in the ownership of a zone's blocks."""
    return m.st[m.st[OWNERSHIP] + OWNED_SETS] + (zone * m.st[NR_CPUS] + cpu) * OWNED_SET_STRIDE


@inner
def owner_at(m: Arrays, block: int) -> int:
    """Return the offset of who owns a pageblock."""
    return m.st[m.st[OWNERSHIP] + OWNERS] + block


@inner
def owned_block_at(m: Arrays, block: int) -> int:
    """Return the offset of what records a pageblock that is owned."""
    return m.st[m.st[OWNERSHIP] + OWNED_BLOCKS] + block * OWNED_BLOCK_WORDS


@inner
def lockless_at(m: Arrays, zone: int, cpu: int) -> int:
    """Return the offset of a CPU's lockless list of a zone, where there are any."""
    first = owned_block_at(m, m.blocks.shape[0])
    return first + (zone * m.st[NR_CPUS] + cpu) * LOCKLESS_WORDS


@inner
def node_zonelist(m: Arrays, cpu: int, highest_type: int, bits: int) -> int:
    """node_zonelist(): return the offset of the zonelist of a request by a CPU (S1.4)."""
    lst = m.st[m.st[CPU_NODE_BASE] + cpu]
    if bits & GFP_THISNODE:
        lst += m.st[NR_NODES]
    lst = lst * m.st[ZONE_TYPES] + highest_type
    return m.st[ZONELIST_BASE] + lst * (m.st[NR_ZONES] + 1)
