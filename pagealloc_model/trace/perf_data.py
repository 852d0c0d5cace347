"""Read a perf.data file into a Trace."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import numpy as np

from pagealloc_model.errors import RecordingError
from pagealloc_model.trace.columns import EVENT_NAMES, Event, Trace
from pagealloc_model.trace.event_columns import EventColumns
from pagealloc_model.trace.event_tables import EventTables
from pagealloc_model.trace.gfp import gfp_bits_from_print_fmt
from pagealloc_model.trace.perf_file import (
    RECORD_AGAIN,
    TRACEPOINT,
    AttrFlag,
    EventAttr,
    Feature,
    PerfFile,
    SampleType,
    Section,
    open_perf_file,
)
from pagealloc_model.trace.record_stream import RecordBuffer, decompressed_buffers, file_buffer
from pagealloc_model.trace.sample_layout import (
    ABSENT,
    RECORD_HEADER_SIZE,
    id_place,
    layout_row,
    main_event,
)
from pagealloc_model.trace.side_records import SideRecords
from pagealloc_model.trace.tracepoint_format import TracepointFormat

_LOG = logging.getLogger(__name__)
_NOTE_CAPACITY = 1 << 16
_TYPICAL_SAMPLE_SIZE = 88
_LARGEST_RATIO = 64
_RECORDING_COMMAND = "perf record -a -k CLOCK_MONOTONIC -e kmem:mm_page_alloc -e kmem:mm_page_free"


def read_perf_data(path: str | Path) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of a perf.data file (T1 to T8).

    Both uncompressed and zstd-compressed recordings are read. Fields are found through the
    recording's own format data. A tracepoint field that is an array of numbers is left out of
    `tables`; one named like a key column gets the suffix "_field".

    Raises:
        RecordingError: the file is damaged, of a layout that is not supported, sampled instead of
            complete, or holds no kmem:mm_page_alloc.
    """
    return _Reader(open_perf_file(path)).read()


