"""Read a perf.data file into a Trace."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pagealloc_model.base.column_space import NewArray, in_memory
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.trace.attr_layouts import AttrLayouts, attr_layouts, sampled_events
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Losses, Trace
from pagealloc_model.recording.trace.event_columns import EventColumns
from pagealloc_model.recording.trace.event_tables import EventTables
from pagealloc_model.recording.trace.perf_file import (
    RECORD_AGAIN,
    Feature,
    PerfFile,
    SampleType,
    Section,
)
from pagealloc_model.recording.trace.perf_open import open_perf_file
from pagealloc_model.recording.trace.record_notes import (
    NOTE_ATTR,
    NOTE_BEFORE,
    NOTE_SIZE,
    NOTE_SOURCE,
    NOTE_TYPE,
    RecordNotes,
)
from pagealloc_model.recording.trace.record_stream import (
    COMPRESSED,
    COMPRESSED2,
    DecompressedRecords,
    RecordBuffer,
    compressed_payload,
    damaged_record,
    walk_file,
)
from pagealloc_model.recording.trace.sample_layout import Column
from pagealloc_model.recording.trace.side_records import SideRecords

_LOG = logging.getLogger(__name__)
_SMALL_SAMPLE_SIZE = 64
_LARGEST_RATIO = 64
_ROWS_AT_A_TIME = 1 << 20
_FIRST_ROWS_ON_DISK = 1 << 20
_WALKING = 0.8
"""Share of the work done once all records are walked; ordering and tables are the rest."""


@dataclass(frozen=True)
class _RoundEnd:
    """Where perf had emptied all buffers once: its offset in the file, main rows before it."""

    offset: int
    rows: int


def read_perf_data(
    path: str | Path,
    new_array: NewArray | None = None,
    progress: Report | None = None,
    *,
    main_chains: bool = False,
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of a perf.data file (T1 to T8).

    The file may be of either layout, a file's or a pipe's, its records zstd-compressed by perf,
    the whole packed by gzip, xz or zstd. Fields are found through the recording's own format
    data. A tracepoint field that is an array of numbers is left out of `tables`; one named like
    a key column gets the suffix "_field".

    A piped recording that was cut short yields the events up to the last instant for which all
    CPUs' are there, and a note that says so. A file's layout cannot be read without its end.

    Args:
        path: the file.
        new_array: makes the arrays that grow with the number of events, all but texts; None: in
            memory.
        progress: called with the share done, 0 to 1.
        main_chains: make tables of those main events that carry call chains, too.

    Raises:
        RecordingError: the file is damaged, of a layout that is not supported, or holds no
            kmem:mm_page_alloc.
    """
    file = open_perf_file(path)
    layouts = attr_layouts(file)
    if main_chains:
        layouts.table[layouts.table[:, Column.CALLCHAIN] > 0, Column.NOTED] = 1
    return _Reader(file, layouts, new_array, progress).read()


