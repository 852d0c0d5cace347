"""Random scenarios on larger machines: several nodes, CMA, lagging counters, other pageblocks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tests.oracle import RULES, Bits, OracleAssumptions, OracleMachine, OracleZone
from tests.oracle.builders import ATOMIC, KERNEL, WITH_CMA, zone
from tests.oracle.random_scenarios import (
    ALL_ORDERS,
    MOSTLY_ATOMIC,
    NETWORK_ORDERS,
    SMALL_ORDERS,
    random_policy,
    spelled_for,
)
from tests.oracle.scenarios import REQUEST_BITS, Scenario
from tests.oracle.start_state import BLOCK_TYPES

NODE_BITS = (
    *REQUEST_BITS,
    KERNEL | Bits.THISNODE,
    ATOMIC | Bits.THISNODE,
    KERNEL | Bits.MEMALLOC,
    Bits.KSWAPD | Bits.MEMALLOC,
    ATOMIC | Bits.MEMALLOC | Bits.NOMEMALLOC,
)
"""Sets of gfp bits, those that concern nodes and reserves among them."""

CMA_BLOCK_TYPES = (*(each + (each == 4) for each in BLOCK_TYPES), *(4,) * 8)
"""Types of the start state's blocks where CMA is 4 and ISOLATE 5."""

PAGEBLOCK_ORDERS = (9, 9, 9, 9, 10, 7, 5, 4)
"""S1.2."""

ALIGNMENT = 1 << 10
"""Zones begin where a buddy of the largest order may."""

NODE_NUMBERS = ((0,), (0, 1), (0, 1), (0, 1, 2), (0, 2, 5))
"""Nodes; their numbers may have gaps."""


def node_scenarios(
    *, steps: int = 400, replayed: bool = False, presets: Sequence[str] = tuple(RULES)
) -> st.SearchStrategy[Scenario]:
    """Scenarios by their numbers."""
    return st.integers(0, (1 << 32) - 1).map(
        lambda number: random_node_scenario(number, steps=steps, replayed=replayed, presets=presets)
    )


def random_node_scenario(
    number: int, *, steps: int, replayed: bool, presets: Sequence[str] = tuple(RULES)
) -> Scenario:
    """Any machine under any policy with a preset's rules; a third are about the reserve."""
    rng = random.Random(number)
    reserving = rng.randrange(3) == 0
    rules = RULES[rng.choice(presets)]
    machine = random_node_machine(rng, reserving)
    return Scenario(
        machine=machine,
        rules=replace(rules, highatomic_from_pcp=rng.random() < 0.5),
        policy=random_policy(rng, reserving),
        seed=number,
        steps=steps,
        orders=rng.choice((SMALL_ORDERS, ALL_ORDERS, NETWORK_ORDERS)),
        bits=spelled_for(rules, MOSTLY_ATOMIC if reserving else NODE_BITS),
        replayed=replayed,
        assumptions=OracleAssumptions(
            counters=rng.choice(("exact", "lagged")),
            kswapd_recorded=rng.random() < 0.5,
            direct_reclaim_recorded=rng.random() < 0.3,
        ),
        block_types=BLOCK_TYPES if machine.cma is None else CMA_BLOCK_TYPES,
        tick_share=rng.choice((0.02, 0.1)),
        told_share=0.02,
    )


def random_node_machine(rng: random.Random, reserving: bool) -> OracleMachine:
    """One to three nodes with DMA32, Normal and perhaps Movable zones, and up to four CPUs.

    The last of several nodes often has no CPU; a node with CPUs now and then has no memory.
    """
    nodes = rng.choice(NODE_NUMBERS)
    types = rng.choice((("DMA32", "Normal"), ("DMA32", "Normal", "Movable")))
    with_cpus = nodes[:-1] if len(nodes) > 1 and rng.random() < 0.5 else nodes
    with_memory = nodes
    if len(nodes) > 1 and len(with_cpus) == len(nodes) and rng.random() < 0.2:
        with_memory = nodes[:-1]
    nr_cpus = rng.randint(1, 4)
    return OracleMachine(
        zones=_random_zones(rng, nodes, types, with_memory, reserving=reserving),
        nr_cpus=nr_cpus,
        cpu_nodes=tuple(rng.choice(with_cpus) for _ in range(nr_cpus)),
        distances=_random_distances(rng, len(nodes)),
        pageblock_order=rng.choice(PAGEBLOCK_ORDERS),
        migratetypes=rng.choice((WITH_CMA, OracleMachine.migratetypes)),
        thp=rng.random() < 0.7,
        free_high_batch=rng.random() < 0.5,
    )


def _random_zones(
    rng: random.Random,
    nodes: Sequence[int],
    types: Sequence[str],
    with_memory: Sequence[int],
    *,
    reserving: bool,
) -> tuple[OracleZone, ...]:
    """Zones one after another; DMA32 is on the first node only, other zones lack here and there.

    Every node with memory has Normal or Movable memory. The first zone may begin, and any may
    end, within a block.
    """
    managed = rng.choice((None, 51_200, 60_000, 260_000))
    zones = []
    end = 0
    for node in nodes:
        only_movable = node != nodes[0] and "Movable" in types and rng.random() < 0.3
        for name in types:
            is_there = {
                "DMA32": node == nodes[0] and rng.random() < 0.8,
                "Normal": not only_movable,
                "Movable": only_movable or rng.random() < 0.5,
            }[name]
            if node in with_memory and is_there:
                start = -(-end // ALIGNMENT) * ALIGNMENT + (rng.choice((0, 8)) if not end else 0)
                end = start + rng.randint(2, 4) * ALIGNMENT - rng.choice((0, 0, 0, 8, 256))
                plain = zone(name, 0, 0, node=node, start_pfn=start)
                zones.append(_filled(plain, end - start, managed, len(types), rng, reserving))
            else:
                zones.append(zone(name, 0, 0, node=node))
    return tuple(zones)


def _filled(
    plain: OracleZone,
    pages: int,
    managed: int | None,
    types: int,
    rng: random.Random,
    reserving: bool,
) -> OracleZone:
    """A zone with memory and watermarks; if `reserving`, most requests fail at them."""
    low = int(pages * rng.choice((0.1, 0.3, 0.5) if reserving else (0.0, 0.02, 0.1, 0.2)))
    gap = rng.choice((low // 5, low // 5, 2))
    is_below_normal = plain.name == "DMA32"
    return replace(
        plain,
        spanned=pages,
        present=pages,
        managed=managed or pages,
        min=max(low - gap, 0),
        low=low,
        high=low + gap,
        boost=rng.choice((0, 0, 300)),
        lowmem_reserve=(0, *(rng.choice((0, 200)) if is_below_normal else 0,) * (types - 1)),
    )


def _random_distances(rng: random.Random, nodes: int) -> tuple[tuple[int, ...], ...]:
    """Symmetric, 10 within a node; or none, for 20 everywhere else."""
    if rng.random() < 0.5:
        return ()
    pairs = {
        (low, high): rng.choice((12, 20, 20, 31)) for high in range(nodes) for low in range(high)
    }
    return tuple(
        tuple(
            10 if row == column else pairs[min(row, column), max(row, column)]
            for column in range(nodes)
        )
        for row in range(nodes)
    )
