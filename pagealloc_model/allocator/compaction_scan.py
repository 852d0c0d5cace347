"""Compaction's scanners (S9.3): movable folios from below, free pages from above."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.buddy import (
    __del_page_from_free_list,
    move_freepages_block,
    set_pageblock_migratetype,
)
from pagealloc_model.allocator.event_log import forget_work
from pagealloc_model.allocator.layout import free_list_at, zone_at
from pagealloc_model.allocator.lru import CONTENDS, draw, lruvec_add_folio, lruvec_del_folio
from pagealloc_model.allocator.pressure_layout import (
    compactor_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.allocator.watermark import __zone_watermark_ok, account_freepages, seen_free
from pagealloc_model.base.jit import cold, inner


@inner
def pageblock_start_pfn(m: at.Arrays, pfn: int) -> int:
    """pageblock_start_pfn(): return the first page of a page's block."""
    order = m.st[at.PAGEBLOCK_ORDER]
    return pfn >> order << order


@inner
def pageblock_end_pfn(m: at.Arrays, pfn: int) -> int:
    """pageblock_end_pfn(): return the page behind a page's block."""
    order = m.st[at.PAGEBLOCK_ORDER]
    return ((pfn >> order) + 1) << order


@inner
def pageblock_aligned(m: at.Arrays, pfn: int) -> bool:
    """pageblock_aligned(): return whether a page is the first of a block."""
    return pfn & ((1 << m.st[at.PAGEBLOCK_ORDER]) - 1) == 0


@inner
def begins_block(m: at.Arrays, zone: int, pfn: int) -> bool:
    """Part of isolate_migratepages(): return whether a scan from a page has all of its block."""
    if pageblock_aligned(m, pfn):
        return True
    # from 6.12
    return m.st[at.RULE_ZONE_START_BEGINS_BLOCK] != 0 and pfn == m.st[zone_at(zone) + at.ZONE_START]


@inner
def stepped_over(m: at.Arrays, order: int) -> int:
    """Part of isolate_migratepages_block(): return what a step counts beyond one page (S9.3)."""
    return (1 << order) - 1 if m.st[at.RULE_SCANS_COUNT_SKIPPED_PAGES] else 0  # from 6.12


@inner
def block_is_of_zone(m: at.Arrays, zone: int, pfn: int) -> bool:
    """pageblock_pfn_to_page(): return whether the block around a page is one of a zone's."""
    if pfn < 0 or pfn >= m.st[at.END_PFN]:
        return False
    return int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["zone"]) == zone + 1


@inner
def block_type_of(m: at.Arrays, pfn: int) -> int:
    """get_pfnblock_migratetype(): return the type of the block around a page."""
    return int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["migratetype"])


@inner
def get_pageblock_skip(m: at.Arrays, pfn: int) -> bool:
    """get_pageblock_skip(): return whether compaction has a mark to leave a block out."""
    return int(m.folios[pageblock_start_pfn(m, pfn)]["skip"]) != 0


@inner
def set_pageblock_skip(m: at.Arrays, pfn: int, value: int) -> None:
    """set_pageblock_skip(): set the mark of a block, or clear it."""
    m.folios[pageblock_start_pfn(m, pfn)]["skip"] = value


@inner
def isolation_suitable(m: at.Arrays, run: int, pfn: int) -> bool:
    """isolation_suitable(): return whether a run heeds no skip mark of a block (S9.3)."""
    return m.st[run + pr.RUN_IGNORES_SKIPS] != 0 or not get_pageblock_skip(m, pfn)


@inner
def is_migrate_movable(m: at.Arrays, migratetype: int) -> bool:
    """is_migrate_movable(): return whether a block of this type is for movable pages."""
    return migratetype == at.MOVABLE or migratetype == m.st[at.CMA]


@inner
def pageblock_skip_persistent(m: at.Arrays, pfn: int) -> bool:
    """pageblock_skip_persistent(): return whether one allocation fills a page's block."""
    for order in range(m.st[at.PAGEBLOCK_ORDER], m.st[at.MAX_ORDER] + 1):
        head = pfn >> order << order
        if int(m.pages[head]["where"]) == at.ALLOCATED and int(m.pages[head]["order"]) >= order:
            return True
    return False


