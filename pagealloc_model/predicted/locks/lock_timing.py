"""Time at zone->lock: a replay's acquisitions run through a queue of CPUs per lock (S11).

Counts and work of every acquisition are the model's; when each comes is the recording's. What is
added here is how long it takes, by stated costs, and hence who waits for whom.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.predicted.locks.lock_acquisitions import (
    LOG_COLUMN,
    WORK_COLUMNS,
    acquisitions_table,
    trylocks_table,
)
from pagealloc_model.predicted.locks.lock_records import (
    ARRIVING,
    CLOSED_LOOP,
    CPU,
    DONE,
    EMPTIES,
    HANDOFF_NS,
    LARGEST_FULL,
    LIST_LOCK,
    LOCK,
    OUTCOME,
    SERVED,
    SETTINGS,
    SINGLE_NS,
    UNFAIR,
)
from pagealloc_model.predicted.locks.lock_requests import Requests, lock_requests
from pagealloc_model.predicted.locks.lock_visits import NO_VISITS, list_visits
from pagealloc_model.predicted.locks.locks import run_queues
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.machine import Machine

SOFT_LOCKUP_NS = 20_000_000_000
"""The kernel's softlockup detector fires after 2 * watchdog_thresh, 20 s by default."""


@dataclass(frozen=True, kw_only=True)
class LockModel:
    """How time passes at the locks.

    Attributes:
        costs: what work takes.
        closed_loop: what a CPU does after a wait shifts by it; otherwise the CPU makes up for it in
            its next pause.
        unfair: who comes to a free lock may take it although others queue, as with the hybrid lock
            of paravirtual guests; otherwise first come, first served.
        trylock_fails: who finds a list's pcp->lock taken by another CPU's drain moves one page
            under zone->lock instead (S4.10), and a drain in batches stops (S4.7); otherwise who
            needs zone->lock queues for it all the same.

    Fed back: pages that went past a list are missing from its next drains; what a drain left
    behind goes with the list's next full drain, in holds that are no larger than the replay's
    largest of these. Not fed back: refills that come later or sooner, frees that resume a drain
    that was cut short, where pages lie.
    """

    costs: LockCosts = field(default_factory=LockCosts)
    closed_loop: bool = True
    unfair: bool = False
    trylock_fails: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class LockTimes:
    """Every acquisition of zone->lock with its times.

    Attributes:
        machine: names of zones.
        model: what was assumed.
        acquisitions: time_ns (as recorded), zone, node, cpu (that ran it), list_cpu, site, cause,
            objects, pages, splits, merges, inserts, scanned, arrival_ns, start_ns, hold_ns,
            wait_ns, list_wait_ns (for pcp->lock, before), ahead (CPUs that held or awaited the
            lock), list_was_busy; one row each. Cause "trylock": one page, past the list.
        log: int64, shape (rows, LOG_COLUMNS): the holds it was made from.
        visits: `lock_visits.VISIT` records: what tried the locks of lists besides.
        trylocks: cpu; frees and allocations whose trylock of the CPU's own list failed, each of
            them one page under zone->lock; drains_cut_short; pages_left by drains that were cut
            short or did not begin.
        delay_ns: int64 per CPU, by how much it was late after its last acquisition.
        span_ns: time from the first arrival to the last release.
    """

    machine: Machine
    model: LockModel
    acquisitions: pd.DataFrame
    log: np.ndarray
    visits: np.ndarray
    trylocks: pd.DataFrame
    delay_ns: np.ndarray
    span_ns: int

    @cached_property
    def by_site(self) -> pd.DataFrame:
        """Acquisitions, work, holds and waits by site and cause, one row each."""
        return _summary(self.acquisitions, ["site", "cause"])

    @cached_property
    def by_site_and_cpu(self) -> pd.DataFrame:
        """The same for each CPU."""
        return _summary(self.acquisitions, ["site", "cause", "cpu"])

    @cached_property
    def utilisation(self) -> pd.Series:
        """Share of the time in which each zone's lock is held, by zone."""
        held = self.acquisitions.groupby("zone")["hold_ns"].sum()
        return held / max(self.span_ns, 1)

    @cached_property
    def stalls(self) -> pd.DataFrame:
        """By CPU: time spent waiting, its longest spell without a pause, and delay at the end."""
        frame = self.acquisitions
        waited = frame.groupby("cpu")["wait_ns"].agg(["sum", "max"])
        spells = _longest_spells(frame)
        return pd.DataFrame(
            {
                "wait_ns": waited["sum"],
                "longest_wait_ns": waited["max"],
                "longest_spell_ns": spells,
                "delay_ns": pd.Series(self.delay_ns).reindex(waited.index),
            }
        ).reset_index()

    @property
    def longest_starvation_ns(self) -> int:
        """The longest that any CPU waited in one go: it spins with interrupts off meanwhile."""
        waits = self.acquisitions["wait_ns"]
        return int(waits.max()) if len(waits) else 0

    def longest_holds(self) -> pd.DataFrame:
        """The longest hold by site and cause: when, where, how many pages and how long."""
        frame = self.acquisitions
        rows = frame.groupby(["site", "cause"])["hold_ns"].idxmax()
        columns = ["site", "cause", "time_ns", "zone", "cpu", "pages", "hold_ns", "wait_ns"]
        return frame.loc[rows, columns].reset_index(drop=True)


