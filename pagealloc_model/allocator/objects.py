"""Recorded allocations and frees to objects, replacements of failures, interrupts (T10)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.jit import entry, inner

BITS_MASK = (1 << 32) - 1

ROW = at.record(
    "int32 row pfn; uint32 bits; int16 cpu; int8 is_free order migratetype zone "
    "failed_charge; int32 pid task_request",
    align=True,
)
"""One mm_page_alloc or mm_page_free: `row` of the trace; `pfn` -1 is a failed allocation.
`failed_charge`: the free of pages whose allocation then failed, as their group could not be charged
(T2). `task_request`, of a free: row of the last earlier allocation by its task on its CPU, -1 if
none."""

LAST_ROW = np.iinfo(np.int32).max - 1
"""Rows of a trace are numbered by int32; one more than the last must be one, too."""

OBJECT = np.dtype([("pfn", np.int32), ("order", np.int8), ("kind", np.int8), ("fresh", np.int8)])
"""One allocation: recorded `pfn` and `order`; `kind` as below; `fresh`: an allocation of pages
that no earlier event touched, hence free when the recording began."""

RECORDED, AT_START, HIDDEN, GROWN, TRIED = 0, 1, 2, 3, 4
"""Seen allocated; live at the start; allocated unseen; memory that the machine got later; a request
that failed, which an elastic replay tries."""

COUNT_EVENTS, COUNT_OBJECTS, COUNT_MISSED_FREE, COUNT_SPLIT_FREE, COUNT_HIDDEN_ALLOC = range(5)
COUNT_REPEATED_FREE, COUNT_FAILED_CHARGE, COUNT_HIDDEN_EVENTS, COUNTS = range(5, 9)

FREED = np.dtype([("time_ns", np.int64), ("row", np.int32)])
"""When a page frame was freed last, and one more than the row of the trace, 0 for never."""
BEFORE_ROWS = -1
"""In the place of that number: the page frame was free before the first row."""


class SeenColumns(NamedTuple):
    """Columns of the trace that rows point into: int64, int32 and int16, read-only."""

    time_ns: np.ndarray
    pid: np.ndarray
    cpu: np.ndarray


class Resolved(NamedTuple):
    """What matching makes.

    Attributes:
        events: room for `layout.EVENT` records in time order.
        hidden: room for those of hidden allocations, by the time of the free that shows each.
        hidden_words: int64, shape (as many, 2): how many of `events` stand before that free, and
            its time.
        objects: room for `OBJECT` records.
        counts: int64 zeros at first, COUNTS long.
    """

    events: np.ndarray
    hidden: np.ndarray
    hidden_words: np.ndarray
    objects: np.ndarray
    counts: np.ndarray


class FramesSeen(NamedTuple):
    """What is known of each page frame: zeros at first, one per frame.

    Attributes:
        owner: int32, one more than the number of the object that the frame is in, 0 for none.
        last_free: `FREED` records.
    """

    owner: np.ndarray
    last_free: np.ndarray


class Row(NamedTuple):
    """One of `ROW` with its time; kernels call it `r`."""

    row: int
    time_ns: int
    pfn: int
    bits: int
    cpu: int
    is_free: bool
    order: int
    migratetype: int
    zone: int
    failed_charge: bool
    pid: int
    task_request: int


@inner
def row_at(rows: np.ndarray, index: int, seen: SeenColumns) -> Row:
    """Return a recorded row."""
    return Row(
        int(rows[index]["row"]),
        int(seen.time_ns[int(rows[index]["row"])]),
        int(rows[index]["pfn"]),
        int(rows[index]["bits"]),
        int(rows[index]["cpu"]),
        int(rows[index]["is_free"]) != 0,
        int(rows[index]["order"]),
        int(rows[index]["migratetype"]),
        int(rows[index]["zone"]),
        int(rows[index]["failed_charge"]) == 1,
        int(rows[index]["pid"]),
        int(rows[index]["task_request"]),
    )


@inner
def fill(
    events: np.ndarray,
    position: int,
    r: Row,
    time_ns: int,
    operation: int,
    number: int,
    offset: int,
    order: int,
) -> None:
    """Fill in an event with a row's CPU and request."""
    events[position]["time_ns"] = time_ns
    events[position]["object"] = number
    events[position]["offset"] = offset
    events[position]["bits"] = r.bits
    events[position]["cpu"] = r.cpu
    events[position]["operation"] = operation
    events[position]["order"] = order
    events[position]["migratetype"] = r.migratetype
    events[position]["zone"] = r.zone


