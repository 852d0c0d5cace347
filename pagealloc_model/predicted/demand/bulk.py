"""Allocations by alloc_pages_bulk(), which has no tracepoint, where probes show when it ran."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.base.arrays import in_memory
from pagealloc_model.predicted.demand.event_order import HiddenAllocations, new_events, rows_where
from pagealloc_model.predicted.demand.rows import highest_type_by_gfp
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.bulk import BULK_EVENT, BULK_RETURN, bulk_pages
from pagealloc_model.recording.trace.columns import Event, Trace

_GFP_MOVABLE, _GFP_RECLAIMABLE = 0x8, 0x10


def bulk_calls(trace: Trace, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """`layout.EVENT` records of pages that bulk calls took, one each, and their page frames.

    They are in time order; a page frame is -1 where the probe did not see it. What a
    call took one by one through __alloc_pages() has events of its own and is left out.
    """
    calls, returns = trace.tables.get(BULK_EVENT), trace.tables.get(BULK_RETURN)
    if calls is None or returns is None:
        return new_events(at.HIDDEN_ALLOC, 0), np.zeros(0, np.int64)
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
            rows.append((int(times[call]), call, place - count))
    rows.sort()
    pages = [(call, page) for _, call, end in rows for page in bulk_pages(returns, end)]
    numbers, pfns = np.array(pages, np.int64).reshape(-1, 2).T
    gfp = np.asarray(calls["gfp"])[numbers].astype(np.int64)
    kinds = np.where(gfp & _GFP_MOVABLE, at.MOVABLE, at.UNMOVABLE)
    events = new_events(
        at.HIDDEN_ALLOC,
        len(numbers),
        time_ns=np.asarray(calls["time_ns"])[numbers],
        cpu=np.asarray(calls["cpu"])[numbers],
        migratetype=np.where(gfp & _GFP_RECLAIMABLE, at.RECLAIMABLE, kinds),
        bits=gfp & at.GFP_READ_BITS,
        zone=highest[gfp & 15],
    )
    return events, trace.frames.indices(pfns)


def frees_after_calls(trace: Trace, calls: np.ndarray, pfns: np.ndarray) -> np.ndarray:
    """Rows of the first free of each page after the call that took it.

    Args:
        trace: the recording's events.
        calls: see `bulk_calls`.
        pfns: page frames of their pages, -1 where they are not known.
    """
    known = np.unique(pfns[pfns >= 0])
    rows = rows_where(
        len(trace),
        lambda part: (trace.event[part] == Event.FREE) & np.isin(trace.pfn[part], known),
    )
    frees: dict[int, list[int]] = {}
    for row, pfn in zip(rows.tolist(), trace.pfn[rows].tolist(), strict=True):
        frees.setdefault(pfn, []).append(row)
    first = []
    for time_ns, pfn in zip(calls["time_ns"].tolist(), pfns.tolist(), strict=True):
        own = frees.get(pfn, [])
        place = bisect_right(own, time_ns, key=lambda row: int(trace.time_ns[row]))
        first += own[place : place + 1]
    return np.unique(np.array(first, np.int64))


def bulk_allocations(
    hidden: HiddenAllocations, calls: np.ndarray, pfns: np.ndarray, objects: np.ndarray
) -> tuple[np.ndarray, HiddenAllocations, np.ndarray]:
    """Hidden allocations that bulk calls made, at the times of these.

    An unseen allocation of a single page lies somewhere between two frees of it: at the last call
    that took this page. Where page frames are unknown, each call, from the last one on, takes those
    that were freed last before it. What no free follows lives on to the end, as a new object.

    Args:
        hidden: allocations known by their frees.
        calls: see `bulk_calls`.
        pfns: page frames of their pages.
        objects: `objects.OBJECT` records.

    Returns:
        The allocations of bulk calls, the others, and the objects with those that are new.
    """
    freed_ns, midway_ns = hidden.freed_ns, hidden.events["time_ns"].astype(np.int64)
    # the midpoint of the two frees is where an unseen allocation stands
    before_ns = 2 * midway_ns - freed_ns
    single = hidden.events["order"] == 0
    is_placed = np.zeros(len(single), bool)
    made, unfreed = calls.copy(), []
    own = objects["pfn"][hidden.events["object"]]
    for place in range(len(calls) - 1, -1, -1):
        time_ns = int(calls["time_ns"][place])
        fits = np.flatnonzero(single & ~is_placed & (before_ns < time_ns) & (time_ns < freed_ns))
        if pfns[place] >= 0:
            fits = fits[own[fits] == pfns[place]]
        if len(fits):
            row = fits[np.lexsort((freed_ns[fits], -before_ns[fits]))[0]]
            made["object"][place] = hidden.events["object"][row]
            is_placed[row] = True
        else:
            unfreed.append(place)
    unfreed.reverse()
    new = np.zeros(len(unfreed), objects.dtype)
    new["pfn"] = np.maximum(pfns[unfreed], 0)
    new["kind"] = resolved.HIDDEN
    made["object"][unfreed] = len(objects) + np.arange(len(new))
    return made, hidden.where(~is_placed, in_memory), np.concatenate([objects, new])
