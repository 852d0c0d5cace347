"""Allocation flags of a request's attempts (S2.5 to S2.7)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.base.jit import inner


@inner
def fast_path_flags(m: at.MachineArrays, zonelist: int, migratetype: int, bits: int) -> int:
    """Part of prepare_alloc_pages(): return the allocation flags of the first attempt (S2.5, S2.7).

    alloc_flags_nofragment() and, for CMA, gfp_to_alloc_flags_cma() add to them in the kernel.
    """
    flags = at.WMARK_LOW
    if bits & at.GFP_KSWAPD_RECLAIM:
        flags |= at.ALLOC_KSWAPD
    if migratetype == at.MOVABLE and m.st[at.CMA] >= 0:
        flags |= at.ALLOC_CMA
    preferred = m.st[zonelist]
    if m.st[at.POLICY_DEFRAG_MODE] or (
        preferred >= 0 and m.st[zone_at(preferred) + at.ZONE_AVOIDS_FRAGMENTATION]
    ):
        flags |= at.ALLOC_NOFRAGMENT
    return flags


@inner
def gfp_to_alloc_flags(m: at.MachineArrays, bits: int, order: int, fast: int) -> int:
    """gfp_to_alloc_flags(): return the flags of later attempts (S2.6), given those of the first.

    In 7.3 the function is called alloc_flags_slowpath().
    """
    flags = at.WMARK_MIN | (fast & (at.ALLOC_KSWAPD | at.ALLOC_CMA))
    if m.st[at.POLICY_DEFRAG_MODE]:
        flags |= at.ALLOC_NOFRAGMENT
    if bits & at.GFP_HIGH:
        flags |= at.ALLOC_MIN_RESERVE
    if bits & m.st[at.BOOST_RETRY_MASK] == m.st[at.BOOST_RETRY_BITS]:
        flags |= at.ALLOC_IGNORES_BOOST
    if not bits & (at.GFP_DIRECT_RECLAIM | at.GFP_NOMEMALLOC):
        flags |= at.ALLOC_NON_BLOCK
        if order > 0 and (flags & at.ALLOC_MIN_RESERVE or not m.st[at.RULE_HIGHATOMIC_NEEDS_HIGH]):
            flags |= at.ALLOC_HIGHATOMIC
    return flags