@inner
def emit(made: Resolved, r: Row, operation: int, number: int, offset: int, order: int) -> None:
    """Append a resolved event with a row's CPU and request."""
    position = made.counts[COUNT_EVENTS]
    fill(made.events, position, r, r.time_ns, operation, number, offset, order)
    if operation == at.FREE and (not r.is_free or r.failed_charge):
        # A request's class would tell that reclaim or compaction freed the pages.
        made.events[position]["bits"] = r.bits & ~pr.FREED_BY_RECLAIM & BITS_MASK
    made.counts[COUNT_EVENTS] = position + 1


@inner
def add_object(made: Resolved, pfn: int, order: int, kind: int, fresh: int) -> int:
    """Append an object; returns its number."""
    number = made.counts[COUNT_OBJECTS]
    made.objects[number]["pfn"] = pfn
    made.objects[number]["order"] = order
    made.objects[number]["kind"] = kind
    made.objects[number]["fresh"] = fresh
    made.counts[COUNT_OBJECTS] = number + 1
    return number


@inner
def is_repeated(
    r: Row, seen: SeenColumns, last_free: np.ndarray, pfn: int, order: int, freed: int
) -> bool:
    """Return whether a task frees again pages that it freed.

    It has asked for nothing in between. So compaction puts an unused migration target back on its
    own list: the page has left the allocator once and is freed to it once, whatever the number of
    events (T3).
    """
    # Rows long past are looked at last: they may have to be read from a disk.
    if freed == 0 or r.task_request >= freed - 1:
        return False
    for page in range(pfn, pfn + (1 << order)):
        if int(last_free[page]["row"]) != freed:
            return False
    return r.pid == int(seen.pid[freed - 1]) and r.cpu == int(seen.cpu[freed - 1])


@inner
def add_unseen(r: Row, pfn: int, order: int, freed_ns: int, freed: int, made: Resolved) -> int:
    """Add the object of pages freed without an allocation seen.

    Returns its number. Pages never seen before were allocated at the start. Otherwise a hidden
    allocation lies between the last free of any of them and now: at the midpoint, or just now if
    its charge failed.
    """
    if freed == 0 and not r.failed_charge:
        return add_object(made, pfn, order, AT_START, 0)
    number = add_object(made, pfn, order, HIDDEN, 0)
    time_ns = r.time_ns
    if r.failed_charge:
        made.counts[COUNT_FAILED_CHARGE] += 1
    else:
        time_ns = freed_ns + (r.time_ns - freed_ns) // 2
        made.counts[COUNT_HIDDEN_ALLOC] += 1
    position = made.counts[COUNT_HIDDEN_EVENTS]
    fill(made.hidden, position, r, time_ns, at.HIDDEN_ALLOC, number, 0, order)
    made.hidden_words[position, 0] = made.counts[COUNT_EVENTS]
    made.hidden_words[position, 1] = r.time_ns
    made.counts[COUNT_HIDDEN_EVENTS] = position + 1
    return number


@inner
def emit_free(
    r: Row, number: int, pfn: int, order: int, frames: FramesSeen, made: Resolved
) -> None:
    """Free a piece of an object, and note that the row freed its pages."""
    emit(made, r, at.FREE, number, pfn - int(made.objects[number]["pfn"]), order)
    for page in range(pfn, pfn + (1 << order)):
        frames.owner[page] = 0
        frames.last_free[page]["time_ns"] = r.time_ns
        frames.last_free[page]["row"] = r.row + 1


@inner
def resolve_free(
    r: Row, seen: SeenColumns, pfn: int, order: int, frames: FramesSeen, made: Resolved
) -> None:
    """Give one freed range, all of it of one object or none, its events."""
    number = int(frames.owner[pfn]) - 1
    if number < 0:
        latest = pfn
        for page in range(pfn + 1, pfn + (1 << order)):
            if int(frames.last_free[page]["row"]) > int(frames.last_free[latest]["row"]):
                latest = page
        freed = int(frames.last_free[latest]["row"])
        if is_repeated(r, seen, frames.last_free, pfn, order, freed):
            made.counts[COUNT_REPEATED_FREE] += 1
            return
        freed_ns = int(frames.last_free[latest]["time_ns"])
        number = add_unseen(r, pfn, order, freed_ns, freed, made)
    if order != int(made.objects[number]["order"]):
        made.counts[COUNT_SPLIT_FREE] += 1
    emit_free(r, number, pfn, order, frames, made)


