"""Small random machines in random states, and operations in the form of events."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import LISTED, StartImage, State, install, make_state
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import DEFAULT_MIGRATETYPES, Machine, Zone

LOG_ROWS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Build:
    """Options that cost a compilation of the kernel's code: machines share a few of them."""

    zone_types: tuple[str, ...] = ("DMA32", "Normal")
    pageblock_order: int = 9
    migratetypes: tuple[str, ...] = DEFAULT_MIGRATETYPES
    thp: bool = True
    costly_order: int | None = None
    batch_scale_max: int | None = None


BUILDS = (
    Build(),
    Build(thp=False, migratetypes=(*DEFAULT_MIGRATETYPES[:-1], "CMA", "Isolate")),
    Build(zone_types=("DMA", "DMA32", "Normal", "Movable"), pageblock_order=6),
    Build(pageblock_order=10, costly_order=1, batch_scale_max=2, thp=False),
)
FREE_SHARES = (0.0, 0.1, 0.5, 0.9, 1.0, 1.0)
"""Shares of a block that begin free."""
OBJECT_ORDERS = (0, 1, 3, 4, 6, 9)
"""Orders that blocks begin cut into."""


def _machine(rng: random.Random, build: Build, zones: list[Zone], nodes: int, cpus: int) -> Machine:
    nr_cpus = rng.randint(1, cpus)
    return Machine(
        zones=tuple(zones),
        nr_cpus=nr_cpus,
        cpu_nodes=tuple(rng.randrange(nodes) for _ in range(nr_cpus)),
        pageblock_order=build.pageblock_order,
        migratetypes=build.migratetypes,
        thp=build.thp,
    )


