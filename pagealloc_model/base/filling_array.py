"""Arrays that are filled from their beginning, and given back from there when they are read."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pagealloc_model.base.errors import RecordingError

_STEP_BYTES = 64 << 20
"""Files grow and shrink by so much at a time."""


class FillingArray:
    """Records appended at the end of an array; in a file, what was read can be given back.

    A file takes up the room of what lies in it, no more: it grows as it is filled, and its
    beginning is cut out of it where the file system can do that.

    Attributes:
        room: all records there is room for; those from the last `need` on are undefined.
    """

    def __init__(self, rows: int, dtype: npt.DTypeLike, directory: Path | None) -> None:
        """Make room.

        Args:
            rows: about how many there will be.
            dtype: their type; with a shape of its own for several values a row.
            directory: where the file lies, on a disk; None: in memory.
        """
        self._directory = directory
        self._dtype = np.dtype(dtype)
        self._file = -1
        self._make(max(rows, 1))

    def need(self, end: int) -> np.ndarray:
        """Make sure that there are so many records; returns `room`, which may be another array."""
        if end > len(self.room):
            before, given = self.room, self._given
            self._make(2 * end)
            self._take(end)
            self.room[given : len(before)] = before[given:]
        self._take(end)
        return self.room

    def give_back(self, begin: int) -> None:
        """Let go of the records before one: they are undefined from now on."""
        if self._map is None:
            return
        width = self.room.itemsize * int(np.prod(self.room.shape[1:]))
        end = begin * width // _STEP_BYTES * _STEP_BYTES
        if end > self._cut:
            try:
                self._map.madvise(mmap.MADV_REMOVE, self._cut, end - self._cut)
            except OSError:  # a file system without holes keeps them
                return
            self._cut, self._given = end, begin

    def take_back(self) -> None:
        """Let the next `need` have blocks again for what was given back; it stays undefined."""
        self._given = self._cut = self._held = 0

    def _make(self, rows: int) -> None:
        base, shape = self._dtype.subdtype or (self._dtype, ())
        self._given = self._cut = self._held = 0
        self._map: mmap.mmap | None = None
        if self._directory is None:
            self.room = np.empty((rows, *shape), base)
            return
        size = -(-rows * self._dtype.itemsize // _STEP_BYTES) * _STEP_BYTES
        try:
            with tempfile.TemporaryFile(prefix=".pagealloc-", dir=self._directory) as file:
                os.ftruncate(file.fileno(), size)
                self._map = mmap.mmap(file.fileno(), size)
                self._file = os.dup(file.fileno())
        except OSError as error:
            raise self._no_room(size, error) from None
        weakref.finalize(self._map, os.close, self._file)
        self.room = np.ndarray((size // self._dtype.itemsize, *shape), base, self._map)

    def _take(self, end: int) -> None:
        """Have the file's blocks: writing to a hole ends the process when the disk is full."""
        if self._map is None:
            return
        size = -(-end * self._dtype.itemsize // _STEP_BYTES) * _STEP_BYTES
        size = min(size, len(self._map))
        if size > self._held:
            try:
                os.posix_fallocate(self._file, self._held, size - self._held)
            except OSError as error:
                raise self._no_room(size, error) from None
            self._held = size

    def _no_room(self, size: int, error: OSError) -> RecordingError:
        return RecordingError(
            self._directory,
            f"has no room for {size >> 20} MiB of working files ({error.strerror})",
            todo="make room there",
        )


def all_of(array: FillingArray, batches: Iterable[np.ndarray]) -> np.ndarray:
    """Records of all batches, one behind the other, in an array that has none yet."""
    end = 0
    for batch in batches:
        array.need(end + len(batch))[end : end + len(batch)] = batch
        end += len(batch)
    return array.room[:end]


class PassingArray:
    """Records appended at the end of an array and taken from its beginning, in between kept."""

    def __init__(self, dtype: npt.DTypeLike, directory: Path | None) -> None:
        """Begin without any; many are kept in a file in the directory, if there is one."""
        self._directory = directory
        self._kept = FillingArray(1, dtype, None)
        self._dtype = np.dtype(dtype)
        self._begin = self._end = 0

    @property
    def values(self) -> np.ndarray:
        """All that were appended and not taken."""
        return self._kept.room[self._begin : self._end]

    def append(self, records: np.ndarray) -> None:
        """Put records behind all others."""
        held = len(self.values) + len(records)
        if self._end + len(records) > len(self._kept.room):
            room = self._kept
            if held > len(room.room) or self._begin < self._end - self._begin:
                large = held * self._dtype.itemsize > _STEP_BYTES
                room = FillingArray(2 * held, self._dtype, self._directory if large else None)
            else:
                room.take_back()
            room.need(held)[: len(self.values)] = self.values
            self._begin, self._end, self._kept = 0, len(self.values), room
        self._kept.need(self._end + len(records))
        self._kept.room[self._end : self._end + len(records)] = records
        self._end += len(records)

    def take(self, count: int) -> None:
        """Let go of the first so many."""
        self._begin += count
        self._kept.give_back(self._begin)
