"""Drains of per-CPU lists that hold buddies: largest first, fragments last in the zone (S12.5)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.buddy import free_to_buddy, unlink
from pagealloc_model.allocator.core.event_log import count_hold, log_hold, log_page
from pagealloc_model.allocator.core.offsets import pcp_at, zone_at
from pagealloc_model.allocator.ownership.ownership import note_drained, option, owner_of
from pagealloc_model.base.jit import inner


@inner
def next_drained(st: np.ndarray, pcp: int, index: int) -> int:
    """The list to drain from: `index`, or the next one that has pages; the pageset has some.

    Larger orders come first, or lists follow each other and wrap, as without ownership (S5.6).
    """
    lists = 3 * (st[at.PAGEBLOCK_ORDER] + 1)
    in_turn = option(st, own.OPTION_DRAIN_FROM) == own.DRAINS_FREED_LIST
    while st[pcp + at.PCP_LISTS + index * at.LIST_WORDS + at.TAIL] < 0:
        if in_turn:
            index = index + 1 if index + 1 < lists else 0
        else:
            index = index + 1 if index % 3 < 2 else index - 5
    return index


@inner
def first_drained(st: np.ndarray, freed_list: int) -> int:
    """The list that a drain looks at first."""
    if option(st, own.OPTION_DRAIN_FROM) == own.DRAINS_FREED_LIST:
        return freed_list
    return 3 * st[at.PAGEBLOCK_ORDER]


@inner
def return_to_zone(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, zone: int, pfn: int, migratetype: int
) -> None:
    """Free a drained page to the zone; if a fragment of an owned block, last, and recorded."""
    order = int(pages[pfn]["order"])
    block = pfn >> st[at.PAGEBLOCK_ORDER]
    is_fragment = order < st[at.PAGEBLOCK_ORDER] and owner_of(st, block) >= 0
    if is_fragment and option(st, own.OPTION_FRAGMENTS) != own.FRAGMENTS_AS_USUAL:
        st[at.FREES_TO_TAIL] = 1
    free_to_buddy(pages, blocks, st, zone, pfn, order, migratetype)
    st[at.FREES_TO_TAIL] = 0
    note_drained(blocks, st, zone, block)


@inner
def drain_owned(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    count: int,
    freed_list: int,
    site: int,
) -> None:
    """Return `count` pages or a little more of a CPU's lists, in one hold of zone->lock.

    A drain for a free counts for the CPU at work, which need not be the lists' own.
    """
    pcp = pcp_at(st, zone, cpu)
    block_order = st[at.PAGEBLOCK_ORDER]
    as_of_block = st[at.LISTS_MATCH_BLOCKS] or st[zone_at(zone) + at.ZONE_HAS_ISOLATED]
    count = min(count, st[pcp + at.PCP_COUNT])
    index = first_drained(st, freed_list)
    objects = 0
    drained = 0
    while drained < count:
        index = next_drained(st, pcp, index)
        lst = pcp + at.PCP_LISTS + index * at.LIST_WORDS
        pfn = st[lst + at.TAIL]
        unlink(pages, st, lst, pfn)
        order = index // 3
        migratetype = int(pages[pfn]["tag"])
        if as_of_block:
            migratetype = int(blocks[pfn >> block_order]["migratetype"])
        return_to_zone(pages, blocks, st, zone, pfn, migratetype)
        log_page(st, log, at.LOG_PCPU_DRAIN, zone, pfn, order, migratetype, 0, 0, 0)
        drained += 1 << order
        objects += 1
    st[pcp + at.PCP_COUNT] -= drained
    counted = st[at.EVENT_CPU] if site == at.SITE_DRAIN_COMMIT else cpu
    count_hold(st, site, zone, counted, objects, drained)
    log_hold(st, log, site, zone, cpu, 0, -1, objects, drained)
