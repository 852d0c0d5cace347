"""Time at zone->lock: a replay's holds run through a queue of CPUs per lock, as tables (S11)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import sites
from pagealloc_model.base.jit import entry, inner
from pagealloc_model.policy.lock_costs import SPREAD, LockCosts
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import named_sites
from pagealloc_model.recording.machine import Machine

I64, I32, I16, I8 = np.int64, np.int32, np.int16, np.int8


def _record(**fields: type) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


REQUEST = _record(time_ns=I64, hold_ns=I64, list_lock=I32, pages=I32, lock=I16, role=I8)
"""A step of a CPU, in its order: when it would arrive if nothing were contended, for how long
it holds the lock, which pcp->lock it holds all the while (-1 for none), pages it moves, which
zone->lock, and its part below."""

REFILLS, DRAINS, GOES_ON, DECAYS, EMPTIES, ALLOCATES, FREES = 0, 1, 2, 3, 4, 5, 6
"""Parts that a request plays at its list: refills and drains that try its lock; a drain's next
batch, which tries it again; decay and full drains, which wait for it; allocations and frees that
need the list only."""

OUTCOME = _record(
    **{"arrival_ns": I64, "start_ns": I64, "hold_ns": I64, "list_wait_ns": I64},
    **{"pages": I32, "ahead": I16, "list_was_busy": I8, "end": I8},
)
"""Its outcome: arrival, when it got the lock, for how long it held it, how long it waited for
the list before, pages moved, how many held or awaited the lock on arrival, whether a trylock of the
list failed, and how it ended."""

SERVED, LISTED, ABANDONED, NEEDLESS = 0, 1, 2, 3
"""It took zone->lock; the list was enough; the rest of its drain stayed on the list; the pages it
was to drain had gone to the buddy one by one."""

CPU = _record(
    **{"next": I64, "end": I64, "arrival_ns": I64, "delay_ns": I64, "asked_ns": I64},
    **{"parked_on": I32, "behind": I32, "status": I8},
)
"""A CPU's progress: its next request and the end of them, when that arrives, by how much it is
late, since when it waits for which pcp->lock (-1 for none), who queues behind it, and what it
does."""

ARRIVING, QUEUED, PARKED, DONE = 0, 1, 2, 3

LOCK = _record(release_ns=I64, head=I32, tail=I32, waiting=I32)
"""A zone->lock: when its last holder lets go, and the queue of CPUs behind."""

LIST_LOCK = _record(release_ns=I64, gone=I64, waiting=I32, is_waiting=I8)
"""A pcp->lock: when it is let go, unless its holder still waits for zone->lock; CPUs that wait for
it; and by how many pages the list is shorter than the requests have it, because trylocks failed."""

SETTINGS = 5
CLOSED_LOOP, UNFAIR, HANDOFF_NS, SINGLE_NS, LARGEST_FULL = 0, 1, 2, 3, 4
"""int64 settings: whether delays carry over to a CPU's later requests; whether who comes to a free
lock may take it although others queue; time between a release and the next in the queue having the
lock; hold of a request whose trylock failed, for a single page, or -1 to leave it as it is;
most pages that one hold of a full drain moves."""

NEVER = 1 << 62


class Queues(NamedTuple):
    """The arrays that the queues work on.

    Attributes:
        requests: `REQUEST` records, CPU after CPU, each CPU's in its order.
        outcomes: `OUTCOME` records, `hold_ns` and `pages` as in the requests; written.
        cpus: `CPU` records with `next`, `end`, `arrival_ns` of the first request, `parked_on` -1.
        locks: `LOCK` records, zero.
        list_locks: `LIST_LOCK` records, zero.
        settings: int64, shape (SETTINGS,).
    """

    requests: np.ndarray
    outcomes: np.ndarray
    cpus: np.ndarray
    locks: np.ndarray
    list_locks: np.ndarray
    settings: np.ndarray


@inner
def go_on(q: Queues, cpu: int, now: int, release: int) -> None:
    """Find when a CPU served `now` to `release` asks again; a failed drain's rest stays (S4.7)."""
    own = q.cpus[cpu]
    number = int(own["next"])
    late = now - q.requests[number]["time_ns"]
    given_up = q.outcomes[number]["list_was_busy"] != 0 and q.settings[SINGLE_NS] >= 0
    number += 1
    while given_up and number < own["end"] and q.requests[number]["role"] == GOES_ON:
        q.outcomes[number]["end"] = ABANDONED
        q.list_locks[q.requests[number]["list_lock"]]["gone"] -= q.requests[number]["pages"]
        number += 1
    own["next"] = number
    if number == own["end"]:
        own["status"] = DONE
        own["delay_ns"] = late
        return
    own["status"] = ARRIVING
    if q.settings[CLOSED_LOOP]:
        own["delay_ns"] = late
    own["arrival_ns"] = max(q.requests[number]["time_ns"] + own["delay_ns"], release)


