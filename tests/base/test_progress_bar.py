"""Bars for people: in a terminal and in a notebook, with rate and time left, else nothing."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient

from pagealloc_model.base import progress_bar
from pagealloc_model.base.progress_bar import in_notebook, progress
from tests.small_recordings import shipped_recording

NOTEBOOK_CELL = """
from pagealloc_model.base import progress_bar
progress_bar.QUIET_FIRST_S = 0
with progress_bar.progress("reading kbuild", 5_000_000, "events") as report:
    report(0.5)
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch, *, quiet_first_s: float = 0) -> Terminal:
    """Standard error from here on; no fixture, since pytest sets its own after these."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress_bar, "QUIET_FIRST_S", quiet_first_s)
    return stream


def test_nobody_looks() -> None:
    with progress("reading") as report:
        assert report is None


def test_a_terminal_shows_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    with progress("reading kbuild", 5_000_000, "events") as report:
        assert report is not None
        for share in (0.25, 0.5):
            time.sleep(0.2)  # tqdm draws ten times a second at most
            report(share)
    shown = stream.getvalue()
    assert "reading kbuild:  50%" in shown
    assert "left" in shown
    assert "events/s" in shown


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch, quiet_first_s=3600)
    with progress("reading") as report:
        assert report is not None
        report(0.5)
    assert stream.getvalue().strip() == ""


def test_reports_go_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    shares: list[float] = []
    with progress("reading", given=shares.append) as report:
        assert report is not None
        report(0.5)
    assert shares == [0.5]
    assert stream.getvalue() == ""


def test_reading_and_replaying_show_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    import pagealloc_model as pm

    recording = pm.open(shipped_recording("highatomic_gate3").path)
    pm.replay(recording)
    assert "reading highatomic_gate3" in stream.getvalue()
    assert "replaying highatomic_gate3" in stream.getvalue()


def test_a_notebook_is_known_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    for shell, known in ((None, False), (object(), False), (SimpleNamespace(kernel=1), True)):
        fake = SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", fake)
        assert in_notebook() is known


def test_a_notebook_shows_a_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = str(Path(progress_bar.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([checkout, os.environ.get("PYTHONPATH", "")]))
    cell = nbformat.v4.new_code_cell(NOTEBOOK_CELL)
    NotebookClient(nbformat.v4.new_notebook(cells=[cell]), timeout=120).execute()
    shown = [output["data"] for output in cell.outputs if output["output_type"] == "display_data"]
    assert len(shown) == 1
    assert "application/vnd.jupyter.widget-view+json" in shown[0]
    assert shown[0]["text/plain"].startswith("reading kbuild")
