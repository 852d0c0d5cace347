"""Compaction of a zone, direct or by a daemon: whether it is worth a try, a run in units (S9)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.compaction_scan import (
    __reset_isolation_suitable,
    buddies_of,
    compaction_alloc,
    compaction_free,
    folio_putback_lru,
    isolate_migratepages,
    pageblock_aligned,
    pageblock_start_pfn,
    reset_cached_positions,
)
from pagealloc_model.allocator.fallback import find_suitable_fallback
from pagealloc_model.allocator.layout import free_list_at, node_at, zone_at
from pagealloc_model.allocator.lru import (
    free_waiting,
    lruvec_add_folio,
    migration_fails,
    queue_free,
    replace_piece,
    zone_reclaimable_pages,
)
from pagealloc_model.allocator.pcp import drain_pages_zone
from pagealloc_model.allocator.pressure_layout import (
    compactor_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.allocator.watermark import (
    AllocContext,
    __zone_watermark_ok,
    nr_free_pages_blocks,
    seen_free,
    wmark_pages,
)
from pagealloc_model.base.jit import cold, inner


@inner
def compact_gap(m: at.Arrays, order: int) -> int:
    """compact_gap(): return the free pages that compaction needs beside the watermark (S9.1)."""
    gap = 2 << order
    most = value_of(m, pr.COMPACT_GAP_MAX)
    return min(gap, most) if most > 0 else gap


@inner
def fragmentation_index(m: at.Arrays, zone: int, order: int) -> int:
    """fragmentation_index(): return how far fragmentation would be why a request fails (S9.2).

    The result is per mille: near 1000 memory is in pieces, near 0 it lacks. It is negative if a
    buddy of this order is free.
    """
    free = 0
    buddies = 0
    for current in range(m.st[at.MAX_ORDER] + 1):
        count = buddies_of(m, zone, current)
        if m.st[at.POLICY_INDEX_WITHOUT_HIGHATOMIC]:
            count -= m.st[free_list_at(zone, current, at.HIGHATOMIC) + at.ENTRIES]
        if current >= order and count > 0:
            return -1000
        buddies += count
        free += count << current
    if buddies == 0:
        return 0
    return 1000 - (1000 + free * 1000 // (1 << order)) // buddies


@inner
def fragmentation_score_zone(m: at.Arrays, zone: int) -> int:
    """fragmentation_score_zone(): return the percentage of free pages in small buddies (S9.6)."""
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
    m: at.Arrays,
    zone: int,
    order: int,
    flags: int,
    highest_type: int,
    free: int,
    is_async: bool,
) -> int:
    """compaction_suit_allocation_order(): return SUCCESS, SKIPPED or, to compact, CONTINUE."""
    wanted = wmark_pages(m, zone, flags & at.WMARK_MASK)
    seen = seen_free(m, zone)
    if __zone_watermark_ok(m, zone, order, wanted, highest_type, flags, free):
        return pr.SUCCESS
    is_costly = order > m.st[at.POLICY_COSTLY_ORDER]
    # from 7.2
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
    m: at.Arrays, zone: int, order: int, wanted: int, highest_type: int, free: int
) -> bool:
    """__compaction_suitable(): return whether a zone has free pages to move others to (S9.1)."""
    is_costly = order > m.st[at.POLICY_COSTLY_ORDER]
    low = wmark_pages(m, zone, at.WMARK_LOW)
    least = wmark_pages(m, zone, at.WMARK_MIN)
    if not m.st[at.RULE_SUITABLE_BY_REQUEST_MARK]:  # up to 6.18
        wanted = low if is_costly else least
    elif is_costly:
        wanted += low - least
    wanted += compact_gap(m, order)
    return __zone_watermark_ok(m, zone, 0, wanted, highest_type, at.ALLOC_CMA, free)


@inner
def compaction_deferred(m: at.Arrays, zone: int, order: int) -> bool:
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
def defer_compaction(m: at.Arrays, zone: int, order: int) -> None:
    """defer_compaction(): leave out later attempts, twice as many as last time (S9.5)."""
    words = zone_pressure_at(m, zone)
    shift = min(m.st[words + pr.ZONE_DEFER_SHIFT] + 1, pr.DEFER_SHIFT_MAX)
    m.st[words + pr.ZONE_CONSIDERED] = 0
    m.st[words + pr.ZONE_DEFER_SHIFT] = shift
    m.st[words + pr.ZONE_ORDER_FAILED] = min(m.st[words + pr.ZONE_ORDER_FAILED], order)


@inner
def compaction_defer_reset(m: at.Arrays, zone: int, order: int, allocated: bool) -> None:
    """compaction_defer_reset(): note a success; a page allocated ends the deferral (S9.5)."""
    words = zone_pressure_at(m, zone)
    if allocated:
        m.st[words + pr.ZONE_CONSIDERED] = 0
        m.st[words + pr.ZONE_DEFER_SHIFT] = 0
    if order >= m.st[words + pr.ZONE_ORDER_FAILED]:
        m.st[words + pr.ZONE_ORDER_FAILED] = order + 1


@inner
def compaction_restarting(m: at.Arrays, zone: int, order: int) -> bool:
    """compaction_restarting(): return whether the longest deferral has passed (S9.5)."""
    words = zone_pressure_at(m, zone)
    return (
        order >= m.st[words + pr.ZONE_ORDER_FAILED]
        and m.st[words + pr.ZONE_DEFER_SHIFT] == pr.DEFER_SHIFT_MAX
        and m.st[words + pr.ZONE_CONSIDERED] >= 1 << pr.DEFER_SHIFT_MAX
    )


@inner
def proactive_marks(m: at.Arrays) -> tuple[int, int]:
    """fragmentation_score_wmark(): return the scores between which proactive runs work (S9.6)."""
    low = 100 - m.st[at.POLICY_COMPACTION_PROACTIVENESS]
    if m.st[at.RULE_PROACTIVE_LEEWAY_SHRINKS]:  # from 7.2
        return low, min(low + min(10, low // 2), 100)
    low = max(low, 5)
    return low, min(low + 10, 100)


@inner
def set_control(
    m: at.Arrays, number: int, order: int, migratetype: int, mode: int, cpu: int
) -> None:
    """Fill a compactor's control block; `mode` is a priority or SYNC (S9.3)."""
    run = compactor_at(m, number)
    sees_all = mode == pr.SYNC_FULL or order < 0
    m.st[run + pr.RUN_ORDER] = order
    m.st[run + pr.RUN_SEARCH_ORDER] = order
    m.st[run + pr.RUN_SEARCH_FAIL] = 0
    m.st[run + pr.RUN_TYPE] = migratetype
    m.st[run + pr.RUN_MODE] = mode
    m.st[run + pr.RUN_FLAGS] = 0
    m.st[run + pr.RUN_HIGHEST] = 0
    m.st[run + pr.RUN_DIRECT] = number == 0
    m.st[run + pr.RUN_PROACTIVE] = order < 0 and mode != pr.SYNC
    m.st[run + pr.RUN_IGNORES_SKIPS] = sees_all
    m.st[run + pr.RUN_TAKES_ANY_BLOCK] = mode == pr.SYNC_FULL
    m.st[run + pr.RUN_WHOLE] = sees_all
    m.st[run + pr.RUN_FINISHES_BLOCK] = 0
    m.st[run + pr.RUN_CPU] = cpu


