"""Watermarks (S3), and the highatomic reserve that they leave out (S7)."""

from __future__ import annotations

from tests.oracle.buddy import Buddy, LooseBuddy
from tests.oracle.machine import Migratetype, OracleZone, is_mergeable
from tests.oracle.request import PLAIN, Attempt, Mark
from tests.oracle.rules import OraclePolicy, OracleRules
from tests.oracle.vmstat import round_up


class HighatomicReserve:
    """Blocks set aside for high-order atomic requests.

    Attributes:
        reserved: pages of the blocks set aside, free or not (S7.2).
        returned_whole: buddies of block size and above that were given back without merging.
    """

    def __init__(self, buddy: Buddy, rules: OracleRules, policy: OraclePolicy) -> None:
        self.buddy = buddy
        self.cap_adds_block = rules.highatomic_cap_adds_block
        self.gate_order = policy.highatomic_gate_order
        self.percent = policy.highatomic_reserve_percent
        self.reserved = 0
        self.returned_whole: set[int] = set()

    @property
    def cap(self) -> int:
        """Part of reserve_highatomic_pageblock(): return the cap of the reserve, pages (S7.2)."""
        share = self.buddy.zone.managed * self.percent // 100
        block = self.buddy.blocks.pages
        if self.cap_adds_block:
            return share + block
        return 0 if share < block else round_up(share, block)

    def reserve(self, pfn: int, order: int) -> None:
        """reserve_highatomic_pageblock(): set aside the blocks of a page just handed out (S7.2)."""
        if order <= self.gate_order or self.reserved >= self.cap:
            return
        self.buddy.events.hold("reserve", "", self._convert(pfn, order))

    def unreserve(self, migratetype: int, *, forced: bool = False) -> bool:
        """unreserve_highatomic_pageblock(): give a block back, the last only if forced (S7.4)."""
        if not forced and self.reserved <= self.buddy.blocks.pages:
            return False
        blocks, moved = self._give_back(migratetype)
        self.buddy.events.hold("unreserve", "", blocks)
        return moved

    def unreserve_free_blocks(self) -> None:
        """No kernel function: give each block that is wholly free back as MOVABLE (S9.10)."""
        for order in range(self.buddy.blocks.order, self.buddy.max_order + 1):
            while (pfn := self.buddy.head(order, Migratetype.HIGHATOMIC)) is not None:
                blocks, _ = self._give_back_around(pfn, order, Migratetype.MOVABLE)
                self.buddy.events.hold("unreserve", "", blocks)

    def _convert(self, pfn: int, order: int) -> int:
        """Part of reserve_highatomic_pageblock(): retag; returns the number of blocks."""
        blocks = self.buddy.blocks
        if not is_mergeable(blocks.type_of(pfn)):
            return 0
        if order >= blocks.order:
            blocks.change_pageblock_range(pfn, order, Migratetype.HIGHATOMIC)
            self.reserved += 1 << order
            return 1 << (order - blocks.order)
        if not self.buddy.zone_holds_block(pfn):
            return 0
        self.buddy.move_freepages_block(pfn, Migratetype.HIGHATOMIC)
        self.reserved += blocks.pages
        return 1

    def _give_back(self, migratetype: int) -> tuple[int, bool]:
        """Part of unreserve_highatomic_pageblock(): convert blocks until pages move.

        They are those of the smallest free reserved buddy.

        Returns:
            The number of blocks converted, and whether any page moved.
        """
        converted = 0
        for order in range(self.buddy.max_order + 1):
            pfn = self.buddy.head(order, Migratetype.HIGHATOMIC)
            if pfn is None:
                continue
            blocks, moved = self._give_back_around(pfn, order, migratetype)
            converted += blocks
            if moved:
                return converted, True
        return converted, False

    def _give_back_around(self, pfn: int, order: int, migratetype: int) -> tuple[int, bool]:
        """Part of unreserve_highatomic_pageblock(): convert the blocks of a reserved buddy.

        Returns the number of blocks converted, and whether any page moved.
        """
        blocks = self.buddy.blocks
        self.reserved -= min(max(blocks.pages, 1 << order), self.reserved)
        if order >= blocks.order:
            self.buddy.move_to_free_list(pfn, migratetype)
            blocks.change_pageblock_range(pfn, order, migratetype)
            self.returned_whole.add(pfn)
            return 1 << (order - blocks.order), True
        if self.buddy.zone_holds_block(pfn):
            self.buddy.move_freepages_block(pfn, migratetype)
            return 1, True
        return 0, False


