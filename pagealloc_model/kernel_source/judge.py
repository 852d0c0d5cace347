"""The model judged by the kernel's own code: scenarios until a difference, and that made short."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State, make_state
from pagealloc_model.kernel_source.build import DECIDED_BY_SOURCE
from pagealloc_model.kernel_source.compiled_tree import CompiledTree, KernelState
from pagealloc_model.kernel_source.extraction import ALLOCATION, COMPACTION, RECLAIM
from pagealloc_model.kernel_source.random_operations import (
    NO_OBJECTS,
    Begin,
    random_beginning,
    random_compaction,
    random_operations,
    random_reclaim,
    random_sized_machine,
    recorded_reclaim,
)
from pagealloc_model.kernel_source.sides import (
    Difference,
    PressureSides,
    Sides,
    functions_named,
    region_names,
    word_lines,
)
from pagealloc_model.kernel_source.source_tree import SourceTree
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.compaction import as_requests
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.image import start_state
from pagealloc_model.recording.machine import ZONE_TYPES_MAX
from pagealloc_model.recording.recorded_machine import recorded_policy

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

Progress = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of judging.

    Attributes:
        rules: of the model.
        release: of the tree.
        operations: taken on both without a difference, or up to it.
        scenarios: machines begun.
        seconds: wall-clock, of everything.
        seed: of the run.
        missing: functions judged elsewhere that this tree does not have under their names.
        scenario: number of the one that differs, -1 if none does.
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
class _Scenario:
    """A machine and what happens on it."""

    sides: Callable[[], Sides]
    operations: np.ndarray
    compared_every: int
    recorded: bool = False

    def agreeing(self, progress: Progress | None) -> int:
        """The operations, in steps, after which both were still the same."""
        count = len(self.operations)
        with closing(self.sides()) as sides:
            for low in range(0, count, self.compared_every):
                high = min(low + self.compared_every, count)
                if not sides.agree_after(self.operations, low, high):
                    return low
                if progress is not None:
                    progress(high / count)
        return count

    def first_difference(self, same: int) -> Difference:
        """The difference behind so many operations; each try begins at the start."""
        differs = min(same + self.compared_every, len(self.operations))
        while True:
            middle = (same + differs) // 2 if differs - same > 1 else same
            with closing(self.sides()) as sides:
                if middle and not sides.agree_after(self.operations, 0, middle):
                    same, differs = same if middle > same else 0, middle
                elif middle == same:
                    sides.agree_after(self.operations, same, differs)
                    return sides.describe(self.operations, same)
                else:
                    same = middle

    def shortest(self, count: int) -> tuple[str, ...]:
        """The shortest sequence found among so many operations that ends in a difference."""

        def differs(operations: np.ndarray) -> bool:
            with closing(self.sides()) as sides:
                return not sides.agree_after(operations, 0, len(operations))

        short = shrunk(self.operations[:count], differs)
        with closing(self.sides()) as sides:
            return tuple(sides.words(operation, sides.model) for operation in short)


_SHRINKING_RUNS = 2_000
"""Most runs spent on making a failing sequence shorter."""


def shrunk(events: np.ndarray, fails: Callable[[np.ndarray], bool]) -> np.ndarray:
    """A shorter sequence that still fails, by leaving out ever smaller parts (delta debugging).

    A free whose allocation is left out does nothing, so that any part may go.
    """
    runs = 0
    size = max(len(events) // 2, 1)
    while runs < _SHRINKING_RUNS:
        low = 0
        removed = False
        while low < len(events) and runs < _SHRINKING_RUNS:
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


MARKS, RESERVES = "__setup_per_zone_wmarks", "setup_per_zone_lowmem_reserve"
BATCH, LIMITS = "zone_batchsize", "zone_highsize"
_ZONE_SIZES = {
    MARKS: {at.ZONE_MIN: "min mark", at.ZONE_LOW: "low mark", at.ZONE_HIGH: "high mark"},
    RESERVES: {
        at.ZONE_LOWMEM_RESERVE + number: f"lowmem_reserve[{number}]"
        for number in range(ZONE_TYPES_MAX)
    },
    "refresh_zone_stat_thresholds": {
        at.ZONE_THRESHOLD_ASLEEP: "stat_threshold",
        at.ZONE_THRESHOLD_AWAKE: "stat_threshold while kswapd runs",
        at.ZONE_DRIFT_MARK: "percpu_drift_mark",
    },
}
"""By function of the tree: words of a zone that it decides."""
_PAGE_SET_SIZES = {
    BATCH: {at.PCP_BATCH: "batch"},
    LIMITS: {at.PCP_HIGH_MIN: "high_min", at.PCP_HIGH_MAX: "high_max"},
}
"""The same of a page set."""
_RATIOS = (0, 1, 9, 32, 256, 256, 10_000)


def size_difference(
    tree: CompiledTree, rules: KernelRules, rng: random.Random, pageblock_order: int = 0
) -> Difference | None:
    """The difference in the sizes of a random machine's zones, None if there is none."""
    machine = random_sized_machine(rng, pageblock_order)
    policy = Policy(
        min_free_kbytes=rng.choice((128, 4096, 67584, 262_144, 1 << 22)),
        watermark_scale_factor=rng.choice((1, 10, 10, 150, 3000)),
        percpu_pagelist_high_fraction=rng.choice((None, None, 8, 30, 1000)),
        lowmem_reserve_ratio=" ".join(str(rng.choice(_RATIOS)) for _ in machine.zone_types),
    )
    lagged = Assumptions(counters="lagged")
    model = make_state(machine, rules, policy, lagged, log_rows=1)
    kernel = KernelState(tree, make_state(machine, rules, Policy(), lagged, log_rows=1))
    sides = model, kernel.state
    lines: dict[str, str] = {}
    with closing(kernel):
        kernel.size_zones(policy)
        for number, zone in enumerate(machine.zones):
            if not zone.managed:
                continue
            title = f"{machine.zone_title(number)}, {zone.managed} pages"
            regions = [(title, _ZONE_SIZES, [side.zone_region(number) for side in sides])]
            for cpu in range(machine.nr_cpus):
                sets = [side.pcp_region(number, cpu) for side in sides]
                regions.append((f"{title}, CPU {cpu}", _PAGE_SET_SIZES, sets))
            for name, sizes, region in regions:
                for function, words in sizes.items():
                    names = region_names([name], 0, 0, words)
                    lines |= dict.fromkeys(word_lines(names, *region), function)
        unit, _ = tree.built(kernel.configuration)
    if not lines:
        return None
    return Difference(
        position=0,
        event=f"set-up of a machine with {machine.nr_cpus} CPUs and {policy}",
        lines=tuple(lines),
        places=tuple(functions_named(unit, dict.fromkeys(lines.values()))),
    )


