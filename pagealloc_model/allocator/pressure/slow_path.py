"""The slow path of a request in an elastic replay, stage by stage (S8).

A stage does what it can without the per-CPU lists and says what comes next; the event loop takes
pages, frees those that wait and drains, so that these exist once in the compiled loop.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_flags import fast_path_flags, slow_path_flags
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import zonelist_at
from pagealloc_model.allocator.core.watermark import above_mark, mark_pages, wake_kswapds
from pagealloc_model.allocator.pressure.direct_compaction import (
    begin_direct_compaction,
    compaction_step,
    compacts_again,
    count_outcome,
    was_tried,
)
from pagealloc_model.allocator.pressure.direct_reclaim import begin_direct_reclaim, reclaim_pass
from pagealloc_model.allocator.pressure.lru_scan import reclaimable_pages
from pagealloc_model.allocator.pressure.pressure_offsets import compactor_at, value_of, word_at
from pagealloc_model.base.jit import inner

IDLE, DONE = 0, 1
FAST, FIRST, AFTER_INITIAL, RETRY, RESERVES = 2, 3, 4, 5, 6
AFTER_RECLAIM, AFTER_DRAIN, AFTER_COMPACTION, FORCED = 7, 8, 9, 10
"""Stages that begin with an attempt to take a page."""
INITIAL_COMPACTION, RECLAIM, COMPACTION, AFTER_UNRESERVE, DECIDE = 11, 12, 13, 14, 15
"""Stages that work, or decide, between attempts."""


@inner
def takes_a_page(stage: int) -> bool:
    """Whether a stage begins with an attempt to take a page."""
    return FAST <= stage <= FORCED


@inner
def begin_request(
    st: np.ndarray, cpu: int, order: int, migratetype: int, highest_type: int, bits: int
) -> None:
    """Set a request up for its first attempt (S2.5)."""
    zonelist = zonelist_at(st, cpu, highest_type, bits)
    flags = fast_path_flags(st, zonelist, migratetype, bits)
    if value_of(st, pr.HIGHATOMIC_FASTPATH):
        flags |= slow_path_flags(st, bits, order, flags) & at.ALLOC_HIGHATOMIC
    base = st[at.PRESSURE_BASE]
    st[base + pr.STAGE] = FAST
    st[base + pr.REQUEST_PFN] = -1
    st[base + pr.REQUEST_CPU] = cpu
    st[base + pr.REQUEST_ORDER] = order
    st[base + pr.REQUEST_TYPE] = migratetype
    st[base + pr.REQUEST_HIGHEST] = highest_type
    st[base + pr.REQUEST_BITS] = bits
    st[base + pr.REQUEST_FLAGS] = flags
    st[base + pr.REQUEST_ZONELIST] = zonelist


@inner
def may_compact(st: np.ndarray) -> bool:
    """Whether a request allows compaction (S8.1)."""
    bits = value_of(st, pr.REQUEST_BITS)
    if value_of(st, pr.COMPACTION_NEEDS_RECLAIM) and not bits & at.GFP_DIRECT_RECLAIM:
        return False
    return bits & pr.GFP_IO != 0


@inner
def compacts_first(st: np.ndarray) -> bool:
    """Whether a request compacts before it reclaims (S8.1)."""
    order = value_of(st, pr.REQUEST_ORDER)
    is_wanted = order > st[at.COSTLY_ORDER] or (
        order > 0 and value_of(st, pr.REQUEST_TYPE) != at.MOVABLE
    )
    return is_wanted and may_compact(st)


@inner
def wake(st: np.ndarray) -> None:
    """Wake kswapd of the request's nodes, if it may (S8.1, S8.6)."""
    if value_of(st, pr.REQUEST_FLAGS) & at.ALLOC_KSWAPD:
        order = value_of(st, pr.REQUEST_ORDER)
        if value_of(st, pr.KSWAPD_ASSISTS):
            order = max(order, st[at.PAGEBLOCK_ORDER])
        highest = value_of(st, pr.REQUEST_HIGHEST)
        wake_kswapds(st, value_of(st, pr.REQUEST_ZONELIST), order, highest)


@inner
def begin_slow_path(st: np.ndarray) -> int:
    """Flags and priorities of the slow path; its first stage (S2.6, S8.1)."""
    base = st[at.PRESSURE_BASE]
    st[at.COUNT_SLOW_PATH] += 1
    bits = st[base + pr.REQUEST_BITS]
    flags = slow_path_flags(st, bits, st[base + pr.REQUEST_ORDER], st[base + pr.REQUEST_FLAGS])
    st[base + pr.REQUEST_FLAGS] = flags
    st[base + pr.NO_PROGRESS] = 0
    st[base + pr.COMPACT_RETRIES] = 0
    st[base + pr.COMPACT_RESULT] = pr.SKIPPED
    st[base + pr.COMPACT_PRIORITY] = pr.SYNC_LIGHT
    st[base + pr.COMPACT_FIRST] = 0
    wake(st)
    if not value_of(st, pr.INITIAL_COMPACTION_IN_LOOP):
        return FIRST
    if compacts_first(st):
        st[base + pr.COMPACT_FIRST] = 1
        st[base + pr.COMPACT_PRIORITY] = pr.ASYNC
    return RETRY


