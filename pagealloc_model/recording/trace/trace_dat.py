"""Pages of the kernel's ring buffer to a Trace: raw from tracefs, or in a trace-cmd's trace.dat."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from pagealloc_model.base.arrays import Column, parts
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import (
    most_unpacked,
    opened,
    refuse_unless_file,
    text_of,
    unreadable,
)
from pagealloc_model.base.progress_bar import Report, part_of
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.trace import layout as at
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import NAMED, Event, Losses, ThreadNames, Trace
from pagealloc_model.recording.trace.formats import (
    TRACING_MAGIC,
    Cursor,
    TracepointFormat,
    gfp_bits_from_print_fmt,
    parse_format,
)
from pagealloc_model.recording.trace.perf_file import WORD_SLACK, mapped, with_slack
from pagealloc_model.recording.trace.side_tables import Collected

RECORD_WITH = f"trace-cmd record -C mono {tp.RECORD_ESSENTIAL}"

_NO_TIMES = ("counter", "uptime", "x86-tsc")
"""Clocks whose values are no nanoseconds, or do not order events."""
_COUNTS_LOST = re.compile(r"^(?:overrun|commit overrun|dropped events): (\d{1,18})$", re.MULTILINE)
NO_TICKS = (1, 0)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_SMALL_EVENT_SIZE = 32
_ROWS_AT_A_TIME = 1 << 20
_PAGES_AT_A_TIME = 1 << 14
_WALKING = 0.8
_CPUS = 1 << 15
_MOST_OPTIONS = 1 << 17


class PageLayout(NamedTuple):
    """Where the parts of a page lie: offsets of its time, used bytes and first event, its size."""

    timestamp: int
    commit: int
    data: int
    page_size: int


def page_layout(text: str) -> PageLayout:
    """Parse `events/header_page`; a ValueError says what is wrong with it."""
    page = parse_format("", f"name: header_page\nID: 0\n{text}")
    fields, names = {part.name: part for part in page.fields}, PageLayout._fields[:3]
    if missing := [name for name in names if name not in fields]:
        raise ValueError(f"header_page has no {missing[0]}")
    timestamp, commit, data = (fields[name] for name in names)
    ends = max(timestamp.end, commit.end)
    if timestamp.size != 8 or commit.size != 8 or not ends <= data.offset < data.end:
        raise ValueError("pages of the ring buffer are not those of a 64-bit kernel")
    return PageLayout(timestamp.offset, commit.offset, data.offset, data.end)


@dataclass(frozen=True, kw_only=True, eq=False)
class RingBuffer:
    """The pages of all CPUs, and what is needed to read them.

    Attributes:
        data: uint8, read-only, holds the pages somewhere; int64 `positions` say where each
            starts, and `cpus` of which CPU it is.
        cmdlines: text of `saved_cmdlines`.
        clock: tracefs's name, such as "mono"; "" if unknown.
        stats: CPU -> text of its per_cpu/cpuN/stats after recording, where it is there.
        ticks: multiplier and shift that make nanoseconds of the pages' times.
        unpacked: `data` was unpacked from the file, so that offsets are none of the file.
        needs_pages: refuse it without page-allocator events; else any tracepoint will do.
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
    needs_pages: bool = True


