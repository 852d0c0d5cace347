"""Resolved events put in time order, a part at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.base.column_space import NewArray
from pagealloc_model.base.filling_array import FillingArray
from pagealloc_model.base.working_arrays import parts

_FEW_SHIFT = 5
"""Extra events that are put one by one between the others: one of 32."""


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
    events: np.ndarray, extra: np.ndarray, ranks: np.ndarray, new_array: NewArray
) -> np.ndarray:
    """Events and extra ones in time order; equal times keep the order that ranks give.

    Args:
        events: `layout.EVENT` records in time order.
        extra: more of them in any order; of equal times, the earlier in `extra` comes first.
        ranks: int64, how many of the `events` of its time, and of those before, precede each.
        new_array: makes the result, and what is as long as `extra`.
    """
    if not len(extra):
        return events
    extra, places = _placed(events, extra, ranks, new_array)
    result = new_array(len(events) + len(extra), events.dtype)
    _spread(events, extra, places, result)
    return result


def merged_in_place(
    events: np.ndarray,
    held: FillingArray,
    extra: np.ndarray,
    ranks: np.ndarray,
    new_array: NewArray,
) -> np.ndarray:
    """As `merged`; the events move up in what they lie in, and none of it is needed twice.

    Args:
        events: the first of those in `held`.
        held: what they lie in.
        extra: as of `merged`.
        ranks: likewise.
        new_array: makes what is as long as `extra`.
    """
    extra, places = _placed(events, extra, ranks, new_array)
    rows = len(events) + len(extra)
    result = held.need(rows)[:rows]
    _spread(result[: len(events)], extra, places, result)
    return result


def _placed(
    events: np.ndarray, extra: np.ndarray, ranks: np.ndarray, new_array: NewArray
) -> tuple[np.ndarray, np.ndarray]:
    """Extra events in their order, and how many of the events stand before each (int64)."""
    by_time = np.argsort(extra["time_ns"], kind="stable")
    extra_ns = _taken(extra["time_ns"], by_time, new_array)
    extra, places = (_taken(each, by_time, new_array) for each in (extra, ranks))
    # Of the events of its time: how many precede the first, and the last.
    first, last = new_array(len(extra), np.int64), new_array(len(extra), np.int64)
    begun = ended = 0
    for part in parts(len(events)):
        times = np.ascontiguousarray(events["time_ns"][part])
        to_begin = slice(begun, int(np.searchsorted(extra_ns, times[-1], side="right")))
        to_end = slice(ended, int(np.searchsorted(extra_ns, times[-1])))
        first[to_begin] = np.searchsorted(times, extra_ns[to_begin]) + part.start
        last[to_end] = np.searchsorted(times, extra_ns[to_end], side="right") + part.start
        begun, ended = to_begin.stop, to_end.stop
    first[begun:], last[ended:] = len(events), len(events)
    in_order = True
    for part in parts(len(extra)):
        np.clip(places[part], first[part], last[part], out=places[part])
        begin = max(part.start - 1, 0)
        in_order &= bool((np.diff(places[begin : part.stop]) >= 0).all())
    if not in_order:
        by_place = np.argsort(places, kind="stable")
        extra, places = (_taken(each, by_place, new_array) for each in (extra, places))
    return extra, places


def _spread(events: np.ndarray, extra: np.ndarray, places: np.ndarray, result: np.ndarray) -> None:
    """Put events and extra ones into the result, which events may lie in; the last ones first."""
    end = len(extra)
    for part in reversed(list(parts(len(events)))):
        begin = int(np.searchsorted(places, part.start))
        # Those that stand before the part's first event but behind the one before it are its own.
        within = places[begin:end] - part.start
        together = events[part].copy()
        if len(within) < len(together) >> _FEW_SHIFT:
            _put_between(together, extra[begin:end], within, result[part.start + begin :])
        else:
            merged_part = np.insert(together, within, extra[begin:end])
            result[part.start + begin : part.stop + end] = merged_part
        end = begin
    result[:end] = extra[:end]


def _put_between(
    together: np.ndarray, extra: np.ndarray, within: np.ndarray, result: np.ndarray
) -> None:
    """Put a part's events and the few extra ones between them to the beginning of a result."""
    done = 0
    for number, place in enumerate(within.tolist()):
        result[done + number : place + number] = together[done:place]
        done = place
    rest = len(together) - done
    result[done + len(within) : done + len(within) + rest] = together[done:]
    result[within + np.arange(len(within))] = extra


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
