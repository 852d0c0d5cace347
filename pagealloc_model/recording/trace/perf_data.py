"""perf.data to a Trace."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.trace import layout as at
from pagealloc_model.recording.trace import perf_file
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import (
    CUT,
    EVENT_NAMES,
    NAMED,
    Losses,
    ThreadNames,
    Trace,
)
from pagealloc_model.recording.trace.formats import TracepointFormat, gfp_bits_from_print_fmt
from pagealloc_model.recording.trace.perf_arguments import recorded_scope
from pagealloc_model.recording.trace.side_tables import Collected, Window, events_between

RECORDING_COMMAND = f"perf record -a -k CLOCK_MONOTONIC {tp.RECORD_ESSENTIAL}"


@dataclass(frozen=True, kw_only=True, eq=False)
class AttrLayouts:
    """All that a walk must know to tell samples apart and to find their parts.

    `ids` are a hash of sample ids and where samples have theirs, see `walk.walk_records`.
    """

    formats: tuple[TracepointFormat | None, ...]
    table: np.ndarray
    ids: tuple[np.ndarray, np.ndarray, int]
    gfp_bits: dict[str, int]


def attr_layouts(file: perf_file.PerfFile, *, needs_pages: bool = True) -> AttrLayouts:
    """Lay out the samples of every attribute; without `needs_pages` any tracepoint will do."""
    offset = file.features[perf_file.Feature.TRACING_DATA].offset
    formats: list[TracepointFormat | None] = []
    for attr in file.attrs:
        formats.append(file.formats.get(attr.config) if attr.type == perf_file.TRACEPOINT else None)
        if attr.type == perf_file.TRACEPOINT and formats[-1] is None:
            what = f"has no format data for tracepoint number {attr.config}"
            raise RecordingError(file.path, what, offset=offset, todo=perf_file.RECORD_AGAIN)
    names = [tracepoint.event_name for tracepoint in formats if tracepoint]
    is_fit = tp.PAGE_ALLOC in names or (names and not needs_pages)
    problem = "" if is_fit else f"has no {tp.PAGE_ALLOC} events"
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
        table = np.array(list(map(at.layout_row, formats, file.attrs)))
        alloc = next((form for form in formats if form and form.event_name == tp.PAGE_ALLOC), None)
        gfp_bits = gfp_bits_from_print_fmt(alloc.print_fmt) if alloc else {}
    except ValueError as error:
        todo = "this kernel's events are not supported"
        raise RecordingError(file.path, str(error), offset=offset, todo=todo) from None
    return AttrLayouts(formats=tuple(formats), table=table, ids=ids, gfp_bits=gfp_bits)


def attr_problem(attr: perf_file.EventAttr, name: str) -> str:
    """Why an event's samples cannot be used: parts are missing; "" if they can."""
    wanted = (
        perf_file.SampleType.TID
        | perf_file.SampleType.TIME
        | perf_file.SampleType.CPU
        | perf_file.SampleType.RAW
    )
    missing = wanted & ~attr.sample_type
    needed = name in EVENT_NAMES or attr.sample_type & perf_file.SampleType.RAW
    return f"samples of {name} carry no {missing.name}" if needed and missing else ""


def sampled_events(attrs: Sequence[perf_file.EventAttr], names: Sequence[str]) -> dict[str, int]:
    """Events for each one recorded of main events that were sampled, 0 where that varies."""
    periods = {
        name: 0 if attr.flags & perf_file.AttrFlag.FREQ else attr.sample_period
        for attr, name in zip(attrs, names, strict=True)
    }
    return {name: n for name, n in periods.items() if name in EVENT_NAMES and n != 1}


