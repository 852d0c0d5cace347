"""Write a Trace as a columnar store: one Arrow file, see `store_header`."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.version import __version__
from pagealloc_model.recording.trace import store_header as header
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace
from pagealloc_model.recording.trace.store_header import StoreHeader, StoreSource

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
        trace={name: _plain(getattr(trace, name)) for name in header.KNOWN_FIELDS},
        losses_at_end=trace.losses.at_end,
    )
    schema = pa.schema(
        [pa.field(name, pa.large_list(_type(values))) for name, values in columns.items()],
        metadata={header.HEADER_KEY: about.to_json()},
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
    columns = {header.CALLCHAINS: trace.callchains}
    for event, table in trace.tables.items():
        columns |= {f"{header.TABLES}/{event}/{name}": table[name] for name in table}
    for name in header.THREAD_NAME_COLUMNS:
        columns[f"{header.THREAD_NAMES}/{name}"] = getattr(names, name)
    for name in header.LOSS_COLUMNS:
        columns[f"{header.LOSSES}/{name}"] = np.asarray(
            getattr(losses, name), object if name == "event" else None
        )
    tids = np.array(list(trace.comms), np.int64)
    comms = np.array(list(trace.comms.values()), object)
    return columns | dict(
        zip((f"{header.COMMS}/{name}" for name in header.COMM_COLUMNS), (tids, comms), strict=True)
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
