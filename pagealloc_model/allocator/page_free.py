"""Frees: to the CPU's lists, those of a block's owner, or the buddy (S4.6, S12.1, S12.8)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.buddy import free_one_page
from pagealloc_model.allocator.event_log import log_list_free
from pagealloc_model.allocator.layout import pcp_at
from pagealloc_model.allocator.ownership import (
    count_owning,
    option,
    owner_of,
    push_freed,
    push_lockless,
    receiver_of,
)
from pagealloc_model.allocator.pcp import (
    count_free_of_page,
    drain_overflow,
    free_frozen_page_commit,
    is_locked_by_holder,
    lock_list_to_free,
    order_to_pindex,
    overflow_beyond_limit,
    overflow_of_free,
)
from pagealloc_model.allocator.watermark import stop_balanced_kswapds
from pagealloc_model.base.jit import cold, hot, inner


@inner
def overflow_of_remote_free(m: at.Arrays, pcp: int, zone: int, order: int) -> int:
    """nr_pcp_high() and nr_pcp_free(): count another CPU's free; pages to drain now, or -1."""
    counts = option(m, at.OPTION_REMOTE_COUNTS) != 0
    owner_drains = option(m, at.OPTION_REMOTE_OVERFLOW) == at.OWNER_DRAINS
    if counts and not owner_drains:
        return overflow_of_free(m, pcp, zone, order)
    flush = count_free_of_page(m, pcp, order, counts)
    return -1 if owner_drains else overflow_beyond_limit(m, pcp, zone, flush)


@hot
def free_owned(m: at.Arrays, zone: int, cpu: int, pfn: int, order: int, in_batch: bool) -> None:
    """__free_frozen_pages(): free a page to the lists of its block's owner, or the CPU's own."""
    owner = owner_of(m, pfn >> m.st[at.PAGEBLOCK_ORDER])
    receiver = cpu
    if owner >= 0 and owner != cpu:
        is_plain = not int(m.pages[pfn]["flags"]) & at.MERGEABLE
        receiver = receiver_of(m, owner, is_plain, cpu)
    if receiver != cpu:
        count_owning(m, zone, at.REMOTE_FREES, 1)
        if option(m, at.OPTION_REMOTE_FREE) == at.REMOTE_FREE_IS_LOCKLESS:
            push_lockless(m, zone, receiver, pfn, order)
            return
    pcp = pcp_at(m, zone, receiver)
    is_taken = lock_list_to_free(m, zone, pcp, in_batch)
    log_list_free(m, zone, receiver, order, is_taken)
    index = push_freed(m, zone, receiver, pfn, order, receiver == owner)
    if receiver == cpu:
        remaining = overflow_of_free(m, pcp, zone, order)
    else:
        remaining = overflow_of_remote_free(m, pcp, zone, order)
    if remaining >= 0:
        drain_overflow(m, zone, receiver, remaining, index)


@cold
def split_allocation(m: at.Arrays, pfn: int, order: int) -> None:
    """Cut an allocation so that the piece at `pfn` stands alone (T10.1)."""
    for above in range(order, m.st[at.MAX_ORDER] + 1):
        head = pfn & ~((1 << above) - 1)
        if int(m.pages[head]["where"]) == at.ALLOCATED and int(m.pages[head]["order"]) >= above:
            tag = int(m.pages[head]["tag"])
            flags = int(m.pages[head]["flags"])
            for current in range(int(m.pages[head]["order"]) - 1, order - 1, -1):
                half = pfn & ~((1 << current) - 1)
                other = half ^ (1 << current)
                for piece in (half, other):
                    m.pages[piece]["where"] = at.ALLOCATED
                    m.pages[piece]["order"] = current
                    m.pages[piece]["tag"] = tag
                    m.pages[piece]["flags"] = flags
            return


@hot
def __free_frozen_pages(m: at.Arrays, cpu: int, pfn: int, order: int, in_batch: bool) -> None:
    """__free_frozen_pages(): free pages to a CPU's lists or the buddy (S4.6)."""
    if int(m.pages[pfn]["where"]) != at.ALLOCATED or int(m.pages[pfn]["order"]) != order:
        split_allocation(m, pfn, order)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    block = pfn >> block_order
    zone = int(m.blocks[block]["zone"]) - 1
    migratetype = int(m.blocks[block]["migratetype"])
    listed = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    index = order_to_pindex(m, order, listed)
    if m.st[at.OWNERSHIP]:
        if order > block_order:
            index = -1
    elif not in_batch and is_locked_by_holder(m, cpu, pcp_at(m, zone, cpu)):
        index = -1
    if index >= 0 and migratetype != m.st[at.ISOLATE]:
        if m.st[at.OWNERSHIP]:
            free_owned(m, zone, cpu, pfn, order, in_batch)
        else:
            lock_list_to_free(m, zone, pcp_at(m, zone, cpu), in_batch)
            free_frozen_page_commit(m, zone, cpu, pfn, order, index, migratetype)
    else:
        free_one_page(m, zone, cpu, pfn, order)
    if m.st[at.KSWAPD_RUNS] and not m.st[at.KSWAPD_RECORDED]:
        stop_balanced_kswapds(m)
