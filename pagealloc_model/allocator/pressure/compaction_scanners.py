"""Compaction's two scanners: pages to move, from below; free pages, from above (S9.3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.buddy import __del_page_from_free_list
from pagealloc_model.allocator.core.counters import account_freepages, seen_free
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.watermark import __zone_watermark_ok
from pagealloc_model.allocator.pressure.lru import lruvec_del_folio
from pagealloc_model.allocator.pressure.pressure_offsets import (
    compactor_at,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import inner


@inner
def is_migrate_movable(m: at.MachineArrays, migratetype: int) -> bool:
    """is_migrate_movable(): return whether a block of this type is for movable pages."""
    return migratetype == at.MOVABLE or migratetype == m.st[at.CMA]


@inner
def is_left_out(m: at.MachineArrays, run: int, first: int) -> bool:
    """Part of isolation_suitable(): return whether a run leaves a block out (S9.3).

    It does if the block has a skip mark, unless the run sees the whole zone.
    """
    sees_all = m.st[run + pr.RUN_MODE] == pr.SYNC_FULL or m.st[run + pr.RUN_ORDER] < 0
    return int(m.folios[first]["skip"]) == 1 and not sees_all


@inner
def is_source(m: at.MachineArrays, run: int, block: int) -> bool:
    """Part of suitable_migration_source(): return whether to scan a block (S9.3)."""
    first = block << m.st[at.PAGEBLOCK_ORDER]
    if int(m.blocks[block]["zone"]) != m.st[run + pr.RUN_ZONE]:
        return False
    if is_left_out(m, run, first):
        return False
    if int(m.pages[first]["order"]) >= m.st[at.PAGEBLOCK_ORDER]:
        where = int(m.pages[first]["where"])
        if where == at.BUDDY or where == at.ALLOCATED:
            return False
    if m.st[run + pr.RUN_MODE] != pr.ASYNC or not m.st[run + pr.RUN_DIRECT]:
        return True
    block_type = int(m.blocks[block]["migratetype"])
    if m.st[run + pr.RUN_TYPE] == at.MOVABLE or (
        m.st[at.RULE_ASYNC_SOURCE_BY_ORDER] and m.st[run + pr.RUN_ORDER] >= m.st[at.PAGEBLOCK_ORDER]
    ):
        return is_migrate_movable(m, block_type)
    return block_type == m.st[run + pr.RUN_TYPE]


@inner
def is_isolated(m: at.MachineArrays, run: int, pfn: int) -> bool:
    """Part of isolate_migratepages_block(): return whether the source scanner takes a page.

    It takes those that are on an LRU list and small enough.
    """
    if int(m.pages[pfn]["where"]) != at.ALLOCATED or int(m.folios[pfn]["place"]) == 0:
        return False
    limit = m.st[at.PAGEBLOCK_ORDER]
    if m.st[run + pr.RUN_ORDER] > 0:
        limit = min(limit, m.st[run + pr.RUN_ORDER])
    return int(m.pages[pfn]["order"]) < limit


@inner
def frames_of(m: at.MachineArrays, pfn: int, end: int) -> int:
    """Part of isolate_migratepages_block(): return the frames up to the next page scanned."""
    if int(m.pages[pfn]["where"]) == at.NOWHERE:
        return 1
    return min(1 << int(m.pages[pfn]["order"]), end - pfn)


@inner
def add_source(m: at.MachineArrays, run: int, pfn: int) -> None:
    """Part of isolate_migratepages_block(): append an isolated folio to those of the unit."""
    m.pages[pfn]["next"] = -1
    if m.st[run + pr.RUN_SOURCES] < 0:
        m.st[run + pr.RUN_SOURCES] = pfn
    else:
        m.pages[m.st[run + pr.RUN_SOURCE_TAIL]]["next"] = pfn
    m.st[run + pr.RUN_SOURCE_TAIL] = pfn
    m.st[run + pr.RUN_SOURCE_PAGES] += 1 << int(m.pages[pfn]["order"])


@inner
def isolate_migratepages(m: at.MachineArrays, number: int) -> int:
    """isolate_migratepages(): take movable folios from the next block (S9.3).

    Returns the frames looked at. It takes a cluster at most. The scanner's position moves on; no
    folio is taken once it has met the other scanner.
    """
    run = compactor_at(m, number)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    pfn = m.st[run + pr.RUN_MIGRATE]
    last = m.st[run + pr.RUN_FREE] >> block_order
    while pfn >> block_order < last:
        block = pfn >> block_order
        begins = pfn == block << block_order
        if not begins or is_source(m, run, block):
            break
        pfn = (block + 1) << block_order
    m.st[run + pr.RUN_MIGRATE] = pfn
    if pfn >> block_order >= last:
        return 0
    first = pfn
    end = ((pfn >> block_order) + 1) << block_order
    while pfn < end and m.st[run + pr.RUN_SOURCE_PAGES] < pr.CLUSTER:
        size = frames_of(m, pfn, end)
        if is_isolated(m, run, pfn):
            m.pages[pfn]["prev"] = lruvec_del_folio(m, pfn)
            add_source(m, run, pfn)
        pfn += size
    if pfn == end and first == end - (1 << block_order) and m.st[run + pr.RUN_SOURCE_PAGES] == 0:
        m.folios[first]["skip"] = 1
    m.st[run + pr.RUN_MIGRATE] = pfn
    update_cached_migrate(m, run, pfn)
    m.st[word_at(m, pr.COMPACT_MIGRATE_SCANNED)] += pfn - first
    m.st[word_at(m, pr.COMPACT_ISOLATED)] += m.st[run + pr.RUN_SOURCE_PAGES]
    return pfn - first


@inner
def update_cached_migrate(m: at.MachineArrays, run: int, pfn: int) -> None:
    """update_cached_migrate(): remember the source scanner's position for later runs (S9.3)."""
    words = zone_pressure_at(m, m.st[run + pr.RUN_ZONE] - 1)
    cached = words + pr.ZONE_MIGRATE_ASYNC
    m.st[cached] = max(m.st[cached], pfn)
    if m.st[run + pr.RUN_MODE] != pr.ASYNC:
        m.st[words + pr.ZONE_MIGRATE_SYNC] = max(m.st[words + pr.ZONE_MIGRATE_SYNC], pfn)


