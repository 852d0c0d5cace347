"""Where recordings begin: when snapshots were read (T12.0), and from which on (T10.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.snapshot import Snapshot, dated_snapshots, flags_at, start_snapshot
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from tests.small_recordings import shipped_recording

SECOND, MS = 1_000_000_000, 1_000_000
GFP = {
    "__GFP_MOVABLE": 0x8,
    "__GFP_HIGHMEM": 0x2,
    "__GFP_IO": 0x40,
    "__GFP_FS": 0x80,
    "__GFP_ZERO": 0x100,
    "__GFP_DIRECT_RECLAIM": 0x400,
    "__GFP_NOWARN": 0x2000,
    "__GFP_NORETRY": 0x10000,
}
BUFFER = 0x40 | 0x80 | 0x400 | 0x2000 | 0x10000
READER, OTHER = 9, 5
LAGS = (1, 20, 70, 71)
"""Milliseconds after its name at which a snapshot's four files are read."""

Row = tuple[int, int, int]
"""Time, task and gfp word of an allocation."""


def reads(named_ns: int, pages: int = 1, pid: int = READER) -> list[Row]:
    """What a recorder allocates for a snapshot."""
    return [(named_ns + lag * MS + page, pid, BUFFER) for lag in LAGS for page in range(pages)]


def trace_of(rows: Sequence[Row], *, end_s: int = 20, orders: int = 0, **comms: str) -> Trace:
    """A trace of such allocations between a first one at 1 s and a last one."""
    rows = sorted([(SECOND, 1, 0xCC0), *rows, (end_s * SECOND, 1, 0xCC0)])
    columns = {name: np.zeros(len(rows), dtype) for name, dtype in COLUMN_TYPES.items()}
    for name, place in (("time_ns", 0), ("pid", 1), ("gfp", 2)):
        columns[name] = np.array([row[place] for row in rows])
    columns["order"] = np.full(len(rows), orders)
    columns["event"] = np.full(len(rows), Event.ALLOC)
    names = {READER: "pagealloc", OTHER: "sh", **{int(k[1:]): v for k, v in comms.items()}}
    return Trace(**columns, comms=names, gfp_bits=GFP)


def named(*seconds: float) -> tuple[Snapshot, ...]:
    return tuple(
        Snapshot(time_ns=int(second * SECOND), directory=Path("/nowhere")) for second in seconds
    )


SNAPSHOTS = named(0.5, 2, 4, 6, 8)
DURING = SNAPSHOTS[1:]


def lags(snapshots: Sequence[Snapshot], dated: Sequence[Snapshot]) -> list[float]:
    """Milliseconds that each was put off by."""
    assert len(snapshots) == len(dated)
    return [(b.time_ns - a.time_ns) / MS for a, b in zip(snapshots, dated, strict=True)]


def all_reads(pages: int = 1, pid: int = READER) -> list[Row]:
    return [row for snapshot in DURING for row in reads(snapshot.time_ns, pages, pid)]


@pytest.mark.parametrize("pages", [1, 2])
def test_buffers_date_at_the_third_file(pages: int) -> None:
    """Those before the events, which show no read of theirs, keep their time."""
    dated = dated_snapshots(SNAPSHOTS, trace_of(all_reads(pages)))
    assert lags(SNAPSHOTS, dated) == pytest.approx([0, 70, 70, 70, 70], abs=0.001)
    assert [state.directory for state in dated] == [state.directory for state in SNAPSHOTS]


def test_a_snapshot_read_as_the_events_begin_is_dated_too() -> None:
    early = named(0.99)
    rows = [*reads(early[0].time_ns), *all_reads()]
    dated = dated_snapshots((*early, *DURING), trace_of([row for row in rows if row[0] > SECOND]))
    assert lags(early, dated[:1]) == [0], "its first read came before the events"
    early = named(0.9995)
    dated = dated_snapshots((*early, *DURING), trace_of([*reads(early[0].time_ns), *all_reads()]))
    assert lags(early, dated[:1]) == [70]


def test_what_else_the_reader_does_is_left_out() -> None:
    """Zeroed and movable pages are no buffers; those that it asks for afterwards come too late."""
    rows = all_reads()
    for snapshot in DURING:
        for flag in (0x100, 0x8, 0x2):
            rows += [(snapshot.time_ns + 10, READER, BUFFER | flag)] * 5
        rows += [(snapshot.time_ns + 10, READER, BUFFER & ~0x10000)] * 5
        rows += [(snapshot.time_ns + 90 * MS, READER, BUFFER)] * 2
    assert lags(SNAPSHOTS, dated_snapshots(SNAPSHOTS, trace_of(rows))) == [0, 70, 70, 70, 70]


def test_without_a_reader_names_are_believed() -> None:
    assert dated_snapshots((), trace_of([])) == ()
    assert dated_snapshots(SNAPSHOTS, trace_of([])) == SNAPSHOTS
    by_another = trace_of(all_reads(pid=OTHER))
    assert dated_snapshots(SNAPSHOTS, by_another) == SNAPSHOTS
    assert dated_snapshots(SNAPSHOTS, trace_of(all_reads(), orders=1)) == SNAPSHOTS
    late = [(time_ns + SECOND, pid, gfp) for time_ns, pid, gfp in all_reads()]
    assert dated_snapshots(SNAPSHOTS, trace_of(late)) == SNAPSHOTS, "another's"
    for missing in ("__GFP_NORETRY", "__GFP_ZERO"):
        trace = trace_of(all_reads())
        trace = replace(trace, gfp_bits={name: GFP[name] for name in GFP if name != missing})
        assert dated_snapshots(SNAPSHOTS, trace) == SNAPSHOTS, "no names of flags"