@inner
def begin_compaction(m: at.Arrays, number: int, zone: int) -> None:
    """Part of compact_zone(): let a compactor's scanners begin in a zone (S9.3)."""
    run = compactor_at(m, number)
    words = zone_pressure_at(m, zone)
    start = m.st[zone_at(zone) + at.ZONE_START]
    end = m.st[zone_at(zone) + at.ZONE_END]
    if compaction_restarting(m, zone, m.st[run + pr.RUN_ORDER]):
        __reset_isolation_suitable(m, zone)
    migrate = start
    free = pageblock_start_pfn(m, end - 1)
    if not m.st[run + pr.RUN_WHOLE]:
        cached = pr.ZONE_MIGRATE_ASYNC
        if m.st[run + pr.RUN_MODE] != pr.ASYNC:
            cached = pr.ZONE_MIGRATE_SYNC
        if start <= m.st[words + pr.ZONE_FREE_FROM] < end:
            free = m.st[words + pr.ZONE_FREE_FROM]
        m.st[words + pr.ZONE_FREE_FROM] = free
        if start <= m.st[words + cached] < end:
            migrate = m.st[words + cached]
        else:
            m.st[words + pr.ZONE_MIGRATE_ASYNC] = migrate
            m.st[words + pr.ZONE_MIGRATE_SYNC] = migrate
        if migrate <= m.st[words + pr.ZONE_INIT_MIGRATE]:
            m.st[run + pr.RUN_WHOLE] = 1
    m.st[run + pr.RUN_ZONE] = zone + 1
    m.st[run + pr.RUN_MIGRATE] = migrate
    m.st[run + pr.RUN_FREE] = free
    m.st[run + pr.RUN_FAST_START] = 0
    m.st[run + pr.RUN_CONTENDED] = 0
    m.st[run + pr.RUN_SYNCS_POSITIONS] = (
        m.st[run + pr.RUN_MODE] == pr.ASYNC
        and m.st[words + pr.ZONE_MIGRATE_ASYNC] == m.st[words + pr.ZONE_MIGRATE_SYNC]
    )
    m.st[run + pr.RUN_LAST_MIGRATED] = 0
    m.st[run + pr.RUN_MIGRATE_SCANNED] = 0
    m.st[run + pr.RUN_FREE_SCANNED] = 0
    m.st[run + pr.RUN_HELD] = 0
    m.st[run + pr.RUN_SOURCES] = -1
    m.st[run + pr.RUN_SOURCE_PAGES] = 0
    for current in range(at.ORDERS):
        m.st[run + pr.RUN_TARGETS + current] = -1


