"""Resolved events put in time order, a part at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.trace.column_space import NewArray
from pagealloc_model.working_arrays import parts


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


def split_hidden(events: np.ndarray) -> tuple[np.ndarray, HiddenAllocations]:
    """Take the hidden allocations, which alone are not in time order, out of resolved events.

    Args:
        events: as `objects.resolve_objects` makes them, each hidden allocation just before its
            free; the others move up in place.

    Returns:
        The others, and the hidden allocations.
    """
    kept = 0
    found, ranks, freed_ns = [events[:0].copy()], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for part in parts(len(events)):
        together = events[part]
        is_hidden = together["operation"] == at.HIDDEN_ALLOC
        places = np.flatnonzero(is_hidden)
        found.append(together[places])
        ranks.append(kept + places - np.arange(len(places)))
        freed_ns.append(events["time_ns"][part.start + places + 1])
        rest = together[~is_hidden]
        events[kept : kept + len(rest)] = rest
        kept += len(rest)
    hidden = HiddenAllocations(
        events=np.concatenate(found),
        ranks=np.concatenate(ranks),
        freed_ns=np.concatenate(freed_ns),
    )
    return events[:kept], hidden


def merged(
    events: np.ndarray, extra: np.ndarray, ranks: np.ndarray, new_array: NewArray
) -> np.ndarray:
    """Events and extra ones in time order; equal times keep the order that ranks give.

    Args:
        events: `layout.EVENT` records in time order.
        extra: a few more in any order; of equal times, the earlier in `extra` comes first.
        ranks: int64, how many of the `events` of its time, and of those before, precede each.
        new_array: makes the result.
    """
    if not len(extra):
        return events
    by_time = np.argsort(extra["time_ns"], kind="stable")
    extra, ranks = extra[by_time], ranks[by_time]
    extra_ns = np.ascontiguousarray(extra["time_ns"])
    result = new_array(len(events) + len(extra), events.dtype)
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
        result[begin : part.stop + used] = np.insert(
            together, places, extra[used - len(places) : used]
        )
    result[len(events) + used :] = extra[used:]
    return result