def read_ring_buffer(
    source: RingBuffer, directory: Path | None = None, progress: Report | None = None
) -> Trace:
    """The page-allocator events, and all other tracepoints, of ring-buffer pages (T1 to T8).

    Losses are those that the kernel marked in the pages, each between two events of its CPU, and
    what its statistics count beyond these. Where a page does not say how many events are missing
    before it, one is counted.
    """
    path, clock = source.path, source.clock
    if clock in _NO_TIMES and source.ticks == NO_TICKS:
        what = f"was recorded with the clock {clock}, whose values are no times"
        todo = "record with trace_clock mono (trace-cmd record -C mono)"
        raise RecordingError(path, what, todo=todo)
    formats = [tracepoint for tracepoint in source.formats if tracepoint.system != "ftrace"]
    table, type_offset, gfp_bits = _laid_out(path, formats, source.needs_pages)
    rows_of_type = np.full(1 << 16, -1, np.int32)
    for row, tracepoint in enumerate(formats):
        if tracepoint.id < len(rows_of_type):
            rows_of_type[tracepoint.id] = row
    described = ((*source.layout, type_offset), rows_of_type, table)
    collected, last_ns, losses = _walked(source, described, directory, progress)
    if source.ticks != NO_TICKS:
        starts, ends = losses[:, at.LOSS_START], losses[:, at.LOSS_END]
        times_of = (collected.columns["time_ns"].values, collected.notes.values[:, at.NOTE_TIME])
        for times in (last_ns, starts, ends, *times_of):
            for part in parts(len(times)):
                known = times[part] >= 0
                times[part][known] = nanoseconds(times[part][known], *source.ticks)
    if source.needs_pages and not np.any(collected.columns["event"].values == Event.ALLOC):
        what = f"holds no {tp.PAGE_ALLOC} event of its own buffer"
        todo = f"record with {RECORD_WITH}"
        if path.is_dir() and not len(source.positions):
            what = "is a copy of empty ring buffers: tracing was off, or somebody read them first"
            todo = "echo 1 > tracing_on, enable the events, and copy each trace_pipe_raw once"
        raise RecordingError(path, what, todo=todo)
    threads = (line.partition(" ") for line in source.cmdlines.splitlines())
    names = {int(n): name for n, _, name in threads if n.isdecimal() and len(n) < 10}
    thread_names = ThreadNames.of((0, thread, NAMED, name) for thread, name in names.items())
    notes, uncounted = list(source.notes), int((losses[:, at.LOSS_COUNT] < 0).sum())
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
    all_losses = _all_losses(source, collected.columns["time_ns"].values, last_ns, losses)
    return collected.trace(
        formats,
        table[:, at.CALLCHAIN],
        comms=thread_names.last(),
        thread_names=thread_names,
        gfp_bits=gfp_bits,
        gfp_from_format=True,
        losses=all_losses,
        source=str(path),
        release=source.release,
        nr_cpus=source.nr_cpus,
        clock="monotonic" if clock == "mono" else clock,
        notes=tuple(notes),
    )


def _laid_out(
    path: Path, formats: list[TracepointFormat], needs_pages: bool
) -> tuple[np.ndarray, int, dict[str, int]]:
    """The layout table, the offset of a tracepoint's number in raw data, and the gfp bits."""
    types = [tracepoint.field("common_type") for tracepoint in formats]
    offsets = {number.offset for number in types if number}
    alloc = next((form for form in formats if form.event_name == tp.PAGE_ALLOC), None)
    try:
        table = np.array([at.layout_row(tracepoint) for tracepoint in formats])
        if None in types:
            raise ValueError(f"{formats[types.index(None)].event_name} has no common_type")
        if not formats or (alloc is None and needs_pages):
            what, todo = f"has no format data of {tp.PAGE_ALLOC}", f"record with {RECORD_WITH}"
            raise RecordingError(path, what, todo=todo)
        if offsets != {0}:
            raise ValueError("common_type is not where tracepoints begin")
        return table, offsets.pop(), gfp_bits_from_print_fmt(alloc.print_fmt) if alloc else {}
    except ValueError as error:
        todo = "this kernel's events are not supported"
        raise RecordingError(path, str(error), todo=todo) from None


