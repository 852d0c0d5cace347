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

from typing import NamedTuple

import numpy as np

PAGE = np.dtype(
    [
        ("next", np.int32),
        ("prev", np.int32),
        ("order", np.int8),
        ("where", np.int8),
        ("tag", np.int8),
        ("flags", np.int8),
    ]
)
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

HEAD, TAIL, ENTRIES, LIST_WORDS = 0, 1, 2, 3

# Scalars of the machine, the rules and the policy.
NR_ZONES = 0
NR_CPUS = 1
PAGEBLOCK_ORDER = 2
MAX_ORDER = 3
PCP_BASE = 4
ZONE_TYPES = 5
MOVABLE_TYPE = 6
ISOLATE = 7
COSTLY_ORDER = 8
THP_LISTS = 9
BATCH_SCALE_MAX = 10
FREE_HIGH_BATCH = 11
FLUSH_ADDS_HALF_HIGH_MIN = 12
FREE_BATCHED = 13
DECAY_BATCHED = 14
HIGHATOMIC_FROM_PCP = 15
HIGHATOMIC_REFILLS_PCP = 16
GATE_ORDER = 17
RESERVE_PERCENT = 18
BOOST_FACTOR = 19
END_PFN = 20
CMA = 21
NR_NODES = 22
NODE_BASE = 23
ZONELIST_BASE = 24
CPU_NODE_BASE = 25
SKIPS_BUSY_NODES = 26
COUNTS_BY_CPU = 27
# Work done under zone->lock since the last hold was counted (S11.1).
WORK = 28
WORK_SPLITS, WORK_MERGES, WORK_INSERTS, WORK_SCANNED = 28, 29, 30, 31
WORK_UNITS = 4
# Scalars that change.
NOW = 32
EVENT_CPU = 33
NEXT_TICK = 34
TICK_PERIOD = 35
LOG_ROWS = 36
LOG_DROPPED = 37
LOG_PAGES = 38
KSWAPD_RUNS = 39
TICK_CPU = 43
TICK_BASE = 44
TICK_STAGGER = 45
KSWAPD_RECORDED = 46
DIRECT_RECLAIM_RECORDED = 47
# What diverged, and what was asked.
COUNT_ALLOC = 48
COUNT_FREE = 49
COUNT_FORCED = 50
COUNT_FAILED = 51
COUNT_ORPHAN_FREE = 52
COUNT_RECORDED_FAILURE = 53
COUNT_SLOW_PATH = 54
COUNT_UNRESERVE_CALLS = 55
COUNT_KSWAPD_WAKES = 56
COUNT_HIDDEN = 57
COUNT_IN_BASE_PAGES = 58
# Fallbacks by requested type, type taken from, kind, requested order, order of the buddy found.
FALLBACKS = 64
CLAIM_BLOCK, CLAIM, STEAL = 0, 1, 2
FALLBACK_KINDS = 3
FALLBACK_SHAPE = (PCP_TYPES, PCP_TYPES, FALLBACK_KINDS, ORDERS, ORDERS)
# More of the rules.
PCP_AUTO_TUNED = 6144
PCP_DECAYS = 6145
FULL_DRAIN_CHUNK = 6146
FALLBACK_FROM_LARGEST = 6147
LISTS_MATCH_BLOCKS = 6148
FREE_SPLIT_BY_BLOCK = 6149
HIGHATOMIC_NEEDS_HIGH = 6150
RESERVE_CAP_ROUNDED = 6151
WATERMARK_SUBTRACTS = 6152
BELOW_HIGH_TESTED = 6153
BOOST_RETRY_MASK = 6154
BOOST_RETRY_BITS = 6155
BOOSTED_WAKE_NEEDS_BIT = 6156
REFILL_COUNTED_AT_END = 6157
HUGE_ORDER = 6158
# Where the words of pageblock ownership begin, 0 if there are none (see `ownership_layout`), and
# those of CPUs.
OWNERSHIP = 6159
CPU_BASE = 6160
# Pressure: where an elastic replay's words begin (see `pressure_layout`), 0 in a literal one; what
# defrag_mode changes in decisions that both share.
PRESSURE_BASE = 6163
DEFRAG_MODE = 6164
BLOCK_WATERMARKS = 6165
# What one hold of a full drain covers: everything, batch << S pages, or a batch (S4.9).
DRAINS_ALL, DRAINS_SCALED_BATCH, DRAINS_BATCH = 0, 1, 2
# By number of a direct reclaim: how far its request was from its mark when it began, at most 0.
RECLAIM_MARGINS = 6176
ZONES = 6240

