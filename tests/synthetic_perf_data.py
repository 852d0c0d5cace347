"""Hand-made perf.data files: formats, attributes, samples and other records, byte by byte."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

from pagealloc_model.recording.trace.perf_file import (
    AttrFlag,
    EventAttr,
    Feature,
    SampleType,
    parse_attr,
)
from tests.perf_data_writer import text_feature, write_perf_data, write_tracing_data

HOSTNAME, CMDLINE = 3, 11
USUAL_SAMPLE = (
    SampleType.IP
    | SampleType.TID
    | SampleType.TIME
    | SampleType.CPU
    | SampleType.PERIOD
    | SampleType.RAW
    | SampleType.IDENTIFIER
)
USUAL_FLAGS = AttrFlag.SAMPLE_ID_ALL | AttrFlag.USE_CLOCKID
GFP_PRINT_FMT = (
    '"gfp_flags=%s", __print_flags(REC->gfp_flags, "|", '
    "{( unsigned long)((( gfp_t)(((((1UL))) << (10))|((((1UL))) << (11)))) | "
    '(( gfp_t)((((1UL))) << (6))) | (( gfp_t)0x80u)), "GFP_KERNEL"}, '
    '{(unsigned long)(( gfp_t)((((1UL))) << (5))), "__GFP_HIGH"}, { 0, ((void *)0) } )'
)

Declared = tuple[str, int, bool]  # C declaration, size in bytes, signed

PFN: Declared = ("unsigned long pfn", 8, False)
ORDER: Declared = ("unsigned int order", 4, False)
MIGRATETYPE: Declared = ("int migratetype", 4, True)
COMMON: tuple[Declared, ...] = (
    ("unsigned short common_type", 2, False),
    ("unsigned char common_flags", 1, False),
    ("unsigned char common_preempt_count", 1, False),
    ("int common_pid", 4, True),
)


@dataclass(frozen=True)
class Tracepoint:
    """A tracepoint whose fields lie end to end, aligned, after `gap` unused bytes."""

    name: str
    number: int
    declared: Sequence[Declared]
    gap: int = 0
    print_fmt: str = '""'

    @property
    def offsets(self) -> dict[str, tuple[int, int, bool]]:
        """Field name -> offset, size, signed."""
        places, position = {}, 8 + self.gap
        for declaration, size, signed in self.declared:
            align = min(size, 8) if size in (1, 2, 4, 8) else 1
            position = -(-position // align) * align
            words = re.findall(r"\w+", declaration)
            name = next(word for word in reversed(words) if not word.isdecimal())
            places[name] = (position, size, signed)
            position += size
        return places

    @property
    def text(self) -> str:
        """What the kernel's `format` file would say."""
        lines = [f"name: {self.name.split(':')[1]}", f"ID: {self.number}", "format:"]
        position = 0
        for declaration, size, signed in COMMON:
            lines.append(_field_line(declaration, position, size, signed))
            position += size
        lines.append("")
        for (declaration, _, _), place in zip(self.declared, self.offsets.values(), strict=True):
            lines.append(_field_line(declaration, *place))
        return "\n".join([*lines, "", f"print fmt: {self.print_fmt}", ""])

    def raw(self, pid: int = 0, **values: int | bytes) -> bytes:
        """The raw data of one event; bytes are copied as they are."""
        size = max((offset + size for offset, size, _ in self.offsets.values()), default=8)
        data = bytearray(size)
        struct.pack_into("<HBBi", data, 0, self.number, 0, 0, pid)
        for name, value in values.items():
            offset, size, signed = self.offsets[name]
            if isinstance(value, int):
                value = value.to_bytes(size, "little", signed=signed or value < 0)
            data[offset : offset + size] = value.ljust(size, b"\0")
        return bytes(data)


