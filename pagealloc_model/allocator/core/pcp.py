"""Per-CPU lists: refills, frees, the sizes of both and the drains of frees (S4.1 to S4.7)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_context import AllocContext
from pagealloc_model.allocator.core.buddy import __free_one_page
from pagealloc_model.allocator.core.counters import count_at_end, seen_free
from pagealloc_model.allocator.core.event_log import count_transaction, log_page
from pagealloc_model.allocator.core.fallback import MODE_NORMAL, __rmqueue
from pagealloc_model.allocator.core.list_locks import (
    is_locked_by_holder,
    lock_list,
    lock_list_to_drain,
    note_drain,
)
from pagealloc_model.allocator.core.offsets import pcp_at, zone_at
from pagealloc_model.allocator.core.page_lists import list_add, list_add_tail, list_del
from pagealloc_model.allocator.core.watermark import __zone_watermark_ok, wmark_pages
from pagealloc_model.allocator.ownership.owned_drain import drain_owned
from pagealloc_model.allocator.ownership.owned_lists import merge_before_drain
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at
from pagealloc_model.base.jit import cold, hot, inner


@inner
def clamp(value: int, low: int, high: int) -> int:
    """clamp(): return `value` kept within bounds.

    `high` is tested first and wins where the bounds cross.
    """
    if value >= high:
        return high
    return max(value, low)


@inner
def set_pcp_high(m: at.MachineArrays, zone: int, cpu: int, wanted: int) -> None:
    """No kernel function: set a pageset's tuned `high`, as a recording found it, within bounds."""
    pcp = pcp_at(m, zone, cpu)
    m.st[pcp + at.PCP_HIGH] = clamp(
        wanted, m.st[pcp + at.PCP_HIGH_MIN], m.st[pcp + at.PCP_HIGH_MAX]
    )


@hot
def order_to_pindex(m: at.MachineArrays, order: int, migratetype: int) -> int:
    """pcp_allowed_order() and order_to_pindex(): return the list of an order and type (S1.9).

    The result is -1 if such pages bypass the lists.
    """
    costly = m.st[at.POLICY_COSTLY_ORDER]
    if order <= costly:
        return 3 * order + migratetype
    if m.st[at.THP_LISTS] and order == m.st[at.HUGE_ORDER]:
        return 3 * (costly + 1) + (1 if migratetype == at.MOVABLE else 0)
    return -1


@inner
def list_count(m: at.MachineArrays) -> int:
    """No kernel function: return the number of lists in a pageset, NR_PCP_LISTS (S1.9)."""
    return 3 * (m.st[at.POLICY_COSTLY_ORDER] + 1) + (2 if m.st[at.THP_LISTS] else 0)


@hot
def clamped_high(m: at.MachineArrays, pcp: int) -> int:
    """Part of nr_pcp_high(): bring `high` within its bounds for good; returns it (S4.4, S4.6).

    nr_pcp_alloc() does the same.
    """
    high = clamp(m.st[pcp + at.PCP_HIGH], m.st[pcp + at.PCP_HIGH_MIN], m.st[pcp + at.PCP_HIGH_MAX])
    m.st[pcp + at.PCP_HIGH] = high
    return high


@inner
def nr_pcp_alloc(m: at.MachineArrays, pcp: int, zone: int, order: int) -> int:
    """nr_pcp_alloc(): tune the pageset; returns how many objects to refill with (S4.4).

    `high` and `alloc_factor` may grow.
    """
    wanted = m.st[pcp + at.PCP_BATCH]
    if m.st[at.RULE_PCP_AUTO_TUNED]:
        wanted = tuned_refill_size(m, pcp, zone, order)
    if wanted > 1:
        wanted = max(wanted >> order, 2)
    return wanted


