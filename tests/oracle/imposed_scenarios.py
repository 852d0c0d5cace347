"""Random scenarios in which a recording imposes what the allocator would decide itself (S10.4)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tests.oracle import RULES
from tests.oracle.late_memory import late_memory
from tests.oracle.node_scenarios import random_node_scenario
from tests.oracle.ownership_scenarios import OWNING_PRESETS, random_ownership_scenario
from tests.oracle.random_scenarios import random_scenario
from tests.oracle.scenarios import Scenario


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
