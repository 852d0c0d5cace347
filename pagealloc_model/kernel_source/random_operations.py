"""Small random machines in random states, and operations on them, by part of the kernel judged."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import operations as op
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.state import (
    LISTED,
    StartImage,
    State,
    install,
    make_state,
    with_pressure,
)
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.recording.machine import DEFAULT_MIGRATETYPES, Machine, Zone

Begin = Callable[[], tuple[State, np.ndarray]]
"""Makes a fresh state and the places of its objects, the same ones at each call."""
NO_OBJECTS = np.zeros(0, np.int32)
LOG_ROWS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class _Build:
    """Options that cost a compilation of the kernel's code: machines share a few of them."""

    zone_types: tuple[str, ...] = ("DMA32", "Normal")
    pageblock_order: int = 9
    migratetypes: tuple[str, ...] = DEFAULT_MIGRATETYPES
    thp: bool = True
    costly_order: int | None = None
    batch_scale_max: int | None = None


_BUILDS = (
    _Build(),
    _Build(thp=False, migratetypes=(*DEFAULT_MIGRATETYPES[:-1], "CMA", "Isolate")),
    _Build(zone_types=("DMA", "DMA32", "Normal", "Movable"), pageblock_order=6),
    _Build(pageblock_order=10, costly_order=1, batch_scale_max=2, thp=False),
)
_FREE_SHARES = (0.0, 0.1, 0.5, 0.9, 1.0, 1.0)
"""Shares of a block that begin free."""
_OBJECT_ORDERS = (0, 1, 3, 4, 6, 9)
"""Orders that blocks begin cut into."""


def _machine(
    rng: random.Random, build: _Build, zones: list[Zone], nodes: int, cpus: int
) -> Machine:
    nr_cpus = rng.randint(1, cpus)
    return Machine(
        zones=tuple(zones),
        nr_cpus=nr_cpus,
        cpu_nodes=tuple(rng.randrange(nodes) for _ in range(nr_cpus)),
        pageblock_order=build.pageblock_order,
        migratetypes=build.migratetypes,
        thp=build.thp,
    )


def _random_build(rng: random.Random, pageblock_order: int) -> _Build:
    """One of `_BUILDS`, with pageblocks of an order if one is given, not 0."""
    build = rng.choice(_BUILDS)
    return replace(build, pageblock_order=pageblock_order) if pageblock_order else build


def random_sized_machine(rng: random.Random, pageblock_order: int = 0) -> Machine:
    """Any number of nodes, CPUs and pages, to half a TiB; at most one block of a zone is there."""
    build = _random_build(rng, pageblock_order)
    nodes = rng.choice((1, 1, 2, 3))
    zones: list[Zone] = []
    for node, name in product(range(nodes), build.zone_types):
        managed = int(2 ** rng.uniform(0, 27))
        if zones and rng.random() < 0.2:
            managed = 0
        pages = (1 << build.pageblock_order) * bool(managed)
        sizes = {"spanned": pages, "present": pages, "managed": managed}
        zones.append(Zone(node=node, name=name, start_pfn=len(zones) << 11, **sizes))
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
        setup = (self.machine, self.rules, self.policy, self.assumptions)
        state = make_state(*setup, log_rows=LOG_ROWS)
        install(state, self.image)
        state.st[at.LOG_PAGES] = 1
        state.st[at.KSWAPD_RECORDED] = self.kswapd_recorded
        state.st[at.DIRECT_RECLAIM_RECORDED] = self.direct_reclaim_recorded
        return state

    def starting_places(self, count: int) -> np.ndarray:
        """int32, each object's page: of the start image, then one unplaced for each operation."""
        return np.concatenate([self.image.allocated_pfn, np.full(count, -1, np.int32)])


