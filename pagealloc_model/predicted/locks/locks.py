"""Who waits for zone->lock and how long: a queue of CPUs per lock, one acquisition at a time (S11).

Every acquisition arrives when its CPU gets to it, waits until the lock is handed to it, and holds
it for what its work costs. Refills and drains hold their list's pcp->lock from arrival to release.
Allocations and frees only try that lock, remote drains and decay wait for it (S11.3).
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.base.jit import entry, inner
from pagealloc_model.predicted.locks.lock_records import (
    ABANDONED,
    ALLOCATES,
    ARRIVING,
    CLOSED_LOOP,
    DECAYS,
    DONE,
    DRAINS,
    EMPTIES,
    FREES,
    GOES_ON,
    HANDOFF_NS,
    LARGEST_FULL,
    LISTED,
    NEEDLESS,
    PARKED,
    QUEUED,
    REFILLS,
    SINGLE_NS,
    UNFAIR,
)

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
    """CPUs that slept on a pcp->lock arrive when it is let go, after trylocks of that instant."""
    for cpu in range(len(cpus)):
        if int(cpus[cpu]["status"]) == PARKED and int(cpus[cpu]["parked_on"]) == list_lock:
            cpus[cpu]["status"] = ARRIVING
            cpus[cpu]["arrival_ns"] = now + 1


@inner
def go_on(
    requests: np.ndarray,
    outcomes: np.ndarray,
    cpus: np.ndarray,
    list_locks: np.ndarray,
    settings: np.ndarray,
    cpu: int,
    now: int,
    release: int,
) -> None:
    """A CPU got `now` what it asked for, until `release`: find out when its next request arrives.

    The batches that follow one whose trylock failed stay on the list (S4.7).
    """
    number = int(cpus[cpu]["next"])
    end = int(cpus[cpu]["end"])
    late = now - int(requests[number]["time_ns"])
    given_up = int(outcomes[number]["list_was_busy"]) != 0 and settings[SINGLE_NS] >= 0
    number += 1
    while given_up and number < end and int(requests[number]["role"]) == GOES_ON:
        outcomes[number]["end"] = ABANDONED
        list_locks[int(requests[number]["list_lock"])]["gone"] -= int(requests[number]["pages"])
        number += 1
    cpus[cpu]["next"] = number
    if number == end:
        cpus[cpu]["status"] = DONE
        cpus[cpu]["delay_ns"] = late
        return
    cpus[cpu]["status"] = ARRIVING
    if settings[CLOSED_LOOP]:
        cpus[cpu]["delay_ns"] = late
    planned = int(requests[number]["time_ns"]) + int(cpus[cpu]["delay_ns"])
    cpus[cpu]["arrival_ns"] = max(planned, release)


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
    """Give a CPU the lock it asked for."""
    number = int(cpus[cpu]["next"])
    release = now + int(outcomes[number]["hold_ns"])
    outcomes[number]["start_ns"] = now
    locks[int(requests[number]["lock"])]["release_ns"] = release
    held = int(requests[number]["list_lock"])
    if held >= 0 and int(outcomes[number]["list_was_busy"]) == 0:
        list_locks[held]["release_ns"] = release
        list_locks[held]["is_waiting"] = 0
        if int(list_locks[held]["waiting"]) > 0:
            unpark(cpus, held, release)
    go_on(requests, outcomes, cpus, list_locks, settings, cpu, now, release)


@inner
def end_without_lock(
    requests: np.ndarray,
    outcomes: np.ndarray,
    cpus: np.ndarray,
    list_locks: np.ndarray,
    settings: np.ndarray,
    cpu: int,
    how: int,
) -> None:
    """A request ends as it arrives, without zone->lock."""
    number = int(cpus[cpu]["next"])
    now = int(cpus[cpu]["arrival_ns"])
    outcomes[number]["arrival_ns"] = now
    outcomes[number]["start_ns"] = now
    outcomes[number]["hold_ns"] = 0
    outcomes[number]["pages"] = 0
    outcomes[number]["end"] = how
    go_on(requests, outcomes, cpus, list_locks, settings, cpu, now, now)


@inner
def wait_for_list(cpus: np.ndarray, list_locks: np.ndarray, cpu: int, wanted: int) -> None:
    """A CPU waits for a pcp->lock that is taken."""
    now = int(cpus[cpu]["arrival_ns"])
    if int(cpus[cpu]["parked_on"]) < 0:
        cpus[cpu]["parked_on"] = wanted
        cpus[cpu]["asked_ns"] = now
        list_locks[wanted]["waiting"] += 1
    if int(list_locks[wanted]["is_waiting"]) != 0:
        cpus[cpu]["status"] = PARKED
    else:
        cpus[cpu]["arrival_ns"] = max(int(list_locks[wanted]["release_ns"]), now) + 1


@inner
def list_is_taken(cpus: np.ndarray, list_locks: np.ndarray, cpu: int, wanted: int) -> bool:
    """Whether a CPU finds a pcp->lock taken; those that wait for it go before a trylock."""
    if int(list_locks[wanted]["is_waiting"]) != 0:
        return True
    if int(list_locks[wanted]["release_ns"]) > int(cpus[cpu]["arrival_ns"]):
        return True
    return int(list_locks[wanted]["waiting"]) > 0 and int(cpus[cpu]["parked_on"]) < 0


@inner
def fail_trylock(
    requests: np.ndarray,
    outcomes: np.ndarray,
    cpus: np.ndarray,
    list_locks: np.ndarray,
    settings: np.ndarray,
    cpu: int,
) -> bool:
    """A trylock failed: one page moves past the list (S4.10), or a drain stops (S4.7).

    Returns:
        Whether the CPU needs zone->lock now.
    """
    number = int(cpus[cpu]["next"])
    role = int(requests[number]["role"])
    outcomes[number]["list_was_busy"] = 1
    if settings[SINGLE_NS] < 0:
        if role not in (ALLOCATES, FREES):
            return True
        end_without_lock(requests, outcomes, cpus, list_locks, settings, cpu, LISTED)
        return False
    wanted = int(requests[number]["list_lock"])
    pages = int(requests[number]["pages"])
    if role == GOES_ON:
        list_locks[wanted]["gone"] -= pages
        end_without_lock(requests, outcomes, cpus, list_locks, settings, cpu, ABANDONED)
        return False
    outcomes[number]["hold_ns"] = settings[SINGLE_NS]
    if role == FREES:
        list_locks[wanted]["gone"] += pages
    elif role == ALLOCATES:
        list_locks[wanted]["gone"] -= pages
    else:
        outcomes[number]["pages"] = 1
        if role == DRAINS:
            list_locks[wanted]["gone"] -= pages - 1
    return True


@inner
def correct_drain(
    requests: np.ndarray,
    outcomes: np.ndarray,
    list_locks: np.ndarray,
    settings: np.ndarray,
    number: int,
) -> bool:
    """Drain what is on the list: less what is gone or, in full drains, with what was left on it.

    Returns:
        Whether there is anything to drain.
    """
    role = int(requests[number]["role"])
    wanted = int(requests[number]["list_lock"])
    pages = int(requests[number]["pages"])
    gone = min(int(list_locks[wanted]["gone"]), pages)
    if gone < 0:
        room = max(settings[LARGEST_FULL] - pages, 0)
        gone = -min(-gone, room) if role == EMPTIES else 0
    if gone == 0 or role == REFILLS:
        return True
    list_locks[wanted]["gone"] -= gone
    outcomes[number]["pages"] = pages - gone
    outcomes[number]["hold_ns"] = int(requests[number]["hold_ns"]) * (pages - gone) // pages
    return pages > gone


@inner
def take_list(
    requests: np.ndarray,
    outcomes: np.ndarray,
    cpus: np.ndarray,
    list_locks: np.ndarray,
    settings: np.ndarray,
    cpu: int,
) -> bool:
    """Take the request's pcp->lock, if it has one; whether the CPU needs zone->lock now."""
    number = int(cpus[cpu]["next"])
    wanted = int(requests[number]["list_lock"])
    if wanted < 0:
        return True
    role = int(requests[number]["role"])
    if list_is_taken(cpus, list_locks, cpu, wanted):
        if role not in (DECAYS, EMPTIES):
            return fail_trylock(requests, outcomes, cpus, list_locks, settings, cpu)
        wait_for_list(cpus, list_locks, cpu, wanted)
        return False
    if role in (ALLOCATES, FREES):
        end_without_lock(requests, outcomes, cpus, list_locks, settings, cpu, LISTED)
        return False
    if int(cpus[cpu]["parked_on"]) >= 0:
        cpus[cpu]["parked_on"] = -1
        list_locks[wanted]["waiting"] -= 1
        outcomes[number]["list_wait_ns"] = cpus[cpu]["arrival_ns"] - cpus[cpu]["asked_ns"]
    if not correct_drain(requests, outcomes, list_locks, settings, number):
        end_without_lock(requests, outcomes, cpus, list_locks, settings, cpu, NEEDLESS)
        return False
    list_locks[wanted]["is_waiting"] = 1
    return True


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
        outcomes: `OUTCOME` records, `hold_ns` and `pages` as in the requests; written here.
        cpus: `CPU` records with `next`, `end` and `arrival_ns` of the first request set, and
            `parked_on` -1.
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
