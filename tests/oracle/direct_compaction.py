"""Compaction that a request waits for, zone after zone (S8.1, S9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.oracle.compaction_gates import Gates, Result
from tests.oracle.compaction_run import Aim, CompactionRun, Control, Priority
from tests.oracle.compaction_zone import ZoneCompaction
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.request import Attempt, Request
from tests.oracle.zone import Zone


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
        """try_to_compact_pages(): compact zone after zone for an order (S9.5, S8.7).

        There is deferral, but at full priority.
        """
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