class _Reader:
    """Walks the records of one file and collects what a Trace needs."""

    def __init__(
        self,
        file: PerfFile,
        layouts: AttrLayouts,
        new_array: NewArray | None,
        progress: Report | None,
    ) -> None:
        from pagealloc_model.recording.trace import record_walk

        self._walk = record_walk
        self._file = file
        self._new_array = new_array or in_memory
        self._progress = progress
        self._layouts = layouts
        # Room in memory costs nothing until it is used; on a disk it does.
        expected = _expected_rows(file) if new_array is None else _FIRST_ROWS_ON_DISK
        self._columns = EventColumns(expected, self._new_array)
        self._notes = RecordNotes(self._new_array)
        self._cut_at: int | None = None

    def read(self) -> Trace:
        """The whole file as a Trace."""
        walk_file(self._file, self._take)
        plain_notes, plain_rows = self._notes.count, self._columns.rows
        if self._file.piped and self._cut_at is None and self._ends_within_a_round():
            self._cut_at = len(self._file.content)
        round_end = self._last_complete_round()
        decompressed = DecompressedRecords(self._file, self._take)
        payloads = self._payloads()
        decompressed.add(
            self._reported(each for each in payloads if each.offset < round_end.offset)
        )
        decompressed.flush()
        rows_of_rounds = [slice(round_end.rows), slice(plain_rows, self._columns.rows)]
        decompressed.add(
            self._reported(each for each in payloads if each.offset >= round_end.offset)
        )
        decompressed.finish()
        if self._cut_at is None:
            return self._trace(plain_notes)
        times = np.concatenate([self._columns.filled("time_ns")[rows] for rows in rows_of_rounds])
        return self._certain_part(self._trace(plain_notes), times)

    def _trace(self, plain_notes: int) -> Trace:
        columns, file = self._columns, self._file
        side = self._side_records(plain_notes)
        losses = side.losses(columns.filled("time_ns"), columns.filled("cpu"))
        order = columns.time_order()
        main = columns.ordered(order)
        tables = EventTables(
            self._notes,
            self._layouts.formats,
            [bool(attr.sample_type & SampleType.CALLCHAIN) for attr in file.attrs],
            self._new_array,
        )
        names = side.thread_names()
        return Trace(
            **main,
            comms=names.last(),
            thread_names=names,
            gfp_bits=self._layouts.gfp_bits(file),
            gfp_from_format=True,
            tables=tables.tables(main["time_ns"], order),
            declared_types=tables.declared_types(),
            callchains=tables.callchains(),
            losses=losses,
            source=str(file.path),
            release=file.release,
            nr_cpus=file.nr_cpus,
            clock=file.clock,
            sampled=sampled_events(
                file.attrs, [each.event_name if each else "" for each in self._layouts.formats]
            ),
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
                columns.room(_ROWS_AT_A_TIME),
                notes.rows,
                notes.copies,
                state,
            )
            columns.rows, notes.count, notes.filled = state[walk.ROWS : walk.STATUS].tolist()
            status, position = int(state[walk.STATUS]), int(state[walk.POSITION])
            if status in walk.STATUS_TEXTS:
                raise buffer.damaged(self._file.path, position, walk.STATUS_TEXTS[status])
            if status == walk.ROWS_FULL:
                columns.grow_if_full()
                self._report(buffer.offset + position, decompressed=buffer.decompressed)
            elif status == walk.NOTES_FULL:
                notes.grow()
            else:
                break
        notes.rows[first_note : notes.count, NOTE_SOURCE] += buffer.offset
        if buffer.last and position != buffer.end:
            self._cut_record(buffer, position)
        return position

    def _report(self, offset: int, *, decompressed: bool = False) -> None:
        """Tell how far the walk is, by an offset in the file."""
        if self._progress is not None and not decompressed:
            records = self._file.records
            self._progress(_WALKING * min((offset - records.offset) / records.size, 1))

    def _reported(self, payloads: Iterable[Section]) -> Iterator[Section]:
        for payload in payloads:
            self._report(payload.offset)
            yield payload

    def _cut_record(self, buffer: RecordBuffer, position: int) -> None:
        """Note where a piped recording was cut; refuse a cut record in a file's layout.

        At the end of a compressed stream it is left out, as perf does.
        """
        error = buffer.damaged(self._file.path, position, "the last record is cut short")
        if self._file.piped:
            self._cut_at = len(self._file.content)
        elif not buffer.decompressed:
            raise error
        _LOG.info("%s; it was left out", error.what)

    def _last_complete_round(self) -> _RoundEnd:
        """The last but one time perf had emptied all CPUs' buffers, the start if there is none.

        What it read until then is complete up to the last event in it, because it has looked
        into every buffer once more since.
        """
        rows = self._notes.filled_rows
        ends = rows[rows[:, NOTE_TYPE] == self._walk.FINISHED_ROUND]
        if len(ends) < 2:
            return _RoundEnd(0, 0)
        return _RoundEnd(int(ends[-2, NOTE_SOURCE]), int(ends[-2, NOTE_BEFORE]))

    def _ends_within_a_round(self) -> bool:
        """Whether events follow the last round: perf ends every recording with one."""
        rows = self._notes.filled_rows
        ends = rows[rows[:, NOTE_TYPE] == self._walk.FINISHED_ROUND]
        if not len(ends):
            return False
        payloads = self._payloads()
        return self._columns.rows > ends[-1, NOTE_BEFORE] or (
            bool(payloads) and payloads[-1].offset > ends[-1, NOTE_SOURCE]
        )

    def _certain_part(self, trace: Trace, complete_times: np.ndarray) -> Trace:
        """The events up to the last of complete rounds, with a note on what is missing."""
        if not len(complete_times):
            raise RecordingError(
                self._file.path,
                "cut short before any event is certain to be there from all CPUs",
                offset=self._cut_at,
                todo=RECORD_AGAIN,
            )
        last_ns = int(complete_times.max())
        missing_s = (trace.span_ns[1] - last_ns) / 1e9
        return events_until(
            trace,
            last_ns,
            f"the event file is cut short at byte {self._cut_at}: what it holds of the "
            f"{missing_s:.3f} s before is left out, for not all CPUs' events are there",
        )

    def _payloads(self) -> list[Section]:
        rows = self._notes.filled_rows
        compressed = rows[np.isin(rows[:, NOTE_TYPE], (COMPRESSED, COMPRESSED2))]
        columns = (NOTE_TYPE, NOTE_SOURCE, NOTE_SIZE)
        return [compressed_payload(self._file, *place) for place in compressed[:, columns].tolist()]

    def _side_records(self, plain_notes: int) -> SideRecords:
        """Take in all records that are not samples; the first `plain_notes` are the file's own."""
        side = SideRecords(self._file.attrs)
        notes = self._notes.filled_rows
        for index in np.flatnonzero(notes[:, NOTE_ATTR] < 0).tolist():
            note = notes[index]
            kind = int(note[NOTE_TYPE])
            decompressed = index >= plain_notes
            try:
                if kind in (COMPRESSED, COMPRESSED2):
                    if decompressed:
                        raise ValueError("a compressed record inside compressed ones")
                    continue
                side.add(kind, self._notes.record(note), int(note[NOTE_BEFORE]))
            except ValueError as error:
                raise damaged_record(
                    self._file.path,
                    int(note[NOTE_SOURCE]),
                    str(error),
                    decompressed=decompressed,
                ) from None
        return side