@inner
def tuned_refill_size(m: at.MachineArrays, pcp: int, zone: int, order: int) -> int:
    """Part of nr_pcp_alloc(): return the pages to refill with where `high` is tuned (S4.4)."""
    high_min = m.st[pcp + at.PCP_HIGH_MIN]
    high_max = m.st[pcp + at.PCP_HIGH_MAX]
    base = m.st[pcp + at.PCP_BATCH]
    high = clamped_high(m, pcp)
    if high < base:
        return 1
    wanted = base
    if order == 0:
        wanted = base << m.st[pcp + at.PCP_ALLOC_FACTOR]
    if high_min != high_max and not m.st[zone_at(zone) + at.ZONE_BELOW_HIGH]:
        high = min(high + wanted, high_max)
        m.st[pcp + at.PCP_HIGH] = high
    if order == 0:
        room = max(high - m.st[pcp + at.PCP_COUNT] - base, base)
        if wanted <= room and m.st[pcp + at.PCP_ALLOC_FACTOR] < m.st[at.POLICY_PCP_BATCH_SCALE_MAX]:
            m.st[pcp + at.PCP_ALLOC_FACTOR] += 1
        wanted = min(wanted, room)
    return wanted


@inner
def rmqueue_bulk(
    m: at.MachineArrays, ac: AllocContext, zone: int, lst: int, wanted: int, flags: int
) -> int:
    """rmqueue_bulk(): move up to `wanted` objects from the buddy to a list's tail (S4.4).

    It takes one hold of zone->lock. Returns how many objects moved. A page's tag goes on telling
    the type of the free list it was on.
    """
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
def refill_empty(m: at.MachineArrays, ac: AllocContext, zone: int, lst: int, flags: int) -> int:
    """Part of __rmqueue_pcplist(): refill an empty list, if the request may (S4.4, S4.5).

    Returns how many objects the list got.
    """
    pcp = pcp_at(m, zone, ac.cpu)
    wanted = nr_pcp_alloc(m, pcp, zone, ac.order)
    if flags & at.ALLOC_HIGHATOMIC and not m.st[at.RULE_HIGHATOMIC_REFILLS_PCP]:
        return 0
    got = rmqueue_bulk(m, ac, zone, lst, wanted, flags)
    m.st[pcp + at.PCP_COUNT] += got << ac.order
    return got


@hot
def rmqueue_pcplist(
    m: at.MachineArrays, ac: AllocContext, zone: int, index: int, flags: int
) -> int:
    """rmqueue_pcplist(): take the head of the CPU's list, refilled if empty (S4.4, S4.5).

    Returns the page, or -1.
    """
    pcp = pcp_at(m, zone, ac.cpu)
    if is_locked_by_holder(m, ac.cpu, pcp):
        return -1
    lock_list(m, zone, pcp)
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
def pindex_to_order(m: at.MachineArrays, index: int) -> int:
    """pindex_to_order(): return the order of the pages on a pageset's list (S1.9)."""
    order = index // 3
    return order if order <= m.st[at.POLICY_COSTLY_ORDER] else m.st[at.HUGE_ORDER]


@inner
def drained_list(m: at.MachineArrays, pcp: int, index: int) -> int:
    """Part of free_pcppages_bulk(): return the list whose tail a drain takes next (S5.6).

    From `index` on, it is the first with pages. The pageset holds a page.
    """
    lists = list_count(m)
    while m.st[pcp + at.PCP_LISTS + index * at.LIST_WORDS + at.TAIL] < 0:
        index += 1
        if index == lists:
            index = 0
    return index


