"""Pages of the kernel's trace ring buffer as a Trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pagealloc_model.base.arrays import NewArray, in_memory, on_disk, parts
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import opened, refuse_unless_file, text_of, unreadable
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.trace.columns import (
    NAMED,
    Event,
    Losses,
    ThreadNames,
    Trace,
)
from pagealloc_model.recording.trace.formats import (
    Field,
    TracepointFormat,
    gfp_bits_from_print_fmt,
    parse_format,
)
from pagealloc_model.recording.trace.perf_file import WORD_SLACK
from pagealloc_model.recording.trace.perf_samples import NOTE_TIME, ring_buffer_row
from pagealloc_model.recording.trace.side_tables import Collected

RECORD_WITH = "trace-cmd record -C mono -e kmem:mm_page_alloc -e kmem:mm_page_free"

_CLOCKS = {"mono": "monotonic"}
"""Names of tracefs's clocks that this package calls otherwise."""
_NO_TIMES = ("counter", "uptime", "x86-tsc")
"""Clocks whose values are no nanoseconds, or do not order events."""
_COUNTS_LOST = re.compile(r"^(?:overrun|commit overrun|dropped events): (\d{1,18})$", re.MULTILINE)
_NO_TICKS = (1, 0)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_SMALL_EVENT_SIZE = 32
_ROWS_AT_A_TIME = 1 << 20
_PAGES_AT_A_TIME = 1 << 14
_WALKING = 0.8


@dataclass(frozen=True, kw_only=True)
class PageLayout:
    """Where the parts of a page lie, from the text of `events/header_page`.

    Attributes:
        timestamp: offset of the first event's time.
        commit: offset of the number of bytes used.
        data: offset of the first event.
        page_size: bytes of a page.
    """

    timestamp: int
    commit: int
    data: int
    page_size: int


def page_layout(text: str) -> PageLayout:
    """Parse `events/header_page`."""
    fields = parse_format("", f"name: header_page\nID: 0\n{text}")
    timestamp, commit, data = (_part(fields, name) for name in ("timestamp", "commit", "data"))
    if timestamp.size != 8 or commit.size != 8:
        raise ValueError("pages of the ring buffer are not those of a 64-bit kernel")
    return PageLayout(
        timestamp=timestamp.offset, commit=commit.offset, data=data.offset, page_size=data.end
    )


def _part(fields: TracepointFormat, name: str) -> Field:
    found = fields.field(name)
    if found is None:
        raise ValueError(f"header_page has no {name}")
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class RingBuffer:
    """The pages of all CPUs, and what is needed to read them.

    Attributes:
        path: file or directory that they are from.
        data: uint8, read-only, holds the pages somewhere.
        positions: int64, where each page starts in `data`.
        cpus: int64, its CPU.
        layout: how a page is laid out.
        formats: of all tracepoints that the source describes.
        comms: thread id -> command name.
        clock: tracefs's name, such as "mono"; "" if unknown.
        release: kernel release, "" if unknown.
        nr_cpus: 0 if unknown.
        stats: CPU -> text of its per_cpu/cpuN/stats after recording, where it is there.
        notes: what the source lacks.
        ticks: multiplier and shift that make nanoseconds of the pages' times.
        unpacked: `data` was unpacked from the file, so that offsets are none of the file.
    """

    path: Path
    data: np.ndarray
    positions: np.ndarray
    cpus: np.ndarray
    layout: PageLayout
    formats: tuple[TracepointFormat, ...]
    comms: Mapping[int, str] = field(default_factory=dict)
    clock: str = ""
    release: str = ""
    nr_cpus: int = 0
    stats: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ticks: tuple[int, int] = _NO_TICKS
    unpacked: bool = False


def read_ring_buffer(
    source: RingBuffer, directory: Path | None = None, progress: Report | None = None
) -> Trace:
    """The page-allocator events, and all other tracepoints, of ring-buffer pages (T1 to T8).

    Losses are those that the kernel marked in the pages, each between two events of its CPU, and
    what its statistics count beyond these. Where a page does not say how many events are missing
    before it, one is counted.
    """
    return _Reader(source, directory, progress).read()


def seen_threads(text: str) -> dict[int, str]:
    """Thread id -> command name, from the text of `saved_cmdlines`."""
    found = {}
    for line in text.splitlines():
        thread, _, name = line.partition(" ")
        if thread.isdecimal() and len(thread) < 10:
            found[int(thread)] = name
    return found


def chosen_clock(text: str) -> str:
    """The clock in brackets in the text of `trace_clock`, or the text itself, a single name."""
    match = re.search(r"\[([\w-]+)\]", text)
    return match[1] if match else text.strip() if re.fullmatch(r"\s*[\w-]+\s*", text) else ""


