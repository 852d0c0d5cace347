"""Refills in four phases: recover, claim, chunk, classic, in one hold of zone->lock (S12.3)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.buddy import push_tail, remove_buddy, smallest_fit, split
from pagealloc_model.allocator.core.counters import account_free, begin_refill, end_refill
from pagealloc_model.allocator.core.event_log import count_transaction, log_page
from pagealloc_model.allocator.core.fallback import MODE_NORMAL, cma_comes_first, take_page
from pagealloc_model.allocator.core.list_locks import lock_list
from pagealloc_model.allocator.core.offsets import (
    free_list_at,
    owned_block_at,
    owned_set_at,
    pcp_at,
    zone_at,
)
from pagealloc_model.allocator.core.pcp import refill_size
from pagealloc_model.allocator.ownership.owned_lists import (
    owned_list_at,
    pop_listed,
    smallest_listed,
)
from pagealloc_model.allocator.ownership.ownership import count_owning, option, take_ownership
from pagealloc_model.allocator.ownership.recorded_blocks import unrecord_block
from pagealloc_model.base.jit import cold, inner


@inner
def put_refilled(
    pages: np.ndarray,
    st: np.ndarray,
    zone: int,
    cpu: int,
    phase: int,
    pfn: int,
    order: int,
    kind: int,
    flags: int,
) -> None:
    """Append a page just taken from the zone to the CPU's list of a type, and count it."""
    lst = owned_list_at(pcp_at(st, zone, cpu), order, kind)
    pages[pfn]["order"] = order
    pages[pfn]["where"] = at.ON_PCP
    pages[pfn]["flags"] = flags
    push_tail(pages, st, lst, pfn)
    st[st[at.OWNERSHIP] + own.REFILL_PAGES] += 1 << order
    st[st[at.OWNERSHIP] + own.REFILL_OBJECTS] += 1
    counters = own.SET_PHASES + phase * own.PHASE_WORDS
    count_owning(st, zone, counters + own.PHASE_OBJECTS, 1)
    count_owning(st, zone, counters + own.PHASE_PAGES, 1 << order)


@inner
def take_cut(
    pages: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    pfn: int,
    order: int,
    migratetype: int,
) -> None:
    """Take a free buddy of a type's list, or its low part of an order, out of the zone."""
    found_order = int(pages[pfn]["order"])
    remove_buddy(pages, st, zone, pfn)
    split(pages, st, zone, pfn, order, found_order, migratetype)
    account_free(st, zone, migratetype, -(1 << order))
    log_page(st, log, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype, 0, 0, 0)


@inner
def recover_block(
    pages: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    block: int,
    kind: int,
) -> None:
    """Take all free buddies of a recorded block back, mergeable; it is no longer recorded."""
    block_order = st[at.PAGEBLOCK_ORDER]
    pfn = block << block_order
    end = pfn + (1 << block_order)
    while pfn < end:
        st[at.WORK_SCANNED] += 1
        if int(pages[pfn]["where"]) != at.BUDDY:
            pfn += 1
            continue
        order = int(pages[pfn]["order"])
        take_cut(pages, st, log, zone, pfn, order, int(pages[pfn]["tag"]))
        pages[pfn]["tag"] = kind
        put_refilled(pages, st, zone, cpu, own.RECOVER, pfn, order, kind, at.MERGEABLE)
        pfn += 1 << order
    unrecord_block(st, zone, cpu, block)
    count_owning(st, zone, own.BLOCKS_RECOVERED, 1)


