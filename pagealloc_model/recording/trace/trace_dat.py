"""trace-cmd's trace.dat to a Trace."""

from __future__ import annotations

import re
import struct
import zlib
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from pagealloc_model.base.arrays import Column
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.progress_bar import Report, part_of
from pagealloc_model.recording.trace import ring_buffer
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.formats import (
    TRACING_MAGIC,
    Cursor,
    TracepointFormat,
    parse_format,
)
from pagealloc_model.recording.trace.perf_file import WORD_SLACK, mapped

_VERSIONS = ("6", "7")
_LARGEST_PART = 1 << 30
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
                unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(data)
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
                self.options.append((number, cursor.take(size, "an option")))
            tag = cursor.take(10, "pages")
        instances = [data for number, data in self.options if number == Option.BUFFER]
        for data in (None, *instances):
            name, clock = "", self.text_option(Option.TRACECLOCK)
            if data is not None:
                cursor, clock = self.cursor(_first_word(data)), ""
                name = data[8:].split(b"\0", 1)[0].decode("utf-8", "replace")
                tag = cursor.take(10, "pages")
            if not tag.startswith(b"flyrecord"):
                what = "holds a latency tracer's text, no pages of events"
                todo = "record events: trace-cmd record -e kmem:mm_page_alloc ..."
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
                self.options.append((number, data))
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
    path: str | Path, directory: Path | None = None, progress: Report | None = None
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of a trace.dat (T1 to T8).

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
        layout = ring_buffer.page_layout(file.header_page.decode("latin-1"))
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
        if size % layout.page_size or not 0 <= cpu < 1 << 15:
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
    mult, shift = struct.unpack_from("<II", scale) if len(scale) >= 16 else ring_buffer.NO_TICKS
    if shift > 32:
        what = f"shifts its counter by {shift} bits"
        raise RecordingError(path, what, todo="record with -C mono")
    count, uname = file.option(Option.CPUCOUNT), file.text_option(Option.UNAME).split(" ")
    clock = ring_buffer.chosen_clock(buffer.clock) or ring_buffer.chosen_clock(
        file.text_option(Option.TRACECLOCK)
    )
    source = ring_buffer.RingBuffer(
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
        ticks=(mult, shift) if mult else ring_buffer.NO_TICKS,
    )
    return ring_buffer.read_ring_buffer(source, directory, part_of(progress, _UNPACKING, 1))


def buffer_pages(
    file: TraceDat, buffer: Buffer, directory: Path | None, progress: Report | None
) -> tuple[np.ndarray, list[CpuData]]:
    """An array that holds the pages, and where each CPU's are in it."""
    more = _CHUNK_COUNT if buffer.packed else 0
    for cpu, offset, size in buffer.cpus:
        if offset + size + more > len(file.content):
            raise file.damaged(offset, f"the pages of CPU {cpu} end behind the file")
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
    data, places = Column(np.uint8, directory, total + WORD_SLACK), []
    for (cpu, *_), of_cpu in zip(buffer.cpus, chunks, strict=True):
        start = data.rows
        for where, size, unpacked in of_cpu:
            packed = file.content[where + 8 : where + 8 + size].tobytes()
            data.append(np.frombuffer(file.unpack(packed, unpacked, where), np.uint8))
            if progress is not None:
                progress(data.rows / total)
        places.append(CpuData(cpu, start, data.rows - start))
    return ring_buffer.with_room_behind(data), places