def random_beginning(rng: random.Random, rules: KernelRules, pageblock_order: int = 0) -> Beginning:
    """Any machine under any policy; lists mostly overflow within a few operations.

    With pageblocks of an order, if one is given, not 0.
    """
    build = _random_build(rng, pageblock_order)
    machine = _random_machine(rng, build, reserving=rng.randrange(3) == 0)
    policy = Policy(costly_order=build.costly_order, pcp_batch_scale_max=build.batch_scale_max)
    if rng.randrange(6) == 0:
        fraction = rng.choice((None, None, 8, 30))
        policy = replace(policy, percpu_pagelist_high_fraction=fraction)
    else:
        batch = rng.choice((1, 4, 7, 7, 15))
        high_min = rng.choice((0, 1, 4, 5, 8, 40)) * batch
        policy = replace(
            policy,
            pcp_batch=batch,
            pcp_high_min=high_min,
            pcp_high_max=high_min + rng.choice((0, 1, 8, 40)) * batch,
            watermark_boost_factor=rng.choice((0, 1000, 15000, 15000)),
        )
    return Beginning(
        machine=machine,
        rules=rules,
        policy=policy,
        assumptions=Assumptions(
            decay_period_ns=rng.choice((1_000_000, 3_000_000, 20_000_000)),
            free_high_batch=rng.random() < 0.5,
            counters=rng.choice(("exact", "lagged")),
        ),
        image=_random_image(rng, machine),
        kswapd_recorded=rng.random() < 0.3,
        direct_reclaim_recorded=rng.random() < 0.3,
    )


def _random_machine(rng: random.Random, build: _Build, *, reserving: bool) -> Machine:
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
        above = (reserves[index] if other > index else 0 for other in range(len(names)))
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
                lowmem_reserve=tuple(above),
            )
        )
        first = -(-(first + blocks * block) // 2048) * 2048
    return _machine(rng, build, zones, nodes, cpus=3)


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
            order = min(rng.choice(_OBJECT_ORDERS), machine.pageblock_order)
            share = rng.choice(_FREE_SHARES)
            size = 1 << order
            for pfn in range(first, end, size):
                if pfn < zone.start_pfn or pfn + size > zone.end_pfn:
                    continue
                if rng.random() < share:
                    free[pfn : pfn + size] = True
                else:
                    movable[pfn : pfn + size] = rng.random() < 0.5
                    objects.append((pfn, order))
    pfns, orders = np.array(objects, np.int32).reshape(-1, 2).T.copy()
    return StartImage(
        free=free,
        movable=movable,
        block_types=types,
        listed=np.zeros(0, LISTED),
        pcp_high=np.zeros((len(machine.zones), machine.nr_cpus), np.int64),
        allocated_pfn=pfns,
        allocated_order=orders.astype(np.int8),
    )


_SMALL_ORDERS = (0, 0, 0, 0, 0, 0, 1, 1, 2, 3)
"""Orders with a per-CPU list."""
_ALL_ORDERS = (*_SMALL_ORDERS, *_SMALL_ORDERS, 4, 5)
_NETWORK_ORDERS = (0, 0, 0, 1, 2, 2, 3, 3, 3)
_LARGE_ORDERS = (7, 8, 9, 9, 9, 10)
_LARGE_SHARE = 0.002
"""Share of requests of large orders; where none is left, each becomes hundreds of requests."""
_WAITING = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
_ATOMIC = at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM | at.GFP_ATOMIC
_REQUESTS = (
    *(_WAITING, _WAITING, _ATOMIC, at.GFP_KSWAPD_RECLAIM, _ATOMIC | at.GFP_NOMEMALLOC),
    *(_WAITING | at.GFP_HIGH, at.GFP_NOMEMALLOC, _WAITING | at.GFP_MEMALLOC),
    _WAITING | at.GFP_THISNODE | at.GFP_WRITE,
)
"""Sets of gfp bits that lead to different paths (S2.6)."""
_MOSTLY_ATOMIC = (_ATOMIC, _ATOMIC, _ATOMIC, _WAITING)
_SHARES_IN_USE = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.05)
"""Shares of memory that phases drive at; the last one exhausts it."""
_PHASE = 400
_OTHER_SHARE = 0.004
"""Share of operations besides requests and frees."""
_MEAN_GAP_NS = 20_000
_RECLAIMS = (1, 2, 63)
"""Numbers of direct reclaims: few, so that a request meets one that has begun."""


