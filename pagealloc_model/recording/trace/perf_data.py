"""perf.data to a Trace, to a table of its records, and back to a file."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import zstandard

from pagealloc_model.base.column_space import NewArray, in_memory
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.trace.columns import (
    COLUMN_TYPES,
    NAMED,
    EventColumns,
    Losses,
    ThreadNames,
    Trace,
)
from pagealloc_model.recording.trace.perf_file import (
    COMPRESSED,
    COMPRESSED2,
    FEATURE_BITS,
    HEADER_SIZE,
    MAGIC,
    RECORD_AGAIN,
    RECORD_HEADER_SIZE,
    WORD_SLACK,
    DecompressedRecords,
    EventAttr,
    Feature,
    PerfFile,
    RecordBuffer,
    SampleType,
    Section,
    compressed_payload,
    damaged_record,
    open_perf_file,
    walk_file,
)
from pagealloc_model.recording.trace.perf_samples import (
    NOTE_ATTR,
    NOTE_BEFORE,
    NOTE_SIZE,
    NOTE_SOURCE,
    NOTE_TYPE,
    AttrLayouts,
    Column,
    RecordNotes,
    TrailerReader,
    attr_layouts,
    sampled_events,
)
from pagealloc_model.recording.trace.side_tables import EventTables

LOST = 2
COMM = 3
FORK = 7
LOST_SAMPLES = 13
ID_INDEX = 69

_MISC_DROPPED_BY_FILTER = 1 << 15


@dataclass(frozen=True)
class _Loss:
    cpu: int
    time_ns: int
    rows_before: int
    count: int


class SideRecords:
    """Collects COMM, FORK, LOST, LOST_SAMPLES and ID_INDEX records."""

    def __init__(self, attrs: Sequence[EventAttr]) -> None:
        self._trailers = TrailerReader(attrs)
        self._names: list[tuple[int, int, int, str]] = []
        self._losses: list[_Loss] = []
        self._lost_samples: list[tuple[int | None, int]] = []
        self._cpu_of_id: dict[int, int] = {}

    def add(self, record_type: int, record: bytes, rows_before: int) -> None:
        """Take one record; `rows_before` is the number of main rows before it in the file.

        Raises:
            ValueError: the record is too short for what it must hold.
        """
        try:
            if record_type in (COMM, FORK):
                self._add_name(record_type, record)
            elif record_type == ID_INDEX:
                self._add_id_index(record)
            elif record_type == LOST:
                self._add_lost(record, rows_before)
            elif record_type == LOST_SAMPLES:
                self._add_lost_samples(record)
        except struct.error:
            raise ValueError(f"a record of type {record_type} is too short") from None

    def thread_names(self) -> ThreadNames:
        """When threads were named, in file order."""
        return ThreadNames.of(self._names)

    def losses(self, time_ns: np.ndarray, cpu: np.ndarray) -> Losses:
        """All losses, each counted once.

        LOST_SAMPLES count per event what LOST counts per buffer, and also what was lost after
        the last LOST record: only that remainder is added.

        Args:
            time_ns: times of the main rows, in file order.
            cpu: their CPUs.
        """
        unreported = self._unreported(time_ns)
        losses = [*self._losses, *unreported]
        if not losses:
            return Losses.none()
        starts = _last_times_before(losses, time_ns, cpu)
        return Losses(
            cpu=np.array([loss.cpu for loss in losses], np.int16),
            start_ns=np.array(starts, np.int64),
            end_ns=np.array([loss.time_ns for loss in losses], np.int64),
            count=np.array([loss.count for loss in losses], np.int64),
            event=("",) * len(losses),
            at_end=len(unreported),
        )

    def _unreported(self, time_ns: np.ndarray) -> list[_Loss]:
        cpus = [self._cpu_of_id.get(number, -1) for number, _ in self._lost_samples]
        known = -1 not in cpus and all(loss.cpu >= 0 for loss in self._losses)
        remaining: dict[int, int] = {}
        for cpu, (_, count) in zip(cpus, self._lost_samples, strict=True):
            key = cpu if known else -1
            remaining[key] = remaining.get(key, 0) + count
        for loss in self._losses:
            key = loss.cpu if known else -1
            remaining[key] = remaining.get(key, 0) - loss.count
        end = int(time_ns.max()) if len(time_ns) else 0
        return [
            _Loss(cpu, end, len(time_ns), count) for cpu, count in remaining.items() if count > 0
        ]

    def _add_name(self, record_type: int, record: bytes) -> None:
        trailer = self._trailers.read(record)
        if record_type == FORK:
            _, _, tid, parent, time_ns = struct.unpack_from("<IIIIq", record, 8)
            self._names.append((time_ns, tid, parent, ""))
            return
        (tid,) = struct.unpack_from("<I", record, 12)
        text = record[16 : len(record) - trailer.size].split(b"\0", 1)[0]
        self._names.append((trailer.time_ns or 0, tid, NAMED, text.decode("utf-8", "replace")))

    def _add_id_index(self, record: bytes) -> None:
        (count,) = struct.unpack_from("<Q", record, 8)
        if count > len(record) // 32:
            raise ValueError("an id index is longer than its record")
        for entry in range(count):
            number, _, cpu, _ = struct.unpack_from("<QQQQ", record, 16 + 32 * entry)
            if cpu <= np.iinfo(np.int16).max:
                self._cpu_of_id[number] = cpu

    def _add_lost(self, record: bytes, rows_before: int) -> None:
        _, count = struct.unpack_from("<QQ", record, 8)
        trailer = self._trailers.read(record)
        cpu = -1 if trailer.cpu is None else trailer.cpu
        self._losses.append(_Loss(cpu, trailer.time_ns or 0, rows_before, _checked(count)))

    def _add_lost_samples(self, record: bytes) -> None:
        misc, _, count = struct.unpack_from("<HHQ", record, 4)
        if not misc & _MISC_DROPPED_BY_FILTER:
            self._lost_samples.append((self._trailers.read(record).id, _checked(count)))


def _checked(count: int) -> int:
    if count > np.iinfo(np.int64).max >> 20:
        raise ValueError(f"a record says that {count} events were lost")
    return int(count)


def _last_times_before(losses: list[_Loss], time_ns: np.ndarray, cpu: np.ndarray) -> list[int]:
    """Time of the CPU's last main event before each loss in the file, else the first of all."""
    first_ns = int(time_ns.min()) if len(time_ns) else np.iinfo(np.int64).max
    rows = {number: np.flatnonzero(cpu == number) for number in {loss.cpu for loss in losses}}
    starts = []
    for loss in losses:
        before = int(np.searchsorted(rows[loss.cpu], loss.rows_before))
        last_ns = int(time_ns[rows[loss.cpu][before - 1]]) if before else first_ns
        starts.append(min(last_ns, loss.time_ns))
    return starts


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