def test_too_few_buffers_leave_that_snapshot_as_named() -> None:
    """One in four may lack some; where more do, it is no reader."""
    rows = all_reads()
    assert lags(SNAPSHOTS, dated_snapshots(SNAPSHOTS, trace_of(rows[1:]))) == [0, 0, 70, 70, 70]
    assert dated_snapshots(SNAPSHOTS, trace_of(rows[1:-1])) == SNAPSHOTS


@pytest.mark.parametrize("other", [4, 40])
def test_of_several_that_allocate_likewise_the_one_with_least_is_the_reader(other: int) -> None:
    """A workload that is a Python program asks for such pages all the time."""
    busy = [(SECOND + 5 * MS * n, other, BUFFER) for n in range(2000)]
    trace = trace_of([*all_reads(), *busy], **{f"_{other}": "python3"})
    assert lags(SNAPSHOTS, dated_snapshots(SNAPSHOTS, trace)) == [0, 70, 70, 70, 70]


@pytest.mark.parametrize("interval", [0.25, 0.5, 2.0])
@pytest.mark.parametrize("pages", [1, 2])
def test_the_start_is_dated_alike_whatever_comes_after_it(interval: float, pages: int) -> None:
    """A prediction may not depend on later snapshots, not even on there being any."""
    snapshots = named(*(0.9 + interval * number for number in range(12)))
    rows = [row for snapshot in snapshots[1:] for row in reads(snapshot.time_ns, pages)]
    trace = trace_of(rows)
    whole = dated_snapshots(snapshots, trace)
    assert lags(snapshots[1:], whole[1:]) == pytest.approx([70] * 11, abs=0.001)
    for count in range(2, 12):
        alone = dated_snapshots(snapshots[:count], trace)
        assert [state.time_ns for state in alone] == [state.time_ns for state in whole[:count]]


def test_the_recorders_own_times_count(tmp_path: Path) -> None:
    """Whatever the order of its files; a snapshot without times keeps that of its name."""
    snapshots = []
    for time_ns in (100, 200):
        directory = tmp_path / f"{time_ns:020d}"
        directory.mkdir()
        snapshots.append(Snapshot(time_ns=time_ns, directory=directory))
    trace = trace_of([])
    assert [snapshot.time_ns for snapshot in dated_snapshots(snapshots, trace)] == [100, 200]
    (tmp_path / f"{100:020d}/read_ns.json").write_text('{"zoneinfo": [130, 140], "vmstat": [1, 2]}')
    fresh = [Snapshot(time_ns=state.time_ns, directory=state.directory) for state in snapshots]
    assert [snapshot.time_ns for snapshot in dated_snapshots(fresh, trace)] == [130, 200]


@pytest.mark.parametrize("name", ["highatomic_stock", "highatomic_gate3"])
def test_a_pressed_recording_begins_at_its_snapshot(name: str) -> None:
    recording = shipped_recording(name)
    start = recording.begins_at
    assert start is not None
    left_out = len(recording.whole_trace) - len(recording.trace)
    assert left_out > 0 and recording.trace.time_ns[0] >= start.time_ns
    assert recording.whole_trace.time_ns[left_out - 1] < start.time_ns
    assert f"{left_out:,} events, are left out" in recording.trace.notes[-1]
    assert start_snapshots(recording) == (start, start)


@pytest.mark.parametrize("name", ["kbuild", "xfree"])
def test_a_quiet_recording_begins_at_its_first_event(name: str) -> None:
    recording = shipped_recording(name)
    assert recording.begins_at is None
    assert recording.trace is recording.whole_trace
    assert recording.flags_at_start is recording.kpageflags


def test_without_a_snapshot_in_its_time_it_begins_at_its_first_event() -> None:
    recording = shipped_recording("highatomic_gate3")
    first = recording.whole_trace.demand_span_ns[0]
    early = [snapshot for snapshot in recording.dated_snapshots if snapshot.time_ns <= first]
    assert early and start_snapshot(early, recording.whole_trace) is None
    assert start_snapshot((), recording.whole_trace) is None


def test_flags_tell_what_the_last_event_of_each_page_did() -> None:
    recording = shipped_recording("highatomic_gate3")
    trace, start = recording.whole_trace, recording.begins_at
    assert start is not None and recording.kpageflags is not None
    flags_then = flags_at(recording.kpageflags, trace, start)
    last: dict[int, int] = {}
    for row in range(int(np.searchsorted(trace.time_ns, start.time_ns))):
        if trace.event[row] <= Event.FREE and trace.pfn[row] >= 0:
            first = int(trace.pfn[row])
            last.update(dict.fromkeys(range(first, first + (1 << int(trace.order[row]))), row))
    freed = np.array([page for page, row in last.items() if trace.event[row] == Event.FREE])
    taken = np.array([page for page, row in last.items() if trace.event[row] == Event.ALLOC])
    assert len(freed) and (flags_then[freed] == flags.BUDDY).all()
    assert len(taken) and not (flags_then[taken] & flags.BUDDY).any()
    untouched = np.ones(len(flags_then), bool)
    untouched[np.array(list(last))] = False
    np.testing.assert_array_equal(flags_then[untouched], recording.kpageflags[untouched])
