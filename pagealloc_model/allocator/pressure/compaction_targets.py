"""Compaction's target scanner: free pages, from above, and what is held of them (S9.3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.buddy import (
    __del_page_from_free_list,
    move_freepages_block,
    set_pageblock_migratetype,
)
from pagealloc_model.allocator.core.counters import account_freepages, seen_free
from pagealloc_model.allocator.core.event_log import forget_work
from pagealloc_model.allocator.core.offsets import free_list_at, zone_at
from pagealloc_model.allocator.core.watermark import __zone_watermark_ok
from pagealloc_model.allocator.pressure.compaction_blocks import (
    block_is_of_zone,
    block_type_of,
    isolation_suitable,
    pageblock_end_pfn,
    pageblock_start_pfn,
    set_pageblock_skip,
    stepped_over,
    suitable_migration_target,
)
from pagealloc_model.allocator.pressure.compaction_lists import (
    buddies_of,
    freelist_scan_limit,
    move_freelist_head,
    next_search_order,
)
from pagealloc_model.allocator.pressure.pressure_offsets import (
    compactor_at,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import cold, inner


@inner
def hold_first(m: at.MachineArrays, run: int, pfn: int, order: int) -> None:
    """No kernel function: put a page before those held of its order; it is plain (S12.8)."""
    m.pages[pfn]["where"] = pr.HELD
    m.pages[pfn]["flags"] = 0
    m.pages[pfn]["order"] = order
    head = m.st[run + pr.RUN_TARGETS + order]
    m.pages[pfn]["next"] = head
    m.st[run + pr.RUN_TARGETS + order] = pfn
    if head < 0:
        m.st[run + pr.RUN_TARGET_TAILS + order] = pfn


@inner
def hold_last(m: at.MachineArrays, run: int, pfn: int, order: int) -> None:
    """No kernel function: put a page behind those held of its order, and count it.

    It is plain (S12.8).
    """
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


@inner
def hold(m: at.MachineArrays, run: int, pfn: int, order: int) -> None:
    """No kernel function: hold a free page, whole or page by page, the last one first (S9.3)."""
    if m.st[at.RULE_TARGETS_KEPT_WHOLE]:
        hold_last(m, run, pfn, order)
        return
    for page in range(pfn, pfn + (1 << order)):
        hold_first(m, run, page, 0)
    m.st[run + pr.RUN_HELD] += 1 << order


@inner
def retype_blocks(m: at.MachineArrays, zone: int, pfn: int, order: int) -> None:
    """Part of __isolate_free_page(): make the blocks of a large page movable (S9.3).

    Their other free pages follow, and blocks across the zone's edge stay; neither where lists need
    not match blocks.
    """
    page = pfn
    while page < pfn + (1 << order) - 1:
        first, end = pageblock_start_pfn(m, page), pageblock_end_pfn(m, page)
        inside = (
            first >= m.st[zone_at(zone) + at.ZONE_START]
            and end <= m.st[zone_at(zone) + at.ZONE_END]
        )
        block = page >> m.st[at.PAGEBLOCK_ORDER]
        if block_type_of(m, page) < at.PCP_TYPES:
            if not m.st[at.RULE_LISTS_MATCH_BLOCKS]:
                set_pageblock_migratetype(m, block, at.MOVABLE)
            elif inside:
                move_freepages_block(m, zone, block, at.MOVABLE)
        page += 1 << m.st[at.PAGEBLOCK_ORDER]
    forget_work(m)


@inner
def __isolate_free_page(m: at.MachineArrays, run: int, pfn: int) -> bool:
    """__isolate_free_page(): take a free buddy off its list and hold it as a target (S9.3).

    Returns False if that would leave the zone below its min watermark, without a boost.
    """
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
        retype_blocks(m, zone, pfn, order)
    hold(m, run, pfn, order)
    return True


@inner
def isolate_freepages_block(m: at.MachineArrays, run: int, pfn: int, end: int, stride: int) -> int:
    """isolate_freepages_block(): hold free pages of a block until there are enough (S9.3).

    One page of every `stride` is looked at. Returns where the scan ended, `end` at most.
    """
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
            pfn + size <= end or not m.st[at.RULE_TARGET_STEPS_END_IN_BLOCK]
        ):
            scanned += stepped_over(m, int(m.pages[pfn]["order"]))
            pfn += size - 1
        pfn += stride
    m.st[run + pr.RUN_FREE_SCANNED] += scanned
    m.st[word_at(m, pr.COMPACT_ISOLATED)] += m.st[run + pr.RUN_HELD] - before
    return min(pfn, end)


@inner
def fast_isolate_around(m: at.MachineArrays, run: int, pfn: int) -> None:
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
    if is_whole if m.st[at.RULE_FAST_TARGETS_MARKED_AT_END] else lacks:
        set_pageblock_skip(m, start, 1)


@inner
def search_list(
    m: at.MachineArrays, zone: int, lst: int, low: int, least: int, limit: int, highest: int
) -> tuple[int, int, int, int, int, int]:
    """Part of fast_isolate_freepages(): search a free list from its tail (S9.3).

    Args:
        m: the machine.
        zone: whose list it is.
        lst: offset of the list.
        low: a page from here on is taken at once.
        least: the highest page from here on is taken if there is no such page.
        limit: pages to look at; each candidate halves it.
        highest: first page of the highest block seen so far.

    Returns:
        A page to take at once or -1, the highest candidate or 0, the page looked at last or -1 if
        none or all were, pages looked at, the limit left, the highest block seen.
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
def block_found_late(m: at.MachineArrays, run: int, highest: int, least: int) -> int:
    """Part of fast_isolate_freepages(): let a first scan in vain begin lower (S9.3).

    Returns a page of the block to look into, or -1.
    """
    zone = m.st[run + pr.RUN_ZONE] - 1
    if highest >= least:
        m.st[run + pr.RUN_FREE] = highest
        return highest
    if m.st[run + pr.RUN_DIRECT] and least < m.st[at.END_PFN]:
        m.st[run + pr.RUN_FREE] = least
        is_target = not m.st[at.RULE_LATE_TARGET_BLOCK_TESTED] or suitable_migration_target(
            m, run, least
        )
        if block_is_of_zone(m, zone, least) and is_target:
            return least
    return -1


