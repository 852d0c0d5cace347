"""All attributes of a recording as the tables that the compiled walks read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event
from pagealloc_model.recording.trace.gfp import gfp_bits_from_print_fmt
from pagealloc_model.recording.trace.perf_file import (
    RECORD_AGAIN,
    TRACEPOINT,
    AttrFlag,
    EventAttr,
    Feature,
    PerfFile,
    SampleType,
)
from pagealloc_model.recording.trace.sample_layout import ABSENT, id_place, layout_row, main_event
from pagealloc_model.recording.trace.tracepoint_format import TracepointFormat

RECORDING_COMMAND = "perf record -a -k CLOCK_MONOTONIC -e kmem:mm_page_alloc -e kmem:mm_page_free"


@dataclass(frozen=True, kw_only=True, eq=False)
class AttrLayouts:
    """What a walk must know to tell samples apart and to find their parts.

    Attributes:
        formats: the format of each attribute, None for those that are no tracepoints.
        events: the main event that each attribute is, None for all others.
        table: int64 (attributes, LAYOUT_WIDTH), see `sample_layout.Column`.
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
        """Names and masks of gfp flags, from the format data (S2.3).

        Raises:
            RecordingError: they cannot be understood.
        """
        alloc = self.formats[self.events.index(Event.ALLOC)]
        assert alloc is not None
        try:
            return gfp_bits_from_print_fmt(alloc.print_fmt)
        except ValueError as error:
            raise bad_formats(file, str(error)) from None


def attr_layouts(file: PerfFile) -> AttrLayouts:
    """Lay out the samples of every attribute.

    Raises:
        RecordingError: the events cannot be told apart or placed in time, lack fields, or
            kmem:mm_page_alloc is not among them.
    """
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
    """Return events for each one recorded of main events that were sampled, 0 where that varies.

    Args:
        attrs: of the events, which say so.
        names: of the same events.
    """
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
