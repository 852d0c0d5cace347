"""Where pageblock ownership keeps its words, at the end of `st` (S12).

`st[layout.OWNERSHIP]` is the offset of the first of them, 0 where no block is ever owned. There
come the options, scalars, then a region per (zone, CPU) and one per pageblock.
"""

from __future__ import annotations

# Options, each named after its field of OwnershipOptions; choices by their number there.
(
    OPTION_FIT_TEST,
    OPTION_CLAIMS_UP_TO_ORDER,
    OPTION_OWNING_TYPES,
    OPTION_PRESSURE_CLAIMS,
    OPTION_RECOVER_LIMIT,
    OPTION_RECORDED_LISTS,
    OPTION_CHUNK_SEARCH,
    OPTION_CMA_FIRST,
    OPTION_REMOTE_BUSY,
    OPTION_REMOTE_BUSY_PER_1000,
    OPTION_REMOTE_OVERFLOW,
    OPTION_REMOTE_COUNTS,
    OPTION_PLAIN_FREES,
    OPTION_MERGES_AT,
    OPTION_DRAIN_FROM,
    OPTION_FRAGMENTS,
    OPTION_RECORDED_CAP,
    OPTION_OWNERSHIP_ENDS,
    OPTION_TYPE_CHANGE,
    OPTION_FULL_DRAIN,
    OPTION_OFFLINE_OWNER,
    OPTION_ROUTES_FREES,
    OPTION_CLAIMS_BLOCKS,
    OPTION_RECOVERS,
) = range(24)
OPTIONS = 24

FITS_HIGH, FITS_HIGH_MAX, FITS_ALWAYS = 0, 1, 2
OWNS_MOVABLE_ONLY = 1
LISTS_PER_TYPE = 1
CHUNKS_SMALLEST = 1
BUSY_TO_ZONE, BUSY_TO_LOCAL, BUSY_SPINS = 0, 1, 2
OWNER_DRAINS = 1
PLAIN_STAYS_LOCAL = 1
MERGES_AT_FREE = 1
DRAINS_FREED_LIST = 1
FRAGMENTS_AS_USUAL = 1
ENDS_WHOLE, ENDS_DRAINED, ENDS_AGED = 0, 1, 2
TYPE_CHANGE_ENDS = 1
FULL_DRAIN_ENDS = 1
OFFLINE_KEEPS = 1

# Scalars: where the regions begin, remote frees so far.
SETS = 24
BLOCKS = 25
REMOTE_DRAWS = 28
SCALARS = 32
"""Words before the first region."""

# One CPU's part in a zone: its list of recorded blocks (head, tail, entries), then counters of
# what it did there.
SET_RECORDED = 0
SET_PHASES = 3
RECOVER, CLAIM, CHUNK, CLASSIC = 0, 1, 2, 3
PHASES = 4
PHASE_REFILLS, PHASE_OBJECTS, PHASE_PAGES = 0, 1, 2
PHASE_WORDS = 3
(
    BLOCKS_CLAIMED,
    BLOCKS_RECORDED,
    BLOCKS_RECOVERED,
    OWNERSHIPS_ENDED,
    REMOTE_FREES,
    REMOTE_BUSY,
    LIST_SPLITS,
    LIST_MERGES,
    MERGE_ENTRIES,
    RECORDED_ENTRIES,
) = range(15, 25)
SET_COUNTERS = SET_PHASES
SET_STRIDE = 25

# One pageblock: its owner's CPU number plus one or 0, whether it is recorded, and its neighbours on
# the owner's list of recorded blocks.
BLOCK_OWNER = 0
BLOCK_IS_RECORDED = 1
BLOCK_NEXT = 2
BLOCK_PREV = 3
BLOCK_WORDS = 4
