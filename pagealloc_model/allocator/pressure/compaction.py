"""A compaction run of one zone, unit by unit: scan, move, finish, give back (S9)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.buddy import add_buddy, remove_buddy
from pagealloc_model.allocator.core.counters import account_free
from pagealloc_model.allocator.core.fallback_search import find_fallback
from pagealloc_model.allocator.core.offsets import free_list_at, node_at, zone_at
from pagealloc_model.allocator.core.watermark import above_mark, free_in_whole_blocks, mark_pages
from pagealloc_model.allocator.pressure.compaction_gates import (
    first_page_of,
    forget_skips,
    fragmentation_score,
    is_restarting,
    last_block_of,
    reset_positions,
)
from pagealloc_model.allocator.pressure.compaction_scanners import (
    isolate_sources,
    isolate_targets,
    take_target,
)
from pagealloc_model.allocator.pressure.draws import CONTENDS, draw, migration_fails
from pagealloc_model.allocator.pressure.folios import queue_free, replace_piece
from pagealloc_model.allocator.pressure.lru import lru_add
from pagealloc_model.allocator.pressure.pressure_offsets import (
    compactor_at,
    node_pressure_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import inner


@inner
def begin_compaction(
    st: np.ndarray,
    blocks: np.ndarray,
    folios: np.ndarray,
    number: int,
    zone: int,
    order: int,
    migratetype: int,
    mode: int,
    cpu: int,
) -> None:
    """Set a compactor's run up: where its scanners begin (S9.3)."""
    run = compactor_at(st, number)
    if order > 0 and is_restarting(st, zone, order):
        forget_skips(st, blocks, folios, zone)
    words = zone_pressure_at(st, zone)
    migrate = st[words + pr.ZONE_MIGRATE_ASYNC]
    if mode != pr.ASYNC:
        migrate = st[words + pr.ZONE_MIGRATE_SYNC]
    free = st[words + pr.ZONE_FREE_FROM]
    lowest = first_page_of(st, zone)
    highest = last_block_of(st, zone)
    whole = mode == pr.SYNC_FULL or order < 0
    if whole or migrate < lowest or migrate > highest:
        migrate = lowest
    if whole or free < lowest or free > highest:
        free = highest
    st[run + pr.RUN_ZONE] = zone + 1
    st[run + pr.RUN_ORDER] = order
    st[run + pr.RUN_TYPE] = migratetype
    st[run + pr.RUN_MODE] = mode
    st[run + pr.RUN_DIRECT] = number == 0
    st[run + pr.RUN_MIGRATE] = migrate
    st[run + pr.RUN_FREE] = free
    st[run + pr.RUN_WHOLE] = migrate == lowest
    st[run + pr.RUN_LAST_MIGRATED] = -1
    st[run + pr.RUN_HELD] = 0
    st[run + pr.RUN_CAPTURED] = -1
    st[run + pr.RUN_CPU] = cpu
    st[run + pr.RUN_SOURCES] = -1
    st[run + pr.RUN_SOURCE_PAGES] = 0
    for current in range(at.ORDERS):
        st[run + pr.RUN_TARGETS + current] = -1


@inner
def has_page_for(st: np.ndarray, zone: int, order: int, migratetype: int) -> bool:
    """Whether a request's type has a free buddy, or may claim one of another type (S9.4)."""
    for current in range(order, st[at.MAX_ORDER] + 1):
        if st[free_list_at(zone, current, migratetype) + at.HEAD] >= 0:
            return True
        if migratetype == at.MOVABLE:
            if st[at.CMA] >= 0 and st[free_list_at(zone, current, st[at.CMA]) + at.HEAD] >= 0:
                return True
            if current < st[at.PAGEBLOCK_ORDER] // 2:
                continue
        if find_fallback(st, zone, current, migratetype) >= 0:
            return True
    return False


