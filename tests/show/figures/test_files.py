"""Figures in files: what is said without Chromium, and what becomes of one that fails or hangs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import plotly.graph_objects as go
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.show.figures import files
from pagealloc_model.show.figures.files import FORMATS, write_figure, write_figures


def test_without_chromium_one_line_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was drawn before is not taken for what could not be drawn."""
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-browser"))
    for kind in FORMATS:
        (tmp_path / f"x.{kind}").write_text("drawn before")
    with pytest.raises(UsageError, match="no Chromium or Chrome was found; install one"):
        write_figures({"x": go.Figure()}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_browser_that_ends_early_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def draw(figures: Mapping[Path, go.Figure]) -> str:
        attempts.append(len(figures))
        first = len(attempts) == 1
        for file in list(figures)[: 1 if first else None]:
            file.write_text("drawn")
        return "the browser seemed to close immediately after starting" if first else ""

    monkeypatch.setattr(files, "draw", draw)
    assert len(write_figures({"x": go.Figure()}, tmp_path)) == 3
    assert attempts == [3, 2]


def test_a_browser_that_never_answers_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, started = tmp_path / "browser", tmp_path / "started"
    browser.write_text(f"#!/bin/sh\necho $$ $(pwd) >>{started}\nexec sleep 1000\n")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(browser))
    monkeypatch.setattr(files, "START_SECONDS", 5)
    monkeypatch.setattr(files, "FILE_SECONDS", 0)
    monkeypatch.setattr(files, "ATTEMPTS", 1)
    with pytest.raises(UsageError, match="written: Chromium was not done in 5 s"):
        write_figure(go.Figure(), tmp_path / "x.png")
    number, directory = started.read_text().split()
    assert directory == "/", "its libraries read files of the directory that they are started in"
    end = time.monotonic() + 60
    while is_running(int(number)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(int(number))


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a figure is \.png, \.svg, \.pdf"):
        write_figure(go.Figure(), tmp_path / "figure.gif")


def test_hatched_bars_are_outlined_in_a_pdf() -> None:
    hatched = {"type": "bar", "marker": {"color": "#D55E00", "pattern": {"shape": "/"}}}
    solid = {"type": "bar", "marker": {"color": "#0072B2", "pattern": {"shape": ""}}}
    outlined = files.without_pattern(hatched)["marker"]
    assert outlined == {"color": "white", "line": {"color": "#D55E00", "width": 1.5}}
    assert files.without_pattern(solid)["marker"] == {"color": "#0072B2"}