@inner
def is_on_lru(m: at.Arrays, pfn: int) -> bool:
    """Part of __reset_isolation_pfn(): return whether a page is part of a folio on an LRU list."""
    for order in range(m.st[at.MAX_ORDER] + 1):
        head = pfn >> order << order
        if int(m.pages[head]["where"]) == at.ALLOCATED:
            return int(m.pages[head]["order"]) >= order and int(m.folios[head]["place"]) != 0
    return False


@inner
def suitable_migration_source(m: at.Arrays, run: int, pfn: int) -> bool:
    """suitable_migration_source(): return whether a run moves pages out of a block (S9.3)."""
    if pageblock_skip_persistent(m, pfn):
        return False
    if not m.st[run + pr.RUN_DIRECT]:
        return True
    block_type = block_type_of(m, pfn)
    if (
        m.st[at.RULE_DIRECT_SOURCE_NEEDS_CMA]  # from 7.2
        and block_type == m.st[at.CMA]
        and not m.st[run + pr.RUN_FLAGS] & at.ALLOC_CMA
    ):
        return False
    if m.st[run + pr.RUN_MODE] != pr.ASYNC:
        return True
    if m.st[run + pr.RUN_TYPE] == at.MOVABLE or (
        # from 7.2
        m.st[at.RULE_ASYNC_SOURCE_BY_ORDER] and m.st[run + pr.RUN_ORDER] >= m.st[at.PAGEBLOCK_ORDER]
    ):
        return is_migrate_movable(m, block_type)
    return block_type == m.st[run + pr.RUN_TYPE]


@inner
def suitable_migration_target(m: at.Arrays, run: int, pfn: int) -> bool:
    """suitable_migration_target(): return whether to look for free pages in a block (S9.3)."""
    wanted = m.st[at.PAGEBLOCK_ORDER]
    if m.st[run + pr.RUN_ORDER] > 0 and m.st[at.RULE_TARGET_BLOCK_BY_ORDER]:  # from 6.12
        wanted = m.st[run + pr.RUN_ORDER]
    if int(m.pages[pfn]["where"]) == at.BUDDY and int(m.pages[pfn]["order"]) >= wanted:
        return False
    return m.st[run + pr.RUN_TAKES_ANY_BLOCK] != 0 or is_migrate_movable(m, block_type_of(m, pfn))


@inner
def reset_cached_positions(m: at.Arrays, zone: int) -> None:
    """reset_cached_positions(): let the scanners begin at the zone's ends again (S9.3)."""
    words = zone_pressure_at(m, zone)
    first = m.st[zone_at(zone) + at.ZONE_START]
    m.st[words + pr.ZONE_MIGRATE_ASYNC] = first
    m.st[words + pr.ZONE_MIGRATE_SYNC] = first
    m.st[words + pr.ZONE_FREE_FROM] = pageblock_start_pfn(m, m.st[zone_at(zone) + at.ZONE_END] - 1)


@inner
def update_cached_migrate(m: at.Arrays, run: int, pfn: int) -> None:
    """update_cached_migrate(): let later runs begin behind the block around a page (S9.3)."""
    words = zone_pressure_at(m, m.st[run + pr.RUN_ZONE] - 1)
    end = pageblock_end_pfn(m, pfn)
    m.st[words + pr.ZONE_MIGRATE_ASYNC] = max(m.st[words + pr.ZONE_MIGRATE_ASYNC], end)
    if m.st[run + pr.RUN_MODE] != pr.ASYNC:
        m.st[words + pr.ZONE_MIGRATE_SYNC] = max(m.st[words + pr.ZONE_MIGRATE_SYNC], end)


