"""Random operations in the form of the model's events."""

from __future__ import annotations

import random

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.recording.machine import Machine
from pagealloc_model.verdict.kernel_judge.random_machines import Beginning

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
TOLD_SHARE = 0.004
"""Share of operations that recordings tell besides requests and frees."""

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
        if kind < TOLD_SHARE:
            rows.append(_told(rng, now, cpu, machine))
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


def _told(
    rng: random.Random, now: int, cpu: int, machine: Machine
) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Something a recording tells besides requests and frees."""
    kind = rng.random()
    zone = rng.randrange(len(machine.zones))
    if kind < 0.4:
        return (now, 0, rng.randrange(200), 0, cpu, at.SET_PCP_HIGH, 0, 0, zone)
    if kind < 0.6:
        told = rng.choice((at.RECORDED_FAILURE, at.DRAIN_ALL, at.TICK))
        if told == at.RECORDED_FAILURE:
            return (now, 0, 0, *_failed(random.Random(now), cpu, machine))
        return (now, 0, 0, 0, cpu, told, 0, 0, 0)
    operation = at.KSWAPD_START if kind < 0.8 else at.KSWAPD_STOP
    node, zone_type = divmod(zone, len(machine.zone_types))
    return (now, 0, node, 0, cpu, operation, 0, 0, zone_type)


def _failed(rng: random.Random, cpu: int, machine: Machine) -> tuple[int, int, int, int, int, int]:
    """A request that failed; bits and what follows them in a row."""
    bits = rng.choice(REQUESTS) | rng.choice((0, 1)) << at.RECLAIM_SHIFT
    zone_type = rng.randrange(len(machine.zone_types))
    order = rng.choice(ALL_ORDERS)
    return (bits, cpu, at.RECORDED_FAILURE, order, rng.randrange(at.PCP_TYPES), zone_type)
