"""Tables of the tracepoints that are not main events, one row per sample, all fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pagealloc_model.trace import record_notes as note
from pagealloc_model.trace.record_notes import RecordNotes
from pagealloc_model.trace.tracepoint_format import Field, TracepointFormat

KEY_COLUMNS = ("time_ns", "cpu", "pid", "row")
CHAIN_COLUMNS = ("callchain_start", "callchain_len")
FIELD_SUFFIX = "_field"
"""Added to a field's name that a key column already has, such as pa:drain_zone's `cpu`."""


class EventTables:
    """Turns noted samples into tables.

    Args:
        notes: all notes of a file.
        formats: for each attribute, its format, or None for attributes that are not noted.
        chained: for each attribute, whether its samples carry call chains.
    """

    def __init__(
        self,
        notes: RecordNotes,
        formats: Sequence[TracepointFormat | None],
        chained: Sequence[bool],
    ) -> None:
        from pagealloc_model.trace.record_walk import gather_words

        self._gather_words = gather_words
        self._data = notes.copies
        self._formats = formats
        self._chained = chained
        rows = notes.filled_rows
        attr_rows = rows[:, note.NOTE_ATTR]
        self._samples = {
            attr_row: rows[attr_rows == attr_row]
            for attr_row in np.unique(attr_rows[attr_rows >= 0]).tolist()
        }
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
        for attr_row, unordered in self._samples.items():
            tracepoint = self._formats[attr_row]
            assert tracepoint is not None
            chosen = unordered[np.argsort(unordered[:, note.NOTE_TIME], kind="stable")]
            time_ns = chosen[:, note.NOTE_TIME].copy()
            table = {
                "time_ns": time_ns,
                "cpu": chosen[:, note.NOTE_CPU].astype(np.int16),
                "pid": chosen[:, note.NOTE_PID].astype(np.int32),
                "row": preceding_rows(
                    time_ns, chosen[:, note.NOTE_BEFORE], main_time_ns, main_order
                ),
            }
            if self._chained[attr_row]:
                table.update(self._take_chains(chosen))
            for field in tracepoint.column_fields:
                table[column_name(field.name)] = self._field_values(chosen, field)
            for column in table.values():
                column.flags.writeable = False
            tables[tracepoint.event_name] = table
        return tables

    def callchains(self) -> np.ndarray:
        """All call chains of the tables end to end, uint64."""
        if not self._chains:
            return np.zeros(0, np.uint64)
        return np.concatenate(self._chains)

    def _take_chains(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        lengths = chosen[:, note.NOTE_CHAIN_SIZE].copy()
        starts = np.cumsum(lengths) - lengths
        within = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)
        positions = np.repeat(chosen[:, note.NOTE_CHAIN], lengths) + 8 * within
        self._chains.append(self._words_at(positions).view(np.uint64))
        starts += self._chain_words
        self._chain_words += len(positions)
        return dict(zip(CHAIN_COLUMNS, (starts, lengths), strict=True))

    def _words_at(self, positions: np.ndarray) -> np.ndarray:
        gathered = np.empty(len(positions), np.int64)
        self._gather_words(self._data, positions, gathered)
        return gathered

    def _field_values(self, chosen: np.ndarray, field: Field) -> np.ndarray:
        if field.is_string:
            return self._strings(chosen, field)
        words = self._words_at(chosen[:, note.NOTE_RAW] + field.offset)
        unsigned = words.view(np.uint64).astype(f"<u{field.size}")
        return unsigned.view(f"<i{field.size}") if field.signed else unsigned

    def _strings(self, chosen: np.ndarray, field: Field) -> np.ndarray:
        """Text fields as str objects; a dynamic one that points outside its record is ""."""
        texts = np.empty(len(chosen), object)
        for index, sample in enumerate(chosen):
            raw, raw_size = int(sample[note.NOTE_RAW]), int(sample[note.NOTE_RAW_SIZE])
            offset, size = field.offset, field.size
            if field.is_dynamic:
                start = raw + field.offset
                offset, size = self._data[start : start + 4].view("<u2").tolist()
                if field.type.startswith("__rel_loc"):
                    offset += field.end
            text = b""
            if offset + size <= raw_size:
                text = self._data[raw + offset : raw + offset + size].tobytes()
            texts[index] = text.split(b"\0", 1)[0].decode("utf-8", "replace")
        return texts


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