class _Reader:
    """Walks the records of one file and collects what a Trace needs."""

    def __init__(self, file: PerfFile) -> None:
        from pagealloc_model.trace import record_walk

        self._walk = record_walk
        self._file = file
        self._formats = _formats(file)
        self._events = [main_event(tracepoint) for tracepoint in self._formats]
        _check_attrs(file, self._formats)
        self._layouts = self._layout_table()
        self._id_keys, self._id_rows, self._id_offset = _id_table(file)
        self._columns = EventColumns(_expected_rows(file))
        self._tables = EventTables(
            self._formats,
            [bool(attr.sample_type & SampleType.CALLCHAIN) for attr in file.attrs],
        )
        self._side = SideRecords(file.attrs)
        self._payloads: list[Section] = []
        self._notes = np.zeros((_NOTE_CAPACITY, record_walk.NOTE_WIDTH), np.int64)

    def read(self) -> Trace:
        self._take(file_buffer(self._file))
        consumed = 0
        for buffer in decompressed_buffers(self._file, self._payloads, lambda: consumed):
            consumed = self._take(buffer)
        return self._trace()

    def _take(self, buffer: RecordBuffer) -> int:
        """Walk one buffer; returns the end of its last whole record."""
        walk, columns = self._walk, self._columns
        words = walk.words_of(buffer.data)
        state = np.zeros(walk.STATE_SLOTS, np.int64)
        state[walk.POSITION] = buffer.start
        while True:
            state[walk.ROWS], state[walk.NOTES] = columns.rows, 0
            walk.walk_records(
                words,
                buffer.end,
                self._layouts,
                self._id_keys,
                self._id_rows,
                self._id_offset,
                *columns.arrays,
                self._notes,
                state,
            )
            columns.rows = int(state[walk.ROWS])
            self._take_notes(buffer, words, self._notes[: state[walk.NOTES]])
            status, position = int(state[walk.STATUS]), int(state[walk.POSITION])
            if status >= walk.BAD_SIZE:
                raise self._damaged(buffer, position, self._status_text(status))
            if status == walk.ROWS_FULL:
                columns.grow()
            elif status == walk.RUNNING:
                break
        if buffer.last and position != buffer.end:
            self._cut_record(buffer, position)
        return position

    def _cut_record(self, buffer: RecordBuffer, position: int) -> None:
        """Refuse a cut last record, except in a compressed stream, where perf drops it too."""
        error = self._damaged(buffer, position, "the last record is cut short")
        if buffer.file_offset is not None:
            raise error
        _LOG.info("%s; it was left out", error.what)

    def _take_notes(self, buffer: RecordBuffer, words: np.ndarray, notes: np.ndarray) -> None:
        walk = self._walk
        self._tables.add(buffer.data, words, notes)
        for note in notes[notes[:, walk.NOTE_ATTR] < 0]:
            kind, position = int(note[walk.NOTE_TYPE]), int(note[walk.NOTE_POSITION])
            size = int(note[walk.NOTE_SIZE])
            if kind in (walk.COMPRESSED, walk.COMPRESSED2):
                self._payloads.append(self._payload(buffer, kind, position, size))
                continue
            record = buffer.data[position : position + size].tobytes()
            try:
                self._side.add(kind, record, int(note[walk.NOTE_BEFORE]))
            except ValueError as error:
                raise self._damaged(buffer, position, str(error)) from None

    def _payload(self, buffer: RecordBuffer, kind: int, position: int, size: int) -> Section:
        if buffer.file_offset is None:
            raise self._damaged(buffer, position, "a compressed record inside compressed records")
        if kind == self._walk.COMPRESSED:
            return Section(position + RECORD_HEADER_SIZE, size - RECORD_HEADER_SIZE)
        prefix = RECORD_HEADER_SIZE + 8
        if size < prefix:
            raise self._damaged(buffer, position, "a compressed record is too short")
        data_size = struct.unpack_from("<Q", buffer.data, position + RECORD_HEADER_SIZE)[0]
        if data_size > size - prefix:
            raise self._damaged(buffer, position, "a compressed record is longer than its frame")
        return Section(position + prefix, data_size)

    def _trace(self) -> Trace:
        columns = self._columns
        order = columns.time_order()
        main = columns.ordered(order)
        alloc = self._formats[self._events.index(Event.ALLOC)]
        assert alloc is not None
        return Trace(
            **main,
            comms=self._side.comms(),
            gfp_bits=self._gfp_bits(alloc),
            tables=self._tables.tables(main["time_ns"], order),
            callchains=self._tables.callchains(),
            losses=self._side.losses(columns.filled("time_ns"), columns.filled("cpu")),
            source=str(self._file.path),
            release=self._file.release,
            nr_cpus=self._file.nr_cpus,
            clock=self._file.clock,
        )

    def _gfp_bits(self, alloc: TracepointFormat) -> dict[str, int]:
        try:
            return gfp_bits_from_print_fmt(alloc.print_fmt)
        except ValueError as error:
            raise self._bad_formats(str(error)) from None

    def _layout_table(self) -> np.ndarray:
        try:
            rows = [
                layout_row(attr, tracepoint, event)
                for attr, tracepoint, event in zip(
                    self._file.attrs, self._formats, self._events, strict=True
                )
            ]
        except ValueError as error:
            raise self._bad_formats(str(error)) from None
        return np.ascontiguousarray(rows)

    def _bad_formats(self, what: str) -> RecordingError:
        offset = self._file.features[Feature.TRACING_DATA].offset
        return RecordingError(
            self._file.path, what, offset=offset, todo="this kernel's events are not supported"
        )

    def _status_text(self, status: int) -> str:
        walk = self._walk
        return {
            walk.BAD_SIZE: "a record has an impossible size",
            walk.BAD_ID: "a sample has an id that the file does not declare",
            walk.BAD_SAMPLE: "a sample is shorter than its sample_type says",
            walk.BAD_RAW: "a sample's raw data do not fit its format",
            walk.BAD_VALUE: "a sample holds a value outside its field's range",
        }[status]

    def _damaged(self, buffer: RecordBuffer, position: int, what: str) -> RecordingError:
        if buffer.file_offset is None:
            place = buffer.stream_offset + position
            what = f"{what}, at byte {place} of the decompressed records"
            offset = self._file.records.offset
        else:
            offset = buffer.file_offset + position
        return RecordingError(self._file.path, what, offset=offset, todo=RECORD_AGAIN)


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
    """Refuse recordings whose events cannot be told apart, placed in time, or are incomplete."""
    names = [tracepoint.event_name for tracepoint in formats if tracepoint is not None]
    if "kmem:mm_page_alloc" not in names:
        raise RecordingError(
            file.path, "has no kmem:mm_page_alloc events", todo=f"record with {_RECORDING_COMMAND}"
        )
    for name in set(names):
        if names.count(name) > 1:
            raise RecordingError(
                file.path, f"recorded {name} more than once", todo="name each event once"
            )
    for attr, tracepoint in zip(file.attrs, formats, strict=True):
        if tracepoint is not None:
            problem = _attr_problem(attr, tracepoint.event_name)
            if problem:
                raise RecordingError(file.path, problem, todo=f"record with {_RECORDING_COMMAND}")


def _attr_problem(attr: EventAttr, name: str) -> str:
    wanted = SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.RAW
    missing = wanted & ~attr.sample_type
    if name in EVENT_NAMES and missing:
        return f"samples of {name} carry no {missing.name}"
    if attr.sample_type & SampleType.RAW and missing:
        return f"samples of {name} carry no {missing.name}"
    if name in EVENT_NAMES and (attr.flags & AttrFlag.FREQ or attr.sample_period != 1):
        return f"{name} was sampled, not recorded completely"
    return ""


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


def _expected_rows(file: PerfFile) -> int:
    """About how many rows the records hold, on the large side."""
    compressed = file.feature(Feature.COMPRESSED)
    ratio = 1
    if compressed is not None and len(compressed) >= 16:
        ratio = min(struct.unpack_from("<I", compressed, 12)[0] + 1, _LARGEST_RATIO)
    return int(file.records.size * ratio // _TYPICAL_SAMPLE_SIZE)