@cold
def fast_isolate_freepages(m: at.MachineArrays, number: int) -> None:
    """fast_isolate_freepages(): take targets from free lists rather than by scanning (S9.3).

    Orders below the request's are searched in turn, each from the list's tail, for pages in the
    upper quarter, else the upper half of what lies between the scanners.
    """
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
        if has_enough and m.st[at.RULE_FAST_TARGETS_END_AT_ENOUGH]:
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
def isolate_freepages(m: at.MachineArrays, number: int) -> None:
    """isolate_freepages(): hold free pages, of lower and lower blocks (S9.3).

    It stops when there are enough, at the first page that a watermark keeps, or behind the block of
    the other scanner.
    """
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
def compaction_alloc(m: at.MachineArrays, number: int, order: int) -> int:
    """compaction_alloc(): return a target of an order, or -1 if a search finds none (S9.3).

    It is cut from the smallest page held that is large enough.
    """
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
                if m.st[at.RULE_TARGETS_KEPT_WHOLE]:
                    m.st[run + pr.RUN_SOURCE_PAGES] -= 1 << order
                return pfn
        if attempt == 0:
            isolate_freepages(m, number)
    return -1


@inner
def compaction_free(m: at.MachineArrays, run: int, pfn: int) -> None:
    """compaction_free(): hold a target again that was not used."""
    order = int(m.pages[pfn]["order"])
    hold_first(m, run, pfn, order)
    m.st[run + pr.RUN_HELD] += 1 << order
    if m.st[at.RULE_TARGETS_KEPT_WHOLE]:
        m.st[run + pr.RUN_SOURCE_PAGES] += 1 << order
