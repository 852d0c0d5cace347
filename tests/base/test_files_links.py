"""Links in a recording lead nowhere: what they point to is neither read nor copied."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import opened
from pagealloc_model.recording.importing import attach_state, import_recording
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trim import trim_recording
from tests.small_recordings import write_recording

SECRET = b"root:x:0:0:topsecret"
LINKED = (
    *("snapshots", "snapshots/new", "snapshots/new/key", "snapshots/new/vmstat"),
    *("page_owner.txt", "page_owner.txt.xz", "profile.folded", "kallsyms.gz"),
)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "small")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    (directory / "00000000000000000007").mkdir(parents=True)
    for name in ("secret", "vmstat", "00000000000000000007/vmstat"):
        (directory / name).write_bytes(SECRET)
    return directory


def link(recording: Path, place: str, outside: Path) -> None:
    """Put a link in a recording's place; `new` stands for a snapshot of its own."""
    path = recording / place.replace("new", "00000000000000000001")
    if place == "snapshots":
        shutil.rmtree(path)
    path.parent.mkdir(exist_ok=True)
    is_directory = place in ("snapshots", "snapshots/new")
    path.symlink_to(outside if is_directory else outside / "secret")


def by_import(source: Path, destination: Path) -> None:
    import_recording(source, destination)


def by_trim(source: Path, destination: Path) -> None:
    trim_recording(source, destination)


def by_anonymising(source: Path, destination: Path) -> None:
    trim_recording(source, destination, anonymise=True)


def by_attaching(source: Path, destination: Path) -> None:
    sound = write_recording(destination.with_name("sound"))
    attach_state(sound / "perf.data", destination, snapshots=source)


@pytest.mark.parametrize("place", LINKED)
@pytest.mark.parametrize("copied", [by_import, by_trim, by_anonymising, by_attaching])
def test_no_copy_holds_what_a_link_leads_to(
    copied: Callable[[Path, Path], None], place: str, recording: Path, outside: Path
) -> None:
    link(recording, place, outside)
    destination = outside.with_name("made")
    if copied is by_attaching and place == "snapshots":
        with pytest.raises(Exception, match=r"snapshot|state|zoneinfo"):
            copied(recording, destination)
        return
    copied(recording, destination)
    for file in destination.rglob("*"):
        assert not file.is_symlink()
        assert not file.is_file() or SECRET not in file.read_bytes()


@pytest.mark.parametrize("place", LINKED)
def test_a_link_is_named(place: str, recording: Path, outside: Path) -> None:
    link(recording, place, outside)
    missing = "\n".join(open_recording(recording).missing)
    assert "link" in missing or "no directory" in missing or "other names" in missing


def test_other_files_are_named_and_left(recording: Path, tmp_path: Path) -> None:
    (recording / "id_rsa").write_bytes(SECRET)
    assert any("id_rsa" in line for line in open_recording(recording).missing)
    by_import(recording, tmp_path / "made")
    assert not (tmp_path / "made" / "id_rsa").exists()


def test_a_directory_that_turns_into_a_link_is_not_entered(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "inner").symlink_to(outside)
    with pytest.raises(RecordingError, match="cannot be read"):
        opened(tmp_path / "root" / "inner" / "vmstat", below=tmp_path / "root")


def test_a_user_may_name_a_link(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to(recording)
    (tmp_path / "named.data").symlink_to(recording / "perf.data")
    assert len(open_recording(tmp_path / "named").trace)
    assert len(open_recording(tmp_path / "named.data").trace)


@pytest.mark.parametrize("copied", [by_import, by_trim, by_attaching])
def test_a_copy_is_for_its_user_alone(
    copied: Callable[[Path, Path], None], recording: Path, tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        copied(recording, tmp_path / "made")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
