"""trace-cmd's own reading of trace.dat files, event by event, and recordings made right here."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from pagealloc_model.recording.trace.trace_dat import Option, read_trace_dat
from pagealloc_model.recording.trace.trace_text import read_trace_text
from tests.trace_dat_writer import (
    START,
    Pages,
    allocation,
    event,
    page,
    pages_of,
    times_of_all_kinds,
    write_trace_dat,
)

SAMPLES = Path(__file__).parent / "samples"
TRACEFS = Path("/sys/kernel/tracing")
INSTANCE = TRACEFS / f"instances/pagealloc_test_{os.getpid()}"
EVENTS = ("mm_page_alloc", "mm_page_free", "mm_page_alloc_zone_locked", "mm_page_pcpu_drain")


@pytest.fixture(scope="module")
def trace_cmd() -> str:
    """Path of the trace-cmd command; skips the test where there is none."""
    path = shutil.which("trace-cmd")
    if path is None:
        pytest.skip("the trace-cmd command is not installed (Debian: trace-cmd)")
    return path


def report_text(trace_cmd: str, path: Path) -> bytes:
    command = [trace_cmd, "report", "-t", "-i", str(path)]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def report(trace_cmd: str, path: Path) -> Trace:
    """What trace-cmd reads, through its text with nanoseconds."""
    text = path.with_suffix(".report.txt")
    text.write_bytes(report_text(trace_cmd, path))
    return read_trace_text(text)


def reported_times(trace_cmd: str, path: Path) -> list[int]:
    """Times that trace-cmd shows, in ns."""
    times = re.findall(rb"\] +(\d+)\.(\d{9}): mm_page", report_text(trace_cmd, path))
    return [int(seconds + fraction) for seconds, fraction in times]


def assert_agree(text: Trace, native: Trace) -> None:
    for name in set(COLUMN_TYPES) - {"gfp", "in_interrupt"}:
        np.testing.assert_array_equal(getattr(text, name), getattr(native, name), err_msg=name)
    np.testing.assert_array_equal(text.gfp, native.gfp & 0xFFFFFF)
    assert {name: len(table["time_ns"]) for name, table in text.tables.items()} == {
        name: len(table["time_ns"]) for name, table in native.tables.items()
    }


def losses_of(trace: Trace) -> list[tuple[int, int, int, int]]:
    losses = trace.losses
    columns = (losses.cpu, losses.start_ns, losses.end_ns, losses.count)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
@pytest.mark.parametrize("name", ["small", "overwritten", "lossy"])
@pytest.mark.parametrize(("version", "compression"), [(6, "none"), (7, "none"), (7, "zstd")])
def test_trace_cmd_reads_the_same(
    tmp_path: Path, trace_cmd: str, name: str, version: int, compression: str
) -> None:
    path = write_trace_dat(
        tmp_path / "trace.dat",
        pages_of(SAMPLES / f"{name}.dat"),
        version=version,
        compression=compression,
    )
    text, native = report(trace_cmd, path), read_trace_dat(path)
    assert_agree(text, native)
    # Where the kernel did not say how many, both count one.
    assert losses_of(text) == losses_of(native)
    assert bool(native.losses.total) == (name != "small")


def test_trace_cmd_s_conversion_is_read(tmp_path: Path, trace_cmd: str) -> None:
    path = write_trace_dat(
        tmp_path / "seven.dat", pages_of(SAMPLES / "small.dat"), compression="zstd"
    )
    converted = tmp_path / "six.dat"
    command = [trace_cmd, "convert", "--file-version", "6", "-i", str(path), "-o", str(converted)]
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    six, seven = read_trace_dat(converted), read_trace_dat(path)
    for name in COLUMN_TYPES:
        np.testing.assert_array_equal(getattr(six, name), getattr(seven, name))


@pytest.mark.parametrize(
    "pages",
    [
        Pages(cpus={0: times_of_all_kinds((1 << 58) + START)}),
        Pages(
            cpus={0: page(10**12, event(0, allocation(1)), event(10, allocation(2)))},
            clock="x86-tsc",
            options=((Option.TSC2NSEC, struct.pack("<IIQ", 3 << 20, 21, 5)),),
        ),
    ],
    ids=["times of all kinds", "a counter with its scale"],
)
def test_times(tmp_path: Path, trace_cmd: str, pages: Pages) -> None:
    path = write_trace_dat(tmp_path / "trace.dat", pages)
    assert reported_times(trace_cmd, path) == read_trace_dat(path).time_ns.tolist()


@pytest.fixture
def instance() -> Iterator[Path]:
    """A trace instance of this machine's kernel, events on; skips where that is refused."""
    try:
        INSTANCE.mkdir()
    except OSError as error:
        pytest.skip(f"no trace instance can be made here ({error.strerror})")
    try:
        (INSTANCE / "trace_clock").write_text("mono")
        (INSTANCE / "buffer_size_kb").write_text("2048")
        for name in EVENTS:
            (INSTANCE / f"events/kmem/{name}/enable").write_text("1")
    except OSError as error:
        INSTANCE.rmdir()
        pytest.skip(f"the kernel's events cannot be recorded here ({error.strerror})")
    yield INSTANCE
    INSTANCE.rmdir()


@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
def test_pages_copied_from_this_machine(instance: Path, tmp_path: Path) -> None:
    subprocess.run(["ls", "-R", "/usr/share/doc"], capture_output=True, check=True)
    (instance / "tracing_on").write_text("0")
    text = tmp_path / "trace.txt"
    text.write_bytes((instance / "trace").read_bytes())
    copy = tmp_path / "copy"
    for path in instance.glob("per_cpu/cpu*/trace_pipe_raw"):
        of_cpu = copy / "per_cpu" / path.parent.name
        of_cpu.mkdir(parents=True)
        (of_cpu / "stats").write_bytes(path.with_name("stats").read_bytes())
        with (of_cpu / "trace_pipe_raw").open("wb") as out:
            pages = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                while piece := os.read(pages, 4096):
                    out.write(piece)
            except BlockingIOError:
                pass
            finally:
                os.close(pages)
    names = ["header_page", *(f"kmem/{name}/format" for name in EVENTS)]
    for name in names:
        (copy / "events" / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / "events" / name).write_bytes((TRACEFS / "events" / name).read_bytes())
    for name in ("trace_clock", "saved_cmdlines"):
        source = instance / name if (instance / name).exists() else TRACEFS / name
        (copy / name).write_bytes(source.read_bytes())
    native, shown = open_recording(copy).trace, open_recording(text).trace
    assert native.count(Event.ALLOC) > 100 and native.clock == "monotonic"
    for name in set(COLUMN_TYPES) - {"time_ns", "gfp"}:
        np.testing.assert_array_equal(getattr(shown, name), getattr(native, name), err_msg=name)
    assert np.abs(shown.time_ns - native.time_ns).max() <= 1000
