"""Interrupts that come while a refill or a drain holds a list's lock, as events (S4.10, T10.13)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.column_space import NewArray, in_memory
from pagealloc_model.base.working_arrays import parts

_OF_TASKS = (at.ALLOC, at.FREE, at.RECORDED_FAILURE)
_PLACE_BITS = 40


def take_interrupted_holds(
    events: np.ndarray, hidden: np.ndarray, new_array: NewArray = in_memory
) -> tuple[np.ndarray, np.ndarray]:
    """Take the marks of interrupts off resolved events, and make events of them.

    Args:
        events: `layout.EVENT` records in time order; their CONTEXT_BITS are cleared.
        hidden: those of hidden allocations, which have the bits of a free; likewise.
        new_array: makes the result.

    Returns:
        BEGIN_REQUEST and HOLD_DRAINED events in time order, each to stand before the interrupt's
        first event; int64, how many of `events` stand before that.
    """
    count = sum(len(_marked(events, part)) for part in parts(len(events)))
    places, holds = new_array(count, np.int64), new_array(count, at.EVENT)
    end = 0
    for part in parts(len(events)):
        found = _marked(events, part)
        begin, end = end, end + len(found)
        places[begin:end] = found
        own = np.zeros(len(found), at.EVENT)
        own["time_ns"] = events["time_ns"][found]
        own["cpu"] = events["cpu"][found]
        own["object"] = -1
        own["operation"] = at.HOLD_DRAINED
        own["bits"] = at.INTERRUPTS_HOLDER
        holds[begin:end] = own
    _fill_requests(holds, places, events)
    keep = np.uint32(~at.CONTEXT_BITS & 0xFFFFFFFF)
    for each in (events, hidden):
        for part in parts(len(each)):
            each["bits"][part] &= keep
    return holds, places


def _marked(events: np.ndarray, part: slice) -> np.ndarray:
    """Places of a part's marks: of a row that became several events the first one's."""
    marks = np.uint32(at.AFTER_FREE | at.BEFORE_REQUEST)
    begin = max(part.start - 1, 0)
    bits, cpu = events["bits"][begin : part.stop], events["cpu"][begin : part.stop]
    is_marked = bits & marks != 0
    goes_on = is_marked[1:] & is_marked[:-1] & (cpu[1:] == cpu[:-1])
    first = np.flatnonzero(is_marked & ~np.append(False, goes_on)) + begin
    return first[first >= part.start]


def _fill_requests(holds: np.ndarray, places: np.ndarray, events: np.ndarray) -> None:
    """Give the holds that precede a request the next one of their CPU; the last part first."""
    following = np.full(1 << 15, -1, np.int64)
    for part in reversed(list(parts(len(events)))):
        bits, cpu = events["bits"][part], events["cpu"][part]
        first, last = np.searchsorted(places, [part.start, part.stop])
        of_task = np.flatnonzero(
            (bits & np.uint32(at.IN_INTERRUPT) == 0) & np.isin(events["operation"][part], _OF_TASKS)
        )
        of_task = of_task[np.argsort(cpu[of_task], kind="stable")]
        keys = (cpu[of_task].astype(np.int64) << _PLACE_BITS) + of_task
        before = places[first:last] - part.start
        is_before = bits[before] & np.uint32(at.BEFORE_REQUEST) != 0
        own, before = np.flatnonzero(is_before) + first, before[is_before]
        if len(own):
            place = np.searchsorted(keys, (cpu[before].astype(np.int64) << _PLACE_BITS) + before)
            near = np.append(of_task, 0)[place]
            is_near = (place < len(keys)) & (cpu[near] == cpu[before])
            _take_request(
                holds, own, events, np.where(is_near, near + part.start, following[cpu[before]])
            )
        begins = np.flatnonzero(np.diff(cpu[of_task], prepend=-1))
        following[cpu[of_task[begins]]] = of_task[begins] + part.start


def _take_request(
    holds: np.ndarray, own: np.ndarray, events: np.ndarray, following: np.ndarray
) -> None:
    """Give some holds the requests in events that follow them."""
    for name in ("order", "migratetype", "zone"):
        holds[name][own] = events[name][following]
    bits = events["bits"][following] & np.uint32(~at.CONTEXT_BITS & 0xFFFFFFFF)
    holds["bits"][own] = bits & np.uint32(~at.INTERRUPTS_HOLDER & 0xFFFFFFFF)
    holds["operation"][own] = at.BEGIN_REQUEST
