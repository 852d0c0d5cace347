"""Where the parts of a sample lie, for each attribute of a perf.data."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event
from pagealloc_model.recording.trace.formats import Field, TracepointFormat, gfp_bits_from_print_fmt
from pagealloc_model.recording.trace.perf_file import (
    RECORD_AGAIN,
    RECORD_HEADER_SIZE,
    TRACEPOINT,
    AttrFlag,
    EventAttr,
    Feature,
    PerfFile,
    SampleType,
)

ABSENT = -1

_READ_TIME_ENABLED = 1
_READ_TIME_RUNNING = 2
_READ_ID = 4
_READ_GROUP = 8
_READ_LOST = 16

_FIXED_PARTS = (
    (SampleType.IDENTIFIER, "identifier"),
    (SampleType.IP, "ip"),
    (SampleType.TID, "tid"),
    (SampleType.TIME, "time"),
    (SampleType.ADDR, "addr"),
    (SampleType.ID, "id"),
    (SampleType.STREAM_ID, "stream_id"),
    (SampleType.CPU, "cpu"),
    (SampleType.PERIOD, "period"),
)

_TRAILER_PARTS = (
    (SampleType.TID, "tid"),
    (SampleType.TIME, "time"),
    (SampleType.ID, "id"),
    (SampleType.STREAM_ID, "stream_id"),
    (SampleType.CPU, "cpu"),
    (SampleType.IDENTIFIER, "identifier"),
)

MAIN_FIELDS: dict[Event, tuple[str | None, ...]] = {
    Event.ALLOC: ("pfn", "order", "gfp_flags", "migratetype", None),
    Event.FREE: ("pfn", "order", None, None, None),
    Event.FREE_BATCHED: ("pfn", None, None, None, None),
    Event.ZONE_LOCKED: ("pfn", "order", None, "migratetype", "percpu_refill"),
    Event.PCPU_DRAIN: ("pfn", "order", None, "migratetype", None),
    Event.EXTFRAG: ("pfn", "alloc_order", None, "alloc_migratetype", None),
}
"""The fields that fill pfn, order, gfp, migratetype and percpu_refill of each main event."""

OPTIONAL_FIELDS = frozenset({"percpu_refill"})
"""Fields that older kernels lack (T4)."""


class Column(IntEnum):
    """Columns of the table of layouts that `record_walk` reads, one row per attribute.

    CONTEXT is the offset of common_flags in the raw data, `ABSENT` without such a field.
    From PFN on follow five groups of `FIELD_WIDTH`: offset in the raw data, mask and sign bit of
    pfn, order, gfp, migratetype and percpu_refill. The value of a field is
    `((word & mask) ^ sign) - sign`; an absent field has mask 0.
    """

    TID = 0
    TIME = 1
    CPU = 2
    VARIABLE = 3
    READ_FIXED = 4
    READ_ENTRY = 5
    CALLCHAIN = 6
    RAW = 7
    EVENT = 8
    NOTED = 9
    RAW_SIZE = 10
    CONTEXT = 11
    PFN = 12


FIELD_WIDTH = 3
LAYOUT_WIDTH = Column.PFN + FIELD_WIDTH * 5


class IdPlace(NamedTuple):
    """Where the id lies: bytes from the start of a sample, or back from the end of a record."""

    in_sample: int
    from_end: int


@cache
def part_offsets(sample_type: int) -> dict[str, int]:
    """Offset of each present fixed part from the record's start; "end" is where they stop."""
    return _offsets(_FIXED_PARTS, sample_type, RECORD_HEADER_SIZE)


@cache
def trailer_offsets(sample_type: int) -> dict[str, int]:
    """Offset of each part of a sample_id_all trailer from its start; "end" is its size."""
    return _offsets(_TRAILER_PARTS, sample_type, 0)


@cache
def id_place(sample_type: int) -> IdPlace | None:
    """Where records of this sample_type carry their id, None if they carry none."""
    sample, trailer = part_offsets(sample_type), trailer_offsets(sample_type)
    for part in ("identifier", "id"):
        if part in sample:
            return IdPlace(sample[part], trailer["end"] - trailer[part])
    return None


