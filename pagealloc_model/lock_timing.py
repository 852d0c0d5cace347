"""Time at zone->lock: a replay's acquisitions run through a queue of CPUs per lock (S11).

Counts and work of every acquisition are the model's; when each comes is the recording's. What is
added here is how long it takes, by stated costs, and hence who waits for whom.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.locks import (
    CLOSED_LOOP,
    CPU,
    DONE,
    HANDOFF_NS,
    LIST_LOCK,
    LOCK,
    OUTCOME,
    REQUEST,
    SETTINGS,
    SINGLE_NS,
    UNFAIR,
    run_queues,
)
from pagealloc_model.lock_costs import SPREAD, LockCosts
from pagealloc_model.machine import Machine
from pagealloc_model.predicted_tables import SITE_NAMES
from pagealloc_model.prediction import Replay

SOFT_LOCKUP_NS = 20_000_000_000
"""The kernel's softlockup detector fires after 2 * watchdog_thresh, 20 s by default."""

WORK_COLUMNS = ("objects", "pages", "splits", "merges", "inserts", "scanned")
_LOG_COLUMN = dict(zip(WORK_COLUMNS, (6, 7, 8, 9, 10, 11), strict=True))
_WITH_LIST = (at.SITE_REFILL, at.SITE_DRAIN_COMMIT, at.SITE_DRAIN_DECAY, at.SITE_DRAIN_ALL)
_ENDS_AT_EVENT = (at.SITE_REFILL, at.SITE_BUDDY_ALLOC)


@dataclass(frozen=True, kw_only=True)
class LockModel:
    """How time passes at the locks.

    Attributes:
        costs: what work takes.
        closed_loop: what a CPU does after a wait shifts by it; otherwise the CPU makes up for it in
            its next pause.
        unfair: who comes to a free lock may take it although others queue, as with the hybrid lock
            of paravirtual guests; otherwise first come, first served.
        trylock_fails: a refill or drain that finds its list's pcp->lock taken moves one page under
            zone->lock instead (S4.10); otherwise it queues for zone->lock with what it has to do.

    Not modelled: pages that would only have gone to or come from a list whose lock is taken, and
    move under zone->lock instead; what a failed trylock leaves on a list; drains cut short.
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
            wait_ns, ahead (CPUs that held or awaited the lock), list_was_busy; one row each.
        delay_ns: int64 per CPU, by how much it was late after its last acquisition.
        span_ns: time from the first arrival to the last release.
    """

    machine: Machine
    model: LockModel
    acquisitions: pd.DataFrame
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
    return queued(replay.log, replay.machine, model or LockModel())


def queued(log: np.ndarray, machine: Machine, model: LockModel) -> LockTimes:
    """The same from a log of transactions.

    Args:
        log: int64, shape (rows, LOG_COLUMNS), in time order; page rows are skipped.
        machine: names of zones, number of CPUs.
        model: costs and rules of the queue.
    """
    log = log[log[:, 0] < at.SITES]
    by_cpu = np.argsort(log[:, at.LOG_RAN_ON], kind="stable")
    log = log[by_cpu]
    cpu = log[:, at.LOG_RAN_ON]
    hold = model.costs.hold_ns({name: log[:, column] for name, column in _LOG_COLUMN.items()})
    first = np.searchsorted(cpu, np.arange(machine.nr_cpus + 1))
    requests = _requests(log, machine, hold, first)
    outcomes = np.zeros(len(log), OUTCOME)
    outcomes["hold_ns"] = hold
    cpus = np.zeros(machine.nr_cpus, CPU)
    cpus["next"], cpus["end"] = first[:-1], first[1:]
    cpus["status"] = np.where(cpus["next"] == cpus["end"], DONE, 0)
    busy = cpus["next"] < cpus["end"]
    cpus["arrival_ns"][busy] = requests["time_ns"][first[:-1][busy]]
    settings = np.zeros(SETTINGS, np.int64)
    settings[CLOSED_LOOP] = model.closed_loop
    settings[UNFAIR] = model.unfair
    settings[HANDOFF_NS] = round(model.costs.handoff.ns)
    settings[SINGLE_NS] = model.costs.single_page_ns if model.trylock_fails else -1
    locks = np.zeros(len(machine.zones), LOCK)
    list_locks = np.zeros(len(machine.zones) * machine.nr_cpus, LIST_LOCK)
    run_queues(requests, outcomes, cpus, locks, list_locks, settings)
    acquisitions = _acquisitions(log, machine, outcomes)
    return LockTimes(
        machine=machine,
        model=model,
        acquisitions=acquisitions,
        delay_ns=cpus["delay_ns"].copy(),
        span_ns=_span(outcomes),
    )


