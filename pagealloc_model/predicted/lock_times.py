"""Time at zone->lock and pcp->lock: holds run through a queue of CPUs per lock, as tables (S11)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import sites
from pagealloc_model.base.jit import entry, inner
from pagealloc_model.base.text import count_of
from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import named_sites
from pagealloc_model.recording.machine import Machine

I64, I32, I16, I8 = np.int64, np.int32, np.int16, np.int8


def _record(**fields: type) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


REQUEST = _record(
    **{"time_ns": I64, "hold_ns": I64, "list_lock": I32, "pages": I32},
    **{"lock": I16, "role": I8, "waits": I8, "keeps": I8},
)
"""A step of a CPU, in its order: when it would arrive if nothing were contended, for how long
it holds the lock, which pcp->lock it holds all the while (-1 for none), pages it moves, which
zone->lock, its part below, whether it waits for pcp->lock rather than try it, and whether it goes
on under the pcp->lock that the CPU's last free took (S4.11)."""

REFILLS, DRAINS, GOES_ON, DECAYS, EMPTIES, ALLOCATES, FREES = 0, 1, 2, 3, 4, 5, 6
"""Parts that a request plays at its list: refills and drains; a drain's next batch, which takes the
lock again; decay and full drains; allocations and frees that need the list only, and hold no other
lock."""

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
late, since when it waits for which pcp->lock (-1 for none), who queues behind it at whichever lock,
and what it does."""

ARRIVING, QUEUED, PARKED, DONE = 0, 1, 2, 3

LOCK = _record(release_ns=I64, pending_ns=I64, head=I32, tail=I32, waiting=I32)
"""A zone->lock: when its last holder lets go, the queue of CPUs behind, and since when the first of
them has the pending bit set."""

LIST_LOCK = _record(
    **{"release_ns": I64, "gone": I64, "head": I32, "tail": I32, "waiting": I32, "queued": I32},
    **{"holder": I32, "is_waiting": I8},
)
"""A pcp->lock: when it is let go, unless its holder still waits for zone->lock; by how many pages
the list is shorter than the requests have it, because trylocks failed; the queue of CPUs, how many
wait (the one on its way to the lock included) and how many of them queue; who had it last, plus
one."""

SETTINGS = 5
CLOSED_LOOP, UNFAIR, HANDOFF_NS, SINGLE_NS, LARGEST_FULL = 0, 1, 2, 3, 4
"""int64 settings: whether delays carry over to a CPU's later requests; whether who comes to a free
lock may take it while the first of the queue has not set the pending bit; time between a release
and the next in the queue having the lock, and for a pcp->lock to come from another CPU; hold of a
request whose trylock failed, for a single page, or -1 to leave it as it is; most pages that one
hold of a full drain moves."""

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
def _let_go_of_list(q: Queues, number: int, release: int) -> None:
    """Let go of a pcp->lock at a time; the first of those that queue for it comes then."""
    held = q.list_locks[number]
    held["release_ns"] = release
    held["is_waiting"] = 0
    if held["queued"] > 0:
        first = int(held["head"])
        held["head"] = q.cpus[first]["behind"]
        held["queued"] -= 1
        q.cpus[first]["status"] = ARRIVING
        q.cpus[first]["arrival_ns"] = release + q.settings[HANDOFF_NS]


@inner
def _queue_for_list(q: Queues, cpu: int, number: int) -> None:
    """Let a CPU spin on a pcp->lock, first come, first served."""
    own, wanted = q.cpus[cpu], q.list_locks[number]
    now = int(own["arrival_ns"])
    own["parked_on"] = number
    own["asked_ns"] = now
    wanted["waiting"] += 1
    if wanted["waiting"] == 1 and wanted["is_waiting"] == 0:
        own["arrival_ns"] = max(int(wanted["release_ns"]), now) + q.settings[HANDOFF_NS]
        return
    own["status"] = PARKED
    own["behind"] = -1
    if wanted["queued"] > 0:
        q.cpus[wanted["tail"]]["behind"] = cpu
    else:
        wanted["head"] = cpu
    wanted["tail"] = cpu
    wanted["queued"] += 1


@inner
def serve(q: Queues, cpu: int, now: int) -> None:
    """Give a CPU the zone->lock it asked for; a pcp->lock that it holds goes with it."""
    number = int(q.cpus[cpu]["next"])
    request, outcome = q.requests[number], q.outcomes[number]
    release = now + outcome["hold_ns"]
    outcome["start_ns"] = now
    q.locks[request["lock"]]["release_ns"] = release
    if request["list_lock"] >= 0 and outcome["list_was_busy"] == 0:
        _let_go_of_list(q, int(request["list_lock"]), release)
    go_on(q, cpu, now, release)


@inner
def _visit_list(q: Queues, cpu: int) -> None:
    """Let an allocation or a free hold its list alone; frees of one folio batch share the hold.

    The batch has prepared its pages before it takes the lock (free_unref_folios()), so that what
    passes between two of them is no part of the hold.
    """
    own = q.cpus[cpu]
    number = int(own["next"])
    now, request = int(own["arrival_ns"]), q.requests[number]
    late = now - request["time_ns"]
    release = now + q.outcomes[number]["hold_ns"]
    while True:
        outcome = q.outcomes[number]
        outcome["arrival_ns"] = release - outcome["hold_ns"]
        outcome["start_ns"] = outcome["arrival_ns"]
        outcome["end"] = LISTED
        if number + 1 == own["end"] or q.requests[number + 1]["keeps"] == 0:
            break
        number += 1
        release += q.outcomes[number]["hold_ns"]
    own["next"] = number
    _let_go_of_list(q, int(request["list_lock"]), release)
    go_on(q, cpu, q.requests[number]["time_ns"] + late, release)


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
    """Take the request's pcp->lock, who waits before trylocks; true if zone->lock is needed now."""
    own, request = q.cpus[cpu], q.requests[number]
    wanted, outcome = q.list_locks[request["list_lock"]], q.outcomes[number]
    now = int(own["arrival_ns"])
    if own["parked_on"] >= 0:
        own["parked_on"] = -1
        wanted["waiting"] -= 1
        outcome["list_wait_ns"] = now - own["asked_ns"]
    elif wanted["is_waiting"] != 0 or wanted["release_ns"] > now or wanted["waiting"] > 0:
        if not request["waits"]:
            return _fail_trylock(q, cpu)
        _queue_for_list(q, cpu, int(request["list_lock"]))
        return False
    if wanted["holder"] not in (0, cpu + 1):
        outcome["hold_ns"] += q.settings[HANDOFF_NS]
    wanted["holder"] = cpu + 1
    if request["role"] in (ALLOCATES, FREES):
        _visit_list(q, cpu)
        return False
    if not _correct_drain(q, number):
        _let_go_of_list(q, int(request["list_lock"]), now)
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
    may_steal = q.settings[UNFAIR] != 0 and now < lock["pending_ns"]
    if is_free and (waiting == 0 or may_steal):
        serve(q, cpu, now)
        return
    own["status"] = QUEUED
    own["behind"] = -1
    if waiting > 0:
        q.cpus[lock["tail"]]["behind"] = cpu
    else:
        lock["head"] = cpu
        lock["pending_ns"] = now
    lock["tail"] = cpu
    lock["waiting"] += 1