@inner
def is_target(m: at.MachineArrays, run: int, block: int) -> bool:
    """Part of suitable_migration_target(): return whether to scan a block (S9.3)."""
    first = block << m.st[at.PAGEBLOCK_ORDER]
    if int(m.blocks[block]["zone"]) != m.st[run + pr.RUN_ZONE]:
        return False
    if is_left_out(m, run, first):
        return False
    wanted = m.st[run + pr.RUN_ORDER] if m.st[run + pr.RUN_ORDER] > 0 else m.st[at.PAGEBLOCK_ORDER]
    if int(m.pages[first]["where"]) == at.BUDDY and int(m.pages[first]["order"]) >= wanted:
        return False
    return is_migrate_movable(m, int(m.blocks[block]["migratetype"]))


@inner
def may_take(m: at.MachineArrays, zone: int, order: int) -> bool:
    """Part of __isolate_free_page(): return whether the min watermark lets a page go (S9.3).

    It is the mark without a boost.
    """
    mark = m.st[zone_at(zone) + at.ZONE_MIN] + (1 << order)
    return __zone_watermark_ok(m, zone, 0, mark, 0, at.ALLOC_CMA, seen_free(m, zone))


@inner
def __isolate_free_page(m: at.MachineArrays, run: int, pfn: int) -> None:
    """__isolate_free_page(): take a free buddy off its list and keep it as a target."""
    zone = m.st[run + pr.RUN_ZONE] - 1
    order = int(m.pages[pfn]["order"])
    migratetype = int(m.pages[pfn]["tag"])
    __del_page_from_free_list(m, zone, pfn)
    account_freepages(m, zone, migratetype, -(1 << order))
    keep(m, run, pfn, order)


@inner
def keep(m: at.MachineArrays, run: int, pfn: int, order: int) -> None:
    """No kernel function: put a page among the targets held; it is plain (S12.8)."""
    m.pages[pfn]["where"] = pr.HELD
    m.pages[pfn]["flags"] = 0
    m.pages[pfn]["order"] = order
    m.pages[pfn]["next"] = m.st[run + pr.RUN_TARGETS + order]
    m.st[run + pr.RUN_TARGETS + order] = pfn
    m.st[run + pr.RUN_HELD] += 1 << order


@inner
def isolate_freepages(m: at.MachineArrays, number: int, wanted: int) -> int:
    """isolate_freepages(): hold free pages of lower and lower blocks (S9.3).

    It stops when there are enough. Returns the frames looked at.
    """
    run = compactor_at(m, number)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    zone = m.st[run + pr.RUN_ZONE] - 1
    scanned = 0
    before = m.st[run + pr.RUN_HELD]
    allowed = True
    while (
        allowed
        and m.st[run + pr.RUN_HELD] < wanted
        and m.st[run + pr.RUN_FREE] >> block_order > m.st[run + pr.RUN_MIGRATE] >> block_order
    ):
        block = m.st[run + pr.RUN_FREE] >> block_order
        if is_target(m, run, block):
            held = m.st[run + pr.RUN_HELD]
            pfn = block << block_order
            end = pfn + (1 << block_order)
            while pfn < end and allowed:
                size = frames_of(m, pfn, end)
                scanned += size
                if int(m.pages[pfn]["where"]) == at.BUDDY:
                    whole = 1 << int(m.pages[pfn]["order"])
                    scanned += whole - size
                    allowed = may_take(m, zone, int(m.pages[pfn]["order"]))
                    if allowed:
                        __isolate_free_page(m, run, pfn)
                pfn += size
            if allowed and m.st[run + pr.RUN_HELD] == held:
                m.folios[block << block_order]["skip"] = 1
        if allowed:
            m.st[run + pr.RUN_FREE] = (block - 1) << block_order
    words = zone_pressure_at(m, zone)
    m.st[words + pr.ZONE_FREE_FROM] = min(m.st[words + pr.ZONE_FREE_FROM], m.st[run + pr.RUN_FREE])
    m.st[word_at(m, pr.COMPACT_FREE_SCANNED)] += scanned
    m.st[word_at(m, pr.COMPACT_ISOLATED)] += m.st[run + pr.RUN_HELD] - before
    return scanned


@inner
def take_target(m: at.MachineArrays, run: int, order: int) -> int:
    """Part of compaction_alloc(): return a page of this order from those held, or -1.

    It is cut from a larger one if need be.
    """
    for current in range(order, m.st[at.MAX_ORDER] + 1):
        pfn = m.st[run + pr.RUN_TARGETS + current]
        if pfn >= 0:
            m.st[run + pr.RUN_TARGETS + current] = int(m.pages[pfn]["next"])
            m.st[run + pr.RUN_HELD] -= 1 << current
            for half in range(current - 1, order - 1, -1):
                keep(m, run, pfn + (1 << half), half)
            m.pages[pfn]["order"] = order
            return pfn
    return -1
