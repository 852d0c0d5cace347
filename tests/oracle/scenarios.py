"""Scenarios: a start state and steps drawn one at a time while the oracle takes them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
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
    Request,
)
from tests.oracle.literal import Pages
from tests.oracle.machine import PMD_ORDER
from tests.oracle.steps import Step, step, take_step

BLOCK = 512  # pages in a pageblock
KERNEL = Bits.DIRECT_RECLAIM | Bits.KSWAPD  # the bits of GFP_KERNEL that matter here
ATOMIC = Bits.HIGH | Bits.KSWAPD  # the bits of GFP_ATOMIC that matter here (S2.4)

WITH_CMA = ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate")
"""Types of a kernel with CMA (S1.3)."""


def zone(name: str, first_block: int, blocks: int, **changes: object) -> OracleZone:
    """A zone of whole blocks; its watermarks are 0 unless given."""
    return zone_of(name, first_block * BLOCK, blocks * BLOCK, **changes)


def zone_of(name: str, start_pfn: int, pages: int, **changes: object) -> OracleZone:
    """A zone whose pages are all present and managed, unless told otherwise."""
    sizes = dict.fromkeys(("spanned", "present", "managed"), pages)
    sizes |= dict.fromkeys(("min", "low", "high"), 0)
    return OracleZone(**{"name": name, "start_pfn": start_pfn, **sizes, **changes})


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


def asked(
    cpu: int, order: int, migratetype: int, highest_zone: int, bits: Bits, **others: int | None
) -> Request:
    return Request(
        cpu=cpu,
        order=order,
        migratetype=migratetype,
        highest_zone=highest_zone,
        bits=bits,
        **others,
    )


def events_named(target: Oracle, name: str) -> list[tuple[object, ...]]:
    return [event for event in target.events if event[0] == name]


LATE_BLOCKS = (0, 1, 2, 2)  # pageblocks of a zone that come later


def late_memory(rng: random.Random, machine: OracleMachine) -> tuple[Step, ...]:
    """Memory at the ends of zones that comes while the machine runs, piece by piece, ascending.

    It is cut into aligned buddies, from the start of a block on.
    """
    late: list[Step] = []
    block = machine.pages_per_block
    for number, zone in enumerate(machine.zones):
        pages = rng.choice(LATE_BLOCKS) * block
        pfn = -(-(zone.end_pfn - pages) // block) * block
        while 0 < pages * 2 <= zone.spanned and pfn < zone.end_pfn:
            order = rng.choice((machine.max_order, machine.pageblock_order, rng.randrange(3, 8)))
            while pfn % (1 << order) or pfn + (1 << order) > zone.end_pfn:
                order -= 1
            cpu = rng.randrange(machine.nr_cpus)
            late.append(step("grow", zone=number, pfn=pfn, order=order, cpu=cpu))
            pfn += 1 << order
    return tuple(late)


def blocks_of(late: Iterable[Step], block_order: int) -> set[int]:
    """Numbers of the pageblocks that such memory lies in."""
    return {
        pfn >> block_order
        for _, grown in late
        for pfn in range(grown["pfn"], grown["pfn"] + (1 << grown["order"]), 8)
    }


FREED_SHARES = (0.0, 0.1, 0.5, 0.9, 1.0, 1.0)  # shares of a block that the start state leaves free
OBJECT_ORDERS = (0, 1, 3, 4, 6, 9)  # orders that the start state's blocks are cut into

BLOCK_TYPES = (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 3, 3)
"""Types the start state's blocks get: ISOLATE is rare, HIGHATOMIC last."""


def live_objects(oracle: Oracle) -> list[tuple[int, int]]:
    """Pages in use as (first page, order): aligned, as movable, as large as a block can hold.

    The oracle's `huge_pages` lie in several blocks.
    """
    largest = min(PMD_ORDER, oracle.machine.pageblock_order)
    movable = oracle.allocated.movable
    objects = []
    end = 0
    for first in sorted(movable):
        if first >= end:
            order = PMD_ORDER if first in oracle.huge_pages else 0
            while order < largest and first % (2 << order) == 0:
                upper_half = range(first + (1 << order), first + (2 << order))
                if any(movable.get(pfn) != movable[first] for pfn in upper_half):
                    break
                order += 1
            objects.append((first, order))
            end = first + (1 << order)
    random.Random(len(objects)).shuffle(objects)
    return objects


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

