"""A zone's buddy: lists of pages, types of blocks, pages in use, and the free lists (S1, S5)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tests.oracle.machine import PCP_TYPES, Migratetype, OracleMachine, Work, is_mergeable

if TYPE_CHECKING:
    from tests.oracle.zone import Zone


class PageList:
    """Page frame numbers, head first; a page is on a list at most once."""

    def __init__(self) -> None:
        self._pages: OrderedDict[int, None] = OrderedDict()

    def __iter__(self) -> Iterator[int]:
        return iter(self._pages)

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, pfn: int) -> bool:
        return pfn in self._pages

    @property
    def head(self) -> int:
        return next(iter(self._pages))

    @property
    def tail(self) -> int:
        return next(reversed(self._pages))

    def push_head(self, pfn: int) -> None:
        """list_add(): put a page in front of all others."""
        self.push_tail(pfn)
        self._pages.move_to_end(pfn, last=False)

    def push_tail(self, pfn: int) -> None:
        """list_add_tail(): put a page behind all others."""
        if pfn in self._pages:
            raise ValueError(f"page {pfn} is on this list already")
        self._pages[pfn] = None

    def pop_head(self) -> int:
        return self._pages.popitem(last=False)[0]

    def pop_tail(self) -> int:
        return self._pages.popitem(last=True)[0]

    def move_freelist_tail(self, pfn: int) -> None:
        """move_freelist_tail(): put a page, and all before it, behind the last one."""
        for page in list(self._pages):
            self._pages.move_to_end(page)
            if page == pfn:
                return

    def move_freelist_head(self, pfn: int) -> None:
        """move_freelist_head(): make a page the first; all before it go behind the last one."""
        while self.head != pfn:
            self._pages.move_to_end(self.head)

    def remove(self, pfn: int) -> None:
        """list_del(): take a page from wherever it is."""
        del self._pages[pfn]


class Pageblocks:
    """Types by pageblock number (pfn >> pageblock order); MOVABLE until told otherwise."""

    def __init__(self, machine: OracleMachine) -> None:
        self.order = machine.pageblock_order
        self.pages = machine.pages_per_block
        self.types: dict[int, int] = {}  # by number
        for zone in machine.zones:
            if zone.spanned:
                first, last = zone.start_pfn >> self.order, (zone.end_pfn - 1) >> self.order
                self.types.update(dict.fromkeys(range(first, last + 1), int(Migratetype.MOVABLE)))

    def number(self, pfn: int) -> int:
        return pfn >> self.order

    def start(self, pfn: int) -> int:
        """pageblock_start_pfn(): return the first page of the block a page lies in."""
        return pfn & ~(self.pages - 1)

    def around(self, pfn: int) -> range:
        """The pages of the block a page lies in."""
        return range(self.start(pfn), self.start(pfn) + self.pages)

    def type_of(self, pfn: int) -> int:
        """get_pfnblock_migratetype(): return the type of the block a page lies in."""
        return self.types[self.number(pfn)]

    def set_type(self, block: int, migratetype: int) -> None:
        """set_pageblock_migratetype(): retag one block."""
        self.types[block] = migratetype

    def change_pageblock_range(self, pfn: int, order: int, migratetype: int) -> None:
        """change_pageblock_range(): retag all blocks of a page of at least pageblock order."""
        for start in range(pfn, pfn + (1 << order), self.pages):
            self.set_type(self.number(start), migratetype)

    def note_free_buddy(self, pfn: int, order: int) -> None:
        """Note a buddy of whole blocks, which types alone do not care about."""


class AllocatedPages:
    """Base pages handed out; each knows whether it was requested as MOVABLE.

    The kernel asks whether a page is on the LRU or has movable operations. Neither is in a
    recording, so the requested migratetype stands for it.
    """

    def __init__(self) -> None:
        self.movable: dict[int, bool] = {}

    def add(self, pfn: int, order: int, movable: bool) -> None:
        """Hand out a page."""
        for page in range(pfn, pfn + (1 << order)):
            if page in self.movable:
                raise ValueError(f"page {page} is allocated already")
            self.movable[page] = movable

    def remove(self, pfn: int, order: int) -> None:
        """Take back a page, which may be only a part of what was handed out (T10.1)."""
        for page in range(pfn, pfn + (1 << order)):
            if page not in self.movable:
                raise ValueError(f"page {page} is freed but not allocated")
            del self.movable[page]

    def is_movable(self, pfn: int) -> bool:
        return self.movable.get(pfn, False)


class FreeBuddy(NamedTuple):
    """Where a free buddy is listed."""

    order: int
    migratetype: int


@dataclass
class Capture:
    """A request's wish for a page that is being freed (S9.7)."""

    order: int  # of the request
    migratetype: int  # of the request
    from_movable: bool  # a MOVABLE request may have pages of MOVABLE blocks
    pfn: int | None = None  # the page it got


