"""Taking a page under zone->lock, with fallback to other migratetypes (S6)."""

from __future__ import annotations

from enum import Enum

from tests.oracle.allocated import AllocatedPages
from tests.oracle.buddy import Buddy
from tests.oracle.machine import Migratetype
from tests.oracle.request import Attempt
from tests.oracle.watermark import Watermarks

FALLBACKS: dict[int, tuple[int, int]] = {
    Migratetype.UNMOVABLE: (Migratetype.RECLAIMABLE, Migratetype.MOVABLE),
    Migratetype.MOVABLE: (Migratetype.RECLAIMABLE, Migratetype.UNMOVABLE),
    Migratetype.RECLAIMABLE: (Migratetype.UNMOVABLE, Migratetype.MOVABLE),
}
"""Types to fall back to, best first (S6.1)."""


def fallback_type(buddy: Buddy, order: int, migratetype: int) -> int | None:
    """First type to fall back to with a free buddy of exactly this order (S6.1)."""
    for fallback in FALLBACKS[migratetype]:
        if not buddy.is_empty(order, fallback):
            return fallback
    return None


def is_worth_claiming(buddy: Buddy, order: int, migratetype: int) -> bool:
    """Whether a request may want the whole block of a free buddy of this order (S6.3)."""
    return order >= buddy.blocks.order // 2 or migratetype != Migratetype.MOVABLE


class Mode(Enum):
    """The step a bulk refill resumes at (S6.2).

    A claim resumes at NORMAL, since it refilled the own lists.
    """

    NORMAL = 1
    CMA = 2
    STEAL = 3


class Fallback:
    """Own type first, then CMA where allowed, then claim a block, then steal a page (S6.2).

    CMA comes even before the own type as long as most of the zone's free memory is there.

    Attributes:
        boosted: the zone was boosted by a request that may wake kswapd (S6.3, S3.2).
    """

    def __init__(self, buddy: Buddy, watermarks: Watermarks, allocated: AllocatedPages) -> None:
        self.buddy = buddy
        self.watermarks = watermarks
        self.allocated = allocated
        self.boosted = False

    def take_one(self, order: int, migratetype: int, attempt: Attempt) -> int | None:
        """One page, each step tried once."""
        return self._take(order, migratetype, attempt, Mode.NORMAL)[0]

    def take_many(self, wanted: int, order: int, migratetype: int, attempt: Attempt) -> list[int]:
        """Up to `wanted` pages of one bulk refill; the mode carries over (S6.2)."""
        mode = Mode.NORMAL
        taken: list[int] = []
        while len(taken) < wanted:
            pfn, mode = self._take(order, migratetype, attempt, mode)
            if pfn is None:
                break
            taken.append(pfn)
        return taken

    def _take(
        self, order: int, migratetype: int, attempt: Attempt, mode: Mode
    ) -> tuple[int | None, Mode]:
        if attempt.cma and self.buddy.is_mostly_cma:
            pfn = self.buddy.take_cma(order)
            if pfn is not None:
                return pfn, mode
        if mode is Mode.NORMAL:
            pfn = self.buddy.take_smallest(order, migratetype)
            if pfn is not None:
                return pfn, Mode.NORMAL
        if mode is not Mode.STEAL:
            pfn = self.buddy.take_cma(order) if attempt.cma else None
            if pfn is not None:
                return pfn, Mode.CMA
            pfn = self._claim(order, migratetype, attempt)
            if pfn is not None:
                return pfn, Mode.NORMAL
        if not attempt.nofragment:
            pfn = self._steal(order, migratetype)
            if pfn is not None:
                return pfn, Mode.STEAL
        return None, mode

    def _claim(self, order: int, migratetype: int, attempt: Attempt) -> int | None:
        """Convert a block to the requester's type, largest free buddy first (S6.3)."""
        block_order = self.buddy.blocks.order
        lowest = max(order, block_order) if attempt.nofragment else order
        for current in range(self.buddy.max_order, lowest - 1, -1):
            if not is_worth_claiming(self.buddy, current, migratetype):
                return None
            fallback = fallback_type(self.buddy, current, migratetype)
            if fallback is None:
                continue
            if current >= block_order:
                pfn = self._claim_whole(current, order, migratetype, fallback)
            else:
                pfn = self._claim_partial(current, order, migratetype, fallback, attempt)
            if pfn is not None:
                self.buddy.events.extfrag(pfn, order, current, migratetype, fallback, True)
                return pfn
        return None

    def _steal(self, order: int, migratetype: int) -> int | None:
        """Split the smallest fallback buddy; the rest stays with its old type (S6.4)."""
        for current in range(order, self.buddy.max_order + 1):
            fallback = fallback_type(self.buddy, current, migratetype)
            if fallback is not None:
                pfn = self.buddy.lists[current, fallback].head
                self.buddy.take(pfn, order)
                self.buddy.events.extfrag(pfn, order, current, migratetype, fallback, False)
                return pfn
        return None

    def _claim_whole(self, current: int, order: int, migratetype: int, fallback: int) -> int:
        pfn = self.buddy.lists[current, fallback].head
        self.buddy.take_as(pfn, order, migratetype)
        return pfn

    def _claim_partial(
        self, current: int, order: int, migratetype: int, fallback: int, attempt: Attempt
    ) -> int | None:
        """Claim the head buddy's block if enough of it suits; boosts even if not (S6.3)."""
        pfn = self.buddy.lists[current, fallback].head
        if self.watermarks.raise_boost() and attempt.kswapd:
            self.boosted = True
        if not self.buddy.zone_holds_block(pfn):
            return None
        if self._suitable_pages(pfn, migratetype, fallback) < self.buddy.blocks.pages // 2:
            return None
        self.buddy.convert_block(pfn, migratetype)
        return self.buddy.take_smallest(order, migratetype)

    def _suitable_pages(self, pfn: int, migratetype: int, block_type: int) -> int:
        """Pages of the block that are free or akin to the request (S6.3)."""
        free = sum(1 << self.buddy.order_at(each) for each in self.buddy.free_in_block(pfn))
        start = self.buddy.blocks.start(pfn)
        block = range(start, start + self.buddy.blocks.pages)
        self.buddy.scan(block)
        movable = sum(self.allocated.is_movable(each) for each in block)
        if migratetype == Migratetype.MOVABLE:
            return free + movable
        if block_type == Migratetype.MOVABLE:
            return self.buddy.blocks.pages - movable
        return free
