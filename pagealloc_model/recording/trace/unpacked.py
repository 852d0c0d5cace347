"""The bytes of an event file, memory mapped; an archive is unpacked to an unnamed file first."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from pagealloc_model.base.compressed import chunks_of, is_compressed
from pagealloc_model.base.errors import RecordingError


def mapped(path: Path) -> np.ndarray:
    """A file's plain content, uint8; nothing is copied to memory.

    Raises:
        RecordingError: the file cannot be read, is a damaged archive, or does not fit on the
            disk once it is unpacked.
    """
    if is_compressed(path):
        return _unpacked(path)
    return np.memmap(path, np.uint8, mode="r").view(np.ndarray)


def _unpacked(path: Path) -> np.ndarray:
    with tempfile.TemporaryFile(prefix="pagealloc-") as file:
        for chunk in chunks_of(path):
            try:
                file.write(chunk)
                file.flush()
            except OSError as error:
                raise RecordingError(
                    path,
                    f"cannot be unpacked to {tempfile.gettempdir()} ({error.strerror})",
                    todo="make room there, or set TMPDIR to a directory that has more",
                ) from None
        if not file.tell():
            return np.zeros(0, np.uint8)
        return np.memmap(file, np.uint8, mode="r").view(np.ndarray)  # type: ignore[call-overload]
