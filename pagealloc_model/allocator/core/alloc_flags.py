"""Allocation flags of a request's attempts (S2.5 to S2.7)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.base.jit import inner


@inner
def fast_path_flags(st: np.ndarray, zonelist: int, migratetype: int, bits: int) -> int:
    """Allocation flags of the first attempt (S2.5, S2.7)."""
    flags = at.WMARK_LOW
    if bits & at.GFP_KSWAPD_RECLAIM:
        flags |= at.ALLOC_KSWAPD
    if migratetype == at.MOVABLE and st[at.CMA] >= 0:
        flags |= at.ALLOC_CMA
    preferred = st[zonelist]
    if st[at.DEFRAG_MODE] or (
        preferred >= 0 and st[zone_at(preferred) + at.ZONE_AVOIDS_FRAGMENTATION]
    ):
        flags |= at.ALLOC_NOFRAGMENT
    return flags


@inner
def slow_path_flags(st: np.ndarray, bits: int, order: int, fast: int) -> int:
    """Allocation flags of later attempts (S2.6), those of the fast path given."""
    flags = at.WMARK_MIN | (fast & (at.ALLOC_KSWAPD | at.ALLOC_CMA))
    if st[at.DEFRAG_MODE]:
        flags |= at.ALLOC_NOFRAGMENT
    if bits & at.GFP_HIGH:
        flags |= at.ALLOC_MIN_RESERVE
    if bits & st[at.BOOST_RETRY_MASK] == st[at.BOOST_RETRY_BITS]:
        flags |= at.ALLOC_IGNORES_BOOST
    if not bits & (at.GFP_DIRECT_RECLAIM | at.GFP_NOMEMALLOC):
        flags |= at.ALLOC_NON_BLOCK
        if order > 0 and (flags & at.ALLOC_MIN_RESERVE or not st[at.HIGHATOMIC_NEEDS_HIGH]):
            flags |= at.ALLOC_HIGHATOMIC
    return flags
