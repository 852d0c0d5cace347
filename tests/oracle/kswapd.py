"""kswapd: as a literal replay sees it, and as it works in an elastic one (S10.1, S10.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from tests.oracle.compaction import block_pages
from tests.oracle.cpu_time import CpuTime
from tests.oracle.request import PLAIN, Mark
from tests.oracle.vmscan import CLUSTER, LOWEST_PRIORITY, Reclaimer, ScanControl
from tests.oracle.zone import Zone

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle


class Kswapd:
    """A node's reclaim thread; the pages it frees arrive as recorded frees (S10.4).

    Attributes:
        is_recorded: its runs are the recording's; nothing here starts or ends one.
    """

    def __init__(self, zones: Sequence[Zone], *, is_recorded: bool = False) -> None:
        self.zones = zones  # the node's, lowest type first
        self.is_recorded = is_recorded
        self.active = False  # a run is under way
        self._highest_type = 0
        self._boosts: dict[int, int] = {}

    def wake(self, order: int, highest_type: int) -> None:
        """wakeup_kswapd(): start a run unless one is under way or nothing is to do (S10.1)."""
        if self.is_recorded or self.active:
            return
        if self._has_work(order, highest_type):
            self.start(highest_type)

    def note_free(self) -> None:
        """End the run once some eligible zone is balanced (S10.2)."""
        if not self.is_recorded and self.active and self.pgdat_balanced(0, self._highest_type):
            self.stop()

    def start(self, highest_type: int) -> None:
        """Part of balance_pgdat(): begin a run (S10.2).

        One that was under way has ended. It concerns the zones up to the type that its waker may
        use: those drain their per-CPU lists sooner, and their boosts as of now are what the run is
        to take back.
        """
        self.stop()
        self.active = True
        self._highest_type = highest_type
        self._boosts = {zone.index: zone.watermarks.boost for zone in self._eligible(highest_type)}
        for zone in self._eligible(highest_type):
            zone.flags.reclaim_active = True
        self._note_awake(awake=self.active)

    def stop(self) -> None:
        """Part of balance_pgdat(): end the run, if any; the boosts it saw expire (S1.7)."""
        if not self.active:
            return
        self.active = False
        for zone in self._eligible(self._highest_type):
            zone.flags.reclaim_active = False
            boost = self._boosts[zone.index]
            if boost:
                zone.events.hold("boost_reset", "", 0, zone.index)
            zone.watermarks.boost = max(zone.watermarks.boost - boost, 0)
        self._note_awake(awake=self.active)

    def _note_awake(self, *, awake: bool) -> None:
        """set_pgdat_percpu_threshold(): tell the zones' counters (S1.10)."""
        for zone in self.zones:
            zone.counters.note_kswapd(active=awake)

    def _eligible(self, highest_type: int) -> list[Zone]:
        """Part of balance_pgdat(): return the zones that a waker may use."""
        return [zone for zone in self.zones[: highest_type + 1] if zone.spec.managed]

    def pgdat_balanced(self, order: int, highest: int) -> bool:
        """pgdat_balanced(): return whether some eligible zone has enough (S10.1)."""
        eligible = self._eligible(highest)
        return not eligible or any(
            zone.watermarks.ok(order, Mark.HIGH, highest, PLAIN, self._free(zone, order))
            for zone in eligible
        )

    def _has_work(self, order: int, highest: int) -> bool:
        """Part of wakeup_kswapd(): return whether the node is boosted or short."""
        boosted = any(zone.watermarks.boost for zone in self._eligible(highest))
        return boosted or not self.pgdat_balanced(order, highest)

    def _free(self, zone: Zone, order: int) -> int:
        """Free pages that count; kswapd looks closer where few are free (S1.10)."""
        return zone.counters.free_for_balance()


NEVER = 1 << 62
NAP_NS = 100_000_000
FAILURES_MAX = 16
BEGIN_NS = 1000  # time that the beginning of a run takes
BOOST_PRIORITY = 10  # priority that a run for boosts alone does not go beyond


class Phase(IntEnum):
    """What kswapd is at."""

    ASLEEP = 0
    RUNNING = 1
    NAPPING = 2


