"""Frees under pageblock ownership: to the owner's lists, whichever CPU frees (S12.1, S12.8)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.buddy import free_one_page
from pagealloc_model.allocator.core.list_locks import lock_list_to_free
from pagealloc_model.allocator.core.offsets import pcp_at
from pagealloc_model.allocator.core.page_lists import list_add
from pagealloc_model.allocator.core.pcp import (
    count_free_of_page,
    drain_overflow,
    overflow_beyond_limit,
    overflow_of_free,
)
from pagealloc_model.allocator.ownership.owned_lists import mark_listed, merge_upward, owned_list_at
from pagealloc_model.allocator.ownership.ownership import (
    count_owning,
    option,
    owner_of,
    receiver_of,
)
from pagealloc_model.base.jit import cold, inner

SPREAD = 2654435761
"""Odd and near 2^32 times the golden mean: multiples of it spread evenly modulo 2^32."""


@inner
def finds_lock_taken(m: at.MachineArrays) -> bool:
    """No kernel function: return whether a remote free finds the owner's lock taken.

    An assumed share of them finds the owner's pcp->lock so.
    """
    base = m.st[at.OWNERSHIP]
    number = m.st[base + own.REMOTE_DRAWS]
    m.st[base + own.REMOTE_DRAWS] = number + 1
    drawn = (number * SPREAD) & 0xFFFFFFFF
    return (drawn * 1000) >> 32 < m.st[base + own.OPTION_REMOTE_BUSY_PER_1000]


@inner
def overflow_of_remote_free(m: at.MachineArrays, pcp: int, zone: int, order: int) -> int:
    """nr_pcp_high() and nr_pcp_free(): account for a page freed by another CPU.

    Returns how many pages to drain now, or -1.
    """
    counts = option(m, own.OPTION_REMOTE_COUNTS) != 0
    owner_drains = option(m, own.OPTION_REMOTE_OVERFLOW) == own.OWNER_DRAINS
    if counts and not owner_drains:
        return overflow_of_free(m, pcp, zone, order)
    flush = count_free_of_page(m, pcp, order, counts)
    return -1 if owner_drains else overflow_beyond_limit(m, pcp, zone, flush)


@inner
def free_to_list(
    m: at.MachineArrays, zone: int, cpu: int, receiver: int, pfn: int, order: int
) -> None:
    """free_frozen_page_commit(): push a page on the receiver's list, drain what overflows.

    `cpu` frees it, and has taken the list's lock.
    """
    pcp = pcp_at(m, zone, receiver)
    migratetype = int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["migratetype"])
    kind = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    is_own = owner_of(m, pfn >> m.st[at.PAGEBLOCK_ORDER]) == receiver
    mark_listed(m, pfn, order, migratetype, at.MERGEABLE if is_own else 0)
    list_add(m.pages, m.st, owned_list_at(pcp, order, kind), pfn)
    if is_own and option(m, own.OPTION_MERGES_AT) == own.MERGES_AT_FREE:
        merge_upward(m, zone, receiver, pfn, kind)
    if receiver == cpu:
        remaining = overflow_of_free(m, pcp, zone, order)
    else:
        remaining = overflow_of_remote_free(m, pcp, zone, order)
    if remaining >= 0:
        drain_overflow(m, zone, receiver, remaining, 3 * order + kind)


@cold
def free_owned(
    m: at.MachineArrays, zone: int, cpu: int, pfn: int, order: int, in_batch: bool
) -> None:
    """__free_frozen_pages(): free a page to the lists of its block's owner.

    It is of an order that lists hold.
    """
    is_plain = not int(m.pages[pfn]["flags"]) & at.MERGEABLE
    receiver = receiver_of(m, pfn >> m.st[at.PAGEBLOCK_ORDER], is_plain, cpu)
    if receiver != cpu:
        count_owning(m, zone, own.REMOTE_FREES, 1)
        if finds_lock_taken(m):
            count_owning(m, zone, own.REMOTE_BUSY, 1)
            way = option(m, own.OPTION_REMOTE_BUSY)
            if way == own.BUSY_TO_ZONE:
                free_one_page(m, zone, cpu, pfn, order)
                return
            if way == own.BUSY_TO_LOCAL:
                receiver = cpu
    lock_list_to_free(m, zone, pcp_at(m, zone, receiver), in_batch)
    free_to_list(m, zone, cpu, receiver, pfn, order)
