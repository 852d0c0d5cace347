"""Recordings whose free lists were turned over before the first snapshot in their time.

The start state of a replay is that of the first snapshot taken while events were recorded, carried
back to the first event. Where more pages were allocated and freed until then than a zone's lists
hold at the snapshot, the lists before it are hardly those of the snapshot: such a recording begins
at the snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pagealloc_model.base.text import count_of
from pagealloc_model.recording.machine import DEFAULT_MIGRATETYPES
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.side_tables import Window, events_between


def turned_over(snapshots: Sequence[Snapshot], trace: Trace) -> Snapshot | None:
    """The snapshot that a recording begins at, None if it begins at its first event.

    Args:
        snapshots: in time order, as dated (T12.0).
        trace: all recorded events.
    """
    first_ns, last_ns = trace.demand_span_ns
    during = (each for each in snapshots if first_ns < each.time_ns <= last_ns)
    start = next((each for each in during if each.zoneinfo is not None), None)
    if start is None or start.zoneinfo is None:
        return None
    rows = _rows_before(trace, start.time_ns)
    pfn, pages = trace.pfn[rows], np.int64(1) << trace.order[rows].astype(np.int64)
    for zone in start.zoneinfo.zones:
        if zone.start_pfn is None:
            continue
        inside = (pfn >= zone.start_pfn) & (pfn < zone.start_pfn + zone.spanned)
        moved = int(pages[inside].sum())
        if moved > zone.free + sum(each.count for each in zone.pagesets):
            return start
    return None


def from_snapshot(trace: Trace, start: Snapshot) -> Trace:
    """The events from a snapshot on, with a note on those left out."""
    left_out = int(np.searchsorted(trace.time_ns, start.time_ns))
    kept = Window(
        begin_ns=start.time_ns,
        end_ns=int(trace.time_ns[-1]) + 1,
        from_start=False,
        to_end=True,
        events=len(trace) - left_out,
    )
    seconds = (start.time_ns - trace.demand_span_ns[0]) / 1e9
    note = (
        f"the first {seconds:.3f} s, {count_of(left_out, 'event')}, are left out: they "
        "turned the free lists "
        "over before the first snapshot, at which the recording begins"
    )
    return replace(events_between(trace, kept), notes=(*trace.notes, note))


def flags_at(page_flags: np.ndarray, trace: Trace, start: Snapshot) -> np.ndarray:
    """Page flags as they were at a snapshot, as far as events before it freed and allocated pages.

    Args:
        page_flags: uint64 by page frame, read before the first event.
        trace: all recorded events.
        start: the snapshot.
    """
    rows = _rows_before(trace, start.time_ns)
    sizes = np.int64(1) << trace.order[rows].astype(np.int64)
    ends = np.cumsum(sizes)
    pages = np.repeat(trace.pfn[rows] - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    movable = DEFAULT_MIGRATETYPES.index("Movable")
    in_use = np.where(trace.migratetype[rows] == movable, flags.LRU, flags.SLAB)
    words = np.where(trace.event[rows] == Event.FREE, flags.BUDDY, in_use).astype(np.uint64)
    inside = pages < len(page_flags)
    # Of a page that several events touch, the last one counts.
    pages, words = pages[inside], np.repeat(words, sizes)[inside]
    last = len(pages) - 1 - np.unique(pages[::-1], return_index=True)[1]
    found = page_flags.copy()
    found[pages[last]] = words[last]
    return found


def _rows_before(trace: Trace, end_ns: int) -> np.ndarray:
    """Rows of allocations and frees of pages before a time."""
    end = int(np.searchsorted(trace.time_ns, end_ns))
    return np.flatnonzero((trace.event[:end] <= Event.FREE) & (trace.pfn[:end] >= 0))
