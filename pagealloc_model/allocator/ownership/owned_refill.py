"""Refills in four phases: recover, claim, chunk, classic, in one hold of zone->lock (S12.3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.buddy import (
    __del_page_from_free_list,
    expand,
    list_add_tail,
    smallest_fit,
)
from pagealloc_model.allocator.core.counters import account_freepages, begin_refill, end_refill
from pagealloc_model.allocator.core.event_log import count_transaction, log_page
from pagealloc_model.allocator.core.fallback import MODE_NORMAL, __rmqueue, cma_comes_first
from pagealloc_model.allocator.core.list_locks import lock_list
from pagealloc_model.allocator.core.offsets import (
    free_list_at,
    owned_block_at,
    owned_set_at,
    pcp_at,
    zone_at,
)
from pagealloc_model.allocator.core.pcp import nr_pcp_alloc
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
    m: at.MachineArrays,
    zone: int,
    cpu: int,
    phase: int,
    pfn: int,
    order: int,
    kind: int,
    flags: int,
) -> None:
    """Part of rmqueue_bulk(): append a page taken from the zone to a CPU's list; count it."""
    lst = owned_list_at(pcp_at(m, zone, cpu), order, kind)
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ON_PCP
    m.pages[pfn]["flags"] = flags
    list_add_tail(m.pages, m.st, lst, pfn)
    m.st[m.st[at.OWNERSHIP] + own.REFILL_PAGES] += 1 << order
    m.st[m.st[at.OWNERSHIP] + own.REFILL_OBJECTS] += 1
    counters = own.SET_PHASES + phase * own.PHASE_WORDS
    count_owning(m, zone, counters + own.PHASE_OBJECTS, 1)
    count_owning(m, zone, counters + own.PHASE_PAGES, 1 << order)


@inner
def take_cut(m: at.MachineArrays, zone: int, pfn: int, order: int, migratetype: int) -> None:
    """No kernel function: take a free buddy, or its low part, out of the zone."""
    found_order = int(m.pages[pfn]["order"])
    __del_page_from_free_list(m, zone, pfn)
    expand(m, zone, pfn, order, found_order, migratetype)
    account_freepages(m, zone, migratetype, -(1 << order))
    log_page(m, at.LOG_ZONE_LOCKED, zone, pfn, order, migratetype, 0, 0, 0)


@inner
def recover_block(m: at.MachineArrays, zone: int, cpu: int, block: int, kind: int) -> None:
    """No kernel function: take all free buddies of a recorded block back, mergeable.

    It is no longer recorded.
    """
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
        m.pages[pfn]["tag"] = kind
        put_refilled(m, zone, cpu, own.RECOVER, pfn, order, kind, at.MERGEABLE)
        pfn += 1 << order
    unrecord_block(m, zone, cpu, block)
    count_owning(m, zone, own.BLOCKS_RECOVERED, 1)


@inner
def recover(m: at.MachineArrays, zone: int, cpu: int, kind: int, wanted: int) -> None:
    """No kernel function: do a refill's phase 0, fragments of recorded blocks, oldest first.

    The blocks are the CPU's, of one type.
    """
    base = m.st[at.OWNERSHIP]
    limit = m.st[base + own.OPTION_RECOVER_LIMIT]
    per_type = m.st[base + own.OPTION_RECORDED_LISTS] == own.LISTS_PER_TYPE
    looked_at = 0
    block = m.st[owned_set_at(m, zone, cpu) + own.SET_RECORDED + at.HEAD]
    while block >= 0 and m.st[base + own.REFILL_PAGES] < wanted:
        if limit > 0 and looked_at == limit:
            break
        following = m.st[owned_block_at(m, block) + own.BLOCK_NEXT]
        fits = int(m.blocks[block]["migratetype"]) == kind
        if fits or not per_type:
            looked_at += 1
        if fits:
            recover_block(m, zone, cpu, block, kind)
        block = following
    count_owning(m, zone, own.RECORDED_ENTRIES, looked_at)


@inner
def may_claim(m: at.MachineArrays, zone: int, order: int, kind: int) -> bool:
    """No kernel function: return whether a refill for a request may take whole blocks."""
    region = zone_at(zone)
    if not option(m, own.OPTION_CLAIMS_BLOCKS):
        return False
    if option(m, own.OPTION_OWNING_TYPES) == own.OWNS_MOVABLE_ONLY and kind != at.MOVABLE:
        return False
    if order > option(m, own.OPTION_CLAIMS_UP_TO_ORDER):
        return False
    if option(m, own.OPTION_PRESSURE_CLAIMS):
        return True
    return m.st[region + at.ZONE_RECLAIM_ACTIVE] == 0 and m.st[region + at.ZONE_BELOW_HIGH] == 0


@inner
def block_fits(m: at.MachineArrays, pcp: int) -> bool:
    """No kernel function: return whether one more block fits the pageset so far (S12.4)."""
    test = option(m, own.OPTION_FIT_TEST)
    if test == own.FITS_ALWAYS:
        return True
    limit = m.st[pcp + (at.PCP_HIGH_MAX if test == own.FITS_HIGH_MAX else at.PCP_HIGH)]
    held = m.st[pcp + at.PCP_COUNT] + m.st[m.st[at.OWNERSHIP] + own.REFILL_PAGES]
    return held + (1 << m.st[at.PAGEBLOCK_ORDER]) <= limit


