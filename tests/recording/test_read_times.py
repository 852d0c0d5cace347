"""Snapshots dated by their recorder's own times."""

from pathlib import Path

from pagealloc_model.recording.read_times import dated_snapshots
from pagealloc_model.recording.snapshot import Snapshot
from tests.event_text import EventText


def test_the_recorders_own_times_count(tmp_path: Path) -> None:
    """Whatever the order of its files; a snapshot without times keeps that of its name."""
    text = EventText()
    text.alloc(7)
    trace = text.trace(tmp_path)
    snapshots = []
    for time_ns in (100, 200):
        directory = tmp_path / f"{time_ns:020d}"
        directory.mkdir()
        snapshots.append(Snapshot(time_ns=time_ns, directory=directory))
    assert [each.time_ns for each in dated_snapshots(snapshots, trace)] == [100, 200]
    (tmp_path / f"{100:020d}/read_ns.json").write_text('{"zoneinfo": [130, 140], "vmstat": [1, 2]}')
    fresh = [Snapshot(time_ns=each.time_ns, directory=each.directory) for each in snapshots]
    assert [each.time_ns for each in dated_snapshots(fresh, trace)] == [130, 200]
