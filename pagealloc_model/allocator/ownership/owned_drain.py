"""Drains of per-CPU lists that hold buddies: largest first, fragments last in the zone (S12.5)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.buddy import __free_one_page
from pagealloc_model.allocator.core.event_log import count_hold, log_hold, log_page
from pagealloc_model.allocator.core.offsets import pcp_at, zone_at
from pagealloc_model.allocator.core.page_lists import list_del
from pagealloc_model.allocator.ownership.ownership import note_drained, option, owner_of
from pagealloc_model.base.jit import inner


@inner
def next_drained(m: at.MachineArrays, pcp: int, index: int) -> int:
    """Part of free_pcppages_bulk(): return the list to drain from, where blocks are owned.

    It is `index`, or the next one that has pages; the pageset has some. Larger orders come first,
    or lists follow each other and wrap, as without ownership (S5.6).
    """
    lists = 3 * (m.st[at.PAGEBLOCK_ORDER] + 1)
    in_turn = option(m, own.OPTION_DRAIN_FROM) == own.DRAINS_FREED_LIST
    while m.st[pcp + at.PCP_LISTS + index * at.LIST_WORDS + at.TAIL] < 0:
        if in_turn:
            index = index + 1 if index + 1 < lists else 0
        else:
            index = index + 1 if index % 3 < 2 else index - 5
    return index


@inner
def first_drained(m: at.MachineArrays, freed_list: int) -> int:
    """Part of free_pcppages_bulk(): return the list that a drain looks at first."""
    if option(m, own.OPTION_DRAIN_FROM) == own.DRAINS_FREED_LIST:
        return freed_list
    return 3 * m.st[at.PAGEBLOCK_ORDER]


@inner
def return_to_zone(m: at.MachineArrays, zone: int, pfn: int, migratetype: int) -> None:
    """Part of free_pcppages_bulk(): free a drained page to the zone.

    A fragment of an owned block goes last, and the block is recorded.
    """
    order = int(m.pages[pfn]["order"])
    block = pfn >> m.st[at.PAGEBLOCK_ORDER]
    is_fragment = order < m.st[at.PAGEBLOCK_ORDER] and owner_of(m, block) >= 0
    to_tail = is_fragment and option(m, own.OPTION_FRAGMENTS) != own.FRAGMENTS_AS_USUAL
    __free_one_page(m, zone, pfn, order, migratetype, to_tail)
    note_drained(m, zone, block)


@inner
def drain_owned(
    m: at.MachineArrays, zone: int, cpu: int, count: int, freed_list: int, site: int
) -> None:
    """free_pcppages_bulk(): return `count` pages or a little more, where blocks are owned.

    It takes one hold of zone->lock. A drain for a free counts for the CPU at work, which need not
    be the lists' own.
    """
    pcp = pcp_at(m, zone, cpu)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    as_of_block = m.st[at.RULE_LISTS_MATCH_BLOCKS] or m.st[zone_at(zone) + at.ZONE_HAS_ISOLATED]
    count = min(count, m.st[pcp + at.PCP_COUNT])
    index = first_drained(m, freed_list)
    objects = 0
    drained = 0
    while drained < count:
        index = next_drained(m, pcp, index)
        lst = pcp + at.PCP_LISTS + index * at.LIST_WORDS
        pfn = m.st[lst + at.TAIL]
        list_del(m.pages, m.st, lst, pfn)
        order = index // 3
        migratetype = int(m.pages[pfn]["tag"])
        if as_of_block:
            migratetype = int(m.blocks[pfn >> block_order]["migratetype"])
        return_to_zone(m, zone, pfn, migratetype)
        log_page(m, at.LOG_PCPU_DRAIN, zone, pfn, order, migratetype)
        drained += 1 << order
        objects += 1
    m.st[pcp + at.PCP_COUNT] -= drained
    counted = m.st[at.EVENT_CPU] if site == at.SITE_DRAIN_COMMIT else cpu
    count_hold(m, site, zone, counted, objects, drained)
    log_hold(m, site, zone, cpu, 0, -1, objects, drained)
