"""How often each pcp->lock is taken, and by whom (S11.3)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import cpu_at, pcp_at
from pagealloc_model.base.jit import hot, inner

BATCH_MAX = 31
"""Pages that one folio batch frees at most (S4.11)."""


@hot
def hand_over(st: np.ndarray, pcp: int, mine: int) -> None:
    """Note that the CPU at work takes the lock of a pageset; `mine` is its own pageset there.

    It is the CPU at work that the acquisition counts for.
    """
    holder = st[at.EVENT_CPU] + 1
    last = st[pcp + at.PCP_LOCK_HOLDER]
    if last != holder:
        st[pcp + at.PCP_LOCK_HOLDER] = holder
        if last != 0:
            st[mine + at.PCP_LOCK_HANDOVERS] += 1


@hot
def lock_list(st: np.ndarray, zone: int, pcp: int) -> None:
    """The CPU at work takes a pageset's lock for an allocation."""
    mine = pcp_at(st, zone, st[at.EVENT_CPU])
    hand_over(st, pcp, mine)
    st[mine + at.PCP_LOCKS] += 1


@hot
def lock_list_to_free(st: np.ndarray, zone: int, pcp: int) -> None:
    """The CPU at work takes a pageset's lock for a free, unless it holds it for a batch of them."""
    cpu = st[at.EVENT_CPU]
    mine = pcp_at(st, zone, cpu)
    words = cpu_at(st, cpu)
    if st[at.FREE_IS_BATCHED]:
        st[words + at.CPU_BATCHED] += 1
        if st[words + at.CPU_BATCH_SET] == pcp and st[words + at.CPU_BATCHED] <= BATCH_MAX:
            return
        st[words + at.CPU_BATCH_SET] = pcp
        st[words + at.CPU_BATCHED] = 1
    hand_over(st, pcp, mine)
    st[mine + at.PCP_LOCKS] += 1


@inner
def lock_list_to_drain(st: np.ndarray, zone: int, pcp: int) -> None:
    """The CPU at work takes a pageset's lock only to drain it."""
    mine = pcp_at(st, zone, st[at.EVENT_CPU])
    hand_over(st, pcp, mine)
    st[mine + at.PCP_DRAIN_LOCKS] += 1
