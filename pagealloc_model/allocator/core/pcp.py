"""Per-CPU lists: refill sizing, tuning, frees, drains and decay (S4)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.arithmetic import clamp
from pagealloc_model.allocator.core.buddy import free_to_buddy, push_head, push_tail, unlink
from pagealloc_model.allocator.core.counters import (
    begin_refill,
    end_refill,
    fold_counters,
    seen_free,
)
from pagealloc_model.allocator.core.event_log import count_transaction, log_page
from pagealloc_model.allocator.core.fallback import MODE_NORMAL, take_page
from pagealloc_model.allocator.core.list_locks import (
    lock_list,
    lock_list_to_drain,
    lock_list_to_free,
)
from pagealloc_model.allocator.core.offsets import pcp_at, zone_at
from pagealloc_model.allocator.core.pcp_fixed import overflow_of_fixed
from pagealloc_model.allocator.core.watermark import above_mark, mark_pages
from pagealloc_model.allocator.ownership.owned_drain import drain_owned
from pagealloc_model.allocator.ownership.owned_lists import merge_before_drain
from pagealloc_model.allocator.ownership.ownership import after_full_drain, age_ownership
from pagealloc_model.base.jit import cold, hot, inner


@hot
def list_index(st: np.ndarray, order: int, migratetype: int) -> int:
    """Index of the list for an order and type (S1.9), -1 if such pages bypass the lists."""
    costly = st[at.COSTLY_ORDER]
    if order <= costly:
        return 3 * order + migratetype
    if st[at.THP_LISTS] and order == st[at.HUGE_ORDER]:
        return 3 * (costly + 1) + (1 if migratetype == at.MOVABLE else 0)
    return -1


@inner
def list_count(st: np.ndarray) -> int:
    """Number of lists in a pageset (S1.9)."""
    return 3 * (st[at.COSTLY_ORDER] + 1) + (2 if st[at.THP_LISTS] else 0)


@hot
def clamped_high(st: np.ndarray, pcp: int) -> int:
    """`high`, brought within its bounds for good (S4.4, S4.6)."""
    high = clamp(st[pcp + at.PCP_HIGH], st[pcp + at.PCP_HIGH_MIN], st[pcp + at.PCP_HIGH_MAX])
    st[pcp + at.PCP_HIGH] = high
    return high


@inner
def refill_size(st: np.ndarray, pcp: int, zone: int, order: int) -> int:
    """Objects the next refill asks for; grows `high` and `alloc_factor` (S4.4)."""
    wanted = st[pcp + at.PCP_BATCH]
    if st[at.PCP_AUTO_TUNED]:
        wanted = tuned_refill_size(st, pcp, zone, order)
    if wanted > 1:
        wanted = max(wanted >> order, 2)
    return wanted


@inner
def tuned_refill_size(st: np.ndarray, pcp: int, zone: int, order: int) -> int:
    """Pages the next refill asks for where `high` is tuned (S4.4)."""
    high_min = st[pcp + at.PCP_HIGH_MIN]
    high_max = st[pcp + at.PCP_HIGH_MAX]
    base = st[pcp + at.PCP_BATCH]
    high = clamped_high(st, pcp)
    if high < base:
        return 1
    wanted = base
    if order == 0:
        wanted = base << st[pcp + at.PCP_ALLOC_FACTOR]
    if high_min != high_max and not st[zone_at(zone) + at.ZONE_BELOW_HIGH]:
        high = min(high + wanted, high_max)
        st[pcp + at.PCP_HIGH] = high
    if order == 0:
        room = max(high - st[pcp + at.PCP_COUNT] - base, base)
        if wanted <= room and st[pcp + at.PCP_ALLOC_FACTOR] < st[at.BATCH_SCALE_MAX]:
            st[pcp + at.PCP_ALLOC_FACTOR] += 1
        wanted = min(wanted, room)
    return wanted


@inner
def refill(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    lst: int,
    order: int,
    migratetype: int,
    flags: int,
    wanted: int,
) -> int:
    """Move up to `wanted` objects from the buddy to a list's tail in one hold of zone->lock.

    A page's tag goes on telling the type of the free list it was on.
    """
    st[at.FALLBACK_MODE] = MODE_NORMAL
    begin_refill(st)
    got = 0
    while got < wanted:
        pfn = take_page(pages, blocks, st, log, zone, order, migratetype, flags)
        if pfn < 0:
            break
        pages[pfn]["order"] = order
        pages[pfn]["where"] = at.ON_PCP
        push_tail(pages, st, lst, pfn)
        got += 1
    end_refill(st, zone)
    count_transaction(st, log, at.SITE_REFILL, zone, cpu, order, migratetype, got, got << order)
    return got


@cold
def refill_empty(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    lst: int,
    order: int,
    migratetype: int,
    flags: int,
) -> int:
    """Refill a CPU's empty list for a request, if the request may (S4.4, S4.5); objects it got."""
    pcp = pcp_at(st, zone, cpu)
    wanted = refill_size(st, pcp, zone, order)
    if flags & at.ALLOC_HIGHATOMIC and not st[at.HIGHATOMIC_REFILLS_PCP]:
        return 0
    got = refill(pages, blocks, st, log, zone, cpu, lst, order, migratetype, flags, wanted)
    st[pcp + at.PCP_COUNT] += got << order
    return got


