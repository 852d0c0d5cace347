"""Buddy core of one zone: free lists, smallest fit, split, free and merge (S5)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle.counters import FreeCounters
from tests.oracle.events import EventLog
from tests.oracle.machine import PCP_TYPES, OracleMachine, OracleZone, is_mergeable
from tests.oracle.page_list import PageList
from tests.oracle.pageblocks import Pageblocks


@dataclass(frozen=True)
class FreeBuddy:
    """Where a free buddy is listed."""

    order: int
    migratetype: int


class Buddy:
    """Free lists of one zone; everything here happens under its zone->lock.

    Attributes:
        counters: free pages as counted.
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
        self._free: dict[int, FreeBuddy] = {}

    def at(self, pfn: int) -> FreeBuddy | None:
        """The free buddy that starts at a page, if one does."""
        return self._free.get(pfn)

    def order_at(self, pfn: int) -> int:
        """Order of the free buddy that starts at a page."""
        return self._free[pfn].order

    def is_empty(self, order: int, migratetype: int) -> bool:
        """Whether a free list is empty."""
        return not self.lists[order, migratetype]

    def head(self, order: int, migratetype: int) -> int | None:
        """First buddy of a free list."""
        return None if self.is_empty(order, migratetype) else self.lists[order, migratetype].head

    def has_cma(self, order: int) -> bool:
        """Whether a buddy of exactly this order is free in CMA blocks."""
        return self.machine.cma is not None and not self.is_empty(order, self.machine.cma)

    @property
    def is_mostly_cma(self) -> bool:
        """Whether more than half of the zone's free memory is in CMA blocks (S6.2)."""
        return self.counters.cma.read() > self.counters.free.read() // 2

    def has_ordinary(self, order: int) -> bool:
        """Whether a buddy of exactly this order is free in types 0 to 2."""
        return any(not self.is_empty(order, migratetype) for migratetype in range(PCP_TYPES))

    def seed(self, pfn: int, order: int, migratetype: int) -> None:
        """Place a free buddy at the tail of its list, without merging."""
        self.counters.place(1 << order, migratetype)
        self._insert(pfn, order, migratetype, at_tail=True)

    def take_smallest(self, order: int, migratetype: int) -> int | None:
        """Head of the smallest sufficient buddy of the type, split to size (S5.1)."""
        for current in range(order, self.max_order + 1):
            if not self.is_empty(current, migratetype):
                pfn = self.lists[current, migratetype].head
                self.take(pfn, order)
                self.events.zone_locked(pfn, order, migratetype)
                return pfn
        return None

    def take_cma(self, order: int) -> int | None:
        """The same from CMA blocks, where there are any (S6.2)."""
        return None if self.machine.cma is None else self.take_smallest(order, self.machine.cma)

    def take(self, pfn: int, order: int) -> None:
        """Take the low end of a free buddy; the rest stays free in the buddy's type (S5.2)."""
        buddy = self._unlist(pfn)
        self._split(pfn, order, buddy.order, buddy.migratetype)
        self._count_taken(order, buddy.migratetype)

    def take_range(self, pfn: int, wanted: int, order: int) -> None:
        """Take a part of a free buddy; what is left of it stays free, at list heads (S9.7)."""
        buddy = self._unlist(pfn)
        have = buddy.order
        while have > order:
            have -= 1
            upper = pfn + (1 << have)
            rest = pfn if wanted >= upper else upper
            pfn = upper if wanted >= upper else pfn
            self._insert(rest, have, buddy.migratetype, at_tail=False)
        self._count_taken(order, buddy.migratetype)

    def take_as(self, pfn: int, order: int, migratetype: int) -> None:
        """Take the low end of a free buddy of whole blocks; all of it changes type (S6.3)."""
        buddy = self._unlist(pfn)
        self.counters.add(-(1 << buddy.order), buddy.migratetype)
        self.blocks.set_range(pfn, buddy.order, migratetype)
        self._split(pfn, order, buddy.order, migratetype)
        self.counters.add((1 << buddy.order) - (1 << order), migratetype)

    def free(self, pfn: int, order: int, migratetype: int, *, to_tail: bool = False) -> None:
        """Free a page, merging as far as possible; it may have to queue last (S5.3-S5.5)."""
        self.counters.add(1 << order, migratetype)
        while order < self.max_order:
            neighbour = self._merge_partner(pfn, order, migratetype)
            if neighbour is None:
                break
            self._absorb(neighbour, migratetype)
            self.events.work.merges += 1
            pfn &= ~(1 << order)
            order += 1
        at_tail = order < self.max_order - 1 and self._higher_buddy_is_free(pfn, order)
        self._insert(pfn, order, migratetype, at_tail=to_tail or at_tail)
        self.events.work.inserts += 1
        if order >= self.blocks.order:
            self.blocks.note_free_buddy(pfn, order)

    def free_direct(self, pfn: int, order: int) -> None:
        """Free past the per-CPU lists: block by block, each with its own type (S5.4)."""
        piece = min(order, self.blocks.order)
        for start in range(pfn, pfn + (1 << order), 1 << piece):
            self.free(start, piece, self.blocks.type_of(start))
        self.events.hold("direct_free", "", 1)

    def convert(self, pfn: int, migratetype: int) -> None:
        """Move a free buddy to the tail of another type's list (S5.5); its block keeps its tag."""
        buddy = self._unlist(pfn)
        self._count_moved(buddy, migratetype)
        self._insert(pfn, buddy.order, migratetype, at_tail=True)
        self.events.work.inserts += 1

    def scan(self, pages: range) -> None:
        """Look at pages one by one; a free buddy's first page tells how many to skip (S11.1)."""
        pfn = pages.start
        while pfn in pages:
            self.events.work.scanned += 1
            buddy = self.at(pfn)
            pfn += 1 << buddy.order if buddy else 1

    def zone_holds_block(self, pfn: int) -> bool:
        """Whether the page's whole pageblock lies in this zone (S6.3)."""
        start = self.blocks.start(pfn)
        return self.zone.spans(start) and self.zone.spans(start + self.blocks.pages - 1)

    def free_in_block(self, pfn: int) -> list[int]:
        """Free buddies that start in the page's pageblock, ascending."""
        start = self.blocks.start(pfn)
        return [each for each in range(start, start + self.blocks.pages) if each in self._free]

    def convert_block(self, pfn: int, migratetype: int) -> None:
        """Retag the page's block and move its free buddies to list tails, ascending (S6.3)."""
        start = self.blocks.start(pfn)
        self.scan(range(start, start + self.blocks.pages))
        for each in self.free_in_block(pfn):
            self.convert(each, migratetype)
        self.blocks.set_type(self.blocks.number(pfn), migratetype)

    def _merge_partner(self, pfn: int, order: int, migratetype: int) -> int | None:
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
        """Take a free buddy off its list to merge it; its blocks get the merged page's type."""
        buddy = self._unlist(neighbour)
        if buddy.migratetype != migratetype:
            self.blocks.set_range(neighbour, buddy.order, migratetype)

    def _higher_buddy_is_free(self, pfn: int, order: int) -> bool:
        parent = pfn & ~(1 << order)
        buddy = self._free.get(parent ^ (1 << (order + 1)))
        return buddy is not None and buddy.order == order + 1

    def _insert(self, pfn: int, order: int, migratetype: int, *, at_tail: bool) -> None:
        self._free[pfn] = FreeBuddy(order, migratetype)
        free_list = self.lists[order, migratetype]
        if at_tail:
            free_list.push_tail(pfn)
        else:
            free_list.push_head(pfn)

    def _unlist(self, pfn: int) -> FreeBuddy:
        buddy = self._free.pop(pfn)
        self.lists[buddy.order, buddy.migratetype].remove(pfn)
        return buddy

    def _split(self, pfn: int, order: int, have: int, migratetype: int) -> None:
        """List the upper halves of a page of order `have` until `order` is left (S5.2)."""
        while have > order:
            have -= 1
            self.events.work.splits += 1
            self._insert(pfn + (1 << have), have, migratetype, at_tail=False)

    def _count_taken(self, order: int, migratetype: int) -> None:
        self.counters.add(-(1 << order), migratetype)

    def _count_moved(self, buddy: FreeBuddy, migratetype: int) -> None:
        self.counters.move(1 << buddy.order, buddy.migratetype, migratetype)