@inner
def recover(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    kind: int,
    wanted: int,
) -> None:
    """Phase 0: fragments of the CPU's recorded blocks of a type, oldest first."""
    base = st[at.OWNERSHIP]
    limit = st[base + own.OPTION_RECOVER_LIMIT]
    per_type = st[base + own.OPTION_RECORDED_LISTS] == own.LISTS_PER_TYPE
    looked_at = 0
    block = st[owned_set_at(st, zone, cpu) + own.SET_RECORDED + at.HEAD]
    while block >= 0 and st[base + own.REFILL_PAGES] < wanted:
        if limit > 0 and looked_at == limit:
            break
        following = st[owned_block_at(st, block) + own.BLOCK_NEXT]
        fits = int(blocks[block]["migratetype"]) == kind
        if fits or not per_type:
            looked_at += 1
        if fits:
            recover_block(pages, st, log, zone, cpu, block, kind)
        block = following
    count_owning(st, zone, own.RECORDED_ENTRIES, looked_at)


@inner
def may_claim(st: np.ndarray, zone: int, order: int, kind: int) -> bool:
    """Whether a refill for a request may take whole blocks."""
    region = zone_at(zone)
    if not option(st, own.OPTION_CLAIMS_BLOCKS):
        return False
    if option(st, own.OPTION_OWNING_TYPES) == own.OWNS_MOVABLE_ONLY and kind != at.MOVABLE:
        return False
    if order > option(st, own.OPTION_CLAIMS_UP_TO_ORDER):
        return False
    if option(st, own.OPTION_PRESSURE_CLAIMS):
        return True
    return st[region + at.ZONE_RECLAIM_ACTIVE] == 0 and st[region + at.ZONE_BELOW_HIGH] == 0


@inner
def block_fits(st: np.ndarray, pcp: int) -> bool:
    """Whether one more block fits the pageset, refilled so far (S12.4)."""
    test = option(st, own.OPTION_FIT_TEST)
    if test == own.FITS_ALWAYS:
        return True
    limit = st[pcp + (at.PCP_HIGH_MAX if test == own.FITS_HIGH_MAX else at.PCP_HIGH)]
    held = st[pcp + at.PCP_COUNT] + st[st[at.OWNERSHIP] + own.REFILL_PAGES]
    return held + (1 << st[at.PAGEBLOCK_ORDER]) <= limit


@inner
def claim_blocks(
    pages: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    kind: int,
    wanted: int,
) -> None:
    """Phase 1: whole free blocks of the type become the CPU's."""
    if not may_claim(st, zone, order, kind):
        return
    block_order = st[at.PAGEBLOCK_ORDER]
    pcp = pcp_at(st, zone, cpu)
    while st[st[at.OWNERSHIP] + own.REFILL_PAGES] < wanted and block_fits(st, pcp):
        pfn = smallest_fit(st, zone, block_order, kind)
        if pfn < 0:
            return
        take_cut(pages, st, log, zone, pfn, block_order, kind)
        take_ownership(st, zone, cpu, pfn >> block_order)
        put_refilled(pages, st, zone, cpu, own.CLAIM, pfn, block_order, kind, at.MERGEABLE)


@inner
def largest_below(st: np.ndarray, zone: int, least: int, most: int, kind: int) -> int:
    """Head of the type's list of the largest order within bounds that has one; -1 if none."""
    for order in range(most, least - 1, -1):
        pfn = st[free_list_at(zone, order, kind) + at.HEAD]
        if pfn >= 0:
            return pfn
    return -1


@inner
def floor_log2(value: int) -> int:
    """Largest n with 1 << n <= value; value is at least 1."""
    order = 0
    while value >> (order + 1) > 0:
        order += 1
    return order


@inner
def take_chunks(
    pages: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    kind: int,
    wanted: int,
) -> None:
    """Phase 2: buddies of the type that are larger than the request, up to what is wanted."""
    base = st[at.OWNERSHIP]
    most = max(order, st[at.PAGEBLOCK_ORDER] - 1)
    smallest_first = st[base + own.OPTION_CHUNK_SEARCH] == own.CHUNKS_SMALLEST
    while st[base + own.REFILL_PAGES] < wanted:
        pfn = -1
        size = most
        if not smallest_first:
            size = max(order, min(most, floor_log2(wanted - st[base + own.REFILL_PAGES])))
            pfn = largest_below(st, zone, order, size, kind)
        if pfn < 0:
            pfn = smallest_fit(st, zone, order, kind)
        if pfn < 0:
            return
        size = min(size, int(pages[pfn]["order"]))
        take_cut(pages, st, log, zone, pfn, size, kind)
        put_refilled(pages, st, zone, cpu, own.CHUNK, pfn, size, kind, 0)