def random_operations(rng: random.Random, beginning: Beginning, count: int) -> np.ndarray:
    """`layout.EVENT` records on the objects of `Beginning.starting_places`."""
    machine = beginning.machine
    orders = rng.choice((_SMALL_ORDERS, _ALL_ORDERS, _ALL_ORDERS, _NETWORK_ORDERS))
    requests = rng.choice((_REQUESTS, _REQUESTS, _MOSTLY_ATOMIC))
    if rng.random() < 0.5:
        requests = tuple(bits & ~at.GFP_ATOMIC for bits in requests)
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
        if number % _PHASE == 0:
            goal, busy_cpu = rng.choice(_SHARES_IN_USE) * memory, rng.randrange(cpus)
        now += int(draw() * 2 * _MEAN_GAP_NS)
        cpu = busy_cpu if draw() < 0.8 else int(draw() * cpus)
        kind = draw()
        if kind < _OTHER_SHARE:
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
            among = orders if draw() > _LARGE_SHARE else _LARGE_ORDERS
            order = among[int(draw() * len(among))]
            bits = requests[int(draw() * len(requests))]
            if beginning.direct_reclaim_recorded and draw() < 0.5:
                bits |= rng.choice(_RECLAIMS) << at.RECLAIM_SHIFT
            operation = at.HIDDEN_ALLOC if kind > 0.97 else at.ALLOC
            request = (order, int(draw() * at.PCP_TYPES), int(draw() * types))
            if bits & at.REQUEST_RECLAIMED and draw() < 0.7:
                rows.append((now, 0, 0, bits, cpu, at.RECLAIM_BEGIN, *request))
                continue
            rows.append((now, first + number, 0, bits, cpu, operation, *request))
            in_use += 1 << order
            live.append((first + number, 0, order))
    return np.array(rows, at.EVENT)


def _other_event(rng: random.Random, now: int, cpu: int, machine: Machine) -> tuple[int, ...]:
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
        bits = of_failure.choice(_REQUESTS) | of_failure.choice((0, 1)) << at.RECLAIM_SHIFT
        highest = of_failure.randrange(types)
        order = of_failure.choice(_ALL_ORDERS)
        migratetype = of_failure.randrange(at.PCP_TYPES)
        return (now, 0, 0, bits, cpu, operation, order, migratetype, highest)
    operation = at.KSWAPD_START if kind < 0.8 else at.KSWAPD_STOP
    node, zone_type = divmod(zone, types)
    return (now, 0, node, 0, cpu, operation, 0, 0, zone_type)


_RECLAIM_ORDERS = (0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9)
_ANY_WAY = _WAITING | pr.GFP_IO | pr.GFP_FS
_RECLAIM_REQUESTS = (
    *(_ANY_WAY, _ANY_WAY, _ANY_WAY & ~pr.GFP_FS, _ANY_WAY & ~(pr.GFP_FS | pr.GFP_IO)),
    *(_ANY_WAY | at.GFP_THISNODE, _ANY_WAY | at.GFP_MEMALLOC, _ANY_WAY | at.GFP_MEMALLOC),
    *(at.GFP_KSWAPD_RECLAIM | at.GFP_HIGH, at.GFP_KSWAPD_RECLAIM),
)
_RECLAIM_KINDS = (op.TAKE, op.LET_GO, op.USE, op.WAKE, op.RUN, op.END_NAP, op.RECLAIM)
_RECLAIM_SHARES = (
    *((60, 6, 4, 10, 10, 5, 5), (20, 2, 10, 20, 20, 8, 20)),
    (30, 30, 2, 15, 12, 8, 3),
)
"""Weights of the operations of reclaim, of which one set holds for a machine."""