@inner
def serve(q: Queues, cpu: int, now: int) -> None:
    """Give a CPU the lock it asked for; those that slept on its pcp->lock arrive when it is let go.

    They come after trylocks of that instant.
    """
    number = int(q.cpus[cpu]["next"])
    request, outcome = q.requests[number], q.outcomes[number]
    release = now + outcome["hold_ns"]
    outcome["start_ns"] = now
    q.locks[request["lock"]]["release_ns"] = release
    if request["list_lock"] >= 0 and outcome["list_was_busy"] == 0:
        held = q.list_locks[request["list_lock"]]
        held["release_ns"] = release
        held["is_waiting"] = 0
        for other in range(len(q.cpus) if held["waiting"] > 0 else 0):
            sleeper = q.cpus[other]
            if sleeper["status"] == PARKED and sleeper["parked_on"] == request["list_lock"]:
                sleeper["status"] = ARRIVING
                sleeper["arrival_ns"] = release + 1
    go_on(q, cpu, now, release)


@inner
def _end_without_lock(q: Queues, cpu: int, how: int) -> None:
    """End a request as it arrives, without zone->lock."""
    now = int(q.cpus[cpu]["arrival_ns"])
    outcome = q.outcomes[q.cpus[cpu]["next"]]
    outcome["arrival_ns"] = now
    outcome["start_ns"] = now
    outcome["hold_ns"] = 0
    outcome["pages"] = 0
    outcome["end"] = how
    go_on(q, cpu, now, now)


@inner
def _fail_trylock(q: Queues, cpu: int) -> bool:
    """End a failed trylock: one page moves past the list (S4.10), or a drain stops (S4.7)."""
    number = int(q.cpus[cpu]["next"])
    request, outcome = q.requests[number], q.outcomes[number]
    role, pages = request["role"], request["pages"]
    outcome["list_was_busy"] = 1
    if q.settings[SINGLE_NS] < 0:
        if role not in (ALLOCATES, FREES):
            return True
        _end_without_lock(q, cpu, LISTED)
        return False
    wanted = q.list_locks[request["list_lock"]]
    if role == GOES_ON:
        wanted["gone"] -= pages
        _end_without_lock(q, cpu, ABANDONED)
        return False
    outcome["hold_ns"] = q.settings[SINGLE_NS]
    if role == FREES:
        wanted["gone"] += pages
    elif role == ALLOCATES:
        wanted["gone"] -= pages
    else:
        outcome["pages"] = 1
        if role == DRAINS:
            wanted["gone"] -= pages - 1
    return True


@inner
def _correct_drain(q: Queues, number: int) -> bool:
    """Drain the pages on the list now, without those gone; in full drains with those left on it."""
    request = q.requests[number]
    wanted = q.list_locks[request["list_lock"]]
    pages = int(request["pages"])
    gone = min(int(wanted["gone"]), pages)
    if gone < 0:
        room = max(q.settings[LARGEST_FULL] - pages, 0)
        gone = -min(-gone, room) if request["role"] == EMPTIES else 0
    if gone == 0 or request["role"] == REFILLS:
        return True
    wanted["gone"] -= gone
    q.outcomes[number]["pages"] = pages - gone
    q.outcomes[number]["hold_ns"] = request["hold_ns"] * (pages - gone) // pages
    return pages > gone