@inner
def piece_order(owner: np.ndarray, pfn: int, end: int) -> int:
    """Return the order of the largest aligned piece at `pfn` of one owner."""
    order = 0
    while pfn & ((2 << order) - 1) == 0 and pfn + (2 << order) <= end:
        for page in range(pfn + (1 << order), pfn + (2 << order)):
            if owner[page] != owner[pfn]:
                return order
        order += 1
    return order


@entry
def resolve_objects(
    rows: np.ndarray, low: int, high: int, seen: SeenColumns, frames: FramesSeen, made: Resolved
) -> int:
    """Turn recorded rows into events on objects (T10.1 to T10.4).

    Args:
        rows: `ROW` records in time order, page frames inside the machine.
        low: first row; all before it were resolved with the same arrays.
        high: one past the last row.
        seen: columns of the trace.
        frames: what is known of page frames, changed.
        made: filled.

    Returns:
        The row to go on with: `high`, or less if `made` ran out of room.
    """
    for index in range(low, high):
        r = row_at(rows, index, seen)
        needed = (2 << r.order) + 2
        closed = -1
        if not r.is_free and r.pfn >= 0:
            for page in range(r.pfn, r.pfn + (1 << r.order)):
                live = int(frames.owner[page]) - 1
                if live >= 0 and live != closed:
                    needed += 1 << int(made.objects[live]["order"])
                    closed = live
        room = needed
        if (
            made.counts[COUNT_EVENTS] + room > len(made.events)
            or made.counts[COUNT_HIDDEN_EVENTS] + room > len(made.hidden)
            or made.counts[COUNT_OBJECTS] + room > len(made.objects)
        ):
            return index
        if r.is_free:
            pfn, end = r.pfn, r.pfn + (1 << r.order)
            while pfn < end:
                order = piece_order(frames.owner, pfn, end)
                resolve_free(r, seen, pfn, order, frames, made)
                pfn += 1 << order
        elif r.pfn < 0:
            emit(made, r, at.RECORDED_FAILURE, -1, 0, r.order)
        else:
            # Give an allocation its object; what lived there was freed unseen.
            fresh = 1
            for page in range(r.pfn, r.pfn + (1 << r.order)):
                live = int(frames.owner[page]) - 1
                if live >= 0:
                    # Free, in large pieces, what is left of an object (T10.3).
                    pfn = int(made.objects[live]["pfn"])
                    end = pfn + (1 << int(made.objects[live]["order"]))
                    while pfn < end:
                        order = piece_order(frames.owner, pfn, end)
                        if int(frames.owner[pfn]) - 1 == live:
                            made.counts[COUNT_MISSED_FREE] += 1 << order
                            emit_free(r, live, pfn, order, frames, made)
                        pfn += 1 << order
                if int(frames.last_free[page]["row"]) != 0:
                    fresh = 0
            number = add_object(made, r.pfn, r.order, RECORDED, fresh)
            emit(made, r, at.ALLOC, number, 0, r.order)
            for page in range(r.pfn, r.pfn + (1 << r.order)):
                frames.owner[page] = number + 1
    return high


REQUEST = at.record("int32 task object; int8 kind order failed attempt", align=True)
"""A recorded request: its task, its object's number (-1: a failure that is not tried), the class of
its pages, its order, whether it failed; which attempt of its fault at a huge page it is."""

ANYWHERE, LOCAL, LOCAL_FIRST = 0, 1, 2
"""Attempts at a huge page: on any node; on the task's own; there with another to come, if in vain
(S8.5)."""

PLACES = at.record("int32 first oldest newest", align=True)
"""Of a task and class: one more than the object of a first attempt in vain, if its last request was
one, else 0; the oldest and newest of the huge pages that wait, in `WAITING`, 0 for none."""
WAITING = at.record("int32 failure later", align=True)
"""A refused huge page that nothing smaller came in place of yet: one more than its object, and the
place of the one after it of its task, 0 for none."""


