"""Compaction of a zone: whether it is suitable, one run, and one of a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from tests.oracle.buddy import Capture
from tests.oracle.compaction_scan import Sources, Targets
from tests.oracle.fallback import find_suitable_fallback, should_try_claim_block
from tests.oracle.lru import ElasticMemory, Folio
from tests.oracle.machine import PMD_ORDER, Migratetype, Purpose, draw
from tests.oracle.request import PLAIN, Attempt, Mark, Request
from tests.oracle.rules import ElasticOptions
from tests.oracle.zone import Zone

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle

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


FAILED = (Result.COMPLETE, Result.PARTIAL_SKIPPED)  # a run came to its end and made nothing


class Deferral:
    """How much a zone's compaction is put off after failures (S9.5)."""

    def __init__(self, max_order: int) -> None:
        self.considered = 0  # attempts that came since
        self.shift = 0  # so many attempts are left out, as a power of two
        self.order_failed = max_order + 1  # smallest order that failed

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
    """The free pages in whole blocks that are not ISOLATE (S8.6)."""
    return sum(
        len(pages) << order
        for (order, migratetype), pages in zone.buddy.lists.items()
        if order >= zone.blocks.order and not zone.machine.is_isolate(migratetype)
    )


def _free_orders(zone: Zone, *, without_highatomic: bool) -> list[int]:
    """Orders of the free buddies; those on HIGHATOMIC lists may be left out (S9.10)."""
    left_out = Migratetype.HIGHATOMIC if without_highatomic else None
    lists = zone.buddy.lists.items()
    return [order for (order, kind), pages in lists if kind != left_out for _ in pages]


