"""One run of compaction over a zone, unit by unit (S9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from tests.oracle.compaction_gates import Gates, Result
from tests.oracle.compaction_sources import Sources
from tests.oracle.compaction_targets import Targets
from tests.oracle.compaction_zone import ZoneCompaction
from tests.oracle.draws import Purpose, draw
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.elastic_options import CompactionRules, ElasticOptions
from tests.oracle.fallback import find_suitable_fallback, should_try_claim_block
from tests.oracle.folios import Folio, Kind
from tests.oracle.machine import PMD_ORDER, Migratetype

LEAST_COST_NS = 1000
"""Least time of a unit."""
SCANNED_MOST = 32
"""Pages that a search of free lists looks at, before any failed."""


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
        may_use_cma: the request may be served from CMA blocks.
        capture_order: the request gets a page of this order at once if the run frees one (S9.7);
            None: it captures nothing.
    """

    order: int
    migratetype: int
    priority: Priority
    direct: bool
    highest: int
    cpu: int
    may_use_cma: bool = True
    capture_order: int | None = None

    @property
    def is_proactive(self) -> bool:
        """No kernel function: return whether nobody asked for the run."""
        return self.order < 0


@dataclass
class Control:
    """What stays with who compacts zone after zone (S9.3).

    Attributes:
        search_order: order whose list served the last search for targets.
        search_fail: searches in vain, one after the other.
        whole: a run was of a whole zone; the next ones begin at the ends too.
    """

    search_order: int
    search_fail: int = 0
    whole: bool = False

    @property
    def scan_limit(self) -> int:
        """freelist_scan_limit(): return the pages that a search may look at."""
        return (SCANNED_MOST >> self.search_fail) + 1


@dataclass
class Capture:
    """A request's wish for a page that is being freed (S9.7).

    Attributes:
        order: of the request.
        migratetype: of the request.
        block_order: order of a pageblock.
        from_movable: a MOVABLE request may have pages of MOVABLE blocks.
        pfn: the page it got.
    """

    order: int
    migratetype: int
    block_order: int
    from_movable: bool
    pfn: int | None = None

    def wants(self, order: int, migratetype: int) -> bool:
        """compaction_capture(): return whether a page of an order and type is taken.

        Types that nobody may have are left out by the caller.
        """
        if self.pfn is not None or order != self.order:
            return False
        if migratetype != Migratetype.MOVABLE or order >= self.block_order:
            return True
        return self.from_movable and self.migratetype == Migratetype.MOVABLE


