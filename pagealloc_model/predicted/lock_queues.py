"""Who waits for zone->lock and how long: a queue of CPUs per lock, one request after another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pagealloc_model.base.jit import entry, inner

REQUEST = np.dtype(
    [
        ("time_ns", np.int64),
        ("hold_ns", np.int64),
        ("list_lock", np.int32),
        ("pages", np.int32),
        ("lock", np.int16),
        ("role", np.int8),
    ],
    align=True,
)
"""What a CPU is to do, in its order: when it would arrive if nothing were contended, for how long
it holds the lock, which pcp->lock it holds all the while (-1 for none), pages it moves, which
zone->lock, and its part below."""

REFILLS, DRAINS, GOES_ON, DECAYS, EMPTIES, ALLOCATES, FREES = 0, 1, 2, 3, 4, 5, 6
"""Parts that a request plays at its list: refills and drains that try its lock; a drain's next
batch, which tries it again; decay and full drains, which wait for it; allocations and frees that
need the list only."""

OUTCOME = np.dtype(
    [
        ("arrival_ns", np.int64),
        ("start_ns", np.int64),
        ("hold_ns", np.int64),
        ("list_wait_ns", np.int64),
        ("pages", np.int32),
        ("ahead", np.int16),
        ("list_was_busy", np.int8),
        ("end", np.int8),
    ],
    align=True,
)
"""What became of it: arrival, when it got the lock, for how long it held it, how long it waited for
the list before, pages moved, how many held or awaited the lock on arrival, whether a trylock of the
list failed, and how it ended."""

SERVED, LISTED, ABANDONED, NEEDLESS = 0, 1, 2, 3
"""It took zone->lock; the list was enough; the rest of its drain stayed on the list; the pages it
was to drain had gone to the buddy one by one."""

CPU = np.dtype(
    [
        ("next", np.int64),
        ("end", np.int64),
        ("arrival_ns", np.int64),
        ("delay_ns", np.int64),
        ("asked_ns", np.int64),
        ("parked_on", np.int32),
        ("behind", np.int32),
        ("status", np.int8),
    ],
    align=True,
)
"""A CPU's progress: its next request and the end of them, when that arrives, by how much it is
late, since when it waits for which pcp->lock (-1 for none), who queues behind it, and what it
does."""

ARRIVING, QUEUED, PARKED, DONE = 0, 1, 2, 3

LOCK = np.dtype(
    [
        ("release_ns", np.int64),
        ("head", np.int32),
        ("tail", np.int32),
        ("waiting", np.int32),
    ],
    align=True,
)
"""A zone->lock: when its last holder lets go, and the queue of CPUs behind."""

LIST_LOCK = np.dtype(
    [
        ("release_ns", np.int64),
        ("gone", np.int64),
        ("waiting", np.int32),
        ("is_waiting", np.int8),
    ],
    align=True,
)
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
    """What the queues work on.

    Attributes:
        requests: `REQUEST` records, CPU after CPU, each CPU's in its order.
        outcomes: `OUTCOME` records, `hold_ns` and `pages` as in the requests; written.
        cpus: `CPU` records with `next`, `end` and `arrival_ns` of the first request set, and
            `parked_on` -1.
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
    """Find out when a CPU served `now` until `release` asks again.

    The batches that follow one whose trylock failed stay on the list (S4.7).
    """
    number = int(q.cpus[cpu]["next"])
    end = int(q.cpus[cpu]["end"])
    late = now - int(q.requests[number]["time_ns"])
    given_up = int(q.outcomes[number]["list_was_busy"]) != 0 and q.settings[SINGLE_NS] >= 0
    number += 1
    while given_up and number < end and int(q.requests[number]["role"]) == GOES_ON:
        q.outcomes[number]["end"] = ABANDONED
        q.list_locks[int(q.requests[number]["list_lock"])]["gone"] -= int(
            q.requests[number]["pages"]
        )
        number += 1
    q.cpus[cpu]["next"] = number
    if number == end:
        q.cpus[cpu]["status"] = DONE
        q.cpus[cpu]["delay_ns"] = late
        return
    q.cpus[cpu]["status"] = ARRIVING
    if q.settings[CLOSED_LOOP]:
        q.cpus[cpu]["delay_ns"] = late
    planned = int(q.requests[number]["time_ns"]) + int(q.cpus[cpu]["delay_ns"])
    q.cpus[cpu]["arrival_ns"] = max(planned, release)


