"""Random scenarios of the literal oracle, by their numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import fields, replace

from pagealloc_model.policy.ownership_options import OwnershipOptions
from tests.oracle import (
    RULES,
    Bits,
    OracleAssumptions,
    OracleMachine,
    OraclePolicy,
    OracleRules,
    OracleZone,
)
from tests.oracle.machine import PMD_ORDER
from tests.oracle.scenarios import (
    ATOMIC,
    BLOCK,
    BLOCK_TYPES,
    KERNEL,
    REQUEST_BITS,
    WITH_CMA,
    Scenario,
    late_memory,
    zone,
    zone_of,
)

ALL = tuple(RULES)  # presets to draw rules from

MOSTLY_ATOMIC = (ATOMIC, ATOMIC, ATOMIC, KERNEL)
"""Bits of requests that make the highatomic reserve grow, and of some that make it shrink."""

SMALL_ORDERS = (0, 0, 0, 0, 0, 0, 1, 1, 2, 3)
"""Orders with a per-CPU list; no high-order check fails for want of a large buddy."""

ALL_ORDERS = (*SMALL_ORDERS, *SMALL_ORDERS, 4, 5, 8, 9, 9, 10)
"""Orders asked for, the small ones more often."""

NETWORK_ORDERS = (0, 0, 0, 1, 2, 2, 3, 3, 3, 9)  # orders asked for where buffers are large


def random_scenario(number: int, presets: Sequence[str] = ALL) -> Scenario:
    """Any machine under any policy with a preset's rules; a third are about the reserve."""
    rng = random.Random(number)
    reserving = rng.randrange(3) == 0
    orders = rng.choice((SMALL_ORDERS, ALL_ORDERS, ALL_ORDERS, NETWORK_ORDERS))
    rules = RULES[rng.choice(presets)]
    machine = random_machine(rng, reserving)
    from_pcp = rng.random() < 0.5
    policy = with_reserve_switches(rng, random_policy(rng, reserving))
    return Scenario(
        machine=machine,
        rules=replace(rules, highatomic_from_pcp=from_pcp),
        policy=replace(policy, refill_mode_persists=rng.random() < 0.8),
        seed=number,
        orders=NETWORK_ORDERS if reserving else orders,
        bits=spelled_for(rules, MOSTLY_ATOMIC if reserving else REQUEST_BITS),
    )


def with_reserve_switches(rng: random.Random, policy: OraclePolicy) -> OraclePolicy:
    """The policy; in one of four who may use the reserve, and who makes it grow, is drawn."""
    if rng.randrange(4):
        return policy
    return replace(
        policy,
        highatomic_fastpath=rng.choice((False, True)),
        highatomic_slowpath_only=rng.choice((None, False, True)),
    )


def spelled_for(rules: OracleRules, sets: tuple[Bits, ...]) -> tuple[Bits, ...]:
    """GFP_ATOMIC carries the bit ATOMIC where that exists (S2.4)."""
    if not rules.atomic_bit_ignores_boost:
        return sets
    return tuple(each | Bits.ATOMIC if each == ATOMIC else each for each in sets)


def random_machine(rng: random.Random, reserving: bool) -> OracleMachine:
    """Two zones of 4 to 8 blocks, the upper one named Normal, and up to three CPUs.

    Outer edges may lie within a block. Managed pages are overstated now and then, so that the
    highatomic cap is worth a few blocks. If `reserving`, watermarks lead most requests to the
    slow path, where the reserve grows and shrinks.
    """
    managed = rng.choice((None, 51_200, 60_000, 260_000))
    shares = (0.1, 0.3, 0.5) if reserving else (0.0, 0.02, 0.1, 0.2)
    missing = rng.choice((0, 0, 0, 8, 256))
    zones = []
    first = 0
    for name in ("DMA32", "Normal"):
        blocks = rng.randint(4, 8)
        pages = blocks * BLOCK - missing
        low = int(pages * rng.choice(shares))
        zones.append(
            zone_of(
                name,
                first * BLOCK + (missing if name == "DMA32" else 0),
                pages,
                managed=managed or pages,
                min=low * 4 // 5,
                low=low,
                high=low * 6 // 5,
                boost=rng.choice((0, 0, 300)),
                lowmem_reserve=(0, rng.choice((0, 200)) if name == "DMA32" else 0),
            )
        )
        first += blocks + blocks % 2
    return OracleMachine(
        zones=tuple(zones),
        nr_cpus=rng.randint(1, 3),
        thp=rng.random() < 0.5,
        free_high_batch=rng.random() < 0.5,
    )


