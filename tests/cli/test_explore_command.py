"""`pagealloc explore`: what it refuses before anything is served."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pagealloc_model.cli import main
from tests.small_recordings import write_recording


def test_without_voila_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "voila", None)
    monkeypatch.setitem(sys.modules, "voila.app", None)
    recording = write_recording(tmp_path / "small")
    assert main(["explore", str(recording), "--no-browser"]) == 2
    assert "pip install '.[explore]'" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "no JSON", '{"base": {}}'])
def test_a_state_that_is_none_is_refused(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = write_recording(tmp_path / "small")
    state = tmp_path / "state.json"
    if content is not None:
        state.write_text(content)
    assert main(["explore", str(recording), "--no-browser", "--state", str(state)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
