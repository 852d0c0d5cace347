"""Whether a recording is usable for predictions: each check says usable, in doubt or refused."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.cli import main
from pagealloc_model.recording.proc.pages import PGTABLE
from pagealloc_model.recording.provenance import (
    DOUBT,
    REFUSED,
    USABLE,
    demand_checks,
    lost_share,
    worst,
)
from pagealloc_model.recording.trace.columns import Losses
from tests.small_recordings import (
    AFTER_NS,
    BEFORE_NS,
    NORMAL,
    TimedEvents,
    busy_events,
    shipped_recording,
    start_free,
    write_recording,
    write_snapshot,
)


def level(path: Path, check: str) -> str:
    """The level of one check of a recording."""
    return {check.check: check.level for check in pm.open(path).provenance()}[check]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = write_recording(tmp_path / "small")
    write_snapshot(path, AFTER_NS, start_free())
    return path


def changed(path: Path, **changes: object) -> Path:
    """The recording, with other values in meta.json."""
    file = path / "meta.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return path


@pytest.mark.parametrize("name", ["kbuild", "xfree", "highatomic_stock", "highatomic_gate3"])
def test_nothing_of_a_shipped_recording_is_refused(name: str) -> None:
    assert worst(shipped_recording(name).provenance()) != REFUSED


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["perf", "record", "-a", "-e", "kmem:mm_page_alloc"], USABLE),
        (["perf", "record", "--all-cpus", "--", "sh", "-p", "1"], USABLE),
        (["perf", "record", "-p", "77"], REFUSED),
        (["perf", "record", "--pid=77"], REFUSED),
        (["perf", "record", "-C", "0"], REFUSED),
        (["perf", "record", "-e", "kmem:mm_page_alloc", "--", "make", "-a"], REFUSED),
    ],
)
def test_of_all_tasks_by_perfs_arguments(
    recording: Path, arguments: list[str], expected: str
) -> None:
    assert level(changed(recording, perf=arguments), "recorded") == expected


def test_of_all_tasks_by_threads_of_the_kernel(tmp_path: Path) -> None:
    events = busy_events()
    events.comm, events.pid = "kworker/0:1-eve", 33
    events.free(NORMAL.start_pfn + 9)
    assert level(write_recording(tmp_path / "all", events), "recorded") == USABLE
    assert level(write_recording(tmp_path / "task"), "recorded") == DOUBT


def test_without_frees_it_is_refused(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(NORMAL.first_free)
    assert level(write_recording(tmp_path / "taken", events), "allocations and frees") == REFUSED


def test_snapshots_of_another_boot(recording: Path) -> None:
    assert level(recording, "snapshots' boot") == USABLE
    assert level(recording, "snapshots' time") == USABLE
    for time_ns, faults in ((BEFORE_NS, 900), (AFTER_NS, 80)):
        file = recording / "snapshots" / f"{time_ns:020d}" / "vmstat"
        file.write_text(f"pgfault {faults}\n")
    assert level(recording, "snapshots' boot") == REFUSED


def test_snapshots_of_another_kernel(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "small")
    text = (path / "perf.data").read_text()
    assert level(path, "kernel") == USABLE
    (path / "perf.data").write_text(f"# os release : 6.1.5\n{text}")
    assert level(path, "kernel") == REFUSED


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, DOUBT), (20, DOUBT), (400, REFUSED)])
def test_snapshots_far_away(tmp_path: Path, seconds: float, expected: str) -> None:
    path = write_recording(tmp_path / "small", snapshots=False)
    last = pm.open(path).trace.demand_span_ns[1]
    write_snapshot(path, last + int(seconds * 1e9), start_free())
    assert level(path, "snapshots' time") == expected


@pytest.mark.parametrize(
    ("kilobytes", "expected"), [(49152, USABLE), (4915200, DOUBT), (4096, REFUSED)]
)
def test_memory_of_another_machine(recording: Path, kilobytes: int, expected: str) -> None:
    changed(recording, meminfo=f"MemTotal:       {kilobytes} kB\n")
    assert level(recording, "memory and CPUs") == expected
    assert level(changed(recording, nr_cpus=64), "memory and CPUs") == REFUSED


def test_page_flags_of_another_machine(recording: Path) -> None:
    changed(recording, kpageflags_at_ns=BEFORE_NS)
    assert "page flags" not in {check.check for check in pm.open(recording).provenance()}
    in_use = np.full(len(start_free()), PGTABLE, "<u8")
    for words in (in_use, in_use[:-1], np.zeros(len(in_use) + (1 << 15), "<u8")):
        (recording / "kpageflags.u64.gz").write_bytes(gzip.compress(words.tobytes()))
        assert level(recording, "page flags") == DOUBT


def test_page_frames_of_another_machine(tmp_path: Path) -> None:
    events = busy_events()
    events.alloc(1 << 30)
    assert level(write_recording(tmp_path / "odd", events), "page frames") == DOUBT
    events = TimedEvents()
    for pfn in range(1 << 30, (1 << 30) + 9):
        events.alloc(pfn)
        events.free(pfn)
    assert level(write_recording(tmp_path / "other", events), "page frames") == REFUSED


def test_losses(tmp_path: Path) -> None:
    def losing(count: int) -> Path:
        path = write_recording(tmp_path / str(count))
        line = f"swapper 0 [000] 1.000001: PERF_RECORD_LOST lost {count}\n"
        (path / "perf.data").write_text(line + (path / "perf.data").read_text())
        return path

    assert level(losing(1), "lost") == DOUBT
    assert level(losing(500), "lost") == REFUSED
    assert lost_share(pm.open(tmp_path / "500").trace) > 0.05


@pytest.mark.parametrize(("hidden", "expected"), [(1, USABLE), (10, DOUBT), (200, REFUSED)])
def test_what_a_replay_guesses(hidden: int, expected: str) -> None:
    counts = {"hidden_allocations": hidden, "grown_pages": 0}
    assert demand_checks(counts, 100)[0].level == expected
    counts = {"hidden_allocations": 0, "grown_pages": hidden - 1}
    assert demand_checks(counts, 100)[1].level == (DOUBT if hidden > 1 else USABLE)


def test_events_left_out_are_explained() -> None:
    recording = shipped_recording("highatomic_stock")
    words = {check.check: check.found for check in recording.provenance()}["events replayed"]
    used, whole = (int(count) for count in re.findall(r"\d+", words)[:2])
    assert (used, whole) == (len(recording.trace), len(recording.whole_trace))
    assert used < whole


def test_info_prints_every_check(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(recording), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["provenance"]
    assert {check["level"] for check in printed} <= {USABLE, DOUBT, REFUSED}
    assert {"hidden allocations", "memory that came"} <= {check["check"] for check in printed}
    assert main(["info", str(recording)]) == 0
    assert "usable with doubt: recorded: " in capsys.readouterr().out


def test_every_result_carries_the_checks(recording: Path) -> None:
    replay = pm.replay(pm.open(changed(recording, perf=["perf", "record", "-p", "1"])))
    assert "recorded" in {check["check"] for check in replay.provenance["checks"]}  # type: ignore[attr-defined]
    text = pm.compare(replay, replay).to_text()
    assert "recorded (refused): single tasks" in " ".join(text.split())


def test_losses_beyond_64_bits_are_a_count_not_a_negative_number() -> None:
    counts = [2**63 - 1, 2**63 - 1, -5, 7]
    losses = Losses.of([(0, 1, 2, count) for count in counts])
    assert losses.total == 3 * (2**63 - 1) + 7
    assert losses.take(np.array([3])).total == 7
