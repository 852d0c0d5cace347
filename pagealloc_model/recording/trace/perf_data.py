"""perf.data to a Trace."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.trace.columns import (
    NAMED,
    Losses,
    ThreadNames,
    Trace,
)
from pagealloc_model.recording.trace.perf_file import (
    COMPRESSED,
    COMPRESSED2,
    RECORD_AGAIN,
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
    LARGEST_RECORD,
    NOTE_ATTR,
    NOTE_BEFORE,
    NOTE_SIZE,
    NOTE_SOURCE,
    NOTE_TYPE,
    AttrLayouts,
    Column,
    TrailerReader,
    attr_layouts,
    sampled_events,
)
from pagealloc_model.recording.trace.side_tables import Collected, Window, events_between

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
        """Take one record; `rows_before` is the number of main rows before it in the file."""
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
        """
        unreported = self._unreported(time_ns)
        losses = [*self._losses, *unreported]
        starts = _last_times_before(losses, time_ns, cpu)
        rows = [
            (loss.cpu, start, loss.time_ns, loss.count)
            for loss, start in zip(losses, starts, strict=True)
        ]
        return Losses.of(rows, at_end=len(unreported))

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
_WALKING = 0.8
"""Share of the work done once all records are walked; ordering and tables are the rest."""


@dataclass(frozen=True)
class _RoundEnd:
    """Where perf had emptied all buffers once: its offset in the file, main rows before it."""

    offset: int
    rows: int


def read_perf_data(
    path: str | Path,
    directory: Path | None = None,
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
        directory: of files for what grows with the number of events, all but texts; None: in
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
    return _Reader(file, layouts, directory, progress).read()


class _Reader:
    """Walks the records of one file and collects what a Trace needs."""

    def __init__(
        self,
        file: PerfFile,
        layouts: AttrLayouts,
        directory: Path | None,
        progress: Report | None,
    ) -> None:
        from pagealloc_model.recording.trace import record_walk

        self._walk = record_walk
        self._file = file
        self._progress = progress
        self._layouts = layouts
        # Room in memory costs nothing until it is used; on a disk it does.
        expected = _expected_rows(file) if directory is None else 0
        self._found = Collected(expected + _ROWS_AT_A_TIME, directory)
        self._cut_at: int | None = None

    def read(self) -> Trace:
        """The whole file as a Trace."""
        walk_file(self._file, self._take)
        plain_rows, plain_notes, _ = self._found.filled
        if self._file.piped and self._cut_at is None and self._ends_within_a_round():
            self._cut_at = len(self._file.content)
        round_end = self._last_complete_round()
        decompressed = DecompressedRecords(self._file, self._take)
        payloads = self._payloads()
        decompressed.add(
            self._reported(each for each in payloads if each.offset < round_end.offset)
        )
        decompressed.flush()
        rows_of_rounds = [slice(round_end.rows), slice(plain_rows, self._found.filled[0])]
        decompressed.add(
            self._reported(each for each in payloads if each.offset >= round_end.offset)
        )
        decompressed.finish()
        if self._cut_at is None:
            return self._trace(plain_notes)
        times = np.concatenate(
            [self._found.columns["time_ns"].values[rows] for rows in rows_of_rounds]
        )
        return self._certain_part(self._trace(plain_notes), times)

    def _trace(self, plain_notes: int) -> Trace:
        columns, file = self._found.columns, self._file
        side = self._side_records(plain_notes)
        losses = side.losses(columns["time_ns"].values, columns["cpu"].values)
        names = side.thread_names()
        return self._found.trace(
            self._layouts.formats,
            [bool(attr.sample_type & SampleType.CALLCHAIN) for attr in file.attrs],
            comms=names.last(),
            thread_names=names,
            gfp_bits=self._layouts.gfp_bits(file),
            gfp_from_format=True,
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
        walk, found, layouts = self._walk, self._found, self._layouts
        first_note = found.notes.rows
        state = np.zeros(walk.STATE_SLOTS, np.int64)
        state[walk.POSITION] = buffer.start
        while True:
            state[walk.ROWS : walk.STATUS] = found.filled
            walk.walk_records(
                buffer.data,
                buffer.end,
                layouts.table,
                layouts.id_keys,
                layouts.id_rows,
                layouts.id_offset,
                *found.room(_ROWS_AT_A_TIME, 1, LARGEST_RECORD),
                state,
            )
            found.filled = state[walk.ROWS : walk.STATUS].tolist()
            status, position = int(state[walk.STATUS]), int(state[walk.POSITION])
            if status in walk.STATUS_TEXTS:
                raise buffer.damaged(self._file.path, position, walk.STATUS_TEXTS[status])
            if status not in (walk.ROWS_FULL, walk.NOTES_FULL):
                break
            self._report(buffer.offset + position, decompressed=buffer.decompressed)
        found.notes.values[first_note:, NOTE_SOURCE] += buffer.offset
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
        rows = self._found.notes.values
        ends = rows[rows[:, NOTE_TYPE] == self._walk.FINISHED_ROUND]
        if len(ends) < 2:
            return _RoundEnd(0, 0)
        return _RoundEnd(int(ends[-2, NOTE_SOURCE]), int(ends[-2, NOTE_BEFORE]))

    def _ends_within_a_round(self) -> bool:
        """Whether events follow the last round: perf ends every recording with one."""
        rows = self._found.notes.values
        ends = rows[rows[:, NOTE_TYPE] == self._walk.FINISHED_ROUND]
        if not len(ends):
            return False
        payloads = self._payloads()
        return self._found.filled[0] > ends[-1, NOTE_BEFORE] or (
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
        rows = self._found.notes.values
        compressed = rows[np.isin(rows[:, NOTE_TYPE], (COMPRESSED, COMPRESSED2))]
        columns = (NOTE_TYPE, NOTE_SOURCE, NOTE_SIZE)
        return [compressed_payload(self._file, *place) for place in compressed[:, columns].tolist()]

    def _side_records(self, plain_notes: int) -> SideRecords:
        """Take in all records that are not samples; the first `plain_notes` are the file's own."""
        side = SideRecords(self._file.attrs)
        notes = self._found.notes.values
        for index in np.flatnonzero(notes[:, NOTE_ATTR] < 0).tolist():
            note = notes[index]
            kind = int(note[NOTE_TYPE])
            decompressed = index >= plain_notes
            try:
                if kind in (COMPRESSED, COMPRESSED2):
                    if decompressed:
                        raise ValueError("a compressed record inside compressed ones")
                    continue
                side.add(kind, self._found.record(note), int(note[NOTE_BEFORE]))
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
    """A trace without the events after an instant."""
    window = Window(begin_ns=0, end_ns=last_ns + 1, from_start=True, to_end=False, events=0)
    return replace(
        events_between(trace, window),
        comms=trace.comms,
        thread_names=trace.thread_names,
        losses=_losses_until(trace.losses, last_ns),
        notes=(*trace.notes, note),
    )


def _losses_until(losses: Losses, last_ns: int) -> Losses:
    """Those that began by then, with all they lost: when within them is not known."""
    kept = losses.take(losses.start_ns <= last_ns)
    return replace(kept, end_ns=np.minimum(kept.end_ns, last_ns))