def proactive_marks(options: ElasticOptions) -> tuple[int, int]:
    """fragmentation_score_wmark(): return the lower and upper score of proactive runs (S9.6)."""
    low = 100 - options.proactiveness
    if options.rules.proactive_leeway_shrinks:
        return low, min(low + min(10, low // 2), 100)
    low = max(low, 5)
    return low, min(low + 10, 100)


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
        migrate: where the source scanner is.
        free: where the target scanner is.
        finishes_block: the source scanner takes all of its block at once.
        is_contended: the run met others at a lock, and is to give way.
        capture: what the request gets at once.
        cost_ns: time of the last unit.
    """

    def __init__(
        self,
        place: ZoneCompaction,
        aim: Aim,
        memory: ElasticMemory,
        gates: Gates,
        control: Control,
        *,
        kswapd_runs: Callable[[], bool] = bool,
    ) -> None:
        self.place = place
        self.zone = place.zone
        self.aim = aim
        self.memory = memory
        self.options = memory.options
        self.gates = gates
        self.control = control
        self.kswapd_runs = kswapd_runs
        self.result: Result | None = None
        self.cost_ns = 0
        self.last_migrated = 0
        self.finishes_block = False
        self.is_contended = False
        self.capture: Capture | None = None
        self.block_pages = self.zone.blocks.pages
        if not aim.is_proactive and place.deferral.compaction_restarting(aim.order):
            place.reset_isolation_suitable()
        self._set_positions()
        self.keeps_equal = self.is_async and place.migrate[False] == place.migrate[True]
        self.sources = Sources(self)
        self.targets = Targets(self)
        if aim.capture_order is not None:
            self.capture = Capture(
                aim.capture_order,
                aim.migratetype,
                self.zone.blocks.order,
                self.rules.captures_movable,
            )

    @property
    def rules(self) -> CompactionRules:
        """No kernel function: return how the kernel differs from others."""
        return self.options.rules

    @property
    def is_async(self) -> bool:
        """No kernel function: return whether the run waits for nothing."""
        return self.aim.priority is Priority.ASYNC

    @property
    def ignores_skips(self) -> bool:
        """No kernel function: return whether blocks left out are looked at again."""
        return self.takes_any_block or self.aim.is_proactive

    @property
    def takes_any_block(self) -> bool:
        """No kernel function: return whether targets may be in blocks of any type."""
        return self.aim.priority is Priority.SYNC_FULL

    @property
    def captured(self) -> int | None:
        """No kernel function: return the page that the request got at once."""
        return None if self.capture is None else self.capture.pfn

    def isolation_suitable(self, pfn: int) -> bool:
        """isolation_suitable(): return whether a page's block is looked at."""
        return self.ignores_skips or not self.place.is_skipped(pfn)

    def step(self) -> Result | None:
        """Part of compact_zone(): do one unit; returns how the run ended, or None."""
        self.cost_ns = 0
        self.memory.act_as(self.aim.cpu)
        self.zone.buddy.capture = self.capture
        self.result = self._compact_finished()
        if self.result is None:
            self._take_unit()
        if self.result is None:
            self._drain_behind()
            if self.captured is not None and not self.rules.captured_before_drain:
                self.result = Result.SUCCESS
        if self.result is not None:
            self.targets.release_free_list()
        self.zone.buddy.capture = None
        self.cost_ns = max(self.cost_ns, LEAST_COST_NS)
        if self.captured is not None and self.result is not None:
            self.memory.seen["captured"] += 1
            self.zone.note_taken(self.captured, self.capture.order)
            self.result = Result.SUCCESS
        return self.result

    def finish(self) -> Result:
        """compact_zone(): do all units; returns how the run ended."""
        while self.result is None:
            self.step()
        return self.result

    def count(self, scanner: str, pages: int) -> None:
        """No kernel function: count pages looked at."""
        self.memory.counts[f"compact_{scanner}_scanned"] += pages
        if not self.aim.direct and (self.rules.counts_proactive or not self.aim.is_proactive):
            self.memory.counts[f"compact_daemon_{scanner}_scanned"] += pages
        self.cost_ns += pages * self.options.compact_scan_ns

    def _set_positions(self) -> None:
        """Part of compact_zone(): set where the scanners begin."""
        place, spec = self.place, self.zone.spec
        if self.control.whole or self.ignores_skips:
            self.control.whole = True
            self.migrate, self.free = place.first, place.last_block
            return
        if not spec.start_pfn <= place.free < spec.end_pfn:
            place.free = place.last_block
        if not spec.start_pfn <= place.migrate[not self.is_async] < spec.end_pfn:
            place.migrate = {False: place.first, True: place.first}
        self.migrate, self.free = place.migrate[not self.is_async], place.free
        if self.migrate <= place.whole_from:
            self.control.whole = True

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
            return Result.COMPLETE if self.control.whole else Result.PARTIAL_SKIPPED
        if self.aim.is_proactive:
            if self.kswapd_runs():
                return Result.PARTIAL_SKIPPED
            low, _ = proactive_marks(self.options)
            score = fragmentation_score_zone(self.zone, self.options)
            return Result.SUCCESS if score <= low else None
        if self.migrate % self.block_pages:
            return None
        if not self.aim.direct and self.options.block_watermarks:
            met = self.gates.has_block_pages(self.zone, self.aim.order, self.aim.highest)
            return Result.SUCCESS if met else None
        if self._has_page():
            return Result.SUCCESS
        return Result.CONTENDED if self.is_contended else None

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

    def lock(self, pfn: int) -> None:
        """compact_lock_irqsave(): draw; notes whether the run meets others at a lock."""
        if self.is_async and not self.is_contended:
            block = pfn >> self.zone.blocks.order
            drawn = draw(self.options.seed, block, Purpose.CONTENDS, self.memory.requests)
            self.is_contended = drawn < self.options.compaction_contended_per_mille

    def _take_unit(self) -> None:
        """Part of compact_zone(): isolate the next cluster and move it.

        If a folio cannot be moved, the rest of its block follows at once.
        """
        blocks = self.zone.blocks
        self.finishes_block = blocks.start(self.last_migrated) == blocks.start(self.migrate)
        while True:
            began = self.migrate
            self.sources.isolate()
            folios = self.sources.take()
            if not folios:
                if self.keeps_equal:
                    self.place.migrate[True] = self.place.migrate[False]
                return
            self.keeps_equal = False
            self.last_migrated = began
            if self.rules.moved_from_end:
                self.last_migrated = max(self.place.first, blocks.start(self.migrate - 1))
            failed, lacking = self._migrate_pages(folios)
            if lacking and not self.compact_scanners_met:
                self.result = Result.CONTENDED
                return
            if not self.rules.finishes_failed_blocks:
                if failed and self.aim.direct and self.is_async:
                    self._leave_range()
                break
            is_inside = self.migrate % self.block_pages != 0
            if not (failed and is_inside) or self.ignores_skips or self.finishes_block:
                break
            self.finishes_block = True
            if self.aim.order == PMD_ORDER:
                self.last_migrated = 0
        if self.captured is not None and self.rules.captured_before_drain:
            self.result = Result.SUCCESS

    def _leave_range(self) -> None:
        """Part of compact_zone(): go on behind the order-aligned range looked at last."""
        size = 1 << self.aim.order
        self.migrate = (self.migrate - 1) // size * size + size
        self.last_migrated = 0

    def _migrate_pages(self, folios: list[Folio]) -> tuple[bool, bool]:
        """migrate_pages(): move isolated folios.

        Returns whether some was not moved, and whether targets lacked.
        """
        self.targets.waiting = sum(folio.size for folio in folios)
        found: list[int] = []
        for folio in folios:
            target = self.targets.compaction_alloc(folio.order)
            if target is None:
                break
            found.append(target)
        lacking = len(found) < len(folios)
        failed = lacking
        freed = []
        for folio, target in zip(folios, found, strict=False):
            if self._cannot_move(folio):
                failed = True
                self.memory.lru_of(folio).lruvec_add_folio(folio)
                self.targets.compaction_free(target, folio.order)
                self.memory.counts["pgmigrate_fail"] += folio.size
                continue
            freed.append((folio.pfn, folio.order))
            self.memory.move(folio, target)
            self.memory.counts["pgmigrate_success"] += folio.size
            self.cost_ns += folio.size * self.options.compact_migrate_ns
        for folio in folios[len(found) :]:
            self.memory.lru_of(folio).lruvec_add_folio(folio)
        if lacking:
            self.memory.counts["pgmigrate_fail"] += folios[len(found)].size
        for pfn, order in freed:
            self.memory.free_pages(self.aim.cpu, pfn, order)
        return failed, lacking

    def _cannot_move(self, folio: Folio) -> bool:
        """Part of migrate_pages(): return whether a folio stays where it is."""
        shares = {
            Kind.ANON: self.options.anon_migration_fails_per_mille,
            Kind.FILE: self.options.file_migration_fails_per_mille,
        }
        return folio.cannot_move(shares[folio.kind], self.options.seed)

    def _drain_behind(self) -> None:
        """Part of compact_zone(): drain the CPU's lists once the range moved from lies behind."""
        order = self.aim.order
        if order > 0 and 0 < self.last_migrated < self.migrate >> order << order:
            self.memory.drain(self.zone, self.aim.cpu)
            self.last_migrated = 0
