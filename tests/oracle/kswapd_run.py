"""kswapd in model time: asleep, running, napping (S10.1 to S10.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from tests.oracle.compaction_gates import block_pages
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.folios import Kind
from tests.oracle.kcompactd import Kcompactd
from tests.oracle.kswapd import Kswapd
from tests.oracle.request import PLAIN, Mark
from tests.oracle.shrink import CLUSTER, Reclaimer
from tests.oracle.zone import Zone

NEVER = 1 << 62
NAP_NS = 100_000_000
LOWEST_PRIORITY = 12
FAILURES_MAX = 16
AGAIN_NS = 1000
"""Least time of a step, and time until a run follows another."""
BOOST_PRIORITY = 10
"""Priority that a run for boosts alone does not go beyond."""


class Phase(IntEnum):
    """What kswapd is at."""

    ASLEEP = 0
    RUNNING = 1
    NAPPING = 2


class ElasticKswapd(Kswapd):
    """A node's reclaim thread that frees pages itself; it works on the node's first CPU.

    Attributes:
        phase: what it is at.
        due: when it does something next, ns.
        failures: fruitless runs in a row.
        wanted_order: asked for since the last run began.
        wanted_highest: likewise.
    """

    def __init__(
        self,
        zones: Sequence[Zone],
        memory: ElasticMemory,
        cpu: int,
        kcompactd: Kcompactd,
        flush_skips: Callable[[], None],
    ) -> None:
        super().__init__(zones)
        self.memory = memory
        self.cpu = cpu
        self.node = zones[0].node
        self.kcompactd = kcompactd
        self.reclaimer = Reclaimer(memory)
        self._flush_skips = flush_skips
        self._asked: tuple[int, int] | None = None
        self.phase = Phase.ASLEEP
        self.due = NEVER
        self.order = self.alloc_order = self.highest = 0
        self.wanted_order = self.wanted_highest = 0
        self.woken_early = False
        self.failures = 0
        self.priority = LOWEST_PRIORITY
        self.boost_left = 0
        self.boosted = False
        self.total = self.goal = self.freed = self.scanned = 0
        self.left = dict.fromkeys((Kind.FILE, Kind.ANON), 0)

    @property
    def kswapd_test_hopeless(self) -> bool:
        """kswapd_test_hopeless(): return whether run after run freed nothing."""
        return self.failures >= FAILURES_MAX

    def wake(self, order: int, highest_type: int) -> None:
        """wakeup_kswapd(): let a request or a boosted zone ask.

        It is acted on after the attempt, or step, under way.
        """
        before, highest_before = self._asked or (0, 0)
        self._asked = max(order, before), max(highest_type, highest_before)

    def act_on_wakes(self, *, may_reclaim: bool) -> None:
        """Part of wakeup_kswapd(): act on what was asked for (S10.1).

        That is, since the last time.
        """
        if self._asked is None:
            return
        order, highest = self._asked
        self._asked = None
        self.wanted_order = max(self.wanted_order, order)
        self.wanted_highest = max(self.wanted_highest, highest)
        if self.phase is Phase.RUNNING:
            return
        if self.kswapd_test_hopeless or not self._has_work(order, highest):
            if not may_reclaim:
                self.kcompactd.wake(order, highest)
        elif self.phase is Phase.NAPPING:
            self.woken_early = True
            self.due = self.memory.now + self.memory.options.kswapd_wake_ns
        else:
            self._begin_run(self.memory.options.kswapd_wake_ns)

    def note_free(self) -> None:
        """No kernel function: do nothing; frees end no run here."""

    def step(self) -> None:
        """Part of kswapd(): do what is due."""
        if self.phase is Phase.NAPPING:
            self._end_nap()
            return
        while self.phase is Phase.RUNNING:
            goal = self.goal - self.freed
            scan = None
            if goal > 0:
                scan = self.reclaimer.cluster(self.node, self.left, self.highest, goal, "kswapd")
            if scan is not None:
                self.memory.free(self.cpu, scan.folios)
                self.scanned += scan.scanned
                self.freed += scan.freed
                self.due = self.memory.now + max(self.reclaimer.cost_ns(scan), AGAIN_NS)
                return
            self._end_pass()
            if self.due > self.memory.now:
                return

    def pgdat_balanced(self, order: int, highest: int) -> bool:
        """pgdat_balanced(): return whether some zone has enough (S8.6).

        It is in whole blocks where that is asked.
        """
        if not (self.memory.options.block_watermarks and order):
            return self._pgdat_balanced(order, highest)
        eligible = self._eligible(highest)
        return not eligible or any(
            zone.watermarks.ok_with(
                block_pages(zone), order, zone.watermarks.wmark_pages(Mark.HIGH), highest, PLAIN
            )
            for zone in eligible
        )

    def _has_work(self, order: int, highest: int) -> bool:
        """Part of wakeup_kswapd(): return whether the node is boosted or short."""
        boosted = any(zone.watermarks.boost for zone in self._eligible(highest))
        return boosted or not self.pgdat_balanced(order, highest)

    def _begin_run(self, delay_ns: int) -> None:
        """Part of balance_pgdat(): begin a run."""
        self.phase = Phase.RUNNING
        self.due = self.memory.now + delay_ns
        self.order = self.alloc_order = self.wanted_order
        self.highest = self.wanted_highest
        self.wanted_order = self.wanted_highest = 0
        self.woken_early = False
        self.start(self.highest)
        self.boost_left = sum(zone.watermarks.boost for zone in self._eligible(self.highest))
        self.boosted = self.boost_left > 0
        self.priority = LOWEST_PRIORITY
        self.total = 0
        self.memory.counts["pageoutrun"] += 1
        self._needs_loop = True
        self.goal = self.freed = self.scanned = 0
        self.left = dict.fromkeys(self.left, 0)

    def _begin_loop(self) -> None:
        """Part of balance_pgdat(): set up the next pass, or end the run."""
        balanced = self.pgdat_balanced(self.order, self.highest)
        if not balanced and self.boost_left > 0:
            self.boost_left = 0
            self.priority = LOWEST_PRIORITY
        if self.boost_left == 0 and balanced:
            self._end_run()
            return
        eligible = self._eligible(self.highest)
        self.goal = sum(max(zone.watermarks.wmark_pages(Mark.HIGH), CLUSTER) for zone in eligible)
        self.freed = self.scanned = 0
        self.left = self.reclaimer.get_scan_count(
            self.node, self.priority, files_only=self.boost_left > 0
        )

    def _end_pass(self) -> None:
        """Part of balance_pgdat(): take stock of a pass."""
        if self._needs_loop:
            self._needs_loop = False
            self._begin_loop()
            return
        self.total += self.freed
        if self.order > 0 and self.total >= self.memory.options.gap(self.order):
            self.order = 0
        had_boost = self.boost_left > 0
        stays = had_boost and self.priority == BOOST_PRIORITY
        self.boost_left -= min(self.boost_left, self.freed)
        gives_up = had_boost and self.freed == 0
        if not gives_up and ((self.scanned < self.goal and not stays) or self.freed == 0):
            self.priority -= 1
        if gives_up or self.priority < 1:
            self.failures += self.total == 0
            self._end_run()
        else:
            self._begin_loop()

    def _end_run(self) -> None:
        """Part of balance_pgdat(): end a run."""
        self.stop()
        if self.total:
            self.failures = 0
        if self.boosted:
            self.kcompactd.wake(self.kcompactd.block_order, self.highest)
        if self.kswapd_test_hopeless or self.pgdat_balanced(self.order, self.highest):
            self._flush_skips()
            self.kcompactd.wake(self.alloc_order, self.highest)
            self.phase = Phase.NAPPING
            self.due = self.memory.now + NAP_NS
            return
        self.memory.counts["kswapd_high_wmark_hit_quickly"] += 1
        self._run_again()

    def _run_again(self) -> None:
        """Part of kswapd(): begin a run for what was asked meanwhile.

        It covers at least the zones of the last.
        """
        self.wanted_highest = max(self.wanted_highest, self.highest)
        self._begin_run(AGAIN_NS)

    def _end_nap(self) -> None:
        """Part of kswapd_try_to_sleep(): sleep or run again after a nap."""
        balanced = self.kswapd_test_hopeless or self.pgdat_balanced(self.order, self.highest)
        if not self.woken_early and balanced:
            self.phase = Phase.ASLEEP
            self.due = NEVER
            return
        edge = "low" if self.woken_early else "high"
        self.memory.counts[f"kswapd_{edge}_wmark_hit_quickly"] += 1
        if self.woken_early:
            self.wanted_order = max(self.wanted_order, self.order)
        self._run_again()
