"""Direct compaction by a request of an elastic replay: zone after zone (S9)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.watermark import mark_pages
from pagealloc_model.allocator.pressure.compaction import (
    begin_compaction,
    compact_unit,
    end_compaction,
)
from pagealloc_model.allocator.pressure.compaction_gates import (
    defer,
    defer_no_more,
    gate,
    is_deferred,
    is_suitable,
)
from pagealloc_model.allocator.pressure.lru_scan import reclaimable_pages
from pagealloc_model.allocator.pressure.pressure_offsets import (
    compactor_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import inner

RETRIES_OF_SUCCESS = 16


@inner
def begin_direct_compaction(st: np.ndarray) -> None:
    """Begin with the first zone of the request's zonelist."""
    st[word_at(st, pr.REQUEST_STALLED)] = 1
    st[word_at(st, pr.WALK_POSITION)] = value_of(st, pr.REQUEST_ZONELIST)
    st[word_at(st, pr.COMPACT_RESULT)] = pr.SKIPPED
    st[compactor_at(st, 0) + pr.RUN_CAPTURED] = -1
    st[compactor_at(st, 0) + pr.RUN_COST_NS] = 0


@inner
def note_result(st: np.ndarray, result: int) -> None:
    """A walk's result is the highest of its zones'."""
    st[word_at(st, pr.COMPACT_RESULT)] = max(value_of(st, pr.COMPACT_RESULT), result)


@inner
def begin_next_zone(st: np.ndarray, blocks: np.ndarray, folios: np.ndarray) -> bool:
    """Begin the run of the next zone that needs one; False once the walk is over (S9.5)."""
    order = value_of(st, pr.REQUEST_ORDER)
    flags = value_of(st, pr.REQUEST_FLAGS)
    highest = value_of(st, pr.REQUEST_HIGHEST)
    priority = value_of(st, pr.COMPACT_PRIORITY)
    while st[value_of(st, pr.WALK_POSITION)] >= 0:
        zone = st[value_of(st, pr.WALK_POSITION)]
        st[word_at(st, pr.WALK_POSITION)] += 1
        if priority != pr.SYNC_FULL and is_deferred(st, zone, order):
            note_result(st, pr.DEFERRED)
            continue
        mark = flags & at.WMARK_MASK
        verdict = gate(st, zone, order, mark, flags, highest, seen_free(st, zone))
        if verdict == pr.CONTINUE:
            cpu = value_of(st, pr.REQUEST_CPU)
            migratetype = value_of(st, pr.REQUEST_TYPE)
            begin_compaction(st, blocks, folios, 0, zone, order, migratetype, priority, cpu)
            return True
        note_result(st, verdict)
        if verdict == pr.SUCCESS:
            defer_no_more(st, zone, order, False)
            return False
    return False


@inner
def compaction_step(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
) -> bool:
    """One unit of the walk; True once it is over."""
    run = compactor_at(st, 0)
    if st[run + pr.RUN_ZONE] == 0:
        if begin_next_zone(st, blocks, folios):
            return False
        st[word_at(st, pr.STALLED_NS)] += st[run + pr.RUN_COST_NS]
        return True
    status = compact_unit(pages, blocks, st, folios, places, 0)
    if status == pr.CONTINUE:
        return False
    zone = st[run + pr.RUN_ZONE] - 1
    order = value_of(st, pr.REQUEST_ORDER)
    end_compaction(pages, blocks, st, folios, 0)
    note_result(st, status)
    if status == pr.SUCCESS:
        defer_no_more(st, zone, order, False)
        st[word_at(st, pr.STALLED_NS)] += st[run + pr.RUN_COST_NS]
        return True
    met = status == pr.COMPLETE or status == pr.PARTIAL_SKIPPED
    if met and value_of(st, pr.COMPACT_PRIORITY) != pr.ASYNC:
        defer(st, zone, order)
    return False


@inner
def was_tried(st: np.ndarray) -> bool:
    """Whether a walk counts as a stall (S9, T11)."""
    result = value_of(st, pr.COMPACT_RESULT)
    if result == pr.DEFERRED and value_of(st, pr.STALL_LEAVES_OUT_DEFERRED):
        return False
    return result != pr.SKIPPED


@inner
def count_outcome(st: np.ndarray, blocks: np.ndarray, pfn: int) -> None:
    """Count a stall's outcome; a page found ends deferral of its zone (S9.5)."""
    if pfn < 0:
        st[word_at(st, pr.COMPACT_FAIL)] += 1
        return
    st[word_at(st, pr.COMPACT_SUCCESS)] += 1
    zone = int(blocks[pfn >> st[at.PAGEBLOCK_ORDER]]["zone"]) - 1
    st[zone_pressure_at(st, zone) + pr.ZONE_FLUSH_SKIPS] = 0
    defer_no_more(st, zone, value_of(st, pr.REQUEST_ORDER), True)


@inner
def compacts_again(st: np.ndarray) -> bool:
    """Whether a request that reclaim has helped tries compaction again (S8.4)."""
    order = value_of(st, pr.REQUEST_ORDER)
    if order == 0:
        return False
    result = value_of(st, pr.COMPACT_RESULT)
    is_costly = order > st[at.COSTLY_ORDER]
    if result == pr.SKIPPED:
        return some_zone_would_suit(st, order)
    if result == pr.SUCCESS:
        most = RETRIES_OF_SUCCESS // 4 if is_costly else RETRIES_OF_SUCCESS
        st[word_at(st, pr.COMPACT_RETRIES)] += 1
        if value_of(st, pr.COMPACT_RETRIES) <= most:
            return True
    least = pr.SYNC_LIGHT if is_costly else pr.SYNC_FULL
    if value_of(st, pr.COMPACT_PRIORITY) > least:
        st[word_at(st, pr.COMPACT_PRIORITY)] -= 1
        st[word_at(st, pr.COMPACT_RETRIES)] = 0
        return True
    return False


@inner
def some_zone_would_suit(st: np.ndarray, order: int) -> bool:
    """Whether compaction would suit if reclaim went on (S8.4)."""
    position = value_of(st, pr.REQUEST_ZONELIST)
    highest = value_of(st, pr.REQUEST_HIGHEST)
    while st[position] >= 0:
        zone = st[position]
        position += 1
        free = reclaimable_pages(st, zone) // order + seen_free(st, zone)
        if is_suitable(st, zone, order, mark_pages(st, zone, at.WMARK_MIN), highest, free):
            return True
    return False