def layout_row(
    attr: EventAttr, tracepoint: TracepointFormat | None, event: Event | None
) -> np.ndarray:
    """The row of the layout table for one attribute (int64, `LAYOUT_WIDTH` long)."""
    row = np.zeros(LAYOUT_WIDTH, np.int64)
    offsets = part_offsets(attr.sample_type)
    for column, part in ((Column.TID, "tid"), (Column.TIME, "time"), (Column.CPU, "cpu")):
        row[column] = offsets.get(part, ABSENT)
    row[Column.VARIABLE] = offsets["end"]
    if attr.sample_type & SampleType.READ:
        row[Column.READ_FIXED], row[Column.READ_ENTRY] = _read_sizes(attr.read_format)
    row[Column.CALLCHAIN] = bool(attr.sample_type & SampleType.CALLCHAIN)
    row[Column.RAW] = bool(attr.sample_type & SampleType.RAW)
    row[Column.EVENT] = ABSENT if event is None else event
    row[Column.CONTEXT] = ABSENT
    if tracepoint is not None and row[Column.RAW]:
        _fill_raw(row, tracepoint, event)
    return row


def ring_buffer_row(tracepoint: TracepointFormat) -> np.ndarray:
    """The row of the layout table for a tracepoint in the kernel's own ring buffer.

    There is no sample around the raw data: TID is the offset of common_pid in these, and the
    columns of a sample's other parts stay 0.
    """
    row = np.zeros(LAYOUT_WIDTH, np.int64)
    pid = tracepoint.field("common_pid")
    if pid is None or pid.size != 4:
        raise ValueError(f"{tracepoint.event_name} has no common_pid of 4 bytes")
    event = main_event(tracepoint)
    row[Column.TID] = pid.offset
    row[Column.EVENT] = ABSENT if event is None else event
    row[Column.CONTEXT] = ABSENT
    row[Column.RAW] = True
    _fill_raw(row, tracepoint, event)
    return row


def main_event(tracepoint: TracepointFormat | None) -> Event | None:
    """The main event that a tracepoint is, None for all others."""
    return None if tracepoint is None else EVENT_NAMES.get(tracepoint.event_name)


def _offsets(parts: tuple[tuple[SampleType, str], ...], bits: int, start: int) -> dict[str, int]:
    offsets = {}
    for bit, name in parts:
        if bits & bit:
            offsets[name] = start
            start += 8
    return {**offsets, "end": start}


def _read_sizes(read_format: int) -> tuple[int, int]:
    """Bytes of a READ part: the fixed ones, and per counter of a group (0 without groups)."""
    times = 8 * bool(read_format & _READ_TIME_ENABLED) + 8 * bool(read_format & _READ_TIME_RUNNING)
    value = 8 + 8 * bool(read_format & _READ_ID) + 8 * bool(read_format & _READ_LOST)
    if read_format & _READ_GROUP:
        return 8 + times, value
    return value + times, 0


def _fill_raw(row: np.ndarray, tracepoint: TracepointFormat, event: Event | None) -> None:
    """The columns that say what is where in the raw data."""
    context = tracepoint.field("common_flags")
    if context is not None:
        row[Column.CONTEXT] = context.offset
    row[Column.NOTED] = event is None or event is Event.EXTFRAG
    row[Column.RAW_SIZE] = max((field.end for field in tracepoint.fields), default=0)
    if event is not None:
        _fill_fields(row, tracepoint, event)


def _fill_fields(row: np.ndarray, tracepoint: TracepointFormat, event: Event) -> None:
    for index, name in enumerate(MAIN_FIELDS[event]):
        field = None if name is None else tracepoint.field(name)
        if field is None and name is not None and name not in OPTIONAL_FIELDS:
            raise ValueError(f"{tracepoint.event_name} has no field {name}")
        if field is not None:
            start = Column.PFN + FIELD_WIDTH * index
            row[start : start + FIELD_WIDTH] = _integer_place(tracepoint, field)


def _integer_place(tracepoint: TracepointFormat, field: Field) -> tuple[int, int, int]:
    if not field.is_integer:
        raise ValueError(f"{tracepoint.event_name} field {field.name} is not an integer")
    # All ones in an unsigned long is the pfn of a failed allocation (T2): read it as -1.
    signed = field.signed or field.name == "pfn"
    mask = -1 if field.size == 8 else (1 << 8 * field.size) - 1
    sign = 1 << 8 * field.size - 1 if signed and field.size < 8 else 0
    return field.offset, mask, sign


