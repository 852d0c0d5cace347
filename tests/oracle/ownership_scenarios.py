"""Random scenarios in which CPUs own pageblocks, with options drawn from all there are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from tests.oracle import RULES, OracleAssumptions, OracleMachine, OraclePolicy
from tests.oracle.builders import WITH_CMA
from tests.oracle.elastic_scenarios import ElasticScenario
from tests.oracle.node_scenarios import CMA_BLOCK_TYPES, NODE_BITS, random_node_machine
from tests.oracle.ownership_options import OracleOwnership
from tests.oracle.random_elastic_scenarios import random_elastic_scenario
from tests.oracle.random_scenarios import (
    NETWORK_ORDERS,
    SMALL_ORDERS,
    random_machine,
    random_policy,
)
from tests.oracle.scenarios import REQUEST_BITS, Scenario
from tests.oracle.start_state import BLOCK_TYPES

OWNING_PRESETS = tuple(name for name, rules in RULES.items() if rules.free_lists_match_blocks)
"""Kernels that ownership can be added to."""

NUMBERS = {
    "remote_busy_per_1000": (100, 500, 1000),
    "claims_up_to_order": (10, 10, 0, 3),
    "recorded_cap": (0, 0, 1, 3),
    "recover_limit": (0, 0, 1, 2),
}
"""Values to draw the numeric options from."""

KEEPS_DEFAULT = 0.8
"""Probability that an option is as the proposal has it."""

LARGER_ORDERS = (*SMALL_ORDERS, 4, 5, 8, 9)
"""Orders asked for, some above those of the lists."""


def ownership_scenarios(*, steps: int = 400, replayed: bool = False) -> st.SearchStrategy[Scenario]:
    """Scenarios by their numbers."""
    return st.integers(0, (1 << 32) - 1).map(
        lambda number: random_ownership_scenario(number, steps=steps, replayed=replayed)
    )


def random_ownership_scenario(
    number: int, *, steps: int, replayed: bool, presets: Sequence[str] = OWNING_PRESETS
) -> Scenario:
    """Two to four CPUs, mostly on one node, that free much of what others have allocated.

    Presets without ownership are left out.
    """
    rng = random.Random(number)
    has_nodes = rng.random() < 0.3
    reserving = rng.random() < 0.15
    machine = _random_machine(rng, has_nodes=has_nodes, reserving=reserving)
    rules = RULES[rng.choice([each for each in presets if each in OWNING_PRESETS])]
    return Scenario(
        machine=machine,
        rules=replace(rules, highatomic_from_pcp=rng.random() < 0.5),
        policy=replace(_random_policy(rng, machine), ownership=random_ownership(rng)),
        seed=number,
        steps=steps,
        orders=rng.choice((SMALL_ORDERS, SMALL_ORDERS, LARGER_ORDERS, NETWORK_ORDERS)),
        bits=NODE_BITS if has_nodes else REQUEST_BITS,
        replayed=replayed,
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


def random_owning_elastic_scenario(
    number: int, *, steps: int, presets: Sequence[str] = OWNING_PRESETS
) -> ElasticScenario:
    """A machine under pressure whose CPUs own pageblocks.

    Presets without ownership are left out.
    """
    owning = tuple(each for each in presets if each in OWNING_PRESETS)
    plain = random_elastic_scenario(number, steps=steps, presets=owning)
    rng = random.Random(number + 1)
    return replace(
        plain,
        free_share=rng.choice((0.3, 1.0, 1.0)),
        policy=replace(
            _with_fitting_limits(rng, plain.machine, plain.policy),
            ownership=replace(random_ownership(rng), plain_frees=rng.choice(("owner", "local"))),
        ),
    )


def random_ownership(rng: random.Random) -> OracleOwnership:
    """Each option is its default or, less often, any value."""
    hints = get_type_hints(OracleOwnership)
    drawn = {
        each.name: rng.choice(_values(each.name, hints[each.name]))
        for each in fields(OracleOwnership)
        if rng.random() >= KEEPS_DEFAULT
    }
    return OracleOwnership(**drawn)


def _values(name: str, kind: Any) -> tuple[Any, ...]:
    if name in NUMBERS:
        return NUMBERS[name]
    return (False, True) if kind is bool else get_args(kind)


def _random_machine(rng: random.Random, *, has_nodes: bool, reserving: bool) -> OracleMachine:
    machine = random_node_machine(rng, reserving) if has_nodes else random_machine(rng, reserving)
    nr_cpus = rng.randint(2, 4)
    cpu_nodes = tuple(rng.choice(machine.cpu_nodes) for _ in range(nr_cpus) if machine.cpu_nodes)
    pageblock_order = rng.choice((9, 7, 6, 5, 4)) if not has_nodes else machine.pageblock_order
    migratetypes = rng.choice((WITH_CMA, machine.migratetypes))
    return replace(
        machine,
        nr_cpus=nr_cpus,
        cpu_nodes=cpu_nodes,
        pageblock_order=pageblock_order,
        migratetypes=migratetypes,
    )


def _random_policy(rng: random.Random, machine: OracleMachine) -> OraclePolicy:
    """Limits under which blocks fit, more often than not, or do not."""
    return _with_fitting_limits(rng, machine, random_policy(rng, reserving=False))


def _with_fitting_limits(
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