@hot
def allocate_from_pcp(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    migratetype: int,
    flags: int,
    index: int,
) -> int:
    """Pop the head of the CPU's list of an index, refilled if empty (S4.4, S4.5); -1 if none."""
    pcp = pcp_at(st, zone, cpu)
    lock_list(st, zone, pcp)
    st[pcp + at.PCP_FREE_COUNT] >>= 1
    lst = pcp + at.PCP_LISTS + index * at.LIST_WORDS
    if st[lst + at.HEAD] < 0:
        got = refill_empty(pages, blocks, st, log, zone, cpu, lst, order, migratetype, flags)
        if got == 0:
            return -1
    pfn = st[lst + at.HEAD]
    unlink(pages, st, lst, pfn)
    st[pcp + at.PCP_COUNT] -= 1 << order
    return pfn


@inner
def list_order(st: np.ndarray, index: int) -> int:
    """Order of the pages on a pageset's list (S1.9)."""
    order = index // 3
    return order if order <= st[at.COSTLY_ORDER] else st[at.HUGE_ORDER]


@inner
def drained_list(st: np.ndarray, pcp: int, index: int) -> int:
    """The list whose tail a drain takes next: from `index` on, the first with pages (S5.6).

    The pageset holds a page.
    """
    lists = list_count(st)
    while st[pcp + at.PCP_LISTS + index * at.LIST_WORDS + at.TAIL] < 0:
        index += 1
        if index == lists:
            index = 0
    return index


@inner
def drain(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    count: int,
    first_list: int,
    site: int,
) -> None:
    """Return `count` pages, coldest first, list after list, in one hold of zone->lock (S5.6)."""
    if st[at.OWNERSHIP]:
        drain_owned(pages, blocks, st, log, zone, cpu, count, first_list, site)
        return
    pcp = pcp_at(st, zone, cpu)
    block_order = st[at.PAGEBLOCK_ORDER]
    as_of_block = st[at.LISTS_MATCH_BLOCKS] or st[zone_at(zone) + at.ZONE_HAS_ISOLATED]
    count = min(count, st[pcp + at.PCP_COUNT])
    index = first_list
    objects = 0
    drained = 0
    while drained < count:
        index = drained_list(st, pcp, index)
        lst = pcp + at.PCP_LISTS + index * at.LIST_WORDS
        order = list_order(st, index)
        pfn = st[lst + at.TAIL]
        unlink(pages, st, lst, pfn)
        migratetype = int(pages[pfn]["tag"])
        if as_of_block:
            migratetype = int(blocks[pfn >> block_order]["migratetype"])
        free_to_buddy(pages, blocks, st, zone, pfn, order, migratetype)
        log_page(st, log, at.LOG_PCPU_DRAIN, zone, pfn, order, migratetype, 0, 0, 0)
        drained += 1 << order
        objects += 1
    st[pcp + at.PCP_COUNT] -= drained
    count_transaction(st, log, site, zone, cpu, 0, -1, objects, drained)


@hot
def list_limit(st: np.ndarray, pcp: int, zone: int, flush: bool) -> int:
    """The count at which a free overflows; lowers or raises `high` (S4.6)."""
    high_min = st[pcp + at.PCP_HIGH_MIN]
    high_max = st[pcp + at.PCP_HIGH_MAX]
    base = st[pcp + at.PCP_BATCH]
    high = clamped_high(st, pcp)
    if high == 0:
        return 0
    if flush:
        st[pcp + at.PCP_HIGH] = max(high - (base << st[at.BATCH_SCALE_MAX]), high_min)
        return 0
    free_count = st[pcp + at.PCP_FREE_COUNT]
    region = zone_at(zone)
    if st[region + at.ZONE_RECLAIM_ACTIVE]:
        st[pcp + at.PCP_HIGH] = max(high - max(free_count, base), high_min)
        return min(base << 2, st[pcp + at.PCP_HIGH])
    if high_min == high_max:
        return high
    if st[region + at.ZONE_BELOW_HIGH]:
        st[pcp + at.PCP_HIGH] = max(high - max(free_count, base), high_min)
        return max(st[pcp + at.PCP_COUNT], high_min)
    if st[pcp + at.PCP_COUNT] >= high:
        needed = free_count + base
        if st[pcp + at.PCP_HIGH] < needed:
            st[pcp + at.PCP_HIGH] = clamp(needed, high_min, high_max)
    return high