class Buddy:
    """Free lists of one zone; everything here happens under its zone->lock."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.machine = zone.machine
        self.max_order = zone.machine.max_order
        self.blocks = zone.blocks
        self.events = zone.events
        self.counters = zone.counters  # free pages as counted
        self.lists: dict[tuple[int, int], PageList] = {
            (order, migratetype): PageList()
            for order in range(self.max_order + 1)
            for migratetype in range(len(self.machine.migratetypes))
        }
        self.capture: Capture | None = None  # who takes pages as they are freed, if anyone does
        self.probes = 0  # free lists looked at for a page since a refill began (S6.7)
        self._free: dict[int, FreeBuddy] = {}

    def at(self, pfn: int) -> FreeBuddy | None:
        """page_is_buddy(): return the free buddy that starts at a page, if one does."""
        return self._free.get(pfn)

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
        """Part of __rmqueue(): return whether CMA holds more than half of free memory (S6.2)."""
        return self.counters.cma.read() > self.counters.free.read() // 2

    def has_ordinary(self, order: int) -> bool:
        """Part of __zone_watermark_ok(): return whether types 0 to 2 have a buddy of the order."""
        return any(not self.is_empty(order, migratetype) for migratetype in range(PCP_TYPES))

    def seed(self, pfn: int, order: int, migratetype: int) -> None:
        """Place a free buddy of the start state at the tail of its list, without merging."""
        self.counters.place(1 << order, migratetype)
        self._add_to_free_list(pfn, order, migratetype, at_tail=True)

    def rmqueue_smallest(self, order: int, migratetype: int) -> int | None:
        """__rmqueue_smallest(): take a type's smallest buddy's head, split to size (S5.1)."""
        pfn = self.smallest_fit(order, migratetype)
        if pfn is not None:
            self.take(pfn, order)
            self.events.note("zone_locked", pfn, order, migratetype)
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
        """page_del_and_expand(): take the low end of a buddy; the rest keeps its type (S5.2)."""
        buddy = self._del_page_from_free_list(pfn)
        self._expand(pfn, order, buddy.order, buddy.migratetype)
        self._count_taken(order, buddy.migratetype)

    def take_as(self, pfn: int, order: int, migratetype: int) -> None:
        """Part of try_to_claim_block(): take the low end of whole blocks, retagging all (S6.3)."""
        buddy = self._del_page_from_free_list(pfn)
        self.counters.add(-(1 << buddy.order), buddy.migratetype)
        self.blocks.change_pageblock_range(pfn, buddy.order, migratetype)
        self._expand(pfn, order, buddy.order, migratetype)
        self.counters.add((1 << buddy.order) - (1 << order), migratetype)

    def free(self, pfn: int, order: int, migratetype: int, *, to_tail: bool = False) -> None:
        """__free_one_page(): free a page, merge it as far as possible, list it (S5.3-S5.5)."""
        self.counters.add(1 << order, migratetype)
        while order < self.max_order:
            if self._is_captured(order, migratetype):
                self.capture.pfn = pfn
                self._count_taken(order, migratetype)
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
        self.events.hold("direct_free", "", 1, self.zone.index)

    def take_in(self, pfn: int, order: int) -> None:
        """__free_pages_core(): take in new memory, last on its list, in no counted hold (S5.5)."""
        self._free_by_block(pfn, order, to_tail=True)
        self.events.work = Work()

    def move_to_free_list(self, pfn: int, migratetype: int) -> None:
        """move_to_free_list(): move a buddy to another type's tail, whatever its block (S5.5)."""
        buddy = self._del_page_from_free_list(pfn)
        self._count_moved(buddy, migratetype)
        self._add_to_free_list(pfn, buddy.order, migratetype, at_tail=True)
        self.events.work.inserts += 1

    def scan(self, pages: range) -> None:
        """Look at pages, one by one but for free buddies (S11.1)."""
        pfn = pages.start
        while pfn in pages:
            self.events.work.scanned += 1
            buddy = self.at(pfn)
            pfn += 1 << buddy.order if buddy else 1

    def zone_holds_block(self, pfn: int) -> bool:
        """prep_move_freepages_block(): return whether the zone holds all of a block (S6.3)."""
        block = self.blocks.around(pfn)
        return self.zone.spec.spans(block[0]) and self.zone.spec.spans(block[-1])

    def free_in(self, pages: range) -> list[int]:
        """The free buddies that start among some pages, ascending."""
        return [pfn for pfn in pages if pfn in self._free]

    def move_freepages_block(self, pfn: int, migratetype: int) -> None:
        """move_freepages_block(): retag a block, move its buddies to tails in order (S6.3)."""
        block = self.blocks.around(pfn)
        self.scan(block)
        for buddy in self.free_in(block):
            self.move_to_free_list(buddy, migratetype)
        self.blocks.set_type(self.blocks.number(pfn), migratetype)

    def _free_by_block(self, pfn: int, order: int, *, to_tail: bool = False) -> None:
        """Part of free_one_page(): free block by block, each with its own type (S5.4)."""
        piece = min(order, self.blocks.order)
        for start in range(pfn, pfn + (1 << order), 1 << piece):
            self.free(start, piece, self.blocks.type_of(start), to_tail=to_tail)

    def _is_captured(self, order: int, migratetype: int) -> bool:
        """compaction_capture(): return whether compaction takes a freed page (S9.7)."""
        wish = self.capture
        if wish is None or wish.pfn is not None or order != wish.order:
            return False
        if self.machine.is_isolate(migratetype) or migratetype == self.machine.cma:
            return False
        if migratetype != Migratetype.MOVABLE or order >= self.blocks.order:
            return True
        return wish.from_movable and wish.migratetype == Migratetype.MOVABLE

    def _merge_partner(self, pfn: int, order: int, migratetype: int) -> int | None:
        """find_buddy_page_pfn(): return the buddy that a free page merges with, if any."""
        neighbour = pfn ^ (1 << order)
        buddy = self.at(neighbour)
        if buddy is None or buddy.order != order:
            return None
        may_merge = is_mergeable(buddy.migratetype) and is_mergeable(migratetype)
        return neighbour if may_merge or buddy.migratetype == migratetype else None

    def _absorb(self, neighbour: int, migratetype: int) -> None:
        """Part of __free_one_page(): unlist a buddy to merge; its blocks get the page's type."""
        buddy = self._del_page_from_free_list(neighbour)
        if buddy.migratetype != migratetype:
            self.blocks.change_pageblock_range(neighbour, buddy.order, migratetype)

    def _buddy_merge_likely(self, pfn: int, order: int) -> bool:
        """buddy_merge_likely(): return whether the next higher buddy is free."""
        parent = pfn & ~(1 << order)
        buddy = self.at(parent ^ (1 << (order + 1)))
        return buddy is not None and buddy.order == order + 1

    def _add_to_free_list(self, pfn: int, order: int, migratetype: int, *, at_tail: bool) -> None:
        """__add_to_free_list(): put a free buddy on its list."""
        self._free[pfn] = FreeBuddy(order, migratetype)
        free_list = self.lists[order, migratetype]
        (free_list.push_tail if at_tail else free_list.push_head)(pfn)

    def _del_page_from_free_list(self, pfn: int) -> FreeBuddy:
        """__del_page_from_free_list(): take a free buddy off its list."""
        buddy = self._free.pop(pfn)
        self.lists[buddy].remove(pfn)
        return buddy

    def _expand(self, pfn: int, order: int, have: int, migratetype: int) -> None:
        """expand(): list upper halves of a page of order `have` until `order` is left (S5.2)."""
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


