"""What results show of themselves: sorted and filtered in a page, in both themes of JupyterLab."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pagealloc_model.base.table import Cell, Column, Table
from pagealloc_model.show.html.results import framed, line
from tests.browser.jupyter_lab import Lab, problems_of, run_all, settled

pytestmark = pytest.mark.browser

NUMBERS = (3.0, -20.0, float("nan"), 1000.0, 5.0, 0.0, 7.0, 8.0)
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


def small_page() -> str:
    rows = [
        [Cell(shown=f"row {chr(104 - place)}"), Cell(shown=f"{value:,.0f} pages", number=value)]
        for place, value in enumerate(NUMBERS)
    ]
    columns = [Column(title="name", words=True), Column(title="amount")]
    return framed(line("words"), Table(columns, rows, "amounts").to_html())


def shown_rows(page: Page) -> list[str]:
    return [each.inner_text() for each in page.locator("tbody tr:visible td:first-child").all()]


def test_a_table_sorts_by_number_and_by_words(page: Page) -> None:
    problems = problems_of(page)
    page.set_content(small_page())
    amount = page.get_by_role("button", name="amount")
    amount.click()
    by_amount = [cell.inner_text() for cell in page.locator("tbody td:last-child").all()]
    assert by_amount[:2] == ["-20 pages", "0 pages"]
    assert by_amount[-2:] == ["1,000 pages", "nan pages"]
    amount.press("Enter")
    by_amount = [cell.inner_text() for cell in page.locator("tbody td:last-child").all()]
    assert by_amount[0] == "1,000 pages"
    assert by_amount[-1] == "nan pages"
    expect(page.get_by_role("columnheader", name="amount")).to_have_attribute(
        "aria-sort", "descending"
    )
    page.get_by_role("button", name="name").click()
    assert shown_rows(page) == sorted(shown_rows(page))
    assert problems == []


def test_a_table_shows_the_rows_with_some_words(page: Page) -> None:
    page.set_content(small_page())
    page.get_by_role("searchbox").fill("ROW 1,000")
    assert shown_rows(page) == ["row e"]
    expect(page.get_by_text("1 of 8 rows")).to_be_visible()
    page.get_by_role("searchbox").fill("")
    assert len(shown_rows(page)) == len(NUMBERS)


def test_without_scripts_the_table_stands(page: Page) -> None:
    bare, _, _ = small_page().partition("<script>")
    page.set_content(bare + "</div>")
    assert len(shown_rows(page)) == len(NUMBERS)
    assert page.get_by_role("button").count() == 0


def fits(heights: list[float]) -> bool:
    return 2 * SCREEN < sum(heights) <= SCREENS * SCREEN


def test_the_first_notebook_fits_five_screens_in_both_themes(
    page: Page, lab: Lab, artefacts: Path
) -> None:
    problems = problems_of(page)
    page.set_viewport_size({"width": 1920, "height": SCREEN})
    # a name of its own: another test runs the notebook in a kernel that lives on
    shutil.copy(lab.root / "00_start_here.ipynb", lab.root / "first_sight.ipynb")
    run_all(page, lab, "first_sight.ipynb")
    page.locator(".jupyter-widgets .js-plotly-plot .main-svg").first.wait_for()
    expect(page.locator(".js-plotly-plot:not(:has(.main-svg))")).to_have_count(0)
    heights = settled(page, HEIGHTS, fits)
    assert fits(heights), heights
    assert page.get_by_role("searchbox").count() >= 1
    assert settled(page, LEGIBLE, lambda found: found >= 4.5) >= 4.5
    assert set(page.evaluate(FILTERS)) == {"none"}
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
