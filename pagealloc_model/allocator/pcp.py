"""Per-CPU lists: sizes, locks, refills, frees, drains (S4.1 to S4.11, S11.3, S12.5)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.buddy import __free_one_page
from pagealloc_model.allocator.event_log import count_hold, count_transaction, log_hold, log_page
from pagealloc_model.allocator.fallback import MODE_NORMAL, __rmqueue
from pagealloc_model.allocator.layout import cpu_at, pcp_at, zone_at
from pagealloc_model.allocator.lists import list_add, list_add_tail, list_del
from pagealloc_model.allocator.ownership import (
    absorb_and_merge,
    end_recorded,
    note_drained,
    option,
    owner_of,
)
from pagealloc_model.allocator.pressure_layout import node_pressure_at
from pagealloc_model.allocator.watermark import (
    QUIET_TICKS,
    AllocContext,
    __zone_watermark_ok,
    count_at_end,
    seen_free,
    wmark_pages,
)
from pagealloc_model.base.jit import cold, hot, inner
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import Machine, Zone

BATCH_MAX = 31
"""Pages that one folio batch frees at most (S4.11)."""


@hot
def lock_pageset(m: at.Arrays, zone: int, pcp: int, counter: int) -> None:
    """Take a pageset's lock, counted for the CPU at work by `counter`."""
    own = pcp_at(m, zone, m.st[at.EVENT_CPU])
    last = m.st[pcp + at.PCP_LOCK_HOLDER]
    if last != m.st[at.EVENT_CPU] + 1:
        m.st[pcp + at.PCP_LOCK_HOLDER] = m.st[at.EVENT_CPU] + 1
        if last != 0:
            m.st[own + at.PCP_LOCK_HANDOVERS] += 1
    m.st[own + counter] += 1


@hot
def is_locked_by_holder(m: at.Arrays, cpu: int, pcp: int) -> bool:
    """pcp_spin_trylock(): return whether it fails to take a pageset's lock (S4.10)."""
    words = cpu_at(m, cpu)
    return m.st[words + at.CPU_BATCH_SET] == pcp or m.st[words + at.CPU_LOCKED_SET] == pcp


@inner
def let_go_of_lists(m: at.Arrays, cpu: int) -> None:
    """End what a CPU did under a list's lock, as it does something else."""
    words = cpu_at(m, cpu)
    m.st[words + at.CPU_BATCH_SET] = 0
    m.st[words + at.CPU_LOCKED_SET] = 0


@inner
def hold_refilled(m: at.Arrays, cpu: int, pcp: int) -> None:
    """Hold a pageset's lock for the interrupts that come into its refill."""
    m.st[cpu_at(m, cpu) + at.CPU_LOCKED_SET] = pcp


@inner
def hold_drained(m: at.Arrays, cpu: int) -> None:
    """Hold the lock of the pageset that a CPU's last free drained, if any."""
    words = cpu_at(m, cpu)
    m.st[words + at.CPU_BATCH_SET] = 0
    m.st[words + at.CPU_LOCKED_SET] = abs(m.st[words + at.CPU_LOCKED_SET])


@hot
def lock_list_to_free(m: at.Arrays, zone: int, pcp: int, in_batch: bool) -> bool:
    """__free_frozen_pages() and free_unref_folios(): lock a pageset; False if a batch holds it."""
    words = cpu_at(m, m.st[at.EVENT_CPU])
    if in_batch:
        m.st[words + at.CPU_BATCHED] += 1
        if m.st[words + at.CPU_BATCH_SET] == pcp and m.st[words + at.CPU_BATCHED] <= BATCH_MAX:
            return False
        m.st[words + at.CPU_BATCH_SET] = pcp
        m.st[words + at.CPU_BATCHED] = 1
    lock_pageset(m, zone, pcp, at.PCP_LOCKS)
    return True


@inner
def next_drained(m: at.Arrays, pcp: int, index: int) -> int:
    """Part of free_pcppages_bulk(): return the list to drain from, where blocks are owned.

    It is `index`, or the next one that has pages; the pageset has some. Larger orders come first,
    or lists follow each other and wrap, as without ownership (S5.6).
    """
    lists = 3 * (m.st[at.PAGEBLOCK_ORDER] + 1)
    in_turn = option(m, at.OPTION_DRAIN_FROM) == at.DRAINS_FREED_LIST
    while m.st[pcp + at.PCP_LISTS + index * at.LIST_WORDS + at.TAIL] < 0:
        if in_turn:
            index = index + 1 if index + 1 < lists else 0
        else:
            index = index + 1 if index % 3 < 2 else index - 5
    return index


