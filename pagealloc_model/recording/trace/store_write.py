"""Write a Trace as a columnar store: one Arrow file, see `store_header`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
    columns = _columns(trace)
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
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema, options=options) as out:
        for begin in range(0, max(longest, 1), piece):
            pieces = [_one_row(values[begin : begin + piece]) for values in columns.values()]
            out.write_batch(pa.RecordBatch.from_arrays(pieces, schema=schema))
            if progress is not None:
                progress(min((begin + piece) / max(longest, 1), 1))


def _columns(trace: Trace) -> dict[str, np.ndarray]:
    """Every column by its field's name."""
    names, losses = trace.thread_names, trace.losses
    columns = {name: getattr(trace, name) for name in COLUMN_TYPES}
    columns[header.CALLCHAINS] = trace.callchains
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
    """A list of one row, which shares the memory of numbers."""
    values = pa.array(piece, _type(piece))
    return pa.LargeListArray.from_arrays(pa.array([0, len(piece)], pa.int64()), values)


def _plain(value: Any) -> Any:
    """A field of a Trace as JSON has it."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value
