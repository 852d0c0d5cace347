"""Compiled walks over perf records and over pages of the kernel's trace ring buffer.

Page-allocator events go to the ten columns of a Trace, in file order; all else of interest is
noted, int64 (capacity, NOTE_WIDTH), and copied end to end, uint8. `layouts` is the layout table,
and the state says where to go on. Words are read at any byte (see `word_at`), so that the buffer,
uint8, must extend 8 bytes past what is walked. Import this module inside functions only: it
imports numba.
"""

# ruff: noqa: ANN001, ANN201, ANN202
from __future__ import annotations

import numpy as np
from llvmlite import ir

from pagealloc_model.base.jit import entry, inner
from pagealloc_model.base.jit.settings import numba
from pagealloc_model.recording.trace import layout as at
from pagealloc_model.recording.trace.columns import LARGEST_ORDER
from pagealloc_model.recording.trace.perf_file import COMPRESSED, COMPRESSED2, TRACING_DATA


def _word_at(data: np.ndarray, position: int) -> int:
    """The int64 at any byte of a uint8 array: what `word_at` is without compilation."""
    if not 0 <= position <= len(data) - 8:
        raise IndexError("a word outside its buffer")
    return int.from_bytes(data[position : position + 8].tobytes(), "little", signed=True)


@numba.extending.intrinsic
def _compiled_word_at(typing_context, data, position):
    """One unaligned load; composing eight bytes, or a view with a stride of 1, is slower."""
    signature = numba.types.int64(data, numba.types.int64)

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte = builder.gep(array.data, [arguments[1]])
        load = builder.load(builder.bitcast(byte, ir.IntType(64).as_pointer()))
        load.align = 1
        return load

    return signature, generate


@inner
def _checked_word_at(data, position):
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
def gather_words(data, positions, gathered):
    """Fill `gathered` with the words at `positions`, all of which must lie in the buffer."""
    for index in range(len(positions)):
        gathered[index] = word_at(data, positions[index])


@entry
def clock_steps_back(time_ns, cpus, last_ns, largest):
    """Set in `largest` how far times of a CPU's rows lie before earlier ones; both zeros by CPU."""
    for row in range(len(time_ns)):
        cpu = cpus[row]
        back = last_ns[cpu] - time_ns[row]
        if back > largest[cpu]:
            largest[cpu] = back
        if back < 0:
            last_ns[cpu] = time_ns[row]


_LARGEST_CPU = 32767
_LARGEST_MIGRATETYPE = 63
_IN_INTERRUPT = 0x08 | 0x10
"""Bits of common_flags: in a hard interrupt, in a soft one (include/linux/trace_events.h)."""
_LOW_HALF = 0xFFFFFFFF


@inner
def _field(data, raw, layouts, row, first):
    """One field of a main event's raw data."""
    sign = layouts[row, first + 2]
    value = word_at(data, raw + layouts[row, first]) & layouts[row, first + 1]
    return (value ^ sign) - sign