@inner
def __reset_isolation_pfn(
    m: at.Arrays, zone: int, pfn: int, as_source: bool, as_target: bool
) -> bool:
    """__reset_isolation_pfn(): clear a block's skip mark if a sample shows pages to work with."""
    if not block_is_of_zone(m, zone, pfn) or pageblock_skip_persistent(m, pfn):
        return False
    if as_source and as_target and not get_pageblock_skip(m, pfn):
        return True
    if not as_source and as_target and block_type_of(m, pfn) != at.MOVABLE:
        return False
    page = max(pageblock_start_pfn(m, pfn), m.st[zone_at(zone) + at.ZONE_START])
    end = min(pageblock_end_pfn(m, page), m.st[zone_at(zone) + at.ZONE_END])
    while page < end:
        if (as_source and is_on_lru(m, page)) or (
            as_target and int(m.pages[page]["where"]) == at.BUDDY
        ):
            set_pageblock_skip(m, page, 0)
            return True
        page += 1 << m.st[at.POLICY_COSTLY_ORDER]
    return False


@inner
def __reset_isolation_suitable(m: at.Arrays, zone: int) -> None:
    """__reset_isolation_suitable(): clear skip marks after a direct run saw the whole zone (S9.3).

    Both scanners then begin at the outermost blocks that samples show to be of use.
    """
    words = zone_pressure_at(m, zone)
    if not m.st[words + pr.ZONE_FLUSH_SKIPS]:
        return
    m.st[words + pr.ZONE_FLUSH_SKIPS] = 0
    migrate = m.st[zone_at(zone) + at.ZONE_START]
    free = m.st[zone_at(zone) + at.ZONE_END] - 1
    first_source, last_target = free, migrate
    source_set, free_set = False, False
    while migrate < free:
        if __reset_isolation_pfn(m, zone, migrate, True, source_set) and migrate < first_source:
            source_set = True
            first_source = migrate
            m.st[words + pr.ZONE_INIT_MIGRATE] = migrate
            m.st[words + pr.ZONE_MIGRATE_ASYNC] = migrate
            m.st[words + pr.ZONE_MIGRATE_SYNC] = migrate
        if __reset_isolation_pfn(m, zone, free, free_set, True) and free > last_target:
            free_set = True
            last_target = free
            m.st[words + pr.ZONE_INIT_FREE] = free
            m.st[words + pr.ZONE_FREE_FROM] = free
        migrate += 1 << m.st[at.PAGEBLOCK_ORDER]
        free -= 1 << m.st[at.PAGEBLOCK_ORDER]
    if first_source >= last_target:
        m.st[words + pr.ZONE_MIGRATE_ASYNC] = migrate
        m.st[words + pr.ZONE_MIGRATE_SYNC] = migrate
        m.st[words + pr.ZONE_FREE_FROM] = free


@inner
def buddies_of(m: at.Arrays, zone: int, order: int) -> int:
    """Part of fill_contig_page_info(): return the number of free buddies of an order, all types."""
    count = 0
    for migratetype in range(at.MIGRATETYPES):
        count += m.st[free_list_at(zone, order, migratetype) + at.ENTRIES]
    return count


@inner
def freelist_scan_limit(m: at.Arrays, run: int) -> int:
    """freelist_scan_limit(): return how many pages a search looks at, halved by failures (S9.3)."""
    return (pr.CLUSTER >> min(m.st[run + pr.RUN_SEARCH_FAIL], 62)) + 1


@inner
def move_freelist_head(m: at.Arrays, lst: int, pfn: int) -> None:
    """move_freelist_head(): put what precedes a page in a free list last (S9.3)."""
    last = int(m.pages[pfn]["prev"])
    if last < 0:
        return
    head, tail = m.st[lst + at.HEAD], m.st[lst + at.TAIL]
    m.pages[pfn]["prev"] = -1
    m.pages[last]["next"] = -1
    m.pages[tail]["next"] = head
    m.pages[head]["prev"] = tail
    m.st[lst + at.HEAD] = pfn
    m.st[lst + at.TAIL] = last