def nanoseconds(ticks: np.ndarray, mult: int, shift: int) -> np.ndarray:
    """Ticks of a counter as nanoseconds, int64: ticks * mult >> shift, in 96 bits."""
    high, low = ticks.astype(np.uint64) >> np.uint64(32), ticks.astype(np.uint64) & _LOW_HALF
    factor = np.uint64(mult)
    scaled = (low * factor >> np.uint64(shift)) + (high * factor << np.uint64(32 - shift))
    return scaled.view(np.int64)


class _Reader:
    """Walks the pages of one source and collects what a Trace needs."""

    def __init__(self, source: RingBuffer, directory: Path | None, progress: Report | None) -> None:
        from pagealloc_model.recording.trace import page_walk

        self._walk = page_walk
        self._source = source
        self._progress = progress
        _check_clock(source)
        self._formats = [each for each in source.formats if each.system != "ftrace"]
        self._table, self._rows_of_type, self._type_offset = self._layouts()
        self._most = page_walk.most_events(source.layout.page_size)
        expected = len(source.positions) * source.layout.page_size // _SMALL_EVENT_SIZE
        rows = expected if directory is None else 0
        self._found = Collected(rows + max(_ROWS_AT_A_TIME, self._most), directory)
        self._last_ns = np.full(max(int(source.cpus.max(initial=0)) + 1, 1), -1, np.int64)
        self._losses = np.zeros((len(source.positions), page_walk.LOSS_WIDTH), np.int64)
        self._lost = self._unknown = 0

    def read(self) -> Trace:
        """All pages as a Trace."""
        source = self._source
        # In the order of their times, so that rows are nearly in order and stay so in bounded room.
        times = _words(source.data, source.positions + source.layout.timestamp)
        order = np.argsort(times, kind="stable")
        end = source.positions[order] + source.layout.page_size + WORD_SLACK
        readable = end <= len(source.data)
        self._take(source.data, source.positions[order[readable]], source.cpus[order[readable]], 0)
        for page in order[~readable]:  # at the very end of a file
            position = int(source.positions[page])
            tail = np.zeros(source.layout.page_size + WORD_SLACK, np.uint8)
            rest = source.data[position : position + source.layout.page_size]
            tail[: len(rest)] = rest
            tail.flags.writeable = False
            self._take(tail, np.zeros(1, np.int64), source.cpus[page : page + 1], position)
        self._make_nanoseconds()
        return self._trace()

    def _make_nanoseconds(self) -> None:
        """Turn the pages' times into nanoseconds, where they are ticks of a counter."""
        walk, ticks = self._walk, self._source.ticks
        if ticks == _NO_TICKS:
            return
        seen = self._last_ns >= 0
        self._last_ns[seen] = nanoseconds(self._last_ns[seen], *ticks)
        rows = self._losses[: self._lost]
        for column in (walk.LOSS_START, walk.LOSS_END):
            known = rows[:, column] >= 0
            rows[known, column] = nanoseconds(rows[known, column], *ticks)
        for times in (
            self._found.columns["time_ns"].values,
            self._found.notes.values[:, NOTE_TIME],
        ):
            for part in parts(len(times)):
                times[part] = nanoseconds(times[part], *ticks)

    def _take(self, data: np.ndarray, positions: np.ndarray, cpus: np.ndarray, offset: int) -> None:
        """Walk pages of one buffer; `offset` is that of data[0] in the source's data."""
        walk, found = self._walk, self._found
        layout = self._source.layout
        geometry = np.zeros(len(walk.Geometry), np.int64)
        geometry[walk.Geometry.PAGE_SIZE] = layout.page_size
        geometry[walk.Geometry.TIMESTAMP] = layout.timestamp
        geometry[walk.Geometry.COMMIT] = layout.commit
        geometry[walk.Geometry.DATA] = layout.data
        geometry[walk.Geometry.TYPE] = self._type_offset
        state = np.zeros(walk.STATE_SLOTS, np.int64)
        state[walk.LOSSES], state[walk.UNKNOWN] = self._lost, self._unknown
        first = 0
        while first < len(positions):
            part = slice(first, first + _PAGES_AT_A_TIME)
            state[walk.PAGE] = 0
            while True:
                state[walk.ROWS : walk.LOSSES] = found.filled
                walk.walk_pages(
                    data,
                    positions[part],
                    cpus[part],
                    geometry,
                    self._rows_of_type,
                    self._table,
                    *found.room(max(_ROWS_AT_A_TIME, self._most), self._most, 2 * layout.page_size),
                    self._last_ns,
                    self._losses,
                    state,
                )
                found.filled = state[walk.ROWS : walk.LOSSES].tolist()
                status = int(state[walk.STATUS])
                if status in walk.STATUS_TEXTS:
                    raise self._damaged(offset + int(state[walk.POSITION]), status)
                if status not in (walk.ROWS_FULL, walk.NOTES_FULL):
                    break
            first = part.stop
            if self._progress is not None:
                self._progress(_WALKING * min(first / len(self._source.positions), 1))
        self._lost, self._unknown = int(state[walk.LOSSES]), int(state[walk.UNKNOWN])

    def _damaged(self, position: int, status: int) -> RecordingError:
        what = self._walk.STATUS_TEXTS[status]
        if self._source.unpacked:
            what += f", at byte {position} of the unpacked pages"
            return RecordingError(self._source.path, what, todo="record again")
        return RecordingError(self._source.path, what, offset=position, todo="record again")

    def _layouts(self) -> tuple[np.ndarray, np.ndarray, int]:
        """The layout table, the row of each tracepoint's number, the offset of that number."""
        try:
            table = np.ascontiguousarray([ring_buffer_row(each) for each in self._formats])
            offsets = {_part(each, "common_type").offset for each in self._formats}
        except ValueError as error:
            raise _unsupported(self._source.path, str(error)) from None
        if "kmem:mm_page_alloc" not in {each.event_name for each in self._formats}:
            raise RecordingError(
                self._source.path,
                "has no format data of kmem:mm_page_alloc",
                todo=f"record with {RECORD_WITH}",
            )
        if len(offsets) != 1:
            raise _unsupported(self._source.path, "tracepoints disagree on where common_type is")
        rows_of_type = np.full(1 << 16, -1, np.int32)
        for row, each in enumerate(self._formats):
            if each.id < len(rows_of_type):
                rows_of_type[each.id] = row
        return table, rows_of_type, offsets.pop()

    def _trace(self) -> Trace:
        source = self._source
        events = self._found.columns["event"].values
        if not np.any(events == Event.ALLOC):
            raise RecordingError(
                source.path,
                "holds no kmem:mm_page_alloc event of its own buffer",
                todo=f"record with {RECORD_WITH}",
            )
        alloc = next(each for each in self._formats if each.event_name == "kmem:mm_page_alloc")
        try:
            gfp_bits = gfp_bits_from_print_fmt(alloc.print_fmt)
        except ValueError as error:
            raise _unsupported(source.path, str(error)) from None
        names = ThreadNames.of((0, thread, NAMED, name) for thread, name in source.comms.items())
        return self._found.trace(
            self._formats,
            [False] * len(self._formats),
            comms=names.last(),
            thread_names=names,
            gfp_bits=gfp_bits,
            gfp_from_format=True,
            losses=self._all_losses(),
            source=str(source.path),
            release=source.release,
            nr_cpus=source.nr_cpus,
            clock=_CLOCKS.get(source.clock, source.clock),
            notes=tuple(self._all_notes()),
        )

    def _all_losses(self) -> Losses:
        walk, rows = self._walk, self._losses[: self._lost].copy()
        time_ns = self._found.columns["time_ns"].values
        first, last = int(time_ns.min()), int(time_ns.max())
        start = rows[:, walk.LOSS_START]
        start[start < 0] = first
        rows[:, walk.LOSS_COUNT] = np.maximum(rows[:, walk.LOSS_COUNT], 1)
        rows[:, walk.LOSS_START] = np.minimum(start, rows[:, walk.LOSS_END])
        at_end = []
        for cpu, text in sorted(self._source.stats.items()):
            counted = sum(map(int, _COUNTS_LOST.findall(text)))
            of_cpu = rows[rows[:, walk.LOSS_CPU] == cpu]
            rest = counted - int(of_cpu[:, walk.LOSS_COUNT].sum())
            if rest > 0:
                since = int(self._last_ns[cpu]) if cpu < len(self._last_ns) else -1
                at_end.append((cpu, since if since >= 0 else first, last, rest))
        rows = np.concatenate([rows, np.array(at_end, np.int64).reshape(-1, walk.LOSS_WIDTH)])
        rows[:, walk.LOSS_END] = np.maximum(rows[:, walk.LOSS_END], rows[:, walk.LOSS_START])
        return Losses.of(rows, at_end=len(at_end))

    def _all_notes(self) -> list[str]:
        notes = list(self._source.notes)
        uncounted = int((self._losses[: self._lost, self._walk.LOSS_COUNT] < 0).sum())
        if uncounted:
            notes.append(
                f"in {count_of(uncounted, 'place')} events were lost and the kernel did "
                "not say how many; "
                "each counts as one at least"
            )
        clock = self._source.clock
        if clock and clock != "mono":
            notes.append(
                f"times are of tracefs's clock {clock}, snapshots of CLOCK_MONOTONIC: they agree "
                "only as far as these clocks do; record with trace_clock mono"
            )
        return notes


