"""Requests, and the allocator's view of one attempt at them (S2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntFlag


class Bits(IntFlag):
    """The gfp bits that the allocator's decisions read, with their values (S2.3).

    ATOMIC exists in 6.1 only.
    """

    NONE = 0
    HIGH = 0x20
    ATOMIC = 0x200
    DIRECT_RECLAIM = 0x400
    KSWAPD = 0x800
    NOMEMALLOC = 0x80000


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
        highest_zone: highest zone index allowed (S2.2).
        bits: gfp bits.
    """

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: Bits


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

    @property
    def uses_reserves(self) -> bool:
        """Whether free HIGHATOMIC pages count as free for this attempt (S3.3)."""
        return self.non_block or self.min_reserve or self.highatomic or self.oom

    def may_fragment(self) -> Attempt:
        """The same attempt without NOFRAGMENT."""
        return replace(self, nofragment=False)

    def ignoring_watermarks(self) -> Attempt:
        """The same attempt with NO_WATERMARKS."""
        return replace(self, no_watermarks=True)


PLAIN = Attempt(mark=Mark.HIGH)
"""No discounts at all: kswapd's and the free path's tests."""


def fast_attempt(request: Request, *, preferred_is_normal: bool, defrag_mode: bool) -> Attempt:
    """The first attempt's flags (S2.5, S2.7)."""
    return Attempt(
        mark=Mark.LOW,
        kswapd=Bits.KSWAPD in request.bits,
        nofragment=defrag_mode or preferred_is_normal,
    )


def slow_attempt(request: Request, *, defrag_mode: bool) -> Attempt:
    """The slow path's flags (S2.6); who may reclaim is not atomic."""
    may_reclaim = Bits.DIRECT_RECLAIM in request.bits
    min_reserve = Bits.HIGH in request.bits
    non_block = not may_reclaim and Bits.NOMEMALLOC not in request.bits
    return Attempt(
        mark=Mark.MIN,
        kswapd=Bits.KSWAPD in request.bits,
        min_reserve=min_reserve,
        non_block=non_block,
        atomic=Bits.ATOMIC in request.bits and not may_reclaim,
        highatomic=non_block and min_reserve and request.order > 0,
        nofragment=defrag_mode,
    )
