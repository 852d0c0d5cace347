"""Reclaim that a request waits for (S8.2)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.compaction_gates import Gates
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.kswapd_run import ElasticKswapd
from tests.oracle.reclaim_rules import ReclaimRules
from tests.oracle.request import PLAIN, Bits, Mark, Request
from tests.oracle.scan_count import CLUSTER, LOWEST_PRIORITY, ScanControl
from tests.oracle.zone import Zone


class DirectReclaim:
    """Frees a cluster of pages for a request, node by node.

    Attributes:
        kswapd: each node's thread; it has the node's lists.
    """

    def __init__(
        self,
        memory: ElasticMemory,
        gates: Gates,
        rules: ReclaimRules,
        kswapd: dict[int, ElasticKswapd],
    ) -> None:
        self.memory = memory
        self.gates = gates
        self.rules = rules
        self.kswapd = kswapd

    def reclaim(self, request: Request, zonelist: Sequence[Zone], order: int) -> int:
        """try_to_free_pages(): return the pages freed so that an order can be had (S8.2, S8.7).

        It is 1 if none was freed, but compaction could begin anyway.
        """
        self._throttle_direct_reclaim(zonelist)
        control = ScanControl(
            order=order,
            highest=request.highest_zone,
            goal=CLUSTER,
            is_kswapd=False,
            may_compact=Bits.IO in request.bits,
            cpu=request.cpu,
        )
        self._walk_priorities(zonelist, control)
        if self.rules.fruitless_reclaim_repeated and self._was_fruitless(control):
            self._walk_priorities(zonelist, control)
        if control.skipped_deactivate and self._was_fruitless(control):
            control.force_deactivate = True
            self._walk_priorities(zonelist, control)
        return control.reclaimed or int(control.compaction_ready)

    @staticmethod
    def _was_fruitless(control: ScanControl) -> bool:
        """Part of do_try_to_free_pages(): return whether there is nothing to show."""
        return not control.reclaimed and not control.compaction_ready

    def _walk_priorities(self, zonelist: Sequence[Zone], control: ScanControl) -> None:
        """Part of do_try_to_free_pages(): press ever harder until it suffices."""
        self.memory.counts[f"allocstall_{control.highest}"] += 1
        for priority in range(LOWEST_PRIORITY, -1, -1):
            control.priority = priority
            control.scanned = 0
            self._shrink_zones(zonelist, control)
            if control.reclaimed >= control.goal or control.compaction_ready:
                return

    def _shrink_zones(self, zonelist: Sequence[Zone], control: ScanControl) -> None:
        """shrink_zones(): make a round over each node that has a zone where reclaim is needed."""
        last = None
        for zone in zonelist:
            if self._compaction_ready(zone, control):
                control.compaction_ready = True
            elif zone.node != last:
                last = zone.node
                for _ in self.kswapd[zone.node].reclaimer.shrink_node(control):
                    """The time that it takes moves no event."""

    def _compaction_ready(self, zone: Zone, control: ScanControl) -> bool:
        """compaction_ready(): return whether a zone needs no more reclaim (S8.2).

        That is so for a costly order only.
        """
        order, highest = control.order, control.highest
        if order <= self.gates.costly_order or not control.may_compact:
            return False
        marks = zone.watermarks
        if marks.ok_at(order, Mark.MIN, highest, PLAIN):
            return True
        if self.rules.ready_by_high_mark:
            return self.gates.is_suitable(zone, order, highest, Mark.HIGH)
        if not self.gates.is_suitable(zone, order, highest, Mark.MIN):
            return False
        pages = marks.wmark_pages(Mark.HIGH) + self.gates.options.gap(order)
        return marks.ok_with(zone.counters.free_for_balance(), 0, pages, highest, PLAIN)

    def _throttle_direct_reclaim(self, zonelist: Sequence[Zone]) -> None:
        """throttle_direct_reclaim(): count a request that would have to wait for kswapd."""
        for zone in zonelist:
            if zone.type <= self.kswapd[zone.node].normal_type:
                if not self._allow_direct_reclaim(zone.node):
                    self.memory.counts["pgscan_direct_throttle"] += 1
                return

    def _allow_direct_reclaim(self, node: int) -> bool:
        """allow_direct_reclaim(): return whether a node has something left for those who free."""
        kswapd = self.kswapd[node]
        if kswapd.kswapd_test_hopeless:
            return True
        counted = [
            zone
            for zone in kswapd.zones[: kswapd.normal_type + 1]
            if zone.spec.managed and self._counts(zone)
        ]
        least = sum(zone.watermarks.wmark_pages(Mark.MIN) for zone in counted)
        exact = self.rules.throttle_counts_exactly
        free = sum(
            zone.counters.free.total if exact else zone.counters.free.read() for zone in counted
        )
        if not least or free > least // 2:
            return True
        kswapd.wake_for_throttled()
        return False

    def _counts(self, zone: Zone) -> bool:
        """Part of allow_direct_reclaim(): return whether a zone's pages matter."""
        if self.memory.zone_reclaimable_pages(zone):
            return True
        return not self.rules.free_counts_as_reclaimable and not zone.counters.free.total