def _check_clock(source: RingBuffer) -> None:
    if source.clock in _NO_TIMES and source.ticks == _NO_TICKS:
        raise RecordingError(
            source.path,
            f"was recorded with the clock {source.clock}, whose values are no times",
            todo="record with trace_clock mono (trace-cmd record -C mono)",
        )


def _unsupported(path: Path, what: str) -> RecordingError:
    return RecordingError(path, what, todo="this kernel's events are not supported")


def _words(data: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The int64 at each position, all of which lie inside the data."""
    bytes_of = data[positions[:, None] + np.arange(8)] if len(positions) else np.zeros((0, 8))
    return np.ascontiguousarray(bytes_of, np.uint8).view("<i8").ravel()


PAGES = "trace_pipe_raw"
_COPY = "copy it from /sys/kernel/tracing as docs/how_to_record.md shows"


def read_tracefs_copy(
    copy: Path, directory: Path | None = None, progress: Report | None = None
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of raw pages (T1 to T8).

    Args:
        copy: the directory.
        directory: of files for what grows with the number of events, all but texts; None: in
            memory.
        progress: called with the share done, 0 to 1.

    Raises:
        RecordingError: pages or formats are missing or damaged, or the clock gives no times.
    """
    files = {
        int(path.parent.name[3:]): path
        for path in copy.glob(f"per_cpu/cpu*/{PAGES}")
        if path.parent.name[3:].isdecimal() and len(path.parent.name) < 9
    }
    if not files:
        raise RecordingError(copy, f"has no per_cpu/cpuN/{PAGES}", todo=_COPY)
    try:
        layout = page_layout(_text(copy / "events/header_page", needed=True))
        formats = tuple(_formats(copy))
    except ValueError as error:
        raise RecordingError(copy, str(error), todo=_COPY) from None
    data, starts = _joined(
        files, layout.page_size, in_memory if directory is None else on_disk(directory)
    )
    counts = np.diff(starts) // layout.page_size
    clock = chosen_clock(_text(copy / "trace_clock"))
    return read_ring_buffer(
        RingBuffer(
            path=copy,
            data=data,
            positions=np.arange(int(counts.sum()), dtype=np.int64) * layout.page_size,
            cpus=np.repeat(np.array(sorted(files), np.int64), counts),
            layout=layout,
            formats=formats,
            comms=seen_threads(_text(copy / "saved_cmdlines")),
            clock=clock,
            release=_text(copy / "osrelease").strip(),
            nr_cpus=len(files),
            stats={cpu: _text(path.with_name("stats")) for cpu, path in files.items()},
            notes=() if clock else ("no trace_clock: which clock the times are of is unknown",),
            unpacked=True,
        ),
        directory,
        progress,
    )


def _joined(
    files: dict[int, Path], page_size: int, new_array: NewArray
) -> tuple[np.ndarray, np.ndarray]:
    """All files end to end, and where each starts, in the order of CPUs; the last is the end."""
    sizes = []
    for _, path in sorted(files.items()):
        refuse_unless_file(path)
        sizes.append(path.stat().st_size)
        if sizes[-1] % page_size:
            raise RecordingError(
                path,
                f"is no whole number of pages of {page_size} bytes",
                offset=sizes[-1] - sizes[-1] % page_size,
                todo="copy it with reads of that size: dd bs=... iflag=fullblock",
            )
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    data = new_array(int(starts[-1]) + WORD_SLACK, np.uint8)
    data[starts[-1] :] = 0
    for (_, path), start, size in zip(sorted(files.items()), starts.tolist(), sizes, strict=False):
        try:
            if size:
                with opened(path, below=path.parents[2]) as file:
                    data[start : start + size] = np.memmap(file, np.uint8, "r", shape=(size,))
        except OSError as error:
            raise unreadable(path, error) from None
    data.flags.writeable = False
    return data, starts


def _formats(directory: Path) -> list[TracepointFormat]:
    return [
        parse_format(path.parents[1].name, _text(path))
        for path in sorted(directory.glob("events/*/*/format"))
    ]


def _text(path: Path, *, needed: bool = False) -> str:
    """A small file's text, "" without it."""
    if not needed and not path.is_file():
        return ""
    return text_of(path, "utf-8", todo=_COPY)
