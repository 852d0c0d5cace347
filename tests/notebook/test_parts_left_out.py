"""A recording without one of its parts is told, measured, replayed and drawn all the same."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli import main
from pagealloc_model.notebook.explore import RecordingExplorer
from pagealloc_model.notebook.explore_tabs import TABS, Question, SidesOf
from pagealloc_model.notebook.start_here import start_here
from pagealloc_model.show import figures

SMALLEST = Path(__file__).parents[2] / "data/defrag_7.3"
PARTS = ("pagetypeinfo", "buddyinfo", "vmstat", "kpageflags", "meta")
NEEDED = ("zoneinfo", "snapshots")
"""Without one of these a recording is measured, but not replayed: nothing else gives the zones."""


@pytest.fixture
def recording(tmp_path: Path, part: str) -> pm.Recording:
    """The smallest shipped recording without a part."""
    whole = shutil.copytree(SMALLEST, tmp_path / "recording")
    files = [*whole.glob(f"{part}*"), *whole.glob(f"snapshots/*/{part}*")]
    assert files, f"the recording has no {part}"
    for file in files:
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    return pm.open(whole)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", PARTS)
def test_what_the_first_notebook_shows_needs_no_part(recording: pm.Recording) -> None:
    validation = pm.validate(recording)
    assert figures.at_a_glance.drawing(validation.measured, validation.replay)
    assert figures.how_right.drawing(validation.errors, validation.snapshots, recording.name)
    assert validation._repr_html_() and str(validation)
    assert start_here(recording)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", PARTS)
def test_every_tab_of_the_explorer_needs_no_part(recording: pm.Recording) -> None:
    candidate = pm.Policy(pcp_batch=128)
    question = Question(base=pm.Policy(), candidate=candidate, window=None, tab=TABS[0].name)
    assert RecordingExplorer(recording, question).difference.value
    sides = SidesOf(recording)
    for tab in TABS:
        asked = replace(question, tab=tab.name)
        assert tab.draw(sides.answer(asked, lambda _: None, threading.Event())), tab.name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", PARTS)
def test_the_commands_need_no_part(recording: pm.Recording) -> None:
    path = str(recording.path)
    assert main(["info", path]) == 0
    assert main(["validate", path]) == 0
    assert main(["compare", path, "--patch", "pcp_batch=128"]) == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", NEEDED)
def test_without_zones_what_is_missing_is_named(
    recording: pm.Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(recording.path)
    assert main(["info", path]) == 0
    for words in (["validate", path], ["compare", path, "--patch", "pcp_batch=128"]):
        assert main(words) == 2
        assert "zoneinfo" in capsys.readouterr().err
    for needs in (pm.validate, start_here):
        with pytest.raises(UsageError, match="zoneinfo"):
            needs(recording)
