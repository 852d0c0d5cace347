"""Events that a source hands over one by one, on their way to a Trace."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pagealloc_model.recording.trace.columns import COLUMN_TYPES, EVENT_NAMES, Event
from pagealloc_model.recording.trace.formats import Field
from pagealloc_model.recording.trace.perf_samples import MAIN_FIELDS, OPTIONAL_FIELDS
from pagealloc_model.recording.trace.side_tables import column_name, preceding_rows

Value = int | str | bytes | bytearray
_ABSENT = {"order": 0, "gfp": 0}
_MAIN_COLUMNS = ("pfn", "order", "gfp", "migratetype", "percpu_refill")
_CONTEXT_UNKNOWN = -1
"""perf hands scripts no common_flags."""
_FIXED = 4
_END_OF_SIGNED, _END_OF_WORD = 1 << 63, 1 << 64


class EventRows:
    """Collects events in the order they come; main events as columns, all others as tables.

    Args:
        first: rows of main events that came before, in the order of `COLUMN_TYPES`.
    """

    def __init__(self, first: Iterable[int] = ()) -> None:
        self._main = array("q", first)
        self._main_count = len(self._main) // len(COLUMN_TYPES)
        self._places: dict[str, list[int | None]] = {}
        self._tables: dict[str, _Table] = {}

    def declare(self, event: str, fields: Sequence[Field | str]) -> None:
        """Say which fields an event's rows will hold.

        Args:
            event: such as "kmem:mm_page_alloc".
            fields: in the order of the values; numbers of those known by name only are kept as
                they come.

        Raises:
            ValueError: a main event lacks a field that it must have.
        """
        names = [field if isinstance(field, str) else field.name for field in fields]
        kind = EVENT_NAMES.get(event)
        if kind is not None:
            for name in MAIN_FIELDS[kind]:
                if name is not None and name not in {*names, *OPTIONAL_FIELDS}:
                    raise ValueError(f"{event} has no field {name}")
            self._places[event] = [
                names.index(name) if name in names else None for name in MAIN_FIELDS[kind]
            ]
        if kind is None or kind is Event.EXTFRAG:
            kinds = [None if isinstance(field, str) else field for field in fields]
            self._tables[event] = _Table(names, kinds)

    def add(self, event: str, time_ns: int, cpu: int, tid: int, values: Sequence[Value]) -> None:
        """Take one event of a kind that was declared."""
        table = self._tables.get(event)
        if table is not None:
            table.add(time_ns, cpu, tid, self._main_count, values)
        places = self._places.get(event)
        if places is not None:
            self._main.extend((time_ns, cpu, tid, EVENT_NAMES[event]))
            self._main.extend(
                _ABSENT.get(name, -1) if place is None else _as_signed(values[place])
                for name, place in zip(_MAIN_COLUMNS, places, strict=True)
            )
            self._main.append(_CONTEXT_UNKNOWN)
            self._main_count += 1

    def columns(self) -> tuple[dict[str, np.ndarray], dict[str, Mapping[str, np.ndarray]]]:
        """The columns of a Trace in time order, ties as they came, and its tables."""
        rows = np.frombuffer(self._main, np.int64).reshape(-1, len(COLUMN_TYPES))
        order = np.argsort(rows[:, 0], kind="stable")
        sorted_rows = rows[order]
        main = {name: sorted_rows[:, place] for place, name in enumerate(COLUMN_TYPES)}
        main["gfp"] = main["gfp"] & 0xFFFFFFFF
        # An int comes without its sign where the source does not say how wide it is.
        main["migratetype"] = main["migratetype"].astype(np.uint32).view(np.int32)
        tables = {
            name: table.columns(main["time_ns"], order)
            for name, table in self._tables.items()
            if table.count
        }
        return main, tables


class _Table:
    """Rows of one tracepoint."""

    def __init__(self, names: Sequence[str], kinds: Sequence[Field | None]) -> None:
        self.count = 0
        self._fields = tuple(zip(names, kinds, strict=True))
        self._numbers = array("q")
        self._texts: dict[int, list[str]] = {}
        self._skipped: set[int] = set()

    def add(
        self, time_ns: int, cpu: int, tid: int, main_before: int, values: Sequence[Value]
    ) -> None:
        self._numbers.extend((time_ns, cpu, tid, main_before))
        for place, value in enumerate(values):
            if isinstance(value, int):
                self._numbers.append(_as_signed(value))
            else:
                self._numbers.append(0)
                self._add_text(place, value)
        self.count += 1

    def _add_text(self, place: int, value: object) -> None:
        if isinstance(value, bytes | bytearray):
            value = bytes(value).split(b"\0", 1)[0].decode("utf-8", "replace")
        if isinstance(value, str):
            self._texts.setdefault(place, []).append(value)
        else:
            self._skipped.add(place)

    def columns(self, main_time_ns: np.ndarray, main_order: np.ndarray) -> dict[str, np.ndarray]:
        rows = np.frombuffer(self._numbers, np.int64).reshape(self.count, -1)
        order = np.argsort(rows[:, 0], kind="stable")
        rows = rows[order]
        columns = {
            "time_ns": rows[:, 0].copy(),
            "cpu": rows[:, 1].astype(np.int16),
            "pid": rows[:, 2].astype(np.int32),
            "row": preceding_rows(rows[:, 0], rows[:, 3], main_time_ns, main_order),
        }
        for place, (name, kind) in enumerate(self._fields):
            if len(self._texts.get(place, ())) == self.count:
                columns[column_name(name)] = np.array(self._texts[place], object)[order]
            elif place not in self._texts and place not in self._skipped:
                words = rows[:, _FIXED + place].copy()
                columns[column_name(name)] = _as_declared(words, kind)
        return columns


def _as_signed(value: Value) -> int:
    """A number as the 64 bits hold it."""
    number = int(value)
    return number if number < _END_OF_SIGNED else number - _END_OF_WORD


def _as_declared(words: np.ndarray, field: Field | None) -> np.ndarray:
    """Numbers in their field's own type; unknown ones unsigned if they were all ones on top."""
    if field is None:
        return words.view(np.uint64) if np.any(words < 0) else words
    unsigned = words.view(np.uint64).astype(f"<u{field.size}")
    return unsigned.view(f"<i{field.size}") if field.signed else unsigned