@inner
def _take_list(q: Queues, cpu: int, number: int) -> bool:
    """Take the request's pcp->lock, sleepers before trylocks; true if zone->lock is needed now."""
    own, request = q.cpus[cpu], q.requests[number]
    wanted = q.list_locks[request["list_lock"]]
    now, role = int(own["arrival_ns"]), request["role"]
    has_waited = own["parked_on"] >= 0
    is_waiting = wanted["is_waiting"] != 0
    if is_waiting or wanted["release_ns"] > now or (wanted["waiting"] > 0 and not has_waited):
        if role not in (DECAYS, EMPTIES):
            return _fail_trylock(q, cpu)
        if not has_waited:
            own["parked_on"] = request["list_lock"]
            own["asked_ns"] = now
            wanted["waiting"] += 1
        if is_waiting:
            own["status"] = PARKED
        else:
            own["arrival_ns"] = max(int(wanted["release_ns"]), now) + 1
        return False
    if role in (ALLOCATES, FREES):
        _end_without_lock(q, cpu, LISTED)
        return False
    if has_waited:
        own["parked_on"] = -1
        wanted["waiting"] -= 1
        q.outcomes[number]["list_wait_ns"] = now - own["asked_ns"]
    if not _correct_drain(q, number):
        _end_without_lock(q, cpu, NEEDLESS)
        return False
    wanted["is_waiting"] = 1
    return True


@inner
def _arrive(q: Queues, cpu: int) -> None:
    """Bring a CPU to its lock; it gets it, or joins the end of its queue."""
    own = q.cpus[cpu]
    number = int(own["next"])
    if q.requests[number]["list_lock"] >= 0 and not _take_list(q, cpu, number):
        return
    now, lock = int(own["arrival_ns"]), q.locks[q.requests[number]["lock"]]
    waiting = int(lock["waiting"])
    is_free = lock["release_ns"] <= now
    q.outcomes[number]["arrival_ns"] = now
    q.outcomes[number]["ahead"] = waiting + (0 if is_free else 1)
    if is_free and (waiting == 0 or q.settings[UNFAIR]):
        serve(q, cpu, now)
        return
    own["status"] = QUEUED
    own["behind"] = -1
    if waiting > 0:
        q.cpus[lock["tail"]]["behind"] = cpu
    else:
        lock["head"] = cpu
    lock["tail"] = cpu
    lock["waiting"] += 1


@entry
def run_queues(q: Queues) -> None:
    """Let every CPU go through its requests.

    A release hands the lock to the CPU that queues longest, `HANDOFF_NS` later. Until then the lock
    is free to those who come along, where the lock is unfair.
    """
    while True:
        cpu, lock, arrival, handoff = -1, -1, NEVER, NEVER
        for each in range(len(q.cpus)):
            if q.cpus[each]["status"] == ARRIVING and q.cpus[each]["arrival_ns"] < arrival:
                cpu, arrival = each, int(q.cpus[each]["arrival_ns"])
        for each in range(len(q.locks)):
            if q.locks[each]["waiting"] > 0 and q.locks[each]["release_ns"] < handoff:
                lock, handoff = each, int(q.locks[each]["release_ns"])
        if cpu < 0 and lock < 0:
            return
        if lock >= 0:
            handoff += q.settings[HANDOFF_NS]
        if cpu >= 0 and arrival < handoff:
            _arrive(q, cpu)
            continue
        first = int(q.locks[lock]["head"])
        q.locks[lock]["head"] = q.cpus[first]["behind"]
        q.locks[lock]["waiting"] -= 1
        serve(q, first, handoff)


ROLES = {
    at.SITE_REFILL: REFILLS,
    at.SITE_DRAIN_COMMIT: DRAINS,
    at.SITE_DRAIN_DECAY: DECAYS,
    at.SITE_DRAIN_ALL: EMPTIES,
}
"""Parts that holds of these sites play at a list's lock; other sites need no list."""

_ENDS_AT_EVENT = (at.SITE_REFILL, at.SITE_BUDDY_ALLOC)


