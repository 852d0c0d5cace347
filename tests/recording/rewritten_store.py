"""A store with other names and values than any writer gives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

Change = Callable[[str, np.ndarray], np.ndarray]
_KEY = b"pagealloc_model"


def rewrite(
    path: Path,
    *,
    change: Change = lambda _, values: values,
    rename: Callable[[str], str] = lambda name: name,
    header: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Path:
    """Write a store anew in its place.

    Args:
        path: the store.
        change: takes a column's name and values, gives the values to write.
        rename: of names of columns, as in tables/EVENT/COLUMN.
        header: changes what stands in the header.
    """
    table = pa.ipc.open_file(path).read_all()
    about = json.loads(table.schema.metadata[_KEY])
    columns, fields = [], []
    for name in table.schema.names:
        values = table.column(name).combine_chunks().flatten()
        kind = values.type
        is_text = pa.types.is_large_string(kind)
        plain = np.array(values.to_pylist(), object) if is_text else values.to_numpy()
        new = pa.array(change(name, plain.copy()), kind)
        ends = pa.array([0, len(new)], pa.int64())
        columns.append(pa.LargeListArray.from_arrays(ends, new))
        fields.append(pa.field(rename(name), columns[-1].type))
    about["lengths"] = {rename(name): length for name, length in about["lengths"].items()}
    header(about)
    schema = pa.schema(fields, metadata={_KEY: json.dumps(about).encode()})
    packed = "zstd" if about["compressed"] else None
    options = pa.ipc.IpcWriteOptions(compression=packed)
    path.unlink()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema, options=options) as out:
        out.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return path
