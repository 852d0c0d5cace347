"""Recordings with losses: the stretches between, what can be said of them, and of the whole."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.main import main
from pagealloc_model.numbers.loss_windows import loss_windows, recording_between
from pagealloc_model.numbers.validation import validate_windows
from pagealloc_model.recording.provenance import lost_share
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.trace.columns import Losses
from pagealloc_model.show.post import describe_recording
from tests.small_recordings import shipped_recording

SECOND = 10**9


def with_losses(*gaps: tuple[float, float], count: int = 100) -> Recording:
    """The shipped highatomic recording from its first event on, with losses; none are cut out."""
    recording = shipped_recording("highatomic_gate3")
    first = recording.whole_trace.demand_span_ns[0]
    edges = (first + np.array(gaps, float).reshape(-1, 2) * SECOND).astype(np.int64)
    losses = Losses(
        cpu=np.zeros(len(gaps), np.int16),
        start_ns=edges[:, 0],
        end_ns=edges[:, 1],
        count=np.full(len(gaps), count),
    )
    copy = replace(recording)
    copy.__dict__["trace"] = replace(recording.whole_trace, losses=losses)
    copy.__dict__["begins_at"] = None
    return copy


def test_nothing_lost_no_windows() -> None:
    assert loss_windows(with_losses()) == ()


def test_windows_lie_between_losses_of_all_cpus() -> None:
    """Two losses overlap; snapshots were taken at 1.1, 2.6 and 4.5 s."""
    windows = loss_windows(with_losses((2.0, 2.2), (2.1, 2.4)))
    assert [window.from_start for window in windows] == [True, False]
    assert [window.to_end for window in windows] == [False, True]
    assert [window.snapshots for window in windows] == [2, 2]
    assert not any(window.unusable for window in windows)
    assert str(windows[0]).startswith("0.000 to 2.000 s, ")


def test_a_window_without_a_second_snapshot_says_so() -> None:
    recording = with_losses((2.0, 3.0))
    assert [window.unusable for window in loss_windows(recording)] == [
        "",
        "one snapshot, two are needed",
    ]
    described = describe_recording(recording)["loss_free_windows"]
    assert described[1].endswith("cannot be validated: one snapshot, two are needed")
    with pytest.raises(UsageError, match="two are needed"):
        recording_between(recording, loss_windows(recording)[1])


def test_a_window_after_a_loss_starts_from_its_own_snapshot() -> None:
    recording = with_losses((2.0, 2.4))
    second = loss_windows(recording)[1]
    part = recording_between(recording, second)
    start = part.snapshots[0].time_ns
    assert start >= second.begin_ns
    assert part.trace.time_ns[0] >= start
    assert part.kpageflags is None
    assert not part.trace.losses.total
    assert not part.trace.tables["compaction:mm_compaction_suitable"]["row"][0] < 0


def test_errors_are_given_by_window() -> None:
    validations = validate_windows(with_losses((2.0, 2.4)))
    assert len(validations) == 2
    for window, validation in validations:
        assert len(validation.recording.trace) <= window.events
        assert "refill_pages" in set(validation.errors["metric"])


def test_much_lost_means_no_figure_for_the_whole() -> None:
    recording = with_losses((2.0, 2.4), count=60_000)
    assert lost_share(recording.trace) > 0.05
    with pytest.raises(UsageError, match="no figure for the whole recording means anything"):
        pm.validate(recording)


def test_the_command_refuses_in_one_line_and_shows_the_windows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = with_losses((2.0, 2.4), count=60_000)
    monkeypatch.setattr("pagealloc_model.cli.validation.opened", lambda _: recording)
    assert main(["validate", "highatomic_gate3", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert "\n" not in content["refused"] and "metrics" not in content
    assert [window["window"].endswith("can be validated") for window in content["windows"]] == [
        True
    ] * 2
    assert all(window["metrics"] for window in content["windows"])
