"""The notebooks as a user meets them: run all cells, move a slider by key and by mouse."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.recording import open_recording
from tests.browser.jupyter_lab import REDRAW_MS, RUN_ALL_MS, Lab, problems_of, run_all, settled

pytestmark = pytest.mark.browser

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


def predicted_after(page: Page, before: str) -> str:
    """The predicted coordinates, once they are others than before."""
    page.wait_for_function(f"before => ({PREDICTED})() !== before", arg=before, timeout=REDRAW_MS)
    expect(page.locator("[role=status]")).to_contain_text("shown:", timeout=REDRAW_MS)
    return str(page.evaluate(PREDICTED))


def drag(page: Page, handle: Locator, track: Locator, share: float) -> None:
    """Pull a slider's handle with the mouse to a share of its track."""
    handle.scroll_into_view_if_needed()
    start, way = handle.bounding_box(), track.bounding_box()
    assert start is not None
    assert way is not None
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    page.mouse.move(way["x"] + share * way["width"], way["y"] + way["height"] / 2, steps=5)
    page.mouse.up()


@pytest.mark.parametrize(
    ("notebook", "recordings", "title", "key", "share"),
    [
        (
            "00_start_here.ipynb",
            ["kbuild"],
            "holds of zone->lock per second",
            "ArrowLeft",
            0.5,
        ),
        (
            "01_highatomic.ipynb",
            ["highatomic_gate3", "highatomic_stock"],
            "HighAtomic pageblocks",
            "End",
            0.0,
        ),
    ],
)
def test_a_slider_moves_the_figures(
    notebook: str,
    recordings: list[str],
    title: str,
    key: str,
    share: float,
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
    words = settled(page, WORDS, lambda words: any(title in each for each in words))
    assert any(title in each for each in words), words

    before = page.evaluate(PREDICTED)
    slider = page.locator(".widget-slider").first
    handle = slider.locator(".noUi-handle")
    handle.focus()
    page.keyboard.press(key)
    by_key = predicted_after(page, before)
    drag(page, handle, slider.locator(".noUi-base"), share)
    assert predicted_after(page, by_key) != by_key

    handle.scroll_into_view_if_needed()
    page.screenshot(path=artefacts / f"{Path(notebook).stem}.png")
    assert problems == []