def _requests(log: np.ndarray, machine: Machine, hold: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The queue's input: each CPU's acquisitions, one after the other, when nobody else comes.

    An allocation's event comes after its hold, a free's before it (T1.3).
    """
    requests = np.zeros(len(log), REQUEST)
    site = log[:, 0]
    times = log[:, 1] - np.where(np.isin(site, _ENDS_AT_EVENT), hold, 0)
    for begin, end in itertools.pairwise(first):
        before = np.cumsum(hold[begin:end]) - hold[begin:end]
        times[begin:end] = before + np.maximum.accumulate(times[begin:end] - before)
    requests["time_ns"] = times
    requests["hold_ns"] = hold
    requests["lock"] = log[:, 2]
    listed = np.isin(site, _WITH_LIST)
    requests["list_lock"] = np.where(listed, log[:, 2] * machine.nr_cpus + log[:, 3], -1)
    requests["is_remote"] = listed & (log[:, 3] != log[:, at.LOG_RAN_ON])
    return requests


def _acquisitions(log: np.ndarray, machine: Machine, outcomes: np.ndarray) -> pd.DataFrame:
    sites = np.array([SITE_NAMES[site] for site in range(at.SITES)], object)
    names = np.array([zone.name for zone in machine.zones], object)
    nodes = np.array([zone.node for zone in machine.zones])
    frame = pd.DataFrame(
        {
            "time_ns": log[:, 1],
            "zone": pd.Categorical.from_codes(*_codes(names[log[:, 2]])),
            "node": nodes[log[:, 2]],
            "cpu": log[:, at.LOG_RAN_ON],
            "list_cpu": log[:, 3],
            "site": pd.Categorical.from_codes(*_codes(sites[log[:, 0], 0])),
            "cause": pd.Categorical.from_codes(*_codes(sites[log[:, 0], 1])),
            **{name: log[:, column] for name, column in _LOG_COLUMN.items()},
            "arrival_ns": outcomes["arrival_ns"],
            "start_ns": outcomes["start_ns"],
            "hold_ns": outcomes["hold_ns"],
            "wait_ns": outcomes["start_ns"] - outcomes["arrival_ns"],
            "ahead": outcomes["ahead"],
            "list_was_busy": outcomes["list_was_busy"] != 0,
        }
    )
    return frame


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


def with_spread(log: np.ndarray, machine: Machine, model: LockModel | None = None) -> pd.DataFrame:
    """Time-valued results for the given costs, and for costs tenfold apart around them.

    Args:
        log: every hold of zone->lock, as a replay or a scenario's run has it.
        machine: where.
        model: costs and rules of the queue.

    Returns:
        result, low, value, high, unit; the order of low and high is that of the costs.
    """
    model = model or LockModel()
    columns = {
        name: _time_values(queued(log, machine, replace(model, costs=model.costs.times(factor))))
        for name, factor in (("low", 1 / SPREAD), ("value", 1.0), ("high", SPREAD))
    }
    frame = pd.DataFrame(columns)
    frame.index.name = "result"
    return frame.reset_index()


def _time_values(times: LockTimes) -> dict[str, float]:
    frame = times.acquisitions
    if not len(frame):
        return {}
    values = {
        "contended acquisitions": float((frame["ahead"] > 0).sum()),
        "time waiting (ms)": float(frame["wait_ns"].sum()) / 1e6,
        "longest wait (us)": times.longest_starvation_ns / 1e3,
        "longest spell of waits and holds (us)": float(times.stalls["longest_spell_ns"].max())
        / 1e3,
    }
    for row in times.longest_holds().itertuples():
        values[f"longest hold, {row.site} {row.cause}".strip() + " (us)"] = row.hold_ns / 1e3
    for zone, share in times.utilisation.items():
        values[f"lock of {zone} held (% of time)"] = 100 * float(share)
    return values


def _codes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    categories, codes = np.unique(values.astype(str), return_inverse=True)
    return codes, categories
