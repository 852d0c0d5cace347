"""Resolved events put in time order, four words each, a part at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.arrays import Column, NewArray, parts
from pagealloc_model.base.jit import entry, inner

WORDS = at.EVENT.itemsize // 8


def _words_of(events: np.ndarray) -> np.ndarray:
    """Return `layout.EVENT` records as int64, shape (events, WORDS)."""
    return events.view(np.int64).reshape(-1, WORDS)


@entry
def _find_places(words: np.ndarray, time_ns: np.ndarray, ranks: np.ndarray) -> None:
    """Find how many of the events precede each extra one."""
    first = 0
    for extra in range(len(time_ns)):
        first = _place_before(words, time_ns[extra], first)
        last = first
        while last < ranks[extra] and last < len(words) and words[last, 0] == time_ns[extra]:
            last += 1
        ranks[extra] = last


@inner
def _place_before(words: np.ndarray, time_ns: int, low: int) -> int:
    """Return the first event, from one on that is none too late, that is not before a time."""
    step = 1
    high = low
    while high < len(words) and words[high, 0] < time_ns:
        low = high + 1
        high += step
        step *= 2
    high = min(high, len(words))
    while low < high:
        middle = (low + high) // 2
        if words[middle, 0] < time_ns:
            low = middle + 1
        else:
            high = middle
    return low


@entry
def _merge_events(
    words: np.ndarray, extra: np.ndarray, by_place: np.ndarray, places: np.ndarray, to: np.ndarray
) -> None:
    """Put extra events among others."""
    written = row = 0
    for number in range(len(by_place) + 1):
        place = places[by_place[number]] if number < len(by_place) else len(words)
        while row < place:
            for word in range(WORDS):
                to[written, word] = words[row, word]
            row += 1
            written += 1
        if number < len(by_place):
            for word in range(WORDS):
                to[written, word] = extra[by_place[number], word]
            written += 1


@entry
def _put_between(
    words: np.ndarray, count: int, extra: np.ndarray, by_place: np.ndarray, places: np.ndarray
) -> None:
    """Put extra events among others, which move up in place."""
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
    words = _words_of(result)
    _merge_events(_words_of(events), _words_of(extra), by_place, places, words)
    return result


def merged_in_place(
    events: np.ndarray,
    held: Column,
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
    held.rows = len(events)
    together = held.room(len(extra))
    _put_between(_words_of(together), len(events), _words_of(extra), by_place, places)
    return together


def _placed(
    events: np.ndarray, extra: np.ndarray, ranks: np.ndarray, new_array: NewArray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Extra events by time, their numbers by place, and how many events stand before each."""
    by_time = np.argsort(extra["time_ns"], kind="stable")
    extra_ns = _taken(extra["time_ns"], by_time, new_array)
    extra, places = (_taken(each, by_time, new_array) for each in (extra, ranks))
    _find_places(_words_of(events), extra_ns, places)
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
