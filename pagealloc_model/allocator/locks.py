"""Who waits for zone->lock and how long: a queue of CPUs per lock, one acquisition at a time (S11).

Every acquisition arrives when its CPU gets to it, waits until the lock is handed to it, and holds
it for what its work costs. Refills and drains hold their list's pcp->lock from arrival to release:
CPUs that own the list only try that lock, others wait for it (S11.3).
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.jit import entry, inner

REQUEST = np.dtype(
    [
        ("time_ns", np.int64),
        ("hold_ns", np.int64),
        ("list_lock", np.int32),
        ("lock", np.int16),
        ("is_remote", np.int8),
    ],
    align=True,
)
"""One acquisition to come, in its CPU's order: when it would arrive if nothing were contended, for
how long it holds the lock, which pcp->lock it holds all the while (-1 for none), which zone->lock,
and whether that list is another CPU's."""

OUTCOME = np.dtype(
    [
        ("arrival_ns", np.int64),
        ("start_ns", np.int64),
        ("hold_ns", np.int64),
        ("ahead", np.int16),
        ("list_was_busy", np.int8),
    ],
    align=True,
)
"""What became of it: arrival, when it got the lock, for how long it held it, how many held or
awaited it on arrival, and whether a trylock of the list failed."""

CPU = np.dtype(
    [
        ("next", np.int64),
        ("end", np.int64),
        ("arrival_ns", np.int64),
        ("delay_ns", np.int64),
        ("parked_on", np.int32),
        ("behind", np.int32),
        ("status", np.int8),
    ],
    align=True,
)
"""A CPU's progress: its next request and the end of them, when that arrives, by how much it is
late, the pcp->lock it sleeps on, who queues behind it, and what it does."""

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

LIST_LOCK = np.dtype([("release_ns", np.int64), ("is_waiting", np.int8)], align=True)
"""A pcp->lock: when it is let go, unless its holder still waits for zone->lock."""

SETTINGS = 4
CLOSED_LOOP, UNFAIR, HANDOFF_NS, SINGLE_NS = 0, 1, 2, 3
"""int64 settings: whether delays carry over to a CPU's later requests; whether who comes to a free
lock may take it although others queue; time between a release and the next in the queue having the
lock; hold of a request whose trylock failed, for a single page, or -1 to leave it as it is."""

NEVER = 1 << 62


@inner
def next_arrival(cpus: np.ndarray) -> int:
    """The CPU whose next request arrives first; -1 if none is on its way."""
    found = -1
    earliest = NEVER
    for cpu in range(len(cpus)):
        if int(cpus[cpu]["status"]) == ARRIVING and int(cpus[cpu]["arrival_ns"]) < earliest:
            earliest = int(cpus[cpu]["arrival_ns"])
            found = cpu
    return found


@inner
def next_handoff(locks: np.ndarray) -> int:
    """The lock with a queue that is let go first; -1 if there is no queue."""
    found = -1
    earliest = NEVER
    for lock in range(len(locks)):
        if int(locks[lock]["waiting"]) > 0 and int(locks[lock]["release_ns"]) < earliest:
            earliest = int(locks[lock]["release_ns"])
            found = lock
    return found


@inner
def unpark(cpus: np.ndarray, list_lock: int, now: int) -> None:
    """CPUs that slept on a pcp->lock arrive when it is let go."""
    for cpu in range(len(cpus)):
        if int(cpus[cpu]["status"]) == PARKED and int(cpus[cpu]["parked_on"]) == list_lock:
            cpus[cpu]["status"] = ARRIVING
            cpus[cpu]["arrival_ns"] = now


@inner
def serve(
    requests: np.ndarray,
    outcomes: np.ndarray,
    cpus: np.ndarray,
    locks: np.ndarray,
    list_locks: np.ndarray,
    settings: np.ndarray,
    cpu: int,
    now: int,
) -> None:
    """Give a CPU the lock it asked for, and find out when its next request arrives."""
    number = int(cpus[cpu]["next"])
    release = now + int(outcomes[number]["hold_ns"])
    outcomes[number]["start_ns"] = now
    locks[int(requests[number]["lock"])]["release_ns"] = release
    held = int(requests[number]["list_lock"])
    if held >= 0 and int(outcomes[number]["list_was_busy"]) == 0:
        list_locks[held]["release_ns"] = release
        list_locks[held]["is_waiting"] = 0
        unpark(cpus, held, release)
    late = now - int(requests[number]["time_ns"])
    number += 1
    cpus[cpu]["next"] = number
    if number == int(cpus[cpu]["end"]):
        cpus[cpu]["status"] = DONE
        cpus[cpu]["delay_ns"] = late
        return
    cpus[cpu]["status"] = ARRIVING
    if settings[CLOSED_LOOP]:
        cpus[cpu]["delay_ns"] = late
    planned = int(requests[number]["time_ns"]) + int(cpus[cpu]["delay_ns"])
    cpus[cpu]["arrival_ns"] = max(planned, release)


