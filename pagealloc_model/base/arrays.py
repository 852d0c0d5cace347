"""Arrays as long as a recording: in memory, or in unnamed files of a long recording."""

from __future__ import annotations

import mmap
import os
import re
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pagealloc_model.base.errors import RecordingError, UsageError

ROWS_IN_MEMORY = 1 << 24
"""Up to so many events, what is made of them, some 100 bytes an event, lies in memory."""
ROWS_TOGETHER = 1 << 20
"""Events worked on at a time, so that intermediate arrays do not grow with the recording."""
STEP_BYTES = 4 << 20
"""The file of a `Column` takes up room in steps of so much."""
_SMALL_BYTES = 1 << 20
BINS_WANTED = 200
"""Of a regular grid, at whose instants predicted and measured tables are taken."""

NewArray = Callable[[int | tuple[int, ...], npt.DTypeLike], np.ndarray]
"""Called with shape and type; makes an array whose content is undefined."""


MEMORY_VARIABLE = "PAGEALLOC_MEMORY"
"""Memory that one run may take, such as 64G; without it what the system says is available."""
_ALWAYS_TAKEN = 1 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def refuse_beyond_memory(needed: int, what: str) -> None:
    """A UsageError if so many bytes are more than a run may take; up to 1 GiB is always taken.

    Args:
        needed: estimate of what is going to be resident.
        what: what needs it, the beginning of the error's line.
    """
    if needed <= _ALWAYS_TAKEN:
        return
    given = os.environ.get(MEMORY_VARIABLE, "")
    if given:
        size = re.fullmatch(r"(\d{1,15})([KMGT]?)", given.strip().upper())
        if size is None:
            raise UsageError(f"{MEMORY_VARIABLE}={given} is no amount of memory, such as 64G")
        most, words = int(size[1]) * _UNITS[size[2]], f"{MEMORY_VARIABLE} allows"
    else:
        most, words = _available_bytes(), "are free"
    if needed > most:
        raise UsageError(
            f"{what} takes about {needed / (1 << 30):,.1f} GiB of memory, more than the "
            f"{most / (1 << 30):,.1f} GiB that {words}; set {MEMORY_VARIABLE} (such as "
            f"{-(-needed >> 30)}G) to take it all the same"
        )


def _available_bytes() -> int:
    """MemAvailable, or what a control group leaves if that is less."""
    most = sys.maxsize
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        most = int(line.split()[1]) << 10
    with suppress(OSError, ValueError, IndexError):
        group = Path("/proc/self/cgroup").read_text().rsplit("::", 1)[1].strip().lstrip("/")
        place = Path("/sys/fs/cgroup") / group
        limit, taken = ((place / f"memory.{name}").read_text() for name in ("max", "current"))
        most = min(most, max(int(limit) - int(taken), 0))
    return most


