"""kcompactd: compaction in the background, one unit a step (S9.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.compaction import (
    FAILED,
    Aim,
    CompactionRun,
    Control,
    Priority,
    Result,
    ZoneCompaction,
    fragmentation_score_zone,
    proactive_marks,
)
from tests.oracle.cpu_time import CpuTime
from tests.oracle.machine import Migratetype

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle

NEVER = 1 << 62
PROACTIVE_NS = 500_000_000
BEGIN_NS = 20_000  # time from a wake to the first step
LEFT_OUT = 64  # proactive rounds left out after one that was no use


class Kcompactd:
    """A node's compaction thread; it works on the node's first CPU, as kswapd does."""

    def __init__(self, oracle: ElasticOracle, node: int) -> None:
        self.oracle = oracle
        self.node = node
        self.memory = oracle.memory
        self.gates = oracle.gates
        self.places = [oracle.compaction[index] for index in oracle.machine.zones_of(node)]
        self.cpu = (oracle.machine.cpus_of(node) or [0])[0]
        self.due = NEVER  # when it does something next, ns
        self.order = 0  # asked for, 0 for nothing
        self.highest = len(self.places) - 1  # highest type of zone asked for
        self.proactive_due = PROACTIVE_NS  # when it next looks whether to compact unasked
        self.run: CompactionRun | None = None  # of the zone it is at
        self.cpu_time = CpuTime(oracle.options.kcompactd_spans.get(node, ()))
        self._score_before = 0
        self._at: int | None = None
        self._aim_order = 0
        self._aim_highest = 0
        self._control = Control(0)

    def kswapd_runs(self) -> bool:
        return self.oracle.kswapd[self.node].active

    def wake(self, order: int, highest: int) -> None:
        """wakeup_kcompactd(): ask for an order, if some zone might be compacted for it."""
        if not order:
            return
        self.order = max(self.order, order)
        self.highest = min(self.highest, highest)
        suits = any(
            self.gates.suits_background(place.zone, self.order, self.highest)
            for place in self._up_to(self.highest)
        )
        if self._at is None and self.due == NEVER and suits:
            self.due = self.memory.now + BEGIN_NS

    def step(self) -> None:
        """kcompactd_do_work(): do one unit, or all that comes before the next one."""
        if self._at is None:
            self.memory.counts["compact_daemon_wake"] += 1
            self._begin_round(self.order, self.highest)
        while True:
            if self.run is None and not self._next_run():
                self._go_idle()
                return
            self._unit()
            if self.run is not None or self.due > self.memory.now:
                return

    def look_around(self) -> None:
        """Part of kcompactd(): compact unasked if memory is too fragmented (S9.6)."""
        self.proactive_due = self.memory.now + PROACTIVE_NS
        options = self.oracle.options
        if self.due != NEVER:
            return
        if options.kcompactd_unreserves:
            self.oracle.act_as(self.cpu)
            for place in self.places:
                place.zone.reserve.unreserve_free_blocks()
        if not options.proactiveness:
            return
        if self.order > 0:
            self.due = self.memory.now + BEGIN_NS
            return
        if self.kswapd_runs():
            return
        _, high = proactive_marks(self.oracle)
        score = self.fragmentation_score_node()
        if score > high:
            self._score_before = score
            self._begin_round(-1, len(self.places) - 1)
            self.due = self.memory.now + BEGIN_NS

    def fragmentation_score_node(self) -> int:
        """fragmentation_score_node(): return the node's fragmentation, zones by present pages."""
        zones = [place.zone for place in self.places]
        present = sum(zone.spec.present for zone in zones)
        return sum(
            zone.spec.present * fragmentation_score_zone(zone, self.oracle.options) // (present + 1)
            for zone in zones
        )

    def _begin_round(self, order: int, highest: int) -> None:
        """Part of kcompactd_do_work(): take up an order; all zones share what is found out."""
        self.cpu_time.wake(self.memory.now)
        self._aim_order, self._aim_highest = order, highest
        self._at, self._control = -1, Control(order)

    def _up_to(self, highest: int) -> list[ZoneCompaction]:
        return [place for place in self.places[: highest + 1] if place.zone.spec.managed]

    def _next_run(self) -> bool:
        """Part of kcompactd_do_work(): begin the next zone's run, if there is one."""
        order = self._aim_order
        while self._at is not None and self._at < self._aim_highest:
            self._at += 1
            place = self.places[self._at]
            if not place.zone.spec.managed:
                continue
            is_deferred = order >= 0 and place.deferral.compaction_deferred(order)
            highest = (self._at, self._aim_highest) if order >= 0 else ()
            if not is_deferred and all(
                self.gates.suits_background(place.zone, order, each) for each in highest
            ):
                aim = Aim(
                    order=order,
                    migratetype=Migratetype.UNMOVABLE,
                    priority=Priority.SYNC_LIGHT,
                    direct=False,
                    highest=self._aim_highest,
                    cpu=self.cpu,
                )
                runs = self.kswapd_runs
                self.run = CompactionRun(self.oracle, place, aim, self._control, kswapd_runs=runs)
                return True
        return False

    def _unit(self) -> None:
        """Part of kcompactd_do_work(): do one unit of the run."""
        result = self.run.step()
        self.due = self.memory.now + self.cpu_time.takes(self.run.cost_ns)
        if result is None:
            return
        place, self.run = self.run.place, None
        if self._aim_order < 0:
            return
        if result is Result.SUCCESS:
            place.deferral.compaction_defer_reset(self._aim_order, allocated=False)
        elif result in FAILED:
            self.oracle.act_as(self.cpu)
            for cpu in range(self.oracle.machine.nr_cpus):
                place.zone.drain_all(cpu, is_visited=place.zone.pcp[cpu].count > 0)
            place.deferral.defer_compaction(self._aim_order)

    def _go_idle(self) -> None:
        """Part of kcompactd(): sleep until the next look or wake."""
        sleeps = 1
        if self._aim_order < 0 and self.fragmentation_score_node() >= self._score_before:
            sleeps = LEFT_OUT
        self.proactive_due = self.memory.now + sleeps * PROACTIVE_NS
        if self._aim_order >= 0 and self.highest >= self._aim_highest:
            self.highest = len(self.places) - 1
        self._at = None
        if self.order > max(self._aim_order, 0):
            return
        self.order = 0
        self.due = NEVER