@inner
def first_drained(m: at.Arrays, freed_list: int) -> int:
    """Part of free_pcppages_bulk(): return the list that a drain looks at first."""
    if option(m, at.OPTION_DRAIN_FROM) == at.DRAINS_FREED_LIST:
        return freed_list
    return 3 * m.st[at.PAGEBLOCK_ORDER]


@inner
def return_to_zone(m: at.Arrays, zone: int, pfn: int, migratetype: int) -> None:
    """Part of free_pcppages_bulk(): free a drained page, a fragment of an owned block last."""
    order = int(m.pages[pfn]["order"])
    block = pfn >> m.st[at.PAGEBLOCK_ORDER]
    is_fragment = order < m.st[at.PAGEBLOCK_ORDER] and owner_of(m, block) >= 0
    to_tail = is_fragment and option(m, at.OPTION_FRAGMENTS) != at.FRAGMENTS_AS_USUAL
    __free_one_page(m, zone, pfn, order, migratetype, to_tail)
    note_drained(m, zone, block)


@inner
def clamp(value: int, low: int, high: int) -> int:
    """clamp(): return `value` within bounds; `high` is tested first and wins where they cross."""
    if value >= high:
        return high
    return max(value, low)


@inner
def set_pcp_high(m: at.Arrays, zone: int, cpu: int, wanted: int) -> None:
    """Set a pageset's tuned `high`, as a recording found it, within bounds."""
    pcp = pcp_at(m, zone, cpu)
    m.st[pcp + at.PCP_HIGH] = clamp(
        wanted, m.st[pcp + at.PCP_HIGH_MIN], m.st[pcp + at.PCP_HIGH_MAX]
    )


@hot
def order_to_pindex(m: at.Arrays, order: int, migratetype: int) -> int:
    """pcp_allowed_order() and order_to_pindex(): return a list's number, or -1 (S1.9)."""
    costly = m.st[at.POLICY_COSTLY_ORDER]
    if order <= costly:
        return 3 * order + migratetype
    if m.st[at.THP_LISTS] and order == m.st[at.HUGE_ORDER]:
        return 3 * (costly + 1) + (1 if migratetype == at.MOVABLE else 0)
    return -1


@inner
def list_count(m: at.Arrays) -> int:
    """Return the number of lists in a pageset, NR_PCP_LISTS (S1.9)."""
    return 3 * (m.st[at.POLICY_COSTLY_ORDER] + 1) + (2 if m.st[at.THP_LISTS] else 0)


@hot
def clamped_high(m: at.Arrays, pcp: int) -> int:
    """Part of nr_pcp_high(): bring `high` within its bounds for good; returns it (S4.4, S4.6)."""
    high = clamp(m.st[pcp + at.PCP_HIGH], m.st[pcp + at.PCP_HIGH_MIN], m.st[pcp + at.PCP_HIGH_MAX])
    m.st[pcp + at.PCP_HIGH] = high
    return high


@inner
def nr_pcp_alloc(m: at.Arrays, pcp: int, zone: int, order: int) -> int:
    """nr_pcp_alloc(): tune the pageset; returns how many objects to refill with (S4.4)."""
    wanted = m.st[pcp + at.PCP_BATCH]
    if m.st[at.RULE_PCP_AUTO_TUNED]:  # from 6.12
        high_min = m.st[pcp + at.PCP_HIGH_MIN]
        high_max = m.st[pcp + at.PCP_HIGH_MAX]
        base = m.st[pcp + at.PCP_BATCH]
        high = clamped_high(m, pcp)
        if high < base:
            wanted = 1
        else:
            wanted = base
            if order == 0:
                wanted = base << m.st[pcp + at.PCP_ALLOC_FACTOR]
            if high_min != high_max and not m.st[zone_at(zone) + at.ZONE_BELOW_HIGH]:
                high = min(high + wanted, high_max)
                m.st[pcp + at.PCP_HIGH] = high
            if order == 0:
                room = max(high - m.st[pcp + at.PCP_COUNT] - base, base)
                if (
                    wanted <= room
                    and m.st[pcp + at.PCP_ALLOC_FACTOR] < m.st[at.POLICY_PCP_BATCH_SCALE_MAX]
                ):
                    m.st[pcp + at.PCP_ALLOC_FACTOR] += 1
                wanted = min(wanted, room)
    if wanted > 1:
        wanted = max(wanted >> order, 2)
    return wanted


