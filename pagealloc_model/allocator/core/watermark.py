"""Watermark tests and boost (S1.6, S1.7, S3.3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.counters import seen_free, seen_free_cma
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.base.jit import hot, inner

ATOMIC_BOOST_SHARE = 1000
"""A thousandth of a zone's managed pages is a boost for atomic requests (S1.11)."""
ATOMIC_BOOST_PERIOD_NS = 1_000_000_000


@inner
def wmark_pages(m: at.MachineArrays, zone: int, mark: int) -> int:
    """wmark_pages(): return a watermark with the boost, pages.

    `mark` is WMARK_MIN, WMARK_LOW or WMARK_HIGH.
    """
    region = zone_at(zone)
    return m.st[region + at.ZONE_MIN + mark] + m.st[region + at.ZONE_BOOST]


@inner
def has_free_buddy(m: at.MachineArrays, zone: int, order: int, flags: int) -> bool:
    """Part of __zone_watermark_ok(): return whether some usable list can serve an order (S3.3)."""
    for current in range(order, m.st[at.MAX_ORDER] + 1):
        for migratetype in range(at.PCP_TYPES):
            if m.st[free_list_at(zone, current, migratetype) + at.HEAD] >= 0:
                return True
        if flags & at.ALLOC_CMA and m.st[free_list_at(zone, current, m.st[at.CMA]) + at.HEAD] >= 0:
            return True
        reserve = m.st[free_list_at(zone, current, at.HIGHATOMIC) + at.HEAD]
        if flags & at.ALLOC_HIGHATOMIC and reserve >= 0:
            return True
    return False


@hot
def pages_above_mark(
    m: at.MachineArrays, zone: int, order: int, mark: int, highest_type: int, flags: int, free: int
) -> int:
    """Part of __zone_watermark_ok(): return the pages above the mark (S3.3).

    The result is negative if pages are missing.
    """
    region = zone_at(zone)
    free -= (1 << order) - 1
    if not flags & (at.ALLOC_NON_BLOCK | at.ALLOC_MIN_RESERVE | at.ALLOC_HIGHATOMIC):
        free -= m.st[region + m.st[at.WATERMARK_SUBTRACTS]]
    if not flags & at.ALLOC_CMA:
        free -= seen_free_cma(m, zone)
    needed = mark
    if flags & at.ALLOC_MIN_RESERVE:
        needed -= needed // 2
        if flags & at.ALLOC_NON_BLOCK:
            needed -= needed // 4
    return free - needed - m.st[region + at.ZONE_LOWMEM_RESERVE + highest_type]


@hot
def __zone_watermark_ok(
    m: at.MachineArrays, zone: int, order: int, mark: int, highest_type: int, flags: int, free: int
) -> bool:
    """__zone_watermark_ok(): return whether `free` pages suffice above a mark (S3.3).

    They are the zone's free pages as far as they are seen.
    """
    if pages_above_mark(m, zone, order, mark, highest_type, flags, free) <= 0:
        return False
    return order == 0 or has_free_buddy(m, zone, order, flags)


@hot
def zone_watermark_fast(
    m: at.MachineArrays, zone: int, order: int, mark: int, highest_type: int, flags: int
) -> bool:
    """zone_watermark_fast(): return whether a zone passes the allocation path's test (S3.3).

    It is as `__zone_watermark_ok`, some requests of order 0 being tested again without boost: those
    whose own mark is MIN, whichever mark is tested.
    """
    free = seen_free(m, zone)
    if __zone_watermark_ok(m, zone, order, wmark_pages(m, zone, mark), highest_type, flags, free):
        return True
    region = zone_at(zone)
    if order == 0 and flags & at.ALLOC_IGNORES_BOOST and m.st[region + at.ZONE_BOOST] > 0:
        return __zone_watermark_ok(
            m, zone, 0, m.st[region + at.ZONE_MIN], highest_type, flags, free
        )
    return False


@inner
def boost_watermark(m: at.MachineArrays, zone: int) -> bool:
    """boost_watermark(): raise the zone's watermarks after a fallback within a block (S1.7).

    Returns False if boosting is switched off.
    """
    region = zone_at(zone)
    factor = m.st[at.POLICY_WATERMARK_BOOST_FACTOR]
    block_pages = 1 << m.st[at.PAGEBLOCK_ORDER]
    if factor == 0 or 4 * block_pages > m.st[region + at.ZONE_MANAGED]:
        return False
    cap = m.st[region + at.ZONE_HIGH] * factor // 10000
    if cap == 0:
        return False
    cap = max(cap, block_pages)
    m.st[region + at.ZONE_BOOST] = min(m.st[region + at.ZONE_BOOST] + block_pages, cap)
    return True


@inner
def boost_for_atomic(m: at.MachineArrays, zone: int) -> None:
    """No kernel function: raise a zone's watermarks as an atomic request is in need (S1.11).

    A proposal, whatever the policy's boost after fallbacks. It acts once a second.
    """
    region = zone_at(zone)
    if m.st[at.NOW] < m.st[region + at.ZONE_ATOMIC_BOOST_DUE]:
        return
    m.st[region + at.ZONE_ATOMIC_BOOST_DUE] = m.st[at.NOW] + ATOMIC_BOOST_PERIOD_NS
    share = m.st[region + at.ZONE_MANAGED] // ATOMIC_BOOST_SHARE
    cap = max(m.st[region + at.ZONE_HIGH], m.st[region + at.ZONE_BOOST])
    m.st[region + at.ZONE_BOOST] = min(m.st[region + at.ZONE_BOOST] + share, cap)


@inner
def free_in_whole_blocks(m: at.MachineArrays, zone: int) -> int:
    """No kernel function: return the free pages in whole pageblocks (S8.6).

    They are those of a zone, in buddies of at least pageblock order, isolated ones left out: the
    kernel's NR_FREE_PAGES_BLOCKS.
    """
    free = 0
    for order in range(m.st[at.PAGEBLOCK_ORDER], m.st[at.MAX_ORDER] + 1):
        for migratetype in range(at.MIGRATETYPES):
            if migratetype != m.st[at.ISOLATE]:
                free += m.st[free_list_at(zone, order, migratetype) + at.ENTRIES] << order
    return free