def random_sized_machine(rng: random.Random) -> Machine:
    """Any number of nodes, CPUs and pages, to half a TiB; at most one block of a zone is there."""
    build = rng.choice(BUILDS)
    nodes = rng.choice((1, 1, 2, 3))
    zones: list[Zone] = []
    for node, name in product(range(nodes), build.zone_types):
        managed = int(2 ** rng.uniform(0, 27))
        if zones and rng.random() < 0.2:
            managed = 0
        pages = (1 << build.pageblock_order) * bool(managed)
        first = len(zones) << 11
        zones.append(
            Zone(
                node=node, name=name, start_pfn=first, spanned=pages, present=pages, managed=managed
            )
        )
    return _machine(rng, build, zones, nodes, cpus=64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Beginning:
    """A state that scenarios begin with, and how to make it again."""

    machine: Machine
    rules: KernelRules
    policy: Policy
    assumptions: Assumptions
    image: StartImage
    kswapd_recorded: bool
    direct_reclaim_recorded: bool

    def state(self) -> State:
        """A fresh state; every page moved is logged."""
        state = make_state(
            self.machine, self.rules, self.policy, self.assumptions, log_rows=LOG_ROWS
        )
        install(state, self.image)
        state.st[at.LOG_PAGES] = 1
        state.st[at.KSWAPD_RECORDED] = self.kswapd_recorded
        state.st[at.DIRECT_RECLAIM_RECORDED] = self.direct_reclaim_recorded
        return state


def random_beginning(rng: random.Random, rules: KernelRules) -> Beginning:
    """Any machine under any policy; a third are about the highatomic reserve.

    One in three has several nodes, half have counters that lag.
    """
    build = rng.choice(BUILDS)
    reserving = rng.randrange(3) == 0
    machine = _random_machine(rng, build, reserving)
    return Beginning(
        machine=machine,
        rules=rules,
        policy=_random_policy(rng, build),
        assumptions=Assumptions(
            decay_period_ns=rng.choice((1_000_000, 3_000_000, 20_000_000)),
            free_high_batch=rng.random() < 0.5,
            counters=rng.choice(("exact", "lagged")),
        ),
        image=_random_image(rng, machine),
        kswapd_recorded=rng.random() < 0.3,
        direct_reclaim_recorded=rng.random() < 0.3,
    )


def _random_machine(rng: random.Random, build: Build, reserving: bool) -> Machine:
    """Zones of a few blocks; outer edges may lie within a block.

    Managed pages are overstated now and then, so that the reserve's cap is worth a few blocks. If
    reserving, watermarks lead most requests to the slow path, where the reserve changes.
    """
    block = 1 << build.pageblock_order
    managed = rng.choice((None, 51_200, 60_000, 260_000))
    shares = (0.1, 0.3, 0.5) if reserving else (0.0, 0.02, 0.1, 0.2)
    missing = rng.choice((0, 0, 0, 8, block // 2))
    names = build.zone_types
    reserves = tuple(rng.choice((0, 200)) for _ in names)
    nodes = rng.choice((1, 1, 1, 1, 2, 3))
    zones: list[Zone] = []
    first = 0
    for node, (index, name) in product(range(nodes), enumerate(names)):
        blocks = rng.randint(4, 8) * max(512 // block, 1) if rng.random() < 0.9 or not zones else 0
        pages = blocks * block - (missing if blocks else 0)
        low = int(pages * rng.choice(shares))
        zones.append(
            Zone(
                node=node,
                name=name,
                start_pfn=first + (missing if not zones else 0) if blocks else 0,
                spanned=pages,
                present=pages,
                managed=(managed or pages) if blocks else 0,
                min=low * 4 // 5,
                low=low,
                high=low * 6 // 5,
                boost=rng.choice((0, 0, 300)) if blocks else 0,
                lowmem_reserve=tuple(
                    reserves[index] if above > index else 0 for above in range(len(names))
                ),
            )
        )
        first = -(-(first + blocks * block) // 2048) * 2048
    return _machine(rng, build, zones, nodes, cpus=3)


def _random_policy(rng: random.Random, build: Build) -> Policy:
    """Mostly per-CPU lists small enough to overflow within a few operations."""
    built = {"costly_order": build.costly_order, "pcp_batch_scale_max": build.batch_scale_max}
    if rng.randrange(6) == 0:
        fraction = rng.choice((None, None, 8, 30))
        return Policy(percpu_pagelist_high_fraction=fraction, **built)
    batch = rng.choice((1, 4, 7, 7, 15))
    high_min = rng.choice((0, 1, 4, 5, 8, 40)) * batch
    return Policy(
        pcp_batch=batch,
        pcp_high_min=high_min,
        pcp_high_max=high_min + rng.choice((0, 1, 8, 40)) * batch,
        watermark_boost_factor=rng.choice((0, 1000, 15000, 15000)),
        **built,
    )


def _random_image(rng: random.Random, machine: Machine) -> StartImage:
    """Blocks of random types, each cut into objects of one order, of which some are free."""
    block = 1 << machine.pageblock_order
    frames = -(-machine.end_pfn // block) * block
    free, movable = np.zeros(frames, bool), np.zeros(frames, bool)
    types = np.full(frames // block, -1, np.int8)
    objects: list[tuple[int, int]] = []
    ordinary = [at.UNMOVABLE] * 6 + [at.MOVABLE] * 10 + [at.RECLAIMABLE] * 4
    special = [at.HIGHATOMIC] * 2 + list(range(at.HIGHATOMIC + 1, len(machine.migratetypes)))
    for zone in machine.zones:
        for number in range(zone.start_pfn // block, -(-zone.end_pfn // block)):
            first, end = number * block, (number + 1) * block
            whole = zone.start_pfn <= first and end <= zone.end_pfn
            types[number] = rng.choice(ordinary + special if whole else ordinary)
            order = min(rng.choice(OBJECT_ORDERS), machine.pageblock_order)
            share = rng.choice(FREE_SHARES)
            for pfn in range(first, end, 1 << order):
                size = 1 << order
                if pfn < zone.start_pfn or pfn + size > zone.end_pfn:
                    continue
                if rng.random() < share:
                    free[pfn : pfn + size] = True
                else:
                    movable[pfn : pfn + size] = rng.random() < 0.5
                    objects.append((pfn, order))
    return StartImage(
        free=free,
        movable=movable,
        block_types=types,
        listed=np.zeros(0, LISTED),
        pcp_high=np.zeros((len(machine.zones), machine.nr_cpus), np.int64),
        allocated_pfn=np.array([pfn for pfn, _ in objects], np.int32),
        allocated_order=np.array([order for _, order in objects], np.int8),
    )


SMALL_ORDERS = (0, 0, 0, 0, 0, 0, 1, 1, 2, 3)
"""Orders with a per-CPU list."""

ALL_ORDERS = (*SMALL_ORDERS, *SMALL_ORDERS, 4, 5)
NETWORK_ORDERS = (0, 0, 0, 1, 2, 2, 3, 3, 3)
LARGE_ORDERS = (7, 8, 9, 9, 9, 10)
LARGE_SHARE = 0.002
"""Share of requests of large orders; where none is left, each becomes hundreds of requests."""


KERNEL = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
ATOMIC = at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM | at.GFP_ATOMIC
REQUESTS = (
    KERNEL,
    KERNEL,
    ATOMIC,
    at.GFP_KSWAPD_RECLAIM,
    ATOMIC | at.GFP_NOMEMALLOC,
    KERNEL | at.GFP_HIGH,
    at.GFP_NOMEMALLOC,
    KERNEL | at.GFP_MEMALLOC,
    KERNEL | at.GFP_THISNODE | at.GFP_WRITE,
)
"""Sets of gfp bits that lead to different paths (S2.6)."""

MOSTLY_ATOMIC = (ATOMIC, ATOMIC, ATOMIC, KERNEL)
SHARES_IN_USE = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.05)
"""Shares of memory that phases drive at; the last one exhausts it."""

PHASE = 400
OTHER_SHARE = 0.004
"""Share of operations besides requests and frees."""

MEAN_GAP_NS = 20_000
RECLAIMS = (1, 2, 63)
"""Numbers of direct reclaims: few, so that a request meets one that has begun."""


def starting_places(beginning: Beginning, count: int) -> np.ndarray:
    """int32, where each object is: those of the start image, then one for each operation."""
    first = beginning.image.allocated_pfn
    return np.concatenate([first, np.full(count, -1, np.int32)]).astype(np.int32)


def random_operations(rng: random.Random, beginning: Beginning, count: int) -> np.ndarray:
    """`layout.EVENT` records on the objects of `starting_places`."""
    machine = beginning.machine
    orders = rng.choice((SMALL_ORDERS, ALL_ORDERS, ALL_ORDERS, NETWORK_ORDERS))
    requests = rng.choice((REQUESTS, REQUESTS, MOSTLY_ATOMIC))
    if rng.random() < 0.5:
        requests = tuple(each & ~at.GFP_ATOMIC for each in requests)
    first = len(beginning.image.allocated_pfn)
    live = [(number, 0, int(o)) for number, o in enumerate(beginning.image.allocated_order)]
    rng.shuffle(live)
    rows = []
    now = 0
    memory = sum(zone.managed and zone.spanned for zone in machine.zones)
    in_use = sum(1 << order for _, _, order in live)
    reach = rng.choice((20, 1000))
    cpus, types = machine.nr_cpus, len(machine.zone_types)
    draw = rng.random
    for number in range(count):
        if number % PHASE == 0:
            goal, busy_cpu = rng.choice(SHARES_IN_USE) * memory, rng.randrange(cpus)
        now += int(draw() * 2 * MEAN_GAP_NS)
        cpu = busy_cpu if draw() < 0.8 else int(draw() * cpus)
        kind = draw()
        if kind < OTHER_SHARE:
            rows.append(_other_event(rng, now, cpu, machine))
        elif live and (draw() < 0.9) == (in_use > goal):
            last = len(live) - 1
            chosen = max(int(last - draw() * reach), 0)
            live[chosen], live[last] = live[last], live[chosen]
            which, offset, order = live.pop()
            while order and draw() < 0.05:
                order -= 1
                live.append((which, offset + (1 << order), order))
            in_use -= 1 << order
            rows.append((now, which, offset, 0, cpu, at.FREE, order, 0, 0))
        else:
            among = orders if draw() > LARGE_SHARE else LARGE_ORDERS
            order = among[int(draw() * len(among))]
            bits = requests[int(draw() * len(requests))]
            if beginning.direct_reclaim_recorded and draw() < 0.5:
                bits |= rng.choice(RECLAIMS) << at.RECLAIM_SHIFT
            operation = at.HIDDEN_ALLOC if kind > 0.97 else at.ALLOC
            request = (order, int(draw() * at.PCP_TYPES), int(draw() * types))
            if bits & at.REQUEST_RECLAIMED and draw() < 0.7:
                rows.append((now, 0, 0, bits, cpu, at.RECLAIM_BEGIN, *request))
                continue
            rows.append((now, first + number, 0, bits, cpu, operation, *request))
            in_use += 1 << order
            live.append((first + number, 0, order))
    return np.array(rows, at.EVENT)


def _other_event(
    rng: random.Random, now: int, cpu: int, machine: Machine
) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Something a recording shows besides requests and frees."""
    kind = rng.random()
    zone = rng.randrange(len(machine.zones))
    types = len(machine.zone_types)
    if kind < 0.4:
        return (now, 0, rng.randrange(200), 0, cpu, at.SET_PCP_HIGH, 0, 0, zone)
    if kind < 0.6:
        operation = rng.choice((at.RECORDED_FAILURE, at.DRAIN_ALL, at.TICK))
        if operation != at.RECORDED_FAILURE:
            return (now, 0, 0, 0, cpu, operation, 0, 0, 0)
        of_failure = random.Random(now)
        bits = of_failure.choice(REQUESTS) | of_failure.choice((0, 1)) << at.RECLAIM_SHIFT
        highest = of_failure.randrange(types)
        order = of_failure.choice(ALL_ORDERS)
        migratetype = of_failure.randrange(at.PCP_TYPES)
        return (now, 0, 0, bits, cpu, operation, order, migratetype, highest)
    operation = at.KSWAPD_START if kind < 0.8 else at.KSWAPD_STOP
    node, zone_type = divmod(zone, types)
    return (now, 0, node, 0, cpu, operation, 0, 0, zone_type)
