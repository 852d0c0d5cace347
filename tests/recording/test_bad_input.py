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
    """Stdout of a command that must work."""
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return printed.out


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "small")


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A copy of a shipped recording, to be damaged."""
    return shutil.copytree(shipped_recording("highatomic_gate3").path, tmp_path / "real")


@pytest.mark.parametrize("share", [0.0, 0.00002, 0.001, 0.3, 0.999])
def test_a_truncated_perf_data(real: Path, capsys: Capture, share: float) -> None:
    path = real / "perf.data"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    for command in ("info", *REPLAYING):
        assert "perf.data" in refusal(capsys, command, str(real))


@pytest.mark.parametrize(
    "content", [b"not a recording\n", b"\x7fELF" + bytes(500), b"PERFILE1" + bytes(200), b"\n\n"]
)
def test_not_a_perf_data(recording: Path, capsys: Capture, content: bytes) -> None:
    (recording / "perf.data").write_bytes(content)
    for command in ("info", *REPLAYING):
        assert "perf.data" in refusal(capsys, command, str(recording))


def test_a_recording_without_mm_page_alloc(tmp_path: Path, capsys: Capture) -> None:
    events = TimedEvents()
    events.event("sched:sched_switch", "prev_pid=1 next_pid=2")
    path = str(write_recording(tmp_path / "other", events))
    assert "no page-allocator event" in refusal(capsys, "replay", path)


def test_a_recording_of_refills_only(tmp_path: Path, capsys: Capture) -> None:
    events = TimedEvents()
    events.locked(NORMAL.first_free)
    path = str(write_recording(tmp_path / "refills", events))
    for command in REPLAYING:
        assert "no allocation or free" in refusal(capsys, command, path)
    assert "mm_page_alloc_zone_locked" in output(capsys, "info", path)


def test_no_snapshot_at_all(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_recording(tmp_path / "bare", snapshots=False))
    for command in REPLAYING:
        assert "no snapshot with a usable zoneinfo" in refusal(capsys, command, path)
    assert "no snapshots" in " ".join(output(capsys, "info", path).split())


def test_an_event_file_alone(recording: Path, capsys: Capture) -> None:
    for command in REPLAYING:
        assert "no snapshot" in refusal(capsys, command, str(recording / "perf.data"))


def test_an_odd_zoneinfo_is_named_and_the_next_snapshot_used(
    recording: Path, capsys: Capture
) -> None:
    odd = write_snapshot(recording, BEFORE_NS + 1, start_free())
    (odd / "zoneinfo").write_text("Node 0, zone Normal\n  pages free many\n")
    shown = " ".join(output(capsys, "info", str(recording)).split())
    assert "zones, watermarks and per-CPU lists are unknown there" in shown
    assert "zone Normal" in output(capsys, "replay", str(recording))


@pytest.mark.parametrize("damage", ["", "garbage\n", "Node 0, zone Normal\n"])
def test_no_usable_zoneinfo(recording: Path, capsys: Capture, damage: str) -> None:
    for file in recording.glob("snapshots/*/zoneinfo"):
        file.write_text(damage)
    for command in REPLAYING:
        assert "no snapshot with a usable zoneinfo" in refusal(capsys, command, str(recording))
    assert "zoneinfo" in output(capsys, "info", str(recording))


@pytest.mark.parametrize("name", ["pagetypeinfo", "buddyinfo", "vmstat"])
@pytest.mark.parametrize("damage", [None, "garbage\n"])
def test_another_state_file_missing_or_odd_is_stated(
    recording: Path, capsys: Capture, name: str, damage: str | None
) -> None:
    write_snapshot(recording, AFTER_NS, start_free())
    for file in recording.glob(f"snapshots/*/{name}"):
        if damage is None:
            file.unlink()
        else:
            file.write_text(damage)
    assert name in output(capsys, "info", str(recording))
    notes = json.loads(output(capsys, "validate", str(recording), "--json"))["notes"]
    assert any(name in note for note in notes)


def test_a_snapshot_of_another_machine(recording: Path, capsys: Capture) -> None:
    snapshot = write_snapshot(recording, AFTER_NS, start_free())
    text = (snapshot / "zoneinfo").read_text().replace("Node 0, zone   Normal", "Node 0, zone Odd")
    assert "Odd" in text
    (snapshot / "zoneinfo").write_text(text)
    for command in REPLAYING:
        assert "Odd" in refusal(capsys, command, str(recording))


def test_nodes_with_different_zones(recording: Path, capsys: Capture) -> None:
    for file in recording.glob("snapshots/*/zoneinfo"):
        file.write_text(file.read_text().replace("Node 0, zone   Normal", "Node 1, zone   Normal"))
    assert "the same zones" in refusal(capsys, "replay", str(recording))


def test_damaged_kpageflags(recording: Path, capsys: Capture) -> None:
    (recording / "kpageflags.u64.gz").write_bytes(b"\x1f\x8b not gzip")
    assert "kpageflags" in refusal(capsys, "replay", str(recording))


@pytest.mark.parametrize("words", [0, 100])
def test_short_kpageflags_are_filled_up(recording: Path, capsys: Capture, words: int) -> None:
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


def test_an_unknown_gfp_name(tmp_path: Path, capsys: Capture) -> None:
    events = TimedEvents()
    events.alloc(NORMAL.first_free, gfp="GFP_KERNEL|__GFP_OF_TOMORROW")
    path = str(write_recording(tmp_path / "newer", events))
    assert "line 1 unknown gfp flag __GFP_OF_TOMORROW" in refusal(capsys, "replay", path)


@pytest.mark.parametrize(
    "line",
    [
        "task 1 [000] 1.000001: kmem:mm_page_alloc: pfn=zz order=0 migratetype=0 gfp_flags=0",
        "task 1 [000] 1.000001: kmem:mm_page_alloc: pfn=0x10 order=0 migratetype=0",
        "task 1 [000] 1.000001: kmem:mm_page_free: page=0x1 pfn=0x10 order=99",
        "kmem:mm_page_free: page=0x1 pfn=0x10 order=0",
    ],
)
def test_an_odd_line_of_event_text_is_named(recording: Path, capsys: Capture, line: str) -> None:
    path = recording / "perf.data"
    path.write_text(path.read_text() + line + "\n")
    number = len(path.read_text().splitlines())
    assert f"line {number}" in refusal(capsys, "replay", str(recording))


def test_a_migratetype_the_machine_lacks(tmp_path: Path, capsys: Capture) -> None:
    events = TimedEvents()
    events.alloc(NORMAL.first_free, migratetype=5)
    path = str(write_recording(tmp_path / "cma", events))
    for command in REPLAYING:
        assert "migratetype 5" in refusal(capsys, command, path)


def test_a_cpu_the_machine_lacks(tmp_path: Path, capsys: Capture) -> None:
    events = TimedEvents()
    events.on(cpu=9).alloc(NORMAL.first_free)
    path = str(write_recording(tmp_path / "hotplugged", events))
    for command in REPLAYING:
        assert "CPU 9" in refusal(capsys, command, path)


def test_a_kernel_newer_than_the_presets(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_recording(tmp_path / "newer", release="8.1.0-rc1"))
    shown = " ".join(output(capsys, "replay", path).split())
    assert "kernel 8.1.0-rc1 is newer than every preset, rules 7.3 assumed" in shown
    shown = " ".join(output(capsys, "validate", path).split())
    assert "newer than every preset" in shown


def test_a_kernel_older_than_the_presets(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_recording(tmp_path / "older", release="5.10.0-21"))
    for command in REPLAYING:
        line = refusal(capsys, command, path)
        assert "5.10.0-21 is older" in line
        assert "--rules" in line
        assert output(capsys, command, path, "--rules", "6.12")


def test_a_newer_bundle_version(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_recording(tmp_path / "newer", bundle_version=99))
    for command in ("info", *REPLAYING):
        assert "bundle_version is 99" in refusal(capsys, command, path)


@pytest.mark.parametrize(
    "meta",
    ["{", "[]", '{"bundle_version": "one"}', '{"bundle_version": 1, "sysctl": 3}', "\xff"],
)
def test_a_damaged_meta_json(recording: Path, capsys: Capture, meta: str) -> None:
    (recording / "meta.json").write_text(meta, encoding="latin-1")
    for command in ("info", *REPLAYING):
        assert "meta.json" in refusal(capsys, command, str(recording))


@pytest.mark.parametrize(
    "sysctl",
    [
        {"highatomic_gate_order": "many"},
        {"highatomic_gate_order": "99"},
        {"pcp_free_batched": "perhaps"},
        {"watermark_scale_factor": "x"},
        {"watermark_boost_factor": "-3"},
    ],
)
def test_an_odd_recorded_sysctl_is_one_line(
    tmp_path: Path, capsys: Capture, sysctl: dict[str, str]
) -> None:
    path = str(write_recording(tmp_path / "odd", sysctl=sysctl))
    for command in REPLAYING:
        assert next(iter(sysctl)) in refusal(capsys, command, path)


@pytest.mark.parametrize("command", ["info", *REPLAYING])
@pytest.mark.parametrize("path", ["/nowhere/at/all", "no-such-shipped-recording", "\0", "a" * 300])
def test_a_missing_path(capsys: Capture, command: str, path: str) -> None:
    refusal(capsys, command, path)


def test_an_unknown_shipped_name_brings_the_nearest_or_all(capsys: Capture) -> None:
    assert "did you mean kbuild?" in refusal(capsys, "replay", "kbulid")
    line = refusal(capsys, "replay", "none_such")
    assert "kbuild" in line
    assert "highatomic_stock" in line


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
    refusal(capsys, "replay", str(recording), "-o", str(tmp_path / "file"))
    refusal(capsys, "replay", str(recording), "-o", str(tmp_path / "file" / "below"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_directory_without_permission(
    recording: Path, tmp_path: Path, capsys: Capture
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert "cannot be made" in refusal(capsys, "replay", str(recording), "-o", str(closed / "out"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_an_event_file_without_permission(recording: Path, capsys: Capture) -> None:
    (recording / "perf.data").chmod(0)
    assert "Permission denied" in refusal(capsys, "replay", str(recording))


def test_input_is_left_as_it_is(recording: Path, capsys: Capture) -> None:
    before = {file: file.stat().st_mtime_ns for file in recording.rglob("*")}
    for command in ("info", *REPLAYING):
        output(capsys, command, str(recording))
    assert before == {file: file.stat().st_mtime_ns for file in recording.rglob("*")}


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "perf.data").write_bytes(b"PERFILE2"),
        lambda path: shutil.rmtree(path / "snapshots"),
    ],
)
def test_as_a_process_of_its_own(recording: Path, damage: Callable[[Path], object]) -> None:
    damage(recording)
    ended = run_pagealloc("replay", str(recording))
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert re.fullmatch(r"pagealloc: [^\n]+\n", ended.stderr)
