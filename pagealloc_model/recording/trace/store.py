"""Columns of a Trace as a file of their own."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from pagealloc_model.base.column_space import in_memory
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import first_bytes
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.version import __version__
from pagealloc_model.base.working_arrays import working_arrays
from pagealloc_model.recording.trace.columns import (
    COLUMN_TYPES,
    EVENT_NAMES,
    Event,
    Losses,
    ThreadNames,
    Trace,
)
from pagealloc_model.recording.trace.side_tables import CHAIN_COLUMNS

STORE_VERSION = 1
MAGIC = b"ARROW1"
HEADER_KEY = b"pagealloc_model"

CALLCHAINS = "callchains"
COMMS = "comms"
LOSSES = "losses"
TABLES = "tables"
THREAD_NAMES = "thread_names"
SAMPLED = "sampled"
LOSS_COLUMNS = ("cpu", "start_ns", "end_ns", "count", "event")
COMM_COLUMNS = ("tid", "name")
THREAD_NAME_COLUMNS = ("time_ns", "tid", "parent", "name")
KNOWN_FIELDS = (
    "gfp_bits",
    "gfp_from_format",
    "declared_types",
    "release",
    "nr_cpus",
    "clock",
    "notes",
    SAMPLED,
)
"""Fields of a Trace that stand in the header itself."""


@dataclass(frozen=True, kw_only=True)
class StoreSource:
    """The event file that a store was made from.

    Attributes:
        file: its name without directories.
        size: its bytes.
        sha256: of its content, in hexadecimal.
    """

    file: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class StoreHeader:
    """The header of a store.

    Attributes:
        package: version of the package that wrote it.
        written_at: when, UTC, ISO 8601.
        source: what it was made from, None for a part of another store.
        compressed: whether columns must be unpacked, and come in pieces.
        lengths: values in each column, by field name.
        trace: the fields of the Trace that are no columns, JSON values.
        losses_at_end: `Losses.at_end`.
    """

    package: str
    written_at: str
    source: StoreSource | None
    compressed: bool
    lengths: Mapping[str, int]
    trace: Mapping[str, Any]
    losses_at_end: int = 0
    version: int = field(default=STORE_VERSION)

    def to_json(self) -> bytes:
        """As it stands in the file."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(text: bytes) -> StoreHeader:
        """Read it back.

        Raises:
            ValueError: it is damaged, of another version, or its columns disagree in length.
        """
        words = json.loads(text)
        version = words.get("version") if isinstance(words, dict) else None
        if not isinstance(version, int):
            raise ValueError("its header names no version")
        if version != STORE_VERSION:
            raise ValueError(f"its columns are of layout {version}, not {STORE_VERSION}")
        try:
            source = words.pop("source")
            header = StoreHeader(**words, source=StoreSource(**source) if source else None)
            if set(header.trace) | {SAMPLED} != set(KNOWN_FIELDS):  # older stores are complete
                raise ValueError("its header lacks a part")
            _check_lengths(header.lengths)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its header is damaged ({error})") from None
        return header


def is_store(path: Path) -> bool:
    """Whether a file begins as a store does.

    Raises:
        RecordingError: it cannot be read.
    """
    return first_bytes(path, len(MAGIC)) == MAGIC


def group_of(name: str) -> str:
    """The group of columns of one length that a field belongs to, "" for the main columns."""
    if name in COLUMN_TYPES:
        return ""
    return name if name == CALLCHAINS else name.rpartition("/")[0]


def columns_of(group: str, names: Iterable[str]) -> dict[str, str]:
    """Column name -> field name, of the fields in a group."""
    return {name.rpartition("/")[2]: name for name in names if group_of(name) == group}


def _check_lengths(lengths: Mapping[str, int]) -> None:
    first: dict[str, str] = {}
    for name, length in lengths.items():
        known = first.setdefault(group_of(name), name)
        if lengths[known] != length:
            raise ValueError(f"column {name} has {length} rows, {known} has {lengths[known]}")


IMPORT_AGAIN = "make it again with pagealloc import"

_DAMAGED = (pa.ArrowException, OSError)


