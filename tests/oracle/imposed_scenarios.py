"""Random scenarios in which a recording imposes what the allocator would decide itself (S10.4)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tests.oracle import RULES, OracleMachine, OracleZone
from tests.oracle.node_scenarios import random_node_scenario
from tests.oracle.ownership_scenarios import OWNING_PRESETS, random_ownership_scenario
from tests.oracle.random_scenarios import random_scenario
from tests.oracle.scenarios import Scenario
from tests.oracle.steps import Grow

LATE_BLOCKS = (0, 1, 2, 2)
"""Pageblocks of a zone that come later."""


def imposed_scenarios(
    *, steps: int = 400, presets: Sequence[str] = tuple(RULES)
) -> st.SearchStrategy[Scenario]:
    """Scenarios by their numbers."""
    return st.integers(0, (1 << 32) - 1).map(
        lambda number: random_imposed_scenario(number, steps=steps, presets=presets)
    )


def random_imposed_scenario(
    number: int, *, steps: int, replayed: bool = True, presets: Sequence[str] = tuple(RULES)
) -> Scenario:
    """Any scenario, small, on several nodes or with owned blocks, and what is imposed on it."""
    rng = random.Random(number)
    kinds = [random_scenario, random_node_scenario, random_node_scenario]
    if set(presets) & set(OWNING_PRESETS):
        kinds.append(random_ownership_scenario)
    plain = rng.choice(kinds)(number, steps=steps, replayed=replayed, presets=presets)
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


def late_memory(rng: random.Random, machine: OracleMachine) -> tuple[Grow, ...]:
    """Memory at the ends of zones that comes while the machine runs, piece by piece, ascending."""
    found: list[Grow] = []
    for number, zone in enumerate(machine.zones):
        pages = rng.choice(LATE_BLOCKS) * machine.pages_per_block
        if pages * 2 <= zone.spanned:
            found += _pieces(rng, machine, number, zone, pages)
    return tuple(found)


def _pieces(
    rng: random.Random, machine: OracleMachine, number: int, zone: OracleZone, pages: int
) -> list[Grow]:
    """The last pages of a zone, from the start of a block on, cut into aligned buddies."""
    found = []
    pfn = -(-(zone.end_pfn - pages) // machine.pages_per_block) * machine.pages_per_block
    while pages and pfn < zone.end_pfn:
        order = rng.choice((machine.max_order, machine.pageblock_order, rng.randrange(3, 8)))
        while pfn % (1 << order) or pfn + (1 << order) > zone.end_pfn:
            order -= 1
        found.append(Grow(number, pfn, order, rng.randrange(machine.nr_cpus)))
        pfn += 1 << order
    return found