def lock_times(replay: Replay, model: LockModel | None = None) -> LockTimes:
    """Let a replay's acquisitions of zone->lock take time.

    Args:
        replay: counts, work and order of acquisitions; recorded times.
        model: costs and rules of the queue; None for the defaults, whose costs are assumed.
    """
    return queued(replay.log, replay.machine, model or LockModel(), replay_visits(replay))


def replay_visits(replay: Replay) -> np.ndarray:
    """A replay's allocations and frees at lists that other CPUs may drain meanwhile."""
    demand = replay.demand.events
    return list_visits(replay.log, demand, replay.places, replay.machine, replay.policy)


def queued(
    log: np.ndarray, machine: Machine, model: LockModel, visits: np.ndarray = NO_VISITS
) -> LockTimes:
    """The same from a log of transactions.

    Args:
        log: int64, shape (rows, LOG_COLUMNS), in time order; page rows are skipped.
        machine: names of zones, number of CPUs.
        model: costs and rules of the queue.
        visits: `lock_visits.VISIT` records: what else tries the locks of lists.
    """
    log = log[log[:, 0] < at.SITES]
    hold = model.costs.hold_ns({name: log[:, column] for name, column in LOG_COLUMN.items()})
    requests = lock_requests(log, visits, machine, hold)
    outcomes, delay_ns = _run(requests, machine, model)
    fails = model.trylock_fails
    return LockTimes(
        machine=machine,
        model=model,
        acquisitions=acquisitions_table(log, requests, outcomes, machine, trylock_fails=fails),
        log=log,
        visits=visits,
        trylocks=trylocks_table(requests, outcomes, machine, trylock_fails=fails),
        delay_ns=delay_ns,
        span_ns=_span(outcomes[outcomes["end"] == SERVED]),
    )


def _run(requests: Requests, machine: Machine, model: LockModel) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes of all requests, and each CPU's delay at the end."""
    records, first = requests.records, requests.first
    outcomes = np.zeros(len(records), OUTCOME)
    for name in ("hold_ns", "pages"):
        outcomes[name] = records[name]
    cpus = np.zeros(machine.nr_cpus, CPU)
    cpus["next"], cpus["end"] = first[:-1], first[1:]
    cpus["status"] = np.where(cpus["next"] == cpus["end"], DONE, ARRIVING)
    cpus["parked_on"] = -1
    busy = cpus["next"] < cpus["end"]
    cpus["arrival_ns"][busy] = records["time_ns"][first[:-1][busy]]
    settings = np.zeros(SETTINGS, np.int64)
    settings[CLOSED_LOOP] = model.closed_loop
    settings[UNFAIR] = model.unfair
    settings[HANDOFF_NS] = round(model.costs.handoff.ns)
    full = records["role"] == EMPTIES
    settings[LARGEST_FULL] = records["pages"][full].max(initial=0)
    settings[SINGLE_NS] = model.costs.single_page_ns if model.trylock_fails else -1
    locks = np.zeros(len(machine.zones), LOCK)
    list_locks = np.zeros(len(machine.zones) * machine.nr_cpus, LIST_LOCK)
    run_queues(records, outcomes, cpus, locks, list_locks, settings)
    return outcomes, cpus["delay_ns"].copy()


def _span(outcomes: np.ndarray) -> int:
    if not len(outcomes):
        return 0
    ends = outcomes["start_ns"] + outcomes["hold_ns"]
    return int(ends.max() - outcomes["arrival_ns"].min())


def _summary(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    grouped = frame.groupby(keys, observed=True)
    table = grouped[[*WORK_COLUMNS, "hold_ns", "wait_ns"]].sum()
    table.insert(0, "acquisitions", grouped.size())
    table["pages_per_acquisition"] = table["pages"] / table["acquisitions"]
    table["max_pages"] = grouped["pages"].max()
    table["contended"] = grouped["ahead"].agg(lambda ahead: int((ahead > 0).sum()))
    table["contended_share"] = table["contended"] / table["acquisitions"]
    for name in ("hold_ns", "wait_ns"):
        for label, share in (("median", 0.5), ("p99", 0.99), ("max", 1.0)):
            table[f"{label}_{name}"] = grouped[name].quantile(share)
    return table.reset_index()


def _longest_spells(frame: pd.DataFrame) -> pd.Series:
    """By CPU, the longest time from an arrival to a release without a pause in between (ns).

    Acquisitions stand CPU by CPU; the spell goes on where one arrives as the last is released.
    """
    cpu = frame["cpu"].to_numpy()
    arrival = frame["arrival_ns"].to_numpy()
    release = frame["start_ns"].to_numpy() + frame["hold_ns"].to_numpy()
    begins = np.ones(len(frame), bool)
    begins[1:] = (cpu[1:] != cpu[:-1]) | (arrival[1:] > release[:-1])
    starts = np.flatnonzero(begins)
    if not len(starts):
        return pd.Series(dtype="int64")
    ends = np.append(starts[1:], len(frame)) - 1
    lengths = release[ends] - arrival[starts]
    return pd.Series(lengths).groupby(cpu[starts]).max()
