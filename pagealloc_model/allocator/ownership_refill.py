"""Refills in four phases: recover, claim, chunk, classic, in one hold of zone->lock (S12.3)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.buddy import __del_page_from_free_list, expand, smallest_fit
from pagealloc_model.allocator.event_log import count_transaction, log_page
from pagealloc_model.allocator.fallback import MODE_NORMAL, __rmqueue, cma_comes_first
from pagealloc_model.allocator.layout import (
    free_list_at,
    owned_block_at,
    owned_set_at,
    pcp_at,
    zone_at,
)
from pagealloc_model.allocator.ownership import (
    absorb_lockless,
    append_listed,
    count_owning,
    option,
    pop_listed,
    smallest_listed,
    take_ownership,
    unrecord_block,
)
from pagealloc_model.allocator.pcp import lock_pageset, nr_pcp_alloc
from pagealloc_model.allocator.watermark import AllocContext, account_taken, count_at_end
from pagealloc_model.base.jit import cold, hot, inner


@inner
def put_refilled(
    m: at.Arrays, ac: AllocContext, zone: int, pfn: int, order: int, flags: int
) -> None:
    """Part of rmqueue_bulk(): append a page taken from the zone to a list of the request's CPU."""
    pcp = pcp_at(m, zone, ac.cpu)
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ON_PCP
    m.pages[pfn]["flags"] = flags
    append_listed(m, pcp, pfn, order, ac.migratetype)
    m.st[pcp + at.PCP_COUNT] += 1 << order


@inner
def take_cut(m: at.Arrays, zone: int, pfn: int, order: int, migratetype: int) -> None:
    """Take a free buddy, or its low part, out of the zone."""
    found_order = int(m.pages[pfn]["order"])
    __del_page_from_free_list(m, zone, pfn)
    expand(m, zone, pfn, order, found_order, migratetype)
    account_taken(m, zone, migratetype, order)
    log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype)


@inner
def recover_block(m: at.Arrays, ac: AllocContext, zone: int, block: int) -> int:
    """Take a recorded block's free buddies back, mergeable; how many."""
    objects = 0
    block_order = m.st[at.PAGEBLOCK_ORDER]
    pfn = block << block_order
    end = pfn + (1 << block_order)
    while pfn < end:
        m.st[at.WORK_SCANNED] += 1
        if int(m.pages[pfn]["where"]) != at.BUDDY:
            pfn += 1
            continue
        order = int(m.pages[pfn]["order"])
        take_cut(m, zone, pfn, order, int(m.pages[pfn]["tag"]))
        m.pages[pfn]["tag"] = ac.migratetype
        put_refilled(m, ac, zone, pfn, order, at.MERGEABLE)
        objects += 1
        pfn += 1 << order
    unrecord_block(m, zone, ac.cpu, block)
    count_owning(m, zone, at.BLOCKS_RECOVERED, 1)
    return objects


@inner
def recover(m: at.Arrays, ac: AllocContext, zone: int, goal: int) -> int:
    """Phase 0: recorded blocks of one type, oldest first; objects got."""
    base = m.st[at.OWNERSHIP]
    pcp = pcp_at(m, zone, ac.cpu)
    before = m.st[pcp + at.PCP_COUNT]
    objects = 0
    limit = m.st[base + at.OPTION_RECOVER_LIMIT]
    per_type = m.st[base + at.OPTION_RECORDED_LISTS] == at.LISTS_PER_TYPE
    looked_at = 0
    block = m.st[owned_set_at(m, zone, ac.cpu) + at.SET_RECORDED + at.HEAD]
    while block >= 0 and m.st[pcp + at.PCP_COUNT] < goal:
        if limit > 0 and looked_at == limit:
            break
        following = m.st[owned_block_at(m, block) + at.BLOCK_NEXT]
        fits = int(m.blocks[block]["migratetype"]) == ac.migratetype
        if fits or not per_type:
            looked_at += 1
        if fits:
            objects += recover_block(m, ac, zone, block)
        block = following
    count_owning(m, zone, at.RECORDED_ENTRIES, looked_at)
    return count_phase(m, zone, at.PHASE_RECOVER, objects, m.st[pcp + at.PCP_COUNT] - before)


