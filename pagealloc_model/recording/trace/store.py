"""Columns of a Trace as one Arrow file, written by pyarrow and mapped where they are not packed.

Each field of the schema is a column of lists; a row holds the next piece of every column that is
that long. What is no column stands in the schema's metadata, as JSON. Importing this module
imports pyarrow.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from pagealloc_model.base.arrays import working_arrays
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import most_unpacked, opened
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.text import LONGEST_TEXT, as_name
from pagealloc_model.base.version import __version__
from pagealloc_model.recording.trace.columns import (
    COLUMN_TYPES,
    EVENT_NAMES,
    LARGEST_ORDER,
    THREAD_NAME_COLUMNS,
    Event,
    Losses,
    ThreadNames,
    Trace,
)
from pagealloc_model.recording.trace.side_tables import CHAIN_COLUMNS, KEY_COLUMNS, LAST_NS

STORE_VERSION = 1
HEADER_KEY = b"pagealloc_model"

_CALLCHAINS, _COMMS, _LOSSES, _TABLES = "callchains", "comms", "losses", "tables"
_THREAD_NAMES, _SAMPLED, _SCOPE = "thread_names", "sampled", "scope"
_LOSS_COLUMNS = ("cpu", "start_ns", "end_ns", "count")
_HEADER_KEYS = frozenset(
    ("package", "written_at", "source", "compressed", "lengths", "trace", "losses_at_end")
)
_PLAIN_FIELDS = (
    "gfp_bits",
    "gfp_from_format",
    "declared_types",
    "release",
    "nr_cpus",
    "clock",
    _SCOPE,
    "notes",
    _SAMPLED,
)
"""Fields of a Trace that stand in the header itself."""

_KINDS: dict[str, Any] = {
    "lengths": {"": int},
    "compressed": bool,
    "losses_at_end": int,
    "trace": {
        "gfp_bits": {"": int},
        "gfp_from_format": bool,
        "declared_types": {"": {"": str}},
        "release": str,
        "nr_cpus": int,
        "clock": str,
        _SCOPE: str,
        "notes": [str],
        _SAMPLED: {"": int},
    },
}
"""Of the header's values; under "" stands that of all values."""
_SOURCE = {"file": str, "size": int, "sha256": str}
_NEEDED = {
    *(COLUMN_TYPES.keys() - {"in_interrupt"}),
    _CALLCHAINS,
    *(f"{_THREAD_NAMES}/{name}" for name in THREAD_NAME_COLUMNS),
    *(f"{_LOSSES}/{name}" for name in _LOSS_COLUMNS),
    *(f"{_COMMS}/{name}" for name in ("tid", "name")),
}
"""Columns that every store has."""
_RANGES = {
    "time_ns": (0, LAST_NS),
    "cpu": (0, np.iinfo(np.int16).max),
    "event": (0, max(Event)),
    "pfn": (-1, np.iinfo(np.int64).max),
    "order": (0, LARGEST_ORDER),
    "migratetype": (-1, 63),
    "percpu_refill": (-1, 1),
    "in_interrupt": (-1, 1),
}
"""Least and largest value of main columns, the same as in other recordings."""

_DAMAGED = (pa.ArrowException, OSError)
_PIECE = 1 << 22
"""Values of a column that are compressed, or checked, together."""


@dataclass(frozen=True)
class StoreSource:
    """The event file that a store was made from: its name, its bytes, and their SHA-256."""

    file: str
    size: int
    sha256: str


def read_store(path: str | Path, *, main_chains: bool = False) -> Trace:
    """Open the columnar form of a recording; each column is read on first use."""
    store = _Store(Path(path))
    plain = store.header["trace"]
    return Trace.unread(
        rows=store.lengths["time_ns"],
        load={name: partial(store.checked, name) for name in COLUMN_TYPES}
        | {
            _CALLCHAINS: partial(store.column, _CALLCHAINS, np.uint64),
            _COMMS: store.comms,
            _THREAD_NAMES: store.thread_names,
            _LOSSES: store.losses,
        },
        tables=store.tables(main_chains),
        source=str(path),
        **plain | {"notes": tuple(plain["notes"])},
    )


def store_source(path: str | Path) -> StoreSource | None:
    """The file that a store was made from, None for a part of another store."""
    return _Store(Path(path)).source


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


