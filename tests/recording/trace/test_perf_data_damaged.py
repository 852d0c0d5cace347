"""Damaged files: an error of ours in one line, or a Trace; never another exception."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import synthetic_perf_data as perf
from synthetic_perf_data import ALLOC, CONTENTION, FREE

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trace.perf_file import SampleType

MUTATIONS = 120
HUGE = (0, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**64 - 8)


@pytest.fixture(params=[False, True], ids=["plain", "compressed"])
def intact(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small file with records of every kind."""
    chained = perf.USUAL_SAMPLE | SampleType.CALLCHAIN
    attrs = [
        perf.attr_of(ALLOC, [1]),
        perf.attr_of(FREE, [2]),
        perf.attr_of(CONTENTION, [3], sample_type=chained),
    ]
    records = [
        perf.comm_record(attrs[0], 5, "make"),
        perf.fork_record(attrs[0], 5, 6, time=1),
        perf.record(69, struct.pack("<9Q", 2, 1, 0, 0, 0, 2, 1, 1, 0)),
    ]
    for time in range(40):
        raw = ALLOC.raw(pfn=time, order=1, gfp_flags=0x20, migratetype=1)
        records += [
            perf.sample(attrs[0], raw, number=1, time=time),
            perf.sample(attrs[1], FREE.raw(pfn=time, order=1), number=2, time=time),
            perf.sample(attrs[2], CONTENTION.raw(lock_addr=9), number=3, time=time, chain=[4, 5]),
        ]
    lost = struct.pack("<QQ", 1, 3) + perf.trailer(attrs[0], time=41)
    records += [perf.record(2, lost), perf.record(13, lost[8:])]
    return perf.write(tmp_path / "perf.data", attrs, records, compress=request.param)


def expect_error_or_trace(path: Path) -> None:
    try:
        trace = read_perf_data(path)
    except RecordingError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
    else:
        assert isinstance(trace, Trace)


def test_any_byte_may_be_wrong(intact: Path) -> None:
    good = intact.read_bytes()
    random = np.random.default_rng(1)
    for _ in range(MUTATIONS):
        data = bytearray(good)
        for position in random.integers(0, len(data), random.integers(1, 4)):
            data[position] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.integers(256)])
        intact.write_bytes(data)
        expect_error_or_trace(intact)


def test_any_word_may_be_huge(intact: Path) -> None:
    good = intact.read_bytes()
    random = np.random.default_rng(2)
    for _ in range(MUTATIONS):
        data = bytearray(good)
        value = HUGE[random.integers(len(HUGE))]
        struct.pack_into("<Q", data, int(random.integers(0, len(data) // 8)) * 8, value)
        intact.write_bytes(data)
        expect_error_or_trace(intact)


def test_the_file_may_end_anywhere(intact: Path) -> None:
    good = intact.read_bytes()
    random = np.random.default_rng(3)
    for length in [0, 1, 15, 16, 103, 104, *random.integers(0, len(good), 60).tolist()]:
        intact.write_bytes(good[:length])
        with pytest.raises(RecordingError):
            read_perf_data(intact)


def test_the_error_says_where(tmp_path: Path) -> None:
    attr, free = perf.attr_of(ALLOC, [1]), perf.attr_of(FREE, [2])
    good = perf.sample(attr, ALLOC.raw(pfn=1), number=1)
    cases = {
        "impossible size": struct.pack("<IHH", 9, 0, 4) + b"\0" * 4,
        "does not declare": perf.sample(attr, ALLOC.raw(pfn=1), number=99),
        "shorter than its sample_type": perf.record(9, struct.pack("<QQ", 1, 0)),
        "do not fit its format": perf.sample(attr, b"\0" * 8, number=1),
        "outside its field's range": perf.sample(attr, ALLOC.raw(pfn=1, order=99), number=1),
        "cut short": good[:40],
        "type 3 is too short": perf.record(3, b"\0" * 8),
    }
    for message, bad in cases.items():
        path = perf.write(tmp_path / "perf.data", [attr, free], [good, good, bad])
        start = path.read_bytes().index(good)
        with pytest.raises(RecordingError, match=message) as caught:
            read_perf_data(path)
        assert caught.value.offset == start + 2 * len(good)
        assert caught.value.todo


def test_a_damaged_record_inside_compressed_ones(tmp_path: Path) -> None:
    attr = perf.attr_of(ALLOC, [1])
    good = perf.sample(attr, ALLOC.raw(pfn=1), number=1)
    bad = struct.pack("<IHH", 9, 0, 4) + b"\0" * 4
    path = perf.write(tmp_path / "perf.data", [attr], [good, bad], compress=True)
    with pytest.raises(RecordingError, match=f"at byte {len(good)} of the decompressed records"):
        read_perf_data(path)


def test_a_record_cut_at_the_end_of_the_compressed_ones_is_left_out(tmp_path: Path) -> None:
    attr = perf.attr_of(ALLOC, [1])
    good = perf.sample(attr, ALLOC.raw(pfn=1), number=1)
    path = perf.write(tmp_path / "perf.data", [attr], [good, good[:-8]], compress=True)
    assert len(read_perf_data(path)) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"2ELIFREP" + bytes(200), "other byte order"),
        (b"PERFILE2" + struct.pack("<Q", 16) + bytes(200), "offset 16: a record has an impossible"),
        (b"PERFILE2" + struct.pack("<Q", 16), "ends before its events are described"),
        (b"PERFILE2" + struct.pack("<5Q", 104, 144, 104, 0, 104) + bytes(100), "never finished"),
        (b"PERFILE2" + struct.pack("<Q", 90) + bytes(200), "header of 90 bytes"),
        (b"PERFILE2" + struct.pack("<6Q", 104, 3, 0, 0, 0, 8) + bytes(200), "attribute size"),
        (b"some text, not a recording", "not a perf.data file"),
        (b"", "too short"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=message):
        read_perf_data(path)


def test_a_directory_and_nothing(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="directory of perf data"):
        read_perf_data(tmp_path)
    with pytest.raises(RecordingError, match="cannot be read"):
        read_perf_data(tmp_path / "absent")


def test_no_format_data(tmp_path: Path) -> None:
    attr = perf.attr_of(ALLOC, [1])
    perf.write_perf_data(
        tmp_path / "p", attrs=[attr], features={3: b"\0" * 8}, plain_records=b"", records=b""
    )
    with pytest.raises(RecordingError, match="no tracepoint format data"):
        read_perf_data(tmp_path / "p")


def test_shipped_recording_with_wrong_bytes(shipped: Callable[[str], Path], tmp_path: Path) -> None:
    good = (shipped("xfree") / "perf.data").read_bytes()
    random = np.random.default_rng(4)
    path = tmp_path / "perf.data"
    for position in random.integers(0, len(good), 12).tolist():
        data = bytearray(good)
        data[position] ^= 0xFF
        path.write_bytes(data)
        expect_error_or_trace(path)
