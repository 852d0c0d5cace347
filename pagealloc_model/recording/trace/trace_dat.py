"""trace-cmd's trace.dat to a Trace."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path

import numpy as np
import zstandard

from pagealloc_model.base.arrays import NewArray, in_memory, on_disk
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.progress_bar import Report, part_of
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.formats import (
    TRACING_MAGIC,
    Cursor,
    TracepointFormat,
    parse_format,
)
from pagealloc_model.recording.trace.perf_file import WORD_SLACK, mapped, unpacked
from pagealloc_model.recording.trace.ring_buffer import (
    RingBuffer,
    chosen_clock,
    page_layout,
    read_ring_buffer,
    seen_threads,
)

_VERSIONS = ("6", "7")
_LARGEST_PART = 1 << 30
"""Bytes that a section other than trace data may unpack to."""
_LARGEST_CHUNK = 1 << 28
_COMPRESSED = 1
_CHUNK_COUNT = 4
_NO_END = "restore the whole file; one of a recording that was killed has no trace data yet"


class Option(IntEnum):
    """Options of a trace.dat that are read."""

    DONE = 0
    CPUSTAT = 2
    BUFFER = 3
    TRACECLOCK = 4
    UNAME = 5
    OFFSET = 7
    CPUCOUNT = 8
    TIME_SHIFT = 12
    TSC2NSEC = 14
    HEADER_INFO = 16
    FTRACE_EVENTS = 17
    EVENT_FORMATS = 18
    CMDLINES = 21


@dataclass(frozen=True, kw_only=True)
class CpuData:
    """Where one CPU's pages lie in the file; of packed ones `size` leaves the chunks' count out."""

    cpu: int
    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """One ring buffer: the top one, or that of an instance.

    Attributes:
        name: of the instance, "" for the top one.
        clock: as tracefs names it, "" if not said.
        page_size: bytes, 0 if not said.
        cpus: where each CPU's pages are.
        packed: the pages are compressed chunks.
    """

    name: str
    clock: str
    page_size: int
    cpus: tuple[CpuData, ...]
    packed: bool

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return sum(each.size for each in self.cpus)


@dataclass(kw_only=True)
class TraceDat:
    """A trace.dat that is opened; pages stay where they are.

    Attributes:
        path: the file.
        content: uint8, the file's bytes.
        version: 6 or 7.
        page_size: of the recorded machine.
        compression: "none", "zlib" or "zstd".
        header_page: text of `events/header_page`.
        event_texts: (system, format text) of each tracepoint.
        cmdlines: text of `saved_cmdlines`.
        options: (option, data) in the file's order.
        buffers: those that hold pages or are said to.
    """

    path: Path
    content: np.ndarray
    version: int = 0
    page_size: int = 0
    compression: str = "none"
    header_page: bytes = b""
    event_texts: list[tuple[str, bytes]] = field(default_factory=list)
    cmdlines: bytes = b""
    options: list[tuple[int, bytes]] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    def option(self, number: Option) -> bytes | None:
        """Data of the first option of that kind, None if there is none."""
        return next((data for kind, data in self.options if kind == number), None)

    def text_option(self, number: Option) -> str:
        """The same as text, "" if there is none."""
        return (self.option(number) or b"").split(b"\0", 1)[0].decode("utf-8", "replace")

    def chunks(self, data: CpuData, *, packed: bool) -> Iterator[np.ndarray]:
        """The pages of one CPU, in pieces of whole pages."""
        end = data.offset + data.size + _CHUNK_COUNT * packed
        if end > len(self.content):
            raise self.damaged(data.offset, f"the pages of CPU {data.cpu} end behind the file")
        if not packed:
            yield self.content[data.offset : end]
            return
        if not data.size:
            return
        cursor = self.cursor(data.offset, end)
        for _ in range(cursor.number("<I", "chunk count")):
            where = cursor.position
            size, unpacked = cursor.numbers("<II", "a chunk's size")
            if unpacked > _LARGEST_CHUNK:
                raise self.damaged(where, f"a chunk says that it unpacks to {unpacked} bytes")
            yield np.frombuffer(
                self.unpack(cursor.take(size, "a chunk"), unpacked, where), np.uint8
            )

    def unpacked_size(self, data: CpuData) -> int:
        """Bytes that one CPU's compressed pages unpack to, as their chunks say."""
        if not data.size:
            return 0
        cursor, total = self.cursor(data.offset, data.offset + _CHUNK_COUNT + data.size), 0
        for _ in range(cursor.number("<I", "chunk count")):
            size, unpacked = cursor.numbers("<II", "a chunk's size")
            cursor.skip(size, "a chunk")
            total += unpacked
        return total

    def unpack(self, data: bytes, size: int, offset: int) -> bytes:
        """Compressed bytes unpacked."""
        try:
            if self.compression == "zstd":
                stream = zstandard.ZstdDecompressor().decompressobj()
                unpacked = stream.decompress(data)
            else:
                unpacked = zlib.decompressobj().decompress(data, size + 1)
        except (zstandard.ZstdError, zlib.error) as error:
            raise self.damaged(offset, f"compressed data are damaged ({error})") from None
        if len(unpacked) != size:
            raise self.damaged(offset, "compressed data unpack to another length than they say")
        return unpacked

    def cursor(self, start: int, end: int | None = None) -> Cursor:
        """Takes pieces off the file from one place on, up to another."""
        return Cursor(self.content, start, len(self.content) if end is None else end, self.damaged)

    def damaged(self, offset: int, what: str) -> RecordingError:
        """The error for a file that cannot be read further."""
        return RecordingError(self.path, what, offset=offset, todo=_NO_END)


