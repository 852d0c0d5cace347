"""The slow path of a request in an elastic replay, stage by stage (S8).

A stage does what it can without the per-CPU lists and says what comes next; the event loop takes
pages, frees those that wait and drains, so that these exist once in the compiled loop.
"""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_flags import fast_path_flags, gfp_to_alloc_flags
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import node_zonelist
from pagealloc_model.allocator.core.watermark import (
    __zone_watermark_ok,
    wake_all_kswapds,
    wmark_pages,
)
from pagealloc_model.allocator.pressure.direct_compaction import (
    begin_direct_compaction,
    compaction_step,
    count_outcome,
    should_compact_retry,
    was_tried,
)
from pagealloc_model.allocator.pressure.direct_reclaim import begin_direct_reclaim, reclaim_pass
from pagealloc_model.allocator.pressure.lru_scan import zone_reclaimable_pages
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
    """No kernel function: return whether a stage begins with an attempt to take a page."""
    return FAST <= stage <= FORCED


@inner
def prepare_alloc_pages(
    m: at.MachineArrays, cpu: int, order: int, migratetype: int, highest_type: int, bits: int
) -> None:
    """prepare_alloc_pages(): set a request up for its first attempt (S2.5)."""
    zonelist = node_zonelist(m, cpu, highest_type, bits)
    flags = fast_path_flags(m, zonelist, migratetype, bits)
    if m.st[at.POLICY_HIGHATOMIC_FASTPATH]:
        flags |= gfp_to_alloc_flags(m, bits, order, flags) & at.ALLOC_HIGHATOMIC
    base = m.st[at.PRESSURE_BASE]
    m.st[base + pr.STAGE] = FAST
    m.st[base + pr.REQUEST_PFN] = -1
    m.st[base + pr.REQUEST_CPU] = cpu
    m.st[base + pr.REQUEST_ORDER] = order
    m.st[base + pr.REQUEST_TYPE] = migratetype
    m.st[base + pr.REQUEST_HIGHEST] = highest_type
    m.st[base + pr.REQUEST_BITS] = bits
    m.st[base + pr.REQUEST_FLAGS] = flags
    m.st[base + pr.REQUEST_ZONELIST] = zonelist


@inner
def gfp_compaction_allowed(m: at.MachineArrays) -> bool:
    """gfp_compaction_allowed(): return whether a request allows compaction (S8.1)."""
    bits = value_of(m, pr.REQUEST_BITS)
    if m.st[at.RULE_COMPACTION_NEEDS_RECLAIM] and not bits & at.GFP_DIRECT_RECLAIM:
        return False
    return bits & pr.GFP_IO != 0


@inner
def compacts_first(m: at.MachineArrays) -> bool:
    """Part of __alloc_pages_slowpath(): return whether to compact before reclaim (S8.1)."""
    order = value_of(m, pr.REQUEST_ORDER)
    is_wanted = order > m.st[at.POLICY_COSTLY_ORDER] or (
        order > 0 and value_of(m, pr.REQUEST_TYPE) != at.MOVABLE
    )
    return is_wanted and gfp_compaction_allowed(m)


@inner
def wake(m: at.MachineArrays) -> None:
    """Part of __alloc_pages_slowpath(): wake kswapd of the nodes, if it may (S8.1, S8.6)."""
    if value_of(m, pr.REQUEST_FLAGS) & at.ALLOC_KSWAPD:
        order = value_of(m, pr.REQUEST_ORDER)
        if value_of(m, pr.KSWAPD_ASSISTS):
            order = max(order, m.st[at.PAGEBLOCK_ORDER])
        highest = value_of(m, pr.REQUEST_HIGHEST)
        wake_all_kswapds(m, value_of(m, pr.REQUEST_ZONELIST), order, highest)


@inner
def begin_slow_path(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): set flags and priorities (S2.6, S8.1).

    Returns the first stage.
    """
    base = m.st[at.PRESSURE_BASE]
    m.st[at.COUNT_SLOW_PATH] += 1
    bits = m.st[base + pr.REQUEST_BITS]
    flags = gfp_to_alloc_flags(
        m, bits, m.st[base + pr.REQUEST_ORDER], m.st[base + pr.REQUEST_FLAGS]
    )
    m.st[base + pr.REQUEST_FLAGS] = flags
    m.st[base + pr.NO_PROGRESS] = 0
    m.st[base + pr.COMPACT_RETRIES] = 0
    m.st[base + pr.COMPACT_RESULT] = pr.SKIPPED
    m.st[base + pr.COMPACT_PRIORITY] = pr.SYNC_LIGHT
    m.st[base + pr.COMPACT_FIRST] = 0
    wake(m)
    if not m.st[at.RULE_INITIAL_COMPACTION_IN_LOOP]:
        return FIRST
    if compacts_first(m):
        m.st[base + pr.COMPACT_FIRST] = 1
        m.st[base + pr.COMPACT_PRIORITY] = pr.ASYNC
    return RETRY


@inner
def gfp_pfmemalloc_allowed(bits: int) -> bool:
    """gfp_pfmemalloc_allowed(): return whether a request may ignore watermarks (S2.6).

    Reclaim itself does.
    """
    return bits & at.GFP_MEMALLOC != 0 and not bits & at.GFP_NOMEMALLOC


@inner
def use_reserves(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): let the next attempt ignore watermarks (S2.6).

    Returns its stage.
    """
    kept = value_of(m, pr.REQUEST_FLAGS) & (at.ALLOC_KSWAPD | at.ALLOC_CMA)
    m.st[word_at(m, pr.REQUEST_FLAGS)] = at.ALLOC_NO_WATERMARKS | kept
    return RESERVES


