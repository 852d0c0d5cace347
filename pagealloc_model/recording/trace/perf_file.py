"""The structure of a perf.data: header, attributes, features, and its records as plain bytes."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import chunks_of, is_compressed, most_unpacked, opened
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.formats import TracepointFormat, parse_format, tracing_data

MAGIC = b"PERFILE2"
FOREIGN_MAGIC = b"2ELIFREP"
HEADER_SIZE = 104
RECORD_HEADER_SIZE = 8
FEATURE_BITS = 256
TRACEPOINT = 2
RECORD_AGAIN = "record again, or copy the file again from its machine"
_LITTLE_ENDIAN = "only little-endian recordings can be read"
_PIPE_HEADER_SIZE = 16
_SMALLEST_ATTR, _LARGEST_ATTR = 64, 4096
_CLOCK_MONOTONIC = 1
_MOST_WORDS = 1 << 16
_FIRST_OF_SIMPLEPERF = 128
"""Header features from here on are Android's simpleperf's own."""
RECORD_TRACEPOINTS = f"record tracepoints, such as {tp.RECORD_ESSENTIAL}"


class Feature(IntEnum):
    """Numbers of the header features used here."""

    TRACING_DATA = 1
    OSRELEASE = 4
    NRCPUS = 7
    CMDLINE = 11
    EVENT_DESC = 12
    COMPRESSED = 27


class SampleType(IntFlag):
    """Parts that a sample of an attribute carries, in bits of `sample_type`."""

    IP = 1 << 0
    TID = 1 << 1
    TIME = 1 << 2
    ADDR = 1 << 3
    READ = 1 << 4
    CALLCHAIN = 1 << 5
    ID = 1 << 6
    CPU = 1 << 7
    PERIOD = 1 << 8
    STREAM_ID = 1 << 9
    RAW = 1 << 10
    IDENTIFIER = 1 << 16


class AttrFlag(IntFlag):
    """The bits of perf_event_attr's flag word used here."""

    FREQ = 1 << 10
    SAMPLE_ID_ALL = 1 << 18
    USE_CLOCKID = 1 << 25


class Section(NamedTuple):
    """A byte range of the file."""

    offset: int
    size: int


@dataclass(frozen=True)
class EventAttr:
    """One perf_event_attr, its bytes in the file, and the ids of its events, by CPU or task.

    Of a tracepoint `config` is the id of its format; `sample_period` is a frequency with the FREQ
    flag; `clockid` counts with USE_CLOCKID.
    """

    raw: bytes
    type: int
    config: int
    sample_period: int
    sample_type: SampleType
    read_format: int
    flags: AttrFlag
    clockid: int
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class PerfFile:
    """An opened perf.data; `content`, the file's bytes, stays on disk until it is used.

    A piped one came through a pipe, where nothing says how long it should be.
    """

    path: Path
    content: np.ndarray
    records: Section
    attrs: tuple[EventAttr, ...]
    features: Mapping[int, Section]
    formats: Mapping[int, TracepointFormat]
    piped: bool

    def feature(self, number: int) -> bytes:
        """The bytes of a feature section, none if the file lacks it."""
        return _bytes_of(self.content, self.features.get(number, Section(0, 0)))

    @property
    def release(self) -> str:
        """Kernel release, "" if the file names none."""
        data = self.feature(Feature.OSRELEASE)
        length = int.from_bytes(data[:4], "little")
        return data[4 : 4 + length].split(b"\0", 1)[0].decode("utf-8", "replace")

    @property
    def nr_cpus(self) -> int:
        """CPUs online when recorded, 0 if the file does not say."""
        data = self.feature(Feature.NRCPUS)
        return int(struct.unpack_from("<4xI", data)[0]) if len(data) >= 8 else 0

    @property
    def command_line(self) -> tuple[str, ...]:
        """The words that perf was called with, none if the file does not say."""
        data, words, position = self.feature(Feature.CMDLINE), [], 4
        for _ in range(min(int.from_bytes(data[:4], "little"), _MOST_WORDS)):
            length = int.from_bytes(data[position : position + 4], "little")
            word = data[position + 4 : position + 4 + length]
            if len(word) < length or not length:
                break
            words.append(word.split(b"\0", 1)[0].decode("utf-8", "replace"))
            position += 4 + length
        return tuple(words)


