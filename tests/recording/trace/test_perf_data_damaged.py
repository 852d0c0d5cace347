"""Damaged files: an error of ours in one line, or a Trace; never another exception."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import synthetic_perf_data as perf
from synthetic_perf_data import ALLOC, FREE

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.perf_data import read_perf_data


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


def test_damage_among_compressed_records(tmp_path: Path) -> None:
    """One that is cut at the end of them is left out, as perf does."""
    attr = perf.attr_of(ALLOC, [1])
    good = perf.sample(attr, ALLOC.raw(pfn=1), number=1)
    bad = struct.pack("<IHH", 9, 0, 4) + b"\0" * 4
    path = perf.write(tmp_path / "perf.data", [attr], [good, bad], compress=True)
    with pytest.raises(RecordingError, match=f"at byte {len(good)} of the decompressed records"):
        read_perf_data(path)
    perf.write(path, [attr], [good, good[:-8]], compress=True)
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
    perf.write_perf_data(tmp_path / "p", attrs=[attr], features={3: b"\0" * 8}, records=b"")
    with pytest.raises(RecordingError, match="no tracepoint format data"):
        read_perf_data(tmp_path / "p")
