"""Pages of other migratetypes, by claiming and stealing, and as 6.1 had it (S6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tests.oracle.buddy import AllocatedPages, Buddy, LooseBuddy
from tests.oracle.machine import Migratetype
from tests.oracle.request import Attempt
from tests.oracle.watermark import Watermarks

FALLBACKS: dict[int, tuple[int, int]] = {
    Migratetype.UNMOVABLE: (Migratetype.RECLAIMABLE, Migratetype.MOVABLE),
    Migratetype.MOVABLE: (Migratetype.RECLAIMABLE, Migratetype.UNMOVABLE),
    Migratetype.RECLAIMABLE: (Migratetype.UNMOVABLE, Migratetype.MOVABLE),
}
"""Types to fall back to, best first (S6.1)."""


def find_suitable_fallback(buddy: Buddy, order: int, migratetype: int) -> int | None:
    """find_suitable_fallback(): return the first type with a buddy of this very order (S6.1)."""
    if not any(pages for (listed, _), pages in buddy.lists.items() if listed == order):
        return None
    for fallback in FALLBACKS[migratetype]:
        buddy.probes += 1
        if not buddy.is_empty(order, fallback):
            return fallback
    return None


def should_try_claim_block(buddy: Buddy, order: int, migratetype: int) -> bool:
    """should_try_claim_block(): return whether a buddy's whole block may be wanted (S6.3)."""
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
        mode_persists: a refill's pages after a steal are stolen without another search (S6.2).
        refill_probes: free lists that each refill looked at (S6.7).
    """

    def __init__(
        self,
        buddy: Buddy,
        watermarks: Watermarks,
        allocated: AllocatedPages,
        *,
        mode_persists: bool = True,
    ) -> None:
        self.buddy = buddy
        self.watermarks = watermarks
        self.allocated = allocated
        self.boosted = False
        self.mode_persists = mode_persists
        self.refill_probes: list[int] = []

    def take_one(self, order: int, migratetype: int, attempt: Attempt) -> int | None:
        """Part of rmqueue_buddy(): take one page, each step tried once."""
        return self._rmqueue(order, migratetype, attempt, Mode.NORMAL)[0]

    def take_many(self, wanted: int, order: int, migratetype: int, attempt: Attempt) -> list[int]:
        """Part of rmqueue_bulk(): take up to `wanted` pages of one refill, in one mode (S6.2)."""
        mode = Mode.NORMAL
        taken: list[int] = []
        self.buddy.probes = 0
        while len(taken) < wanted:
            if not self.mode_persists:
                mode = Mode.NORMAL
            pfn, mode = self._rmqueue(order, migratetype, attempt, mode)
            if pfn is None:
                break
            taken.append(pfn)
        self.refill_probes.append(self.buddy.probes)
        return taken

    def _rmqueue(
        self, order: int, migratetype: int, attempt: Attempt, mode: Mode
    ) -> tuple[int | None, Mode]:
        """__rmqueue(): take a page; returns it, or None, and the mode."""
        if attempt.cma and self.buddy.is_mostly_cma:
            pfn = self.buddy.rmqueue_cma_fallback(order)
            if pfn is not None:
                return pfn, mode
        if mode is Mode.NORMAL:
            pfn = self.buddy.rmqueue_smallest(order, migratetype)
            if pfn is not None:
                return pfn, Mode.NORMAL
        if mode is not Mode.STEAL:
            pfn = self.buddy.rmqueue_cma_fallback(order) if attempt.cma else None
            if pfn is not None:
                return pfn, Mode.CMA
            pfn = self._rmqueue_claim(order, migratetype, attempt)
            if pfn is not None:
                return pfn, Mode.NORMAL
        if not attempt.nofragment:
            pfn = self._rmqueue_steal(order, migratetype)
            if pfn is not None:
                return pfn, Mode.STEAL
        return None, mode

    def _rmqueue_claim(self, order: int, migratetype: int, attempt: Attempt) -> int | None:
        """__rmqueue_claim(): retag the largest free buddy's block as the requester's (S6.3)."""
        block_order = self.buddy.blocks.order
        lowest = max(order, block_order) if attempt.nofragment else order
        for current in range(self.buddy.max_order, lowest - 1, -1):
            if not should_try_claim_block(self.buddy, current, migratetype):
                return None
            fallback = find_suitable_fallback(self.buddy, current, migratetype)
            if fallback is None:
                continue
            if current >= block_order:
                pfn = self._claim_whole(current, order, migratetype, fallback)
            else:
                pfn = self._try_to_claim_block(current, order, migratetype, fallback, attempt)
            if pfn is not None:
                self.buddy.events.extfrag(pfn, order, current, migratetype, fallback, True)
                return pfn
        return None

    def _rmqueue_steal(self, order: int, migratetype: int) -> int | None:
        """__rmqueue_steal(): split the smallest fallback buddy; its rest keeps its type (S6.4)."""
        for current in range(order, self.buddy.max_order + 1):
            fallback = find_suitable_fallback(self.buddy, current, migratetype)
            if fallback is not None:
                pfn = self.buddy.lists[current, fallback].head
                self.buddy.take(pfn, order)
                self.buddy.events.extfrag(pfn, order, current, migratetype, fallback, False)
                return pfn
        return None

    def _claim_whole(self, current: int, order: int, migratetype: int, fallback: int) -> int:
        """Part of try_to_claim_block(): claim a buddy of whole blocks."""
        pfn = self.buddy.lists[current, fallback].head
        self.buddy.take_as(pfn, order, migratetype)
        return pfn

    def _try_to_claim_block(
        self, current: int, order: int, migratetype: int, fallback: int, attempt: Attempt
    ) -> int | None:
        """try_to_claim_block(): boost, and claim the head buddy's block if enough suits (S6.3)."""
        pfn = self.buddy.lists[current, fallback].head
        if self.watermarks.boost_watermark() and attempt.kswapd:
            self.boosted = True
        if not self.buddy.zone_holds_block(pfn):
            return None
        if self._suitable_pages(pfn, migratetype, fallback) < self.buddy.blocks.pages // 2:
            return None
        self.buddy.move_freepages_block(pfn, migratetype)
        return self.buddy.rmqueue_smallest(order, migratetype)

    def _suitable_pages(self, pfn: int, migratetype: int, block_type: int) -> int:
        """Part of try_to_claim_block(): return the block's pages that are free or akin (S6.3)."""
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


