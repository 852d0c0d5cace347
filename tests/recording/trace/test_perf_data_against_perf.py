"""Every event of a recording, field by field, against what `perf script` prints."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event, Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from tests.event_text import gfp_from_names
from tests.real_recordings import record_file, record_pipe

SHIPPED = ("kbuild", "xfree", "highatomic_stock")
FULL = ("kbuild", "xfree", "exit_lossy", "small", "defrag72")

_LINE = re.compile(
    r"^\s*(?P<comm>.*?)\s+(?P<tid>-?\d+)\s+\[(?P<cpu>\d+)\]\s+(?P<seconds>\d+)\.(?P<ns>\d{9}):"
    r"\s+(?P<event>\w+:\w+):\s?(?P<text>.*)$"
)
_FIELD = re.compile(r"(\w+)=(\S+)")
_ORDER_FIELD = {Event.EXTFRAG: "alloc_order"}
_MIGRATETYPE_FIELD = {Event.EXTFRAG: "alloc_migratetype"}


class Line(NamedTuple):
    comm: str
    tid: int
    cpu: int
    time_ns: int
    event: str
    text: str


def perf_lines(command: str, path: Path) -> Iterator[Line]:
    arguments = [command, "script", "-i", str(path), "--ns", "-F"]
    arguments.append("comm,tid,cpu,time,event,trace")
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for text in process.stdout:
            match = _LINE.match(text.rstrip("\n"))
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
    if lines != by_time:
        script = [command, "script", "-i", str(path)]
        done = subprocess.run(script, capture_output=True, check=False, timeout=60)
        assert "out of order events recorded" in done.stderr.decode()
    return iter(by_time)


def check_all(trace: Trace, lines: Iterator[Line]) -> None:
    """Compare all rows and tables with all lines, in order."""
    columns = {
        name: getattr(trace, name).tolist()
        for name in ("time_ns", "cpu", "pid", "event", "pfn", "order", "gfp", "migratetype")
    }
    refills = trace.percpu_refill.tolist()
    gfp_words: dict[str, int] = {}
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
        row = {name: column[rows] for name, column in columns.items()}
        assert (row["time_ns"], row["cpu"], row["pid"]) == (line.time_ns, line.cpu, line.tid)
        assert row["event"] == event
        failed = event is Event.ALLOC and printed["page"] in ("(nil)", "(null)")
        assert row["pfn"] == (-1 if failed else int(printed["pfn"], 16))
        assert row["order"] == int(printed[_ORDER_FIELD.get(event, "order")])
        if event in (Event.ALLOC, Event.ZONE_LOCKED, Event.PCPU_DRAIN, Event.EXTFRAG):
            name = _MIGRATETYPE_FIELD.get(event, "migratetype")
            assert row["migratetype"] == int(printed[name])
        else:
            assert row["migratetype"] == -1
        if event is Event.ALLOC:
            names = printed["gfp_flags"]
            if names not in gfp_words:
                gfp_words[names] = gfp_from_names(names, trace.gfp_bits)
            assert row["gfp"] == gfp_words[names]
        else:
            assert row["gfp"] == 0
        refill = int(printed["percpu_refill"]) if event is Event.ZONE_LOCKED else -1
        assert refills[rows] == refill
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
@pytest.mark.parametrize("made", ["recorded", "piped"])
def test_a_recording_just_made(
    request: pytest.FixtureRequest, perf_command: str, made: str
) -> None:
    path = request.getfixturevalue(made)
    check_all(read_perf_data(path), lines_by_time(perf_command, path))


@pytest.mark.perf
def test_losses_of_a_recording_just_made(lossy: Path, perf_command: str) -> None:
    losses = read_perf_data(lossy).losses
    assert losses.total == lost_by_perf(perf_command, lossy)
    assert set(losses.cpu.tolist()) <= set(range(4096))
    assert (losses.start_ns <= losses.end_ns).all()