@inner
def move_freelist_tail(m: at.Arrays, lst: int, pfn: int) -> None:
    """move_freelist_tail(): put a page of a free list, and what precedes it, behind its tail."""
    following = int(m.pages[pfn]["next"])
    if following >= 0:
        move_freelist_head(m, lst, following)


@inner
def next_search_order(m: at.Arrays, run: int, order: int) -> int:
    """next_search_order(): return the order to search after one, or -1 once all were (S9.3)."""
    largest = m.st[run + pr.RUN_ORDER] - 1
    order -= 1
    if order < 0:
        order = largest
    if order != m.st[run + pr.RUN_SEARCH_ORDER]:
        return order
    m.st[run + pr.RUN_SEARCH_ORDER] -= 1
    if m.st[run + pr.RUN_SEARCH_ORDER] < 0:
        m.st[run + pr.RUN_SEARCH_ORDER] = largest
    return -1


@inner
def skip_isolation_on_order(m: at.Arrays, run: int, order: int) -> bool:
    """skip_isolation_on_order(): return whether a large folio is not worth moving (S9.3)."""
    if not m.st[at.RULE_COMPACTION_MOVES_COMPOUND_PAGES]:  # 6.1 only
        return True
    wanted = m.st[run + pr.RUN_ORDER]
    return order >= m.st[at.PAGEBLOCK_ORDER] or 0 < wanted <= order


@inner
def folio_putback_lru(m: at.Arrays, pfn: int) -> None:
    """folio_putback_lru(): return an isolated folio to the LRU list it was on."""
    lruvec_add_folio(m, pfn, int(m.pages[pfn]["prev"]))


@inner
def putback_movable_pages(m: at.Arrays, run: int) -> None:
    """putback_movable_pages(): return all isolated folios to their LRU lists."""
    pfn = m.st[run + pr.RUN_SOURCES]
    while pfn >= 0:
        following = int(m.pages[pfn]["next"])
        folio_putback_lru(m, pfn)
        pfn = following
    m.st[run + pr.RUN_SOURCES] = -1
    m.st[run + pr.RUN_SOURCE_PAGES] = 0


@inner
def compact_lock_irqsave(m: at.Arrays, run: int, pfn: int) -> None:
    """compact_lock_irqsave(): draw whether an asynchronous run meets others at a lock (S9.8)."""
    if m.st[run + pr.RUN_MODE] != pr.ASYNC or m.st[run + pr.RUN_CONTENDED]:
        return
    block = pfn >> m.st[at.PAGEBLOCK_ORDER]
    drawn = draw(m, block, CONTENDS, m.st[at.COUNT_ALLOC])
    m.st[run + pr.RUN_CONTENDED] = drawn < value_of(m, pr.COMPACTION_CONTENDED)


@inner
def isolate_migratepages_block(m: at.Arrays, run: int, low: int, end: int) -> None:
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
                marks = low == begun or m.st[at.RULE_ANY_ISOLATION_MARKS_BLOCK] != 0  # from 6.12
                if marks and not m.st[run + pr.RUN_IGNORES_SKIPS]:
                    set_pageblock_skip(m, begun, 1)
            if isolated == 0:
                compact_lock_irqsave(m, run, low)
            m.pages[low]["prev"] = lruvec_del_folio(m, low)
            m.pages[low]["next"] = m.st[run + pr.RUN_SOURCES]
            m.st[run + pr.RUN_SOURCES] = low
            m.st[run + pr.RUN_SOURCE_PAGES] += 1 << int(m.pages[low]["order"])
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
def reinit_migrate_pfn(m: at.Arrays, run: int) -> int:
    """reinit_migrate_pfn(): return where a linear scan begins after fast searches ended (S9.3)."""
    start = m.st[run + pr.RUN_FAST_START]
    if start != 0 and start != pr.SEARCHED:
        m.st[run + pr.RUN_MIGRATE] = start
        m.st[run + pr.RUN_FAST_START] = pr.SEARCHED
    return m.st[run + pr.RUN_MIGRATE]


