"""The free pages that compaction moves folios to (S9.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.machine import Migratetype
from tests.oracle.request import Attempt, Mark

if TYPE_CHECKING:
    from tests.oracle.compaction_run import CompactionRun


class Targets:
    """Free pages taken off the lists, by order; the last one put there is used first.

    Attributes:
        held: first pages by order.
    """

    def __init__(self, run: CompactionRun) -> None:
        self.run = run
        self.zone = run.zone
        self.held: dict[int, list[int]] = {
            order: [] for order in range(self.zone.machine.max_order + 1)
        }

    @property
    def pages(self) -> int:
        """No kernel function: return the number of pages held."""
        return sum(len(each) << order for order, each in self.held.items())

    def take(self, order: int, wanted: int) -> int | None:
        """compaction_alloc(): return a target of an order, or None.

        It scans on if none is held, for as many pages as are to move.
        """
        pfn = self._take_held(order)
        if pfn is None:
            self._isolate_freepages(wanted)
            pfn = self._take_held(order)
        return pfn

    def release(self) -> None:
        """release_free_list(): free what is held, note where the next run may begin.

        The run is over.
        """
        highest = None
        for order, pages in self.held.items():
            while pages:
                pfn = pages.pop()
                highest = pfn if highest is None else max(highest, pfn)
                self.run.memory.free_target(self.run.aim.cpu, pfn, order)
        if highest is not None:
            start = self.zone.blocks.start(highest)
            self.run.place.free = max(self.run.place.free, start)

    def _take_held(self, order: int) -> int | None:
        """Part of compaction_alloc(): return a target of those held, or None."""
        for have in range(order, self.zone.machine.max_order + 1):
            if self.held[have]:
                pfn = self.held[have].pop()
                while have > order:
                    have -= 1
                    self.held[have].append(pfn + (1 << have))
                return pfn
        return None

    def _isolate_freepages(self, wanted: int) -> None:
        """isolate_freepages(): take the free pages of block after block, downwards."""
        run = self.run
        allowed = True
        while allowed and self.pages < wanted and not run.compact_scanners_met:
            if self._suitable_migration_target(run.free):
                allowed = self._isolate_freepages_block(run.free)
            if allowed:
                run.free -= run.block_pages
        run.place.free = min(run.place.free, run.free)

    def _suitable_migration_target(self, start: int) -> bool:
        """suitable_migration_target(): return whether to take pages of a block."""
        run = self.run
        if start in run.place.skipped and not run.ignores_skips:
            return False
        buddy = self.zone.buddy.at(start)
        too_large = run.aim.order if run.aim.order > 0 else self.zone.blocks.order
        if buddy is not None and buddy.order >= too_large:
            return False
        found = self.zone.blocks.type_of(start)
        return found in (Migratetype.MOVABLE, self.zone.machine.cma)

    def _isolate_freepages_block(self, start: int) -> bool:
        """isolate_freepages_block(): take a block's free buddies.

        Returns False once the watermark forbids it.
        """
        run, zone = self.run, self.zone
        pfn = max(start, zone.spec.start_pfn)
        end = min(start + run.block_pages, zone.spec.end_pfn)
        taken = scanned = 0
        allowed = True
        while pfn < end:
            buddy = zone.buddy.at(pfn)
            size = 1 if buddy is None else 1 << buddy.order
            scanned += size
            pfn += size
            if buddy is None:
                continue
            allowed = self._may_take(size)
            if not allowed:
                break
            zone.buddy.take(pfn - size, buddy.order)
            self.held[buddy.order].append(pfn - size)
            taken += size
        run.count("free", scanned)
        run.memory.counts["compact_isolated"] += taken
        if allowed and not taken:
            run.place.skipped.add(start)
        return allowed

    def _may_take(self, size: int) -> bool:
        """Part of __isolate_free_page(): return whether the mark lets pages go."""
        marks = self.zone.watermarks
        return marks.ok(0, marks.raw(Mark.MIN) + size, 0, Attempt(mark=Mark.MIN, cma=True))
