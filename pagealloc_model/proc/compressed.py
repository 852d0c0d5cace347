"""Files that may be compressed: opened by what they begin with, read as plain bytes."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import zstandard

from pagealloc_model.errors import RecordingError

CHUNK = 1 << 24
"""Bytes of plain content read at a time."""

_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)


def chunks_of(path: str | Path, *, without: str) -> Iterator[bytes]:
    """The plain content of a file that is plain, gzip, xz or zstd, CHUNK bytes at a time.

    Args:
        path: the file.
        without: what going on without the file means, for errors.

    Raises:
        RecordingError: the file cannot be read, or is a damaged archive.
    """
    todo = f"copy it again, or delete it to go on {without}"
    try:
        with Path(path).open("rb") as file, _plain(file) as content:
            while chunk := content.read(CHUNK):
                yield chunk
    except _DAMAGED as error:
        raise RecordingError(path, f"is not an intact compressed file ({error})", todo=todo) from (
            None
        )
    except OSError as error:
        raise RecordingError(
            path, f"cannot be read ({error.strerror})", todo="check the path and its permissions"
        ) from None


def _plain(file: IO[bytes]) -> IO[bytes]:
    magic = file.read(len(_XZ))
    file.seek(0)
    if magic.startswith(_GZIP):
        return gzip.open(file, "rb")
    if magic.startswith(_XZ):
        return lzma.open(file, "rb")
    if magic.startswith(_ZSTD):
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return file
