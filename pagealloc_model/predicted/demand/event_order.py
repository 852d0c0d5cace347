"""Resolved events put in time order, a part at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.base.column_space import NewArray
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


def split_hidden(events: np.ndarray, new_array: NewArray) -> tuple[np.ndarray, HiddenAllocations]:
    """Take the hidden allocations, which alone are not in time order, out of resolved events.

    Args:
        events: as `objects.resolve_objects` makes them, each hidden allocation just before its
            free; the others move up in place.
        new_array: makes the arrays of hidden allocations.

    Returns:
        The others, and the hidden allocations.
    """
    words = moves.words_of(events)
    count = moves.count_hidden(words)
    hidden = HiddenAllocations(
        events=new_array(count, events.dtype),
        ranks=new_array(count, np.int64),
        freed_ns=new_array(count, np.int64),
    )
    moves.take_hidden(words, moves.words_of(hidden.events), hidden.ranks, hidden.freed_ns)
    return events[: len(events) - count], hidden


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
    by_time = np.argsort(extra["time_ns"], kind="stable")
    extra_ns = _taken(extra["time_ns"], by_time, new_array)
    extra, places = (_taken(each, by_time, new_array) for each in (extra, ranks))
    result = new_array(len(events) + len(extra), events.dtype)
    words, extra_words = moves.words_of(events), moves.words_of(extra)
    moves.find_places(words, extra_ns, places)
    by_place = np.argsort(places, kind="stable")
    moves.merge_events(words, extra_words, by_place, places, moves.words_of(result))
    return result


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
