"""The records of a perf.data as buffers that hold whole records, decompressed where need be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

_CHUNK_SIZE = 4 << 20
_SOURCE_READ_SIZE = 1 << 17
_EMPTY_BLOCK = b"\0\0\0"


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
    source = _Payloads(file, payloads)
    stream = zstandard.ZstdDecompressor().stream_reader(
        source, read_size=_SOURCE_READ_SIZE, read_across_frames=True
    )
    buffer = np.zeros(_CHUNK_SIZE + WORD_SLACK, np.uint8)
    readable = buffer.view()
    readable.flags.writeable = False
    space = memoryview(buffer)
    filled = 0
    offset = 0
    last = False
    while not last:
        size = _read_into(stream, space[filled:_CHUNK_SIZE], source, file)
        last = size == 0
        filled += size
        decompressed = RecordBuffer(
            data=readable,
            start=0,
            end=filled,
            file_offset=None,
            stream_offset=offset,
            last=last,
        )
        done = consume(decompressed)
        buffer[: filled - done] = buffer[done:filled].copy()
        filled -= done
        offset += done


def _read_into(
    stream: zstandard.ZstdDecompressionReader, space: memoryview, source: _Payloads, file: PerfFile
) -> int:
    try:
        return int(stream.readinto(space))
    except zstandard.ZstdError as error:
        if source.drained:
            return 0
        raise RecordingError(
            file.path,
            f"compressed records are damaged ({error})",
            offset=file.records.offset,
            todo=RECORD_AGAIN,
        ) from None


class _Payloads:
    """A source of compressed bytes for zstandard: one record's payload at a time.

    perf does not end its last frame, and the stream reader gives out what it still holds only
    when it gets more input. An empty block at the very end makes it do so; where a frame did end,
    the block is refused, which `drained` tells from damage.
    """

    def __init__(self, file: PerfFile, payloads: Sequence[Section]) -> None:
        self._content = file.content
        self._payloads = iter(payloads)
        self.drained = False

    def read(self, _size: int) -> bytes:
        """The next payload, the empty block after the last one, then nothing."""
        for payload in self._payloads:
            if payload.size:
                return self._content[payload.offset : payload.offset + payload.size].tobytes()
        if self.drained:
            return b""
        self.drained = True
        return _EMPTY_BLOCK