_SIZES = {
    ALLOCATION.name: (20_000, 1_000, 1 << 16),
    RECLAIM.name: (10_000, 1_000, 1 << 12),
    COMPACTION.name: (1_000, 50, 0),
}
"""By part: operations on one machine, those between two comparisons of the whole state (of which a
difference is then narrowed down), and the same of a recording's."""


def _scenario(
    tree: CompiledTree, begin: Begin, operations: np.ndarray, *, recorded: bool = False
) -> _Scenario:
    sides: Callable[[], Sides] = partial(Sides, tree, begin)
    if tree.part.name != ALLOCATION.name:
        sides = partial(PressureSides, tree, begin, len(operations))
    every = _SIZES[tree.part.name][2 if recorded else 1]
    return _Scenario(sides=sides, operations=operations, compared_every=every, recorded=recorded)


def judge(
    tree: CompiledTree,
    rules: KernelRules,
    *,
    operations: int,
    seed: int = 0,
    pageblock_order: int = 0,
    progress: Progress | None = None,
) -> Verdict:
    """Random operations on random machines until a difference, or until enough were taken.

    The tree's part says what is judged: allocation, where for each machine the sizes that set-up
    gives another one are compared first; reclaim; or compaction, whose operations are direct
    compactions, wakes of kcompactd, quarters of a second that pass, compactions of whole nodes, and
    changes of memory between them.

    Args:
        tree: whose code judges.
        rules: of the model.
        operations: how many.
        seed: decides every machine and operation.
        pageblock_order: of every machine and of the compiled code; 0: those of the builds (S1.12).
        progress: called with the share done.

    Raises:
        KernelSourceError: the tree lacks functions or does not compile.
    """
    part = tree.part.name

    def begin(number: int, most: int) -> _Scenario | Difference:
        count = min(_SIZES[part][0], most)
        if part != ALLOCATION.name:
            draw = random_reclaim if part == RECLAIM.name else random_compaction
            rng = random.Random(f"{seed} {number} {part}")
            return _scenario(tree, *draw(rng, rules, count, pageblock_order))
        rng = random.Random(f"{seed} {number} sizes")
        sizes = size_difference(tree, rules, rng, pageblock_order)
        if sizes is not None:
            return sizes
        rng = random.Random(f"{seed} {number}")
        beginning = random_beginning(rng, rules, pageblock_order)
        events = random_operations(rng, beginning, count)
        places = beginning.starting_places(len(events))
        return _scenario(tree, lambda: (beginning.state(), places.copy()), events)

    return _judged(tree, rules, begin, operations, seed, progress)


