"""The model judged by the kernel's own code."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.from_source.build import DECIDED_BY_SOURCE
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree, KernelState
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.allocator.state import State, make_state
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.compaction import as_requests
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.image import start_state
from pagealloc_model.recording.machine import ZONE_TYPES_MAX, Machine, Zone
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.verdict.kernel_judge.compaction import judge_compaction
from pagealloc_model.verdict.kernel_judge.random_machines import (
    BUILDS,
    random_beginning,
    random_operations,
    starting_places,
)
from pagealloc_model.verdict.kernel_judge.reclaim import judge_reclaim
from pagealloc_model.verdict.kernel_judge.side_by_side import (
    Difference,
    Scenario,
    SideBySide,
    Verdict,
    event_words,
    functions_named,
    judge_scenarios,
)

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


MARKS, RESERVES = "__setup_per_zone_wmarks", "setup_per_zone_lowmem_reserve"
BATCH, LIMITS = "zone_batchsize", "zone_highsize"
THRESHOLDS = "refresh_zone_stat_thresholds"

ZONE_SIZES = {
    at.ZONE_MIN: ("min mark", MARKS),
    at.ZONE_LOW: ("low mark", MARKS),
    at.ZONE_HIGH: ("high mark", MARKS),
    **{
        at.ZONE_LOWMEM_RESERVE + number: (f"lowmem_reserve[{number}]", RESERVES)
        for number in range(ZONE_TYPES_MAX)
    },
    at.ZONE_THRESHOLD_ASLEEP: ("stat_threshold", THRESHOLDS),
    at.ZONE_THRESHOLD_AWAKE: ("stat_threshold while kswapd runs", THRESHOLDS),
    at.ZONE_DRIFT_MARK: ("percpu_drift_mark", THRESHOLDS),
}
"""Words of a zone: what they are, and the function of the tree that decides."""

PAGE_SET_SIZES = {
    at.PCP_BATCH: ("batch", BATCH),
    at.PCP_HIGH_MIN: ("high_min", LIMITS),
    at.PCP_HIGH_MAX: ("high_max", LIMITS),
}
"""Words of a page set."""

LAGGED = Assumptions(counters="lagged")
CPUS_MOST = 64
RATIOS = (0, 1, 9, 32, 256, 256, 10_000)
PAGES_MOST_LOG2 = 27
"""Largest zone: half a TiB."""

ALIGNMENT = 1 << 11


def size_difference(
    tree: CompiledTree, rules: KernelRules, rng: random.Random
) -> Difference | None:
    """What differs in the sizes of a random machine's zones, None if nothing does.

    Args:
        tree: whose set-up judges.
        rules: of the model.
        rng: decides machine and settings.

    Raises:
        KernelSourceError: the tree lacks functions or does not compile.
    """
    machine = random_sized_machine(rng)
    policy = Policy(
        min_free_kbytes=rng.choice((128, 4096, 67584, 262_144, 1 << 22)),
        watermark_scale_factor=rng.choice((1, 10, 10, 150, 3000)),
        percpu_pagelist_high_fraction=rng.choice((None, None, 8, 30, 1000)),
        lowmem_reserve_ratio=" ".join(str(rng.choice(RATIOS)) for _ in machine.zone_types),
    )
    model = make_state(machine, rules, policy, LAGGED, log_rows=1)
    kernel = KernelState(tree, make_state(machine, rules, Policy(), LAGGED, log_rows=1))
    try:
        kernel.size_zones(policy)
        found = _differing(model, kernel.state)
        unit, _ = tree.built(kernel.configuration)
    finally:
        kernel.close()
    if not found:
        return None
    functions = dict.fromkeys(name for _, name in found)
    return Difference(
        position=0,
        event=f"set-up of a machine with {machine.nr_cpus} CPUs and {policy}",
        lines=tuple(line for line, _ in found),
        places=tuple(place for name in functions for place in functions_named(unit, name)),
    )


def random_sized_machine(rng: random.Random) -> Machine:
    """Any number of nodes, CPUs and pages; no more than one block of a zone is there."""
    build = rng.choice(BUILDS)
    nodes = rng.choice((1, 1, 2, 3))
    zones: list[Zone] = []
    for node in range(nodes):
        for name in build.zone_types:
            managed = int(2 ** rng.uniform(0, PAGES_MOST_LOG2))
            if zones and rng.random() < 0.2:
                managed = 0
            spanned = (1 << build.pageblock_order) * bool(managed)
            zones.append(
                Zone(
                    node=node,
                    name=name,
                    start_pfn=len(zones) * ALIGNMENT,
                    spanned=spanned,
                    present=spanned,
                    managed=managed,
                )
            )
    nr_cpus = rng.randint(1, CPUS_MOST)
    return Machine(
        zones=tuple(zones),
        nr_cpus=nr_cpus,
        cpu_nodes=tuple(rng.randrange(nodes) for _ in range(nr_cpus)),
        pageblock_order=build.pageblock_order,
        migratetypes=build.migratetypes,
        thp=build.thp,
    )


def _differing(model: State, kernel: State) -> list[tuple[str, str]]:
    """A line for each size that differs, with the function that decides it."""
    found: list[tuple[str, str]] = []
    for number, zone in enumerate(model.machine.zones):
        if not zone.managed:
            continue
        title = f"{model.machine.zone_title(number)}, {zone.managed} pages"
        regions = model.zone_region(number), kernel.zone_region(number)
        found += _lines(title, *regions, ZONE_SIZES)
        for cpu in range(model.machine.nr_cpus):
            sets = model.pcp_region(number, cpu), kernel.pcp_region(number, cpu)
            found += _lines(f"{title}, CPU {cpu}", *sets, PAGE_SET_SIZES)
    return found


def _lines(
    title: str, mine: np.ndarray, theirs: np.ndarray, words: dict[int, tuple[str, str]]
) -> list[tuple[str, str]]:
    return [
        (f"{title}: {name}: model {mine[word]}, kernel {theirs[word]}", function)
        for word, (name, function) in words.items()
        if mine[word] != theirs[word]
    ]


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
    Arguments are those of `judge`.

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
        state = start_state(prepared.machine, demand, prepared.image, rules, policy, assumptions)
        state.st[at.LOG_PAGES] = 1
        return state

    scenario = Scenario(
        sides=lambda: SideBySide(tree, begin, demand.starting_places()),
        operations=demand.events,
        compared_every=RECORDED_STEP,
        words=partial(event_words, state=begin()),
        recorded=True,
    )
    return judge_scenarios(
        lambda *_: scenario,
        rules,
        tree.tree.release,
        operations=len(scenario.operations),
        seed=0,
        missing=tree.missing,
        progress=progress,
    )


def judge_pressure(
    tree: SourceTree,
    rules: KernelRules,
    *,
    operations: int,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> tuple[Verdict, ...]:
    """Judge compaction, then reclaim; the last verdict is the first one with a difference.

    Arguments and errors are those of `judge`, operations those of each part.
    """
    verdicts: list[Verdict] = []
    judges = (judge_compaction, judge_reclaim)
    for number, judge_part in enumerate(judges):

        def report(share: float, before: int = number) -> None:
            if progress is not None:
                progress((before + share) / len(judges))

        verdicts.append(judge_part(tree, rules, operations=operations, seed=seed, progress=report))
        if verdicts[-1].difference is not None:
            break
    return tuple(verdicts)
