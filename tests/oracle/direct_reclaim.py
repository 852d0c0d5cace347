"""Reclaim that a request waits for (S8.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.oracle.compaction_gates import Gates
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.kswapd_run import ElasticKswapd
from tests.oracle.request import PLAIN, Bits, Mark, Request
from tests.oracle.shrink import FIRST_PRIORITY, Control
from tests.oracle.zone import Zone


class DirectReclaim:
    """Frees a cluster of pages for a request, of each node as little as will do."""

    def __init__(
        self, memory: ElasticMemory, gates: Gates, kswapds: Mapping[int, ElasticKswapd]
    ) -> None:
        self.memory = memory
        self.gates = gates
        self.rules = memory.options.rules
        self.kswapds = kswapds

    def reclaim(self, request: Request, zonelist: Sequence[Zone], order: int) -> int:
        """try_to_free_pages(): return the pages freed so that an order can be had (S8.2, S8.7).

        It is 1 if none was freed, but compaction could begin anyway.
        """
        self._throttle_direct_reclaim(zonelist)
        may_compact = Bits.IO in request.bits
        control = Control(
            who="direct", order=order, highest=request.highest_zone, may_compact=may_compact
        )
        progress = self._do_try_to_free_pages(request, zonelist, control)
        if not progress and self.rules.fruitless_reclaim_repeated:
            progress = self._do_try_to_free_pages(request, zonelist, control)
        if not progress and control.spared_active:
            control.all_active = True
            progress = self._do_try_to_free_pages(request, zonelist, control)
        return progress

    def _do_try_to_free_pages(
        self, request: Request, zonelist: Sequence[Zone], control: Control
    ) -> int:
        """do_try_to_free_pages(): reclaim harder and harder; returns the progress made."""
        self.memory.counts[f"allocstall_{request.highest_zone}"] += 1
        for priority in range(FIRST_PRIORITY, -1, -1):
            control.priority = priority
            self._shrink_zones(request, zonelist, control)
            if control.freed >= control.goal or control.ready:
                break
        return control.freed or int(control.ready)

    def _shrink_zones(self, request: Request, zonelist: Sequence[Zone], control: Control) -> None:
        """shrink_zones(): shrink the nodes of the zonelist once."""
        last_node = None
        for zone in zonelist:
            if self._compaction_ready(zone, control):
                control.ready = True
            elif zone.node != last_node:
                last_node = zone.node
                kswapd = self.kswapds[zone.node]
                reclaim = kswapd.direct
                reclaim.begin(control)
                while True:
                    while reclaim.cluster(control, request.cpu) is not None:
                        pass
                    if not reclaim.end(control):
                        break
                if reclaim.reclaimable:
                    kswapd.try_clear_hopeless(control)

    def _compaction_ready(self, zone: Zone, control: Control) -> bool:
        """compaction_ready(): return whether a zone needs no more reclaim (S8.2).

        That is so for a costly order only.
        """
        order, highest = control.order, control.highest
        if order <= self.gates.costly_order or not control.may_compact:
            return False
        if zone.watermarks.ok_at(order, Mark.MIN, highest, PLAIN):
            return True
        if self.rules.ready_by_high_mark:
            return self.gates.is_suitable(zone, order, highest, Mark.HIGH)
        if not self.gates.is_suitable(zone, order, highest, Mark.MIN):
            return False
        pages = zone.watermarks.wmark_pages(Mark.HIGH) + self.gates.options.gap(order)
        free = zone.counters.free_for_balance()
        return zone.watermarks.ok_with(free, 0, pages, highest, PLAIN)

    def _throttle_direct_reclaim(self, zonelist: Sequence[Zone]) -> None:
        """throttle_direct_reclaim(): count who had to wait for kswapd (S8.2)."""
        for zone in zonelist:
            if zone.type > self.kswapds[zone.node].normal:
                continue
            if not self._allow_direct_reclaim(self.kswapds[zone.node]):
                self.memory.counts["pgscan_direct_throttle"] += 1
            return

    def _allow_direct_reclaim(self, kswapd: ElasticKswapd) -> bool:
        """allow_direct_reclaim(): return whether a node has half of its min marks free."""
        if kswapd.kswapd_test_hopeless:
            return True
        marks = free = 0
        for zone in kswapd.zones[: kswapd.normal + 1]:
            if not zone.spec.managed:
                continue
            pages = zone.counters.free.total
            leaves_out = pages > 0 or self.rules.free_counts_as_reclaimable
            if not self.memory.zone_reclaimable_pages(zone) and leaves_out:
                continue
            marks += zone.watermarks.wmark_pages(Mark.MIN)
            free += pages
        if not marks or free > marks // 2:
            return True
        kswapd.wake_for_throttled()
        return False
