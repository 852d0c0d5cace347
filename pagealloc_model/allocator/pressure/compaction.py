"""A compaction run of one zone, unit by unit: scan, move, finish, give back (S9)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.buddy import __add_to_free_list, __del_page_from_free_list
from pagealloc_model.allocator.core.counters import account_freepages
from pagealloc_model.allocator.core.fallback_search import find_suitable_fallback
from pagealloc_model.allocator.core.offsets import free_list_at, node_at, zone_at
from pagealloc_model.allocator.core.pcp_drain import drain_pages_zone
from pagealloc_model.allocator.core.watermark import (
    __zone_watermark_ok,
    free_in_whole_blocks,
    wmark_pages,
)
from pagealloc_model.allocator.pressure.compaction_gates import (
    __reset_isolation_suitable,
    compaction_restarting,
    first_page_of,
    fragmentation_score_zone,
    last_block_of,
    reset_cached_positions,
)
from pagealloc_model.allocator.pressure.compaction_scanners import (
    isolate_freepages,
    isolate_migratepages,
    take_target,
)
from pagealloc_model.allocator.pressure.draws import CONTENDS, draw, migration_fails
from pagealloc_model.allocator.pressure.folios import free_waiting, queue_free, replace_piece
from pagealloc_model.allocator.pressure.lru import lruvec_add_folio
from pagealloc_model.allocator.pressure.pressure_offsets import (
    compactor_at,
    node_pressure_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import cold, inner


@inner
def begin_compaction(
    m: at.MachineArrays, number: int, zone: int, order: int, migratetype: int, mode: int, cpu: int
) -> None:
    """Part of compact_zone(): set a compactor's run up, where its scanners begin (S9.3)."""
    run = compactor_at(m, number)
    if order > 0 and compaction_restarting(m, zone, order):
        __reset_isolation_suitable(m, zone)
    words = zone_pressure_at(m, zone)
    migrate = m.st[words + pr.ZONE_MIGRATE_ASYNC]
    if mode != pr.ASYNC:
        migrate = m.st[words + pr.ZONE_MIGRATE_SYNC]
    free = m.st[words + pr.ZONE_FREE_FROM]
    lowest = first_page_of(m, zone)
    highest = last_block_of(m, zone)
    whole = mode == pr.SYNC_FULL or order < 0
    if whole or migrate < lowest or migrate > highest:
        migrate = lowest
    if whole or free < lowest or free > highest:
        free = highest
    m.st[run + pr.RUN_ZONE] = zone + 1
    m.st[run + pr.RUN_ORDER] = order
    m.st[run + pr.RUN_TYPE] = migratetype
    m.st[run + pr.RUN_MODE] = mode
    m.st[run + pr.RUN_DIRECT] = number == 0
    m.st[run + pr.RUN_CAPTURES] = 0
    m.st[run + pr.RUN_MIGRATE] = migrate
    m.st[run + pr.RUN_FREE] = free
    m.st[run + pr.RUN_WHOLE] = migrate == lowest
    m.st[run + pr.RUN_LAST_MIGRATED] = -1
    m.st[run + pr.RUN_HELD] = 0
    m.st[run + pr.RUN_CAPTURED] = -1
    m.st[run + pr.RUN_CPU] = cpu
    m.st[run + pr.RUN_SOURCES] = -1
    m.st[run + pr.RUN_SOURCE_PAGES] = 0
    for current in range(at.ORDERS):
        m.st[run + pr.RUN_TARGETS + current] = -1


@inner
def has_page_for(m: at.MachineArrays, zone: int, order: int, migratetype: int) -> bool:
    """Part of __compact_finished(): return whether a request's type can get a page now (S9.4).

    It can if it has a free buddy, or may claim one of another type.
    """
    for current in range(order, m.st[at.MAX_ORDER] + 1):
        if m.st[free_list_at(zone, current, migratetype) + at.HEAD] >= 0:
            return True
        if migratetype == at.MOVABLE:
            if m.st[at.CMA] >= 0 and m.st[free_list_at(zone, current, m.st[at.CMA]) + at.HEAD] >= 0:
                return True
            if current < m.st[at.PAGEBLOCK_ORDER] // 2:
                continue
        if find_suitable_fallback(m, zone, current, migratetype) >= 0:
            return True
    return False


