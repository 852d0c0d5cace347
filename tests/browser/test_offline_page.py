"""What `pagealloc notebook` writes, in a browser without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page

pytestmark = pytest.mark.browser

SHOWN = "() => JSON.stringify([...document.querySelector('.js-plotly-plot')._fullData[0].y])"
CELLS = """\
import plotly.graph_objects as go
from pagealloc_model.notebook.controls import PolicyControls
from pagealloc_model.notebook.view import Explorer, View
def compute(policy, progress, cancelled):
    line = go.Scatter(x=[0, 1], y=[0, policy.pcp_batch or 0], meta="line")
    return View(figure=go.Figure(line, {"title": {"text": "A line"}}), words=lambda: "in words")
Explorer("title", PolicyControls(["pcp_batch"], recorded={"pcp_batch": 63}), compute)"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a small notebook's study, written by the command."""
    from nbformat import write
    from nbformat.v4 import new_code_cell, new_notebook

    folder = tmp_path_factory.mktemp("study")
    first = new_code_cell('recording = "kbuild"', metadata={"tags": ["parameters"]})
    write(new_notebook(cells=[first, new_code_cell(CELLS)]), folder / "small.ipynb")
    command = [sys.executable, "-m", "pagealloc_model.cli", "notebook", "small.ipynb", "-o", "out"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder / "out"


def test_figures_are_written_in_three_formats(study: Path) -> None:
    found = {path.suffix: path.read_bytes() for path in (study / "figures").iterdir()}
    assert found[".png"].startswith(b"\x89PNG")
    assert found[".pdf"].startswith(b"%PDF")
    assert b"A line" in found[".svg"]


def test_the_page_is_live_and_asks_the_network_for_nothing(study: Path, page: Page) -> None:
    page.context.set_offline(True)
    asked, problems = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((study / "small.html").as_uri())
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    assert page.evaluate(SHOWN) == "[0,0]"
    assert asked == [(study / "small.html").as_uri()]
    assert problems == []