@inner
def after_first(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): return what follows the first attempt (S8.1).

    Compaction comes before the loop here.
    """
    bits = value_of(m, pr.REQUEST_BITS)
    if gfp_pfmemalloc_allowed(bits):
        wake(m)
        return use_reserves(m)
    if bits & at.GFP_DIRECT_RECLAIM and compacts_first(m):
        m.st[word_at(m, pr.COMPACT_PRIORITY)] = pr.ASYNC
        begin_direct_compaction(m)
        return INITIAL_COMPACTION
    return again(m)


@inner
def again(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): begin another turn; returns its stage (S8.1)."""
    wake(m)
    return RETRY


@inner
def after_initial_compaction(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): return what follows the initial compaction (S8.1).

    Costly requests that must not retry may end here.
    """
    m.st[word_at(m, pr.COMPACT_PRIORITY)] = pr.SYNC_LIGHT
    bits = value_of(m, pr.REQUEST_BITS)
    if value_of(m, pr.REQUEST_ORDER) > m.st[at.POLICY_COSTLY_ORDER] and bits & pr.GFP_NORETRY:
        result = value_of(m, pr.COMPACT_RESULT)
        if result == pr.SKIPPED or result == pr.DEFERRED or bits & at.GFP_THISNODE:
            return DONE
        m.st[word_at(m, pr.COMPACT_PRIORITY)] = pr.ASYNC
    return again(m)


@inner
def after_retry(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): return what follows an attempt without a page (S8.1).

    It is reserves, or work, or the end.
    """
    bits = value_of(m, pr.REQUEST_BITS)
    flags = value_of(m, pr.REQUEST_FLAGS)
    if gfp_pfmemalloc_allowed(bits) and not flags & at.ALLOC_NO_WATERMARKS:
        return use_reserves(m)
    if not bits & at.GFP_DIRECT_RECLAIM:
        drops = value_of(m, pr.DEFRAG_FIXES) and flags & at.ALLOC_KSWAPD
        if drops and flags & at.ALLOC_NOFRAGMENT:
            m.st[word_at(m, pr.REQUEST_FLAGS)] = flags & ~at.ALLOC_NOFRAGMENT
            return again(m)
        return DONE
    if flags & at.ALLOC_NO_WATERMARKS:
        return DONE
    if value_of(m, pr.COMPACT_FIRST):
        begin_direct_compaction(m)
        return COMPACTION
    begin_direct_reclaim(m)
    return RECLAIM


