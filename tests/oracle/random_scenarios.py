"""Random machines, rules and policies: each scenario is the work of one number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tests.oracle import RULES, Bits, OracleMachine, OraclePolicy, OracleRules
from tests.oracle.builders import ATOMIC, BLOCK, KERNEL, zone
from tests.oracle.machine import Migratetype
from tests.oracle.scenarios import REQUEST_BITS, Scenario
from tests.oracle.start_state import BLOCK_TYPES

MOSTLY_ATOMIC = (ATOMIC, ATOMIC, ATOMIC, KERNEL)
"""Bits of requests that make the highatomic reserve grow, and of some that make it shrink."""

SMALL_ORDERS = (0, 0, 0, 0, 0, 0, 1, 1, 2, 3)
"""Orders with a per-CPU list; no high-order check fails for want of a large buddy."""

ALL_ORDERS = (*SMALL_ORDERS, *SMALL_ORDERS, 4, 5, 8, 9, 9, 10)
"""Orders asked for, the small ones more often."""

NETWORK_ORDERS = (0, 0, 0, 1, 2, 2, 3, 3, 3, 9)
"""Orders asked for where buffers are large."""


def scenarios(
    *, steps: int = 400, replayed: bool = False, presets: Sequence[str] = tuple(RULES)
) -> st.SearchStrategy[Scenario]:
    """Scenarios by their numbers."""
    return st.integers(0, (1 << 32) - 1).map(
        lambda number: random_scenario(number, steps=steps, replayed=replayed, presets=presets)
    )


def random_scenario(
    number: int, *, steps: int, replayed: bool, presets: Sequence[str] = tuple(RULES)
) -> Scenario:
    """Any machine under any policy with a preset's rules; a third are about the reserve."""
    rng = random.Random(number)
    reserving = rng.randrange(3) == 0
    orders = rng.choice((SMALL_ORDERS, ALL_ORDERS, ALL_ORDERS, NETWORK_ORDERS))
    rules = RULES[rng.choice(presets)]
    scenario = Scenario(
        machine=random_machine(rng, reserving),
        rules=replace(rules, highatomic_from_pcp=rng.random() < 0.5),
        policy=random_policy(rng, reserving),
        seed=number,
        steps=steps,
        orders=NETWORK_ORDERS if reserving else orders,
        bits=spelled_for(rules, MOSTLY_ATOMIC if reserving else REQUEST_BITS),
        replayed=replayed,
    )
    policy = with_reserve_switches(rng, scenario.policy)
    return replace(scenario, policy=replace(policy, refill_mode_persists=rng.random() < 0.8))


def with_reserve_switches(rng: random.Random, policy: OraclePolicy) -> OraclePolicy:
    """The policy; in one of four who may use the reserve, and who makes it grow, is drawn."""
    if rng.randrange(4):
        return policy
    return replace(
        policy,
        highatomic_fastpath=rng.choice((False, True)),
        highatomic_slowpath_only=rng.choice((None, False, True)),
    )


def random_superpageblock_scenario(
    number: int, *, steps: int, replayed: bool, presets: Sequence[str] = tuple(RULES)
) -> Scenario:
    """A scenario with superpageblocks, few or many, most of them clean at the start (S14).

    Presets that they cannot be added to are left out.
    """
    fitting = [name for name in presets if RULES[name].free_lists_match_blocks]
    plain = random_scenario(number, steps=steps, replayed=replayed, presets=fitting)
    rng = random.Random(number)
    machine = plain.machine
    if rng.random() < 0.5:
        low, normal = machine.zones
        pages = rng.randint(17, 22) * BLOCK
        normal = replace(normal, spanned=pages, present=pages, managed=pages)
        machine = replace(machine, zones=(low, normal))
    return replace(
        plain,
        machine=machine,
        policy=replace(plain.policy, superpageblock_order=rng.choice((10, 10, 11, 12))),
        block_types=(*[Migratetype.MOVABLE] * rng.choice((4, 12, 40)), *BLOCK_TYPES),
        migratetypes=rng.choice(((0, 1, 2), (0, 1, 1, 1, 2), (0, 0, 2, 1))),
        compaction_share=rng.choice((0.0, 0.0, 0.1)),
    )


def random_compaction_scenario(
    number: int, *, steps: int, replayed: bool, presets: Sequence[str] = tuple(RULES)
) -> Scenario:
    """A scenario in which recorded compaction takes and hands over pages."""
    plain = random_scenario(number, steps=steps, replayed=replayed, presets=presets)
    return replace(plain, compaction_share=0.15)


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
            zone(
                name,
                first,
                blocks,
                start_pfn=first * BLOCK + (missing if name == "DMA32" else 0),
                spanned=pages,
                present=pages,
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