class StoreFile:
    """An opened store. Only its path goes along when it is pickled.

    Args:
        path: the file.

    Raises:
        RecordingError: no store, cut short, damaged, of another version, or its columns disagree
            in length.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = pa.memory_map(str(path))
        except OSError as error:
            what = f"cannot be read ({error.strerror or error})"
            raise RecordingError(path, what, todo="check the path and its permissions") from None
        try:
            self._schema = pa.ipc.open_file(self._file).schema
        except _DAMAGED:
            raise self.damaged("is cut short, or no Arrow file") from None
        self.header = self._read_header()

    def __reduce__(self) -> tuple[type[StoreFile], tuple[Path]]:
        return StoreFile, (self._path,)

    def damaged(self, what: str) -> RecordingError:
        """The error for a store that cannot be used."""
        return RecordingError(self._path, what, todo=IMPORT_AGAIN)

    def column(self, name: str, dtype: npt.DTypeLike = None) -> np.ndarray:
        """One column, read-only: a view of the mapped file if it lies there in one piece.

        Args:
            name: field of the schema.
            dtype: what it must be; None takes numbers of any type, and texts as objects.

        Raises:
            RecordingError: it is damaged, or of another length or type than it should be.
        """
        try:
            values = self._values(name)
        except _DAMAGED as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise self.damaged(f"column {name} is damaged ({reason})") from None
        if dtype is not None and values.dtype != dtype:
            raise self.damaged(f"column {name} is of type {values.dtype}, not {np.dtype(dtype)}")
        values.flags.writeable = False
        return values

    def _values(self, name: str) -> np.ndarray:
        kind = self._schema.field(name).type
        if not pa.types.is_large_list(kind):
            raise self.damaged(f"column {name} is no list")
        is_text = pa.types.is_large_string(kind.value_type)
        if not (is_text or pa.types.is_integer(kind.value_type)):
            raise self.damaged(f"column {name} holds neither whole numbers nor texts")
        expected = self.header.lengths[name]
        new_array = in_memory if is_text else working_arrays(expected)
        values, filled = np.zeros(0), 0
        for piece in self._pieces(name):
            part = _texts(piece) if is_text else _numbers(piece)
            if filled + len(part) > expected:
                raise self.damaged(f"column {name} has more than its {expected} rows")
            if len(part) == expected:
                values = part
            elif len(part):
                values = values if filled else new_array(expected, part.dtype)
                values[filled : filled + len(part)] = part
            filled += len(part)
        if filled != expected:
            raise self.damaged(f"column {name} has {filled} rows, not {expected}")
        return values

    def _pieces(self, name: str) -> Iterator[pa.Array]:
        index = self._schema.get_field_index(name)
        if self.header.compressed:
            options = pa.ipc.IpcReadOptions(included_fields=[index])
            file, place = pa.ipc.open_file(self._file, options=options), 0
        else:
            # Choosing fields would copy them; without, pyarrow maps all.
            file, place = pa.ipc.open_file(self._file), index
        for number in range(file.num_record_batches):
            lists = file.get_batch(number).column(place)
            lists.validate(full=True)
            yield lists.flatten()

    def _read_header(self) -> StoreHeader:
        text = (self._schema.metadata or {}).get(HEADER_KEY)
        if text is None:
            raise self.damaged("is an Arrow file, but no recording")
        try:
            header = StoreHeader.from_json(text)
        except ValueError as error:
            raise self.damaged(f"cannot be used: {error}") from None
        if set(header.lengths) != set(self._schema.names):
            raise self.damaged("cannot be used: its header names other columns than it has")
        return header


def _numbers(values: pa.Array) -> np.ndarray:
    """Whole numbers where they lie; pyarrow's own `to_numpy` would import pandas first."""
    if values.null_count:
        raise pa.ArrowInvalid("values are missing")
    dtype = np.dtype(values.type.to_pandas_dtype())
    buffer = values.buffers()[1]
    if not len(values) or buffer is None:
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype, len(values), values.offset * dtype.itemsize)


