"""Buddy core of one zone: free lists, smallest fit, split, free and merge (S5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tests.oracle.counters import FreeCounters
from tests.oracle.events import EventLog, Work
from tests.oracle.machine import PCP_TYPES, OracleMachine, OracleZone, is_mergeable
from tests.oracle.page_list import PageList
from tests.oracle.pageblocks import Pageblocks


@dataclass(frozen=True)
class FreeBuddy:
    """Where a free buddy is listed."""

    order: int
    migratetype: int


class CaptureWish(Protocol):
    """A request that takes a page as it is being freed (S9.7).

    Attributes:
        pfn: the page it got.
    """

    pfn: int | None

    def wants(self, order: int, migratetype: int) -> bool:
        """compaction_capture(): return whether a page of an order and type is taken."""


class Buddy:
    """Free lists of one zone; everything here happens under its zone->lock.

    Attributes:
        counters: free pages as counted.
        capture: who takes pages as they are freed, if anyone does.
        probes: free lists looked at for a page since a refill began (S6.7).
    """

    def __init__(
        self,
        zone: OracleZone,
        machine: OracleMachine,
        blocks: Pageblocks,
        events: EventLog,
        counters: FreeCounters,
    ) -> None:
        self.zone = zone
        self.machine = machine
        self.max_order = machine.max_order
        self.blocks = blocks
        self.events = events
        self.counters = counters
        self.lists: dict[tuple[int, int], PageList] = {
            (order, migratetype): PageList()
            for order in range(machine.max_order + 1)
            for migratetype in range(len(machine.migratetypes))
        }
        self.capture: CaptureWish | None = None
        self.probes = 0
        self._free: dict[int, FreeBuddy] = {}

    def at(self, pfn: int) -> FreeBuddy | None:
        """page_is_buddy(): return the free buddy that starts at a page, if one does."""
        return self._free.get(pfn)

    def order_at(self, pfn: int) -> int:
        """buddy_order(): return the order of the free buddy that starts at a page."""
        return self._free[pfn].order

    def is_empty(self, order: int, migratetype: int) -> bool:
        """free_area_empty(): return whether a free list is empty."""
        return not self.lists[order, migratetype]

    def head(self, order: int, migratetype: int) -> int | None:
        """get_page_from_free_area(): return the first buddy of a free list."""
        return None if self.is_empty(order, migratetype) else self.lists[order, migratetype].head

    def has_cma(self, order: int) -> bool:
        """Part of __zone_watermark_ok(): return whether CMA has a buddy of an order."""
        return self.machine.cma is not None and not self.is_empty(order, self.machine.cma)

    @property
    def is_mostly_cma(self) -> bool:
        """Part of __rmqueue(): return whether CMA holds most free memory (S6.2).

        It is more than half of the zone's.
        """
        return self.counters.cma.read() > self.counters.free.read() // 2

    def has_ordinary(self, order: int) -> bool:
        """Part of __zone_watermark_ok(): return whether types 0 to 2 have a buddy.

        It must be of exactly this order.
        """
        return any(not self.is_empty(order, migratetype) for migratetype in range(PCP_TYPES))

    def seed(self, pfn: int, order: int, migratetype: int) -> None:
        """No kernel function: place a free buddy at the tail of its list, without merging."""
        self.counters.place(1 << order, migratetype)
        self._add_to_free_list(pfn, order, migratetype, at_tail=True)

    def rmqueue_smallest(self, order: int, migratetype: int) -> int | None:
        """__rmqueue_smallest(): take the head of the smallest sufficient buddy (S5.1).

        It is of the type, and split to size.
        """
        pfn = self.smallest_fit(order, migratetype)
        if pfn is not None:
            self.take(pfn, order)
            self.events.zone_locked(pfn, order, migratetype)
        return pfn

    def smallest_fit(self, order: int, migratetype: int) -> int | None:
        """Part of __rmqueue_smallest(): return the buddy of a type to cut from (S5.1)."""
        for current in range(order, self.max_order + 1):
            self.probes += 1
            if not self.is_empty(current, migratetype):
                return self.lists[current, migratetype].head
        return None

    def rmqueue_cma_fallback(self, order: int) -> int | None:
        """__rmqueue_cma_fallback(): take a page from CMA blocks, where there are any (S6.2)."""
        return None if self.machine.cma is None else self.rmqueue_smallest(order, self.machine.cma)

    def take(self, pfn: int, order: int) -> None:
        """page_del_and_expand(): take the low end of a free buddy (S5.2).

        The rest stays free in the buddy's type.
        """
        buddy = self._del_page_from_free_list(pfn)
        self._expand(pfn, order, buddy.order, buddy.migratetype)
        self._count_taken(order, buddy.migratetype)

    def take_as(self, pfn: int, order: int, migratetype: int) -> None:
        """Part of try_to_claim_block(): take the low end of whole free blocks (S6.3).

        All of the buddy changes type.
        """
        buddy = self._del_page_from_free_list(pfn)
        self.counters.add(-(1 << buddy.order), buddy.migratetype)
        self.blocks.change_pageblock_range(pfn, buddy.order, migratetype)
        self._expand(pfn, order, buddy.order, migratetype)
        self.counters.add((1 << buddy.order) - (1 << order), migratetype)

    def free(self, pfn: int, order: int, migratetype: int, *, to_tail: bool = False) -> None:
        """__free_one_page(): free a page, merging as far as possible (S5.3-S5.5).

        It may have to queue last.
        """
        self.counters.add(1 << order, migratetype)
        while order < self.max_order:
            if self._is_captured(pfn, order, migratetype):
                return
            neighbour = self._merge_partner(pfn, order, migratetype)
            if neighbour is None:
                break
            self._absorb(neighbour, migratetype)
            self.events.work.merges += 1
            pfn &= ~(1 << order)
            order += 1
        at_tail = order < self.max_order - 1 and self._buddy_merge_likely(pfn, order)
        self._add_to_free_list(pfn, order, migratetype, at_tail=to_tail or at_tail)
        self.events.work.inserts += 1
        if order >= self.blocks.order:
            self.blocks.note_free_buddy(pfn, order)

    def free_one_page(self, pfn: int, order: int) -> None:
        """free_one_page(): free past the per-CPU lists (S5.4)."""
        self._free_by_block(pfn, order)
        self.events.hold("direct_free", "", 1)

    def take_in(self, pfn: int, order: int) -> None:
        """__free_pages_core(): take in memory that was not there, last on its list (S5.5).

        The hold of the lock is not counted (S10.4).
        """
        self._free_by_block(pfn, order, to_tail=True)
        self.events.work = Work()

    def move_to_free_list(self, pfn: int, migratetype: int) -> None:
        """move_to_free_list(): move a free buddy to another type's tail (S5.5).

        Its block keeps its tag.
        """
        buddy = self._del_page_from_free_list(pfn)
        self._count_moved(buddy, migratetype)
        self._add_to_free_list(pfn, buddy.order, migratetype, at_tail=True)
        self.events.work.inserts += 1

    def scan(self, pages: range) -> None:
        """No kernel function: look at pages one by one (S11.1).

        A free buddy's first page tells how many to skip.
        """
        pfn = pages.start
        while pfn in pages:
            self.events.work.scanned += 1
            buddy = self.at(pfn)
            pfn += 1 << buddy.order if buddy else 1

    def zone_holds_block(self, pfn: int) -> bool:
        """prep_move_freepages_block(): return whether the zone holds a whole block (S6.3).

        It is the block of a page.
        """
        start = self.blocks.start(pfn)
        return self.zone.spans(start) and self.zone.spans(start + self.blocks.pages - 1)

    def free_in_block(self, pfn: int) -> list[int]:
        """No kernel function: return the free buddies of a page's block, ascending.

        They start in the block.
        """
        start = self.blocks.start(pfn)
        return [each for each in range(start, start + self.blocks.pages) if each in self._free]

    def move_freepages_block(self, pfn: int, migratetype: int) -> None:
        """move_freepages_block(): retag the page's block, move its free buddies (S6.3).

        They go to list tails, ascending.
        """
        start = self.blocks.start(pfn)
        self.scan(range(start, start + self.blocks.pages))
        for each in self.free_in_block(pfn):
            self.move_to_free_list(each, migratetype)
        self.blocks.set_type(self.blocks.number(pfn), migratetype)

    def _free_by_block(self, pfn: int, order: int, *, to_tail: bool = False) -> None:
        """Part of free_one_page(): free block by block, each with its own type (S5.4)."""
        piece = min(order, self.blocks.order)
        for start in range(pfn, pfn + (1 << order), 1 << piece):
            self.free(start, piece, self.blocks.type_of(start), to_tail=to_tail)

    def _is_captured(self, pfn: int, order: int, migratetype: int) -> bool:
        """Part of compaction_capture(): return whether compaction takes a freed page (S9.7)."""
        machine = self.machine
        if self.capture is None or machine.is_isolate(migratetype):
            return False
        if machine.cma is not None and migratetype == machine.cma:
            return False
        if not self.capture.wants(order, migratetype):
            return False
        self.capture.pfn = pfn
        self._count_taken(order, migratetype)
        return True

    def _merge_partner(self, pfn: int, order: int, migratetype: int) -> int | None:
        """find_buddy_page_pfn(): return the buddy that a free page merges with, if any."""
        neighbour = pfn ^ (1 << order)
        buddy = self._free.get(neighbour)
        if buddy is None or buddy.order != order:
            return None
        if buddy.migratetype != migratetype and not (
            is_mergeable(buddy.migratetype) and is_mergeable(migratetype)
        ):
            return None
        return neighbour

    def _absorb(self, neighbour: int, migratetype: int) -> None:
        """Part of __free_one_page(): take a free buddy off its list to merge it.

        Its blocks get the merged page's type.
        """
        buddy = self._del_page_from_free_list(neighbour)
        if buddy.migratetype != migratetype:
            self.blocks.change_pageblock_range(neighbour, buddy.order, migratetype)

    def _buddy_merge_likely(self, pfn: int, order: int) -> bool:
        """buddy_merge_likely(): return whether the next higher buddy is free."""
        parent = pfn & ~(1 << order)
        buddy = self._free.get(parent ^ (1 << (order + 1)))
        return buddy is not None and buddy.order == order + 1

    def _add_to_free_list(self, pfn: int, order: int, migratetype: int, *, at_tail: bool) -> None:
        """__add_to_free_list(): put a free buddy on its list."""
        self._free[pfn] = FreeBuddy(order, migratetype)
        free_list = self.lists[order, migratetype]
        if at_tail:
            free_list.push_tail(pfn)
        else:
            free_list.push_head(pfn)

    def _del_page_from_free_list(self, pfn: int) -> FreeBuddy:
        """__del_page_from_free_list(): take a free buddy off its list."""
        buddy = self._free.pop(pfn)
        self.lists[buddy.order, buddy.migratetype].remove(pfn)
        return buddy

    def _expand(self, pfn: int, order: int, have: int, migratetype: int) -> None:
        """expand(): list a page's upper halves until `order` is left (S5.2).

        The page is of order `have`.
        """
        while have > order:
            have -= 1
            self.events.work.splits += 1
            self._add_to_free_list(pfn + (1 << have), have, migratetype, at_tail=False)

    def _count_taken(self, order: int, migratetype: int) -> None:
        """account_freepages(): count pages that leave the buddy."""
        self.counters.add(-(1 << order), migratetype)

    def _count_moved(self, buddy: FreeBuddy, migratetype: int) -> None:
        """Part of move_to_free_list(): count free pages that change type."""
        self.counters.move(1 << buddy.order, buddy.migratetype, migratetype)
