"""Tables of the tracepoints that are not main events, one row per sample, all fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pagealloc_model.trace import record_walk as walk
from pagealloc_model.trace.tracepoint_format import Field, TracepointFormat

KEY_COLUMNS = ("time_ns", "cpu", "pid", "row")
CHAIN_COLUMNS = ("callchain_start", "callchain_len")
FIELD_SUFFIX = "_field"
"""Added to a field's name that a key column already has, such as pa:drain_zone's `cpu`."""


class EventTables:
    """Collects noted samples buffer by buffer and turns them into tables.

    Args:
        formats: for each attribute, its format, or None for attributes that are not noted.
        chained: for each attribute, whether its samples carry call chains.
    """

    def __init__(self, formats: Sequence[TracepointFormat | None], chained: Sequence[bool]) -> None:
        self._formats = formats
        self._chained = chained
        self._pieces: dict[int, list[dict[str, np.ndarray]]] = {}
        self._chains: list[np.ndarray] = []
        self._chain_words = 0

    def add(self, data: np.ndarray, words: np.ndarray, notes: np.ndarray) -> None:
        """Take the samples among `notes` out of the buffer they lie in."""
        attr_rows = notes[:, walk.NOTE_ATTR]
        for attr_row in np.unique(attr_rows[attr_rows >= 0]).tolist():
            chosen = notes[attr_rows == attr_row]
            piece = self._keys(chosen)
            if self._chained[attr_row]:
                piece.update(self._take_chains(words, chosen))
            for field in self._fields(attr_row):
                piece[_column_name(field)] = _field_values(data, words, chosen, field)
            self._pieces.setdefault(attr_row, []).append(piece)

    def tables(
        self, main_time_ns: np.ndarray, main_order: np.ndarray | None
    ) -> dict[str, Mapping[str, np.ndarray]]:
        """The finished tables by event name, each in time order, ties in file order.

        Args:
            main_time_ns: times of the main rows, in time order.
            main_order: file-order number of each main row, None if file order is time order.
        """
        tables = {}
        for attr_row, pieces in sorted(self._pieces.items()):
            tracepoint = self._formats[attr_row]
            assert tracepoint is not None
            joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
            order = np.argsort(joined["time_ns"], kind="stable")
            table = {name: column[order] for name, column in joined.items()}
            table["row"] = _preceding_rows(table["time_ns"], table["row"], main_time_ns, main_order)
            for column in table.values():
                column.flags.writeable = False
            tables[tracepoint.event_name] = table
        return tables

    def callchains(self) -> np.ndarray:
        """All call chains end to end, uint64."""
        if not self._chains:
            return np.zeros(0, np.uint64)
        return np.concatenate(self._chains)

    def _fields(self, attr_row: int) -> list[Field]:
        tracepoint = self._formats[attr_row]
        assert tracepoint is not None
        return [f for f in tracepoint.own_fields if f.is_integer or f.is_string]

    def _keys(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "time_ns": chosen[:, walk.NOTE_TIME].copy(),
            "cpu": chosen[:, walk.NOTE_CPU].astype(np.int16),
            "pid": chosen[:, walk.NOTE_PID].astype(np.int32),
            "row": chosen[:, walk.NOTE_BEFORE].copy(),
        }

    def _take_chains(self, words: np.ndarray, chosen: np.ndarray) -> dict[str, np.ndarray]:
        lengths = chosen[:, walk.NOTE_CHAIN_SIZE].copy()
        starts = np.cumsum(lengths) - lengths
        within = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)
        positions = np.repeat(chosen[:, walk.NOTE_CHAIN], lengths) + 8 * within
        self._chains.append(_words_at(words, positions, 0).view(np.uint64))
        starts += self._chain_words
        self._chain_words += len(positions)
        return dict(zip(CHAIN_COLUMNS, (starts, lengths), strict=True))


def _column_name(field: Field) -> str:
    taken = field.name in KEY_COLUMNS + CHAIN_COLUMNS
    return field.name + FIELD_SUFFIX if taken else field.name


def _words_at(words: np.ndarray, positions: np.ndarray, offset: int) -> np.ndarray:
    gathered = np.empty(len(positions), np.int64)
    walk.gather_words(words, np.ascontiguousarray(positions), offset, gathered)
    return gathered


def _field_values(
    data: np.ndarray, words: np.ndarray, chosen: np.ndarray, field: Field
) -> np.ndarray:
    if field.is_string:
        return _strings(data, words, chosen, field)
    gathered = _words_at(words, chosen[:, walk.NOTE_RAW], field.offset)
    unsigned = gathered.view(np.uint64).astype(f"<u{field.size}")
    return unsigned.view(f"<i{field.size}") if field.signed else unsigned


def _strings(data: np.ndarray, words: np.ndarray, chosen: np.ndarray, field: Field) -> np.ndarray:
    """Text fields as str objects; a dynamic one that points outside its record is ""."""
    texts = np.empty(len(chosen), object)
    for index, note in enumerate(chosen):
        raw, raw_size = int(note[walk.NOTE_RAW]), int(note[walk.NOTE_RAW_SIZE])
        offset, size = field.offset, field.size
        if field.is_dynamic:
            place = int(words[raw + field.offset])
            offset, size = place & 0xFFFF, place >> 16 & 0xFFFF
            if field.type.startswith("__rel_loc"):
                offset += field.end
        text = b""
        if offset + size <= raw_size:
            text = data[raw + offset : raw + offset + size].tobytes()
        texts[index] = text.split(b"\0", 1)[0].decode("utf-8", "replace")
    return texts


def _preceding_rows(
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
