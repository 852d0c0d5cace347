"""Recorded allocations and frees to objects: which free belongs to which allocation (T10)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.jit import entry, inner

ROW = np.dtype(
    [
        ("time_ns", np.int64),
        ("pfn", np.int32),
        ("bits", np.uint32),
        ("cpu", np.int16),
        ("is_free", np.int8),
        ("order", np.int8),
        ("migratetype", np.int8),
        ("zone", np.int8),
    ],
    align=True,
)
"""One mm_page_alloc or mm_page_free; `pfn` -1 is a failed allocation."""

OBJECT = np.dtype([("pfn", np.int32), ("order", np.int8), ("kind", np.int8), ("fresh", np.int8)])
"""One allocation: recorded `pfn` and `order`; `kind` as below; `fresh`: an allocation of pages
that no earlier event touched, hence free when the recording began."""

RECORDED, AT_START, HIDDEN = 0, 1, 2

COUNT_EVENTS, COUNT_OBJECTS, COUNT_MISSED_FREE, COUNT_SPLIT_FREE, COUNT_HIDDEN_ALLOC = range(5)
COUNTS = 5


@inner
def emit(
    events: np.ndarray,
    counts: np.ndarray,
    rows: np.ndarray,
    row: int,
    time_ns: int,
    operation: int,
    number: int,
    offset: int,
    order: int,
) -> None:
    """Append a resolved event with a row's CPU and request."""
    position = counts[COUNT_EVENTS]
    events[position]["time_ns"] = time_ns
    events[position]["object"] = number
    events[position]["offset"] = offset
    events[position]["bits"] = rows[row]["bits"]
    events[position]["cpu"] = rows[row]["cpu"]
    events[position]["operation"] = operation
    events[position]["order"] = order
    events[position]["migratetype"] = rows[row]["migratetype"]
    events[position]["zone"] = rows[row]["zone"]
    counts[COUNT_EVENTS] = position + 1


@inner
def add_object(
    objects: np.ndarray, counts: np.ndarray, pfn: int, order: int, kind: int, fresh: int
) -> int:
    """Append an object; returns its number."""
    number = counts[COUNT_OBJECTS]
    objects[number]["pfn"] = pfn
    objects[number]["order"] = order
    objects[number]["kind"] = kind
    objects[number]["fresh"] = fresh
    counts[COUNT_OBJECTS] = number + 1
    return number


@inner
def resolve_free(
    rows: np.ndarray,
    row: int,
    pfn: int,
    order: int,
    owner: np.ndarray,
    last_free: np.ndarray,
    events: np.ndarray,
    objects: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Give one freed range, all of it live in one object or all of it in none, its events."""
    now = int(rows[row]["time_ns"])
    number = int(owner[pfn]) - 1
    if number < 0:
        if last_free[pfn] == 0:
            number = add_object(objects, counts, pfn, order, AT_START, 0)
        else:
            number = add_object(objects, counts, pfn, order, HIDDEN, 0)
            freed = int(rows[int(last_free[pfn]) - 1]["time_ns"])
            midpoint = freed + (now - freed) // 2
            emit(events, counts, rows, row, midpoint, at.HIDDEN_ALLOC, number, 0, order)
            counts[COUNT_HIDDEN_ALLOC] += 1
    offset = pfn - int(objects[number]["pfn"])
    if order != int(objects[number]["order"]):
        counts[COUNT_SPLIT_FREE] += 1
    emit(events, counts, rows, row, now, at.FREE, number, offset, order)
    for page in range(pfn, pfn + (1 << order)):
        owner[page] = 0
        last_free[page] = row + 1


@inner
def is_one_range(owner: np.ndarray, last_free: np.ndarray, pfn: int, order: int) -> bool:
    """Whether all pages of a range belong to one object, or all to none with one past."""
    for page in range(pfn + 1, pfn + (1 << order)):
        if owner[page] != owner[pfn]:
            return False
        if owner[pfn] == 0 and (last_free[page] == 0) != (last_free[pfn] == 0):
            return False
    return True


@inner
def resolve_allocation(
    rows: np.ndarray,
    row: int,
    owner: np.ndarray,
    last_free: np.ndarray,
    events: np.ndarray,
    objects: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Give one successful allocation its object; what was still live there was freed unseen."""
    pfn = int(rows[row]["pfn"])
    order = int(rows[row]["order"])
    now = int(rows[row]["time_ns"])
    fresh = 1
    for page in range(pfn, pfn + (1 << order)):
        live = int(owner[page]) - 1
        if live >= 0:
            counts[COUNT_MISSED_FREE] += 1
            emit(events, counts, rows, row, now, at.FREE, live, page - int(objects[live]["pfn"]), 0)
        if live >= 0 or last_free[page] != 0:
            fresh = 0
    number = add_object(objects, counts, pfn, order, RECORDED, fresh)
    emit(events, counts, rows, row, now, at.ALLOC, number, 0, order)
    for page in range(pfn, pfn + (1 << order)):
        owner[page] = number + 1


@entry
def resolve_objects(
    rows: np.ndarray,
    owner: np.ndarray,
    last_free: np.ndarray,
    events: np.ndarray,
    objects: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Turn recorded rows into events on objects (T10.1 to T10.4).

    Args:
        rows: `ROW` records in time order, page frames inside the machine.
        owner: int32 zeros, one per page frame.
        last_free: int32 zeros, one per page frame.
        events: room for `layout.EVENT` records; hidden allocations are out of time order.
        objects: room for `OBJECT` records.
        counts: int64 zeros, COUNTS long; filled.

    Returns:
        Rows resolved; fewer than given if `events` or `objects` ran out of room.
    """
    for row in range(len(rows)):
        pfn = int(rows[row]["pfn"])
        order = int(rows[row]["order"])
        room = (2 << order) + 2
        if counts[COUNT_EVENTS] + room > len(events) or counts[COUNT_OBJECTS] + room > len(objects):
            return row
        if int(rows[row]["is_free"]) == 0:
            if pfn < 0:
                now = int(rows[row]["time_ns"])
                emit(events, counts, rows, row, now, at.RECORDED_FAILURE, -1, 0, order)
            else:
                resolve_allocation(rows, row, owner, last_free, events, objects, counts)
        elif is_one_range(owner, last_free, pfn, order):
            resolve_free(rows, row, pfn, order, owner, last_free, events, objects, counts)
        else:
            for page in range(pfn, pfn + (1 << order)):
                resolve_free(rows, row, page, 0, owner, last_free, events, objects, counts)
    return len(rows)