ALLOC = Tracepoint(
    "kmem:mm_page_alloc",
    501,
    (PFN, ORDER, ("unsigned long gfp_flags", 8, False), MIGRATETYPE),
    print_fmt=GFP_PRINT_FMT,
)
PRINTED_ALLOC = replace(
    ALLOC,
    print_fmt='"page=%p pfn=0x%lx order=%d migratetype=%d gfp_flags=%s", REC->pfn, REC->pfn, '
    "REC->order, REC->migratetype, " + GFP_PRINT_FMT.partition(", ")[2],
)
"""An allocation whose text perf prints in full."""
FREE = Tracepoint("kmem:mm_page_free", 502, (PFN, ORDER))
CONTENTION = Tracepoint(
    "lock:contention_begin", 503, (("void * lock_addr", 8, False), ("unsigned int flags", 4, False))
)
CONTENDED_RELEASE = Tracepoint("lock:contended_release", 504, (("void * lock_addr", 8, False),))
REFILL = Tracepoint("kmem:mm_page_pcpu_refill", 505, (PFN, ORDER, MIGRATETYPE))
DRAIN = Tracepoint("kmem:mm_page_pcpu_drain", 506, (PFN, ORDER, MIGRATETYPE))
REMOVAL = Tracepoint(
    "kmem:mm_page_alloc_zone_locked", 507, (PFN, ORDER, MIGRATETYPE, ("int percpu_refill", 4, True))
)
_FALLBACK = (
    "alloc_order",
    "fallback_order",
    "alloc_migratetype",
    "fallback_migratetype",
    "change_ownership",
)
EXTFRAG = Tracepoint(
    "kmem:mm_page_alloc_extfrag", 511, (PFN, *((f"int {name}", 4, True) for name in _FALLBACK))
)
_ZONE_LOCK: tuple[Declared, ...] = (
    ("int node_id", 4, True),
    ("char name[16]", 16, False),
    ("int count", 4, True),
    ("void * caller", 8, False),
)
ZONE_CONTENDED = Tracepoint("kmem:mm_zone_lock_contended", 508, _ZONE_LOCK)
ZONE_LOCKED = Tracepoint(
    "kmem:mm_zone_locked",
    509,
    (*_ZONE_LOCK, ("bool contended", 1, False), ("u64 wait_ns", 8, False)),
)
ZONE_UNLOCK = Tracepoint("kmem:mm_zone_lock_unlock", 510, _ZONE_LOCK)


def _field_line(declaration: str, offset: int, size: int, signed: bool) -> str:
    return f"\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{int(signed)};"


def attr_of(
    tracepoint: Tracepoint,
    ids: Sequence[int] = (),
    *,
    sample_type: SampleType = USUAL_SAMPLE,
    read_format: int = 0,
    flags: AttrFlag = USUAL_FLAGS,
    period: int = 1,
    clockid: int = 1,
) -> EventAttr:
    """The attribute that perf record makes for a tracepoint."""
    raw = struct.pack(
        "<IIQQQQQ", 2, 128, tracepoint.number, period, sample_type, read_format, flags
    ).ljust(92, b"\0")
    return parse_attr((raw + struct.pack("<i", clockid)).ljust(128, b"\0"), tuple(ids))


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    """One record with its header, padded to a multiple of 8."""
    body += b"\0" * (-len(body) % 8)
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def sample(
    attr: EventAttr,
    raw: bytes,
    *,
    number: int = 0,
    time: int = 0,
    cpu: int = 0,
    tid: int = 77,
    chain: Sequence[int] = (),
    read: bytes = b"",
    tail: bytes = b"",
) -> bytes:
    """A PERF_RECORD_SAMPLE in the order perf_event_open(2) gives."""
    kind = attr.sample_type
    parts = [
        (SampleType.IDENTIFIER, struct.pack("<Q", number)),
        (SampleType.IP, struct.pack("<Q", 0xFFFFFFFF81234560)),
        (SampleType.TID, struct.pack("<II", 70, tid)),
        (SampleType.TIME, struct.pack("<Q", time)),
        (SampleType.ADDR, struct.pack("<Q", 1)),
        (SampleType.ID, struct.pack("<Q", number)),
        (SampleType.STREAM_ID, struct.pack("<Q", 9)),
        (SampleType.CPU, struct.pack("<II", cpu, 0)),
        (SampleType.PERIOD, struct.pack("<Q", 1)),
        (SampleType.READ, read),
        (SampleType.CALLCHAIN, struct.pack(f"<Q{len(chain)}Q", len(chain), *chain)),
        (SampleType.RAW, _raw_part(raw)),
    ]
    return record(9, b"".join(data for bit, data in parts if kind & bit) + tail)