def _bytes_of(content: np.ndarray, section: Section) -> bytes:
    return content[section.offset : section.offset + section.size].tobytes()


def clock_name(attrs: Iterable[EventAttr]) -> str:
    """The clock of all times: "monotonic", "perf", or "clockid N"."""
    chosen = {attr.clockid for attr in attrs if attr.flags & AttrFlag.USE_CLOCKID}
    names = {(): "perf", (_CLOCK_MONOTONIC,): "monotonic"}
    return names.get(tuple(chosen)) or f"clockid {min(chosen)}"


def parse_attr(raw: bytes, ids: tuple[int, ...] = ()) -> EventAttr:
    """Parse the bytes of one perf_event_attr, 64 at least."""
    kind, _, config, period, sample_type, form, flags = struct.unpack_from("<IIQQQQQ", raw)
    clock = struct.unpack_from("<i", raw, 92)[0] if len(raw) >= 96 else 0
    carried, flag_word = SampleType(sample_type), AttrFlag(flags)
    return EventAttr(raw, kind, config, period, carried, form, flag_word, clock, ids)


_Parts = tuple[Section, dict[int, Section], list[EventAttr]]
"""Where the records lie, where each feature section lies, and all attributes with their ids."""


class _Header:
    """The header of a file, every reach checked against the file's end."""

    def __init__(self, path: Path, content: np.ndarray) -> None:
        self._path = path
        self._content = content

    def of_file(self) -> _Parts:
        """The file header and the tables it points at."""
        (size,) = self._unpack("<Q", 8)
        if size < HEADER_SIZE:
            raise self._bad(f"has a header of {size} bytes", 8)
        (entry_size,) = self._unpack("<Q", 16)
        attr_size, table, records = entry_size - 16, self._section(24), self._section(40)
        feature_bits = int.from_bytes(self._bytes(72, FEATURE_BITS // 8), "little")
        never_finished = RecordingError(
            self._path,
            "was never finished: perf was killed before it wrote what the events mean",
            offset=48,
            todo="record again, and end perf with Ctrl-C",
        )
        if not records.size and not feature_bits:
            raise never_finished
        numbers = [number for number in range(FEATURE_BITS) if feature_bits >> number & 1]
        behind = records.offset + records.size
        try:
            features = {n: self._section(behind + 16 * place) for place, n in enumerate(numbers)}
        except RecordingError:
            if not records.size:  # events lie where the sections' places should
                raise never_finished from None
            raise
        if not _SMALLEST_ATTR <= attr_size <= _LARGEST_ATTR:
            raise self._bad(f"attribute size {attr_size} is impossible", 16)
        if table.size == 0 or table.size % entry_size:
            raise self._bad("the attribute table has a broken size", 24)
        offsets = range(table.offset, table.offset + table.size, entry_size)
        lists = [self._section(offset + attr_size) for offset in offsets]
        if sum(ids.size for ids in lists) > len(self._content):
            raise self._bad("the id lists of the attributes overlap", 24)
        attrs = []
        for offset, ids in zip(offsets, lists, strict=True):
            if ids.size % 8:
                raise self._bad("the id list of an attribute has a broken size", offset)
            numbers = np.frombuffer(_bytes_of(self._content, ids), "<u8").tolist()
            attrs.append(parse_attr(self._bytes(offset, attr_size), tuple(numbers)))
        return records, features, attrs

    def of_pipe(self) -> _Parts:
        """Attributes, features and format data from the records that precede the first event."""
        attrs: list[EventAttr] = []
        features: dict[int, Section] = {}
        position, end = _PIPE_HEADER_SIZE, len(self._content)
        is_described = False
        while position + RECORD_HEADER_SIZE <= end:
            kind, size = self._unpack("<IxxH", position)
            if size < RECORD_HEADER_SIZE:
                raise self._bad("a record has an impossible size", position)
            after = position + size
            if kind in _FIRST_EVENTS or after > end:
                is_described = kind in _FIRST_EVENTS
                break
            try:
                if kind == _HEADER_ATTR:
                    body = self._bytes(position + 8, size - 8)
                    attr_size = struct.unpack_from("<I", body, 4)[0] or _SMALLEST_ATTR
                    behind = len(body) - attr_size
                    if attr_size < _SMALLEST_ATTR or behind < 0 or behind % 8:
                        raise ValueError(f"attribute size {attr_size} is impossible")
                    ids = np.frombuffer(body[attr_size:], "<u8").tolist()
                    attrs.append(parse_attr(body[:attr_size], tuple(ids)))
                elif kind == _HEADER_FEATURE and size > 16:
                    (number,) = self._unpack("<Q", position + 8)
                    features[number] = Section(position + 16, size - 16)
                elif kind == TRACING_DATA:
                    (data_size,) = struct.unpack("<I", self._bytes(position + 8, 4))
                    if after + data_size > end:
                        raise ValueError("cut short: it ends inside the format data")
                    features[Feature.TRACING_DATA] = Section(after, data_size)
                    after += data_size + -data_size % 8
            except (ValueError, struct.error) as error:
                raise self._bad(str(error), position) from None
            position = after
        needs_formats = not is_described or any(attr.type == TRACEPOINT for attr in attrs)
        if not attrs or (needs_formats and Feature.TRACING_DATA not in features):
            raise self._bad("cut short: it ends before its events are described", end)
        return Section(_PIPE_HEADER_SIZE, end - _PIPE_HEADER_SIZE), features, attrs

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._content):
            raise self._bad("cut short", offset)
        return self._content[offset : offset + size].tobytes()

    def _unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        return struct.unpack(layout, self._bytes(offset, struct.calcsize(layout)))

    def _section(self, offset: int) -> Section:
        start, size = self._unpack("<QQ", offset)
        end = len(self._content)
        if start + size > end:
            what = f"cut short: a section ends at {start + size}, the file at {end}"
            raise self._bad(what, offset)
        return Section(start, size)

    def _bad(self, what: str, offset: int) -> RecordingError:
        return RecordingError(self._path, what, offset=offset, todo=RECORD_AGAIN)


_HEADER_ATTR = 64
TRACING_DATA = 66
_HEADER_FEATURE = 80
COMPRESSED, COMPRESSED2 = 81, 83
_SAMPLE = 9
_FIRST_EVENTS = (_SAMPLE, 71, COMPRESSED, COMPRESSED2)
"""SAMPLE, AUXTRACE and the compressed records: perf describes the events before any of them."""


def open_perf_file(path: str | Path) -> PerfFile:
    """Open a perf.data file, plain or compressed, and read everything but its records.

    Both layouts are known: that of a file, and that of a pipe (`perf record -o -`).
    """
    path = Path(path)
    if path.is_dir():
        what = "is a directory of perf data files"
        raise RecordingError(path, what, todo="record without --threads")
    try:
        size = path.stat().st_size
    except OSError as error:
        raise RecordingError(
            path, f"cannot be read ({error.strerror})", todo="check the path and its permissions"
        ) from None
    content = mapped(path) if size else np.zeros(0, np.uint8)
    if len(content) < _PIPE_HEADER_SIZE:
        raise RecordingError(path, "is too short for a perf.data file", todo=RECORD_AGAIN)
    _check_magic(path, content[:8].tobytes())
    piped = content[8:16].tobytes() == struct.pack("<Q", _PIPE_HEADER_SIZE)
    header = _Header(path, content)
    records, features, attrs = header.of_pipe() if piped else header.of_file()
    if Feature.EVENT_DESC in features and not all(attr.ids for attr in attrs):
        # Take ids from the event description where an attribute lists none itself.
        described = _described_ids(_bytes_of(content, features[Feature.EVENT_DESC]))
        if len(described) == len(attrs):
            pairs = zip(attrs, described, strict=True)
            attrs = [attr if attr.ids else replace(attr, ids=ids) for attr, ids in pairs]
    section = features.get(Feature.TRACING_DATA)
    if section is None:
        what, todo = "has no tracepoint format data", RECORD_TRACEPOINTS
        if any(number >= _FIRST_OF_SIMPLEPERF for number in features):
            what, todo = "is a recording of simpleperf, which is not read", "record with perf"
        raise RecordingError(path, what, todo=todo)
    try:
        big_endian, texts = tracing_data(_bytes_of(content, section))
        formats = [parse_format(system, text.decode("latin-1")) for system, text in texts]
    except ValueError as error:
        raise RecordingError(path, str(error), offset=section.offset, todo=RECORD_AGAIN) from None
    if big_endian:
        what = "format data say the records are big-endian"
        raise RecordingError(path, what, offset=section.offset, todo=_LITTLE_ENDIAN)
    return PerfFile(
        path=path,
        content=content,
        records=records,
        attrs=tuple(attrs),
        features=features,
        formats={tracepoint.id: tracepoint for tracepoint in formats},
        piped=piped,
    )


def _check_magic(path: Path, magic: bytes) -> None:
    if magic == FOREIGN_MAGIC:
        what = "was recorded on a machine of the other byte order"
        raise RecordingError(path, what, offset=0, todo=_LITTLE_ENDIAN)
    if magic != MAGIC:
        raise RecordingError(
            path, "is not a perf.data file", offset=0, todo="give the output of perf record"
        )


def _described_ids(data: bytes) -> list[tuple[int, ...]]:
    """The ids of each event in an event description section, [] if it is malformed."""
    try:
        count, attr_size = struct.unpack_from("<II", data)
        position = 8
        described = []
        for _ in range(count):
            position += attr_size
            id_count, name_size = struct.unpack_from("<II", data, position)
            position += 8 + name_size
            described.append(struct.unpack_from(f"<{id_count}Q", data, position))
            position += 8 * id_count
    except (struct.error, OverflowError, MemoryError):
        return []
    return described


def mapped(path: Path) -> np.ndarray:
    """A file's plain content, uint8, in an unnamed file if it is packed; nothing is in memory."""
    if not is_compressed(path):
        with opened(path) as plain:
            return np.memmap(plain, np.uint8, mode="r").view(np.ndarray)  # type: ignore[call-overload]
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


WORD_SLACK = 8
"""Bytes a buffer must extend past its last record, for reads of whole words."""
_BUFFER_SIZE = 1 << 21
_PIECE_SIZE = 1 << 11
"""Compressed bytes taken at a time: a block of four may stand for 128 KiB."""
_BATCH_SIZE = 1 << 20
_WRITE_SIZE = 1 << 18


class RecordBuffer(NamedTuple):
    """Records in data[start:end], the last maybe cut; nothing follows the last buffer.

    data[0] is at `offset` of the file, or of the decompressed stream.
    """

    data: np.ndarray
    start: int
    end: int
    offset: int
    decompressed: bool
    last: bool


def damaged_record(path: Path, offset: int, what: str, *, decompressed: bool) -> RecordingError:
    """The error for a damaged record at an offset of the file, or of what its records unpack to."""
    if decompressed:
        what += f", at byte {offset} of the decompressed records"
        return RecordingError(path, what, todo=RECORD_AGAIN)
    return RecordingError(path, what, offset=offset, todo=RECORD_AGAIN)


def walk_file(file: PerfFile, consume: Callable[[RecordBuffer], int]) -> None:
    """Hand over the record area as it lies in the file, without copying it.

    Where the file ends with its records, the last few are copied: words are read past their end.
    """
    start, end = file.records.offset, file.records.offset + file.records.size
    readable = min(end, len(file.content) - WORD_SLACK)
    done = consume(RecordBuffer(file.content, start, readable, 0, False, readable == end))
    if readable < end:
        consume(RecordBuffer(with_slack(file.content[done:end]), 0, end - done, done, False, True))


def with_slack(content: np.ndarray) -> np.ndarray:
    """A read-only copy of what lies at a file's end, with zeros behind it."""
    copy = np.concatenate([content, np.zeros(WORD_SLACK, np.uint8)])
    copy.flags.writeable = False
    return copy


def compressed_payload(file: PerfFile, kind: int, position: int, size: int) -> Section:
    """Where the compressed bytes of a COMPRESSED or COMPRESSED2 record lie in the file."""
    if kind == COMPRESSED:
        return Section(position + 8, size - 8)
    if size < 16:
        what = "a compressed record is too short"
        raise damaged_record(file.path, position, what, decompressed=False)
    data_size = int.from_bytes(_bytes_of(file.content, Section(position + 8, 8)), "little")
    if data_size > size - 16:
        what = "a compressed record is longer than its frame"
        raise damaged_record(file.path, position, what, decompressed=False)
    return Section(position + 16, data_size)


class DecompressedRecords:
    """Decompresses the payloads of compressed records; frames may continue across records.

    In small pieces, to bound what one can grow to; some are made while those before are walked.
    """

    def __init__(self, file: PerfFile, consume: Callable[[RecordBuffer], int]) -> None:
        self._file = file
        self._consume = consume
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj(write_size=_WRITE_SIZE)
        self._buffer = np.zeros(_BUFFER_SIZE + WORD_SLACK, np.uint8)
        self._filled = 0
        self._offset = 0
        self._most = most_unpacked(file.path)

    def add(self, payloads: Iterable[Section], *, last: bool) -> None:
        """Take in payloads, in file order, and hand over their whole records.

        After the last ones a cut record will never be whole.
        """
        pieces = (piece for payload in payloads for piece in self._pieces(payload))
        with ThreadPoolExecutor(1) as ahead:
            batch, error = _batch(pieces)
            while batch or error:
                waiting = ahead.submit(_batch, pieces)
                for piece in batch:
                    if self._filled + len(piece) > len(self._buffer) - WORD_SLACK:
                        self._hand_over(len(piece), last=False)
                    behind = slice(self._filled, self._filled + len(piece))
                    self._buffer[behind] = np.frombuffer(piece, np.uint8)
                    self._filled += len(piece)
                if error is not None:
                    raise error
                batch, error = waiting.result()
        self._hand_over(0, last=last)

    def _hand_over(self, wanted: int, *, last: bool) -> None:
        """Let the whole records be consumed, and make room for `wanted` bytes behind the rest."""
        readable = self._buffer.view()
        readable.flags.writeable = False
        done = self._consume(RecordBuffer(readable, 0, self._filled, self._offset, True, last))
        if self._offset + self._filled > self._most:
            what = f"the records unpack to more than {self._most} bytes"
            raise RecordingError(self._file.path, what, todo=RECORD_AGAIN)
        left = self._buffer[done : self._filled].copy()
        needed = len(left) + wanted + WORD_SLACK
        if needed > len(self._buffer):
            self._buffer = np.zeros(needed, np.uint8)
        self._buffer[: len(left)] = left
        self._filled, self._offset = len(left), self._offset + done

    def _pieces(self, payload: Section) -> Iterator[bytes]:
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


def has_samples(file: PerfFile) -> bool:
    """Whether a record is a sample, by headers up to the first one; also of compressed records."""
    kinds: set[int] = set()
    packed: list[Section] = []

    def look(buffer: RecordBuffer) -> int:
        position = buffer.start
        while position + RECORD_HEADER_SIZE <= buffer.end and _SAMPLE not in kinds:
            kind, size = struct.unpack_from("<IxxH", buffer.data, position)
            if size < RECORD_HEADER_SIZE or position + size > buffer.end:
                break
            kinds.add(kind)
            if kind in (COMPRESSED, COMPRESSED2):
                packed.append(compressed_payload(file, kind, buffer.offset + position, size))
            if kind == TRACING_DATA:
                size += (struct.unpack_from("<I", buffer.data, position + 8)[0] + 7) & ~7
            position += size
        return buffer.end if _SAMPLE in kinds else position

    walk_file(file, look)
    unpacked = DecompressedRecords(file, look)
    for payload in packed:
        unpacked.add([payload], last=False)
        if _SAMPLE in kinds:
            break
    return _SAMPLE in kinds


def _batch(pieces: Iterator[bytes]) -> tuple[list[bytes], RecordingError | None]:
    """The next pieces, about `_BATCH_SIZE` of bytes in all, none once all are done; what failed."""
    taken: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            taken.append(piece)
            size += len(piece)
            if size >= _BATCH_SIZE:
                break
    except RecordingError as error:
        return taken, error
    return taken, None