@inner
def may_use_reserves(bits: int) -> bool:
    """Whether a request may ignore watermarks, as reclaim itself does (S2.6)."""
    return bits & at.GFP_MEMALLOC != 0 and not bits & at.GFP_NOMEMALLOC


@inner
def use_reserves(st: np.ndarray) -> int:
    """Let the next attempt ignore watermarks (S2.6)."""
    kept = value_of(st, pr.REQUEST_FLAGS) & (at.ALLOC_KSWAPD | at.ALLOC_CMA)
    st[word_at(st, pr.REQUEST_FLAGS)] = at.ALLOC_NO_WATERMARKS | kept
    return RESERVES


@inner
def after_first(st: np.ndarray) -> int:
    """What follows the slow path's first attempt where compaction comes before the loop (S8.1)."""
    bits = value_of(st, pr.REQUEST_BITS)
    if may_use_reserves(bits):
        wake(st)
        return use_reserves(st)
    if bits & at.GFP_DIRECT_RECLAIM and compacts_first(st):
        st[word_at(st, pr.COMPACT_PRIORITY)] = pr.ASYNC
        begin_direct_compaction(st)
        return INITIAL_COMPACTION
    return again(st)


@inner
def again(st: np.ndarray) -> int:
    """Begin another turn of the slow path's loop (S8.1)."""
    wake(st)
    return RETRY


@inner
def after_initial_compaction(st: np.ndarray) -> int:
    """Costly requests that must not retry may end here (S8.1)."""
    st[word_at(st, pr.COMPACT_PRIORITY)] = pr.SYNC_LIGHT
    bits = value_of(st, pr.REQUEST_BITS)
    if value_of(st, pr.REQUEST_ORDER) > st[at.COSTLY_ORDER] and bits & pr.GFP_NORETRY:
        result = value_of(st, pr.COMPACT_RESULT)
        if result == pr.SKIPPED or result == pr.DEFERRED or bits & at.GFP_THISNODE:
            return DONE
        st[word_at(st, pr.COMPACT_PRIORITY)] = pr.ASYNC
    return again(st)


@inner
def after_retry(st: np.ndarray) -> int:
    """What follows an attempt with nothing found: reserves, or work, or the end (S8.1)."""
    bits = value_of(st, pr.REQUEST_BITS)
    flags = value_of(st, pr.REQUEST_FLAGS)
    if may_use_reserves(bits) and not flags & at.ALLOC_NO_WATERMARKS:
        return use_reserves(st)
    if not bits & at.GFP_DIRECT_RECLAIM:
        drops = value_of(st, pr.DEFRAG_FIXES) and flags & at.ALLOC_KSWAPD
        if drops and flags & at.ALLOC_NOFRAGMENT:
            st[word_at(st, pr.REQUEST_FLAGS)] = flags & ~at.ALLOC_NOFRAGMENT
            return again(st)
        return DONE
    if flags & at.ALLOC_NO_WATERMARKS:
        return DONE
    if value_of(st, pr.COMPACT_FIRST):
        begin_direct_compaction(st)
        return COMPACTION
    begin_direct_reclaim(st)
    return RECLAIM


@inner
def after_reclaim(st: np.ndarray) -> int:
    """Reclaim found something, but no page was to be had: once more after a drain (S8.2)."""
    st[word_at(st, pr.UNRESERVES)] = (1 << st[at.PAGEBLOCK_ORDER]) + 1
    st[word_at(st, pr.DRAINED_ZONE)] = pr.DRAINS_ALL_ZONES
    return AFTER_DRAIN


@inner
def compacts_or_decides(st: np.ndarray) -> int:
    """After reclaim comes compaction, for orders above 0 (S8.1)."""
    if value_of(st, pr.REQUEST_ORDER) > 0 and may_compact(st):
        begin_direct_compaction(st)
        return COMPACTION
    return DECIDE


@inner
def after_compaction(st: np.ndarray) -> int:
    """What follows a walk of compaction that gave no page (S8.1)."""
    bits = value_of(st, pr.REQUEST_BITS)
    if not value_of(st, pr.COMPACT_FIRST):
        return DECIDE
    if bits & pr.GFP_NORETRY and bits & at.GFP_THISNODE:
        return DONE
    if not bits & pr.GFP_NORETRY:
        st[word_at(st, pr.COMPACT_PRIORITY)] = pr.SYNC_LIGHT
    st[word_at(st, pr.COMPACT_FIRST)] = 0
    return again(st)


