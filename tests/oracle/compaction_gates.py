"""Whether compaction is worth a try: suitability, fragmentation index, deferral (S9.1 to S9.5)."""

from __future__ import annotations

from enum import IntEnum

from tests.oracle.elastic_options import ElasticOptions
from tests.oracle.request import PLAIN, Attempt, Mark
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
    """No kernel function: return the free pages in buddies of whole blocks (S8.6).

    Those in ISOLATE blocks are left out.
    """
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
        """__compaction_suitable(): return whether enough single pages are free.

        They are, or would be; the lists do not matter.
        """
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
        """Part of compaction_suit_allocation_order(): return whether to compact (S9.1, S9.2).

        There must be targets, and fragmentation be what is wrong.
        """
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
        """kcompactd_node_suitable(): return whether kcompactd should compact a zone (S8.6).

        It may count whole blocks.
        """
        if not self.options.block_watermarks:
            return self.compaction_suit_allocation_order(
                zone, order, highest, Attempt(mark=Mark.MIN)
            )
        if self.has_block_pages(zone, order, highest):
            return Result.SUCCESS
        suitable = self.is_suitable(zone, order, highest, Mark.HIGH)
        return Result.CONTINUE if suitable else Result.SKIPPED

    def has_block_pages(self, zone: Zone, order: int, highest: int) -> bool:
        """Part of compaction_suit_allocation_order(): return whether whole blocks do.

        They must reach the high watermark alone.
        """
        pages = zone.watermarks.wmark_pages(Mark.HIGH)
        attempt = Attempt(mark=Mark.HIGH)
        return zone.watermarks.ok_with(block_pages(zone), order, pages, highest, attempt)