# One zone.
ZONE_MANAGED = 0
ZONE_START = 1
ZONE_END = 2
ZONE_MIN = 3
ZONE_LOW = 4
ZONE_HIGH = 5
ZONE_BOOST = 6
ZONE_FREE = 7
ZONE_FREE_HIGHATOMIC = 8
ZONE_RESERVED_HIGHATOMIC = 9
ZONE_BELOW_HIGH = 10
ZONE_RECLAIM_ACTIVE = 11
ZONE_BOOSTED = 12
ZONE_REMEMBERED_BOOST = 13
ZONE_NODE = 14
ZONE_TYPE = 15
ZONE_AVOIDS_FRAGMENTATION = 16
ZONE_FREE_CMA = 17
ZONE_FREE_UNFOLDED = 18
ZONE_FREE_CMA_UNFOLDED = 19
ZONE_THRESHOLD = 20
ZONE_THRESHOLD_ASLEEP = 21
ZONE_THRESHOLD_AWAKE = 22
ZONE_DRIFT_MARK = 23
ZONE_LOWMEM_RESERVE = 24
ZONE_HAS_ISOLATED = 32
ZONE_LISTS = 40
ZONE_STRIDE = ZONE_LISTS + ORDERS * MIGRATETYPES * LIST_WORDS

# One CPU's per-CPU lists of one zone.
PCP_COUNT = 0
PCP_HIGH = 1
PCP_HIGH_MIN = 2
PCP_HIGH_MAX = 3
PCP_BATCH = 4
PCP_ALLOC_FACTOR = 5
PCP_FREE_COUNT = 6
PCP_FREE_FACTOR = PCP_FREE_COUNT
PCP_PREV_FREE_HIGH_ORDER = 7
PCP_EXPIRE = 8
PCP_TOUCHED = 9
PCP_FREE_DELTA = 10
PCP_FREE_CMA_DELTA = 11
# pcp->lock: the CPU that had it last, plus one; what this CPU did to such locks of the zone.
PCP_LOCK_HOLDER = 12
PCP_LOCKS = 13
PCP_LOCK_HANDOVERS = 14
PCP_DRAIN_LOCKS = 15
PCP_LISTS = 16
PCP_LISTS_MAX = 3 * ORDERS
PCP_SITES = PCP_LISTS + PCP_LISTS_MAX * LIST_WORDS

# zone->lock sites (S11.1), each with counters. A drain's site tells its cause.
SITE_REFILL = 0
SITE_DRAIN_COMMIT = 1
SITE_DRAIN_DECAY = 2
SITE_DRAIN_ALL = 3
SITE_BUDDY_ALLOC = 4
SITE_DIRECT_FREE = 5
SITE_RESERVE = 6
SITE_UNRESERVE = 7
SITE_BOOST_RESET = 8
SITES = 9
SITE_ACQUISITIONS, SITE_OBJECTS, SITE_PAGES, SITE_WORK = 0, 1, 2, 3
SITE_WORDS = SITE_WORK + WORK_UNITS
PCP_STRIDE = PCP_SITES + SITES * SITE_WORDS

