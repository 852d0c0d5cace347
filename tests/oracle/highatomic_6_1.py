"""The high-order atomic reserve of 6.1: tags first, pages as far as they can be moved (S7)."""

from __future__ import annotations

from tests.oracle.buddy_6_1 import LooseBuddy
from tests.oracle.highatomic import HighatomicReserve
from tests.oracle.machine import Migratetype, is_mergeable


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
