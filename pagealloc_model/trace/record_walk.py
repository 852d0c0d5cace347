"""Compiled walk over perf records: page-allocator samples to columns, all else noted.

Every reach into the buffer is checked against the record's end, and every record's end against
the buffer's. Words are read through a view that has an int64 at each byte (`words_of`), so the
buffer must extend 8 bytes past the records.

This module imports numba; import it inside functions only. All kernels live in this one file,
because numba's disk cache does not notice a change of a callee in another file.
"""

from __future__ import annotations

import numba
import numpy as np

from pagealloc_model.trace import sample_layout
from pagealloc_model.trace.record_stream import COMPRESSED, COMPRESSED2
from pagealloc_model.trace.sample_layout import Column

SAMPLE = 9
AUXTRACE = 71

# Slots of the state array.
POSITION = 0
ROWS = 1
NOTES = 2
STATUS = 3
STATE_SLOTS = 4

# Values of state[STATUS]; those from BAD_SIZE on mean a damaged record at state[POSITION].
RUNNING = 0
ROWS_FULL = 1
NOTES_FULL = 2
BAD_SIZE = 3
BAD_ID = 4
BAD_SAMPLE = 5
BAD_RAW = 6
BAD_VALUE = 7

# Columns of a note: the attribute's row (samples) or -1, and what the record is and where.
NOTE_ATTR = 0
NOTE_TYPE = 1
NOTE_POSITION = 2
NOTE_SIZE = 3
NOTE_RAW = 4
NOTE_RAW_SIZE = 5
NOTE_TIME = 6
NOTE_CPU = 7
NOTE_PID = 8
NOTE_BEFORE = 9
NOTE_CHAIN = 10
NOTE_CHAIN_SIZE = 11
NOTE_WIDTH = 12

# Columns of an index of records.
INDEX_TYPE = 0
INDEX_POSITION = 1
INDEX_SIZE = 2
INDEX_TIME = 3
INDEX_ATTR = 4
INDEX_WIDTH = 5

STATUS_TEXTS = {
    BAD_SIZE: "a record has an impossible size",
    BAD_ID: "a sample has an id that the file does not declare",
    BAD_SAMPLE: "a sample is shorter than its sample_type says",
    BAD_RAW: "a sample's raw data do not fit its format",
    BAD_VALUE: "a sample holds a value outside its field's range",
}

NOTED_TYPES = (2, 3, 7, 13, 69, COMPRESSED, COMPRESSED2)
"""LOST, COMM, FORK, LOST_SAMPLES, ID_INDEX and the compressed records."""

LARGEST_CPU = 32767
LARGEST_ORDER = 63
LARGEST_MIGRATETYPE = 63

_TID, _TIME, _CPU = int(Column.TID), int(Column.TIME), int(Column.CPU)
_VARIABLE, _CALLCHAIN = int(Column.VARIABLE), int(Column.CALLCHAIN)
_READ_FIXED, _READ_ENTRY = int(Column.READ_FIXED), int(Column.READ_ENTRY)
_EVENT, _NOTED, _RAW_SIZE = int(Column.EVENT), int(Column.NOTED), int(Column.RAW_SIZE)
_RAW = int(Column.RAW)
_PFN = int(Column.PFN)
_ORDER = _PFN + sample_layout.FIELD_WIDTH
_GFP = _ORDER + sample_layout.FIELD_WIDTH
_MIGRATETYPE = _GFP + sample_layout.FIELD_WIDTH
_REFILL = _MIGRATETYPE + sample_layout.FIELD_WIDTH
_LOW_HALF = 0xFFFFFFFF

_kernel = numba.njit(cache=True, nogil=True, error_model="numpy")
_inner = numba.njit(nogil=True, error_model="numpy", inline="never")


def words_of(buffer: np.ndarray) -> np.ndarray:
    """A read-only view with the int64 at every byte of a uint8 buffer (8 bytes fewer)."""
    return np.lib.stride_tricks.as_strided(
        buffer[:8].view("<i8"), shape=(len(buffer) - 8,), strides=(1,), writeable=False
    )


@_kernel
def gather_words(words, positions, offset, gathered):  # noqa: ANN001, ANN201
    """Fill `gathered` with the words at `positions` + `offset`; all must lie in the buffer."""
    for index in range(len(positions)):
        gathered[index] = words[positions[index] + offset]


@_inner
def _attr_row(words, position, end, id_keys, id_rows, id_offset):  # noqa: ANN001, ANN202
    """Row of the layout table for a sample, -1 if its id is unknown, -2 if it has no room."""
    if id_offset < 0:
        return 0
    if position + id_offset + 8 > end:
        return -2
    wanted = words[position + id_offset]
    mask = len(id_keys) - 1
    slot = wanted & mask
    while id_rows[slot] >= 0:
        if id_keys[slot] == wanted:
            return id_rows[slot]
        slot = (slot + 1) & mask
    return -1


