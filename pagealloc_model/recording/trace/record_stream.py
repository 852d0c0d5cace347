"""The records of a perf.data as buffers that hold whole records, decompressed where need be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.perf_file import RECORD_AGAIN, PerfFile, Section
from pagealloc_model.recording.trace.perf_file import RECORD_HEADER_SIZE

COMPRESSED = 81
COMPRESSED2 = 83

WORD_SLACK = 8
"""Bytes a buffer must extend past its last record, for reads of whole words."""

_BUFFER_SIZE = 1 << 21
_PIECE_SIZE = 1 << 11
"""Compressed bytes taken at a time: a block of four may stand for 128 KiB."""

_BATCH_SIZE = 1 << 20
_WRITE_SIZE = 1 << 18


@dataclass(frozen=True, kw_only=True)
class RecordBuffer:
    """Bytes that start at a record.

    Attributes:
        data: uint8, read-only, at least WORD_SLACK bytes longer than `end`.
        start: where the first record starts.
        end: first byte after the records, which may cut the last one.
        offset: offset of data[0] in the file, or in the decompressed stream.
        decompressed: which of the two.
        last: whether nothing follows, so that a cut record will never be whole.
    """

    data: np.ndarray
    start: int
    end: int
    offset: int
    decompressed: bool
    last: bool

    def damaged(self, path: Path, position: int, what: str) -> RecordingError:
        """The error for a damaged record at `position` of `data`."""
        return damaged_record(path, self.offset + position, what, decompressed=self.decompressed)


def damaged_record(path: Path, offset: int, what: str, *, decompressed: bool) -> RecordingError:
    """The error for a damaged record at an offset of the file, or of what its records unpack to."""
    if decompressed:
        what += f", at byte {offset} of the decompressed records"
        return RecordingError(path, what, todo=RECORD_AGAIN)
    return RecordingError(path, what, offset=offset, todo=RECORD_AGAIN)


def walk_file(file: PerfFile, consume: Callable[[RecordBuffer], int]) -> None:
    """Hand over the record area as it lies in the file, without copying it.

    Where the file ends with its records, the last few are copied: words are read past their end.

    Args:
        file: the file.
        consume: called with one buffer or two; returns where its last whole record ends.
    """
    start, end = file.records.offset, file.records.offset + file.records.size
    readable = min(end, len(file.content) - WORD_SLACK)
    whole = RecordBuffer(
        data=file.content,
        start=start,
        end=readable,
        offset=0,
        decompressed=False,
        last=readable == end,
    )
    done = consume(whole)
    if whole.last:
        return
    tail = np.zeros(end - done + WORD_SLACK, np.uint8)
    tail[:-WORD_SLACK] = file.content[done:end]
    tail.flags.writeable = False
    consume(
        RecordBuffer(data=tail, start=0, end=end - done, offset=done, decompressed=False, last=True)
    )


def compressed_payload(file: PerfFile, kind: int, position: int, size: int) -> Section:
    """Where the compressed bytes of a COMPRESSED or COMPRESSED2 record lie in the file.

    Raises:
        RecordingError: the record is too short.
    """
    if kind == COMPRESSED:
        return Section(position + RECORD_HEADER_SIZE, size - RECORD_HEADER_SIZE)
    prefix = RECORD_HEADER_SIZE + 8
    what = "a compressed record is too short"
    if size >= prefix:
        data_size = int.from_bytes(file.content[position + 8 : position + 16].tobytes(), "little")
        if data_size <= size - prefix:
            return Section(position + prefix, data_size)
        what = "a compressed record is longer than its frame"
    raise damaged_record(file.path, position, what, decompressed=False)


class DecompressedRecords:
    """Decompresses the payloads of compressed records; frames may continue across records.

    Args:
        file: the file.
        consume: called with each buffer; returns where its last whole record ends. What is left
            goes in front of the next buffer.
    """

    def __init__(self, file: PerfFile, consume: Callable[[RecordBuffer], int]) -> None:
        self._consume = consume
        self._pieces = _PayloadPieces(file)
        self._buffer = np.zeros(_BUFFER_SIZE + WORD_SLACK, np.uint8)
        self._filled = 0
        self._offset = 0

    def add(self, payloads: Iterable[Section]) -> None:
        """Take in payloads, in file order.

        Raises:
            RecordingError: the compressed bytes are damaged.
        """
        pieces = (piece for payload in payloads for piece in self._pieces.of(payload))
        with ThreadPoolExecutor(1) as ahead:
            batch = _some(pieces)
            while batch.pieces or batch.error:
                waiting = ahead.submit(_some, pieces)
                for piece in batch.pieces:
                    self._add_piece(piece)
                if batch.error is not None:
                    raise batch.error
                batch = waiting.result()

    def flush(self) -> None:
        """Hand over all whole records taken in so far."""
        self._hand_over(0, last=False)

    def finish(self) -> None:
        """Hand over what is left; a record cut now will never be whole."""
        self._hand_over(0, last=True)

    def _add_piece(self, piece: bytes) -> None:
        if self._filled + len(piece) > len(self._buffer) - WORD_SLACK:
            self._hand_over(len(piece), last=False)
        self._buffer[self._filled : self._filled + len(piece)] = np.frombuffer(piece, np.uint8)
        self._filled += len(piece)

    def _hand_over(self, wanted: int, *, last: bool) -> None:
        """Let the whole records be consumed, and make room for `wanted` bytes behind the rest."""
        readable = self._buffer.view()
        readable.flags.writeable = False
        done = self._consume(
            RecordBuffer(
                data=readable,
                start=0,
                end=self._filled,
                offset=self._offset,
                decompressed=True,
                last=last,
            )
        )
        left = self._buffer[done : self._filled].copy()
        needed = len(left) + wanted + WORD_SLACK
        if needed > len(self._buffer):
            self._buffer = np.zeros(needed, np.uint8)
        self._buffer[: len(left)] = left
        self._filled, self._offset = len(left), self._offset + done


@dataclass(frozen=True)
class _Batch:
    """Decompressed pieces, made while those before them are walked.

    Attributes:
        pieces: in file order; none once all are done.
        error: what came behind them.
    """

    pieces: list[bytes]
    error: RecordingError | None = None


def _some(pieces: Iterator[bytes]) -> _Batch:
    """Return the next pieces, about `_BATCH_SIZE` of bytes in all."""
    taken: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            taken.append(piece)
            size += len(piece)
            if size >= _BATCH_SIZE:
                break
    except RecordingError as error:
        return _Batch(taken, error)
    return _Batch(taken)


class _PayloadPieces:
    """Decompresses payload after payload in small pieces, to bound what one can grow to."""

    def __init__(self, file: PerfFile) -> None:
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj(write_size=_WRITE_SIZE)

    def of(self, payload: Section) -> Iterator[bytes]:
        """The decompressed bytes of one payload."""
        end = payload.offset + payload.size
        for start in range(payload.offset, end, _PIECE_SIZE):
            piece = self._file.content[start : min(start + _PIECE_SIZE, end)].tobytes()
            while piece:
                try:
                    yield self._frame.decompress(piece)
                except zstandard.ZstdError as error:
                    raise RecordingError(
                        self._file.path,
                        f"compressed records are damaged ({error})",
                        offset=start,
                        todo=RECORD_AGAIN,
                    ) from None
                piece = self._frame.unused_data
                if self._frame.eof:
                    self._frame = self._decompressor.decompressobj(write_size=_WRITE_SIZE)
