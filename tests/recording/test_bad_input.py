"""Bad input through the command line: one line on stderr, exit code 2, never a traceback."""

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.allocator.invariants import broken_invariants
from pagealloc_model.cli import main
from tests.cli.test_cli import run_pagealloc
from tests.small_recordings import (
    AFTER_NS,
    BEFORE_NS,
    NORMAL,
    TimedEvents,
    shipped_recording,
    start_free,
    write_recording,
    write_snapshot,
)

Capture = pytest.CaptureFixture[str]
REPLAYING = ("replay", "validate")
ALL = ("info", *REPLAYING)
ALLOC = "task 1 [000] 1.000001: kmem:mm_page_"


def refusal(capsys: Capture, *arguments: str) -> str:
    """Stderr of a command that must end with code 2 and one line."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("pagealloc: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    return printed.err


def output(capsys: Capture, *arguments: str) -> str:
    """Stdout of a command that must work, its lines joined."""
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return " ".join(printed.out.split())


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "small")


def holds(pattern: str, content: str | bytes) -> Callable[[Path], None]:
    """Every file of a name or pattern holds something else."""

    def damage(recording: Path) -> None:
        for file in recording.glob(pattern):
            file.write_bytes(content if isinstance(content, bytes) else content.encode("latin-1"))

    return damage


def substituted(pattern: str, old: str, new: str) -> Callable[[Path], None]:
    def damage(recording: Path) -> None:
        for file in recording.glob(pattern):
            file.write_text(file.read_text().replace(old, new))

    return damage


def other_machine(recording: Path) -> None:
    file = write_snapshot(recording, AFTER_NS, start_free()) / "zoneinfo"
    file.write_text(file.read_text().replace("Node 0, zone   Normal", "Node 0, zone Odd"))


NO_ZONEINFO = "no snapshot with a usable zoneinfo"
_OTHER_NODE = ("Node 0, zone   Normal", "Node 1, zone   Normal")


@pytest.mark.parametrize(
    ("damage", "commands", "says"),
    [
        (holds("perf.data", b"not a recording\n"), ALL, "perf.data"),
        (holds("perf.data", b"\x7fELF" + bytes(500)), ALL, "perf.data"),
        (holds("perf.data", b"PERFILE1" + bytes(200)), ALL, "perf.data"),
        (holds("perf.data", b"\n\n"), ALL, "perf.data"),
        (lambda path: shutil.rmtree(path / "snapshots"), REPLAYING, NO_ZONEINFO),
        (holds("snapshots/*/zoneinfo", ""), REPLAYING, NO_ZONEINFO),
        (holds("snapshots/*/zoneinfo", "garbage\n"), REPLAYING, NO_ZONEINFO),
        (holds("snapshots/*/zoneinfo", "Node 0, zone Normal\n"), REPLAYING, NO_ZONEINFO),
        (other_machine, REPLAYING, "Odd"),
        (substituted("snapshots/*/zoneinfo", *_OTHER_NODE), ("replay",), "the same zones"),
        (
            lambda path: (path / "kpageflags.u64.gz").write_bytes(b"\x1f\x8b not gzip"),
            ("replay",),
            "kpageflags",
        ),
        (holds("meta.json", "{"), ALL, "meta.json"),
        (holds("meta.json", "[]"), ALL, "meta.json"),
        (holds("meta.json", '{"bundle_version": "one"}'), ALL, "meta.json"),
        (holds("meta.json", '{"bundle_version": 1, "sysctl": 3}'), ALL, "meta.json"),
        (holds("meta.json", '{"bundle_version": 99}'), ALL, "bundle_version is 99"),
        (holds("meta.json", "\xff"), ALL, "meta.json"),
    ],
)
def test_a_damaged_recording_is_refused(
    recording: Path,
    capsys: Capture,
    damage: Callable[[Path], object],
    commands: tuple[str, ...],
    says: str,
) -> None:
    damage(recording)
    for command in commands:
        assert says in refusal(capsys, command, str(recording))


@pytest.mark.parametrize(
    "line",
    [
        f"{ALLOC}alloc: pfn=zz order=0 migratetype=0 gfp_flags=0",
        f"{ALLOC}alloc: pfn=0x10 order=0 migratetype=0",
        f"{ALLOC}free: page=0x1 pfn=0x10 order=99",
        "kmem:mm_page_free: page=0x1 pfn=0x10 order=0",
    ],
)
def test_an_odd_line_of_event_text_is_named(recording: Path, capsys: Capture, line: str) -> None:
    text = (recording / "perf.data").read_text()
    (recording / "perf.data").write_text(f"{text}{line}\n")
    assert f"line {text.count(chr(10)) + 1}" in refusal(capsys, "replay", str(recording))


@pytest.mark.parametrize("share", [0.0, 0.00002, 0.001, 0.3, 0.999])
def test_a_truncated_perf_data(tmp_path: Path, capsys: Capture, share: float) -> None:
    real = shutil.copytree(shipped_recording("highatomic_gate3").path, tmp_path / "real")
    content = (real / "perf.data").read_bytes()
    (real / "perf.data").write_bytes(content[: int(len(content) * share)])
    for command in ALL:
        assert "perf.data" in refusal(capsys, command, str(real))


def of_events(*calls: tuple[str, tuple[object, ...], dict[str, object]]) -> TimedEvents:
    events = TimedEvents()
    for method, arguments, options in calls:
        getattr(events, method)(*arguments, **options)
    return events


_PFN = NORMAL.first_free


@pytest.mark.parametrize(
    ("calls", "refused", "used"),
    [
        (
            [("event", ("sched:sched_switch", "prev_pid=1 next_pid=2"), {})],
            "no page-allocator event",
            "",
        ),
        ([("locked", (_PFN,), {})], "no allocation or free", "mm_page_alloc_zone_locked"),
        (
            [("alloc", (_PFN,), {"gfp": "GFP_KERNEL|__GFP_OF_TOMORROW"})],
            "line 1 unknown gfp flag __GFP_OF_TOMORROW",
            "",
        ),
        ([("alloc", (_PFN,), {"migratetype": 5})], "migratetype 5", "kmem:mm_page_alloc"),
        ([("on", (), {"cpu": 9}), ("alloc", (_PFN,), {})], "CPU 9", "kmem:mm_page_alloc"),
    ],
)
def test_events_that_cannot_be_replayed(
    tmp_path: Path, capsys: Capture, calls: list[tuple], refused: str, used: str
) -> None:
    path = str(write_recording(tmp_path / "odd", of_events(*calls)))
    for command in REPLAYING:
        assert refused in refusal(capsys, command, path)
    if used:
        assert used in output(capsys, "info", path)


def test_an_odd_zoneinfo_is_named_and_the_next_snapshot_used(
    recording: Path, capsys: Capture
) -> None:
    odd = write_snapshot(recording, BEFORE_NS + 1, start_free())
    (odd / "zoneinfo").write_text("Node 0, zone Normal\n  pages free many\n")
    shown = output(capsys, "info", str(recording))
    assert "zones, watermarks and per-CPU lists are unknown there" in shown
    assert "zone Normal" in output(capsys, "replay", str(recording))


@pytest.mark.parametrize("name", ["pagetypeinfo", "buddyinfo", "vmstat"])
@pytest.mark.parametrize("damage", [None, "garbage\n"])
def test_another_state_file_missing_or_odd_is_stated(
    recording: Path, capsys: Capture, name: str, damage: str | None
) -> None:
    write_snapshot(recording, AFTER_NS, start_free())
    for file in recording.glob(f"snapshots/*/{name}"):
        file.unlink() if damage is None else file.write_text(damage)
    assert name in output(capsys, "info", str(recording))
    notes = json.loads(output(capsys, "validate", str(recording), "--json"))["notes"]
    assert any(name in note for note in notes)


@pytest.mark.parametrize("words", [0, 100])
def test_short_kpageflags_are_filled_up(recording: Path, words: int) -> None:
    (recording / "kpageflags.u64.gz").write_bytes(gzip.compress(bytes(8 * words)))
    replay = pm.replay(pm.open(recording))
    assert replay.final is not None and broken_invariants(replay.final) == []


def test_an_unknown_event_name_is_kept_aside(tmp_path: Path, capsys: Capture) -> None:
    events = TimedEvents()
    events.alloc(NORMAL.first_free)
    events.event("kmem:mm_page_of_tomorrow", "pfn=0x12 order=1")
    path = str(write_recording(tmp_path / "newer", events))
    assert "mm_page_of_tomorrow" in output(capsys, "info", path)
    assert "zone Normal" in output(capsys, "replay", path)


def test_kernels_newer_and_older_than_the_presets(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_recording(tmp_path / "newer", release="8.1.0-rc1"))
    shown = output(capsys, "replay", path)
    assert "kernel 8.1.0-rc1 is newer than every preset, rules 7.3 assumed" in shown
    assert "newer than every preset" in output(capsys, "validate", path)
    path = str(write_recording(tmp_path / "older", release="5.10.0-21"))
    for command in REPLAYING:
        line = refusal(capsys, command, path)
        assert "5.10.0-21 is older" in line and "--rules" in line
        assert output(capsys, command, path, "--rules", "6.12")


@pytest.mark.parametrize(
    ("sysctl", "value"),
    [
        ("highatomic_gate_order", "many"),
        ("highatomic_gate_order", "99"),
        ("pcp_free_batched", "perhaps"),
        ("watermark_scale_factor", "x"),
        ("watermark_boost_factor", "-3"),
    ],
)
def test_an_odd_recorded_sysctl_is_one_line(
    tmp_path: Path, capsys: Capture, sysctl: str, value: str
) -> None:
    path = str(write_recording(tmp_path / "odd", sysctl={sysctl: value}))
    for command in REPLAYING:
        assert sysctl in refusal(capsys, command, path)


@pytest.mark.parametrize("command", ALL)
@pytest.mark.parametrize("path", ["/nowhere/at/all", "no-such-shipped-recording", "\0", "a" * 300])
def test_a_missing_path(capsys: Capture, command: str, path: str) -> None:
    refusal(capsys, command, path)


def test_an_unknown_shipped_name_brings_the_nearest_or_all(capsys: Capture) -> None:
    assert "did you mean kbuild?" in refusal(capsys, "replay", "kbulid")
    line = refusal(capsys, "replay", "none_such")
    assert "kbuild" in line and "highatomic_stock" in line


@pytest.mark.parametrize("setting", ["x=1", "pcp_batch", "pcp_batch=-1", "pcp_batch=a", "=", ""])
def test_a_bad_setting(recording: Path, capsys: Capture, setting: str) -> None:
    refusal(capsys, "replay", str(recording), "--set", setting)
    if setting:
        refusal(capsys, "compare", str(recording), "--patch", setting)


def test_an_output_directory_that_is_taken(
    recording: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    assert "not empty" in refusal(capsys, "replay", str(recording), "-o", str(tmp_path / "out"))
    assert (tmp_path / "out" / "mine").read_text() == "kept"
    (tmp_path / "file").write_text("kept")
    for taken in (tmp_path / "file", tmp_path / "file" / "below"):
        refusal(capsys, "replay", str(recording), "-o", str(taken))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write anything")
def test_files_without_permission(recording: Path, tmp_path: Path, capsys: Capture) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert "cannot be made" in refusal(capsys, "replay", str(recording), "-o", str(closed / "out"))
    (recording / "perf.data").chmod(0)
    assert "Permission denied" in refusal(capsys, "replay", str(recording))


def test_input_is_left_as_it_is(recording: Path, capsys: Capture) -> None:
    before = {file: file.stat().st_mtime_ns for file in recording.rglob("*")}
    for command in ALL:
        output(capsys, command, str(recording))
    assert before == {file: file.stat().st_mtime_ns for file in recording.rglob("*")}


def test_as_a_process_of_its_own(recording: Path) -> None:
    (recording / "perf.data").write_bytes(b"PERFILE2")
    ended = run_pagealloc("replay", str(recording))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"pagealloc: [^\n]+\n", ended.stderr)
