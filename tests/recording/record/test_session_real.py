"""Recordings of this very machine, made by the command as a user types it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil
import pytest

import pagealloc_model as pm
from pagealloc_model.measured.call_stacks import call_stacks
from pagealloc_model.recording.record.perf import why_unusable
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event

pytestmark = [pytest.mark.perf, pytest.mark.usefixtures("recording_machine")]

NOBODY = 65534
_MAKEFILE = """\
all: $(patsubst %.py,%.pyc,$(wildcard *.py))
%.pyc: %.py
\t{python} -c 'import py_compile; py_compile.compile("$<", "$@")'
"""


def pagealloc(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagealloc_model.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which make has twelve files to compile."""
    directory = tmp_path_factory.mktemp("build")
    (directory / "Makefile").write_text(_MAKEFILE.format(python=sys.executable))
    for index in range(12):
        lines = [f"def f{line}(x):\n    return x * {line} + {index}\n" for line in range(300)]
        (directory / f"part{index}.py").write_text("\n".join(lines))
    return directory


@pytest.fixture(scope="module")
def compiled(build: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A recording of that compile job, and what the command printed."""
    destination = tmp_path_factory.mktemp("recordings") / "compile"
    done = pagealloc(
        "record", "-g", "-o", str(destination), "--interval", "0.1",
        "--", "make", "-s", "-j2", "-C", str(build),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return destination, done.stdout


def test_the_summary_says_what_came_of_it(compiled: tuple[Path, str]) -> None:
    path, printed = compiled
    assert re.search(r"compile: [\d.]+ s, [\d,]+ events, \d+ snapshots, [\d.]+ MiB", printed)
    assert "command    ended with exit code 0" in printed
    assert re.search(r"^lost ", printed, re.MULTILINE)
    assert printed.splitlines()[-1] == f"see        pagealloc explore {path}"
    assert not [entry for entry in path.parent.iterdir() if entry.name.startswith(".")]


def test_snapshots_lie_on_the_clock_of_the_events(compiled: tuple[Path, str]) -> None:
    recording = pm.open(compiled[0])
    first, last = recording.trace.span_ns
    times = [snapshot.time_ns for snapshot in recording.snapshots]
    assert recording.trace.clock == "monotonic"
    assert recording.meta["kpageflags_at_ns"] < first
    assert sum(time_ns < first for time_ns in times) >= 2
    assert sum(first <= time_ns <= last for time_ns in times) >= 3
    assert not any(snapshot.problems for snapshot in recording.snapshots)
    assert recording.missing == ()


def test_the_events_are_those_asked_for(compiled: tuple[Path, str]) -> None:
    recording = pm.open(compiled[0])
    assert recording.trace.count(Event.ALLOC) > 1000
    assert recording.trace.count(Event.FREE) > 1000
    events = {"kmem:mm_page_alloc/call-graph=fp/", "lock:contention_end"}
    assert events <= set(recording.meta["perf"])
    stacks = call_stacks(recording)
    assert stacks.named_by == "the recording's kallsyms"
    most = stacks.by_stack(tp.PAGE_ALLOC)["stack"][0]
    assert "alloc_pages" in most and "0x" not in most
    assert not set(recording.meta["missing_events"]) & set(recording.meta["perf"])


def test_the_recording_can_be_validated(compiled: tuple[Path, str]) -> None:
    validation = pm.validate(pm.open(compiled[0]))
    errors = validation.errors.set_index(["metric", "scope"])
    for metric in ("free_and_listed_pages", "refill_pages", "drain_pages"):
        assert errors.loc[(metric, "all"), "predicted"] >= 0
    known = [snapshot for snapshot in validation.snapshots["metric"].unique()]
    assert "free_pages" in known


def test_a_profile_is_of_the_same_command_untraced(tmp_path: Path) -> None:
    destination = tmp_path / "profiled"
    done = pagealloc(
        "record", "-o", str(destination), "--profile", "--",
        "dd", "if=/dev/zero", f"of={tmp_path / 'file'}", "bs=1M", "count=100", "status=none",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    recording = pm.open(destination)
    profile = recording.lock_profile
    assert profile is not None
    assert profile.repeats_command
    assert profile.sample_ns > 0
    assert recording.meta["profile"]["samples"] > 10
    assert not (destination / "profile.data").exists()


def test_ctrl_c_leaves_a_usable_recording(tmp_path: Path) -> None:
    destination = tmp_path / "mine"
    command = [sys.executable, "-m", "pagealloc_model.cli", "record", "-o", str(destination)]
    # A process group of its own stands for the terminal's: Ctrl-C reaches all of it.
    with subprocess.Popen(
        [*command, "--live", "0.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as running:
        assert running.stderr is not None
        assert "pages/s" in running.stderr.readline()
        os.killpg(running.pid, signal.SIGINT)
        printed, complaints = running.communicate(timeout=60)
    assert running.returncode == 0, complaints
    assert "ended      by SIGINT" in printed
    assert pm.open(destination).trace.count(Event.ALLOC)


@contextmanager
def recorder(destination: Path) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """`pagealloc record` of this machine, under way for a second, and what it says from then on."""
    command = [sys.executable, "-m", "pagealloc_model.cli", "record", "-o", str(destination)]
    with subprocess.Popen(
        [*command, "--live", "0.5"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        for _ in range(3):
            assert "pages/s" in running.stderr.readline()
        yield running, running.stderr


def test_what_was_recorded_before_a_kill_is_readable(tmp_path: Path) -> None:
    """Perf empties its buffers when its recorder is killed; the name leads to where it lies."""
    destination = tmp_path / "mine"
    with recorder(destination) as (running, _):
        running.kill()
    (left,) = tmp_path.glob(".mine.*/mine")
    deadline = time.monotonic() + 20
    while why_unusable(left / "perf.data") and time.monotonic() < deadline:
        time.sleep(0.1)
    recording = pm.open(left)
    assert recording.trace.count(Event.ALLOC) and recording.meta["ended_by"] == "cut off"
    with pytest.raises(pm.RecordingError, match=f"cut off; what was written until then.*{left}"):
        pm.open(destination)


def test_what_perf_wrote_before_it_was_killed_is_readable(tmp_path: Path) -> None:
    destination = tmp_path / "mine"
    with recorder(destination) as (running, complaints):
        for child in psutil.Process(running.pid).children():
            child.kill()
        said = complaints.read()
    assert running.returncode == 2
    assert "mine can be used, but perf was ended by signal 9" in said
    recording = pm.open(destination)
    assert recording.trace.count(Event.ALLOC) and recording.meta["ended_by"] == "perf"


def test_what_was_recorded_before_somebody_filled_the_disk_is_readable(tmp_path: Path) -> None:
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(tmp_path)], check=False
    )
    if made.returncode:
        pytest.skip("no file system can be mounted")
    try:
        destination = tmp_path / "mine"
        with recorder(destination) as (running, complaints):
            with suppress(OSError), (tmp_path / "filled").open("wb", buffering=0) as filling:
                while filling.write(bytes(1 << 12)):
                    pass
            said = complaints.read()
        assert running.returncode == 2
        assert "mine can be used, but the disk is" in said
        assert pm.open(destination).trace.count(Event.ALLOC)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_perf_gets_no_variable_that_loads_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = tmp_path / "perf"
    spy.write_text(f'#!/bin/sh\nenv >> {tmp_path}/environment\nexec {shutil.which("perf")} "$@"\n')
    spy.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = pagealloc(
        *("record", "-o", str(tmp_path / "out"), "--seconds", "0.3"),
        env={**os.environ, "PATH": path, "LD_AUDIT": "x", "PERF_EXEC_PATH": "y"},
    )
    assert done.returncode == 0, done.stderr
    seen = (tmp_path / "environment").read_text()
    assert "PATH=" in seen and "LD_AUDIT" not in seen and "PERF_EXEC_PATH" not in seen


def test_a_recording_under_sudo_is_the_calling_users(build: Path) -> None:
    place = Path(tempfile.mkdtemp())
    try:
        place.chmod(0o755)
        destination = place / "new/mine"
        done = pagealloc(
            "record", "-o", str(destination), "--seconds", "0.3", "--anonymise", "--no-lock",
            env={**os.environ, "SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        owners = {file.stat().st_uid for file in (destination.parent, *destination.rglob("*"))}
        assert owners == {NOBODY}
        assert "unknown" not in done.stdout
        meta = json.loads((destination / "meta.json").read_text())
        assert meta["uname"][1] == "anonymous"
        assert not [word for word in meta["perf"] if word.startswith("lock:")]
        assert len(pm.open(destination).trace)
    finally:
        shutil.rmtree(place)


def test_without_root_one_line_says_what_to_do(tmp_path: Path) -> None:
    # Everything is imported first: this user may have no right to read the installation.
    code = (
        "import os, pagealloc_model.recording.record.session\n"
        "import pagealloc_model.recording.record.live_state\n"
        "from pagealloc_model.cli import main\n"
        f"os.setuid({NOBODY}); raise SystemExit(main(['record', '-o', 'x', '--seconds', '1']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"pagealloc: cannot record: not root (user {NOBODY}); run: sudo")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB; skips the test where none can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_ends_the_recording_in_time(small_disk: Path, build: Path) -> None:
    started = time.monotonic()
    busy = "while :; do find /usr -name '*.so' >/dev/null; ls -R /usr/bin >/dev/null; done"
    done = pagealloc("record", "-o", str(small_disk / "mine"), "--", "sh", "-c", busy)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "can be used, but the disk is nearly full" in done.stderr
    recording = pm.open(small_disk / "mine")
    assert recording.trace.count(Event.ALLOC) > 1000
    assert (
        recording.meta["end_ns"] - recording.meta["start_ns"] < (time.monotonic() - started) * 1e9
    )
    assert [entry.name for entry in small_disk.iterdir()] == ["mine"]