SAMPLE = 9
FIRST_USER_TYPE = 64
"""Record types from here on are made by perf itself and carry no trailer."""

_RECORD_TABLE_ROWS_AT_A_TIME = 1 << 18


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordTable:
    """Records in the file's order, those outside compressed ones first.

    Attributes:
        data: uint8, the records' bytes, with WORD_SLACK bytes behind the last.
        type: int64, PERF_RECORD_ number.
        position: int64, start of each record in `data`.
        size: int64, bytes.
        time_ns: int64, -1 where the record has no time, 0 where perf made it up.
        attr: int64, index of a sample's attribute, -1 for other records.
        layouts: how the samples are laid out.
    """

    data: np.ndarray
    type: np.ndarray
    position: np.ndarray
    size: np.ndarray
    time_ns: np.ndarray
    attr: np.ndarray
    layouts: AttrLayouts

    def __len__(self) -> int:
        return len(self.type)

    def record(self, index: int) -> bytes:
        """The bytes of one record."""
        start = int(self.position[index])
        return self.data[start : start + int(self.size[index])].tobytes()

    def joined(self, chosen: np.ndarray) -> RecordTable:
        """The chosen records (indices, ascending) in a buffer of their own."""
        size = self.size[chosen]
        position = np.cumsum(size) - size
        data = np.zeros(int(size.sum()) + WORD_SLACK, np.uint8)
        breaks = np.flatnonzero(np.diff(chosen) != 1) + 1
        for run in np.split(np.arange(len(chosen)), breaks):
            if len(run):
                first, last = chosen[run[0]], chosen[run[-1]]
                source = slice(int(self.position[first]), int(self.position[last] + size[run[-1]]))
                length = source.stop - source.start
                start = int(position[run[0]])
                data[start : start + length] = self.data[source]
        return RecordTable(
            data=data,
            type=self.type[chosen],
            position=position,
            size=size,
            time_ns=self.time_ns[chosen],
            attr=self.attr[chosen],
            layouts=self.layouts,
        )


def read_record_table(file: PerfFile) -> RecordTable:
    """List all records of a file; compressed ones are replaced by what they hold.

    Raises:
        RecordingError: the file is damaged or cannot be laid out.
    """
    return _TableReader(file).read()


