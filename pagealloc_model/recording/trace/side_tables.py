"""What a walk over a file collects: the main events, and tables of all other tracepoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pagealloc_model.base.arrays import Column, NewArray, in_memory, on_disk
from pagealloc_model.recording.trace import perf_samples as note
from pagealloc_model.recording.trace.columns import (
    COLUMN_TYPES,
    Losses,
    ThreadNames,
    Trace,
    time_order,
)
from pagealloc_model.recording.trace.formats import Field, TracepointFormat

KEY_COLUMNS = ("time_ns", "cpu", "pid", "row")
CHAIN_COLUMNS = ("callchain_start", "callchain_len")
FIELD_SUFFIX = "_field"
"""Added to a field's name that a key column already has, such as pa:drain_zone's `cpu`."""

_KEY_TYPES = (np.int64, np.int16, np.int32, np.int64)
_KEY_PLACES = (note.NOTE_TIME, note.NOTE_CPU, note.NOTE_PID, note.NOTE_BEFORE)
_ROWS_AT_A_TIME = 1 << 18
_FIRST_NOTES = 1 << 12
_FIRST_BYTES = 1 << 20


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
        self._new_array = in_memory if directory is None else on_disk(directory)
        self.columns = {
            name: Column(dtype, directory, rows) for name, dtype in COLUMN_TYPES.items()
        }
        self.notes = Column((np.int64, (note.NOTE_WIDTH,)), directory, _FIRST_NOTES)
        self.copies = Column(np.uint8, directory, _FIRST_BYTES)

    @property
    def filled(self) -> tuple[int, int, int]:
        """Rows of the columns, notes, and bytes of copies so far."""
        return self.columns["time_ns"].rows, self.notes.rows, self.copies.rows

    @filled.setter
    def filled(self, counts: Sequence[int]) -> None:
        for column in self.columns.values():
            column.rows = counts[0]
        self.notes.rows, self.copies.rows = counts[1:]

    def room(
        self, rows: int, notes: int, size: int
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
        """Columns, notes and copies, with room for so many more at least."""
        return (
            tuple(column.room(rows) for column in self.columns.values()),
            self.notes.room(max(notes, self.notes.rows, _FIRST_NOTES)),
            self.copies.room(max(size, self.copies.rows, _FIRST_BYTES)),
        )

    def record(self, noted: np.ndarray) -> bytes:
        """The bytes of the record that a note is about."""
        start = int(noted[note.NOTE_POSITION])
        return self.copies.values[start : start + int(noted[note.NOTE_SIZE])].tobytes()

    def trace(
        self,
        formats: Sequence[TracepointFormat | None],
        chained: Sequence[bool],
        **about: Any,
    ) -> Trace:
        """All of it in time order, ties in file order; what was filled is gone.

        Args:
            formats: for each attribute, its format, or None for attributes that are not noted.
            chained: for each attribute, whether its samples carry call chains.
            **about: the other fields of the Trace.
        """
        order = time_order(self.columns["time_ns"].values, self._new_array)
        main = self._ordered(order)
        tables = _EventTables(self, formats, chained, self._new_array)
        return Trace(
            **main,
            tables=tables.tables(main["time_ns"], order),
            declared_types=tables.declared_types(),
            callchains=tables.callchains(),
            **about,
        )

    def _ordered(self, order: np.ndarray | None) -> dict[str, np.ndarray]:
        """A column takes the place of the last one with items of its size.

        Memory used for the first time costs more than the copy.
        """
        spare: dict[int, np.ndarray] = {}
        gathered = {}
        for name in COLUMN_TYPES:
            values = self.columns.pop(name).values
            if order is None:
                gathered[name] = values
                continue
            target = spare.pop(values.itemsize, None)
            if target is None:
                target = self._new_array(len(values), values.dtype)
            target = target.view(values.dtype)
            np.take(values, order, out=target, mode="clip")
            gathered[name], spare[values.itemsize] = target, values
        return gathered


class _EventTables:
    """Turns noted samples into tables, some samples at a time; columns of text are in memory."""

    def __init__(
        self,
        collected: Collected,
        formats: Sequence[TracepointFormat | None],
        chained: Sequence[bool],
        new_array: NewArray,
    ) -> None:
        from pagealloc_model.recording.trace.record_walk import gather_words

        self._gather_words = gather_words
        self._notes = collected.notes.values
        # behind the last copy there is room for a whole word
        self._data = collected.copies.room(8)
        self._formats = formats
        self._chained = chained
        self._new_array = new_array
        self._texts: dict[bytes, str] = {}
        self._chains: list[np.ndarray] = []
        self._chain_words = 0
        self._numbers = self._numbers_by_attr()

    def tables(
        self, main_time_ns: np.ndarray, main_order: np.ndarray | None
    ) -> dict[str, Mapping[str, np.ndarray]]:
        """All tables by event name, each in time order, ties in file order.

        Args:
            main_time_ns: times of the main rows, in time order.
            main_order: file-order number of each main row, None if file order is time order.
        """
        tables = {}
        for attr_row, unordered in self._numbers.items():
            tracepoint = self._formats[attr_row]
            assert tracepoint is not None
            numbers = self._in_time_order(unordered)
            table = self._keys(numbers, main_time_ns, main_order)
            if self._chained[attr_row]:
                table |= self._take_chains(numbers)
            for field in tracepoint.column_fields:
                read = self._strings if field.is_string else self._numbers_of
                table[column_name(field.name)] = read(numbers, field)
            for column in table.values():
                column.flags.writeable = False
            tables[tracepoint.event_name] = table
        return tables

    def declared_types(self) -> dict[str, dict[str, str]]:
        """C types of the fields in the tables, by event and column."""
        formats = [self._formats[attr_row] for attr_row in self._numbers]
        return {
            tracepoint.event_name: {
                column_name(field.name): field.type for field in tracepoint.column_fields
            }
            for tracepoint in formats
            if tracepoint is not None
        }

    def callchains(self) -> np.ndarray:
        """All call chains of the tables end to end, uint64."""
        chains = self._new_array(self._chain_words, np.uint64)
        filled = 0
        for words in self._chains:
            chains[filled : filled + len(words)] = words
            filled += len(words)
        return chains

    def _numbers_by_attr(self) -> dict[int, np.ndarray]:
        """The numbers of each attribute's notes, in file order."""
        attr_rows = self._notes[:, note.NOTE_ATTR]
        counts = np.zeros(len(self._formats) + 1, np.int64)
        for part in _parts(len(attr_rows)):
            counts += np.bincount(attr_rows[part] + 1, minlength=len(counts))
        numbers = {
            attr_row: self._new_array(int(count), np.int64)
            for attr_row, count in enumerate(counts[1:])
            if count
        }
        filled = dict.fromkeys(numbers, 0)
        for part in _parts(len(attr_rows)):
            for attr_row in filled.keys() & set(np.unique(attr_rows[part]).tolist()):
                found = part.start + np.flatnonzero(attr_rows[part] == attr_row)
                first = filled[attr_row]
                filled[attr_row] += len(found)
                numbers[attr_row][first : filled[attr_row]] = found
        return numbers

    def _in_time_order(self, numbers: np.ndarray) -> np.ndarray:
        times = self._new_array(len(numbers), np.int64)
        for part in _parts(len(numbers)):
            times[part] = self._notes[numbers[part], note.NOTE_TIME]
        order = time_order(times, self._new_array)
        if order is None:
            return numbers
        for part in _parts(len(numbers)):
            order[part] = numbers[order[part]]
        return order

    def _keys(
        self, numbers: np.ndarray, main_time_ns: np.ndarray, main_order: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        table = {
            name: self._new_array(len(numbers), dtype)
            for name, dtype in zip(KEY_COLUMNS, _KEY_TYPES, strict=True)
        }
        for part in _parts(len(numbers)):
            chosen = self._notes[numbers[part]]
            for name, place in zip(KEY_COLUMNS, _KEY_PLACES, strict=True):
                table[name][part] = chosen[:, place]
            table["row"][part] = preceding_rows(
                table["time_ns"][part], table["row"][part], main_time_ns, main_order
            )
        return table

    def _take_chains(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        start = self._new_array(len(numbers), np.int64)
        length = self._new_array(len(numbers), np.int64)
        for part in _parts(len(numbers)):
            length[part] = self._notes[numbers[part], note.NOTE_CHAIN_SIZE]
        words = self._new_array(int(length.sum()), np.uint64)
        filled = 0
        for part in _parts(len(numbers)):
            ends = np.cumsum(length[part])
            begins = ends - length[part]
            start[part] = self._chain_words + filled + begins
            within = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(begins, length[part])
            chains = self._notes[numbers[part], note.NOTE_CHAIN]
            positions = np.repeat(chains, length[part]) + 8 * within
            words[filled : filled + len(positions)] = self._words_at(positions).view(np.uint64)
            filled += len(positions)
        self._chains.append(words)
        self._chain_words += filled
        return dict(zip(CHAIN_COLUMNS, (start, length), strict=True))

    def _words_at(self, positions: np.ndarray) -> np.ndarray:
        gathered = np.empty(len(positions), np.int64)
        self._gather_words(self._data, positions, gathered)
        return gathered

    def _numbers_of(self, numbers: np.ndarray, field: Field) -> np.ndarray:
        column = self._new_array(len(numbers), f"<{'i' if field.signed else 'u'}{field.size}")
        for part in _parts(len(numbers)):
            words = self._words_at(self._notes[numbers[part], note.NOTE_RAW] + field.offset)
            column[part] = words.view(np.uint64).astype(f"<u{field.size}").view(column.dtype)
        return column

    def _strings(self, numbers: np.ndarray, field: Field) -> np.ndarray:
        """Text fields as str objects, equal ones the same object.

        A dynamic one that points outside its record is "".
        """
        texts = np.empty(len(numbers), object)
        for index, number in enumerate(numbers):
            raw, raw_size = self._notes[number, note.NOTE_RAW : note.NOTE_RAW_SIZE + 1].tolist()
            offset, size = field.offset, field.size
            if field.is_dynamic:
                start = raw + field.offset
                offset, size = self._data[start : start + 4].view("<u2").tolist()
                if field.type.startswith("__rel_loc"):
                    offset += field.end
            text = b""
            if offset + size <= raw_size:
                text = self._data[raw + offset : raw + offset + size].tobytes()
            texts[index] = self._decoded(text.split(b"\0", 1)[0])
        return texts

    def _decoded(self, text: bytes) -> str:
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = text.decode("utf-8", "replace")
        return known


def _parts(rows: int) -> Iterator[slice]:
    """Slices that cover some rows."""
    for start in range(0, rows, _ROWS_AT_A_TIME):
        yield slice(start, min(start + _ROWS_AT_A_TIME, rows))


def column_name(field: str) -> str:
    """The column of a table that holds a field."""
    return field + FIELD_SUFFIX if field in KEY_COLUMNS + CHAIN_COLUMNS else field


def preceding_rows(
    time_ns: np.ndarray,
    rows_before: np.ndarray,
    main_time_ns: np.ndarray,
    main_order: np.ndarray | None,
) -> np.ndarray:
    """How many main rows precede each sample in time order, ties in file order."""
    row = np.searchsorted(main_time_ns, time_ns, side="left")
    last = np.searchsorted(main_time_ns, time_ns, side="right")
    # Among rows of equal time, file-order numbers ascend: bisect for all samples at once.
    while len(undecided := np.flatnonzero(row < last)):
        middle = (row[undecided] + last[undecided]) // 2
        number = middle if main_order is None else main_order[middle]
        precedes = number < rows_before[undecided]
        row[undecided[precedes]] = middle[precedes] + 1
        last[undecided[~precedes]] = middle[~precedes]
    return row


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time kept: begin_ns <= time < end_ns, on the recording's clock.

    Attributes:
        begin_ns: time of the first event kept, or later.
        end_ns: where the window ends.
        from_start: whether it begins where the recording does.
        to_end: whether it reaches the recording's last event.
        events: page-allocator events in it.
    """

    begin_ns: int
    end_ns: int
    from_start: bool
    to_end: bool
    events: int


def events_between(trace: Trace, window: Window) -> Trace:
    """What a Trace holds of a window.

    Names from before the window are kept, since they hold in it. An event without samples in it
    has no table.
    """
    rows = _inside(trace.time_ns, window)
    cut = _TableCut(trace, window, rows.start)
    tables = {name: cut.table(table) for name, table in trace.tables.items()}
    kept = {name: table for name, table in tables.items() if len(table["time_ns"])}
    names = _names_before(trace.thread_names, window)
    return replace(
        trace,
        **{name: getattr(trace, name)[rows] for name in COLUMN_TYPES},
        tables=kept,
        declared_types={name: trace.declared_types[name] for name in kept if trace.declared_types},
        callchains=np.concatenate([*cut.chains, np.zeros(0, np.uint64)]),
        thread_names=names,
        comms=names.last() if len(trace.thread_names) else trace.comms,
        losses=_losses_between(trace.losses, window, int(trace.time_ns[rows.start])),
    )


def _inside(time_ns: np.ndarray, window: Window) -> slice:
    """The rows of a column of ascending times that lie in the window."""
    first = 0 if window.from_start else int(np.searchsorted(time_ns, window.begin_ns))
    last = len(time_ns) if window.to_end else int(np.searchsorted(time_ns, window.end_ns))
    return slice(first, last)


class _TableCut:
    """Cuts tables one after the other, and collects the call chains they keep."""

    def __init__(self, trace: Trace, window: Window, rows_before: int) -> None:
        self._trace = trace
        self._window = window
        self._rows_before = rows_before
        self._chain_words = 0
        self.chains: list[np.ndarray] = []

    def table(self, table: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One table's rows in the window."""
        rows = _inside(table["time_ns"], self._window)
        kept = {name: values[rows] for name, values in table.items()}
        kept["row"] = kept["row"] - self._rows_before
        if set(CHAIN_COLUMNS) <= kept.keys():
            start, length = (kept[name] for name in CHAIN_COLUMNS)
            kept[CHAIN_COLUMNS[0]] = self._take_chains(start, length)
        return kept

    def _take_chains(self, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Where the call chains start among those kept."""
        ends = np.cumsum(length)
        within = np.arange(int(length.sum()), dtype=np.int64) - np.repeat(ends - length, length)
        self.chains.append(self._trace.callchains[np.repeat(start, length) + within])
        moved = self._chain_words + ends - length
        self._chain_words += len(within)
        return moved


def _names_before(names: ThreadNames, window: Window) -> ThreadNames:
    """Namings until the window's end."""
    kept = (names.time_ns < window.end_ns) | window.to_end
    return ThreadNames(
        time_ns=names.time_ns[kept],
        tid=names.tid[kept],
        parent=names.parent[kept],
        name=names.name[kept],
    )


def _losses_between(losses: Losses, window: Window, first_ns: int) -> Losses:
    """Losses noticed in the window; one that began before it begins with the first event in it.

    Sums at the recording's end do not say when, and are kept only if the window is all of it.
    """
    whole = window.from_start and window.to_end
    kept = (losses.end_ns >= window.begin_ns) | window.from_start
    kept &= (losses.end_ns < window.end_ns) | window.to_end
    kept[len(kept) - losses.at_end :] = whole
    found = losses.take(kept)
    start, end = found.start_ns, found.end_ns
    if not window.from_start:
        start = np.where(start < window.begin_ns, np.minimum(first_ns, end), start)
    return replace(found, start_ns=start, at_end=losses.at_end if whole else 0)