@entry
def run_queues(q: Queues) -> None:
    """Let every CPU go through its requests.

    A release hands the lock to the CPU that queues longest, `HANDOFF_NS` later. Where the lock is
    unfair, those who come along may take it until that CPU has the pending bit set, which it sets
    as it becomes the first of the queue: at once, or `HANDOFF_NS` after the one before it got the
    lock (pv_wait_head_or_lock(), kernel/locking/qspinlock_paravirt.h).
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
        q.locks[lock]["pending_ns"] = handoff + q.settings[HANDOFF_NS]
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
    log: np.ndarray, visits: np.ndarray, machine: Machine, hold_ns: np.ndarray, model: LockModel
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The queue's input, CPU after CPU, with times as they are when nobody else comes.

    An allocation's event comes after its hold, a free's before it (T1.3). Returns `REQUEST`
    records; row of the log or, behind those, number of the visit of each; where each CPU's begin.
    """
    cpu = np.concatenate([log["ran_on"], visits["cpu"]])
    time_ns = np.concatenate([log["time_ns"], visits["time_ns"]])
    together = np.zeros(len(cpu), REQUEST)
    holds, others = np.split(together, [len(log)])
    site = log["kind"]
    holds["time_ns"] = log["time_ns"] - np.where(np.isin(site, _ENDS_AT_EVENT), hold_ns, 0)
    holds["hold_ns"], holds["pages"], holds["lock"] = hold_ns, log["pages"], log["zone"]
    holds["list_lock"] = -1
    for number, role in ROLES.items():
        own = site == number
        holds["list_lock"][own] = log["zone"][own] * machine.nr_cpus + log["cpu"][own]
        holds["role"][own] = role
    others["time_ns"], others["lock"] = visits["time_ns"], visits["zone"]
    others["hold_ns"] = np.where(visits["keeps"], *model.costs.list_page_ns)
    others["pages"] = np.int32(1) << visits["order"].astype(np.int32)
    others["list_lock"] = visits["zone"].astype(np.int32) * machine.nr_cpus + visits["list_cpu"]
    others["role"] = np.where(visits["frees"], FREES, ALLOCATES)
    others["keeps"] = visits["keeps"]
    source = np.argsort(time_ns, kind="stable")  # two sorted parts, which takes little
    source = source[np.argsort(cpu[source], kind="stable")]
    records, time_ns, cpu = together[source], time_ns[source], cpu[source]
    # batches after the first of one free's drain: its list, at its time (S4.7)
    drains = (records["role"] == DRAINS) & (records["list_lock"] >= 0)
    goes_on = drains[1:] & drains[:-1] & (time_ns[1:] == time_ns[:-1]) & (cpu[1:] == cpu[:-1])
    goes_on &= records["list_lock"][1:] == records["list_lock"][:-1]
    records["role"][1:][goes_on] = GOES_ON
    waiting = [DECAYS, EMPTIES, *([DRAINS, FREES] if model.frees_wait else [])]
    records["waits"] = np.isin(records["role"], waiting) & (records["list_lock"] >= 0)
    first = np.searchsorted(cpu, np.arange(machine.nr_cpus + 1))
    for begin, end in itertools.pairwise(first):
        # what one CPU does begins when what it did before is over
        own = records[begin:end]
        before = np.cumsum(own["hold_ns"]) - own["hold_ns"]
        own["time_ns"] = before + np.maximum.accumulate(own["time_ns"] - before)
    return records, source, first


