"""Scenarios: a start state and random steps, for the oracle and what is judged by it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.oracle import Bits, Oracle, OracleMachine, OraclePolicy, OracleRules
from tests.oracle.builders import ATOMIC, KERNEL
from tests.oracle.late_memory import blocks_of
from tests.oracle.rules import OracleAssumptions
from tests.oracle.start_state import BLOCK_TYPES, lay_out, live_objects
from tests.oracle.steps import (
    Alloc,
    BeginRequest,
    Capture,
    DrainAll,
    DrainZone,
    Failed,
    Free,
    FreeNothing,
    FreeSingly,
    Grow,
    HoldDrained,
    Isolate,
    KillCpu,
    KswapdStart,
    KswapdStop,
    Live,
    ReclaimBegin,
    Replayed,
    ReviveCpu,
    SetBoost,
    SetPcpHigh,
    Step,
    Tick,
    take_step,
)

REQUEST_BITS = (
    KERNEL,
    ATOMIC,
    Bits.KSWAPD,
    ATOMIC | Bits.NOMEMALLOC,
    KERNEL | Bits.HIGH,
    Bits.NOMEMALLOC,
)
"""Sets of gfp bits that lead to different slow paths (S2.6)."""

PRESSURES = (0.1, 0.4, 0.5, 0.6, 0.9)
"""Probabilities that a step of a phase asks for pages rather than giving some back."""

PHASE = 40
"""Steps after which pressure and CPU may change."""

RECLAIMS = 63
"""Direct reclaims that may be told apart at a time."""

DRAIN_SHARE = 0.002
"""Probability that a step drains all lists, where requests are not the only ones to do so."""


BOOSTS = (0, 0, 1, 300, 2000)
"""Boosts that recordings find, pages."""

RETURN_SHARE = 0.1
"""Probability that a CPU comes back online where a step would be its own."""


def note_cpus(alive: set[int], step: Step) -> None:
    """Keep the CPUs that are online up to date."""
    match step:
        case KillCpu():
            alive.discard(step.cpu)
        case ReviveCpu():
            alive.add(step.cpu)


@dataclass(frozen=True)
class Scenario:
    """A reproducible test case.

    Attributes:
        machine: a small machine.
        rules: one kernel's rules.
        policy: what is under test.
        seed: decides the start state and every step.
        steps: number of steps.
        orders: orders to draw requests from.
        bits: sets of gfp bits to draw requests from.
        replayed: only what a replay has: every request succeeded in the recording, and is
            served in single pages where no buddy serves it.
        assumptions: what is the recording's to say, and how counters count.
        block_types: types to draw the start state's blocks from.
        tick_share: probability that a step is a tick.
        told_share: probability that a step is something a recording tells besides requests.
        free_block_share: share of the start state's blocks that are wholly free, beside others.
        kill_share: probability that a step takes a CPU offline.
        batch_share: probability that a free is one of a folio batch.
        interrupt_share: probability that a request or another free is an interrupt's, which
            comes into a folio batch, a refill or a drain, if there is one.
        hold_share: probability that a step lets interrupts come into a refill or a drain.
        migratetypes: types to draw requests from.
        compaction_share: probability that a step is recorded compaction's.
        stray_share: probability that a step runs on any CPU, not on the busy one.
        imposed_share: probability that a step imposes what a recording found.
        only_zone_share: probability that a request is to be served by one zone only.
        late: memory that is not there at the start, in the order in which it comes.
    """

    machine: OracleMachine
    rules: OracleRules
    policy: OraclePolicy
    seed: int
    steps: int
    orders: tuple[int, ...]
    bits: tuple[Bits, ...] = REQUEST_BITS
    replayed: bool = False
    assumptions: OracleAssumptions = field(default_factory=OracleAssumptions)
    block_types: tuple[int, ...] = BLOCK_TYPES
    tick_share: float = 0.02
    told_share: float = 0.0
    free_block_share: float = 0.0
    kill_share: float = 0.0
    batch_share: float = 0.0
    interrupt_share: float = 0.0
    hold_share: float = 0.0
    migratetypes: tuple[int, ...] = (0, 1, 2)
    stray_share: float = 0.2
    compaction_share: float = 0.0
    imposed_share: float = 0.0
    only_zone_share: float = 0.0
    late: tuple[Grow, ...] = ()

    def started(self) -> Oracle:
        """An oracle with every page placed: blocks of random types, freed in random parts."""
        oracle = Oracle(self.machine, self.rules, self.policy, self.assumptions)
        late = blocks_of(self.late, self.machine.pageblock_order)
        rng = random.Random(self.seed)
        lay_out(oracle, self.block_types, rng, self.free_block_share, left_out=late)
        for cpu in range(self.machine.nr_cpus):
            for zone in range(len(self.machine.zones)):
                oracle.drain_zone(zone, cpu, by=0)
        oracle.settle_counters()
        oracle.events.clear()
        oracle.work.clear()
        return oracle

    def run(self, oracle: Oracle) -> Iterator[tuple[Step, Live]]:
        """Take each step on the oracle; yields it and the pages it was given, if any."""
        rng = random.Random(self.seed + 1)
        live: list[Live] = [(each,) for each in live_objects(oracle)]
        alive = set(range(self.machine.nr_cpus))
        late = list(self.late)
        for number in range(self.steps):
            if number % PHASE == 0:
                pressure, busy_cpu = rng.choice(PRESSURES), rng.randrange(self.machine.nr_cpus)
            strays = rng.random() >= 1 - self.stray_share
            cpu = rng.randrange(self.machine.nr_cpus) if strays else busy_cpu
            step: Step
            if cpu not in alive and rng.random() < RETURN_SHARE:
                step = ReviveCpu(cpu)
            else:
                at_work = cpu if cpu in alive else min(alive)
                step = self._next_step(rng, live, late, at_work, pressure)
            note_cpus(alive, step)
            pages = take_step(oracle, step)
            if isinstance(step, Isolate):
                live += [(each,) for each in pages]
            elif pages:
                live.append(pages)
            yield step, pages

    def _next_step(
        self, rng: random.Random, live: list[Live], late: list[Grow], cpu: int, pressure: float
    ) -> Step:
        kind = rng.random()
        if kind < self.tick_share:
            return Tick(cpu)
        if kind < self.tick_share + DRAIN_SHARE:
            return DrainAll()
        if kind > 1 - self.told_share:
            return self._next_told(rng, cpu)
        if kind > 1 - self.told_share - self.kill_share:
            return self._next_kill(rng, cpu)
        if self.compaction_share and rng.random() < self.compaction_share:
            return self._next_of_compaction(rng, cpu)
        if self.hold_share and rng.random() < self.hold_share:
            drained = rng.random() < 0.5
            return HoldDrained(cpu) if drained else BeginRequest(**self._next_request(rng, cpu))
        if self.imposed_share and rng.random() < self.imposed_share:
            return self._next_imposed(rng, late, cpu)
        if rng.random() < pressure or not live:
            return self._next_alloc(rng, cpu)
        pages = live.pop(rng.randrange(max(len(live) - 20, 0), len(live)))
        batched = self.batch_share > 0 and rng.random() < self.batch_share
        if len(pages) > 1:
            return FreeSingly(cpu, pages, batched)
        pfn, order = pages[0]
        while order and rng.random() < 0.05:
            order -= 1
            live.append(((pfn + (1 << order), order),))
        interrupts = not batched and self._interrupts(rng)
        return Free(cpu, pfn, order, batched, interrupts)

    def _next_kill(self, rng: random.Random, by: int) -> KillCpu:
        others = [cpu for cpu in range(self.machine.nr_cpus) if cpu != by]
        return KillCpu(rng.choice(others), by)

    def _next_told(self, rng: random.Random, cpu: int) -> Step:
        node = rng.choice(self.machine.nodes)
        if self.assumptions.direct_reclaim_recorded and rng.random() < 0.5:
            return ReclaimBegin(rng.choice((1, 2, RECLAIMS)), **self._next_request(rng, cpu))
        if not self.assumptions.kswapd_recorded or rng.random() < 0.2:
            zone = rng.choice(self.machine.zones_of(node))
            return SetPcpHigh(zone, cpu, rng.randrange(200))
        if rng.random() < 0.5:
            return KswapdStop(node)
        return KswapdStart(node, rng.randrange(self.machine.zone_types))

    def _next_in_zone(self, rng: random.Random, request: dict[str, int]) -> Replayed:
        zone = rng.choice(self._populated)
        only_zone = zone if rng.random() < self.only_zone_share else None
        is_hidden = rng.random() < 0.2
        if is_hidden:
            request["reclaimed"] = 0
        return Replayed(**request, only_zone=only_zone, is_hidden=is_hidden)

    def _next_imposed(self, rng: random.Random, late: list[Grow], cpu: int) -> Step:
        if late and rng.random() < 0.3:
            return late.pop(0)
        zone = rng.choice(self._populated)
        kind = rng.random()
        if kind < 0.2:
            return SetBoost(zone, rng.choice(BOOSTS))
        if kind < 0.4:
            return DrainZone(zone, rng.randrange(self.machine.nr_cpus), cpu)
        if kind < 0.5:
            return FreeNothing(cpu, rng.randrange(4), rng.random() < 0.5)
        if kind < 0.6:
            return Tick(cpu, is_recorded=True)
        return Failed(**self._next_request(rng, cpu), reclaimed=rng.choice((0, 1, 2)))

    @property
    def _populated(self) -> list[int]:
        return [index for index, each in enumerate(self.machine.zones) if each.managed]

    def _next_of_compaction(self, rng: random.Random, cpu: int) -> Isolate | Capture:
        zone = rng.randrange(len(self.machine.zones))
        if rng.random() < 0.3:
            order = rng.randrange(1, self.machine.pageblock_order + 1)
            return Capture(cpu, zone, order, rng.choice(self.migratetypes))
        orders = rng.choices(range(6), (8, 2, 2, 2, 1, 1), k=rng.randint(1, 12))
        return Isolate(cpu, zone, tuple(sorted(orders, reverse=True)))

    def _next_request(self, rng: random.Random, cpu: int) -> dict[str, int]:
        return {
            "cpu": cpu,
            "order": rng.choice(self.orders),
            "migratetype": rng.choice(self.migratetypes),
            "highest_zone": rng.randrange(self.machine.zone_types),
            "bits": rng.choice(self.bits),
        }

    def _interrupts(self, rng: random.Random) -> bool:
        return self.interrupt_share > 0 and rng.random() < self.interrupt_share

    def _next_alloc(self, rng: random.Random, cpu: int) -> Alloc | Replayed:
        request = self._next_request(rng, cpu)
        if self._interrupts(rng):
            request["bits"] |= Bits.INTERRUPTS_HOLDER
        if self.assumptions.direct_reclaim_recorded:
            request["reclaimed"] = rng.choice((0, 0, 0, 1, 2, RECLAIMS))
        if self.replayed and self.only_zone_share:
            return self._next_in_zone(rng, request)
        if self.replayed:
            return Replayed(**request)
        return Alloc(**request, recorded_success=rng.random() < 0.8)