@inner
def compact_scanners_met(m: at.Arrays, run: int) -> bool:
    """compact_scanners_met(): return whether both scanners are in one block, or have passed."""
    order = m.st[at.PAGEBLOCK_ORDER]
    return m.st[run + pr.RUN_FREE] >> order <= m.st[run + pr.RUN_MIGRATE] >> order


@inner
def has_page_for(m: at.Arrays, zone: int, order: int, migratetype: int) -> bool:
    """Part of __compact_finished(): return whether a buddy is free or may be claimed now (S9.4)."""
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
def __compact_finished(m: at.Arrays, number: int) -> int:
    """__compact_finished(): return CONTINUE, or how the run ended (S9.3, S9.4)."""
    run = compactor_at(m, number)
    zone = m.st[run + pr.RUN_ZONE] - 1
    if compact_scanners_met(m, run):
        reset_cached_positions(m, zone)
        if m.st[run + pr.RUN_DIRECT]:
            m.st[zone_pressure_at(m, zone) + pr.ZONE_FLUSH_SKIPS] = 1
        return pr.COMPLETE if m.st[run + pr.RUN_WHOLE] else pr.PARTIAL_SKIPPED
    node = m.st[zone_at(zone) + at.ZONE_NODE]
    if m.st[run + pr.RUN_PROACTIVE]:
        if m.st[node_at(m, node) + at.NODE_KSWAPD_ACTIVE]:
            return pr.PARTIAL_SKIPPED
        low, _ = proactive_marks(m)
        return pr.CONTINUE if fragmentation_score_zone(m, zone) > low else pr.SUCCESS
    order = m.st[run + pr.RUN_ORDER]
    if order < 0 or not pageblock_aligned(m, m.st[run + pr.RUN_MIGRATE]):
        return pr.CONTINUE
    if m.st[at.BLOCK_WATERMARKS] and not m.st[run + pr.RUN_DIRECT]:
        mark = wmark_pages(m, zone, at.WMARK_HIGH)
        free = nr_free_pages_blocks(m, zone)
        highest, flags = m.st[run + pr.RUN_HIGHEST], m.st[run + pr.RUN_FLAGS]
        enough = __zone_watermark_ok(m, zone, order, mark, highest, flags, free)
        return pr.SUCCESS if enough else pr.CONTINUE
    if has_page_for(m, zone, order, m.st[run + pr.RUN_TYPE]):
        return pr.SUCCESS
    return pr.CONTENDED if m.st[run + pr.RUN_CONTENDED] else pr.CONTINUE


