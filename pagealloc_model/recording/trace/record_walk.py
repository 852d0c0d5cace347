"""Compiled walk over perf records: page-allocator samples to columns, all else noted."""

from __future__ import annotations

import numba
import numba.extending
import numpy as np
from llvmlite import ir

from pagealloc_model.base.jit import entry, inner
from pagealloc_model.recording.trace.perf_file import COMPRESSED, COMPRESSED2, TRACING_DATA
from pagealloc_model.recording.trace.perf_samples import (
    FIELD_WIDTH,
    LARGEST_RECORD,
    NOTE_ATTR,
    NOTE_BEFORE,
    NOTE_CHAIN,
    NOTE_CHAIN_SIZE,
    NOTE_CPU,
    NOTE_PID,
    NOTE_POSITION,
    NOTE_RAW,
    NOTE_RAW_SIZE,
    NOTE_SIZE,
    NOTE_SOURCE,
    NOTE_TIME,
    NOTE_TYPE,
    Column,
)


def _word_at(data: np.ndarray, position: int) -> int:
    """The int64 at any byte of a uint8 array: what `word_at` is without compilation."""
    if not 0 <= position <= len(data) - 8:
        raise IndexError("a word outside its buffer")
    return int.from_bytes(data[position : position + 8].tobytes(), "little", signed=True)


@numba.extending.intrinsic
def _compiled_word_at(typing_context, data, position):  # noqa: ANN001, ANN202
    """One unaligned load; composing eight bytes, or a view with a stride of 1, is slower."""
    signature = numba.types.int64(data, numba.types.int64)

    def generate(context, builder, signature, arguments):  # noqa: ANN001, ANN202
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte = builder.gep(array.data, [arguments[1]])
        load = builder.load(builder.bitcast(byte, ir.IntType(64).as_pointer()))
        load.align = 1
        return load

    return signature, generate


@inner
def _checked_word_at(data, position):  # noqa: ANN001, ANN202
    """The same within the buffer, else an IndexError: numba's checks do not see the load."""
    if position < 0 or position > len(data) - 8:
        raise IndexError("a word outside its buffer")
    return _compiled_word_at(data, position)


if numba.config.DISABLE_JIT:
    word_at = _word_at
elif numba.config.BOUNDSCHECK:
    word_at = _checked_word_at
else:
    word_at = _compiled_word_at


@entry
def gather_words(data, positions, gathered):  # noqa: ANN001, ANN201
    """Fill `gathered` with the words at `positions`, all of which must lie in the buffer."""
    for index in range(len(positions)):
        gathered[index] = word_at(data, positions[index])


LARGEST_CPU = 32767
LARGEST_ORDER = 63
LARGEST_MIGRATETYPE = 63

IN_INTERRUPT = 0x08 | 0x10
"""Bits of common_flags: in a hard interrupt, in a soft one (include/linux/trace_events.h)."""

LOW_HALF = 0xFFFFFFFF
_CONTEXT = int(Column.CONTEXT)
_PFN = int(Column.PFN)
_ORDER = _PFN + FIELD_WIDTH
_GFP = _ORDER + FIELD_WIDTH
_MIGRATETYPE = _GFP + FIELD_WIDTH
_REFILL = _MIGRATETYPE + FIELD_WIDTH


@inner
def _field(data, raw, layouts, row, first):  # noqa: ANN001, ANN202
    """One field of a main event's raw data; see Column for the arithmetic."""
    sign = layouts[row, first + 2]
    value = word_at(data, raw + layouts[row, first]) & layouts[row, first + 1]
    return (value ^ sign) - sign


@inner
def main_fields(data, raw, layouts, row):  # noqa: ANN001, ANN201
    """pfn, order, gfp, migratetype and percpu_refill of a main event.

    Absent fields are skipped: only FREE_BATCHED lacks an order, a type stands only in events with
    an order, and gfp and percpu_refill only in events with a type.
    """
    frame = _field(data, raw, layouts, row, _PFN)
    order, flags, migratetype, refill = 0, 0, -1, -1
    if layouts[row, _ORDER + 1]:
        order = _field(data, raw, layouts, row, _ORDER)
        if layouts[row, _MIGRATETYPE + 1]:
            migratetype = _field(data, raw, layouts, row, _MIGRATETYPE)
            if layouts[row, _GFP + 1]:
                flags = _field(data, raw, layouts, row, _GFP)
            elif layouts[row, _REFILL + 1]:
                refill = _field(data, raw, layouts, row, _REFILL)
    return frame, order, flags, migratetype, refill


@inner
def context_of(data, raw, layouts, row):  # noqa: ANN001, ANN201
    """1 in an interrupt, 0 in a task, -1 where the format has no common_flags."""
    offset = layouts[row, _CONTEXT]
    if offset < 0:
        return -1
    return 1 if data[raw + offset] & IN_INTERRUPT else 0