@inner
def may_search_fast(m: at.Arrays, run: int, zone_start: int) -> bool:
    """Part of fast_find_migrateblock(): return whether a run may choose another block (S9.3)."""
    pfn = m.st[run + pr.RUN_MIGRATE]
    if m.st[run + pr.RUN_IGNORES_SKIPS]:
        return False
    if m.st[run + pr.RUN_FINISHES_BLOCK] and m.st[at.RULE_FAILED_BLOCKS_FINISHED]:  # from 6.12
        return False
    if pfn != zone_start and not pageblock_aligned(m, pfn):
        return False
    if m.st[run + pr.RUN_ORDER] <= m.st[at.POLICY_COSTLY_ORDER]:
        return False
    if not m.st[run + pr.RUN_DIRECT] or m.st[run + pr.RUN_TYPE] == at.MOVABLE:
        return True
    return (
        m.st[at.RULE_ASYNC_SOURCE_BY_ORDER] != 0  # from 7.2
        and m.st[run + pr.RUN_ORDER] >= m.st[at.PAGEBLOCK_ORDER]
    )


@inner
def candidate_block(m: at.Arrays, lst: int, high: int, scanned: int, limit: int) -> tuple[int, int]:
    """Part of fast_find_migrateblock(): return a free page below `high`, or -1, and looks."""
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
def fast_find_migrateblock(m: at.Arrays, run: int) -> int:
    """fast_find_migrateblock(): return a block partly free, by free lists, to go on at (S9.3)."""
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
    if m.st[at.RULE_FAST_SOURCES_MARKED]:  # 6.1 only
        set_pageblock_skip(m, found, 1)
    return max(pageblock_start_pfn(m, found), zone_start)


@inner
def isolate_migratepages(m: at.Arrays, number: int) -> None:
    """isolate_migratepages(): take movable folios from the next block that is a source (S9.3)."""
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


@inner
def hold_first(m: at.Arrays, run: int, pfn: int, order: int) -> None:
    """Put a page before those held of its order; it is plain (S12.8)."""
    m.pages[pfn]["where"] = pr.HELD
    m.pages[pfn]["flags"] = 0
    m.pages[pfn]["order"] = order
    head = m.st[run + pr.RUN_TARGETS + order]
    m.pages[pfn]["next"] = head
    m.st[run + pr.RUN_TARGETS + order] = pfn
    if head < 0:
        m.st[run + pr.RUN_TARGET_TAILS + order] = pfn


@inner
def hold(m: at.Arrays, run: int, pfn: int, order: int) -> None:
    """Hold a free page, whole or page by page, the last one first (S9.3)."""
    if m.st[at.RULE_TARGETS_KEPT_WHOLE]:  # from 6.12
        m.pages[pfn]["where"] = pr.HELD
        m.pages[pfn]["flags"] = 0
        m.pages[pfn]["order"] = order
        m.pages[pfn]["next"] = -1
        if m.st[run + pr.RUN_TARGETS + order] < 0:
            m.st[run + pr.RUN_TARGETS + order] = pfn
        else:
            m.pages[m.st[run + pr.RUN_TARGET_TAILS + order]]["next"] = pfn
        m.st[run + pr.RUN_TARGET_TAILS + order] = pfn
        m.st[run + pr.RUN_HELD] += 1 << order
        return
    for page in range(pfn, pfn + (1 << order)):
        hold_first(m, run, page, 0)
    m.st[run + pr.RUN_HELD] += 1 << order


