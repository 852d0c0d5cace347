"""Pages of the kernel's trace ring buffer as a Trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pagealloc_model.base.arrays import in_memory, on_disk, parts
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import opened, refuse_unless_file, text_of, unreadable
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.trace import layout as at
from pagealloc_model.recording.trace.columns import NAMED, Event, Losses, ThreadNames, Trace
from pagealloc_model.recording.trace.formats import (
    TracepointFormat,
    gfp_bits_from_print_fmt,
    parse_format,
)
from pagealloc_model.recording.trace.perf_file import WORD_SLACK
from pagealloc_model.recording.trace.side_tables import Collected

RECORD_WITH = "trace-cmd record -C mono -e kmem:mm_page_alloc -e kmem:mm_page_free"
_ALLOC = "kmem:mm_page_alloc"

_CLOCKS = {"mono": "monotonic"}
"""Names of tracefs's clocks that this package calls otherwise."""
_NO_TIMES = ("counter", "uptime", "x86-tsc")
"""Clocks whose values are no nanoseconds, or do not order events."""
_COUNTS_LOST = re.compile(r"^(?:overrun|commit overrun|dropped events): (\d{1,18})$", re.MULTILINE)
NO_TICKS = (1, 0)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_SMALL_EVENT_SIZE = 32
_ROWS_AT_A_TIME = 1 << 20
_PAGES_AT_A_TIME = 1 << 14
_WALKING = 0.8


class PageLayout(NamedTuple):
    """Where the parts of a page lie: offsets of its time, used bytes and first event, its size."""

    timestamp: int
    commit: int
    data: int
    page_size: int


