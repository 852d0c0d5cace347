"""Writes perf.data files, and takes the records out of one."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
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

COMPRESSION_LEVEL = 12
TEXT_ALIGNMENT = 64

_WINDOW_LOG = 26
_PAYLOAD_SIZE = 65528 - RECORD_HEADER_SIZE
_PAGE = 4096
_ZSTD = 1


def write_perf_data(
    path: str | Path,
    *,
    attrs: Sequence[EventAttr],
    features: Mapping[int, bytes],
    plain_records: bytes,
    records: bytes | memoryview,
    compress: bool = True,
    level: int = COMPRESSION_LEVEL,
) -> None:
    """Write a perf.data file.

    Args:
        path: the file to write; an existing one is replaced.
        attrs: the events; all must have attributes of one size.
        features: header features by number, `Feature.TRACING_DATA` among them. COMPRESSED is
            supplied here.
        plain_records: whole records that stand first and are never compressed, such as those
            perf makes up.
        records: whole records.
        compress: put `records` into zstd-compressed records.
        level: zstd level of these.

    Raises:
        ValueError: no attributes, or attributes of different sizes.
    """
    sizes = {len(attr.raw) for attr in attrs}
    if len(sizes) != 1:
        raise ValueError(f"attributes of sizes {sorted(sizes)}; all must have one")
    (attr_size,) = sizes
    features = {number: data for number, data in features.items() if number != Feature.COMPRESSED}
    if compress:
        payloads = _compress(records, level)
        body = b"".join(_compressed_record(payload) for payload in payloads)
        features[Feature.COMPRESSED] = _compressed_feature(payloads, len(records), level)
    else:
        body = bytes(records)
    ids, id_sections = _id_lists(attrs)
    attr_table = b"".join(
        attr.raw + struct.pack("<QQ", *section)
        for attr, section in zip(attrs, id_sections, strict=True)
    )
    attrs_offset = HEADER_SIZE + len(ids)
    data_offset = attrs_offset + len(attr_table)
    data_size = len(plain_records) + len(body)
    with Path(path).open("wb") as file:
        file.write(
            _header(attr_size + 16, attrs_offset, len(attr_table), data_offset, data_size, features)
        )
        file.writelines((ids, attr_table, plain_records, body))
        file.writelines(_feature_area(features, data_offset + data_size))


def text_feature(text: str) -> bytes:
    """A header feature that is one string."""
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % TEXT_ALIGNMENT)
    return struct.pack("<I", len(data)) + data


def text_list_feature(texts: Sequence[str]) -> bytes:
    """A header feature that is a counted list of strings, such as the command line."""
    return struct.pack("<I", len(texts)) + b"".join(text_feature(text) for text in texts)


def _header(
    entry_size: int,
    attrs_offset: int,
    attrs_size: int,
    data_offset: int,
    data_size: int,
    features: Iterable[int],
) -> bytes:
    bits = sum(1 << number for number in features)
    return (
        MAGIC
        + struct.pack("<QQ", HEADER_SIZE, entry_size)
        + struct.pack("<QQQQQQ", attrs_offset, attrs_size, data_offset, data_size, 0, 0)
        + bits.to_bytes(FEATURE_BITS // 8, "little")
    )


def _id_lists(attrs: Sequence[EventAttr]) -> tuple[bytes, list[tuple[int, int]]]:
    """The id lists end to end, and (offset, size) of each attribute's own in the file."""
    sections, lists = [], []
    position = HEADER_SIZE
    for attr in attrs:
        ids = struct.pack(f"<{len(attr.ids)}Q", *attr.ids)
        sections.append((position, len(ids)))
        lists.append(ids)
        position += len(ids)
    return b"".join(lists), sections


def _feature_area(features: Mapping[int, bytes], offset: int) -> list[bytes]:
    numbers = sorted(features)
    position = offset + 16 * len(numbers)
    table = []
    for number in numbers:
        table.append(struct.pack("<QQ", position, len(features[number])))
        position += len(features[number])
    return table + [features[number] for number in numbers]


def _compress(records: bytes | memoryview, level: int) -> list[bytes]:
    """One zstd frame over all records, cut into payloads of compressed records."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, window_log=_WINDOW_LOG, source_size=len(records)
    )
    frame = zstandard.ZstdCompressor(compression_params=parameters).compress(records)
    return [frame[start : start + _PAYLOAD_SIZE] for start in range(0, len(frame), _PAYLOAD_SIZE)]


def _compressed_record(payload: bytes) -> bytes:
    return struct.pack("<IHH", COMPRESSED, 0, RECORD_HEADER_SIZE + len(payload)) + payload


def _compressed_feature(payloads: Sequence[bytes], size: int, level: int) -> bytes:
    """The feature that tells perf how much room one payload's content needs."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    largest = max((len(decompressor.decompress(payload)) for payload in payloads), default=0)
    room = (largest // _PAGE + 1) * _PAGE
    ratio = size // max(sum(len(payload) for payload in payloads), 1)
    return struct.pack("<IIIII", 1, _ZSTD, level, ratio, room)


def write_tracing_data(texts: Sequence[tuple[str, bytes]], long_size: int = 8) -> bytes:
    """A tracing-data section of systems and format texts; all else is left empty."""
    systems: dict[str, list[bytes]] = {"ftrace": []}
    for system, text in texts:
        systems.setdefault(system, []).append(text)
    return b"".join(
        [
            TRACING_MAGIC + b"0.6\0" + struct.pack("<BBI", 0, long_size, _PAGE),
            b"header_page\0" + _sized(b"page"),
            b"header_event\0" + _sized(b"event"),
            _counted(systems.pop("ftrace")),
            struct.pack("<I", len(systems)),
            *(system.encode() + b"\0" + _counted(texts) for system, texts in systems.items()),
            struct.pack("<II", 0, 0) + _sized(b""),
        ]
    )


def _sized(block: bytes) -> bytes:
    return struct.pack("<Q", len(block)) + block


def _counted(blocks: list[bytes]) -> bytes:
    return struct.pack("<I", len(blocks)) + b"".join(_sized(block) for block in blocks)


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


def attr_of_sample(file: PerfFile, record: bytes) -> EventAttr:
    """The event that a sample is of."""
    of_id = {number: attr for attr in file.attrs for number in attr.ids}
    offset = part_offsets(file.attrs[0].sample_type)["identifier"]
    return of_id[int.from_bytes(record[offset : offset + 8], "little")]


def time_of_record(file: PerfFile, record: bytes) -> int:
    """When a record was made in ns, -1 where it does not say."""
    kind = int.from_bytes(record[:4], "little")
    if kind == SAMPLE:
        offset = part_offsets(file.attrs[0].sample_type)["time"]
        return int.from_bytes(record[offset : offset + 8], "little")
    if kind >= FIRST_USER_TYPE:
        return -1
    time_ns = TrailerReader(file.attrs).read(record).time_ns
    return -1 if time_ns is None else time_ns