@inner
def in_range(frame, order, flags, migratetype, refill):  # noqa: ANN001, ANN201
    """Whether the fields of a main event hold values that the event can have."""
    return (
        frame >= -1
        and 0 <= order <= LARGEST_ORDER
        and 0 <= flags <= LOW_HALF
        and -1 <= migratetype <= LARGEST_MIGRATETYPE
        and -1 <= refill <= 1
    )


SAMPLE = 9
AUXTRACE = 71
FINISHED_ROUND = 68

# Slots of the state array.
POSITION = 0
ROWS = 1
NOTES = 2
NOTED_BYTES = 3
STATUS = 4
STATE_SLOTS = 5

# Values of state[STATUS]; those from BAD_SIZE on mean a damaged record at state[POSITION].
RUNNING = 0
ROWS_FULL = 1
NOTES_FULL = 2
BAD_SIZE = 3
BAD_ID = 4
BAD_SAMPLE = 5
BAD_RAW = 6
BAD_VALUE = 7

STATUS_TEXTS = {
    BAD_SIZE: "a record has an impossible size",
    BAD_ID: "a sample has an id that the file does not declare",
    BAD_SAMPLE: "a sample is shorter than its sample_type says",
    BAD_RAW: "a sample's raw data do not fit its format",
    BAD_VALUE: "a sample holds a value outside its field's range",
}

NOTED_TYPES = (2, 3, 7, 13, FINISHED_ROUND, 69, COMPRESSED, COMPRESSED2)
"""LOST, COMM, FORK, LOST_SAMPLES, FINISHED_ROUND, ID_INDEX and the compressed records."""

_TID, _TIME, _CPU = int(Column.TID), int(Column.TIME), int(Column.CPU)
_VARIABLE, _CALLCHAIN = int(Column.VARIABLE), int(Column.CALLCHAIN)
_READ_FIXED, _READ_ENTRY = int(Column.READ_FIXED), int(Column.READ_ENTRY)
_EVENT, _NOTED, _RAW_SIZE = int(Column.EVENT), int(Column.NOTED), int(Column.RAW_SIZE)
_RAW = int(Column.RAW)


@inner
def _data_behind(data, position, size, record_type):  # noqa: ANN001, ANN202
    """Bytes that follow a record without being part of its size, -1 if it cannot say."""
    if record_type == AUXTRACE:
        return word_at(data, position + 8) if size >= 16 else -1
    if record_type == TRACING_DATA:
        return (word_at(data, position + 8) & LOW_HALF) + 7 & ~7 if size >= 12 else -1
    return 0


@inner
def _attr_row(data, position, end, id_keys, id_rows, id_offset):  # noqa: ANN001, ANN202
    """Row of the layout table for a sample, -1 if its id is unknown, -2 if it has no room."""
    if id_offset < 0:
        return 0
    if position + id_offset + 8 > end:
        return -2
    wanted = word_at(data, position + id_offset)
    mask = len(id_keys) - 1
    slot = wanted & mask
    while id_rows[slot] >= 0:
        if id_keys[slot] == wanted:
            return id_rows[slot]
        slot = (slot + 1) & mask
    return -1


@inner
def _after_read(data, position, end, layouts, row):  # noqa: ANN001, ANN202
    """Position after the READ part that starts at `position`, past `end` if it has no room."""
    entry = layouts[row, _READ_ENTRY]
    after = position + layouts[row, _READ_FIXED]
    if entry and after <= end:
        counters = word_at(data, position)
        if counters < 0 or counters > (end - after) // entry:
            return end + 1
        after += counters * entry
    return after


@inner
def _chain_length(data, position, end):  # noqa: ANN001, ANN202
    """Addresses in the call chain at `position`, -1 if they do not fit."""
    if position + 8 > end:
        return -1
    length = word_at(data, position)
    if length < 0 or length > (end - position - 8) // 8:
        return -1
    return length


@inner
def _sample_parts(data, position, end, layouts, row):  # noqa: ANN001, ANN202
    """Status, start and size of the raw data, start and length of the call chain of a sample."""
    part = position + layouts[row, _VARIABLE]
    chain = 0
    chain_length = 0
    if layouts[row, _READ_FIXED]:
        part = _after_read(data, part, end, layouts, row)
    if layouts[row, _CALLCHAIN]:
        chain_length = _chain_length(data, part, end)
        chain = part + 8
        part = chain + 8 * chain_length
    if chain_length < 0 or part + 4 > end:
        return BAD_SAMPLE, 0, 0, 0, 0
    raw = part + 4
    raw_size = word_at(data, part) & LOW_HALF
    if raw + raw_size > end or raw_size < layouts[row, _RAW_SIZE]:
        return BAD_RAW, 0, 0, 0, 0
    return RUNNING, raw, raw_size, chain, chain_length