@inner
def drain_size(st: np.ndarray, pcp: int, limit: int, flush: bool) -> int:
    """Pages an overflowing free returns (S4.6)."""
    base = st[pcp + at.PCP_BATCH]
    if flush:
        return min(st[pcp + at.PCP_COUNT], base << st[at.BATCH_SCALE_MAX])
    if limit < base:
        return 1
    return clamp(st[pcp + at.PCP_FREE_COUNT], base, limit - base)


@hot
def flushes_high_order(st: np.ndarray, pcp: int, order: int) -> bool:
    """Whether a run of high-order frees flushes the lists (S4.6); notes this free's order."""
    if order == 0 or order > st[at.COSTLY_ORDER]:
        st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] = 0
        return False
    base = st[pcp + at.PCP_BATCH]
    threshold = base
    if st[at.FLUSH_ADDS_HALF_HIGH_MIN]:
        threshold += st[pcp + at.PCP_HIGH_MIN] // 2
    flush = (
        st[pcp + at.PCP_FREE_COUNT] >= threshold
        and st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] != 0
        and (not st[at.FREE_HIGH_BATCH] or st[pcp + at.PCP_COUNT] >= base)
    )
    st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] = 1
    return flush


@hot
def overflow_of_free(st: np.ndarray, pcp: int, zone: int, order: int) -> int:
    """Count a page just pushed, tune the pageset; pages to return, -1 without overflow (S4.6)."""
    if not st[at.PCP_AUTO_TUNED]:
        return overflow_of_fixed(st, pcp, zone, order)
    return overflow_beyond_limit(st, pcp, zone, count_free_of_page(st, pcp, order, True))


@hot
def count_free_of_page(st: np.ndarray, pcp: int, order: int, counts: bool) -> bool:
    """Count a page just pushed; whether a run of high-order frees flushes the lists (S4.6).

    Unless it `counts`, nothing but the number of pages changes.
    """
    if not counts:
        st[pcp + at.PCP_COUNT] += 1 << order
        return False
    st[pcp + at.PCP_ALLOC_FACTOR] >>= 1
    st[pcp + at.PCP_COUNT] += 1 << order
    flush = flushes_high_order(st, pcp, order)
    if st[pcp + at.PCP_FREE_COUNT] < st[pcp + at.PCP_BATCH] << st[at.BATCH_SCALE_MAX]:
        st[pcp + at.PCP_FREE_COUNT] += 1 << order
    return flush


@hot
def overflow_beyond_limit(st: np.ndarray, pcp: int, zone: int, flush: bool) -> int:
    """Pages to return after a free that has been counted, -1 without overflow (S4.6)."""
    limit = list_limit(st, pcp, zone, flush)
    if st[pcp + at.PCP_COUNT] < limit:
        return -1
    return drain_size(st, pcp, limit, flush)


@inner
def leave_below_high(st: np.ndarray, zone: int) -> None:
    """Clear BELOW_HIGH if the zone is above its high watermark again (S4.6)."""
    region = zone_at(zone)
    if st[region + at.ZONE_BELOW_HIGH]:
        mark = mark_pages(st, zone, at.WMARK_HIGH)
        if above_mark(st, zone, 0, mark, st[at.MOVABLE_TYPE], 0, seen_free(st, zone)):
            st[region + at.ZONE_BELOW_HIGH] = 0


@cold
def drain_overflow(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    remaining: int,
    index: int,
) -> None:
    """Return what a free pushed a CPU's lists above their limit by, beginning at a list (S4.7)."""
    pcp = pcp_at(st, zone, cpu)
    base = st[pcp + at.PCP_BATCH]
    site = at.SITE_DRAIN_COMMIT
    merge_before_drain(pages, st, zone, cpu)
    if not st[at.FREE_BATCHED]:
        drain(pages, blocks, st, log, zone, cpu, remaining, index, site)
        remaining = 0
    is_first = True
    while remaining > 0 and st[pcp + at.PCP_COUNT] > 0:
        if not is_first:
            lock_list_to_drain(st, zone, pcp)
        is_first = False
        drain(pages, blocks, st, log, zone, cpu, min(base, remaining), index, site)
        remaining -= base
    leave_below_high(st, zone)


@hot
def free_to_pcp(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    pfn: int,
    order: int,
    index: int,
    migratetype: int,
) -> None:
    """Push a page on the CPU's list and drain what overflows (S4.6, S4.7)."""
    pcp = pcp_at(st, zone, cpu)
    lock_list_to_free(st, zone, pcp)
    pages[pfn]["order"] = order
    pages[pfn]["where"] = at.ON_PCP
    pages[pfn]["tag"] = migratetype
    push_head(pages, st, pcp + at.PCP_LISTS + index * at.LIST_WORDS, pfn)
    remaining = overflow_of_free(st, pcp, zone, order)
    if remaining >= 0:
        drain_overflow(pages, blocks, st, log, zone, cpu, remaining, index)


