"""Whether compaction of a zone is worth a try: suitability, fragmentation, deferral (S9)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import free_list_at
from pagealloc_model.allocator.core.watermark import __zone_watermark_ok, wmark_pages
from pagealloc_model.allocator.pressure.compaction_lists import buddies_of
from pagealloc_model.allocator.pressure.pressure_offsets import value_of, zone_pressure_at
from pagealloc_model.base.jit import inner


@inner
def compact_gap(m: at.MachineArrays, order: int) -> int:
    """compact_gap(): return the free pages that compaction needs beside the watermark (S9.1)."""
    gap = 2 << order
    most = value_of(m, pr.COMPACT_GAP_MAX)
    return min(gap, most) if most > 0 else gap


@inner
def fragmentation_index(m: at.MachineArrays, zone: int, order: int) -> int:
    """fragmentation_index(): return how far fragmentation would be why a request fails (S9.2).

    The result is per mille: near 1000 memory is in pieces, near 0 it lacks. It is negative if a
    buddy of this order is free.
    """
    free = 0
    buddies = 0
    for current in range(m.st[at.MAX_ORDER] + 1):
        count = buddies_of(m, zone, current)
        if current >= order and count > 0:
            return -1000
        buddies += count
        free += count << current
    if buddies == 0:
        return 0
    return 1000 - (1000 + free * 1000 // (1 << order)) // buddies


@inner
def fragmentation_score_zone(m: at.MachineArrays, zone: int) -> int:
    """fragmentation_score_zone(): return the percentage of free pages in small buddies (S9.6).

    A policy leaves the reserve's pages out (S9.10).
    """
    free = 0
    whole = 0
    for order in range(m.st[at.MAX_ORDER] + 1):
        buddies = buddies_of(m, zone, order)
        if m.st[at.POLICY_SCORE_WITHOUT_HIGHATOMIC]:
            buddies -= m.st[free_list_at(zone, order, at.HIGHATOMIC) + at.ENTRIES]
        size = buddies << order
        free += size
        if order >= pr.THP_ORDER:
            whole += size
    return (free - whole) * 100 // free if free > 0 else 0


@inner
def compaction_suit_allocation_order(
    m: at.MachineArrays,
    zone: int,
    order: int,
    flags: int,
    highest_type: int,
    free: int,
    is_async: bool,
) -> int:
    """compaction_suit_allocation_order(): return whether to compact a zone (S9.1).

    SUCCESS if no compaction is needed, SKIPPED if it is of no use, else CONTINUE.

    Args:
        m: the machine.
        zone: its number.
        order: of the page asked for.
        flags: of the request; its mark is one of them.
        highest_type: of the zones the request may use.
        free: free pages that the mark is tested with.
        is_async: the run would be asynchronous.
    """
    wanted = wmark_pages(m, zone, flags & at.WMARK_MASK)
    seen = seen_free(m, zone)
    if __zone_watermark_ok(m, zone, order, wanted, highest_type, flags, free):
        return pr.SUCCESS
    is_costly = order > m.st[at.POLICY_COSTLY_ORDER]
    if is_costly and is_async and m.st[at.RULE_SUITABLE_BESIDE_CMA] and not flags & at.ALLOC_CMA:
        least = wanted + compact_gap(m, order)
        if not __zone_watermark_ok(m, zone, 0, least, highest_type, 0, seen):
            return pr.SKIPPED
    if not __compaction_suitable(m, zone, order, wanted, highest_type, seen):
        return pr.SKIPPED
    if is_costly:
        index = fragmentation_index(m, zone, order)
        if 0 <= index <= m.st[at.POLICY_EXTFRAG_THRESHOLD]:
            return pr.SKIPPED
    return pr.CONTINUE


@inner
def __compaction_suitable(
    m: at.MachineArrays, zone: int, order: int, wanted: int, highest_type: int, free: int
) -> bool:
    """__compaction_suitable(): return whether a zone has free pages to move others to (S9.1).

    Args:
        m: the machine.
        zone: its number.
        order: of the page asked for.
        wanted: the request's own mark, pages.
        highest_type: of the zones the request may use.
        free: free pages, or what would be free.
    """
    is_costly = order > m.st[at.POLICY_COSTLY_ORDER]
    low = wmark_pages(m, zone, at.WMARK_LOW)
    least = wmark_pages(m, zone, at.WMARK_MIN)
    if not m.st[at.RULE_SUITABLE_BY_REQUEST_MARK]:
        wanted = low if is_costly else least
    elif is_costly:
        wanted += low - least
    wanted += compact_gap(m, order)
    return __zone_watermark_ok(m, zone, 0, wanted, highest_type, at.ALLOC_CMA, free)


@inner
def compaction_deferred(m: at.MachineArrays, zone: int, order: int) -> bool:
    """compaction_deferred(): count an attempt; returns whether it is left out (S9.5)."""
    words = zone_pressure_at(m, zone)
    limit = 1 << m.st[words + pr.ZONE_DEFER_SHIFT]
    if order < m.st[words + pr.ZONE_ORDER_FAILED]:
        return False
    m.st[words + pr.ZONE_CONSIDERED] += 1
    if m.st[words + pr.ZONE_CONSIDERED] >= limit:
        m.st[words + pr.ZONE_CONSIDERED] = limit
        return False
    return True


@inner
def defer_compaction(m: at.MachineArrays, zone: int, order: int) -> None:
    """defer_compaction(): leave out later attempts, twice as many as last time (S9.5)."""
    words = zone_pressure_at(m, zone)
    shift = min(m.st[words + pr.ZONE_DEFER_SHIFT] + 1, pr.DEFER_SHIFT_MAX)
    m.st[words + pr.ZONE_CONSIDERED] = 0
    m.st[words + pr.ZONE_DEFER_SHIFT] = shift
    m.st[words + pr.ZONE_ORDER_FAILED] = min(m.st[words + pr.ZONE_ORDER_FAILED], order)


@inner
def compaction_defer_reset(m: at.MachineArrays, zone: int, order: int, allocated: bool) -> None:
    """compaction_defer_reset(): note that an attempt succeeded (S9.5).

    It perhaps ended with a page allocated, which ends the deferral.
    """
    words = zone_pressure_at(m, zone)
    if allocated:
        m.st[words + pr.ZONE_CONSIDERED] = 0
        m.st[words + pr.ZONE_DEFER_SHIFT] = 0
    if order >= m.st[words + pr.ZONE_ORDER_FAILED]:
        m.st[words + pr.ZONE_ORDER_FAILED] = order + 1


@inner
def compaction_restarting(m: at.MachineArrays, zone: int, order: int) -> bool:
    """compaction_restarting(): return whether the longest deferral has passed (S9.5)."""
    words = zone_pressure_at(m, zone)
    return (
        order >= m.st[words + pr.ZONE_ORDER_FAILED]
        and m.st[words + pr.ZONE_DEFER_SHIFT] == pr.DEFER_SHIFT_MAX
        and m.st[words + pr.ZONE_CONSIDERED] >= 1 << pr.DEFER_SHIFT_MAX
    )


@inner
def proactive_marks(m: at.MachineArrays) -> tuple[int, int]:
    """fragmentation_score_wmark(): return the scores between which proactive runs work (S9.6)."""
    low = 100 - m.st[at.POLICY_COMPACTION_PROACTIVENESS]
    if m.st[at.RULE_PROACTIVE_LEEWAY_SHRINKS]:
        return low, min(low + min(10, low // 2), 100)
    low = max(low, 5)
    return low, min(low + 10, 100)
