"""The model's reclaim judged by the kernel's own: random operations, the first difference."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.parts import RECLAIM
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.judged_scenarios import (
    Scenario,
    Verdict,
    judge_scenarios,
)
from pagealloc_model.verdict.kernel_judge.random_pressure import random_pressed, random_reclaim
from pagealloc_model.verdict.kernel_judge.reclaim_sides import ReclaimSides, operation_words

SCENARIO = 10_000
"""Operations on one machine."""

COMPARED_EVERY = 1_000
"""Operations between two comparisons of the whole state; a difference is then narrowed down."""


def judge_reclaim(
    tree: SourceTree,
    rules: KernelRules,
    *,
    operations: int,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Random operations of reclaim on random machines until a difference, or until enough.

    Args:
        tree: whose code judges.
        rules: of the model.
        operations: how many.
        seed: decides every machine and operation.
        progress: called with the share done.

    Raises:
        KernelSourceError: the tree lacks functions or does not compile.
    """
    compiled = CompiledTree(tree, RECLAIM)

    def begin(number: int, most: int) -> Scenario:
        rng = random.Random(f"{seed} {number} reclaim")
        pressed = random_pressed(rng, rules)
        taken = random_reclaim(rng, pressed, min(SCENARIO, most))
        return Scenario(
            sides=lambda: ReclaimSides(compiled, pressed, len(taken)),
            operations=taken,
            compared_every=COMPARED_EVERY,
            words=partial(operation_words, state=pressed.state()),
        )

    return judge_scenarios(
        begin,
        rules,
        tree.release,
        operations=operations,
        seed=seed,
        part=RECLAIM.name,
        progress=progress,
    )
