"""A reader under load: its instants, its scheduling, and writes that hold up no read."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from pagealloc_model.recording.record import timely
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.snapshots import StateFiles
from pagealloc_model.recording.record.timely import PRIORITY, Writer, next_instant, real_time


@pytest.mark.parametrize(("after", "then"), [(10.0, 11.0), (10.9, 11.0), (11.0, 12.0), (37.5, 38)])
def test_missed_instants_are_not_made_up_for(after: float, then: float) -> None:
    assert next_instant(10.0, 1.0, after) == then


@pytest.mark.skipif(os.geteuid() != 0, reason="ordinary users may not go before others")
def test_the_reader_goes_before_others_and_what_it_starts_does_not() -> None:
    before = os.sched_getscheduler(0)
    with real_time(Host()):
        now = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
        if now[0] == before:
            pytest.skip("this machine keeps real time to itself")
        assert now == (os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, PRIORITY - 1)
        text = Path("/proc/self/status").read_text()
        assert "VmLck:\t       0 kB" not in text
        command = ("awk", "{print $41}", "/proc/self/stat")  # its policy
        started = subprocess.run(command, capture_output=True, text=True, check=True)
        assert int(started.stdout) == os.SCHED_OTHER
    assert os.sched_getscheduler(0) == before
    assert "VmLck:\t       0 kB" in Path("/proc/self/status").read_text()


def test_nothing_changes_without_the_right_to(tmp_path: Path) -> None:
    before = os.sched_getscheduler(0)
    with real_time(Host(proc=tmp_path, user=1000)):
        assert os.sched_getscheduler(0) == before


def state(time_ns: int) -> StateFiles:
    return StateFiles(time_ns=time_ns, contents={"vmstat": b"x 1\n"}, read_ns={"vmstat": (1, 2)})


def test_a_write_that_waits_holds_up_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    write = StateFiles.write
    monkeypatch.setattr(timely.StateFiles, "write", lambda *own: goes_on.wait(20) and write(*own))
    writer = Writer(tmp_path)
    for time_ns in (1, 2, 3):
        writer.put(state(time_ns))
    assert not list(tmp_path.iterdir())
    goes_on.set()
    writer.close()
    assert len(list((tmp_path / "snapshots").iterdir())) == 3


def test_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    (tmp_path / "snapshots").write_text("no directory")
    writer = Writer(tmp_path)
    writer.put(state(1))
    give_up = time.monotonic() + 20
    while writer.failed is None and time.monotonic() < give_up:
        time.sleep(0.01)
    assert writer.failed is not None
    writer.put(state(2))
    writer.close()
