"""Hand-made trace.dat files and copies of tracefs: ring-buffer pages and what describes them.

Layouts are those of trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5); what trace-cmd makes of files
written here is compared where trace-cmd is installed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import zstandard

from pagealloc_model.recording.trace.trace_dat import Option, TraceDat, buffer_pages
from tests.perf_data_writer import format_texts, header_texts
from tests.synthetic_perf_data import ALLOC, CONTENTION, FREE, Tracepoint

PAGE = 4096
START = 5_000_000_000  # time of the first event, where a test does not say otherwise
HEADER_PAGE = (
    "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
    "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
    "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
    "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n"
)
HEADER_EVENT = (
    b"# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n"
    b"\tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30\n"
    b"\ttime_stamp : type == 31\n\tdata max type_len  == 28\n"
)
TRACEPOINTS = (ALLOC, FREE, CONTENTION)
_KALLSYMS = b"ffffffff81000000 T _text\n"
_MISSED, _STORED = 1 << 31, 1 << 30
_KALLSYMS_SECTION, _PRINTK_SECTION = 19, 20
_CHUNK_PAGES = 2


def event(delta: int, raw: bytes) -> bytes:
    """An event, `delta` ns after the one before."""
    size = -(-len(raw) // 4) * 4
    padded = raw.ljust(size, b"\0")
    if size <= 112:
        return struct.pack("<I", delta << 5 | size // 4) + padded
    return struct.pack("<II", delta << 5, size + 4) + padded


def time_extend(delta: int) -> bytes:
    """More time than an event has room for."""
    return struct.pack("<II", (delta & (1 << 27) - 1) << 5 | 30, delta >> 27)


def time_stamp(time_ns: int) -> bytes:
    """An absolute time, of which 59 bits are kept."""
    kept = time_ns & (1 << 59) - 1
    return struct.pack("<II", (kept & (1 << 27) - 1) << 5 | 31, kept >> 27)


def discarded(delta: int, size: int) -> bytes:
    """An event that a filter threw away after others had followed it."""
    return struct.pack("<II", delta << 5 | 29, size + 4) + bytes(size)


def page(time_ns: int, *events: bytes, missed: int = 0, counted: bool = True) -> bytes:
    """A page of the ring buffer; `missed` events are lost before it."""
    body = b"".join(events)
    commit = len(body)
    if missed:
        commit |= _MISSED | (_STORED if counted else 0)
        body += struct.pack("<Q", missed) if counted else b""
    # The kernel keeps the flags in an int, which is sign-extended.
    commit = commit | 0xFFFFFFFF00000000 if missed else commit
    return (struct.pack("<QQ", time_ns, commit) + body).ljust(PAGE, b"\0")


def allocation(pfn: int, pid: int = 7, order: int = 0, gfp: int = 0xCC0) -> bytes:
    """Raw data of an allocation."""
    return ALLOC.raw(pid, pfn=pfn, order=order, gfp_flags=gfp, migratetype=0)


def times_of_all_kinds(far: int) -> bytes:
    """Pages with an extended time, an absolute one, and that of an event thrown away."""
    return (
        page(START, event(0, allocation(1)), time_extend(1 << 40), event(3, allocation(2)))
        + page(far, event(0, allocation(3)), time_stamp(far + 77), event(0, allocation(4)))
        + page(far + 100, event(0, allocation(5)), discarded(11, 40), event(2, allocation(6)))
    )


@dataclass(frozen=True, kw_only=True)
class Pages:
    """What a trace.dat holds."""

    cpus: Mapping[int, bytes]  # the pages of each CPU, end to end
    # (system, format text) of the tracepoints
    event_texts: Sequence[tuple[str, bytes]] = tuple(
        (each.name.split(":")[0], each.text.encode()) for each in TRACEPOINTS
    )
    header_page: str = HEADER_PAGE  # text of `events/header_page`
    cmdlines: str = "7 task\n"  # text of `saved_cmdlines`
    clock: str = "mono"  # as tracefs names it
    release: str = "6.18.44-fc"  # kernel release
    stats: Mapping[int, str] = field(default_factory=dict)  # text of each CPU's statistics
    options: Sequence[tuple[int, bytes]] = ()  # further options
    instance: str = ""  # name of the buffer's instance, "" for the top one


def stats_text(cpu: int, *, overrun: int = 0, dropped: int = 0) -> str:
    """What per_cpu/cpuN/stats shows."""
    return (
        f"CPU: {cpu}\nentries: 0\noverrun: {overrun}\ncommit overrun: 0\nbytes: 0\n"
        f"oldest event ts:     0.000000\nnow ts:     1.000000\ndropped events: {dropped}\n"
        "read events: 9\n"
    )


def pages_of(path: Path) -> Pages:
    """What a trace.dat of the top buffer holds, to be written in another way."""
    file = TraceDat(path, np.fromfile(path, np.uint8))
    (buffer,) = file.buffers
    data, places = buffer_pages(file, buffer, None, None)
    cpus = {cpu: data[start : start + size].tobytes() for cpu, start, size in places}
    texts = [data.split(b"\0")[0].decode() for kind, data in file.options if kind == Option.CPUSTAT]
    return Pages(
        cpus=cpus,
        event_texts=file.event_texts,
        header_page=file.header_page.decode(),
        cmdlines=file.cmdlines.decode(),
        clock=buffer.clock,
        release=file.text_option(Option.UNAME).split(" ")[2],
        stats=dict(enumerate(texts)),
    )


def write_tracefs_copy(directory: Path, pages: Pages) -> Path:
    """The same as a directory copied out of tracefs."""
    for cpu, data in pages.cpus.items():
        of_cpu = directory / f"per_cpu/cpu{cpu}"
        of_cpu.mkdir(parents=True)
        (of_cpu / "trace_pipe_raw").write_bytes(data)
        if cpu in pages.stats:
            (of_cpu / "stats").write_text(pages.stats[cpu])
    (directory / "events").mkdir()
    (directory / "events/header_page").write_text(pages.header_page)
    for system, text in pages.event_texts:
        name = text[6 : text.index(b"\n")].decode()
        (directory / f"events/{system}/{name}").mkdir(parents=True)
        (directory / f"events/{system}/{name}/format").write_bytes(text)
    (directory / "trace_clock").write_text(f"local global [{pages.clock}] boot\n")
    (directory / "saved_cmdlines").write_text(pages.cmdlines)
    (directory / "osrelease").write_text(f"{pages.release}\n")
    return directory


def write_trace_dat(
    path: Path, pages: Pages, *, version: int = 7, compression: str = "none"
) -> Path:
    """Write a trace.dat."""
    data = bytearray(b"\x17\x08\x44tracing%d\0" % version + struct.pack("<BBI", 0, 8, PAGE))
    if version == 6:
        _write_six(data, pages)
    else:
        _write_seven(data, pages, compression)
    path.write_bytes(data)
    return path


def _texts(pages: Pages) -> dict[int, bytes]:
    """What precedes the options, by the number of its section."""
    ftrace, others = format_texts(pages.event_texts)
    cmdlines = pages.cmdlines.encode()
    return {
        Option.HEADER_INFO: header_texts(pages.header_page.encode(), HEADER_EVENT),
        Option.FTRACE_EVENTS: ftrace,
        Option.EVENT_FORMATS: others,
        _KALLSYMS_SECTION: struct.pack("<I", len(_KALLSYMS)) + _KALLSYMS,
        _PRINTK_SECTION: struct.pack("<I", 0),
        Option.CMDLINES: struct.pack("<Q", len(cmdlines)) + cmdlines,
    }


def _options(pages: Pages) -> list[tuple[int, bytes]]:
    stats = [(Option.CPUSTAT, text.encode() + b"\0") for text in pages.stats.values()]
    return [
        (Option.TRACECLOCK, f"local [{pages.clock}] boot\n\0".encode()),
        (Option.UNAME, f"Linux host {pages.release} x86_64\0".encode()),
        *stats,
        *pages.options,
        (Option.CPUCOUNT, struct.pack("<I", len(pages.cpus))),
    ]


def _spelled(options: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(struct.pack("<HI", number, len(data)) + data for number, data in options)


def _align(data: bytearray) -> None:
    data += bytes(-len(data) % PAGE)


def _write_six(data: bytearray, pages: Pages) -> None:
    data += b"".join(_texts(pages).values())
    data += struct.pack("<I", len(pages.cpus)) + b"options  \0" + _spelled(_options(pages))
    name = pages.instance.encode()
    if name:
        data += struct.pack("<HI", Option.BUFFER, 9 + len(name)) + bytes(8) + name + b"\0"
    place = len(data) - len(name) - 9
    data += struct.pack("<H", Option.DONE)
    buffers = [pages.cpus]
    if name:
        buffers.insert(0, dict.fromkeys(pages.cpus, b""))
    clock = f"[{pages.clock}]".encode()
    for number, cpus in enumerate(buffers):
        if number:
            struct.pack_into("<Q", data, place, len(data))
        data += b"flyrecord\0"
        places = len(data)
        data += bytes(16 * len(cpus)) + struct.pack("<Q", len(clock)) + clock
        for cpu, content in enumerate(cpus.values()):
            _align(data)
            struct.pack_into("<QQ", data, places + 16 * cpu, len(data), len(content))
            data += content


def _write_seven(data: bytearray, pages: Pages, compression: str) -> None:
    pack = {"none": None, "zlib": zlib.compress}.get(compression, zstandard.compress)
    data += compression.encode() + b"\x001.0\0"
    first = len(data)
    data += bytes(8)

    def section(number: int, body: bytes, *, is_packed: bool) -> int:
        """Append a section; returns where it begins."""
        nonlocal data
        start = len(data)
        if is_packed and pack:
            packed = pack(body)
            body = struct.pack("<II", len(packed), len(body)) + packed
        data += struct.pack("<HHIQ", number, bool(is_packed and pack), 0, len(body)) + body
        return start

    def listed(options: Sequence[tuple[int, bytes]], following: int) -> int:
        body = _spelled([*options, (Option.DONE, struct.pack("<Q", following))])
        return section(Option.DONE, body, is_packed=False)

    places = [
        (number, struct.pack("<Q", section(number, text, is_packed=True)))
        for number, text in _texts(pages).items()
    ]
    start = len(data)
    data += struct.pack("<HHIQ", Option.BUFFER, bool(pack), 0, 0)
    table = b""
    for cpu, content in pages.cpus.items():
        _align(data)
        place = len(data)
        size = _CHUNK_PAGES * PAGE
        pieces = [content[begin : begin + size] for begin in range(0, len(content), size)]
        # The count of chunks is not part of the size.
        data += struct.pack("<I", len(pieces)) if pack else content
        counted = len(data) if pack else place
        for piece in pieces if pack else ():
            packed = pack(piece)
            data += struct.pack("<II", len(packed), len(piece)) + packed
        table += struct.pack("<IQQ", cpu, place, len(data) - counted)
    struct.pack_into("<Q", data, start + 8, len(data) - start - 16)
    names = f"{pages.instance}\0{pages.clock}\0".encode()
    counts = struct.pack("<II", PAGE, len(pages.cpus))
    buffer = (Option.BUFFER, struct.pack("<Q", start) + names + counts + table)
    last = listed([buffer], 0)
    struct.pack_into("<Q", data, first, listed([*places, *_options(pages)], last))


def tracepoint_texts(*tracepoints: Tracepoint) -> tuple[tuple[str, bytes], ...]:
    """Formats of hand-made tracepoints."""
    return tuple((each.name.split(":")[0], each.text.encode()) for each in tracepoints)