@inner
def _take_event(data, event, row, layouts, columns, notes, copies, state):
    """Take a tracepoint's event to the notes, the columns or both.

    False if a field of a main event holds what the event cannot have. `event` is its time, CPU
    and thread, what is copied of its record, its raw data and its call chain, each a place in
    `data` and a size, and the record's place.
    """
    now, on_cpu, thread, start, size, raw, raw_size, chain, chain_length, source = event
    if layouts[row, at.NOTED]:
        note = notes[state[at.NOTES]]
        moved = state[at.COPIED] - start
        note[at.NOTE_RAW] = raw + moved
        note[at.NOTE_RAW_SIZE] = raw_size
        note[at.NOTE_TIME] = now
        note[at.NOTE_CPU] = on_cpu
        note[at.NOTE_PID] = thread
        note[at.NOTE_CHAIN] = chain + moved
        note[at.NOTE_CHAIN_SIZE] = chain_length
        _note(data, row, _SAMPLE, source, start, size, size, notes, copies, state)
    if layouts[row, at.EVENT] < 0:
        return True
    # Absent fields are skipped: only FREE_BATCHED lacks an order, a type stands only in events with
    # an order, and gfp and percpu_refill only in events with a type.
    frame = _field(data, raw, layouts, row, at.PFN)
    block_order, flags, block_type, refill = 0, 0, -1, -1
    if layouts[row, at.ORDER + 1]:
        block_order = _field(data, raw, layouts, row, at.ORDER)
        if layouts[row, at.MIGRATETYPE + 1]:
            block_type = _field(data, raw, layouts, row, at.MIGRATETYPE)
            if layouts[row, at.GFP + 1]:
                flags = _field(data, raw, layouts, row, at.GFP)
            elif layouts[row, at.REFILL + 1]:
                refill = _field(data, raw, layouts, row, at.REFILL)
    if not (
        frame >= -1
        and 0 <= block_order <= LARGEST_ORDER
        and 0 <= flags <= _LOW_HALF
        and -1 <= block_type <= _LARGEST_MIGRATETYPE
        and -1 <= refill <= 1
    ):
        return False
    context = -1
    if layouts[row, at.CONTEXT] >= 0:
        context = 1 if data[raw + layouts[row, at.CONTEXT]] & _IN_INTERRUPT else 0
    time_ns, cpu, pid, kind, pfn, order, gfp, migratetype, percpu_refill, in_interrupt = columns
    place = state[at.ROWS]
    state[at.ROWS] = place + 1
    time_ns[place] = now
    cpu[place] = on_cpu
    pid[place] = thread
    kind[place] = layouts[row, at.EVENT]
    pfn[place] = frame
    order[place] = block_order
    gfp[place] = flags
    migratetype[place] = block_type
    percpu_refill[place] = refill
    in_interrupt[place] = context
    return True


@inner
def _note(data, row, kind, source, start, size, copied, notes, copies, state):
    """Add to a note what all have, and copy some bytes of the record."""
    note = notes[state[at.NOTES]]
    filled = state[at.COPIED]
    note[at.NOTE_ATTR] = row
    note[at.NOTE_TYPE] = kind
    note[at.NOTE_SOURCE] = source
    note[at.NOTE_POSITION] = filled
    note[at.NOTE_SIZE] = size
    note[at.NOTE_BEFORE] = state[at.ROWS]
    for index in range(copied):
        copies[filled + index] = data[start + index]
    state[at.NOTES] += 1
    state[at.COPIED] = filled + copied


@inner
def _is_full(columns, notes, copies, events, size, state):
    """There is no room for so many more events and bytes of copies."""
    return (
        state[at.ROWS] + events > len(columns[0])
        or state[at.NOTES] + events > len(notes)
        or state[at.COPIED] + size > len(copies)
    )


_SAMPLE = 9
_AUXTRACE = 71
FINISHED_ROUND = 68
_NOTED_TYPES = (2, 3, 7, 13, FINISHED_ROUND, 69, COMPRESSED, COMPRESSED2)
"""LOST, COMM, FORK, LOST_SAMPLES, FINISHED_ROUND, ID_INDEX and the compressed records."""


@inner
def _attr_row(data, position, end, id_keys, id_rows, id_offset):
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
def _sample_parts(data, position, end, layouts, row):
    """Status, start and size of the raw data, start and length of the call chain of a sample."""
    part = position + layouts[row, at.VARIABLE]
    chain, chain_length = 0, 0
    if layouts[row, at.READ_FIXED]:
        counters_at, entry_size = part, layouts[row, at.READ_ENTRY]
        part += layouts[row, at.READ_FIXED]
        if entry_size and part <= end:
            counters = word_at(data, counters_at)
            if counters < 0 or counters > (end - part) // entry_size:
                return at.BAD_SAMPLE, 0, 0, 0, 0
            part += counters * entry_size
    if layouts[row, at.CALLCHAIN]:
        if part + 8 > end:
            return at.BAD_SAMPLE, 0, 0, 0, 0
        chain_length = word_at(data, part)
        if chain_length < 0 or chain_length > (end - part - 8) // 8:
            return at.BAD_SAMPLE, 0, 0, 0, 0
        chain = part + 8
        part = chain + 8 * chain_length
    if part + 4 > end:
        return at.BAD_SAMPLE, 0, 0, 0, 0
    raw = part + 4
    raw_size = word_at(data, part) & _LOW_HALF
    if raw + raw_size > end or raw_size < layouts[row, at.RAW_SIZE]:
        return at.BAD_RAW, 0, 0, 0, 0
    return at.RUNNING, raw, raw_size, chain, chain_length


