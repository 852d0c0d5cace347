"""Random machines under pressure and operations on their reclaim, for both to begin with."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.pressure.judged_reclaim import (
    END_NAP,
    LET_GO,
    RECLAIM,
    RECLAIM_OPERATION,
    RUN,
    TAKE,
    USE,
    WAKE,
)
from pagealloc_model.allocator.pressure.lru_start import place_on_lists
from pagealloc_model.allocator.pressure.pressure_state import with_pressure
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.random_machines import Beginning, random_beginning

NO_OBJECTS = np.zeros(0, np.int32)
ORDERS = (0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9)
KERNEL = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_IO | pr.GFP_FS
REQUESTS = (
    KERNEL,
    KERNEL,
    KERNEL & ~pr.GFP_FS,
    KERNEL & ~(pr.GFP_FS | pr.GFP_IO),
    KERNEL | at.GFP_THISNODE,
    at.GFP_KSWAPD_RECLAIM | at.GFP_HIGH,
    at.GFP_KSWAPD_RECLAIM,
)
SHARES = (
    {TAKE: 60, LET_GO: 6, USE: 4, WAKE: 10, RUN: 10, END_NAP: 5, RECLAIM: 5},
    {TAKE: 20, LET_GO: 2, USE: 10, WAKE: 20, RUN: 20, END_NAP: 8, RECLAIM: 20},
    {TAKE: 30, LET_GO: 30, USE: 2, WAKE: 15, RUN: 12, END_NAP: 8, RECLAIM: 3},
)
"""How often each operation comes, of which one set holds for a machine."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PressedBeginning:
    """A state that scenarios of reclaim begin with, and how to make it again.

    Attributes:
        beginning: machine, policy and image, its assumptions with those of reclaim.
        seed: of the draws about folios.
        pfns: int32, movable pages in use that begin on LRU lists.
        lists: int8, their lists.
        failures: of each node's kswapd.
    """

    beginning: Beginning
    seed: int
    pfns: np.ndarray
    lists: np.ndarray
    failures: tuple[int, ...]

    def state(self) -> State:
        """A fresh state of an elastic replay, kswapds asleep."""
        given = self.beginning
        state = with_pressure(
            given.state(), given.rules, given.policy, given.assumptions, seed=self.seed
        )
        state.st[at.LOG_PAGES] = 0
        place_on_lists(state.arrays(NO_OBJECTS), self.pfns, self.lists)
        base = int(state.st[at.PRESSURE_BASE])
        nodes = int(state.st[base + pr.NODES_BASE])
        for node, failures in enumerate(self.failures):
            state.st[nodes + node * pr.NODE_WORDS + pr.KSWAPD_FAILURES] = failures
        return state


def random_pressed(rng: random.Random, rules: KernelRules) -> PressedBeginning:
    """Any machine under any policy, its movable pages on LRU lists."""
    beginning = random_beginning(rng, rules)
    given = beginning.assumptions
    share = rng.choice((0, 100, 300, 700, 1000))
    beginning = replace(
        beginning,
        assumptions=replace(
            given,
            reclaim="elastic",
            elastic=ElasticAssumptions(
                file_referenced_per_mille=share,
                anon_referenced_per_mille=rng.choice((0, 300, 700, 1000)),
                file_dirty_per_mille=rng.choice((0, 0, 200, 1000)),
                anon_scan_percent=rng.choice((0, 0, 30, 50, 100)),
            ),
        ),
    )
    image = beginning.image
    is_listed = image.movable[image.allocated_pfn]
    pfns = image.allocated_pfn[is_listed]
    picked = np.random.default_rng(rng.randrange(1 << 32))
    pfns = picked.permutation(pfns).astype(np.int32)
    weights = picked.dirichlet(np.full(pr.LRU_LISTS, 0.5))
    return PressedBeginning(
        beginning=beginning,
        seed=rng.randrange(1 << 30),
        pfns=pfns,
        lists=picked.choice(pr.LRU_LISTS, len(pfns), p=weights).astype(np.int8),
        failures=tuple(rng.choice((0, 0, 0, 14, 15, 16)) for _ in beginning.machine.nodes),
    )


def random_reclaim(rng: random.Random, pressed: PressedBeginning, count: int) -> np.ndarray:
    """`RECLAIM_OPERATION` records."""
    machine = pressed.beginning.machine
    shares = rng.choice(SHARES)
    kinds = rng.choices(list(shares), weights=list(shares.values()), k=count)
    largest = machine.pageblock_order
    types, frames = len(machine.zone_types), machine.end_pfn
    rows = []
    for kind in kinds:
        migratetype = rng.choice((at.MOVABLE, at.MOVABLE, at.UNMOVABLE, at.RECLAIMABLE))
        of_lists = migratetype == at.MOVABLE
        rows.append(
            (
                kind,
                rng.randrange(len(machine.nodes)),
                rng.randrange(types) if rng.random() < 0.4 else types - 1,
                min(rng.choice(ORDERS), largest),
                rng.choice(REQUESTS),
                migratetype,
                rng.choice((pr.ANON, pr.FILE, pr.FILE)) if of_lists else pr.KERNEL,
                rng.randrange(frames),
            )
        )
    return np.array(rows, RECLAIM_OPERATION)
