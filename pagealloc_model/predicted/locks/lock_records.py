"""What the queue at zone->lock works on: requests, what becomes of them, CPUs and locks."""

from __future__ import annotations

import numpy as np

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
