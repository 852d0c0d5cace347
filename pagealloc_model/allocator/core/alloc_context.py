"""A request as all of its attempts see it, and the flags of each (S2.5 to S2.7)."""

from __future__ import annotations

from typing import NamedTuple

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import node_zonelist, zone_at
from pagealloc_model.base.jit import inner


class AllocContext(NamedTuple):
    """One request; kernels call it `ac`, as the kernel calls its `struct alloc_context`.

    Attributes:
        cpu: CPU that asks.
        order: pages asked for, as a power of two.
        migratetype: UNMOVABLE, MOVABLE or RECLAIMABLE.
        highest_type: highest zone type that may serve it.
        bits: its gfp word, as far as decisions read it, and `REQUEST_RECLAIMED`.
        zonelist: offset of its zonelist.
    """

    cpu: int
    order: int
    migratetype: int
    highest_type: int
    bits: int
    zonelist: int


@inner
def prepare_alloc_pages(
    m: at.MachineArrays, cpu: int, order: int, migratetype: int, highest_type: int, bits: int
) -> AllocContext:
    """prepare_alloc_pages(): return a request with the zonelist that it goes by (S1.4, S2.5)."""
    zonelist = node_zonelist(m, cpu, highest_type, bits)
    return AllocContext(cpu, order, migratetype, highest_type, bits, zonelist)


@inner
def fast_path_flags(m: at.MachineArrays, ac: AllocContext) -> int:
    """Part of prepare_alloc_pages(): return the allocation flags of the first attempt (S2.5, S2.7).

    alloc_flags_nofragment() and, for CMA, gfp_to_alloc_flags_cma() add to them in the kernel; in
    7.3 alloc_flags_cma() and, for the reserve, alloc_flags_nonblocking().
    """
    flags = at.WMARK_LOW
    if ac.bits & at.GFP_KSWAPD_RECLAIM:
        flags |= at.ALLOC_KSWAPD
    if ac.migratetype == at.MOVABLE and m.st[at.CMA] >= 0:
        flags |= at.ALLOC_CMA
    preferred = m.st[ac.zonelist]
    if m.st[at.POLICY_DEFRAG_MODE] or (
        preferred >= 0 and m.st[zone_at(preferred) + at.ZONE_AVOIDS_FRAGMENTATION]
    ):
        flags |= at.ALLOC_NOFRAGMENT
    if m.st[at.POLICY_HIGHATOMIC_FASTPATH]:
        flags |= gfp_to_alloc_flags(m, ac, flags) & at.ALLOC_HIGHATOMIC
    return flags


@inner
def gfp_to_alloc_flags(m: at.MachineArrays, ac: AllocContext, fast: int) -> int:
    """gfp_to_alloc_flags(): return the flags of later attempts (S2.6), given those of the first.

    In 7.3 the function is called alloc_flags_slowpath().
    """
    flags = at.WMARK_MIN | (fast & (at.ALLOC_KSWAPD | at.ALLOC_CMA))
    if m.st[at.POLICY_DEFRAG_MODE]:
        flags |= at.ALLOC_NOFRAGMENT
    if ac.bits & at.GFP_HIGH:
        flags |= at.ALLOC_MIN_RESERVE
    if ac.bits & m.st[at.BOOST_RETRY_MASK] == m.st[at.BOOST_RETRY_BITS]:
        flags |= at.ALLOC_IGNORES_BOOST
    if not ac.bits & (at.GFP_DIRECT_RECLAIM | at.GFP_NOMEMALLOC):
        flags |= at.ALLOC_NON_BLOCK
        if ac.order > 0 and (
            flags & at.ALLOC_MIN_RESERVE or not m.st[at.RULE_HIGHATOMIC_NEEDS_HIGH]
        ):
            flags |= at.ALLOC_HIGHATOMIC
    return flags