def open_trace_dat(path: Path, content: np.ndarray) -> TraceDat:
    """Find the parts of a trace.dat."""
    file = TraceDat(path=path, content=content)
    cursor = file.cursor(0)
    cursor.take(len(TRACING_MAGIC), "magic")
    version = cursor.text("version")
    if version not in _VERSIONS:
        raise RecordingError(
            path,
            f"is a trace.dat of version {version[:20]!r}; {' and '.join(_VERSIONS)} can be read",
            todo="convert it: trace-cmd convert --file-version 6 -i IN -o OUT",
        )
    file.version = int(version)
    big_endian, long_size = cursor.take(2, "byte order")
    if big_endian or long_size != 8:
        raise RecordingError(
            path,
            "was recorded on a big-endian or 32-bit machine",
            todo="only recordings of 64-bit little-endian machines can be read",
        )
    file.page_size = cursor.number("<I", "page size")
    if file.version == 6:
        _read_parts(file, cursor)
    else:
        _read_sections(file, cursor)
    return file


def _read_parts(file: TraceDat, cursor: Cursor) -> None:
    """Version 6: everything in one fixed order."""
    _read_header_info(file, cursor)
    _read_ftrace_events(file, cursor)
    _read_event_formats(file, cursor)
    cursor.take(cursor.number("<I", "kallsyms size"), "kallsyms")
    cursor.take(cursor.number("<I", "printk size"), "printk formats")
    file.cmdlines = cursor.take(cursor.number("<Q", "command lines' size"), "command lines")
    nr_cpus = cursor.number("<I", "number of CPUs")
    tag = cursor.take(10, "options")
    if tag.startswith(b"options"):
        while (number := cursor.number("<H", "an option")) != Option.DONE:
            size = cursor.number("<I", "an option's size")
            file.options.append((number, cursor.take(size, "an option")))
        tag = cursor.take(10, "pages")
    _refuse_text(file, tag)
    file.buffers.append(_buffer_of_6(file, cursor, "", nr_cpus))
    for number, data in file.options:
        if number == Option.BUFFER:
            (offset,) = struct.unpack_from("<Q", data.ljust(8, b"\0"))
            name = data[8:].split(b"\0", 1)[0].decode("utf-8", "replace")
            of_instance = file.cursor(offset)
            _refuse_text(file, of_instance.take(10, "pages"))
            file.buffers.append(_buffer_of_6(file, of_instance, name, nr_cpus))


def _buffer_of_6(file: TraceDat, cursor: Cursor, name: str, nr_cpus: int) -> Buffer:
    places = [cursor.numbers("<QQ", "a CPU's pages") for _ in range(nr_cpus)]
    cpus = tuple(
        CpuData(cpu=cpu, offset=offset, size=size) for cpu, (offset, size) in enumerate(places)
    )
    clock = file.text_option(Option.TRACECLOCK) if not name else ""
    return Buffer(name=name, clock=clock, page_size=file.page_size, cpus=cpus, packed=False)


def _refuse_text(file: TraceDat, tag: bytes) -> None:
    if not tag.startswith(b"flyrecord"):
        raise RecordingError(
            file.path,
            "holds a latency tracer's text, no pages of events",
            todo="record events: trace-cmd record -e kmem:mm_page_alloc ...",
        )


