"""Files that may be compressed: opened by what they begin with, read as plain bytes."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.given_file import refuse_unless_file, unreadable

CHUNK = 1 << 24
"""Bytes of plain content read at a time."""

_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)
_ZSTD_PIECE = 1 << 14
_COPY_AGAIN = "copy it again"


def is_compressed(path: str | Path) -> bool:
    """Whether a file begins as gzip, xz or zstd does.

    Raises:
        RecordingError: the file cannot be read.
    """
    refuse_unless_file(path)
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_XZ)).startswith((_GZIP, _XZ, _ZSTD))
    except OSError as error:
        raise unreadable(path, error) from None


def first_bytes(path: str | Path, count: int) -> bytes:
    """The first bytes of a file's plain content, fewer if it is shorter.

    Raises:
        RecordingError: the file cannot be read, or is a damaged archive.
    """
    return next(_pieces(path, count, _COPY_AGAIN), b"")


def chunks_of(path: str | Path, *, todo: str = _COPY_AGAIN) -> Iterator[bytes]:
    """The plain content of a file that is plain, gzip, xz or zstd, CHUNK bytes at a time.

    Args:
        path: the file.
        todo: what to do about a damaged archive, for errors.

    Raises:
        RecordingError: the file cannot be read, or is a damaged or cut archive.
    """
    return _pieces(path, CHUNK, todo)


def lines_of(path: str | Path) -> Iterator[str]:
    """The lines of a text file with their ends, which only the last may lack.

    Bytes that are not UTF-8 are replaced.

    Raises:
        RecordingError: the file cannot be read, is a damaged or cut archive, or no text.
    """
    rest = b""
    for chunk in chunks_of(path):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace") + "\n"
        if len(rest) > CHUNK:
            raise RecordingError(path, f"has a line of more than {CHUNK} bytes", todo=_COPY_AGAIN)
    if rest:
        yield rest.decode("utf-8", "replace")


def _pieces(path: str | Path, size: int, todo: str) -> Iterator[bytes]:
    refuse_unless_file(path)
    try:
        with Path(path).open("rb") as file, _plain(file) as content:
            while piece := content.read(size):
                yield piece
    except _DAMAGED as error:
        what = f"is not an intact compressed file ({error})"
        raise RecordingError(path, what, todo=todo) from None
    except OSError as error:
        raise unreadable(path, error) from None


def _plain(file: IO[bytes]) -> IO[bytes]:
    magic = file.read(len(_XZ))
    file.seek(0)
    if magic.startswith(_GZIP):
        return gzip.open(file, "rb")
    if magic.startswith(_XZ):
        return lzma.open(file, "rb")
    if magic.startswith(_ZSTD):
        return io.BufferedReader(_ZstdFrames(file))
    return file


class _ZstdFrames(io.RawIOBase):
    """Frames end to end; unlike zstandard's own reader, it takes a cut frame for an error."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._within_frame = False
        self._packed = b""
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as the next piece goes; 0 at the end."""
        while not self._plain and self._next_piece():
            pass
        count = min(len(buffer), len(self._plain))
        buffer[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count

    def _next_piece(self) -> bool:
        """Decompress a little more; False at the file's end."""
        packed = self._packed or self._file.read(_ZSTD_PIECE)
        if not packed:
            if self._within_frame:
                raise EOFError("it ends inside a zstd frame")
            return False
        self._plain = memoryview(self._frame.decompress(packed))
        self._within_frame = not self._frame.eof
        self._packed = self._frame.unused_data
        if self._frame.eof:
            self._frame = self._decompressor.decompressobj()
        return True
