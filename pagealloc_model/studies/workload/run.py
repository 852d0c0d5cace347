"""Run a scenario through the model: every hold of zone->lock, and its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State, make_state, place_buddies, with_pressure
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted import tables
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, list_visits, queued
from pagealloc_model.predicted.replay import check_mode
from pagealloc_model.predicted.run import Carrier, ElasticCarrier, ModelCarrier
from pagealloc_model.recording.machine import Machine
from pagealloc_model.studies.workload.event_stream import EventStream
from pagealloc_model.studies.workload.scenario import Scenario

STEP_EVENTS = 1 << 18
LOG_ROWS = 1 << 20
SAMPLES = 128
"""Free buddies are noted about so often in a run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FreeSamples:
    """Free buddies at instants, one sample for each: the last where memory is filled at once.

    Attributes:
        time_ns: int64, shape (samples,).
        free_buddies: int64, shape (samples, zones, orders, migratetypes).
    """

    time_ns: np.ndarray
    free_buddies: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class ScenarioRun:
    """What a scenario did under a policy.

    Attributes:
        scenario: the demand.
        policy: the policy.
        rules: the kernel's rules.
        log: int64, shape (transactions, LOG_COLUMNS): every hold of zone->lock.
        places: int32, where the model put each object, -1 where nowhere.
        failed: requests that found no page.
        unlogged: holds that did not fit the log.
        final: the state at the end.
        samples: free buddies now and then.
    """

    scenario: Scenario
    policy: Policy
    rules: KernelRules
    log: np.ndarray
    places: np.ndarray
    failed: int
    unlogged: int
    final: State = field(repr=False)
    samples: FreeSamples

    @cached_property
    def visits(self) -> np.ndarray:
        """`lock_visits.VISIT` records: allocations and frees at lists that others may drain."""
        scenario = self.scenario
        return list_visits(self.log, scenario.events, self.places, scenario.machine, self.policy)

    @cached_property
    def transactions_full(self) -> pd.DataFrame:
        """Every hold of zone->lock, one row each."""
        return tables.transactions_full(self.scenario.machine, self.log)

    def times(self, model: LockModel | None = None) -> LockTimes:
        """The holds with their times."""
        return queued(self.log, self.scenario.machine, model or LockModel(), self.visits)


def run_scenario(
    scenario: Scenario,
    policy: Policy | None = None,
    *,
    rules: KernelRules | str,
    assumptions: Assumptions | None = None,
    progress: Callable[[float], None] | None = None,
) -> ScenarioRun:
    """Replay a scenario from a state with all memory free.

    Args:
        scenario: the demand and its machine.
        policy: what to run it under; None for the kernel's defaults.
        rules: a kernel generation, or the name of a preset.
        assumptions: ours.
        progress: called with the share done, 0 to 1.

    Raises:
        PolicyError: no preset of that name, or a policy that this mode of reclaim does not have.
    """
    chosen = KernelRules.preset(rules) if isinstance(rules, str) else rules
    policy = policy or Policy()
    events = scenario.events
    carrier = empty_start(scenario, policy, chosen, assumptions, int(events["time_ns"][0]))
    state = carrier.state
    places = np.full(scenario.objects, -1, np.int32)
    logs = []
    sampled = {}
    position = 0
    step = min(STEP_EVENTS, max(len(events) // SAMPLES, 1))
    while position < len(events):
        goal = min(position + step, len(events))
        position = carrier.advance(events, places, position, goal, -1)
        logs.append(state.log[: state.st[at.LOG_ROWS]].copy())
        state.st[at.LOG_ROWS] = 0
        sampled[int(state.st[at.NOW])] = state.free_buddies()
        if progress is not None:
            progress(position / len(events))
    return ScenarioRun(
        scenario=scenario,
        policy=policy,
        rules=chosen,
        log=np.concatenate(logs),
        places=places,
        failed=int(state.st[at.COUNT_FAILED]),
        unlogged=int(state.st[at.LOG_DROPPED]),
        final=state,
        samples=FreeSamples(
            time_ns=np.array(list(sampled), np.int64),
            free_buddies=np.stack(list(sampled.values())),
        ),
    )


def empty_start(
    demand: Scenario | EventStream,
    policy: Policy,
    rules: KernelRules,
    assumptions: Assumptions | None,
    start_ns: int,
) -> Carrier:
    """Who takes a demand from a state with all memory free, ready for its first event.

    Args:
        demand: whose machine it is.
        policy: what it is run under.
        rules: the kernel generation.
        assumptions: ours; in an elastic mode the model decides what kswapd and direct reclaim do.
        start_ns: time of the first event.

    Raises:
        PolicyError: a policy that this mode of reclaim does not have.
    """
    assumptions = assumptions or Assumptions()
    check_mode(policy, assumptions, is_build=False)
    state = make_state(
        demand.machine, rules, policy, assumptions, start_ns=start_ns, log_rows=LOG_ROWS
    )
    free_everything(state)
    if assumptions.reclaim == "elastic":
        state = with_pressure(state, rules, policy, assumptions, seed=demand.seed)
        return ElasticCarrier(state, np.full(demand.objects, -1, np.int32))
    state.st[at.KSWAPD_RECORDED] = demand.kswapd_recorded
    state.st[at.DIRECT_RECLAIM_RECORDED] = demand.direct_reclaim_recorded
    return ModelCarrier(state)


def free_everything(state: State) -> None:
    """Put all managed pages of a fresh state into the buddy, in the largest buddies, Movable."""
    for first, end in managed_spans(state.machine):
        step = 1 << state.machine.max_order
        pfns = np.arange(first, end, step, dtype=np.int32)
        orders = np.full(len(pfns), state.machine.max_order, np.int8)
        place_buddies(state.arrays(), pfns, orders)


def managed_spans(machine: Machine) -> list[tuple[int, int]]:
    """First page and end of each zone's managed pages: whole largest buddies, from its start on."""
    step = 1 << machine.max_order
    spans = []
    for zone in machine.zones:
        first = -(-zone.start_pfn // step) * step
        end = first + min(zone.managed, zone.end_pfn - first) // step * step
        if end > first:
            spans.append((first, end))
    return spans
