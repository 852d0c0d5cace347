"""Run demand that nobody recorded through the model: one runner for all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import State, make_state, with_pressure
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted import tables
from pagealloc_model.predicted.carrier import Carrier, ModelCarrier
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, list_visits, queued
from pagealloc_model.predicted.replay import Tables, check_mode
from pagealloc_model.predicted.run import (
    BlockCounter,
    Cancelled,
    Samples,
    fallback_counts,
    sample_of,
)
from pagealloc_model.predicted.tables import TransactionCounts
from pagealloc_model.studies.synthetic.demand import EVENT, Demand
from pagealloc_model.studies.synthetic.memory import Memory, free_everything

STEP_EVENTS = 1 << 18
SAMPLES = 128
"""A run without instants is sampled about so often, evenly over its events, and at its end."""


Begin = Callable[[np.ndarray, np.ndarray], Carrier]
"""Given objects' places, to be written, and their leads, returns who takes events."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Run(Tables):
    """The course of a demand under a policy; tables are those of a `Replay`.

    Attributes:
        samples: counters at each sample.
        log: int64, shape (transactions, LOG_COLUMNS): every hold of zone->lock, if they were kept.
        places: int32 by object, where the model put it, -1 where nowhere.
        fallback_counts: int64, shape `layout.FALLBACK_SHAPE`.
        events: how many were taken.
        seen: results of `look` at each sample.
        final: the state at the end.
    """

    demand: Demand
    policy: Policy
    rules: KernelRules
    assumptions: Assumptions
    samples: Samples
    log: np.ndarray
    places: np.ndarray
    fallback_counts: np.ndarray
    events: int
    seen: tuple[Any, ...]
    final: State = field(repr=False)
    _sites: np.ndarray = field(repr=False)
    _sizes: TransactionCounts = field(repr=False)

    @property
    def machine(self) -> Any:
        """The demand's."""
        return self.demand.machine

    @property
    def failed(self) -> int:
        """Requests that found no page."""
        return int(self.final.st[at.COUNT_FAILED])

    @property
    def orphan_frees(self) -> int:
        """Frees of what had found no page."""
        return int(self.final.st[at.COUNT_ORPHAN_FREE])

    @property
    def in_base_pages(self) -> int:
        """Requests that were served in single pages, for want of a buddy."""
        return int(self.final.st[at.COUNT_IN_BASE_PAGES])

    @property
    def unlogged(self) -> int:
        """Holds that did not fit the log, and are in no table of holds."""
        return int(self.final.st[at.LOG_DROPPED])

    @property
    def divergence(self) -> dict[str, int]:
        """Deviations of an elastic run from what was asked, by name; none of a literal one."""
        return tables.divergence(self.final.pressure_words(0, pr.SCALARS))

    @cached_property
    def transactions(self) -> pd.DataFrame:
        """Histogram of zone->lock holds by zone, CPU, site, cause and objects."""
        return self._sizes.transactions

    @cached_property
    def visits(self) -> np.ndarray:
        """`lock_visits.VISIT` records: allocations and frees at lists that others may drain."""
        events = self.demand.events
        return list_visits(self.log, events, self.places, self.machine, self.policy)

    def lock_times(self, model: LockModel | None = None) -> LockTimes:
        """The holds with their times; of a run that kept them."""
        return queued(self.log, self.machine, model or LockModel(), self.visits)

    @cached_property
    def counts(self) -> pd.DataFrame:
        """Counters since the start, one row a sample, by its time.

        Returns:
            refills, refill_pages that they got, refill_probes (free lists that they looked at,
            S6.7), blocks_reserved and blocks_unreserved (S7); of an elastic run also those of
            vmstat under the kernel's names, allocstall of all zones, requests_failed,
            failed_order_0 and so on, and compact_direct_migrate_scanned and
            compact_direct_free_scanned, what the daemon's leave of the total.
        """
        index = pd.Index(self.samples.time_ns, name="time_ns")
        own = ("refills", "refill_pages", "refill_probes", "blocks_reserved", "blocks_unreserved")
        table = pd.DataFrame(dict(zip(own, self._sites.T, strict=True)), index=index)
        if not self.final.is_elastic:
            return table
        words = self.samples.counters
        first, stalls = pr.COUNTERS, pr.ALLOCSTALL
        for number, name in enumerate(pr.COUNTER_NAMES):
            table[name] = words[:, first + number]
        table["allocstall"] = words[:, stalls : stalls + len(self.machine.zone_types)].sum(axis=1)
        for side in ("migrate_scanned", "free_scanned"):
            direct = table[f"compact_{side}"] - table[f"compact_daemon_{side}"]
            table[f"compact_direct_{side}"] = direct
        table["requests_failed"] = words[:, pr.DEMAND_FAILED]
        shape = (-1, at.ORDERS, pr.OUTCOME_WORDS)
        outcomes = words[:, pr.OUTCOMES : pr.OUTCOMES + at.ORDERS * pr.OUTCOME_WORDS].reshape(shape)
        for order in range(self.machine.max_order + 1):
            table[f"failed_order_{order}"] = outcomes[:, order, 0] - outcomes[:, order, 1]
        return table

    @cached_property
    def free(self) -> pd.DataFrame:
        """Free memory and the highatomic reserve, one row a sample, by its time.

        Returns:
            free_pages; free_blocks, whole free huge buddies in pageblocks; reserved_blocks,
            pageblocks of the reserve; whole_blocks and crumbs, its free huge buddies in pageblocks
            and its other free pages.
        """
        order, buddies = self.machine.pageblock_order, self.samples.free_buddies
        sizes = buddies.sum(axis=1) << np.arange(buddies.shape[2])[None, :, None]
        reserve, everything = sizes[..., at.HIGHATOMIC], sizes.sum(axis=2)
        return pd.DataFrame(
            {
                "free_pages": everything.sum(axis=1),
                "free_blocks": everything[:, order:].sum(axis=1) >> order,
                "reserved_blocks": self.samples.blocks[:, :, at.HIGHATOMIC].sum(axis=1),
                "whole_blocks": reserve[:, order:].sum(axis=1) >> order,
                "crumbs": reserve[:, :order].sum(axis=1),
            },
            index=pd.Index(self.samples.time_ns, name="time_ns"),
        )