COSTLY_ORDER = 3
VISIT = _record(
    **{"time_ns": I64, "cpu": I16, "list_cpu": I16, "zone": I16, "order": I8},
    **{"frees": np.bool_, "keeps": np.bool_},
)
"""An allocation or a free that needs a CPU's list of a zone only; a free that `keeps` goes on under
the pcp->lock of the one before, of the same folio batch (S4.11)."""


class HasEvents(Protocol):
    """A demand; its events are put together when they are asked for."""

    @property
    def events(self) -> np.ndarray:
        """Records in time order."""
        ...


FOLIO_BATCH = 31
"""Most pages that a folio batch frees under one pcp->lock (PAGEVEC_SIZE)."""

NO_VISITS = np.zeros(0, VISIT)


def list_visits(
    log: np.ndarray, demand: HasEvents, places: np.ndarray, machine: Machine, policy: Policy
) -> np.ndarray:
    """`VISIT` records in time order, from the first that another CPU's list has on.

    Left out are pages that the model put nowhere or that served a request in single pages, and
    events whose own CPU held zone->lock at their time: the log has these already. Where blocks are
    owned, the log says to whose list each page was freed.
    """
    kind, from_cpu, of_cpu = log["kind"], log["ran_on"], log["cpu"]
    listed = np.flatnonzero(kind == at.LOG_LIST_FREE)
    by_others = (kind == at.SITE_DRAIN_ALL) | (kind == at.LOG_LIST_FREE)
    others = np.flatnonzero(by_others & (of_cpu != from_cpu))
    if not len(others):
        return NO_VISITS
    first_ns = log["time_ns"][others].min()
    events = demand.events
    events = events[np.searchsorted(events["time_ns"], first_ns) :]
    is_owning = policy.pageblock_ownership == "pcp_buddy"
    costly = COSTLY_ORDER if policy.costly_order is None else policy.costly_order
    wanted = (at.ALLOC, at.HIDDEN_ALLOC) if is_owning else (at.FREE, at.ALLOC, at.HIDDEN_ALLOC)
    events = events[np.isin(events["operation"], wanted) & (events["order"] <= costly)]
    place, zone = places[events["object"]], np.full(len(events), -1, np.int16)
    for number, each in enumerate(machine.zones):
        zone[(place >= each.start_pfn) & (place < each.end_pfn)] = number
    visits = np.zeros(len(events), VISIT)
    for name in ("time_ns", "cpu", "order"):
        visits[name] = events[name]
    visits["list_cpu"], visits["zone"] = events["cpu"], zone
    if not is_owning:
        visits["frees"] = events["operation"] == at.FREE
        visits["keeps"] = _in_one_batch(visits, events["bits"])
    listed = listed[log["time_ns"][listed] >= first_ns]
    frees = np.zeros(len(listed), VISIT)
    for name in ("time_ns", "zone", "order"):
        frees[name] = log[name][listed]
    frees["cpu"], frees["list_cpu"] = from_cpu[listed], of_cpu[listed]
    frees["frees"], frees["keeps"] = True, log["takes_lock"][listed] == 0
    visits = np.concatenate([visits, frees])
    visits = visits[np.argsort(visits["time_ns"], kind="stable")]
    holds = np.flatnonzero(kind < at.SITES)
    held = np.unique(_moments(log["time_ns"][holds], from_cpu[holds], first_ns))
    held = np.append(held, NEVER)
    own = _moments(visits["time_ns"], visits["cpu"], first_ns)
    took_the_lock = held[np.searchsorted(held, own)] == own
    return visits[(visits["zone"] >= 0) & ~took_the_lock]


