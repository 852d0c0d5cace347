"""Widgets whose models anywidget has given up on follow their controls all the same."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.browser.explored_page import KERNEL, WIDGET
from tests.browser.jupyter_lab import REDRAW_MS, Lab, run_all

pytestmark = pytest.mark.browser

GIVEN_UP = """{
  const limited = AbortSignal.timeout;
  AbortSignal.timeout = ms => limited.call(AbortSignal, ms === 2000 ? 0 : ms);
}"""
"""anywidget's limit of two seconds, passed before any model has started."""
NO_LIBRARY = """{
  const made = URL.createObjectURL;
  URL.createObjectURL = blob => made.call(URL, blob.size > 2e6
      ? new Blob(["throw new Error('no memory')"], { type: "text/javascript" }) : blob);
}"""
"""Plotly's code, of several megabytes, fails on this page; a picture's own is small."""
CELL = """\
import plotly.graph_objects as go
from pagealloc_model.notebook.controls import PolicyControls
from pagealloc_model.notebook.page_widget import folded_text
from pagealloc_model.notebook.view import Explorer, View
def compute(policy, progress, cancelled):
    line = go.Scatter(x=[0, 1], y=[0, policy.pcp_batch or 0], meta="line")
    title = {"title": {"text": f"batch {policy.pcp_batch}"}} if policy.pcp_batch == 62 else {}
    return View(figure=go.Figure(line, title), words=lambda: folded_text(str(policy)))
Explorer("title", PolicyControls(["pcp_batch"], recorded={"pcp_batch": 63}), compute)"""
DRAWN = f"""
height => document.querySelector('{WIDGET} .js-plotly-plot')?.data?.[0].y[1] === height
"""


def open_cell(page: Page, lab: Lab, name: str, script: str) -> None:
    cells = [nbformat.v4.new_code_cell(CELL)]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    nbformat.write(notebook, lab.root / name)
    page.add_init_script(script)
    run_all(page, lab, name)


def test_a_picture_and_its_words_follow_a_slider_though_anywidget_gave_up(
    page: Page, lab: Lab
) -> None:
    gave_up: list[str] = []
    page.on("pageerror", lambda error: gave_up.append(str(error)))
    open_cell(page, lab, "late.ipynb", GIVEN_UP)
    slider = page.get_by_role("slider", name="pcp_batch (pages)")
    # 64 moves a line; 62 has a title too, so that the whole figure is sent; 63 goes back
    for key, height in (("ArrowRight", 64), ("ArrowLeft", 63), ("ArrowLeft", 62)):
        slider.focus()
        page.keyboard.press(key)
        page.wait_for_function(DRAWN, arg=height, timeout=REDRAW_MS)
        told = page.locator(f"{WIDGET} details pre")
        expect(told).to_have_text(f"pcp_batch={height}", timeout=REDRAW_MS)
    assert any("Failed to initialize model" in error for error in gave_up)


def test_a_picture_that_cannot_be_drawn_says_so(page: Page, lab: Lab) -> None:
    open_cell(page, lab, "failed.ipynb", NO_LIBRARY)
    alert = page.locator(f"{WIDGET} [role=alert]")
    expect(alert).to_contain_text("could not be drawn", timeout=REDRAW_MS)
    expect(alert).to_contain_text("Run the cell again")
