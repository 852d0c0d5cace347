"""What is kept of a recording between processes: found again, never out of date, bounded."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.predicted.prepared import forget_prepared, prepare
from pagealloc_model.recording import kept_state
from pagealloc_model.recording.recording import open_recording
from tests.small_recordings import write_recording

Made = list[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, in which all is worth keeping."""
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_state, "WORTH_S", 0.0)
    return tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "small")


def kept(recording: pm.Recording, about: tuple[object, ...] = ()) -> bool:
    """Whether something of the recording is found; keeps it otherwise."""
    made: Made = []
    kept_state.kept_object(recording, "thing", about, lambda: made.append("made") or "value")
    return not made


def test_what_was_made_is_found_by_another_process(path: Path) -> None:
    assert not kept(open_recording(path))
    assert kept(open_recording(path))
    assert not kept(open_recording(path), (3,))


def test_a_replay_from_what_was_kept_is_the_same(path: Path) -> None:
    first = pm.replay(open_recording(path))
    names = {file.name.split("-")[1] for file in kept_state.kept_directory().iterdir()}
    assert names == {"ready"}
    again = pm.replay(open_recording(path))
    assert again.recording is not None and first.recording is not None
    assert again.recording.trace.source == first.recording.trace.source
    assert first.free_pages.equals(again.free_pages)
    assert (first.demand.events == again.demand.events).all()


def test_a_file_that_changed_is_another_recording(path: Path) -> None:
    assert not kept(open_recording(path))
    for file in sorted(path.rglob("*")):
        before = file.stat()
        if file.is_file():
            content = file.read_bytes()
            file.write_bytes(content)  # as long as before, and dated back
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert not kept(open_recording(path)), file


def test_another_version_makes_it_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not kept(open_recording(path))
    monkeypatch.setattr(kept_state, "_sources", lambda: "other sources")
    assert not kept(open_recording(path))


def test_other_rules_and_assumptions_make_it_anew(path: Path) -> None:
    recording = open_recording(path)
    rules = pm.replay(recording).rules
    assumed = pm.Assumptions()
    assert not kept(recording, (rules, assumed))
    assert kept(recording, (rules, assumed))
    assert not kept(recording, (replace(rules, free_batched=not rules.free_batched), assumed))
    assert not kept(recording, (rules, replace(assumed, start="empty")))


def test_what_differs_from_its_files_is_never_kept(path: Path) -> None:
    recording = open_recording(path)
    assert not kept(recording)
    for other in (copy.copy(recording), replace(recording, name="other")):
        assert not kept(other)
        assert not kept(other)
    changed = open_recording(path)
    changed.__dict__["trace"] = replace(recording.trace, losses=recording.trace.losses)
    assert not kept(changed)
    assert not kept(changed)
    assert kept(recording)


def test_a_damaged_file_is_made_anew(path: Path) -> None:
    first = open_recording(path)
    rules = pm.replay(first).rules
    for file in kept_state.kept_directory().iterdir():
        file.write_bytes(file.read_bytes()[:100])
    again = open_recording(path)
    found = prepare(again, rules, pm.Assumptions(), 0)
    assert len(again.trace) == len(first.trace)
    forget_prepared(first)
    assert (found.demand.events == prepare(first, rules, pm.Assumptions(), 0).demand.events).all()


def test_what_was_not_used_for_longest_goes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_state, "MOST_BYTES", 2500)
    recording = open_recording(path)
    for number in range(3):
        kept_state.kept_object(recording, "thing", (number,), lambda: bytes(1000))
        files = list(kept_state.kept_directory().iterdir())
        assert sum(file.stat().st_size for file in files) <= 2500
    assert not kept(recording, (0,))
    kept_state.kept_object(recording, "large", (), lambda: bytes(2000))
    assert not [file for file in kept_state.kept_directory().iterdir() if "large" in file.name]


def test_where_nothing_can_be_written_all_is_made(
    path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cache.write_text("a file where the directory would be")
    assert not kept(open_recording(path))
    assert not kept(open_recording(path))
