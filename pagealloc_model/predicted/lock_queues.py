"""What the queue at zone->lock works on: requests, what becomes of them, CPUs and locks."""

from __future__ import annotations

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


@inner
def next_arrival(cpus: np.ndarray) -> int:
    """No kernel function: return the CPU whose next request arrives first, or -1.

    -1 means that none is on its way.
    """
    found = -1
    earliest = NEVER
    for cpu in range(len(cpus)):
        if int(cpus[cpu]["status"]) == ARRIVING and int(cpus[cpu]["arrival_ns"]) < earliest:
            earliest = int(cpus[cpu]["arrival_ns"])
            found = cpu
    return found


@inner
def next_handoff(locks: np.ndarray) -> int:
    """No kernel function: return the lock with a queue that is let go first, or -1."""
    found = -1
    earliest = NEVER
    for lock in range(len(locks)):
        if int(locks[lock]["waiting"]) > 0 and int(locks[lock]["release_ns"]) < earliest:
            earliest = int(locks[lock]["release_ns"])
            found = lock
    return found


@inner
def unpark(cpus: np.ndarray, list_lock: int, now: int) -> None:
    """No kernel function: let CPUs that slept on a pcp->lock arrive when it is let go.

    They come after trylocks of that instant.
    """
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
    """No kernel function: find out when a CPU served `now` until `release` asks again.

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
    """No kernel function: give a CPU the lock it asked for."""
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
    """No kernel function: end a request as it arrives, without zone->lock."""
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
    """No kernel function: let a CPU wait for a pcp->lock that is taken."""
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
    """No kernel function: return whether a CPU finds a pcp->lock taken.

    Those that wait for it go before a trylock.
    """
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
    """No kernel function: end a failed trylock.

    One page moves past the list (S4.10), or a drain stops (S4.7).

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
    """No kernel function: drain what is on the list now.

    That is less by what is gone or, in full drains, more by what was left on it.

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
    """No kernel function: take the request's pcp->lock, if it has one.

    Returns whether the CPU needs zone->lock now.
    """
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
    """No kernel function: let a CPU join the end of a lock's queue."""
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
    """No kernel function: bring a CPU to its lock; it gets it, or queues."""
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
    """No kernel function: let every CPU go through its requests.

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
