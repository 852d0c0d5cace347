"""At which free_count high-order frees flush a per-CPU list (S4.6), reconstructed from events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.measured.evidence.finding import Finding
from pagealloc_model.measured.stream import Probe, Stream
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.recording.zone_map import ZoneMap

HIGHATOMIC = 3
LARGEST_LISTED_ORDER, PMD_ORDER = 3, 9
BATCH_SCALE_MAX = 5
HALVINGS = 12
"""free_count is at most 2527, so that many allocations forget it."""
CHANCES_MIN = 20
FLUSHED_SHARE, KEPT_SHARE = 0.25, 0.1
"""Of 6.12.117's chances 35 % flush, of 7.2.13's 3 % drain for another reason; the rest of the
former are frees that missed the list, which events do not show (S4.10)."""


@dataclass(frozen=True, kw_only=True)
class FlushChances:
    """High-order frees that flush if the threshold is `batch`, not if it is batch + high_min/2.

    Attributes:
        asked: their number.
        flushed: those followed at once by a drain.
    """

    asked: int
    flushed: int

    def finding(self) -> Finding | None:
        """Which threshold the kernel has, None if that is not clear."""
        if self.asked < CHANCES_MIN:
            return None
        line = f"{self.flushed} of {self.asked} high-order frees above the lower threshold flush"
        share = self.flushed / self.asked
        if KEPT_SHARE < share < FLUSHED_SHARE:
            return None
        return Finding(value=share <= KEPT_SHARE, line=line)


@dataclass(frozen=True, kw_only=True, eq=False)
class _ListEvents:
    """What enters and leaves the per-CPU lists, list owner by list owner, in time order.

    Attributes:
        row: int64, row of the stream.
        owner: int64, CPU and zone in one number; ascending.
        pages: int64, base pages, negative where they leave.
        freed: bool, a free put them there.
        served: bool, a request took them.
        order: int64.
    """

    row: np.ndarray
    owner: np.ndarray
    pages: np.ndarray
    freed: np.ndarray
    served: np.ndarray
    order: np.ndarray


def flush_chances(stream: Stream, zone: np.ndarray, zones: ZoneMap) -> FlushChances:
    """Count the frees of order 1-3 that tell the two thresholds apart.

    Such a free follows another one of order 1-3, more than a batch is on the list, free_count is
    between the thresholds, and no folio batch is open on the CPU: inside one, an interrupt finds
    the list locked and its free goes to the buddy.

    Args:
        stream: all events CPU by CPU.
        zone: int8, zone code of each row.
        zones: batch and low watermark of each code.
    """
    inserts, orders, batch_open = _insertions(stream)
    events = _list_events(stream, zone, inserts, orders)
    freed = np.flatnonzero(events.freed)
    high_order = (events.order[freed] >= 1) & (events.order[freed] <= LARGEST_LISTED_ORDER)
    again = np.zeros(len(freed), bool)
    again[1:] = high_order[1:] & high_order[:-1]
    again[1:] &= events.owner[freed[1:]] == events.owner[freed[:-1]]
    chance = freed[again]
    chance = chance[~batch_open[events.row[chance]]]
    batch = zones.batches()[zone[events.row[chance]]]
    free_count = _free_counts(events, chance, int(batch.max(initial=1)) << BATCH_SCALE_MAX)
    upper = batch + _high_mins(zones)[zone[events.row[chance]]] // 2
    between = (free_count >= batch) & (free_count < upper) & (_listed(events)[chance] > batch)
    rows = events.row[chance[between]]
    following = np.minimum(rows + 1, len(stream) - 1)
    flushed = stream.is_kind(Event.PCPU_DRAIN, Probe.BULK_FREE)[following]
    flushed &= stream.cpu[following] == stream.cpu[rows]
    return FlushChances(asked=len(rows), flushed=int(np.count_nonzero(flushed)))


def _insertions(stream: Stream) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows at which a freed page enters a list, orders, and where a folio batch is open.

    A page freed in a batch enters at its batched event, which carries no order (T3).
    """
    free, batched = stream.is_kind(Event.FREE), stream.is_kind(Event.FREE_BATCHED)
    rows = np.flatnonzero(free | batched)
    rows = rows[np.lexsort((stream.time_ns[rows], stream.pfn[rows]))]
    pair = free[rows[:-1]] & batched[rows[1:]] & (stream.pfn[rows[:-1]] == stream.pfn[rows[1:]])
    announced, entered = rows[:-1][pair], rows[1:][pair]
    orders = stream.order.astype(np.int64)
    orders[entered] = orders[announced]
    inserts = free.copy()
    inserts[announced] = False
    inserts[entered] = True
    change = np.zeros(len(stream), np.int64)
    np.add.at(change, announced, 1)
    np.add.at(change, entered, -1)
    pending = np.cumsum(change)
    cpu_starts = np.searchsorted(stream.cpu, stream.cpu)
    return inserts, orders, pending > (pending - change)[cpu_starts]


