"""Which folios compaction takes, and the free pages that it moves them to (S9.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.lru import Folio
from tests.oracle.machine import Migratetype, Work, is_mergeable
from tests.oracle.request import Attempt, Mark

if TYPE_CHECKING:
    from tests.oracle.compaction import CompactionRun


CLUSTER = 32  # pages isolated at a time


class Sources:
    """The source scanner of one run."""

    def __init__(self, run: CompactionRun) -> None:
        self.run = run
        self.zone = run.zone
        self.place = run.place
        self.isolated: list[Folio] = []  # folios waiting for a target, in the order of isolation
        self.lowest_found: int | None = None
        self.went_back = False

    def isolate(self) -> None:
        """isolate_migratepages(): isolate folios of the next block that is a source."""
        run, blocks = self.run, self.zone.blocks
        pfn = self._fast_find_migrateblock()
        is_found = pfn != run.migrate and not run.control.search_fail
        end = blocks.start(pfn) + blocks.pages
        while end <= run.free:
            left_out = self._begins_block(pfn) and not is_found and not run.isolation_suitable(pfn)
            if not left_out:
                if self._suitable_migration_source(pfn):
                    self._isolate_block(pfn, end)
                    return
                self._update_cached_migrate(end)
            is_found = False
            run.migrate = pfn = end
            end += blocks.pages

    def take(self) -> list[Folio]:
        """What was isolated, the newest first."""
        folios, self.isolated = self.isolated[::-1], []
        return folios

    def _begins_block(self, pfn: int) -> bool:
        """Part of isolate_migratepages(): return whether a scan from here has all of its block."""
        at_zone_start = self.run.rules.begins_at_zone_start and pfn == self.place.first
        return at_zone_start or pfn % self.zone.blocks.pages == 0

    def _suitable_migration_source(self, pfn: int) -> bool:
        """suitable_migration_source(): return whether a block's type suits."""
        aim, rules = self.run.aim, self.run.rules
        start = max(self.zone.blocks.start(pfn), self.place.first)
        if self.place.holds_large_page(start):
            return False
        of_block = self.zone.blocks.type_of(start)
        is_cma = of_block == self.zone.machine.cma
        if aim.direct and is_cma and rules.direct_source_needs_cma and not aim.may_use_cma:
            return False
        if not (aim.direct and self.run.is_async):
            return True
        if aim.migratetype == Migratetype.MOVABLE or self._is_for_blocks():
            return is_cma or of_block == Migratetype.MOVABLE
        return of_block == aim.migratetype

    def _is_for_blocks(self) -> bool:
        """Part of suitable_migration_source(): return whether a run for whole blocks takes any."""
        by_order = self.run.rules.async_source_by_order
        return by_order and self.run.aim.order >= self.zone.blocks.order

    def _update_cached_migrate(self, pfn: int) -> None:
        """update_cached_migrate(): let later runs begin behind the block behind."""
        behind = self.zone.blocks.start(pfn) + self.zone.blocks.pages
        self.place.migrate[False] = max(self.place.migrate[False], behind)
        if not self.run.is_async:
            self.place.migrate[True] = max(self.place.migrate[True], behind)

    def _isolate_block(self, pfn: int, end: int) -> None:
        """isolate_migratepages_block(): take folios off their lists, page by page."""
        run, memory = self.run, self.run.memory
        begins, counts_all = self._begins_block(pfn), run.rules.counts_stepped_over
        if begins and not run.isolation_suitable(pfn):
            run.count("migrate", 1)
            self._update_cached_migrate(end)
            run.migrate = end
            return
        gives_up = run.aim.direct and run.is_async
        stride = 1 << max(run.aim.order, 0)
        range_end = pfn // stride * stride + stride
        scanned = pages = 0
        has_locked = False
        first = pfn
        while pfn < end:
            if gives_up and pfn >= range_end:
                if pages:
                    break
                range_end = pfn // stride * stride + stride
            buddy = self.zone.buddy.at(pfn)
            if buddy is not None:
                scanned += 1 << buddy.order if counts_all else 1
                pfn += 1 << buddy.order
                continue
            folio = memory.folios.get(pfn)
            is_too_large = folio is not None and self._is_too_large(folio)
            if folio is not None and folio.on_lru and not is_too_large:
                marks = run.rules.any_isolation_marks or pfn == first
                if begins and marks and not has_locked and not run.ignores_skips:
                    self.place.skip(first)
                has_locked = True
                if not pages:
                    run.lock(pfn)
                memory.lru_of(folio).remove(folio)
                self.isolated.append(folio)
                pages += folio.size
                scanned += folio.size
                pfn += folio.size
                if pages >= CLUSTER and not (run.finishes_block or run.is_contended):
                    break
                continue
            size = folio.size if folio is not None and is_too_large else 1
            scanned += size if counts_all else 1
            pfn += size
            if gives_up:
                for folio in self.take():
                    memory.lru_of(folio).lruvec_add_folio(folio)
                pages = 0
                if pfn - 1 < range_end:
                    pfn = range_end
                    range_end += stride
        pfn = min(pfn, end)
        if pfn == end and (not pages or run.finishes_block):
            if begins and not has_locked:
                self.place.skip(first)
            self._update_cached_migrate(pfn)
        run.count("migrate", scanned)
        memory.counts["compact_isolated"] += pages
        run.migrate = pfn

    def _is_too_large(self, folio: Folio) -> bool:
        """skip_isolation_on_order(): return whether a folio is stepped over whole."""
        if folio.order and not self.run.rules.moves_compound:
            return True
        is_wanted = folio.order > 0 and 0 <= self.run.aim.order <= folio.order
        return is_wanted or folio.order >= self.zone.blocks.order

    def _fast_find_migrateblock(self) -> int:
        """fast_find_migrateblock(): return where to go on, by a search of free lists."""
        run, place, control = self.run, self.place, self.run.control
        pfn = run.migrate
        if run.ignores_skips or run.aim.order <= run.gates.costly_order:
            return pfn
        takes_movable = run.aim.migratetype == Migratetype.MOVABLE or self._is_for_blocks()
        if run.aim.direct and not takes_movable:
            return pfn
        if run.finishes_block and run.rules.finishes_failed_blocks:
            return pfn
        if pfn != place.first and pfn % self.zone.blocks.pages:
            return pfn
        distance = (run.free - pfn) >> 1
        if pfn != place.first:
            distance >>= 2
        high = self.zone.blocks.start(pfn + distance)
        limit = control.scan_limit
        scanned = 0
        source: int | None = None
        for order in range(run.aim.order - 1, run.gates.costly_order - 1, -1):
            if source is not None or scanned >= limit:
                break
            pages = self.zone.buddy.lists[order, Migratetype.MOVABLE]
            for page in list(pages):
                scanned += 1
                is_source = page < high and not place.is_skipped(page)
                if scanned > limit or is_source:
                    pages.move_freelist_tail(page)
                    source = page if scanned <= limit else None
                    break
        run.count("migrate", scanned)
        if source is None:
            control.search_fail += 1
            return self._reinit_migrate_pfn()
        if not self.went_back:
            self.lowest_found = min(self.lowest_found or source, source)
        control.search_fail = 0
        if run.rules.marks_found_sources:
            place.skip(source)
        return max(self.zone.blocks.start(source), place.first)

    def _reinit_migrate_pfn(self) -> int:
        """reinit_migrate_pfn(): go back, once, to the lowest page ever found."""
        if self.lowest_found and not self.went_back:
            self.run.migrate = self.lowest_found
            self.went_back = True
        return self.run.migrate