RECORDING_COMMAND = "perf record -a -k CLOCK_MONOTONIC -e kmem:mm_page_alloc -e kmem:mm_page_free"


@dataclass(frozen=True, kw_only=True, eq=False)
class AttrLayouts:
    """What a walk must know to tell samples apart and to find their parts.

    Attributes:
        formats: the format of each attribute, None for those that are no tracepoints.
        events: the main event that each attribute is, None for all others.
        table: int64 (attributes, LAYOUT_WIDTH), see `perf_samples.Column`.
        id_keys: int64, open-addressing hash of sample ids, a power of two long.
        id_rows: int64, table row of each key, -1 in free slots.
        id_offset: bytes from a sample's start to its id, -1 if all samples are of row 0.
    """

    formats: tuple[TracepointFormat | None, ...]
    events: tuple[Event | None, ...]
    table: np.ndarray
    id_keys: np.ndarray
    id_rows: np.ndarray
    id_offset: int

    def gfp_bits(self, file: PerfFile) -> dict[str, int]:
        """Names and masks of gfp flags, from the format data (S2.3)."""
        alloc = self.formats[self.events.index(Event.ALLOC)]
        assert alloc is not None
        try:
            return gfp_bits_from_print_fmt(alloc.print_fmt)
        except ValueError as error:
            raise bad_formats(file, str(error)) from None


def attr_layouts(file: PerfFile) -> AttrLayouts:
    """Lay out the samples of every attribute."""
    formats = _formats(file)
    _check_attrs(file, formats)
    events = tuple(main_event(tracepoint) for tracepoint in formats)
    id_keys, id_rows, id_offset = _id_table(file)
    return AttrLayouts(
        formats=tuple(formats),
        events=events,
        table=_layout_table(file, formats, events),
        id_keys=id_keys,
        id_rows=id_rows,
        id_offset=id_offset,
    )


def bad_formats(file: PerfFile, what: str) -> RecordingError:
    """The error for format data that cannot be used."""
    offset = file.features[Feature.TRACING_DATA].offset
    return RecordingError(
        file.path, what, offset=offset, todo="this kernel's events are not supported"
    )


def _layout_table(
    file: PerfFile, formats: list[TracepointFormat | None], events: tuple[Event | None, ...]
) -> np.ndarray:
    try:
        rows = [
            layout_row(attr, tracepoint, event)
            for attr, tracepoint, event in zip(file.attrs, formats, events, strict=True)
        ]
    except ValueError as error:
        raise bad_formats(file, str(error)) from None
    return np.ascontiguousarray(rows)


def _formats(file: PerfFile) -> list[TracepointFormat | None]:
    """The format of each attribute, None for those that are no tracepoints."""
    formats: list[TracepointFormat | None] = []
    for attr in file.attrs:
        tracepoint = file.tracing.formats.get(attr.config) if attr.type == TRACEPOINT else None
        if attr.type == TRACEPOINT and tracepoint is None:
            raise RecordingError(
                file.path,
                f"has no format data for tracepoint number {attr.config}",
                offset=file.features[Feature.TRACING_DATA].offset,
                todo=RECORD_AGAIN,
            )
        formats.append(tracepoint)
    return formats


def _check_attrs(file: PerfFile, formats: list[TracepointFormat | None]) -> None:
    """Refuse recordings whose events cannot be told apart or placed in time."""
    names = [tracepoint.event_name for tracepoint in formats if tracepoint is not None]
    if "kmem:mm_page_alloc" not in names:
        raise RecordingError(
            file.path, "has no kmem:mm_page_alloc events", todo=f"record with {RECORDING_COMMAND}"
        )
    for name in set(names):
        if names.count(name) > 1:
            raise RecordingError(
                file.path, f"recorded {name} more than once", todo="name each event once"
            )
    for attr, tracepoint in zip(file.attrs, formats, strict=True):
        if tracepoint is not None:
            problem = attr_problem(attr, tracepoint.event_name)
            if problem:
                raise RecordingError(file.path, problem, todo=f"record with {RECORDING_COMMAND}")


def attr_problem(attr: EventAttr, name: str) -> str:
    """Why an event's samples cannot be used: parts are missing; "" if they can."""
    wanted = SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.RAW
    missing = wanted & ~attr.sample_type
    if name in EVENT_NAMES and missing:
        return f"samples of {name} carry no {missing.name}"
    if attr.sample_type & SampleType.RAW and missing:
        return f"samples of {name} carry no {missing.name}"
    return ""


