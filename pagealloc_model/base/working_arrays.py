"""Arrays as long as a recording: in memory, or in files where the recording is a long one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pagealloc_model.base.column_space import NewArray, in_memory, on_disk

ROWS_IN_MEMORY = 1 << 24
"""Up to so many events, what is made of them, some 100 bytes an event, lies in memory."""

ROWS_TOGETHER = 1 << 20
"""Events worked on at a time, so that intermediate arrays do not grow with the recording."""


def working_arrays(rows: int) -> NewArray:
    """A maker of arrays for what is made of a number of events.

    For long recordings it makes them in unnamed files in the temporary directory (TMPDIR), whose
    pages the kernel can write back and drop.
    """
    directory = working_directory(rows)
    return in_memory if directory is None else on_disk(directory)


def working_directory(rows: int) -> Path | None:
    """Where such files lie; None: in memory."""
    return None if rows <= ROWS_IN_MEMORY else Path(tempfile.gettempdir())


def parts(rows: int) -> Iterator[slice]:
    """Slices of `ROWS_TOGETHER` that cover so many rows, in order."""
    for begin in range(0, rows, ROWS_TOGETHER):
        yield slice(begin, min(begin + ROWS_TOGETHER, rows))


class GrowingArray:
    """Rows appended one batch after the other.

    Args:
        new_array: makes the room, doubled when it is full.
        width: values in a row.
        dtype: their type.
    """

    def __init__(self, new_array: NewArray, width: int, dtype: npt.DTypeLike) -> None:
        self._new_array = new_array
        self._room = new_array((ROWS_TOGETHER >> 6, width), dtype)
        self._filled = 0

    @property
    def filled(self) -> np.ndarray:
        """All rows so far, shape (rows, width)."""
        return self._room[: self._filled]

    def append(self, rows: np.ndarray) -> None:
        """Add a batch of rows."""
        end = self._filled + len(rows)
        if end > len(self._room):
            room = self._new_array((max(end, 2 * len(self._room)), rows.shape[1]), rows.dtype)
            room[: self._filled] = self.filled
            self._room = room
        self._room[self._filled : end] = rows
        self._filled = end
