"""Interrupts that come while a refill or a drain holds a list's lock, as events (S4.10, T10.13)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.column_space import NewArray

_REQUESTS = (at.ALLOC, at.RECORDED_FAILURE)
"""What a request becomes, after the frees of what was live where it was served (T10.3)."""
_TOGETHER = 1 << 13
_NEAR = 64
"""Events behind a mark that are looked at one after the other."""

MARK = np.dtype([("place", np.int64), ("bits", np.uint32)], align=True)
"""An event's place among the others and its CONTEXT_BITS, if it has any."""


def interrupted_holds(
    events: np.ndarray, marks: np.ndarray, new_array: NewArray
) -> tuple[np.ndarray, np.ndarray]:
    """Make events of the marks of interrupts.

    Args:
        events: `layout.EVENT` records in time order, without their marks.
        marks: `MARK` records, ascending.
        new_array: makes the result.

    Returns:
        BEGIN_REQUEST and HOLD_DRAINED events in time order, each to stand before the interrupt's
        first event; int64, how many of `events` stand before that.
    """
    count = sum(len(_first_of_rows(marks, part, events)) for part in _near(len(marks)))
    places, holds = new_array(count, np.int64), new_array(count, at.EVENT)
    end = 0
    for part in _near(len(marks)):
        first = _first_of_rows(marks, part, events)
        begin, end = end, end + len(first)
        places[begin:end] = marks["place"][first]
        holds[begin:end] = _holds(events, marks, first)
    return holds, places


def _near(marks: int) -> Iterator[slice]:
    """Slices of so few marks that the events about them stay in memory meanwhile."""
    for begin in range(0, marks, _TOGETHER):
        yield slice(begin, min(begin + _TOGETHER, marks))


def _first_of_rows(marks: np.ndarray, part: slice, events: np.ndarray) -> np.ndarray:
    """Numbers of a part's marks of holds: of a row that became several events the first one's."""
    begin = max(part.start - 1, 0)
    own = marks[begin : part.stop]
    is_hold = own["bits"] & np.uint32(at.AFTER_FREE | at.BEFORE_REQUEST) != 0
    cpu = events["cpu"][own["place"]]
    goes_on = is_hold[1:] & is_hold[:-1] & (cpu[1:] == cpu[:-1]) & (np.diff(own["place"]) == 1)
    is_hold[1:] &= ~goes_on
    is_hold[: part.start - begin] = False
    return np.flatnonzero(is_hold) + begin


def _holds(events: np.ndarray, marks: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The events of some marks of holds; those that precede a request have that request."""
    places = marks["place"][first]
    holds = np.zeros(len(first), at.EVENT)
    holds["time_ns"] = events["time_ns"][places]
    holds["cpu"] = events["cpu"][places]
    holds["object"] = -1
    holds["operation"] = at.HOLD_DRAINED
    holds["bits"] = at.INTERRUPTS_HOLDER
    own = np.flatnonzero(marks["bits"][first] & np.uint32(at.BEFORE_REQUEST))
    following = _next_request(events, marks, places[own])
    for name in ("order", "migratetype", "zone"):
        holds[name][own] = events[name][following]
    bits = events["bits"][following]
    holds["bits"][own] = bits & np.uint32(~at.INTERRUPTS_HOLDER & 0xFFFFFFFF)
    holds["operation"][own] = at.BEGIN_REQUEST
    return holds


def _next_request(events: np.ndarray, marks: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the place of the next request on each one's CPU that is not an interrupt's (int64)."""
    found = np.full(len(places), -1, np.int64)
    cpus = events["cpu"][places]
    waiting = np.arange(len(places))
    for step in range(_NEAR):
        if not len(waiting):
            break
        near = places[waiting] + step
        waiting, near = waiting[near < len(events)], near[near < len(events)]
        is_next = _are_requests(events, marks, near, cpus[waiting])
        found[waiting[is_next]] = near[is_next]
        waiting = waiting[~is_next]
    for number in waiting.tolist():
        begin, step = int(places[number]) + _NEAR, _NEAR
        while found[number] < 0 and begin < len(events):
            near = np.arange(begin, min(begin + step, len(events)))
            is_next = _are_requests(events, marks, near, cpus[number])
            if is_next.any():
                found[number] = near[np.argmax(is_next)]
            begin, step = begin + step, min(2 * step, 1 << 16)
    return found


def _are_requests(
    events: np.ndarray, marks: np.ndarray, places: np.ndarray, cpus: np.ndarray | int
) -> np.ndarray:
    """Return whether events are requests on CPUs, and not an interrupt's (bool)."""
    is_one = (events["cpu"][places] == cpus) & np.isin(events["operation"][places], _REQUESTS)
    own = places[is_one]
    mark = np.minimum(np.searchsorted(marks["place"], own), max(len(marks) - 1, 0))
    in_interrupt = (marks["place"][mark] == own) & (
        marks["bits"][mark] & np.uint32(at.IN_INTERRUPT) != 0
    )
    is_one[is_one] = ~in_interrupt
    return is_one