LARGEST_STRIDE = 32
UNSIGNED = 1 << 64
"""Distances are unsigned: past each other, scanners are too far apart for any page (S9.3)."""


class Targets:
    """Free pages taken off the lists, by order; the first of a list is used first."""

    def __init__(self, run: CompactionRun) -> None:
        self.run = run
        self.zone = run.zone
        self.place = run.place
        self.waiting = 0  # pages of folios that have no target yet
        self.held: dict[int, list[int]] = {
            order: [] for order in range(self.zone.machine.max_order + 1)
        }

    @property
    def pages(self) -> int:
        return sum(len(pages) << order for order, pages in self.held.items())

    @property
    def suffices(self) -> bool:
        """Whether as many pages are held as wait."""
        return self.pages >= self.waiting

    def compaction_alloc(self, order: int) -> int | None:
        """compaction_alloc(): return a target of an order, searching once, or None."""
        pfn = self._take_held(order)
        if pfn is None:
            self._isolate_freepages()
            pfn = self._take_held(order)
        if pfn is not None and self.run.rules.holds_whole:
            self.waiting -= 1 << order
        return pfn

    def compaction_free(self, pfn: int, order: int) -> None:
        """compaction_free(): hold a target again that was not used."""
        self.held[order].insert(0, pfn)
        if self.run.rules.holds_whole:
            self.waiting += 1 << order

    def release_free_list(self) -> None:
        """release_free_list(): free what is held as a run ends, note where the next may begin."""
        held = [(pfn, order) for order, pages in self.held.items() for pfn in pages]
        self.held = {order: [] for order in self.held}  # first pages by order
        if held:
            highest = self.zone.blocks.start(max(pfn for pfn, _ in held))
            self.place.free = max(self.place.free, highest)
        for pfn, order in held:
            self.run.oracle.act_as(self.run.aim.cpu)
            self.zone.note_taken(pfn, order)
            self.zone.free(self.run.aim.cpu, pfn, order)

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
                    below = blocks.pages if run.rules.target_leaves_block else 0
                    self.place.free = min(self.place.free, start - below)
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
        by_order = run.rules.target_by_order and run.aim.order > 0
        too_large = run.aim.order if by_order else self.zone.blocks.order
        if buddy is not None and buddy.order >= too_large:
            return False
        if run.takes_any_block:
            return True
        return self.zone.blocks.type_of(pfn) in (Migratetype.MOVABLE, self.zone.machine.cma)

    def _isolate_freepages_block(self, pfn: int, end: int, stride: int) -> int:
        """isolate_freepages_block(): take a block's free buddies; returns where it stopped."""
        scanned = 0
        while pfn < end:
            buddy = self.zone.buddy.at(pfn)
            if buddy is None:
                folio = self.run.memory.folios.get(pfn)
                size = 1 if folio is None else folio.size
                if pfn + size > end and self.run.rules.target_steps_inside:
                    size = 1
                scanned += size if self.run.rules.counts_stepped_over else 1
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

    def _isolate_free_page(self, pfn: int, order: int) -> bool:
        """__isolate_free_page(): take a free buddy, if the min mark allows it."""
        zone, blocks = self.zone, self.zone.blocks
        if not zone.machine.is_isolate(blocks.type_of(pfn)):
            pages = zone.watermarks.raw(Mark.MIN) + (1 << order)
            if not zone.watermarks.ok(0, pages, 0, Attempt(mark=Mark.MIN, cma=True)):
                return False
        zone.buddy.take(pfn, order)
        if self.run.rules.holds_whole:
            self.held[order].append(pfn)
        else:
            self.held[0][:0] = reversed(range(pfn, pfn + (1 << order)))
        self.run.memory.counts["compact_isolated"] += 1 << order
        if order >= blocks.order - 1:
            for start in range(pfn, pfn + (1 << order), blocks.pages):
                if not is_mergeable(blocks.type_of(start)):
                    continue
                if not zone.rules.free_lists_match_blocks:
                    blocks.set_type(blocks.number(start), Migratetype.MOVABLE)
                elif zone.buddy.zone_holds_block(start):
                    zone.buddy.move_freepages_block(start, Migratetype.MOVABLE)
            zone.events.work = Work()  # a scan's hold is not among those that wait
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
            if any(free for (size, _), free in self.zone.buddy.lists.items() if size == order):
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
                if self.suffices and run.rules.ends_at_enough:
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
                any_block = not run.rules.tests_late_target
                page = least if any_block or self._suitable_migration_target(least) else None
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
        marks = self._isolate_freepages_block(start, end, 1) == end
        if not run.rules.marks_scanned_targets:
            marks = not self.suffices
        if marks:
            self.place.skip(start)
