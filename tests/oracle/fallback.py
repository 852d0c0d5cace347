"""Pages of other migratetypes, by claiming and stealing, and as 6.1 had it (S6)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tests.oracle.buddy import Buddy, LooseBuddy
from tests.oracle.machine import Migratetype
from tests.oracle.request import Attempt

if TYPE_CHECKING:
    from tests.oracle.zone import Zone

FALLBACKS: dict[int, tuple[int, int]] = {
    Migratetype.UNMOVABLE: (Migratetype.RECLAIMABLE, Migratetype.MOVABLE),
    Migratetype.MOVABLE: (Migratetype.RECLAIMABLE, Migratetype.UNMOVABLE),
    Migratetype.RECLAIMABLE: (Migratetype.UNMOVABLE, Migratetype.MOVABLE),
}
"""Types to fall back to, best first (S6.1)."""

Found = tuple[int, int]  # first page of a free buddy of another type, and that type


def find_suitable_fallback(buddy: Buddy, order: int, migratetype: int) -> Found | None:
    """find_suitable_fallback(): return a buddy of this very order, of the first type (S6.1)."""
    if all(buddy.is_empty(order, listed) for listed in range(len(buddy.machine.migratetypes))):
        return None
    for fallback in FALLBACKS[migratetype]:
        buddy.probes += 1
        pfn = buddy.head(order, fallback)
        if pfn is not None:
            return pfn, fallback
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
    """

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.buddy = zone.buddy
        self.boosted = False  # the zone was boosted by a request that may wake kswapd (S6.3, S3.2)
        self.refill_probes: list[int] = []  # free lists that each refill looked at (S6.7)

    def take_one(self, order: int, migratetype: int, attempt: Attempt) -> int | None:
        """Part of rmqueue_buddy(): take one page, each step tried once."""
        return self._rmqueue(order, migratetype, attempt, Mode.NORMAL)[0]

    def take_many(self, wanted: int, order: int, migratetype: int, attempt: Attempt) -> list[int]:
        """Part of rmqueue_bulk(): take up to `wanted` pages of one refill, in one mode (S6.2)."""
        mode = Mode.NORMAL
        taken: list[int] = []
        self.buddy.probes = 0
        while len(taken) < wanted:
            if not self.zone.policy.refill_mode_persists:
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
        lowest = max(order, self.buddy.blocks.order) if attempt.nofragment else order
        for current in range(self.buddy.max_order, lowest - 1, -1):
            is_worth_it = should_try_claim_block(self.buddy, current, migratetype)
            if not is_worth_it and not self.zone.rules.claim_looks_first:
                return None
            found = find_suitable_fallback(self.buddy, current, migratetype)
            if found is None:
                continue
            if not is_worth_it:
                return None
            pfn, fallback = found
            taken: int | None = pfn
            if current >= self.buddy.blocks.order:
                self.buddy.take_as(pfn, order, migratetype)
            else:
                taken = self._try_to_claim_block(pfn, order, migratetype, fallback, attempt)
            if taken is not None:
                self.zone.events.note("extfrag", taken, order, current, migratetype, fallback, True)
                return taken
        return None

    def _rmqueue_steal(self, order: int, migratetype: int) -> int | None:
        """__rmqueue_steal(): split the smallest fallback buddy; its rest keeps its type (S6.4)."""
        for current in range(order, self.buddy.max_order + 1):
            found = find_suitable_fallback(self.buddy, current, migratetype)
            if found is not None:
                pfn, fallback = found
                self.buddy.take(pfn, order)
                self.zone.events.note("extfrag", pfn, order, current, migratetype, fallback, False)
                return pfn
        return None

    def _try_to_claim_block(
        self,
        pfn: int,
        order: int,
        migratetype: int,
        fallback: int,
        attempt: Attempt,
    ) -> int | None:
        """try_to_claim_block(): boost, and claim a buddy's block if enough of it suits (S6.3)."""
        if self.zone.watermarks.boost_watermark() and attempt.kswapd:
            self.boosted = True
        if not self.buddy.zone_holds_block(pfn):
            return None
        block = self.buddy.blocks.around(pfn)
        suitable = sum(1 << self.buddy.at(buddy).order for buddy in self.buddy.free_in(block))
        self.buddy.scan(block)
        movable = sum(self.zone.allocated.is_movable(page) for page in block)
        if migratetype == Migratetype.MOVABLE:
            suitable += movable
        elif fallback == Migratetype.MOVABLE:
            suitable = len(block) - movable
        if suitable < len(block) // 2:
            return None
        self.buddy.move_freepages_block(pfn, migratetype)
        return self.buddy.rmqueue_smallest(order, migratetype)


class MovingFallback(Fallback):
    """Own type first; failing that, bring free pages over to the own lists and look again (6.1)."""

    buddy: LooseBuddy

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

        It takes up the largest buddy of another type, or the smallest if its block may not be
        claimed. Returns False where no other type can help. The event tells whether the block
        belongs to the requester's type now, whoever made it so.
        """
        lowest = max(order, self.buddy.blocks.order) if attempt.nofragment else order
        found = self._first_of(range(self.buddy.max_order, lowest - 1, -1), migratetype)
        if found and not should_try_claim_block(self.buddy, found[0], migratetype):
            found = self._first_of(range(order, found[0] + 1), migratetype)
        if found is None:
            return False
        current, pfn, fallback = found
        self._steal_suitable_fallback(current, pfn, migratetype, attempt)
        owned = self.buddy.blocks.type_of(pfn) == migratetype
        self.zone.events.note("extfrag", pfn, order, current, migratetype, fallback, owned)
        return True

    def _first_of(self, orders: range, migratetype: int) -> tuple[int, int, int] | None:
        """Part of __rmqueue_fallback(): return order, page and type of the first buddy."""
        for current in orders:
            found = find_suitable_fallback(self.buddy, current, migratetype)
            if found is not None:
                return current, *found
        return None

    def _steal_suitable_fallback(
        self, order: int, pfn: int, migratetype: int, attempt: Attempt
    ) -> None:
        """steal_suitable_fallback(): move the block's free pages, or the buddy alone.

        They go to the requester's lists. A block of the reserve may have left pages on an ordinary
        list: they move one by one, and the block stays reserved.
        """
        blocks = self.buddy.blocks
        if blocks.type_of(pfn) != Migratetype.HIGHATOMIC:
            if order >= blocks.order:
                blocks.change_pageblock_range(pfn, order, migratetype)
            else:
                if self.zone.watermarks.boost_watermark() and attempt.kswapd:
                    self.boosted = True
                may_claim = should_try_claim_block(self.buddy, order, migratetype)
                if may_claim and self._move_block(pfn, migratetype):
                    return
        self.buddy.move_to_free_list(pfn, migratetype)

    def _move_block(self, pfn: int, migratetype: int) -> int:
        """Part of steal_suitable_fallback(): move a block's free pages; returns how many.

        The block is tagged if enough of it suits.
        """
        blocks = self.buddy.blocks
        block_type = blocks.type_of(pfn)
        pages = self.buddy.prep_move_freepages_block(pfn)
        movable = sum(self.zone.allocated.is_movable(page) for page in pages)
        free = self.buddy.move_block(pfn, migratetype)
        alike = 0
        if migratetype == Migratetype.MOVABLE:
            alike = movable
        elif block_type == Migratetype.MOVABLE:
            alike = blocks.pages - (free + movable)
        if free and free + alike >= blocks.pages // 2:
            blocks.set_type(blocks.number(pfn), migratetype)
        return free
