"""The structure of a perf.data: header, attributes, features, and its records as plain bytes."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from pathlib import Path

import numpy as np
import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import chunks_of, first_bytes, is_compressed, opened
from pagealloc_model.recording.trace.formats import TracingData, parse_tracing_data

MAGIC = b"PERFILE2"
FOREIGN_MAGIC = b"2ELIFREP"
HEADER_SIZE = 104
PIPE_HEADER_SIZE = 16
RECORD_HEADER_SIZE = 8
FEATURE_BITS = 256
SMALLEST_ATTR = 64
LARGEST_ATTR = 4096
TRACEPOINT = 2
CLOCK_MONOTONIC = 1
RECORD_AGAIN = "record again, or copy the file again from its machine"


class Feature(IntEnum):
    """Numbers of the header features used here."""

    TRACING_DATA = 1
    BUILD_ID = 2
    HOSTNAME = 3
    OSRELEASE = 4
    VERSION = 5
    ARCH = 6
    NRCPUS = 7
    CPUDESC = 8
    CPUID = 9
    TOTAL_MEM = 10
    CMDLINE = 11
    EVENT_DESC = 12
    CPU_TOPOLOGY = 13
    NUMA_TOPOLOGY = 14
    SAMPLE_TIME = 21
    CLOCKID = 23
    COMPRESSED = 27
    CLOCK_DATA = 29


class SampleType(IntFlag):
    """What a sample of an attribute carries, in bits of `sample_type`."""

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


@dataclass(frozen=True)
class Section:
    """A byte range of the file."""

    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class EventAttr:
    """One perf_event_attr with the ids of its events.

    Attributes:
        raw: the attribute's bytes as they stand in the file.
        type: PERF_TYPE_ number, `TRACEPOINT` for tracepoints.
        config: for tracepoints, the id of its format.
        sample_period: events per sample, or a frequency if the FREQ flag is set.
        sample_type: what its samples carry.
        read_format: what a READ part of its samples carries.
        flags: the flag word.
        clockid: clock number, meaningful with USE_CLOCKID.
        ids: the sample ids of this attribute, one per CPU or task.
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
    """An opened perf.data; the bytes stay on disk until they are used.

    Attributes:
        path: the file.
        content: the file's bytes, uint8, memory mapped.
        records: where the records lie.
        attrs: the recorded events.
        features: feature number -> where its section lies.
        tracing: the format data.
        piped: whether it came through a pipe, where nothing says how long it should be.
    """

    path: Path
    content: np.ndarray
    records: Section
    attrs: tuple[EventAttr, ...]
    features: Mapping[int, Section]
    tracing: TracingData
    piped: bool

    def feature(self, number: int) -> bytes | None:
        """The bytes of a feature section, None if the file has none."""
        section = self.features.get(number)
        if section is None:
            return None
        return self.content[section.offset : section.offset + section.size].tobytes()

    def text_feature(self, number: int) -> str:
        """A feature that is one string, "" where it is absent or malformed."""
        data = self.feature(number)
        if data is None or len(data) < 4:
            return ""
        (length,) = struct.unpack_from("<I", data)
        return data[4 : 4 + length].split(b"\0", 1)[0].decode("utf-8", "replace")

    @property
    def release(self) -> str:
        """Kernel release, "" if the file names none."""
        return self.text_feature(Feature.OSRELEASE)

    @property
    def nr_cpus(self) -> int:
        """CPUs online when recorded, 0 if the file does not say."""
        data = self.feature(Feature.NRCPUS)
        return int(struct.unpack_from("<II", data)[1]) if data and len(data) >= 8 else 0

    @property
    def clock(self) -> str:
        """The clock of all times, see `clock_name`."""
        return clock_name(self.attrs)


def clock_name(attrs: Iterable[EventAttr]) -> str:
    """The clock of all times: "monotonic", "perf", or "clockid N"."""
    chosen = {attr.clockid for attr in attrs if attr.flags & AttrFlag.USE_CLOCKID}
    if not chosen:
        return "perf"
    return "monotonic" if chosen == {CLOCK_MONOTONIC} else f"clockid {min(chosen)}"


