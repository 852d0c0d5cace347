"""A recording and its columnar form give the same answers, through Python and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli import main
from pagealloc_model.recording import importing
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.store import store_source
from tests.recording.test_hostile_inputs import refusal
from tests.same_trace import differing_fields
from tests.small_recordings import shipped_recording, write_recording

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module", params=[True, False], ids=["compressed", "uncompressed"])
def gate3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The columnar form of a shipped recording."""
    path = tmp_path_factory.mktemp("imported") / "highatomic_gate3"
    pm.open("highatomic_gate3").to_columns(path, compress=request.param)
    return path


def test_all_of_a_recording_comes_along(gate3: Path) -> None:
    source = shipped_recording("highatomic_gate3").path
    files = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    imported = {path.relative_to(gate3) for path in gate3.rglob("*") if path.is_file()}
    assert imported - files == {Path("events.arrow")}
    assert files - imported == {Path("perf.data")}
    for file in files & imported:
        assert (gate3 / file).read_bytes() == (source / file).read_bytes()


def test_the_recording_is_the_same(gate3: Path) -> None:
    original, imported = shipped_recording("highatomic_gate3"), pm.open(gate3)
    assert imported.name == original.name
    assert imported.sha256 == original.sha256
    assert imported.missing == original.missing
    assert imported.meta == original.meta
    assert differing_fields(imported.trace, original.trace) == []
    source = store_source(imported.event_file)
    assert source is not None
    assert (source.file, source.size) == ("perf.data", original.event_file.stat().st_size)


@pytest.mark.parametrize(
    "window", [{"events": 20_000}, {"start_s": 1.5, "seconds": 0.5}, {"start_s": 4.0}], ids=str
)
@pytest.mark.parametrize("anonymise", [False, True])
def test_cuts_are_the_same(
    tmp_path: Path, window: dict[str, float], anonymise: bool, gate3: Path
) -> None:
    source = shipped_recording("highatomic_gate3").path
    for path, name in ((source, "one"), (gate3, "other")):
        pm.open(path).trim(tmp_path / name / "cut", anonymise=anonymise, **window)
    one, other = pm.open(tmp_path / "one" / "cut"), pm.open(tmp_path / "other" / "cut")
    assert (one.event_file.name, other.event_file.name) == ("events.arrow", "events.arrow")
    assert one.meta == other.meta
    assert [part.time_ns for part in one.snapshots] == [part.time_ns for part in other.snapshots]
    assert differing_fields(one.trace, other.trace) == []


def test_perf_script_text(tmp_path: Path) -> None:
    source = write_recording(tmp_path / "small")
    pm.open(source).to_columns(tmp_path / "imported" / "small")
    imported = pm.open(tmp_path / "imported" / "small")
    assert differing_fields(imported.trace, pm.open(source).trace) == []
    pm.open(imported.path).trim(tmp_path / "cut", events=5, anonymise=True)
    cut = pm.open(tmp_path / "cut")
    assert len(cut.trace) == 5
    assert set(cut.trace.comms.values()) <= {"t1", "t2", "sh", "swapper", "make"}


def test_the_events_alone(tmp_path: Path, capsys: Capture) -> None:
    source = str(write_recording(tmp_path / "small"))
    file = tmp_path / "deep" / "mine.arrow"
    assert main(["import", source, "-o", str(file), "--uncompressed"]) == 0
    printed = capsys.readouterr().out
    assert f"{file}: {len(pm.open(source).trace)} events" in printed
    assert "left out   meta.json" in printed
    assert [path.name for path in file.parent.iterdir()] == ["mine.arrow"]
    assert differing_fields(pm.open(file).trace, pm.open(source).trace) == []
    again = tmp_path / "again"
    assert main(["import", str(file), "-o", str(again)]) == 0
    assert store_source(again / "events.arrow") == store_source(file)
    assert pm.open(again).name == "again"


def test_nothing_is_overwritten(tmp_path: Path, capsys: Capture) -> None:
    source = str(write_recording(tmp_path / "small"))
    for name in ("there", "there.arrow"):
        (tmp_path / name).write_text("mine")
        assert "exists" in refusal(capsys, "import", source, "-o", str(tmp_path / name))
        assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_import_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    source = write_recording(tmp_path / "small")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Snapshot, "copy_to", fail)
    with pytest.raises((UsageError, KeyboardInterrupt)):
        importing.import_recording(source, tmp_path / "out" / "imported")
    assert list((tmp_path / "out").iterdir()) == []


def test_progress_grows_to_one(tmp_path: Path) -> None:
    shares: list[float] = []
    pm.open("kbuild").to_columns(tmp_path / "imported", progress=shares.append)
    assert shares == sorted(shares)
    assert len(shares) > 3
    assert shares[-1] == 1