def random_reclaim(
    rng: random.Random, rules: KernelRules, count: int, pageblock_order: int = 0
) -> tuple[Begin, np.ndarray]:
    """Any machine under any policy, its movable pages on LRU lists, kswapds asleep."""
    literal = random_beginning(rng, rules, pageblock_order)
    elastic = ElasticAssumptions(
        file_referenced_per_mille=rng.choice((0, 100, 300, 700, 1000)),
        anon_referenced_per_mille=rng.choice((0, 300, 700, 1000)),
        file_dirty_per_mille=rng.choice((0, 0, 200, 1000)),
        anon_scan_percent=rng.choice((0, 0, 30, 50, 100)),
    )
    assumptions = replace(literal.assumptions, reclaim="elastic", elastic=elastic)
    literal = replace(literal, assumptions=assumptions)
    machine, image = literal.machine, literal.image
    draws = np.random.default_rng(rng.randrange(1 << 32))
    listed = image.allocated_pfn[image.movable[image.allocated_pfn]]
    pfns = draws.permutation(listed).astype(np.int32)
    weights = draws.dirichlet(np.full(pr.LRU_LISTS, 0.5))
    seed = rng.randrange(1 << 30)
    lists = draws.choice(pr.LRU_LISTS, len(pfns), p=weights).astype(np.int8)
    failures = [rng.choice((0, 0, 0, 14, 15, 16)) for _ in machine.nodes]

    def begin() -> tuple[State, np.ndarray]:
        state = with_pressure(literal.state(), rules, literal.policy, assumptions, seed=seed)
        state.st[at.LOG_PAGES] = 0
        place_on_lists(state.arrays(NO_OBJECTS), pfns, lists)
        nodes = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
        for node, failed in enumerate(failures):
            state.st[nodes + node * pr.NODE_WORDS + pr.KSWAPD_FAILURES] = failed
        return state, NO_OBJECTS

    types = len(machine.zone_types)
    rows = []
    for kind in rng.choices(_RECLAIM_KINDS, weights=rng.choice(_RECLAIM_SHARES), k=count):
        migratetype = rng.choice((at.MOVABLE, at.MOVABLE, at.UNMOVABLE, at.RECLAIMABLE))
        rows.append(
            (
                kind,
                rng.randrange(len(machine.nodes)),
                rng.randrange(types) if rng.random() < 0.4 else types - 1,
                min(rng.choice(_RECLAIM_ORDERS), machine.pageblock_order),
                rng.choice(_RECLAIM_REQUESTS),
                migratetype,
                rng.choice((pr.ANON, pr.FILE, pr.FILE)) if migratetype == at.MOVABLE else pr.KERNEL,
                rng.randrange(machine.end_pfn),
            )
        )
    return begin, np.array(rows, op.RECLAIM_OPERATION)


_RUN_EVERY, _NAP_EVERY, _RECLAIM_EVERY = 64, 4096, 1024
"""Requests and frees between two runs of each kswapd, ends of its nap, and direct reclaims."""


