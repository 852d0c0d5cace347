"""One run of compaction over a zone, unit by unit (S9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from tests.oracle.compaction_gates import Gates, Result
from tests.oracle.compaction_targets import Targets
from tests.oracle.compaction_zone import ZoneCompaction
from tests.oracle.draws import Purpose, draw
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.elastic_options import ElasticOptions
from tests.oracle.fallback import find_suitable_fallback, should_try_claim_block
from tests.oracle.folios import Folio, Kind
from tests.oracle.machine import PMD_ORDER, Migratetype

CLUSTER = 32
"""Pages isolated at a time."""
LEAST_COST_NS = 1000
"""Least time of a unit."""


class Priority(IntEnum):
    """How hard compaction tries; the lower the harder."""

    SYNC_FULL = 0
    SYNC_LIGHT = 1
    ASYNC = 2


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What a run is for.

    Attributes:
        order: wanted; -1 to compact the whole zone.
        migratetype: of the request.
        priority: see `Priority`.
        direct: a request waits for it.
        highest: highest type of zone of the request.
        cpu: who works.
        captures: the request gets a page of this order at once if the run frees one (S9.7).
    """

    order: int
    migratetype: int
    priority: Priority
    direct: bool
    highest: int
    cpu: int
    captures: bool = False

    @property
    def is_proactive(self) -> bool:
        """No kernel function: return whether nobody asked for the run."""
        return self.order < 0


def fragmentation_score_zone(zone: object, options: ElasticOptions) -> int:
    """fragmentation_score_zone(): return the percent of free pages no huge page can use (S9.6).

    Those on HIGHATOMIC lists may be left out (S9.10).
    """
    left_out = Migratetype.HIGHATOMIC if options.score_without_highatomic else None
    sizes = [
        (order, len(pages) << order)
        for (order, migratetype), pages in zone.buddy.lists.items()
        if migratetype != left_out
    ]
    free = sum(size for _, size in sizes)
    huge = sum(size for order, size in sizes if order >= PMD_ORDER)
    return (free - huge) * 100 // free if free else 0