@inner
def __compact_finished(m: at.MachineArrays, number: int) -> int:
    """__compact_finished(): return CONTINUE, or how the run ended (S9.3, S9.4)."""
    run = compactor_at(m, number)
    zone = m.st[run + pr.RUN_ZONE] - 1
    block_order = m.st[at.PAGEBLOCK_ORDER]
    migrate = m.st[run + pr.RUN_MIGRATE]
    if m.st[run + pr.RUN_FREE] >> block_order <= migrate >> block_order:
        reset_cached_positions(m, zone)
        if m.st[run + pr.RUN_DIRECT]:
            m.st[zone_pressure_at(m, zone) + pr.ZONE_FLUSH_SKIPS] = 1
        return pr.COMPLETE if m.st[run + pr.RUN_WHOLE] else pr.PARTIAL_SKIPPED
    node = m.st[zone_at(zone) + at.ZONE_NODE]
    if m.st[run + pr.RUN_ORDER] < 0:
        if m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE]:
            return pr.PARTIAL_SKIPPED
        low = max(100 - m.st[at.POLICY_COMPACTION_PROACTIVENESS], 5)
        return pr.CONTINUE if fragmentation_score_zone(m, zone) > low else pr.SUCCESS
    if migrate & ((1 << block_order) - 1):
        return pr.CONTINUE
    order = m.st[run + pr.RUN_ORDER]
    if m.st[at.BLOCK_WATERMARKS] and not m.st[run + pr.RUN_DIRECT]:
        mark = wmark_pages(m, zone, at.WMARK_HIGH)
        free = free_in_whole_blocks(m, zone)
        highest = m.st[node_pressure_at(m, node) + pr.KCOMPACTD_RUN_HIGHEST]
        enough = __zone_watermark_ok(m, zone, order, mark, highest, 0, free)
        return pr.SUCCESS if enough else pr.CONTINUE
    return pr.SUCCESS if has_page_for(m, zone, order, m.st[run + pr.RUN_TYPE]) else pr.CONTINUE


@inner
def is_contended(m: at.MachineArrays, run: int) -> bool:
    """No kernel function: return whether an asynchronous direct run gives way here (S9.8).

    Others at its block are drawn by chance; the kernel tests locks and whether to reschedule.
    """
    if m.st[run + pr.RUN_MODE] != pr.ASYNC or not m.st[run + pr.RUN_DIRECT]:
        return False
    block = m.st[run + pr.RUN_MIGRATE] >> m.st[at.PAGEBLOCK_ORDER]
    return draw(m, block, CONTENDS, m.st[at.COUNT_ALLOC]) < value_of(m, pr.COMPACTION_CONTENDED)


@inner
def folio_putback_lru(m: at.MachineArrays, pfn: int) -> None:
    """folio_putback_lru(): return an isolated folio to the LRU list it was on."""
    lruvec_add_folio(m, pfn, int(m.pages[pfn]["prev"]))


@inner
def migrate_folio_move(m: at.MachineArrays, source: int, target: int) -> None:
    """migrate_folio_move(): move a folio to another page; the old one waits to be freed."""
    lst = int(m.pages[source]["prev"])
    replace_piece(m, source, target)
    m.pages[target]["where"] = at.ALLOCATED
    m.pages[target]["tag"] = m.pages[source]["tag"]
    lruvec_add_folio(m, target, lst)
    queue_free(m, source)


@inner
def migrate_pages(m: at.MachineArrays, number: int) -> tuple[int, int, bool]:
    """migrate_pages(): move the unit's folios to free pages (S9.3).

    Returns:
        Pages moved, frames that the free scanner looked at, whether it found too few free pages.
    """
    run = compactor_at(m, number)
    moved = 0
    scanned = 0
    lacking = False
    while m.st[run + pr.RUN_SOURCES] >= 0:
        source = m.st[run + pr.RUN_SOURCES]
        m.st[run + pr.RUN_SOURCES] = int(m.pages[source]["next"])
        order = int(m.pages[source]["order"])
        left = m.st[run + pr.RUN_SOURCE_PAGES]
        m.st[run + pr.RUN_SOURCE_PAGES] = left - (1 << order)
        target = -1
        if not lacking and not migration_fails(m, source):
            target = take_target(m, run, order)
            if target < 0:
                scanned += isolate_freepages(m, number, left)
                target = take_target(m, run, order)
                lacking = target < 0 and m.st[run + pr.RUN_HELD] == 0
        if target < 0:
            folio_putback_lru(m, source)
            if not lacking:
                m.st[word_at(m, pr.PGMIGRATE_FAIL)] += 1 << order
        else:
            migrate_folio_move(m, source, target)
            m.st[word_at(m, pr.PGMIGRATE_SUCCESS)] += 1 << order
            m.st[run + pr.RUN_LAST_MIGRATED] = source
            moved += 1 << order
    return moved, scanned, lacking


