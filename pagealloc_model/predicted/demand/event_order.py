"""Resolved events put in time order, a part at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.base.column_space import NewArray
from pagealloc_model.base.filling_array import FillingArray
from pagealloc_model.base.working_arrays import parts, working_directory


@dataclass(frozen=True, kw_only=True, eq=False)
class HiddenAllocations:
    """Allocations that the recording does not show, each known by the free of its pages.

    Attributes:
        events: `layout.EVENT` records, by the time of that free.
        ranks: int64, how many other events stand before that free.
        freed_ns: int64, its time.
    """

    events: np.ndarray
    ranks: np.ndarray
    freed_ns: np.ndarray


def merged(
    events: np.ndarray,
    extra: np.ndarray,
    ranks: np.ndarray,
    new_array: NewArray,
    held: FillingArray | None = None,
) -> np.ndarray:
    """Events and extra ones in time order; equal times keep the order that ranks give.

    Args:
        events: `layout.EVENT` records in time order.
        extra: more of them in any order; of equal times, the earlier in `extra` comes first.
        ranks: int64, how many of the `events` of its time, and of those before, precede each.
        new_array: makes what is as long as `extra`.
        held: what the events lie in, which is given back while they are read; None: they stay.
    """
    if not len(extra):
        return events
    by_time = np.argsort(extra["time_ns"], kind="stable")
    extra_ns = _taken(extra["time_ns"], by_time, new_array)
    extra, ranks = (_taken(each, by_time, new_array) for each in (extra, ranks))
    rows = len(events) + len(extra)
    filled = FillingArray(rows, events.dtype, working_directory(len(events)))
    used = 0
    for part in parts(len(events)):
        together = events[part]
        times = np.ascontiguousarray(together["time_ns"])
        due = slice(used, int(np.searchsorted(extra_ns, times[-1], side="right")))
        first, last = (np.searchsorted(times, extra_ns[due], side) for side in ("left", "right"))
        places = np.clip(ranks[due] - part.start, first, last)
        # Those behind this part's last event may belong behind others of the same time, too.
        places = places[places < len(together)]
        begin, used = part.start + used, used + len(places)
        filled.need(part.stop + used)[begin : part.stop + used] = np.insert(
            together, places, extra[used - len(places) : used]
        )
        if held is not None:
            held.give_back(part.stop)
    filled.need(rows)[len(events) + used : rows] = extra[used:]
    return filled.room[:rows]


def joined(first: np.ndarray, second: np.ndarray, new_array: NewArray) -> np.ndarray:
    """Two arrays of one type, one behind the other."""
    result = new_array(len(first) + len(second), first.dtype)
    result[: len(first)] = first
    result[len(first) :] = second
    return result


def _taken(values: np.ndarray, order: np.ndarray, new_array: NewArray) -> np.ndarray:
    """Values rearranged by their numbers."""
    result = new_array(len(order), values.dtype)
    for part in parts(len(order)):
        result[part] = values[order[part]]
    return result