class CompactionRun:
    """Moves folios from a zone's low end to free pages at its high end.

    Attributes:
        result: how it ended; None while it goes on.
        captured: the page that the request gets at once.
        cost_ns: time of the last unit.
    """

    def __init__(
        self,
        place: ZoneCompaction,
        aim: Aim,
        memory: ElasticMemory,
        gates: Gates,
        *,
        kswapd_runs: Callable[[], bool] = bool,
    ) -> None:
        self.place = place
        self.zone = place.zone
        self.aim = aim
        self.memory = memory
        self.options = memory.options
        self.gates = gates
        self.kswapd_runs = kswapd_runs
        self.captured: int | None = None
        self.result: Result | None = None
        self.cost_ns = 0
        self.last_migrated: int | None = None
        self.block_pages = self.zone.blocks.pages
        if not aim.is_proactive and place.deferral.compaction_restarting(aim.order):
            place.reset_isolation_suitable()
        self._set_positions()
        self.targets = Targets(self)

    @property
    def ignores_skips(self) -> bool:
        """isolation_suitable(): return whether blocks left out are looked at again."""
        return self.aim.priority is Priority.SYNC_FULL or self.aim.is_proactive

    def step(self) -> Result | None:
        """Part of compact_zone(): do one unit; returns how the run ended, or None."""
        self.cost_ns = 0
        self.memory.act_as(self.aim.cpu)
        self._drains = False
        if self._is_past_last_migrated() and self.aim.captures:
            self._compaction_capture(self.last_migrated)
        if self._is_past_last_migrated():
            self.last_migrated = None
        if self.result is None:
            self.result = self._compact_finished()
        if self.result is None:
            self._take_unit()
            self.cost_ns = max(self.cost_ns, LEAST_COST_NS)
        if self.result is not None:
            self.targets.release()
        if self._drains:
            self.memory.drain(self.zone, self.aim.cpu)
        return self.result

    def finish(self) -> Result:
        """compact_zone(): do all units; returns how the run ended."""
        while self.result is None:
            self.step()
        return self.result

    def count(self, scanner: str, pages: int) -> None:
        """No kernel function: count pages looked at."""
        self.memory.counts[f"compact_{scanner}_scanned"] += pages
        if not self.aim.direct:
            self.memory.counts[f"compact_daemon_{scanner}_scanned"] += pages
        self.cost_ns += pages * self.options.compact_scan_ns

    def _set_positions(self) -> None:
        """Part of compact_zone(): set where the scanners begin."""
        place, spec = self.place, self.zone.spec
        if self.aim.is_proactive or self.aim.priority is Priority.SYNC_FULL:
            self.whole = True
            self.migrate, self.free = place.first_block, place.last_block
            return
        sync = self.aim.priority is not Priority.ASYNC
        if not place.first_block <= place.free < spec.end_pfn:
            place.free = place.last_block
        if not place.first_block <= place.migrate[sync] < spec.end_pfn:
            place.migrate = {False: place.first_block, True: place.first_block}
        self.migrate, self.free = place.migrate[sync], place.free
        self.whole = self.migrate == place.first_block

    @property
    def compact_scanners_met(self) -> bool:
        """compact_scanners_met(): return whether no block lies between the scanners."""
        order = self.zone.blocks.order
        return self.free >> order <= self.migrate >> order

    def _compact_finished(self) -> Result | None:
        """__compact_finished(): return how the run ended, None if it goes on."""
        if self.compact_scanners_met:
            self.place.reset_cached_positions()
            if self.aim.direct:
                self.place.flush = True
            return Result.COMPLETE if self.whole else Result.PARTIAL_SKIPPED
        if self.aim.is_proactive:
            if self.kswapd_runs():
                return Result.PARTIAL_SKIPPED
            low = max(100 - self.options.proactiveness, 5)
            score = fragmentation_score_zone(self.zone, self.options)
            return Result.SUCCESS if score <= low else None
        if self.migrate % self.block_pages:
            return None
        if not self.aim.direct and self.options.block_watermarks:
            met = self.gates.has_block_pages(self.zone, self.aim.order, self.aim.highest)
            return Result.SUCCESS if met else None
        return Result.SUCCESS if self._has_page() else None

    def _has_page(self) -> bool:
        """Part of __compact_finished(): return whether the request can get a page."""
        buddy, wanted = self.zone.buddy, self.aim.migratetype
        for order in range(self.aim.order, buddy.max_order + 1):
            if not buddy.is_empty(order, wanted):
                return True
            if wanted == Migratetype.MOVABLE and buddy.has_cma(order):
                return True
            may_claim = should_try_claim_block(buddy, order, wanted)
            if may_claim and find_suitable_fallback(buddy, order, wanted) is not None:
                return True
        return False

    def _is_contended(self) -> bool:
        """No kernel function: draw; returns whether the run gives way to others."""
        if not (self.aim.direct and self.aim.priority is Priority.ASYNC):
            return False
        block = self.migrate >> self.zone.blocks.order
        drawn = draw(self.options.seed, block, Purpose.CONTENDS, self.memory.requests)
        return drawn < self.options.compaction_contended_per_mille

    def _take_unit(self) -> None:
        """Part of compact_zone(): isolate the next unit and move it."""
        if self._is_contended():
            self.result = Result.CONTENDED
            return
        freed: list[tuple[int, int]] = []
        lacking = self._migrate_pages(self._isolate_migratepages(), freed)
        for pfn, order in freed:
            self.memory.free_pages(self.aim.cpu, pfn, order)
        self._drains = self._is_past_last_migrated()
        if lacking and not self.compact_scanners_met:
            self.result = Result.CONTENDED

    def _isolate_migratepages(self) -> list[Folio]:
        """isolate_migratepages(): take folios of the next block off their lists.

        The position moves behind them.
        """
        if not self._find_source_block():
            return []
        start = self.zone.blocks.start(self.migrate)
        begun_at = self.migrate
        end = min(start + self.block_pages, self.zone.spec.end_pfn)
        sources, pages, scanned = [], 0, 0
        pfn = max(self.migrate, self.zone.spec.start_pfn)
        while pfn < end and pages < CLUSTER:
            size, folio = self._look_at(pfn)
            scanned += size
            pfn += size
            if folio is not None:
                sources.append(folio)
                pages += folio.size
                self.memory.lru_of(folio).remove(folio)
        self.migrate = start + self.block_pages if pfn >= end else pfn
        self.count("migrate", scanned)
        self.memory.counts["compact_isolated"] += pages
        if not sources and begun_at == start and pfn >= end:
            self.place.skipped.add(start)
        self._update_cached_migrate()
        return sources

    def _update_cached_migrate(self) -> None:
        """update_cached_migrate(): note where the next run of the kind begins."""
        self.place.migrate[False] = max(self.place.migrate[False], self.migrate)
        if self.aim.priority is not Priority.ASYNC:
            self.place.migrate[True] = max(self.place.migrate[True], self.migrate)

    def _find_source_block(self) -> bool:
        """Part of isolate_migratepages(): go on to the next block to look at.

        Returns False if the scanners meet first.
        """
        while not self.compact_scanners_met:
            at_start = self.migrate % self.block_pages == 0
            if not at_start or self._suitable_migration_source(self.migrate):
                return True
            self.migrate += self.block_pages
        return False

    def _suitable_migration_source(self, start: int) -> bool:
        """suitable_migration_source(): return whether to look into a block."""
        if start in self.place.skipped and not self.ignores_skips:
            return False
        size, _ = self._look_at(start)
        if size >= self.block_pages:
            return False
        if not (self.aim.direct and self.aim.priority is Priority.ASYNC):
            return True
        found = self.zone.blocks.type_of(start)
        movable = found in (Migratetype.MOVABLE, self.zone.machine.cma)
        takes_movable = self.aim.migratetype == Migratetype.MOVABLE or (
            self.options.rules.async_source_by_order and self.aim.order >= self.zone.blocks.order
        )
        return movable if takes_movable else found == self.aim.migratetype

    def _look_at(self, pfn: int) -> tuple[int, Folio | None]:
        """Part of isolate_migratepages_block(): return pages to go on by, and a folio.

        It is the folio to take, if it may be.
        """
        buddy = self.zone.buddy.at(pfn)
        if buddy is not None:
            return 1 << buddy.order, None
        folio = self.memory.folios.get(pfn)
        if folio is None:
            return 1, None
        most = self.zone.blocks.order
        if self.aim.order >= 0:
            most = min(most, self.aim.order)
        return folio.size, folio if folio.on_lru and folio.order < most else None

    def _migrate_pages(self, sources: list[Folio], freed: list[tuple[int, int]]) -> bool:
        """migrate_pages(): move isolated folios; returns whether free pages ran out."""
        left = sum(folio.size for folio in sources)
        lacking = False
        for folio in sources:
            target = None
            if not lacking and not self._fails(folio):
                target = self.targets.take(folio.order, left)
                lacking = target is None and not self.targets.pages
            left -= folio.size
            if target is not None:
                freed.append((folio.pfn, folio.order))
                self.last_migrated = folio.pfn
                self.memory.move(folio, target)
                self.memory.counts["pgmigrate_success"] += folio.size
                self.cost_ns += folio.size * self.options.compact_migrate_ns
                continue
            self.memory.lru_of(folio).lruvec_add_folio(folio)
            if not lacking:
                self.memory.counts["pgmigrate_fail"] += folio.size
        return lacking

    def _fails(self, folio: Folio) -> bool:
        """Part of migrate_pages(): draw; returns whether an attempt fails."""
        shares = {
            Kind.ANON: self.options.anon_migration_fails_per_mille,
            Kind.FILE: self.options.file_migration_fails_per_mille,
        }
        return folio.happens(Purpose.MIGRATES, shares[folio.kind], self.options.seed)

    def _is_past_last_migrated(self) -> bool:
        """Part of compact_zone(): return whether the scanner left a range (S9.7).

        It is the aligned range of what moved last.
        """
        order = self.aim.order
        if order <= 0 or self.last_migrated is None:
            return False
        return self.last_migrated >> order < self.migrate >> order

    def _compaction_capture(self, pfn: int) -> None:
        """compaction_capture(): take the free aligned page around a page (S9.7).

        The page has moved away.
        """
        buddy = self.zone.buddy
        start = pfn & ~((1 << self.aim.order) - 1)
        for order in range(self.aim.order, buddy.max_order + 1):
            first = start & ~((1 << order) - 1)
            found = buddy.at(first)
            if found is not None and found.order == order and self._may_capture(first):
                buddy.take_range(first, start, self.aim.order)
                self.zone.note_taken(start, self.aim.order)
                self.captured = start
                self.memory.seen["captured"] += 1
                self.result = Result.SUCCESS
                return

    def _may_capture(self, pfn: int) -> bool:
        """Part of compaction_capture(): return whether the run may have the page."""
        found = self.zone.blocks.type_of(pfn)
        if found == self.zone.machine.cma or self.zone.machine.is_isolate(found):
            return False
        own = found != Migratetype.MOVABLE or self.aim.migratetype == Migratetype.MOVABLE
        return own or self.aim.order >= self.zone.blocks.order
