"""Scenarios: a start state and steps drawn one at a time while the oracle takes them."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.oracle import (
    RULES,
    Bits,
    Migratetype,
    Oracle,
    OracleAssumptions,
    OracleMachine,
    OraclePolicy,
    OracleRules,
    OracleZone,
    steps,
)
from tests.oracle.machine import PMD_ORDER

BLOCK = 512
"""Pages in a pageblock."""

KERNEL = Bits.DIRECT_RECLAIM | Bits.KSWAPD
"""The bits of GFP_KERNEL that matter here."""

ATOMIC = Bits.HIGH | Bits.KSWAPD
"""The bits of GFP_ATOMIC that matter here (S2.4)."""

WITH_CMA = ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate")
"""Types of a kernel with CMA (S1.3)."""


def zone(name: str, first_block: int, blocks: int, **changes: object) -> OracleZone:
    """A zone of whole blocks, all present and managed, with watermarks 0 unless given."""
    pages = blocks * BLOCK
    plain = OracleZone(
        name=name,
        start_pfn=first_block * BLOCK,
        spanned=pages,
        present=pages,
        managed=pages,
        min=0,
        low=0,
        high=0,
    )
    return replace(plain, **changes)


def one_zone(blocks: int = 4, *, nr_cpus: int = 1, **changes: object) -> OracleMachine:
    """A machine with a single zone, not named Normal, so that nothing avoids fragmentation."""
    return OracleMachine(zones=(zone("DMA32", 0, blocks, **changes),), nr_cpus=nr_cpus)


def two_nodes(**changes: object) -> OracleMachine:
    """A CPU on each of two nodes: DMA32 and Normal on node 0, Normal on node 1, 4 blocks each."""
    plain = OracleMachine(
        zones=(
            zone("DMA32", 0, 4),
            zone("Normal", 4, 4),
            zone("DMA32", 0, 0, node=1),
            zone("Normal", 8, 4, node=1),
        ),
        nr_cpus=2,
        cpu_nodes=(0, 1),
    )
    return replace(plain, **changes)


def oracle(
    machine: OracleMachine,
    rules: str = "6.12",
    policy: OraclePolicy | None = None,
    assumptions: OracleAssumptions | None = None,
) -> Oracle:
    """An oracle without pages."""
    return Oracle(machine, RULES[rules], policy or OraclePolicy(), assumptions)


def put_free_blocks(target: Oracle, first: int, count: int, migratetype: int = 1) -> None:
    """Wholly free blocks of one type, as order-9 buddies, ascending."""
    for block in range(first, first + count):
        target.set_block_type(block, migratetype)
        target.put_free(block * BLOCK, 9, migratetype)


def put_free_memory(target: Oracle, zone_index: int) -> None:
    """A whole zone free and MOVABLE, in the largest buddies that are aligned."""
    spec = target.machine.zones[zone_index]
    pfn = spec.start_pfn
    while pfn < spec.end_pfn:
        order = target.machine.max_order
        while pfn % (1 << order) or pfn + (1 << order) > spec.end_pfn:
            order -= 1
        target.put_free(pfn, order, Migratetype.MOVABLE)
        pfn += 1 << order


def events_named(target: Oracle, name: str) -> list[tuple[object, ...]]:
    """The events of one kind, oldest first."""
    return [event for event in target.events if event[0] == name]


LATE_BLOCKS = (0, 1, 2, 2)
"""Pageblocks of a zone that come later."""


def late_memory(rng: random.Random, machine: OracleMachine) -> tuple[steps.Grow, ...]:
    """Memory at the ends of zones that comes while the machine runs, piece by piece, ascending."""
    found: list[steps.Grow] = []
    for number, zone in enumerate(machine.zones):
        pages = rng.choice(LATE_BLOCKS) * machine.pages_per_block
        if pages * 2 <= zone.spanned:
            found += _pieces(rng, machine, number, zone, pages)
    return tuple(found)


def _pieces(
    rng: random.Random, machine: OracleMachine, number: int, zone: OracleZone, pages: int
) -> list[steps.Grow]:
    """The last pages of a zone, from the start of a block on, cut into aligned buddies."""
    found = []
    pfn = -(-(zone.end_pfn - pages) // machine.pages_per_block) * machine.pages_per_block
    while pages and pfn < zone.end_pfn:
        order = rng.choice((machine.max_order, machine.pageblock_order, rng.randrange(3, 8)))
        while pfn % (1 << order) or pfn + (1 << order) > zone.end_pfn:
            order -= 1
        found.append(steps.Grow(number, pfn, order, rng.randrange(machine.nr_cpus)))
        pfn += 1 << order
    return found


def blocks_of(late: Iterable[steps.Grow], block_order: int) -> set[int]:
    """Numbers of the pageblocks that such memory lies in."""
    return {
        pfn >> block_order
        for each in late
        for pfn in range(each.pfn, each.pfn + (1 << each.order), 1 << min(block_order, each.order))
    }


FREED_SHARES = (0.0, 0.1, 0.5, 0.9, 1.0, 1.0)
"""Shares of a block that the start state leaves free."""

OBJECT_ORDERS = (0, 1, 3, 4, 6, 9)
"""Orders that the start state's blocks are cut into."""

