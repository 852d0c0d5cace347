"""Recorded allocations and frees to objects: which free belongs to which allocation (T10)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.jit import entry, inner

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
        ("failed_charge", np.int8),
        ("task", np.int32),
        ("task_request", np.int32),
    ],
    align=True,
)
"""One mm_page_alloc or mm_page_free; `pfn` -1 is a failed allocation. `failed_charge`: the free of
pages whose allocation then failed, as their group could not be charged (T2). `task`: code of task
and CPU; `task_request`: that task's last earlier row that is an allocation, -1 if none."""

OBJECT = np.dtype([("pfn", np.int32), ("order", np.int8), ("kind", np.int8), ("fresh", np.int8)])
"""One allocation: recorded `pfn` and `order`; `kind` as below; `fresh`: an allocation of pages
that no earlier event touched, hence free when the recording began."""

RECORDED, AT_START, HIDDEN, GROWN, TRIED = 0, 1, 2, 3, 4
"""Seen allocated; live at the start; allocated unseen; memory that the machine got later; a request
that failed, which an elastic replay tries."""

COUNT_EVENTS, COUNT_OBJECTS = 0, 1
COUNT_MISSED_FREE, COUNT_SPLIT_FREE, COUNT_HIDDEN_ALLOC = 2, 3, 4
COUNT_REPEATED_FREE, COUNT_FAILED_CHARGE = 5, 6
COUNTS = 7


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
def latest_free(last_free: np.ndarray, pfn: int, order: int) -> int:
    """One past the last row that freed a page of a range; 0 if none did."""
    latest = 0
    for page in range(pfn, pfn + (1 << order)):
        latest = max(latest, int(last_free[page]))
    return latest


@inner
def is_repeated(
    rows: np.ndarray, row: int, last_free: np.ndarray, pfn: int, order: int, freed: int
) -> bool:
    """Whether a task frees pages again that it freed, having asked for nothing in between.

    So compaction puts an unused migration target back on its own list: the page has left the
    allocator once and is freed to it once, whatever the number of events (T3).
    """
    if freed == 0 or rows[row]["task"] != rows[freed - 1]["task"]:
        return False
    earliest = freed
    for page in range(pfn, pfn + (1 << order)):
        earliest = min(earliest, int(last_free[page]))
    return earliest == freed and int(rows[row]["task_request"]) < freed - 1


@inner
def add_unseen(
    rows: np.ndarray,
    row: int,
    pfn: int,
    order: int,
    freed: int,
    events: np.ndarray,
    objects: np.ndarray,
    counts: np.ndarray,
) -> int:
    """The object of pages that are freed though no allocation of them was seen; its number.

    Pages never seen before were allocated at the start. Otherwise a hidden allocation lies between
    the last free of any of them and now: at the midpoint, or just now if its charge failed.
    """
    now = int(rows[row]["time_ns"])
    charged = int(rows[row]["failed_charge"]) == 1
    if freed == 0 and not charged:
        return add_object(objects, counts, pfn, order, AT_START, 0)
    number = add_object(objects, counts, pfn, order, HIDDEN, 0)
    time_ns = now
    if charged:
        counts[COUNT_FAILED_CHARGE] += 1
    else:
        before = int(rows[freed - 1]["time_ns"])
        time_ns = before + (now - before) // 2
        counts[COUNT_HIDDEN_ALLOC] += 1
    emit(events, counts, rows, row, time_ns, at.HIDDEN_ALLOC, number, 0, order)
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
        freed = latest_free(last_free, pfn, order)
        if is_repeated(rows, row, last_free, pfn, order, freed):
            counts[COUNT_REPEATED_FREE] += 1
            return
        number = add_unseen(rows, row, pfn, order, freed, events, objects, counts)
    offset = pfn - int(objects[number]["pfn"])
    if order != int(objects[number]["order"]):
        counts[COUNT_SPLIT_FREE] += 1
    emit(events, counts, rows, row, now, at.FREE, number, offset, order)
    for page in range(pfn, pfn + (1 << order)):
        owner[page] = 0
        last_free[page] = row + 1


