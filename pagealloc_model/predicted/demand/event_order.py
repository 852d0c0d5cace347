"""Resolved events put in time order, a part at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.base.column_space import NewArray
from pagealloc_model.base.filling_array import FillingArray
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.demand import event_moves as moves


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
    extra, by_place, places = _placed(events, extra, ranks, new_array)
    result = new_array(len(events) + len(extra), events.dtype)
    words = moves.words_of(result)
    moves.merge_events(moves.words_of(events), moves.words_of(extra), by_place, places, words)
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
    extra, by_place, places = _placed(events, extra, ranks, new_array)
    rows = len(events) + len(extra)
    words = moves.words_of(held.need(rows)[:rows])
    moves.put_between(words, len(events), moves.words_of(extra), by_place, places)
    return held.room[:rows]


def _placed(
    events: np.ndarray, extra: np.ndarray, ranks: np.ndarray, new_array: NewArray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Extra events by time, their numbers by place, and how many events stand before each."""
    by_time = np.argsort(extra["time_ns"], kind="stable")
    extra_ns = _taken(extra["time_ns"], by_time, new_array)
    extra, places = (_taken(each, by_time, new_array) for each in (extra, ranks))
    moves.find_places(moves.words_of(events), extra_ns, places)
    return extra, np.argsort(places, kind="stable"), places


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
