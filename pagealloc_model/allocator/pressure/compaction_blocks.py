"""Pageblocks as compaction sees them: skip hints, where its scanners may look (S9.3)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.pressure.pressure_offsets import zone_pressure_at
from pagealloc_model.base.jit import inner


@inner
def pageblock_start_pfn(m: at.MachineArrays, pfn: int) -> int:
    """pageblock_start_pfn(): return the first page of a page's block."""
    order = m.st[at.PAGEBLOCK_ORDER]
    return pfn >> order << order


@inner
def pageblock_end_pfn(m: at.MachineArrays, pfn: int) -> int:
    """pageblock_end_pfn(): return the page behind a page's block."""
    order = m.st[at.PAGEBLOCK_ORDER]
    return ((pfn >> order) + 1) << order


@inner
def pageblock_aligned(m: at.MachineArrays, pfn: int) -> bool:
    """pageblock_aligned(): return whether a page is the first of a block."""
    return pfn & ((1 << m.st[at.PAGEBLOCK_ORDER]) - 1) == 0


@inner
def begins_block(m: at.MachineArrays, zone: int, pfn: int) -> bool:
    """Part of isolate_migratepages(): return whether a scan from a page has all of its block."""
    if pageblock_aligned(m, pfn):
        return True
    return m.st[at.RULE_ZONE_START_BEGINS_BLOCK] != 0 and pfn == m.st[zone_at(zone) + at.ZONE_START]


@inner
def stepped_over(m: at.MachineArrays, order: int) -> int:
    """Part of isolate_migratepages_block(): return how many pages more than one count as scanned.

    They are those of a buddy or of a compound page that a scanner steps over (S9.3).
    """
    return (1 << order) - 1 if m.st[at.RULE_SCANS_COUNT_SKIPPED_PAGES] else 0


@inner
def block_is_of_zone(m: at.MachineArrays, zone: int, pfn: int) -> bool:
    """pageblock_pfn_to_page(): return whether the block around a page is one of a zone's."""
    if pfn < 0 or pfn >= m.st[at.END_PFN]:
        return False
    return int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["zone"]) == zone + 1


@inner
def block_type_of(m: at.MachineArrays, pfn: int) -> int:
    """get_pfnblock_migratetype(): return the type of the block around a page."""
    return int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["migratetype"])


@inner
def get_pageblock_skip(m: at.MachineArrays, pfn: int) -> bool:
    """get_pageblock_skip(): return whether compaction has a mark to leave a block out."""
    return int(m.folios[pageblock_start_pfn(m, pfn)]["skip"]) != 0


@inner
def set_pageblock_skip(m: at.MachineArrays, pfn: int, value: int) -> None:
    """set_pageblock_skip(): set the mark of a block, or clear it."""
    m.folios[pageblock_start_pfn(m, pfn)]["skip"] = value


@inner
def isolation_suitable(m: at.MachineArrays, run: int, pfn: int) -> bool:
    """isolation_suitable(): return whether a run heeds no skip mark of a block (S9.3)."""
    return m.st[run + pr.RUN_IGNORES_SKIPS] != 0 or not get_pageblock_skip(m, pfn)


@inner
def is_migrate_movable(m: at.MachineArrays, migratetype: int) -> bool:
    """is_migrate_movable(): return whether a block of this type is for movable pages."""
    return migratetype == at.MOVABLE or migratetype == m.st[at.CMA]


@inner
def pageblock_skip_persistent(m: at.MachineArrays, pfn: int) -> bool:
    """pageblock_skip_persistent(): return whether one allocation fills a page's block."""
    for order in range(m.st[at.PAGEBLOCK_ORDER], m.st[at.MAX_ORDER] + 1):
        head = pfn >> order << order
        if int(m.pages[head]["where"]) == at.ALLOCATED and int(m.pages[head]["order"]) >= order:
            return True
    return False