@inner
def finished(st: np.ndarray, number: int) -> int:
    """Whether a run goes on (CONTINUE), or how it ended (S9.3, S9.4)."""
    run = compactor_at(st, number)
    zone = st[run + pr.RUN_ZONE] - 1
    block_order = st[at.PAGEBLOCK_ORDER]
    migrate = st[run + pr.RUN_MIGRATE]
    if st[run + pr.RUN_FREE] >> block_order <= migrate >> block_order:
        reset_positions(st, zone)
        if st[run + pr.RUN_DIRECT]:
            st[zone_pressure_at(st, zone) + pr.ZONE_FLUSH_SKIPS] = 1
        return pr.COMPLETE if st[run + pr.RUN_WHOLE] else pr.PARTIAL_SKIPPED
    node = st[zone_at(zone) + at.ZONE_NODE]
    if st[run + pr.RUN_ORDER] < 0:
        if st[node_at(st, node) + at.NODE_KSWAPD_ACTIVE]:
            return pr.PARTIAL_SKIPPED
        low = max(100 - value_of(st, pr.PROACTIVENESS), 5)
        return pr.CONTINUE if fragmentation_score(st, zone) > low else pr.SUCCESS
    if migrate & ((1 << block_order) - 1):
        return pr.CONTINUE
    order = st[run + pr.RUN_ORDER]
    if st[at.BLOCK_WATERMARKS] and not st[run + pr.RUN_DIRECT]:
        mark = mark_pages(st, zone, at.WMARK_HIGH)
        free = free_in_whole_blocks(st, zone)
        highest = st[node_pressure_at(st, node) + pr.KCOMPACTD_RUN_HIGHEST]
        enough = above_mark(st, zone, order, mark, highest, 0, free)
        return pr.SUCCESS if enough else pr.CONTINUE
    return pr.SUCCESS if has_page_for(st, zone, order, st[run + pr.RUN_TYPE]) else pr.CONTINUE


@inner
def is_contended(st: np.ndarray, run: int) -> bool:
    """Whether an asynchronous direct run gives way to others at its block (S9.8)."""
    if st[run + pr.RUN_MODE] != pr.ASYNC or not st[run + pr.RUN_DIRECT]:
        return False
    block = st[run + pr.RUN_MIGRATE] >> st[at.PAGEBLOCK_ORDER]
    return draw(st, block, CONTENDS, st[at.COUNT_ALLOC]) < value_of(st, pr.COMPACTION_CONTENDED)


@inner
def put_back(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, pfn: int
) -> None:
    """Return an isolated folio to the LRU list it was on."""
    lru_add(pages, blocks, st, folios, pfn, int(pages[pfn]["prev"]))


@inner
def move_folio(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    source: int,
    target: int,
) -> None:
    """Move a folio to another page; the old one waits to be freed."""
    lst = int(pages[source]["prev"])
    replace_piece(folios, places, source, target)
    pages[target]["where"] = at.ALLOCATED
    pages[target]["tag"] = pages[source]["tag"]
    lru_add(pages, blocks, st, folios, target, lst)
    queue_free(pages, blocks, st, folios, source)


@inner
def migrate_sources(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    number: int,
) -> tuple[int, int, bool]:
    """Move the unit's folios to free pages (S9.3).

    Returns:
        Pages moved, frames that the free scanner looked at, whether it found too few free pages.
    """
    run = compactor_at(st, number)
    moved = 0
    scanned = 0
    lacking = False
    while st[run + pr.RUN_SOURCES] >= 0:
        source = st[run + pr.RUN_SOURCES]
        st[run + pr.RUN_SOURCES] = int(pages[source]["next"])
        order = int(pages[source]["order"])
        left = st[run + pr.RUN_SOURCE_PAGES]
        st[run + pr.RUN_SOURCE_PAGES] = left - (1 << order)
        target = -1
        if not lacking and not migration_fails(folios, st, source):
            target = take_target(pages, st, run, order)
            if target < 0:
                scanned += isolate_targets(pages, blocks, st, folios, number, left)
                target = take_target(pages, st, run, order)
                lacking = target < 0 and st[run + pr.RUN_HELD] == 0
        if target < 0:
            put_back(pages, blocks, st, folios, source)
            if not lacking:
                st[word_at(st, pr.PGMIGRATE_FAIL)] += 1 << order
        else:
            move_folio(pages, blocks, st, folios, places, source, target)
            st[word_at(st, pr.PGMIGRATE_SUCCESS)] += 1 << order
            st[run + pr.RUN_LAST_MIGRATED] = source
            moved += 1 << order
    return moved, scanned, lacking


