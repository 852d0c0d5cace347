"""Compaction judged by the kernel's own code: random operations, the first difference, shrunk."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np

from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.kernel_compaction import KernelCompaction
from pagealloc_model.allocator.from_source.parts import COMPACTION
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.allocator.pressure.compaction_operations import take_compaction_operations
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.compaction_differences import compaction_differences
from pagealloc_model.verdict.kernel_judge.judged_scenarios import (
    Scenario,
    Verdict,
    judge_scenarios,
)
from pagealloc_model.verdict.kernel_judge.random_compaction import (
    PressedBeginning,
    operation_words,
    random_compaction,
    random_pressed_beginning,
)
from pagealloc_model.verdict.kernel_judge.side_by_side import Difference

SCENARIO = 1_000
"""Operations on one machine."""

COMPARED_EVERY = 50
"""Operations between two comparisons of the whole state; a difference is then narrowed down."""


class CompactionSides:
    """A state carried on by the model and, a copy of it, by the kernel's code."""

    def __init__(self, tree: CompiledTree, beginning: PressedBeginning, count: int) -> None:
        """Begin twice, for so many operations."""
        self.model, self.places = beginning.state()
        self.kernel = KernelCompaction(tree, beginning.state()[0])
        self.mine, self.theirs = (np.zeros((count, 2), np.int64) for _ in range(2))
        self._lines: list[str] = []

    def agree_after(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; return whether they are the same then."""
        self._lines = self._differences_after(operations, low, high)
        return not self._lines

    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """Return the difference that the operation just taken has made."""
        return Difference(
            position=position,
            event=operation_words(operations[position], self.model),
            lines=tuple(self._lines),
            places=(),
        )

    def _differences_after(self, operations: np.ndarray, low: int, high: int) -> list[str]:
        """What differs after operations[low:high], one line each."""
        model, kernel = self.model, self.kernel
        take_compaction_operations(model.arrays(self.places), operations, self.mine, low, high)
        kernel.take(operations, self.theirs, low, high)
        kernel.store(pages=True)
        lines = [
            f"{name}: model {mine}, kernel {theirs}"
            for each in np.flatnonzero((self.mine != self.theirs).any(axis=1))[:1]
            for name, mine, theirs in zip(
                ("result", "page"), self.mine[each], self.theirs[each], strict=True
            )
            if mine != theirs
        ]
        if kernel.broken_assertion is not None:
            lines.append(
                f"the kernel's assertion does not hold: not ({kernel.broken_assertion[0]})"
            )
        return lines + compaction_differences(model, kernel.state)

    def close(self) -> None:
        """Give the kernel's memory back."""
        self.kernel.close()


def judge_compaction(
    tree: SourceTree,
    rules: KernelRules,
    *,
    operations: int,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Random operations of compaction on random machines until a difference, or enough were taken.

    Args:
        tree: whose code judges.
        rules: of the model.
        operations: how many: direct compactions, wakes of kcompactd, quarters of a second that
            pass, compactions of whole nodes, and changes of memory between them.
        seed: decides every machine and operation.
        progress: called with the share done.

    Raises:
        KernelSourceError: the tree lacks functions or does not compile.
    """
    compiled = CompiledTree(tree, COMPACTION)

    def begin(number: int, most: int) -> Scenario:
        rng = random.Random(f"{seed} {number} compaction")
        beginning = random_pressed_beginning(rng, rules)
        state, _ = beginning.state()
        taken = random_compaction(rng, beginning, min(SCENARIO, most), state)
        return Scenario(
            sides=lambda: CompactionSides(compiled, beginning, len(taken)),
            operations=taken,
            compared_every=COMPARED_EVERY,
            words=partial(operation_words, state=beginning.state()[0]),
        )

    return judge_scenarios(
        begin,
        rules,
        tree.release,
        operations=operations,
        seed=seed,
        part=COMPACTION.name,
        progress=progress,
    )
