"""Allocations by alloc_pages_bulk(), which has no tracepoint, where probes show when it ran."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.predicted.demand.event_order import HiddenAllocations, new_events
from pagealloc_model.predicted.demand.rows import highest_type_by_gfp
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Trace

BULK_EVENT, BULK_RETURN = "pa:alloc_bulk", "pa:alloc_bulk_ret"
_GFP_MOVABLE, _GFP_RECLAIMABLE = 0x8, 0x10


def bulk_calls(trace: Trace, machine: Machine) -> np.ndarray:
    """`layout.EVENT` records of pages that bulk calls took, one each, in time order.

    `object` is the number of the call. Pages of a call that went on to take single ones by
    __alloc_pages() are in events of their own; these are left out.
    """
    calls, returns = trace.tables.get(BULK_EVENT), trace.tables.get(BULK_RETURN)
    if calls is None or returns is None:
        return new_events(at.HIDDEN_ALLOC, 0)
    highest = highest_type_by_gfp(machine)
    open_calls: dict[int, int] = {}
    rows = []
    pids = np.concatenate([calls["pid"], returns["pid"]]).tolist()
    times = np.concatenate([calls["time_ns"], returns["time_ns"]])
    count = len(calls["time_ns"])
    for place in np.argsort(times, kind="stable").tolist():
        if place < count:
            open_calls[pids[place]] = place
        elif (call := open_calls.pop(pids[place], None)) is not None:
            rows.append((call, int(returns["got"][place - count])))
    rows.sort(key=lambda row: int(calls["time_ns"][row[0]]))
    chosen = np.array([call for call, _ in rows], np.int64)
    numbers = np.repeat(chosen, [got for _, got in rows])
    gfp = np.asarray(calls["gfp"])[numbers].astype(np.int64)
    kinds = np.where(gfp & _GFP_MOVABLE, at.MOVABLE, at.UNMOVABLE)
    return new_events(
        at.HIDDEN_ALLOC,
        len(numbers),
        time_ns=np.asarray(calls["time_ns"])[numbers],
        object=numbers,
        cpu=np.asarray(calls["cpu"])[numbers],
        migratetype=np.where(gfp & _GFP_RECLAIMABLE, at.RECLAIMABLE, kinds),
        bits=gfp & at.GFP_READ_BITS,
        zone=highest[gfp & 15],
    )


def with_bulk_times(
    hidden: HiddenAllocations, calls: np.ndarray, objects: np.ndarray
) -> tuple[HiddenAllocations, np.ndarray]:
    """Hidden allocations at the times of the bulk calls that made them.

    An unseen allocation of a single page lies somewhere between two frees of it. From the last call
    on, each takes those that were freed last before it; what is left over of a call lives on to the
    end, as an object of no page that is known.

    Args:
        hidden: allocations known by their frees.
        calls: see `bulk_calls`.
        objects: `objects.OBJECT` records.

    Returns:
        The allocations, and the objects with those that are new.
    """
    events, freed_ns = hidden.events.copy(), hidden.freed_ns.copy()
    # the midpoint of the two frees is where an unseen allocation stands
    before_ns = 2 * events["time_ns"].astype(np.int64) - freed_ns
    free = events["order"] == 0
    left_over = []
    for page in calls[::-1]:
        time_ns = int(page["time_ns"])
        fits = np.flatnonzero(free & (before_ns < time_ns) & (time_ns < freed_ns))
        if not len(fits):
            left_over.append(page)
            continue
        row = fits[np.lexsort((freed_ns[fits], -before_ns[fits]))[0]]
        number = events[row]["object"]
        events[row] = page
        events[row]["object"] = number
        free[row] = False
    new = np.array(left_over[::-1], at.EVENT)
    made = np.zeros(len(new), objects.dtype)
    made["kind"] = resolved.HIDDEN
    new["object"] = len(objects) + np.arange(len(new))
    ranks = np.concatenate([np.where(free, hidden.ranks, 0), np.zeros(len(new), np.int64)])
    events = np.concatenate([events, new])
    freed = np.concatenate([freed_ns, np.full(len(new), np.iinfo(np.int64).max)])
    placed = replace(hidden, events=events, ranks=ranks, freed_ns=freed)
    return placed, np.concatenate([objects, made])
