"""Read a perf.data file into a Trace."""

from __future__ import annotations

import logging
import struct
from dataclasses import replace
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
from pagealloc_model.trace.record_notes import (
    NOTE_ATTR,
    NOTE_BEFORE,
    NOTE_SIZE,
    NOTE_SOURCE,
    NOTE_TYPE,
    RecordNotes,
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
_SMALL_SAMPLE_SIZE = 64
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
        self._notes = RecordNotes()

    def read(self) -> Trace:
        """The whole file as a Trace."""
        plain = file_buffer(self._file)
        self._take(plain)
        plain_notes = self._notes.count
        walk_decompressed(self._file, self._payloads(plain), self._take)
        columns, file = self._columns, self._file
        side = self._side_records(plain_notes, plain)
        order = columns.time_order()
        main = columns.ordered(order)
        tables = EventTables(
            self._notes,
            self._layouts.formats,
            [bool(attr.sample_type & SampleType.CALLCHAIN) for attr in file.attrs],
        )
        return Trace(
            **main,
            comms=side.comms(),
            gfp_bits=self._gfp_bits(),
            gfp_from_format=True,
            tables=tables.tables(main["time_ns"], order),
            callchains=tables.callchains(),
            losses=side.losses(columns.filled("time_ns"), columns.filled("cpu")),
            source=str(file.path),
            release=file.release,
            nr_cpus=file.nr_cpus,
            clock=file.clock,
        )

    def _take(self, buffer: RecordBuffer) -> int:
        """Walk one buffer; returns the end of its last whole record."""
        walk, columns, notes, layouts = self._walk, self._columns, self._notes, self._layouts
        first_note = notes.count
        state = np.zeros(walk.STATE_SLOTS, np.int64)
        state[walk.POSITION] = buffer.start
        while True:
            state[walk.ROWS : walk.STATUS] = columns.rows, notes.count, notes.filled
            walk.walk_records(
                buffer.data,
                buffer.end,
                layouts.table,
                layouts.id_keys,
                layouts.id_rows,
                layouts.id_offset,
                columns.arrays,
                notes.rows,
                notes.copies,
                state,
            )
            columns.rows, notes.count, notes.filled = state[walk.ROWS : walk.STATUS].tolist()
            status, position = int(state[walk.STATUS]), int(state[walk.POSITION])
            if status in walk.STATUS_TEXTS:
                raise buffer.damaged(self._file.path, position, walk.STATUS_TEXTS[status])
            if status == walk.ROWS_FULL:
                columns.grow()
            elif status == walk.NOTES_FULL:
                notes.grow()
            else:
                break
        notes.rows[first_note : notes.count, NOTE_SOURCE] += buffer.stream_offset
        if buffer.last and position != buffer.end:
            self._cut_record(buffer, position)
        return position

    def _cut_record(self, buffer: RecordBuffer, position: int) -> None:
        """Refuse a cut last record, except in a compressed stream, where perf drops it too."""
        error = buffer.damaged(self._file.path, position, "the last record is cut short")
        if buffer.file_offset is not None:
            raise error
        _LOG.info("%s; it was left out", error.what)

    def _payloads(self, plain: RecordBuffer) -> list[Section]:
        rows = self._notes.filled_rows
        compressed = rows[np.isin(rows[:, NOTE_TYPE], (COMPRESSED, COMPRESSED2))]
        columns = (NOTE_TYPE, NOTE_SOURCE, NOTE_SIZE)
        return [
            compressed_payload(self._file, plain, *place)
            for place in compressed[:, columns].tolist()
        ]

    def _side_records(self, plain_notes: int, plain: RecordBuffer) -> SideRecords:
        """Take in all records that are not samples; the first `plain_notes` are the file's own."""
        side = SideRecords(self._file.attrs)
        for index, note in enumerate(self._notes.filled_rows):
            kind = int(note[NOTE_TYPE])
            if note[NOTE_ATTR] >= 0 or kind in (COMPRESSED, COMPRESSED2):
                continue
            try:
                side.add(kind, self._notes.record(note), int(note[NOTE_BEFORE]))
            except ValueError as error:
                source = plain if index < plain_notes else replace(plain, file_offset=None)
                raise source.damaged(self._file.path, int(note[NOTE_SOURCE]), str(error)) from None
        return side

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
    return int(file.records.size * ratio // _SMALL_SAMPLE_SIZE)
