"""Read a perf.data file into a Trace."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import numpy as np

from pagealloc_model.trace.attr_layouts import attr_layouts, bad_formats
from pagealloc_model.trace.columns import Event, Trace
from pagealloc_model.trace.event_columns import EventColumns
from pagealloc_model.trace.event_tables import EventTables
from pagealloc_model.trace.gfp import gfp_bits_from_print_fmt
from pagealloc_model.trace.perf_file import (
    Feature,
    PerfFile,
    SampleType,
    Section,
    open_perf_file,
)
from pagealloc_model.trace.record_stream import (
    COMPRESSED,
    COMPRESSED2,
    RecordBuffer,
    compressed_payload,
    file_buffer,
    walk_decompressed,
)
from pagealloc_model.trace.side_records import SideRecords

_LOG = logging.getLogger(__name__)
_NOTE_CAPACITY = 1 << 16
_TYPICAL_SAMPLE_SIZE = 88
_LARGEST_RATIO = 64


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
        self._layouts = attr_layouts(file)
        self._columns = EventColumns(_expected_rows(file))
        self._tables = EventTables(
            self._layouts.formats,
            [bool(attr.sample_type & SampleType.CALLCHAIN) for attr in file.attrs],
        )
        self._side = SideRecords(file.attrs)
        self._payloads: list[Section] = []
        self._notes = np.zeros((_NOTE_CAPACITY, record_walk.NOTE_WIDTH), np.int64)

    def read(self) -> Trace:
        """The whole file as a Trace."""
        self._take(file_buffer(self._file))
        walk_decompressed(self._file, self._payloads, self._take)
        return self._trace()

    def _take(self, buffer: RecordBuffer) -> int:
        """Walk one buffer; returns the end of its last whole record."""
        walk, columns, layouts = self._walk, self._columns, self._layouts
        words = walk.words_of(buffer.data)
        state = np.zeros(walk.STATE_SLOTS, np.int64)
        state[walk.POSITION] = buffer.start
        while True:
            state[walk.ROWS], state[walk.NOTES] = columns.rows, 0
            walk.walk_records(
                words,
                buffer.end,
                layouts.table,
                layouts.id_keys,
                layouts.id_rows,
                layouts.id_offset,
                *columns.arrays,
                self._notes,
                state,
            )
            columns.rows = int(state[walk.ROWS])
            self._take_notes(buffer, words, self._notes[: state[walk.NOTES]])
            status, position = int(state[walk.STATUS]), int(state[walk.POSITION])
            if status in walk.STATUS_TEXTS:
                raise buffer.damaged(self._file.path, position, walk.STATUS_TEXTS[status])
            if status == walk.ROWS_FULL:
                columns.grow()
            elif status == walk.RUNNING:
                break
        if buffer.last and position != buffer.end:
            self._cut_record(buffer, position)
        return position

    def _cut_record(self, buffer: RecordBuffer, position: int) -> None:
        """Refuse a cut last record, except in a compressed stream, where perf drops it too."""
        error = buffer.damaged(self._file.path, position, "the last record is cut short")
        if buffer.file_offset is not None:
            raise error
        _LOG.info("%s; it was left out", error.what)

    def _take_notes(self, buffer: RecordBuffer, words: np.ndarray, notes: np.ndarray) -> None:
        walk = self._walk
        self._tables.add(buffer.data, words, notes)
        for note in notes[notes[:, walk.NOTE_ATTR] < 0]:
            kind, position = int(note[walk.NOTE_TYPE]), int(note[walk.NOTE_POSITION])
            size = int(note[walk.NOTE_SIZE])
            if kind in (COMPRESSED, COMPRESSED2):
                payload = compressed_payload(self._file, buffer, kind, position, size)
                self._payloads.append(payload)
                continue
            record = buffer.data[position : position + size].tobytes()
            try:
                self._side.add(kind, record, int(note[walk.NOTE_BEFORE]))
            except ValueError as error:
                raise buffer.damaged(self._file.path, position, str(error)) from None

    def _trace(self) -> Trace:
        columns, file = self._columns, self._file
        order = columns.time_order()
        main = columns.ordered(order)
        return Trace(
            **main,
            comms=self._side.comms(),
            gfp_bits=self._gfp_bits(),
            tables=self._tables.tables(main["time_ns"], order),
            callchains=self._tables.callchains(),
            losses=self._side.losses(columns.filled("time_ns"), columns.filled("cpu")),
            source=str(file.path),
            release=file.release,
            nr_cpus=file.nr_cpus,
            clock=file.clock,
        )

    def _gfp_bits(self) -> dict[str, int]:
        alloc = self._layouts.formats[self._layouts.events.index(Event.ALLOC)]
        assert alloc is not None
        try:
            return gfp_bits_from_print_fmt(alloc.print_fmt)
        except ValueError as error:
            raise bad_formats(self._file, str(error)) from None


def _expected_rows(file: PerfFile) -> int:
    """About how many rows the records hold, on the large side."""
    compressed = file.feature(Feature.COMPRESSED)
    ratio = 1
    if compressed is not None and len(compressed) >= 16:
        ratio = min(struct.unpack_from("<I", compressed, 12)[0] + 1, _LARGEST_RATIO)
    return int(file.records.size * ratio // _TYPICAL_SAMPLE_SIZE)
