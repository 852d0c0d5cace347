"""Kernels that follow per-CPU lists through all events of a trace, in one pass (S4.6).

They allocate nothing and know nothing of files: arrays in, counts out.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.base.jit import entry, inner

ALLOC, FREE, FREE_BATCHED, ZONE_LOCKED, PCPU_DRAIN = 0, 1, 2, 3, 4
"""Values of `Event`."""
HIGHATOMIC = 3
LARGEST_LISTED_ORDER, PMD_ORDER = 3, 9
BATCH_SCALE_MAX = 5

ENTERS, ANNOUNCED = -1, 100
"""A free that enters a list itself; one that only announces a batched event. Of a batched event
whose free is known, its order is noted instead."""

HALVINGS = 12
"""free_count is at most 2527, so that many allocations forget it."""
REQUESTS = HALVINGS + 1
LIST = np.dtype(
    [
        ("freed", np.int64),
        ("rise", np.int64),
        ("lowest", np.int64),
        ("requests", np.int64),
        ("after_high", np.int8),
        ("freed_before", np.int64, (REQUESTS,)),
    ],
    align=True,
)
"""A pageset: pages freed so far; pages on it, and the fewest, since the trace begins; requests
served; whether its last free was of order 1 to 3; pages freed before each of the last requests."""
CPU = np.dtype([("open_batch", np.int64), ("waits", np.int8)], align=True)
"""A CPU: frees announced and not yet in a list; whether its next event decides on a chance."""
PROBE = np.dtype([("row", np.int64), ("cpu", np.int64), ("flushes", np.int8)], align=True)
"""A kprobe's event: the trace's row it comes before; whether it is a drain."""


@entry
def match_batches(
    event: np.ndarray, pfn: np.ndarray, order: np.ndarray, announced: np.ndarray, role: np.ndarray
) -> None:
    """Note which frees enter a list at a later batched event, and that event's order (T3).

    Args:
        event: uint8, the trace's.
        pfn: int64, the trace's.
        order: int8, the trace's.
        announced: int32, zeros, one for each page frame that is looked at.
        role: int8, one for each event, filled with `ENTERS`: set to `ANNOUNCED`, or to the order.
    """
    for row in range(len(event)):
        if event[row] != FREE and event[row] != FREE_BATCHED:
            continue
        page = pfn[row]
        if page < 0 or page >= len(announced):
            continue
        if event[row] == FREE:
            announced[page] = row + 1
        elif announced[page] > 0:
            before = announced[page] - 1
            role[row] = order[before]
            role[before] = ANNOUNCED
            announced[page] = 0


@inner
def is_listed(order: int) -> bool:
    """Return whether per-CPU lists hold an order (S1.9)."""
    return order <= LARGEST_LISTED_ORDER or order == PMD_ORDER


@inner
def free_count(lists: np.ndarray, number: int, cap: int) -> int:
    """Return a pageset's free_count: frees add up to a cap, requests halve it (S4.5, S4.6)."""
    requests = lists[number]["requests"]
    count, before = 0, 0
    for request in range(max(requests - REQUESTS, 0), requests):
        freed = lists[number]["freed_before"][request % REQUESTS]
        count = min(count + freed - before, cap) >> 1
        before = freed
    return min(count + lists[number]["freed"] - before, cap)


@inner
def zone_of(page: int, starts: np.ndarray, ends: np.ndarray) -> int:
    """Return the code of a page's zone, -1 outside all zones."""
    for code in range(len(starts) - 1, -1, -1):
        if page >= starts[code]:
            return code if page < ends[code] else -1
    return -1


@inner
def move(lists: np.ndarray, number: int, pages: int) -> None:
    """Count pages that enter a pageset, or leave it if negative."""
    lists[number]["rise"] += pages
    lists[number]["lowest"] = min(lists[number]["lowest"], lists[number]["rise"])


@entry
def count_chances(
    event: np.ndarray,
    cpu: np.ndarray,
    pfn: np.ndarray,
    order: np.ndarray,
    migratetype: np.ndarray,
    role: np.ndarray,
    probes: np.ndarray,
    zones: np.ndarray,
    lists: np.ndarray,
    cpus: np.ndarray,
    found: np.ndarray,
) -> None:
    """Count frees of order 1 to 3 that tell two thresholds of free_count apart.

    Args:
        event: uint8, the trace's, as are the next four.
        cpu: int16; events of none, below 0, are left out.
        pfn: int64.
        order: int8.
        migratetype: int8.
        role: int8, of `match_batches`.
        probes: `PROBE` records by row.
        zones: int64, shape (4, zones): first page, end, pcp->batch, upper threshold.
        lists: `LIST` records, zeros, one for each CPU and zone.
        cpus: `CPU` records, zeros.
        found: int64, zeros, shape (2 + zones,): chances; those at once followed by a drain; and in
            which zones a free had everything but a count between the thresholds. `found[0]` begins
            as the cap of free_count.
    """
    starts, ends = zones[0], zones[1]
    cap = found[0]
    found[0] = 0
    probe = 0
    for row in range(len(event)):
        while probe < len(probes) and probes[probe]["row"] <= row:
            by = probes[probe]["cpu"]
            if 0 <= by < len(cpus):
                found[1] += cpus[by]["waits"] * probes[probe]["flushes"]
                cpus[by]["waits"] = 0
            probe += 1
        here = int(cpu[row])
        if here < 0:
            continue
        kind = event[row]
        if kind == PCPU_DRAIN:
            found[1] += cpus[here]["waits"]
        cpus[here]["waits"] = 0
        page = pfn[row]
        zone = zone_of(page, starts, ends) if page >= 0 else -1
        if zone < 0:
            continue
        number = here * zones.shape[1] + zone
        moved = int(order[row])
        enters = False
        if kind == FREE:
            enters = role[row] != ANNOUNCED
            if not enters:
                cpus[here]["open_batch"] += 1
        elif kind == FREE_BATCHED and role[row] != ENTERS:
            cpus[here]["open_batch"] -= 1
            moved = int(role[row])
            enters = True
        if kind == PCPU_DRAIN:
            move(lists, number, -(1 << moved))
        elif not is_listed(moved):
            continue
        elif kind == ALLOC:
            requests = lists[number]["requests"]
            lists[number]["freed_before"][requests % REQUESTS] = lists[number]["freed"]
            lists[number]["requests"] = requests + 1
            move(lists, number, -(1 << moved))
        elif kind == ZONE_LOCKED and migratetype[row] != HIGHATOMIC:
            move(lists, number, 1 << moved)
        elif enters:
            is_high = 1 <= moved <= LARGEST_LISTED_ORDER
            follows = is_high and lists[number]["after_high"] != 0
            lists[number]["after_high"] = is_high
            move(lists, number, 1 << moved)
            if follows and cpus[here]["open_batch"] <= 0:
                found[2 + zone] = 1
                count = free_count(lists, number, cap)
                on_list = lists[number]["rise"] - min(lists[number]["lowest"], 0)
                batch = zones[2, zone]
                if batch <= count < zones[3, zone] and on_list > batch:
                    found[0] += 1
                    cpus[here]["waits"] = 1
            lists[number]["freed"] += 1 << moved