def _texts(values: pa.Array) -> np.ndarray:
    """Texts as str objects, equal ones the same object."""
    if values.null_count:
        raise pa.ArrowInvalid("values are missing")
    encoded = values.dictionary_encode()
    texts = np.array(encoded.dictionary.to_pylist(), object)
    return texts[_numbers(encoded.indices)]


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


def read_store(path: str | Path, *, main_chains: bool = False) -> Trace:
    """Open the columnar form of a recording; each column is read on first use.

    Args:
        path: the file.
        main_chains: with the tables of those page-allocator events that carry call chains.

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
            CALLCHAINS: partial(file.column, CALLCHAINS, np.uint64),
            COMMS: reader.comms,
            THREAD_NAMES: reader.thread_names,
            LOSSES: reader.losses,
        },
        tables={
            name: table
            for name, table in reader.tables().items()
            if main_chains or EVENT_NAMES.get(name, Event.EXTFRAG) is Event.EXTFRAG
        },
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
            unknown = np.full(self._lengths["time_ns"], -1, np.int8)
            unknown.flags.writeable = False
            return unknown
        values = self._file.column(name, COLUMN_TYPES[name])
        if name == "time_ns":
            self._check_order(name, values)
        elif name in _RANGES:
            self._check_range(name, values, *_RANGES[name])
        return values

    def tables(self) -> dict[str, Mapping[str, np.ndarray]]:
        """All tables by event, in the order in which they were written."""
        prefix = f"{TABLES}/"
        groups = dict.fromkeys(group_of(name) for name in self._lengths)
        return {
            group.removeprefix(prefix): _Columns(
                {
                    column: partial(self._table_column, name)
                    for column, name in columns_of(group, self._lengths).items()
                }
            )
            for group in groups
            if group.startswith(prefix)
        }

    def comms(self) -> dict[int, str]:
        """Thread id -> command name."""
        tids, names = self._group(COMMS, COMM_COLUMNS).values()
        return dict(zip(tids.tolist(), names.tolist(), strict=True))

    def thread_names(self) -> ThreadNames:
        """When threads were named."""
        return ThreadNames(**self._group(THREAD_NAMES, THREAD_NAME_COLUMNS))

    def losses(self) -> Losses:
        """Intervals in which events were dropped."""
        columns: dict[str, Any] = self._group(LOSSES, LOSS_COLUMNS)
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
            self._check_range(name, values, 0, self._lengths[CALLCHAINS])
        return values

    def _check_order(self, name: str, values: np.ndarray) -> None:
        for begin in range(0, len(values), _CHECKED_TOGETHER):
            part = values[begin : begin + _CHECKED_TOGETHER + 1]
            if np.any(part[1:] < part[:-1]):
                raise self._file.damaged(f"column {name} is not in time order")

    def _check_range(self, name: str, values: np.ndarray, least: int, largest: int) -> None:
        if len(values) and not (least <= values.min() and values.max() <= largest):
            raise self._file.damaged(f"column {name} holds values that no recording has")


_PIECE = 1 << 22
"""Values of a column that are compressed together."""


def write_store(
    trace: Trace,
    path: Path,
    *,
    source: StoreSource | None,
    compress: bool = True,
    progress: Report | None = None,
) -> None:
    """Write all of a Trace.

    Compressed columns are decoded whole when they are first used. Others are mapped: nothing is
    read or copied until it is looked at, and the kernel can drop it again.

    Args:
        trace: what to write.
        path: the file, replaced if it exists.
        source: the file the trace was read from, None if it is a part of one.
        compress: by zstd, in pieces.
        progress: called with the share done, 0 to 1.
    """
    with pa.OSFile(str(path), "wb") as file:
        _write(_columns(trace), trace, source, file, compress, progress)


def make_room_for_store(trace: Trace, rows: int, path: Path) -> dict[str, int]:
    """Write a store that is not compressed, without its main columns: they are holes in the file.

    Args:
        trace: the rest of what to write.
        rows: how long the main columns will be.
        path: the file, replaced if it exists.

    Returns:
        Where each main column begins in the file.
    """
    columns = {name: np.zeros(rows, dtype) for name, dtype in COLUMN_TYPES.items()}
    with path.open("wb") as file:
        left_out = _LeavingOut(file, {each.ctypes.data: name for name, each in columns.items()})
        _write(columns | _columns_beside(trace), trace, None, left_out, False, None)
        file.truncate(file.tell())
    return left_out.begins


class _LeavingOut(io.RawIOBase):
    """A file to which some buffers, known by their address, are not written."""

    def __init__(self, file: BinaryIO, names: Mapping[int, str]) -> None:
        self._file, self._names = file, names
        self.begins: dict[str, int] = {}

    def write(self, data: Any) -> int:
        """Write a buffer, or go on behind where it would lie."""
        buffer = pa.py_buffer(data)
        name = self._names.get(buffer.address)
        if name is None or not buffer.size:
            return self._file.write(data)
        self.begins[name] = self._file.tell()
        self._file.seek(buffer.size, os.SEEK_CUR)
        return int(buffer.size)

    def tell(self) -> int:
        """Where the next buffer goes."""
        return self._file.tell()

    def writable(self) -> bool:
        """It is."""
        return True


def _write(
    columns: Mapping[str, np.ndarray],
    trace: Trace,
    source: StoreSource | None,
    file: Any,
    compress: bool,
    progress: Report | None,
) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    about = StoreHeader(
        package=__version__,
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source=source,
        compressed=compress,
        lengths=lengths,
        trace={name: _plain(getattr(trace, name)) for name in KNOWN_FIELDS},
        losses_at_end=trace.losses.at_end,
    )
    schema = pa.schema(
        [pa.field(name, pa.large_list(_type(values))) for name, values in columns.items()],
        metadata={HEADER_KEY: about.to_json()},
    )
    longest = max(lengths.values())
    piece = _PIECE if compress else max(longest, 1)
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compress else None)
    with pa.ipc.new_file(file, schema, options=options) as out:
        for begin in range(0, max(longest, 1), piece):
            pieces = [_one_row(values[begin : begin + piece]) for values in columns.values()]
            out.write_batch(pa.RecordBatch.from_arrays(pieces, schema=schema))
            if progress is not None:
                progress(min((begin + piece) / max(longest, 1), 1))


def _columns(trace: Trace) -> dict[str, np.ndarray]:
    """Every column by its field's name."""
    return {name: getattr(trace, name) for name in COLUMN_TYPES} | _columns_beside(trace)


