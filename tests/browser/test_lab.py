"""The notebooks as a user meets them: run all cells, both themes, a slider by key and by mouse."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

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


SCREEN, SCREENS = 1080, 5
HEIGHTS = """
() => [...document.querySelectorAll('.jp-Notebook .jp-Cell')].map(
    cell => cell.getBoundingClientRect().height)
"""
# of every word in the outputs: colour and the ground it is on, as the theme sets them
LEGIBLE = """
() => {
  const channel = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(c => channel(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  return Math.min(...[...document.querySelectorAll('.pagealloc td, .pagealloc p')].map(each => {
    const [a, b] = [getComputedStyle(each).color, ground(each)].map(luminance);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }));
}
"""

# how the figures that are no widgets are turned
FILTERS = """
() => [...document.querySelectorAll('.jp-RenderedPlotly')].map(
    plot => getComputedStyle(plot).filter)
"""


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


def moves_the_figures(page: Page, key: str, share: float) -> None:
    """Move the first slider by a key, then by the mouse to a share of its track."""
    before = page.evaluate(PREDICTED)
    slider = page.locator(".widget-slider").first
    handle = slider.locator(".noUi-handle")
    handle.focus()
    page.keyboard.press(key)
    by_key = predicted_after(page, before)
    drag(page, handle, slider.locator(".noUi-base"), share)
    assert predicted_after(page, by_key) != by_key
    handle.scroll_into_view_if_needed()


def run_with_title(page: Page, lab: Lab, notebook: str, title: str) -> None:
    """Run a notebook until its widget's figure has a title."""
    run_all(page, lab, notebook)
    page.locator(WIDGET_FIGURES + " .main-svg").first.wait_for(timeout=RUN_ALL_MS)
    words = settled(page, WORDS, lambda words: any(title in each for each in words))
    assert any(title in each for each in words), words


def fits(heights: list[float]) -> bool:
    return 2 * SCREEN < sum(heights) <= SCREENS * SCREEN


def test_the_first_notebook_fits_five_screens_and_its_slider_moves_the_figures_in_both_themes(
    page: Page, lab: Lab, artefacts: Path
) -> None:
    problems = problems_of(page)
    page.set_viewport_size({"width": 1920, "height": SCREEN})
    run_with_title(page, lab, "00_start_here.ipynb", "holds of zone->lock per second")
    expect(page.locator(".js-plotly-plot:not(:has(.main-svg))")).to_have_count(0)
    heights = settled(page, HEIGHTS, fits)
    assert fits(heights), heights
    assert page.get_by_role("searchbox").count() >= 1
    assert settled(page, LEGIBLE, lambda found: found >= 4.5) >= 4.5
    assert set(page.evaluate(FILTERS)) == {"none"}
    moves_the_figures(page, "ArrowRight", 0.5)
    page.screenshot(path=artefacts / "00_light.png")
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.locator(".lm-Menu-item", has_text="Theme").first.click()
    page.get_by_role("menuitem", name="JupyterLab Dark", exact=True).click()
    page.wait_for_function("() => document.body.dataset.jpThemeLight === 'false'")
    dark = {"invert(0.93) hue-rotate(180deg)"}
    assert set(settled(page, FILTERS, lambda found: set(found) == dark)) == dark
    assert settled(page, LEGIBLE, lambda found: found >= 4.5) >= 4.5
    page.screenshot(path=artefacts / "00_dark.png")
    assert problems == []


@pytest.mark.long
def test_a_slider_moves_the_figures_of_two_recordings(
    page: Page, lab: Lab, artefacts: Path
) -> None:
    problems = problems_of(page)
    run_with_title(page, lab, "01_highatomic.ipynb", "HighAtomic pageblocks")
    moves_the_figures(page, "Home", 1.0)
    page.screenshot(path=artefacts / "01_highatomic.png")
    assert problems == []