def random_policy(rng: random.Random, reserving: bool) -> OraclePolicy:
    """Mostly policies with per-CPU lists small enough to overflow within a few steps."""
    if rng.randrange(8) == 0:
        return OraclePolicy(percpu_pagelist_high_fraction=rng.choice((0, 0, 8, 30)))
    batch = rng.choice((1, 4, 7))
    high_min = rng.choice((0, 1, 4, 5, 8, 40)) * batch
    return OraclePolicy(
        highatomic_gate_order=rng.choice((0, 0, 1, 2, 3, 9)),
        highatomic_reserve_percent=rng.choice((1, 1, 3) if reserving else (1, 1, 3, 0)),
        costly_order=rng.choice((3, 3, 0, 5)),
        pcp_batch=batch,
        pcp_high_min=high_min,
        pcp_high_max=rng.choice((high_min, 4 * high_min, 4 * high_min, None)),
        pcp_free_batched=rng.choice((None, True, False)),
        pcp_batch_scale_max=rng.choice((0, 2, 5)),
        watermark_boost_factor=rng.choice((0, 15000)),
        pcp_decay_batched=rng.choice((None, None, True, False)),
        pcp_drain_batched=rng.choice((False, True)),
    )


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

PAGEBLOCK_ORDERS = (9, 9, 9, 9, 10, 7, 5, 4)  # S1.2
ALIGNMENT = 1 << 10  # zones begin where a buddy of the largest order may
NODE_NUMBERS = ((0,), (0, 1), (0, 1), (0, 1, 2), (0, 2, 5))  # nodes; their numbers may have gaps


