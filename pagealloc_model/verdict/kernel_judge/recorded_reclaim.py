"""A recording's requests and frees as operations of reclaim, judged by the kernel's own code."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.from_source.build import DECIDED_BY_SOURCE
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.parts import RECLAIM as PART
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.allocator.pressure.judged_reclaim import (
    END_NAP,
    LET_GO,
    RECLAIM,
    RECLAIM_OPERATION,
    RUN,
    TAKE,
)
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.predicted.start.elastic_start import pressed_state
from pagealloc_model.predicted.start.start_calibration import begun_state
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.recording.recording import Recording
from pagealloc_model.verdict.kernel_judge.judged_scenarios import Scenario, Verdict
from pagealloc_model.verdict.kernel_judge.reclaim_sides import ReclaimSides, operation_words

COMPARED_EVERY = 1 << 12
"""Operations between two comparisons of the whole state."""

RUN_EVERY = 64
NAP_EVERY = 4096
RECLAIM_EVERY = 1024
"""Requests and frees between two runs of each kswapd, ends of its nap, and direct reclaims."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedBeginning:
    """Where a recording begins, as an elastic replay has it; nobody owns its pages."""

    prepared: Prepared
    rules: KernelRules
    policy: Policy
    assumptions: Assumptions

    def state(self) -> State:
        """A fresh state, daemons under way."""
        given, demand = self.prepared, self.prepared.demand
        begun = begun_state(
            given.machine, demand, given.image, self.rules, self.policy, self.assumptions
        )
        state = pressed_state(
            begun,
            demand,
            given.lru,
            given.reclaim_order,
            given.daemons,
            self.rules,
            self.policy,
            self.assumptions,
            0,
        )
        state.st[at.LOG_PAGES] = 0
        state.folios["object"] = 0
        return state


def recorded_operations(demand: Demand, nodes: int) -> np.ndarray:
    """Return `RECLAIM_OPERATION` records: requests, frees, and reclaim between them.

    Requests are made once. Each kswapd runs, if it is woken, and naps end in regular turns; each
    request that failed in the recording, and one of many others, reclaims directly.

    Args:
        demand: of an elastic replay.
        nodes: how many the machine has.
    """
    start = demand.starting_places()
    taken: dict[int, int] = {}
    rows: list[tuple[int, ...]] = []
    for number, event in enumerate(demand.events):
        operation, order = int(event["operation"]), int(event["order"])
        number_of_object = int(event["object"])
        bits = int(event["bits"])
        request = (int(event["zone"]), order, bits, int(event["migratetype"]))
        kind = bits >> pr.CLASS_SHIFT & 3
        if operation in (at.ALLOC, at.HIDDEN_ALLOC):
            taken[number_of_object] = len(rows)
            rows.append((TAKE, 0, *request, kind, 0))
        elif operation == at.FREE and bits & pr.FREED_BY_RECLAIM != pr.FREED_BY_RECLAIM:
            if number_of_object in taken:
                page = -1 - taken.pop(number_of_object)
            elif start[number_of_object] >= 0:
                page = int(start[number_of_object])
            else:
                continue
            rows.append((LET_GO, 0, 0, 0, 0, 0, 0, page))
        elif operation != at.RECORDED_FAILURE:
            continue
        if operation == at.RECORDED_FAILURE or (
            operation == at.ALLOC and number % RECLAIM_EVERY == 0
        ):
            rows.append((RECLAIM, 0, *request, kind, 0))
        for every, step in ((RUN_EVERY, RUN), (NAP_EVERY, END_NAP)):
            if number % every == 0:
                rows += [(step, node, 0, 0, 0, 0, 0, 0) for node in range(nodes)]
    return np.array(rows, RECLAIM_OPERATION)


def judge_recorded_reclaim(
    tree: SourceTree,
    rules: KernelRules,
    recording: Recording,
    *,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Take a recording's requests and frees through the reclaim of both sides.

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
    began = time.perf_counter()
    compiled = CompiledTree(tree, PART)
    assumptions = Assumptions(reclaim="elastic")
    beginning = RecordedBeginning(
        prepared=prepare(recording, rules, assumptions, 0),
        rules=rules,
        policy=replace(recorded_policy(recording), **dict.fromkeys(DECIDED_BY_SOURCE)),
        assumptions=assumptions,
    )
    prepared = beginning.prepared
    operations = recorded_operations(prepared.demand, len(prepared.machine.nodes))
    state = beginning.state()
    scenario = Scenario(
        sides=lambda: ReclaimSides(compiled, beginning, len(operations)),
        operations=operations,
        compared_every=COMPARED_EVERY,
        words=lambda row: operation_words(row, state),
    )
    agreed = scenario.agreeing()
    if progress is not None:
        progress(1.0)
    difference = None if agreed == len(operations) else scenario.first_difference(agreed)
    return Verdict(
        rules=rules.spelled(),
        release=tree.release,
        operations=agreed if difference is None else difference.position,
        scenarios=1,
        seconds=time.perf_counter() - began,
        seed=0,
        scenario=-1 if difference is None else 0,
        difference=difference,
        part=PART.name,
    )