@inner
def after_reclaim(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_direct_reclaim(): prepare one more try after a drain (S8.2).

    Reclaim found something, but no page was to be had. Returns the next stage.
    """
    m.st[word_at(m, pr.UNRESERVES)] = (1 << m.st[at.PAGEBLOCK_ORDER]) + 1
    m.st[word_at(m, pr.DRAINED_ZONE)] = pr.DRAINS_ALL_ZONES
    return AFTER_DRAIN


@inner
def compacts_or_decides(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): return what follows reclaim (S8.1).

    For orders above 0 it is compaction.
    """
    if value_of(m, pr.REQUEST_ORDER) > 0 and gfp_compaction_allowed(m):
        begin_direct_compaction(m)
        return COMPACTION
    return DECIDE


@inner
def after_compaction(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): return what follows compaction without a page (S8.1)."""
    bits = value_of(m, pr.REQUEST_BITS)
    if not value_of(m, pr.COMPACT_FIRST):
        return DECIDE
    if bits & pr.GFP_NORETRY and bits & at.GFP_THISNODE:
        return DONE
    if not bits & pr.GFP_NORETRY:
        m.st[word_at(m, pr.COMPACT_PRIORITY)] = pr.SYNC_LIGHT
    m.st[word_at(m, pr.COMPACT_FIRST)] = 0
    return again(m)


@inner
def reclaim_could_do(m: at.MachineArrays) -> bool:
    """Part of should_reclaim_retry(): return whether more reclaim would do (S8.3).

    It would if some zone passed with all its reclaimable pages freed.
    """
    order = value_of(m, pr.REQUEST_ORDER)
    highest = value_of(m, pr.REQUEST_HIGHEST)
    flags = value_of(m, pr.REQUEST_FLAGS)
    position = value_of(m, pr.REQUEST_ZONELIST)
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        free = seen_free(m, zone) + zone_reclaimable_pages(m, zone)
        mark = wmark_pages(m, zone, at.WMARK_MIN)
        if __zone_watermark_ok(m, zone, order, mark, highest, flags, free):
            return True
    return False


@inner
def decide(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): return whether a request goes on trying (S8.1, S8.3).

    The result is the next stage. should_reclaim_retry() is part of it.
    """
    bits = value_of(m, pr.REQUEST_BITS)
    is_costly = value_of(m, pr.REQUEST_ORDER) > m.st[at.POLICY_COSTLY_ORDER]
    if bits & pr.GFP_NORETRY:
        return give_up(m)
    if is_costly and not (bits & pr.GFP_RETRY_MAYFAIL and gfp_compaction_allowed(m)):
        return give_up(m)
    if value_of(m, pr.RECLAIMED) > 0 and not is_costly:
        m.st[word_at(m, pr.NO_PROGRESS)] = 0
    else:
        m.st[word_at(m, pr.NO_PROGRESS)] += 1
    if value_of(m, pr.NO_PROGRESS) <= pr.RETRIES_MAX and reclaim_could_do(m):
        return again(m)
    m.st[word_at(m, pr.UNRESERVES)] = 1
    return AFTER_UNRESERVE


@inner
def after_unreserve(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): return the stage of the last resorts (S8.1).

    They are a block released, compaction harder, pollution, the OOM killer.
    """
    if value_of(m, pr.UNRESERVED):
        return again(m)
    if value_of(m, pr.RECLAIMED) > 0 and gfp_compaction_allowed(m) and should_compact_retry(m):
        return again(m)
    flags = value_of(m, pr.REQUEST_FLAGS)
    if m.st[at.POLICY_DEFRAG_MODE] and flags & at.ALLOC_NOFRAGMENT:
        m.st[word_at(m, pr.REQUEST_FLAGS)] = flags & ~at.ALLOC_NOFRAGMENT
        return again(m)
    if value_of(m, pr.REQUEST_ORDER) <= m.st[at.POLICY_COSTLY_ORDER]:
        bits = value_of(m, pr.REQUEST_BITS)
        if not bits & (pr.GFP_RETRY_MAYFAIL | at.GFP_THISNODE):
            m.st[word_at(m, pr.OOM_KILL)] += 1
    return give_up(m)


@inner
def give_up(m: at.MachineArrays) -> int:
    """Part of __alloc_pages_slowpath(): end without a page; returns the next stage.

    A request that must not fail takes what there is.
    """
    flags = value_of(m, pr.REQUEST_FLAGS)
    if value_of(m, pr.REQUEST_BITS) & pr.GFP_NOFAIL and not flags & at.ALLOC_NO_WATERMARKS:
        m.st[word_at(m, pr.REQUEST_FLAGS)] = flags | at.ALLOC_NO_WATERMARKS
        m.st[word_at(m, pr.FORCED_BY_NOFAIL)] += 1
        return FORCED
    return DONE


@inner
def after_attempt(m: at.MachineArrays, stage: int) -> int:
    """Part of __alloc_pages_slowpath(): return the stage after an attempt to take a page."""
    pfn = value_of(m, pr.REQUEST_PFN)
    if stage in (AFTER_COMPACTION, AFTER_INITIAL):
        count_outcome(m, pfn)
    if pfn >= 0:
        return DONE
    if stage == FAST:
        return begin_slow_path(m)
    if stage == FIRST:
        return after_first(m)
    if stage in (RETRY, RESERVES):
        return after_retry(m)
    if stage == AFTER_RECLAIM:
        return after_reclaim(m)
    if stage == AFTER_DRAIN:
        return compacts_or_decides(m)
    if stage == AFTER_INITIAL:
        return after_initial_compaction(m)
    if stage == AFTER_COMPACTION:
        return after_compaction(m)
    return DONE


@inner
def end_of_walk(m: at.MachineArrays, stage: int) -> int:
    """Part of __alloc_pages_direct_compact(): take the page, or go on without (S8.1).

    A walk of compaction is over. Returns the next stage.
    """
    is_initial = stage == INITIAL_COMPACTION
    if was_tried(m):
        m.st[word_at(m, pr.COMPACT_STALL)] += 1
        m.st[word_at(m, pr.REQUEST_PFN)] = m.st[compactor_at(m, 0) + pr.RUN_CAPTURED]
        return AFTER_INITIAL if is_initial else AFTER_COMPACTION
    if is_initial:
        return after_initial_compaction(m)
    return after_compaction(m)


@inner
def work(m: at.MachineArrays, stage: int) -> int:
    """Part of __alloc_pages_slowpath(): do a step of a stage that takes no page.

    Returns the stage that follows.
    """
    if stage == RECLAIM:
        if not reclaim_pass(m):
            return RECLAIM
        return AFTER_RECLAIM if value_of(m, pr.RECLAIMED) > 0 else compacts_or_decides(m)
    if stage in (COMPACTION, INITIAL_COMPACTION):
        if compaction_step(m):
            return end_of_walk(m, stage)
        return stage
    if stage == AFTER_UNRESERVE:
        return after_unreserve(m)
    return decide(m)