def _walked(
    source: RingBuffer,
    described: tuple[tuple[int, ...], np.ndarray, np.ndarray],
    directory: Path | None,
    progress: Report | None,
) -> tuple[Collected, np.ndarray, np.ndarray]:
    """The events of all pages, each CPU's last time, and losses, see `walk_pages`."""
    from pagealloc_model.recording.trace.walk import walk_pages

    page_size, positions = source.layout.page_size, source.positions
    most = page_size // at.SMALLEST_EVENT + 1
    room = (max(_ROWS_AT_A_TIME, most), most, 2 * page_size)
    expected = len(positions) * page_size // _SMALL_EVENT_SIZE if directory is None else 0
    collected = Collected(expected + room[0], directory)
    last_ns = np.full(int(source.cpus.max(initial=0)) + 1, -1, np.int64)
    losses = np.zeros((len(positions), at.LOSS_WIDTH), np.int64)
    state = np.zeros(at.STATE_SLOTS, np.int64)

    def walk(data: np.ndarray, positions: np.ndarray, cpus: np.ndarray, offset: int) -> None:
        """Walk pages of one buffer; `offset` is that of data[0] in the source's data."""
        for first in range(0, len(positions), _PAGES_AT_A_TIME):
            part = slice(first, first + _PAGES_AT_A_TIME)
            arguments = (data, positions[part], cpus[part], *described, last_ns, losses)
            state[at.PAGE] = 0
            if what := collected.walk(walk_pages, arguments, room, state):
                position = offset + int(state[at.POSITION])
                where: dict[str, int] = {"offset": position}
                if source.unpacked:
                    what, where = f"{what}, at byte {position} of the unpacked pages", {}
                raise RecordingError(source.path, what, todo="record again", **where)
            if progress is not None:
                progress(_WALKING * min(part.stop / len(source.positions), 1))

    # In the order of their times, so that rows are nearly in order and stay so in bounded room.
    stamps = positions[:, None] + source.layout.timestamp + np.arange(8)
    order = np.argsort(source.data[stamps].view("<i8").ravel(), kind="stable")
    ends = positions[order] + page_size + WORD_SLACK
    inside = order[ends <= len(source.data)]
    walk(source.data, positions[inside], source.cpus[inside], 0)
    for page in order[ends > len(source.data)].tolist():  # at the very end of a file
        position = int(positions[page])
        tail = with_slack(source.data[position : position + page_size])
        walk(tail, np.zeros(1, np.int64), source.cpus[page : page + 1], position)
    return collected, last_ns, losses[: int(state[at.LOSSES])]


def _all_losses(
    source: RingBuffer, time_ns: np.ndarray, last_ns: np.ndarray, losses: np.ndarray
) -> Losses:
    times = time_ns if len(time_ns) else last_ns
    first, last = int(times.min()), int(times.max())
    cpus, starts, ends, counts = losses.T
    starts = np.minimum(np.where(starts < 0, first, starts), ends)
    rows = np.stack([cpus, starts, np.maximum(ends, starts), np.maximum(counts, 1)], axis=1)
    at_end = []
    for cpu, text in sorted(source.stats.items()):
        marked = int(rows[cpus == cpu, at.LOSS_COUNT].sum())
        rest = sum(map(int, _COUNTS_LOST.findall(text))) - marked
        if rest > 0:
            since = int(last_ns[cpu]) if cpu < len(last_ns) and last_ns[cpu] >= 0 else first
            at_end.append((cpu, since, max(last, since), rest))
    at_end_rows = np.array(at_end, np.int64).reshape(-1, at.LOSS_WIDTH)
    return Losses.of(np.concatenate([rows, at_end_rows]), at_end=len(at_end))


def with_room_behind(data: Column) -> np.ndarray:
    """Unpacked pages, read-only, with zeros behind them, since words are read past their end."""
    pages = data.room(WORD_SLACK)
    pages[data.rows :] = 0
    pages.flags.writeable = False
    return pages


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


PAGES = "trace_pipe_raw"
_COPY = "copy it from /sys/kernel/tracing as docs/how_to_record.md shows"


