import struct
from pathlib import Path

import pytest

from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.perf import default_buffer, why_unusable
from pagealloc_model.recording.record.session import Recorded, read_back, summary_lines
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.show.post import describe_recording
from tests.synthetic_perf_data import ALLOC, attr_of, record, sample, trailer, write

NOTHING_LOST = {
    "events": {"kmem:mm_page_alloc": 1000},
    "other_events": {"lock:contention_end": 34},
    "lost": 0,
    "lost_by_cpu": {},
    "provenance": [{"check": "clock", "level": "usable", "found": "one clock"}],
}


def finished(path: Path, **values: object) -> Recorded:
    usual: dict[str, object] = {
        "path": path,
        "seconds": 2.5,
        "ended_by": "command",
        "command_code": 0,
        "snapshots": 5,
        "buffer_bytes": 64 << 20,
        "missing_events": (),
        "unset_probes": (),
    }
    return Recorded(**(usual | values))  # type: ignore[arg-type]


def test_a_recording_that_lost_nothing(tmp_path: Path) -> None:
    (tmp_path / "perf.data").write_bytes(bytes(3 << 20))
    assert list(summary_lines(finished(tmp_path), NOTHING_LOST)) == [
        "command    ended with exit code 0",
        "lost       nothing",
        f"there      {tmp_path}: 2.5 s, 1,034 events, 5 snapshots, 3.0 MiB",
        "believe    can be believed: all 1 checks passed",
        f"see        pagealloc explore {tmp_path}",
    ]


@pytest.mark.parametrize(("share", "advice"), [(0.01, "--buffer 256M"), (0.9, "--buffer 1G")])
def test_losses_by_cpu_and_a_buffer_that_would_do(
    tmp_path: Path, share: float, advice: str
) -> None:
    lossy = {**NOTHING_LOST, "lost": 700, "lost_by_cpu": {"3": {"lost": 700, "share": share}}}
    text = "\n".join(summary_lines(finished(tmp_path), lossy))
    assert f"700 events: CPU 3 700 ({share:.1%})" in text
    assert advice in text


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "perf.data"
    assert why_unusable(file)
    file.write_bytes(b"PERFILE2" + bytes(96))
    assert why_unusable(file)
    write(file, [attr_of(ALLOC, [10])], [])
    assert why_unusable(file) == "was not closed by perf"
    write(file, [attr_of(ALLOC, [10])], [sample(attr_of(ALLOC, [10]), bytes(64), number=10)])
    assert why_unusable(file) == ""


def test_a_recording_that_cannot_be_read_back(tmp_path: Path) -> None:
    assert read_back(tmp_path, None) is None


def test_shares_of_losses_are_described(tmp_path: Path) -> None:
    attr = attr_of(ALLOC, [10])
    raw = ALLOC.raw(pfn=5, order=0, gfp_flags=0xC0, migratetype=0)
    samples = [sample(attr, raw, number=10, time=1000, cpu=cpu) for cpu in (0, 1, 1, 1)]
    where = trailer(attr, number=10, time=2000, cpu=1)
    lost = [record(2, struct.pack("<QQ", 10, count) + where) for count in (5, 4)]
    path = write(tmp_path / "perf.data", [attr], [*samples, *lost])
    content = describe_recording(open_recording(path))
    assert content["lost"] == 9
    assert content["lost_by_cpu"] == {"1": {"lost": 9, "share": 0.75}}


@pytest.mark.parametrize(
    ("available_kib", "size"), [(4_000_000, 32), (400_000, 4), (100, 1), (10**9, 64)]
)
def test_the_buffers_take_little_of_the_memory(
    machine: Host, available_kib: int, size: int
) -> None:
    (machine.proc / "meminfo").write_text(f"MemAvailable: {available_kib} kB\n")
    assert default_buffer(machine) == size << 20