def random_node_scenario(number: int, presets: Sequence[str] = ALL) -> Scenario:
    rng = random.Random(number)
    reserving = rng.randrange(3) == 0
    rules = RULES[rng.choice(presets)]
    machine = random_node_machine(rng, reserving)
    return Scenario(
        machine=machine,
        rules=replace(rules, highatomic_from_pcp=rng.random() < 0.5),
        policy=random_policy(rng, reserving),
        seed=number,
        orders=rng.choice((SMALL_ORDERS, ALL_ORDERS, NETWORK_ORDERS)),
        bits=spelled_for(rules, MOSTLY_ATOMIC if reserving else NODE_BITS),
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
    end, within a block. If `reserving`, most requests fail at the watermarks.
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
            if node not in with_memory or not is_there:
                zones.append(zone(name, 0, 0, node=node))
                continue
            start = -(-end // ALIGNMENT) * ALIGNMENT + (rng.choice((0, 8)) if not end else 0)
            end = start + rng.randint(2, 4) * ALIGNMENT - rng.choice((0, 0, 0, 8, 256))
            pages = end - start
            shares = (0.1, 0.3, 0.5) if reserving else (0.0, 0.02, 0.1, 0.2)
            low = int(pages * rng.choice(shares))
            gap = rng.choice((low // 5, low // 5, 2))
            boost = rng.choice((0, 0, 300))
            reserve = rng.choice((0, 200)) if name == "DMA32" else 0
            about = {"node": node, "managed": managed or pages, "boost": boost}
            about |= {"min": max(low - gap, 0), "low": low, "high": low + gap}
            about["lowmem_reserve"] = (0, *(reserve,) * (len(types) - 1))
            zones.append(zone_of(name, start, pages, **about))
    return tuple(zones)


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


def random_imposed_scenario(number: int, presets: Sequence[str] = ALL) -> Scenario:
    """Any scenario, small, on several nodes or with owned blocks, and what is imposed on it."""
    rng = random.Random(number)
    kinds = [random_scenario, random_node_scenario, random_node_scenario]
    if set(presets) & set(OWNING_PRESETS):
        kinds.append(random_ownership_scenario)
    plain = rng.choice(kinds)(number, presets)
    assumptions = replace(
        plain.assumptions,
        drains_recorded=rng.random() < 0.3,
        direct_reclaim_recorded=rng.random() < 0.5,
    )
    return replace(
        plain,
        assumptions=assumptions,
        told_share=max(plain.told_share, 0.02),
        imposed_share=0.15,
        only_zone_share=rng.choice((0.0, 0.3, 0.8)),
        late=late_memory(rng, plain.machine),
        compaction_share=rng.choice((0.0, 0.1)),
        batch_share=rng.choice((0.0, 0.5)),
    )


def random_interrupted_scenario(number: int, presets: Sequence[str] = ALL) -> Scenario:
    """Any scenario, small, on several nodes or with owned blocks, and interrupts that find locks.

    They ask and free during folio batches, refills and drains, of which there are many or none.
    """
    rng = random.Random(number)
    kinds = [random_scenario, random_scenario, random_node_scenario]
    if set(presets) & set(OWNING_PRESETS) and rng.random() < 0.2:
        kinds = [random_ownership_scenario]
    plain = rng.choice(kinds)(number, presets)
    return replace(
        plain,
        batch_share=rng.choice((0.0, 0.3, 0.7)),
        interrupt_share=rng.choice((0.2, 0.5, 0.9)),
        stray_share=rng.choice((0.02, 0.2)),
        hold_share=rng.choice((0.0, 0.1, 0.25)),
    )


OWNING_PRESETS = tuple(name for name, rules in RULES.items() if rules.free_lists_match_blocks)
"""Kernels that ownership can be added to."""

NUMBERS = {
    "claims_up_to_order": (10, 10, 0, 3),
    "recorded_cap": (0, 0, 1, 3),
    "recover_limit": (0, 0, 1, 2),
}
"""Values to draw the numeric options from."""

KEEPS_DEFAULT = 0.8  # probability that an option is as the proposal has it
KEEPS_SPINNING = 0.1  # that of `remote_free`: its three values are about as likely
LARGER_ORDERS = (*SMALL_ORDERS, 4, 5, 8, 9)  # orders asked for, some above those of the lists


def random_ownership_scenario(number: int, presets: Sequence[str] = OWNING_PRESETS) -> Scenario:
    """Two to four CPUs, mostly on one node, that free much of what others have allocated.

    Presets without ownership are left out.
    """
    rng = random.Random(number)
    has_nodes = rng.random() < 0.3
    reserving = rng.random() < 0.15
    plain = random_node_machine(rng, reserving) if has_nodes else random_machine(rng, reserving)
    nr_cpus = rng.randint(2, 4)
    machine = replace(
        plain,
        nr_cpus=nr_cpus,
        cpu_nodes=tuple(rng.choice(plain.cpu_nodes) for _ in range(nr_cpus) if plain.cpu_nodes),
        pageblock_order=plain.pageblock_order if has_nodes else rng.choice((9, 7, 6, 5, 4)),
        migratetypes=rng.choice((WITH_CMA, plain.migratetypes)),
    )
    rules = RULES[rng.choice([name for name in presets if name in OWNING_PRESETS])]
    from_pcp = rng.random() < 0.5
    policy = with_fitting_limits(rng, machine, random_policy(rng, reserving=False))
    return Scenario(
        machine=machine,
        rules=replace(rules, highatomic_from_pcp=from_pcp),
        policy=replace(policy, ownership=random_ownership(rng)),
        seed=number,
        orders=rng.choice((SMALL_ORDERS, SMALL_ORDERS, LARGER_ORDERS, NETWORK_ORDERS)),
        bits=NODE_BITS if has_nodes else REQUEST_BITS,
        assumptions=OracleAssumptions(counters=rng.choice(("exact", "lagged"))),
        block_types=BLOCK_TYPES if machine.cma is None else CMA_BLOCK_TYPES,
        tick_share=rng.choice((0.01, 0.05)),
        told_share=rng.choice((0.0, 0.02)),
        free_block_share=rng.choice((0.2, 0.5, 0.8)),
        kill_share=rng.choice((0.0, 0.01)),
        batch_share=0.3,
        migratetypes=rng.choice(((0, 1, 2), (0, 1, 1, 1, 1), (1,))),
        stray_share=rng.choice((0.2, 0.5, 1.0)),
    )


OPTIONS = (
    *("fit_test", "ownership_ends", "remote_free", "remote_overflow"),
    *("remote_counts", "plain_frees", "owning_types", "claims_up_to_order", "type_change"),
    *("offline_owner", "merges_at", "full_drain", "recorded_cap", "recorded_lists"),
    *("pressure_claims", "recover_limit", "fragments", "chunk_search", "drain_from", "cma_first"),
    *("routes_frees", "claims_blocks", "recovers"),
)
"""All options, in the order in which they are drawn."""


def random_ownership(rng: random.Random) -> OwnershipOptions:
    """Each option is its default or, less often, any value."""
    about = {option.name: option.metadata for option in fields(OwnershipOptions)}
    drawn = {}
    for name in OPTIONS:
        if rng.random() >= (KEEPS_SPINNING if name == "remote_free" else KEEPS_DEFAULT):
            switch = about[name]["kind"] == "bool"
            named = (False, True) if switch else about[name]["choices"]
            drawn[name] = rng.choice(NUMBERS.get(name, named))
    return OwnershipOptions(**drawn)


def with_fitting_limits(
    rng: random.Random, machine: OracleMachine, policy: OraclePolicy
) -> OraclePolicy:
    """The policy, more often than not with limits of lists that a block or more fits under."""
    if rng.random() < 0.2:
        return policy
    block = machine.pages_per_block
    high_min = int(block * rng.choice((0.25, 1, 1.5, 2, 4)))
    return replace(
        policy,
        pcp_batch=rng.choice((1, 4, 7, 31)),
        pcp_high_min=high_min,
        pcp_high_max=int(high_min * rng.choice((1, 1, 2, 4))),
        percpu_pagelist_high_fraction=0,
    )


def random_lockless_scenario(number: int, presets: Sequence[str] = OWNING_PRESETS) -> Scenario:
    """Owned blocks where little is free: some lose their owner or type while frees wait (S12.8)."""
    plain = random_ownership_scenario(number, presets)
    rng = random.Random(number + 1)
    ownership = replace(
        plain.policy.ownership,
        fit_test="always",
        claims_blocks=True,
        routes_frees=True,
        remote_free="lockless",
        ownership_ends=rng.choice(("whole", "drained", "aged")),
        type_change=rng.choice(("keep", "end")),
    )
    return replace(
        plain,
        policy=replace(plain.policy, ownership=ownership),
        free_block_share=rng.choice((0.05, 0.2)),
        tick_share=0.05,
        migratetypes=(0, 1, 2),
        stray_share=rng.choice((0.1, 0.3, 1.0)),
    )


def random_pageblock_scenario(number: int, presets: Sequence[str] = ALL) -> Scenario:
    """A scenario with blocks of order 9, 7 or 5 by its number, huge pages over several of them."""
    plain = random_scenario(number, presets)
    order = (9, 7, 5)[number % 3]
    return replace(
        plain,
        machine=replace(plain.machine, pageblock_order=order, thp=True),
        orders=ALL_ORDERS,
        huge_share=0.5 if order < PMD_ORDER else 0.0,
        compaction_share=(0.0, 0.1)[number % 2],
        policy=replace(plain.policy, pcp_high_min=1500, pcp_high_max=1500)
        if number % 5 == 0
        else plain.policy,
    )


LITERAL: dict[str, Callable[..., Scenario]] = {
    "small": random_scenario,
    "nodes": random_node_scenario,
    "ownership": random_ownership_scenario,
    "lockless": random_lockless_scenario,
    "compaction": lambda *drawn: replace(random_scenario(*drawn), compaction_share=0.15),
    "interrupts": random_interrupted_scenario,
    "imposed": random_imposed_scenario,
    "pageblocks": random_pageblock_scenario,
}
"""Scenarios of a number, and of some presets, by their kind's name."""
