"""Tables of the tracepoints that are not main events, one row per sample, all fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pagealloc_model.base.column_space import NewArray, in_memory
from pagealloc_model.recording.trace import record_notes as note
from pagealloc_model.recording.trace.record_notes import RecordNotes
from pagealloc_model.recording.trace.time_order import time_order
from pagealloc_model.recording.trace.tracepoint_format import Field, TracepointFormat

KEY_COLUMNS = ("time_ns", "cpu", "pid", "row")
CHAIN_COLUMNS = ("callchain_start", "callchain_len")
FIELD_SUFFIX = "_field"
"""Added to a field's name that a key column already has, such as pa:drain_zone's `cpu`."""

_KEY_TYPES = (np.int64, np.int16, np.int32, np.int64)
_KEY_PLACES = (note.NOTE_TIME, note.NOTE_CPU, note.NOTE_PID, note.NOTE_BEFORE)
_ROWS_AT_A_TIME = 1 << 18


class EventTables:
    """Turns noted samples into tables, some samples at a time.

    Args:
        notes: all notes of a file.
        formats: for each attribute, its format, or None for attributes that are not noted.
        chained: for each attribute, whether its samples carry call chains.
        new_array: makes the columns; those of text are always in memory.
    """

    def __init__(
        self,
        notes: RecordNotes,
        formats: Sequence[TracepointFormat | None],
        chained: Sequence[bool],
        new_array: NewArray = in_memory,
    ) -> None:
        from pagealloc_model.recording.trace.unaligned_words import gather_words

        self._gather_words = gather_words
        self._notes = notes.filled_rows
        self._data = notes.copies
        self._formats = formats
        self._chained = chained
        self._new_array = new_array
        self._texts: dict[bytes, str] = {}
        self._chains: list[np.ndarray] = []
        self._chain_words = 0

    def tables(
        self, main_time_ns: np.ndarray, main_order: np.ndarray | None
    ) -> dict[str, Mapping[str, np.ndarray]]:
        """All tables by event name, each in time order, ties in file order.

        Args:
            main_time_ns: times of the main rows, in time order.
            main_order: file-order number of each main row, None if file order is time order.
        """
        tables = {}
        for attr_row, unordered in self._numbers_by_attr().items():
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
        formats = [self._formats[attr_row] for attr_row in self._numbers_by_attr()]
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
    """How many main rows precede each sample in time order, ties in file order.

    Args:
        time_ns: int64, times of the samples.
        rows_before: int64, main rows before each in the file.
        main_time_ns: int64, times of the main rows, in time order.
        main_order: file-order number of each main row, None if file order is time order.
    """
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