@inner
def take_classic(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    kind: int,
    flags: int,
    wanted: int,
) -> None:
    """Phase 3: one page after the other, with CMA and fallback (S6.2)."""
    while st[st[at.OWNERSHIP] + own.REFILL_PAGES] < wanted:
        pfn = take_page(pages, blocks, st, log, zone, order, kind, flags)
        if pfn < 0:
            return
        put_refilled(pages, st, zone, cpu, own.CLASSIC, pfn, order, kind, 0)


@inner
def count_phase(st: np.ndarray, zone: int, phase: int, before: int) -> int:
    """Count a refill for a phase that gave it something; objects it has so far."""
    objects = st[st[at.OWNERSHIP] + own.REFILL_OBJECTS]
    if objects > before:
        counters = own.SET_PHASES + phase * own.PHASE_WORDS
        count_owning(st, zone, counters + own.PHASE_REFILLS, 1)
    return objects


@inner
def refill_owned(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    kind: int,
    flags: int,
    wanted: int,
) -> None:
    """Move `wanted` pages or a little more from the zone to the CPU's lists of a type."""
    base = st[at.OWNERSHIP]
    st[base + own.REFILL_PAGES] = 0
    st[base + own.REFILL_OBJECTS] = 0
    st[at.FALLBACK_MODE] = MODE_NORMAL
    begin_refill(st)
    cma_first = st[base + own.OPTION_CMA_FIRST] != 0 and (flags & at.ALLOC_CMA) != 0
    before = 0
    if not (cma_first and cma_comes_first(st, zone)):
        if st[base + own.OPTION_RECOVERS]:
            recover(pages, blocks, st, log, zone, cpu, kind, wanted)
            before = count_phase(st, zone, own.RECOVER, before)
        claim_blocks(pages, st, log, zone, cpu, order, kind, wanted)
        before = count_phase(st, zone, own.CLAIM, before)
        take_chunks(pages, st, log, zone, cpu, order, kind, wanted)
        before = count_phase(st, zone, own.CHUNK, before)
    take_classic(pages, blocks, st, log, zone, cpu, order, kind, flags, wanted)
    objects = count_phase(st, zone, own.CLASSIC, before)
    end_refill(st, zone)
    got = st[base + own.REFILL_PAGES]
    st[pcp_at(st, zone, cpu) + at.PCP_COUNT] += got
    count_transaction(st, log, at.SITE_REFILL, zone, cpu, order, kind, objects, got)


@cold
def allocate_from_owned(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    kind: int,
    flags: int,
) -> int:
    """Take a page from the smallest sufficient list of the CPU, refilled if all are empty.

    -1 if there is none, or if no list holds pages of this order.
    """
    if order > st[at.PAGEBLOCK_ORDER]:
        return -1
    pcp = pcp_at(st, zone, cpu)
    lock_list(st, zone, pcp)
    st[pcp + at.PCP_FREE_COUNT] >>= 1
    found = smallest_listed(st, pcp, order, kind)
    if found < 0:
        wanted = refill_size(st, pcp, zone, order)
        if flags & at.ALLOC_HIGHATOMIC and not st[at.HIGHATOMIC_REFILLS_PCP]:
            return -1
        refill_owned(pages, blocks, st, log, zone, cpu, order, kind, flags, wanted << order)
        found = smallest_listed(st, pcp, order, kind)
        if found < 0:
            return -1
    return pop_listed(pages, st, zone, pcp, order, found, kind)
