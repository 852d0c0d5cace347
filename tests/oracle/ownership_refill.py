"""A refill in four phases: recover, claim, chunk, classic (S12.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.oracle.buddy import Buddy
from tests.oracle.fallback import Fallback
from tests.oracle.machine import Migratetype
from tests.oracle.ownership import OwnedPageblocks
from tests.oracle.ownership_counters import OwnershipCounters
from tests.oracle.ownership_lists import MergingLists
from tests.oracle.ownership_options import OracleOwnership
from tests.oracle.pcp import ZoneFlags
from tests.oracle.request import Attempt

RECOVER, CLAIM, CHUNK, CLASSIC = range(4)


@dataclass
class Refill:
    """One refill under way.

    Attributes:
        lists: where its pages go.
        order: of the request.
        migratetype: of the request.
        attempt: flags of the request.
        wanted: base pages to fetch.
        got: base pages fetched.
        objects: pages of any order fetched.
    """

    lists: MergingLists
    order: int
    migratetype: int
    attempt: Attempt
    wanted: int
    got: int = 0
    objects: int = 0

    @property
    def missing(self) -> int:
        """No kernel function: return the base pages still to fetch."""
        return self.wanted - self.got


class PhasedRefill:
    """Fetches pages from a zone under one hold of its lock; every phase tops up the last."""

    def __init__(
        self,
        zone: int,
        buddy: Buddy,
        fallback: Fallback,
        flags: ZoneFlags,
        blocks: OwnedPageblocks,
        options: OracleOwnership,
        counters: OwnershipCounters,
    ) -> None:
        self.zone = zone
        self.buddy = buddy
        self.fallback = fallback
        self.flags = flags
        self.blocks = blocks
        self.options = options
        self.counters = counters

    def run(self, refill: Refill) -> int:
        """rmqueue_bulk(): go through all phases as long as pages are missing.

        Returns the objects fetched.
        """
        is_cma_first = self.options.cma_first and refill.attempt.cma and self.buddy.is_mostly_cma
        if not is_cma_first:
            self._take_phase(RECOVER, refill, self._recover(refill))
            self._take_phase(CLAIM, refill, self._claim(refill))
            self._take_phase(CHUNK, refill, self._chunks(refill))
        self._take_phase(CLASSIC, refill, self._classic(refill))
        return refill.objects

    def _take_phase(
        self, phase: int, refill: Refill, found: Iterator[tuple[int, int, bool]]
    ) -> None:
        """No kernel function: list what a phase finds.

        It gives first page, order, and whether it may merge.
        """
        count = self.counters.of(self.zone).phases[phase]
        objects = refill.objects
        for pfn, order, is_mergeable in found:
            refill.lists.push_tail(pfn, order, refill.migratetype, mark=is_mergeable)
            refill.got += 1 << order
            refill.objects += 1
            count.objects += 1
            count.pages += 1 << order
        count.refills += refill.objects > objects

    def _recover(self, refill: Refill) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: do phase 0, free fragments of recorded blocks of the type.

        It goes block by block.
        """
        if not self.options.recovers:
            return
        limit = self.options.recover_limit or None
        for number in self._recorded_to_look_at(refill)[:limit]:
            if refill.missing <= 0:
                return
            self.counters.of(self.zone).recorded_looks += 1
            start = number << self.blocks.order
            if self.blocks.type_of(start) == refill.migratetype:
                yield from self._recover_block(start)

    def _recorded_to_look_at(self, refill: Refill) -> list[int]:
        """No kernel function: return recorded blocks, oldest first.

        With lists by type, they are those of the wanted one.
        """
        recorded = self.blocks.recorded(self.zone, refill.lists.cpu)
        if self.options.recorded_lists == "one":
            return recorded
        return [
            number
            for number in recorded
            if self.blocks.type_of(number << self.blocks.order) == refill.migratetype
        ]

    def _recover_block(self, start: int) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: take the free buddies of a block."""
        self.buddy.scan(range(start, start + self.blocks.pages))
        for pfn in self.buddy.free_in_block(start):
            order = self.buddy.order_at(pfn)
            self._take(pfn, order)
            yield pfn, order, True
        self.blocks.unrecord(self.blocks.number(start))
        self.counters.of(self.zone).recovered += 1

    def _claim(self, refill: Refill) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: do phase 1, whole free blocks of the type.

        It goes on as long as they fit; they become owned.
        """
        block_order = self.blocks.order
        while refill.missing > 0 and self._may_claim(refill):
            pfn = self._smallest(block_order, refill.migratetype)
            if pfn is None:
                return
            self._take(pfn, block_order)
            self.blocks.own(pfn, self.zone, refill.lists.cpu)
            yield pfn, block_order, True

    def _may_claim(self, refill: Refill) -> bool:
        """No kernel function: return whether a refill may take whole blocks."""
        options = self.options
        has_type = options.owning_types == "all" or refill.migratetype == Migratetype.MOVABLE
        is_pressed = self.flags.below_high or self.flags.reclaim_active
        return (
            options.claims_blocks
            and has_type
            and refill.order <= options.claims_up_to_order
            and (options.pressure_claims or not is_pressed)
            and self._fits(refill)
        )

    def _fits(self, refill: Refill) -> bool:
        """No kernel function: return whether another block fits the lists.

        Those hold what was fetched already.
        """
        pcp = refill.lists.pcp
        if self.options.fit_test == "always":
            return True
        limit = pcp.high if self.options.fit_test == "high" else pcp.high_max
        return pcp.count + self.blocks.pages <= limit

    def _chunks(self, refill: Refill) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: do phase 2, buddies of the type smaller than a block.

        None is of another type.
        """
        while refill.missing > 0:
            if self.options.chunk_search == "largest":
                found = self._largest_chunk(refill)
            else:
                found = self._smallest_chunk(refill)
            if found is None:
                return
            pfn, order = found
            self._take(pfn, order)
            yield pfn, order, False

    def _largest_chunk(self, refill: Refill) -> tuple[int, int] | None:
        """No kernel function: return the largest buddy not above what is missing.

        Else it is a larger one, cut to that.
        """
        needed = refill.missing.bit_length() - 1
        fit = max(refill.order, min(self.blocks.order - 1, needed))
        for order in range(fit, refill.order - 1, -1):
            pfn = self.buddy.head(order, refill.migratetype)
            if pfn is not None:
                return pfn, order
        pfn = self._smallest(fit + 1, refill.migratetype)
        return None if pfn is None else (pfn, fit)

    def _smallest_chunk(self, refill: Refill) -> tuple[int, int] | None:
        """No kernel function: return the smallest sufficient buddy.

        It is whole unless it is as large as a block.
        """
        pfn = self._smallest(refill.order, refill.migratetype)
        if pfn is None:
            return None
        largest = max(refill.order, self.blocks.order - 1)
        return pfn, min(self.buddy.order_at(pfn), largest)

    def _classic(self, refill: Refill) -> Iterator[tuple[int, int, bool]]:
        """No kernel function: do phase 3, pages of the order by mainline's rule."""
        wanted = -(-refill.missing >> refill.order)
        pages = self.fallback.take_many(wanted, refill.order, refill.migratetype, refill.attempt)
        for pfn in pages:
            yield pfn, refill.order, False

    def _smallest(self, order: int, migratetype: int) -> int | None:
        """Part of __rmqueue_smallest(): return the head of the smallest buddy that suffices.

        It is of the type.
        """
        heads = (
            self.buddy.head(each, migratetype) for each in range(order, self.buddy.max_order + 1)
        )
        return next((pfn for pfn in heads if pfn is not None), None)

    def _take(self, pfn: int, order: int) -> None:
        """page_del_and_expand(): take the low end of a free buddy off its list."""
        buddy = self.buddy.at(pfn)
        assert buddy is not None
        self.buddy.take(pfn, order)
        self.buddy.events.zone_locked(pfn, order, buddy.migratetype)