@inner
def __isolate_free_page(m: at.Arrays, run: int, pfn: int) -> bool:
    """__isolate_free_page(): hold a free buddy; False if the min mark forbids it (S9.3)."""
    zone = m.st[run + pr.RUN_ZONE] - 1
    order = int(m.pages[pfn]["order"])
    if block_type_of(m, pfn) != m.st[at.ISOLATE]:
        mark = m.st[zone_at(zone) + at.ZONE_MIN] + (1 << order)
        if not __zone_watermark_ok(m, zone, 0, mark, 0, at.ALLOC_CMA, seen_free(m, zone)):
            return False
    migratetype = int(m.pages[pfn]["tag"])
    __del_page_from_free_list(m, zone, pfn)
    account_freepages(m, zone, migratetype, -(1 << order))
    if order >= m.st[at.PAGEBLOCK_ORDER] - 1:
        page = pfn
        while page < pfn + (1 << order) - 1:
            first, end = pageblock_start_pfn(m, page), pageblock_end_pfn(m, page)
            inside = (
                first >= m.st[zone_at(zone) + at.ZONE_START]
                and end <= m.st[zone_at(zone) + at.ZONE_END]
            )
            block = page >> m.st[at.PAGEBLOCK_ORDER]
            if block_type_of(m, page) < at.PCP_TYPES:
                if not m.st[at.RULE_LISTS_MATCH_BLOCKS]:  # 6.1 only
                    set_pageblock_migratetype(m, block, at.MOVABLE)
                elif inside:
                    move_freepages_block(m, zone, block, at.MOVABLE)
            page += 1 << m.st[at.PAGEBLOCK_ORDER]
        forget_work(m)
    hold(m, run, pfn, order)
    return True


@inner
def isolate_freepages_block(m: at.Arrays, run: int, pfn: int, end: int, stride: int) -> int:
    """isolate_freepages_block(): hold enough of a block's pages; returns where it ended (S9.3)."""
    scanned = 0
    before = m.st[run + pr.RUN_HELD]
    while pfn < end:
        scanned += 1
        where = int(m.pages[pfn]["where"])
        size = 1 << int(m.pages[pfn]["order"])
        if where == at.BUDDY:
            if not __isolate_free_page(m, run, pfn):
                break
            scanned += size - 1
            pfn += size - 1
            if m.st[run + pr.RUN_SOURCE_PAGES] <= m.st[run + pr.RUN_HELD]:
                pfn += 1
                break
        elif where == at.ALLOCATED and (
            pfn + size <= end or not m.st[at.RULE_TARGET_STEPS_END_IN_BLOCK]  # 6.1 only
        ):
            scanned += stepped_over(m, int(m.pages[pfn]["order"]))
            pfn += size - 1
        pfn += stride
    m.st[run + pr.RUN_FREE_SCANNED] += scanned
    m.st[word_at(m, pr.COMPACT_ISOLATED)] += m.st[run + pr.RUN_HELD] - before
    return min(pfn, end)


@inner
def fast_isolate_around(m: at.Arrays, run: int, pfn: int) -> None:
    """fast_isolate_around(): hold what else is free in the block of a page found (S9.3)."""
    if m.st[run + pr.RUN_HELD] >= m.st[run + pr.RUN_SOURCE_PAGES]:
        return
    if m.st[run + pr.RUN_DIRECT] and m.st[run + pr.RUN_MODE] == pr.ASYNC:
        return
    zone = m.st[run + pr.RUN_ZONE] - 1
    start = max(pageblock_start_pfn(m, pfn), m.st[zone_at(zone) + at.ZONE_START])
    end = min(pageblock_end_pfn(m, pfn), m.st[zone_at(zone) + at.ZONE_END])
    if not block_is_of_zone(m, zone, start):
        return
    is_whole = isolate_freepages_block(m, run, start, end, 1) == end
    lacks = m.st[run + pr.RUN_HELD] < m.st[run + pr.RUN_SOURCE_PAGES]
    if is_whole if m.st[at.RULE_FAST_TARGETS_MARKED_AT_END] else lacks:  # from 6.12
        set_pageblock_skip(m, start, 1)


