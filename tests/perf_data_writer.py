"""Writes perf.data files, and takes the records out of one."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import zstandard

from pagealloc_model.recording.trace.formats import TRACING_MAGIC
from pagealloc_model.recording.trace.layout import part_offsets
from pagealloc_model.recording.trace.perf_data import TrailerReader
from pagealloc_model.recording.trace.perf_file import (
    COMPRESSED,
    COMPRESSED2,
    FEATURE_BITS,
    HEADER_SIZE,
    MAGIC,
    RECORD_HEADER_SIZE,
    DecompressedRecords,
    EventAttr,
    Feature,
    PerfFile,
    RecordBuffer,
    Section,
    compressed_payload,
    walk_file,
)

SAMPLE = 9
FIRST_USER_TYPE = 64
_PAYLOAD_SIZE = 65528 - RECORD_HEADER_SIZE
_PAGE = 4096
_ZSTD = 1


def write_perf_data(
    path: str | Path,
    *,
    attrs: Sequence[EventAttr],
    features: Mapping[int, bytes],
    records: bytes,
    compress: bool = True,
) -> None:
    """Write a perf.data file.

    Args:
        path: the file to write; an existing one is replaced.
        attrs: the events; all must have attributes of one size.
        features: header features by number, without COMPRESSED.
        records: whole records.
        compress: put them into zstd-compressed records.
    """
    (attr_size,) = {len(attr.raw) for attr in attrs}
    features = {number: data for number, data in features.items() if number != Feature.COMPRESSED}
    if compress:
        frame, size = zstandard.ZstdCompressor().compress(records), len(records)
        cuts = range(0, len(frame), _PAYLOAD_SIZE)
        payloads = [frame[start : start + _PAYLOAD_SIZE] for start in cuts]
        records = b"".join(
            struct.pack("<IHH", COMPRESSED, 0, RECORD_HEADER_SIZE + len(each)) + each
            for each in payloads
        )
        ratio = size // max(len(frame), 1)
        features[Feature.COMPRESSED] = struct.pack("<5I", 1, _ZSTD, 3, ratio, size + _PAGE)
    ids = [struct.pack(f"<{len(attr.ids)}Q", *attr.ids) for attr in attrs]
    table, position = b"", HEADER_SIZE
    for attr, of_attr in zip(attrs, ids, strict=True):
        table += attr.raw + struct.pack("<QQ", position, len(of_attr))
        position += len(of_attr)
    start = position + len(table)
    places = (position, len(table), start, len(records), 0, 0)
    bits = sum(1 << number for number in features)
    header = MAGIC + struct.pack("<8Q", HEADER_SIZE, attr_size + 16, *places)
    behind, texts = b"", [features[number] for number in sorted(features)]
    position = start + len(records) + 16 * len(texts)
    for text in texts:
        behind += struct.pack("<QQ", position, len(text))
        position += len(text)
    content = (header, bits.to_bytes(FEATURE_BITS // 8, "little"), *ids, table, records, behind)
    Path(path).write_bytes(b"".join([*content, *texts]))


def text_feature(text: str) -> bytes:
    data = text.encode().ljust(len(text) // 64 * 64 + 64, b"\0")
    return struct.pack("<I", len(data)) + data


def write_tracing_data(texts: Sequence[tuple[str, bytes]]) -> bytes:
    """A tracing-data section of systems and format texts; all else is left empty."""
    start = TRACING_MAGIC + b"0.6\0" + struct.pack("<BBI", 0, 8, _PAGE)
    parts = (start, header_texts(b"page", b"event"), *format_texts(texts))
    return b"".join(parts) + struct.pack("<II", 0, 0) + _sized(b"")


def header_texts(page: bytes, event: bytes) -> bytes:
    """Formats of the ring buffer's pages and of what precedes an event."""
    return b"header_page\0" + _sized(page) + b"header_event\0" + _sized(event)


def format_texts(texts: Sequence[tuple[str, bytes]]) -> tuple[bytes, bytes]:
    """System and format text of ftrace's own events, and of all others."""
    systems: dict[str, list[bytes]] = {"ftrace": []}
    for system, text in texts:
        systems.setdefault(system, []).append(text)
    ftrace, *others = (
        struct.pack("<I", len(blocks)) + b"".join(map(_sized, blocks))
        for blocks in systems.values()
    )
    names = [name.encode() + b"\0" for name in systems if name != "ftrace"]
    described = b"".join(name + blocks for name, blocks in zip(names, others, strict=True))
    return ftrace, struct.pack("<I", len(names)) + described


def _sized(block: bytes) -> bytes:
    return struct.pack("<Q", len(block)) + block


def records_in(file: PerfFile) -> list[bytes]:
    """All records in the file's order; compressed ones are replaced by what they hold."""
    records: list[bytes] = []
    payloads: list[Section] = []

    def take(buffer: RecordBuffer) -> int:
        data, position = buffer.data[: buffer.end].tobytes(), buffer.start
        while position + RECORD_HEADER_SIZE <= len(data):
            kind, _, size = struct.unpack_from("<IHH", data, position)
            if position + size > len(data):
                break
            if kind in (COMPRESSED, COMPRESSED2):
                place = buffer.offset + position
                payloads.append(compressed_payload(file, kind, place, size))
            else:
                records.append(data[position : position + size])
            position += size
        return position

    walk_file(file, take)
    DecompressedRecords(file, take).add(payloads, last=True)
    return records


def time_of_record(file: PerfFile, record: bytes) -> int:
    """When a record was made in ns, -1 where it does not say."""
    kind = int.from_bytes(record[:4], "little")
    if kind == SAMPLE:
        offset = part_offsets(file.attrs[0].sample_type)["time"]
        return int.from_bytes(record[offset : offset + 8], "little")
    if kind >= FIRST_USER_TYPE:
        return -1
    _, time_ns, _, _ = TrailerReader(file.attrs).read(record)
    return -1 if time_ns is None else time_ns