@inner
def rmqueue_bulk(
    m: at.Arrays, ac: AllocContext, zone: int, lst: int, wanted: int, flags: int
) -> int:
    """rmqueue_bulk(): move up to `wanted` objects from the buddy to a list's tail (S4.4)."""
    mode = MODE_NORMAL
    m.st[at.LIST_PROBES] = 0
    got = 0
    while got < wanted:
        if not m.st[at.POLICY_REFILL_MODE_PERSISTS]:
            mode = MODE_NORMAL
        pfn, mode = __rmqueue(m, zone, ac.order, ac.migratetype, flags, mode)
        if pfn < 0:
            break
        m.pages[pfn]["order"] = ac.order
        m.pages[pfn]["where"] = at.ON_PCP
        list_add_tail(m.pages, m.st, lst, pfn)
        got += 1
    m.st[at.REFILL_PROBES] += m.st[at.LIST_PROBES]
    m.st[at.REFILL_PROBES_MOST] = max(m.st[at.REFILL_PROBES_MOST], m.st[at.LIST_PROBES])
    pages = got << ac.order
    count_at_end(m, zone, pages)
    count_transaction(m, at.SITE_REFILL, zone, ac.cpu, ac.order, ac.migratetype, got, pages)
    return got


@cold
def refill_empty(m: at.Arrays, ac: AllocContext, zone: int, lst: int, flags: int) -> int:
    """Part of __rmqueue_pcplist(): refill an empty list if the request may (S4.4, S4.5)."""
    pcp = pcp_at(m, zone, ac.cpu)
    wanted = nr_pcp_alloc(m, pcp, zone, ac.order)
    if flags & at.ALLOC_HIGHATOMIC and not m.st[at.RULE_HIGHATOMIC_REFILLS_PCP]:  # from 7.2
        return 0
    got = rmqueue_bulk(m, ac, zone, lst, wanted, flags)
    m.st[pcp + at.PCP_COUNT] += got << ac.order
    return got


@hot
def rmqueue_pcplist(m: at.Arrays, ac: AllocContext, zone: int, index: int, flags: int) -> int:
    """rmqueue_pcplist(): take the head of the CPU's list, refilled if empty, or -1 (S4.4, S4.5)."""
    pcp = pcp_at(m, zone, ac.cpu)
    if is_locked_by_holder(m, ac.cpu, pcp):
        return -1
    lock_pageset(m, zone, pcp, at.PCP_LOCKS)
    m.st[pcp + at.PCP_FREE_COUNT] >>= 1
    lst = pcp + at.PCP_LISTS + index * at.LIST_WORDS
    if m.st[lst + at.HEAD] < 0:
        got = refill_empty(m, ac, zone, lst, flags)
        if got == 0:
            return -1
    pfn = m.st[lst + at.HEAD]
    list_del(m.pages, m.st, lst, pfn)
    m.st[pcp + at.PCP_COUNT] -= 1 << ac.order
    return pfn


@inner
def pindex_to_order(m: at.Arrays, index: int) -> int:
    """pindex_to_order(): return the order of the pages on a pageset's list (S1.9)."""
    order = index // 3
    return order if order <= m.st[at.POLICY_COSTLY_ORDER] else m.st[at.HUGE_ORDER]


@inner
def drained_list(m: at.Arrays, pcp: int, index: int) -> int:
    """Part of free_pcppages_bulk(): return the first list with pages from `index` on (S5.6)."""
    lists = list_count(m)
    while m.st[pcp + at.PCP_LISTS + index * at.LIST_WORDS + at.TAIL] < 0:
        index += 1
        if index == lists:
            index = 0
    return index


