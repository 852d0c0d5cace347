"""Requests, and the allocator's view of one attempt at them (S2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntFlag

from tests.oracle.machine import Migratetype


class Bits(IntFlag):
    """The gfp bits that the allocator's decisions read, with their values (S2.3).

    ATOMIC exists in 6.1 only; only an elastic replay reads IO, RETRY_MAYFAIL, NOFAIL and NORETRY.
    INTERRUPTS_HOLDER is no gfp bit: the request is an interrupt's, which may find a list
    locked (S4.10).
    """

    NONE = 0
    INTERRUPTS_HOLDER = 2
    HIGH = 0x20
    IO = 0x40
    ATOMIC = 0x200
    DIRECT_RECLAIM = 0x400
    KSWAPD = 0x800
    RETRY_MAYFAIL = 0x4000
    NOFAIL = 0x8000
    NORETRY = 0x10000
    MEMALLOC = 0x20000
    NOMEMALLOC = 0x80000
    THISNODE = 0x200000


class Mark(Enum):
    """Which watermark an attempt must keep (S1.6)."""

    MIN = "min"
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One allocation request.

    Attributes:
        cpu: CPU it runs on.
        order: pages asked for, as a power of two.
        migratetype: 0 to 2 (S2.1).
        highest_zone: highest type of zone allowed, by position within a node (S2.2).
        bits: gfp bits.
        makes_room: direct reclaim runs for it if nothing else helps (S8.2).
        reclaim: number of the recorded direct reclaim that ran for it, 0 if none is known.
        only_zone: index of the only zone that may serve it, None for any.
    """

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: Bits
    makes_room: bool = False
    reclaim: int = 0
    only_zone: int | None = None

    def may_be_served_by(self, zone: int) -> bool:
        """No kernel function: return whether a zone, by index, may serve it (S10.4)."""
        return self.only_zone is None or zone == self.only_zone

    @property
    def gfp_pfmemalloc_allowed(self) -> bool:
        """gfp_pfmemalloc_allowed(): return whether the task frees memory by it (S2.6)."""
        return Bits.MEMALLOC in self.bits and Bits.NOMEMALLOC not in self.bits

    @property
    def may_use_cma(self) -> bool:
        """gfp_to_alloc_flags_cma(): return whether CMA may serve what can be moved away (S2.5)."""
        return self.migratetype == Migratetype.MOVABLE

    @property
    def may_give_up_nofragment(self) -> bool:
        """Part of __alloc_pages_slowpath(): return whether it fragments before failing (S8.6)."""
        return bool(self.bits & (Bits.DIRECT_RECLAIM | Bits.KSWAPD))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Alloc flags of one walk over the zonelist (S2.5-S2.7).

    Attributes:
        mark: watermark to keep.
        kswapd: the request may wake kswapd.
        min_reserve: may use half of the min reserve.
        non_block: cannot reclaim; with `min_reserve`, a further quarter.
        atomic: has the gfp bit ATOMIC (6.1).
        highatomic: may use the high-order atomic reserve, and makes it grow.
        oom: an OOM victim; no caller sets it yet.
        no_watermarks: take pages whatever the watermarks say.
        nofragment: claim whole blocks only.
        cma: may use CMA blocks.
    """

    mark: Mark
    kswapd: bool = False
    min_reserve: bool = False
    non_block: bool = False
    atomic: bool = False
    highatomic: bool = False
    oom: bool = False
    no_watermarks: bool = False
    nofragment: bool = False
    cma: bool = False

    @property
    def uses_reserves(self) -> bool:
        """Part of __zone_watermark_ok(): return whether free HIGHATOMIC pages count (S3.3)."""
        return self.non_block or self.min_reserve or self.highatomic or self.oom

    def may_fragment(self) -> Attempt:
        """No kernel function: return the same attempt without NOFRAGMENT."""
        return replace(self, nofragment=False)

    def ignoring_watermarks(self) -> Attempt:
        """No kernel function: return the same attempt with NO_WATERMARKS."""
        return replace(self, no_watermarks=True)


PLAIN = Attempt(mark=Mark.HIGH)
"""No discounts at all: kswapd's and the free path's tests."""


def fast_attempt(request: Request, *, avoids_fragmenting: bool, uses_reserve: bool) -> Attempt:
    """Part of prepare_alloc_pages(): return the first attempt's flags (S2.5).

    Args:
        request: what is asked for.
        avoids_fragmenting: NOFRAGMENT is set (S2.7).
        uses_reserve: HIGHATOMIC is set for whom the slow path would set it.
    """
    return Attempt(
        mark=Mark.LOW,
        kswapd=Bits.KSWAPD in request.bits,
        highatomic=uses_reserve and is_highatomic(request),
        nofragment=avoids_fragmenting,
        cma=request.may_use_cma,
    )


def is_highatomic(request: Request) -> bool:
    """alloc_flags_nonblocking(): return whether an urgent high order may use HIGHATOMIC (S2.6)."""
    forbidden = Bits.DIRECT_RECLAIM | Bits.NOMEMALLOC
    return request.order > 0 and Bits.HIGH in request.bits and not request.bits & forbidden


def gfp_to_alloc_flags(request: Request, *, defrag_mode: bool) -> Attempt:
    """gfp_to_alloc_flags(): return the slow path's flags (S2.6).

    Who may reclaim is not atomic.
    """
    may_reclaim = Bits.DIRECT_RECLAIM in request.bits
    min_reserve = Bits.HIGH in request.bits
    non_block = not may_reclaim and Bits.NOMEMALLOC not in request.bits
    return Attempt(
        mark=Mark.MIN,
        kswapd=Bits.KSWAPD in request.bits,
        min_reserve=min_reserve,
        non_block=non_block,
        atomic=Bits.ATOMIC in request.bits and not may_reclaim,
        highatomic=is_highatomic(request),
        nofragment=defrag_mode,
        cma=request.may_use_cma,
    )


def memalloc_attempt(request: Request) -> Attempt:
    """__gfp_pfmemalloc_flags(): return the flags of who keeps no watermark (S2.6)."""
    return Attempt(
        mark=Mark.MIN,
        kswapd=Bits.KSWAPD in request.bits,
        no_watermarks=True,
        cma=request.may_use_cma,
    )