@inner
def migrate_folio_move(m: at.Arrays, source: int, target: int) -> None:
    """migrate_folio_move(): move a folio to another page; the old one waits to be freed."""
    lst = int(m.pages[source]["prev"])
    replace_piece(m, source, target)
    m.pages[target]["where"] = at.ALLOCATED
    m.pages[target]["tag"] = m.pages[source]["tag"]
    lruvec_add_folio(m, target, lst)
    queue_free(m, source)


@inner
def find_targets(m: at.Arrays, number: int) -> tuple[int, int]:
    """migrate_folio_unmap(): find a target for each isolated folio, up to the first without one."""
    run = compactor_at(m, number)
    source = m.st[run + pr.RUN_SOURCES]
    first = -1
    last = -1
    while source >= 0:
        target = compaction_alloc(m, number, int(m.pages[source]["order"]))
        if target < 0:
            return first, source
        m.pages[target]["next"] = -1
        if last < 0:
            first = target
        else:
            m.pages[last]["next"] = target
        last = target
        source = int(m.pages[source]["next"])
    return first, -1


@inner
def migrate_pages(m: at.Arrays, number: int) -> tuple[int, int, bool]:
    """migrate_pages(): move folios; pages moved, folios failed, whether targets ran out (S9.3)."""
    run = compactor_at(m, number)
    target, lacking = find_targets(m, number)
    source = m.st[run + pr.RUN_SOURCES]
    moved = 0
    failed = 0
    while source >= 0:
        following = int(m.pages[source]["next"])
        size = 1 << int(m.pages[source]["order"])
        if target < 0:
            folio_putback_lru(m, source)
            if source == lacking:
                m.st[word_at(m, pr.PGMIGRATE_FAIL)] += size
        else:
            behind = int(m.pages[target]["next"])
            if migration_fails(m, source):
                folio_putback_lru(m, source)
                compaction_free(m, run, target)
                failed += 1
                m.st[word_at(m, pr.PGMIGRATE_FAIL)] += size
            else:
                migrate_folio_move(m, source, target)
                m.st[word_at(m, pr.PGMIGRATE_SUCCESS)] += size
                moved += size
            target = behind
        source = following
    m.st[run + pr.RUN_SOURCES] = -1
    m.st[run + pr.RUN_SOURCE_PAGES] = 0
    return moved, failed, lacking >= 0


@inner
def has_captured(m: at.Arrays, run: int) -> bool:
    """Part of compact_zone(): return whether a direct run's frees have made its page (S9.7)."""
    return m.st[run + pr.RUN_DIRECT] != 0 and m.st[at.CAPTURED] >= 0