def in_memory(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """An array in memory."""
    return np.empty(shape, dtype)


def on_disk(directory: Path) -> NewArray:
    """A maker of arrays in unnamed files on a disk, gone with them; small ones are in memory."""

    def new_array(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if size < _SMALL_BYTES:
            return np.empty(shape, dtype)
        mapped, file = _mapped(directory, size)
        with _room_wanted(directory, size):
            os.posix_fallocate(file, 0, size)
        return np.ndarray(shape, dtype, mapped)

    return new_array


def working_arrays(rows: int) -> NewArray:
    """A maker of arrays for so many events; of long recordings in files below TMPDIR."""
    directory = working_directory(rows)
    return in_memory if directory is None else on_disk(directory)


def working_directory(rows: int) -> Path | None:
    """The directory of such files; None: in memory."""
    return None if rows <= ROWS_IN_MEMORY else Path(tempfile.gettempdir())


def bin_width_ns(span_ns: int) -> int:
    """Width of the regular grid's bins, 1, 2 or 5 times a power of ten: about BINS_WANTED fit."""
    smallest = max(span_ns // BINS_WANTED, 1)
    widths = (step * 10**power for power in count() for step in (1, 2, 5))
    return next(width for width in widths if width >= smallest)


def bin_edges(start_ns: int, end_ns: int) -> np.ndarray:
    """int64 edges of the bins that cover [start_ns, end_ns]; the first edge is start_ns."""
    width = bin_width_ns(end_ns - start_ns)
    bins = (end_ns - start_ns) // width + 1
    return start_ns + width * np.arange(bins + 1, dtype=np.int64)


def parts(rows: int) -> Iterator[slice]:
    """Slices of `ROWS_TOGETHER` that cover so many rows, in order."""
    for begin in range(0, rows, ROWS_TOGETHER):
        yield slice(begin, min(begin + ROWS_TOGETHER, rows))


def filled(new_array: NewArray, rows: int, value: int, dtype: npt.DTypeLike) -> np.ndarray:
    """An array of one value, written a part at a time."""
    result = new_array(rows, dtype)
    for part in parts(rows):
        result[part] = value
    return result


class Column:
    """Records appended at the end, which may be let go of from the beginning.

    Args:
        dtype: their type; with a shape of its own for several values a row.
        directory: of the file, on a disk; None: in memory.
        rows: about how many there will be.

    Attributes:
        rows: how many there are; who fills `room` sets it.
    """

    def __init__(self, dtype: npt.DTypeLike, directory: Path | None = None, rows: int = 1) -> None:
        self._dtype, self._directory = np.dtype(dtype), directory
        self.rows = 0
        self._make(max(rows, 1))

    @property
    def values(self) -> np.ndarray:
        """All that were appended and not let go of."""
        return self._room[: self.rows]

    def room(self, count: int) -> np.ndarray:
        """The values and, behind them, undefined room for so many more."""
        values, end = self.values, self.rows + count
        if end > len(self._room):
            self._make(2 * end)
            self._take(end)
            self._room[: len(values)] = values
        self._take(end)
        return self._room[:end]

    def append(self, records: np.ndarray) -> None:
        """Put records behind all others."""
        if len(records):
            self.room(len(records))[self.rows :] = records
            self.rows += len(records)

    def drop(self, count: int) -> None:
        """Let go of the first so many; the others move up."""
        values = self.values[count:]
        for part in parts(len(values) if count else 0):
            self._room[part] = values[part]
        self.rows = len(values)

    def _make(self, rows: int) -> None:
        base, shape = self._dtype.subdtype or (self._dtype, ())
        self._held, self._file = 0, -1
        if self._directory is None:
            self._room = np.empty((rows, *shape), base)
            return
        size = self._bytes(rows)
        mapped, self._file = _mapped(self._directory, size)
        self._room = np.ndarray((size // self._dtype.itemsize, *shape), base, mapped)

    def _take(self, rows: int) -> None:
        """Have the file's blocks: writing to a hole ends the process when the disk is full."""
        if self._directory is not None and (size := self._bytes(rows)) > self._held:
            with _room_wanted(self._directory, size):
                os.posix_fallocate(self._file, self._held, size - self._held)
            self._held = size

    def _bytes(self, rows: int) -> int:
        return -(-rows * self._dtype.itemsize // STEP_BYTES) * STEP_BYTES


def _mapped(directory: Path, size: int) -> tuple[mmap.mmap, int]:
    """An unnamed file's map, and the file's number, closed with it."""
    with (
        _room_wanted(directory, size),
        tempfile.TemporaryFile(prefix=".pagealloc-", dir=directory) as file,
    ):
        os.ftruncate(file.fileno(), size)
        mapped, number = mmap.mmap(file.fileno(), size), os.dup(file.fileno())
    weakref.finalize(mapped, os.close, number)
    return mapped, number


@contextmanager
def _room_wanted(directory: Path, size: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"has no room for {size >> 20} MiB of working files ({error.strerror})"
        raise RecordingError(directory, what, todo="make room there") from None