def _lock_requests(
    log: np.ndarray, visits: np.ndarray, machine: Machine, hold_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The queue's input, CPU after CPU, with times as they are when nobody else comes.

    An allocation's event comes after its hold, a free's before it (T1.3). Returns `REQUEST`
    records; row of the log or, behind those, number of the visit of each; where each CPU's begin.
    """
    cpu = np.concatenate([log[:, at.LOG_RAN_ON], visits["cpu"]])
    time_ns = np.concatenate([log[:, 1], visits["time_ns"]])
    together = np.zeros(len(cpu), REQUEST)
    holds, others = np.split(together, [len(log)])
    site = log[:, 0]
    holds["time_ns"] = log[:, 1] - np.where(np.isin(site, _ENDS_AT_EVENT), hold_ns, 0)
    holds["hold_ns"], holds["pages"], holds["lock"] = hold_ns, log[:, 7], log[:, 2]
    holds["list_lock"] = -1
    for number, role in ROLES.items():
        own = site == number
        holds["list_lock"][own] = log[own, 2] * machine.nr_cpus + log[own, 3]
        holds["role"][own] = role
    others["time_ns"], others["lock"] = visits["time_ns"], visits["zone"]
    others["pages"] = np.int32(1) << visits["order"].astype(np.int32)
    others["list_lock"] = visits["zone"].astype(np.int32) * machine.nr_cpus + visits["cpu"]
    others["role"] = np.where(visits["frees"], FREES, ALLOCATES)
    source = np.lexsort((time_ns, cpu))
    records, time_ns, cpu = together[source], time_ns[source], cpu[source]
    # batches after the first of one free's drain: its list, at its time (S4.7)
    drains = (records["role"] == DRAINS) & (records["list_lock"] >= 0)
    goes_on = drains[1:] & drains[:-1] & (time_ns[1:] == time_ns[:-1]) & (cpu[1:] == cpu[:-1])
    goes_on &= records["list_lock"][1:] == records["list_lock"][:-1]
    records["role"][1:][goes_on] = GOES_ON
    first = np.searchsorted(cpu, np.arange(machine.nr_cpus + 1))
    for begin, end in itertools.pairwise(first):
        # what one CPU does begins when what it did before is over
        own = records[begin:end]
        before = np.cumsum(own["hold_ns"]) - own["hold_ns"]
        own["time_ns"] = before + np.maximum.accumulate(own["time_ns"] - before)
    return records, source, first


COSTLY_ORDER = 3
VISIT = _record(time_ns=I64, cpu=I16, zone=I16, order=I8, frees=np.bool_)
"""An allocation or a free that needs a CPU's own list of a zone only."""

NO_VISITS = np.zeros(0, VISIT)


def list_visits(
    log: np.ndarray, events: np.ndarray, places: np.ndarray, machine: Machine, policy: Policy
) -> np.ndarray:
    """`VISIT` records in time order, from the first drain of another CPU's list on.

    Left out are pages that the model put nowhere or that served a request in single pages, and
    events whose own CPU held zone->lock at their time: the log has these already.
    """
    holds = log[log[:, 0] < at.SITES]
    remote = (holds[:, 0] == at.SITE_DRAIN_ALL) & (holds[:, 3] != holds[:, at.LOG_RAN_ON])
    if not remote.any():
        return NO_VISITS
    events = events[np.searchsorted(events["time_ns"], holds[remote, 1].min()) :]
    costly = COSTLY_ORDER if policy.costly_order is None else policy.costly_order
    listed = np.isin(events["operation"], (at.FREE, at.ALLOC, at.HIDDEN_ALLOC))
    events = events[listed & (events["order"] <= costly)]
    place = places[events["object"]]
    visits = np.zeros(len(events), VISIT)
    for name in ("time_ns", "cpu", "order"):
        visits[name] = events[name]
    visits["frees"] = events["operation"] == at.FREE
    visits["zone"] = -1
    for number, zone in enumerate(machine.zones):
        visits["zone"][(place >= zone.start_pfn) & (place < zone.end_pfn)] = number
    took_the_lock = np.zeros(len(visits), bool)
    for cpu in np.unique(holds[:, at.LOG_RAN_ON]):
        own = np.flatnonzero(visits["cpu"] == cpu)
        times = holds[holds[:, at.LOG_RAN_ON] == cpu, 1]
        took_the_lock[own] = np.isin(visits["time_ns"][own], times)
    return visits[(visits["zone"] >= 0) & ~took_the_lock]


WORK_COLUMNS = ("objects", "pages", "splits", "merges", "inserts", "scanned")
LOG_COLUMN = dict(zip(WORK_COLUMNS, (6, 7, 8, 9, 10, 11), strict=True))

TRYLOCK = "trylock"
"""Cause of a hold that moves one page past the list, because a trylock of the list failed."""

_ALLOCATED_PAST_LIST, _FREED_PAST_LIST = len(sites.NAMES), len(sites.NAMES) + 1
_NAMES = np.append(sites.NAMES, ["buddy_alloc", "direct_free"])
_CAUSES = np.append(sites.CAUSES_BY_CODE, [TRYLOCK, TRYLOCK])


def _acquisitions_table(
    log: np.ndarray,
    records: np.ndarray,
    source: np.ndarray,
    cpu: np.ndarray,
    outcomes: np.ndarray,
    machine: Machine,
    *,
    trylock_fails: bool,
) -> pd.DataFrame:
    """One row for each request that took zone->lock, see `LockTimes.acquisitions`."""
    logged = source < len(log)
    holds = log[np.where(logged, source, 0)]
    site = named_sites(holds)
    if trylock_fails:
        takes = np.isin(records["role"], (REFILLS, ALLOCATES))
        past_list = np.where(takes, _ALLOCATED_PAST_LIST, _FREED_PAST_LIST)
        site = np.where(outcomes["list_was_busy"] != 0, past_list, site)
    # units of work are the model's, in proportion to the pages that were still there to move
    pages, planned = outcomes["pages"].astype(np.int64), holds[:, LOG_COLUMN["pages"]]
    part, whole = np.where(planned > 0, pages, 1), np.maximum(planned, 1)
    past_list = site >= len(sites.NAMES)
    work = {
        name: np.where(past_list, 0, holds[:, column] * part // whole)
        for name, column in LOG_COLUMN.items()
    }
    work["objects"][past_list] = 1
    work["pages"][past_list] = pages[past_list]
    work["inserts"][site == _FREED_PAST_LIST] = 1
    names = np.array([zone.name for zone in machine.zones], object)
    nodes = np.array([zone.node for zone in machine.zones])
    return pd.DataFrame(
        {
            "time_ns": np.where(logged, holds[:, 1], records["time_ns"]),
            "zone": pd.Categorical(names[records["lock"]]),
            "node": nodes[records["lock"]],
            "cpu": cpu,
            "list_cpu": np.where(logged, holds[:, 3], cpu),
            "site": pd.Categorical(_NAMES[site]),
            "cause": pd.Categorical(_CAUSES[site]),
            **work,
            **{name: outcomes[name] for name in ("arrival_ns", "start_ns", "hold_ns")},
            "wait_ns": outcomes["start_ns"] - outcomes["arrival_ns"],
            **{name: outcomes[name] for name in ("list_wait_ns", "ahead")},
            "list_was_busy": outcomes["list_was_busy"] != 0,
        }
    )


@dataclass(frozen=True, kw_only=True)
class LockModel:
    """Rules of time at the locks.

    Fed back: pages that went past a list are missing from its next drains; what a drain left behind
    goes with the list's next full drain, in holds that are no larger than the replay's largest of
    these. Not fed back: refills that come later or sooner, frees that resume a drain, places.

    Attributes:
        costs: of units of work.
        closed_loop: what a CPU does after a wait shifts by it; otherwise the CPU makes up for it in
            its next pause.
        unfair: who comes to a free lock may take it although others queue, as with the hybrid lock
            of paravirtual guests; otherwise first come, first served.
        trylock_fails: who finds a list's pcp->lock taken by another CPU's drain moves one page
            under zone->lock instead (S4.10), and a drain in batches stops (S4.7).
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
        model: the assumptions.
        acquisitions: time_ns (as recorded), zone, node, cpu (that ran it), list_cpu, site, cause,
            objects, pages, splits, merges, inserts, scanned, arrival_ns, start_ns, hold_ns,
            wait_ns, list_wait_ns (for pcp->lock, before), ahead (CPUs that held or awaited the
            lock), list_was_busy; one row each. Cause "trylock": one page, past the list.
        log: int64, shape (rows, LOG_COLUMNS): the holds it was made from.
        visits: `VISIT` records: events that tried the locks of lists besides.
        trylocks: cpu; frees and allocations whose trylock of the CPU's own list failed;
            drains_cut_short; pages_left by drains that were cut short or did not begin.
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
        grouped = self.acquisitions.groupby(["site", "cause"], observed=True)
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

    @cached_property
    def utilisation(self) -> pd.Series:
        """Share of the time in which each zone's lock is held, by zone."""
        held = self.acquisitions.groupby("zone")["hold_ns"].sum()
        return held / max(self.span_ns, 1)

    def spells(self, *sites: str) -> pd.DataFrame:
        """Spells without a pause: cpu, time_ns (as recorded) and ns; of some sites' or of all.

        Acquisitions stand CPU by CPU; a spell goes on where one arrives as the last is released.
        """
        frame = self.acquisitions
        inside = frame["site"].isin(sites).to_numpy() if sites else np.ones(len(frame), bool)
        cpu, arrival = frame["cpu"].to_numpy(), frame["arrival_ns"].to_numpy()
        release = (frame["start_ns"] + frame["hold_ns"]).to_numpy()
        is_new = (cpu[1:] != cpu[:-1]) | (arrival[1:] > release[:-1]) | (inside[1:] != inside[:-1])
        starts = np.flatnonzero(np.append(True, is_new)[: len(frame)])
        ends = np.append(starts[1:], len(frame))[: len(starts)] - 1
        starts, ends = starts[inside[starts]], ends[inside[starts]]
        time_ns = frame["time_ns"].to_numpy()[starts]
        return pd.DataFrame(
            {"cpu": cpu[starts], "time_ns": time_ns, "ns": release[ends] - arrival[starts]}
        )

    @cached_property
    def stalls(self) -> pd.DataFrame:
        """By CPU: time spent waiting, its longest spell without a pause, and delay at the end."""
        waited = self.acquisitions.groupby("cpu")["wait_ns"].agg(["sum", "max"])
        return pd.DataFrame(
            {
                "wait_ns": waited["sum"],
                "longest_wait_ns": waited["max"],
                "longest_spell_ns": self.spells().groupby("cpu")["ns"].max(),
                "delay_ns": pd.Series(self.delay_ns).reindex(waited.index),
            }
        ).reset_index()

    @property
    def longest_starvation_ns(self) -> int:
        """The longest that any CPU waited in one go: it spins with interrupts off meanwhile."""
        return int(self.acquisitions["wait_ns"].max()) if len(self.acquisitions) else 0

    def longest_holds(self) -> pd.DataFrame:
        """The longest hold by site and cause: when, where, how many pages and how long."""
        frame = self.acquisitions
        rows = frame.groupby(["site", "cause"])["hold_ns"].idxmax()
        columns = ["site", "cause", "time_ns", "zone", "cpu", "pages", "hold_ns", "wait_ns"]
        return frame.loc[rows, columns].reset_index(drop=True)


def lock_times(replay: Replay, model: LockModel | None = None) -> LockTimes:
    """Let a replay's acquisitions of zone->lock take time, by default at assumed costs."""
    events = replay.demand.events
    visits = list_visits(replay.log, events, replay.places, replay.machine, replay.policy)
    return queued(replay.log, replay.machine, model or LockModel(), visits)


def queued(
    log: np.ndarray, machine: Machine, model: LockModel, visits: np.ndarray = NO_VISITS
) -> LockTimes:
    """The same from a log of transactions, int64, shape (rows, LOG_COLUMNS), in time order."""
    log = log[log[:, 0] < at.SITES]
    hold = model.costs.hold_ns({name: log[:, column] for name, column in LOG_COLUMN.items()})
    records, source, first = _lock_requests(log, visits, machine, hold)
    role, pages = records["role"], records["pages"]
    outcomes = np.zeros(len(records), OUTCOME)
    outcomes["hold_ns"], outcomes["pages"] = records["hold_ns"], pages
    cpus = np.zeros(machine.nr_cpus, CPU)
    cpus["next"], cpus["end"], cpus["parked_on"] = first[:-1], first[1:], -1
    busy = first[:-1] < first[1:]
    cpus["status"] = np.where(busy, ARRIVING, DONE)
    cpus["arrival_ns"][busy] = records["time_ns"][first[:-1][busy]]
    fails = model.trylock_fails
    settings = np.zeros(SETTINGS, np.int64)
    settings[CLOSED_LOOP], settings[UNFAIR] = model.closed_loop, model.unfair
    settings[HANDOFF_NS] = round(model.costs.handoff.ns)
    settings[LARGEST_FULL] = pages[role == EMPTIES].max(initial=0)
    settings[SINGLE_NS] = model.costs.single_page_ns if fails else -1
    locks = np.zeros(len(machine.zones), LOCK)
    list_locks = np.zeros(len(machine.zones) * machine.nr_cpus, LIST_LOCK)
    run_queues(Queues(records, outcomes, cpus, locks, list_locks, settings))
    cpu = np.repeat(np.arange(machine.nr_cpus), np.diff(first))
    failed = (outcomes["list_was_busy"] != 0) & fails
    abandoned = outcomes["end"] == ABANDONED
    not_begun = failed & (role == DRAINS)
    counted = {
        "frees": failed & np.isin(role, (DRAINS, FREES)),
        "allocations": failed & np.isin(role, (REFILLS, ALLOCATES)),
        "drains_cut_short": failed & abandoned,
        "pages_left": np.where(abandoned, pages, np.where(not_begun, pages - 1, 0)),
    }
    columns = {
        name: np.bincount(cpu, weights=values, minlength=machine.nr_cpus).astype(np.int64)
        for name, values in counted.items()
    }
    served = outcomes["end"] == SERVED
    taken, span_ns = outcomes[served], 0
    if len(taken):
        ends = taken["start_ns"] + taken["hold_ns"]
        span_ns = int(ends.max() - taken["arrival_ns"].min())
    return LockTimes(
        machine=machine,
        model=model,
        acquisitions=_acquisitions_table(
            log, records[served], source[served], cpu[served], taken, machine, trylock_fails=fails
        ),
        log=log,
        visits=visits,
        trylocks=pd.DataFrame({"cpu": np.arange(machine.nr_cpus), **columns}),
        delay_ns=cpus["delay_ns"].copy(),
        span_ns=span_ns,
    )


def with_spread(
    log: np.ndarray,
    machine: Machine,
    model: LockModel | None = None,
    visits: np.ndarray = NO_VISITS,
) -> pd.DataFrame:
    """Time-valued results for the given costs, and for costs tenfold apart around them.

    Returns:
        result, low, value, high; the order of low and high is that of the costs.
    """
    model = model or LockModel()
    columns = {}
    for name, factor in (("low", 1 / SPREAD), ("value", 1.0), ("high", SPREAD)):
        times = queued(log, machine, replace(model, costs=model.costs.times(factor)), visits)
        frame, values = times.acquisitions, columns.setdefault(name, {})
        if not len(frame):
            continue
        spell_ns = float(times.stalls["longest_spell_ns"].max())
        values |= {
            "contended acquisitions": float((frame["ahead"] > 0).sum()),
            "time waiting (ms)": float(frame["wait_ns"].sum()) / 1e6,
            "trylocks failed": float(times.trylocks[["frees", "allocations"]].sum().sum()),
            "longest wait (us)": times.longest_starvation_ns / 1e3,
            "longest spell of waits and holds (us)": spell_ns / 1e3,
        }
        for row in times.by_site.itertuples():
            caller = f"{row.site} {row.cause}".strip()
            values[f"longest hold, {caller} (us)"] = row.max_hold_ns / 1e3
            values[f"longest wait, {caller} (us)"] = row.max_wait_ns / 1e3
        for zone, share in times.utilisation.items():
            values[f"lock of {zone} held (% of time)"] = 100 * float(share)
    frame = pd.DataFrame(columns)
    frame.index.name = "result"
    return frame.reset_index()