@inner
def _note_record(  # noqa: ANN202
    data,  # noqa: ANN001
    position,  # noqa: ANN001
    size,  # noqa: ANN001
    rows,  # noqa: ANN001
    note,  # noqa: ANN001
    noted_bytes,  # noqa: ANN001
    filled,  # noqa: ANN001
):
    """Fill in what all notes have and copy the record; returns the new length of the copies."""
    record_type = word_at(data, position) & LOW_HALF
    note[NOTE_ATTR] = -1
    note[NOTE_TYPE] = record_type
    note[NOTE_SOURCE] = position
    note[NOTE_POSITION] = filled
    note[NOTE_SIZE] = size
    note[NOTE_BEFORE] = rows
    if record_type in (COMPRESSED, COMPRESSED2):
        return filled
    for index in range(size):
        noted_bytes[filled + index] = data[position + index]
    return filled + size


@entry
def walk_records(  # noqa: ANN201
    data,  # noqa: ANN001
    end,  # noqa: ANN001
    layouts,  # noqa: ANN001
    id_keys,  # noqa: ANN001
    id_rows,  # noqa: ANN001
    id_offset,  # noqa: ANN001
    columns,  # noqa: ANN001
    notes,  # noqa: ANN001
    noted_bytes,  # noqa: ANN001
    state,  # noqa: ANN001
):
    """Walk whole records from state[POSITION] until `end`, a cut record, or a full output.

    Args:
        data: uint8, the buffer, at least 8 bytes longer than `end`.
        end: first byte after the records.
        layouts: int64 (attributes, LAYOUT_WIDTH), see `perf_samples.Column`.
        id_keys: int64, open-addressing hash of sample ids, a power of two long.
        id_rows: int64, layout row of each key, -1 in free slots.
        id_offset: bytes from a sample's start to its id, -1 if all samples are of row 0.
        columns: output, the ten columns of a Trace, in file order.
        notes: output, int64 (capacity, NOTE_WIDTH), one row per other record of interest.
        noted_bytes: output, uint8, copies of the noted records end to end.
        state: int64 (STATE_SLOTS), where to go on, how much is filled, and why it stopped.
    """
    time_ns, cpu, pid, event, pfn, order, gfp, migratetype, percpu_refill, in_interrupt = columns
    position = state[POSITION]
    rows = state[ROWS]
    noted = state[NOTES]
    filled = state[NOTED_BYTES]
    status = RUNNING
    while position + 8 <= end:
        if rows == len(time_ns):
            status = ROWS_FULL
            break
        if noted == len(notes) or filled + LARGEST_RECORD > len(noted_bytes):
            status = NOTES_FULL
            break
        header = word_at(data, position)
        record_type = header & LOW_HALF
        size = (header >> 48) & 0xFFFF
        after = position + size
        if size < 8:
            status = BAD_SIZE
            break
        if after > end:
            break
        if record_type != SAMPLE:
            behind = _data_behind(data, position, size, record_type)
            if behind < 0:
                status = BAD_SIZE
                break
            if behind > end - after:
                break
            if record_type in NOTED_TYPES:
                filled = _note_record(data, position, size, rows, notes[noted], noted_bytes, filled)
                noted += 1
            position = after + behind
            continue
        row = _attr_row(data, position, after, id_keys, id_rows, id_offset)
        if row < 0:
            status = BAD_ID if row == -1 else BAD_SAMPLE
            break
        if layouts[row, _RAW] == 0:
            position = after
            continue
        status, raw, raw_size, chain, chain_length = _sample_parts(
            data, position, after, layouts, row
        )
        if status != RUNNING:
            break
        sample_time = word_at(data, position + layouts[row, _TIME])
        sample_cpu = word_at(data, position + layouts[row, _CPU]) & LOW_HALF
        sample_pid = word_at(data, position + layouts[row, _TID]) >> 32
        if sample_cpu > LARGEST_CPU or sample_time < 0:
            status = BAD_VALUE
            break
        if layouts[row, _NOTED]:
            note = notes[noted]
            moved = filled - position
            filled = _note_record(data, position, size, rows, note, noted_bytes, filled)
            note[NOTE_ATTR] = row
            note[NOTE_RAW] = raw + moved
            note[NOTE_RAW_SIZE] = raw_size
            note[NOTE_TIME] = sample_time
            note[NOTE_CPU] = sample_cpu
            note[NOTE_PID] = sample_pid
            note[NOTE_CHAIN] = chain + moved
            note[NOTE_CHAIN_SIZE] = chain_length
            noted += 1
        if layouts[row, _EVENT] >= 0:
            frame, block_order, flags, block_type, refill = main_fields(data, raw, layouts, row)
            if not in_range(frame, block_order, flags, block_type, refill):
                status = BAD_VALUE
                break
            time_ns[rows] = sample_time
            cpu[rows] = sample_cpu
            pid[rows] = sample_pid
            event[rows] = layouts[row, _EVENT]
            pfn[rows] = frame
            order[rows] = block_order
            gfp[rows] = flags
            migratetype[rows] = block_type
            percpu_refill[rows] = refill
            in_interrupt[rows] = context_of(data, raw, layouts, row)
            rows += 1
        position = after
    state[POSITION] = position
    state[ROWS] = rows
    state[NOTES] = noted
    state[NOTED_BYTES] = filled
    state[STATUS] = status