def _id_table(file: perf_file.PerfFile) -> tuple[np.ndarray, np.ndarray, int]:
    """Sample ids as an open-addressing hash of layout rows, and where samples carry their id."""
    pairs = [(number, row) for row, attr in enumerate(file.attrs) for number in attr.ids]
    capacity = 1 << (2 * len(pairs) + 1).bit_length()
    keys, rows = np.zeros(capacity, np.int64), np.full(capacity, at.ABSENT, np.int64)
    steps = 0
    for number, row in pairs:
        key = int(np.uint64(number).view(np.int64))
        slot = key & (capacity - 1)
        while rows[slot] != at.ABSENT and keys[slot] != key:
            slot, steps = (slot + 1) & (capacity - 1), steps + 1
            if steps > _MOST_STEPS:  # a kernel counts its ids up
                what = "has ids of events that no kernel gives"
                raise RecordingError(file.path, what, todo=perf_file.RECORD_AGAIN)
        keys[slot], rows[slot] = key, row
    if len(file.attrs) == 1:
        return keys, rows, at.ABSENT
    places = [at.part_offsets(attr.sample_type) for attr in file.attrs]
    offsets = {place.get("identifier", place.get("id", at.ABSENT)) for place in places}
    if len(offsets) > 1 or at.ABSENT in offsets:
        raise RecordingError(
            file.path,
            "has several events whose samples carry no common id",
            todo="record again with perf record -a, without -g or a sample_type of its own",
        )
    return keys, rows, offsets.pop()


class TrailerReader:
    """Reads the sample_id_all part of records, by the attribute that each record belongs to."""

    def __init__(self, attrs: Sequence[perf_file.EventAttr]) -> None:
        self._attr_of_id = {number: attr for attr in attrs for number in attr.ids}
        self._first = attrs[0]

    def read(self, record: bytes) -> tuple[int, int | None, int | None, int | None]:
        """Bytes of one record's trailer, its time in ns, CPU and sample id.

        There are none where records carry no trailer; a part that is absent, or a CPU that is
        impossible, is None. The id is 0 in records that perf made itself; an unknown one follows
        the first attribute.
        """
        number, attr = None, self._first
        if not attr.flags & perf_file.AttrFlag.SAMPLE_ID_ALL:
            return 0, None, None, None
        parts = at.part_offsets(attr.sample_type, trailer=True)
        place = parts.get("identifier", parts.get("id"))
        if place is not None:
            from_end = parts["end"] - place
            if len(record) - from_end < perf_file.RECORD_HEADER_SIZE:
                raise struct.error("too short")
            (number,) = struct.unpack_from("<Q", record, len(record) - from_end)
            attr = self._attr_of_id.get(number, attr)
            parts = at.part_offsets(attr.sample_type, trailer=True)
            if not attr.flags & perf_file.AttrFlag.SAMPLE_ID_ALL:
                return 0, None, None, None
        start, time_ns, cpu = len(record) - parts["end"], None, None
        if start < perf_file.RECORD_HEADER_SIZE:
            raise struct.error("too short")
        if "time" in parts:
            (time_ns,) = struct.unpack_from("<q", record, start + parts["time"])
        if "cpu" in parts:
            (cpu,) = struct.unpack_from("<I", record, start + parts["cpu"])
            cpu = cpu if cpu <= np.iinfo(np.int16).max else None
        return parts["end"], time_ns, cpu, number


_LOST, _COMM, _FORK, _LOST_SAMPLES, _ID_INDEX = 2, 3, 7, 13, 69
_DROPPED_BY_FILTER = 1 << 15
_LOG = logging.getLogger(__name__)
_SMALL_SAMPLE_SIZE = 64
_LARGEST_RATIO = 64
_MOST_STEPS = 1 << 22
_ROWS_AT_A_TIME = 1 << 20
_WALKING = 0.8
"""Share of the work done once all records are walked; ordering and tables are the rest."""


