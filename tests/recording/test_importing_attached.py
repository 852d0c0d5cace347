"""A bare trace and copies of /proc become a recording that can be replayed, or a clear refusal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.cli import main
from pagealloc_model.recording import importing
from pagealloc_model.recording.event_files import read_events
from pagealloc_model.recording.importing import attach_state
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.snapshots import copy_state
from tests.same_trace import differing_fields
from tests.small_recordings import (
    BEFORE_NS,
    EVENTS_BEGIN_NS,
    buddyinfo_text,
    start_free,
    write_recording,
    zoneinfo_text,
)
from tests.trace_dat_writer import Pages, allocation, event, page, write_trace_dat

Capture = pytest.CaptureFixture[str]
RELEASE = "6.18.0-small"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A recording with all there can be; its event file is bare `perf script` text."""
    return write_recording(tmp_path / "whole")


@pytest.fixture
def zoneinfo(tmp_path: Path) -> Path:
    path = tmp_path / "zoneinfo"
    path.write_text(zoneinfo_text(start_free(), {}))
    return path


def test_a_trace_and_all_its_state_are_the_recording_again(whole: Path, tmp_path: Path) -> None:
    bare = tmp_path / "events.txt"
    bare.write_bytes((whole / "perf.data").read_bytes())
    result = attach_state(bare, tmp_path / "made", snapshots=whole)
    original, attached = pm.open(whole), pm.open(tmp_path / "made")
    assert result.events == len(original.trace) and result.snapshots == 1
    assert differing_fields(attached.trace, original.trace) == []
    assert attached.kpageflags is not None
    np.testing.assert_array_equal(attached.kpageflags, original.kpageflags)
    assert attached.release == RELEASE and attached.sha256 == pm.open(bare).sha256
    one, other = pm.replay(original), pm.replay(attached)
    assert one.start_state == other.start_state
    assert one.free_pages.equals(other.free_pages)
    assert any("unknown clock" in line for line in result.lacks)


def test_a_zoneinfo_alone_gives_a_marked_estimate(
    whole: Path, zoneinfo: Path, tmp_path: Path
) -> None:
    bare = pm.open(whole / "perf.data")
    with pytest.raises(UsageError, match="no snapshot"):
        pm.replay(bare)
    files = {"zoneinfo": zoneinfo}
    result = attach_state(whole / "perf.data", tmp_path / "made", files=files, release=RELEASE)
    assert any("estimated, and marked so" in line for line in result.lacks)
    assert any("taken to be of the moment before the trace" in line for line in result.lacks)
    replayed = pm.replay(pm.open(tmp_path / "made"))
    assert replayed.start_state[0].startswith("ESTIMATED START")
    assert replayed.free_pages["pages"].sum() > 0
    meta = json.loads((tmp_path / "made/meta.json").read_text())
    assert meta["attached"]["lacks"] == list(result.lacks)


def test_all_free_pages_find_a_place_in_an_estimated_start(
    whole: Path, zoneinfo: Path, tmp_path: Path
) -> None:
    """Every zone's free pages of zoneinfo are there, with buddyinfo at their orders."""
    files = {"zoneinfo": zoneinfo}
    for name in ("", "with_orders"):
        if name:
            files["buddyinfo"] = tmp_path / "buddyinfo"
            files["buddyinfo"].write_text(buddyinfo_text(start_free()))
        directory = tmp_path / f"made{name}"
        attach_state(whole / "perf.data", directory, files=files, release=RELEASE)
        lines = pm.replay(pm.open(directory)).start_state
        assert not any("none at all" in line or "no room" in line for line in lines), lines
        assert any("orders unknown" in line for line in lines) == (not name)


def test_a_directory_of_copies_made_behind_the_trace(
    whole: Path, zoneinfo: Path, tmp_path: Path
) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    zoneinfo.rename(copies / "zoneinfo")
    state = {"snapshots": copies, "release": RELEASE, "read": "behind"}
    attach_state(whole / "perf.data", tmp_path / "made", **state)
    attached = pm.open(tmp_path / "made")
    assert [state.time_ns > attached.trace.span_ns[1] for state in attached.snapshots] == [True]
    pm.replay(attached)