@inner
def serve(q: Queues, cpu: int, now: int) -> None:
    """Give a CPU the lock it asked for; those that slept on its pcp->lock arrive when it is let go.

    They come after trylocks of that instant.
    """
    number = int(q.cpus[cpu]["next"])
    release = now + int(q.outcomes[number]["hold_ns"])
    q.outcomes[number]["start_ns"] = now
    q.locks[int(q.requests[number]["lock"])]["release_ns"] = release
    held = int(q.requests[number]["list_lock"])
    if held >= 0 and int(q.outcomes[number]["list_was_busy"]) == 0:
        q.list_locks[held]["release_ns"] = release
        q.list_locks[held]["is_waiting"] = 0
        for other in range(len(q.cpus) if int(q.list_locks[held]["waiting"]) > 0 else 0):
            if int(q.cpus[other]["status"]) == PARKED and int(q.cpus[other]["parked_on"]) == held:
                q.cpus[other]["status"] = ARRIVING
                q.cpus[other]["arrival_ns"] = release + 1
    go_on(q, cpu, now, release)


@inner
def _end_without_lock(q: Queues, cpu: int, how: int) -> None:
    """End a request as it arrives, without zone->lock."""
    number = int(q.cpus[cpu]["next"])
    now = int(q.cpus[cpu]["arrival_ns"])
    q.outcomes[number]["arrival_ns"] = now
    q.outcomes[number]["start_ns"] = now
    q.outcomes[number]["hold_ns"] = 0
    q.outcomes[number]["pages"] = 0
    q.outcomes[number]["end"] = how
    go_on(q, cpu, now, now)


@inner
def _fail_trylock(q: Queues, cpu: int) -> bool:
    """End a failed trylock.

    One page moves past the list (S4.10), or a drain stops (S4.7).
    """
    number = int(q.cpus[cpu]["next"])
    role = int(q.requests[number]["role"])
    q.outcomes[number]["list_was_busy"] = 1
    if q.settings[SINGLE_NS] < 0:
        if role not in (ALLOCATES, FREES):
            return True
        _end_without_lock(q, cpu, LISTED)
        return False
    wanted = int(q.requests[number]["list_lock"])
    pages = int(q.requests[number]["pages"])
    if role == GOES_ON:
        q.list_locks[wanted]["gone"] -= pages
        _end_without_lock(q, cpu, ABANDONED)
        return False
    q.outcomes[number]["hold_ns"] = q.settings[SINGLE_NS]
    if role == FREES:
        q.list_locks[wanted]["gone"] += pages
    elif role == ALLOCATES:
        q.list_locks[wanted]["gone"] -= pages
    else:
        q.outcomes[number]["pages"] = 1
        if role == DRAINS:
            q.list_locks[wanted]["gone"] -= pages - 1
    return True


@inner
def _correct_drain(q: Queues, number: int) -> bool:
    """Drain what is on the list now.

    That is less by what is gone or, in full drains, more by what was left on it.
    """
    role = int(q.requests[number]["role"])
    wanted = int(q.requests[number]["list_lock"])
    pages = int(q.requests[number]["pages"])
    gone = min(int(q.list_locks[wanted]["gone"]), pages)
    if gone < 0:
        room = max(q.settings[LARGEST_FULL] - pages, 0)
        gone = -min(-gone, room) if role == EMPTIES else 0
    if gone == 0 or role == REFILLS:
        return True
    q.list_locks[wanted]["gone"] -= gone
    q.outcomes[number]["pages"] = pages - gone
    q.outcomes[number]["hold_ns"] = int(q.requests[number]["hold_ns"]) * (pages - gone) // pages
    return pages > gone


