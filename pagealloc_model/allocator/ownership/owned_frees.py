"""Frees under pageblock ownership: to the owner's lists, whichever CPU frees (S12.1, S12.8)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.allocator.core.buddy import free_to_buddy, push_head
from pagealloc_model.allocator.core.event_log import count_transaction
from pagealloc_model.allocator.core.list_locks import lock_list_to_free
from pagealloc_model.allocator.core.offsets import pcp_at
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
def finds_lock_taken(st: np.ndarray) -> bool:
    """Whether a remote free finds the owner's pcp->lock taken: an assumed share of them does."""
    base = st[at.OWNERSHIP]
    number = st[base + own.REMOTE_DRAWS]
    st[base + own.REMOTE_DRAWS] = number + 1
    drawn = (number * SPREAD) & 0xFFFFFFFF
    return (drawn * 1000) >> 32 < st[base + own.OPTION_REMOTE_BUSY_PER_1000]


@inner
def overflow_of_remote_free(st: np.ndarray, pcp: int, zone: int, order: int) -> int:
    """Count a page that another CPU freed to a pageset; pages to return now, -1 for none."""
    counts = option(st, own.OPTION_REMOTE_COUNTS) != 0
    owner_drains = option(st, own.OPTION_REMOTE_OVERFLOW) == own.OWNER_DRAINS
    if counts and not owner_drains:
        return overflow_of_free(st, pcp, zone, order)
    flush = count_free_of_page(st, pcp, order, counts)
    return -1 if owner_drains else overflow_beyond_limit(st, pcp, zone, flush)


@inner
def free_to_list(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    receiver: int,
    pfn: int,
    order: int,
    migratetype: int,
) -> None:
    """Push a page that `cpu` frees on the receiver's list and drain what overflows."""
    pcp = pcp_at(st, zone, receiver)
    kind = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    is_own = owner_of(st, pfn >> st[at.PAGEBLOCK_ORDER]) == receiver
    lock_list_to_free(st, zone, pcp)
    mark_listed(pages, pfn, order, migratetype, at.MERGEABLE if is_own else 0)
    push_head(pages, st, owned_list_at(pcp, order, kind), pfn)
    if is_own and option(st, own.OPTION_MERGES_AT) == own.MERGES_AT_FREE:
        merge_upward(pages, st, zone, receiver, pfn, kind)
    if receiver == cpu:
        remaining = overflow_of_free(st, pcp, zone, order)
    else:
        remaining = overflow_of_remote_free(st, pcp, zone, order)
    if remaining >= 0:
        drain_overflow(pages, blocks, st, log, zone, receiver, remaining, 3 * order + kind)


@cold
def free_owned(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    zone: int,
    cpu: int,
    pfn: int,
    order: int,
    migratetype: int,
) -> None:
    """Free a page of an order that lists hold to the lists of its block's owner."""
    is_plain = not int(pages[pfn]["flags"]) & at.MERGEABLE
    receiver = receiver_of(st, pfn >> st[at.PAGEBLOCK_ORDER], is_plain, cpu)
    if receiver != cpu:
        count_owning(st, zone, own.REMOTE_FREES, 1)
        if finds_lock_taken(st):
            count_owning(st, zone, own.REMOTE_BUSY, 1)
            way = option(st, own.OPTION_REMOTE_BUSY)
            if way == own.BUSY_TO_ZONE:
                free_to_buddy(pages, blocks, st, zone, pfn, order, migratetype)
                count_transaction(
                    st, log, at.SITE_DIRECT_FREE, zone, cpu, order, migratetype, 1, 1 << order
                )
                return
            if way == own.BUSY_TO_LOCAL:
                receiver = cpu
    free_to_list(pages, blocks, st, log, zone, cpu, receiver, pfn, order, migratetype)