class LooseBuddy(Buddy):
    """Lists and block types change apart from each other (6.1).

    Frees go to the list of the type they are made with, merges retag nothing, and moves of free
    pages leave the tag to the caller.
    """

    def __init__(self, zone: Zone) -> None:
        super().__init__(zone)
        self._refilled_pages: int | None = None

    @contextmanager
    def refill(self) -> Iterator[None]:
        """Part of rmqueue_bulk(): count the pages of a refill together, at its end (S1.10)."""
        self._refilled_pages = 0
        yield
        self.counters.add_to_free(-self._refilled_pages)
        self._refilled_pages = None

    def rmqueue_smallest(self, order: int, migratetype: int) -> int | None:
        """__rmqueue_smallest(): take a page, which carries the list's type from now on (S5.1)."""
        pfn = super().rmqueue_smallest(order, migratetype)
        if pfn is not None:
            self.zone.cached_types[pfn] = migratetype
        return pfn

    def prep_move_freepages_block(self, pfn: int) -> range:
        """prep_move_freepages_block(): return the pages of a page's block that `move_block` covers.

        The part before the zone is left out, and so is what precedes the page then. Nothing is
        covered where the block reaches beyond the zone.
        """
        block, spec = self.blocks.around(pfn), self.zone.spec
        if not spec.spans(block[-1]):
            return range(0)
        return range(block.start if spec.spans(block.start) else pfn, block.stop)

    def move_block(self, pfn: int, migratetype: int) -> int:
        """__move_freepages_block(): move the block's free buddies to tails, ascending (S6.5).

        Returns:
            Base pages moved. A buddy larger than the block moves as a whole.
        """
        pages = self.prep_move_freepages_block(pfn)
        self.scan(pages)
        buddies = self.free_in(pages)
        for buddy in buddies:
            self.move_to_free_list(buddy, migratetype)
        return sum(1 << self._free[buddy].order for buddy in buddies)

    def _free_by_block(self, pfn: int, order: int, *, to_tail: bool = False) -> None:
        """Part of free_one_page(): free in one piece, as of the first block's type (S5.4)."""
        self.free(pfn, order, self.blocks.type_of(pfn), to_tail=to_tail)

    def _merge_partner(self, pfn: int, order: int, migratetype: int) -> int | None:
        """find_buddy_page_pfn(): return the buddy to merge with, if any (S5.4).

        The block's type decides, not the list's, and only from block size on.
        """
        neighbour = pfn ^ (1 << order)
        buddy = self.at(neighbour)
        if buddy is None or buddy.order != order:
            return None
        if order < self.blocks.order:
            return neighbour
        block_type = self.blocks.type_of(neighbour)
        may_merge = is_mergeable(block_type) and is_mergeable(migratetype)
        return neighbour if may_merge or block_type == migratetype else None

    def _absorb(self, neighbour: int, migratetype: int) -> None:
        """Part of __free_one_page(): take a free buddy off its list to merge it."""
        self._count_moved(self._del_page_from_free_list(neighbour), migratetype)

    def _count_taken(self, order: int, migratetype: int) -> None:
        """Part of __rmqueue_smallest(): count pages that leave, in a refill at its end."""
        if self._refilled_pages is None:
            super()._count_taken(order, migratetype)
            return
        self.counters.add_to_part(-(1 << order), migratetype)
        self._refilled_pages += 1 << order

    def _count_moved(self, buddy: FreeBuddy, migratetype: int) -> None:
        """Part of move_to_free_list(): free pages are as many on any list; their parts change."""
        if buddy.migratetype != migratetype:
            self.counters.add_to_part(-(1 << buddy.order), buddy.migratetype)
            self.counters.add_to_part(1 << buddy.order, migratetype)