@inner
def take_list(
    requests: np.ndarray,
    outcomes: np.ndarray,
    cpus: np.ndarray,
    list_locks: np.ndarray,
    settings: np.ndarray,
    cpu: int,
) -> bool:
    """Take the request's pcp->lock, if it has one; False if the CPU must wait for that first."""
    number = int(cpus[cpu]["next"])
    wanted = int(requests[number]["list_lock"])
    if wanted < 0:
        return True
    waiting = int(list_locks[wanted]["is_waiting"]) != 0
    release = int(list_locks[wanted]["release_ns"])
    if not waiting and release <= int(cpus[cpu]["arrival_ns"]):
        list_locks[wanted]["is_waiting"] = 1
        return True
    if int(requests[number]["is_remote"]) == 0:
        outcomes[number]["list_was_busy"] = 1
        if settings[SINGLE_NS] >= 0:
            outcomes[number]["hold_ns"] = settings[SINGLE_NS]
        return True
    if waiting:
        cpus[cpu]["status"] = PARKED
        cpus[cpu]["parked_on"] = wanted
    else:
        cpus[cpu]["arrival_ns"] = release
    return False


@inner
def enqueue(cpus: np.ndarray, locks: np.ndarray, lock: int, cpu: int) -> None:
    """A CPU joins the end of a lock's queue."""
    cpus[cpu]["status"] = QUEUED
    cpus[cpu]["behind"] = -1
    if int(locks[lock]["waiting"]) > 0:
        cpus[int(locks[lock]["tail"])]["behind"] = cpu
    else:
        locks[lock]["head"] = cpu
    locks[lock]["tail"] = cpu
    locks[lock]["waiting"] += 1


@inner
def arrive(
    requests: np.ndarray,
    outcomes: np.ndarray,
    cpus: np.ndarray,
    locks: np.ndarray,
    list_locks: np.ndarray,
    settings: np.ndarray,
    cpu: int,
) -> None:
    """A CPU comes to its lock: it gets it, or queues."""
    if not take_list(requests, outcomes, cpus, list_locks, settings, cpu):
        return
    number = int(cpus[cpu]["next"])
    now = int(cpus[cpu]["arrival_ns"])
    lock = int(requests[number]["lock"])
    waiting = int(locks[lock]["waiting"])
    is_free = int(locks[lock]["release_ns"]) <= now
    outcomes[number]["arrival_ns"] = now
    outcomes[number]["ahead"] = waiting + (0 if is_free else 1)
    if is_free and (waiting == 0 or settings[UNFAIR]):
        serve(requests, outcomes, cpus, locks, list_locks, settings, cpu, now)
    else:
        enqueue(cpus, locks, lock, cpu)


@entry
def run_queues(
    requests: np.ndarray,
    outcomes: np.ndarray,
    cpus: np.ndarray,
    locks: np.ndarray,
    list_locks: np.ndarray,
    settings: np.ndarray,
) -> None:
    """Let every CPU go through its requests.

    A release hands the lock to the CPU that queues longest, `HANDOFF_NS` later. Until then the lock
    is free to those who come along, where the lock is unfair.

    Args:
        requests: `REQUEST` records, CPU after CPU, each CPU's in its order.
        outcomes: `OUTCOME` records, `hold_ns` as in the requests; written here.
        cpus: `CPU` records with `next`, `end` and `arrival_ns` of the first request set.
        locks: `LOCK` records, zero.
        list_locks: `LIST_LOCK` records, zero.
        settings: int64, shape (SETTINGS,).
    """
    while True:
        cpu = next_arrival(cpus)
        lock = next_handoff(locks)
        if cpu < 0 and lock < 0:
            return
        handoff = NEVER
        if lock >= 0:
            handoff = int(locks[lock]["release_ns"]) + settings[HANDOFF_NS]
        if cpu >= 0 and int(cpus[cpu]["arrival_ns"]) < handoff:
            arrive(requests, outcomes, cpus, locks, list_locks, settings, cpu)
            continue
        first = int(locks[lock]["head"])
        locks[lock]["head"] = cpus[first]["behind"]
        locks[lock]["waiting"] -= 1
        serve(requests, outcomes, cpus, locks, list_locks, settings, first, handoff)