class LooseReserve(HighatomicReserve):
    """One block at a time, whatever the order, and in blocks that cross the zone's edge too."""

    buddy: LooseBuddy

    def _convert(self, pfn: int, order: int) -> int:
        """Part of reserve_highatomic_pageblock(): tag the first page's block (S7.2).

        Returns the number of blocks.
        """
        blocks = self.buddy.blocks
        if not is_mergeable(blocks.type_of(pfn)):
            return 0
        self.reserved += blocks.pages
        blocks.set_type(blocks.number(pfn), Migratetype.HIGHATOMIC)
        self.buddy.move_block(pfn, Migratetype.HIGHATOMIC)
        return 1

    def _give_back_around(self, pfn: int, order: int, migratetype: int) -> tuple[int, bool]:
        """Part of unreserve_highatomic_pageblock(): tag a listed buddy's first block (S7.4).

        Where that is in the reserve no more, it costs the reserve nothing. Returns one block, and
        whether any page moved.
        """
        blocks = self.buddy.blocks
        if blocks.type_of(pfn) == Migratetype.HIGHATOMIC:
            self.reserved -= min(blocks.pages, self.reserved)
        blocks.set_type(blocks.number(pfn), migratetype)
        return 1, self.buddy.move_block(pfn, migratetype) > 0


BOOST_DENOMINATOR = 10000
"""watermark_boost_factor counts in units of 1/10000 (S1.7)."""