BLOCK_TYPES = (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 3, 3)
"""Types the start state's blocks get: ISOLATE is rare, HIGHATOMIC last."""


def lay_out(
    oracle: Oracle,
    block_types: Sequence[int],
    rng: random.Random,
    free_share: float = 0.0,
    left_out: Collection[int] = (),
) -> None:
    """Place every page: blocks of types drawn from those given, freed in random parts.

    Args:
        oracle: without pages.
        block_types: types to draw from.
        rng: decides everything.
        free_share: share of the blocks that are wholly free, beside those drawn to be.
        left_out: blocks, by number, that have no pages yet.
    """
    pages = oracle.machine.pages_per_block
    for each in oracle.machine.zones:
        for block in range(each.start_pfn // pages, -(-each.end_pfn // pages)):
            if block in left_out:
                continue
            is_free = free_share > 0 and rng.random() < free_share
            _lay_out_block(oracle, block, block_types, rng, is_free=is_free)


def _lay_out_block(
    oracle: Oracle, block: int, block_types: Sequence[int], rng: random.Random, *, is_free: bool
) -> None:
    """Tag a block, fill it with objects of one order, and free some of them.

    The reserve never gets a block that crosses the zone's edge.
    """
    machine = oracle.machine
    start, end = block * machine.pages_per_block, (block + 1) * machine.pages_per_block
    spec = next(each for each in machine.zones if each.spans(start) or each.spans(end - 1))
    if not (spec.spans(start) and spec.spans(end - 1)):
        block_types = [each for each in block_types if each != Migratetype.HIGHATOMIC]
    oracle.set_block_type(block, rng.choice(block_types))
    order = min(rng.choice(OBJECT_ORDERS), machine.pageblock_order)
    freed_share = 1.0 if is_free else rng.choice(FREED_SHARES)
    objects = [
        pfn
        for pfn in range(start, end, 1 << order)
        if spec.spans(pfn) and spec.spans(pfn + (1 << order) - 1)
    ]
    for pfn in objects:
        oracle.put_allocated(pfn, order, movable=rng.random() < 0.5)
    for pfn in objects:
        if rng.random() < freed_share:
            oracle.free(rng.randrange(machine.nr_cpus), pfn, order)


def live_objects(oracle: Oracle) -> list[tuple[int, int]]:
    """Pages in use as (first page, order), cut into objects as large as a block can hold."""
    largest = min(PMD_ORDER, oracle.machine.pageblock_order)
    movable = {pfn: oracle.allocated.is_movable(pfn) for pfn in oracle.allocated.pages()}
    objects = []
    end = 0
    for pfn in sorted(movable):
        if pfn >= end:
            order = _largest_object(movable, pfn, largest)
            objects.append((pfn, order))
            end = pfn + (1 << order)
    random.Random(len(objects)).shuffle(objects)
    return objects


def _largest_object(movable: dict[int, bool], first: int, largest: int) -> int:
    """Largest order of aligned pages that are all as movable as the first."""
    order = 0
    while order < largest and first % (2 << order) == 0:
        upper_half = range(first + (1 << order), first + (2 << order))
        if any(movable.get(pfn) != movable[first] for pfn in upper_half):
            break
        order += 1
    return order


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


def note_cpus(alive: set[int], step: steps.Step) -> None:
    """Keep the CPUs that are online up to date."""
    match step:
        case steps.KillCpu():
            alive.discard(step.cpu)
        case steps.ReviveCpu():
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
    late: tuple[steps.Grow, ...] = ()

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

    def run(self, oracle: Oracle) -> Iterator[tuple[steps.Step, steps.Live]]:
        """Take each step on the oracle; yields it and the pages it was given, if any."""
        rng = random.Random(self.seed + 1)
        live: list[steps.Live] = [(each,) for each in live_objects(oracle)]
        alive = set(range(self.machine.nr_cpus))
        late = list(self.late)
        for number in range(self.steps):
            if number % PHASE == 0:
                pressure, busy_cpu = rng.choice(PRESSURES), rng.randrange(self.machine.nr_cpus)
            strays = rng.random() >= 1 - self.stray_share
            cpu = rng.randrange(self.machine.nr_cpus) if strays else busy_cpu
            step: steps.Step
            if cpu not in alive and rng.random() < RETURN_SHARE:
                step = steps.ReviveCpu(cpu)
            else:
                at_work = cpu if cpu in alive else min(alive)
                step = self._next_step(rng, live, late, at_work, pressure)
            note_cpus(alive, step)
            if isinstance(step, steps.Isolate):
                pieces = oracle.isolate(**vars(step))
                live += [piece for piece in pieces if piece]
                pages = tuple(page for piece in pieces for page in piece)
            else:
                pages = steps.take_step(oracle, step)
                live += [pages] if pages else []
            yield step, pages

    def _next_step(
        self,
        rng: random.Random,
        live: list[steps.Live],
        late: list[steps.Grow],
        cpu: int,
        pressure: float,
    ) -> steps.Step:
        kind = rng.random()
        if kind < self.tick_share:
            return steps.Tick(cpu)
        if kind < self.tick_share + DRAIN_SHARE:
            return steps.DrainAll()
        if kind > 1 - self.told_share:
            return self._next_told(rng, cpu)
        if kind > 1 - self.told_share - self.kill_share:
            return self._next_kill(rng, cpu)
        if self.compaction_share and rng.random() < self.compaction_share:
            return self._next_of_compaction(rng, cpu)
        if self.hold_share and rng.random() < self.hold_share:
            drained = rng.random() < 0.5
            return (
                steps.HoldDrained(cpu)
                if drained
                else steps.BeginRequest(**self._next_request(rng, cpu))
            )
        if self.imposed_share and rng.random() < self.imposed_share:
            return self._next_imposed(rng, late, cpu)
        if rng.random() < pressure or not live:
            return self._next_alloc(rng, cpu)
        pages = live.pop(rng.randrange(max(len(live) - 20, 0), len(live)))
        batched = self.batch_share > 0 and rng.random() < self.batch_share
        if len(pages) > 1:
            return steps.FreeSingly(cpu, pages, batched)
        pfn, order = pages[0]
        while order and rng.random() < 0.05:
            order -= 1
            live.append(((pfn + (1 << order), order),))
        interrupts = not batched and self._interrupts(rng)
        return steps.Free(cpu, pfn, order, batched, interrupts)

    def _next_kill(self, rng: random.Random, by: int) -> steps.KillCpu:
        others = [cpu for cpu in range(self.machine.nr_cpus) if cpu != by]
        return steps.KillCpu(rng.choice(others), by)

    def _next_told(self, rng: random.Random, cpu: int) -> steps.Step:
        node = rng.choice(self.machine.nodes)
        kind = rng.random()
        if self.assumptions.direct_reclaim_recorded and kind < 0.1:
            return steps.ReclaimInVain(**self._next_request(rng, cpu))
        if self.assumptions.direct_reclaim_recorded and kind < 0.5:
            return steps.ReclaimBegin(
                number=rng.choice((1, 2, RECLAIMS)), **self._next_request(rng, cpu)
            )
        if not self.assumptions.kswapd_recorded or rng.random() < 0.2:
            zone = rng.choice(self.machine.zones_of(node))
            return steps.SetPcpHigh(zone, cpu, rng.randrange(200))
        if rng.random() < 0.5:
            return steps.KswapdStop(node)
        return steps.KswapdStart(node, rng.randrange(self.machine.zone_types))

    def _next_in_zone(self, rng: random.Random, request: dict[str, int]) -> steps.Replayed:
        zone = rng.choice(self._populated)
        only_zone = zone if rng.random() < self.only_zone_share else None
        is_hidden = rng.random() < 0.2
        if is_hidden:
            request["reclaimed"] = 0
        return steps.Replayed(**request, only_zone=only_zone, is_hidden=is_hidden)

    def _next_imposed(self, rng: random.Random, late: list[steps.Grow], cpu: int) -> steps.Step:
        if late and rng.random() < 0.3:
            return late.pop(0)
        zone = rng.choice(self._populated)
        kind = rng.random()
        if kind < 0.2:
            return steps.SetBoost(zone, rng.choice(BOOSTS))
        if kind < 0.4:
            return steps.DrainZone(zone, rng.randrange(self.machine.nr_cpus), cpu)
        if kind < 0.5:
            return steps.FreeNothing(cpu, rng.randrange(4), rng.random() < 0.5)
        if kind < 0.6:
            return steps.Tick(cpu, is_recorded=True)
        return steps.Failed(**self._next_request(rng, cpu), reclaimed=rng.choice((0, 1, 2)))

    @property
    def _populated(self) -> list[int]:
        return [index for index, each in enumerate(self.machine.zones) if each.managed]

    def _next_of_compaction(
        self, rng: random.Random, cpu: int
    ) -> steps.Isolate | steps.Capture | steps.DrainLocal:
        zone = rng.randrange(len(self.machine.zones))
        kind = rng.random()
        if kind > 0.9:
            return steps.DrainLocal(zone, cpu)
        if kind < 0.3:
            order = rng.randrange(1, self.machine.pageblock_order + 1)
            return steps.Capture(cpu, zone, order, rng.choice(self.migratetypes))
        orders = rng.choices(range(6), (8, 2, 2, 2, 1, 1), k=rng.randint(1, 12))
        return steps.Isolate(cpu, zone, tuple(sorted(orders, reverse=True)))

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

    def _next_alloc(self, rng: random.Random, cpu: int) -> steps.Alloc | steps.Replayed:
        request = self._next_request(rng, cpu)
        if self._interrupts(rng):
            request["bits"] |= Bits.INTERRUPTS_HOLDER
        if self.assumptions.direct_reclaim_recorded:
            request["reclaimed"] = rng.choice((0, 0, 0, 1, 2, RECLAIMS))
        if self.replayed and self.only_zone_share:
            return self._next_in_zone(rng, request)
        if self.replayed:
            return steps.Replayed(**request)
        return steps.Alloc(**request, recorded_success=rng.random() < 0.8)