@inner
def compaction_capture(m: at.MachineArrays, number: int, pfn: int) -> bool:
    """compaction_capture(): take the aligned page completed by the run's own frees (S9.7).

    Returns whether there is such a page around `pfn`.
    """
    run = compactor_at(m, number)
    zone = m.st[run + pr.RUN_ZONE] - 1
    order = m.st[run + pr.RUN_ORDER]
    first = pfn & ~((1 << order) - 1)
    head = -1
    for current in range(order, m.st[at.MAX_ORDER] + 1):
        candidate = first & ~((1 << current) - 1)
        is_free = int(m.pages[candidate]["where"]) == at.BUDDY
        if is_free and int(m.pages[candidate]["order"]) == current:
            head = candidate
    if head < 0:
        return False
    migratetype = int(m.pages[head]["tag"])
    if migratetype == m.st[at.CMA] or migratetype == m.st[at.ISOLATE]:
        return False
    if (
        migratetype == at.MOVABLE
        and m.st[run + pr.RUN_TYPE] != at.MOVABLE
        and order < m.st[at.PAGEBLOCK_ORDER]
    ):
        return False
    found = int(m.pages[head]["order"])
    __del_page_from_free_list(m, zone, head)
    account_freepages(m, zone, migratetype, -(1 << order))
    for current in range(found - 1, order - 1, -1):
        half = head + (1 << current)
        if first & (1 << current):
            __add_to_free_list(m, zone, head, current, migratetype, False)
            head = half
        else:
            __add_to_free_list(m, zone, half, current, migratetype, False)
    m.pages[first]["flags"] = 0
    m.st[run + pr.RUN_CAPTURED] = first
    return True


@cold
def compact_unit(m: at.MachineArrays, number: int) -> tuple[int, int]:
    """Part of compact_zone(): do a run's next unit of work, and end the run with its last (S9.3).

    Returns:
        CONTINUE, or how the run ended, and the time that it took, ns.
    """
    zone = m.st[compactor_at(m, number) + pr.RUN_ZONE] - 1
    status, cost, drains = move_cluster(m, number)
    if status != pr.CONTINUE:
        end_compaction(m, number)
    free_waiting(m)
    if drains:
        drain_pages_zone(m, zone, m.st[at.EVENT_CPU])
    return status, cost


@inner
def move_cluster(m: at.MachineArrays, number: int) -> tuple[int, int, bool]:
    """Part of compact_zone(): move a cluster of pages, which then wait to be freed (S9.3).

    Returns:
        CONTINUE, or how the run ended; the time that it took, ns; whether the acting CPU's list of
        the zone is to be drained, as an aligned page may be complete.
    """
    run = compactor_at(m, number)
    order = m.st[run + pr.RUN_ORDER]
    last = m.st[run + pr.RUN_LAST_MIGRATED]
    if last >= 0 and order > 0 and last >> order < m.st[run + pr.RUN_MIGRATE] >> order:
        m.st[run + pr.RUN_LAST_MIGRATED] = -1
        if m.st[run + pr.RUN_CAPTURES] and compaction_capture(m, number, last):
            return pr.SUCCESS, 0, False
    status = __compact_finished(m, number)
    if status != pr.CONTINUE:
        return status, 0, False
    if is_contended(m, run):
        return pr.CONTENDED, 0, False
    scanned = isolate_migratepages(m, number)
    moved, looked_at, lacking = migrate_pages(m, number)
    cost = (scanned + looked_at) * value_of(m, pr.COMPACT_SCAN_NS)
    cost += moved * value_of(m, pr.COMPACT_MIGRATE_NS)
    if not m.st[run + pr.RUN_DIRECT]:
        m.st[word_at(m, pr.DAEMON_MIGRATE_SCANNED)] += scanned
        m.st[word_at(m, pr.DAEMON_FREE_SCANNED)] += looked_at
    last = m.st[run + pr.RUN_LAST_MIGRATED]
    drains = last >= 0 and order > 0 and last >> order < m.st[run + pr.RUN_MIGRATE] >> order
    have_met = m.st[run + pr.RUN_FREE] <= m.st[run + pr.RUN_MIGRATE]
    status = pr.CONTENDED if lacking and not have_met else pr.CONTINUE
    return status, max(cost, 1000), drains


@inner
def end_compaction(m: at.MachineArrays, number: int) -> None:
    """Part of compact_zone(): give the free pages held back (S9.3).

    The free scanner's next run begins above them.
    """
    run = compactor_at(m, number)
    zone = m.st[run + pr.RUN_ZONE] - 1
    highest = -1
    for order in range(at.ORDERS):
        pfn = m.st[run + pr.RUN_TARGETS + order]
        while pfn >= 0:
            following = int(m.pages[pfn]["next"])
            m.pages[pfn]["where"] = at.ALLOCATED
            m.folios[pfn]["place"] = 0
            highest = max(highest, pfn)
            queue_free(m, pfn)
            pfn = following
        m.st[run + pr.RUN_TARGETS + order] = -1
    if highest >= 0:
        block = highest >> m.st[at.PAGEBLOCK_ORDER] << m.st[at.PAGEBLOCK_ORDER]
        words = zone_pressure_at(m, zone)
        m.st[words + pr.ZONE_FREE_FROM] = max(m.st[words + pr.ZONE_FREE_FROM], block)
    m.st[run + pr.RUN_HELD] = 0
    m.st[run + pr.RUN_ZONE] = 0