def sampled_events(attrs: Sequence[EventAttr], names: Sequence[str]) -> dict[str, int]:
    """Return events for each one recorded of main events that were sampled, 0 where that varies."""
    sampled = {}
    for attr, name in zip(attrs, names, strict=True):
        by_frequency = bool(attr.flags & AttrFlag.FREQ)
        if name in EVENT_NAMES and (by_frequency or attr.sample_period != 1):
            sampled[name] = 0 if by_frequency else attr.sample_period
    return sampled


def _id_table(file: PerfFile) -> tuple[np.ndarray, np.ndarray, int]:
    """Sample ids as an open-addressing hash of layout rows, and where samples carry their id."""
    pairs = [(number, row) for row, attr in enumerate(file.attrs) for number in attr.ids]
    capacity = 1 << (2 * len(pairs) + 1).bit_length()
    keys, rows = np.zeros(capacity, np.int64), np.full(capacity, ABSENT, np.int64)
    for number, row in pairs:
        key = int(np.uint64(number).view(np.int64))
        slot = key & (capacity - 1)
        while rows[slot] != ABSENT and keys[slot] != key:
            slot = (slot + 1) & (capacity - 1)
        keys[slot], rows[slot] = key, row
    if len(file.attrs) == 1:
        return keys, rows, ABSENT
    places = {id_place(attr.sample_type) for attr in file.attrs}
    offsets = {None if place is None else place.in_sample for place in places}
    (offset, *others) = offsets
    if offset is None or others:
        raise RecordingError(
            file.path,
            "has several events whose samples carry no common id",
            todo="record again with perf record -a, without -g or a sample_type of its own",
        )
    return keys, rows, offset


@dataclass(frozen=True)
class Trailer:
    """The sample_id_all part of one record.

    Attributes:
        size: its bytes, 0 where records carry none.
        time_ns: None where absent.
        cpu: None where absent or impossible.
        id: the sample id, None where absent, 0 in records that perf made up.
    """

    size: int
    time_ns: int | None
    cpu: int | None
    id: int | None


class TrailerReader:
    """Reads trailers by the layout of the attribute that each record belongs to."""

    def __init__(self, attrs: Sequence[EventAttr]) -> None:
        self._attr_of_id = {number: attr for attr in attrs for number in attr.ids}
        self._first = attrs[0]
        self._place = id_place(attrs[0].sample_type)

    def read(self, record: bytes) -> Trailer:
        """The trailer of one record; an unknown id follows the first attribute."""
        number = None
        if self._place is not None and self._first.flags & AttrFlag.SAMPLE_ID_ALL:
            start = len(record) - self._place.from_end
            if start < RECORD_HEADER_SIZE:
                raise struct.error("too short")
            (number,) = struct.unpack_from("<Q", record, start)
        attr = self._first if number is None else self._attr_of_id.get(number, self._first)
        if not attr.flags & AttrFlag.SAMPLE_ID_ALL:
            return Trailer(0, None, None, None)
        parts = trailer_offsets(attr.sample_type)
        start = len(record) - parts["end"]
        if start < RECORD_HEADER_SIZE:
            raise struct.error("too short")
        time_ns, cpu = None, None
        if "time" in parts:
            (time_ns,) = struct.unpack_from("<q", record, start + parts["time"])
        if "cpu" in parts:
            (cpu,) = struct.unpack_from("<I", record, start + parts["cpu"])
            cpu = cpu if cpu <= np.iinfo(np.int16).max else None
        return Trailer(parts["end"], time_ns, cpu, number)


# Columns of a note: what the record is, where it was, and where its copy and its parts are.
NOTE_ATTR = 0
NOTE_TYPE = 1
NOTE_SOURCE = 2
NOTE_POSITION = 3
NOTE_SIZE = 4
NOTE_BEFORE = 5
NOTE_RAW = 6
NOTE_RAW_SIZE = 7
NOTE_TIME = 8
NOTE_CPU = 9
NOTE_PID = 10
NOTE_CHAIN = 11
NOTE_CHAIN_SIZE = 12
NOTE_WIDTH = 13

LARGEST_RECORD = 0xFFFF