def judge_recorded(
    tree: CompiledTree,
    rules: KernelRules,
    recording: Recording,
    *,
    pageblock_order: int = 0,
    progress: Progress | None = None,
) -> Verdict:
    """A recording's demand instead of random operations: its events, or, of reclaim, its requests.

    What the recorded kernel's source decided, such as a gate of the reserve, is left to the rules.
    Arguments and errors are those of `judge`, and those of a replay.
    """
    is_reclaim = tree.part.name == RECLAIM.name
    assumptions = Assumptions(reclaim="elastic" if is_reclaim else "literal")
    policy = replace(
        recorded_policy(recording),
        pageblock_order=pageblock_order or None,
        **dict.fromkeys(DECIDED_BY_SOURCE),
    )
    prepared = prepare(recording, rules, assumptions, 0).with_pageblocks(policy)
    machine, demand = prepared.machine, prepared.demand
    if is_reclaim:
        operations = recorded_reclaim(demand, len(machine.nodes))
    else:
        operations = as_requests(demand.events, machine)
        demand = replace(demand, events=operations)

    def begin() -> tuple[State, np.ndarray]:
        if is_reclaim:
            state = prepared.state(rules, policy, assumptions)
            state.st[at.LOG_PAGES] = 0
            state.folios["object"] = 0
            return state, NO_OBJECTS
        state = start_state(machine, demand, prepared.image, rules, policy, assumptions)
        state.st[at.LOG_PAGES] = 1
        return state, demand.starting_places().copy()

    scenario = _scenario(tree, begin, operations, recorded=True)
    return _judged(tree, rules, lambda *_: scenario, len(operations), 0, progress)


def judge_pressure(
    tree: SourceTree,
    rules: KernelRules,
    *,
    operations: int,
    seed: int = 0,
    pageblock_order: int = 0,
    progress: Progress | None = None,
) -> tuple[Verdict, ...]:
    """Judge compaction, then reclaim; the last verdict is the first one with a difference.

    Arguments and errors are those of `judge`, operations those of each part.
    """
    verdicts: list[Verdict] = []

    def report(share: float) -> None:
        if progress is not None:
            progress((len(verdicts) + share) / 2)

    for part in (COMPACTION, RECLAIM):
        code = CompiledTree(tree, part)
        drawn = {"operations": operations, "seed": seed, "pageblock_order": pageblock_order}
        verdicts.append(judge(code, rules, **drawn, progress=report))
        if verdicts[-1].difference is not None:
            break
    return tuple(verdicts)


def _judged(
    tree: CompiledTree,
    rules: KernelRules,
    begin: Callable[[int, int], _Scenario | Difference],
    operations: int,
    seed: int,
    progress: Progress | None,
) -> Verdict:
    """Take scenario after scenario until a difference, or until enough operations were taken.

    `begin` makes one from its number and the most operations it may have, or is a difference.
    """
    began = time.perf_counter()
    done = number = 0
    difference: Difference | None = None
    shortest: tuple[str, ...] = ()
    while done < operations and difference is None:
        scenario = begin(number, operations - done)
        if isinstance(scenario, Difference):
            difference = scenario
            break
        agreed = scenario.agreeing(progress if scenario.recorded else None)
        done += agreed
        if agreed == len(scenario.operations):
            number += 1
        else:
            difference = scenario.first_difference(agreed)
            if scenario.recorded:
                done = difference.position
            else:
                shortest = scenario.shortest(difference.position + 1)
        if progress is not None:
            progress(done / operations)
    return Verdict(
        rules=rules.spelled(),
        release=tree.tree.release,
        operations=done,
        scenarios=number,
        seconds=time.perf_counter() - began,
        seed=seed,
        missing=tree.missing if tree.part.name == ALLOCATION.name else (),
        scenario=-1 if difference is None else number,
        difference=difference,
        shortest=shortest,
        part=tree.part.name,
    )