@inner
def piece_order(owner: np.ndarray, pfn: int, end: int) -> int:
    """Order of the largest aligned piece from `pfn` on that has one owner and ends by `end`."""
    order = 0
    while pfn & ((2 << order) - 1) == 0 and pfn + (2 << order) <= end:
        for page in range(pfn + (1 << order), pfn + (2 << order)):
            if owner[page] != owner[pfn]:
                return order
        order += 1
    return order


@inner
def close_object(
    rows: np.ndarray,
    row: int,
    number: int,
    owner: np.ndarray,
    last_free: np.ndarray,
    events: np.ndarray,
    objects: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Free what is left of an object whose free was missed, in the largest pieces (T10.3)."""
    now = int(rows[row]["time_ns"])
    first = int(objects[number]["pfn"])
    end = first + (1 << int(objects[number]["order"]))
    position = first
    while position < end:
        order = piece_order(owner, position, end)
        if int(owner[position]) - 1 == number:
            counts[COUNT_MISSED_FREE] += 1 << order
            emit(events, counts, rows, row, now, at.FREE, number, position - first, order)
            for page in range(position, position + (1 << order)):
                owner[page] = 0
                last_free[page] = row + 1
        position += 1 << order


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
            close_object(rows, row, live, owner, last_free, events, objects, counts)
        if last_free[page] != 0:
            fresh = 0
    number = add_object(objects, counts, pfn, order, RECORDED, fresh)
    emit(events, counts, rows, row, now, at.ALLOC, number, 0, order)
    for page in range(pfn, pfn + (1 << order)):
        owner[page] = number + 1


@inner
def room_needed(rows: np.ndarray, row: int, owner: np.ndarray, objects: np.ndarray) -> int:
    """Events that one row makes at most: its pieces, or those of the objects it closes."""
    order = int(rows[row]["order"])
    needed = (2 << order) + 2
    if int(rows[row]["is_free"]) == 0 and int(rows[row]["pfn"]) >= 0:
        closed = -1
        for page in range(int(rows[row]["pfn"]), int(rows[row]["pfn"]) + (1 << order)):
            live = int(owner[page]) - 1
            if live >= 0 and live != closed:
                needed += 1 << int(objects[live]["order"])
                closed = live
    return needed


@entry
def resolve_objects(
    rows: np.ndarray,
    low: int,
    high: int,
    owner: np.ndarray,
    last_free: np.ndarray,
    events: np.ndarray,
    objects: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Turn recorded rows `low` to `high` into events on objects (T10.1 to T10.4).

    Args:
        rows: `ROW` records in time order, page frames inside the machine.
        low: first row; all before it were resolved with the same arrays.
        high: one past the last row.
        owner: int32 zeros at first, one per page frame.
        last_free: int32 zeros at first, one per page frame.
        events: room for `layout.EVENT` records; a hidden allocation, which may be earlier than the
            event before it, is followed by its free.
        objects: room for `OBJECT` records.
        counts: int64 zeros at first, COUNTS long; filled.

    Returns:
        The row to go on with: `high`, or less if `events` or `objects` ran out of room.
    """
    for row in range(low, high):
        pfn = int(rows[row]["pfn"])
        end = pfn + (1 << int(rows[row]["order"]))
        room = room_needed(rows, row, owner, objects)
        if counts[COUNT_EVENTS] + room > len(events) or counts[COUNT_OBJECTS] + room > len(objects):
            return row
        if int(rows[row]["is_free"]) == 0 and pfn < 0:
            now = int(rows[row]["time_ns"])
            order = int(rows[row]["order"])
            emit(events, counts, rows, row, now, at.RECORDED_FAILURE, -1, 0, order)
        elif int(rows[row]["is_free"]) == 0:
            resolve_allocation(rows, row, owner, last_free, events, objects, counts)
        else:
            while pfn < end:
                order = piece_order(owner, pfn, end)
                resolve_free(rows, row, pfn, order, owner, last_free, events, objects, counts)
                pfn += 1 << order
    return high