def _read_sections(file: TraceDat, cursor: Cursor) -> None:
    """Version 7: options point to sections."""
    file.compression = cursor.text("compression")
    cursor.text("compression version")
    if file.compression not in ("none", "zlib", "zstd"):
        raise RecordingError(
            file.path,
            f"is compressed by {file.compression[:20]!r}, which cannot be read",
            todo="convert it: trace-cmd convert --compression none -i IN -o OUT",
        )
    position, seen = cursor.number("<Q", "place of the options"), set()
    while position:
        if position in seen:
            raise file.damaged(position, "options that point to themselves")
        seen.add(position)
        options, position = _section(file, position, Option.DONE), 0
        while not options.at_end:
            number, size = options.numbers("<HI", "an option")
            data = options.take(size, "an option")
            if number == Option.DONE:
                position = struct.unpack_from("<Q", data.ljust(8, b"\0"))[0]
                break
            file.options.append((number, data))
    for number, read in (
        (Option.HEADER_INFO, _read_header_info),
        (Option.FTRACE_EVENTS, _read_ftrace_events),
        (Option.EVENT_FORMATS, _read_event_formats),
        (Option.CMDLINES, _read_cmdlines),
    ):
        place = file.option(number)
        if place is not None:
            read(file, _section(file, struct.unpack_from("<Q", place.ljust(8, b"\0"))[0], number))
    file.buffers += [
        _buffer_of_7(file, data) for number, data in file.options if number == Option.BUFFER
    ]


def _section(file: TraceDat, offset: int, number: int) -> Cursor:
    """A section's content, unpacked if need be."""
    cursor = file.cursor(offset)
    kind, flags, _, size = cursor.numbers("<HHIQ", "a section")
    if kind != number:
        raise file.damaged(offset, f"section {kind} where section {number} should be")
    start = cursor.position
    if not flags & _COMPRESSED:
        cursor.take(size, "a section")
        return file.cursor(start, start + size)
    packed, unpacked = cursor.numbers("<II", "a section's size")
    if unpacked > _LARGEST_PART:
        raise file.damaged(offset, f"a section says that it unpacks to {unpacked} bytes")
    data = file.unpack(cursor.take(packed, "a section"), unpacked, offset)
    return Cursor(
        np.frombuffer(data, np.uint8), 0, len(data), lambda _, what: file.damaged(offset, what)
    )


def _buffer_of_7(file: TraceDat, data: bytes) -> Buffer:
    cursor = Cursor(np.frombuffer(data, np.uint8), 0, len(data), file.damaged)
    offset = cursor.number("<Q", "place of a buffer")
    name, clock = cursor.text("a buffer's name"), cursor.text("a buffer's clock")
    page_size, count = cursor.numbers("<II", "a buffer's page size")
    places = [cursor.numbers("<IQQ", "a CPU's pages") for _ in range(count)]
    flags = 0
    if offset:
        _, flags = file.cursor(offset).numbers("<HH", "a buffer's section")
    return Buffer(
        name=name,
        clock=clock,
        page_size=page_size,
        cpus=tuple(CpuData(cpu=cpu, offset=start, size=size) for cpu, start, size in places),
        packed=bool(flags & _COMPRESSED),
    )


def _read_header_info(file: TraceDat, cursor: Cursor) -> None:
    file.header_page, _ = cursor.header_texts()


def _read_ftrace_events(file: TraceDat, cursor: Cursor) -> None:
    file.event_texts += cursor.ftrace_texts()


def _read_event_formats(file: TraceDat, cursor: Cursor) -> None:
    file.event_texts += cursor.event_texts()


def _read_cmdlines(file: TraceDat, cursor: Cursor) -> None:
    file.cmdlines = cursor.take(cursor.number("<Q", "command lines' size"), "command lines")


_UNPACKING = 0.5
_CPU = re.compile(r"^CPU: (\d{1,5})$", re.MULTILINE)
_INSTANCE = re.compile(r"^Buffer: (.*)$", re.MULTILINE)


