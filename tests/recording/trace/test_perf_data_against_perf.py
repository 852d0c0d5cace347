"""Every event against what `perf script` prints; perf.data, archives and that text agree."""

from __future__ import annotations

import gzip
import lzma
import re
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import zstandard

from pagealloc_model.recording.trace.columns import COLUMN_TYPES, EVENT_NAMES, Event, Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trace.perf_file import EventAttr
from pagealloc_model.recording.trace.trace_text import read_perf_script
from tests import synthetic_perf_data as perf
from tests.event_text import gfp_from_names
from tests.real_recordings import record_file, record_pipe

SHIPPED = ("kbuild", "xfree", "highatomic_stock")
FULL = ("kbuild", "xfree", "exit_lossy", "small", "defrag72")

_LINE = re.compile(
    r"^\s*(?P<comm>.*?)\s+(?P<tid>-?\d+)\s+\[(?P<cpu>\d+)\]\s+(?P<seconds>\d+)\.(?P<ns>\d{9}):"
    r"\s+(?P<event>\w+:\w+):\s?(?P<text>.*)$"
)
_FIELD = re.compile(r"(\w+)=(\S+)")
_NAMED = re.compile(r"\s(\d+)\.(\d{9}): PERF_RECORD_COMM(?: exec)?: (.*):\d+/(\d+)$")
NAMED = "PERF_RECORD_COMM"


class Line(NamedTuple):
    comm: str
    tid: int
    cpu: int
    time_ns: int
    event: str
    text: str


def perf_lines(command: str, path: Path) -> Iterator[Line]:
    arguments = [command, "script", "-i", str(path), "--ns", "--show-task-events", "-F"]
    arguments.append("comm,tid,cpu,time,event,trace")
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for text in process.stdout:
            match = _LINE.match(text.rstrip("\n"))
            if named := _NAMED.search(text.rstrip("\n")):
                time_ns = int(named[1]) * 10**9 + int(named[2])
                yield Line(named[3], int(named[4]), -1, time_ns, NAMED, "")
                continue
            if match is None:
                assert not any(f" {name}:" in text for name in EVENT_NAMES), text
                continue
            yield Line(
                match["comm"],
                int(match["tid"]),
                int(match["cpu"]),
                int(match["seconds"]) * 10**9 + int(match["ns"]),
                match["event"],
                match["text"],
            )


def lines_by_time(command: str, path: Path) -> Iterator[Line]:
    """Lines of perf by time: it flushes late events of a CPU as they come, and warns of them."""
    lines = list(perf_lines(command, path))
    by_time = sorted(lines, key=lambda line: line.time_ns)
    times = [line.time_ns for line in lines if line.event != NAMED]
    if times != sorted(times):
        script = [command, "script", "-i", str(path)]
        done = subprocess.run(script, capture_output=True, check=False, timeout=60)
        assert "out of order events recorded" in done.stderr.decode()
    return iter(by_time)


def check_all(trace: Trace, lines: Iterator[Line]) -> None:
    """Compare all rows and tables with all lines, in order."""
    names = [name for name in COLUMN_TYPES if name != "in_interrupt"]
    recorded = list(zip(*(getattr(trace, name).tolist() for name in names), strict=True))
    gfp = cache(lambda text: gfp_from_names(text, trace.gfp_bits))
    rows, next_of_table = 0, dict.fromkeys(trace.tables, 0)
    thread_names = {}
    for line in lines:
        thread_names[line.tid] = line.comm
        event = EVENT_NAMES.get(line.event)
        if line.event in trace.tables:
            check_table_row(trace, line, next_of_table[line.event], rows)
            next_of_table[line.event] += 1
        if event is None:
            continue
        printed = dict(_FIELD.findall(line.text))
        prefix = "alloc_" if event is Event.EXTFRAG else ""
        failed = event is Event.ALLOC and printed["page"] in ("(nil)", "(null)")
        typed = event not in (Event.FREE, Event.FREE_BATCHED)
        expected = (
            *(line.time_ns, line.cpu, line.tid, event),
            -1 if failed else int(printed["pfn"], 16),
            int(printed[f"{prefix}order"]),
            gfp(printed["gfp_flags"]) if event is Event.ALLOC else 0,
            int(printed[f"{prefix}migratetype"]) if typed else -1,
            int(printed["percpu_refill"]) if event is Event.ZONE_LOCKED else -1,
        )
        assert recorded[rows] == expected
        rows += 1
    assert rows == len(trace)
    # perf calls threads of which it saw no name ":TID".
    assert thread_names == {tid: trace.comms.get(tid, f":{tid}") for tid in thread_names}
    assert next_of_table == {name: len(table["row"]) for name, table in trace.tables.items()}