@dataclass(frozen=True)
class Found:
    """A free buddy of another type.

    Attributes:
        pfn: its first page.
        order: its order.
        migratetype: its list.
    """

    pfn: int
    order: int
    migratetype: int


class MovingFallback:
    """Own type first; failing that, bring free pages over to the own lists and look again.

    Attributes:
        boosted: the zone was boosted by a request that may wake kswapd (S6.5, S3.2).
        refill_probes: free lists that each refill looked at (S6.7).
    """

    def __init__(
        self, buddy: LooseBuddy, watermarks: Watermarks, allocated: AllocatedPages
    ) -> None:
        self.buddy = buddy
        self.watermarks = watermarks
        self.allocated = allocated
        self.boosted = False
        self.refill_probes: list[int] = []

    def take_one(self, order: int, migratetype: int, attempt: Attempt) -> int | None:
        """__rmqueue(): take a page of the own type, of CMA if allowed, or by fallback."""
        pfn = None
        if attempt.cma and self.buddy.is_mostly_cma:
            pfn = self.buddy.rmqueue_cma_fallback(order)
        if pfn is None:
            pfn = self.buddy.rmqueue_smallest(order, migratetype)
        if pfn is None and attempt.cma:
            pfn = self.buddy.rmqueue_cma_fallback(order)
        if pfn is None and self._rmqueue_fallback(order, migratetype, attempt):
            pfn = self.buddy.rmqueue_smallest(order, migratetype)
        return pfn

    def take_many(self, wanted: int, order: int, migratetype: int, attempt: Attempt) -> list[int]:
        """Part of rmqueue_bulk(): take up to `wanted` pages of one refill, each afresh."""
        taken: list[int] = []
        self.buddy.probes = 0
        with self.buddy.refill():
            while len(taken) < wanted:
                pfn = self.take_one(order, migratetype, attempt)
                if pfn is None:
                    break
                taken.append(pfn)
        self.refill_probes.append(self.buddy.probes)
        return taken

    def _rmqueue_fallback(self, order: int, migratetype: int, attempt: Attempt) -> bool:
        """__rmqueue_fallback(): make the own lists able to serve the request.

        Returns False where no other type can help. The event tells whether the block belongs to the
        requester's type now, whoever made it so.
        """
        found = self._find(order, migratetype, attempt)
        if found is None:
            return False
        self._steal_suitable_fallback(found, migratetype, attempt)
        owned = self.buddy.blocks.type_of(found.pfn) == migratetype
        self.buddy.events.extfrag(
            found.pfn, order, found.order, migratetype, found.migratetype, owned
        )
        return True

    def _find(self, order: int, migratetype: int, attempt: Attempt) -> Found | None:
        """Part of __rmqueue_fallback(): return the largest buddy, or the smallest to be stolen."""
        lowest = max(order, self.buddy.blocks.order) if attempt.nofragment else order
        largest = self._first_of(range(self.buddy.max_order, lowest - 1, -1), migratetype)
        if largest is None or should_try_claim_block(self.buddy, largest.order, migratetype):
            return largest
        return self._first_of(range(order, largest.order + 1), migratetype)

    def _first_of(self, orders: range, migratetype: int) -> Found | None:
        """Part of __rmqueue_fallback(): return the first buddy of the orders given."""
        for current in orders:
            fallback = find_suitable_fallback(self.buddy, current, migratetype)
            if fallback is not None:
                return Found(self.buddy.lists[current, fallback].head, current, fallback)
        return None

    def _steal_suitable_fallback(self, found: Found, migratetype: int, attempt: Attempt) -> None:
        """steal_suitable_fallback(): move the block's free pages, or the buddy alone.

        They go to the requester's lists. A block of the reserve may have left pages on an ordinary
        list: they move one by one, and the block stays reserved.
        """
        blocks = self.buddy.blocks
        is_reserved = blocks.type_of(found.pfn) == Migratetype.HIGHATOMIC
        if not is_reserved and found.order >= blocks.order:
            blocks.change_pageblock_range(found.pfn, found.order, migratetype)
        elif not is_reserved and self._bring_block(found, migratetype, attempt):
            return
        self.buddy.move_to_free_list(found.pfn, migratetype)

    def _bring_block(self, found: Found, migratetype: int, attempt: Attempt) -> bool:
        """Part of steal_suitable_fallback(): boost, and move the block's free pages if allowed."""
        if self.watermarks.boost_watermark() and attempt.kswapd:
            self.boosted = True
        if not should_try_claim_block(self.buddy, found.order, migratetype):
            return False
        return self._move_block(found.pfn, migratetype) > 0

    def _move_block(self, pfn: int, migratetype: int) -> int:
        """Part of steal_suitable_fallback(): move a block's free pages.

        It is tagged if enough of it suits. Returns the pages moved.
        """
        blocks = self.buddy.blocks
        block_type = blocks.type_of(pfn)
        movable = sum(
            self.allocated.is_movable(each) for each in self.buddy.prep_move_freepages_block(pfn)
        )
        free = self.buddy.move_block(pfn, migratetype)
        alike = 0
        if migratetype == Migratetype.MOVABLE:
            alike = movable
        elif block_type == Migratetype.MOVABLE:
            alike = blocks.pages - (free + movable)
        if free and free + alike >= blocks.pages // 2:
            blocks.set_type(blocks.number(pfn), migratetype)
        return free
