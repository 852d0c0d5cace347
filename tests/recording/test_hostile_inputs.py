"""Hostile input: one line or a named doubt; no traceback, no hang, no more than 2 GiB."""

import gzip
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pagealloc_model as pm
from pagealloc_model.cli import main
from tests.allocator.invariants import broken_invariants
from tests.cli.test_main import run_pagealloc
from tests.recording.hostile_inputs import HOSTILE_INPUTS, Hostile
from tests.small_recordings import AFTER_NS, start_free, write_recording, write_snapshot

LONGEST_S = 10
"""Of the processor, which a loaded machine does not prolong."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
CHECKOUT = Path(__file__).parent.parent.parent


@cache
def came_of() -> dict[str, dict[str, Any]]:
    """What came of each input, by its name; all ran in one process of at most 2 GiB."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.recording.hostile_worker"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith('{"name"')]
    assert ended.returncode == 0, ended.stderr[-2000:]
    entries = [json.loads(line) for line in lines]
    return {entry["name"]: entry for entry in entries}


def test_there_are_many_of_different_names() -> None:
    assert len({hostile.name for hostile in HOSTILE_INPUTS}) == len(HOSTILE_INPUTS) >= 250


@pytest.mark.parametrize("hostile", HOSTILE_INPUTS, ids=lambda hostile: hostile.name)
def test_it_is_refused_in_one_line_or_named(hostile: Hostile) -> None:
    ended = came_of()[hostile.name]
    assert "Traceback" not in ended["err"]
    assert ended["seconds"] < LONGEST_S
    assert CONTROL.search(ended["out"] + ended["err"]) is None
    refused = ended["code"] == 2 if hostile.refused is None else hostile.refused
    assert ended["code"] == (2 if refused else 0), ended["err"]
    if refused:
        assert ended["out"] == ""
        assert re.fullmatch(r"pagealloc: [^\n]+\n", ended["err"])
    said = " ".join(ended["err" if refused else "out"].split())
    assert re.search(hostile.says, said), said


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "small")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Stderr of a command that must end with code 2 and one line."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"pagealloc: [^\n]+\n", printed.err)
    return printed.err


@pytest.mark.parametrize("words", [0, 100])
def test_short_kpageflags_are_filled_up(recording: Path, words: int) -> None:
    (recording / "kpageflags.u64.gz").write_bytes(gzip.compress(bytes(8 * words)))
    replay = pm.replay(pm.open(recording))
    assert replay.final is not None and broken_invariants(replay.final) == []


@pytest.mark.parametrize("name", ["pagetypeinfo", "buddyinfo", "vmstat"])
def test_a_validation_says_which_state_file_it_lacks(recording: Path, name: str) -> None:
    write_snapshot(recording, AFTER_NS, start_free())
    for file in recording.glob(f"snapshots/*/{name}"):
        file.unlink()
    assert any(name in note for note in pm.validate(pm.open(recording)).notes)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_files_without_permission(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert "cannot be made" in refusal(capsys, "replay", str(recording), "-o", str(closed / "out"))
    (recording / "perf.data").chmod(0)
    assert "Permission denied" in refusal(capsys, "replay", str(recording))


def test_input_is_left_as_it_is(recording: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in recording.rglob("*")}
    for command in ("info", "replay", "validate"):
        assert main([command, str(recording)]) == 0
    assert before == {file: file.stat().st_mtime_ns for file in recording.rglob("*")}


def test_as_a_process_of_its_own(recording: Path) -> None:
    (recording / "perf.data").write_bytes(b"PERFILE2")
    ended = run_pagealloc("replay", str(recording))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"pagealloc: [^\n]+\n", ended.stderr)