@inner
def capture(pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, number: int, pfn: int) -> bool:
    """Take the aligned page that the run's own frees have completed at `pfn` (S9.7)."""
    run = compactor_at(st, number)
    zone = st[run + pr.RUN_ZONE] - 1
    order = st[run + pr.RUN_ORDER]
    first = pfn & ~((1 << order) - 1)
    head = -1
    for current in range(order, st[at.MAX_ORDER] + 1):
        candidate = first & ~((1 << current) - 1)
        is_free = int(pages[candidate]["where"]) == at.BUDDY
        if is_free and int(pages[candidate]["order"]) == current:
            head = candidate
    if head < 0:
        return False
    migratetype = int(pages[head]["tag"])
    if migratetype == st[at.CMA] or migratetype == st[at.ISOLATE]:
        return False
    if (
        migratetype == at.MOVABLE
        and st[run + pr.RUN_TYPE] != at.MOVABLE
        and order < st[at.PAGEBLOCK_ORDER]
    ):
        return False
    found = int(pages[head]["order"])
    remove_buddy(pages, st, zone, head)
    account_free(st, zone, migratetype, -(1 << order))
    for current in range(found - 1, order - 1, -1):
        half = head + (1 << current)
        if first & (1 << current):
            add_buddy(pages, st, zone, head, current, migratetype, False)
            head = half
        else:
            add_buddy(pages, st, zone, half, current, migratetype, False)
    st[run + pr.RUN_CAPTURED] = first
    return True


@inner
def compact_unit(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    number: int,
) -> int:
    """Do a run's next unit of work; CONTINUE, or how the run ended (S9.3).

    What it moved away from waits to be freed, and a zone's lists to be drained, when it returns.
    """
    run = compactor_at(st, number)
    zone = st[run + pr.RUN_ZONE] - 1
    order = st[run + pr.RUN_ORDER]
    last = st[run + pr.RUN_LAST_MIGRATED]
    if last >= 0 and order > 0 and last >> order < st[run + pr.RUN_MIGRATE] >> order:
        st[run + pr.RUN_LAST_MIGRATED] = -1
        if st[run + pr.RUN_DIRECT] and capture(pages, blocks, st, number, last):
            return pr.SUCCESS
    status = finished(st, number)
    if status != pr.CONTINUE:
        return status
    if is_contended(st, run):
        return pr.CONTENDED
    scanned = isolate_sources(pages, blocks, st, folios, number)
    moved, looked_at, lacking = migrate_sources(pages, blocks, st, folios, places, number)
    cost = (scanned + looked_at) * value_of(st, pr.COMPACT_SCAN_NS)
    cost += moved * value_of(st, pr.COMPACT_MIGRATE_NS)
    st[run + pr.RUN_COST_NS] += max(cost, 1000)
    if not st[run + pr.RUN_DIRECT]:
        st[word_at(st, pr.DAEMON_MIGRATE_SCANNED)] += scanned
        st[word_at(st, pr.DAEMON_FREE_SCANNED)] += looked_at
    last = st[run + pr.RUN_LAST_MIGRATED]
    if last >= 0 and order > 0 and last >> order < st[run + pr.RUN_MIGRATE] >> order:
        st[word_at(st, pr.DRAINED_ZONE)] = zone + 1
    have_met = st[run + pr.RUN_FREE] <= st[run + pr.RUN_MIGRATE]
    return pr.CONTENDED if lacking and not have_met else pr.CONTINUE


@inner
def end_compaction(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, number: int
) -> None:
    """Give the free pages held back; the free scanner's next run begins above them (S9.3)."""
    run = compactor_at(st, number)
    zone = st[run + pr.RUN_ZONE] - 1
    highest = -1
    for order in range(at.ORDERS):
        pfn = st[run + pr.RUN_TARGETS + order]
        while pfn >= 0:
            following = int(pages[pfn]["next"])
            pages[pfn]["where"] = at.ALLOCATED
            folios[pfn]["place"] = 0
            highest = max(highest, pfn)
            queue_free(pages, blocks, st, folios, pfn)
            pfn = following
        st[run + pr.RUN_TARGETS + order] = -1
    if highest >= 0:
        block = highest >> st[at.PAGEBLOCK_ORDER] << st[at.PAGEBLOCK_ORDER]
        words = zone_pressure_at(st, zone)
        st[words + pr.ZONE_FREE_FROM] = max(st[words + pr.ZONE_FREE_FROM], block)
    st[run + pr.RUN_HELD] = 0
    st[run + pr.RUN_ZONE] = 0
