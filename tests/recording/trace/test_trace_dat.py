"""trace.dat and raw ring-buffer pages: the same events whatever keeps them, times, losses."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace import trace_dat as ring_buffer
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from pagealloc_model.recording.trace.trace_dat import Option, read_trace_dat
from pagealloc_model.recording.trace.trace_text import read_trace_text
from tests.same_trace import differing_fields
from tests.synthetic_perf_data import ALLOC, CONTENTION, FREE, Tracepoint
from tests.trace_dat_writer import (
    START,
    Pages,
    allocation,
    event,
    page,
    pages_of,
    stats_text,
    times_of_all_kinds,
    tracepoint_texts,
    write_trace_dat,
    write_tracefs_copy,
)

SAMPLES = Path(__file__).parent / "samples"
VERSIONS = ((6, "none"), (7, "none"), (7, "zlib"), (7, "zstd"))


def read(tmp_path: Path, pages: Pages, version: int = 7, compression: str = "none") -> Trace:
    path = tmp_path / "trace.dat"
    return read_trace_dat(write_trace_dat(path, pages, version=version, compression=compression))


def one_cpu(*pages: bytes, **more: object) -> Pages:
    return Pages(cpus={0: b"".join(pages)}, **more)


@pytest.mark.parametrize("name", ["small", "overwritten", "lossy"])
@pytest.mark.parametrize(("version", "compression"), VERSIONS)
def test_a_recording_is_the_same_in_every_version(
    tmp_path: Path, name: str, version: int, compression: str
) -> None:
    path = SAMPLES / f"{name}.dat"
    recorded = read_trace_dat(path)
    assert recorded.count(Event.ALLOC) > 100 and recorded.clock == "monotonic"
    assert differing_fields(read(tmp_path, pages_of(path), version, compression), recorded) == []


@pytest.mark.parametrize("name", ["small", "overwritten", "lossy"])
def test_raw_pages_are_the_same_recording(tmp_path: Path, name: str) -> None:
    """A packed file too."""
    path = SAMPLES / f"{name}.dat"
    native = read_trace_dat(path)
    packed = tmp_path / "trace.dat.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert differing_fields(open_recording(packed).trace, native) == []
    copy = write_tracefs_copy(tmp_path / "copy", pages_of(path))
    recording = open_recording(copy)
    assert differing_fields(recording.trace, native) == []
    before = recording.sha256
    (copy / "saved_cmdlines").write_text("8 other\n")
    assert open_recording(copy).sha256 != before


@pytest.mark.parametrize("damaged", ["events/header_page", "events/kmem/mm_page_free/format"])
def test_an_error_names_the_file_that_is_damaged(tmp_path: Path, damaged: str) -> None:
    copy = write_tracefs_copy(tmp_path / "copy", pages_of(SAMPLES / "small.dat"))
    (copy / damaged).write_text("nothing of the kind\n")
    with pytest.raises(RecordingError) as raised:
        len(open_recording(copy).trace)
    assert str(raised.value).startswith(f"{copy / damaged}: ")


@pytest.mark.parametrize("name", ["small", "overwritten"])
def test_the_kernel_s_own_text_says_the_same(name: str) -> None:
    native = read_trace_dat(SAMPLES / f"{name}.dat")
    text = read_trace_text(SAMPLES / f"{name}.trace.txt.gz")
    assert np.abs(text.time_ns - native.time_ns).max() <= 1000  # the kernel rounds
    for column in set(COLUMN_TYPES) - {"time_ns", "gfp"}:
        np.testing.assert_array_equal(getattr(text, column), getattr(native, column))
    np.testing.assert_array_equal(text.gfp, native.gfp & 0xFFFFFF)
    assert text.losses.total == native.losses.total
    assert text.nr_cpus == native.nr_cpus


def test_columns_on_disk_and_outputs_that_fill_up_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = SAMPLES / "lossy.dat"
    whole = read_trace_dat(path)
    assert differing_fields(read_trace_dat(path, tmp_path), whole) == []
    monkeypatch.setattr(ring_buffer, "_SMALL_EVENT_SIZE", 1 << 20)
    monkeypatch.setattr(ring_buffer, "_PAGES_AT_A_TIME", 3)
    monkeypatch.setattr("pagealloc_model.recording.trace.side_tables._FIRST_NOTES", 600)
    assert differing_fields(read_trace_dat(path), whole) == []


def test_every_field_of_an_event(tmp_path: Path) -> None:
    second = ALLOC.raw(9, pfn=-1, order=3, gfp_flags=0x20, migratetype=1)
    contention = CONTENTION.raw(8, lock_addr=0xFFFF888000000000, flags=1)
    pages = Pages(
        cpus={
            0: page(START, event(0, allocation(0x100)), event(50, FREE.raw(7, pfn=0x100, order=0))),
            2: page(START + 20, event(0, second), event(10, contention)),
        },
        cmdlines="7 a task\n9 other\n",
    )
    trace = read(tmp_path, pages)
    assert trace.time_ns.tolist() == [START, START + 20, START + 50]
    assert trace.cpu.tolist() == [0, 2, 0] and trace.pid.tolist() == [7, 9, 7]
    assert trace.event.tolist() == [Event.ALLOC, Event.ALLOC, Event.FREE]
    assert trace.pfn.tolist() == [0x100, -1, 0x100] and trace.order.tolist() == [0, 3, 0]
    assert trace.gfp.tolist() == [0xCC0, 0x20, 0] and trace.migratetype.tolist() == [0, 1, -1]
    assert trace.in_interrupt.tolist() == [0, 0, 0]
    assert trace.comms[7] == "a task" and trace.gfp_bits["__GFP_HIGH"] == 0x20
    locks = trace.tables["lock:contention_begin"]
    assert (locks["lock_addr"].tolist(), locks["row"].tolist()) == ([0xFFFF888000000000], [2])
    assert (trace.release, trace.nr_cpus) == ("6.18.44-fc", 2)


def test_fields_lie_where_the_recording_says(tmp_path: Path) -> None:
    """Another kernel: other numbers, other offsets, a context in the first byte."""
    alloc, free = replace(ALLOC, number=31, gap=24), replace(FREE, number=1900, gap=8)
    raw = bytearray(alloc.raw(5, pfn=0x77, order=1, gfp_flags=0x40, migratetype=2))
    raw[2] = 0x10  # common_flags: in a soft interrupt
    pages = one_cpu(
        page(START, event(0, bytes(raw)), event(1, free.raw(5, pfn=0x77, order=1))),
        event_texts=tracepoint_texts(alloc, free),
    )
    trace = read(tmp_path, pages)
    assert trace.pfn.tolist() == [0x77, 0x77] and trace.gfp.tolist() == [0x40, 0]
    assert trace.in_interrupt.tolist() == [1, 0]


def test_times_of_all_kinds(tmp_path: Path) -> None:
    far = (5 << 59) + START
    expected = [START, START + (1 << 40) + 3, far, far + 77, far + 100, far + 113]
    assert read(tmp_path, one_cpu(times_of_all_kinds(far))).time_ns.tolist() == expected


def test_an_event_longer_than_a_header_can_say(tmp_path: Path) -> None:
    long = Tracepoint("sched:long", 600, (("char text[300]", 300, False),))
    pages = one_cpu(
        page(START, event(0, long.raw(7, text=b"x" * 299)), event(1, allocation(1))),
        event_texts=tracepoint_texts(ALLOC, long),
    )
    trace = read(tmp_path, pages)
    assert trace.tables["sched:long"]["text"].tolist() == ["x" * 299] and trace.pfn.tolist() == [1]


def test_losses_lie_between_the_events_of_their_cpu(tmp_path: Path) -> None:
    pages = Pages(
        cpus={
            0: page(START, event(0, allocation(1)), event(40, allocation(2)))
            + page(START + 90, event(0, allocation(3)), missed=17),
            1: page(START + 10, event(0, allocation(4)), missed=5, counted=False),
        },
        stats={0: stats_text(0, overrun=17, dropped=3), 1: stats_text(1)},
    )
    trace = read(tmp_path, pages)
    losses = trace.losses
    assert losses.cpu.tolist() == [1, 0, 0]
    assert losses.start_ns.tolist() == [START, START + 40, START + 90]
    assert losses.end_ns.tolist() == [START + 10, START + 90, START + 90]
    assert losses.count.tolist() == [1, 17, 3] and losses.at_end == 1
    assert any("did not say how many" in note for note in trace.notes)


def test_a_counter_with_its_scale_is_a_clock(tmp_path: Path) -> None:
    ticks = struct.pack("<IIQ", 3 << 20, 21, 0)
    scaled = one_cpu(
        page(2000, event(0, allocation(1)), event(10, allocation(2))),
        clock="x86-tsc",
        options=((Option.TSC2NSEC, ticks),),
    )
    assert read(tmp_path, scaled).time_ns.tolist() == [3000, 3015]
    times = np.array([(1 << 62) + 12345], np.int64)
    expected = ((1 << 62) + 12345) * 0x80000001 >> 31
    assert ring_buffer.nanoseconds(times, 0x80000001, 31).tolist() == [expected]


def test_a_clock_without_times_is_refused(tmp_path: Path) -> None:
    """Any other clock is named."""
    for clock in ("x86-tsc", "counter", "uptime"):
        with pytest.raises(RecordingError, match=f"clock {clock}.*trace_clock mono"):
            read(tmp_path, one_cpu(page(5, event(0, allocation(1))), clock=clock))
    trace = read(tmp_path, one_cpu(page(5, event(0, allocation(1))), clock="local"))
    assert trace.clock == "local" and "clock local" in trace.notes[0]


def test_an_instance_s_buffer(tmp_path: Path) -> None:
    pages = one_cpu(page(START, event(0, allocation(1))), instance="mine")
    for version, compression in VERSIONS:
        assert read(tmp_path, pages, version, compression).pfn.tolist() == [1]


def test_recordings_without_allocations(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no format data of kmem:mm_page_alloc"):
        read(tmp_path, one_cpu(page(START), event_texts=tracepoint_texts(FREE)))
    with pytest.raises(RecordingError, match="holds no kmem:mm_page_alloc event"):
        read(tmp_path, one_cpu(page(START, event(0, FREE.raw(1, pfn=1, order=0)))))
    with pytest.raises(RecordingError, match="holds no events"):
        read(tmp_path, one_cpu(b""))


def test_a_copy_of_empty_ring_buffers_says_that_tracing_was_off(tmp_path: Path) -> None:
    copy = write_tracefs_copy(tmp_path / "copy", pages_of(SAMPLES / "small.dat"))
    for pages in copy.glob("per_cpu/cpu*/trace_pipe_raw"):
        pages.write_bytes(b"")
    with pytest.raises(RecordingError, match=r"tracing was off.*echo 1 > tracing_on"):
        len(open_recording(copy).trace)


def test_damage_is_one_clear_error_or_none(tmp_path: Path) -> None:
    """Bytes changed and files cut anywhere: a RecordingError at worst."""
    rng = np.random.default_rng(1)
    path = tmp_path / "trace.dat"
    pages = pages_of(SAMPLES / "small.dat")
    for version, compression in VERSIONS:
        good = write_trace_dat(path, pages, version=version, compression=compression).read_bytes()
        refused = 0
        for _ in range(60):
            bad = bytearray(good)
            for place in rng.integers(0, len(bad), 3).tolist():
                bad[place] = int(rng.integers(0, 256))
            if rng.random() < 0.3:
                del bad[int(rng.integers(1, len(bad))) :]
            path.write_bytes(bad)
            try:
                read_trace_dat(path)
            except RecordingError as error:
                refused += 1
                assert str(path) in str(error)
        assert refused


def _with_bytes(path: Path, place: int, content: bytes) -> Path:
    data = bytearray(path.read_bytes())
    data[place : place + len(content)] = content
    path.write_bytes(data)
    return path


def test_layouts_that_are_refused_say_what_to_do(tmp_path: Path) -> None:
    pages = one_cpu(page(START, event(0, allocation(1))))
    path = tmp_path / "trace.dat"

    text = write_trace_dat(path, pages, version=6).read_bytes().index(b"flyrecord\0")
    for version, place, content, problem in (
        (6, 10, b"5", "version '5'.*trace-cmd convert"),
        (6, 12, b"\1", "big-endian or 32-bit"),
        (6, 13, b"\4", "big-endian or 32-bit"),
        (6, text, b"latency  \0", "latency tracer's text"),
        (7, 18, b"lzma", "compressed by 'lzma'.*--compression none"),
    ):
        write_trace_dat(path, pages, version=version)
        with pytest.raises(RecordingError, match=problem):
            read_trace_dat(_with_bytes(path, place, content))


def test_options_that_point_to_themselves(tmp_path: Path) -> None:
    pages = one_cpu(page(START, event(0, allocation(1))))
    path = write_trace_dat(tmp_path / "trace.dat", pages)
    first = int.from_bytes(path.read_bytes()[27:35], "little")
    size = int.from_bytes(path.read_bytes()[first + 8 : first + 16], "little")
    following = first + 16 + size - 8
    with pytest.raises(RecordingError, match="point to themselves"):
        read_trace_dat(_with_bytes(path, following, first.to_bytes(8, "little")))


@pytest.mark.parametrize("linked", ["events", "events/kmem", "per_cpu", "per_cpu/cpu0"])
def test_a_linked_directory_inside_a_copy_is_not_entered(tmp_path: Path, linked: str) -> None:
    copy = write_tracefs_copy(tmp_path / "copy", pages_of(SAMPLES / "small.dat"))
    elsewhere = (copy / linked).rename(tmp_path / "elsewhere")
    (copy / linked).symlink_to(elsewhere)
    with pytest.raises(RecordingError):
        len(open_recording(copy).trace)
