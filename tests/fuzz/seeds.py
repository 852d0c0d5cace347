"""What the fuzzer starts from: small recordings of every kind, and where their records lie."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import zstandard

from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trace.perf_file import EventAttr, SampleType, open_perf_file
from pagealloc_model.recording.trace.trace_text import read_perf_script
from tests import synthetic_perf_data as perf
from tests.event_text import EventText
from tests.perf_data_writer import records_in, time_of_record, write_perf_data
from tests.synthetic_perf_data import ALLOC, FREE, Tracepoint

SAMPLE = 9
FINISHED_ROUND = 68
_TRACING_DATA = 66
_PIPE_HEADER = 16


class Place(NamedTuple):
    """A record's type and its bytes in the file, with data that follow it."""

    kind: int
    start: int
    end: int


def records_of(content: bytes) -> Iterator[Place]:
    """The whole records of an intact file of either layout, compressed ones as they are."""
    position, end = _PIPE_HEADER, len(content)
    if struct.unpack_from("<Q", content, 8)[0] != _PIPE_HEADER:
        position, size = struct.unpack_from("<QQ", content, 40)
        end = position + size
    while position + 8 <= end:
        kind, size = struct.unpack_from("<I2xH", content, position)
        if kind == _TRACING_DATA:
            size += -(-struct.unpack_from("<I", content, position + 8)[0] // 8) * 8
        if size < 8 or position + size > end:
            return
        yield Place(kind, position, position + size)
        position += size


TEXT = "text"
_REAL_RECORDS = 300
_ROUND = perf.record(68, b"")
_LOCK, _EXTFRAG = perf.CONTENTION, perf.EXTFRAG
_SWITCH = Tracepoint(
    "sched:sched_switch",
    504,
    (
        ("char prev_comm[16]", 16, False),
        ("__data_loc char[] name", 4, False),
        ("u8 state", 1, False),
    ),
)
_POINTS = (ALLOC, FREE, _LOCK, _SWITCH, _EXTFRAG)


def reader_of(name: str) -> Callable[[Path], Trace]:
    """The reader for a seed and for what became of it."""
    return read_perf_script if name.startswith(TEXT) else read_perf_data


def is_walkable(name: str) -> bool:
    """Whether a seed's events lie in the file as they are, neither packed nor compressed."""
    return name in ("file", "pipe", "real file", "real pipe")


def all_seeds(directory: Path, real: Path) -> dict[str, bytes]:
    seeds = _made_up(directory) | _real(directory, real)
    seeds["packed file"] = gzip.compress(seeds["file"])
    seeds["packed pipe"] = zstandard.ZstdCompressor().compress(seeds["pipe"])
    seeds["text"] = _text()
    seeds["text packed"] = gzip.compress(seeds["text"])
    return seeds


def _made_up(directory: Path) -> dict[str, bytes]:
    attrs, records = _attrs(), _records(_attrs())
    path = directory / "made up"
    rounds = b"".join(records).split(_ROUND)
    return {
        "file": perf.write(path, attrs, records, _POINTS).read_bytes(),
        "file, compressed": perf.write(path, attrs, records, _POINTS, compress=True).read_bytes(),
        "pipe": perf.write_piped(path, attrs, records, _POINTS).read_bytes(),
        **{
            f"pipe, compressed {padded}": perf.write_piped(
                path,
                attrs,
                [perf.compressed_records(each, padded=padded) + _ROUND for each in rounds],
                _POINTS,
            ).read_bytes()
            for padded in (False, True)
        },
    }


def _attrs() -> list[EventAttr]:
    usual = perf.USUAL_SAMPLE
    return [
        perf.attr_of(ALLOC, [1, 11]),
        perf.attr_of(FREE, [2], sample_type=usual | SampleType.READ, read_format=8 | 4),
        perf.attr_of(_LOCK, [3], sample_type=usual | SampleType.CALLCHAIN),
        perf.attr_of(_SWITCH, [4]),
        perf.attr_of(_EXTFRAG, [5]),
    ]


def _records(attrs: Sequence[EventAttr]) -> list[bytes]:
    """A little of everything, in six rounds over two CPUs."""
    alloc, free, lock, switch, extfrag = attrs
    records = [
        perf.comm_record(alloc, 5, "make"),
        perf.fork_record(alloc, 5, 6, time=1),
        perf.record(69, struct.pack("<9Q", 2, 1, 0, 0, 0, 11, 1, 1, 0)),
    ]
    read = struct.pack("<QQQ", 1, 7, 2)
    for number in range(24):
        time, cpu = 10 + number, number % 2
        raw = ALLOC.raw(pfn=number, order=1, gfp_flags=0x20, migratetype=1)
        freed = FREE.raw(pfn=number, order=1)
        waited = _LOCK.raw(lock_addr=9, flags=1)
        switched = _SWITCH.raw(prev_comm=b"cc1", name=struct.pack("<HH", 29, 4)) + b"abc\0"
        fell = _EXTFRAG.raw(pfn=number, alloc_order=1, fallback_order=9)
        records += [
            perf.sample(alloc, raw, number=1 + 10 * cpu, time=time, cpu=cpu),
            perf.sample(free, freed, number=2, time=time, cpu=cpu, read=read),
            perf.sample(lock, waited, number=3, time=time, cpu=cpu, chain=[4, 5, number]),
        ]
        if number % 4 == 3:
            records += [
                perf.sample(switch, switched, number=4, time=time, cpu=cpu),
                perf.sample(extfrag, fell, number=5, time=time, cpu=cpu),
                _ROUND,
            ]
    lost = struct.pack("<QQ", 1, 3) + perf.trailer(alloc, number=1, time=40)
    return [*records, perf.record(2, lost), perf.record(13, lost[8:])]


def _real(directory: Path, real: Path) -> Mapping[str, bytes]:
    """The first records of a real recording, in a file's layout and in a pipe's."""
    file = open_perf_file(real)
    records = records_in(file)[:_REAL_RECORDS]
    records.sort(key=lambda record: time_of_record(file, record))
    rounds = [
        b"".join(records[start : start + _REAL_RECORDS // 3])
        for start in range(0, _REAL_RECORDS, _REAL_RECORDS // 3)
    ]
    features = {number: file.feature(number) for number in file.features}
    piped = perf.piped(file.attrs, features, [each + _ROUND for each in rounds])
    seeds = {"real pipe": piped}
    for name, compress in (("real file", False), ("real file, compressed", True)):
        path = directory / name
        write_perf_data(
            path, attrs=file.attrs, features=features, records=b"".join(rounds), compress=compress
        )
        seeds[name] = path.read_bytes()
    return seeds


def _text() -> bytes:
    text = EventText()
    for number in range(12):
        text.on(number % 2, pid=number % 3, comm=f"task {number % 3}")
        text.alloc(number if number % 5 else -1, order=number % 4, gfp="GFP_KERNEL|__GFP_COMP")
        text.locked(number, number + 1)
        text.drained(number)
        text.fallback(number, found=9, owned=1)
        text.free(number)
        text.event("lock:contention_begin", f"{0xFFFF888100000000 + number:#x} (flags=SPIN)")
        text.event("vmscan:mm_vmscan_direct_reclaim_begin", "order=0 gfp_flags=GFP_KERNEL|0x40000")
    head = ["# os release : 6.12.0", "# nrcpus online : 2"]
    chain = ["\tffffffff8161aa92 rmqueue+0x562 ([kernel.kallsyms])", ""]
    lost = ["swapper 0 [001] 2.000000: PERF_RECORD_LOST lost 5"]
    return "\n".join([*head, *text.lines[:9], *chain, *text.lines[9:], *lost, ""]).encode()