def read_tracefs_copy(
    copy: Path,
    directory: Path | None = None,
    progress: Report | None = None,
    *,
    needs_pages: bool = True,
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of raw pages (T1 to T8).

    Without `needs_pages` other tracepoints alone will do.
    """

    def text(path: Path, *, needed: bool = False) -> str:
        if not needed and not path.is_file():
            return ""
        return text_of(path, "utf-8", todo=_COPY, below=copy)

    files = {
        int(path.parent.name[3:]): path
        for path in copy.glob(f"per_cpu/cpu*/{PAGES}")
        if path.parent.name[3:].isdecimal()
        and len(path.parent.name) < 9
        and int(path.parent.name[3:]) < _CPUS
    }
    if not files:
        raise RecordingError(copy, f"has no per_cpu/cpuN/{PAGES}", todo=_COPY)
    formats, at_fault = [], copy / "events/header_page"
    try:
        layout = page_layout(text(at_fault, needed=True))
        for at_fault in sorted(copy.glob("events/*/*/format")):
            formats.append(parse_format(at_fault.parents[1].name, text(at_fault)))
    except ValueError as error:
        raise RecordingError(at_fault, str(error), todo=_COPY) from None
    data, counts = Column(np.uint8, directory), []
    for _, path in sorted(files.items()):
        refuse_unless_file(path)
        size = path.stat().st_size
        if beyond := size % layout.page_size:
            what = f"is no whole number of pages of {layout.page_size} bytes"
            todo = "copy it with reads of that size: dd bs=... iflag=fullblock"
            raise RecordingError(path, what, offset=size - beyond, todo=todo)
        counts.append(size // layout.page_size)
        try:
            if size:
                with opened(path, below=path.parents[2]) as file:
                    data.append(np.memmap(file, np.uint8, "r", shape=(size,)))
        except OSError as error:
            raise unreadable(path, error) from None
    clock = chosen_clock(text(copy / "trace_clock"))
    source = RingBuffer(
        path=copy,
        data=with_room_behind(data),
        positions=np.arange(sum(counts), dtype=np.int64) * layout.page_size,
        cpus=np.repeat(np.array(sorted(files), np.int64), counts),
        layout=layout,
        formats=tuple(formats),
        cmdlines=text(copy / "saved_cmdlines"),
        clock=clock,
        release=text(copy / "osrelease").strip(),
        nr_cpus=len(files),
        stats={cpu: text(path.with_name("stats")) for cpu, path in files.items()},
        notes=() if clock else ("no trace_clock: which clock the times are of is unknown",),
        unpacked=True,
        needs_pages=needs_pages,
    )
    return read_ring_buffer(source, directory, progress)


_VERSIONS = ("6", "7")
_LARGEST_PART = 1 << 26
"""Bytes that a section other than trace data may unpack to."""
_LARGEST_CHUNK = 1 << 28
_COMPRESSED = 1
_CHUNK_COUNT = 4
_NO_END = "restore the whole file; one of a recording that was killed has no trace data yet"
_UNPACKING = 0.5


class Option(IntEnum):
    """Options of a trace.dat that are read."""

    DONE = 0
    CPUSTAT = 2
    BUFFER = 3
    TRACECLOCK = 4
    UNAME = 5
    CPUCOUNT = 8
    TIME_SHIFT = 12
    TSC2NSEC = 14
    HEADER_INFO = 16
    FTRACE_EVENTS = 17
    EVENT_FORMATS = 18
    CMDLINES = 21


class CpuData(NamedTuple):
    """Where one CPU's pages lie in the file; of packed ones `size` leaves the chunks' count out."""

    cpu: int
    offset: int
    size: int


class Buffer(NamedTuple):
    """One ring buffer: the top one, without a name, or that of an instance.

    `packed` pages are compressed chunks; clock and page size are "" and 0 if not said.
    """

    name: str
    clock: str
    page_size: int
    cpus: list[CpuData]
    packed: bool

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return sum(of_cpu.size for of_cpu in self.cpus)


class TraceDat:
    """A trace.dat whose parts are found; pages stay where they are."""

    def __init__(self, path: Path, content: np.ndarray) -> None:
        self.path = path
        self.content = content
        self.header_page = b""
        self.event_texts: list[tuple[str, bytes]] = []
        self.cmdlines = b""
        self.options: list[tuple[int, bytes]] = []
        self.buffers: list[Buffer] = []
        self._compression = "none"
        cursor = self.cursor(0)
        cursor.take(len(TRACING_MAGIC), "magic")
        version = cursor.text("version")
        if version not in _VERSIONS:
            known = " and ".join(_VERSIONS)
            what = f"is a trace.dat of version {version[:20]!r}; {known} can be read"
            todo = "convert it: trace-cmd convert --file-version 6 -i IN -o OUT"
            raise RecordingError(path, what, todo=todo)
        if cursor.numbers("<BB", "byte order") != (0, 8):
            what = "was recorded on a big-endian or 32-bit machine"
            todo = "only recordings of 64-bit little-endian machines can be read"
            raise RecordingError(path, what, todo=todo)
        self._page_size = cursor.number("<I", "page size")
        if version == "6":
            self._read_parts(cursor)
        else:
            self._read_sections(cursor)

    def option(self, number: Option) -> bytes | None:
        """Data of the first option of that kind, None if there is none."""
        return next((data for kind, data in self.options if kind == number), None)

    def text_option(self, number: Option) -> str:
        """The same as text, "" if there is none."""
        return (self.option(number) or b"").split(b"\0", 1)[0].decode("utf-8", "replace")

    def damaged(self, offset: int, what: str) -> RecordingError:
        """The error for a file that cannot be read further."""
        return RecordingError(self.path, what, offset=offset, todo=_NO_END)

    def unpack(self, data: bytes, size: int, offset: int) -> bytes:
        """Compressed bytes unpacked; `offset` is for errors."""
        try:
            if self._compression == "zstd":
                unpacked = zstandard.ZstdDecompressor().stream_reader(data).read(size + 1)
            else:
                unpacked = zlib.decompressobj().decompress(data, size + 1)
        except (zstandard.ZstdError, zlib.error) as error:
            raise self.damaged(offset, f"compressed data are damaged ({error})") from None
        if len(unpacked) != size:
            raise self.damaged(offset, "compressed data unpack to another length than they say")
        return unpacked

    def cursor(self, start: int, end: int | None = None) -> Cursor:
        """Takes pieces off the file from `start` on."""
        return Cursor(self.content, start, len(self.content) if end is None else end, self.damaged)

    def _add_option(self, number: int, data: bytes, offset: int) -> None:
        self.options.append((number, data))
        if len(self.options) > _MOST_OPTIONS:
            raise self.damaged(offset, f"there are more than {_MOST_OPTIONS} options")

    def _read_parts(self, cursor: Cursor) -> None:
        """Version 6: everything in one fixed order."""
        self.header_page = cursor.header_page()
        self.event_texts = [*cursor.texts_of("ftrace"), *cursor.event_texts()]
        cursor.skip(cursor.number("<I", "kallsyms size"), "kallsyms")
        cursor.skip(cursor.number("<I", "printk size"), "printk formats")
        self.cmdlines = cursor.cmdlines()
        nr_cpus = cursor.number("<I", "number of CPUs")
        tag = cursor.take(10, "options")
        if tag.startswith(b"options"):
            while (number := cursor.number("<H", "an option")) != Option.DONE:
                size = cursor.number("<I", "an option's size")
                self._add_option(number, cursor.take(size, "an option"), cursor.position)
            tag = cursor.take(10, "pages")
        instances = [data for number, data in self.options if number == Option.BUFFER]
        if 16 * nr_cpus * len(instances) > len(self.content):
            raise self.damaged(cursor.position, f"has no room for {len(instances)} buffers")
        for data in (None, *instances):
            name, clock = "", self.text_option(Option.TRACECLOCK)
            if data is not None:
                cursor, clock = self.cursor(_first_word(data)), ""
                name = data[8:].split(b"\0", 1)[0].decode("utf-8", "replace")
                tag = cursor.take(10, "pages")
            if not tag.startswith(b"flyrecord"):
                what = "holds a latency tracer's text, no pages of events"
                todo = f"record events: trace-cmd record -e {tp.PAGE_ALLOC} ..."
                raise RecordingError(self.path, what, todo=todo)
            places = [cursor.numbers("<QQ", "a CPU's pages") for _ in range(nr_cpus)]
            cpus = [CpuData(cpu, *place) for cpu, place in enumerate(places)]
            self.buffers.append(Buffer(name, clock, self._page_size, cpus, packed=False))

    def _read_sections(self, cursor: Cursor) -> None:
        """Version 7: options point to sections."""
        self._compression = cursor.text("compression")
        cursor.text("compression version")
        if self._compression not in ("none", "zlib", "zstd"):
            what = f"is compressed by {self._compression[:20]!r}, which cannot be read"
            todo = "convert it: trace-cmd convert --compression none -i IN -o OUT"
            raise RecordingError(self.path, what, todo=todo)
        position, seen = cursor.number("<Q", "place of the options"), set()
        while position:
            if position in seen:
                raise self.damaged(position, "options that point to themselves")
            seen.add(position)
            options, position = self._section(position, Option.DONE), 0
            while not options.at_end:
                number, size = options.numbers("<HI", "an option")
                data = options.take(size, "an option")
                if number == Option.DONE:
                    position = _first_word(data)
                    break
                self._add_option(number, data, options.position)
        if part := self._section_of(Option.HEADER_INFO):
            self.header_page = part.header_page()
        if part := self._section_of(Option.FTRACE_EVENTS):
            self.event_texts += part.texts_of("ftrace")
        if part := self._section_of(Option.EVENT_FORMATS):
            self.event_texts += part.event_texts()
        if part := self._section_of(Option.CMDLINES):
            self.cmdlines = part.cmdlines()
        for number, data in self.options:
            if number == Option.BUFFER:
                described = Cursor(np.frombuffer(data, np.uint8), 0, len(data), self.damaged)
                offset = described.number("<Q", "place of a buffer")
                name, clock = described.text("a buffer's name"), described.text("a buffer's clock")
                page_size, count = described.numbers("<II", "a buffer's page size")
                places = [described.numbers("<IQQ", "a CPU's pages") for _ in range(count)]
                flags = self.cursor(offset).numbers("<HH", "a buffer's section")[1] if offset else 0
                packed = bool(flags & _COMPRESSED)
                cpus = [CpuData(*place) for place in places]
                self.buffers.append(Buffer(name, clock, page_size, cpus, packed))

    def _section_of(self, number: Option) -> Cursor | None:
        """The content of the section that an option points to."""
        place = self.option(number)
        return None if place is None else self._section(_first_word(place), number)

    def _section(self, offset: int, number: int) -> Cursor:
        """A section's content, unpacked if need be."""
        cursor = self.cursor(offset)
        kind, flags, _, size = cursor.numbers("<HHIQ", "a section")
        if kind != number:
            raise self.damaged(offset, f"section {kind} where section {number} should be")
        start = cursor.position
        if not flags & _COMPRESSED:
            cursor.skip(size, "a section")
            return self.cursor(start, start + size)
        packed, unpacked = cursor.numbers("<II", "a section's size")
        if unpacked > _LARGEST_PART:
            raise self.damaged(offset, f"a section says that it unpacks to {unpacked} bytes")
        data = self.unpack(cursor.take(packed, "a section"), unpacked, offset)
        return Cursor(
            np.frombuffer(data, np.uint8), 0, len(data), lambda _, what: self.damaged(offset, what)
        )


def _first_word(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def read_trace_dat(
    path: str | Path,
    directory: Path | None = None,
    progress: Report | None = None,
    *,
    needs_pages: bool = True,
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of a trace.dat (T1 to T8).

    Without `needs_pages` other tracepoints alone will do.

    The file may be of version 6 or 7, plain or compressed by zlib or zstd, the whole packed by
    gzip, xz or zstd. Of several buffers the one that holds most is read, and a note names the
    others. Fields are found through the recording's own format data.
    """
    path = Path(path)
    file = TraceDat(path, mapped(path))
    buffer = max(file.buffers, key=lambda one: one.size, default=None)
    if buffer is None or not buffer.size:
        raise RecordingError(path, "holds no events", todo="record again, with -e kmem:...")
    try:
        layout = page_layout(file.header_page.decode("latin-1"))
        formats = [
            parse_format(system, text.decode("latin-1")) for system, text in file.event_texts
        ]
    except ValueError as error:
        raise RecordingError(path, str(error), todo="record again") from None
    layout = layout._replace(page_size=max(layout.page_size, buffer.page_size))
    data, places = buffer_pages(file, buffer, directory, part_of(progress, 0, _UNPACKING))
    positions = [
        np.arange(start, start + size, layout.page_size, np.int64) for _, start, size in places
    ]
    for in_file, (cpu, _, size) in zip(buffer.cpus, places, strict=True):
        if size % layout.page_size or not 0 <= cpu < _CPUS:
            raise file.damaged(in_file.offset, f"the pages of CPU {cpu} are no whole pages")
    # A file may describe a tracepoint twice, but not two as one.
    of_number: dict[int, TracepointFormat] = {}
    for tracepoint in formats:
        other = of_number.setdefault(tracepoint.id, tracepoint)
        if other.event_name != tracepoint.event_name:
            what = f"{tracepoint.event_name} and {other.event_name} have the same number"
            raise RecordingError(path, what, todo="record again")
        of_number[tracepoint.id] = tracepoint
    # Statistics of an instance's CPUs follow a line with its name.
    stats, instance = {}, ""
    for number, option in file.options:
        if number == Option.CPUSTAT:
            text = option.split(b"\0", 1)[0].decode("utf-8", "replace")
            if match := re.search(r"^Buffer: (.*)$", text, re.MULTILINE):
                instance = match[1].strip()
            cpu_line = re.search(r"^CPU: (\d{1,5})$", text, re.MULTILINE)
            if cpu_line and instance == buffer.name:
                stats[int(cpu_line[1])] = text
    notes = []
    others = [other for other in file.buffers if other is not buffer and other.size]
    if others:
        names = ", ".join(other.name or "the top buffer" for other in others)
        read = buffer.name or "the top one"
        notes.append(f"of several buffers {read} is read; left out: {names}")
    if file.option(Option.TIME_SHIFT) is not None:
        notes.append("times are the guest's own: the shift to its host's clock is not applied")
    # Applied as trace-cmd does.
    scale = file.option(Option.TSC2NSEC) or b""
    mult, shift = struct.unpack_from("<II", scale) if len(scale) >= 16 else NO_TICKS
    if shift > 32:
        what = f"shifts its counter by {shift} bits"
        raise RecordingError(path, what, todo="record with -C mono")
    count, uname = file.option(Option.CPUCOUNT), file.text_option(Option.UNAME).split(" ")
    clock = chosen_clock(buffer.clock) or chosen_clock(file.text_option(Option.TRACECLOCK))
    source = RingBuffer(
        path=path,
        data=data,
        positions=np.concatenate([*positions, np.zeros(0, np.int64)]),
        cpus=np.repeat([cpu for cpu, *_ in places], [len(of_cpu) for of_cpu in positions]),
        layout=layout,
        formats=tuple(of_number.values()),
        cmdlines=file.cmdlines.decode("utf-8", "replace"),
        clock=clock,
        release=uname[2] if len(uname) > 3 else "",
        nr_cpus=struct.unpack("<I", count)[0] if count and len(count) == 4 else len(buffer.cpus),
        stats=stats,
        notes=tuple(notes),
        unpacked=buffer.packed,
        ticks=(mult, shift) if mult else NO_TICKS,
        needs_pages=needs_pages,
    )
    return read_ring_buffer(source, directory, part_of(progress, _UNPACKING, 1))


def buffer_pages(
    file: TraceDat, buffer: Buffer, directory: Path | None, progress: Report | None
) -> tuple[np.ndarray, list[CpuData]]:
    """An array that holds the pages, and where each CPU's are in it."""
    more = _CHUNK_COUNT if buffer.packed else 0
    for cpu, offset, size in buffer.cpus:
        if offset + size + more > len(file.content):
            raise file.damaged(offset, f"the pages of CPU {cpu} end behind the file")
    if buffer.size > len(file.content):
        raise file.damaged(buffer.cpus[0].offset, "the pages of several CPUs are the same ones")
    if not buffer.packed:
        return file.content, buffer.cpus
    # Where each compressed piece of each CPU's pages lies, its size, and its size unpacked.
    chunks: list[list[tuple[int, int, int]]] = []
    for _, offset, size in buffer.cpus:
        chunks.append([])
        cursor = file.cursor(offset, offset + _CHUNK_COUNT + size)
        for _ in range(cursor.number("<I", "chunk count") if size else 0):
            where = cursor.position
            packed_size, unpacked = cursor.numbers("<II", "a chunk's size")
            if unpacked > _LARGEST_CHUNK:
                raise file.damaged(where, f"a chunk says that it unpacks to {unpacked} bytes")
            cursor.skip(packed_size, "a chunk")
            chunks[-1].append((where, packed_size, unpacked))
    total = sum(unpacked for of_cpu in chunks for _, _, unpacked in of_cpu)
    if total > (most := most_unpacked(file.path)):
        raise file.damaged(buffer.cpus[0].offset, f"its pages unpack to more than {most} bytes")
    data, places = Column(np.uint8, directory, total + WORD_SLACK), []
    for (cpu, *_), of_cpu in zip(buffer.cpus, chunks, strict=True):
        start = data.rows
        for where, size, unpacked in of_cpu:
            packed = file.content[where + 8 : where + 8 + size].tobytes()
            data.append(np.frombuffer(file.unpack(packed, unpacked, where), np.uint8))
            if progress is not None:
                progress(data.rows / max(total, 1))
        places.append(CpuData(cpu, start, data.rows - start))
    return with_room_behind(data), places
