"""Damaged, packed and piped files: an error of ours in one line, or a Trace."""

from __future__ import annotations

import gzip
import lzma
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.show.post import describe_recording
from tests import synthetic_perf_data as perf
from tests.same_trace import differing_fields
from tests.synthetic_perf_data import ALLOC, CONTENTION, FREE


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


ROUND = perf.record(68, b"")
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
ATTRS = [perf.attr_of(point, [n]) for n, point in enumerate((ALLOC, FREE, CONTENTION), 1)]


def alloc(time: int, cpu: int = 0) -> bytes:
    return perf.sample(ATTRS[0], ALLOC.raw(pfn=time, order=1), number=1, time=time, cpu=cpu)


def some_records(count: int = 40) -> list[bytes]:
    records = [perf.comm_record(ATTRS[0], 77, "make")]
    for time in range(1, count):
        records += [
            alloc(time),
            perf.sample(ATTRS[1], FREE.raw(pfn=time, order=1), number=2, time=time),
            perf.sample(ATTRS[2], CONTENTION.raw(lock_addr=9), number=3, time=time),
        ]
    return records


def assert_same(trace: Trace, expected: Trace) -> None:
    assert differing_fields(trace, expected) == []


@pytest.fixture
def expected(tmp_path: Path) -> Trace:
    return read_perf_data(perf.write(tmp_path / "file.data", ATTRS, some_records()))


@pytest.mark.parametrize("compression", ["none", "compressed", "padded"])
def test_a_pipe_holds_what_a_file_holds(tmp_path: Path, expected: Trace, compression: str) -> None:
    records = some_records()
    if compression != "none":
        padded = compression == "padded"
        records = [perf.compressed_records(b"".join(records), padded=padded)]
    assert_same(read_perf_data(perf.write_piped(tmp_path / "p", ATTRS, records)), expected)


def test_records_may_end_with_the_page(tmp_path: Path) -> None:
    """Nothing lies behind the last record, not even in memory."""
    path = perf.write_piped(tmp_path / "p", ATTRS, [alloc(1)])
    room = -path.stat().st_size % 4096
    perf.write_piped(tmp_path / "p", ATTRS, [perf.record(4711, bytes(room - 8)), alloc(1)])
    assert path.stat().st_size % 4096 == 0
    assert len(read_perf_data(path)) == 1


def test_trace_data_may_lie_among_the_records(tmp_path: Path) -> None:
    area = b"\xff" * 24
    aux = perf.record(71, struct.pack("<QQQIIII", len(area), 0, 0, 0, 0, 0, 0)) + area
    path = perf.write_piped(tmp_path / "p", ATTRS, [aux, alloc(1), aux, alloc(2), aux])
    assert len(read_perf_data(path)) == 2


def in_rounds() -> list[bytes]:
    """CPU 1's buffer is read after CPU 0's: an early event of its own may come a round later."""
    return [
        *[alloc(10), alloc(20), alloc(15, cpu=1), ROUND],
        *[alloc(30), alloc(40), alloc(25, cpu=1), ROUND],
        *[alloc(50), alloc(60), alloc(35, cpu=1), alloc(45, cpu=1), ROUND],
    ]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_cut_pipe_yields_what_is_certain(tmp_path: Path, compressed: bool) -> None:
    records = in_rounds()
    if compressed:
        rounds = [records[:3], records[4:7], records[8:12]]
        records = [perf.compressed_records(b"".join(records)) + ROUND for records in rounds]
    whole = perf.write_piped(tmp_path / "p", ATTRS, records)
    assert read_perf_data(whole).notes == ()
    whole.write_bytes(whole.read_bytes() + alloc(70)[:-8])
    trace = read_perf_data(whole)
    assert trace.time_ns.tolist() == [10, 15, 20, 25, 30, 35, 40]
    (note,) = trace.notes
    assert f"cut short at byte {whole.stat().st_size}" in note
    assert note in describe_recording(open_recording(whole))["missing"]


def test_a_pipe_cut_in_its_first_round_is_refused(tmp_path: Path) -> None:
    path = perf.write_piped(tmp_path / "p", ATTRS, [alloc(10), alloc(20)[:-8]])
    with pytest.raises(RecordingError, match="before any event is certain") as caught:
        read_perf_data(path)
    assert caught.value.offset == path.stat().st_size


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("write", [perf.write, perf.write_piped])
def test_archives(tmp_path: Path, expected: Trace, suffix: str, write: Callable[..., Path]) -> None:
    """Of several frames, too; one that is cut, or of the other byte order, is refused."""
    content = write(tmp_path / "p", ATTRS, some_records()).read_bytes()
    directory = tmp_path / "recording"
    directory.mkdir()
    packed = directory / f"perf.data.{suffix}"
    packed.write_bytes(PACKERS[suffix](content[:1000]) + PACKERS[suffix](content[1000:]))
    assert_same(open_recording(packed).trace, expected)
    assert open_recording(directory).event_file == packed
    assert open_recording(packed).name == "recording"
    whole = PACKERS[suffix](content)
    for length in (len(whole) - 1, len(whole) // 2):
        packed.write_bytes(whole[:length])
        with pytest.raises(RecordingError, match="not an intact compressed file"):
            read_perf_data(packed)
    packed.write_bytes(PACKERS[suffix](b"2ELIFREP" + bytes(200)))
    with pytest.raises(RecordingError, match="other byte order"):
        _ = open_recording(packed).trace


def test_an_archive_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = perf.write(tmp_path / "p", ATTRS, some_records())
    path.write_bytes(PACKERS["zst"](path.read_bytes()))
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("there is no /dev/full")
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full.open("wb"))
    with pytest.raises(RecordingError, match=r"No space left on device.*set TMPDIR"):
        read_perf_data(path)