PHASE = 40  # steps after which pressure and CPU may change
RECLAIMS = 63  # direct reclaims that may be told apart at a time

DRAIN_SHARE = 0.002
"""Probability that a step drains all lists, where requests are not the only ones to do so."""


BOOSTS = (0, 0, 1, 300, 2000)  # boosts that recordings find, pages
RETURN_SHARE = 0.1  # probability that a CPU comes back online where a step would be its own


@dataclass(frozen=True)
class Scenario:
    """A reproducible test case.

    What has a share comes up with that probability, in steps, requests or frees.
    """

    machine: OracleMachine  # a small one
    rules: OracleRules
    policy: OraclePolicy
    seed: int  # decides the start state and every step
    orders: tuple[int, ...]  # to draw requests from
    steps: int = 300  # number of steps
    bits: tuple[Bits, ...] = REQUEST_BITS  # sets of gfp bits to draw requests from
    # every request succeeded in the recording, and is served in single pages at need; else
    # requests may fail
    replayed: bool = True
    # what is the recording's to say, and how counters count
    assumptions: OracleAssumptions = field(default_factory=OracleAssumptions)
    block_types: tuple[int, ...] = BLOCK_TYPES  # to draw the start state's blocks from
    tick_share: float = 0.02  # of steps that are ticks
    told_share: float = 0.0  # of what a recording tells besides requests
    free_block_share: float = 0.0  # of the start's blocks: wholly free, beside others
    kill_share: float = 0.0  # of steps that take a CPU offline
    batch_share: float = 0.0  # of frees that are of a folio batch
    # of requests and other frees that are an interrupt's, which comes into a folio batch, a
    # refill or a drain, if there is one
    interrupt_share: float = 0.0
    hold_share: float = 0.0  # of steps that let interrupts come into a refill or a drain
    migratetypes: tuple[int, ...] = (0, 1, 2)  # to draw requests from
    stray_share: float = 0.2  # of steps on any CPU, not on the busy one
    compaction_share: float = 0.0  # of steps that are recorded compaction's
    imposed_share: float = 0.0  # of steps that impose what a recording found
    only_zone_share: float = 0.0  # of requests to be served by one zone only
    late: tuple[Step, ...] = ()  # memory that is not there at the start, in order
    huge_share: float = 0.0  # of places of a huge page that begin with one, in several blocks

    def started(self) -> Oracle:
        """An oracle with every page placed: blocks of random types, freed in random parts."""
        oracle = Oracle(self.machine, self.rules, self.policy, self.assumptions)
        late = blocks_of(self.late, self.machine.pageblock_order)
        rng = random.Random(self.seed)
        pages = self.machine.pages_per_block
        for zone in self.machine.zones:
            late |= self._lay_out_huge_pages(oracle, zone) if self.huge_share else set()
            for block in range(zone.start_pfn // pages, -(-zone.end_pfn // pages)):
                if block not in late:
                    self._lay_out_block(oracle, zone, block, rng)
        for cpu in range(self.machine.nr_cpus):
            for zone in oracle.zones:
                oracle.drain_zone(zone.index, cpu, by=0)
        oracle.settle_counters()
        oracle.events.clear()
        oracle.work.clear()
        return oracle

    def _lay_out_huge_pages(self, oracle: Oracle, spec: OracleZone) -> set[int]:
        """Lay out huge pages in blocks of one type (S1.12); returns these blocks' numbers."""
        blocks: set[int] = set()
        size = 1 << PMD_ORDER
        for start in range(-(-spec.start_pfn // size) * size, spec.end_pfn - size + 1, size):
            rng = random.Random(self.seed * 1_000_003 + start)
            if rng.random() < self.huge_share:
                first, end = (pfn // self.machine.pages_per_block for pfn in (start, start + size))
                blocks |= set(range(first, end))
                migratetype = rng.choice(self.block_types)
                for block in range(first, end):
                    oracle.set_block_type(block, migratetype)
                oracle.huge_pages.add(start)
                oracle.put_allocated(start, PMD_ORDER, movable=rng.random() < 0.5)
        return blocks

    def _lay_out_block(
        self, oracle: Oracle, spec: OracleZone, block: int, rng: random.Random
    ) -> None:
        """Tag a block, fill it with objects of one order, and free some of them.

        The reserve never gets a block that crosses the zone's edge.
        """
        is_free = self.free_block_share > 0 and rng.random() < self.free_block_share
        start, end = (number * self.machine.pages_per_block for number in (block, block + 1))
        block_types = self.block_types
        if not (spec.spans(start) and spec.spans(end - 1)):
            block_types = [each for each in block_types if each != Migratetype.HIGHATOMIC]
        oracle.set_block_type(block, rng.choice(block_types))
        order = min(rng.choice(OBJECT_ORDERS), self.machine.pageblock_order)
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
                oracle.free(rng.randrange(self.machine.nr_cpus), pfn, order)

    def run(self, oracle: Oracle) -> Iterator[tuple[Step, Pages]]:
        """Take each step on the oracle; yields it and the pages it was given, if any."""
        rng = random.Random(self.seed + 1)
        live: list[Pages] = [(pages,) for pages in live_objects(oracle)]
        alive = set(range(self.machine.nr_cpus))
        late = list(self.late)
        for number in range(self.steps):
            if number % PHASE == 0:
                pressure, busy_cpu = rng.choice(PRESSURES), rng.randrange(self.machine.nr_cpus)
            strays = rng.random() >= 1 - self.stray_share
            cpu = rng.randrange(self.machine.nr_cpus) if strays else busy_cpu
            if cpu not in alive and rng.random() < RETURN_SHARE:
                alive.add(cpu)
                taken = step("revive_cpu", cpu=cpu)
            else:
                at_work = cpu if cpu in alive else min(alive)
                taken = self._next_step(rng, live, late, at_work, pressure)
            if taken.call == "kill_cpu":
                alive.discard(taken.words["cpu"])
            objects = take_step(oracle, taken)
            live += objects
            yield taken, tuple(page for pages in objects for page in pages)

    def _next_step(
        self, rng: random.Random, live: list[Pages], late: list[Step], cpu: int, pressure: float
    ) -> Step:
        kind = rng.random()
        if kind < self.tick_share:
            return step("tick", cpu=cpu)
        if kind < self.tick_share + DRAIN_SHARE:
            return step("drain_all")
        if kind > 1 - self.told_share:
            return self._next_told(rng, cpu)
        if kind > 1 - self.told_share - self.kill_share:
            others = [other for other in range(self.machine.nr_cpus) if other != cpu]
            return step("kill_cpu", cpu=rng.choice(others), by=cpu)
        if self._comes_up(rng, self.compaction_share):
            return self._next_of_compaction(rng, cpu)
        if self._comes_up(rng, self.hold_share):
            if rng.random() < 0.5:
                return step("hold_drained", cpu=cpu)
            return step("begin_request", request=self._next_request(rng, cpu))
        if self._comes_up(rng, self.imposed_share):
            return self._next_imposed(rng, late, cpu)
        if rng.random() < pressure or not live:
            return self._next_alloc(rng, cpu)
        pages = live.pop(rng.randrange(max(len(live) - 20, 0), len(live)))
        batched = self._comes_up(rng, self.batch_share)
        if len(pages) > 1:
            return step("free_singly", cpu=cpu, pages=pages, batched=batched)
        pfn, order = pages[0]
        while order and rng.random() < 0.05:
            order -= 1
            live.append(((pfn + (1 << order), order),))
        interrupts = not batched and self._comes_up(rng, self.interrupt_share)
        return step("free", cpu=cpu, pfn=pfn, order=order, batched=batched, interrupts=interrupts)

    @staticmethod
    def _comes_up(rng: random.Random, share: float) -> bool:
        """Whether something of a share comes up; nothing is drawn for what never does."""
        return share > 0 and rng.random() < share

    def _next_told(self, rng: random.Random, cpu: int) -> Step:
        node = rng.choice(self.machine.nodes)
        kind = rng.random()
        if self.assumptions.direct_reclaim_recorded and kind < 0.1:
            return step("reclaim_in_vain", request=self._next_request(rng, cpu))
        if self.assumptions.direct_reclaim_recorded and kind < 0.5:
            number = rng.choice((1, 2, RECLAIMS))
            request = replace(self._next_request(rng, cpu), reclaim=number)
            return step("begin_reclaim", request=request)
        if not self.assumptions.kswapd_recorded or rng.random() < 0.2:
            zone = rng.choice(self.machine.zones_of(node))
            return step("set_pcp_high", zone=zone, cpu=cpu, high=rng.randrange(200))
        if rng.random() < 0.5:
            return step("stop_kswapd", node=node)
        highest = rng.randrange(self.machine.nr_types)
        return step("start_kswapd", node=node, highest_zone=highest)

    def _next_imposed(self, rng: random.Random, late: list[Step], cpu: int) -> Step:
        if late and rng.random() < 0.3:
            return late.pop(0)
        zone = rng.choice(self._populated)
        kind = rng.random()
        if kind < 0.2:
            return step("set_boost", zone=zone, pages=rng.choice(BOOSTS))
        if kind < 0.4:
            owner = rng.randrange(self.machine.nr_cpus)
            return step("drain_zone", zone=zone, cpu=owner, by=cpu)
        if kind < 0.5:
            order, batched = rng.randrange(4), rng.random() < 0.5
            return step("free_nothing", cpu=cpu, order=order, batched=batched)
        if kind < 0.6:
            return step("tick_as_recorded", cpu=cpu)
        request = self._next_request(rng, cpu)
        return step("fail_as_recorded", request=replace(request, reclaim=rng.choice((0, 1, 2))))

    @property
    def _populated(self) -> list[int]:
        return [index for index, zone in enumerate(self.machine.zones) if zone.managed]

    def _next_of_compaction(self, rng: random.Random, cpu: int) -> Step:
        zone = rng.randrange(len(self.machine.zones))
        kind = rng.random()
        if kind > 0.9:
            return step("drain_local", zone=zone, cpu=cpu)
        if kind < 0.3:
            order = rng.randrange(1, self.machine.pageblock_order + 1)
            wanted = rng.choice(self.migratetypes)
            return step("capture", cpu=cpu, zone=zone, order=order, migratetype=wanted)
        orders = rng.choices(range(6), (8, 2, 2, 2, 1, 1), k=rng.randint(1, 12))
        return step("isolate", cpu=cpu, zone=zone, orders=tuple(sorted(orders, reverse=True)))

    def _next_request(self, rng: random.Random, cpu: int) -> Request:
        return Request(
            cpu=cpu,
            order=rng.choice(self.orders),
            migratetype=rng.choice(self.migratetypes),
            highest_zone=rng.randrange(self.machine.nr_types),
            bits=rng.choice(self.bits),
        )

    def _next_alloc(self, rng: random.Random, cpu: int) -> Step:
        request = self._next_request(rng, cpu)
        if self._comes_up(rng, self.interrupt_share):
            request = replace(request, bits=request.bits | Bits.INTERRUPTS_HOLDER)
        if self.assumptions.direct_reclaim_recorded:
            request = replace(request, reclaim=rng.choice((0, 0, 0, 1, 2, RECLAIMS)))
        if not self.replayed:
            return step("alloc", request=request, recorded_success=rng.random() < 0.8)
        is_hidden = False
        if self.only_zone_share:
            zone = rng.choice(self._populated)
            only_zone = zone if rng.random() < self.only_zone_share else None
            is_hidden = rng.random() < 0.2
            reclaim = 0 if is_hidden else request.reclaim
            request = replace(request, only_zone=only_zone, reclaim=reclaim)
        return step("alloc_as_recorded", request=request, is_hidden=is_hidden)
