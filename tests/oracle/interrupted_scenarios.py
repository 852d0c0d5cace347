"""Random scenarios in which interrupts come while their CPU holds the lock of a list (S4.10)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.oracle import RULES
from tests.oracle.node_scenarios import random_node_scenario
from tests.oracle.ownership_scenarios import OWNING_PRESETS, random_ownership_scenario
from tests.oracle.random_scenarios import random_scenario
from tests.oracle.scenarios import Scenario


def random_interrupted_scenario(
    number: int, *, steps: int, replayed: bool, presets: Sequence[str] = tuple(RULES)
) -> Scenario:
    """Any scenario, small, on several nodes or with owned blocks, and interrupts that find locks.

    They ask and free during folio batches, refills and drains, of which there are many or none.
    """
    rng = random.Random(number)
    kinds = [random_scenario, random_scenario, random_node_scenario]
    if set(presets) & set(OWNING_PRESETS) and rng.random() < 0.2:
        kinds = [random_ownership_scenario]
    plain = rng.choice(kinds)(number, steps=steps, replayed=replayed, presets=presets)
    return replace(
        plain,
        batch_share=rng.choice((0.0, 0.3, 0.7)),
        interrupt_share=rng.choice((0.2, 0.5, 0.9)),
        stray_share=rng.choice((0.02, 0.2)),
        hold_share=rng.choice((0.0, 0.1, 0.25)),
    )
