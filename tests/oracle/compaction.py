"""Compaction of a zone: whether it is suitable, one run, and one of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tests.oracle.compaction_scan import Sources, Targets
from tests.oracle.fallback import find_suitable_fallback, should_try_claim_block
from tests.oracle.lru import ElasticMemory, Folio, Kind
from tests.oracle.machine import PMD_ORDER, Migratetype, Purpose, draw
from tests.oracle.request import PLAIN, Attempt, Mark, Request
from tests.oracle.rules import ElasticOptions, OracleRules
from tests.oracle.zone import Zone

DEFER_SHIFT_MAX = 6
WITH_CMA = Attempt(mark=Mark.MIN, cma=True)
"""Suitability is not the request's business; its targets may be in CMA blocks."""


class Result(IntEnum):
    """How compaction of a zone ended; a walk over zones has the highest."""

    SKIPPED = 1
    DEFERRED = 2
    CONTINUE = 4
    COMPLETE = 5
    PARTIAL_SKIPPED = 6
    CONTENDED = 7
    SUCCESS = 8


class Deferral:
    """How much a zone's compaction is put off after failures (S9.5).

    Attributes:
        considered: attempts that came since.
        shift: so many attempts are left out, as a power of two.
        order_failed: smallest order that failed.
    """

    def __init__(self, max_order: int) -> None:
        self.considered = 0
        self.shift = 0
        self.order_failed = max_order + 1

    def compaction_deferred(self, order: int) -> bool:
        """compaction_deferred(): count an attempt; returns whether to leave it out."""
        if order < self.order_failed:
            return False
        self.considered = min(self.considered + 1, 1 << self.shift)
        return self.considered < 1 << self.shift

    def defer_compaction(self, order: int) -> None:
        """defer_compaction(): leave out twice as many attempts."""
        self.considered = 0
        self.shift = min(self.shift + 1, DEFER_SHIFT_MAX)
        self.order_failed = min(self.order_failed, order)

    def compaction_defer_reset(self, order: int, *, allocated: bool) -> None:
        """compaction_defer_reset(): note that the order is there, or even handed out."""
        if allocated:
            self.considered = self.shift = 0
        if order >= self.order_failed:
            self.order_failed = order + 1

    def compaction_restarting(self, order: int) -> bool:
        """compaction_restarting(): return whether this attempt ends the longest delay."""
        longest = self.shift == DEFER_SHIFT_MAX and self.considered >= 1 << DEFER_SHIFT_MAX
        return order >= self.order_failed and longest


def block_pages(zone: Zone) -> int:
    """No kernel function: return the free pages in whole blocks that are not ISOLATE (S8.6)."""
    return sum(
        len(pages) << order
        for (order, migratetype), pages in zone.buddy.lists.items()
        if order >= zone.blocks.order and not zone.machine.is_isolate(migratetype)
    )