def page_layout(text: str) -> PageLayout:
    """Parse `events/header_page`; a ValueError says what is wrong with it."""
    page = parse_format("", f"name: header_page\nID: 0\n{text}")
    fields, names = {each.name: each for each in page.fields}, PageLayout._fields[:3]
    if missing := [name for name in names if name not in fields]:
        raise ValueError(f"header_page has no {missing[0]}")
    timestamp, commit, data = (fields[name] for name in names)
    if timestamp.size != 8 or commit.size != 8 or not data.end:
        raise ValueError("pages of the ring buffer are not those of a 64-bit kernel")
    return PageLayout(timestamp.offset, commit.offset, data.offset, data.end)


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
        cmdlines: text of `saved_cmdlines`.
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
    cmdlines: str = ""
    clock: str = ""
    release: str = ""
    nr_cpus: int = 0
    stats: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ticks: tuple[int, int] = NO_TICKS
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
        from pagealloc_model.recording.trace import walk

        self._walk = walk
        self._source = source
        self._progress = progress
        if source.clock in _NO_TIMES and source.ticks == NO_TICKS:
            raise RecordingError(
                source.path,
                f"was recorded with the clock {source.clock}, whose values are no times",
                todo="record with trace_clock mono (trace-cmd record -C mono)",
            )
        self._formats = [each for each in source.formats if each.system != "ftrace"]
        self._lay_out()
        self._most = walk.most_events(source.layout.page_size)
        expected = len(source.positions) * source.layout.page_size // _SMALL_EVENT_SIZE
        rows = expected if directory is None else 0
        self._collected = Collected(rows + max(_ROWS_AT_A_TIME, self._most), directory)
        self._last_ns = np.full(max(int(source.cpus.max(initial=0)) + 1, 1), -1, np.int64)
        self._losses = np.zeros((len(source.positions), at.LOSS_WIDTH), np.int64)
        self._lost = 0

    def _lay_out(self) -> None:
        """Make the layout table, and find each tracepoint's row by its number."""
        path, formats = self._source.path, self._formats
        types = [each.field("common_type") for each in formats]
        alloc = next((each for each in formats if each.event_name == _ALLOC), None)
        try:
            self._table = np.array([at.event_row(each) for each in formats])
            if None in types:
                raise ValueError("header_page has no common_type")
            self._gfp_bits = gfp_bits_from_print_fmt(alloc.print_fmt) if alloc else {}
        except ValueError as error:
            raise _unsupported(path, str(error)) from None
        if alloc is None:
            what, todo = f"has no format data of {_ALLOC}", f"record with {RECORD_WITH}"
            raise RecordingError(path, what, todo=todo)
        offsets = {each.offset for each in types if each}
        if len(offsets) != 1:
            raise _unsupported(path, "tracepoints disagree on where common_type is")
        self._rows_of_type = np.full(1 << 16, -1, np.int32)
        for row, each in enumerate(formats):
            if each.id < len(self._rows_of_type):
                self._rows_of_type[each.id] = row
        self._page = (*self._source.layout, offsets.pop())

    def read(self) -> Trace:
        """All pages as a Trace."""
        source, page_size = self._source, self._source.layout.page_size
        # In the order of their times, so that rows are nearly in order and stay so in bounded room.
        stamps = source.positions[:, None] + source.layout.timestamp + np.arange(8)
        order = np.argsort(source.data[stamps].view("<i8").ravel(), kind="stable")
        end = source.positions[order] + page_size + WORD_SLACK
        inside = order[end <= len(source.data)]
        self._take(source.data, source.positions[inside], source.cpus[inside], 0)
        for page in order[end > len(source.data)]:  # at the very end of a file
            position = int(source.positions[page])
            tail = np.zeros(page_size + WORD_SLACK, np.uint8)
            rest = source.data[position : position + page_size]
            tail[: len(rest)] = rest
            tail.flags.writeable = False
            self._take(tail, np.zeros(1, np.int64), source.cpus[page : page + 1], position)
        self._make_nanoseconds()
        columns = self._collected.columns
        if not np.any(columns["event"].values == Event.ALLOC):
            raise RecordingError(
                source.path,
                f"holds no {_ALLOC} event of its own buffer",
                todo=f"record with {RECORD_WITH}",
            )
        threads = (line.partition(" ") for line in source.cmdlines.splitlines())
        names = {int(n): name for n, _, name in threads if n.isdecimal() and len(n) < 10}
        thread_names = ThreadNames.of((0, thread, NAMED, name) for thread, name in names.items())
        return self._collected.trace(
            self._formats,
            self._table[:, at.CALLCHAIN],
            comms=thread_names.last(),
            thread_names=thread_names,
            gfp_bits=self._gfp_bits,
            gfp_from_format=True,
            losses=self._all_losses(columns["time_ns"].values),
            source=str(source.path),
            release=source.release,
            nr_cpus=source.nr_cpus,
            clock=_CLOCKS.get(source.clock, source.clock),
            notes=tuple(self._all_notes()),
        )

    def _take(self, data: np.ndarray, positions: np.ndarray, cpus: np.ndarray, offset: int) -> None:
        """Walk pages of one buffer; `offset` is that of data[0] in the source's data."""
        source, kernel = self._source, self._walk.walk_pages
        room = (max(_ROWS_AT_A_TIME, self._most), self._most, 2 * source.layout.page_size)
        state = np.zeros(at.STATE_SLOTS, np.int64)
        state[at.LOSSES] = self._lost
        for first in range(0, len(positions), _PAGES_AT_A_TIME):
            part = slice(first, first + _PAGES_AT_A_TIME)
            pages = (data, positions[part], cpus[part], self._page)
            described = (self._rows_of_type, self._table, self._last_ns, self._losses)
            state[at.PAGE] = 0
            while self._collected.walk(kernel, (*pages, *described), room, state) == at.FULL:
                pass
            if what := at.STATUS_TEXTS.get(int(state[at.STATUS])):
                position = offset + int(state[at.POSITION])
                where: dict[str, int] = {"offset": position}
                if source.unpacked:
                    what, where = f"{what}, at byte {position} of the unpacked pages", {}
                raise RecordingError(source.path, what, todo="record again", **where)
            if self._progress is not None:
                self._progress(_WALKING * min(part.stop / len(source.positions), 1))
        self._lost = int(state[at.LOSSES])

    def _make_nanoseconds(self) -> None:
        """Turn the pages' times into nanoseconds, where they are ticks of a counter."""
        ticks, collected = self._source.ticks, self._collected
        if ticks == NO_TICKS:
            return
        losses = self._losses[: self._lost]
        for times in (self._last_ns, losses[:, at.LOSS_START], losses[:, at.LOSS_END]):
            times[times >= 0] = nanoseconds(times[times >= 0], *ticks)
        for times in (collected.columns["time_ns"].values, collected.notes.values[:, at.NOTE_TIME]):
            for part in parts(len(times)):
                times[part] = nanoseconds(times[part], *ticks)

    def _all_losses(self, time_ns: np.ndarray) -> Losses:
        rows = self._losses[: self._lost].copy()
        first, last = int(time_ns.min()), int(time_ns.max())
        start = rows[:, at.LOSS_START]
        start[start < 0] = first
        rows[:, at.LOSS_COUNT] = np.maximum(rows[:, at.LOSS_COUNT], 1)
        rows[:, at.LOSS_START] = np.minimum(start, rows[:, at.LOSS_END])
        at_end = []
        for cpu, text in sorted(self._source.stats.items()):
            of_cpu = rows[rows[:, at.LOSS_CPU] == cpu]
            counted = sum(map(int, _COUNTS_LOST.findall(text)))
            rest = counted - int(of_cpu[:, at.LOSS_COUNT].sum())
            if rest > 0:
                since = int(self._last_ns[cpu]) if cpu < len(self._last_ns) else -1
                at_end.append((cpu, since if since >= 0 else first, last, rest))
        rows = np.concatenate([rows, np.array(at_end, np.int64).reshape(-1, at.LOSS_WIDTH)])
        rows[:, at.LOSS_END] = np.maximum(rows[:, at.LOSS_END], rows[:, at.LOSS_START])
        return Losses.of(rows, at_end=len(at_end))

    def _all_notes(self) -> list[str]:
        notes, clock = list(self._source.notes), self._source.clock
        uncounted = int((self._losses[: self._lost, at.LOSS_COUNT] < 0).sum())
        if uncounted:
            notes.append(
                f"in {count_of(uncounted, 'place')} events were lost and the kernel did "
                "not say how many; each counts as one at least"
            )
        if clock and clock != "mono":
            notes.append(
                f"times are of tracefs's clock {clock}, snapshots of CLOCK_MONOTONIC: they agree "
                "only as far as these clocks do; record with trace_clock mono"
            )
        return notes