class OpenFailures:
    """Failures that the next requests may have come in place of, by task and class.

    Of a task's failures of one order that nothing came in place of yet, all of one fault are
    replaced by the same, so that the last stands for them; other huge pages wait.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._slots: dict[int, int] = {}
        self._words = np.zeros((64, at.ORDERS, 2), np.int32)
        self._places = np.zeros(64, PLACES)
        self._waiting = np.zeros(64, WAITING)

    def of(self, requests: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return rows of each request's task and class, all rows, and the huge pages that wait.

        Args:
            requests: `REQUEST` records.

        Returns:
            int32, one for each; int32, shape (rows, orders, 2): one more than the object of the
            failure, 0 for none, and how many pages came in its place; `PLACES` by row; `WAITING`
            records, those after the first in use up to the place that the first names as `later`.
        """
        keys = requests["task"].astype(np.int64) * 4 + requests["kind"]
        names, inverse = np.unique(keys, return_inverse=True)
        known = self._slots
        slots = [known.setdefault(each, len(known)) for each in names.tolist()]
        if len(known) > len(self._words):
            self._words = longer(self._words, 2 * len(known))
            self._places = longer(self._places, 2 * len(known))
        # each request for a huge page lets at most one wait
        room = int(self._waiting[0]["later"]) + 1 + int(np.count_nonzero(are_huge(requests)))
        if room > len(self._waiting):
            self._waiting = longer(self._waiting, 2 * room)
        return np.array(slots, np.int32)[inverse], self._words, self._places, self._waiting


def are_huge(requests: np.ndarray) -> np.ndarray:
    """Mask of `REQUEST` records for huge pages of anonymous memory."""
    return (requests["order"] == pr.THP_ORDER) & (requests["kind"] == pr.ANON)


def longer(rows: np.ndarray, length: int) -> np.ndarray:
    """Return a copy with zeros behind."""
    more = np.zeros((length, *rows.shape[1:]), rows.dtype)
    more[: len(rows)] = rows
    return more


@inner
def wait_for_smaller(places: np.ndarray, waiting: np.ndarray, slot: int, failure: int) -> None:
    """Let a refused huge page wait behind those of its task."""
    place = int(waiting[0]["later"]) + 1
    waiting[0]["later"] = place
    waiting[place]["failure"] = failure
    newest = int(places[slot]["newest"])
    if newest > 0:
        waiting[newest]["later"] = place
    else:
        places[slot]["oldest"] = place
    places[slot]["newest"] = place


@inner
def end_of_wait(places: np.ndarray, waiting: np.ndarray, slot: int) -> int:
    """Take the huge page that waited longest; returns one more than its object, 0 for none."""
    place = int(places[slot]["oldest"])
    if place == 0:
        return 0
    places[slot]["oldest"] = waiting[place]["later"]
    if int(places[slot]["oldest"]) == 0:
        places[slot]["newest"] = 0
    return int(waiting[place]["failure"])