@_inner
def _after_read(words, position, end, layout):  # noqa: ANN001, ANN202
    """Position after the READ part that starts at `position`, past `end` if it has no room."""
    entry = layout[_READ_ENTRY]
    after = position + layout[_READ_FIXED]
    if entry and after <= end:
        counters = words[position]
        if counters < 0 or counters > (end - after) // entry:
            return end + 1
        after += counters * entry
    return after


@_inner
def _chain_length(words, position, end):  # noqa: ANN001, ANN202
    """Addresses in the call chain at `position`, -1 if they do not fit."""
    if position + 8 > end:
        return -1
    length = words[position]
    if length < 0 or length > (end - position - 8) // 8:
        return -1
    return length


@_kernel
def walk_records(  # noqa: ANN201
    words,  # noqa: ANN001
    end,  # noqa: ANN001
    layouts,  # noqa: ANN001
    id_keys,  # noqa: ANN001
    id_rows,  # noqa: ANN001
    id_offset,  # noqa: ANN001
    time_ns,  # noqa: ANN001
    cpu,  # noqa: ANN001
    pid,  # noqa: ANN001
    event,  # noqa: ANN001
    pfn,  # noqa: ANN001
    order,  # noqa: ANN001
    gfp,  # noqa: ANN001
    migratetype,  # noqa: ANN001
    percpu_refill,  # noqa: ANN001
    notes,  # noqa: ANN001
    state,  # noqa: ANN001
):
    """Walk whole records from state[POSITION] until `end`, a cut record, or a full output.

    Args:
        words: int64 at each byte of the buffer, see `words_of`.
        end: first byte after the records.
        layouts: int64 (attributes, LAYOUT_WIDTH), see `sample_layout.Column`.
        id_keys: int64, open-addressing hash of sample ids, a power of two long.
        id_rows: int64, layout row of each key, -1 in free slots.
        id_offset: bytes from a sample's start to its id, -1 if all samples are of row 0.
        time_ns: output column; it and the next eight are those of a Trace, in file order.
        cpu: output column.
        pid: output column.
        event: output column.
        pfn: output column.
        order: output column.
        gfp: output column.
        migratetype: output column.
        percpu_refill: output column.
        notes: int64 (capacity, NOTE_WIDTH), everything else of interest.
        state: int64 (STATE_SLOTS), where to go on, how much is filled, and why it stopped.
    """
    position = state[POSITION]
    rows = state[ROWS]
    noted = state[NOTES]
    status = RUNNING
    while position + 8 <= end:
        if rows == len(time_ns):
            status = ROWS_FULL
            break
        if noted == len(notes):
            status = NOTES_FULL
            break
        header = words[position]
        record_type = header & _LOW_HALF
        size = (header >> 48) & 0xFFFF
        if size < 8:
            status = BAD_SIZE
            break
        after = position + size
        if after > end:
            break
        if record_type != SAMPLE:
            if record_type in NOTED_TYPES:
                notes[noted, NOTE_ATTR] = -1
                notes[noted, NOTE_TYPE] = record_type
                notes[noted, NOTE_POSITION] = position
                notes[noted, NOTE_SIZE] = size
                notes[noted, NOTE_BEFORE] = rows
                noted += 1
            elif record_type == AUXTRACE:
                if size < 16 or words[position + 8] < 0 or words[position + 8] > end - after:
                    status = BAD_SIZE
                    break
                after += words[position + 8]
            position = after
            continue
        row = _attr_row(words, position, after, id_keys, id_rows, id_offset)
        if row < 0:
            status = BAD_ID if row == -1 else BAD_SAMPLE
            break
        layout = layouts[row]
        if layout[_RAW] == 0:
            position = after
            continue
        part = position + layout[_VARIABLE]
        chain = 0
        chain_length = 0
        if layout[_READ_FIXED]:
            part = _after_read(words, part, after, layout)
        if layout[_CALLCHAIN]:
            chain_length = _chain_length(words, part, after)
            chain = part + 8
            part = chain + 8 * chain_length
        if chain_length < 0 or part + 4 > after:
            status = BAD_SAMPLE
            break
        raw = part + 4
        raw_size = words[part] & _LOW_HALF
        if raw + raw_size > after or raw_size < layout[_RAW_SIZE]:
            status = BAD_RAW
            break
        sample_time = words[position + layout[_TIME]]
        sample_cpu = words[position + layout[_CPU]] & _LOW_HALF
        sample_pid = words[position + layout[_TID]] >> 32
        if sample_cpu > LARGEST_CPU or sample_time < 0:
            status = BAD_VALUE
            break
        if layout[_NOTED]:
            notes[noted, NOTE_ATTR] = row
            notes[noted, NOTE_TYPE] = SAMPLE
            notes[noted, NOTE_POSITION] = position
            notes[noted, NOTE_SIZE] = size
            notes[noted, NOTE_RAW] = raw
            notes[noted, NOTE_RAW_SIZE] = raw_size
            notes[noted, NOTE_TIME] = sample_time
            notes[noted, NOTE_CPU] = sample_cpu
            notes[noted, NOTE_PID] = sample_pid
            notes[noted, NOTE_BEFORE] = rows
            notes[noted, NOTE_CHAIN] = chain
            notes[noted, NOTE_CHAIN_SIZE] = chain_length
            noted += 1
        if layout[_EVENT] >= 0:
            # See Column for the arithmetic of a field.
            frame = words[raw + layout[_PFN]] & layout[_PFN + 1]
            frame = (frame ^ layout[_PFN + 2]) - layout[_PFN + 2]
            block = words[raw + layout[_ORDER]] & layout[_ORDER + 1]
            block = (block ^ layout[_ORDER + 2]) - layout[_ORDER + 2]
            kind = words[raw + layout[_MIGRATETYPE]] & layout[_MIGRATETYPE + 1]
            kind = (kind ^ layout[_MIGRATETYPE + 2]) - layout[_MIGRATETYPE + 2]
            kind += layout[_MIGRATETYPE + 3]
            refill = words[raw + layout[_REFILL]] & layout[_REFILL + 1]
            refill = (refill ^ layout[_REFILL + 2]) - layout[_REFILL + 2]
            refill += layout[_REFILL + 3]
            flags = words[raw + layout[_GFP]] & layout[_GFP + 1]
            if (
                frame < -1
                or block < 0
                or block > LARGEST_ORDER
                or kind < -1
                or kind > LARGEST_MIGRATETYPE
                or refill < -1
                or refill > 1
                or flags < 0
                or flags > _LOW_HALF
            ):
                status = BAD_VALUE
                break
            time_ns[rows] = sample_time
            cpu[rows] = sample_cpu
            pid[rows] = sample_pid
            event[rows] = layout[_EVENT]
            pfn[rows] = frame
            order[rows] = block
            gfp[rows] = flags
            migratetype[rows] = kind
            percpu_refill[rows] = refill
            rows += 1
        position = after
    state[POSITION] = position
    state[ROWS] = rows
    state[NOTES] = noted
    state[STATUS] = status


