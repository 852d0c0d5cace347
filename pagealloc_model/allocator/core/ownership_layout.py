"""Where pageblock ownership keeps its words, at the end of `st` (S12).

`st[layout.OWNERSHIP]` is the offset of the first of them, 0 where no block is ever owned. There
come the options, scalars, then a region per (zone, CPU), all owners, and a region per pageblock.
"""

from __future__ import annotations

from dataclasses import fields

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.region import Region
from pagealloc_model.policy.ownership_options import OwnershipOptions

_scalars = Region()
OPTION_WORDS = {each.name: _scalars.word() for each in fields(OwnershipOptions)}
"""Offset of each option's word, choices by their number; kernels read `fit_test` as
`OPTION_FIT_TEST`."""
globals().update({f"OPTION_{name.upper()}": offset for name, offset in OPTION_WORDS.items()})
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
SETS = _scalars.word()
OWNERS = _scalars.word()
BLOCKS = _scalars.word()
REMOTE_DRAWS = _scalars.word()
SCALARS = _scalars.size
"""Words before the first region."""

# One CPU's part in a zone: its list of recorded blocks (head, tail, entries), then counters of
# what it did there.
RECOVER, CLAIM, CHUNK, CLASSIC = range(4)
PHASES = 4
PHASE_REFILLS, PHASE_OBJECTS, PHASE_PAGES, PHASE_WORDS = range(4)
_set = Region()
SET_RECORDED = _set.words(at.LIST_WORDS)
SET_PHASES = _set.words(PHASES * PHASE_WORDS)
BLOCKS_CLAIMED = _set.word()
BLOCKS_RECORDED = _set.word()
BLOCKS_RECOVERED = _set.word()
OWNERSHIPS_ENDED = _set.word()
REMOTE_FREES = _set.word()
REMOTE_BUSY = _set.word()
LIST_SPLITS = _set.word()
LIST_MERGES = _set.word()
MERGE_ENTRIES = _set.word()
RECORDED_ENTRIES = _set.word()
SET_STRIDE = _set.size

# Owners: one word per pageblock, its owner's CPU number plus one or 0. Every free reads one, so
# they lie close together. Then what concerns few blocks: whether one is recorded, and its
# neighbours on the owner's list of recorded blocks.
_block = Region()
BLOCK_IS_RECORDED = _block.word()
BLOCK_NEXT = _block.word()
BLOCK_PREV = _block.word()
BLOCK_WORDS = _block.size
