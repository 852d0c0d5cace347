"""Recording: layouts that open, what is stated as missing, what is refused."""

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording import recording as recording_module
from pagealloc_model.recording.recording import open_recording, recording_names
from pagealloc_model.recording.snapshot import KNOWN_FILES
from tests.recording.proc.samples_of import DIRECTORY

META = {
    "bundle_version": 1,
    "uname": ["Linux", "host", "6.18.44", "#1 SMP", "x86_64"],
    "nr_cpus": 2,
    "kpageflags_at_ns": 5,
    "a_key_of_tomorrow": [1],
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A recording with two snapshots; its event file is never parsed here."""
    directory = tmp_path / "run"
    for time_ns in (20, 9):
        shutil.copytree(DIRECTORY / "6.18", directory / "snapshots" / f"{time_ns:020d}")
    (directory / "perf.data").write_bytes(b"PERFILE2 and no more")
    (directory / "meta.json").write_text(json.dumps(META))
    with gzip.open(directory / "kpageflags.u64.gz", "wb") as file:
        file.write(np.arange(4, dtype="<u8").tobytes())
    return directory


def test_a_complete_recording_lacks_nothing(directory: Path) -> None:
    recording = open_recording(directory)
    assert recording.name == "run"
    assert recording.release == "6.18.44"
    assert recording.meta["a_key_of_tomorrow"] == [1]
    assert [snapshot.time_ns for snapshot in recording.snapshots] == [9, 20]
    first = recording.snapshots[0]
    assert first.zoneinfo and first.buddyinfo and first.pagetypeinfo and first.vmstat
    assert first.zoneinfo is recording.snapshots[0].zoneinfo
    assert recording.kpageflags is not None and recording.kpageflags.tolist() == [0, 1, 2, 3]
    assert recording.kpageflags_at_ns == 5
    assert recording.sha256 == hashlib.sha256(b"PERFILE2 and no more").hexdigest()
    assert recording.missing == ()


def test_opening_reads_neither_events_nor_snapshots(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("read while opening")

    monkeypatch.setattr(recording_module.event_files, "read_events", forbidden)
    monkeypatch.setattr("pagealloc_model.recording.snapshot.text_of", forbidden)
    monkeypatch.setattr(recording_module, "read_kpageflags", forbidden)
    assert open_recording(directory).name == "run"


def test_a_bare_event_file_opens_and_says_what_it_lacks(directory: Path) -> None:
    recording = open_recording(directory / "perf.data")
    assert recording.name == "run"
    assert recording.snapshots == () and recording.kpageflags is None and recording.meta == {}
    assert [line.split(":")[0] for line in recording.missing] == [
        "no meta.json",
        "no snapshots",
        "no kpageflags.u64.gz",
    ]


def test_absent_and_odd_snapshot_files_are_stated_not_raised(directory: Path) -> None:
    early, late = (directory / "snapshots" / f"{time_ns:020d}" for time_ns in (9, 20))
    (early / "pagetypeinfo").unlink()
    (late / "vmstat").write_text("pgfree many\n")
    (directory / "snapshots" / "notes").mkdir()
    recording = open_recording(directory)
    assert recording.snapshots[0].pagetypeinfo is None
    assert recording.snapshots[1].vmstat is None
    ignored, absent, odd = recording.missing
    assert "snapshots/notes" in ignored
    assert absent.startswith("pagetypeinfo absent in 1 of 2 snapshots: ")
    assert "line 1: 'many' is not a count" in odd and str(late) in odd


@pytest.mark.parametrize("name", KNOWN_FILES)
def test_a_damaged_file_of_a_snapshot_is_one_line(directory: Path, name: str) -> None:
    (directory / "snapshots" / f"{20:020d}" / name).write_text("of no kernel\n")
    (odd,) = open_recording(directory).missing
    assert name in odd and "; until then " in odd


def test_times_of_reading_are_kept_where_they_are_recorded(directory: Path) -> None:
    early, late = (directory / "snapshots" / f"{time_ns:020d}" for time_ns in (9, 20))
    (early / "read_ns.json").write_text('{"zoneinfo": [12, 15]}')
    (late / "read_ns.json").write_text('{"zoneinfo": [25, 21]}')
    recording = open_recording(directory)
    assert recording.snapshots[0].read_ns == {"zoneinfo": (12, 15)}
    assert recording.snapshots[1].read_ns is None
    (odd,) = recording.missing
    assert "'zoneinfo' has no two times" in odd and str(late) in odd and "read when it" in odd


def test_page_owner_is_read_where_it_is_recorded(directory: Path) -> None:
    assert open_recording(directory).page_owner is None
    text = (
        b"Page allocated via order 0, mask 0x0(), pid 3, tgid 3 (make), ts 1 ns\n"
        b"PFN 0x10 type Movable Block 0 type Movable Flags 0x0()\n\n"
    )
    name = "page_owner.txt.gz"
    (directory / name).write_bytes(gzip.compress(text))
    owner = open_recording(directory).page_owner
    assert owner is not None and owner.pfn.tolist() == [16]
    (directory / name).write_bytes(b"no owners\n")
    with pytest.raises(RecordingError, match="line 1"):
        _ = open_recording(directory).page_owner


def test_names_resolve_from_anywhere(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEALLOC_RECORDINGS", str(directory.parent))
    assert "run" in recording_names()
    assert open_recording("run").path == directory
    with pytest.raises(RecordingError, match=r"does not exist.*\brun\b"):
        open_recording("walk")


@pytest.mark.parametrize("here", ["notebooks", "notebooks/studies"])
def test_a_notebook_finds_what_lies_beside_its_folder(
    directory: Path, monkeypatch: pytest.MonkeyPatch, here: str
) -> None:
    folder = directory.parent / here
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    assert open_recording("run").path == directory
    assert open_recording("run/perf.data").name == "run"
    up = "/".join([".."] * len(Path(here).parts))
    assert open_recording(f"{up}/run").path.resolve() == directory
    (folder / "run").mkdir()
    with pytest.raises(RecordingError, match="run: is a directory without"):
        open_recording("run")


def test_what_lies_in_the_checkout_is_found_from_anywhere(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, elsewhere = directory.parent / "clone", directory.parent / "elsewhere"
    (checkout / "notebooks").mkdir(parents=True)
    elsewhere.mkdir()
    source = checkout / "pagealloc_model" / "recording" / "recording.py"
    monkeypatch.setattr(recording_module, "__file__", str(source))
    monkeypatch.chdir(elsewhere)
    moved = shutil.move(directory, checkout / "mine")
    assert open_recording("mine").path == moved
    with pytest.raises(RecordingError) as refused:
        open_recording("min")
    said = str(refused.value)
    assert f"does not exist (looked in {elsewhere}, {checkout})" in said
    assert "did you mean mine?" in said
    with pytest.raises(RecordingError, match=r"min: does not exist; give"):
        open_recording(elsewhere / "min")