class Watermarks:
    """The zone's marks, its boost, and the question whether a request may take a page.

    Attributes:
        boost: pages added to every mark (S1.7).
    """

    def __init__(
        self,
        zone: OracleZone,
        buddy: Buddy,
        reserve: HighatomicReserve,
        rules: OracleRules,
        boost_factor: int,
    ) -> None:
        self.zone = zone
        self.buddy = buddy
        self.reserve = reserve
        self.rules = rules
        self.boost_factor = boost_factor
        self.boost = zone.boost
        self.atomic_boost_due = 0

    def raw(self, mark: Mark) -> int:
        """No kernel function: return a mark without boost."""
        return {Mark.MIN: self.zone.min, Mark.LOW: self.zone.low, Mark.HIGH: self.zone.high}[mark]

    def wmark_pages(self, mark: Mark) -> int:
        """wmark_pages(): return a mark with boost (S1.6)."""
        return self.raw(mark) + self.boost

    def lowmem_reserve(self, highest_zone: int) -> int:
        """No kernel function: return the pages kept from users of zones up to a type (S1.8)."""
        return self.zone.lowmem_reserve[highest_zone] if self.zone.lowmem_reserve else 0

    def highest_reserve_index(self) -> int:
        """No kernel function: return the last column, from where on all agree."""
        return max(len(self.zone.lowmem_reserve) - 1, 0)

    def ok(self, order: int, pages: int, highest_zone: int, attempt: Attempt) -> bool:
        """zone_watermark_ok(): return whether to take `order` and leave `pages` free (S3.3)."""
        return self._ok(self.buddy.counters.free.read(), order, pages, highest_zone, attempt)

    def ok_with(
        self, free: int, order: int, pages: int, highest_zone: int, attempt: Attempt
    ) -> bool:
        """__zone_watermark_ok(): return as `ok` if `free` pages were free (S8.3, S8.6)."""
        return self._ok(free, order, pages, highest_zone, attempt)

    def margin(self, order: int, highest_zone: int, attempt: Attempt) -> int:
        """Part of __zone_watermark_ok(): return the pages above the MIN mark.

        The mark has its boost; lists do not matter.

        Source: S3.3, what is left over in its comparison.
        """
        free = self.buddy.counters.free.read()
        return self._margin(free, order, self.wmark_pages(Mark.MIN), highest_zone, attempt)

    def has_suitable(self, order: int, attempt: Attempt) -> bool:
        """Part of __zone_watermark_ok(): return whether a list that it may use has a buddy."""
        return order == 0 or self._has_suitable(order, attempt)

    def ok_for_balance(self, order: int, mark: Mark, highest_zone: int) -> bool:
        """Part of pgdat_balanced(): return whether a mark with boost holds.

        kswapd looks closer where few pages are free.

        Source: S1.10, S10.1.
        """
        free = self.buddy.counters.free_for_balance()
        return self._ok(free, order, self.wmark_pages(mark), highest_zone, PLAIN)

    def ok_at(self, order: int, mark: Mark, highest_zone: int, attempt: Attempt) -> bool:
        """zone_watermark_ok(): return as `ok` at a mark with boost."""
        return self.ok(order, self.wmark_pages(mark), highest_zone, attempt)

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
        if self.ok_at(order, mark, highest_zone, attempt):
            return True
        is_urgent = attempt.atomic if self.rules.atomic_bit_ignores_boost else attempt.min_reserve
        if order == 0 and is_urgent and attempt.mark is Mark.MIN and self.boost:
            return self.ok(order, self.zone.min, highest_zone, attempt)
        return False

    def boost_watermark(self) -> bool:
        """boost_watermark(): boost by a block up to the cap; False where boosting is off (S1.7)."""
        block = self.buddy.blocks.pages
        cap = self.zone.high * self.boost_factor // BOOST_DENOMINATOR
        if cap == 0 or 4 * block > self.zone.managed:
            return False
        self.boost = min(self.boost + block, max(block, cap))
        return True

    def boost_for_atomic(self, now: int) -> None:
        """No kernel function: boost by a thousandth of the zone, up to its high mark (S1.11).

        An atomic request is in need. Nothing happens within a second of the last time.
        """
        if now < self.atomic_boost_due:
            return
        self.atomic_boost_due = now + 1_000_000_000
        grown = self.boost + self.zone.managed // 1000
        self.boost = min(grown, max(self.zone.high, self.boost))

    def _ok(self, free: int, order: int, pages: int, highest_zone: int, attempt: Attempt) -> bool:
        """__zone_watermark_ok(): return whether `free` pages suffice."""
        if self._margin(free, order, pages, highest_zone, attempt) <= 0:
            return False
        return self.has_suitable(order, attempt)

    def _margin(
        self, free: int, order: int, pages: int, highest_zone: int, attempt: Attempt
    ) -> int:
        """Part of __zone_watermark_ok(): return the pages above a mark."""
        usable = free - ((1 << order) - 1) - self._unusable(attempt)
        return usable - self._discounted(pages, attempt) - self.lowmem_reserve(highest_zone)

    def _unusable(self, attempt: Attempt) -> int:
        """__zone_watermark_unusable_free(): return free pages that do not count."""
        cma = 0 if attempt.cma else self.buddy.counters.cma.read()
        return cma + self._reserved(attempt)

    def _reserved(self, attempt: Attempt) -> int:
        """Part of __zone_watermark_unusable_free(): return the reserved pages."""
        if attempt.uses_reserves:
            return 0
        if self.rules.watermark_subtracts_reserved:
            return self.reserve.reserved
        return self.buddy.counters.highatomic

    @staticmethod
    def _discounted(pages: int, attempt: Attempt) -> int:
        """Part of __zone_watermark_ok(): return the mark lowered for urgent requests."""
        if attempt.min_reserve:
            pages -= pages // 2
            if attempt.non_block:
                pages -= pages // 4
        if attempt.oom:
            pages -= pages // 2
        return pages

    def _has_suitable(self, order: int, attempt: Attempt) -> bool:
        """Part of __zone_watermark_ok(): return whether some list has a buddy."""
        uses_highatomic = attempt.highatomic or attempt.oom
        return any(
            self.buddy.has_ordinary(current)
            or (attempt.cma and self.buddy.has_cma(current))
            or (uses_highatomic and not self.buddy.is_empty(current, Migratetype.HIGHATOMIC))
            for current in range(order, self.buddy.max_order + 1)
        )