class ElasticKswapd(Kswapd):
    """A node's reclaim thread that frees pages itself; it works on the node's first CPU.

    It is `active` while it runs, and from when it is woken.

    Attributes:
        normal_type: type of the node's zone Normal, or of the highest below it.
    """

    def __init__(self, oracle: ElasticOracle, node: int) -> None:
        zones = oracle.zones_of(node)
        super().__init__(zones)
        self.oracle = oracle
        self.cpu = (oracle.machine.cpus_of(node) or [0])[0]
        self.memory = oracle.memory
        self.options = oracle.options
        self.rules = oracle.rules
        self.kcompactd = oracle.kcompactds[node]
        self.reclaimer = Reclaimer(oracle, node)  # scans the node's lists, also for requests
        self.normal_type = max(zone.type for zone in zones if zone.spec.name != "Movable")
        self.phase = Phase.ASLEEP  # what it is at
        self.due = NEVER  # when it does something next, ns
        self.woken = False  # it sleeps no more, and has not run yet
        self.failures = 0  # fruitless runs in a row
        self.highest = len(zones) - 1  # highest type of zone of the run, or of the last one
        self.boost_left = 0  # pages that the run is to free for boosts yet
        self.control = self._new_control(0)  # what the run is after
        self.wanted_order = 0  # asked for since the last run began
        self.wanted_highest: int | None = None  # likewise; None: nobody asked
        self.cpu_time = CpuTime(oracle.options.kswapd_spans.get(node, ()))
        self._life = self._kswapd()

    @property
    def kswapd_test_hopeless(self) -> bool:
        """kswapd_test_hopeless(): return whether run after run freed nothing."""
        return self.failures >= FAILURES_MAX

    def wake(self, order: int, highest_type: int, *, may_reclaim: bool = False) -> None:
        """wakeup_kswapd(): let a request or a boosted zone ask (S10.1)."""
        before = highest_type if self.wanted_highest is None else self.wanted_highest
        self.wanted_highest = max(before, highest_type)
        self.wanted_order = max(self.wanted_order, order)
        if self.active:
            return
        if self.kswapd_test_hopeless or not self._has_work(order, highest_type):
            if not may_reclaim:
                self.kcompactd.wake(order, highest_type)
            return
        self._wake_up()

    def wake_for_throttled(self) -> None:
        """Part of allow_direct_reclaim(): wake kswapd whether there is work or not (S8.2)."""
        if self.active:
            return
        if self.wanted_highest is None or self.wanted_highest > self.normal_type:
            self.wanted_highest = self.normal_type
        self._wake_up()

    def note_free(self) -> None:
        """Do nothing; frees end no run here."""

    def note_progress(self, order: int, highest: int) -> None:
        """kswapd_try_clear_hopeless(): note that reclaim freed something of the node (S10.2)."""
        if not self.rules.revived_when_balanced or self.pgdat_balanced(order, highest):
            self.failures = 0

    def end_hopelessness(self) -> None:
        """kswapd_try_clear_hopeless(): note that a list's free found a zone well off (S10.2)."""
        if self.kswapd_test_hopeless:
            self.failures = 0

    def step(self) -> None:
        """Part of kswapd(): do what is due."""
        self.due = next(self._life)

    def _free(self, zone: Zone, order: int) -> int:
        """Free pages that count, perhaps only those in whole blocks (S8.6)."""
        in_blocks = self.options.block_watermarks and order > 0
        return block_pages(zone) if in_blocks else super()._free(zone, order)

    def _wake_up(self) -> None:
        """Part of wakeup_kswapd(): let a thread that sleeps or naps run soon."""
        self.woken = self.active = True
        self.due = self.memory.now + self.options.kswapd_wake_ns

    def _kswapd(self) -> Iterator[int]:
        """kswapd(): run, then sleep, for ever; it was asleep at first.

        Yields when it does something next, unless it is woken before.
        """
        self.cpu_time.wake(self.memory.now)
        while True:
            asked_order = self.wanted_order
            yield from self._balance_pgdat()
            if self.control.order >= asked_order:
                asked_order = self.control.order = self.wanted_order
                self.highest = self._kswapd_highest_zoneidx()
            yield from self._try_to_sleep(asked_order)

    def _kswapd_highest_zoneidx(self) -> int:
        """kswapd_highest_zoneidx(): return the zones wanted now, or those of the last run."""
        return self.highest if self.wanted_highest is None else self.wanted_highest

    def _try_to_sleep(self, asked_order: int) -> Iterator[int]:
        """kswapd_try_to_sleep(): nap, then sleep, if the node is balanced for both (S10.3)."""
        woken_early = False
        if self._prepare_kswapd_sleep():
            for zone in self._eligible(len(self.zones)):
                self.oracle.compaction[zone.index].reset_isolation_suitable()
            self.kcompactd.wake(asked_order, self.highest)
            self.phase, self.active = Phase.NAPPING, False
            yield self.memory.now + NAP_NS
            self.cpu_time.wake(self.memory.now)
            woken_early = self.woken
            if woken_early:
                self.wanted_highest = self._kswapd_highest_zoneidx()
                self.wanted_order = max(self.wanted_order, self.control.order)
        if not woken_early and self._prepare_kswapd_sleep():
            self.phase, self.active = Phase.ASLEEP, False
            self._note_awake(awake=False)
            yield NEVER
            self.cpu_time.wake(self.memory.now)
            self._note_awake(awake=True)
        else:
            edge = "low" if woken_early else "high"
            self.memory.counts[f"kswapd_{edge}_wmark_hit_quickly"] += 1

    def _prepare_kswapd_sleep(self) -> bool:
        """prepare_kswapd_sleep(): return whether there is nothing to do, or no hope."""
        hopeless = self.kswapd_test_hopeless
        return hopeless or self.pgdat_balanced(self.control.order, self.highest)

    def _balance_pgdat(self) -> Iterator[int]:
        """balance_pgdat(): free pages until the node is balanced, or nothing helps (S10.2).

        It begins with what was asked for since the last run began.
        """
        self.phase, self.woken, self.active = Phase.RUNNING, False, True
        self.highest = self._kswapd_highest_zoneidx()
        self.control = control = self._new_control(self.wanted_order)
        self.wanted_order, self.wanted_highest = 0, None
        self.memory.counts["pageoutrun"] += 1
        eligible = self._eligible(self.highest)
        boosts = [(zone, zone.watermarks.boost) for zone in eligible if zone.watermarks.boost]
        self.boost_left = sum(boost for _, boost in boosts)
        for zone in eligible:
            zone.flags.reclaim_active = True
        yield self.memory.now + BEGIN_NS
        is_done = yield from self._reclaim_until_balanced()
        in_vain = control.priority < 1 and not control.reclaimed and control.cache_trim_failed
        if in_vain and self.rules.tries_without_cache_trim and not control.no_cache_trim:
            control.no_cache_trim = True
            control.priority = LOWEST_PRIORITY
            is_done = yield from self._reclaim_until_balanced()
        if not is_done and not control.reclaimed:
            self.failures += not (boosts and self.rules.boosted_runs_never_fail)
        for zone in eligible:
            zone.flags.reclaim_active = False
        for zone, boost in boosts:
            zone.events.hold("boost_reset", "", 0, zone.index)
            zone.watermarks.boost = max(zone.watermarks.boost - boost, 0)
        if boosts:
            self.kcompactd.wake(self.oracle.machine.pageblock_order, self.highest)

    def _reclaim_until_balanced(self) -> Iterator[int]:
        """Part of balance_pgdat(): make pass after pass; returns whether there is no more to do."""
        control = self.control
        while control.priority >= 1:
            balanced = self.pgdat_balanced(control.order, self.highest)
            if not balanced and self.boost_left:
                self.boost_left = 0
                control.priority = LOWEST_PRIORITY
            if balanced and not self.boost_left:
                return True
            presses_harder = not (self.boost_left and control.priority == BOOST_PRIORITY)
            control.may_swap = not self.boost_left
            before = control.reclaimed
            self.reclaimer.age(control)
            control.scanned = 0
            yield from self._kswapd_shrink_node()
            freed = control.reclaimed - before
            if max(control.scanned, freed) >= control.goal:
                presses_harder = False
            self.boost_left -= min(self.boost_left, freed)
            if self.boost_left and not freed:
                return False
            if presses_harder or not freed:
                control.priority -= 1
        return False

    def _kswapd_shrink_node(self) -> Iterator[int]:
        """kswapd_shrink_node(): make a round; its goal goes by the zones' high marks."""
        control = self.control
        control.goal = sum(
            max(zone.watermarks.wmark_pages(Mark.HIGH), CLUSTER)
            for zone in self._eligible(self.highest)
        )
        for cost_ns in self.reclaimer.shrink_node(control):
            yield self.memory.now + self.cpu_time.takes(cost_ns)
        if control.order and control.reclaimed >= self.oracle.gates.compact_gap(control.order):
            control.order = 0

    def _new_control(self, order: int) -> ScanControl:
        """Part of balance_pgdat(): return what a run sets out with."""
        return ScanControl(
            order=order,
            highest=self.highest,
            goal=0,
            is_kswapd=True,
            may_compact=True,
            cpu=self.kcompactd.cpu,
        )
