"""Read a columnar store, the fast form of a recording's events: columns when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pagealloc_model.recording.trace import store_header as header
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Losses, Trace
from pagealloc_model.recording.trace.event_tables import CHAIN_COLUMNS
from pagealloc_model.recording.trace.store_file import StoreFile
from pagealloc_model.recording.trace.store_header import StoreSource
from pagealloc_model.recording.trace.thread_names import ThreadNames

_RANGES = {
    "cpu": (0, np.iinfo(np.int16).max),
    "event": (0, max(Event)),
    "pfn": (-1, np.iinfo(np.int64).max),
    "order": (0, 63),
    "migratetype": (-1, 63),
    "percpu_refill": (-1, 1),
    "in_interrupt": (-1, 1),
}
"""Least and largest value of main columns, the same as in other recordings."""

_CHECKED_TOGETHER = 1 << 22


def read_store(path: str | Path) -> Trace:
    """Open the columnar form of a recording; each column is read on first use.

    Raises:
        RecordingError: no store, cut short, damaged, of another version, or its columns disagree
            in length. A column that is damaged in itself raises it on first use.
    """
    file = StoreFile(Path(path))
    reader = _Reader(file)
    known = dict(file.header.trace)
    return Trace.unread(
        rows=file.header.lengths["time_ns"],
        load={name: partial(reader.main, name) for name in COLUMN_TYPES}
        | {
            header.CALLCHAINS: partial(file.column, header.CALLCHAINS, np.uint64),
            header.COMMS: reader.comms,
            header.THREAD_NAMES: reader.thread_names,
            header.LOSSES: reader.losses,
        },
        tables=reader.tables(),
        source=str(path),
        **known | {"notes": tuple(known["notes"])},
    )


def store_source(path: str | Path) -> StoreSource | None:
    """The file that a store was made from, None for a part of another store.

    Raises:
        RecordingError: no store, cut short, damaged or of another version.
    """
    return StoreFile(Path(path)).header.source


class _Columns(Mapping[str, np.ndarray]):
    """Columns of a table, read on first use and kept."""

    def __init__(self, load: Mapping[str, Callable[[], np.ndarray]]) -> None:
        self._load = load
        self._read: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._read:
            self._read[name] = self._load[name]()
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load)

    def __len__(self) -> int:
        return len(self._load)


class _Reader:
    """Turns the columns of a file into the fields of a Trace, and checks them."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._lengths = file.header.lengths

    def main(self, name: str) -> np.ndarray:
        """A main column; a store older than `in_interrupt` does not know it."""
        if name == "in_interrupt" and name not in self._lengths:
            return np.full(self._lengths["time_ns"], -1, np.int8)
        values = self._file.column(name, COLUMN_TYPES[name])
        if name == "time_ns":
            self._check_order(name, values)
        elif name in _RANGES:
            self._check_range(name, values, *_RANGES[name])
        return values

    def tables(self) -> dict[str, Mapping[str, np.ndarray]]:
        """All tables by event, in the order in which they were written."""
        prefix = f"{header.TABLES}/"
        groups = dict.fromkeys(header.group_of(name) for name in self._lengths)
        return {
            group.removeprefix(prefix): _Columns(
                {
                    column: partial(self._table_column, name)
                    for column, name in header.columns_of(group, self._lengths).items()
                }
            )
            for group in groups
            if group.startswith(prefix)
        }

    def comms(self) -> dict[int, str]:
        """Thread id -> command name."""
        tids, names = self._group(header.COMMS, header.COMM_COLUMNS).values()
        return dict(zip(tids.tolist(), names.tolist(), strict=True))

    def thread_names(self) -> ThreadNames:
        """When threads were named."""
        return ThreadNames(**self._group(header.THREAD_NAMES, header.THREAD_NAME_COLUMNS))

    def losses(self) -> Losses:
        """Intervals in which events were dropped."""
        columns: dict[str, Any] = self._group(header.LOSSES, header.LOSS_COLUMNS)
        columns["event"] = tuple(columns["event"].tolist())
        return Losses(**columns, at_end=self._file.header.losses_at_end)

    def _group(self, group: str, columns: tuple[str, ...]) -> dict[str, np.ndarray]:
        return {column: self._file.column(f"{group}/{column}") for column in columns}

    def _table_column(self, name: str) -> np.ndarray:
        values = self._file.column(name)
        column = name.rpartition("/")[2]
        if column == "time_ns":
            self._check_order(name, values)
        elif column == "row":
            self._check_range(name, values, 0, self._lengths["time_ns"])
        elif column in CHAIN_COLUMNS:
            self._check_range(name, values, 0, self._lengths[header.CALLCHAINS])
        return values

    def _check_order(self, name: str, values: np.ndarray) -> None:
        for begin in range(0, len(values), _CHECKED_TOGETHER):
            part = values[begin : begin + _CHECKED_TOGETHER + 1]
            if np.any(part[1:] < part[:-1]):
                raise self._file.damaged(f"column {name} is not in time order")

    def _check_range(self, name: str, values: np.ndarray, least: int, largest: int) -> None:
        if len(values) and not (least <= values.min() and values.max() <= largest):
            raise self._file.damaged(f"column {name} holds values that no recording has")
