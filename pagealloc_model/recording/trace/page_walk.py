"""Compiled walk over pages of the kernel's trace ring buffer: page-allocator events to columns.

A page holds the time of its first event, how many bytes of it are used, and events end to end: a
word of type (5 bits) and time since the event before (27 bits), then the tracepoint's raw data.
Every reach into a page is checked against what it says is used, and that against its size. Words
are read at any byte (see `word_at`), so a buffer must extend 8 bytes past its pages.

This module imports numba; import it inside functions only.
"""

from __future__ import annotations

from enum import IntEnum

from pagealloc_model.base.jit import entry, inner
from pagealloc_model.recording.trace.perf_samples import (
    NOTE_ATTR,
    NOTE_BEFORE,
    NOTE_CHAIN_SIZE,
    NOTE_CPU,
    NOTE_PID,
    NOTE_POSITION,
    NOTE_RAW,
    NOTE_RAW_SIZE,
    NOTE_SIZE,
    NOTE_SOURCE,
    NOTE_TIME,
    Column,
)
from pagealloc_model.recording.trace.record_walk import (
    LOW_HALF,
    context_of,
    in_range,
    main_fields,
    word_at,
)


class Geometry(IntEnum):
    """Slots of the array that says how pages are laid out, from the recording's header_page.

    TYPE is the offset of common_type in an event's raw data.
    """

    PAGE_SIZE = 0
    TIMESTAMP = 1
    COMMIT = 2
    DATA = 3
    TYPE = 4


# Slots of the state array.
PAGE = 0
ROWS = 1
NOTES = 2
NOTED_BYTES = 3
LOSSES = 4
UNKNOWN = 5
STATUS = 6
POSITION = 7
STATE_SLOTS = 8

# Columns of a loss: the CPU, times of the events before and behind, how many (-1: not said).
LOSS_CPU = 0
LOSS_START = 1
LOSS_END = 2
LOSS_COUNT = 3
LOSS_WIDTH = 4

# Values of state[STATUS]; those from BAD_PAGE on mean damage at state[POSITION].
RUNNING = 0
ROWS_FULL = 1
NOTES_FULL = 2
BAD_PAGE = 3
BAD_EVENT = 4
BAD_RAW = 5
BAD_VALUE = 6

STATUS_TEXTS = {
    BAD_PAGE: "a page of the ring buffer says that more of it is used than there is",
    BAD_EVENT: "an event does not fit its page",
    BAD_RAW: "an event's raw data do not fit its format",
    BAD_VALUE: "an event holds a value outside its field's range",
}

PADDING, TIME_EXTEND, TIME_STAMP = 29, 30, 31
"""Types of what is no event; 0 means that a length follows, others are lengths in words of 4."""

_DELTA_BITS = 27
_MISSED = 1 << 31
_MISSED_STORED = 1 << 30
_USED = (1 << 27) - 1
_TOP_BITS = 0xF8 << 56
"""What a time stamp has no room for: these come from the time before."""
_TOP_BITS -= 1 << 64
_SMALLEST = 8
_PAGE_SIZE, _TIMESTAMP = int(Geometry.PAGE_SIZE), int(Geometry.TIMESTAMP)
_COMMIT, _DATA, _TYPE = int(Geometry.COMMIT), int(Geometry.DATA), int(Geometry.TYPE)
_TID, _EVENT, _NOTED = int(Column.TID), int(Column.EVENT), int(Column.NOTED)
_RAW_SIZE = int(Column.RAW_SIZE)


def most_events(page_size: int) -> int:
    """How many events a page can hold at most."""
    return page_size // _SMALLEST + 1


@inner
def _missed_before(data, end, room, used, commit):  # noqa: ANN001, ANN202
    """Events missed before a page: 0 if none, -1 if it does not say how many."""
    if commit & _MISSED == 0:
        return 0
    if commit & _MISSED_STORED and used + 8 <= room:
        return word_at(data, end)
    return -1


@inner
def _stamped(stamp, before):  # noqa: ANN001, ANN202
    """An absolute time of 59 bits, with its top bits from the time before."""
    if before & _TOP_BITS == 0:
        return stamp
    full = stamp | (before & _TOP_BITS)
    return full + (1 << 59) if full < before else full