@entry
def walk_records(data, end, layouts, ids, columns, notes, copies, state):
    """Walk whole records from state[POSITION] until `end`, a cut record, or a full output.

    `ids` are keys and layout rows (-1 in free slots) of an open-addressing hash of sample ids,
    int64 and a power of two long, and bytes from a sample's start to its id, -1 if all are of row
    0. Notes are on other records of interest, and copies these records.
    """
    id_keys, id_rows, id_offset = ids
    position = state[at.POSITION]
    status = at.RUNNING
    while position + 8 <= end:
        if _is_full(columns, notes, copies, 1, at.LARGEST_RECORD, state):
            status = at.FULL
            break
        header = word_at(data, position)
        kind = header & _LOW_HALF
        size = (header >> 48) & 0xFFFF
        after = position + size
        if size < 8:
            status = at.BAD_SIZE
            break
        if after > end:
            break
        if kind != _SAMPLE:
            behind = 0  # bytes that follow a record without being part of its size
            if kind == _AUXTRACE and size >= 16:
                behind = word_at(data, position + 8)
            elif kind == TRACING_DATA and size >= 12:
                behind = (word_at(data, position + 8) & _LOW_HALF) + 7 & ~7
            elif kind in (_AUXTRACE, TRACING_DATA):
                behind = -1
            if behind < 0:
                status = at.BAD_SIZE
                break
            if behind > end - after:
                break
            if kind in _NOTED_TYPES:
                copied = 0 if kind in (COMPRESSED, COMPRESSED2) else size
                _note(data, -1, kind, position, position, size, copied, notes, copies, state)
            position = after + behind
            continue
        row = _attr_row(data, position, after, id_keys, id_rows, id_offset)
        if row < 0:
            status = at.BAD_ID if row == -1 else at.BAD_SAMPLE
            break
        if layouts[row, at.RAW]:
            status, raw, raw_size, chain, length = _sample_parts(
                data, position, after, layouts, row
            )
            if status != at.RUNNING:
                break
            now = word_at(data, position + layouts[row, at.TIME])
            cpu = word_at(data, position + layouts[row, at.CPU]) & _LOW_HALF
            thread = word_at(data, position + layouts[row, at.TID]) >> 32
            event = (now, cpu, thread, position, size, raw, raw_size, chain, length, position)
            good = cpu <= _LARGEST_CPU and now >= 0
            if not (good and _take_event(data, event, row, layouts, columns, notes, copies, state)):
                status = at.BAD_VALUE
                break
        position = after
    state[at.POSITION], state[at.STATUS] = position, status


# A page of the ring buffer holds the time of its first event, how many bytes of it are used, and
# events end to end: a word of type (5 bits) and time since the event before (27 bits), then the
# tracepoint's raw data. Every reach into a page is checked against what it says is used, and that
# against its size. Type 0 means that a length follows, types up to 28 are lengths in words of 4,
# and the others are of what is no event.
_PADDING, _TIME_EXTEND, _TIME_STAMP = 29, 30, 31
_DELTA_BITS = 27
_MISSED = 1 << 31
_MISSED_STORED = 1 << 30
_USED = (1 << 27) - 1
_TOP_BITS = (0xF8 << 56) - (1 << 64)
"""Bits that a time stamp has no room for: these come from the time before."""


