"""The records of a perf.data as buffers that hold whole records, decompressed where need be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard

from pagealloc_model.errors import RecordingError
from pagealloc_model.trace.perf_file import RECORD_AGAIN, PerfFile, Section
from pagealloc_model.trace.sample_layout import RECORD_HEADER_SIZE

COMPRESSED = 81
COMPRESSED2 = 83

WORD_SLACK = 8
"""Bytes a buffer must extend past its last record, for reads of whole words."""

_BUFFER_SIZE = 1 << 21
_PIECE_SIZE = 1 << 14
_WRITE_SIZE = 1 << 18


@dataclass(frozen=True, kw_only=True)
class RecordBuffer:
    """Bytes that start at a record.

    Attributes:
        data: uint8, read-only, at least WORD_SLACK bytes longer than `end`.
        start: where the first record starts.
        end: first byte after the records, which may cut the last one.
        file_offset: file offset of data[0], or None for decompressed bytes.
        stream_offset: offset of data[0] in the decompressed stream, 0 for a file's own bytes.
        last: whether nothing follows, so that a cut record is an error.
    """

    data: np.ndarray
    start: int
    end: int
    file_offset: int | None
    stream_offset: int
    last: bool

    def damaged(self, path: Path, position: int, what: str) -> RecordingError:
        """The error for a damaged record at `position` of `data`."""
        if self.file_offset is None:
            what += f", at byte {self.stream_offset + position} of the decompressed records"
            return RecordingError(path, what, todo=RECORD_AGAIN)
        return RecordingError(path, what, offset=self.file_offset + position, todo=RECORD_AGAIN)


def file_buffer(file: PerfFile) -> RecordBuffer:
    """The record area as it lies in the file.

    Raises:
        RecordingError: the file ends so soon after the records that it must be cut short.
    """
    records = file.records
    end = records.offset + records.size
    if end + WORD_SLACK > len(file.content):
        raise RecordingError(file.path, "cut short", offset=end, todo=RECORD_AGAIN)
    return RecordBuffer(
        data=file.content,
        start=records.offset,
        end=end,
        file_offset=0,
        stream_offset=0,
        last=True,
    )


def compressed_payload(
    file: PerfFile, buffer: RecordBuffer, kind: int, position: int, size: int
) -> Section:
    """Where the compressed bytes of a COMPRESSED or COMPRESSED2 record lie in the file.

    Raises:
        RecordingError: the record is too short, or itself inside compressed records.
    """
    if buffer.file_offset is None:
        raise buffer.damaged(file.path, position, "a compressed record inside compressed ones")
    if kind == COMPRESSED:
        return Section(position + RECORD_HEADER_SIZE, size - RECORD_HEADER_SIZE)
    prefix = RECORD_HEADER_SIZE + 8
    if size < prefix:
        raise buffer.damaged(file.path, position, "a compressed record is too short")
    data_size = int.from_bytes(buffer.data[position + 8 : position + 16].tobytes(), "little")
    if data_size > size - prefix:
        raise buffer.damaged(file.path, position, "a compressed record is longer than its frame")
    return Section(position + prefix, data_size)


def walk_decompressed(
    file: PerfFile, payloads: Sequence[Section], consume: Callable[[RecordBuffer], int]
) -> None:
    """Decompress the payloads of all compressed records; frames may continue across records.

    Args:
        file: the file.
        payloads: where the compressed bytes lie, in file order.
        consume: called with each buffer; returns where its last whole record ends. What is left
            goes in front of the next buffer.

    Raises:
        RecordingError: the compressed bytes are damaged.
    """
    buffer = np.zeros(_BUFFER_SIZE + WORD_SLACK, np.uint8)
    filled = offset = 0
    for piece in _decompressed_pieces(file, payloads):
        if filled + len(piece) > len(buffer) - WORD_SLACK:
            done = consume(_decompressed(buffer, filled, offset, last=False))
            buffer = _with_room(buffer, done, filled, len(piece))
            filled, offset = filled - done, offset + done
        buffer[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)
    consume(_decompressed(buffer, filled, offset, last=True))


def _decompressed(buffer: np.ndarray, filled: int, offset: int, *, last: bool) -> RecordBuffer:
    readable = buffer.view()
    readable.flags.writeable = False
    return RecordBuffer(
        data=readable, start=0, end=filled, file_offset=None, stream_offset=offset, last=last
    )


def _with_room(buffer: np.ndarray, done: int, filled: int, wanted: int) -> np.ndarray:
    """Move what is left to the front; the same buffer if `wanted` bytes fit behind that."""
    left = buffer[done:filled].copy()
    needed = len(left) + wanted + WORD_SLACK
    if needed > len(buffer):
        buffer = np.zeros(needed, np.uint8)
    buffer[: len(left)] = left
    return buffer


def _decompressed_pieces(file: PerfFile, payloads: Sequence[Section]) -> Iterator[bytes]:
    """Decompressed bytes of small pieces of the payloads, to bound what one can grow to."""
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj(write_size=_WRITE_SIZE)
    for payload in payloads:
        end = payload.offset + payload.size
        for start in range(payload.offset, end, _PIECE_SIZE):
            piece = file.content[start : min(start + _PIECE_SIZE, end)].tobytes()
            while piece:
                try:
                    yield frame.decompress(piece)
                except zstandard.ZstdError as error:
                    raise RecordingError(
                        file.path,
                        f"compressed records are damaged ({error})",
                        offset=start,
                        todo=RECORD_AGAIN,
                    ) from None
                piece = frame.unused_data
                if frame.eof:
                    frame = decompressor.decompressobj(write_size=_WRITE_SIZE)
