"""Recordings that begin at their first snapshot: lists turned over before it (T10.6)."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.recording.turned_over import flags_at, turned_over
from tests.small_recordings import shipped_recording


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
    early = [each for each in recording.dated_snapshots if each.time_ns <= first]
    assert early and turned_over(early, recording.whole_trace) is None
    assert turned_over((), recording.whole_trace) is None


def test_flags_tell_what_the_last_event_of_each_page_did() -> None:
    recording = shipped_recording("highatomic_gate3")
    trace, start = recording.whole_trace, recording.begins_at
    assert start is not None and recording.kpageflags is not None
    found = flags_at(recording.kpageflags, trace, start)
    last: dict[int, int] = {}
    for row in range(int(np.searchsorted(trace.time_ns, start.time_ns))):
        if trace.event[row] <= Event.FREE and trace.pfn[row] >= 0:
            first = int(trace.pfn[row])
            last.update(dict.fromkeys(range(first, first + (1 << int(trace.order[row]))), row))
    freed = np.array([page for page, row in last.items() if trace.event[row] == Event.FREE])
    taken = np.array([page for page, row in last.items() if trace.event[row] == Event.ALLOC])
    assert len(freed) and (found[freed] == flags.BUDDY).all()
    assert len(taken) and not (found[taken] & flags.BUDDY).any()
    untouched = np.ones(len(found), bool)
    untouched[np.array(list(last))] = False
    np.testing.assert_array_equal(found[untouched], recording.kpageflags[untouched])