def fragmentation_index(zone: Zone, order: int) -> int:
    """fragmentation_index(): return a number near 1000 if free memory is in pieces (S9.2).

    It is near 0 if memory lacks.
    """
    sizes = [each for (each, _), pages in zone.buddy.lists.items() for _ in pages]
    if not sizes:
        return 0
    if max(sizes) >= order:
        return -1000
    free = sum(1 << each for each in sizes)
    return 1000 - (1000 + 1000 * free // (1 << order)) // len(sizes)


class Gates:
    """The questions asked before a zone is compacted."""

    def __init__(self, options: ElasticOptions, costly_order: int) -> None:
        self.options = options
        self.costly_order = costly_order

    def compaction_suitable(
        self, zone: Zone, order: int, highest: int, mark: Mark, free: int | None = None
    ) -> bool:
        """__compaction_suitable(): return whether enough single pages are, or would be, free."""
        marks = zone.watermarks
        is_costly = order > self.costly_order
        if self.options.rules.suitable_by_request_mark:
            pages = marks.wmark_pages(mark)
            if is_costly:
                pages += marks.raw(Mark.LOW) - marks.raw(Mark.MIN)
        else:
            pages = marks.wmark_pages(Mark.LOW if is_costly else Mark.MIN)
        if free is None:
            free = marks.buddy.counters.free.read()
        return marks.ok_with(free, 0, pages + self.options.gap(order), highest, WITH_CMA)

    def is_suitable(self, zone: Zone, order: int, highest: int, mark: Mark) -> bool:
        """Part of compaction_suit_allocation_order(): return whether pieces are to blame (S9.1)."""
        if not self.compaction_suitable(zone, order, highest, mark):
            return False
        if order <= self.costly_order:
            return True
        index = fragmentation_index(zone, order)
        return not 0 <= index <= self.options.extfrag_threshold

    def compaction_suit_allocation_order(
        self, zone: Zone, order: int, highest: int, attempt: Attempt, *, is_async: bool = False
    ) -> Result:
        """compaction_suit_allocation_order(): return whether to compact a zone.

        The order may be there already, or compaction might make it.
        """
        marks = zone.watermarks
        if marks.ok_at(order, attempt.mark, highest, attempt):
            return Result.SUCCESS
        looks_beside_cma = self.options.rules.suitable_beside_cma and is_async and not attempt.cma
        if looks_beside_cma and order > self.costly_order:
            pages = marks.wmark_pages(attempt.mark) + self.options.gap(order)
            if not marks.ok(0, pages, highest, PLAIN):
                return Result.SKIPPED
        if not self.is_suitable(zone, order, highest, attempt.mark):
            return Result.SKIPPED
        return Result.CONTINUE

    def suit_background(self, zone: Zone, order: int, highest: int) -> Result:
        """kcompactd_node_suitable(): return whether kcompactd should compact a zone (S8.6)."""
        if not self.options.block_watermarks:
            return self.compaction_suit_allocation_order(
                zone, order, highest, Attempt(mark=Mark.MIN)
            )
        if self.has_block_pages(zone, order, highest):
            return Result.SUCCESS
        suitable = self.is_suitable(zone, order, highest, Mark.HIGH)
        return Result.CONTINUE if suitable else Result.SKIPPED

    def has_block_pages(self, zone: Zone, order: int, highest: int) -> bool:
        """Part of compaction_suit_allocation_order(): return whether whole blocks suffice."""
        pages = zone.watermarks.wmark_pages(Mark.HIGH)
        attempt = Attempt(mark=Mark.HIGH)
        return zone.watermarks.ok_with(block_pages(zone), order, pages, highest, attempt)


class ZoneCompaction:
    """A zone's scanners between runs.

    Attributes:
        zone: the zone.
        deferral: see `Deferral`.
        sampled: every so many-th page of a block is looked at before its mark is cleared.
        migrate: cached position of the source scanner, by whether the run is synchronous.
        free: cached position of the target scanner.
        whole_from: a run whose source begins no higher is one of the whole zone.
        whole_to: a search for targets that begins no lower is one from the zone's end.
        skipped: first pages of blocks to leave out.
        flush: marks are cleared when kswapd goes to nap.
    """

    def __init__(self, zone: Zone, memory: ElasticMemory) -> None:
        self.zone = zone
        self.memory = memory
        self.sampled = 1 << zone.policy.costly_order
        self.deferral = Deferral(zone.machine.max_order)
        self.skipped: set[int] = set()
        self.flush = False
        self.migrate = {False: 0, True: 0}
        self.free = self.whole_from = self.whole_to = 0
        if zone.spec.managed:
            self.reset_cached_positions()
            self.whole_from, self.whole_to = self.first, self.last_block

    @property
    def first(self) -> int:
        """No kernel function: return the zone's first page."""
        return self.zone.spec.start_pfn

    @property
    def last_block(self) -> int:
        """No kernel function: return the first page of the zone's last block."""
        return self.zone.blocks.start(self.zone.spec.end_pfn - 1)

    def is_skipped(self, pfn: int) -> bool:
        """get_pageblock_skip(): return whether a page's block has the mark."""
        return self.zone.blocks.start(pfn) in self.skipped

    def skip(self, pfn: int) -> None:
        """set_pageblock_skip(): mark a page's block."""
        self.skipped.add(self.zone.blocks.start(pfn))

    def reset_cached_positions(self) -> None:
        """reset_cached_positions(): let both scanners start at their ends."""
        self.migrate = {False: self.first, True: self.first}
        self.free = self.last_block

    def reset_isolation_suitable(self) -> None:
        """__reset_isolation_suitable(): clear marks of blocks that might be of use.

        Scanners start anew at the outermost of them. Nothing happens unless `flush` is set.
        """
        if not self.flush:
            return
        self.flush = False
        low, high = self.first, self.zone.spec.end_pfn - 1
        source: int | None = None
        target: int | None = None
        while low < high:
            found = self._reset_isolation_pfn(low, source=True, target=source is not None)
            if found and source is None:
                source = self.whole_from = low
                self.migrate = {False: low, True: low}
            found = self._reset_isolation_pfn(high, source=target is not None, target=True)
            if found and target is None:
                target = self.whole_to = self.free = high
            low += self.zone.blocks.pages
            high -= self.zone.blocks.pages
        lowest = self.zone.spec.end_pfn - 1 if source is None else source
        highest = self.first if target is None else target
        if lowest >= highest:
            self.migrate = {False: low, True: low}
            self.free = high

    def holds_large_page(self, pfn: int) -> bool:
        """pageblock_skip_persistent(): return whether a page's block is one allocation's."""
        folio = self.memory.folio_around(pfn)
        return folio is not None and folio.order >= self.zone.blocks.order

    def _reset_isolation_pfn(self, pfn: int, *, source: bool, target: bool) -> bool:
        """__reset_isolation_pfn(): clear a block's mark if it may be a source, or a target."""
        blocks = self.zone.blocks
        if self.holds_large_page(pfn):
            return False
        if source and target and not self.is_skipped(pfn):
            return True
        if not source and blocks.type_of(pfn) != Migratetype.MOVABLE:
            return False
        begin = max(blocks.start(pfn), self.first)
        end = min(blocks.start(pfn) + blocks.pages, self.zone.spec.end_pfn)
        for each in range(begin, end, self.sampled):
            folio = self.memory.folio_around(each)
            is_source = source and folio is not None and folio.on_lru
            if is_source or (target and self.zone.buddy.at(each) is not None):
                self.skipped.discard(blocks.start(pfn))
                return True
        return False


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
    def rules(self) -> OracleRules:
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
        """Part of compact_zone(): move a cluster, or a block where a folio cannot be moved."""
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


@dataclass(frozen=True)
class Walk:
    """What compacting a zonelist came to.

    Attributes:
        result: the highest of its zones'.
        captured: the page taken as it came free.
    """

    result: Result
    captured: int | None = None


class DirectCompactor:
    """Compacts the zones a request may use until one has what it wants."""

    def __init__(
        self, places: Mapping[int, ZoneCompaction], memory: ElasticMemory, gates: Gates
    ) -> None:
        self.places = places
        self.memory = memory
        self.gates = gates

    def try_to_compact_pages(
        self,
        request: Request,
        attempt: Attempt,
        zonelist: Sequence[Zone],
        priority: Priority,
        order: int,
    ) -> Walk:
        """try_to_compact_pages(): compact zone after zone, but deferred ones (S9.5, S8.7)."""
        best = Result.SKIPPED
        for zone in zonelist:
            place = self.places[zone.index]
            if priority is not Priority.SYNC_FULL and place.deferral.compaction_deferred(order):
                best = max(best, Result.DEFERRED)
                self.memory.seen["deferred"] += 1
                continue
            result, captured = self._compact_zone_order(place, request, attempt, priority, order)
            best = max(best, result)
            if result is Result.SUCCESS:
                place.deferral.compaction_defer_reset(order, allocated=False)
                return Walk(best, captured)
            failed = result in (Result.COMPLETE, Result.PARTIAL_SKIPPED)
            if priority is not Priority.ASYNC and failed:
                place.deferral.defer_compaction(order)
        return Walk(best)

    def _compact_zone_order(
        self,
        place: ZoneCompaction,
        request: Request,
        attempt: Attempt,
        priority: Priority,
        order: int,
    ) -> tuple[Result, int | None]:
        """compact_zone_order(): compact one zone for a request."""
        gate = self.gates.compaction_suit_allocation_order(
            place.zone,
            order,
            request.highest_zone,
            attempt,
            is_async=priority is Priority.ASYNC,
        )
        if gate is not Result.CONTINUE:
            return gate, None
        aim = Aim(
            order=order,
            migratetype=request.migratetype,
            priority=priority,
            direct=True,
            may_use_cma=attempt.cma,
            capture_order=request.order,
            highest=request.highest_zone,
            cpu=request.cpu,
        )
        run = CompactionRun(place, aim, self.memory, self.gates, Control(order))
        return run.finish(), run.captured