def read_perf_data(
    path: str | Path,
    directory: Path | None = None,
    progress: Report | None = None,
    *,
    main_chains: bool = False,
    needs_pages: bool = True,
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of a perf.data file (T1 to T8).

    Without `needs_pages` other tracepoints alone will do.

    The file may be of either layout, a file's or a pipe's, its records zstd-compressed by perf,
    the whole packed by gzip, xz or zstd. Fields are found through the recording's own format
    data. A tracepoint field that is an array of numbers is left out of `tables`; one named like
    a key column gets the suffix "_field".

    A piped recording that was cut short yields the events up to the last instant for which all
    CPUs' are there, and a note that says so. A file's layout cannot be read without its end.
    """
    file = perf_file.open_perf_file(path)
    layouts = attr_layouts(file, needs_pages=needs_pages)
    if main_chains:
        layouts.table[layouts.table[:, at.CALLCHAIN] > 0, at.NOTED] = 1
    return _Reader(file, layouts, directory, progress).read()


class _Reader:
    """Walks the records of one file and collects what a Trace needs."""

    def __init__(
        self,
        file: perf_file.PerfFile,
        layouts: AttrLayouts,
        directory: Path | None,
        progress: Report | None,
    ) -> None:
        from pagealloc_model.recording.trace import walk

        self._walk = walk
        self._file = file
        self._progress = progress
        self._layouts = layouts
        expected = 0
        if directory is None:  # Room in memory costs nothing until it is used; on a disk it does.
            compressed = file.feature(perf_file.Feature.COMPRESSED)
            ratio = struct.unpack_from("<12xI", compressed)[0] + 1 if len(compressed) >= 16 else 1
            expected = file.records.size * min(ratio, _LARGEST_RATIO) // _SMALL_SAMPLE_SIZE
        self._collected = Collected(expected + _ROWS_AT_A_TIME, directory)
        self._cut_at: int | None = None

    def read(self) -> Trace:
        """The whole file as a Trace."""
        file, collected = self._file, self._collected
        perf_file.walk_file(file, self._take)
        plain_rows, plain_notes = collected.rows, collected.notes.rows
        notes = collected.notes.values
        packed = notes[
            np.isin(notes[:, at.NOTE_TYPE], (perf_file.COMPRESSED, perf_file.COMPRESSED2))
        ]
        places = packed[:, (at.NOTE_TYPE, at.NOTE_SOURCE, at.NOTE_SIZE)].tolist()
        payloads = [perf_file.compressed_payload(file, *place) for place in places]
        # perf has then emptied all CPUs' buffers, and ends every recording so.
        rounds = notes[notes[:, at.NOTE_TYPE] == self._walk.FINISHED_ROUND]
        if file.piped and self._cut_at is None and len(rounds):
            source, rows_before = rounds[-1, [at.NOTE_SOURCE, at.NOTE_BEFORE]].tolist()
            if plain_rows > rows_before or (payloads and payloads[-1].offset > source):
                self._cut_at = len(file.content)
        # All it read until the last round but one is there up to the last event in it, because it
        # has looked into every buffer once more since.
        certain_end, certain_rows = 0, 0
        if len(rounds) > 1:
            certain_end, certain_rows = rounds[-2, [at.NOTE_SOURCE, at.NOTE_BEFORE]].tolist()
        decompressed = perf_file.DecompressedRecords(file, self._take)
        certain = sum(payload.offset < certain_end for payload in payloads)
        decompressed.add(self._reported(payloads[:certain]), last=False)
        certain_decompressed = slice(plain_rows, collected.rows)
        decompressed.add(self._reported(payloads[certain:]), last=True)
        times = collected.columns["time_ns"].values
        names, losses = self._side_records(plain_notes)
        layouts = self._layouts
        event_names = [form.event_name if form else "" for form in layouts.formats]
        certain_ns = None
        if self._cut_at is not None:
            certain_parts = (times[:certain_rows], times[certain_decompressed])
            certain_ns = max((int(part.max()) for part in certain_parts if len(part)), default=None)
        trace = collected.trace(
            layouts.formats,
            layouts.table[:, at.CALLCHAIN],
            comms=names.last(),
            thread_names=names,
            gfp_bits=layouts.gfp_bits,
            gfp_from_format=True,
            losses=losses,
            source=str(file.path),
            release=file.release,
            nr_cpus=file.nr_cpus,
            clock=perf_file.clock_name(file.attrs),
            scope=recorded_scope(file.command_line, file.nr_cpus),
            sampled=sampled_events(file.attrs, event_names),
        )
        return trace if self._cut_at is None else self._certain_part(trace, certain_ns)

    def _take(self, buffer: perf_file.RecordBuffer) -> int:
        """Walk one buffer; returns the end of its last whole record."""
        collected, layouts = self._collected, self._layouts
        first_note = collected.notes.rows
        state = np.zeros(at.STATE_SLOTS, np.int64)
        state[at.POSITION] = buffer.start

        def report() -> None:
            if not buffer.decompressed:
                self._report(buffer.offset + int(state[at.POSITION]))

        what = collected.walk(
            self._walk.walk_records,
            (buffer.data, buffer.end, layouts.table, layouts.ids),
            (_ROWS_AT_A_TIME, 1, at.LARGEST_RECORD),
            state,
            report,
        )
        position = int(state[at.POSITION])
        if what:
            raise self._damaged(buffer, position, what)
        collected.notes.values[first_note:, at.NOTE_SOURCE] += buffer.offset
        if buffer.last and position != buffer.end:
            # Of a compressed stream it is left out, as perf does.
            error = self._damaged(buffer, position, "the last record is cut short")
            if self._file.piped:
                self._cut_at = len(self._file.content)
            elif not buffer.decompressed:
                raise error
            _LOG.info("%s; it was left out", error.what)
        return position

    def _damaged(self, buffer: perf_file.RecordBuffer, position: int, what: str) -> RecordingError:
        offset = buffer.offset + position
        return perf_file.damaged_record(
            self._file.path, offset, what, decompressed=buffer.decompressed
        )

    def _report(self, offset: int) -> None:
        """Tell how far the walk is, by an offset in the file."""
        if self._progress is not None:
            records = self._file.records
            self._progress(_WALKING * min((offset - records.offset) / records.size, 1))

    def _reported(self, payloads: Iterable[perf_file.Section]) -> Iterator[perf_file.Section]:
        for payload in payloads:
            self._report(payload.offset)
            yield payload

    def _certain_part(self, trace: Trace, last_ns: int | None) -> Trace:
        """The events up to the last of complete rounds, with a note on what is missing."""
        if last_ns is None:
            raise RecordingError(
                self._file.path,
                "cut short before any event is certain to be there from all CPUs",
                offset=self._cut_at,
                todo=perf_file.RECORD_AGAIN,
            )
        missing_s = (trace.span_ns[1] - last_ns) / 1e9
        note = (
            f"the event file {CUT} at byte {self._cut_at}: what it holds of the "
            f"{missing_s:.3f} s before is left out, for not all CPUs' events are there"
        )
        window = Window(begin_ns=0, end_ns=last_ns + 1, from_start=True, to_end=False, events=0)
        # Losses that began by then, with all they lost: when within them is not known.
        losses = trace.losses.take(trace.losses.start_ns <= last_ns)
        return replace(
            events_between(trace, window),
            comms=trace.comms,
            thread_names=trace.thread_names,
            losses=replace(losses, end_ns=np.minimum(losses.end_ns, last_ns)),
            notes=(*trace.notes, note),
        )

    def _side_records(self, plain_notes: int) -> tuple[ThreadNames, Losses]:
        """Names and losses, from COMM, FORK, LOST, LOST_SAMPLES and ID_INDEX records.

        The first so many notes are on the file's own records, the others on decompressed ones.
        """
        notes, trailers = self._collected.notes.values, TrailerReader(self._file.attrs)
        names: list[tuple[int, int, int, str]] = []
        losses: list[tuple[int, int, int, int]] = []
        lost_samples: list[tuple[int | None, int]] = []
        cpu_of_id: dict[int | None, int] = {}

        def take(kind: int, record: bytes, rows_before: int) -> None:
            count, size, at_ns, on_cpu = 0, 0, None, None
            if kind in (_COMM, _FORK, _LOST):
                size, at_ns, on_cpu, _ = trailers.read(record)
            if kind == _FORK:
                _, _, tid, parent, time_ns = struct.unpack_from("<IIIIq", record, 8)
                names.append((time_ns, tid, parent, ""))
            elif kind == _COMM:
                (tid,) = struct.unpack_from("<I", record, 12)
                text = record[16 : len(record) - size].split(b"\0", 1)[0]
                names.append((at_ns or 0, tid, NAMED, text.decode("utf-8", "replace")))
            elif kind == _ID_INDEX:
                (entries,) = struct.unpack_from("<Q", record, 8)
                if entries > len(record) // 32:
                    raise ValueError("an id index is longer than its record")
                for entry in range(entries):
                    number, _, cpu, _ = struct.unpack_from("<QQQQ", record, 16 + 32 * entry)
                    if cpu <= np.iinfo(np.int16).max:
                        cpu_of_id[number] = cpu
            elif kind == _LOST:
                _, count = struct.unpack_from("<QQ", record, 8)
                losses.append((-1 if on_cpu is None else on_cpu, at_ns or 0, rows_before, count))
            elif kind == _LOST_SAMPLES:
                misc, _, count = struct.unpack_from("<HHQ", record, 4)
                if misc & _DROPPED_BY_FILTER:
                    return
                lost_samples.append((trailers.read(record)[-1], count))
            elif kind in (perf_file.COMPRESSED, perf_file.COMPRESSED2):
                raise ValueError("a compressed record inside compressed ones")
            if count > np.iinfo(np.int64).max >> 20:
                raise ValueError(f"a record says that {count} events were lost")

        for index in np.flatnonzero(notes[:, at.NOTE_ATTR] < 0).tolist():
            note, decompressed = notes[index], index >= plain_notes
            kind = int(note[at.NOTE_TYPE])
            if kind in (perf_file.COMPRESSED, perf_file.COMPRESSED2) and not decompressed:
                continue
            try:
                take(kind, self._collected.record(note), int(note[at.NOTE_BEFORE]))
            except (ValueError, struct.error) as error:
                too_short = isinstance(error, struct.error)
                what = f"a record of type {kind} is too short" if too_short else str(error)
                offset, path = int(note[at.NOTE_SOURCE]), self._file.path
                raise perf_file.damaged_record(
                    path, offset, what, decompressed=decompressed
                ) from None
        counts = [(cpu_of_id.get(number, -1), count) for number, count in lost_samples]
        times, cpus = (self._collected.columns[name].values for name in ("time_ns", "cpu"))
        return ThreadNames.of(names), _all_losses(losses, counts, times, cpus)


def _all_losses(
    reported: list[tuple[int, int, int, int]],
    lost_samples: list[tuple[int, int]],
    time_ns: np.ndarray,
    cpu: np.ndarray,
) -> Losses:
    """All losses, each counted once, from times and CPUs of the main events in file order.

    LOST_SAMPLES count per event what LOST counts per buffer, and also what was lost after the last
    LOST record: only that remainder is added. Each begins with the last main event of its CPU
    before it in the file, else with the first of all. `reported` are CPU, time, main events before
    it in the file, and count of LOST records; `lost_samples` CPU and count of LOST_SAMPLES.
    """
    counts = [*lost_samples, *((of_cpu, -count) for of_cpu, _, _, count in reported)]
    known = all(of_cpu >= 0 for of_cpu, _ in counts)
    remaining: Counter[int] = Counter()
    for of_cpu, count in counts:
        remaining[of_cpu if known else -1] += count
    end = int(time_ns.max()) if len(time_ns) else 0
    rest = [(n, end, len(time_ns), left) for n, left in remaining.items() if left > 0]
    first_ns = int(time_ns.min()) if len(time_ns) else np.iinfo(np.int64).max
    rows_of = {n: np.flatnonzero(cpu == n) for n in {n for n, *_ in (*reported, *rest)}}
    rows = []
    for of_cpu, at_ns, rows_before, count in (*reported, *rest):
        before = int(np.searchsorted(rows_of[of_cpu], rows_before))
        last_ns = int(time_ns[rows_of[of_cpu][before - 1]]) if before else first_ns
        rows.append((of_cpu, min(last_ns, at_ns), at_ns, count))
    return Losses.of(rows, at_end=len(rest))