class _TableReader:
    def __init__(self, file: PerfFile) -> None:
        from pagealloc_model.recording.trace import record_walk

        self._walk = record_walk
        self._file = file
        self._layouts = attr_layouts(file)
        self._trailers = TrailerReader(file.attrs)
        self._pieces: list[np.ndarray] = []
        self._indexes: list[np.ndarray] = []
        self._payloads: list[Section] = []
        self._filled = 0

    def read(self) -> RecordTable:
        walk_file(self._file, self._take_file)
        decompressed = DecompressedRecords(self._file, self._take_decompressed)
        decompressed.add(self._payloads)
        decompressed.finish()
        walk = self._walk
        index = np.concatenate(self._indexes)
        columns = {
            name: np.ascontiguousarray(index[:, column])
            for name, column in (
                ("type", walk.INDEX_TYPE),
                ("position", walk.INDEX_POSITION),
                ("size", walk.INDEX_SIZE),
                ("time_ns", walk.INDEX_TIME),
                ("attr", walk.INDEX_ATTR),
            )
        }
        data = np.concatenate([*self._pieces, np.zeros(WORD_SLACK, np.uint8)])
        return RecordTable(data=data, layouts=self._layouts, **columns)

    def _take_file(self, buffer: RecordBuffer) -> int:
        walk = self._walk
        index, end = self._index(buffer)
        is_compressed = np.isin(index[:, walk.INDEX_TYPE], (COMPRESSED, COMPRESSED2))
        columns = (walk.INDEX_TYPE, walk.INDEX_POSITION, walk.INDEX_SIZE)
        self._payloads += [
            compressed_payload(self._file, kind, buffer.offset + position, size)
            for kind, position, size in index[is_compressed][:, columns].tolist()
        ]
        for run in _runs(index[~is_compressed], walk.INDEX_POSITION, walk.INDEX_SIZE):
            self._keep(buffer, run)
        return end

    def _take_decompressed(self, buffer: RecordBuffer) -> int:
        index, end = self._index(buffer)
        self._keep(buffer, index)
        return end

    def _index(self, buffer: RecordBuffer) -> tuple[np.ndarray, int]:
        """List a buffer's whole records; also returns where the last one ends."""
        walk, layouts = self._walk, self._layouts
        state = np.zeros(walk.STATE_SLOTS, np.int64)
        state[walk.POSITION] = buffer.start
        pieces = []
        while True:
            state[walk.ROWS] = 0
            rows = np.empty((_RECORD_TABLE_ROWS_AT_A_TIME, walk.INDEX_WIDTH), np.int64)
            walk.index_records(
                buffer.data,
                buffer.end,
                layouts.table,
                layouts.id_keys,
                layouts.id_rows,
                layouts.id_offset,
                rows,
                state,
            )
            pieces.append(rows[: state[walk.ROWS]].copy())
            status, position = int(state[walk.STATUS]), int(state[walk.POSITION])
            if status in walk.STATUS_TEXTS:
                raise buffer.damaged(self._file.path, position, walk.STATUS_TEXTS[status])
            if status == walk.RUNNING:
                break
        if buffer.last and position != buffer.end and not buffer.decompressed:
            raise buffer.damaged(self._file.path, position, "the last record is cut short")
        return np.concatenate(pieces), position

    def _keep(self, buffer: RecordBuffer, index: np.ndarray) -> None:
        """Copy records that lie end to end, and list them at their new place."""
        if not len(index):
            return
        walk = self._walk
        index = index.copy()
        start = int(index[0, walk.INDEX_POSITION])
        end = int(index[-1, walk.INDEX_POSITION] + index[-1, walk.INDEX_SIZE])
        piece = buffer.data[start:end].copy()
        self._read_times(piece, index, start)
        index[:, walk.INDEX_POSITION] += self._filled - start
        self._pieces.append(piece)
        self._indexes.append(index)
        self._filled += end - start

    def _read_times(self, piece: np.ndarray, index: np.ndarray, start: int) -> None:
        """Fill in the times of the kernel's records other than samples, from their trailers."""
        walk = self._walk
        kinds = index[:, walk.INDEX_TYPE]
        for row in np.flatnonzero((kinds != SAMPLE) & (kinds < FIRST_USER_TYPE)):
            position = int(index[row, walk.INDEX_POSITION]) - start
            record = piece[position : position + int(index[row, walk.INDEX_SIZE])].tobytes()
            try:
                time_ns = self._trailers.read(record).time_ns
            except struct.error:
                continue
            index[row, walk.INDEX_TIME] = -1 if time_ns is None else time_ns


def _runs(index: np.ndarray, position: int, size: int) -> list[np.ndarray]:
    """Split an index where records do not lie end to end."""
    ends = index[:, position] + index[:, size]
    return np.split(index, np.flatnonzero(index[1:, position] != ends[:-1]) + 1)


COMPRESSION_LEVEL = 12
TEXT_ALIGNMENT = 64

_WINDOW_LOG = 26
_PAYLOAD_SIZE = 65528 - RECORD_HEADER_SIZE
_PAGE = 4096
_ZSTD = 1