def parse_attr(raw: bytes, ids: tuple[int, ...] = ()) -> EventAttr:
    """Parse the bytes of one perf_event_attr, at least `SMALLEST_ATTR` long."""
    kind, _, config, period, sample_type, read_format, flags = struct.unpack_from("<IIQQQQQ", raw)
    clockid = struct.unpack_from("<i", raw, 92)[0] if len(raw) >= 96 else 0
    return EventAttr(
        raw=raw,
        type=kind,
        config=config,
        sample_period=period,
        sample_type=SampleType(sample_type),
        read_format=read_format,
        flags=AttrFlag(flags),
        clockid=clockid,
        ids=ids,
    )


class _Header:
    """The bytes of a file, every reach checked against its end."""

    def __init__(self, path: Path, content: np.ndarray) -> None:
        self._path = path
        self._content = content

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._content):
            raise self._bad("cut short", offset)
        return self._content[offset : offset + size].tobytes()

    def _bad(self, what: str, offset: int) -> RecordingError:
        return RecordingError(self._path, what, offset=offset, todo=RECORD_AGAIN)


class FileHeader(_Header):
    """The file header and the tables it points at, every reach checked against the file."""

    def __init__(self, path: Path, content: np.ndarray) -> None:
        super().__init__(path, content)
        (size,) = self._unpack("<Q", 8)
        if size < HEADER_SIZE:
            raise RecordingError(path, f"has a header of {size} bytes", offset=8, todo=RECORD_AGAIN)
        (self._entry_size,) = self._unpack("<Q", 16)
        self._attr_table = self._section(24)
        self.records = self._section(40)
        if not self.records.size and not any(self._bytes(72, FEATURE_BITS // 8)):
            raise RecordingError(
                path,
                "was never finished: perf was killed before it wrote what the events mean",
                offset=48,
                todo="record again, and end perf with Ctrl-C",
            )

    def attrs(self) -> tuple[EventAttr, ...]:
        """All attributes with the ids that their own sections list."""
        attr_size = self._entry_size - PIPE_HEADER_SIZE
        if not SMALLEST_ATTR <= attr_size <= LARGEST_ATTR:
            raise self._bad(f"attribute size {attr_size} is impossible", 16)
        table = self._attr_table
        if table.size == 0 or table.size % self._entry_size:
            raise self._bad("the attribute table has a broken size", 24)
        offsets = range(table.offset, table.offset + table.size, self._entry_size)
        lists = [self._section(offset + attr_size) for offset in offsets]
        if sum(ids.size for ids in lists) > len(self._content):
            raise self._bad("the id lists of the attributes overlap", 24)
        return tuple(
            self._attr(offset, attr_size, ids) for offset, ids in zip(offsets, lists, strict=True)
        )

    def features(self) -> dict[int, Section]:
        """Where each feature section lies; their table follows the records."""
        bits = int.from_bytes(self._bytes(72, FEATURE_BITS // 8), "little")
        numbers = [number for number in range(FEATURE_BITS) if bits >> number & 1]
        table = self.records.offset + self.records.size
        return {
            number: self._section(table + PIPE_HEADER_SIZE * index)
            for index, number in enumerate(numbers)
        }

    def _attr(self, offset: int, attr_size: int, ids: Section) -> EventAttr:
        if ids.size % 8:
            raise self._bad("the id list of an attribute has a broken size", offset)
        numbers = np.frombuffer(self._bytes(ids.offset, ids.size), "<u8").tolist()
        return parse_attr(self._bytes(offset, attr_size), tuple(numbers))

    def _section(self, offset: int) -> Section:
        start, size = self._unpack("<QQ", offset)
        if start + size > len(self._content):
            raise self._bad(
                f"cut short: a section ends at {start + size}, the file at {len(self._content)}",
                offset,
            )
        return Section(start, size)

    def _unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        return struct.unpack(layout, self._bytes(offset, struct.calcsize(layout)))


HEADER_ATTR = 64
TRACING_DATA = 66
HEADER_FEATURE = 80

_FIRST_EVENTS = (9, 71, 81, 83)
"""SAMPLE, AUXTRACE and the compressed records: perf describes the events before any of them."""


class PipeHeader(_Header):
    """Attributes, features and format data from the records that precede the first event."""

    def __init__(self, path: Path, content: np.ndarray) -> None:
        super().__init__(path, content)
        self._attrs: list[EventAttr] = []
        self._features: dict[int, Section] = {}
        self.records = Section(PIPE_HEADER_SIZE, len(content) - PIPE_HEADER_SIZE)
        self._read()

    def attrs(self) -> tuple[EventAttr, ...]:
        """All attributes with their ids."""
        return tuple(self._attrs)

    def features(self) -> dict[int, Section]:
        """Where each feature, the format data among them, lies."""
        return dict(self._features)

    def _read(self) -> None:
        position, end = PIPE_HEADER_SIZE, len(self._content)
        while position + RECORD_HEADER_SIZE <= end:
            kind, _, size = struct.unpack("<IHH", self._bytes(position, RECORD_HEADER_SIZE))
            if size < RECORD_HEADER_SIZE:
                raise self._bad("a record has an impossible size", position)
            if kind in _FIRST_EVENTS or position + size > end:
                break
            position = self._take(kind, position, size)
        if not self._attrs or Feature.TRACING_DATA not in self._features:
            raise self._bad("cut short: it ends before its events are described", end)

    def _take(self, kind: int, position: int, size: int) -> int:
        """Take in one record; returns where the next one starts."""
        after = position + size
        try:
            if kind == HEADER_ATTR:
                self._attrs.append(self._attr(self._bytes(position, size)[RECORD_HEADER_SIZE:]))
            elif kind == HEADER_FEATURE and size > 16:
                (number,) = struct.unpack("<Q", self._bytes(position + 8, 8))
                self._features[number] = Section(position + 16, size - 16)
            elif kind == TRACING_DATA:
                (data_size,) = struct.unpack("<I", self._bytes(position + 8, 4))
                if after + data_size > len(self._content):
                    raise ValueError("cut short: it ends inside the format data")
                self._features[Feature.TRACING_DATA] = Section(after, data_size)
                after += data_size + -data_size % 8
        except (ValueError, struct.error) as error:
            raise self._bad(str(error), position) from None
        return after

    def _attr(self, body: bytes) -> EventAttr:
        (attr_size,) = struct.unpack_from("<I", body, 4)
        attr_size = attr_size or SMALLEST_ATTR
        if not SMALLEST_ATTR <= attr_size <= len(body) or (len(body) - attr_size) % 8:
            raise ValueError(f"attribute size {attr_size} is impossible")
        ids = np.frombuffer(body[attr_size:], "<u8").tolist()
        return parse_attr(body[:attr_size], tuple(ids))


_MOST_FEATURES = 1 << 28
"""Bytes of everything behind the records."""


def open_perf_file(path: str | Path) -> PerfFile:
    """Open a perf.data file, plain or compressed, and read everything but its records.

    Both layouts are known: that of a file, and that of a pipe (`perf record -o -`).

    Raises:
        RecordingError: not a perf.data file, of the other byte order, cut short, never finished,
            or without format data.
    """
    path = Path(path)
    content = _map(path)
    _check_magic(path, content)
    piped = content[8:16].tobytes() == struct.pack("<Q", PIPE_HEADER_SIZE)
    header = PipeHeader(path, content) if piped else FileHeader(path, content)
    features = header.features()
    attrs = _with_described_ids(header.attrs(), content, features.get(Feature.EVENT_DESC))
    return PerfFile(
        path=path,
        content=content,
        records=header.records,
        attrs=attrs,
        features=features,
        tracing=_tracing_data(path, content, features.get(Feature.TRACING_DATA)),
        piped=piped,
    )


def _map(path: Path) -> np.ndarray:
    if path.is_dir():
        raise RecordingError(
            path, "is a directory of perf data files", todo="record without --threads"
        )
    try:
        size = path.stat().st_size
    except OSError as error:
        raise RecordingError(
            path, f"cannot be read ({error.strerror})", todo="check the path and its permissions"
        ) from None
    content = mapped(path, _unpacked_perf_data) if size else np.zeros(0, np.uint8)
    if len(content) < PIPE_HEADER_SIZE:
        raise RecordingError(path, "is too short for a perf.data file", todo=RECORD_AGAIN)
    return content


def _check_magic(path: Path, content: np.ndarray) -> None:
    magic = content[:8].tobytes()
    if magic == FOREIGN_MAGIC:
        raise RecordingError(
            path,
            "was recorded on a machine of the other byte order",
            offset=0,
            todo="only little-endian recordings can be read",
        )
    if magic != MAGIC:
        raise RecordingError(
            path, "is not a perf.data file", offset=0, todo="give the output of perf record"
        )


def _tracing_data(path: Path, content: np.ndarray, section: Section | None) -> TracingData:
    if section is None:
        raise RecordingError(
            path,
            "has no tracepoint format data",
            todo="record tracepoints, such as -e kmem:mm_page_alloc",
        )
    data = content[section.offset : section.offset + section.size].tobytes()
    try:
        tracing = parse_tracing_data(data)
    except ValueError as error:
        raise RecordingError(path, str(error), offset=section.offset, todo=RECORD_AGAIN) from None
    if tracing.big_endian:
        raise RecordingError(
            path,
            "format data say the records are big-endian",
            offset=section.offset,
            todo="only little-endian recordings can be read",
        )
    return tracing


def _with_described_ids(
    attrs: tuple[EventAttr, ...], content: np.ndarray, section: Section | None
) -> tuple[EventAttr, ...]:
    """Take ids from the event description where an attribute lists none itself."""
    if section is None or all(attr.ids for attr in attrs):
        return attrs
    data = content[section.offset : section.offset + section.size].tobytes()
    described = described_ids(data)
    if len(described) != len(attrs):
        return attrs
    return tuple(
        attr if attr.ids else replace(attr, ids=ids)
        for attr, ids in zip(attrs, described, strict=True)
    )


def described_ids(data: bytes) -> list[tuple[int, ...]]:
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


def mapped(path: Path, unpack: Callable[[Path], np.ndarray]) -> np.ndarray:
    """A file's plain content, uint8; nothing is copied to memory.

    Args:
        path: the file.
        unpack: makes the content of a packed one.

    Raises:
        RecordingError: the file cannot be read, is a damaged archive, or does not fit on the
            disk once it is unpacked.
    """
    if is_compressed(path):
        return unpack(path)
    with opened(path) as file:
        return np.memmap(file, np.uint8, mode="r").view(np.ndarray)  # type: ignore[call-overload]


def _most_bytes(path: Path) -> int | None:
    """Bytes that a packed perf.data can have by its header, None for a pipe's, which says none."""
    head = first_bytes(path, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")
    _check_magic(path, np.frombuffer(head, np.uint8))
    size, _, _, _, start, length = struct.unpack_from("<6Q", head, 8)
    if size == PIPE_HEADER_SIZE:
        if struct.unpack_from("<IHH", head, PIPE_HEADER_SIZE)[2] < RECORD_HEADER_SIZE:
            what = "its first record has no length"
            raise RecordingError(path, what, offset=PIPE_HEADER_SIZE, todo=RECORD_AGAIN)
        return None
    if size < HEADER_SIZE:
        raise RecordingError(path, f"has a header of {size} bytes", offset=8, todo=RECORD_AGAIN)
    return int(start) + int(length) + _MOST_FEATURES


def _unpacked_perf_data(path: Path) -> np.ndarray:
    return unpacked(path, _most_bytes(path))


def unpacked(path: Path, most: int | None = None) -> np.ndarray:
    """The content of a packed file, uint8, in an unnamed one.

    Args:
        path: the file.
        most: bytes that it can have by its header, None if that does not say.

    Raises:
        RecordingError: it is damaged, goes on behind `most`, or does not fit on the disk.
    """
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
            if most is not None and file.tell() > most:
                what = f"goes on {_MOST_FEATURES} bytes behind the records that its header tells of"
                raise RecordingError(path, what, todo=RECORD_AGAIN)
        if not file.tell():
            return np.zeros(0, np.uint8)
        return np.memmap(file, np.uint8, mode="r").view(np.ndarray)  # type: ignore[call-overload]


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
    """Where the compressed bytes of a COMPRESSED or COMPRESSED2 record lie in the file."""
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
    """Decompresses the payloads of compressed records; frames may continue across records."""

    def __init__(self, file: PerfFile, consume: Callable[[RecordBuffer], int]) -> None:
        self._consume = consume
        self._pieces = _PayloadPieces(file)
        self._buffer = np.zeros(_BUFFER_SIZE + WORD_SLACK, np.uint8)
        self._filled = 0
        self._offset = 0

    def add(self, payloads: Iterable[Section]) -> None:
        """Take in payloads, in file order."""
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
