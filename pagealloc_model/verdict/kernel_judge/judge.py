"""The model judged by the kernel's own code: random operations, the first difference, shrunk."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.from_source.build import DECIDED_BY_SOURCE
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.compaction_demand import as_requests
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.start_calibration import begun_state
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.verdict.kernel_judge.judged_sizes import size_difference
from pagealloc_model.verdict.kernel_judge.random_machines import Beginning, random_beginning
from pagealloc_model.verdict.kernel_judge.random_operations import (
    random_operations,
    starting_places,
)
from pagealloc_model.verdict.kernel_judge.side_by_side import Difference, SideBySide, event_words

if TYPE_CHECKING:
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.recording.recording import Recording

SCENARIO = 20_000
"""Operations on one machine."""

COMPARED_EVERY = 1_000
"""Operations between two comparisons of the whole state; a difference is then narrowed down."""

RECORDED_STEP = 1 << 16
"""Events of a recording between two comparisons of the whole state."""

SHRINKING_RUNS = 2_000
"""Most runs spent on making a failing sequence shorter."""


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


def judge(
    tree: CompiledTree,
    rules: KernelRules,
    *,
    operations: int,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Random operations on random machines until a difference, or until enough were taken.

    For each of them, the sizes that set-up gives another machine are compared first.

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
    done = scenario = 0
    found: tuple[Difference, tuple[str, ...]] | None = None
    while done < operations and found is None:
        sizes = size_difference(tree, rules, random.Random(f"{seed} {scenario} sizes"))
        if sizes is not None:
            found = sizes, ()
            break
        rng = random.Random(f"{seed} {scenario}")
        beginning = random_beginning(rng, rules)
        count = min(SCENARIO, operations - done)
        events = random_operations(rng, beginning, count)
        agreed = _agreeing(tree, beginning, events)
        done += agreed
        if agreed < count:
            found = _narrowed(tree, beginning, events, agreed)
        else:
            scenario += 1
        if progress is not None:
            progress(done / operations)
    return Verdict(
        rules=rules.spelled(),
        release=tree.tree.release,
        operations=done,
        scenarios=scenario,
        seconds=time.perf_counter() - began,
        seed=seed,
        missing=tree.missing,
        scenario=-1 if found is None else scenario,
        difference=None if found is None else found[0],
        shortest=() if found is None else found[1],
    )


def judge_recorded(
    tree: CompiledTree,
    rules: KernelRules,
    recording: Recording,
    *,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """A recording's demand instead of random operations.

    What the recorded kernel's source decided, such as a gate of the reserve, is left to the rules.

    Args:
        tree: whose code judges.
        rules: of the model.
        recording: an opened recording.
        progress: called with the share done.

    Raises:
        KernelSourceError: the tree lacks functions or does not compile.
        UsageError: no snapshot, or nothing to replay.
        RecordingError: a file of the recording cannot be read.
    """
    assumptions = Assumptions()
    prepared = prepare(recording, rules, assumptions, 0)
    demand = prepared.demand
    demand = replace(demand, events=as_requests(demand.events, prepared.machine))
    policy = replace(recorded_policy(recording), **dict.fromkeys(DECIDED_BY_SOURCE))

    def begin() -> State:
        state = begun_state(prepared.machine, demand, prepared.image, rules, policy, assumptions)
        state.st[at.LOG_PAGES] = 1
        return state

    began = time.perf_counter()
    events = demand.events
    sides = SideBySide(tree, begin, demand.starting_places())
    done, difference = 0, None
    try:
        while done < len(events) and difference is None:
            step = min(RECORDED_STEP, len(events) - done)
            if not sides.agree_after(events, done, done + step):
                difference = _bisected(tree, begin, demand, done, done + step)
            else:
                done += step
            if progress is not None:
                progress(done / len(events))
    finally:
        sides.close()
    return Verdict(
        rules=rules.spelled(),
        release=tree.tree.release,
        operations=done if difference is None else difference.position,
        scenarios=1,
        seconds=time.perf_counter() - began,
        seed=0,
        missing=tree.missing,
        scenario=-1 if difference is None else 0,
        difference=difference,
    )


def _bisected(
    tree: CompiledTree, begin: Callable[[], State], demand: Demand, same: int, differs: int
) -> Difference:
    """The first event of a recording that makes a difference; each try begins at the start."""
    while True:
        middle = (same + differs) // 2 if differs - same > 1 else same
        sides = SideBySide(tree, begin, demand.starting_places())
        try:
            if middle and not sides.agree_after(demand.events, 0, middle):
                differs = middle
            elif middle == same:
                sides.agree_after(demand.events, same, differs)
                return sides.describe(demand.events, same)
            else:
                same = middle
        finally:
            sides.close()


def _agreeing(tree: CompiledTree, beginning: Beginning, events: np.ndarray) -> int:
    """Operations, in steps, after which both were still the same."""
    sides = SideBySide(tree, beginning.state, starting_places(beginning, len(events)))
    try:
        for low in range(0, len(events), COMPARED_EVERY):
            if not sides.agree_after(events, low, min(low + COMPARED_EVERY, len(events))):
                return low
        return len(events)
    finally:
        sides.close()


def _first_difference(
    tree: CompiledTree, beginning: Beginning, events: np.ndarray, same_until: int = 0
) -> Difference | None:
    """The first event that makes a difference, comparing after each from `same_until` on."""
    sides = SideBySide(tree, beginning.state, starting_places(beginning, len(events)))
    try:
        if same_until and not sides.agree_after(events, 0, same_until):
            return sides.describe(events, same_until - 1)
        for position in range(same_until, len(events)):
            if not sides.agree_after(events, position, position + 1):
                return sides.describe(events, position)
        return None
    finally:
        sides.close()


def _narrowed(
    tree: CompiledTree, beginning: Beginning, events: np.ndarray, same_until: int
) -> tuple[Difference, tuple[str, ...]]:
    """The difference of a failing sequence, and a sequence as short as it gets."""
    window = events[: same_until + COMPARED_EVERY]
    difference = _first_difference(tree, beginning, window, same_until)
    assert difference is not None, "the two differ in steps and agree event by event"
    short = shrunk(
        events[: difference.position + 1],
        lambda some: not _all_agree(tree, beginning, some, len(events)),
    )
    state = beginning.state()
    return difference, tuple(event_words(each, state) for each in short)


def _all_agree(tree: CompiledTree, beginning: Beginning, events: np.ndarray, objects: int) -> bool:
    sides = SideBySide(tree, beginning.state, starting_places(beginning, objects))
    try:
        return sides.agree_after(events, 0, len(events))
    finally:
        sides.close()


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
