"""The free pages that compaction moves folios to (S9.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.machine import Migratetype, is_mergeable
from tests.oracle.request import Attempt, Mark

if TYPE_CHECKING:
    from tests.oracle.compaction_run import CompactionRun

LARGEST_STRIDE = 32
UNSIGNED = 1 << 64
"""Distances are unsigned: past each other, scanners are too far apart for any page (S9.3)."""


class Targets:
    """Free pages taken off the lists, by order; the first of a list is used first.

    Attributes:
        held: first pages by order.
        waiting: pages of folios that have no target yet.
    """

    def __init__(self, run: CompactionRun) -> None:
        self.run = run
        self.zone = run.zone
        self.place = run.place
        self.waiting = 0
        self.held: dict[int, list[int]] = {
            order: [] for order in range(self.zone.machine.max_order + 1)
        }

    @property
    def pages(self) -> int:
        """No kernel function: return the number of pages held."""
        return sum(len(each) << order for order, each in self.held.items())

    @property
    def suffices(self) -> bool:
        """No kernel function: return whether as many pages are held as wait."""
        return self.pages >= self.waiting

    def compaction_alloc(self, order: int) -> int | None:
        """compaction_alloc(): return a target of an order, or None.

        It searches once if none is held.
        """
        pfn = self._take_held(order)
        if pfn is None:
            self._isolate_freepages()
            pfn = self._take_held(order)
        if pfn is not None:
            self.waiting -= 1 << order
        return pfn

    def compaction_free(self, pfn: int, order: int) -> None:
        """compaction_free(): hold a target again that was not used."""
        self.held[order].insert(0, pfn)
        self.waiting += 1 << order

    def release_free_list(self) -> None:
        """release_free_list(): free what is held, note where the next run may begin.

        The run is over.
        """
        held = [(pfn, order) for order, pages in self.held.items() for pfn in pages]
        self.held = {order: [] for order in self.held}
        if held:
            highest = self.zone.blocks.start(max(pfn for pfn, _ in held))
            self.place.free = max(self.place.free, highest)
        for pfn, order in held:
            self.run.memory.free_target(self.run.aim.cpu, pfn, order)

    def _take_held(self, order: int) -> int | None:
        """Part of compaction_alloc(): return a target of those held, or None."""
        for have in range(order, self.zone.machine.max_order + 1):
            if self.held[have]:
                pfn = self.held[have].pop(0)
                while have > order:
                    have -= 1
                    self.held[have].insert(0, pfn + (1 << have))
                return pfn
        return None

    def _isolate_freepages(self) -> None:
        """isolate_freepages(): search the free lists, else block after block, downwards."""
        run, blocks = self.run, self.zone.blocks
        self._fast_isolate_freepages()
        if self.pages:
            return
        stride = LARGEST_STRIDE if run.is_async else 1
        pfn = run.free
        start = blocks.start(pfn)
        end = min(start + blocks.pages, self.zone.spec.end_pfn)
        lowest = blocks.start(run.migrate) + blocks.pages
        while start >= lowest:
            if self._suitable_migration_target(start) and run.isolation_suitable(start):
                had = self.pages
                pfn = self._isolate_freepages_block(pfn, end, stride)
                if pfn == end:
                    self.place.skip(start)
                    self.place.free = min(self.place.free, start - blocks.pages)
                if self.suffices:
                    if pfn >= end:
                        pfn = start - blocks.pages
                    break
                if pfn < end:
                    break
                stride = 1 if self.pages > had else min(LARGEST_STRIDE, stride << 1)
            end = start
            start -= blocks.pages
            pfn = start
        run.free = pfn

    def _suitable_migration_target(self, pfn: int) -> bool:
        """suitable_migration_target(): return whether to take pages of a block."""
        run = self.run
        buddy = self.zone.buddy.at(pfn)
        too_large = run.aim.order if run.aim.order > 0 else self.zone.blocks.order
        if buddy is not None and buddy.order >= too_large:
            return False
        if run.takes_any_block:
            return True
        found = self.zone.blocks.type_of(pfn)
        is_cma = self.zone.machine.cma is not None and found == self.zone.machine.cma
        return is_cma or found == Migratetype.MOVABLE

    def _isolate_freepages_block(self, pfn: int, end: int, stride: int) -> int:
        """isolate_freepages_block(): take a block's free buddies; returns where it stopped."""
        scanned = 0
        while pfn < end:
            buddy = self.zone.buddy.at(pfn)
            if buddy is None:
                size = self._compound_pages(pfn)
                if pfn + size > end:
                    size = 1
                scanned += size
                pfn += size - 1 + stride
                continue
            size = 1 << buddy.order
            if not self._isolate_free_page(pfn, buddy.order):
                scanned += 1
                break
            scanned += size
            if self.suffices:
                pfn += size
                break
            pfn += size - 1 + stride
        self.run.count("free", scanned)
        return min(pfn, end)

    def _compound_pages(self, pfn: int) -> int:
        """compound_order(): return the pages of an allocation that begins here, else 1."""
        folio = self.run.memory.folios.get(pfn)
        return 1 if folio is None else folio.size

    def _isolate_free_page(self, pfn: int, order: int) -> bool:
        """__isolate_free_page(): take a free buddy, if the min mark allows it."""
        zone, blocks = self.zone, self.zone.blocks
        if not zone.machine.is_isolate(blocks.type_of(pfn)):
            marks = zone.watermarks
            pages = marks.raw(Mark.MIN) + (1 << order)
            if not marks.ok(0, pages, 0, Attempt(mark=Mark.MIN, cma=True)):
                return False
        zone.buddy.take(pfn, order)
        self.held[order].append(pfn)
        self.run.memory.counts["compact_isolated"] += 1 << order
        if order >= blocks.order - 1:
            for start in range(pfn, pfn + (1 << order), blocks.pages):
                if is_mergeable(blocks.type_of(start)) and zone.buddy.zone_holds_block(start):
                    zone.buddy.move_freepages_block(start, Migratetype.MOVABLE)
        return True

    def _fast_isolate_freepages(self) -> None:
        """fast_isolate_freepages(): take one page of the MOVABLE lists, and more around it."""
        run, control, blocks = self.run, self.run.control, self.zone.blocks
        if run.aim.order <= 0:
            return
        limit = max(1, control.scan_limit >> 1)
        from_end = run.free >= self.place.whole_to
        if from_end:
            limit = blocks.pages >> 1
        distance = (run.free - run.migrate) % UNSIGNED
        preferred = blocks.start((run.free - (distance >> 2)) % UNSIGNED)
        least = blocks.start((run.free - (distance >> 1)) % UNSIGNED)
        control.search_order = min(run.aim.order - 1, control.search_order)
        scanned = highest = 0
        page: int | None = None
        order = control.search_order
        while page is None and order >= 0:
            pages = self.zone.buddy.lists[order, Migratetype.MOVABLE]
            is_any = any(
                not self.zone.buddy.is_empty(order, each)
                for each in range(len(self.zone.machine.migratetypes))
            )
            if is_any:
                candidate: int | None = None
                last: int | None = None
                looked = 0
                for pfn in reversed(list(pages)):
                    looked += 1
                    scanned += 1
                    last = pfn
                    if pfn >= highest:
                        highest = max(blocks.start(pfn), self.place.first)
                    if pfn >= preferred:
                        control.search_fail = 0
                        control.search_order = order
                        page = pfn
                        break
                    if pfn >= least and (candidate is None or pfn > candidate) and pfn > 0:
                        candidate = pfn
                        limit >>= 1
                    if looked >= limit:
                        break
                else:
                    last = None
                if page is None and candidate is not None:
                    page = last = candidate
                if last is not None:
                    pages.move_freelist_head(last)
                if page is not None:
                    if self._isolate_free_page(page, order):
                        scanned += (1 << order) - 1
                    else:
                        order = control.search_order + 1
                        page = None
                if self.suffices:
                    break
                if looked >= limit:
                    limit = max(1, limit >> 1)
            order = self._next_search_order(order)
        page = self._note_search(page, highest, least, from_end=from_end)
        run.count("free", scanned)
        if page is not None:
            self._fast_isolate_around(page)

    def _note_search(
        self, page: int | None, highest: int, least: int, *, from_end: bool
    ) -> int | None:
        """Part of fast_isolate_freepages(): go on elsewhere without a page; note what was seen.

        Returns the page around which to look.
        """
        run = self.run
        if page is None:
            run.control.search_fail += 1
            if from_end and highest >= least:
                page = run.free = highest
            elif from_end and run.aim.direct and self.zone.spec.spans(least):
                page = least if self._suitable_migration_target(least) else None
                run.free = least
        if highest and highest >= self.place.free:
            self.place.free = highest - self.zone.blocks.pages
        return page

    def _next_search_order(self, order: int) -> int:
        """next_search_order(): return the order below, round about; -1 after all of them."""
        control, largest = self.run.control, self.run.aim.order - 1
        order = order - 1 if order > 0 else largest
        if order != control.search_order:
            return order
        control.search_order -= 1
        if control.search_order < 0:
            control.search_order = largest
        return -1

    def _fast_isolate_around(self, pfn: int) -> None:
        """fast_isolate_around(): take more of the block of a page."""
        run, blocks = self.run, self.zone.blocks
        if self.suffices or (run.aim.direct and run.is_async):
            return
        start = max(blocks.start(pfn), self.place.first)
        end = min(blocks.start(pfn) + blocks.pages, self.zone.spec.end_pfn)
        if self._isolate_freepages_block(start, end, 1) == end:
            self.place.skip(start)