@inner
def reclaim_could_do(st: np.ndarray) -> bool:
    """Whether some zone would pass with all its reclaimable pages freed (S8.3)."""
    order = value_of(st, pr.REQUEST_ORDER)
    highest = value_of(st, pr.REQUEST_HIGHEST)
    flags = value_of(st, pr.REQUEST_FLAGS)
    position = value_of(st, pr.REQUEST_ZONELIST)
    while st[position] >= 0:
        zone = st[position]
        position += 1
        free = seen_free(st, zone) + reclaimable_pages(st, zone)
        mark = mark_pages(st, zone, at.WMARK_MIN)
        if above_mark(st, zone, order, mark, highest, flags, free):
            return True
    return False


@inner
def decide(st: np.ndarray) -> int:
    """Whether a request goes on trying (S8.1, S8.3)."""
    bits = value_of(st, pr.REQUEST_BITS)
    is_costly = value_of(st, pr.REQUEST_ORDER) > st[at.COSTLY_ORDER]
    if bits & pr.GFP_NORETRY:
        return give_up(st)
    if is_costly and not (bits & pr.GFP_RETRY_MAYFAIL and may_compact(st)):
        return give_up(st)
    if value_of(st, pr.RECLAIMED) > 0 and not is_costly:
        st[word_at(st, pr.NO_PROGRESS)] = 0
    else:
        st[word_at(st, pr.NO_PROGRESS)] += 1
    if value_of(st, pr.NO_PROGRESS) <= pr.RETRIES_MAX and reclaim_could_do(st):
        return again(st)
    st[word_at(st, pr.UNRESERVES)] = 1
    return AFTER_UNRESERVE


@inner
def after_unreserve(st: np.ndarray) -> int:
    """The last resorts: a block released, compaction harder, pollution, the OOM killer (S8.1)."""
    if value_of(st, pr.UNRESERVED):
        return again(st)
    if value_of(st, pr.RECLAIMED) > 0 and may_compact(st) and compacts_again(st):
        return again(st)
    flags = value_of(st, pr.REQUEST_FLAGS)
    if st[at.DEFRAG_MODE] and flags & at.ALLOC_NOFRAGMENT:
        st[word_at(st, pr.REQUEST_FLAGS)] = flags & ~at.ALLOC_NOFRAGMENT
        return again(st)
    if value_of(st, pr.REQUEST_ORDER) <= st[at.COSTLY_ORDER]:
        bits = value_of(st, pr.REQUEST_BITS)
        if not bits & (pr.GFP_RETRY_MAYFAIL | at.GFP_THISNODE):
            st[word_at(st, pr.OOM_KILL)] += 1
    return give_up(st)


@inner
def give_up(st: np.ndarray) -> int:
    """End without a page, unless the request must not fail: then it takes what there is."""
    flags = value_of(st, pr.REQUEST_FLAGS)
    if value_of(st, pr.REQUEST_BITS) & pr.GFP_NOFAIL and not flags & at.ALLOC_NO_WATERMARKS:
        st[word_at(st, pr.REQUEST_FLAGS)] = flags | at.ALLOC_NO_WATERMARKS
        st[word_at(st, pr.FORCED_BY_NOFAIL)] += 1
        return FORCED
    return DONE


@inner
def after_attempt(st: np.ndarray, blocks: np.ndarray, stage: int) -> int:
    """The stage that follows an attempt to take a page."""
    pfn = value_of(st, pr.REQUEST_PFN)
    if stage in (AFTER_COMPACTION, AFTER_INITIAL):
        count_outcome(st, blocks, pfn)
    if pfn >= 0:
        return DONE
    if stage == FAST:
        return begin_slow_path(st)
    if stage == FIRST:
        return after_first(st)
    if stage in (RETRY, RESERVES):
        return after_retry(st)
    if stage == AFTER_RECLAIM:
        return after_reclaim(st)
    if stage == AFTER_DRAIN:
        return compacts_or_decides(st)
    if stage == AFTER_INITIAL:
        return after_initial_compaction(st)
    if stage == AFTER_COMPACTION:
        return after_compaction(st)
    return DONE


@inner
def end_of_walk(st: np.ndarray, stage: int) -> int:
    """A walk of compaction is over: take the page, or go on without (S8.1)."""
    is_initial = stage == INITIAL_COMPACTION
    if was_tried(st):
        st[word_at(st, pr.COMPACT_STALL)] += 1
        st[word_at(st, pr.REQUEST_PFN)] = st[compactor_at(st, 0) + pr.RUN_CAPTURED]
        return AFTER_INITIAL if is_initial else AFTER_COMPACTION
    if is_initial:
        return after_initial_compaction(st)
    return after_compaction(st)


@inner
def work(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    stage: int,
) -> int:
    """One step of a stage that takes no page; the stage that follows."""
    if stage == RECLAIM:
        if not reclaim_pass(pages, blocks, st, folios, places):
            return RECLAIM
        return AFTER_RECLAIM if value_of(st, pr.RECLAIMED) > 0 else compacts_or_decides(st)
    if stage in (COMPACTION, INITIAL_COMPACTION):
        if compaction_step(pages, blocks, st, folios, places):
            return end_of_walk(st, stage)
        return stage
    if stage == AFTER_UNRESERVE:
        return after_unreserve(st)
    return decide(st)