@inner
def may_claim(m: at.Arrays, ac: AllocContext, zone: int) -> bool:
    """Return whether a refill for a request may take whole blocks."""
    region = zone_at(zone)
    if not option(m, at.OPTION_CLAIMS_BLOCKS):
        return False
    if option(m, at.OPTION_OWNING_TYPES) == at.OWNS_MOVABLE_ONLY and ac.migratetype != at.MOVABLE:
        return False
    if ac.order > option(m, at.OPTION_CLAIMS_UP_TO_ORDER):
        return False
    if option(m, at.OPTION_PRESSURE_CLAIMS):
        return True
    return m.st[region + at.ZONE_RECLAIM_ACTIVE] == 0 and m.st[region + at.ZONE_BELOW_HIGH] == 0


@inner
def block_fits(m: at.Arrays, pcp: int) -> bool:
    """Return whether one more block fits the pageset so far (S12.4)."""
    test = option(m, at.OPTION_FIT_TEST)
    if test == at.FITS_ALWAYS:
        return True
    limit = m.st[pcp + (at.PCP_HIGH_MAX if test == at.FITS_HIGH_MAX else at.PCP_HIGH)]
    held = m.st[pcp + at.PCP_COUNT]
    return held + (1 << m.st[at.PAGEBLOCK_ORDER]) <= limit


@inner
def claim_blocks(m: at.Arrays, ac: AllocContext, zone: int, goal: int) -> int:
    """Phase 1: whole free blocks become the CPU's; objects got."""
    if not may_claim(m, ac, zone):
        return 0
    objects = 0
    block_order = m.st[at.PAGEBLOCK_ORDER]
    pcp = pcp_at(m, zone, ac.cpu)
    before = m.st[pcp + at.PCP_COUNT]
    while m.st[pcp + at.PCP_COUNT] < goal and block_fits(m, pcp):
        pfn = smallest_fit(m, zone, block_order, ac.migratetype)
        if pfn < 0:
            break
        take_cut(m, zone, pfn, block_order, ac.migratetype)
        take_ownership(m, zone, ac.cpu, pfn >> block_order)
        put_refilled(m, ac, zone, pfn, block_order, at.MERGEABLE)
        objects += 1
    return count_phase(m, zone, at.PHASE_CLAIM, objects, m.st[pcp + at.PCP_COUNT] - before)


@inner
def largest_below(m: at.Arrays, zone: int, least: int, most: int, kind: int) -> int:
    """Return a type's largest buddy within bounds, or -1."""
    for order in range(most, least - 1, -1):
        pfn = m.st[free_list_at(zone, order, kind) + at.HEAD]
        if pfn >= 0:
            return pfn
    return -1


@inner
def floor_log2(value: int) -> int:
    """ilog2(): return the largest n with 1 << n <= value; value is at least 1."""
    order = 0
    while value >> (order + 1) > 0:
        order += 1
    return order


@inner
def take_chunks(m: at.Arrays, ac: AllocContext, zone: int, goal: int) -> int:
    """Phase 2: buddies larger than the request, up to the need; objects got."""
    objects = 0
    pcp = pcp_at(m, zone, ac.cpu)
    before = m.st[pcp + at.PCP_COUNT]
    order = ac.order
    most = max(order, m.st[at.PAGEBLOCK_ORDER] - 1)
    smallest_first = option(m, at.OPTION_CHUNK_SEARCH) == at.CHUNKS_SMALLEST
    while m.st[pcp + at.PCP_COUNT] < goal:
        pfn = -1
        size = most
        if not smallest_first:
            size = max(order, min(most, floor_log2(goal - m.st[pcp + at.PCP_COUNT])))
            pfn = largest_below(m, zone, order, size, ac.migratetype)
        if pfn < 0:
            pfn = smallest_fit(m, zone, order, ac.migratetype)
        if pfn < 0:
            break
        size = min(size, int(m.pages[pfn]["order"]))
        take_cut(m, zone, pfn, size, ac.migratetype)
        put_refilled(m, ac, zone, pfn, size, 0)
        objects += 1
    return count_phase(m, zone, at.PHASE_CHUNK, objects, m.st[pcp + at.PCP_COUNT] - before)


