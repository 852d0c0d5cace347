"""What each recorded row says about the true state: which move it is, which run it belongs to.

These passes look ahead: the next event of a page tells whether it went to a per-CPU list or to
the buddy. They serve the judging of single choices, never a prediction.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.base.jit import entry, inner

STEP = np.dtype(
    [
        ("row", np.int32),
        ("pfn", np.int32),
        ("objects", np.int32),
        ("pages", np.int32),
        ("asked", np.int32),
        ("pid", np.int32),
        ("gfp", np.uint32),
        ("time_bin", np.int16),
        ("cpu", np.int16),
        ("flags", np.uint16),
        ("operation", np.int8),
        ("order", np.int8),
        ("migratetype", np.int8),
        ("zone", np.int8),
        ("highest", np.int8),
        ("fate", np.int8),
        ("found_order", np.int8),
        ("found_type", np.int8),
    ],
    align=True,
)
"""A recorded row as a move between true states.

`row` is the trace's row, or for steps made of other sources the row they come before. `objects`
and `pages` are what is left of the run of removals or drains that the step is part of, itself
included; a PUSH has those of the run of drains that follows it. `asked`, where a kprobe tells it,
is what the kernel asked for in the run of removals that begins here. SNAPSHOT and SNAPSHOT_END
have pcp->count and pcp->high in `objects` and `pages`. FREE_READ has the zone's free pages in
`pages`, those of reserved blocks in `objects` (-1 if unknown) and its boost in `asked`. `highest`
is the highest zone type that a request may use and `gfp` its word, also of the request that a run
of removals serves. `fate` is the operation that moves the page's first frame next, NOTHING if none
does. `found_order` and `found_type` are a fallback's (T6); in a run of drains, and the push before
it, `found_order` is that of its last page; pushes and drains have the type of the list that the
page is next taken from in `found_type`.
"""

NOTHING, POP, PUSH, REMOVE, DRAIN, FAILED, BATCHED, DEFERRED = range(8)
SNAPSHOT, SNAPSHOT_END, FREE_READ, TICK_OPENS, TICK_OVER, RECLAIM_STARTS, RECLAIM_STOPS = range(
    8, 15
)
ISOLATED = 15
"""ISOLATED: compaction takes `pages` free pages of the zone (T7)."""

RUN_FIRST = 1
"""A run begins with this step."""
USED_AT_ONCE = 2
"""The CPU's first event after the run is the allocation of this very page."""
AFTER_PUSH = 4
"""The run of drains follows a push by the same task on the same CPU and zone."""
KWORKER = 8
"""The task is a kworker."""
FALLBACK = 16
"""Taken from another type's list (T6)."""
OWNERSHIP = 32
"""The fallback made the block the requester's."""
UNSEEN = 64
"""A free without an event of its own, known from what happens to the page next."""
NESTED = 128
"""An interrupt's, while its CPU was putting a batch on lists of its zone: locked ones (S4.10)."""
DIRECT = 256
"""A kprobe shows that the page went past the lists."""
ALL_FLAGS = 511


@entry
def match_batched(steps: np.ndarray, last_free: np.ndarray) -> None:
    """No kernel function: move a batched free's push to its mm_page_free_batched row (T3).

    Args:
        steps: mm_page_free as PUSH, mm_page_free_batched as BATCHED. A matched pair becomes
            DEFERRED and PUSH with BATCHED in `fate`, a BATCHED without a free NOTHING.
        last_free: int32 zeros, one per page frame.
    """
    for number in range(len(steps)):
        operation = int(steps[number]["operation"])
        pfn = int(steps[number]["pfn"])
        if operation == PUSH:
            last_free[pfn] = number + 1
        elif operation == BATCHED:
            freed = int(last_free[pfn]) - 1
            steps[number]["operation"] = NOTHING
            if freed >= 0:
                steps[number]["operation"] = PUSH
                steps[number]["fate"] = BATCHED
                steps[number]["order"] = steps[freed]["order"]
                steps[freed]["operation"] = DEFERRED
                last_free[pfn] = 0


