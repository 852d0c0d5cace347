"""Samples of a perf.data: which event each is of, where its parts lie, and what ends a record."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.columns import EVENT_NAMES
from pagealloc_model.recording.trace.formats import TracepointFormat, gfp_bits_from_print_fmt
from pagealloc_model.recording.trace.layout import (
    ABSENT,
    part_offsets,
    sample_row,
    trailer_offsets,
)
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

RECORDING_COMMAND = "perf record -a -k CLOCK_MONOTONIC -e kmem:mm_page_alloc -e kmem:mm_page_free"
_ALLOC = "kmem:mm_page_alloc"


@dataclass(frozen=True, kw_only=True, eq=False)
class AttrLayouts:
    """All that a walk must know to tell samples apart and to find their parts.

    Attributes:
        formats: the format of each attribute, None for those that are no tracepoints.
        table: int64 (attributes, LAYOUT_WIDTH), see `layout`.
        ids: keys and rows of a hash of sample ids, and where a sample has its id, see
            `walk.walk_records`.
        gfp_bits: names and masks of gfp flags, from the format data (S2.3).
    """

    formats: tuple[TracepointFormat | None, ...]
    table: np.ndarray
    ids: tuple[np.ndarray, np.ndarray, int]
    gfp_bits: dict[str, int]


def attr_layouts(file: PerfFile) -> AttrLayouts:
    """Lay out the samples of every attribute.

    Raises:
        RecordingError: events cannot be told apart or placed in time, or their fields not read.
    """
    offset = file.features[Feature.TRACING_DATA].offset
    formats: list[TracepointFormat | None] = []
    for attr in file.attrs:
        formats.append(file.formats.get(attr.config) if attr.type == TRACEPOINT else None)
        if attr.type == TRACEPOINT and formats[-1] is None:
            what = f"has no format data for tracepoint number {attr.config}"
            raise RecordingError(file.path, what, offset=offset, todo=RECORD_AGAIN)
    names = [tracepoint.event_name for tracepoint in formats if tracepoint]
    problem = "" if _ALLOC in names else f"has no {_ALLOC} events"
    for name in set(names):
        if not problem and names.count(name) > 1:
            what = f"recorded {name} more than once"
            raise RecordingError(file.path, what, todo="name each event once")
    for attr, tracepoint in zip(file.attrs, formats, strict=True):
        if tracepoint:
            problem = problem or attr_problem(attr, tracepoint.event_name)
    if problem:
        raise RecordingError(file.path, problem, todo=f"record with {RECORDING_COMMAND}")
    ids = _id_table(file)
    try:
        table = np.array(list(map(sample_row, file.attrs, formats)))
        alloc = next(each for each in formats if each and each.event_name == _ALLOC)
        gfp_bits = gfp_bits_from_print_fmt(alloc.print_fmt)
    except ValueError as error:
        todo = "this kernel's events are not supported"
        raise RecordingError(file.path, str(error), offset=offset, todo=todo) from None
    return AttrLayouts(formats=tuple(formats), table=table, ids=ids, gfp_bits=gfp_bits)


def attr_problem(attr: EventAttr, name: str) -> str:
    """Why an event's samples cannot be used: parts are missing; "" if they can."""
    wanted = SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.RAW
    missing = wanted & ~attr.sample_type
    needed = name in EVENT_NAMES or attr.sample_type & SampleType.RAW
    return f"samples of {name} carry no {missing.name}" if needed and missing else ""


def sampled_events(attrs: Sequence[EventAttr], names: Sequence[str]) -> dict[str, int]:
    """Events for each one recorded of main events that were sampled, 0 where that varies."""
    periods = {
        name: 0 if attr.flags & AttrFlag.FREQ else attr.sample_period
        for attr, name in zip(attrs, names, strict=True)
    }
    return {name: n for name, n in periods.items() if name in EVENT_NAMES and n != 1}


def _id_place(sample_type: int) -> tuple[int, int] | None:
    """Where the id lies: from a sample's start, back from another record's end; None: nowhere."""
    sample, trailer = part_offsets(sample_type), trailer_offsets(sample_type)
    part = next((part for part in ("identifier", "id") if part in sample), None)
    return (sample[part], trailer["end"] - trailer[part]) if part else None


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
    places = [_id_place(attr.sample_type) for attr in file.attrs]
    offsets = {place[0] if place else ABSENT for place in places}
    if len(offsets) > 1 or ABSENT in offsets:
        raise RecordingError(
            file.path,
            "has several events whose samples carry no common id",
            todo="record again with perf record -a, without -g or a sample_type of its own",
        )
    return keys, rows, offsets.pop()


class Trailer(NamedTuple):
    """The sample_id_all part of one record.

    Attributes:
        size: its bytes, 0 where records carry none.
        time_ns: None where absent.
        cpu: None where absent or impossible.
        id: the sample id, None where absent, 0 in records that perf made up.
    """

    size: int = 0
    time_ns: int | None = None
    cpu: int | None = None
    id: int | None = None


class TrailerReader:
    """Reads trailers by the layout of the attribute that each record belongs to."""

    def __init__(self, attrs: Sequence[EventAttr]) -> None:
        self._attr_of_id = {number: attr for attr in attrs for number in attr.ids}
        self._first = attrs[0]
        self._place = _id_place(attrs[0].sample_type)

    def read(self, record: bytes) -> Trailer:
        """The trailer of one record; an unknown id follows the first attribute."""
        number, attr = None, self._first
        if self._place is not None and attr.flags & AttrFlag.SAMPLE_ID_ALL:
            (number,) = struct.unpack_from("<Q", record, _behind_header(record, self._place[1]))
            attr = self._attr_of_id.get(number, attr)
        if not attr.flags & AttrFlag.SAMPLE_ID_ALL:
            return Trailer()
        parts = trailer_offsets(attr.sample_type)
        start = _behind_header(record, parts["end"])
        time_ns, cpu = None, None
        if "time" in parts:
            (time_ns,) = struct.unpack_from("<q", record, start + parts["time"])
        if "cpu" in parts:
            (cpu,) = struct.unpack_from("<I", record, start + parts["cpu"])
            cpu = cpu if cpu <= np.iinfo(np.int16).max else None
        return Trailer(parts["end"], time_ns, cpu, number)


def _behind_header(record: bytes, from_end: int) -> int:
    if len(record) - from_end < RECORD_HEADER_SIZE:
        raise struct.error("too short")
    return len(record) - from_end