@entry
def walk_pages(
    data,
    positions,
    cpus,
    page_layout,
    rows_of_type,
    layouts,
    last_ns,
    losses,
    columns,
    notes,
    copies,
    state,
):
    """Walk pages from number state[PAGE] on, until the last or until an output is full.

    `positions` and `cpus` say where in `data` each page starts and which CPU it is of, those of one
    CPU in time order. `page_layout` has the offsets of a page's time, used bytes and first event,
    its size, and the offset of common_type in raw data; `rows_of_type`, int32 (65536), the layout
    row of each tracepoint by number, -1 for none; in `layouts`, TID is the offset of common_pid.
    `last_ns` is the time of each CPU's last event so far, -1 before the first, and updated. Losses
    (pages at least, LOSS_WIDTH) and all that follow are outputs; notes are on events for tables,
    with copies of their raw data.
    """
    timestamp, commit_at, data_at, page_size, type_at = page_layout
    room = page_size - data_at
    most = page_size // at.SMALLEST_EVENT + 1
    status = at.RUNNING
    position = 0
    while state[at.PAGE] < len(positions):
        if _is_full(columns, notes, copies, most, page_size + 8, state):
            status = at.FULL
            break
        position = positions[state[at.PAGE]]
        cpu = cpus[state[at.PAGE]]
        commit = word_at(data, position + commit_at)
        now = word_at(data, position + timestamp)
        used = commit & _USED
        if used > room or now < 0:
            status = at.BAD_PAGE
            break
        position += data_at
        end = position + used
        if commit & _MISSED:
            counted = commit & _MISSED_STORED != 0 and used + 8 <= room
            missed = word_at(data, end) if counted else -1
            if missed:
                loss = losses[state[at.LOSSES]]
                loss[at.LOSS_CPU] = cpu
                loss[at.LOSS_START] = last_ns[cpu]
                loss[at.LOSS_END] = now
                loss[at.LOSS_COUNT] = missed
                state[at.LOSSES] += 1
        while position + 4 <= end:
            word = word_at(data, position)
            kind = word & 31
            delta = (word & _LOW_HALF) >> 5
            following = (word >> 32) & _LOW_HALF
            if kind >= _PADDING and position + 8 > end:
                if kind != _PADDING or delta:
                    status = at.BAD_EVENT
                break
            if kind == _PADDING:
                if delta == 0:
                    break
                # An event that a filter discarded: the next one counts its time from this one's.
                now += delta
                position += 4 + following
                continue
            if kind >= _TIME_EXTEND:
                step = (following << _DELTA_BITS) + delta
                before = now
                now = before + step if kind == _TIME_EXTEND else step | (before & _TOP_BITS)
                if now < before and before & _TOP_BITS and kind == _TIME_STAMP:
                    now += 1 << 59
                position += 8
                continue
            now += delta
            raw, raw_size = position + 4, 4 * kind
            if kind == 0:
                raw, raw_size = position + 8, (following + 3 & ~3) - 4
            if raw_size < 4 or raw + raw_size > end or now < 0:
                status = at.BAD_EVENT
                break
            last_ns[cpu] = now
            row = rows_of_type[word_at(data, raw + type_at) & 0xFFFF]
            if row >= 0:
                if raw_size < layouts[row, at.RAW_SIZE]:
                    status = at.BAD_EVENT_RAW
                    break
                thread = word_at(data, raw + layouts[row, at.TID]) << 32 >> 32
                event = (now, cpu, thread, raw, raw_size, raw, raw_size, raw, 0, position)
                if not _take_event(data, event, row, layouts, columns, notes, copies, state):
                    status = at.BAD_EVENT_VALUE
                    break
            position = raw + raw_size
        if status != at.RUNNING:
            break
        state[at.PAGE] += 1
    state[at.STATUS], state[at.POSITION] = status, position
