"""Event files that no perf, trace-cmd or import writes: how each is made, and what must be said.

All are small; what they claim or unpack to is not.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import zstandard

from tests import synthetic_perf_data as perf
from tests import trace_dat_writer as dat
from tests.perf_data_writer import Feature, write_perf_data, write_tracing_data
from tests.synthetic_perf_data import ALLOC, FREE, GFP_PRINT_FMT, Tracepoint

Make = Callable[[Path], object]
_LOCK = Tracepoint("lock:x", 503, (("__data_loc char[] name", 1, False),))
_ATTRS = (perf.attr_of(ALLOC, [1]), perf.attr_of(FREE, [2]))
_ONE = perf.sample(_ATTRS[0], ALLOC.raw(pfn=1), number=1, time=1)
_FREE_TEXT = FREE.text.encode()
_UNPACKED = 1 << 30
_pack = zstandard.ZstdCompressor(write_content_size=False).compress


def _gigabyte() -> bytes:
    """One frame of zeros."""
    packer = zstandard.ZstdCompressor().compressobj()
    pieces = [packer.compress(bytes(1 << 24)) for _ in range(_UNPACKED >> 24)]
    return b"".join([*pieces, packer.flush()])


def _perf(alloc: bytes = ALLOC.text.encode(), free: bytes = _FREE_TEXT) -> Make:
    """A perf.data with other format texts."""
    texts = [("kmem", alloc), ("kmem", free)]
    features = {Feature.TRACING_DATA: write_tracing_data(texts)}
    return lambda path: write_perf_data(
        path, attrs=_ATTRS, features=features, records=_ONE, compress=False
    )


def _flags(value: str) -> Make:
    """One with another value in the table of gfp flags."""
    other = ALLOC.text.replace(GFP_PRINT_FMT, f'{{ {value}, "GFP_KERNEL"}}')
    return _perf(other.encode())


def _fields(line: str, count: int) -> Make:
    return _perf(free=_FREE_TEXT + f"\tfield:{line};\tsigned:0;\n".encode() * count)


def text_in_a_byte(path: Path) -> None:
    """A record that ends where the place of its text should be."""
    attr, raw = perf.attr_of(_LOCK, [3]), _LOCK.raw(name=b"\0").ljust(9, b"\0")
    body = struct.pack("<QQIIQIIQI", 3, 0, 1, 1, 5, 0, 0, 1, len(raw)) + raw
    last = struct.pack("<IHH", 9, 0, 8 + len(body)) + body
    perf.write(path, [_ATTRS[0], attr], [_ONE, last], (ALLOC, _LOCK))


def _late(path: Path) -> None:
    last = perf.sample(_ATTRS[0], ALLOC.raw(pfn=1), number=1, time=(1 << 63) - 1)
    perf.write(path, _ATTRS, [_ONE, last])


def _colliding_ids(path: Path) -> None:
    alloc = perf.attr_of(ALLOC, [number << 40 for number in range(1, 40_000)])
    perf.write(path, [alloc, _ATTRS[1]], [perf.sample(alloc, ALLOC.raw(pfn=1), number=1 << 40)])


def _records(record: bytes) -> Make:
    """Compressed records that unpack to a thousand times their size."""

    def make(path: Path) -> None:
        frame = _pack(record * (1 << 17))
        frames = frame * (_UNPACKED // (len(record) << 17))
        cuts = (frames[at : at + 60_000] for at in range(0, len(frames), 60_000))
        packed = b"".join(struct.pack("<IHH", 81, 0, 8 + len(cut)) + cut for cut in cuts)
        write_perf_data(
            path,
            attrs=_ATTRS,
            features=perf.features_of((ALLOC, FREE)),
            records=packed,
            compress=False,
        )

    return make


def _packed(pack: Callable[[bytes], bytes]) -> Make:
    """A packed file whose header tells of a gigabyte of records."""

    def make(path: Path) -> None:
        perf.write(path, _ATTRS, [_ONE])
        content = bytearray(path.read_bytes())
        struct.pack_into("<Q", content, 48, _UNPACKED)
        path.write_bytes(pack(bytes(content)) + pack(bytes(1 << 24)) * (_UNPACKED >> 24))

    return make


_PAGES = dat.Pages(cpus={0: dat.page(dat.START, dat.event(0, dat.allocation(1)))})


def _header_page(before: str, after: str) -> Make:
    text = dat.HEADER_PAGE.replace(before, after)
    return lambda path: dat.write_trace_dat(path, replace(_PAGES, header_page=text))


def _far_type(path: Path) -> None:
    before, after = b"common_type;\toffset:0;", b"common_type;\toffset:900000000;"
    texts = tuple((system, text.replace(before, after)) for system, text in _PAGES.event_texts)
    dat.write_trace_dat(path, replace(_PAGES, event_texts=texts))


def _same_pages(path: Path) -> None:
    """Every CPU has the same pages."""
    dat.write_trace_dat(path, replace(_PAGES, cpus=dict.fromkeys(range(4000), b"")), version=6)
    content = bytearray(path.read_bytes())
    content += bytes(-len(content) % dat.PAGE)
    place, pages = len(content), _PAGES.cpus[0] * 100
    table = content.index(b"flyrecord\0") + 10
    struct.pack_into(f"<{2 * 4000}Q", content, table, *(place, len(pages)) * 4000)
    path.write_bytes(content + pages)


def _same_buffer(path: Path) -> None:
    """Ten thousand instances of as many CPUs, all in one place."""
    count = 10_000
    option = (dat.Option.BUFFER, bytes(8) + b"x\0")
    many = replace(_PAGES, cpus=dict.fromkeys(range(count), b""), options=[option] * count)
    dat.write_trace_dat(path, many, version=6)
    content = path.read_bytes()
    place = struct.pack("<Q", content.index(b"flyrecord\0"))
    path.write_bytes(content.replace(option[1], place + b"x\0"))


def _section(
    number: int, packed: Callable[[], bytes], says: int, compression: str = "zstd"
) -> Make:
    """A version 7 whose section of that number lies at its end, packed."""

    def make(path: Path) -> None:
        body = packed()
        dat.write_trace_dat(path, _PAGES, compression=compression)
        content = bytearray(path.read_bytes())
        place = len(content)
        if number == dat.Option.DONE:
            option = content.index(f"{compression}\x001.0\0".encode()) + len(compression) + 5
        else:
            option = content.index(struct.pack("<HI", number, 8)) + 6
        struct.pack_into("<Q", content, option, place)
        content += struct.pack("<HHIQII", number, 1, 0, 8 + len(body), len(body), says)
        path.write_bytes(content + body)

    return make


def _chunks(packed: Callable[[], bytes], says: int, count: int = 1) -> Make:
    """A version 7 with other chunks of pages, all alike, each with its size unpacked."""

    def make(path: Path) -> None:
        dat.write_trace_dat(path, _PAGES, compression="zstd")
        content = bytearray(path.read_bytes())
        chunk = packed()
        body = (struct.pack("<II", len(chunk), says) + chunk) * count
        described = content.index(struct.pack("<II", dat.PAGE, 1)) + 8
        struct.pack_into("<IQQ", content, described, 0, len(content), len(body))
        path.write_bytes(content + struct.pack("<I", count) + body)

    return make


CRAFTED: tuple[tuple[str, Make, str], ...] = (
    ("a long number in a flag table", _flags("1" * 300_000 + "z"), "unreadable value"),
    ("a number and a stray sign in a flag table", _flags("1" * 60 + "!"), "unreadable value"),
    ("an id of 5000 digits", _perf(free=_FREE_TEXT.replace(b"502", b"9" * 5000)), "name and ID"),
    ("fields at one place", _fields("char f[1];\toffset:0;\tsize:1", 9000), "overlap"),
    (
        "declarations of spaces",
        _fields(f"{'a' * 190}{' ' * 190}b;\toffset:8;\tsize:8", 2000),
        "overlap",
    ),
    ("a time of 2 to the 63", _late, "146 years"),
    ("ids that collide", _colliding_ids, "ids of events that no kernel gives"),
    ("records of a thousand times their size", _records(_ONE), "unpack to more than"),
    ("zstd of a gigabyte", _packed(_pack), "more than .* bytes.*unpack it first"),
    ("xz of a gigabyte", _packed(lzma.compress), "more than .* bytes.*unpack it first"),
    ("common_type far behind", _far_type, "common_type"),
    (
        "used bytes far behind",
        _header_page("commit;\toffset:8", "commit;\toffset:900000000"),
        "64-bit",
    ),
    ("times far behind", _header_page("stamp;\toffset:0", "stamp;\toffset:900000000"), "64-bit"),
    ("pages of one byte", _header_page("offset:16;\tsize:4080", "offset:0;\tsize:1"), "64-bit"),
    ("CPUs with the same pages", _same_pages, "same ones"),
    ("buffers at one place", _same_buffer, "no room for 10000 buffers"),
    (
        "a section of a gigabyte",
        _section(dat.Option.HEADER_INFO, _gigabyte, 1000),
        "another length",
    ),
    (
        "options of a gigabyte",
        _section(dat.Option.DONE, lambda: zlib.compress(bytes(9)), _UNPACKED, "zlib"),
        "unpacks to 1073741824",
    ),
    (
        "a million options",
        _section(
            dat.Option.DONE,
            lambda: zlib.compress(struct.pack("<HI", 9, 0) * 1_000_000),
            6_000_000,
            "zlib",
        ),
        "more than 131072 options",
    ),
    ("chunks of 27 TB", _chunks(bytes, 1 << 28, 100_000), "unpack to more than"),
    ("a chunk of a gigabyte", _chunks(_gigabyte, dat.PAGE), "another length"),
)
"""Name, how it is made in an event file's place, and a pattern of what is said."""