def fragmentation_index(zone: Zone, order: int, *, without_highatomic: bool = False) -> int:
    """fragmentation_index(): return a number near 1000 if free memory is in pieces (S9.2).

    It is near 0 if memory lacks.
    """
    orders = _free_orders(zone, without_highatomic=without_highatomic)
    if not orders:
        return 0
    if max(orders) >= order:
        return -1000
    free = sum(1 << size for size in orders)
    return 1000 - (1000 + 1000 * free // (1 << order)) // len(orders)


def fragmentation_score_zone(zone: Zone, options: ElasticOptions) -> int:
    """fragmentation_score_zone(): return the percent of free pages no huge page can use (S9.6)."""
    orders = _free_orders(zone, without_highatomic=options.score_without_highatomic)
    free = sum(1 << order for order in orders)
    huge = sum(1 << order for order in orders if order >= PMD_ORDER)
    return (free - huge) * 100 // free if free else 0


class Gates:
    """The questions asked before a zone is compacted."""

    def __init__(self, oracle: ElasticOracle) -> None:
        self.options = oracle.options
        self.rules = oracle.rules
        self.costly_order = oracle.policy.costly_order

    def compact_gap(self, order: int) -> int:
        """compact_gap(): return the free pages wanted beside the watermark (S9.1)."""
        given = self.options.compact_gap
        cap = self.rules.gap_cap if given is None else given
        return min(2 << order, cap) if cap else 2 << order

    def compaction_suitable(
        self, zone: Zone, order: int, highest: int, mark: Mark, free: int | None = None
    ) -> bool:
        """__compaction_suitable(): return whether enough single pages are, or would be, free."""
        marks = zone.watermarks
        is_costly = order > self.costly_order
        if self.rules.suitable_by_request_mark:
            pages = marks.wmark_pages(mark)
            if is_costly:
                pages += marks.raw(Mark.LOW) - marks.raw(Mark.MIN)
        else:
            pages = marks.wmark_pages(Mark.LOW if is_costly else Mark.MIN)
        return marks.ok(0, pages + self.compact_gap(order), highest, WITH_CMA, free)

    def is_suitable(self, zone: Zone, order: int, highest: int, mark: Mark) -> bool:
        """Part of compaction_suit_allocation_order(): return whether pieces are to blame (S9.1)."""
        if not self.compaction_suitable(zone, order, highest, mark):
            return False
        if order <= self.costly_order:
            return True
        index = fragmentation_index(
            zone, order, without_highatomic=self.options.index_without_highatomic
        )
        return not 0 <= index <= self.options.extfrag_threshold

    def compaction_suit_allocation_order(
        self, zone: Zone, order: int, highest: int, attempt: Attempt, *, is_async: bool = False
    ) -> Result:
        """compaction_suit_allocation_order(): return whether to compact a zone.

        The order may be there already, or compaction might make it.
        """
        marks = zone.watermarks
        if marks.ok(order, attempt.mark, highest, attempt):
            return Result.SUCCESS
        looks_beside_cma = self.rules.suitable_beside_cma and is_async and not attempt.cma
        if looks_beside_cma and order > self.costly_order:
            pages = marks.wmark_pages(attempt.mark) + self.compact_gap(order)
            if not marks.ok(0, pages, highest, PLAIN):
                return Result.SKIPPED
        suitable = self.is_suitable(zone, order, highest, attempt.mark)
        return Result.CONTINUE if suitable else Result.SKIPPED

    def suits_background(self, zone: Zone, order: int, highest: int) -> bool:
        """kcompactd_node_suitable(): return whether kcompactd should compact a zone (S8.6)."""
        if self.options.block_watermarks:
            has_order = self.has_block_pages(zone, order, highest)
            return not has_order and self.is_suitable(zone, order, highest, Mark.HIGH)
        attempt = Attempt(mark=Mark.MIN)
        suit = self.compaction_suit_allocation_order(zone, order, highest, attempt)
        return suit is Result.CONTINUE

    def has_block_pages(self, zone: Zone, order: int, highest: int) -> bool:
        """Part of compaction_suit_allocation_order(): return whether whole blocks suffice."""
        return zone.watermarks.ok(order, Mark.HIGH, highest, PLAIN, block_pages(zone))


class ZoneCompaction:
    """A zone's scanners between runs.

    Attributes:
        first: the zone's first page.
        last_block: first page of its last block.
        migrate: cached position of the source scanner, by whether the run is synchronous.
        free: cached position of the target scanner.
        whole_from: a run whose source begins no higher is one of the whole zone.
        whole_to: a search for targets that begins no lower is one from the zone's end.
    """

    def __init__(self, zone: Zone, memory: ElasticMemory) -> None:
        self.zone = zone  # the zone
        self.memory = memory
        self.deferral = Deferral(zone.machine.max_order)  # see `Deferral`
        self.skipped: set[int] = set()  # first pages of blocks to leave out
        self.flush = False  # marks are cleared when kswapd goes to nap
        self.first = self.last_block = self.free = 0
        self.migrate = {False: 0, True: 0}
        if zone.spec.managed:
            self.first = zone.spec.start_pfn
            self.last_block = zone.blocks.start(zone.spec.end_pfn - 1)
            self.reset_cached_positions()
        self.whole_from, self.whole_to = self.first, self.last_block

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
            is_reset = self._reset_isolation_pfn(low, source=True, target=source is not None)
            if is_reset and source is None:
                source = self.whole_from = low
                self.migrate = {False: low, True: low}
            is_reset = self._reset_isolation_pfn(high, source=target is not None, target=True)
            if is_reset and target is None:
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
        """__reset_isolation_pfn(): clear a block's mark if it may be a source, or a target.

        Some pages of the block are looked at, as far apart as the costly order.
        """
        blocks = self.zone.blocks
        if self.holds_large_page(pfn):
            return False
        if source and target and not self.is_skipped(pfn):
            return True
        if not source and blocks.type_of(pfn) != Migratetype.MOVABLE:
            return False
        begin = max(blocks.start(pfn), self.first)
        end = min(blocks.start(pfn) + blocks.pages, self.zone.spec.end_pfn)
        for page in range(begin, end, 1 << self.zone.policy.costly_order):
            folio = self.memory.folio_around(page)
            is_source = source and folio is not None and folio.on_lru
            if is_source or (target and self.zone.buddy.at(page) is not None):
                self.skipped.discard(blocks.start(pfn))
                return True
        return False


LEAST_COST_NS = 1000  # least time of a unit
SCANNED_MOST = 32  # pages that a search of free lists looks at, before any failed


class Priority(IntEnum):
    """How hard compaction tries; the lower the harder."""

    SYNC_FULL = 0
    SYNC_LIGHT = 1
    ASYNC = 2


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What a run is for."""

    order: int  # wanted; -1 to compact the whole zone, which nobody asked for
    migratetype: int  # of the request
    priority: Priority  # see `Priority`
    direct: bool  # a request waits for it
    highest: int  # highest type of zone of the request
    cpu: int  # who works
    may_use_cma: bool = True  # the request may be served from CMA blocks
    # the request gets a page of this order at once if the run frees one (S9.7); None: it
    # captures nothing
    capture_order: int | None = None

    @property
    def is_proactive(self) -> bool:
        return self.order < 0


@dataclass
class Control:
    """What stays with who compacts zone after zone (S9.3)."""

    search_order: int  # order whose list served the last search for targets
    search_fail: int = 0  # searches in vain, one after the other
    whole: bool = False  # a run was of a whole zone; the next ones begin at the ends too

    @property
    def scan_limit(self) -> int:
        """freelist_scan_limit(): return the pages that a search may look at."""
        return (SCANNED_MOST >> self.search_fail) + 1


def proactive_marks(oracle: ElasticOracle) -> tuple[int, int]:
    """fragmentation_score_wmark(): return the lower and upper score of proactive runs (S9.6)."""
    low = 100 - oracle.options.proactiveness
    if oracle.rules.proactive_leeway_shrinks:
        return low, min(low + min(10, low // 2), 100)
    low = max(low, 5)
    return low, min(low + 10, 100)


class CompactionRun:
    """Moves folios from a zone's low end to free pages at its high end.

    Attributes:
        migrate: where the source scanner is.
        free: where the target scanner is.
    """

    def __init__(
        self,
        oracle: ElasticOracle,
        place: ZoneCompaction,
        aim: Aim,
        control: Control,
        *,
        kswapd_runs: Callable[[], bool] = bool,
    ) -> None:
        self.oracle = oracle
        self.place = place
        self.zone = place.zone
        self.aim = aim
        self.memory = oracle.memory
        self.options = oracle.options
        self.rules = oracle.rules
        self.gates = oracle.gates
        self.control = control
        self.kswapd_runs = kswapd_runs
        self.result: Result | None = None  # how it ended; None while it goes on
        self.cost_ns = 0  # time of the last unit
        self.last_migrated = 0
        self.finishes_block = False  # the source scanner takes all of its block at once
        self.is_contended = False  # the run met others at a lock, and is to give way
        self.capture: Capture | None = None  # what the request gets at once
        self.is_async = aim.priority is Priority.ASYNC
        self.takes_any_block = aim.priority is Priority.SYNC_FULL
        self.ignores_skips = self.takes_any_block or aim.is_proactive
        if not aim.is_proactive and place.deferral.compaction_restarting(aim.order):
            place.reset_isolation_suitable()
        self._set_positions()
        self.keeps_equal = self.is_async and place.migrate[False] == place.migrate[True]
        self.sources = Sources(self)
        self.targets = Targets(self)
        if aim.capture_order is not None:
            from_movable = self.rules.captures_movable
            self.capture = Capture(aim.capture_order, aim.migratetype, from_movable)

    @property
    def has_captured(self) -> bool:
        return self.capture is not None and self.capture.pfn is not None

    def isolation_suitable(self, pfn: int) -> bool:
        """isolation_suitable(): return whether a page's block is looked at."""
        return self.ignores_skips or not self.place.is_skipped(pfn)

    def step(self) -> Result | None:
        """Part of compact_zone(): do one unit; returns how the run ended, or None."""
        self.cost_ns = 0
        self.oracle.act_as(self.aim.cpu)
        self.zone.buddy.capture = self.capture
        self.result = self._compact_finished()
        if self.result is None:
            self._take_unit()
        if self.result is None:
            order = self.aim.order
            if order > 0 and 0 < self.last_migrated < self.migrate >> order << order:
                self.oracle.act_as(self.aim.cpu)
                self.zone.drain_all(self.aim.cpu)
                self.last_migrated = 0
            if self.has_captured and not self.rules.captured_before_drain:
                self.result = Result.SUCCESS
        if self.result is not None:
            self.targets.release_free_list()
        self.zone.buddy.capture = None
        self.cost_ns = max(self.cost_ns, LEAST_COST_NS)
        if self.has_captured and self.result is not None:
            self.memory.seen["captured"] += 1
            self.zone.note_taken(self.capture.pfn, self.capture.order)
            self.result = Result.SUCCESS
        return self.result

    def count(self, scanner: str, pages: int) -> None:
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
        if not spec.spans(place.free):
            place.free = place.last_block
        if not spec.spans(place.migrate[not self.is_async]):
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
            low, _ = proactive_marks(self.oracle)
            score = fragmentation_score_zone(self.zone, self.options)
            return Result.SUCCESS if score <= low else None
        if self.migrate % self.zone.blocks.pages:
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
                    # go on behind the order-aligned range looked at last
                    size = 1 << self.aim.order
                    self.migrate = (self.migrate - 1) // size * size + size
                    self.last_migrated = 0
                break
            is_inside = self.migrate % blocks.pages != 0
            if not (failed and is_inside) or self.ignores_skips or self.finishes_block:
                break
            self.finishes_block = True
            if self.aim.order == PMD_ORDER:
                self.last_migrated = 0
        if self.has_captured and self.rules.captured_before_drain:
            self.result = Result.SUCCESS

    def _migrate_pages(self, folios: list[Folio]) -> tuple[bool, bool]:
        """migrate_pages(): move isolated folios.

        Returns whether some was not moved, and whether targets lacked.
        """
        self.targets.waiting = sum(folio.size for folio in folios)
        targets: list[int] = []
        for folio in folios:
            target = self.targets.compaction_alloc(folio.order)
            if target is None:
                break
            targets.append(target)
        lacking = len(targets) < len(folios)
        failed = lacking
        freed = []
        for folio, target in zip(folios, targets, strict=False):
            if folio.cannot_move(self.options):
                failed = True
                self.memory.lru_of(folio).lruvec_add_folio(folio)
                self.targets.compaction_free(target, folio.order)
                self.memory.counts["pgmigrate_fail"] += folio.size
                continue
            freed.append((folio.pfn, folio.order))
            self.memory.move(folio, target)
            self.memory.counts["pgmigrate_success"] += folio.size
            self.cost_ns += folio.size * self.options.compact_migrate_ns
        for folio in folios[len(targets) :]:
            self.memory.lru_of(folio).lruvec_add_folio(folio)
        if lacking:
            self.memory.counts["pgmigrate_fail"] += folios[len(targets)].size
        for pfn, order in freed:
            self.memory.free_pages(self.aim.cpu, pfn, order)
        return failed, lacking


def try_to_compact_pages(
    oracle: ElasticOracle,
    request: Request,
    attempt: Attempt,
    zonelist: list[Zone],
    priority: Priority,
    order: int,
) -> tuple[Result, int | None]:
    """try_to_compact_pages(): compact zone after zone, but deferred ones (S9.5, S8.7).

    Returns:
        The highest result of the zones, and the page taken as it came free.
    """
    best = Result.SKIPPED
    for zone in zonelist:
        place = oracle.compaction[zone.index]
        if priority is not Priority.SYNC_FULL and place.deferral.compaction_deferred(order):
            best = max(best, Result.DEFERRED)
            oracle.memory.seen["deferred"] += 1
            continue
        result, captured = _compact_zone_order(oracle, place, request, attempt, priority, order)
        best = max(best, result)
        if result is Result.SUCCESS:
            place.deferral.compaction_defer_reset(order, allocated=False)
            return best, captured
        if priority is not Priority.ASYNC and result in FAILED:
            place.deferral.defer_compaction(order)
    return best, None


def _compact_zone_order(
    oracle: ElasticOracle,
    place: ZoneCompaction,
    request: Request,
    attempt: Attempt,
    priority: Priority,
    order: int,
) -> tuple[Result, int | None]:
    """compact_zone_order(): compact one zone for a request."""
    is_async, highest = priority is Priority.ASYNC, request.highest_zone
    gate = oracle.gates.compaction_suit_allocation_order(
        place.zone, order, highest, attempt, is_async=is_async
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
        highest=highest,
        cpu=request.cpu,
    )
    run = CompactionRun(oracle, place, aim, Control(order))
    while run.result is None:
        run.step()
    return run.result, run.capture.pfn
