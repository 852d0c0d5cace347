"""Events made, and put in time order, four words each, a part at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.arrays import Column, NewArray, parts
from pagealloc_model.base.jit import entry

WORDS = at.EVENT.itemsize // 8


def new_events(operation: int, count: int, **columns: npt.ArrayLike) -> np.ndarray:
    """`layout.EVENT` records of one operation, about no object unless a column says so."""
    events = np.zeros(count, at.EVENT)
    events["operation"], events["object"] = operation, -1
    for name, values in columns.items():
        events[name] = values
    return events


def rows_where(rows: int, is_wanted: Callable[[slice], np.ndarray]) -> np.ndarray:
    """int64, ascending: rows at which a mask, made a part at a time, is True."""
    wanted = [part.start + np.flatnonzero(is_wanted(part)) for part in parts(rows)]
    return np.concatenate([np.zeros(0, np.int64), *wanted])


def joined(first: np.ndarray, second: np.ndarray, new_array: NewArray) -> np.ndarray:
    """Two arrays of one type, one behind the other."""
    result = new_array(len(first) + len(second), first.dtype)
    result[: len(first)] = first
    result[len(first) :] = second
    return result


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

    def where(self, stays: np.ndarray, new_array: NewArray) -> HiddenAllocations:
        """Those of which a mask is True."""
        count = int(np.count_nonzero(stays))
        columns = {}
        for name in ("events", "ranks", "freed_ns"):
            column = getattr(self, name)
            left, end = new_array(count, column.dtype), 0
            for part in parts(len(stays)):
                own = column[part][stays[part]]
                left[end : end + len(own)] = own
                end += len(own)
            columns[name] = left
        return HiddenAllocations(**columns)


@entry
def _find_places(words: np.ndarray, count: int, time_ns: np.ndarray, ranks: np.ndarray) -> None:
    """Find how many of the first `count` events precede each extra one; these are by time."""
    first = 0
    for extra in range(len(time_ns)):
        while first < count and words[first, 0] < time_ns[extra]:
            first += 1
        last = first
        while last < ranks[extra] and last < count and words[last, 0] == time_ns[extra]:
            last += 1
        ranks[extra] = last


@entry
def _put_between(
    words: np.ndarray, count: int, extra: np.ndarray, by_place: np.ndarray, places: np.ndarray
) -> None:
    """Put extra events among the first `count`, which move up in place."""
    written = len(words)
    row = count
    for number in range(len(by_place) - 1, -1, -1):
        place = places[by_place[number]]
        while row > place:
            row -= 1
            written -= 1
            for word in range(WORDS):
                words[written, word] = words[row, word]
        written -= 1
        for word in range(WORDS):
            words[written, word] = extra[by_place[number], word]


def merged(
    events: np.ndarray,
    extra: np.ndarray,
    ranks: np.ndarray,
    new_array: NewArray,
    held: Column | None = None,
) -> np.ndarray:
    """Events and extra ones in time order; equal times keep the order that ranks give.

    Args:
        events: `layout.EVENT` records in time order.
        extra: more of them in any order; of equal times, the earlier in `extra` comes first.
        ranks: int64, how many of the `events` of its time, and of those before, precede each.
        new_array: makes the result, and what is as long as `extra`.
        held: what events lie in, the first of it; they then move up there, else they are copied.
    """
    count = len(events)
    if held is None:
        together = new_array(count + len(extra), events.dtype)
        together[:count] = events
    else:
        held.rows = count
        together = held.room(len(extra))
    by_time = np.argsort(extra["time_ns"], kind="stable")

    def in_order(values: np.ndarray) -> np.ndarray:
        result = new_array(len(by_time), values.dtype)
        for part in parts(len(by_time)):
            result[part] = values[by_time[part]]
        return result

    extra_ns, extra, places = (in_order(each) for each in (extra["time_ns"], extra, ranks))
    words, extra_words = (each.view(np.int64).reshape(-1, WORDS) for each in (together, extra))
    _find_places(words, count, extra_ns, places)
    _put_between(words, count, extra_words, np.argsort(places, kind="stable"), places)
    return together