@inner
def free_pcppages_bulk(
    m: at.MachineArrays, zone: int, cpu: int, count: int, first_list: int, site: int
) -> None:
    """free_pcppages_bulk(): return `count` pages of a CPU's lists to the buddy (S5.6).

    The coldest go first, list after list, in one hold of zone->lock.
    """
    if m.st[at.OWNERSHIP]:
        drain_owned(m, zone, cpu, count, first_list, site)
        return
    pcp = pcp_at(m, zone, cpu)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    as_of_block = m.st[at.RULE_LISTS_MATCH_BLOCKS] or m.st[zone_at(zone) + at.ZONE_HAS_ISOLATED]
    count = min(count, m.st[pcp + at.PCP_COUNT])
    index = first_list
    objects = 0
    drained = 0
    while drained < count:
        index = drained_list(m, pcp, index)
        lst = pcp + at.PCP_LISTS + index * at.LIST_WORDS
        order = pindex_to_order(m, index)
        pfn = m.st[lst + at.TAIL]
        list_del(m.pages, m.st, lst, pfn)
        migratetype = int(m.pages[pfn]["tag"])
        if as_of_block:
            migratetype = int(m.blocks[pfn >> block_order]["migratetype"])
        __free_one_page(m, zone, pfn, order, migratetype, False)
        log_page(m, at.LOG_PCPU_DRAIN, zone, pfn, order, migratetype)
        drained += 1 << order
        objects += 1
    m.st[pcp + at.PCP_COUNT] -= drained
    count_transaction(m, site, zone, cpu, 0, -1, objects, drained)


@hot
def nr_pcp_high(m: at.MachineArrays, pcp: int, zone: int, flush: bool) -> int:
    """nr_pcp_high(): tune `high`; returns the count at which a free overflows (S4.6).

    `high` may sink or rise.
    """
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
def nr_pcp_free(m: at.MachineArrays, pcp: int, limit: int, flush: bool) -> int:
    """nr_pcp_free(): return how many pages an overflowing free drains (S4.6)."""
    base = m.st[pcp + at.PCP_BATCH]
    if flush:
        return min(m.st[pcp + at.PCP_COUNT], base << m.st[at.POLICY_PCP_BATCH_SCALE_MAX])
    if limit < base:
        return 1
    return clamp(m.st[pcp + at.PCP_FREE_COUNT], base, limit - base)


@hot
def flushes_high_order(m: at.MachineArrays, pcp: int, order: int) -> bool:
    """Part of free_frozen_page_commit(): return whether high-order frees flush the lists (S4.6).

    It takes a run of them. The order of this free is noted.
    """
    if order == 0 or order > m.st[at.POLICY_COSTLY_ORDER]:
        m.st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] = 0
        return False
    base = m.st[pcp + at.PCP_BATCH]
    threshold = base
    if m.st[at.RULE_HIGH_ORDER_FLUSH_ADDS_HALF_HIGH_MIN]:
        threshold += m.st[pcp + at.PCP_HIGH_MIN] // 2
    flush = (
        m.st[pcp + at.PCP_FREE_COUNT] >= threshold
        and m.st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] != 0
        and (not m.st[at.FREE_HIGH_BATCH] or m.st[pcp + at.PCP_COUNT] >= base)
    )
    m.st[pcp + at.PCP_PREV_FREE_HIGH_ORDER] = 1
    return flush


@hot
def overflow_of_free(m: at.MachineArrays, pcp: int, zone: int, order: int) -> int:
    """nr_pcp_high() and nr_pcp_free(): account for one freed page (S4.6).

    Returns how many pages to drain, or -1.
    """
    if not m.st[at.RULE_PCP_AUTO_TUNED]:
        return overflow_of_fixed(m, pcp, zone, order)
    return overflow_beyond_limit(m, pcp, zone, count_free_of_page(m, pcp, order, True))


@inner
def overflow_of_fixed(m: at.MachineArrays, pcp: int, zone: int, order: int) -> int:
    """nr_pcp_high() and nr_pcp_free(): account for one freed page, `high` being fixed (S4.6).

    Returns how many pages to drain, or -1.
    """
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
def count_free_of_page(m: at.MachineArrays, pcp: int, order: int, counts: bool) -> bool:
    """Part of free_frozen_page_commit(): count a page just pushed (S4.6).

    Returns whether a run of high-order frees flushes the lists. Unless it `counts`, nothing but the
    number of pages changes.
    """
    if not counts:
        m.st[pcp + at.PCP_COUNT] += 1 << order
        return False
    m.st[pcp + at.PCP_ALLOC_FACTOR] >>= 1
    m.st[pcp + at.PCP_COUNT] += 1 << order
    flush = flushes_high_order(m, pcp, order)
    most = m.st[pcp + at.PCP_BATCH] << m.st[at.POLICY_PCP_BATCH_SCALE_MAX]
    if m.st[pcp + at.PCP_FREE_COUNT] < most:
        m.st[pcp + at.PCP_FREE_COUNT] += 1 << order
    return flush