@inner
def search_list(
    m: at.Arrays, zone: int, lst: int, low: int, least: int, limit: int, highest: int
) -> tuple[int, int, int, int, int, int]:
    """Part of fast_isolate_freepages(): search a free list from its tail (S9.3).

    A page from `low` on is taken at once; else the highest from `least` on; each candidate halves
    the `limit` of pages to look at. Returns a page to take at once or -1, the highest candidate or
    0, the page looked at last or -1 if none or all were, pages looked at, the limit left, and the
    first page of the highest block seen.
    """
    page = m.st[lst + at.TAIL]
    candidate = 0
    looked_at = 0
    while page >= 0:
        looked_at += 1
        if page >= highest:
            start = m.st[zone_at(zone) + at.ZONE_START]
            highest = max(pageblock_start_pfn(m, page), start)
        if page >= low:
            return page, candidate, page, looked_at, limit, highest
        if page >= least and page > candidate:
            candidate = page
            limit >>= 1
        if looked_at >= limit:
            return -1, candidate, page, looked_at, limit, highest
        page = int(m.pages[page]["prev"])
    return -1, candidate, -1, looked_at, limit, highest


@inner
def block_found_late(m: at.Arrays, run: int, highest: int, least: int) -> int:
    """Part of fast_isolate_freepages(): lower a first scan in vain; a page to look at, or -1."""
    zone = m.st[run + pr.RUN_ZONE] - 1
    if highest >= least:
        m.st[run + pr.RUN_FREE] = highest
        return highest
    if m.st[run + pr.RUN_DIRECT] and least < m.st[at.END_PFN]:
        m.st[run + pr.RUN_FREE] = least
        # 6.1 only
        is_target = not m.st[at.RULE_LATE_TARGET_BLOCK_TESTED] or suitable_migration_target(
            m, run, least
        )
        if block_is_of_zone(m, zone, least) and is_target:
            return least
    return -1


@cold
def fast_isolate_freepages(m: at.Arrays, number: int) -> None:
    """fast_isolate_freepages(): take targets from free lists rather than by scanning (S9.3)."""
    run = compactor_at(m, number)
    zone = m.st[run + pr.RUN_ZONE] - 1
    words = zone_pressure_at(m, zone)
    if m.st[run + pr.RUN_ORDER] <= 0:
        return
    limit = max(1, freelist_scan_limit(m, run) >> 1)
    is_first = m.st[run + pr.RUN_FREE] >= m.st[words + pr.ZONE_INIT_FREE]
    if is_first:
        limit = 1 << m.st[at.PAGEBLOCK_ORDER] >> 1
    distance = m.st[run + pr.RUN_FREE] - m.st[run + pr.RUN_MIGRATE]
    low = at.NEVER
    least = at.NEVER
    if distance >= 0:
        low = pageblock_start_pfn(m, m.st[run + pr.RUN_FREE] - (distance >> 2))
        least = pageblock_start_pfn(m, m.st[run + pr.RUN_FREE] - (distance >> 1))
    scanned = 0
    highest = 0
    page = -1
    largest = m.st[run + pr.RUN_ORDER] - 1
    m.st[run + pr.RUN_SEARCH_ORDER] = min(largest, m.st[run + pr.RUN_SEARCH_ORDER])
    order = m.st[run + pr.RUN_SEARCH_ORDER]
    while page < 0 and order >= 0:
        if buddies_of(m, zone, order) == 0:
            order = next_search_order(m, run, order)
            continue
        lst = free_list_at(zone, order, at.MOVABLE)
        page, candidate, last, looked_at, limit, highest = search_list(
            m, zone, lst, low, least, limit, highest
        )
        scanned += looked_at
        if page >= 0:
            m.st[run + pr.RUN_SEARCH_FAIL] = 0
            m.st[run + pr.RUN_SEARCH_ORDER] = order
        elif candidate > 0:
            page = candidate
            last = candidate
        if last >= 0:
            move_freelist_head(m, lst, last)
        if page >= 0:
            if __isolate_free_page(m, run, page):
                scanned += (1 << order) - 1
                m.st[word_at(m, pr.COMPACT_ISOLATED)] += 1 << order
            else:
                order = m.st[run + pr.RUN_SEARCH_ORDER] + 1
                page = -1
        has_enough = m.st[run + pr.RUN_HELD] >= m.st[run + pr.RUN_SOURCE_PAGES]
        if has_enough and m.st[at.RULE_FAST_TARGETS_END_AT_ENOUGH]:  # from 6.12
            break
        if looked_at >= limit:
            limit = max(1, limit >> 1)
        order = next_search_order(m, run, order)
    if page < 0:
        m.st[run + pr.RUN_SEARCH_FAIL] += 1
        if is_first:
            page = block_found_late(m, run, highest, least)
    if highest > 0 and highest >= m.st[words + pr.ZONE_FREE_FROM]:
        m.st[words + pr.ZONE_FREE_FROM] = highest - (1 << m.st[at.PAGEBLOCK_ORDER])
    m.st[run + pr.RUN_FREE_SCANNED] += scanned
    if page >= 0:
        fast_isolate_around(m, run, page)