@inner
def claim_blocks(
    m: at.MachineArrays, zone: int, cpu: int, order: int, kind: int, wanted: int
) -> None:
    """No kernel function: do a refill's phase 1, whole free blocks that become the CPU's."""
    if not may_claim(m, zone, order, kind):
        return
    block_order = m.st[at.PAGEBLOCK_ORDER]
    pcp = pcp_at(m, zone, cpu)
    while m.st[m.st[at.OWNERSHIP] + own.REFILL_PAGES] < wanted and block_fits(m, pcp):
        pfn = smallest_fit(m, zone, block_order, kind)
        if pfn < 0:
            return
        take_cut(m, zone, pfn, block_order, kind)
        take_ownership(m, zone, cpu, pfn >> block_order)
        put_refilled(m, zone, cpu, own.CLAIM, pfn, block_order, kind, at.MERGEABLE)


@inner
def largest_below(m: at.MachineArrays, zone: int, least: int, most: int, kind: int) -> int:
    """No kernel function: return the head of the largest order's list within bounds, or -1.

    The list is the type's.
    """
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
def take_chunks(
    m: at.MachineArrays, zone: int, cpu: int, order: int, kind: int, wanted: int
) -> None:
    """No kernel function: do a refill's phase 2, buddies larger than the request.

    They are of the type, up to what is wanted.
    """
    base = m.st[at.OWNERSHIP]
    most = max(order, m.st[at.PAGEBLOCK_ORDER] - 1)
    smallest_first = m.st[base + own.OPTION_CHUNK_SEARCH] == own.CHUNKS_SMALLEST
    while m.st[base + own.REFILL_PAGES] < wanted:
        pfn = -1
        size = most
        if not smallest_first:
            size = max(order, min(most, floor_log2(wanted - m.st[base + own.REFILL_PAGES])))
            pfn = largest_below(m, zone, order, size, kind)
        if pfn < 0:
            pfn = smallest_fit(m, zone, order, kind)
        if pfn < 0:
            return
        size = min(size, int(m.pages[pfn]["order"]))
        take_cut(m, zone, pfn, size, kind)
        put_refilled(m, zone, cpu, own.CHUNK, pfn, size, kind, 0)


@inner
def take_classic(
    m: at.MachineArrays, zone: int, cpu: int, order: int, kind: int, flags: int, wanted: int
) -> None:
    """No kernel function: do a refill's phase 3, page after page as mainline does (S6.2).

    CMA and fallback are included.
    """
    while m.st[m.st[at.OWNERSHIP] + own.REFILL_PAGES] < wanted:
        pfn = __rmqueue(m, zone, order, kind, flags)
        if pfn < 0:
            return
        put_refilled(m, zone, cpu, own.CLASSIC, pfn, order, kind, 0)


@inner
def count_phase(m: at.MachineArrays, zone: int, phase: int, before: int) -> int:
    """No kernel function: count a refill for a phase that gave it something.

    Returns the objects it has so far.
    """
    objects = m.st[m.st[at.OWNERSHIP] + own.REFILL_OBJECTS]
    if objects > before:
        counters = own.SET_PHASES + phase * own.PHASE_WORDS
        count_owning(m, zone, counters + own.PHASE_REFILLS, 1)
    return objects


@inner
def refill_owned(
    m: at.MachineArrays, zone: int, cpu: int, order: int, kind: int, flags: int, wanted: int
) -> None:
    """rmqueue_bulk(): move `wanted` pages or a little more to the CPU's lists of a type.

    Blocks are owned.
    """
    base = m.st[at.OWNERSHIP]
    m.st[base + own.REFILL_PAGES] = 0
    m.st[base + own.REFILL_OBJECTS] = 0
    m.st[at.FALLBACK_MODE] = MODE_NORMAL
    begin_refill(m)
    cma_first = m.st[base + own.OPTION_CMA_FIRST] != 0 and (flags & at.ALLOC_CMA) != 0
    before = 0
    if not (cma_first and cma_comes_first(m, zone)):
        if m.st[base + own.OPTION_RECOVERS]:
            recover(m, zone, cpu, kind, wanted)
            before = count_phase(m, zone, own.RECOVER, before)
        claim_blocks(m, zone, cpu, order, kind, wanted)
        before = count_phase(m, zone, own.CLAIM, before)
        take_chunks(m, zone, cpu, order, kind, wanted)
        before = count_phase(m, zone, own.CHUNK, before)
    take_classic(m, zone, cpu, order, kind, flags, wanted)
    objects = count_phase(m, zone, own.CLASSIC, before)
    end_refill(m, zone)
    got = m.st[base + own.REFILL_PAGES]
    m.st[pcp_at(m, zone, cpu) + at.PCP_COUNT] += got
    count_transaction(m, at.SITE_REFILL, zone, cpu, order, kind, objects, got)


@cold
def allocate_from_owned(
    m: at.MachineArrays, zone: int, cpu: int, order: int, kind: int, flags: int
) -> int:
    """rmqueue_pcplist(): take a page from the smallest sufficient list, where blocks are owned.

    The lists are refilled if all are empty. Returns the page, or -1 if there is none, or if no list
    holds pages of this order.
    """
    if order > m.st[at.PAGEBLOCK_ORDER]:
        return -1
    pcp = pcp_at(m, zone, cpu)
    lock_list(m, zone, pcp)
    m.st[pcp + at.PCP_FREE_COUNT] >>= 1
    found = smallest_listed(m, pcp, order, kind)
    if found < 0:
        wanted = nr_pcp_alloc(m, pcp, zone, order)
        if flags & at.ALLOC_HIGHATOMIC and not m.st[at.RULE_HIGHATOMIC_REFILLS_PCP]:
            return -1
        refill_owned(m, zone, cpu, order, kind, flags, wanted << order)
        found = smallest_listed(m, pcp, order, kind)
        if found < 0:
            return -1
    return pop_listed(m, zone, pcp, order, found, kind)
