"""A stretch without events is passed over, and leaves what going through it leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.cli import main
from pagealloc_model.predicted import idle_time
from pagealloc_model.recording.importing import import_recording
from tests.recording.rewritten_store import rewrite

DATA = Path(__file__).parents[2] / "data"
DAY_S = 86_400


def with_last_event_later(name: str, directory: Path, seconds: int) -> Path:
    """A recording whose last event comes so much later."""
    store = import_recording(DATA / name, directory / name, compress=False).path

    def change(column: str, values: np.ndarray) -> np.ndarray:
        if column == "time_ns":
            values[-1] = values[0] + seconds * 10**9
        return values

    rewrite(store / "events.arrow", change=change)
    return store


def words_of(replay: pm.Replay) -> np.ndarray:
    assert replay.final is not None
    return np.asarray(replay.final.st).copy()


@pytest.mark.parametrize("elastic", [False, True], ids=["literal", "elastic"])
def test_what_is_passed_over_is_as_if_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elastic: bool
) -> None:
    recording = pm.open(with_last_event_later("mixed_6.1", tmp_path, DAY_S))
    assumptions = pm.Assumptions(reclaim="elastic" if elastic else "literal")
    passed = pm.replay(recording, assumptions=assumptions)
    monkeypatch.setattr(idle_time, "_ALIKE", 10**9)
    through = pm.replay(recording, assumptions=assumptions)
    for name in ("free_pages", "pageblocks", "pcp", "vmstat", "lock"):
        pd.testing.assert_frame_equal(getattr(passed, name), getattr(through, name))
    np.testing.assert_array_equal(words_of(passed), words_of(through))


def test_hundreds_of_days_take_few_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0
    reached = idle_time.IdleTime.reached

    def counted(self: idle_time.IdleTime, until_ns: int, instant: int, *, is_quiet: bool) -> None:
        nonlocal rounds
        rounds += 1
        reached(self, until_ns, instant, is_quiet=is_quiet)

    monkeypatch.setattr(idle_time.IdleTime, "reached", counted)
    recording = pm.open(with_last_event_later("mixed_6.1", tmp_path, 400 * DAY_S))
    pm.replay(recording, assumptions=pm.Assumptions(reclaim="elastic"))
    assert rounds < 20_000  # of 540,000


def test_info_doubts_a_long_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = with_last_event_later("mixed_6.1", tmp_path, 400 * DAY_S)
    assert main(["info", str(recording), "--full"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert any("400.0 days" in note for note in pm.validate(pm.open(recording)).notes)
    assert "with doubt" in printed and "400.0 days" in printed
