"""Watermarks (S3), and the highatomic reserve that they leave out (S7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.machine import Migratetype, is_mergeable
from tests.oracle.request import Attempt, Mark

if TYPE_CHECKING:
    from tests.oracle.zone import Zone


class HighatomicReserve:
    """Blocks set aside for high-order atomic requests."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.buddy = zone.buddy
        self.blocks = zone.blocks
        self.reserved = 0  # pages of the blocks set aside, free or not (S7.2)

    @property
    def cap(self) -> int:
        """Part of reserve_highatomic_pageblock(): return the cap of the reserve, pages (S7.2)."""
        share = self.zone.spec.managed * self.zone.policy.highatomic_reserve_percent // 100
        block = self.blocks.pages
        if self.zone.rules.highatomic_cap_adds_block:
            return share + block
        return 0 if share < block else -(-share // block) * block

    def reserve(self, pfn: int, order: int) -> None:
        """reserve_highatomic_pageblock(): set aside the blocks of a page just handed out (S7.2)."""
        if order > self.zone.policy.highatomic_gate_order and self.reserved < self.cap:
            may_change = is_mergeable(self.blocks.type_of(pfn))
            blocks = self._convert(pfn, order) if may_change else 0
            self.zone.events.hold("reserve", "", blocks, self.zone.index)

    def unreserve(self, migratetype: int, *, forced: bool = False) -> bool:
        """unreserve_highatomic_pageblock(): give back, the last block only if forced (S7.4).

        Blocks of the smallest free reserved buddy are converted, and so on until pages move;
        returns whether any did.
        """
        if not forced and self.reserved <= self.blocks.pages:
            return False
        converted, has_moved = 0, False
        for order in range(self.buddy.max_order + 1):
            pfn = self.buddy.head(order, Migratetype.HIGHATOMIC)
            if pfn is not None and not has_moved:
                blocks, has_moved = self._give_back(pfn, order, migratetype)
                converted += blocks
        self.zone.events.hold("unreserve", "", converted, self.zone.index)
        return has_moved

    def unreserve_free_blocks(self) -> None:
        """Give each block that is wholly free back as MOVABLE (S9.10)."""
        for order in range(self.blocks.order, self.buddy.max_order + 1):
            while (pfn := self.buddy.head(order, Migratetype.HIGHATOMIC)) is not None:
                blocks, _ = self._give_back(pfn, order, Migratetype.MOVABLE)
                self.zone.events.hold("unreserve", "", blocks, self.zone.index)

    def _convert(self, pfn: int, order: int) -> int:
        """Part of reserve_highatomic_pageblock(): retag; returns the number of blocks."""
        if order >= self.blocks.order:
            self.blocks.change_pageblock_range(pfn, order, Migratetype.HIGHATOMIC)
            self.reserved += 1 << order
            return 1 << (order - self.blocks.order)
        if not self.buddy.zone_holds_block(pfn):
            return 0
        self.buddy.move_freepages_block(pfn, Migratetype.HIGHATOMIC)
        self.reserved += self.blocks.pages
        return 1

    def _give_back(self, pfn: int, order: int, migratetype: int) -> tuple[int, bool]:
        """Part of unreserve_highatomic_pageblock(): convert the blocks of a reserved buddy.

        Returns the number of blocks converted, and whether any page moved.
        """
        self.reserved -= min(max(self.blocks.pages, 1 << order), self.reserved)
        if order >= self.blocks.order:
            self.buddy.move_to_free_list(pfn, migratetype)
            self.blocks.change_pageblock_range(pfn, order, migratetype)
            return 1 << (order - self.blocks.order), True
        if self.buddy.zone_holds_block(pfn):
            self.buddy.move_freepages_block(pfn, migratetype)
            return 1, True
        return 0, False


class LooseReserve(HighatomicReserve):
    """One block at a time, whatever the order, and in blocks that cross the zone's edge too."""

    def _convert(self, pfn: int, order: int) -> int:
        """Part of reserve_highatomic_pageblock(): tag the first page's block (S7.2)."""
        self.reserved += self.blocks.pages
        self.blocks.set_type(self.blocks.number(pfn), Migratetype.HIGHATOMIC)
        self.buddy.move_block(pfn, Migratetype.HIGHATOMIC)
        return 1

    def _give_back(self, pfn: int, order: int, migratetype: int) -> tuple[int, bool]:
        """Part of unreserve_highatomic_pageblock(): tag a listed buddy's first block (S7.4).

        Where that is in the reserve no more, it costs the reserve nothing.
        """
        if self.blocks.type_of(pfn) == Migratetype.HIGHATOMIC:
            self.reserved -= min(self.blocks.pages, self.reserved)
        self.blocks.set_type(self.blocks.number(pfn), migratetype)
        return 1, self.buddy.move_block(pfn, migratetype) > 0


class Watermarks:
    """The zone's marks, its boost, and the question whether a request may take a page."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.buddy = zone.buddy
        self.boost = zone.spec.boost  # pages added to every mark (S1.7)
        self.atomic_boost_due = 0

    def raw(self, mark: Mark) -> int:
        return getattr(self.zone.spec, mark.value)

    def wmark_pages(self, mark: Mark) -> int:
        """wmark_pages(): return a mark with boost (S1.6)."""
        return self.raw(mark) + self.boost

    def lowmem_reserve(self, highest_zone: int) -> int:
        """The pages kept from users of zones up to a type (S1.8)."""
        reserve = self.zone.spec.lowmem_reserve
        return reserve[highest_zone] if reserve else 0

    def ok(
        self,
        order: int,
        pages: int | Mark,
        highest_zone: int,
        attempt: Attempt,
        free: int | None = None,
    ) -> bool:
        """__zone_watermark_ok(): return whether to take `order` and leave `pages` free (S3.3).

        Args:
            order: to be taken.
            pages: to be left; a mark is taken with its boost.
            highest_zone: type up to which zones may serve.
            attempt: which pages count, and how many.
            free: as if so many pages were free (S8.3, S8.6); as many as are counted unless given.
        """
        if self.margin(order, highest_zone, attempt, pages, free) <= 0:
            return False
        return self.has_suitable(order, attempt)

    def margin(
        self,
        order: int,
        highest_zone: int,
        attempt: Attempt,
        pages: int | Mark = Mark.MIN,
        free: int | None = None,
    ) -> int:
        """Part of __zone_watermark_ok(): return the pages above a mark; lists do not matter."""
        if free is None:
            free = self.buddy.counters.free.read()
        if isinstance(pages, Mark):
            pages = self.wmark_pages(pages)
        if attempt.min_reserve:
            pages -= pages // 2
            if attempt.non_block:
                pages -= pages // 4
        usable = free - ((1 << order) - 1) - self._unusable(attempt)
        return usable - pages - self.lowmem_reserve(highest_zone)

    def has_suitable(self, order: int, attempt: Attempt) -> bool:
        """Part of __zone_watermark_ok(): return whether a list that it may use has a buddy."""
        return order == 0 or any(
            self.buddy.has_ordinary(current)
            or (attempt.cma and self.buddy.has_cma(current))
            or (attempt.highatomic and not self.buddy.is_empty(current, Migratetype.HIGHATOMIC))
            for current in range(order, self.buddy.max_order + 1)
        )

    def zone_watermark_fast(
        self, order: int, mark: Mark, highest_zone: int, attempt: Attempt
    ) -> bool:
        """zone_watermark_fast(): return whether the allocation path may take (S3.3).

        There are exceptions at order 0. The boost is ignored for order-0 MIN_RESERVE (6.1: ATOMIC)
        requests whose own mark is MIN, even when the mark being tested is HIGH.
        """
        if order == 0:
            usable = max(self.buddy.counters.free.read() - self._unusable(attempt), 0)
            if usable > self.wmark_pages(mark) + self.lowmem_reserve(highest_zone):
                return True
        if self.ok(order, mark, highest_zone, attempt):
            return True
        by_atomic = self.zone.rules.atomic_bit_ignores_boost
        is_urgent = attempt.atomic if by_atomic else attempt.min_reserve
        if order == 0 and is_urgent and attempt.mark is Mark.MIN and self.boost:
            return self.ok(order, self.raw(Mark.MIN), highest_zone, attempt)
        return False

    def boost_watermark(self) -> bool:
        """boost_watermark(): boost by a block up to the cap; False where boosting is off (S1.7)."""
        block, spec = self.buddy.blocks.pages, self.zone.spec
        cap = spec.high * self.zone.policy.watermark_boost_factor // 10000
        if cap == 0 or 4 * block > spec.managed:
            return False
        self.boost = min(self.boost + block, max(block, cap))
        return True

    def boost_for_atomic(self, now: int) -> None:
        """Boost by a thousandth of the zone, up to its high mark: an atomic request is in need.

        Nothing happens within a second of the last time (S1.11).
        """
        if now >= self.atomic_boost_due:
            self.atomic_boost_due = now + 1_000_000_000
            grown = self.boost + self.zone.spec.managed // 1000
            self.boost = min(grown, max(self.zone.spec.high, self.boost))

    def _unusable(self, attempt: Attempt) -> int:
        """__zone_watermark_unusable_free(): return free pages that do not count."""
        pages = 0 if attempt.cma else self.buddy.counters.cma.read()
        if attempt.non_block or attempt.min_reserve or attempt.highatomic:
            return pages
        if self.zone.rules.watermark_subtracts_reserved:
            return pages + self.zone.reserve.reserved
        return pages + self.buddy.counters.highatomic