@entry
def walk_pages(  # noqa: ANN201
    data,  # noqa: ANN001
    positions,  # noqa: ANN001
    cpus,  # noqa: ANN001
    geometry,  # noqa: ANN001
    rows_of_type,  # noqa: ANN001
    layouts,  # noqa: ANN001
    columns,  # noqa: ANN001
    notes,  # noqa: ANN001
    noted_bytes,  # noqa: ANN001
    last_ns,  # noqa: ANN001
    losses,  # noqa: ANN001
    state,  # noqa: ANN001
):
    """Walk pages from number state[PAGE] on, until the last or until an output is full.

    Args:
        data: uint8, what holds the pages, at least 8 bytes longer than the last one's end.
        positions: int64, where each page starts, those of one CPU in time order.
        cpus: int64, the CPU of each page.
        geometry: int64, see `Geometry`.
        rows_of_type: int32 (65536), layout row of each tracepoint by number, -1 unknown or unused.
        layouts: int64 (rows, LAYOUT_WIDTH), see `perf_samples.Column`; TID is the offset of
            common_pid in the raw data.
        columns: output, the ten columns of a Trace.
        notes: output, int64 (capacity, NOTE_WIDTH), one row for each event that goes to a table.
        noted_bytes: output, uint8, the raw data of these end to end.
        last_ns: int64 by CPU, time of its last event so far, -1 before the first; updated.
        losses: output, int64 (pages at least, LOSS_WIDTH).
        state: int64 (STATE_SLOTS), where to go on, how much is filled, and why it stopped;
            state[UNKNOWN] counts events without a row.
    """
    time_ns, cpu, pid, event, pfn, order, gfp, migratetype, percpu_refill, in_interrupt = columns
    page_size = geometry[_PAGE_SIZE]
    room = page_size - geometry[_DATA]
    most = page_size // _SMALLEST + 1
    page, rows, noted = state[PAGE], state[ROWS], state[NOTES]
    filled, lost, unknown = state[NOTED_BYTES], state[LOSSES], state[UNKNOWN]
    status = RUNNING
    position = 0
    while page < len(positions):
        if rows + most > len(time_ns):
            status = ROWS_FULL
            break
        if noted + most > len(notes) or filled + page_size + 8 > len(noted_bytes):
            status = NOTES_FULL
            break
        position = positions[page]
        page_cpu = cpus[page]
        commit = word_at(data, position + geometry[_COMMIT])
        now = word_at(data, position + geometry[_TIMESTAMP])
        used = commit & _USED
        if used > room or now < 0:
            status = BAD_PAGE
            break
        position += geometry[_DATA]
        end = position + used
        missed = _missed_before(data, end, room, used, commit)
        if missed:
            losses[lost, LOSS_CPU] = page_cpu
            losses[lost, LOSS_START] = last_ns[page_cpu]
            losses[lost, LOSS_END] = now
            losses[lost, LOSS_COUNT] = missed
            lost += 1
        while position + 4 <= end:
            word = word_at(data, position)
            kind = word & 31
            delta = (word & LOW_HALF) >> 5
            following = (word >> 32) & LOW_HALF
            if kind >= PADDING and position + 8 > end:
                if kind != PADDING or delta:
                    status = BAD_EVENT
                break
            if kind == PADDING:
                if delta == 0:
                    break
                # An event that a filter discarded: the next one counts its time from this one's.
                now += delta
                position += 4 + following
                continue
            if kind == TIME_EXTEND:
                now += (following << _DELTA_BITS) + delta
                position += 8
                continue
            if kind == TIME_STAMP:
                now = _stamped((following << _DELTA_BITS) + delta, now)
                position += 8
                continue
            now += delta
            raw, raw_size = position + 4, 4 * kind
            if kind == 0:
                raw, raw_size = position + 8, (following + 3 & ~3) - 4
            if raw_size < 4 or raw + raw_size > end or now < 0:
                status = BAD_EVENT
                break
            last_ns[page_cpu] = now
            row = rows_of_type[word_at(data, raw + geometry[_TYPE]) & 0xFFFF]
            if row < 0:
                unknown += 1
                position = raw + raw_size
                continue
            if raw_size < layouts[row, _RAW_SIZE]:
                status = BAD_RAW
                break
            thread = word_at(data, raw + layouts[row, _TID]) << 32 >> 32
            if layouts[row, _NOTED]:
                note = notes[noted]
                note[NOTE_ATTR] = row
                note[NOTE_SOURCE] = position
                note[NOTE_POSITION] = filled
                note[NOTE_SIZE] = raw_size
                note[NOTE_BEFORE] = rows
                note[NOTE_RAW] = filled
                note[NOTE_RAW_SIZE] = raw_size
                note[NOTE_TIME] = now
                note[NOTE_CPU] = page_cpu
                note[NOTE_PID] = thread
                note[NOTE_CHAIN_SIZE] = 0
                for index in range(raw_size):
                    noted_bytes[filled + index] = data[raw + index]
                filled += raw_size
                noted += 1
            if layouts[row, _EVENT] >= 0:
                frame, block_order, flags, block_type, refill = main_fields(data, raw, layouts, row)
                if not in_range(frame, block_order, flags, block_type, refill):
                    status = BAD_VALUE
                    break
                time_ns[rows] = now
                cpu[rows] = page_cpu
                pid[rows] = thread
                event[rows] = layouts[row, _EVENT]
                pfn[rows] = frame
                order[rows] = block_order
                gfp[rows] = flags
                migratetype[rows] = block_type
                percpu_refill[rows] = refill
                in_interrupt[rows] = context_of(data, raw, layouts, row)
                rows += 1
            position = raw + raw_size
        if status != RUNNING:
            break
        page += 1
    state[PAGE], state[ROWS], state[NOTES] = page, rows, noted
    state[NOTED_BYTES], state[LOSSES], state[UNKNOWN] = filled, lost, unknown
    state[STATUS], state[POSITION] = status, position
