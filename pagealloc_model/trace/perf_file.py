"""The structure of a perf.data file: header, attributes with their ids, features, record area."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from pathlib import Path

import numpy as np

from pagealloc_model.errors import RecordingError
from pagealloc_model.trace.tracing_data import TracingData, parse_tracing_data

MAGIC = b"PERFILE2"
FOREIGN_MAGIC = b"2ELIFREP"
HEADER_SIZE = 104
PIPE_HEADER_SIZE = 16
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
    """

    path: Path
    content: np.ndarray
    records: Section
    attrs: tuple[EventAttr, ...]
    features: Mapping[int, Section]
    tracing: TracingData

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
        """The clock of all times: "monotonic", "perf", or "clockid N"."""
        chosen = {attr.clockid for attr in self.attrs if attr.flags & AttrFlag.USE_CLOCKID}
        if not chosen:
            return "perf"
        return "monotonic" if chosen == {CLOCK_MONOTONIC} else f"clockid {min(chosen)}"


def open_perf_file(path: str | Path) -> PerfFile:
    """Open a perf.data file and read everything but its records.

    Raises:
        RecordingError: not a perf.data file, written through a pipe or by a machine of the other
            byte order, cut short, or without format data.
    """
    path = Path(path)
    content = _map(path)
    _check_magic(path, content)
    header = _Header(path, content)
    features = header.features()
    attrs = _with_described_ids(header.attrs(), content, features.get(Feature.EVENT_DESC))
    return PerfFile(
        path=path,
        content=content,
        records=header.records,
        attrs=attrs,
        features=features,
        tracing=_tracing_data(path, content, features.get(Feature.TRACING_DATA)),
    )


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


def _map(path: Path) -> np.ndarray:
    try:
        if path.is_dir():
            raise RecordingError(
                path, "is a directory of perf data files", todo="record without --threads"
            )
        if path.stat().st_size < PIPE_HEADER_SIZE:
            raise RecordingError(path, "is too short for a perf.data file", todo=RECORD_AGAIN)
        return np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    except OSError as error:
        raise RecordingError(
            path, f"cannot be read ({error.strerror})", todo="check the path and its permissions"
        ) from None


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


class _Header:
    """The file header and the tables it points at, every reach checked against the file."""

    def __init__(self, path: Path, content: np.ndarray) -> None:
        self._path = path
        self._content = content
        (size,) = self._unpack("<Q", 8)
        if size == PIPE_HEADER_SIZE:
            raise RecordingError(
                path,
                "was written through a pipe, a layout that is not supported",
                offset=8,
                todo="record again with perf record -o FILE",
            )
        if size < HEADER_SIZE:
            raise RecordingError(path, f"has a header of {size} bytes", offset=8, todo=RECORD_AGAIN)
        (self._entry_size,) = self._unpack("<Q", 16)
        self._attr_table = self._section(24)
        self.records = self._section(40)

    def attrs(self) -> tuple[EventAttr, ...]:
        """All attributes with the ids that their own sections list."""
        attr_size = self._entry_size - PIPE_HEADER_SIZE
        if not SMALLEST_ATTR <= attr_size <= LARGEST_ATTR:
            raise self._bad(f"attribute size {attr_size} is impossible", 16)
        table = self._attr_table
        if table.size == 0 or table.size % self._entry_size:
            raise self._bad("the attribute table has a broken size", 24)
        return tuple(
            self._attr(offset, attr_size)
            for offset in range(table.offset, table.offset + table.size, self._entry_size)
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

    def _attr(self, offset: int, attr_size: int) -> EventAttr:
        ids = self._section(offset + attr_size)
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

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._content):
            raise self._bad("cut short", offset)
        return self._content[offset : offset + size].tobytes()

    def _bad(self, what: str, offset: int) -> RecordingError:
        return RecordingError(self._path, what, offset=offset, todo=RECORD_AGAIN)


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