@hot
def overflow_beyond_limit(m: at.MachineArrays, pcp: int, zone: int, flush: bool) -> int:
    """nr_pcp_high() and nr_pcp_free(): tune after a free that has been counted (S4.6).

    Returns how many pages to drain, or -1.
    """
    limit = nr_pcp_high(m, pcp, zone, flush)
    if m.st[pcp + at.PCP_COUNT] < limit:
        return -1
    return nr_pcp_free(m, pcp, limit, flush)


@inner
def leave_below_high(m: at.MachineArrays, zone: int) -> None:
    """Part of free_frozen_page_commit(): clear BELOW_HIGH once above the high mark (S4.6)."""
    region = zone_at(zone)
    if m.st[region + at.ZONE_BELOW_HIGH]:
        mark = wmark_pages(m, zone, at.WMARK_HIGH)
        if __zone_watermark_ok(m, zone, 0, mark, m.st[at.MOVABLE_TYPE], 0, seen_free(m, zone)):
            m.st[region + at.ZONE_BELOW_HIGH] = 0
            if m.st[at.PRESSURE_BASE] and m.st[at.RULE_REVIVED_WHEN_BALANCED]:
                revive_kswapd(m, m.st[region + at.ZONE_NODE])


@cold
def revive_kswapd(m: at.MachineArrays, node: int) -> None:
    """Part of free_frozen_page_commit(): forget a hopeless node's failures (S10.2).

    That is if a later node has memory too.
    """
    words = node_pressure_at(m, node)
    if m.st[words + pr.KSWAPD_FAILURES] < pr.RETRIES_MAX:
        return
    for zone in range((node + 1) * m.st[at.ZONE_TYPES], m.st[at.NR_ZONES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            m.st[words + pr.KSWAPD_FAILURES] = 0
            return


@cold
def drain_overflow(m: at.MachineArrays, zone: int, cpu: int, remaining: int, index: int) -> None:
    """Part of free_frozen_page_commit(): drain what a free pushed above the limit (S4.7).

    It begins at the list of the free.
    """
    pcp = pcp_at(m, zone, cpu)
    base = m.st[pcp + at.PCP_BATCH]
    site = at.SITE_DRAIN_COMMIT
    merge_before_drain(m, zone, cpu)
    if not m.st[at.POLICY_PCP_FREE_BATCHED]:
        free_pcppages_bulk(m, zone, cpu, remaining, index, site)
        remaining = 0
    is_first = True
    while remaining > 0 and m.st[pcp + at.PCP_COUNT] > 0:
        if not is_first:
            lock_list_to_drain(m, zone, pcp)
        is_first = False
        free_pcppages_bulk(m, zone, cpu, min(base, remaining), index, site)
        remaining -= base
    leave_below_high(m, zone)
    note_drain(m, pcp)


@hot
def free_frozen_page_commit(
    m: at.MachineArrays, zone: int, cpu: int, pfn: int, order: int, index: int, migratetype: int
) -> None:
    """free_frozen_page_commit(): push a page on the CPU's list, drain what overflows (S4.6, S4.7).

    The caller has taken the list's lock. In 6.12 the function is called free_unref_page_commit().
    """
    pcp = pcp_at(m, zone, cpu)
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ON_PCP
    m.pages[pfn]["tag"] = migratetype
    list_add(m.pages, m.st, pcp + at.PCP_LISTS + index * at.LIST_WORDS, pfn)
    remaining = overflow_of_free(m, pcp, zone, order)
    if remaining >= 0:
        drain_overflow(m, zone, cpu, remaining, index)
