"""Where a reader's arrays live: in memory, or in files for recordings larger than memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pagealloc_model.base.errors import RecordingError

NewArray = Callable[[int | tuple[int, ...], npt.DTypeLike], np.ndarray]
"""Called with shape and type; makes an array whose content is undefined."""

_SMALL = 1 << 20


def in_memory(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """An array in memory."""
    return np.empty(shape, dtype)


def on_disk(directory: Path) -> NewArray:
    """A maker of arrays in unnamed files, whose pages the kernel can write back and drop.

    Small ones stay in memory. The files vanish with their arrays, or with the process.

    Args:
        directory: on a disk, not on a tmpfs.
    """

    def new_array(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if size < _SMALL:
            return np.empty(shape, dtype)
        try:
            with tempfile.TemporaryFile(prefix=".pagealloc-", dir=directory) as file:
                # Writing to a hole of a mapped file ends the process when the disk is full.
                os.posix_fallocate(file.fileno(), 0, size)
                mapped = np.memmap(file, dtype, mode="r+", shape=shape)  # type: ignore[call-overload]
                return mapped.view(np.ndarray)
        except OSError as error:
            raise RecordingError(
                directory,
                f"has no room for {size >> 20} MiB of working files ({error.strerror})",
                todo="make room there",
            ) from None

    return new_array