@inner
def free_pcppages_bulk(
    m: at.Arrays, zone: int, cpu: int, count: int, first_list: int, site: int
) -> None:
    """free_pcppages_bulk(): return a CPU's coldest `count` pages in one hold of the lock (S5.6).

    Where blocks are owned it may be a little more, and a drain for a free counts for the CPU at
    work, which need not be the lists' (S12.5).
    """
    owned = m.st[at.OWNERSHIP] != 0
    pcp = pcp_at(m, zone, cpu)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    # from 6.12
    as_of_block = m.st[at.RULE_LISTS_MATCH_BLOCKS] or m.st[zone_at(zone) + at.ZONE_HAS_ISOLATED]
    count = min(count, m.st[pcp + at.PCP_COUNT])
    index = first_drained(m, first_list) if owned else first_list
    objects = 0
    drained = 0
    while drained < count:
        index = next_drained(m, pcp, index) if owned else drained_list(m, pcp, index)
        lst = pcp + at.PCP_LISTS + index * at.LIST_WORDS
        order = index // 3 if owned else pindex_to_order(m, index)
        pfn = m.st[lst + at.TAIL]
        list_del(m.pages, m.st, lst, pfn)
        migratetype = int(m.pages[pfn]["tag"])
        if as_of_block:
            migratetype = int(m.blocks[pfn >> block_order]["migratetype"])
        if owned:
            return_to_zone(m, zone, pfn, migratetype)
        else:
            __free_one_page(m, zone, pfn, order, migratetype, False)
        log_page(m, at.LOG_PCPU_DRAIN, zone, pfn, order, migratetype)
        drained += 1 << order
        objects += 1
    m.st[pcp + at.PCP_COUNT] -= drained
    counted = m.st[at.EVENT_CPU] if owned and site == at.SITE_DRAIN_COMMIT else cpu
    count_hold(m, site, zone, counted, objects, drained)
    log_hold(m, site, zone, cpu, 0, -1, objects, drained)


@hot
def nr_pcp_high(m: at.Arrays, pcp: int, zone: int, flush: bool) -> int:
    """nr_pcp_high(): tune `high`; returns the count at which a free overflows (S4.6)."""
    high_min = m.st[pcp + at.PCP_HIGH_MIN]
    high_max = m.st[pcp + at.PCP_HIGH_MAX]
    base = m.st[pcp + at.PCP_BATCH]
    high = clamped_high(m, pcp)
    if high == 0:
        return 0
    if flush:
        m.st[pcp + at.PCP_HIGH] = max(
            high - (base << m.st[at.POLICY_PCP_BATCH_SCALE_MAX]), high_min
        )
        return 0
    free_count = m.st[pcp + at.PCP_FREE_COUNT]
    region = zone_at(zone)
    if m.st[region + at.ZONE_RECLAIM_ACTIVE]:
        m.st[pcp + at.PCP_HIGH] = max(high - max(free_count, base), high_min)
        return min(base << 2, m.st[pcp + at.PCP_HIGH])
    if high_min == high_max:
        return high
    if m.st[region + at.ZONE_BELOW_HIGH]:
        m.st[pcp + at.PCP_HIGH] = max(high - max(free_count, base), high_min)
        return max(m.st[pcp + at.PCP_COUNT], high_min)
    if m.st[pcp + at.PCP_COUNT] >= high:
        needed = free_count + base
        if m.st[pcp + at.PCP_HIGH] < needed:
            m.st[pcp + at.PCP_HIGH] = clamp(needed, high_min, high_max)
    return high


@inner
def nr_pcp_free(m: at.Arrays, pcp: int, limit: int, flush: bool) -> int:
    """nr_pcp_free(): return how many pages an overflowing free drains (S4.6)."""
    base = m.st[pcp + at.PCP_BATCH]
    if flush:
        return min(m.st[pcp + at.PCP_COUNT], base << m.st[at.POLICY_PCP_BATCH_SCALE_MAX])
    if limit < base:
        return 1
    return clamp(m.st[pcp + at.PCP_FREE_COUNT], base, limit - base)


