"""Direct compaction by a request of an elastic replay: zone after zone (S9)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.watermark import wmark_pages
from pagealloc_model.allocator.pressure.compaction import (
    begin_compaction,
    compact_unit,
    end_compaction,
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
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import inner

RETRIES_OF_SUCCESS = 16


@inner
def begin_direct_compaction(m: at.MachineArrays) -> None:
    """Part of __alloc_pages_direct_compact(): begin with the first zone of the zonelist."""
    m.st[word_at(m, pr.REQUEST_STALLED)] = 1
    m.st[word_at(m, pr.WALK_POSITION)] = value_of(m, pr.REQUEST_ZONELIST)
    m.st[word_at(m, pr.COMPACT_RESULT)] = pr.SKIPPED
    m.st[compactor_at(m, 0) + pr.RUN_CAPTURED] = -1
    m.st[compactor_at(m, 0) + pr.RUN_COST_NS] = 0


@inner
def note_result(m: at.MachineArrays, result: int) -> None:
    """Part of try_to_compact_pages(): keep the highest result of the zones walked."""
    m.st[word_at(m, pr.COMPACT_RESULT)] = max(value_of(m, pr.COMPACT_RESULT), result)


@inner
def begin_next_zone(m: at.MachineArrays) -> bool:
    """Part of try_to_compact_pages(): begin the run of the next zone that needs one (S9.5).

    Returns False once the walk is over.
    """
    order = value_of(m, pr.REQUEST_ORDER)
    flags = value_of(m, pr.REQUEST_FLAGS)
    highest = value_of(m, pr.REQUEST_HIGHEST)
    priority = value_of(m, pr.COMPACT_PRIORITY)
    while m.st[value_of(m, pr.WALK_POSITION)] >= 0:
        zone = m.st[value_of(m, pr.WALK_POSITION)]
        m.st[word_at(m, pr.WALK_POSITION)] += 1
        if priority != pr.SYNC_FULL and compaction_deferred(m, zone, order):
            note_result(m, pr.DEFERRED)
            continue
        mark = flags & at.WMARK_MASK
        verdict = compaction_suit_allocation_order(
            m, zone, order, mark, flags, highest, seen_free(m, zone)
        )
        if verdict == pr.CONTINUE:
            cpu = value_of(m, pr.REQUEST_CPU)
            migratetype = value_of(m, pr.REQUEST_TYPE)
            begin_compaction(m, 0, zone, order, migratetype, priority, cpu)
            return True
        note_result(m, verdict)
        if verdict == pr.SUCCESS:
            compaction_defer_reset(m, zone, order, False)
            return False
    return False


@inner
def compaction_step(m: at.MachineArrays) -> bool:
    """Part of try_to_compact_pages(): do one unit of the walk; returns True once it is over."""
    run = compactor_at(m, 0)
    if m.st[run + pr.RUN_ZONE] == 0:
        if begin_next_zone(m):
            return False
        m.st[word_at(m, pr.STALLED_NS)] += m.st[run + pr.RUN_COST_NS]
        return True
    status = compact_unit(m, 0)
    if status == pr.CONTINUE:
        return False
    zone = m.st[run + pr.RUN_ZONE] - 1
    order = value_of(m, pr.REQUEST_ORDER)
    end_compaction(m, 0)
    note_result(m, status)
    if status == pr.SUCCESS:
        compaction_defer_reset(m, zone, order, False)
        m.st[word_at(m, pr.STALLED_NS)] += m.st[run + pr.RUN_COST_NS]
        return True
    met = status == pr.COMPLETE or status == pr.PARTIAL_SKIPPED
    if met and value_of(m, pr.COMPACT_PRIORITY) != pr.ASYNC:
        defer_compaction(m, zone, order)
    return False


@inner
def was_tried(m: at.MachineArrays) -> bool:
    """Part of __alloc_pages_direct_compact(): return whether a walk is a stall (S9, T11)."""
    result = value_of(m, pr.COMPACT_RESULT)
    if result == pr.DEFERRED and m.st[at.RULE_STALL_LEAVES_OUT_DEFERRED]:
        return False
    return result != pr.SKIPPED


@inner
def count_outcome(m: at.MachineArrays, pfn: int) -> None:
    """Part of __alloc_pages_direct_compact(): count a stall's outcome (S9.5).

    A page found ends the deferral of its zone.
    """
    if pfn < 0:
        m.st[word_at(m, pr.COMPACT_FAIL)] += 1
        return
    m.st[word_at(m, pr.COMPACT_SUCCESS)] += 1
    zone = int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["zone"]) - 1
    m.st[zone_pressure_at(m, zone) + pr.ZONE_FLUSH_SKIPS] = 0
    compaction_defer_reset(m, zone, value_of(m, pr.REQUEST_ORDER), True)


@inner
def should_compact_retry(m: at.MachineArrays) -> bool:
    """should_compact_retry(): return whether a request compacts again (S8.4).

    It is one that reclaim has helped.
    """
    order = value_of(m, pr.REQUEST_ORDER)
    if order == 0:
        return False
    result = value_of(m, pr.COMPACT_RESULT)
    is_costly = order > m.st[at.POLICY_COSTLY_ORDER]
    if result == pr.SKIPPED:
        return compaction_zonelist_suitable(m, order)
    if result == pr.SUCCESS:
        most = RETRIES_OF_SUCCESS // 4 if is_costly else RETRIES_OF_SUCCESS
        m.st[word_at(m, pr.COMPACT_RETRIES)] += 1
        if value_of(m, pr.COMPACT_RETRIES) <= most:
            return True
    least = pr.SYNC_LIGHT if is_costly else pr.SYNC_FULL
    if value_of(m, pr.COMPACT_PRIORITY) > least:
        m.st[word_at(m, pr.COMPACT_PRIORITY)] -= 1
        m.st[word_at(m, pr.COMPACT_RETRIES)] = 0
        return True
    return False


@inner
def compaction_zonelist_suitable(m: at.MachineArrays, order: int) -> bool:
    """compaction_zonelist_suitable(): return whether more reclaim would make a zone suit (S8.4)."""
    position = value_of(m, pr.REQUEST_ZONELIST)
    highest = value_of(m, pr.REQUEST_HIGHEST)
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        free = zone_reclaimable_pages(m, zone) // order + seen_free(m, zone)
        if __compaction_suitable(m, zone, order, wmark_pages(m, zone, at.WMARK_MIN), highest, free):
            return True
    return False