def _raw_part(raw: bytes) -> bytes:
    padded = raw + b"\0" * (-(len(raw) + 4) % 8)
    return struct.pack("<I", len(padded)) + padded


def trailer(attr: EventAttr, *, number: int = 0, time: int = 0, cpu: int = 0) -> bytes:
    """The sample_id_all part that ends other records."""
    kind = attr.sample_type
    parts = [
        (SampleType.TID, struct.pack("<II", 70, 77)),
        (SampleType.TIME, struct.pack("<Q", time)),
        (SampleType.ID, struct.pack("<Q", number)),
        (SampleType.STREAM_ID, struct.pack("<Q", 9)),
        (SampleType.CPU, struct.pack("<II", cpu, 0)),
        (SampleType.IDENTIFIER, struct.pack("<Q", number)),
    ]
    return b"".join(data for bit, data in parts if kind & bit)


def comm_record(attr: EventAttr, tid: int, name: str, **where: int) -> bytes:
    """A PERF_RECORD_COMM."""
    text = name.encode()
    text += b"\0" * (8 - len(text) % 8)
    return record(3, struct.pack("<II", tid, tid) + text + trailer(attr, **where))


def fork_record(attr: EventAttr, parent: int, tid: int, time: int) -> bytes:
    """A PERF_RECORD_FORK."""
    body = struct.pack("<IIIIQ", tid, parent, tid, parent, time)
    return record(7, body + trailer(attr, time=time))


def features_of(tracepoints: Sequence[Tracepoint]) -> Mapping[int, bytes]:
    """The header features every file here has."""
    texts = [(point.name.split(":")[0], point.text.encode()) for point in tracepoints]
    return {
        Feature.TRACING_DATA: write_tracing_data(texts),
        HOSTNAME: text_feature("workbench"),
        Feature.OSRELEASE: text_feature("6.12.0-synthetic"),
        Feature.NRCPUS: struct.pack("<II", 8, 4),
        CMDLINE: struct.pack("<I", 1) + text_feature("/home/me/perf"),
    }


def write(
    path: Path,
    attrs: Sequence[EventAttr],
    records: Sequence[bytes],
    tracepoints: Sequence[Tracepoint] = (ALLOC, FREE, CONTENTION),
    *,
    compress: bool = False,
) -> Path:
    """Write a file of these records."""
    write_perf_data(
        path,
        attrs=attrs,
        features=features_of(tracepoints),
        records=b"".join(records),
        compress=compress,
    )
    return path


def write_piped(
    path: Path,
    attrs: Sequence[EventAttr],
    records: Sequence[bytes],
    tracepoints: Sequence[Tracepoint] = (ALLOC, FREE, CONTENTION),
) -> Path:
    """Write the same in the layout of a pipe; what is compressed comes as records of its own."""
    path.write_bytes(piped(attrs, features_of(tracepoints), records))
    return path


def piped(
    attrs: Sequence[EventAttr], features: Mapping[int, bytes], records: Sequence[bytes]
) -> bytes:
    """Attributes, features and records in the layout of a pipe."""
    formats = features[Feature.TRACING_DATA]
    formats_size = struct.pack("<I", len(formats))
    others = {number: data for number, data in features.items() if data is not formats}
    head = [
        struct.pack("<8sQ", b"PERFILE2", 16),
        *[record(64, attr.raw + struct.pack(f"<{len(attr.ids)}Q", *attr.ids)) for attr in attrs],
        *[record(80, struct.pack("<Q", number) + data) for number, data in others.items()],
        record(66, formats_size) + formats + b"\0" * (-len(formats) % 8),
    ]
    return b"".join([*head, *records])


def compressed_records(content: bytes, *, padded: bool = False) -> bytes:
    """Records as one zstd frame in two compressed records, which may be the padded kind."""
    frame = zstandard.ZstdCompressor().compress(content)
    halves = (frame[: len(frame) // 2], frame[len(frame) // 2 :])
    if padded:
        return b"".join(record(83, struct.pack("<Q", len(half)) + half) for half in halves)
    return b"".join(struct.pack("<IHH", 81, 0, 8 + len(half)) + half for half in halves)
