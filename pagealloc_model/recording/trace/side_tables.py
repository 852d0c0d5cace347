"""Collects main events and tables of all other tracepoints from a walk; cuts of a Trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pagealloc_model.base.arrays import Column, in_memory, on_disk, parts
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.text import LONGEST_TEXT, as_name
from pagealloc_model.recording.trace import layout as at
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace, time_order
from pagealloc_model.recording.trace.formats import Field, TracepointFormat

KEY_COLUMNS = ("time_ns", "cpu", "pid", "row")
CHAIN_COLUMNS = ("callchain_start", "callchain_len")
FIELD_SUFFIX = "_field"
"""Added to a field's name that a key column already has, such as pa:drain_zone's `cpu`."""

_KEYS = tuple(
    zip(
        KEY_COLUMNS,
        (at.NOTE_TIME, at.NOTE_CPU, at.NOTE_PID, at.NOTE_BEFORE),
        (np.int64, np.int16, np.int32, np.int64),
        strict=True,
    )
)
LAST_NS = 1 << 62
_FIRST_NOTES = 1 << 12
_FIRST_BYTES = 1 << 20


ODD_STEP_NS = 1_000_000_000
"""A CPU's buffer is in order of time, but for microseconds where an interrupt comes into an event.
Rounds of a recorder that keeps a buffer for each thread are shorter than this."""


def _clock_notes(time_ns: np.ndarray, cpus: np.ndarray) -> list[str]:
    """A line for each CPU whose clock goes back by a second or more; its events are as recorded."""
    from pagealloc_model.recording.trace.walk import clock_steps_back

    largest = np.zeros(int(cpus.max()) + 1, np.int64)
    clock_steps_back(time_ns, cpus, np.zeros_like(largest), largest)
    return [
        f"the clock of CPU {cpu} goes back by {largest[cpu] / 1e9:.3f} s: its events are taken in "
        "the order of their times, not in that of the file"
        for cpu in np.flatnonzero(largest >= ODD_STEP_NS).tolist()
    ]


class Collected:
    """Main events in file order, and notes on other records with copies of these.

    Attributes:
        columns: of a Trace, by name.
        notes: int64 (records, NOTE_WIDTH). NOTE_ATTR is -1 for records that are not samples;
            NOTE_SOURCE is an offset in the file or in the decompressed stream, the other places
            are in `copies`; NOTE_BEFORE counts the main rows before the record in the file.
        copies: uint8, the records end to end; compressed records are not copied.
    """

    def __init__(self, rows: int, directory: Path | None) -> None:
        self._directory = directory
        self._new_array = in_memory if directory is None else on_disk(directory)
        self.columns = {
            name: Column(dtype, directory, rows) for name, dtype in COLUMN_TYPES.items()
        }
        self.notes = Column((np.int64, (at.NOTE_WIDTH,)), directory, _FIRST_NOTES)
        self.copies = Column(np.uint8, directory, _FIRST_BYTES)
        self._chains = Column(np.uint64, directory)
        self._texts: dict[bytes, str] = {}

    @property
    def rows(self) -> int:
        """Rows of the columns so far."""
        return self.columns["time_ns"].rows

    def walk(
        self,
        kernel: Callable[..., None],
        arguments: Sequence[Any],
        room: tuple[int, int, int],
        state: np.ndarray,
        report: Callable[[], None] = lambda: None,
    ) -> str:
        """Call a compiled walk until it is done; returns what is wrong at the state's POSITION.

        Each time it gets room for so many more rows, notes, and bytes of copies at least, and
        `report` is called when it has filled it.
        """
        rows, notes, size = room
        while True:
            state[at.ROWS : at.STATUS] = self.rows, self.notes.rows, self.copies.rows
            columns = tuple(column.room(rows) for column in self.columns.values())
            notes_room = self.notes.room(max(notes, self.notes.rows, _FIRST_NOTES))
            copies_room = self.copies.room(max(size, self.copies.rows, _FIRST_BYTES))
            kernel(*arguments, columns, notes_room, copies_room, state)
            filled, self.notes.rows, self.copies.rows = state[at.ROWS : at.STATUS].tolist()
            for column in self.columns.values():
                column.rows = filled
            if state[at.STATUS] != at.FULL:
                return at.STATUS_TEXTS.get(int(state[at.STATUS]), "")
            report()

    def record(self, noted: np.ndarray) -> bytes:
        """The bytes of the record that a note is about."""
        start = int(noted[at.NOTE_POSITION])
        return self.copies.values[start : start + int(noted[at.NOTE_SIZE])].tobytes()

    def trace(
        self, formats: Sequence[TracepointFormat | None], chained: np.ndarray, **about: Any
    ) -> Trace:
        """All of it in time order, ties in file order; what was filled is gone."""
        order = time_order(self.columns["time_ns"].values, self._new_array)
        if order is not None:
            times, cpus = (self.columns[name].values for name in ("time_ns", "cpu"))
            about["notes"] = (*about.get("notes", ()), *_clock_notes(times, cpus))
        # A column takes the place of the last one with items of its size: memory used for the first
        # time costs more than the copy.
        main, spare = {}, {}
        for name in COLUMN_TYPES:
            values = main[name] = self.columns.pop(name).values
            if order is not None:
                target = spare.pop(values.itemsize, None)
                if target is None:
                    target = self._new_array(len(values), values.dtype)
                main[name] = target.view(values.dtype)
                np.take(values, order, out=main[name], mode="clip")
                spare[values.itemsize] = values
        tables, declared = {}, {}
        attr_rows = self.notes.values[:, at.NOTE_ATTR]
        noted: dict[int, Column] = {}  # the numbers of each attribute's notes, in file order
        for part in parts(len(attr_rows)):
            of_part = attr_rows[part]
            for attr_row in np.unique(of_part[of_part >= 0]).tolist():
                if attr_row not in noted:
                    noted[attr_row] = Column(np.int64, self._directory)
                noted[attr_row].append(part.start + np.flatnonzero(of_part == attr_row))
        for attr_row, unordered in [(row, noted[row].values) for row in sorted(noted)]:
            tracepoint = formats[attr_row]
            assert tracepoint is not None
            numbers = time_order(self._noted(unordered, at.NOTE_TIME, np.int64), self._new_array)
            for part in parts(0 if numbers is None else len(numbers)):
                numbers[part] = unordered[numbers[part]]
            numbers = unordered if numbers is None else numbers
            table = {name: self._noted(numbers, place, dtype) for name, place, dtype in _KEYS}
            for part in parts(len(numbers)):
                table["row"][part] = preceding_rows(
                    table["time_ns"][part], table["row"][part], main["time_ns"], order
                )
            if chained[attr_row]:
                start = self._new_array(len(numbers), np.int64)
                length = self._noted(numbers, at.NOTE_CHAIN_SIZE, np.int64)
                for part in parts(len(numbers)):
                    begins, within = _places_within(length[part])
                    start[part] = self._chains.rows + begins
                    places = np.repeat(
                        self.notes.values[numbers[part], at.NOTE_CHAIN], length[part]
                    )
                    self._chains.append(self._words_at(places + 8 * within).view(np.uint64))
                table |= dict(zip(CHAIN_COLUMNS, (start, length), strict=True))
            for field in tracepoint.column_fields:
                values = self._strings if field.is_string else self._integers
                table[column_name(field.name)] = values(numbers, field)
            for column in table.values():
                column.flags.writeable = False
            tables[tracepoint.event_name] = table
            declared[tracepoint.event_name] = {
                column_name(field.name): field.type for field in tracepoint.column_fields
            }
        for columns in (main, *tables.values()):
            if columns["time_ns"][-1:].max(initial=0) > LAST_NS:
                raise RecordingError(about["source"], "has an event 146 years after boot")
        chains = self._chains.values
        return Trace(**main, tables=tables, declared_types=declared, callchains=chains, **about)

    def _noted(self, numbers: np.ndarray, place: int, dtype: Any) -> np.ndarray:
        """One column of the notes with these numbers."""
        column, notes = self._new_array(len(numbers), dtype), self.notes.values
        for part in parts(len(numbers)):
            column[part] = notes[numbers[part], place]
        return column

    def _words_at(self, positions: np.ndarray) -> np.ndarray:
        from pagealloc_model.recording.trace.walk import gather_words

        gathered = np.empty(len(positions), np.int64)
        gather_words(self.copies.room(8), positions, gathered)  # behind the last a whole word
        return gathered

    def _integers(self, numbers: np.ndarray, field: Field) -> np.ndarray:
        column = self._new_array(len(numbers), f"<{'i' if field.signed else 'u'}{field.size}")
        for part in parts(len(numbers)):
            positions = self.notes.values[numbers[part], at.NOTE_RAW] + field.offset
            words = self._words_at(positions).view(np.uint64)
            column[part] = words.astype(f"<u{field.size}").view(column.dtype)
        return column

    def _strings(self, numbers: np.ndarray, field: Field) -> np.ndarray:
        """Text fields as str objects, equal ones the same object.

        A dynamic one that points outside its record is "".
        """
        texts, data = np.empty(len(numbers), object), self.copies.values
        places = (self._noted(numbers, at.NOTE_RAW + n, np.int64).tolist() for n in range(2))
        for index, (raw, raw_size) in enumerate(zip(*places, strict=True)):
            offset, size = field.offset, field.size
            if field.is_dynamic:
                start = raw + field.offset
                offset, size = data[start : start + 4].view("<u2").tolist()
                if field.type.startswith("__rel_loc"):
                    offset += field.end
            text = b""
            if offset + size <= raw_size:
                text = data[raw + offset : raw + offset + size].tobytes().split(b"\0", 1)[0]
            if text not in self._texts:
                self._texts[text] = as_name(text.decode("utf-8", "replace"), LONGEST_TEXT)
            texts[index] = self._texts[text]
        return texts


def _places_within(length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where chains of these lengths begin, end to end, and each word's place in its chain."""
    begins = np.cumsum(length) - length
    return begins, np.arange(int(length.sum()), dtype=np.int64) - np.repeat(begins, length)