@inner
def decay_size(st: np.ndarray, pcp: int) -> int:
    """Let `high` sink as one tick does; pages that now exceed it, if above 0 (S4.8)."""
    if not st[at.PCP_DECAYS]:
        return 0
    base = st[pcp + at.PCP_BATCH]
    high_min = st[pcp + at.PCP_HIGH_MIN]
    high = st[pcp + at.PCP_HIGH]
    count = st[pcp + at.PCP_COUNT]
    if high > high_min:
        sunk = max(count - (base << st[at.BATCH_SCALE_MAX]), high - (high >> 3))
        st[pcp + at.PCP_HIGH] = max(sunk, high_min)
    return count - st[pcp + at.PCP_HIGH]


@inner
def decay(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
) -> None:
    """`high` of a CPU's list sinks, what exceeds it is drained (S4.8)."""
    pcp = pcp_at(st, zone, cpu)
    excess = decay_size(st, pcp)
    chunk = st[pcp + at.PCP_BATCH] if st[at.DECAY_BATCHED] else excess
    if excess > 0:
        merge_before_drain(pages, st, zone, cpu)
    while excess > 0:
        lock_list_to_drain(st, zone, pcp)
        drain(pages, blocks, st, log, zone, cpu, min(chunk, excess), 0, at.SITE_DRAIN_DECAY)
        excess -= chunk


@inner
def expiry_size(st: np.ndarray, zone: int, cpu: int) -> int:
    """Count a tick towards the expiry of a CPU's list of a zone; pages to return now (S4.8)."""
    pcp = pcp_at(st, zone, cpu)
    count = st[pcp + at.PCP_COUNT]
    if st[pcp + at.PCP_EXPIRE] == 0 or count == 0:
        return 0
    if st[zone_at(zone) + at.ZONE_NODE] == st[st[at.CPU_NODE_BASE] + cpu]:
        st[pcp + at.PCP_EXPIRE] = 0
        return 0
    st[pcp + at.PCP_EXPIRE] -= 1
    if st[pcp + at.PCP_EXPIRE] > 0:
        return 0
    return min(count, st[pcp + at.PCP_BATCH])


@cold
def visit_lists(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, log: np.ndarray, cpu: int
) -> None:
    """One vmstat tick of a CPU: counters fold, lists decay, those of other nodes expire (S4.8)."""
    for zone in range(st[at.NR_ZONES]):
        if st[zone_at(zone) + at.ZONE_MANAGED] == 0:
            continue
        if st[at.COUNTS_BY_CPU]:
            fold_counters(st, zone, cpu)
        age_ownership(blocks, st, zone, cpu)
        decay(pages, blocks, st, log, zone, cpu)
        if st[at.NR_NODES] > 1:
            expired = expiry_size(st, zone, cpu)
            if expired > 0:
                merge_before_drain(pages, st, zone, cpu)
                lock_list_to_drain(st, zone, pcp_at(st, zone, cpu))
                drain(pages, blocks, st, log, zone, cpu, expired, 0, at.SITE_DRAIN_DECAY)


@cold
def drain_pageset(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, log: np.ndarray, zone: int, cpu: int
) -> None:
    """Drain all lists that a CPU has of a zone (S4.9)."""
    pcp = pcp_at(st, zone, cpu)
    chunk = st[pcp + at.PCP_COUNT]
    if st[at.FULL_DRAIN_CHUNK] == at.DRAINS_SCALED_BATCH:
        chunk = max(st[pcp + at.PCP_BATCH] << st[at.BATCH_SCALE_MAX], 1)
    elif st[at.FULL_DRAIN_CHUNK] == at.DRAINS_BATCH:
        chunk = max(st[pcp + at.PCP_BATCH], 1)
    if st[pcp + at.PCP_COUNT] > 0:
        merge_before_drain(pages, st, zone, cpu)
    while st[pcp + at.PCP_COUNT] > 0:
        lock_list_to_drain(st, zone, pcp)
        drain(pages, blocks, st, log, zone, cpu, chunk, 0, at.SITE_DRAIN_ALL)
    after_full_drain(blocks, st, zone, cpu)


@inner
def drain_everything(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, log: np.ndarray
) -> None:
    """Drain every CPU's lists of every zone, as a failing allocation does (S4.9)."""
    for cpu in range(st[at.NR_CPUS]):
        for zone in range(st[at.NR_ZONES]):
            drain_pageset(pages, blocks, st, log, zone, cpu)