@inner
def _take_list(q: Queues, cpu: int, wanted: int) -> bool:
    """Take the request's pcp->lock; whether the CPU needs zone->lock now.

    Those that wait for a pcp->lock go before a trylock.
    """
    number = int(q.cpus[cpu]["next"])
    now = int(q.cpus[cpu]["arrival_ns"])
    role = int(q.requests[number]["role"])
    has_waited = int(q.cpus[cpu]["parked_on"]) >= 0
    is_waiting = int(q.list_locks[wanted]["is_waiting"]) != 0
    release = int(q.list_locks[wanted]["release_ns"])
    if is_waiting or release > now or (int(q.list_locks[wanted]["waiting"]) > 0 and not has_waited):
        if role not in (DECAYS, EMPTIES):
            return _fail_trylock(q, cpu)
        if not has_waited:
            q.cpus[cpu]["parked_on"] = wanted
            q.cpus[cpu]["asked_ns"] = now
            q.list_locks[wanted]["waiting"] += 1
        if is_waiting:
            q.cpus[cpu]["status"] = PARKED
        else:
            q.cpus[cpu]["arrival_ns"] = max(release, now) + 1
        return False
    if role in (ALLOCATES, FREES):
        _end_without_lock(q, cpu, LISTED)
        return False
    if has_waited:
        q.cpus[cpu]["parked_on"] = -1
        q.list_locks[wanted]["waiting"] -= 1
        q.outcomes[number]["list_wait_ns"] = now - q.cpus[cpu]["asked_ns"]
    if not _correct_drain(q, number):
        _end_without_lock(q, cpu, NEEDLESS)
        return False
    q.list_locks[wanted]["is_waiting"] = 1
    return True


@inner
def _arrive(q: Queues, cpu: int) -> None:
    """Bring a CPU to its lock; it gets it, or joins the end of its queue."""
    number = int(q.cpus[cpu]["next"])
    wanted = int(q.requests[number]["list_lock"])
    if wanted >= 0 and not _take_list(q, cpu, wanted):
        return
    now = int(q.cpus[cpu]["arrival_ns"])
    lock = int(q.requests[number]["lock"])
    waiting = int(q.locks[lock]["waiting"])
    is_free = int(q.locks[lock]["release_ns"]) <= now
    q.outcomes[number]["arrival_ns"] = now
    q.outcomes[number]["ahead"] = waiting + (0 if is_free else 1)
    if is_free and (waiting == 0 or q.settings[UNFAIR]):
        serve(q, cpu, now)
        return
    q.cpus[cpu]["status"] = QUEUED
    q.cpus[cpu]["behind"] = -1
    if waiting > 0:
        q.cpus[int(q.locks[lock]["tail"])]["behind"] = cpu
    else:
        q.locks[lock]["head"] = cpu
    q.locks[lock]["tail"] = cpu
    q.locks[lock]["waiting"] += 1


@entry
def run_queues(q: Queues) -> None:
    """Let every CPU go through its requests.

    A release hands the lock to the CPU that queues longest, `HANDOFF_NS` later. Until then the lock
    is free to those who come along, where the lock is unfair.
    """
    while True:
        cpu, lock, arrival, handoff = -1, -1, NEVER, NEVER
        for each in range(len(q.cpus)):
            if int(q.cpus[each]["status"]) == ARRIVING and q.cpus[each]["arrival_ns"] < arrival:
                cpu, arrival = each, int(q.cpus[each]["arrival_ns"])
        for each in range(len(q.locks)):
            if int(q.locks[each]["waiting"]) > 0 and q.locks[each]["release_ns"] < handoff:
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
