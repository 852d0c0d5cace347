"""What results show of themselves: sorted and filtered in a page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from pagealloc_model.base.table import Cell, Column, Table
from pagealloc_model.show.html.results import framed, line
from tests.browser.jupyter_lab import problems_of

pytestmark = pytest.mark.browser

NUMBERS = (3.0, -20.0, float("nan"), 1000.0, 5.0, 0.0, 7.0, 8.0)


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
