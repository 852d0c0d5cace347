"""Compaction's source scanner: movable folios, from below (S9.3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.allocator.pressure.compaction_blocks import (
    begins_block,
    block_is_of_zone,
    get_pageblock_skip,
    isolation_suitable,
    pageblock_aligned,
    pageblock_end_pfn,
    pageblock_start_pfn,
    set_pageblock_skip,
    stepped_over,
    suitable_migration_source,
    update_cached_migrate,
)
from pagealloc_model.allocator.pressure.compaction_lists import (
    buddies_of,
    freelist_scan_limit,
    move_freelist_tail,
)
from pagealloc_model.allocator.pressure.draws import CONTENDS, draw
from pagealloc_model.allocator.pressure.lru import lruvec_add_folio, lruvec_del_folio
from pagealloc_model.allocator.pressure.pressure_offsets import compactor_at, value_of, word_at
from pagealloc_model.base.jit import inner


@inner
def skip_isolation_on_order(m: at.MachineArrays, run: int, order: int) -> bool:
    """skip_isolation_on_order(): return whether a large folio is not worth moving (S9.3)."""
    if not m.st[at.RULE_COMPACTION_MOVES_COMPOUND_PAGES]:
        return True
    wanted = m.st[run + pr.RUN_ORDER]
    return order >= m.st[at.PAGEBLOCK_ORDER] or 0 < wanted <= order


@inner
def isolate_folio(m: at.MachineArrays, run: int, pfn: int) -> None:
    """Part of isolate_migratepages_block(): put a folio before those isolated so far."""
    m.pages[pfn]["prev"] = lruvec_del_folio(m, pfn)
    m.pages[pfn]["next"] = m.st[run + pr.RUN_SOURCES]
    m.st[run + pr.RUN_SOURCES] = pfn
    m.st[run + pr.RUN_SOURCE_PAGES] += 1 << int(m.pages[pfn]["order"])


@inner
def folio_putback_lru(m: at.MachineArrays, pfn: int) -> None:
    """folio_putback_lru(): return an isolated folio to the LRU list it was on."""
    lruvec_add_folio(m, pfn, int(m.pages[pfn]["prev"]))


@inner
def putback_movable_pages(m: at.MachineArrays, run: int) -> None:
    """putback_movable_pages(): return all isolated folios to their LRU lists."""
    pfn = m.st[run + pr.RUN_SOURCES]
    while pfn >= 0:
        following = int(m.pages[pfn]["next"])
        folio_putback_lru(m, pfn)
        pfn = following
    m.st[run + pr.RUN_SOURCES] = -1
    m.st[run + pr.RUN_SOURCE_PAGES] = 0


@inner
def compact_lock_irqsave(m: at.MachineArrays, run: int, pfn: int) -> None:
    """compact_lock_irqsave(): note whether an asynchronous run meets others at a lock (S9.8).

    They are drawn by chance, once for each block of a request's runs.
    """
    if m.st[run + pr.RUN_MODE] != pr.ASYNC or m.st[run + pr.RUN_CONTENDED]:
        return
    block = pfn >> m.st[at.PAGEBLOCK_ORDER]
    drawn = draw(m, block, CONTENDS, m.st[at.COUNT_ALLOC])
    m.st[run + pr.RUN_CONTENDED] = drawn < value_of(m, pr.COMPACTION_CONTENDED)


@inner
def isolate_migratepages_block(m: at.MachineArrays, run: int, low: int, end: int) -> None:
    """isolate_migratepages_block(): take movable folios from one block (S9.3).

    A cluster at most, or all if the run finishes the block. An asynchronous direct run gives up an
    order-aligned range at its first page that cannot move, and ends behind one it could take whole.
    """
    zone = m.st[run + pr.RUN_ZONE] - 1
    finishes = m.st[run + pr.RUN_FINISHES_BLOCK] != 0
    gives_up = m.st[run + pr.RUN_DIRECT] != 0 and m.st[run + pr.RUN_MODE] == pr.ASYNC
    span = 1 << max(m.st[run + pr.RUN_ORDER], 0)
    range_end = ((low // span) + 1) * span
    scanned = 0
    isolated = 0
    begun = -1
    is_marked = False
    while low < end:
        if gives_up and low >= range_end:
            if isolated > 0:
                break
            range_end = ((low // span) + 1) * span
        scanned += 1
        if begun < 0 and begins_block(m, zone, low):
            if not isolation_suitable(m, run, low):
                low = end
                break
            begun = low
        where = int(m.pages[low]["where"])
        order = int(m.pages[low]["order"])
        if where == at.BUDDY:
            scanned += stepped_over(m, order)
            low += 1 << order
            continue
        if where == at.ALLOCATED and order > 0 and skip_isolation_on_order(m, run, order):
            low += (1 << order) - 1
            scanned += stepped_over(m, order)
        elif where == at.ALLOCATED and int(m.folios[low]["place"]) != 0:
            if not is_marked and begun >= 0:
                is_marked = True
                marks = low == begun or m.st[at.RULE_ANY_ISOLATION_MARKS_BLOCK] != 0
                if marks and not m.st[run + pr.RUN_IGNORES_SKIPS]:
                    set_pageblock_skip(m, begun, 1)
            if isolated == 0:
                compact_lock_irqsave(m, run, low)
            isolate_folio(m, run, low)
            isolated += 1 << order
            scanned += (1 << order) - 1
            low += 1 << order
            is_hurried = finishes or m.st[run + pr.RUN_CONTENDED] != 0
            if m.st[run + pr.RUN_SOURCE_PAGES] >= pr.CLUSTER and not is_hurried:
                break
            continue
        if gives_up:
            if isolated > 0:
                putback_movable_pages(m, run)
                isolated = 0
            if low < range_end:
                low = range_end - 1
                range_end += span
        low += 1
    low = min(low, end)
    if low == end and (isolated == 0 or finishes):
        if begun >= 0 and not is_marked:
            set_pageblock_skip(m, begun, 1)
        update_cached_migrate(m, run, low)
    m.st[run + pr.RUN_MIGRATE_SCANNED] += scanned
    m.st[word_at(m, pr.COMPACT_ISOLATED)] += isolated
    m.st[run + pr.RUN_MIGRATE] = low


@inner
def reinit_migrate_pfn(m: at.MachineArrays, run: int) -> int:
    """reinit_migrate_pfn(): return where a linear scan begins after fast searches ended (S9.3)."""
    start = m.st[run + pr.RUN_FAST_START]
    if start != 0 and start != pr.SEARCHED:
        m.st[run + pr.RUN_MIGRATE] = start
        m.st[run + pr.RUN_FAST_START] = pr.SEARCHED
    return m.st[run + pr.RUN_MIGRATE]


@inner
def may_search_fast(m: at.MachineArrays, run: int, zone_start: int) -> bool:
    """Part of fast_find_migrateblock(): return whether a run may choose another block (S9.3)."""
    pfn = m.st[run + pr.RUN_MIGRATE]
    if m.st[run + pr.RUN_IGNORES_SKIPS]:
        return False
    if m.st[run + pr.RUN_FINISHES_BLOCK] and m.st[at.RULE_FAILED_BLOCKS_FINISHED]:
        return False
    if pfn != zone_start and not pageblock_aligned(m, pfn):
        return False
    if m.st[run + pr.RUN_ORDER] <= m.st[at.POLICY_COSTLY_ORDER]:
        return False
    if not m.st[run + pr.RUN_DIRECT] or m.st[run + pr.RUN_TYPE] == at.MOVABLE:
        return True
    return (
        m.st[at.RULE_ASYNC_SOURCE_BY_ORDER] != 0
        and m.st[run + pr.RUN_ORDER] >= m.st[at.PAGEBLOCK_ORDER]
    )


@inner
def candidate_block(
    m: at.MachineArrays, lst: int, high: int, scanned: int, limit: int
) -> tuple[int, int]:
    """Part of fast_find_migrateblock(): search a free list for a block below `high`.

    Returns the free page found, or -1, and how many were looked at so far.
    """
    page = m.st[lst + at.HEAD]
    while page >= 0:
        scanned += 1
        if scanned > limit:
            move_freelist_tail(m, lst, page)
            return -1, scanned
        if page < high and not get_pageblock_skip(m, page):
            move_freelist_tail(m, lst, page)
            return page, scanned
        page = int(m.pages[page]["next"])
    return -1, scanned


@inner
def fast_find_migrateblock(m: at.MachineArrays, run: int) -> int:
    """fast_find_migrateblock(): look in free lists for a block that is partly free (S9.3).

    Returns where the source scanner goes on.
    """
    zone = m.st[run + pr.RUN_ZONE] - 1
    zone_start = m.st[zone_at(zone) + at.ZONE_START]
    if not may_search_fast(m, run, zone_start):
        return m.st[run + pr.RUN_MIGRATE]
    limit = freelist_scan_limit(m, run)
    distance = (m.st[run + pr.RUN_FREE] - m.st[run + pr.RUN_MIGRATE]) >> 1
    if m.st[run + pr.RUN_MIGRATE] != zone_start:
        distance >>= 2
    high = pageblock_start_pfn(m, m.st[run + pr.RUN_MIGRATE] + distance)
    scanned = 0
    found = -1
    order = m.st[run + pr.RUN_ORDER] - 1
    while order >= m.st[at.POLICY_COSTLY_ORDER] and found < 0 and scanned < limit:
        if buddies_of(m, zone, order) > 0:
            lst = free_list_at(zone, order, at.MOVABLE)
            found, scanned = candidate_block(m, lst, high, scanned, limit)
        order -= 1
    m.st[run + pr.RUN_MIGRATE_SCANNED] += scanned
    if found < 0:
        m.st[run + pr.RUN_SEARCH_FAIL] += 1
        return reinit_migrate_pfn(m, run)
    start = m.st[run + pr.RUN_FAST_START]
    if start != pr.SEARCHED:
        m.st[run + pr.RUN_FAST_START] = found if start == 0 else min(start, found)
    m.st[run + pr.RUN_SEARCH_FAIL] = 0
    if m.st[at.RULE_FAST_SOURCES_MARKED]:
        set_pageblock_skip(m, found, 1)
    return max(pageblock_start_pfn(m, found), zone_start)


@inner
def isolate_migratepages(m: at.MachineArrays, number: int) -> None:
    """isolate_migratepages(): take movable folios from the next block that is a source (S9.3).

    The position moves on, up to the block of the other scanner.
    """
    run = compactor_at(m, number)
    zone = m.st[run + pr.RUN_ZONE] - 1
    zone_start = m.st[zone_at(zone) + at.ZONE_START]
    low = fast_find_migrateblock(m, run)
    start = max(pageblock_start_pfn(m, low), zone_start)
    is_fast = low != m.st[run + pr.RUN_MIGRATE] and m.st[run + pr.RUN_SEARCH_FAIL] == 0
    end = pageblock_end_pfn(m, low)
    while end <= m.st[run + pr.RUN_FREE]:
        may_enter = not begins_block(m, zone, low) or is_fast or isolation_suitable(m, run, start)
        if block_is_of_zone(m, zone, start) and may_enter:
            if suitable_migration_source(m, run, start):
                isolate_migratepages_block(m, run, low, end)
                return
            update_cached_migrate(m, run, end)
        is_fast = False
        m.st[run + pr.RUN_MIGRATE] = end
        low = end
        start = end
        end += 1 << m.st[at.PAGEBLOCK_ORDER]
