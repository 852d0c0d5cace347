"""Compaction judged by the kernel's own code: random operations, the first difference, shrunk."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.kernel_compaction import KernelCompaction
from pagealloc_model.allocator.from_source.parts import COMPACTION
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.allocator.pressure.compaction_operations import take_compaction_operations
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.compaction_differences import compaction_differences
from pagealloc_model.verdict.kernel_judge.judge import Verdict, shrunk
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

    def differences_after(self, operations: np.ndarray, low: int, high: int) -> list[str]:
        """Take operations[low:high] on both; what differs then, one line each."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scenario:
    tree: CompiledTree
    beginning: PressedBeginning
    operations: np.ndarray

    def agreeing(self) -> int:
        """Operations, in steps, after which both were still the same."""
        sides = CompactionSides(self.tree, self.beginning, len(self.operations))
        try:
            for low in range(0, len(self.operations), COMPARED_EVERY):
                high = min(low + COMPARED_EVERY, len(self.operations))
                if sides.differences_after(self.operations, low, high):
                    return low
            return len(self.operations)
        finally:
            sides.close()

    def first_difference(self, same_until: int) -> tuple[int, list[str]]:
        """The first operation that makes a difference, and what differs then."""
        sides = CompactionSides(self.tree, self.beginning, len(self.operations))
        try:
            if same_until:
                sides.differences_after(self.operations, 0, same_until)
            for position in range(same_until, len(self.operations)):
                lines = sides.differences_after(self.operations, position, position + 1)
                if lines:
                    return position, lines
        finally:
            sides.close()
        return len(self.operations) - 1, ["the two differ in steps and agree one by one"]

    def differs(self, some: np.ndarray) -> bool:
        """Whether the two differ at the end of other operations."""
        sides = CompactionSides(self.tree, self.beginning, len(some))
        try:
            return bool(sides.differences_after(np.ascontiguousarray(some), 0, len(some)))
        finally:
            sides.close()


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
    began = time.perf_counter()
    compiled = CompiledTree(tree, COMPACTION)
    done = scenario = 0
    found: tuple[Difference, tuple[str, ...]] | None = None
    while done < operations and found is None:
        rng = random.Random(f"{seed} {scenario} compaction")
        beginning = random_pressed_beginning(rng, rules)
        count = min(SCENARIO, operations - done)
        taken = random_compaction(rng, beginning, count, beginning.state()[0])
        judged = _Scenario(tree=compiled, beginning=beginning, operations=taken)
        agreed = judged.agreeing()
        done += agreed
        if agreed < count:
            found = _narrowed(judged, agreed)
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
        difference=None if found is None else found[0],
        shortest=() if found is None else found[1],
        part=COMPACTION.name,
    )


def _narrowed(judged: _Scenario, same_until: int) -> tuple[Difference, tuple[str, ...]]:
    """The difference of a failing sequence, and a sequence as short as it gets."""
    position, lines = judged.first_difference(same_until)
    state, _ = judged.beginning.state()
    short = shrunk(judged.operations[: position + 1], judged.differs)
    difference = Difference(
        position=position,
        event=operation_words(judged.operations[position], state),
        lines=tuple(lines),
        places=(),
    )
    return difference, tuple(operation_words(each, state) for each in short)
