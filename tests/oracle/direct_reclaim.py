"""Reclaim that a request waits for (S8.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.oracle.compaction_gates import Gates, Result
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.folios import Folio
from tests.oracle.request import PLAIN, Attempt, Bits, Mark, Request
from tests.oracle.shrink import CLUSTER, Reclaimer
from tests.oracle.zone import Zone

PRIORITIES = range(12, -1, -1)
NO_GOAL = 1 << 62


class DirectReclaim:
    """Frees a cluster of pages for a request, of each node as little as will do."""

    def __init__(
        self, memory: ElasticMemory, gates: Gates, note_progress: Callable[[int], None]
    ) -> None:
        self.memory = memory
        self.gates = gates
        self._note_progress = note_progress
        self.reclaimer = Reclaimer(memory)

    def reclaim(self, request: Request, zonelist: Sequence[Zone], order: int) -> int:
        """try_to_free_pages(): return the pages freed so that an order can be had (S8.2, S8.7).

        It is 1 if none was freed, but compaction could begin anyway.
        """
        self.memory.counts[f"allocstall_{request.highest_zone}"] += 1
        freed = 0
        for priority in PRIORITIES:
            is_ready = False
            folios: list[Folio] = []
            scanned_node = None
            for zone in zonelist:
                if self._compaction_ready(request, zone, order):
                    is_ready = True
                elif zone.node != scanned_node:
                    scanned_node = zone.node
                    freed += self._shrink_node(zone.node, priority, request, freed, folios)
            self.memory.free(request.cpu, folios)
            if freed >= CLUSTER or is_ready:
                return freed or 1
        return freed

    def _shrink_node(
        self,
        node: int,
        priority: int,
        request: Request,
        freed_before: int,
        folios: list[Folio],
    ) -> int:
        """shrink_node(): scan a node.

        What can be freed waits until all nodes were looked at.
        """
        left = self.reclaimer.get_scan_count(node, priority)
        freed = 0
        while True:
            if priority != PRIORITIES[0] and freed_before + freed >= CLUSTER:
                return freed
            scan = self.reclaimer.cluster(node, left, request.highest_zone, NO_GOAL, "direct")
            if scan is None:
                return freed
            folios += scan.folios
            freed += scan.freed
            if scan.freed:
                self._note_progress(node)

    def _compaction_ready(self, request: Request, zone: Zone, order: int) -> bool:
        """compaction_ready(): return whether a zone needs no more reclaim (S8.2).

        That is so for a costly order only.
        """
        highest = request.highest_zone
        if order <= self.gates.costly_order or Bits.IO not in request.bits:
            return False
        gate = self.gates.compaction_suit_allocation_order(
            zone, order, highest, Attempt(mark=Mark.MIN)
        )
        if gate is not Result.CONTINUE:
            return gate is Result.SUCCESS
        pages = zone.watermarks.wmark_pages(Mark.HIGH) + self.gates.options.gap(order)
        return zone.watermarks.ok(0, pages, highest, PLAIN)
