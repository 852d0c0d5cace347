"""Run demand that is made part by part through the model; what is kept of it does not grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import State
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted import tables
from pagealloc_model.predicted.run import Cancelled, Carrier, fallback_counts
from pagealloc_model.predicted.tables import TransactionCounts
from pagealloc_model.studies.workload.event_stream import EventStream
from pagealloc_model.studies.workload.run import SAMPLES, STEP_EVENTS, FreeSamples, empty_start


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamRun:
    """What a stream did under a policy: counts and samples, no list of holds.

    Attributes:
        stream: the demand.
        policy: the policy.
        rules: the kernel's rules.
        events: how many were replayed.
        transactions: histogram of zone->lock holds by zone, CPU, site, cause and objects.
        failed: requests that found no page.
        orphan_frees: frees of what had found no page.
        unlogged: holds that did not fit the log, and are in no histogram.
        final: the state at the end.
        samples: free buddies now and then.
    """

    stream: EventStream
    policy: Policy
    rules: KernelRules
    events: int
    transactions: pd.DataFrame
    failed: int
    orphan_frees: int
    unlogged: int
    final: State = field(repr=False)
    samples: FreeSamples

    @cached_property
    def fallbacks(self) -> pd.DataFrame:
        """Fallbacks by types, orders and kind (S6.6)."""
        return tables.fallbacks(fallback_counts(self.final))

    @cached_property
    def divergence(self) -> dict[str, int]:
        """What an elastic run did otherwise than recorded, by name; none of a literal one."""
        return tables.divergence(self.final.pressure_words(0, pr.SCALARS))


def run_stream(
    stream: EventStream,
    policy: Policy | None = None,
    *,
    rules: KernelRules | str,
    assumptions: Assumptions | None = None,
    progress: Callable[[float], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> StreamRun:
    """Replay a stream from a state with all memory free, holding one part of it at a time.

    State, counts and samples are those of `run_scenario` on the same events; holds are counted as
    they are logged, not kept.

    Args:
        stream: the demand and its machine.
        policy: what to run it under; None for the kernel's defaults.
        rules: a kernel generation, or the name of a preset.
        assumptions: ours.
        progress: called with the share done, 0 to 1.
        cancel: asked now and then; True ends the run with `Cancelled`.

    Raises:
        PolicyError: no preset of that name, or a policy that this mode of reclaim does not have.
        UsageError: the stream has no events.
        Cancelled: `cancel` said so.
    """
    chosen = KernelRules.preset(rules) if isinstance(rules, str) else rules
    policy = policy or Policy()
    carrier: Carrier | None = None
    places = np.full(stream.objects, -1, np.int32)
    counts = TransactionCounts(stream.machine)
    samples = _Samples(stream.events)
    done = 0
    for events in stream.parts():
        if carrier is None:
            carrier = empty_start(stream, policy, chosen, assumptions, int(events["time_ns"][0]))
        state, position = carrier.state, 0
        while position < len(events):
            goal = min(position + min(STEP_EVENTS, samples.due - done), len(events))
            before, position = position, carrier.advance(events, places, position, goal, -1)
            done += position - before
            counts.add(state.log[: state.st[at.LOG_ROWS]])
            state.st[at.LOG_ROWS] = 0
            samples.note(state, done)
            if cancel is not None and cancel():
                raise Cancelled
            if progress is not None:
                progress(done / stream.events)
    if carrier is None:
        raise UsageError(f"{stream.name}: no events, so there is nothing to replay")
    state = carrier.state
    return StreamRun(
        stream=stream,
        policy=policy,
        rules=chosen,
        events=done,
        transactions=counts.transactions,
        failed=int(state.st[at.COUNT_FAILED]),
        orphan_frees=int(state.st[at.COUNT_ORPHAN_FREE]),
        unlogged=int(state.st[at.LOG_DROPPED]),
        final=state,
        samples=samples.taken,
    )


class _Samples:
    """Free buddies after every so many events, and at the end; one sample for each instant."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._step = max(events // SAMPLES, 1)
        self._buddies: dict[int, np.ndarray] = {}
        self.due = self._step

    def note(self, state: State, done: int) -> None:
        """Take a sample if one is due after so many events."""
        if done < self.due and done < self._events:
            return
        self._buddies[int(state.st[at.NOW])] = state.free_buddies()
        self.due += self._step

    @property
    def taken(self) -> FreeSamples:
        """All samples."""
        return FreeSamples(
            time_ns=np.array(list(self._buddies), np.int64),
            free_buddies=np.stack(list(self._buddies.values())),
        )