@hot
def overflow_of_free(m: at.Arrays, pcp: int, zone: int, order: int) -> int:
    """nr_pcp_high() and nr_pcp_free(): account for a freed page; pages to drain, or -1 (S4.6)."""
    if not m.st[at.RULE_PCP_AUTO_TUNED]:  # 6.1 only
        return overflow_of_fixed(m, pcp, zone, order)
    return overflow_beyond_limit(m, pcp, zone, count_free_of_page(m, pcp, order, True))


@inner
def overflow_of_fixed(m: at.Arrays, pcp: int, zone: int, order: int) -> int:
    """nr_pcp_high() and nr_pcp_free(): the same where `high` is fixed; pages, or -1 (S4.6)."""
    count = m.st[pcp + at.PCP_COUNT] + (1 << order)
    m.st[pcp + at.PCP_COUNT] = count
    base = m.st[pcp + at.PCP_BATCH]
    factor = m.st[pcp + at.PCP_FREE_FACTOR]
    if factor > 0 and 0 < order <= m.st[at.POLICY_COSTLY_ORDER]:
        return count
    limit = m.st[pcp + at.PCP_HIGH]
    if m.st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE]:
        limit = min(base << 2, limit)
    if count < limit:
        return -1
    if limit < base:
        return 1
    most = limit - base
    wanted = base << factor
    if wanted < most and factor < m.st[at.POLICY_PCP_BATCH_SCALE_MAX]:
        m.st[pcp + at.PCP_FREE_FACTOR] = factor + 1
    return clamp(wanted, base, most)


@hot
def count_free_of_page(m: at.Arrays, pcp: int, order: int, counts: bool) -> bool:
    """Part of free_frozen_page_commit(): count a pushed page; returns whether to flush (S4.6)."""
    if not counts:
        m.st[pcp + at.PCP_COUNT] += 1 << order
        return False
    m.st[pcp + at.PCP_ALLOC_FACTOR] >>= 1
    m.st[pcp + at.PCP_COUNT] += 1 << order
    if order == 0 or order > m.st[at.POLICY_COSTLY_ORDER]:
        m.st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] = 0
        flush = False
    else:
        base = m.st[pcp + at.PCP_BATCH]
        threshold = base
        if m.st[at.RULE_HIGH_ORDER_FLUSH_ADDS_HALF_HIGH_MIN]:  # from 6.18
            threshold += m.st[pcp + at.PCP_HIGH_MIN] // 2
        flush = (
            m.st[pcp + at.PCP_FREE_COUNT] >= threshold
            and m.st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] != 0
            and (not m.st[at.FREE_HIGH_BATCH] or m.st[pcp + at.PCP_COUNT] >= base)
        )
        m.st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] = 1
    most = m.st[pcp + at.PCP_BATCH] << m.st[at.POLICY_PCP_BATCH_SCALE_MAX]
    if m.st[pcp + at.PCP_FREE_COUNT] < most:
        m.st[pcp + at.PCP_FREE_COUNT] += 1 << order
    return flush


@hot
def overflow_beyond_limit(m: at.Arrays, pcp: int, zone: int, flush: bool) -> int:
    """nr_pcp_high() and nr_pcp_free(): tune after a counted free; pages to drain, or -1 (S4.6)."""
    limit = nr_pcp_high(m, pcp, zone, flush)
    if m.st[pcp + at.PCP_COUNT] < limit:
        return -1
    return nr_pcp_free(m, pcp, limit, flush)


@inner
def leave_below_high(m: at.Arrays, zone: int) -> None:
    """Part of free_frozen_page_commit(): clear BELOW_HIGH once above the high mark (S4.6)."""
    region = zone_at(zone)
    if m.st[region + at.ZONE_BELOW_HIGH]:
        mark = wmark_pages(m, zone, at.WMARK_HIGH)
        if __zone_watermark_ok(m, zone, 0, mark, m.st[at.MOVABLE_TYPE], 0, seen_free(m, zone)):
            m.st[region + at.ZONE_BELOW_HIGH] = 0
            if m.st[at.PRESSURE_BASE] and m.st[at.RULE_REVIVED_WHEN_BALANCED]:  # from 7.2
                revive_kswapd(m, m.st[region + at.ZONE_NODE])