@inner
def move_cluster(m: at.Arrays, number: int) -> tuple[int, int, bool]:
    """Part of compact_zone(): move a cluster; its end, pages, whether its block goes on (S9.3)."""
    run = compactor_at(m, number)
    zone = m.st[run + pr.RUN_ZONE] - 1
    words = zone_pressure_at(m, zone)
    began = m.st[run + pr.RUN_MIGRATE]
    isolate_migratepages(m, number)
    if m.st[run + pr.RUN_SOURCE_PAGES] == 0:
        if m.st[run + pr.RUN_SYNCS_POSITIONS]:
            m.st[words + pr.ZONE_MIGRATE_SYNC] = m.st[words + pr.ZONE_MIGRATE_ASYNC]
        return pr.CONTINUE, 0, False
    m.st[run + pr.RUN_SYNCS_POSITIONS] = 0
    m.st[run + pr.RUN_LAST_MIGRATED] = began
    if m.st[at.RULE_MOVED_FROM_WHERE_SCAN_ENDED]:  # from 6.12
        m.st[run + pr.RUN_LAST_MIGRATED] = max(
            m.st[zone_at(zone) + at.ZONE_START],
            pageblock_start_pfn(m, m.st[run + pr.RUN_MIGRATE] - 1),
        )
    moved, failed, lacking = migrate_pages(m, number)
    free_waiting(m)
    if lacking and not compact_scanners_met(m, run):
        return pr.CONTENDED, moved, False
    if not m.st[at.RULE_FAILED_BLOCKS_FINISHED]:  # 6.1 only
        is_async = m.st[run + pr.RUN_DIRECT] and m.st[run + pr.RUN_MODE] == pr.ASYNC
        if is_async and (lacking or failed > 0):
            order = m.st[run + pr.RUN_ORDER]
            m.st[run + pr.RUN_MIGRATE] = (((m.st[run + pr.RUN_MIGRATE] - 1) >> order) + 1) << order
            m.st[run + pr.RUN_LAST_MIGRATED] = 0
    elif (
        (lacking or failed > 0)
        and not pageblock_aligned(m, m.st[run + pr.RUN_MIGRATE])
        and not m.st[run + pr.RUN_IGNORES_SKIPS]
        and not m.st[run + pr.RUN_FINISHES_BLOCK]
        and m.st[run + pr.RUN_MODE] != pr.SYNC
    ):
        m.st[run + pr.RUN_FINISHES_BLOCK] = 1
        if m.st[run + pr.RUN_ORDER] == pr.THP_ORDER:
            m.st[run + pr.RUN_LAST_MIGRATED] = 0
        return pr.CONTINUE, moved, True
    ends = m.st[at.RULE_CAPTURE_ENDS_BEFORE_DRAIN] != 0 and has_captured(m, run)  # from 6.12
    return pr.SUCCESS if ends else pr.CONTINUE, moved, False


@cold
def compact_unit(m: at.Arrays, number: int) -> tuple[int, int]:
    """Part of compact_zone(): do a run's next unit; CONTINUE or how it ended, and ns (S9.3)."""
    run = compactor_at(m, number)
    sources = m.st[run + pr.RUN_MIGRATE_SCANNED]
    targets = m.st[run + pr.RUN_FREE_SCANNED]
    total = 0
    status = __compact_finished(m, number)
    if status == pr.CONTINUE:
        m.st[run + pr.RUN_FINISHES_BLOCK] = pageblock_start_pfn(
            m, m.st[run + pr.RUN_LAST_MIGRATED]
        ) == pageblock_start_pfn(m, m.st[run + pr.RUN_MIGRATE])
        again = True
        while again:
            status, moved, again = move_cluster(m, number)
            total += moved
        if status == pr.CONTINUE:
            order = m.st[run + pr.RUN_ORDER]
            last = m.st[run + pr.RUN_LAST_MIGRATED]
            if order > 0 and last > 0 and last < m.st[run + pr.RUN_MIGRATE] >> order << order:
                drain_pages_zone(m, m.st[run + pr.RUN_ZONE] - 1, m.st[at.EVENT_CPU])
                m.st[run + pr.RUN_LAST_MIGRATED] = 0
            if not m.st[at.RULE_CAPTURE_ENDS_BEFORE_DRAIN] and has_captured(m, run):  # 6.1 only
                status = pr.SUCCESS
    sources = m.st[run + pr.RUN_MIGRATE_SCANNED] - sources
    targets = m.st[run + pr.RUN_FREE_SCANNED] - targets
    m.st[word_at(m, pr.COMPACT_MIGRATE_SCANNED)] += sources
    m.st[word_at(m, pr.COMPACT_FREE_SCANNED)] += targets
    if m.st[at.RULE_PROACTIVE_SCANS_COUNTED] or not m.st[run + pr.RUN_PROACTIVE]:  # from 6.12
        is_daemon = not m.st[run + pr.RUN_DIRECT] and m.st[run + pr.RUN_MODE] != pr.SYNC
    else:
        is_daemon = False
    if is_daemon:
        m.st[word_at(m, pr.COMPACT_DAEMON_MIGRATE_SCANNED)] += sources
        m.st[word_at(m, pr.COMPACT_DAEMON_FREE_SCANNED)] += targets
    if status != pr.CONTINUE:
        # Free the pages held; the next run may begin higher (S9.3).
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
            words = zone_pressure_at(m, zone)
            m.st[words + pr.ZONE_FREE_FROM] = max(
                m.st[words + pr.ZONE_FREE_FROM], pageblock_start_pfn(m, highest)
            )
            free_waiting(m)
        m.st[run + pr.RUN_HELD] = 0
        m.st[run + pr.RUN_ZONE] = 0
    cost = (sources + targets) * value_of(m, pr.COMPACT_SCAN_NS)
    cost += total * value_of(m, pr.COMPACT_MIGRATE_NS)
    return status, max(cost, 1000)


