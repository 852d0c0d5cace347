"""The model's reclaim judged by the kernel's own: random operations, the first difference."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np

from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.parts import RECLAIM
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.judge import Verdict, shrunk
from pagealloc_model.verdict.kernel_judge.random_pressure import (
    PressedBeginning,
    random_pressed,
    random_reclaim,
)
from pagealloc_model.verdict.kernel_judge.reclaim_sides import ReclaimSides, operation_words
from pagealloc_model.verdict.kernel_judge.side_by_side import Difference

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
    began = time.perf_counter()
    compiled = CompiledTree(tree, RECLAIM)
    done = scenario = 0
    found: tuple[Difference, tuple[str, ...]] | None = None
    while done < operations and found is None:
        rng = random.Random(f"{seed} {scenario} reclaim")
        pressed = random_pressed(rng, rules)
        count = min(SCENARIO, operations - done)
        taken = random_reclaim(rng, pressed, count)
        agreed = _agreeing(compiled, pressed, taken)
        done += agreed
        if agreed < count:
            found = _narrowed(compiled, pressed, taken, agreed)
        else:
            scenario += 1
        if progress is not None:
            progress(done / operations)
    return Verdict(
        rules=rules.spelled(),
        release=tree.release,
        operations=done,
        scenarios=scenario,
        seconds=time.perf_counter() - began,
        seed=seed,
        scenario=-1 if found is None else scenario,
        part=RECLAIM.name,
        difference=None if found is None else found[0],
        shortest=() if found is None else found[1],
    )


def _agreeing(tree: CompiledTree, pressed: PressedBeginning, operations: np.ndarray) -> int:
    """Operations, in steps, after which both were still the same."""
    sides = ReclaimSides(tree, pressed, len(operations))
    try:
        for low in range(0, len(operations), COMPARED_EVERY):
            if not sides.agree_after(operations, low, min(low + COMPARED_EVERY, len(operations))):
                return low
        return len(operations)
    finally:
        sides.close()


def _first_difference(
    tree: CompiledTree, pressed: PressedBeginning, operations: np.ndarray, same_until: int
) -> Difference:
    """The first operation that makes a difference, comparing after each from `same_until` on."""
    sides = ReclaimSides(tree, pressed, len(operations))
    try:
        if same_until and not sides.agree_after(operations, 0, same_until):
            return sides.describe(operations, same_until - 1)
        position = same_until
        while position < len(operations) - 1 and sides.agree_after(
            operations, position, position + 1
        ):
            position += 1
        if position == len(operations) - 1:
            sides.agree_after(operations, position, position + 1)
        return sides.describe(operations, position)
    finally:
        sides.close()


def _narrowed(
    tree: CompiledTree, pressed: PressedBeginning, operations: np.ndarray, same_until: int
) -> tuple[Difference, tuple[str, ...]]:
    """The difference of a failing sequence, and a sequence as short as it gets."""
    window = operations[: same_until + COMPARED_EVERY]
    difference = _first_difference(tree, pressed, window, same_until)
    short = shrunk(
        operations[: difference.position + 1],
        lambda some: _agreeing(tree, pressed, some) < len(some),
    )
    state = pressed.state()
    return difference, tuple(operation_words(each, state) for each in short)
