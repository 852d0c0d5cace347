"""Taking a page under zone->lock as 6.1 does: free pages change lists, then smallest fit (S6.5)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle.allocated import AllocatedPages
from tests.oracle.buddy_6_1 import LooseBuddy
from tests.oracle.fallback import find_suitable_fallback, should_try_claim_block
from tests.oracle.machine import Migratetype
from tests.oracle.request import Attempt
from tests.oracle.watermark import Watermarks


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
        """__rmqueue(): take one page.

        It is of the own type, else of CMA where allowed, else with the others' help.
        """
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
        """Part of rmqueue_bulk(): take up to `wanted` pages of one refill.

        Each starts afresh.
        """
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
        """Part of __rmqueue_fallback(): return the largest buddy of another type.

        It is the smallest for requests that get no more of it.
        """
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
        """Part of steal_suitable_fallback(): boost, and move what the block has free.

        It does if that is worthwhile and possible. The block is the buddy's.
        """
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