class _Store:
    """An opened file, its columns checked as they are read; pickled, only its path goes along."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with opened(path) as file:
                self._inode = os.fstat(file.fileno()).st_ino
                self._file = pa.memory_map(f"/proc/self/fd/{file.fileno()}")
        except OSError as error:
            what = f"cannot be read ({error.strerror or error})"
            raise RecordingError(path, what, todo="check the path and its permissions") from None
        try:
            self._schema = pa.ipc.open_file(self._file).schema
            unpacked = _unpacked_bytes(memoryview(self._file.read_buffer()))
        except (*_DAMAGED, struct.error):
            raise self._damaged("is cut short, or no Arrow file") from None
        text = (self._schema.metadata or {}).get(HEADER_KEY)
        if text is None:
            raise self._damaged("is an Arrow file, but no recording")
        try:
            if unpacked > most_unpacked(path):
                raise ValueError(f"it unpacks to {unpacked} bytes")
            self._read_header(json.loads(text))
        except ValueError as error:
            raise self._damaged(f"cannot be used: {error}") from None
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._damaged(f"cannot be used: its header is damaged ({error})") from None

    def __reduce__(self) -> tuple[type[_Store], tuple[Path]]:
        return _Store, (self._path,)

    def _damaged(self, what: str) -> RecordingError:
        return RecordingError(self._path, what, todo="make it again with pagealloc import")

    def _read_header(self, header: Any) -> None:
        version = header.pop("version", None) if isinstance(header, dict) else None
        if not isinstance(version, int):
            raise ValueError("its header names no version")
        if version != STORE_VERSION:
            raise ValueError(f"its columns are of layout {version}, not {STORE_VERSION}")
        header.setdefault("losses_at_end", 0)
        if odd := header.keys() ^ _HEADER_KEYS:
            raise ValueError(f"its header is damaged ({', '.join(sorted(odd))})")
        self.source = StoreSource(**header["source"]) if header["source"] else None
        # an older store is of a recording with every event, and does not say of what
        if header["trace"].keys() | {_SAMPLED, _SCOPE} != set(_PLAIN_FIELDS):
            raise ValueError("its header lacks a part")
        header["trace"].setdefault(_SAMPLED, {})
        header["trace"].setdefault(_SCOPE, "")
        if not _is_of(header, _KINDS) or (self.source and not _is_of(header["source"], _SOURCE)):
            raise ValueError("its header holds a value of another kind")
        if sum(header["lengths"].values()) > most_unpacked(self._path):
            raise ValueError("it has more rows than a file of its size can hold")
        first: dict[str, str] = {}
        for name, length in header["lengths"].items():
            # the columns of one length that it belongs to, "" for the main columns
            group = name if name == _CALLCHAINS else name.rpartition("/")[0]
            known = first.setdefault(group, name)
            if header["lengths"][known] != length:
                words = f"has {length} rows, {known} has {header['lengths'][known]}"
                raise ValueError(f"column {name} {words}")
        if header["lengths"].keys() != set(self._schema.names):
            raise ValueError("its header names other columns than it has")
        names = header["lengths"].keys()
        tables = {name.rpartition("/")[0] for name in names if name.startswith(f"{_TABLES}/")}
        wanted = _NEEDED | {f"{table}/{key}" for table in tables for key in KEY_COLUMNS}
        if lacking := sorted(wanted - names):
            raise ValueError(f"it has no column {lacking[0]}")
        self.header, self.lengths = header, header["lengths"]

    def checked(self, name: str) -> np.ndarray:
        """A column of the main events or of a table, its values looked at."""
        if name == "in_interrupt" and name not in self.lengths:  # of an older store
            unknown = np.full(self.lengths["time_ns"], -1, np.int8)
            unknown.flags.writeable = False
            return unknown
        column = name.rpartition("/")[2]
        is_field = name not in COLUMN_TYPES and column not in KEY_COLUMNS + CHAIN_COLUMNS
        values = self.column(name, None if is_field else _type_of(column))
        ranges = _RANGES
        if name not in COLUMN_TYPES:
            ranges = dict.fromkeys(CHAIN_COLUMNS, (0, self.lengths[_CALLCHAINS]))
            ranges["time_ns"] = _RANGES["time_ns"]
            ranges["row"] = (0, self.lengths["time_ns"])
        for begin in range(0, len(values), _PIECE) if column == "time_ns" else ():
            part = values[begin : begin + _PIECE + 1]
            if np.any(part[1:] < part[:-1]):
                raise self._damaged(f"column {name} is not in time order")
        if column in ranges and len(values):
            least, largest = ranges[column]
            good = least <= values.min() and values.max() <= largest
            if column == CHAIN_COLUMNS[1]:
                starts = self.checked(name.replace(column, CHAIN_COLUMNS[0]))
                good = good and (starts + values).max() <= largest and values.sum() <= largest
            if not good:
                raise self._damaged(f"column {name} holds values that no recording has")
        return values

    def tables(self, main_chains: bool) -> dict[str, Mapping[str, np.ndarray]]:
        """Tables by event, in the order in which they were written."""
        tables: dict[str, dict[str, Callable[[], np.ndarray]]] = {}
        for name in self.lengths:
            group, _, column = name.rpartition("/")
            if group.startswith(f"{_TABLES}/"):
                table = tables.setdefault(group.removeprefix(f"{_TABLES}/"), {})
                table[as_name(column)] = partial(self.checked, name)
        return {
            event: _Columns(load)
            for event, load in tables.items()
            if main_chains or EVENT_NAMES.get(event, Event.EXTFRAG) is Event.EXTFRAG
        }

    def comms(self) -> dict[int, str]:
        tids, names = self._group(_COMMS, ("tid", "name")).values()
        return dict(zip(tids.tolist(), names.tolist(), strict=True))

    def thread_names(self) -> ThreadNames:
        return ThreadNames(**self._group(_THREAD_NAMES, THREAD_NAME_COLUMNS))

    def losses(self) -> Losses:
        columns = self._group(_LOSSES, _LOSS_COLUMNS)
        return Losses(**columns, at_end=self.header["losses_at_end"])

    def _group(self, group: str, columns: tuple[str, ...]) -> dict[str, np.ndarray]:
        return {column: self.column(f"{group}/{column}", _type_of(column)) for column in columns}

    def column(self, name: str, dtype: npt.DTypeLike = None) -> np.ndarray:
        """One column, read-only: a view of the mapped file if it lies there in one piece."""
        # reading the mapping behind the file's end would be SIGBUS
        with suppress(OSError):
            found = os.stat(self._path)
            if found.st_ino == self._inode and found.st_size < self._file.size():
                raise self._damaged("has been cut short since it was opened")
        try:
            values = self._values(name)
        except _DAMAGED as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise self._damaged(f"column {name} is damaged ({reason})") from None
        if dtype is not None and values.dtype != dtype:
            raise self._damaged(f"column {name} is of type {values.dtype}, not {np.dtype(dtype)}")
        values.flags.writeable = False
        return values

    def _values(self, name: str) -> np.ndarray:
        kind = self._schema.field(name).type
        if not pa.types.is_large_list(kind):
            raise self._damaged(f"column {name} is no list")
        is_text = pa.types.is_large_string(kind.value_type)
        if not (is_text or pa.types.is_integer(kind.value_type)):
            raise self._damaged(f"column {name} holds neither whole numbers nor texts")
        expected = self.lengths[name]
        values, filled = np.zeros(0), 0
        for piece in self._pieces(name):
            part = _texts(piece) if is_text else _numbers(piece)
            if filled + len(part) > expected:
                raise self._damaged(f"column {name} has more than its {expected} rows")
            if len(part) == expected:
                values = part
            elif len(part):
                if not filled:
                    values = working_arrays(0 if is_text else expected)(expected, part.dtype)
                values[filled : filled + len(part)] = part
            filled += len(part)
        if filled != expected:
            raise self._damaged(f"column {name} has {filled} rows, not {expected}")
        return values

    def _pieces(self, name: str) -> Iterator[pa.Array]:
        place, options = self._schema.get_field_index(name), None
        if self.header["compressed"]:
            # of a file that is not compressed, choosing fields would copy them
            options, place = pa.ipc.IpcReadOptions(included_fields=[place]), 0
        file = pa.ipc.open_file(self._file, options=options)
        for number in range(file.num_record_batches):
            lists = file.get_batch(number).column(place)
            lists.validate(full=True)
            yield lists.flatten()


def _unpacked_bytes(data: memoryview) -> int:
    """Bytes that the batches of an Arrow file say they unpack to: pyarrow takes that much.

    Its footer and what precedes each batch are flatbuffers, which pyarrow has checked.
    """

    def at(layout: str, place: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{layout}", data, place)

    def field(table: int, number: int) -> int:
        """The place that a table's field refers to, 0 if it is absent."""
        about, place = table - at("i", table)[0], 4 + 2 * number
        offset = at("H", about + place)[0] if at("H", about)[0] > place else 0
        return offset and table + offset + at("I", table + offset)[0]

    def vector(place: int, layout: str) -> list[tuple[int, ...]]:
        size, count = struct.calcsize(f"<{layout}"), at("I", place)[0] if place else 0
        return [at(layout, place + 4 + size * number) for number in range(count)]

    total, end = 0, len(data) - 10
    footer = end - at("i", end)[0]
    footer += at("I", footer)[0]
    if vector(field(footer, 2), "qi4xq"):
        raise struct.error("dictionaries")
    for begin, size, _ in vector(field(footer, 3), "qi4xq"):
        message = begin + (8 if at("i", begin)[0] == -1 else 4)
        batch = field(message + at("I", message)[0], 2)
        for offset, length in vector(field(batch, 2), "qq") if field(batch, 3) else ():
            total += max(at("q", begin + size + offset)[0], 0) if length else 0
    return total


