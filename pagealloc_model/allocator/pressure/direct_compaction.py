"""Direct compaction by a request of an elastic replay: zone after zone (S9)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_context import AllocContext
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.watermark import __zone_watermark_ok, wmark_pages
from pagealloc_model.allocator.pressure.compaction import (
    begin_compaction,
    compact_unit,
    set_control,
)
from pagealloc_model.allocator.pressure.compaction_gates import (
    __compaction_suitable,
    compaction_defer_reset,
    compaction_deferred,
    compaction_suit_allocation_order,
    defer_compaction,
)
from pagealloc_model.allocator.pressure.lru_scan import zone_reclaimable_pages
from pagealloc_model.allocator.pressure.pressure_offsets import (
    compactor_at,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import inner

RETRIES_OF_SUCCESS = 16


@inner
def gfp_compaction_allowed(m: at.MachineArrays, bits: int) -> bool:
    """gfp_compaction_allowed(): return whether a request allows compaction (S8.1)."""
    if m.st[at.RULE_COMPACTION_NEEDS_RECLAIM] and not bits & at.GFP_DIRECT_RECLAIM:
        return False
    return bits & pr.GFP_IO != 0


@inner
def try_to_compact_pages(
    m: at.MachineArrays, ac: AllocContext, flags: int, priority: int, order: int
) -> int:
    """try_to_compact_pages(): compact zone after zone until a page can be had (S9.5).

    `order` is what is made, which may be more than the request's (S8.7). Returns the highest result
    of the zones. A page that was captured is in `st[CAPTURED]`.
    """
    m.st[word_at(m, pr.REQUEST_STALLED)] = 1
    m.st[at.CAPTURED] = -1
    m.st[at.CAPTURE_ORDER] = ac.order
    m.st[at.CAPTURE_TYPE] = ac.migratetype
    result = pr.SKIPPED
    position = ac.zonelist
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        if priority != pr.SYNC_FULL and compaction_deferred(m, zone, order):
            result = max(result, pr.DEFERRED)
            continue
        status = compact_zone_order(m, ac, zone, flags, priority, order)
        result = max(result, status)
        if status == pr.SUCCESS:
            compaction_defer_reset(m, zone, order, False)
            return result
        met = status == pr.COMPLETE or status == pr.PARTIAL_SKIPPED
        if met and priority != pr.ASYNC:
            defer_compaction(m, zone, order)
    return result


@inner
def compact_zone_order(
    m: at.MachineArrays, ac: AllocContext, zone: int, flags: int, priority: int, order: int
) -> int:
    """compact_zone_order() and compact_zone(): compact a zone for a request (S9.3).

    Returns how the run ended, or why there was none. A page of the request's own order that the
    run's frees make may be captured meanwhile (S9.7).
    """
    verdict = compaction_suit_allocation_order(
        m, zone, order, flags, ac.highest_type, seen_free(m, zone), priority == pr.ASYNC
    )
    if verdict != pr.CONTINUE:
        return verdict
    set_control(m, 0, order, ac.migratetype, priority, ac.cpu)
    run = compactor_at(m, 0)
    m.st[run + pr.RUN_FLAGS] = flags
    m.st[run + pr.RUN_HIGHEST] = ac.highest_type
    begin_compaction(m, 0, zone)
    m.st[at.CAPTURE_ZONE] = zone + 1
    status = pr.CONTINUE
    while status == pr.CONTINUE:
        status, cost = compact_unit(m, 0)
        m.st[word_at(m, pr.STALLED_NS)] += cost
    m.st[at.CAPTURE_ZONE] = 0
    return pr.SUCCESS if m.st[at.CAPTURED] >= 0 else status


@inner
def was_tried(m: at.MachineArrays, result: int) -> bool:
    """Part of __alloc_pages_direct_compact(): return whether a walk is a stall (S9, T11)."""
    if result == pr.DEFERRED and m.st[at.RULE_STALL_LEAVES_OUT_DEFERRED]:
        return False
    return result != pr.SKIPPED


@inner
def count_outcome(m: at.MachineArrays, order: int, pfn: int) -> None:
    """Part of __alloc_pages_direct_compact(): count a stall's outcome (S9.5).

    A page found ends the deferral of its zone.
    """
    if pfn < 0:
        m.st[word_at(m, pr.COMPACT_FAIL)] += 1
        return
    m.st[word_at(m, pr.COMPACT_SUCCESS)] += 1
    zone = int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["zone"]) - 1
    m.st[zone_pressure_at(m, zone) + pr.ZONE_FLUSH_SKIPS] = 0
    compaction_defer_reset(m, zone, order, True)


@inner
def should_compact_retry(
    m: at.MachineArrays,
    ac: AllocContext,
    flags: int,
    result: int,
    priority: int,
    retries: int,
    is_promoted: bool,
) -> tuple[bool, int, int]:
    """should_compact_retry(): return whether a request that reclaim has helped compacts again.

    `retries` counts compactions that others profited from (S8.4). A request of a promoted order
    goes on whatever its own, but not after compaction that was of no use (S8.7).

    Returns:
        Whether it does, at which priority, and the retries so far.
    """
    if ac.order == 0 and not is_promoted:
        return False, priority, retries
    is_costly = ac.order > m.st[at.POLICY_COSTLY_ORDER]
    if result == pr.SKIPPED:
        again = not is_promoted and compaction_zonelist_suitable(m, ac, flags)
        return again, priority, retries
    if result == pr.SUCCESS:
        most = RETRIES_OF_SUCCESS // 4 if is_costly else RETRIES_OF_SUCCESS
        retries += 1
        if retries <= most:
            return True, priority, retries
    least = pr.SYNC_LIGHT if is_costly else pr.SYNC_FULL
    if priority > least:
        return True, priority - 1, 0
    return False, priority, retries


@inner
def zone_watermark_ok(m: at.MachineArrays, ac: AllocContext, zone: int, flags: int) -> bool:
    """zone_watermark_ok(): return whether a zone could serve a request at its mark (S3.3)."""
    mark = wmark_pages(m, zone, flags & at.WMARK_MASK)
    free = seen_free(m, zone)
    return __zone_watermark_ok(m, zone, ac.order, mark, ac.highest_type, flags, free)


@inner
def compaction_zonelist_suitable(m: at.MachineArrays, ac: AllocContext, flags: int) -> bool:
    """compaction_zonelist_suitable(): return whether more reclaim would make a zone suit (S8.4)."""
    position = ac.zonelist
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        if not m.st[at.RULE_RETRY_COUNTS_SERVED_ZONES] and zone_watermark_ok(m, ac, zone, flags):
            continue
        free = zone_reclaimable_pages(m, zone) // ac.order + m.st[zone_at(zone) + at.ZONE_FREE]
        mark = wmark_pages(m, zone, at.WMARK_MIN)
        if __compaction_suitable(m, zone, ac.order, mark, ac.highest_type, free):
            return True
    return False