@cold
def revive_kswapd(m: at.Arrays, node: int) -> None:
    """Part of free_frozen_page_commit(): forget failures if a later node has memory (S10.2)."""
    words = node_pressure_at(m, node)
    if m.st[words + pr.KSWAPD_FAILURES] < pr.RETRIES_MAX:
        return
    for zone in range((node + 1) * m.st[at.ZONE_TYPES], m.st[at.NR_ZONES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            m.st[words + pr.KSWAPD_FAILURES] = 0
            return


@cold
def drain_overflow(m: at.Arrays, zone: int, cpu: int, remaining: int, index: int) -> None:
    """Part of free_frozen_page_commit(): drain what a free pushed above the limit (S4.7)."""
    pcp = pcp_at(m, zone, cpu)
    base = m.st[pcp + at.PCP_BATCH]
    site = at.SITE_DRAIN_COMMIT
    absorb_and_merge(m, zone, cpu)
    if not m.st[at.POLICY_PCP_FREE_BATCHED]:
        free_pcppages_bulk(m, zone, cpu, remaining, index, site)
        remaining = 0
    is_first = True
    while remaining > 0 and m.st[pcp + at.PCP_COUNT] > 0:
        if not is_first:
            lock_pageset(m, zone, pcp, at.PCP_DRAIN_LOCKS)
        is_first = False
        free_pcppages_bulk(m, zone, cpu, min(base, remaining), index, site)
        remaining -= base
    leave_below_high(m, zone)
    word = cpu_at(m, m.st[at.EVENT_CPU]) + at.CPU_LOCKED_SET
    if m.st[word] <= 0:
        m.st[word] = -pcp


@hot
def free_frozen_page_commit(
    m: at.Arrays, zone: int, cpu: int, pfn: int, order: int, index: int, migratetype: int
) -> None:
    """free_frozen_page_commit(): push a page on a list, drain what overflows (S4.6, S4.7)."""
    pcp = pcp_at(m, zone, cpu)
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ON_PCP
    m.pages[pfn]["tag"] = migratetype
    list_add(m.pages, m.st, pcp + at.PCP_LISTS + index * at.LIST_WORDS, pfn)
    remaining = overflow_of_free(m, pcp, zone, order)
    if remaining >= 0:
        drain_overflow(m, zone, cpu, remaining, index)


@inner
def decay_size(m: at.Arrays, pcp: int) -> int:
    """Part of decay_pcp_high(): let `high` sink by a tick; returns pages above it (S4.8)."""
    if not m.st[at.RULE_PCP_DECAYS]:  # 6.1 only
        return 0
    base = m.st[pcp + at.PCP_BATCH]
    high_min = m.st[pcp + at.PCP_HIGH_MIN]
    high = m.st[pcp + at.PCP_HIGH]
    count = m.st[pcp + at.PCP_COUNT]
    if high > high_min:
        sunk = max(count - (base << m.st[at.POLICY_PCP_BATCH_SCALE_MAX]), high - (high >> 3))
        m.st[pcp + at.PCP_HIGH] = max(sunk, high_min)
    return count - m.st[pcp + at.PCP_HIGH]


@inner
def decay_pcp_high(m: at.Arrays, zone: int, cpu: int) -> None:
    """decay_pcp_high(): let `high` of a CPU's lists sink and drain what exceeds it (S4.8)."""
    pcp = pcp_at(m, zone, cpu)
    excess = decay_size(m, pcp)
    chunk = m.st[pcp + at.PCP_BATCH] if m.st[at.POLICY_PCP_DECAY_BATCHED] else excess
    if excess > 0:
        absorb_and_merge(m, zone, cpu)
    while excess > 0:
        lock_pageset(m, zone, pcp, at.PCP_DRAIN_LOCKS)
        free_pcppages_bulk(m, zone, cpu, min(chunk, excess), 0, at.SITE_DRAIN_DECAY)
        excess -= chunk


@inner
def expiry_size(m: at.Arrays, zone: int, cpu: int) -> int:
    """Part of refresh_cpu_vm_stats(): count a tick towards expiry; pages to drain (S4.8)."""
    pcp = pcp_at(m, zone, cpu)
    count = m.st[pcp + at.PCP_COUNT]
    if m.st[pcp + at.PCP_EXPIRE] == 0 or count == 0:
        return 0
    if m.st[zone_at(zone) + at.ZONE_NODE] == m.st[m.st[at.CPU_NODE_BASE] + cpu]:
        m.st[pcp + at.PCP_EXPIRE] = 0
        return 0
    m.st[pcp + at.PCP_EXPIRE] -= 1
    if m.st[pcp + at.PCP_EXPIRE] > 0:
        return 0
    return min(count, m.st[pcp + at.PCP_BATCH])


@cold
def refresh_cpu_vm_stats(m: at.Arrays, cpu: int) -> None:
    """refresh_cpu_vm_stats(): do a CPU's tick: counters fold, lists decay and expire (S4.8)."""
    for zone in range(m.st[at.NR_ZONES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] == 0:
            continue
        if m.st[at.COUNTS_BY_CPU]:
            # Pass on a CPU's deltas of a zone (S4.8).
            region = zone_at(zone)
            pcp = pcp_at(m, zone, cpu)
            free, cma = m.st[pcp + at.PCP_FREE_DELTA], m.st[pcp + at.PCP_FREE_CMA_DELTA]
            m.st[region + at.ZONE_FREE_UNFOLDED] -= free
            m.st[region + at.ZONE_FREE_CMA_UNFOLDED] -= cma
            m.st[pcp + at.PCP_FREE_DELTA] = 0
            m.st[pcp + at.PCP_FREE_CMA_DELTA] = 0
            changed = m.st[pcp + at.PCP_TOUCHED] != 0 or free != 0 or cma != 0
            m.st[pcp + at.PCP_TOUCHED] = 0
            if changed and m.st[at.NR_NODES] > 1:
                m.st[pcp + at.PCP_EXPIRE] = QUIET_TICKS
        if m.st[at.OWNERSHIP] and option(m, at.OPTION_OWNERSHIP_ENDS) == at.ENDS_AGED:
            end_recorded(m, zone, cpu)
        decay_pcp_high(m, zone, cpu)
        if m.st[at.NR_NODES] > 1:
            expired = expiry_size(m, zone, cpu)
            if expired > 0:
                absorb_and_merge(m, zone, cpu)
                lock_pageset(m, zone, pcp_at(m, zone, cpu), at.PCP_DRAIN_LOCKS)
                free_pcppages_bulk(m, zone, cpu, expired, 0, at.SITE_DRAIN_DECAY)


@cold
def drain_pages_zone(m: at.Arrays, zone: int, cpu: int) -> None:
    """drain_pages_zone(): drain all lists that a CPU has of a zone (S4.9)."""
    pcp = pcp_at(m, zone, cpu)
    absorb_and_merge(m, zone, cpu)
    chunk = m.st[pcp + at.PCP_COUNT]
    if m.st[at.FULL_DRAIN_CHUNK] == at.DRAINS_SCALED_BATCH:
        chunk = max(m.st[pcp + at.PCP_BATCH] << m.st[at.POLICY_PCP_BATCH_SCALE_MAX], 1)
    elif m.st[at.FULL_DRAIN_CHUNK] == at.DRAINS_BATCH:
        chunk = max(m.st[pcp + at.PCP_BATCH], 1)
    while m.st[pcp + at.PCP_COUNT] > 0:
        lock_pageset(m, zone, pcp, at.PCP_DRAIN_LOCKS)
        free_pcppages_bulk(m, zone, cpu, chunk, 0, at.SITE_DRAIN_ALL)
    end_drained(m, zone, cpu)


@inner
def end_drained(m: at.Arrays, zone: int, cpu: int) -> None:
    """End the ownership of a CPU's recorded blocks if a full drain does (S12.8)."""
    if m.st[at.OWNERSHIP] and option(m, at.OPTION_FULL_DRAIN) == at.FULL_DRAIN_ENDS:
        end_recorded(m, zone, cpu)


@inner
def __drain_all_pages(m: at.Arrays, first_zone: int, end_zone: int) -> None:
    """__drain_all_pages(): drain some zones' lists of every CPU that counts pages there (S4.9).

    Without ownership it visits all CPUs: a drain of empty lists changes nothing.
    """
    for cpu in range(m.st[at.NR_CPUS]):
        is_visited = m.st[at.OWNERSHIP] == 0
        for zone in range(first_zone, end_zone):
            is_visited = is_visited or m.st[pcp_at(m, zone, cpu) + at.PCP_COUNT] > 0
        for zone in range(first_zone, end_zone):
            if is_visited:
                drain_pages_zone(m, zone, cpu)
            else:
                end_drained(m, zone, cpu)


@inner
def drain_all_pages(m: at.Arrays) -> None:
    """drain_all_pages(): drain every CPU's lists, unless recorded drains are imposed (S4.9)."""
    if not m.st[at.DRAINS_RECORDED]:
        __drain_all_pages(m, 0, m.st[at.NR_ZONES])


BATCH_CAP_BYTES = 256 << 10
"""Upper bound of pcp->batch before rounding (S4.2)."""


def set_pageset(
    region: np.ndarray,
    machine: Machine,
    zone: Zone,
    cpu: int,
    rules: KernelRules,
    policy: Policy,
) -> None:
    """zone_set_pageset_high_and_batch(): set the words of a pageset, whose lists are empty."""
    lists = region[at.PCP_LISTS : at.PCP_SITES].reshape(-1, at.LIST_WORDS)
    lists[:, at.HEAD] = -1
    lists[:, at.TAIL] = -1
    if not zone.managed:
        return
    recorded = next((each for each in zone.pagesets if each.cpu == cpu), None)
    size = zone_batchsize(zone.managed) if recorded is None else recorded.batch
    if policy.pcp_batch is not None:
        size = policy.pcp_batch
    cpus = machine.cpus_of_node(machine.nodes.index(zone.node)) or machine.nr_cpus
    low, high = high_limits(zone, size, cpus, policy, rules, machine.percpu_pagelist_high_fraction)
    region[at.PCP_BATCH] = size
    region[at.PCP_HIGH_MIN] = low
    region[at.PCP_HIGH_MAX] = high
    region[at.PCP_HIGH] = low
    if recorded is not None and rules.pcp_auto_tuned:
        region[at.PCP_HIGH] = recorded.high


def zone_batchsize(managed: int) -> int:
    """zone_batchsize(): return pcp->batch of a zone, the same in every generation (S4.2).

    Args:
        managed: the zone's managed pages.
    """
    size = min(managed >> 12, BATCH_CAP_BYTES >> 12)
    if size <= 1:
        return 1
    doubled = size + size // 2
    return (1 << (doubled.bit_length() - 1)) - 1


def high_limits(
    zone: Zone,
    size: int,
    nr_cpus: int,
    policy: Policy,
    rules: KernelRules,
    recorded_fraction: int = 0,
) -> tuple[int, int]:
    """zone_highsize(): return pcp->high_min and high_max of a zone (S4.3).

    They are by policy, else as recorded, else computed. Both are `high` where the kernel does not
    tune it.

    Args:
        zone: watermarks and managed pages; its pagesets say what the kernel had.
        size: pcp->batch.
        nr_cpus: CPUs of the zone's node, all CPUs if it has none.
        policy: `pcp_high_min`, `pcp_high_max`, `percpu_pagelist_high_fraction`, and the fields
            that the computed limits depend on.
        rules: kernel generation.
        recorded_fraction: vm.percpu_pagelist_high_fraction as recorded; it stays in force where the
            policy does not give another.
    """
    fraction = policy.percpu_pagelist_high_fraction
    as_recorded = (
        fraction is None
        and policy.pcp_batch is None
        and policy.min_free_kbytes is None
        and policy.watermark_scale_factor is None
    )
    shown = zone.pagesets[0] if zone.pagesets and as_recorded else None
    if shown is not None and shown.high_min is not None and shown.high_max is not None:
        low, high = shown.high_min, shown.high_max
    elif shown is not None and not rules.pcp_auto_tuned:
        low = high = shown.high
    elif fraction := recorded_fraction if fraction is None else fraction:
        low = high = max(zone.managed // fraction // nr_cpus, 4 * size)
    else:
        low = max(zone.low // nr_cpus, 4 * size)
        high = max(zone.managed // 8 // nr_cpus, 4 * size)
    low = low if policy.pcp_high_min is None else policy.pcp_high_min
    if not rules.pcp_auto_tuned:
        return low, low
    return low, high if policy.pcp_high_max is None else policy.pcp_high_max