RETRIES_OF_SUCCESS = 16


@inner
def gfp_compaction_allowed(m: at.Arrays, bits: int) -> bool:
    """gfp_compaction_allowed(): return whether a request allows compaction (S8.1)."""
    if m.st[at.RULE_COMPACTION_NEEDS_RECLAIM] and not bits & at.GFP_DIRECT_RECLAIM:  # from 7.2
        return False
    return bits & pr.GFP_IO != 0


@inner
def try_to_compact_pages(
    m: at.Arrays, ac: AllocContext, flags: int, priority: int, order: int
) -> int:
    """try_to_compact_pages(): compact zone after zone until a page can be had (S9.5, S8.7)."""
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
    m: at.Arrays, ac: AllocContext, zone: int, flags: int, priority: int, order: int
) -> int:
    """compact_zone_order() and compact_zone(): compact a zone for a request (S9.3, S9.7)."""
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
        status, _ = compact_unit(m, 0)
    m.st[at.CAPTURE_ZONE] = 0
    return pr.SUCCESS if m.st[at.CAPTURED] >= 0 else status


@inner
def was_tried(m: at.Arrays, result: int) -> bool:
    """Part of __alloc_pages_direct_compact(): return whether a walk is a stall (S9, T11)."""
    if result == pr.DEFERRED and m.st[at.RULE_STALL_LEAVES_OUT_DEFERRED]:  # from 7.2
        return False
    return result != pr.SKIPPED


@inner
def should_compact_retry(
    m: at.Arrays,
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
def zone_watermark_ok(m: at.Arrays, ac: AllocContext, zone: int, flags: int) -> bool:
    """zone_watermark_ok(): return whether a zone could serve a request at its mark (S3.3)."""
    mark = wmark_pages(m, zone, flags & at.WMARK_MASK)
    free = seen_free(m, zone)
    return __zone_watermark_ok(m, zone, ac.order, mark, ac.highest_type, flags, free)


@inner
def compaction_zonelist_suitable(m: at.Arrays, ac: AllocContext, flags: int) -> bool:
    """compaction_zonelist_suitable(): return whether more reclaim would make a zone suit (S8.4)."""
    position = ac.zonelist
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        # 6.1 only
        if not m.st[at.RULE_RETRY_COUNTS_SERVED_ZONES] and zone_watermark_ok(m, ac, zone, flags):
            continue
        free = zone_reclaimable_pages(m, zone) // ac.order + m.st[zone_at(zone) + at.ZONE_FREE]
        mark = wmark_pages(m, zone, at.WMARK_MIN)
        if __compaction_suitable(m, zone, ac.order, mark, ac.highest_type, free):
            return True
    return False