@cold
def isolate_freepages(m: at.Arrays, number: int) -> None:
    """isolate_freepages(): hold free pages, of lower and lower blocks (S9.3)."""
    run = compactor_at(m, number)
    fast_isolate_freepages(m, number)
    if m.st[run + pr.RUN_HELD] > 0:
        return
    zone = m.st[run + pr.RUN_ZONE] - 1
    words = zone_pressure_at(m, zone)
    size = 1 << m.st[at.PAGEBLOCK_ORDER]
    pfn = m.st[run + pr.RUN_FREE]
    start = pageblock_start_pfn(m, pfn)
    end = min(start + size, m.st[zone_at(zone) + at.ZONE_END])
    lowest = pageblock_end_pfn(m, m.st[run + pr.RUN_MIGRATE])
    stride = pr.CLUSTER if m.st[run + pr.RUN_MODE] == pr.ASYNC else 1
    while start >= lowest:
        if (
            block_is_of_zone(m, zone, start)
            and suitable_migration_target(m, run, start)
            and isolation_suitable(m, run, start)
        ):
            before = m.st[run + pr.RUN_HELD]
            pfn = isolate_freepages_block(m, run, pfn, end, stride)
            if pfn == end:
                set_pageblock_skip(m, start, 1)
                # from 6.12
                below = start - size if m.st[at.RULE_TARGET_POSITION_LEAVES_BLOCK] else start
                m.st[words + pr.ZONE_FREE_FROM] = min(m.st[words + pr.ZONE_FREE_FROM], below)
            if m.st[run + pr.RUN_HELD] >= m.st[run + pr.RUN_SOURCE_PAGES]:
                if pfn >= end:
                    pfn = start - size
                break
            if pfn < end:
                break
            stride = 1 if m.st[run + pr.RUN_HELD] > before else min(pr.CLUSTER, stride << 1)
        end = start
        start -= size
        pfn = start
    m.st[run + pr.RUN_FREE] = pfn


@inner
def compaction_alloc(m: at.Arrays, number: int, order: int) -> int:
    """compaction_alloc(): cut a target from the smallest page held that fits, or -1 (S9.3)."""
    run = compactor_at(m, number)
    for attempt in range(2):
        for current in range(order, m.st[at.MAX_ORDER] + 1):
            pfn = m.st[run + pr.RUN_TARGETS + current]
            if pfn >= 0:
                m.st[run + pr.RUN_TARGETS + current] = int(m.pages[pfn]["next"])
                for half in range(current - 1, order - 1, -1):
                    hold_first(m, run, pfn + (1 << half), half)
                m.pages[pfn]["order"] = order
                m.st[run + pr.RUN_HELD] -= 1 << order
                if m.st[at.RULE_TARGETS_KEPT_WHOLE]:  # from 6.12
                    m.st[run + pr.RUN_SOURCE_PAGES] -= 1 << order
                return pfn
        if attempt == 0:
            isolate_freepages(m, number)
    return -1


@inner
def compaction_free(m: at.Arrays, run: int, pfn: int) -> None:
    """compaction_free(): hold a target again that was not used."""
    order = int(m.pages[pfn]["order"])
    hold_first(m, run, pfn, order)
    m.st[run + pr.RUN_HELD] += 1 << order
    if m.st[at.RULE_TARGETS_KEPT_WHOLE]:  # from 6.12
        m.st[run + pr.RUN_SOURCE_PAGES] += 1 << order