# One node.
NODE_KSWAPD_ACTIVE = 0
NODE_KSWAPD_HIGHEST = 1
# Wakes that an elastic replay has yet to act on.
NODE_WAKE_ASKED = 2
NODE_WAKE_ORDER = 3
NODE_WAKE_HIGHEST = 4
NODE_STRIDE = 5

# One CPU: offline or not; the pageset whose lock it holds for a folio batch, and pages so far.
CPU_IS_DEAD = 0
CPU_BATCH_SET = 1
CPU_BATCHED = 2
CPU_STRIDE = 3

# A log row: kind, time, zone, cpu, then by kind. Kinds below SITES are transactions
# (order, migratetype, objects, pages, splits, merges, inserts, scanned, CPU that ran it); the
# others are pages (pfn, order, ...). A transaction's cpu is that of the per-CPU list.
LOG_WORK = 8
LOG_RAN_ON = LOG_WORK + WORK_UNITS
LOG_COLUMNS = LOG_RAN_ON + 1
LOG_ZONE_LOCKED = 16
LOG_PCPU_DRAIN = 17
LOG_EXTFRAG = 18
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
GFP_READ_BITS = (
    GFP_HIGH
    | GFP_ATOMIC
    | GFP_DIRECT_RECLAIM
    | GFP_KSWAPD_RECLAIM
    | GFP_WRITE
    | GFP_MEMALLOC
    | GFP_NOMEMALLOC
    | GFP_THISNODE
)
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

EVENT = np.dtype(
    [
        ("time_ns", np.int64),
        ("object", np.int32),
        ("offset", np.int32),
        ("bits", np.uint32),
        ("cpu", np.int16),
        ("operation", np.int8),
        ("order", np.int8),
        ("migratetype", np.int8),
        ("zone", np.int8),
    ],
    align=True,
)
"""A resolved event: `object` indexes the object table, `offset` is the freed piece's distance
from the object's first page, `zone` the highest zone type the request may use. SET_PCP_HIGH puts
`offset` into pcp->high of the event's CPU and zone number. KSWAPD_START and KSWAPD_STOP have the
node's index in `offset`, the start also the highest zone type in `zone`. GROW gives the free buddy
of page frame `offset` to the zone numbered `zone`. DRAIN_ALL empties all per-CPU lists from the
event's CPU. RECLAIM_BEGIN carries the request that direct reclaim begins for. TICK is a vmstat tick
of the event's CPU. CPU_DIES takes the CPU numbered `offset` offline, CPU_RETURNS brings it back."""

FREED_IN_BATCH = 1
"""A free's `bits`: a folio batch freed it (T3)."""

CHAINED = -2
"""An object's place: a page frame, -1 for nowhere, or CHAINED minus the first page frame of a
chain, linked by `next`, of single pages that stand for an allocation of higher order."""

ALLOC, FREE, RECORDED_FAILURE, HIDDEN_ALLOC = 0, 1, 2, 3
KSWAPD_START, KSWAPD_STOP, SET_PCP_HIGH, GROW = 4, 5, 6, 7
DRAIN_ALL, RECLAIM_BEGIN, TICK = 8, 9, 10
CPU_DIES, CPU_RETURNS = 11, 12

NEVER = 1 << 62
"""A time at which no periodic tick is due, ns."""


class MachineArrays(NamedTuple):
    """One machine value: the arrays that all kernels work on; kernels call it `m`.

    Attributes:
        pages: `PAGE` records, one per page frame.
        blocks: `BLOCK` records, one per pageblock.
        st: int64 state, laid out as above.
        log: int64, shape (rows, LOG_COLUMNS); the caller empties it and sets LOG_ROWS to 0.
        folios: `pressure_layout.FOLIO` records, one per page frame; none in a literal replay.
        places: int32, where each object lives (see `CHAINED`); written by the event loops.
    """

    pages: np.ndarray
    blocks: np.ndarray
    st: np.ndarray
    log: np.ndarray
    folios: np.ndarray
    places: np.ndarray
