"""Which folios compaction takes off their lists (S9.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.folios import Folio
from tests.oracle.machine import Migratetype

if TYPE_CHECKING:
    from tests.oracle.compaction_run import CompactionRun

CLUSTER = 32
"""Pages isolated at a time."""


class Sources:
    """The source scanner of one run.

    Attributes:
        isolated: folios waiting for a target, in the order of isolation.
    """

    def __init__(self, run: CompactionRun) -> None:
        self.run = run
        self.zone = run.zone
        self.place = run.place
        self.isolated: list[Folio] = []
        self.lowest_found: int | None = None
        self.went_back = False

    def isolate(self) -> None:
        """isolate_migratepages(): isolate folios of the next block that is a source."""
        run, blocks = self.run, self.zone.blocks
        pfn = self._fast_find_migrateblock()
        is_found = pfn != run.migrate and not run.control.search_fail
        end = blocks.start(pfn) + blocks.pages
        while end <= run.free:
            if self._may_enter(pfn, end, is_found=is_found):
                self._isolate_block(pfn, end)
                return
            is_found = False
            run.migrate = pfn = end
            end += blocks.pages

    def take(self) -> list[Folio]:
        """No kernel function: return what was isolated, the newest first."""
        folios, self.isolated = self.isolated[::-1], []
        return folios

    def putback(self) -> None:
        """putback_movable_pages(): return what was isolated to the heads of its lists."""
        for folio in reversed(self.isolated):
            self.run.memory.lru_of(folio).lruvec_add_folio(folio)
        self.isolated = []

    def _may_enter(self, pfn: int, end: int, *, is_found: bool) -> bool:
        """Part of isolate_migratepages(): return whether to look into a page's block."""
        if self._begins_block(pfn) and not is_found and not self.run.isolation_suitable(pfn):
            return False
        if not self._suitable_migration_source(pfn):
            self._update_cached_migrate(end)
            return False
        return True

    def _begins_block(self, pfn: int) -> bool:
        """Part of isolate_migratepages(): return whether a scan from here has all of its block."""
        at_zone_start = self.run.rules.begins_at_zone_start and pfn == self.place.first
        return at_zone_start or pfn % self.zone.blocks.pages == 0

    def _suitable_migration_source(self, pfn: int) -> bool:
        """suitable_migration_source(): return whether a block's type suits."""
        aim, machine = self.run.aim, self.zone.machine
        rules = self.run.options.rules
        start = max(self.zone.blocks.start(pfn), self.place.first)
        if self.place.holds_large_page(start):
            return False
        found = self.zone.blocks.type_of(start)
        is_cma = machine.cma is not None and found == machine.cma
        if aim.direct and is_cma and rules.direct_source_needs_cma and not aim.may_use_cma:
            return False
        if not (aim.direct and self.run.is_async):
            return True
        for_blocks = rules.async_source_by_order and aim.order >= self.zone.blocks.order
        if aim.migratetype == Migratetype.MOVABLE or for_blocks:
            return is_cma or found == Migratetype.MOVABLE
        return found == aim.migratetype

    def _update_cached_migrate(self, pfn: int) -> None:
        """update_cached_migrate(): let later runs begin behind the block behind."""
        behind = self.zone.blocks.start(pfn) + self.zone.blocks.pages
        self.place.migrate[False] = max(self.place.migrate[False], behind)
        if not self.run.is_async:
            self.place.migrate[True] = max(self.place.migrate[True], behind)

    def _isolate_block(self, pfn: int, end: int) -> None:
        """isolate_migratepages_block(): take folios off their lists, page by page."""
        run, memory = self.run, self.run.memory
        begins = self._begins_block(pfn)
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
                scanned += self._counted(1 << buddy.order)
                pfn += 1 << buddy.order
                continue
            folio = memory.folios.get(pfn)
            if folio is not None and self._is_movable(folio):
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
            size = folio.size if folio is not None and self._is_too_large(folio) else 1
            scanned += self._counted(size)
            pfn += size
            if gives_up:
                self.putback()
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

    def _counted(self, pages: int) -> int:
        """No kernel function: return how many pages count as scanned of those stepped over."""
        return pages if self.run.rules.counts_stepped_over else 1

    def _is_too_large(self, folio: Folio) -> bool:
        """skip_isolation_on_order(): return whether a folio is stepped over whole."""
        if folio.order and not self.run.rules.moves_compound:
            return True
        order = self.run.aim.order
        return folio.order >= self.zone.blocks.order or (
            0 <= order <= folio.order and folio.order > 0
        )

    def _is_movable(self, folio: Folio) -> bool:
        """Part of isolate_migratepages_block(): return whether to take a folio."""
        return folio.on_lru and not self._is_too_large(folio)

    def _fast_find_migrateblock(self) -> int:
        """fast_find_migrateblock(): return where to go on, by a search of free lists."""
        run, place, control = self.run, self.place, self.run.control
        pfn = run.migrate
        if run.ignores_skips or not self._searches():
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
        found: int | None = None
        for order in range(run.aim.order - 1, run.gates.costly_order - 1, -1):
            if found is not None or scanned >= limit:
                break
            pages = self.zone.buddy.lists[order, Migratetype.MOVABLE]
            for each in list(pages):
                scanned += 1
                if scanned > limit:
                    pages.move_freelist_tail(each)
                    break
                if each < high and not place.is_skipped(each):
                    pages.move_freelist_tail(each)
                    found = each
                    break
        run.count("migrate", scanned)
        if found is None:
            control.search_fail += 1
            return self._reinit_migrate_pfn()
        if not self.went_back:
            self.lowest_found = min(self.lowest_found or found, found)
        control.search_fail = 0
        if run.rules.marks_found_sources:
            place.skip(found)
        return max(self.zone.blocks.start(found), place.first)

    def _searches(self) -> bool:
        """Part of fast_find_migrateblock(): return whether runs like this one search lists."""
        aim = self.run.aim
        if aim.order <= self.run.gates.costly_order:
            return False
        for_blocks = (
            self.run.options.rules.async_source_by_order and aim.order >= self.zone.blocks.order
        )
        return not aim.direct or aim.migratetype == Migratetype.MOVABLE or for_blocks

    def _reinit_migrate_pfn(self) -> int:
        """reinit_migrate_pfn(): go back, once, to the lowest page ever found."""
        if self.lowest_found and not self.went_back:
            self.run.migrate = self.lowest_found
            self.went_back = True
        return self.run.migrate
