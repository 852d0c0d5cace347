"""The tracing-data section of a perf.data file: format text of the tracepoints recorded (T1.1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pagealloc_model.recording.trace.tracepoint_format import TracepointFormat, parse_format

_MAGIC = b"\x17\x08\x44tracing"


@dataclass(frozen=True, kw_only=True)
class TracingData:
    """What the tracing-data section holds, enough to write it again.

    Attributes:
        version: such as "0.6".
        big_endian: byte order of the raw records.
        long_size: bytes of the recorded kernel's `unsigned long`.
        page_size: bytes.
        header_page: text of the ring buffer's page header format.
        header_event: text of the ring buffer's event header format.
        event_texts: (system, format text) of each tracepoint, in file order.
        printk_formats: addresses and texts of the kernel's trace_printk formats.
        formats: tracepoint id -> its parsed format.
    """

    version: str
    big_endian: bool
    long_size: int
    page_size: int
    header_page: bytes
    header_event: bytes
    event_texts: tuple[tuple[str, bytes], ...]
    printk_formats: bytes
    formats: dict[int, TracepointFormat]


def parse_tracing_data(data: bytes) -> TracingData:
    """Parse a tracing-data section.

    Raises:
        ValueError: cut short, or not tracing data; the text says which and where.
    """
    reader = _SectionReader(data)
    if reader.take(len(_MAGIC), "magic") != _MAGIC:
        raise ValueError("no tracing data magic")
    version = reader.text("version")
    big_endian, long_size = reader.take(2, "byte order")
    page_size = reader.number("<I", "page size")
    header_page = reader.named_block(b"header_page")
    header_event = reader.named_block(b"header_event")
    event_texts = [("ftrace", block) for block in reader.blocks()]
    for _ in range(reader.number("<I", "system count")):
        system = reader.text("system name")
        event_texts += [(system, block) for block in reader.blocks()]
    reader.take(reader.number("<I", "kallsyms size"), "kallsyms")
    printk_formats = reader.take(reader.number("<I", "printk size"), "printk formats")
    formats = [parse_format(system, text.decode("latin-1")) for system, text in event_texts]
    return TracingData(
        version=version,
        big_endian=bool(big_endian),
        long_size=long_size,
        page_size=page_size,
        header_page=header_page,
        header_event=header_event,
        event_texts=tuple(event_texts),
        printk_formats=printk_formats,
        formats={tracepoint.id: tracepoint for tracepoint in formats},
    )


def write_tracing_data(tracing: TracingData) -> bytes:
    """The bytes of a tracing-data section; symbol addresses and command names are left empty."""
    systems: dict[str, list[bytes]] = {"ftrace": []}
    for system, text in tracing.event_texts:
        systems.setdefault(system, []).append(text)
    parts = [
        _MAGIC + tracing.version.encode() + b"\0",
        struct.pack("<BBI", tracing.big_endian, tracing.long_size, tracing.page_size),
        b"header_page\0" + _sized(tracing.header_page),
        b"header_event\0" + _sized(tracing.header_event),
        _counted(systems.pop("ftrace")),
        struct.pack("<I", len(systems)),
        *(system.encode() + b"\0" + _counted(texts) for system, texts in systems.items()),
        struct.pack("<II", 0, len(tracing.printk_formats)) + tracing.printk_formats,
    ]
    if tracing.version >= "0.6":
        parts.append(_sized(b""))
    return b"".join(parts)


def _sized(block: bytes) -> bytes:
    return struct.pack("<Q", len(block)) + block


def _counted(blocks: list[bytes]) -> bytes:
    return struct.pack("<I", len(blocks)) + b"".join(_sized(block) for block in blocks)


class _SectionReader:
    """Takes bounded pieces off the front of a section."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int, what: str) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ValueError(f"tracing data end inside {what} at byte {self._position}")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def number(self, layout: str, what: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout), what))[0])

    def text(self, what: str) -> str:
        end = self._data.find(b"\0", self._position)
        if end < 0:
            raise ValueError(f"tracing data end inside {what} at byte {self._position}")
        piece = self.take(end - self._position, what)
        self.take(1, what)
        return piece.decode("latin-1")

    def named_block(self, name: bytes) -> bytes:
        if self.take(len(name) + 1, name.decode()) != name + b"\0":
            raise ValueError(f"tracing data without {name.decode()}")
        return self.take(self.number("<Q", "block size"), name.decode())

    def blocks(self) -> list[bytes]:
        count = self.number("<I", "format count")
        return [self.take(self.number("<Q", "format size"), "format text") for _ in range(count)]
