"""The notebooks as a user meets them: run all cells, move a slider by keyboard, see it redraw."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from playwright.sync_api import ConsoleMessage, Page, expect

from pagealloc_model.bundle import open_recording
from pagealloc_model.errors import RecordingError

if TYPE_CHECKING:
    from conftest import Lab

pytestmark = pytest.mark.browser

START_MS = 60_000
RUN_ALL_MS = 300_000
REDRAW_MS = 60_000

WIDGET_FIGURES = ".jp-OutputArea-output .jupyter-widgets .js-plotly-plot"

# every coordinate of every predicted trace in the widget's figures, as one text
PREDICTED = """
() => JSON.stringify([...document.querySelectorAll('SELECTOR')].map(
    plot => plot._fullData
        .filter(trace => String(trace.meta).includes('predicted:'))
        .map(trace => [trace.meta, Array.from(trace.y), Array.from(trace.x)])))
""".replace("SELECTOR", WIDGET_FIGURES)

# what the widget's figure says about itself once it is laid out
WORDS = """
() => [...document.querySelectorAll('SELECTOR')].flatMap(
    plot => plot._fullLayout.annotations.map(note => note.text))
""".replace("SELECTOR", WIDGET_FIGURES)


def problems_of(page: Page) -> list[str]:
    """Errors that the page writes to its console from now on."""
    found: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            found.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def run_all(page: Page, lab: Lab, notebook: str) -> None:
    """Open a notebook, run all its cells and wait for the last."""
    cells = nbformat.read(lab.root / notebook, as_version=4).cells
    code_cells = sum(cell.cell_type == "code" for cell in cells)
    page.goto(lab.url_of(notebook))
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    expect(prompts).to_have_count(code_cells, timeout=START_MS)
    expect(page.get_by_text("| Idle")).to_be_visible(timeout=START_MS)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    expect(prompts.last).to_have_text(f"[{code_cells}]:", timeout=RUN_ALL_MS)
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0


@pytest.mark.parametrize(
    ("notebook", "recordings", "title", "key"),
    [
        ("00_start_here.ipynb", ["kbuild"], "Free pages by order", "ArrowLeft"),
        (
            "01_highatomic.ipynb",
            ["highatomic_gate3", "highatomic_stock"],
            "HighAtomic pageblocks",
            "End",
        ),
    ],
)
def test_a_slider_moves_the_figures(
    notebook: str,
    recordings: list[str],
    title: str,
    key: str,
    page: Page,
    lab: Lab,
    artefacts: Path,
) -> None:
    for name in recordings:
        try:
            open_recording(name)
        except RecordingError as error:
            pytest.skip(str(error))
    problems = problems_of(page)
    run_all(page, lab, notebook)
    page.locator(WIDGET_FIGURES + " .main-svg").first.wait_for(timeout=RUN_ALL_MS)
    assert any(title in shown for shown in page.evaluate(WORDS))

    before = page.evaluate(PREDICTED)
    handle = page.locator(".widget-slider .noUi-handle").first
    handle.focus()
    page.keyboard.press(key)
    page.wait_for_function(f"before => ({PREDICTED})() !== before", arg=before, timeout=REDRAW_MS)
    expect(page.locator("[role=status]")).to_contain_text("shown:", timeout=REDRAW_MS)

    handle.scroll_into_view_if_needed()
    page.screenshot(path=artefacts / f"{Path(notebook).stem}.png")
    assert problems == []