@entry
def note_nesting(steps: np.ndarray, waiting: np.ndarray, opened: np.ndarray) -> None:
    """No kernel function: flag what an interrupt allocates or frees during a batch.

    Its CPU is putting a batch on lists of that zone. A batch locks the lists of one zone at a time,
    those of the page it puts there (S4.11).

    Args:
        steps: in time order, batched frees matched.
        waiting: int32 zeros, one per CPU.
        opened: int8 zeros, one per CPU; becomes one more than the zone of the lists locked.
    """
    for number in range(len(steps)):
        operation = int(steps[number]["operation"])
        cpu = int(steps[number]["cpu"])
        if operation == DEFERRED:
            waiting[cpu] = 1 if opened[cpu] else waiting[cpu] + 1
            opened[cpu] = 0
        elif operation == PUSH and int(steps[number]["fate"]) == BATCHED:
            waiting[cpu] -= 1
            opened[cpu] = steps[number]["zone"] + 1 if waiting[cpu] > 0 else 0
        elif opened[cpu] == steps[number]["zone"] + 1 and POP <= operation <= REMOVE:
            steps[number]["flags"] |= NESTED


@entry
def note_fates(steps: np.ndarray, upcoming: np.ndarray, upcoming_type: np.ndarray) -> None:
    """No kernel function: write every step's `fate`.

    Pushes and drains get the type that the page is next taken as.

    Args:
        steps: in time order.
        upcoming: int8 zeros, one per page frame; at the end the first operation of each frame.
        upcoming_type: int8, one per page frame, filled with -1; that operation's type.
    """
    for number in range(len(steps) - 1, -1, -1):
        operation = int(steps[number]["operation"])
        if operation < POP or operation > DRAIN:
            continue
        pfn = int(steps[number]["pfn"])
        steps[number]["fate"] = upcoming[pfn]
        if operation in (PUSH, DRAIN):
            steps[number]["found_type"] = upcoming_type[pfn]
        for page in range(pfn, pfn + (1 << int(steps[number]["order"]))):
            upcoming[page] = operation
            upcoming_type[page] = steps[number]["migratetype"]


@inner
def same_owner(steps: np.ndarray, number: int, after: int) -> bool:
    """No kernel function: return whether two steps are of one task and zone."""
    return int(steps[after]["pid"]) == int(steps[number]["pid"]) and int(
        steps[after]["zone"]
    ) == int(steps[number]["zone"])


@inner
def continues_run(steps: np.ndarray, number: int, after: int) -> bool:
    """No kernel function: return whether a CPU's next step continues this one's run.

    It is a run of removals or of drains.
    """
    operation = int(steps[number]["operation"])
    alike = operation == DRAIN or int(steps[after]["order"]) == int(steps[number]["order"])
    return (
        int(steps[after]["operation"]) == operation and alike and same_owner(steps, number, after)
    )


@inner
def takes_same_page(steps: np.ndarray, number: int, end: int) -> bool:
    """No kernel function: return whether a step allocates the very page that another removed."""
    return (
        int(steps[end]["operation"]) == POP
        and int(steps[end]["pfn"]) == int(steps[number]["pfn"])
        and int(steps[end]["order"]) == int(steps[number]["order"])
    )


@entry
def note_runs(steps: np.ndarray, following: np.ndarray, ends: np.ndarray) -> None:
    """No kernel function: measure runs of removals and of drains on each CPU.

    It writes `objects`, `pages`, `flags`.

    Args:
        steps: in time order; only rows of the trace among them.
        following: int64, filled with -1, one per CPU.
        ends: int32, filled with -1, one per step; room for the step after each run.
    """
    for number in range(len(steps) - 1, -1, -1):
        operation = int(steps[number]["operation"])
        cpu = int(steps[number]["cpu"])
        after = following[cpu]
        following[cpu] = number
        drains = after >= 0 and int(steps[after]["operation"]) == DRAIN
        if operation == PUSH and drains and same_owner(steps, number, after):
            steps[number]["objects"] = steps[after]["objects"]
            steps[number]["pages"] = steps[after]["pages"]
            steps[number]["found_order"] = steps[after]["found_order"]
            steps[after]["flags"] |= AFTER_PUSH
        if operation != REMOVE and operation != DRAIN:
            continue
        steps[number]["objects"] = 1
        steps[number]["pages"] = 1 << int(steps[number]["order"])
        steps[number]["flags"] |= RUN_FIRST
        if operation == DRAIN:
            steps[number]["found_order"] = steps[number]["order"]
        end = after
        if after >= 0 and continues_run(steps, number, after):
            steps[number]["objects"] += steps[after]["objects"]
            steps[number]["pages"] += steps[after]["pages"]
            steps[after]["flags"] &= ALL_FLAGS - RUN_FIRST
            if operation == DRAIN:
                steps[number]["found_order"] = steps[after]["found_order"]
            end = int(ends[after])
        ends[number] = end
        if end >= 0 and takes_same_page(steps, number, end):
            steps[number]["flags"] |= USED_AT_ONCE
            steps[number]["highest"] = steps[end]["highest"]
            steps[number]["gfp"] = steps[end]["gfp"]