@pytest.mark.parametrize(
    ("clock", "clocks", "moved"),
    [
        ("mono", {"boot": 900, "monotonic": 100}, 0),
        ("boot", {"boot": 900, "monotonic": 100}, 800),
        ("local", {"boot": 900, "monotonic": 100}, 0),
    ],
)
def test_snapshots_move_to_the_clock_of_the_events(
    tmp_path: Path, clock: str, clocks: dict[str, int], moved: int
) -> None:
    begin = EVENTS_BEGIN_NS + moved
    pages = Pages(cpus={0: page(begin, event(0, allocation(5000)))}, clock=clock)
    trace = write_trace_dat(tmp_path / "trace.dat", pages)
    state = write_recording(tmp_path / "state", clocks_ns=clocks, kpageflags_at_ns=BEFORE_NS)
    result = attach_state(trace, tmp_path / "made", snapshots=state)
    recording = pm.open(tmp_path / "made")
    assert recording.snapshots[0].time_ns == BEFORE_NS + moved
    assert recording.kpageflags_at_ns == BEFORE_NS + moved
    assert any(f"clock {clock}:" in line for line in result.lacks) == (clock == "boot")
    assert any("not certain" in line for line in result.lacks) == (clock == "local")


def test_snapshots_of_another_day_are_refused(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_LONGEST_WAY_NS", 10**8)
    with pytest.raises(UsageError, match="away from the nearest event"):
        attach_state(whole / "perf.data", tmp_path / "made", snapshots=whole)
    assert not (tmp_path / "made").exists()


def test_what_cannot_be_attached_is_refused(whole: Path, zoneinfo: Path, tmp_path: Path) -> None:
    trace, target = whole / "perf.data", tmp_path / "made"
    empty = tmp_path / "empty"
    empty.mkdir()
    with_files = {"files": {"zoneinfo": zoneinfo}, "release": RELEASE}
    for state, problem in (
        ({"release": RELEASE}, "no state of the machine"),
        ({"snapshots": empty, "release": RELEASE}, "has no copy of a state file"),
        ({"snapshots": tmp_path / "none", "release": RELEASE}, "is no directory"),
        ({**with_files, "release": ""}, "give --release"),
        ({**with_files, "files": {"vmstat": zoneinfo}}, "no zoneinfo among vmstat"),
    ):
        with pytest.raises(UsageError, match=problem):
            attach_state(trace, target, **state)
    with pytest.raises(RecordingError, match="cannot be read"):
        attach_state(trace, target, **{**with_files, "files": {"zoneinfo": empty / "none"}})
    zoneinfo.write_text("what is this")
    with pytest.raises(UsageError, match="zoneinfo: line 1: comes before any"):
        attach_state(trace, target, **with_files)
    assert not target.exists()


def test_the_command(whole: Path, zoneinfo: Path, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "made"
    words = ["attach", str(whole / "perf.data"), "--zoneinfo", str(zoneinfo), "-o", str(target)]
    assert main(words) == 2 and "--release" in capsys.readouterr().err
    assert main([*words, "--release", RELEASE]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{target}: 579 events, 1 snapshot") and "lacks " in shown
    assert len(read_events(target / "events.arrow")) == 579


def test_snapshots_of_this_machine(tmp_path: Path, capsys: Capture) -> None:
    directory = tmp_path / "state"
    assert main(["snapshot", str(directory)]) == 0
    first = capsys.readouterr().out
    assert "1 snapshot, " in first
    calls = []

    def third_time() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_state(directory, Host(), seconds=1e6, interval_s=0.001, check=third_time)
    recorded = sorted((directory / "snapshots").iterdir())
    assert len(recorded) == 1 + 3
    meta = json.loads((directory / "meta.json").read_text())
    assert abs(int(recorded[0].name) - meta["clocks_ns"]["monotonic"]) < 60e9
    assert {"boot", "mono_raw", "tai", "monotonic"} == set(meta["clocks_ns"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("")
    with pytest.raises(UsageError, match="has other files"):
        copy_state(tmp_path / "other", Host())
