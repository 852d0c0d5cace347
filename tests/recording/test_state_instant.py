"""The instant of a state file, by the events that were counted up to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.state_file import write_state
from pagealloc_model.recording.state_instant import dated_state, dated_states
from pagealloc_model.recording.trace.columns import CUT, Event, Losses
from tests.diagnosis.test_page_for_page import quiet


def test_the_states_lie_where_the_guest_stood_still() -> None:
    begin, end = quiet().states
    assert (begin.path.name, end.path.name) == ("begin.state", "end.state")
    for dated in (begin, end):
        counts = dict(zip(dated.state.about["events"], dated.state.event_count, strict=True))
        before = quiet().whole_trace.time_ns < dated.time_ns
        of_cpu = quiet().whole_trace.cpu[before & (quiet().whole_trace.event == 0)]
        assert np.bincount(of_cpu, minlength=2).tolist() == counts["mm_page_alloc"].tolist()
        assert dated.slack_ns > 1_000_000_000
    assert quiet().trace.time_ns[0] >= begin.time_ns


def test_the_instant_of_a_state_is_between_the_ticks_that_were_counted(tmp_path: Path) -> None:
    """Per-CPU lists decay at ticks, so one tick more or less before it gives other pages."""
    (begin, _), trace = quiet().states, quiet().whole_trace
    ticks = trace.tables["workqueue:workqueue_execute_start"]
    times = {cpu: ticks["time_ns"][ticks["cpu"] == cpu] for cpu in (0, 1)}
    counted = [int((times[cpu] < begin.time_ns).sum()) for cpu in (0, 1)]
    state = begin.state
    about = {**state.about, "events": [*state.about["events"], "workqueue_execute_start"]}
    for more in (0, 1):
        counts = np.array([*state.event_count, [counted[0] + more, counted[1]]])
        file = tmp_path / f"{more}.state"
        write_state(file, replace(state, about=about, event_count=counts))
        dated = dated_state(file, trace)
        assert [int((times[cpu] < dated.time_ns).sum()) for cpu in (0, 1)] == counts[-1].tolist()
    assert dated_state(tmp_path / "0.state", trace).time_ns == begin.time_ns


def test_a_tick_may_be_the_last_event_before_a_state(tmp_path: Path) -> None:
    """Where pages are left alone at the end, ticks go on."""
    (begin, _), trace = quiet().states, quiet().whole_trace
    name, idle_ns = "workqueue_execute_start", int(trace.time_ns[-1]) + 2_000_000_000
    ticks = {"time_ns": np.array([idle_ns]), "cpu": np.array([1])}
    later = replace(trace, tables={**trace.tables, f"workqueue:{name}": ticks})
    about = {**begin.state.about, "events": ["mm_page_alloc", name]}
    requests = np.bincount(trace.cpu[trace.event == Event.ALLOC])
    for counted in (0, 1):
        counts = np.array([requests, [0, counted]])
        file = tmp_path / f"{counted}.state"
        write_state(file, replace(begin.state, about=about, event_count=counts))
        assert (dated_state(file, later).time_ns > idle_ns) == (counted == 1)


def test_a_state_hidden_by_missing_events_is_left_out(tmp_path: Path) -> None:
    (begin, _), trace = quiet().states, quiet().whole_trace
    at_begin = np.array([begin.time_ns])
    losses = Losses(np.array([0]), at_begin, at_begin + 1, np.array([1_234]))
    files = tmp_path / "begin.state", tmp_path / "end.state"
    for file, more in zip(files, (0, 1_000_000), strict=True):
        write_state(file, replace(begin.state, event_count=begin.state.event_count + more))
    lossy = replace(trace, losses=losses)
    assert [state.path for state in dated_states(files, lossy)] == [files[0]]
    with pytest.raises(RecordingError, match="lost 1,234; delete it, or record again with larger"):
        dated_states(files[1:], lossy)
    cut = replace(trace, notes=(f"the event file {CUT} at byte 7",))
    assert [state.path for state in dated_states(files, cut)] == [files[0]]
    with pytest.raises(RecordingError, match="was cut short"):
        dated_states(files[1:], cut)
    with pytest.raises(RecordingError, match="has more events before it"):
        dated_states(files, trace)
