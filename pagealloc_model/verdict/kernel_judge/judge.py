"""The model judged by the kernel's own code: random operations, the first difference, shrunk."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

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
from pagealloc_model.verdict.kernel_judge.judged_scenarios import (
    Scenario,
    Verdict,
    judge_scenarios,
)
from pagealloc_model.verdict.kernel_judge.judged_sizes import size_difference
from pagealloc_model.verdict.kernel_judge.random_machines import random_beginning
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

    def begin(number: int, most: int) -> Scenario | Difference:
        sizes = size_difference(tree, rules, random.Random(f"{seed} {number} sizes"))
        if sizes is not None:
            return sizes
        rng = random.Random(f"{seed} {number}")
        beginning = random_beginning(rng, rules)
        events = random_operations(rng, beginning, min(SCENARIO, most))
        places = len(events)
        return Scenario(
            sides=lambda: SideBySide(tree, beginning.state, starting_places(beginning, places)),
            operations=events,
            compared_every=COMPARED_EVERY,
            words=partial(event_words, state=beginning.state()),
        )

    return judge_scenarios(
        begin,
        rules,
        tree.tree.release,
        operations=operations,
        seed=seed,
        missing=tree.missing,
        progress=progress,
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