def run(
    demand: Demand,
    policy: Policy | None = None,
    *,
    rules: KernelRules | str,
    assumptions: Assumptions | None = None,
    memory: Memory | Begin | None = None,
    at_ns: Sequence[int] = (),
    look: Callable[[State], Any] | None = None,
    keep_holds: bool = True,
    progress: Callable[[float], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Run:
    """Replay demand that nobody recorded.

    Args:
        demand: requests, and the machine that they are made of.
        policy: the policy to run it under; None for the kernel's defaults.
        rules: a kernel generation, or the name of a preset.
        assumptions: ours; in an elastic mode the model decides what kswapd and direct reclaim do.
        memory: what it holds at first; None: all of it is free.
        at_ns: instants to take a sample at, ascending: after the events before it and all that is
            due by then; the run ends with the last. None: see `SAMPLES`.
        look: called with the state at each sample.
        keep_holds: keep every hold of zone->lock; otherwise they are counted alone, so that what is
            kept does not grow with the demand.
        progress: called with the share done, 0 to 1.
        cancel: asked now and then; True ends the run with `Cancelled`.

    Raises:
        PolicyError: no preset of that name, or a policy that this mode of reclaim does not have.
        UsageError: the demand has no events.
        Cancelled: `cancel` said so.
    """
    chosen = KernelRules.preset(rules) if isinstance(rules, str) else rules
    policy, assumptions = policy or Policy(), assumptions or Assumptions()
    check_mode(policy, assumptions, is_build=False)
    if not demand.count:
        raise UsageError(f"{demand.name}: no events, so there is nothing to replay")
    places = np.full(demand.objects, -1, np.int32)
    leads = np.full_like(places, -1) if demand.leads is None else demand.leads
    if memory is not None and not isinstance(memory, Memory):
        carrier = memory(places, leads)
    else:
        start_ns = demand.start_ns
        if start_ns is None:
            start_ns = int(next(demand.parts(), np.zeros(1, EVENT))["time_ns"][0])
        state = make_state(demand.machine, chosen, policy, assumptions, start_ns=start_ns)
        if memory is None:
            free_everything(state)
        if assumptions.reclaim == "elastic":
            state = with_pressure(state, chosen, policy, assumptions, seed=demand.seed)
            carrier = ModelCarrier(state, leads)
        else:
            state.st[at.KSWAPD_RECORDED] = demand.kswapd_recorded
            state.st[at.DIRECT_RECLAIM_RECORDED] = demand.direct_reclaim_recorded
            carrier = ModelCarrier(state)
        if memory is not None:
            memory.put_into(state, places)
    state, blocks = carrier.state, BlockCounter(carrier.state)
    sizes, logs = TransactionCounts(state.machine), [np.zeros((0, at.LOG_COLUMNS), np.int64)]
    samples: dict[int, tuple[tuple[np.ndarray, ...], np.ndarray, Any]] = {}

    def advance(events: np.ndarray, low: int, high: int, until_ns: int = -1) -> None:
        rows = take(carrier, events, places, low, high, until_ns)
        sizes.add(rows)
        if keep_holds:
            logs.append(rows)

    def sample(time_ns: int) -> None:
        carrier.settle()
        sites = state.sites().sum(axis=(0, 1))
        own = (
            sites[at.SITE_REFILL, at.SITE_ACQUISITIONS],
            sites[at.SITE_REFILL, at.SITE_PAGES],
            state.st[at.REFILL_PROBES],
            sites[at.SITE_RESERVE, at.SITE_OBJECTS],
            sites[at.SITE_UNRESERVE, at.SITE_OBJECTS],
        )
        seen = look(state) if look is not None else None
        samples[time_ns] = (sample_of(state, blocks), np.array(own, np.int64), seen)

    instants, done, step = list(at_ns), 0, max(demand.count // SAMPLES, 1)
    due = step
    for events in demand.parts():
        if at_ns and not instants:
            break
        times, position = events["time_ns"], 0
        while position < len(events) and (instants or not at_ns):
            goal, until = min(position + STEP_EVENTS, len(events)), -1
            if not at_ns:
                goal = min(goal, position + due - done)
            elif times[-1] >= instants[0]:
                stop = int(np.searchsorted(times, instants[0]))
                goal, until = (stop, instants[0]) if stop <= goal else (goal, -1)
            advance(events, position, goal, until)
            done += goal - position
            position = goal
            if until >= 0:
                sample(instants.pop(0))
            elif not at_ns and (done >= due or done >= demand.count):
                sample(int(state.st[at.NOW]))
                due += step
            if cancel is not None and cancel():
                raise Cancelled
            if progress is not None:
                progress(done / demand.count)
    for instant in instants:
        advance(np.zeros(0, EVENT), 0, 0, instant)
        sample(instant)
    words, sites, seen = zip(*samples.values(), strict=True)
    columns = [np.array(list(samples), np.int64)]
    columns += [np.stack(column) for column in zip(*words, strict=True)]
    names = [own.name for own in fields(Samples)]
    return Run(
        demand=demand,
        policy=policy,
        rules=chosen,
        assumptions=assumptions,
        samples=Samples(**dict(zip(names, columns, strict=True))),
        log=np.concatenate(logs),
        places=places,
        fallback_counts=fallback_counts(state),
        events=done,
        seen=seen,
        final=state,
        _sites=np.stack(sites),
        _sizes=sizes,
    )


def take(
    carrier: Carrier,
    events: np.ndarray,
    places: np.ndarray,
    low: int,
    high: int,
    until_ns: int = -1,
) -> np.ndarray:
    """Take `events[low:high]`, then what is due up to an instant, -1 for none.

    Returns:
        Holds of zone->lock, int64, shape (rows, LOG_COLUMNS).
    """
    state, logs = carrier.state, [np.zeros((0, at.LOG_COLUMNS), np.int64)]
    while low < high or (until_ns >= 0 and state.next_due_ns <= until_ns):
        low = carrier.advance(events, places, low, high, until_ns)
        logs.append(state.log[: state.st[at.LOG_ROWS]].copy())
        state.st[at.LOG_ROWS] = 0
    return np.concatenate(logs)
