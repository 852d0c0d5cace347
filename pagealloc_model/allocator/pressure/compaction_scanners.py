"""Compaction's two scanners: pages to move, from below; free pages, from above (S9.3)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.buddy import remove_buddy
from pagealloc_model.allocator.core.counters import account_free, seen_free
from pagealloc_model.allocator.core.watermark import above_mark, mark_pages
from pagealloc_model.allocator.pressure.lru import lru_remove
from pagealloc_model.allocator.pressure.pressure_offsets import (
    compactor_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.base.jit import inner


@inner
def holds_movable(st: np.ndarray, migratetype: int) -> bool:
    """Whether a block of this type is for movable pages."""
    return migratetype == at.MOVABLE or migratetype == st[at.CMA]


@inner
def is_left_out(st: np.ndarray, folios: np.ndarray, run: int, first: int) -> bool:
    """Whether a run heeds a block's skip mark: those that see the whole zone do not (S9.3)."""
    sees_all = st[run + pr.RUN_MODE] == pr.SYNC_FULL or st[run + pr.RUN_ORDER] < 0
    return int(folios[first]["skip"]) == 1 and not sees_all


@inner
def is_source(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, run: int, block: int
) -> bool:
    """Whether the source scanner looks into a block (S9.3)."""
    first = block << st[at.PAGEBLOCK_ORDER]
    if int(blocks[block]["zone"]) != st[run + pr.RUN_ZONE]:
        return False
    if is_left_out(st, folios, run, first):
        return False
    if int(pages[first]["order"]) >= st[at.PAGEBLOCK_ORDER]:
        where = int(pages[first]["where"])
        if where == at.BUDDY or where == at.ALLOCATED:
            return False
    if st[run + pr.RUN_MODE] != pr.ASYNC or not st[run + pr.RUN_DIRECT]:
        return True
    block_type = int(blocks[block]["migratetype"])
    if st[run + pr.RUN_TYPE] == at.MOVABLE or (
        value_of(st, pr.ASYNC_SOURCE_BY_ORDER) and st[run + pr.RUN_ORDER] >= st[at.PAGEBLOCK_ORDER]
    ):
        return holds_movable(st, block_type)
    return block_type == st[run + pr.RUN_TYPE]


@inner
def is_isolated(pages: np.ndarray, st: np.ndarray, folios: np.ndarray, run: int, pfn: int) -> bool:
    """Whether a page is one that the source scanner takes: on an LRU list, and small enough."""
    if int(pages[pfn]["where"]) != at.ALLOCATED or int(folios[pfn]["place"]) == 0:
        return False
    limit = st[at.PAGEBLOCK_ORDER]
    if st[run + pr.RUN_ORDER] > 0:
        limit = min(limit, st[run + pr.RUN_ORDER])
    return int(pages[pfn]["order"]) < limit


@inner
def frames_of(pages: np.ndarray, pfn: int, end: int) -> int:
    """Frames up to the next page that a scan looks at."""
    if int(pages[pfn]["where"]) == at.NOWHERE:
        return 1
    return min(1 << int(pages[pfn]["order"]), end - pfn)


@inner
def add_source(pages: np.ndarray, st: np.ndarray, run: int, pfn: int) -> None:
    """Append an isolated folio to those of the unit."""
    pages[pfn]["next"] = -1
    if st[run + pr.RUN_SOURCES] < 0:
        st[run + pr.RUN_SOURCES] = pfn
    else:
        pages[st[run + pr.RUN_SOURCE_TAIL]]["next"] = pfn
    st[run + pr.RUN_SOURCE_TAIL] = pfn
    st[run + pr.RUN_SOURCE_PAGES] += 1 << int(pages[pfn]["order"])


@inner
def isolate_sources(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    number: int,
) -> int:
    """Take up to a cluster of movable folios from the next block; frames looked at (S9.3).

    The scanner's position moves on; none are taken once it has met the other.
    """
    run = compactor_at(st, number)
    block_order = st[at.PAGEBLOCK_ORDER]
    pfn = st[run + pr.RUN_MIGRATE]
    last = st[run + pr.RUN_FREE] >> block_order
    while pfn >> block_order < last:
        block = pfn >> block_order
        begins = pfn == block << block_order
        if not begins or is_source(pages, blocks, st, folios, run, block):
            break
        pfn = (block + 1) << block_order
    st[run + pr.RUN_MIGRATE] = pfn
    if pfn >> block_order >= last:
        return 0
    first = pfn
    end = ((pfn >> block_order) + 1) << block_order
    while pfn < end and st[run + pr.RUN_SOURCE_PAGES] < pr.CLUSTER:
        size = frames_of(pages, pfn, end)
        if is_isolated(pages, st, folios, run, pfn):
            pages[pfn]["prev"] = lru_remove(pages, blocks, st, folios, pfn)
            add_source(pages, st, run, pfn)
        pfn += size
    if pfn == end and first == end - (1 << block_order) and st[run + pr.RUN_SOURCE_PAGES] == 0:
        folios[first]["skip"] = 1
    st[run + pr.RUN_MIGRATE] = pfn
    note_source_position(st, run, pfn)
    st[word_at(st, pr.COMPACT_MIGRATE_SCANNED)] += pfn - first
    st[word_at(st, pr.COMPACT_ISOLATED)] += st[run + pr.RUN_SOURCE_PAGES]
    return pfn - first


