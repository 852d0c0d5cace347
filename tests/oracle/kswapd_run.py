"""kswapd in model time: asleep, running, napping (S10.1 to S10.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from tests.oracle.compaction_gates import Gates, block_pages
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.kcompactd import Kcompactd
from tests.oracle.kswapd import Kswapd
from tests.oracle.request import PLAIN, Mark
from tests.oracle.shrink import CLUSTER, FIRST_PRIORITY, Control, NodeReclaim
from tests.oracle.zone import Zone

NEVER = 1 << 62
NAP_NS = 100_000_000
FAILURES_MAX = 16
BEGIN_NS = 1000
"""Time from a run's beginning to its first cluster."""
BOOST_PRIORITY = 10
"""Priority that a run for boosts alone does not go beyond because it looked at too little."""
NORMAL_OR_LOWER = ("DMA", "DMA32", "Normal")


class Phase(IntEnum):
    """What kswapd is at."""

    ASLEEP = 0
    RUNNING = 1
    NAPPING = 2


class ElasticKswapd(Kswapd):
    """A node's reclaim thread that frees pages itself; it works on the node's first CPU.

    Attributes:
        phase: what it is at.
        woken: it sleeps or naps no more, and has not run yet.
        due: when it does something next, ns.
        failures: fruitless runs in a row.
        wanted_order: asked for since the last run began.
        wanted_highest: likewise; None if nobody asked.
        alloc_order: what the last run began with, or what is tried to sleep with.
        sleep_order: what it ended with.
        highest: highest type of zone of the last run.
        control: what the run goes by.
        boost_left: boosts to work off.
        direct: reclaim of the node by requests.
    """

    def __init__(
        self,
        zones: Sequence[Zone],
        memory: ElasticMemory,
        gates: Gates,
        cpu: int,
        kcompactd: Kcompactd,
        flush_skips: Callable[[], None],
    ) -> None:
        super().__init__(zones)
        self.memory = memory
        self.rules = memory.options.rules
        self.cpu = cpu
        self.node = zones[0].node
        self.kcompactd = kcompactd
        self.reclaim = NodeReclaim(self.node, list(zones), memory, gates)
        self.direct = NodeReclaim(self.node, list(zones), memory, gates)
        self._flush_skips = flush_skips
        self._asked: tuple[int, int] | None = None
        self.phase = Phase.ASLEEP
        self.woken = False
        self.due = NEVER
        self.failures = 0
        self.wanted_order = 0
        self.wanted_highest: int | None = None
        self.alloc_order = self.sleep_order = 0
        self.highest = len(zones) - 1
        self.control = Control(who="kswapd", order=0, highest=self.highest)
        self.boost_left = 0
        self.boosted = False
        self._in_pass = False
        self._freed_before = 0

    @property
    def order(self) -> int:
        """No kernel function: return the order that the run is for now."""
        return self.control.order

    @property
    def priority(self) -> int:
        """No kernel function: return how hard the run tries; the lower the harder."""
        return self.control.priority

    @property
    def total(self) -> int:
        """No kernel function: return the pages that the run has freed."""
        return self.control.freed

    @property
    def normal(self) -> int:
        """No kernel function: return the number of zone type Normal, or the highest below it."""
        types = [zone.type for zone in self.zones if zone.spec.name in NORMAL_OR_LOWER]
        return max(types, default=0)

    @property
    def is_busy(self) -> bool:
        """Part of get_page_from_freelist(): return whether it neither sleeps nor naps."""
        return self.phase is Phase.RUNNING or self.woken

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
        wanted = -1 if self.wanted_highest is None else self.wanted_highest
        self.wanted_highest = max(wanted, highest)
        if self.is_busy:
            return
        if not self.kswapd_test_hopeless and self._has_work(order, highest):
            self._wake_sleeper()
        elif not may_reclaim:
            self.kcompactd.wake(order, highest)

    def wake_for_throttled(self) -> None:
        """Part of allow_direct_reclaim(): wake for a task that waits, for Normal at most (S8.2)."""
        if self.is_busy:
            return
        if self.wanted_highest is None or self.wanted_highest > self.normal:
            self.wanted_highest = self.normal
        self._wake_sleeper()

    def note_free(self) -> None:
        """No kernel function: do nothing; frees end no run here."""

    def try_clear_hopeless(self, control: Control) -> None:
        """kswapd_try_clear_hopeless(): forget failures after progress of any reclaim (S10.2)."""
        waits = self.rules.revived_when_balanced and not self.pgdat_balanced(
            control.order, control.highest
        )
        if not waits:
            self.failures = 0

    def step(self) -> None:
        """Part of kswapd(): do what is due."""
        if self.phase is Phase.NAPPING:
            self._end_nap()
            return
        if self.phase is Phase.ASLEEP:
            self._note_awake(True)
            self._begin_run()
            return
        while self.phase is Phase.RUNNING and self.due <= self.memory.now:
            self._go_on()

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

    def _update_reclaim_active(self) -> None:
        """No kernel function: do nothing; counters lag by sleep, not by run (S10.3)."""

    def _note_awake(self, awake: bool) -> None:
        """set_pgdat_percpu_threshold(): let CPUs keep less back while kswapd is awake."""
        for zone in self.zones:
            zone.counters.note_kswapd(awake)

    def _has_work(self, order: int, highest: int) -> bool:
        """Part of wakeup_kswapd(): return whether the node is boosted or short."""
        boosted = any(zone.watermarks.boost for zone in self._eligible(highest))
        return boosted or not self.pgdat_balanced(order, highest)

    def _wake_sleeper(self) -> None:
        """Part of wakeup_kswapd(): let it run soon."""
        self.woken = True
        self.due = self.memory.now + self.memory.options.kswapd_wake_ns

    @property
    def _kswapd_highest_zoneidx(self) -> int:
        """kswapd_highest_zoneidx(): return the type wanted, if none is, that of the last run."""
        return self.highest if self.wanted_highest is None else self.wanted_highest

    def _begin_run(self) -> None:
        """Part of balance_pgdat(): begin a run."""
        self.phase = Phase.RUNNING
        self.woken = False
        self.due = self.memory.now + BEGIN_NS
        self.alloc_order = self.wanted_order
        self.highest = self._kswapd_highest_zoneidx
        self.wanted_order, self.wanted_highest = 0, None
        self.start(self.highest)
        self.control = Control(who="kswapd", order=self.alloc_order, highest=self.highest)
        self.boost_left = sum(zone.watermarks.boost for zone in self._eligible(self.highest))
        self.boosted = self.boost_left > 0
        self._in_pass = False
        self.memory.counts["pageoutrun"] += 1

    def _go_on(self) -> None:
        """Part of balance_pgdat(): take a cluster, or do what comes between."""
        if not self._in_pass:
            if not self._begin_pass():
                self._end_run(gave_up=False)
            return
        cost = self.reclaim.cluster(self.control, self.cpu)
        if cost is not None:
            self.due = self.memory.now + cost
            return
        if self.reclaim.end(self.control):
            return
        if self.reclaim.reclaimable:
            self.try_clear_hopeless(self.control)
        if not self._end_pass():
            self._end_run(gave_up=True)

    def _begin_pass(self) -> bool:
        """Part of balance_pgdat(): set up the next pass; returns whether there is one."""
        control = self.control
        balanced = self.pgdat_balanced(control.order, self.highest)
        if not balanced and self.boost_left > 0:
            self.boost_left = 0
            control.priority = FIRST_PRIORITY
        if balanced and self.boost_left == 0:
            return False
        control.may_swap = self.boost_left == 0
        control.scanned = 0
        self._freed_before = control.freed
        self.reclaim.age_anon(self.highest)
        eligible = self._eligible(self.highest)
        control.goal = sum(
            max(zone.watermarks.wmark_pages(Mark.HIGH), CLUSTER) for zone in eligible
        )
        self._in_pass = True
        self.reclaim.begin(control)
        return True

    def _end_pass(self) -> bool:
        """Part of balance_pgdat(): take stock of a pass; returns whether the run goes on."""
        control = self.control
        self._in_pass = False
        freed = control.freed - self._freed_before
        if control.order > 0 and control.freed >= self.memory.options.gap(control.order):
            control.order = 0
        tries_harder = max(control.scanned, freed) < control.goal
        if self.boost_left > 0 and control.priority == BOOST_PRIORITY:
            tries_harder = False
        self.boost_left -= min(self.boost_left, freed)
        if self.boost_left > 0 and freed == 0:
            return False
        if tries_harder or freed == 0:
            control.priority -= 1
        if control.priority >= 1:
            return True
        if control.freed or not self.rules.tries_without_cache_trim:
            return False
        if control.no_cache_trim or not control.cache_trim_failed:
            return False
        control.no_cache_trim = True
        control.priority = FIRST_PRIORITY
        return True

    def _end_run(self, *, gave_up: bool) -> None:
        """Part of balance_pgdat(): end a run, then try to sleep."""
        counts = not (self.boosted and self.rules.boosted_runs_never_fail)
        self.failures += gave_up and counts and not self.control.freed
        self.stop()
        if self.boosted:
            self.kcompactd.wake(self.kcompactd.block_order, self.highest)
        self.sleep_order = self.control.order
        if self.sleep_order >= self.alloc_order:
            self.sleep_order = self.alloc_order = self.wanted_order
            self.highest = self._kswapd_highest_zoneidx
        self._kswapd_try_to_sleep()

    def _prepare_kswapd_sleep(self) -> bool:
        """prepare_kswapd_sleep(): return whether it may sleep."""
        return self.kswapd_test_hopeless or self.pgdat_balanced(self.sleep_order, self.highest)

    def _kswapd_try_to_sleep(self) -> None:
        """kswapd_try_to_sleep(): nap, or run again."""
        if not self._prepare_kswapd_sleep():
            self.memory.counts["kswapd_high_wmark_hit_quickly"] += 1
            self._begin_run()
            return
        self._flush_skips()
        self.kcompactd.wake(self.alloc_order, self.highest)
        self.phase = Phase.NAPPING
        self.due = self.memory.now + NAP_NS

    def _end_nap(self) -> None:
        """Part of kswapd_try_to_sleep(): sleep or run again after a nap."""
        if self.woken:
            self.memory.counts["kswapd_low_wmark_hit_quickly"] += 1
            self.wanted_order = max(self.wanted_order, self.sleep_order)
            self._begin_run()
        elif self._prepare_kswapd_sleep():
            self._note_awake(False)
            self.phase = Phase.ASLEEP
            self.due = NEVER
        else:
            self.memory.counts["kswapd_high_wmark_hit_quickly"] += 1
            self._begin_run()