@_kernel
def index_records(  # noqa: ANN201
    words,  # noqa: ANN001
    end,  # noqa: ANN001
    layouts,  # noqa: ANN001
    id_keys,  # noqa: ANN001
    id_rows,  # noqa: ANN001
    id_offset,  # noqa: ANN001
    index,  # noqa: ANN001
    state,  # noqa: ANN001
):
    """List whole records from state[POSITION] on, as `walk_records` does, without their content.

    Args:
        words: int64 at each byte of the buffer, see `words_of`.
        end: first byte after the records.
        layouts: int64 (attributes, LAYOUT_WIDTH).
        id_keys: int64, open-addressing hash of sample ids.
        id_rows: int64, layout row of each key, -1 in free slots.
        id_offset: bytes from a sample's start to its id, -1 if all samples are of row 0.
        index: output, int64 (capacity, INDEX_WIDTH).
        state: int64 (STATE_SLOTS); state[ROWS] counts the records listed.
    """
    position = state[POSITION]
    rows = state[ROWS]
    status = RUNNING
    while position + 8 <= end:
        if rows == len(index):
            status = ROWS_FULL
            break
        header = words[position]
        size = (header >> 48) & 0xFFFF
        after = position + size
        if size < 8:
            status = BAD_SIZE
            break
        if after > end:
            break
        index[rows, INDEX_TYPE] = header & _LOW_HALF
        index[rows, INDEX_POSITION] = position
        index[rows, INDEX_ATTR] = -1
        index[rows, INDEX_TIME] = -1
        if index[rows, INDEX_TYPE] == AUXTRACE:
            if size < 16 or words[position + 8] < 0 or words[position + 8] > end - after:
                status = BAD_SIZE
                break
            after += words[position + 8]
        elif index[rows, INDEX_TYPE] == SAMPLE:
            row = _attr_row(words, position, after, id_keys, id_rows, id_offset)
            if row < 0 or position + layouts[row, _VARIABLE] > after:
                status = BAD_ID if row == -1 else BAD_SAMPLE
                break
            index[rows, INDEX_ATTR] = row
            if layouts[row, _TIME] >= 0:
                index[rows, INDEX_TIME] = words[position + layouts[row, _TIME]]
        index[rows, INDEX_SIZE] = after - position
        rows += 1
        position = after
    state[POSITION] = position
    state[ROWS] = rows
    state[STATUS] = status