def _list_events(
    stream: Stream, zone: np.ndarray, inserts: np.ndarray, orders: np.ndarray
) -> _ListEvents:
    listed = (orders <= LARGEST_LISTED_ORDER) | (orders == PMD_ORDER)
    freed = inserts & listed
    served = stream.is_kind(Event.ALLOC) & (stream.pfn >= 0) & listed
    refilled = stream.is_kind(Event.ZONE_LOCKED) & listed & (stream.migratetype != HIGHATOMIC)
    rows = np.flatnonzero(freed | served | refilled | stream.is_kind(Event.PCPU_DRAIN))
    owner = (stream.cpu[rows].astype(np.int64) << 8) + zone[rows]
    by_owner = np.argsort(owner, kind="stable")
    rows, owner = rows[by_owner], owner[by_owner]
    pages = np.int64(1) << orders[rows]
    return _ListEvents(
        row=rows,
        owner=owner,
        pages=np.where(freed[rows] | refilled[rows], pages, -pages),
        freed=freed[rows],
        served=served[rows],
        order=orders[rows],
    )


def _listed(events: _ListEvents) -> np.ndarray:
    """Least number of pages on the list after each event: how far it rose above its lowest."""
    rise = np.cumsum(events.pages)
    begins = np.searchsorted(events.owner, events.owner)
    rise -= (rise - events.pages)[begins]
    _, owner = np.unique(events.owner, return_inverse=True)
    apart = owner * (np.int64(1) << 40)
    lowest = np.minimum.accumulate(rise - apart) + apart
    return rise - np.minimum(lowest, 0)


def _free_counts(events: _ListEvents, wanted: np.ndarray, cap: int) -> np.ndarray:
    """free_count just before each wanted event: frees add up to a cap, every request halves it."""
    freed_before = np.concatenate([[0], np.cumsum(np.where(events.freed, events.pages, 0))])
    requests = np.flatnonzero(events.served)
    begin = np.searchsorted(events.owner, events.owner[wanted])
    latest = np.searchsorted(requests, wanted) - 1
    count = np.zeros(len(wanted), np.int64)
    position = begin
    for back in range(HALVINGS, -1, -1):
        index = latest - back
        request = requests[np.maximum(index, 0)] if len(requests) else np.zeros_like(wanted)
        applies = (index >= 0) & (index <= latest) & (request >= begin) & (len(requests) > 0)
        count = np.where(
            applies,
            np.minimum(count + freed_before[request] - freed_before[position], cap) >> 1,
            count,
        )
        position = np.where(applies, request, position)
    return np.minimum(count + freed_before[wanted] - freed_before[position], cap)


def _high_mins(zones: ZoneMap) -> np.ndarray:
    """int64 high_min by zone code, computed where the kernel does not print it (S4.3)."""
    values = []
    for zone in zones.zones:
        first = zone.pagesets[0] if zone.pagesets else None
        if first is not None and first.high_min is not None:
            values.append(first.high_min)
        else:
            batch = first.batch if first else 1
            values.append(max(zone.low // max(len(zone.pagesets), 1), 4 * batch))
    return np.array([*values, 0], np.int64)