def _type_of(column: str) -> npt.DTypeLike:
    return object if column == "name" else COLUMN_TYPES.get(column, np.int64)


def _is_of(value: Any, kind: Any) -> bool:
    """True if a value of JSON, and all in it, is of a kind; no number exceeds 64 bits."""
    if isinstance(kind, dict):
        keys = ((key, name) for name in kind for key in ((name,) if name else value))
        return isinstance(value, dict) and all(_is_of(value.get(k), kind[n]) for k, n in keys)
    if isinstance(kind, list):
        return isinstance(value, list) and all(_is_of(each, kind[0]) for each in value)
    return type(value) is kind and (kind is not int or 0 <= value < 1 << 64)


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
    texts = [as_name(text, LONGEST_TEXT) for text in encoded.dictionary.to_pylist()]
    return np.array(texts, object)[_numbers(encoded.indices)]


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
        trace: any.
        path: the file, replaced if it exists.
        source: the file the trace was read from, None if it is a part of one.
        compress: by zstd, in pieces.
        progress: called with the share done, 0 to 1.
    """
    columns = {name: getattr(trace, name) for name in COLUMN_TYPES}
    columns[_CALLCHAINS] = trace.callchains
    for event, table in trace.tables.items():
        columns |= {f"{_TABLES}/{event}/{name}": table[name] for name in table}
    for name in THREAD_NAME_COLUMNS:
        columns[f"{_THREAD_NAMES}/{name}"] = getattr(trace.thread_names, name)
    for name in _LOSS_COLUMNS:
        columns[f"{_LOSSES}/{name}"] = getattr(trace.losses, name)
    # Names of the events lost, a part of this layout that no source fills.
    columns[f"{_LOSSES}/event"] = np.full(len(trace.losses.cpu), "", object)
    columns[f"{_COMMS}/tid"] = np.array(list(trace.comms), np.int64)
    columns[f"{_COMMS}/name"] = np.array(list(trace.comms.values()), object)
    lengths = {name: len(values) for name, values in columns.items()}
    plain = {name: getattr(trace, name) for name in _PLAIN_FIELDS}
    plain |= {name: dict(plain[name]) for name in ("gfp_bits", _SAMPLED)}
    plain["declared_types"] = {name: dict(types) for name, types in trace.declared_types.items()}
    header = {
        "package": __version__,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": None if source is None else asdict(source),
        "compressed": compress,
        "lengths": lengths,
        "trace": plain,
        "losses_at_end": trace.losses.at_end,
        "version": STORE_VERSION,
    }
    schema = pa.schema(
        [pa.field(name, _one_row(values[:0]).type) for name, values in columns.items()],
        metadata={HEADER_KEY: json.dumps(header).encode()},
    )
    longest = max(*lengths.values(), 1)
    piece = _PIECE if compress else longest
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compress else None)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema, options=options) as out:
        for begin in range(0, longest, piece):
            pieces = [_one_row(values[begin : begin + piece]) for values in columns.values()]
            out.write_batch(pa.RecordBatch.from_arrays(pieces, schema=schema))
            if progress is not None:
                progress(min((begin + piece) / longest, 1))


def _one_row(piece: np.ndarray) -> pa.Array:
    """A list of one row, which shares the memory of numbers; `pa.array` would import pandas."""
    if piece.dtype == object:
        encoded = [text.encode() for text in piece]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        kind, memory = pa.large_string(), [pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    else:
        kind = pa.from_numpy_dtype(piece.dtype)
        memory = [pa.py_buffer(np.ascontiguousarray(piece))]
    values = pa.Array.from_buffers(kind, len(piece), [None, *memory])
    ends = pa.py_buffer(np.array([0, len(piece)]))
    return pa.Array.from_buffers(pa.large_list(kind), 1, [None, ends], children=[values])