def _columns_beside(trace: Trace) -> dict[str, np.ndarray]:
    """All but the main columns."""
    names, losses = trace.thread_names, trace.losses
    columns = {CALLCHAINS: trace.callchains}
    for event, table in trace.tables.items():
        columns |= {f"{TABLES}/{event}/{name}": table[name] for name in table}
    for name in THREAD_NAME_COLUMNS:
        columns[f"{THREAD_NAMES}/{name}"] = getattr(names, name)
    for name in LOSS_COLUMNS:
        columns[f"{LOSSES}/{name}"] = np.asarray(
            getattr(losses, name), object if name == "event" else None
        )
    tids = np.array(list(trace.comms), np.int64)
    comms = np.array(list(trace.comms.values()), object)
    return columns | dict(
        zip((f"{COMMS}/{name}" for name in COMM_COLUMNS), (tids, comms), strict=True)
    )


def _type(values: np.ndarray) -> pa.DataType:
    return pa.large_string() if values.dtype == object else pa.from_numpy_dtype(values.dtype)


def _one_row(piece: np.ndarray) -> pa.Array:
    """A list of one row, which shares the memory of numbers; `pa.array` would import pandas."""
    if piece.dtype == object:
        encoded = [text.encode() for text in piece]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        memory = [pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    else:
        memory = [pa.py_buffer(np.ascontiguousarray(piece))]
    values = pa.Array.from_buffers(_type(piece), len(piece), [None, *memory])
    ends = pa.py_buffer(np.array([0, len(piece)]))
    return pa.Array.from_buffers(pa.large_list(values.type), 1, [None, ends], children=[values])


def _plain(value: Any) -> Any:
    """A field of a Trace as JSON has it."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value
