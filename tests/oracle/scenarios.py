"""Scenarios: a start state and random steps, for the oracle and what is judged by it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.oracle import Bits, Oracle, OracleMachine, OraclePolicy, OracleRules
from tests.oracle.builders import ATOMIC, BLOCK, KERNEL
from tests.oracle.machine import PMD_ORDER
from tests.oracle.rules import OracleAssumptions

REQUEST_BITS = (
    KERNEL,
    ATOMIC,
    Bits.KSWAPD,
    ATOMIC | Bits.NOMEMALLOC,
    KERNEL | Bits.HIGH,
    Bits.NOMEMALLOC,
)
"""Sets of gfp bits that lead to different slow paths (S2.6)."""

FREED_SHARES = (0.0, 0.1, 0.5, 0.9, 1.0, 1.0)
"""Shares of a block that the start state leaves free."""

PRESSURES = (0.1, 0.4, 0.5, 0.6, 0.9)
"""Probabilities that a step of a phase asks for pages rather than giving some back."""

PHASE = 40
"""Steps after which pressure and CPU may change."""

OBJECT_ORDERS = (0, 1, 3, 4, 6, 9)
"""Orders that the start state's blocks are cut into."""

BLOCK_TYPES = (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 3, 3)
"""Types the start state's blocks get: ISOLATE is rare, HIGHATOMIC last."""


@dataclass(frozen=True)
class Alloc:
    """Ask for pages; arguments as of `Oracle.alloc`."""

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int
    recorded_success: bool


@dataclass(frozen=True)
class Replayed:
    """A request that succeeded in the recording; arguments as of `Oracle.alloc_as_recorded`."""

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int


@dataclass(frozen=True)
class Free:
    """Free pages in use."""

    cpu: int
    pfn: int
    order: int


@dataclass(frozen=True)
class FreeSingly:
    """Free single pages that served one request, last first."""

    cpu: int
    pages: Live


@dataclass(frozen=True)
class Tick:
    """A CPU's vmstat worker runs."""

    cpu: int


@dataclass(frozen=True)
class DrainAll:
    """All per-CPU lists are emptied."""


Step = Alloc | Replayed | Free | FreeSingly | Tick | DrainAll

Live = tuple[tuple[int, int], ...]
"""(First page, order) of what serves one request: a buddy, or single pages."""


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
            served in single pages where no buddy serves it; only requests drain all lists.
        assumptions: what is the recording's to say.
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

    def started(self) -> Oracle:
        """An oracle with every page placed: blocks of random types, freed in random parts."""
        oracle = Oracle(self.machine, self.rules, self.policy, self.assumptions)
        rng = random.Random(self.seed)
        for each in self.machine.zones:
            for block in range(each.start_pfn // BLOCK, -(-each.end_pfn // BLOCK)):
                _lay_out_block(oracle, block, rng)
        oracle.drain_all()
        oracle.settle_counters()
        oracle.events.clear()
        return oracle

    def run(self, oracle: Oracle) -> Iterator[tuple[Step, Live]]:
        """Take each step on the oracle; yields it and the pages it was given, if any."""
        rng = random.Random(self.seed + 1)
        live: list[Live] = [(each,) for each in live_objects(oracle)]
        for number in range(self.steps):
            if number % PHASE == 0:
                pressure, busy_cpu = rng.choice(PRESSURES), rng.randrange(self.machine.nr_cpus)
            cpu = busy_cpu if rng.random() < 0.8 else rng.randrange(self.machine.nr_cpus)
            step = self._next_step(rng, live, cpu, pressure)
            pages = take_step(oracle, step)
            if pages:
                live.append(pages)
            yield step, pages

    def _next_step(self, rng: random.Random, live: list[Live], cpu: int, pressure: float) -> Step:
        kind = rng.random()
        if kind < 0.02:
            return Tick(cpu)
        if kind < 0.022 and not self.replayed:
            return DrainAll()
        if rng.random() < pressure or not live:
            return self._next_alloc(rng, cpu)
        pages = live.pop(rng.randrange(max(len(live) - 20, 0), len(live)))
        if len(pages) > 1:
            return FreeSingly(cpu, pages)
        pfn, order = pages[0]
        while order and rng.random() < 0.05:
            order -= 1
            live.append(((pfn + (1 << order), order),))
        return Free(cpu, pfn, order)

    def _next_alloc(self, rng: random.Random, cpu: int) -> Alloc | Replayed:
        request = {
            "cpu": cpu,
            "order": rng.choice(self.orders),
            "migratetype": rng.randrange(3),
            "highest_zone": rng.randrange(len(self.machine.zones)),
            "bits": rng.choice(self.bits),
        }
        if self.replayed:
            return Replayed(**request)
        return Alloc(**request, recorded_success=rng.random() < 0.8)


def take_step(oracle: Oracle, step: Step) -> Live:
    """One step on an oracle; the pages it is given, if any."""
    match step:
        case Alloc():
            pfn = oracle.alloc(**vars(step))
            return () if pfn is None else ((pfn, step.order),)
        case Replayed():
            return oracle.alloc_as_recorded(**vars(step))
        case Free():
            oracle.free(step.cpu, step.pfn, step.order)
        case FreeSingly():
            for pfn, _ in reversed(step.pages):
                oracle.free(step.cpu, pfn, 0)
        case Tick():
            oracle.tick(step.cpu)
        case DrainAll():
            oracle.drain_all()
    return ()


def _lay_out_block(oracle: Oracle, block: int, rng: random.Random) -> None:
    """Tag a block, fill it with objects of one order, and free some of them.

    The reserve never gets a block that crosses the zone's edge.
    """
    zones = oracle.machine.zones
    start, end = block * BLOCK, (block + 1) * BLOCK
    spec = next(each for each in zones if each.spans(start) or each.spans(end - 1))
    is_whole = spec.spans(start) and spec.spans(end - 1)
    oracle.set_block_type(block, rng.choice(BLOCK_TYPES if is_whole else BLOCK_TYPES[:-2]))
    order = rng.choice(OBJECT_ORDERS)
    freed_share = rng.choice(FREED_SHARES)
    objects = [
        pfn
        for pfn in range(start, end, 1 << order)
        if spec.spans(pfn) and spec.spans(pfn + (1 << order) - 1)
    ]
    for pfn in objects:
        oracle.put_allocated(pfn, order, movable=rng.random() < 0.5)
    for pfn in objects:
        if rng.random() < freed_share:
            oracle.free(rng.randrange(oracle.machine.nr_cpus), pfn, order)


def live_objects(oracle: Oracle) -> list[tuple[int, int]]:
    """Pages in use as (first page, order), cut into objects as large as can be."""
    movable = {pfn: oracle.allocated.is_movable(pfn) for pfn in oracle.allocated.pages()}
    objects = []
    end = 0
    for pfn in sorted(movable):
        if pfn >= end:
            order = _largest_object(movable, pfn)
            objects.append((pfn, order))
            end = pfn + (1 << order)
    random.Random(len(objects)).shuffle(objects)
    return objects


def _largest_object(movable: dict[int, bool], first: int) -> int:
    """Largest order, up to a block's, of aligned pages that are all as movable as the first."""
    order = 0
    while order < PMD_ORDER and first % (2 << order) == 0:
        upper_half = range(first + (1 << order), first + (2 << order))
        if any(movable.get(pfn) != movable[first] for pfn in upper_half):
            break
        order += 1
    return order
