"""The Arrow file of a columnar store, mapped to memory: its header, and one column at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from pagealloc_model.base.column_space import in_memory
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.working_arrays import working_arrays
from pagealloc_model.recording.trace.store_header import HEADER_KEY, StoreHeader

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
