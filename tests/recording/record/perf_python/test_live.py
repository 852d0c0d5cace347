"""Live events: what is kept of them, and agreement with perf record on the same machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording import live
from pagealloc_model.recording.record import perf_python as live_module
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.perf_python import load_perf_module
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from tests.real_recordings import KMEM, event_options
from tests.recording.record.perf_python.fake_perf_module import (
    FORMAT_ID,
    Comm,
    Lost,
    Sample,
    Task,
    fake_module,
)
from tests.synthetic_perf_data import ALLOC, FREE

ALLOC_AND_FREE = (ALLOC.name, FREE.name)
SWAPPED = 64
"""Events before the first live one that an interrupt may have made."""


def alloc(time: int, **values: int) -> Sample:
    fields = {"pfn": time, "order": 0, "gfp_flags": 0xCC0, "migratetype": 1, **values}
    return Sample(sample_time=time, sample_tid=5, common_type=ALLOC.number, **fields)


def free(time: int) -> Sample:
    fields = {"pfn": time, "order": 3}
    return Sample(sample_time=time, sample_tid=6, common_type=FREE.number, **fields)


def skip_without_module() -> None:
    try:
        load_perf_module()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A machine whose kernel has the two events."""
    for point in (ALLOC, FREE):
        directory = tmp_path / "kernel/tracing/events" / point.name.replace(":", "/")
        directory.mkdir(parents=True)
        (directory / "format").write_text(point.text)
    return Host(sysfs=tmp_path, release="6.12.0-fake")


def sampled(monkeypatch: pytest.MonkeyPatch, host: Host, module: Any) -> Trace:
    monkeypatch.setattr(live_module, "load_perf_module", lambda: module)
    monkeypatch.setattr(live_module, "_WAIT_MS", 0)
    return live_module.live(0.05, ALLOC_AND_FREE, buffer_bytes=1 << 20, host=host)


@pytest.mark.parametrize("by_name", [False, True])
def test_the_trace_lies_where_all_cpus_are_watched(
    monkeypatch: pytest.MonkeyPatch, host: Host, by_name: bool
) -> None:
    piles: list[dict[int, list[Any]]] = [
        {0: [alloc(10)], 1: []},
        {0: [alloc(30), free(35)], 1: [alloc(20)]},
        {0: [alloc(50)], 1: [alloc(40)]},
    ]
    module = fake_module(piles, by_name=by_name)
    trace = sampled(monkeypatch, host, module)
    assert trace.time_ns.tolist() == [20, 30, 35, 40, 50]
    assert trace.cpu.tolist() == [1, 0, 0, 1, 0]
    assert trace.event.tolist() == [0, 0, 1, 0, 0]
    assert trace.pid.tolist() == [5, 5, 6, 5, 5]
    assert trace.order.tolist() == [0, 0, 3, 0, 0]
    assert trace.gfp.tolist() == [0xCC0, 0xCC0, 0, 0xCC0, 0xCC0]
    assert trace.migratetype.tolist() == [1, 1, -1, 1, 1]
    assert (trace.release, trace.clock, trace.source) == ("6.12.0-fake", "perf", "live")
    assert trace.gfp_bits["__GFP_HIGH"] == 0x20 and trace.gfp_from_format
    assert all(selector.read_format == FORMAT_ID for selector in module.made.selectors)
    assert "mmap 256" in module.made.calls
    if by_name:
        assert [selector.name for selector in module.made.selectors] == list(ALLOC_AND_FREE)
        assert not any(selector.tracking for selector in module.made.selectors)
        assert module.made.calls[0] == "config" and module.made.calls[-1] == "enable"


def test_all_that_came_before_every_event_was_on_is_left_out(
    monkeypatch: pytest.MonkeyPatch, host: Host
) -> None:
    monkeypatch.setattr(live_module, "_AT_A_TIME", 2)
    piles = [{0: [alloc(1), alloc(2), alloc(3), free(4), alloc(5)]}, {0: [free(6)]}]
    assert sampled(monkeypatch, host, fake_module(piles, by_name=True)).time_ns.tolist() == [6]


def test_losses_begin_with_the_last_event_of_their_cpu(
    monkeypatch: pytest.MonkeyPatch, host: Host
) -> None:
    loss = Lost(sample_time=41, lost=7)
    piles = [{0: [alloc(10)]}, {0: [alloc(30), loss, alloc(40)], 1: [alloc(35)]}]
    losses = sampled(monkeypatch, host, fake_module(piles, by_name=False)).losses
    assert losses.total == 7
    assert (losses.cpu[0], losses.start_ns[0], losses.end_ns[0]) == (0, 30, 41)


