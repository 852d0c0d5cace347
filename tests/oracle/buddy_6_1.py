"""Buddy core of 6.1: a free page's list need not be its block's (S5.3, S5.4, S6.5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.oracle.buddy import Buddy, FreeBuddy
from tests.oracle.cached_types import CachedTypes
from tests.oracle.counters import FreeCounters
from tests.oracle.events import EventLog
from tests.oracle.machine import OracleMachine, OracleZone, is_mergeable
from tests.oracle.pageblocks import Pageblocks


class LooseBuddy(Buddy):
    """Lists and block types change apart from each other.

    Frees go to the list of the type they are made with, merges retag nothing, and moves of free
    pages leave the tag to the caller.

    Attributes:
        cached_types: types of pages outside the buddy.
    """

    def __init__(
        self,
        zone: OracleZone,
        machine: OracleMachine,
        blocks: Pageblocks,
        events: EventLog,
        counters: FreeCounters,
        cached_types: CachedTypes,
    ) -> None:
        super().__init__(zone, machine, blocks, events, counters)
        self.cached_types = cached_types
        self._is_refilling = False
        self._refilled_pages = 0

    @contextmanager
    def refill(self) -> Iterator[None]:
        """Part of rmqueue_bulk(): count the pages of a refill at its end (S1.10).

        Pages taken meanwhile leave the count of free pages together.
        """
        self._is_refilling = True
        self._refilled_pages = 0
        yield
        self._is_refilling = False
        self.counters.add_to_free(-self._refilled_pages)

    def rmqueue_smallest(self, order: int, migratetype: int) -> int | None:
        """__rmqueue_smallest(): take a page as ever (S5.1).

        The page carries the list's type from now on.
        """
        pfn = super().rmqueue_smallest(order, migratetype)
        if pfn is not None:
            self.cached_types.note(pfn, migratetype)
        return pfn

    def prep_move_freepages_block(self, pfn: int) -> range:
        """prep_move_freepages_block(): return the pages that `move_block` covers.

        They are of the page's block. The part before the zone is left out, and so is what precedes
        the page then. Nothing is covered where the block reaches beyond the zone.
        """
        start = self.blocks.start(pfn)
        last = start + self.blocks.pages - 1
        if not self.zone.spans(last):
            return range(0)
        return range(start if self.zone.spans(start) else pfn, last + 1)

    def move_block(self, pfn: int, migratetype: int) -> int:
        """__move_freepages_block(): move the block's free buddies to tails (S6.5).

        They move in ascending order. The block is that of the page.

        Returns:
            Base pages moved. A buddy larger than the block moves as a whole.
        """
        self.scan(self.prep_move_freepages_block(pfn))
        found = [each for each in self.prep_move_freepages_block(pfn) if self.at(each) is not None]
        for each in found:
            self.move_to_free_list(each, migratetype)
        return sum(1 << self.order_at(each) for each in found)

    def _free_by_block(self, pfn: int, order: int, *, to_tail: bool = False) -> None:
        """Part of free_one_page(): free in one piece (S5.4).

        The type is that of the first block.
        """
        self.free(pfn, order, self.blocks.type_of(pfn), to_tail=to_tail)

    def _merge_partner(self, pfn: int, order: int, migratetype: int) -> int | None:
        """find_buddy_page_pfn(): return the buddy to merge with, if any (S5.4).

        The block's type decides, not the list's, and only from block size on.
        """
        neighbour = pfn ^ (1 << order)
        buddy = self.at(neighbour)
        if buddy is None or buddy.order != order:
            return None
        if order >= self.blocks.order:
            block_type = self.blocks.type_of(neighbour)
            both_mergeable = is_mergeable(block_type) and is_mergeable(migratetype)
            if block_type != migratetype and not both_mergeable:
                return None
        return neighbour

    def _absorb(self, neighbour: int, migratetype: int) -> None:
        """Part of __free_one_page(): take a free buddy off its list to merge it."""
        self._count_moved(self._del_page_from_free_list(neighbour), migratetype)

    def _count_taken(self, order: int, migratetype: int) -> None:
        """Part of __rmqueue_smallest(): count pages that leave, in a refill at its end."""
        if not self._is_refilling:
            super()._count_taken(order, migratetype)
            return
        self.counters.add_to_part(-(1 << order), migratetype)
        self._refilled_pages += 1 << order

    def _count_moved(self, buddy: FreeBuddy, migratetype: int) -> None:
        """No kernel function: count nothing.

        Free pages stay as many as they are, whatever list they are on.
        """
        if buddy.migratetype == migratetype:
            return
        self.counters.add_to_part(-(1 << buddy.order), buddy.migratetype)
        self.counters.add_to_part(1 << buddy.order, migratetype)