@inner
def is_on_lru(m: at.MachineArrays, pfn: int) -> bool:
    """Part of __reset_isolation_pfn(): return whether a page is part of a folio on an LRU list."""
    for order in range(m.st[at.MAX_ORDER] + 1):
        head = pfn >> order << order
        if int(m.pages[head]["where"]) == at.ALLOCATED:
            return int(m.pages[head]["order"]) >= order and int(m.folios[head]["place"]) != 0
    return False


@inner
def suitable_migration_source(m: at.MachineArrays, run: int, pfn: int) -> bool:
    """suitable_migration_source(): return whether a run moves pages out of a block (S9.3)."""
    if pageblock_skip_persistent(m, pfn):
        return False
    if not m.st[run + pr.RUN_DIRECT]:
        return True
    block_type = block_type_of(m, pfn)
    if (
        m.st[at.RULE_DIRECT_SOURCE_NEEDS_CMA]
        and block_type == m.st[at.CMA]
        and not m.st[run + pr.RUN_FLAGS] & at.ALLOC_CMA
    ):
        return False
    if m.st[run + pr.RUN_MODE] != pr.ASYNC:
        return True
    if m.st[run + pr.RUN_TYPE] == at.MOVABLE or (
        m.st[at.RULE_ASYNC_SOURCE_BY_ORDER] and m.st[run + pr.RUN_ORDER] >= m.st[at.PAGEBLOCK_ORDER]
    ):
        return is_migrate_movable(m, block_type)
    return block_type == m.st[run + pr.RUN_TYPE]


@inner
def suitable_migration_target(m: at.MachineArrays, run: int, pfn: int) -> bool:
    """suitable_migration_target(): return whether to look for free pages in a block (S9.3).

    `pfn` is the block's first page, or its first of the zone.
    """
    wanted = m.st[at.PAGEBLOCK_ORDER]
    if m.st[run + pr.RUN_ORDER] > 0 and m.st[at.RULE_TARGET_BLOCK_BY_ORDER]:
        wanted = m.st[run + pr.RUN_ORDER]
    if int(m.pages[pfn]["where"]) == at.BUDDY and int(m.pages[pfn]["order"]) >= wanted:
        return False
    return m.st[run + pr.RUN_TAKES_ANY_BLOCK] != 0 or is_migrate_movable(m, block_type_of(m, pfn))


@inner
def reset_cached_positions(m: at.MachineArrays, zone: int) -> None:
    """reset_cached_positions(): let the scanners begin at the zone's ends again (S9.3)."""
    words = zone_pressure_at(m, zone)
    first = m.st[zone_at(zone) + at.ZONE_START]
    m.st[words + pr.ZONE_MIGRATE_ASYNC] = first
    m.st[words + pr.ZONE_MIGRATE_SYNC] = first
    m.st[words + pr.ZONE_FREE_FROM] = pageblock_start_pfn(m, m.st[zone_at(zone) + at.ZONE_END] - 1)


@inner
def update_cached_migrate(m: at.MachineArrays, run: int, pfn: int) -> None:
    """update_cached_migrate(): let later runs begin behind the block around a page (S9.3).

    A page at a block's beginning, such as the end of the block just scanned, is in that block.
    """
    words = zone_pressure_at(m, m.st[run + pr.RUN_ZONE] - 1)
    end = pageblock_end_pfn(m, pfn)
    m.st[words + pr.ZONE_MIGRATE_ASYNC] = max(m.st[words + pr.ZONE_MIGRATE_ASYNC], end)
    if m.st[run + pr.RUN_MODE] != pr.ASYNC:
        m.st[words + pr.ZONE_MIGRATE_SYNC] = max(m.st[words + pr.ZONE_MIGRATE_SYNC], end)


@inner
def __reset_isolation_pfn(
    m: at.MachineArrays, zone: int, pfn: int, as_source: bool, as_target: bool
) -> bool:
    """__reset_isolation_pfn(): clear a block's skip mark if a sample shows pages to work with.

    Every eighth page (by the costly order) is looked at. Returns whether scanners may begin here.
    """
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
def __reset_isolation_suitable(m: at.MachineArrays, zone: int) -> None:
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