def check_table_row(trace: Trace, line: Line, index: int, main_rows: int) -> None:
    table = trace.tables[line.event]
    assert table["row"][index] == main_rows
    key = (table["time_ns"][index], table["cpu"][index], table["pid"][index])
    assert key == (line.time_ns, line.cpu, line.tid)
    for name, printed in _FIELD.findall(line.text):
        column = table.get(f"{name}_field", table.get(name))
        if column is None or not re.fullmatch(r"-?\d+|0x[0-9a-f]+", printed):
            continue
        assert int(column[index]) == int(printed, 0) or signed(column[index]) == int(printed, 0)
    if line.event == "lock:contention_begin":
        assert int(table["lock_addr"][index]) == int(line.text.split()[0], 16)


def signed(value: np.generic) -> int:
    """The value as perf prints an unsigned field with %d."""
    bits = 8 * value.dtype.itemsize
    return int(value) - (1 << bits if int(value) >> (bits - 1) else 0)


@pytest.mark.perf
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recordings(name: str, shipped: Callable[[str], Path], perf_command: str) -> None:
    path = shipped(name) / "perf.data"
    check_all(read_perf_data(path), perf_lines(perf_command, path))


@pytest.mark.perf
@pytest.mark.long
@pytest.mark.parametrize("name", FULL)
def test_full_recordings(
    name: str, full_recording: Callable[[str], Path], perf_command: str
) -> None:
    path = full_recording(name) / "perf.data"
    check_all(read_perf_data(path), perf_lines(perf_command, path))


@pytest.mark.perf
def test_losses_are_what_perf_reports(
    full_recording: Callable[[str], Path], perf_command: str
) -> None:
    path = full_recording("exit_lossy") / "perf.data"
    assert read_perf_data(path).losses.total == lost_by_perf(perf_command, path)


def lost_by_perf(perf_command: str, path: Path) -> int:
    """Events lost, by the kernel's count of each event."""
    report = subprocess.run(
        [perf_command, "report", "--stats", "-i", str(path)], capture_output=True, text=True
    ).stdout
    per_event = report.split("stats:", 2)[2]
    return sum(int(count) for count in re.findall(r"LOST_SAMPLES events:\s+(\d+)", per_event))


_BOTH = ("-e", "kmem:mm_page_alloc", "-e", "kmem:mm_page_free")


@pytest.mark.perf
@pytest.mark.parametrize("options", [_BOTH[:2], ("-z", *_BOTH)], ids=" ".join)
def test_ways_to_record_through_a_pipe(
    tmp_path: Path, perf_command: str, options: tuple[str, ...]
) -> None:
    path = record_pipe(perf_command, tmp_path / "perf.data", "-a", *options)
    assert_main_events_agree(perf_command, path)


@pytest.mark.perf
@pytest.mark.parametrize(
    "options",
    [
        ("-a", *_BOTH[:2]),
        ("-a", *_BOTH),
        ("-a", "-g", *_BOTH),
        ("-a", "-d", *_BOTH),
        ("-a", "-e", "{kmem:mm_page_alloc,sched:sched_switch}:S"),
        ("-a", "-k", "CLOCK_MONOTONIC", "-z", "-e", "kmem:*"),
        _BOTH,
        ("-a", "-e", "kmem:mm_page_alloc", "-e", "sched:sched_switch", "-e", "cpu-clock"),
    ],
    ids=" ".join,
)
def test_ways_to_record(tmp_path: Path, perf_command: str, options: tuple[str, ...]) -> None:
    path = record_file(perf_command, tmp_path / "perf.data", *options)
    assert_main_events_agree(perf_command, path)


def assert_main_events_agree(perf_command: str, path: Path) -> None:
    trace = read_perf_data(path)
    assert trace.count(Event.ALLOC) > 0
    main = [line for line in lines_by_time(perf_command, path) if line.event in EVENT_NAMES]
    assert trace.time_ns.tolist() == [line.time_ns for line in main]
    assert trace.cpu.tolist() == [line.cpu for line in main]
    assert trace.event.tolist() == [EVENT_NAMES[line.event] for line in main]


@pytest.mark.perf
@pytest.mark.parametrize("fixture", ["recorded", "piped"])
def test_a_recording_just_made(
    request: pytest.FixtureRequest, perf_command: str, fixture: str
) -> None:
    path = request.getfixturevalue(fixture)
    check_all(read_perf_data(path), lines_by_time(perf_command, path))