def _moments(time_ns: np.ndarray, cpu: np.ndarray, first_ns: int) -> np.ndarray:
    """Times of CPUs as one number each."""
    return ((time_ns - first_ns) << 16) + cpu


def _in_one_batch(visits: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Frees that go on under the lock of the CPU's visit before, bool (S4.11)."""
    source = np.argsort(visits["cpu"], kind="stable")
    own, batched = visits[source], (bits[source] & at.FREED_IN_BATCH) != 0
    batched &= own["frees"]
    goes_on = np.zeros(len(own), bool)
    goes_on[1:] = batched[1:] & batched[:-1]
    for name in ("cpu", "zone"):
        goes_on[1:] &= own[name][1:] == own[name][:-1]
    begins = np.flatnonzero(~goes_on)
    lengths = np.diff(np.append(begins, len(own)))
    place = np.arange(len(own)) - np.repeat(begins, lengths)
    keeps = np.zeros(len(own), bool)
    keeps[source] = goes_on & (place % FOLIO_BATCH != 0)
    return keeps


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
    holds = np.zeros((len(source), *log.shape[1:]), log.dtype)
    holds[logged] = log[source[logged]]
    site = named_sites(holds)
    if trylock_fails:
        takes = np.isin(records["role"], (REFILLS, ALLOCATES))
        past_list = np.where(takes, _ALLOCATED_PAST_LIST, _FREED_PAST_LIST)
        site = np.where(outcomes["list_was_busy"] != 0, past_list, site)
    # units of work are the model's, in proportion to the pages that were still there to move
    pages, planned = outcomes["pages"].astype(np.int64), holds["pages"]
    part, whole = np.where(planned > 0, pages, 1), np.maximum(planned, 1)
    past_list = site >= len(sites.NAMES)
    work = {name: np.where(past_list, 0, holds[name] * part // whole) for name in at.LOG_WORK}
    work["objects"][past_list] = 1
    work["pages"][past_list] = pages[past_list]
    work["inserts"][site == _FREED_PAST_LIST] = 1
    names = np.array([zone.name for zone in machine.zones], object)
    nodes = np.array([zone.node for zone in machine.zones])
    return pd.DataFrame(
        {
            "time_ns": np.where(logged, holds["time_ns"], records["time_ns"]),
            "zone": pd.Categorical(names[records["lock"]]),
            "node": nodes[records["lock"]],
            "cpu": cpu,
            "list_cpu": np.where(logged, holds["cpu"], cpu),
            "site": pd.Categorical(_NAMES[site]),
            "cause": pd.Categorical(_CAUSES[site]),
            **work,
            **{name: outcomes[name] for name in ("arrival_ns", "start_ns", "hold_ns")},
            "wait_ns": outcomes["start_ns"] - outcomes["arrival_ns"],
            **{name: outcomes[name] for name in ("list_wait_ns", "ahead")},
            "list_was_busy": outcomes["list_was_busy"] != 0,
        }
    )


def _list_waits_table(
    records: np.ndarray, cpu: np.ndarray, outcomes: np.ndarray, machine: Machine
) -> pd.DataFrame:
    """One row for each request that waited for a pcp->lock, see `LockTimes.list_waits`."""
    waited = np.flatnonzero(outcomes["list_wait_ns"] > 0)
    own = records[waited]
    names = np.array([zone.name for zone in machine.zones], object)
    parts = np.array([LIST_PARTS[role] for role in range(len(LIST_PARTS))], object)
    return pd.DataFrame(
        {
            "time_ns": own["time_ns"],
            "zone": names[own["lock"]],
            "cpu": cpu[waited],
            "list_cpu": own["list_lock"] % machine.nr_cpus,
            "part": parts[own["role"]],
            "wait_ns": outcomes["list_wait_ns"][waited],
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
        unfair: the hybrid lock of paravirtual guests: who comes to a free lock may take it although
            others queue, until the first of these has set the pending bit; otherwise first come,
            first served, as native queued spinlocks are. A virtual CPU that halts as it waits, and
            takes long to wake, is not modelled.
        trylock_fails: who finds a list's pcp->lock taken by another CPU moves one page under
            zone->lock instead (S4.10), and a drain in batches stops (S4.7).
        frees_wait: a free waits for a list's pcp->lock instead of trying it (S12.9).
    """

    costs: LockCosts = field(default_factory=LockCosts)
    closed_loop: bool = True
    unfair: bool = False
    trylock_fails: bool = True
    frees_wait: bool = False

    def of(self, policy: Policy) -> LockModel:
        """The same with what a policy says of frees: those of pcp buddy wait unless told not to."""
        options = policy.ownership or OwnershipOptions()
        is_owning = policy.pageblock_ownership == "pcp_buddy"
        return replace(self, frees_wait=is_owning and options.remote_free == "spin")


LIST_PARTS = {
    **{ALLOCATES: "allocation", REFILLS: "allocation", FREES: "free", DRAINS: "free"},
    **{GOES_ON: "free", DECAYS: "decay", EMPTIES: "drain_all"},
}
"""Who takes a pcp->lock: decay is vmstat's worker, drain_all drain_all_pages()."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LockTimes:
    """Every acquisition of zone->lock with its times, and every wait for a pcp->lock.

    Attributes:
        machine: names of zones.
        model: the assumptions.
        acquisitions: time_ns (as recorded), zone, node, cpu (that ran it), list_cpu, site, cause,
            objects, pages, splits, merges, inserts, scanned, arrival_ns, start_ns, hold_ns,
            wait_ns, list_wait_ns (for pcp->lock, before), ahead (CPUs that held or awaited the
            lock), list_was_busy; one row each. Cause "trylock": one page, past the list.
        list_waits: time_ns (as recorded), zone, cpu, list_cpu, part (one of `LIST_PARTS`), wait_ns;
            one row for each wait at a list's pcp->lock.
        log: `layout.LOG` records: the holds it was made from.
        visits: `VISIT` records: events that tried the locks of lists besides.
        trylocks: cpu; frees and allocations whose trylock of the CPU's own list failed;
            drains_cut_short; pages_left by drains that were cut short or did not begin.
        delay_ns: int64 per CPU, by how much it was late after its last acquisition.
        span_ns: time from the first arrival to the last release.
    """

    machine: Machine
    model: LockModel
    acquisitions: pd.DataFrame
    list_waits: pd.DataFrame
    log: np.ndarray
    visits: np.ndarray
    trylocks: pd.DataFrame
    delay_ns: np.ndarray
    span_ns: int

    def __repr__(self) -> str:
        held, waited = (self.acquisitions[name] for name in ("hold_ns", "wait_ns"))
        return (
            f"LockTimes: {count_of(len(held), 'acquisition')} of zone->lock, held "
            f"{held.sum() / 1e6:.3g} ms, {max(held, default=0) / 1e3:.3g} us at most; waited for "
            f"{waited.sum() / 1e6:.3g} ms; {count_of(len(self.list_waits), 'wait')} at pcp->lock"
        )

    @cached_property
    def by_site(self) -> pd.DataFrame:
        """Acquisitions, work, holds and waits by site and cause, one row each."""
        grouped = self.acquisitions.groupby(["site", "cause"], observed=True)
        table = grouped[[*at.LOG_WORK, "hold_ns", "wait_ns"]].sum()
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
        Waits for the list's pcp->lock before are part of it.
        """
        frame = self.acquisitions
        inside = frame["site"].isin(sites).to_numpy() if sites else np.ones(len(frame), bool)
        cpu = frame["cpu"].to_numpy()
        arrival = (frame["arrival_ns"] - frame["list_wait_ns"]).to_numpy()
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
    policy = replay.policy
    visits = list_visits(replay.log, replay.demand, replay.places, replay.machine, policy)
    return queued(replay.log, replay.machine, (model or LockModel()).of(policy), visits)


def queued(
    log: np.ndarray, machine: Machine, model: LockModel, visits: np.ndarray = NO_VISITS
) -> LockTimes:
    """The same from the holds of a log, `layout.LOG` records in time order."""
    log = log[log["kind"] < at.SITES]
    hold = model.costs.hold_ns(log)
    records, source, first = _lock_requests(log, visits, machine, hold, model)
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
    some = np.flatnonzero((outcomes["list_was_busy"] != 0) | (outcomes["end"] == ABANDONED))
    failed = (outcomes["list_was_busy"][some] != 0) & fails
    abandoned = outcomes["end"][some] == ABANDONED
    part, left = role[some], pages[some]
    not_begun = failed & (part == DRAINS)
    counted = {
        "frees": failed & np.isin(part, (DRAINS, FREES)),
        "allocations": failed & np.isin(part, (REFILLS, ALLOCATES)),
        "drains_cut_short": failed & abandoned,
        "pages_left": np.where(abandoned, left, np.where(not_begun, left - 1, 0)),
    }
    columns = {
        name: np.bincount(cpu[some], weights=values, minlength=machine.nr_cpus).astype(np.int64)
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
        list_waits=_list_waits_table(records, cpu, outcomes, machine),
        log=log,
        visits=visits,
        trylocks=pd.DataFrame({"cpu": np.arange(machine.nr_cpus), **columns}),
        delay_ns=cpus["delay_ns"].copy(),
        span_ns=span_ns,
    )
