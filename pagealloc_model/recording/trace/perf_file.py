"""The structure of a perf.data file: header, attributes with their ids, features, record area."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

import numpy as np

from pagealloc_model.recording.trace.tracing_data import TracingData

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
