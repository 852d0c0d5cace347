"""Interrupts that come while a refill or a drain holds a list's lock, as events (S4.10, T10.13)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.working_arrays import parts

_OF_TASKS = (at.ALLOC, at.FREE, at.RECORDED_FAILURE)


def take_interrupted_holds(events: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Take the marks of interrupts off resolved events, and make events of them.

    Args:
        events: `layout.EVENT` records in time order; their CONTEXT_BITS are cleared.
        hidden: those of hidden allocations, which have the bits of a free; likewise.

    Returns:
        BEGIN_REQUEST and HOLD_DRAINED events in time order, each to stand before the interrupt's
        first event; int64, how many of `events` stand before that.
    """
    marks = np.uint32(at.AFTER_FREE | at.BEFORE_REQUEST)
    found = [
        part.start + np.flatnonzero(events["bits"][part] & marks) for part in parts(len(events))
    ]
    places = _first_of_rows(np.concatenate([np.zeros(0, np.int64), *found]), events)
    holds = np.zeros(len(places), at.EVENT)
    holds["time_ns"] = events["time_ns"][places]
    holds["cpu"] = events["cpu"][places]
    holds["object"] = -1
    holds["operation"] = at.HOLD_DRAINED
    holds["bits"] = at.INTERRUPTS_HOLDER
    for cpu in np.unique(holds["cpu"]):
        _fill_requests(holds, places, events, int(cpu))
    keep = np.uint32(~at.CONTEXT_BITS & 0xFFFFFFFF)
    for each in (events, hidden):
        for part in parts(len(each)):
            each["bits"][part] &= keep
    return holds, places


def _first_of_rows(places: np.ndarray, events: np.ndarray) -> np.ndarray:
    """Return those places whose event is the first of its row: a free may become several."""
    cpu = events["cpu"][places]
    goes_on = np.zeros(len(places), bool)
    goes_on[1:] = (np.diff(places) == 1) & (cpu[1:] == cpu[:-1])
    return places[~goes_on]


def _fill_requests(holds: np.ndarray, places: np.ndarray, events: np.ndarray, cpu: int) -> None:
    """Give the holds of one CPU that precede a request that request."""
    own = holds["cpu"] == cpu
    own &= events["bits"][places] & np.uint32(at.BEFORE_REQUEST) != 0
    before = [
        part.start
        + np.flatnonzero(
            (events["cpu"][part] == cpu)
            & (events["bits"][part] & np.uint32(at.IN_INTERRUPT) == 0)
            & np.isin(events["operation"][part], _OF_TASKS)
        )
        for part in parts(len(events))
    ]
    of_task = np.concatenate([np.zeros(0, np.int64), *before])
    following = of_task[np.searchsorted(of_task, places[own])]
    for name in ("order", "migratetype", "zone"):
        holds[name][own] = events[name][following]
    bits = events["bits"][following] & np.uint32(~at.CONTEXT_BITS & 0xFFFFFFFF)
    holds["bits"][own] = bits & np.uint32(~at.INTERRUPTS_HOLDER & 0xFFFFFFFF)
    holds["operation"][own] = at.BEGIN_REQUEST
