"""The kernel's code and the model, step by step side by side."""

from __future__ import annotations

import random

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.kernel_source.random_operations import (
    random_beginning,
    random_reclaim,
)
from pagealloc_model.kernel_source.sides import RECLAIM_COUNTERS, PressureSides, Sides
from pagealloc_model.policy.kernel_rules import KernelRules
from tests.kernel_source import Compiled, Sources
from tests.kernel_source.test_judge import part_of


def test_a_node_without_memory_that_a_run_may_use_is_balanced(compiled: Compiled) -> None:
    """A run that was told of ends with the next free."""
    rules = KernelRules.preset("6.12")
    beginning = next(
        each
        for seed in range(1000)
        if not (each := random_beginning(random.Random(seed), rules)).kswapd_recorded
        and any(zone.node and not zone.managed for zone in each.machine.zones[::2])
        and each.machine.zone_types == ("DMA32", "Normal")
    )
    node = next(z.node for z in beginning.machine.zones[::2] if z.node and not z.managed)
    events = np.zeros(2, at.EVENT)
    events["operation"] = at.KSWAPD_START, at.FREE
    events["offset"] = node, 0
    events["order"] = 0, beginning.image.allocated_order[0]
    places = beginning.starting_places(0)
    sides = Sides(compiled("6.12"), lambda: (beginning.state(), places.copy()))
    for position in range(2):
        assert sides.agree_after(events, position, position + 1), sides.describe(events, position)
        assert sides.model.st[at.KSWAPD_RUNS] == 1 - position
    sides.close()


def test_a_repeated_round_may_have_nothing_to_look_at(kernel_source: Sources) -> None:
    tree, rules = part_of(kernel_source("6.1"), "reclaim"), KernelRules.preset("6.1")
    begin, operations = random_reclaim(random.Random("7 85 reclaim"), rules, 10_000)
    sides = PressureSides(tree, begin, len(operations))
    assert sides.agree_after(operations, 0, 7_732)
    assert sides.agree_after(operations, 7_732, 7_733)
    sides.close()


def test_operations_of_reclaim_reach_what_is_compared(kernel_source: Sources) -> None:
    tree = part_of(kernel_source("6.12"), "reclaim")
    reached = dict.fromkeys(RECLAIM_COUNTERS.values(), 0)
    for seed in range(4):
        begin, operations = random_reclaim(random.Random(seed), KernelRules.preset("6.12"), 3_000)
        sides = PressureSides(tree, begin, len(operations))
        assert sides.agree_after(operations, 0, len(operations))
        st = sides.model.st
        base = int(st[at.PRESSURE_BASE])
        for word, name in RECLAIM_COUNTERS.items():
            reached[name] += int(st[base + word])
        sides.close()
    unreached = {name for name, count in reached.items() if not count}
    assert unreached <= {"pgscan_direct_throttle"}, reached