def _expected_rows(file: PerfFile) -> int:
    """About how many rows the records hold, on the large side."""
    compressed = file.feature(Feature.COMPRESSED)
    ratio = 1
    if compressed is not None and len(compressed) >= 16:
        ratio = min(struct.unpack_from("<I", compressed, 12)[0] + 1, _LARGEST_RATIO)
    return int(file.records.size * ratio // _SMALL_SAMPLE_SIZE)


def events_until(trace: Trace, last_ns: int, note: str) -> Trace:
    """A trace without the events after an instant.

    Args:
        trace: the trace.
        last_ns: time of the last event to keep.
        note: why, for `notes`.
    """
    rows = int(np.searchsorted(trace.time_ns, last_ns, "right"))
    tables = {}
    for name, table in trace.tables.items():
        kept = int(np.searchsorted(table["time_ns"], last_ns, "right"))
        if kept:
            tables[name] = {column: values[:kept] for column, values in table.items()}
    return replace(
        trace,
        **{name: getattr(trace, name)[:rows] for name in COLUMN_TYPES},
        tables=tables,
        losses=_losses_until(trace.losses, last_ns),
        notes=(*trace.notes, note),
    )


def _losses_until(losses: Losses, last_ns: int) -> Losses:
    """Those that began by then, with all they lost: when within them is not known."""
    kept = np.flatnonzero(losses.start_ns <= last_ns)
    return Losses(
        cpu=losses.cpu[kept],
        start_ns=losses.start_ns[kept],
        end_ns=np.minimum(losses.end_ns[kept], last_ns),
        count=losses.count[kept],
        event=tuple(losses.event[index] for index in kept.tolist()),
    )
