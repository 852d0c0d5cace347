"""Requests, and the allocator's view of one attempt at them (S2)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntFlag

from tests.oracle.machine import Migratetype


class Bits(IntFlag):
    """The gfp bits that the allocator's decisions read, with their values (S2.3).

    ATOMIC exists in 6.1 only; only an elastic replay reads IO, RETRY_MAYFAIL, NOFAIL and NORETRY.
    INTERRUPTS_HOLDER and KERNEL_THREAD are no gfp bits: the request is an interrupt's, which may
    find a list locked (S4.10), or that of a task with PF_KTHREAD (S8.2).
    """

    NONE = 0
    INTERRUPTS_HOLDER = 2
    HIGH = 0x20
    IO = 0x40
    KERNEL_THREAD = 0x100
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
    """One allocation request."""

    cpu: int  # CPU it runs on
    order: int  # pages asked for, as a power of two
    migratetype: int  # 0 to 2 (S2.1)
    highest_zone: int  # highest type of zone allowed, by position within a node (S2.2)
    bits: Bits  # gfp bits
    reclaim: int = 0  # number of the recorded direct reclaim that ran for it, 0 if none is known
    only_zone: int | None = None  # index of the only zone that may serve it, None for any (S10.4)

    @property
    def is_movable(self) -> bool:
        return self.migratetype == Migratetype.MOVABLE

    @property
    def gfp_pfmemalloc_allowed(self) -> bool:
        """gfp_pfmemalloc_allowed(): return whether the task frees memory by it (S2.6)."""
        return Bits.MEMALLOC in self.bits and Bits.NOMEMALLOC not in self.bits

    @property
    def is_highatomic(self) -> bool:
        """alloc_flags_nonblocking(): return whether it is urgent, of high order, and waits not."""
        forbidden = Bits.DIRECT_RECLAIM | Bits.NOMEMALLOC
        return self.order > 0 and Bits.HIGH in self.bits and not self.bits & forbidden


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Alloc flags of one walk over the zonelist (S2.5-S2.7)."""

    mark: Mark  # watermark to keep
    kswapd: bool = False  # the request may wake kswapd
    min_reserve: bool = False  # may use half of the min reserve
    non_block: bool = False  # cannot reclaim; with `min_reserve`, a further quarter
    atomic: bool = False  # has the gfp bit ATOMIC (6.1)
    highatomic: bool = False  # may use the high-order atomic reserve, and makes it grow
    no_watermarks: bool = False  # take pages whatever the watermarks say
    nofragment: bool = False  # claim whole blocks only
    # may use CMA blocks, as what can be moved away may (gfp_to_alloc_flags_cma())
    cma: bool = False


PLAIN = Attempt(mark=Mark.HIGH)  # no discounts at all: kswapd's and the free path's tests


def gfp_to_alloc_flags(request: Request, *, defrag_mode: bool) -> Attempt:
    """gfp_to_alloc_flags(): return the slow path's flags; who may reclaim is not atomic (S2.6)."""
    may_reclaim = Bits.DIRECT_RECLAIM in request.bits
    return Attempt(
        mark=Mark.MIN,
        kswapd=Bits.KSWAPD in request.bits,
        min_reserve=Bits.HIGH in request.bits,
        non_block=not may_reclaim and Bits.NOMEMALLOC not in request.bits,
        atomic=Bits.ATOMIC in request.bits and not may_reclaim,
        highatomic=request.is_highatomic,
        nofragment=defrag_mode,
        cma=request.is_movable,
    )


def memalloc_attempt(request: Request) -> Attempt:
    """__gfp_pfmemalloc_flags(): return the flags of who keeps no watermark (S2.6)."""
    kswapd = Bits.KSWAPD in request.bits
    return Attempt(mark=Mark.MIN, kswapd=kswapd, no_watermarks=True, cma=request.is_movable)