def read_trace_dat(
    path: str | Path, directory: Path | None = None, progress: Report | None = None
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of a trace.dat (T1 to T8).

    The file may be of version 6 or 7, plain or compressed by zlib or zstd, the whole packed by
    gzip, xz or zstd. Of several buffers the one that holds most is read, and a note names the
    others. Fields are found through the recording's own format data.

    Args:
        path: the file.
        directory: of files for what grows with the number of events, all but texts; None: in
            memory.
        progress: called with the share done, 0 to 1.

    Raises:
        RecordingError: the file is damaged, of a layout that is not supported, of a clock that
            tells no times, or holds no kmem:mm_page_alloc.
    """
    path = Path(path)
    file = open_trace_dat(path, mapped(path, unpacked))
    buffer = max(file.buffers, key=lambda each: each.size, default=None)
    if buffer is None or not buffer.size:
        raise RecordingError(path, "holds no events", todo="record again, with -e kmem:...")
    new_array = in_memory if directory is None else on_disk(directory)
    source = _ring_buffer(file, buffer, new_array, part_of(progress, 0, _UNPACKING))
    return read_ring_buffer(source, directory, part_of(progress, _UNPACKING, 1))


def _ring_buffer(
    file: TraceDat, buffer: Buffer, new_array: NewArray, progress: Report | None
) -> RingBuffer:
    try:
        layout = page_layout(file.header_page.decode("latin-1"))
        formats = tuple(
            parse_format(system, text.decode("latin-1")) for system, text in file.event_texts
        )
    except ValueError as error:
        raise RecordingError(file.path, str(error), todo="record again") from None
    layout = replace(layout, page_size=max(layout.page_size, buffer.page_size))
    data, starts, sizes = _pages(file, buffer, new_array, progress)
    cpus = np.array([each.cpu for each in buffer.cpus], np.int64)
    counts = np.array(sizes, np.int64) // layout.page_size
    positions = [
        start + layout.page_size * np.arange(count, dtype=np.int64)
        for start, count in zip(starts, counts.tolist(), strict=True)
    ]
    for each, size in zip(buffer.cpus, sizes, strict=True):
        if size % layout.page_size or not 0 <= each.cpu < 1 << 15:
            raise file.damaged(each.offset, f"the pages of CPU {each.cpu} are no whole pages")
    others = [each for each in file.buffers if each is not buffer and each.size]
    count = file.option(Option.CPUCOUNT)
    uname = file.text_option(Option.UNAME).split(" ")
    return RingBuffer(
        path=file.path,
        data=data,
        positions=np.concatenate([*positions, np.zeros(0, np.int64)]).astype(np.int64),
        cpus=np.repeat(cpus, counts),
        layout=layout,
        formats=_used_once(file, formats),
        comms=seen_threads(file.cmdlines.decode("utf-8", "replace")),
        clock=_clock(file, buffer),
        release=uname[2] if len(uname) > 3 else "",
        nr_cpus=struct.unpack("<I", count)[0] if count and len(count) == 4 else len(buffer.cpus),
        stats=_stats(file, buffer),
        notes=tuple(_notes(file, buffer, others)),
        unpacked=buffer.packed,
        ticks=_ticks(file),
    )


def _pages(
    file: TraceDat, buffer: Buffer, new_array: NewArray, progress: Report | None
) -> tuple[np.ndarray, list[int], list[int]]:
    """What holds the pages, where each CPU's start in it, and how many bytes they are."""
    if not buffer.packed:
        for each in buffer.cpus:
            next(file.chunks(each, packed=False))
        return (
            file.content,
            [each.offset for each in buffer.cpus],
            [each.size for each in buffer.cpus],
        )
    sizes = [file.unpacked_size(each) for each in buffer.cpus]
    data = new_array(sum(sizes) + WORD_SLACK, np.uint8)
    starts, filled = [], 0
    for each, size in zip(buffer.cpus, sizes, strict=True):
        starts.append(filled)
        for chunk in file.chunks(each, packed=True):
            data[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
            if progress is not None:
                progress(filled / sum(sizes))
        assert filled == starts[-1] + size
    data[filled:] = 0
    data.flags.writeable = False
    return data, starts, sizes


def _used_once(file: TraceDat, formats: tuple[TracepointFormat, ...]) -> tuple:
    """The formats, each number once: a file may describe a tracepoint twice, but not two as one."""
    known: dict[int, TracepointFormat] = {}
    for each in formats:
        if each.id in known and known[each.id].event_name != each.event_name:
            raise RecordingError(
                file.path,
                f"{each.event_name} and {known[each.id].event_name} have the same number",
                todo="record again",
            )
        known[each.id] = each
    return tuple(known.values())


def _clock(file: TraceDat, buffer: Buffer) -> str:
    return chosen_clock(buffer.clock) or chosen_clock(file.text_option(Option.TRACECLOCK))


def _stats(file: TraceDat, buffer: Buffer) -> dict[int, str]:
    """The statistics of the buffer's CPUs; those of an instance follow a line with its name."""
    stats, instance = {}, ""
    for number, data in file.options:
        if number != Option.CPUSTAT:
            continue
        text = data.split(b"\0", 1)[0].decode("utf-8", "replace")
        if match := _INSTANCE.search(text):
            instance = match[1].strip()
        if (cpu := _CPU.search(text)) and instance == buffer.name:
            stats[int(cpu[1])] = text
    return stats


def _notes(file: TraceDat, buffer: Buffer, others: list[Buffer]) -> list[str]:
    notes = []
    if others:
        names = ", ".join(each.name or "the top buffer" for each in others)
        notes.append(
            f"of several buffers {buffer.name or 'the top one'} is read; left out: {names}"
        )
    if file.option(Option.TIME_SHIFT) is not None:
        notes.append("times are the guest's own: the shift to its host's clock is not applied")
    return notes


def _ticks(file: TraceDat) -> tuple[int, int]:
    """Multiplier and shift that make nanoseconds of times, applied as trace-cmd does."""
    data = file.option(Option.TSC2NSEC)
    if data is None or len(data) < 16:
        return (1, 0)
    mult, shift = struct.unpack_from("<II", data)
    if shift > 32:
        raise RecordingError(
            file.path, f"shifts its counter by {shift} bits", todo="record with -C mono"
        )
    return (mult, shift) if mult else (1, 0)