def write_perf_data(
    path: str | Path,
    *,
    attrs: Sequence[EventAttr],
    features: Mapping[int, bytes],
    plain_records: bytes,
    records: bytes | memoryview,
    compress: bool = True,
    level: int = COMPRESSION_LEVEL,
) -> None:
    """Write a perf.data file.

    Args:
        path: the file to write; an existing one is replaced.
        attrs: the events; all must have attributes of one size.
        features: header features by number, `Feature.TRACING_DATA` among them. COMPRESSED is
            supplied here.
        plain_records: whole records that stand first and are never compressed, such as those
            perf makes up.
        records: whole records.
        compress: put `records` into zstd-compressed records.
        level: zstd level of these.

    Raises:
        ValueError: no attributes, or attributes of different sizes.
    """
    sizes = {len(attr.raw) for attr in attrs}
    if len(sizes) != 1:
        raise ValueError(f"attributes of sizes {sorted(sizes)}; all must have one")
    (attr_size,) = sizes
    features = {number: data for number, data in features.items() if number != Feature.COMPRESSED}
    if compress:
        payloads = _compress(records, level)
        body = b"".join(_compressed_record(payload) for payload in payloads)
        features[Feature.COMPRESSED] = _compressed_feature(payloads, len(records), level)
    else:
        body = bytes(records)
    ids, id_sections = _id_lists(attrs)
    attr_table = b"".join(
        attr.raw + struct.pack("<QQ", *section)
        for attr, section in zip(attrs, id_sections, strict=True)
    )
    attrs_offset = HEADER_SIZE + len(ids)
    data_offset = attrs_offset + len(attr_table)
    data_size = len(plain_records) + len(body)
    with Path(path).open("wb") as file:
        file.write(
            _header(attr_size + 16, attrs_offset, len(attr_table), data_offset, data_size, features)
        )
        file.writelines((ids, attr_table, plain_records, body))
        file.writelines(_feature_area(features, data_offset + data_size))


def text_feature(text: str) -> bytes:
    """A header feature that is one string."""
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % TEXT_ALIGNMENT)
    return struct.pack("<I", len(data)) + data


def text_list_feature(texts: Sequence[str]) -> bytes:
    """A header feature that is a counted list of strings, such as the command line."""
    return struct.pack("<I", len(texts)) + b"".join(text_feature(text) for text in texts)


def _header(
    entry_size: int,
    attrs_offset: int,
    attrs_size: int,
    data_offset: int,
    data_size: int,
    features: Iterable[int],
) -> bytes:
    bits = sum(1 << number for number in features)
    return (
        MAGIC
        + struct.pack("<QQ", HEADER_SIZE, entry_size)
        + struct.pack("<QQQQQQ", attrs_offset, attrs_size, data_offset, data_size, 0, 0)
        + bits.to_bytes(FEATURE_BITS // 8, "little")
    )


def _id_lists(attrs: Sequence[EventAttr]) -> tuple[bytes, list[tuple[int, int]]]:
    """The id lists end to end, and (offset, size) of each attribute's own in the file."""
    sections, lists = [], []
    position = HEADER_SIZE
    for attr in attrs:
        ids = struct.pack(f"<{len(attr.ids)}Q", *attr.ids)
        sections.append((position, len(ids)))
        lists.append(ids)
        position += len(ids)
    return b"".join(lists), sections


def _feature_area(features: Mapping[int, bytes], offset: int) -> list[bytes]:
    numbers = sorted(features)
    position = offset + 16 * len(numbers)
    table = []
    for number in numbers:
        table.append(struct.pack("<QQ", position, len(features[number])))
        position += len(features[number])
    return table + [features[number] for number in numbers]


def _compress(records: bytes | memoryview, level: int) -> list[bytes]:
    """One zstd frame over all records, cut into payloads of compressed records."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, window_log=_WINDOW_LOG, source_size=len(records)
    )
    frame = zstandard.ZstdCompressor(compression_params=parameters).compress(records)
    return [frame[start : start + _PAYLOAD_SIZE] for start in range(0, len(frame), _PAYLOAD_SIZE)]


def _compressed_record(payload: bytes) -> bytes:
    return struct.pack("<IHH", COMPRESSED, 0, RECORD_HEADER_SIZE + len(payload)) + payload


def _compressed_feature(payloads: Sequence[bytes], size: int, level: int) -> bytes:
    """The feature that tells perf how much room one payload's content needs."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    largest = max((len(decompressor.decompress(payload)) for payload in payloads), default=0)
    room = (largest // _PAGE + 1) * _PAGE
    ratio = size // max(sum(len(payload) for payload in payloads), 1)
    return struct.pack("<IIIII", 1, _ZSTD, level, ratio, room)
