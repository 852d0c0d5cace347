"""Random scenarios judged by the kernel's own code: the first difference, narrowed and shrunk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.side_by_side import Difference

SHRINKING_RUNS = 2_000
"""Most runs spent on making a failing sequence shorter."""


class Sides(Protocol):
    """A state carried on by the model and, a copy of it, by the kernel's code."""

    def agree_after(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; return whether they are the same then."""

    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """Return the difference that the operation just taken has made."""

    def close(self) -> None:
        """Give the kernel's memory back."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What judging has found.

    Attributes:
        rules: of the model.
        release: of the tree.
        operations: taken on both without a difference, or up to it.
        scenarios: machines begun.
        seconds: wall-clock, of everything.
        seed: of the run.
        scenario: number of the one that differs, -1 if none does.
        missing: functions judged elsewhere that this tree does not have under their names.
        difference: the first one, None if there is none.
        shortest: the shortest sequence found that still ends in a difference, in words.
        part: what was judged.
    """

    rules: str
    release: str
    operations: int
    scenarios: int
    seconds: float
    seed: int
    missing: tuple[str, ...] = ()
    scenario: int = -1
    difference: Difference | None = None
    shortest: tuple[str, ...] = ()
    part: str = "allocation"


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario:
    """A machine and what happens on it.

    Attributes:
        sides: begins the machine on both sides; each call begins anew.
        operations: taken in order.
        compared_every: operations between two comparisons of the whole state.
        words: an operation as a line.
    """

    sides: Callable[[], Sides]
    operations: np.ndarray
    compared_every: int
    words: Callable[[np.void], str]

    def agreeing(self) -> int:
        """Return the operations, in steps, after which both were still the same."""
        sides = self.sides()
        try:
            for low in range(0, len(self.operations), self.compared_every):
                high = min(low + self.compared_every, len(self.operations))
                if not sides.agree_after(self.operations, low, high):
                    return low
            return len(self.operations)
        finally:
            sides.close()

    def narrowed(self, same_until: int) -> tuple[Difference, tuple[str, ...]]:
        """Return the difference behind so many operations, and a sequence as short as it gets."""
        difference = self.first_difference(same_until)
        short = shrunk(self.operations[: difference.position + 1], self._differs)
        return difference, tuple(self.words(each) for each in short)

    def first_difference(self, same_until: int) -> Difference:
        """Return the difference behind so many operations, comparing after each."""
        window = self.operations[: same_until + self.compared_every]
        sides = self.sides()
        try:
            if same_until and not sides.agree_after(window, 0, same_until):
                return sides.describe(window, same_until - 1)
            for position in range(same_until, len(window)):
                if not sides.agree_after(window, position, position + 1):
                    return sides.describe(window, position)
            unclear = sides.describe(window, len(window) - 1)
        finally:
            sides.close()
        return replace(unclear, lines=("the two differ in steps and agree one by one",))

    def _differs(self, some: np.ndarray) -> bool:
        """Whether the two differ at the end of other operations."""
        sides = self.sides()
        try:
            return not sides.agree_after(some, 0, len(some))
        finally:
            sides.close()


def judge_scenarios(
    begin: Callable[[int, int], Scenario | Difference],
    rules: KernelRules,
    release: str,
    *,
    operations: int,
    seed: int,
    part: str = "allocation",
    missing: tuple[str, ...] = (),
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Take scenario after scenario until a difference, or until enough operations were taken.

    Args:
        begin: makes a scenario from its number and the most operations that it may have, or
            returns a difference that is there before any of them.
        rules: of the model.
        release: of the tree that judges.
        operations: how many.
        seed: that `begin` goes by.
        part: what is judged.
        missing: functions that the tree does not have under their names.
        progress: called with the share done.
    """
    began = time.perf_counter()
    done = number = 0
    found: tuple[Difference, tuple[str, ...]] | None = None
    while done < operations and found is None:
        scenario = begin(number, operations - done)
        if isinstance(scenario, Difference):
            found = scenario, ()
            break
        agreed = scenario.agreeing()
        done += agreed
        if agreed < len(scenario.operations):
            found = scenario.narrowed(agreed)
        else:
            number += 1
        if progress is not None:
            progress(done / operations)
    return Verdict(
        rules=rules.spelled(),
        release=release,
        operations=done,
        scenarios=number,
        seconds=time.perf_counter() - began,
        seed=seed,
        missing=missing,
        scenario=-1 if found is None else number,
        difference=None if found is None else found[0],
        shortest=() if found is None else found[1],
        part=part,
    )


def shrunk(events: np.ndarray, fails: Callable[[np.ndarray], bool]) -> np.ndarray:
    """A shorter sequence that still fails, by leaving out ever smaller parts (delta debugging).

    A free whose allocation is left out does nothing, so that any part may go.

    Args:
        events: a sequence that fails.
        fails: whether a sequence does.
    """
    runs = 0
    size = max(len(events) // 2, 1)
    while runs < SHRINKING_RUNS:
        low = 0
        removed = False
        while low < len(events) and runs < SHRINKING_RUNS:
            candidate = np.concatenate([events[:low], events[low + size :]])
            runs += 1
            if len(candidate) and fails(candidate):
                events, removed = candidate, True
            else:
                low += size
        if size == 1 and not removed:
            break
        size = max(size // 2, 1)
    return events