@entry
def link_replacements(
    requests: np.ndarray,
    slots: np.ndarray,
    failures: np.ndarray,
    places: np.ndarray,
    waiting: np.ndarray,
    leads: np.ndarray,
) -> None:
    """Find the requests that came in place of each failed one (T10.4).

    They are the rest of its fault and what its task asks for in its place later: requests of its
    class and of lower order, up to as many pages as were asked for. Kernel memory is replaced by
    one request. A huge page of another fault is of another place, which waits for its own.

    Args:
        requests: `REQUEST` records by time.
        slots: as `OpenFailures.of` returns them.
        failures: likewise; changed.
        places: likewise; changed.
        waiting: likewise; changed.
        leads: int32 by object, -1 at first; the nearest failure that each one replaces.
    """
    for index in range(len(requests)):
        slot = int(slots[index])
        number = int(requests[index]["object"])
        size = int(requests[index]["order"])
        kind = int(requests[index]["kind"])
        failed = int(requests[index]["failed"]) == 1
        first = int(places[slot]["first"])
        places[slot]["first"] = 0
        if kind == pr.ANON and size == pr.THP_ORDER:
            attempt = int(requests[index]["attempt"])
            if attempt != ANYWHERE:
                first = 0
            if first == 0 and failures[slot, size, 0] > 0 and failures[slot, size, 1] == 0:
                wait_for_smaller(places, waiting, slot, int(failures[slot, size, 0]))
            failures[slot, size, 0] = 0
            if failed and attempt == LOCAL_FIRST:
                places[slot]["first"] = number + 1
        else:
            first = 0
        if kind == pr.ANON and size < pr.THP_ORDER and failures[slot, pr.THP_ORDER, 0] == 0:
            failures[slot, pr.THP_ORDER, 0] = end_of_wait(places, waiting, slot)
            failures[slot, pr.THP_ORDER, 1] = 0
        for order in range(at.ORDERS - 1, -1, -1):
            lead = int(failures[slot, order, 0]) - 1
            if lead < 0:
                continue
            pages = int(failures[slot, order, 1])
            if size >= order and (size > order or not failed or pages > 0):
                failures[slot, order, 0] = 0
                continue
            if number >= 0:
                leads[number] = lead
            if size < order and not failed:
                pages += 1 << size
                if kind < pr.ANON:
                    pages = 1 << order
                failures[slot, order, 1] = pages
                if pages >= 1 << order:
                    failures[slot, order, 0] = 0
        if first > 0 and number >= 0:
            leads[number] = first - 1
        if failed and number >= 0:
            failures[slot, size, 0] = number + 1
            failures[slot, size, 1] = 0


@inner
def settle_burst(
    rows: np.ndarray,
    time_ns: np.ndarray,
    last_task: np.ndarray,
    first: int,
    last: int,
    after: int,
) -> None:
    """Mark one burst, between a task's rows before and after it."""
    cpu = int(rows[first]["cpu"])
    before = int(last_task[cpu]["row"])
    if int(rows[first]["bits"]) & at.INTERRUPTS_HOLDER or before < 0:
        return
    gap_before = int(time_ns[int(rows[first]["row"])]) - int(time_ns[before])
    gap_after = int(time_ns[int(rows[after]["row"])]) - int(time_ns[int(rows[last]["row"])])
    if gap_after <= gap_before:
        is_free, pid = int(rows[after]["is_free"]), int(rows[after]["pid"])
        wanted, mark = 0, at.BEFORE_REQUEST
    else:
        is_free, pid = int(last_task[cpu]["is_free"]), int(last_task[cpu]["pid"])
        wanted, mark = 1, at.AFTER_FREE
    if is_free == wanted and pid == int(rows[first]["pid"]):
        rows[first]["bits"] |= mark
        for index in range(first, last + 1):
            if int(rows[index]["cpu"]) == cpu:
                rows[index]["bits"] |= at.INTERRUPTS_HOLDER


@entry
def mark_interrupted(
    rows: np.ndarray,
    low: int,
    high: int,
    time_ns: np.ndarray,
    last_task: np.ndarray,
    bursts: np.ndarray,
) -> None:
    """Mark interrupts that come just after a free or just before a request.

    The rows of one interrupt, a burst, get INTERRUPTS_HOLDER. The first one says what it may have
    interrupted: AFTER_FREE the free before it, BEFORE_REQUEST the request after it, whichever is
    nearer in time. Bursts that interrupt a folio batch are marked already.

    Args:
        rows: `objects.ROW` records in time order; IN_INTERRUPT is set where it is known.
        low: first row; all before it were looked at with the same arrays.
        high: one past the last row.
        time_ns: int64, the trace's column.
        last_task: `objects.ROW` records by CPU: its last row of a task, `row` -1 at first.
        bursts: int64, shape (CPUs, 2), filled with -1 at first: first and last row of the burst
            that is not over.
    """
    for index in range(low, high):
        cpu = int(rows[index]["cpu"])
        if int(rows[index]["bits"]) & at.IN_INTERRUPT:
            if bursts[cpu, 0] < 0:
                bursts[cpu, 0] = index
            bursts[cpu, 1] = index
        else:
            if bursts[cpu, 0] >= 0:
                settle_burst(rows, time_ns, last_task, bursts[cpu, 0], bursts[cpu, 1], index)
                bursts[cpu, 0] = -1
            last_task[cpu]["row"] = rows[index]["row"]
            last_task[cpu]["pid"] = rows[index]["pid"]
            last_task[cpu]["is_free"] = rows[index]["is_free"]
