"""Where the parts of a sample lie, for each attribute of a recording.

perf writes the parts of a sample in one fixed order, each present if its bit in `sample_type` is
set. All parts before READ have one size; READ and CALLCHAIN can vary from sample to sample.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np

from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event
from pagealloc_model.recording.trace.perf_file import RECORD_HEADER_SIZE, EventAttr, SampleType
from pagealloc_model.recording.trace.tracepoint_format import Field, TracepointFormat

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
    """The row of the layout table for one attribute (int64, `LAYOUT_WIDTH` long).

    Args:
        attr: the attribute.
        tracepoint: its format, None if it is no tracepoint.
        event: the main event it is, None for all others.

    Raises:
        ValueError: a field that the event must have is missing or not an integer.
    """
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

    Raises:
        ValueError: a field that the event must have is missing or not an integer.
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