@inner
def take_classic(m: at.Arrays, ac: AllocContext, zone: int, goal: int, flags: int) -> int:
    """Phase 3: page after page, CMA and fallback too (S6.2); objects got."""
    objects = 0
    mode = MODE_NORMAL
    pcp = pcp_at(m, zone, ac.cpu)
    before = m.st[pcp + at.PCP_COUNT]
    while m.st[pcp + at.PCP_COUNT] < goal:
        if not m.st[at.POLICY_REFILL_MODE_PERSISTS]:
            mode = MODE_NORMAL
        pfn, mode = __rmqueue(m, zone, ac.order, ac.migratetype, flags, mode)
        if pfn < 0:
            break
        put_refilled(m, ac, zone, pfn, ac.order, 0)
        objects += 1
    return count_phase(m, zone, at.PHASE_CLASSIC, objects, m.st[pcp + at.PCP_COUNT] - before)


@inner
def count_phase(m: at.Arrays, zone: int, phase: int, objects: int, pages: int) -> int:
    """Count what a phase gave a refill; returns its objects."""
    if objects > 0:
        counters = at.SET_PHASES + phase * at.PHASE_STRIDE
        count_owning(m, zone, counters + at.PHASE_REFILLS, 1)
        count_owning(m, zone, counters + at.PHASE_OBJECTS, objects)
        count_owning(m, zone, counters + at.PHASE_PAGES, pages)
    return objects


@inner
def rmqueue_bulk_owned(m: at.Arrays, ac: AllocContext, zone: int, wanted: int, flags: int) -> None:
    """rmqueue_bulk(): move `wanted` pages or a little more to lists, where blocks are owned."""
    pcp = pcp_at(m, zone, ac.cpu)
    before = m.st[pcp + at.PCP_COUNT]
    goal = before + wanted
    cma_first = option(m, at.OPTION_CMA_FIRST) != 0 and (flags & at.ALLOC_CMA) != 0
    objects = 0
    if not (cma_first and cma_comes_first(m, zone)):
        if option(m, at.OPTION_RECOVERS):
            objects += recover(m, ac, zone, goal)
        objects += claim_blocks(m, ac, zone, goal)
        objects += take_chunks(m, ac, zone, goal)
    objects += take_classic(m, ac, zone, goal, flags)
    pages = m.st[pcp + at.PCP_COUNT] - before
    count_at_end(m, zone, pages)
    count_transaction(m, at.SITE_REFILL, zone, ac.cpu, ac.order, ac.migratetype, objects, pages)


@cold
def refill_owned_lists(m: at.Arrays, ac: AllocContext, zone: int, flags: int) -> int:
    """Part of __rmqueue_pcplist(): refill owned lists; returns the order to take from, or -1."""
    pcp = pcp_at(m, zone, ac.cpu)
    wanted = nr_pcp_alloc(m, pcp, zone, ac.order)
    if flags & at.ALLOC_HIGHATOMIC and not m.st[at.RULE_HIGHATOMIC_REFILLS_PCP]:  # from 7.2
        return -1
    rmqueue_bulk_owned(m, ac, zone, wanted << ac.order, flags)
    return smallest_listed(m, pcp, ac.order, ac.migratetype)


@hot
def allocate_from_owned(m: at.Arrays, ac: AllocContext, zone: int, flags: int) -> int:
    """rmqueue_pcplist(): take a page from the smallest list that suffices, refilled, or -1."""
    order = ac.order
    if order > m.st[at.PAGEBLOCK_ORDER]:
        return -1
    pcp = pcp_at(m, zone, ac.cpu)
    lock_pageset(m, zone, pcp, at.PCP_LOCKS)
    m.st[pcp + at.PCP_FREE_COUNT] >>= 1
    absorb_lockless(m, zone, ac.cpu)
    found = smallest_listed(m, pcp, order, ac.migratetype)
    if found < 0:
        found = refill_owned_lists(m, ac, zone, flags)
        if found < 0:
            return -1
    return pop_listed(m, zone, pcp, order, found, ac.migratetype)