@pytest.mark.perf
def test_losses_of_a_recording_just_made(lossy: Path, perf_command: str) -> None:
    losses = read_perf_data(lossy).losses
    assert losses.total == lost_by_perf(perf_command, lossy)
    assert set(losses.cpu.tolist()) <= set(range(4096))
    assert (losses.start_ns <= losses.end_ns).all()


STABLE_GFP = 0xFFFFFF
MICROSECOND = 1000
FIELDS = (
    (),
    ("--ns",),
    ("-F", "comm,pid,tid,cpu,time,event,trace"),
    ("-F", "tid,cpu,time,event,trace"),
    ("-F", "-comm"),
    ("-F", "+misc"),
    ("-F", "+period,+flags"),
    ("-F", "+ip,+sym,+symoff,+dso"),
    ("-F", "comm,tid,cpu,time,event,ip,trace"),
    ("-F", "comm,tid,cpu,time,event,sym,trace"),
    ("-G",),
    ("--header",),
    ("--ns", "--show-task-events", "--show-mmap-events", "--show-lost-events"),
)
PACKERS: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    partial(lzma.compress, preset=0),
    zstandard.ZstdCompressor().compress,
)


def script_text(perf_command: str, path: Path, *options: str) -> bytes:
    command = [perf_command, "script", "-i", str(path), *options]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def assert_same_events(text: Trace, native: Trace, *, ns: bool) -> None:
    unit = 1 if ns else MICROSECOND
    np.testing.assert_array_equal(text.time_ns // unit, native.time_ns // unit)
    for name in set(COLUMN_TYPES) - {"time_ns", "gfp", "in_interrupt"}:
        np.testing.assert_array_equal(getattr(text, name), getattr(native, name), err_msg=name)
    np.testing.assert_array_equal(text.gfp, native.gfp & STABLE_GFP)


@pytest.mark.perf
@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
@pytest.mark.parametrize(
    ("layout", "fields"),
    [*(("recorded", field) for field in FIELDS), ("piped", FIELDS[0]), ("piped", FIELDS[7])],
)
def test_fields_of_perf_script(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    perf_command: str,
    layout: str,
    fields: tuple[str, ...],
) -> None:
    path = request.getfixturevalue(layout)
    native = read_perf_data(path)
    assert native.count(Event.ALLOC) > 100
    file = tmp_path / "script.txt"
    file.write_bytes(script_text(perf_command, path, *fields))
    text = read_perf_script(file)
    assert_same_events(text, native, ns="--ns" in fields)
    locks = native.tables.get("lock:contention_begin", {"lock_addr": np.zeros(0)})["lock_addr"]
    if len(locks):
        shown = text.tables["lock:contention_begin"]["lock_addr"]
        np.testing.assert_array_equal(shown, locks)


@pytest.mark.perf
@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
def test_text_places_losses_as_the_recording_does(tmp_path: Path, perf_command: str) -> None:
    alloc = perf.attr_of(perf.PRINTED_ALLOC, [1])
    records = [
        *(_allocated(alloc, at_ns) for at_ns in range(10_001, 10_051)),
        *(_lost(alloc, count, at_ns) for count, at_ns in ((3, 10_052), (5, 10_053))),
        *(_allocated(alloc, at_ns) for at_ns in range(10_301, 10_400)),
        _lost(alloc, 7, 10_400),
    ]
    path = perf.write(tmp_path / "perf.data", [alloc], records, [perf.PRINTED_ALLOC])
    file = tmp_path / "script.txt"
    file.write_bytes(script_text(perf_command, path, "--ns", "--show-lost-events"))
    text, native = read_perf_script(file).losses, read_perf_data(path).losses
    for name in ("cpu", "end_ns", "count"):
        np.testing.assert_array_equal(getattr(text, name), getattr(native, name), err_msg=name)
    four_events = 4 * 2  # text has a loss begin with the fifth event before it
    np.testing.assert_array_equal(text.start_ns + four_events, native.start_ns)
    assert native.start_ns.tolist() == [10_050, 10_049, 10_398]


def _allocated(attr: EventAttr, at_ns: int) -> bytes:
    """An allocation on the CPU that is busy at even or at odd times."""
    raw = perf.PRINTED_ALLOC.raw(pfn=at_ns, gfp_flags=0x20)
    return perf.sample(attr, raw, number=1, time=at_ns, cpu=at_ns % 2)


def _lost(attr: EventAttr, count: int, at_ns: int) -> bytes:
    """A PERF_RECORD_LOST of that CPU."""
    where = perf.trailer(attr, number=1, time=at_ns, cpu=at_ns % 2)
    return perf.record(2, struct.pack("<QQ", 1, count) + where)