def recorded_reclaim(demand: Demand, nodes: int) -> np.ndarray:
    """`RECLAIM_OPERATION` records of a recording: requests, frees, and reclaim between them.

    Requests are made once. Each kswapd runs, if it is woken, and naps end in regular turns; each
    request that failed in the recording, and one of many others, reclaims directly.
    """
    start = demand.starting_places()
    taken: dict[int, int] = {}
    rows: list[tuple[int, ...]] = []
    for number, event in enumerate(demand.events):
        names = ("operation", "object", "bits", "zone", "order", "migratetype")
        operation, thing, bits, zone, order, migratetype = (int(event[name]) for name in names)
        request = (0, zone, order, bits, migratetype, bits >> pr.CLASS_SHIFT & 3, 0)
        failed = operation == at.RECORDED_FAILURE
        if operation in (at.ALLOC, at.HIDDEN_ALLOC):
            taken[thing] = len(rows)
            rows.append((op.TAKE, *request))
        elif operation == at.FREE and bits & pr.FREED_BY_RECLAIM != pr.FREED_BY_RECLAIM:
            if thing not in taken and start[thing] < 0:
                continue
            page = -1 - taken.pop(thing) if thing in taken else int(start[thing])
            rows.append((op.LET_GO, 0, 0, 0, 0, 0, 0, page))
        elif not failed:
            continue
        if failed or (operation == at.ALLOC and number % _RECLAIM_EVERY == 0):
            rows.append((op.RECLAIM, *request))
        for every, step in ((_RUN_EVERY, op.RUN), (_NAP_EVERY, op.END_NAP)):
            if number % every == 0:
                rows += [(step, node, 0, 0, 0, 0, 0, 0) for node in range(nodes)]
    return np.array(rows, op.RECLAIM_OPERATION)


_COMPACTION_KINDS = (
    *[pr.JUDGED_DIRECT] * 10,
    *[pr.JUDGED_WAKE] * 4,
    *[pr.JUDGED_TIME] * 3,
    *(pr.JUDGED_NODE, pr.JUDGED_RESET, pr.JUDGED_KSWAPD),
    *[pr.JUDGED_TAKE] * 4,
    *[pr.JUDGED_FREE] * 4,
)
_OBJECTS = 1 << 17
"""Places for objects that operations make."""


def random_compaction(
    rng: random.Random, rules: KernelRules, count: int, pageblock_order: int = 0
) -> tuple[Begin, np.ndarray]:
    """Any machine of a few blocks under any policy that concerns compaction.

    On one in three most requests compact asynchronously for movable pages, which is rare otherwise.
    """
    literal = random_beginning(rng, rules, pageblock_order)
    policy = replace(
        literal.policy,
        compaction_proactiveness=rng.choice((0, 20, 20, 60, 96, 100)),
        extfrag_threshold=rng.choice((0, 300, 500)),
        defrag_mode=rng.choice((0, 1)) if rules.async_source_by_order else None,
    )
    literal = replace(
        literal,
        policy=policy,
        assumptions=replace(literal.assumptions, counters="exact"),
        kswapd_recorded=True,
        direct_reclaim_recorded=False,
    )
    elastic = ElasticAssumptions(
        compact_scan_ns=0,
        compact_migrate_ns=0,
        anon_migration_fails_per_mille=rng.choice((0, 20, 300)),
        file_migration_fails_per_mille=rng.choice((0, 50, 300)),
        compaction_contended_per_mille=0,
    )
    assumptions = replace(literal.assumptions, elastic=elastic)
    seed = rng.randrange(1 << 30)

    def begin() -> tuple[State, np.ndarray]:
        state = literal.state()
        state.st[at.LOG_PAGES] = 0
        state = with_pressure(state, rules, policy, assumptions, seed=seed, start_ns=0)
        places = np.full(_OBJECTS, pr.LOST, np.int32)
        _press(state, places, np.random.default_rng(seed))
        return state, places

    state, _ = begin()
    machine = state.machine
    zones = [index for index, zone in enumerate(machine.zones) if zone.managed]
    types = len(machine.zone_types)
    operations = np.zeros((count, op.OPERATION_WORDS), np.int64)
    number = int(state.folios["object"].max()) + 1
    for row in operations:
        kind, zone = rng.choice(_COMPACTION_KINDS), rng.choice(zones)
        cpu, highest = rng.randrange(machine.nr_cpus), rng.randrange(types)
        order = rng.choice((1, 2, 3, 4, 5, 7, 9, 9, machine.max_order))
        migratetype = rng.choice((at.UNMOVABLE, at.MOVABLE, at.MOVABLE, at.RECLAIMABLE))
        words = [op.KIND, op.ZONE, op.NODE, op.CPU, op.HIGHEST, op.OBJECT, op.ORDER, op.TYPE]
        row[words] = kind, zone, zone // types, cpu, highest, number, order, migratetype
        if kind == pr.JUDGED_DIRECT:
            row[op.PRIORITY] = rng.choice((pr.ASYNC, pr.SYNC_LIGHT, pr.SYNC_LIGHT, pr.SYNC_FULL))
            if seed % 3 == 0 and number % 4:
                row[op.PRIORITY], row[op.TYPE] = pr.ASYNC, at.MOVABLE
            row[op.FLAGS] = rng.choice((at.WMARK_MIN, at.WMARK_LOW))
            is_movable = row[op.TYPE] == at.MOVABLE
            if is_movable and "CMA" in machine.migratetypes:
                row[op.FLAGS] |= at.ALLOC_CMA
            if rules.defrag_promotes_order and not is_movable and rng.random() < 0.3:
                row[op.FLAGS] |= at.ALLOC_NOFRAGMENT
                row[op.ORDER] = rng.choice((0, 1, 3, 5))
            row[op.KEEP] = rng.random() < 0.3
            number += 1
        elif kind == pr.JUDGED_WAKE and rng.random() < 0.4:
            row[op.COUNT] = rng.choice((1, 3, 5, 9, machine.max_order))
            row[op.PRIORITY] = rng.randrange(types)
        elif kind == pr.JUDGED_KSWAPD:
            row[op.COUNT] = rng.randrange(2)
        elif kind == pr.JUDGED_TAKE:
            row[op.ORDER] = rng.choice((0, 0, 0, 1, 2, 3))
            row[op.COUNT] = min(rng.choice((10, 100, 500)), _OBJECTS - number - count)
            number += max(int(row[op.COUNT]), 0)
        elif kind == pr.JUDGED_FREE:
            row[op.COUNT] = rng.choice((50, 300, 500))
    return begin, operations


