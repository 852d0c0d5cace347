"""The high-order atomic reserve of one zone (S7)."""

from __future__ import annotations

from tests.oracle.arithmetic import round_up
from tests.oracle.buddy import Buddy
from tests.oracle.machine import Migratetype, is_mergeable
from tests.oracle.rules import OraclePolicy, OracleRules


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
        """Part of reserve_highatomic_pageblock(): return the cap of the reserve (S7.2).

        From so many pages on no more are set aside.
        """
        share = self.buddy.zone.managed * self.percent // 100
        block = self.buddy.blocks.pages
        if self.cap_adds_block:
            return share + block
        return 0 if share < block else round_up(share, block)

    def reserve(self, pfn: int, order: int) -> None:
        """reserve_highatomic_pageblock(): set aside the blocks of a page (S7.2).

        It was just handed out.
        """
        if order <= self.gate_order or self.reserved >= self.cap:
            return
        self.buddy.events.hold("reserve", "", self._convert(pfn, order))

    def unreserve(self, migratetype: int, *, forced: bool = False) -> bool:
        """unreserve_highatomic_pageblock(): give one block back to ordinary use (S7.4).

        Not if it is the last and this is not forced.
        """
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