@inner
def note_source_position(st: np.ndarray, run: int, pfn: int) -> None:
    """Remember how far the source scanner came, for later runs (S9.3)."""
    words = zone_pressure_at(st, st[run + pr.RUN_ZONE] - 1)
    cached = words + pr.ZONE_MIGRATE_ASYNC
    st[cached] = max(st[cached], pfn)
    if st[run + pr.RUN_MODE] != pr.ASYNC:
        st[words + pr.ZONE_MIGRATE_SYNC] = max(st[words + pr.ZONE_MIGRATE_SYNC], pfn)


@inner
def is_target(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, folios: np.ndarray, run: int, block: int
) -> bool:
    """Whether the free scanner looks into a block (S9.3)."""
    first = block << st[at.PAGEBLOCK_ORDER]
    if int(blocks[block]["zone"]) != st[run + pr.RUN_ZONE]:
        return False
    if is_left_out(st, folios, run, first):
        return False
    wanted = st[run + pr.RUN_ORDER] if st[run + pr.RUN_ORDER] > 0 else st[at.PAGEBLOCK_ORDER]
    if int(pages[first]["where"]) == at.BUDDY and int(pages[first]["order"]) >= wanted:
        return False
    return holds_movable(st, int(blocks[block]["migratetype"]))


@inner
def may_take(st: np.ndarray, zone: int, order: int) -> bool:
    """Whether a free page may leave without breaking the min watermark (S9.3)."""
    mark = mark_pages(st, zone, at.WMARK_MIN) + (1 << order)
    return above_mark(st, zone, 0, mark, 0, at.ALLOC_CMA, seen_free(st, zone))


@inner
def hold(pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, run: int, pfn: int) -> None:
    """Take a free buddy off its list and keep it as a target."""
    zone = st[run + pr.RUN_ZONE] - 1
    order = int(pages[pfn]["order"])
    migratetype = int(pages[pfn]["tag"])
    remove_buddy(pages, st, zone, pfn)
    account_free(st, zone, migratetype, -(1 << order))
    keep(pages, st, run, pfn, order)


@inner
def keep(pages: np.ndarray, st: np.ndarray, run: int, pfn: int, order: int) -> None:
    """Put a page among the targets held."""
    pages[pfn]["where"] = pr.HELD
    pages[pfn]["order"] = order
    pages[pfn]["next"] = st[run + pr.RUN_TARGETS + order]
    st[run + pr.RUN_TARGETS + order] = pfn
    st[run + pr.RUN_HELD] += 1 << order


@inner
def isolate_targets(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    number: int,
    wanted: int,
) -> int:
    """Hold free pages of lower and lower blocks until there are enough; frames looked at (S9.3)."""
    run = compactor_at(st, number)
    block_order = st[at.PAGEBLOCK_ORDER]
    zone = st[run + pr.RUN_ZONE] - 1
    scanned = 0
    before = st[run + pr.RUN_HELD]
    allowed = True
    while (
        allowed
        and st[run + pr.RUN_HELD] < wanted
        and st[run + pr.RUN_FREE] >> block_order > st[run + pr.RUN_MIGRATE] >> block_order
    ):
        block = st[run + pr.RUN_FREE] >> block_order
        if is_target(pages, blocks, st, folios, run, block):
            held = st[run + pr.RUN_HELD]
            pfn = block << block_order
            end = pfn + (1 << block_order)
            while pfn < end and allowed:
                size = frames_of(pages, pfn, end)
                if int(pages[pfn]["where"]) == at.BUDDY:
                    allowed = may_take(st, zone, int(pages[pfn]["order"]))
                    if allowed:
                        hold(pages, blocks, st, run, pfn)
                pfn += size
            scanned += pfn - (block << block_order)
            if allowed and st[run + pr.RUN_HELD] == held:
                folios[block << block_order]["skip"] = 1
        if allowed:
            st[run + pr.RUN_FREE] = (block - 1) << block_order
    words = zone_pressure_at(st, zone)
    st[words + pr.ZONE_FREE_FROM] = min(st[words + pr.ZONE_FREE_FROM], st[run + pr.RUN_FREE])
    st[word_at(st, pr.COMPACT_FREE_SCANNED)] += scanned
    st[word_at(st, pr.COMPACT_ISOLATED)] += st[run + pr.RUN_HELD] - before
    return scanned


@inner
def take_target(pages: np.ndarray, st: np.ndarray, run: int, order: int) -> int:
    """A page of this order from those held, cut from a larger one if need be; -1 if none."""
    for current in range(order, st[at.MAX_ORDER] + 1):
        pfn = st[run + pr.RUN_TARGETS + current]
        if pfn >= 0:
            st[run + pr.RUN_TARGETS + current] = int(pages[pfn]["next"])
            st[run + pr.RUN_HELD] -= 1 << current
            for half in range(current - 1, order - 1, -1):
                keep(pages, st, run, pfn + (1 << half), half)
            pages[pfn]["order"] = order
            return pfn
    return -1