def column_name(field: str) -> str:
    """The column of a table that holds a field."""
    return field + FIELD_SUFFIX if field in KEY_COLUMNS + CHAIN_COLUMNS else field


def preceding_rows(
    time_ns: np.ndarray,
    rows_before: np.ndarray,
    main_time_ns: np.ndarray,
    main_order: np.ndarray | None,
) -> np.ndarray:
    """The number of main rows before each sample in time order, ties in file order."""
    row = np.searchsorted(main_time_ns, time_ns, side="left")
    last = np.searchsorted(main_time_ns, time_ns, side="right")
    # Among rows of equal time, file-order numbers ascend: bisect for all samples at once.
    while len(undecided := np.flatnonzero(row < last)):
        middle = (row[undecided] + last[undecided]) // 2
        precedes = (middle if main_order is None else main_order[middle]) < rows_before[undecided]
        row[undecided[precedes]] = middle[precedes] + 1
        last[undecided[~precedes]] = middle[~precedes]
    return row


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time kept: begin_ns <= time < end_ns, on the recording's clock.

    Attributes:
        begin_ns: time of the first event kept, or later.
        end_ns: where the window ends.
        from_start: it begins where the recording does.
        to_end: it reaches the recording's last event.
        events: page-allocator events in it.
    """

    begin_ns: int
    end_ns: int
    from_start: bool
    to_end: bool
    events: int

    def rows(self, time_ns: np.ndarray) -> slice:
        """The rows of a column of ascending times that lie in the window."""
        first = 0 if self.from_start else int(np.searchsorted(time_ns, self.begin_ns))
        last = len(time_ns) if self.to_end else int(np.searchsorted(time_ns, self.end_ns))
        return slice(first, last)


def events_from(trace: Trace, begin_ns: int) -> tuple[Trace, int]:
    """The events from a time on, and how many are left out."""
    left_out = int(np.searchsorted(trace.time_ns, begin_ns))
    window = Window(
        begin_ns=begin_ns,
        end_ns=int(trace.time_ns[-1]) + 1,
        from_start=False,
        to_end=True,
        events=len(trace) - left_out,
    )
    return events_between(trace, window), left_out


def events_between(trace: Trace, window: Window) -> Trace:
    """The part of a Trace that lies in a window.

    Names from before the window are kept, since they hold in it. An event without samples in it
    has no table.
    """
    rows = window.rows(trace.time_ns)
    tables, chains = {}, [np.zeros(0, np.uint64)]
    for name, uncut in trace.tables.items():
        of_table = window.rows(uncut["time_ns"])
        table = {column: values[of_table] for column, values in uncut.items()}
        if not len(table["time_ns"]):
            continue
        table["row"] = table["row"] - rows.start
        if set(CHAIN_COLUMNS) <= table.keys():
            start, length = (table[column] for column in CHAIN_COLUMNS)
            begins, within = _places_within(length)
            table[CHAIN_COLUMNS[0]] = sum(map(len, chains)) + begins
            chains.append(trace.callchains[np.repeat(start, length) + within])
        tables[name] = table
    # Losses noticed in the window; one that began before it begins with the first event in it. Sums
    # at the recording's end do not say when, and are kept only if the window is all of it.
    losses, whole = trace.losses, window.from_start and window.to_end
    inside = (losses.end_ns >= window.begin_ns) | window.from_start
    inside &= (losses.end_ns < window.end_ns) | window.to_end
    inside[len(inside) - losses.at_end :] = whole
    losses_inside = losses.take(inside)
    start = losses_inside.start_ns
    if not window.from_start:
        first = np.minimum(trace.time_ns[rows.start], losses_inside.end_ns)
        start = np.where(start < window.begin_ns, first, start)
    names = trace.thread_names
    names = names.take((names.time_ns < window.end_ns) | window.to_end)
    return replace(
        trace,
        **{name: getattr(trace, name)[rows] for name in COLUMN_TYPES},
        tables=tables,
        declared_types={
            name: trace.declared_types[name] for name in tables if trace.declared_types
        },
        callchains=np.concatenate(chains),
        thread_names=names,
        comms=names.last() if len(trace.thread_names) else trace.comms,
        losses=replace(losses_inside, start_ns=start, at_end=losses.at_end if whole else 0),
    )