def _press(state: State, places: np.ndarray, rng: np.random.Generator) -> None:
    """Make allocated pages objects, and draw skip marks, scanner positions and deferral."""
    allocated = np.flatnonzero(state.pages["where"] == at.ALLOCATED)
    places[: len(allocated)] = allocated
    state.folios["object"][allocated] = np.arange(1, len(allocated) + 1)
    movable = allocated[state.pages["tag"][allocated] == 1].astype(np.int32)
    lists = rng.choice([pr.INACTIVE_ANON, pr.INACTIVE_FILE], len(movable)).astype(np.int8)
    place_on_lists(state.arrays(places), movable, lists)
    order = state.machine.pageblock_order
    state.folios["skip"][:: 1 << order] = rng.random(len(state.blocks)) < rng.choice((0, 0.3))
    base = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.ZONES_BASE])
    positions = [pr.ZONE_MIGRATE_ASYNC, pr.ZONE_MIGRATE_SYNC, pr.ZONE_FREE_FROM]
    positions += [pr.ZONE_INIT_MIGRATE, pr.ZONE_INIT_FREE]
    for index, zone in enumerate(state.machine.zones):
        region = state.st[base + index * pr.ZONE_WORDS :]
        if not zone.managed or rng.random() < 0.3:
            continue
        pfns = rng.integers(zone.start_pfn, zone.end_pfn, len(positions)) >> order << order
        region[positions] = sorted(pfns) if rng.random() < 0.5 else pfns
        considered, shift = rng.integers(0, 64), rng.integers(0, 7)
        region[[pr.ZONE_CONSIDERED, pr.ZONE_DEFER_SHIFT]] = considered, shift
        region[pr.ZONE_ORDER_FAILED] = rng.integers(0, state.machine.max_order + 2)
        region[pr.ZONE_FLUSH_SKIPS] = rng.integers(0, 2)