def test_names_of_threads(monkeypatch: pytest.MonkeyPatch, host: Host) -> None:
    monkeypatch.setattr(live_module, "_thread_names", lambda: {0: "swapper", 1: "init"})
    tasks = [Task(type=7, tid=90, ptid=1), Comm(tid=91, comm="cc1"), Task(type=4, tid=92, ptid=1)]
    trace = sampled(monkeypatch, host, fake_module([{0: tasks}], by_name=False))
    assert trace.comms == {0: "swapper", 1: "init", 90: "init", 91: "cc1"}


def test_an_event_the_kernel_does_not_have(monkeypatch: pytest.MonkeyPatch, host: Host) -> None:
    module = fake_module([], by_name=False)
    monkeypatch.setattr(live_module, "load_perf_module", lambda: module)
    with pytest.raises(UsageError, match="this kernel has no tracepoint kmem:nothing"):
        live_module.live(0.1, ("kmem:nothing",), host=host)


def test_events_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch, host: Host) -> None:
    def refuse(*_: object) -> None:
        raise OSError(25, "Inappropriate ioctl for device")

    module = fake_module([], by_name=True)
    module.parse_events = refuse
    with pytest.raises(
        UsageError, match=r"cannot be opened .Inappropriate ioctl.*pagealloc doctor"
    ):
        sampled(monkeypatch, host, module)


_CHILD = """
import sys
import numpy as np
from pagealloc_model.recording.record.perf_python import live
from pagealloc_model.recording.trace.columns import COLUMN_TYPES
from tests.busy_cpus import busy_cpus
with busy_cpus():
    trace = live(0.3)
columns = {name: getattr(trace, name) for name in COLUMN_TYPES}
np.savez(sys.argv[1], lost=trace.losses.total, **columns)
"""


@pytest.mark.perf
@pytest.mark.usefixtures("recording_machine")
def test_live_events_are_those_that_perf_records(
    tmp_path: Path, perf_command: str, checkout: Path
) -> None:
    """Each source reads the clock for itself, so the events of a CPU are compared in order."""
    skip_without_module()
    recorded, sampled = tmp_path / "perf.data", tmp_path / "live.npz"
    record = [perf_command, "record", "-q", "-a", "-m", "16M", "-o", str(recorded)]
    work = [sys.executable, "-c", _CHILD, str(sampled)]
    command = [*record, *event_options(*KMEM), "--", *work]
    subprocess.run(command, check=True, timeout=120, cwd=checkout)
    native, trace = read_perf_data(recorded), np.load(sampled)
    if native.losses.total or trace["lost"]:
        pytest.skip("this machine is too busy to take in every event")
    for cpu in os.sched_getaffinity(0):
        assert np.count_nonzero(trace["cpu"] == cpu) > 100
        assert_slice_of(trace, native, cpu)


def assert_slice_of(trace: Any, native: Trace, cpu: int) -> None:
    """The live events of a CPU are the recorded ones between two of its events.

    An interrupt between the two sources' turns swaps the events it makes with the one it
    interrupted, which concern other pages: events of one page keep their order.
    """
    names = [name for name in COLUMN_TYPES if name not in ("time_ns", "cpu", "in_interrupt")]
    own, theirs = trace["cpu"] == cpu, native.cpu == cpu
    live_rows = np.stack([trace[name][own].astype(np.int64) for name in names], axis=1)
    all_rows = np.stack([getattr(native, name)[theirs].astype(np.int64) for name in names], axis=1)
    pfn = names.index("pfn")
    by_page = live_rows[np.argsort(live_rows[:, pfn], kind="stable")]
    alike = np.flatnonzero((all_rows == live_rows[0]).all(axis=1)).tolist()
    starts = {max(place - before, 0) for place in alike for before in range(SWAPPED)}
    candidates = (all_rows[start : start + len(live_rows)] for start in sorted(starts))
    assert any(
        np.array_equal(rows[np.argsort(rows[:, pfn], kind="stable")], by_page)
        for rows in candidates
    )


@pytest.mark.perf
@pytest.mark.usefixtures("recording_machine")
def test_other_events_live() -> None:
    skip_without_module()
    trace = live(0.2, ("kmem:mm_page_alloc", "sched:sched_switch"))
    switches = trace.tables["sched:sched_switch"]
    assert trace.count(Event.FREE) == 0
    assert len(switches["prev_pid"]) and set(switches["prev_comm"]) & set(trace.comms.values())