def _unsupported(path: Path, what: str) -> RecordingError:
    return RecordingError(path, what, todo="this kernel's events are not supported")


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

    def text(path: Path, *, needed: bool = False) -> str:
        return text_of(path, "utf-8", todo=_COPY) if needed or path.is_file() else ""

    files = {
        int(path.parent.name[3:]): path
        for path in copy.glob(f"per_cpu/cpu*/{PAGES}")
        if path.parent.name[3:].isdecimal() and len(path.parent.name) < 9
    }
    if not files:
        raise RecordingError(copy, f"has no per_cpu/cpuN/{PAGES}", todo=_COPY)
    try:
        layout = page_layout(text(copy / "events/header_page", needed=True))
        paths = sorted(copy.glob("events/*/*/format"))
        formats = tuple(parse_format(path.parents[1].name, text(path)) for path in paths)
    except ValueError as error:
        raise RecordingError(copy, str(error), todo=_COPY) from None
    cpus, paths = np.array(sorted(files), np.int64), [path for _, path in sorted(files.items())]
    data, sizes = _joined(paths, layout.page_size, directory)
    counts = np.array(sizes, np.int64) // layout.page_size
    clock = chosen_clock(text(copy / "trace_clock"))
    source = RingBuffer(
        path=copy,
        data=data,
        positions=np.arange(int(counts.sum()), dtype=np.int64) * layout.page_size,
        cpus=np.repeat(cpus, counts),
        layout=layout,
        formats=formats,
        cmdlines=text(copy / "saved_cmdlines"),
        clock=clock,
        release=text(copy / "osrelease").strip(),
        nr_cpus=len(files),
        stats={cpu: text(path.with_name("stats")) for cpu, path in files.items()},
        notes=() if clock else ("no trace_clock: which clock the times are of is unknown",),
        unpacked=True,
    )
    return read_ring_buffer(source, directory, progress)


def _joined(
    paths: list[Path], page_size: int, directory: Path | None
) -> tuple[np.ndarray, list[int]]:
    """All files end to end, and the bytes of each."""
    sizes = []
    for path in paths:
        refuse_unless_file(path)
        sizes.append(path.stat().st_size)
        if sizes[-1] % page_size:
            raise RecordingError(
                path,
                f"is no whole number of pages of {page_size} bytes",
                offset=sizes[-1] - sizes[-1] % page_size,
                todo="copy it with reads of that size: dd bs=... iflag=fullblock",
            )
    new_array = in_memory if directory is None else on_disk(directory)
    data, end = new_array(sum(sizes) + WORD_SLACK, np.uint8), 0
    for path, size in zip(paths, sizes, strict=True):
        try:
            if size:
                with opened(path, below=path.parents[2]) as file:
                    data[end : end + size] = np.memmap(file, np.uint8, "r", shape=(size,))
        except OSError as error:
            raise unreadable(path, error) from None
        end += size
    data[end:] = 0
    data.flags.writeable = False
    return data, sizes
