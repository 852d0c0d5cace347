"""The explorer of a whole recording in a browser: names, keyboard, tabs."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.recording.recording import open_recording
from tests.browser.explored_page import WIDGET, open_all_groups
from tests.browser.jupyter_lab import REDRAW_MS, RUN_ALL_MS, Lab, problems_of, run_all

pytestmark = pytest.mark.browser

# what can be operated: its name, and whether the keyboard reaches it
OPERABLE = """
() => [...document.querySelectorAll(
    'WIDGET input, WIDGET select, WIDGET button, WIDGET [role=slider]')]
  .filter(part => part.checkVisibility())
  .map(part => ({
    name: (part.getAttribute('aria-label') || (part.labels && [...part.labels].map(
        label => label.textContent).join(' ')) || part.textContent || '').trim(),
    reached: part.tabIndex >= 0,
  }))
""".replace("WIDGET", WIDGET)


def test_controls_are_named_reached_and_answered(page: Page, lab: Lab, artefacts: Path) -> None:
    try:
        open_recording("kbuild")
    except RecordingError as error:
        pytest.skip(str(error))
    problems = problems_of(page)
    run_all(page, lab, "08_explore.ipynb")
    page.locator(f"{WIDGET} .js-plotly-plot .main-svg").nth(1).wait_for(timeout=RUN_ALL_MS)
    open_all_groups(page)
    parts = page.evaluate(OPERABLE)
    assert len(parts) > 2 * len(policy_settings())
    assert [part for part in parts if not part["name"] or not part["reached"]] == []

    page.get_by_role("slider", name="pcp_batch (pages)", exact=True).focus()
    page.keyboard.press("Home")
    code = page.locator(f"{WIDGET} pre").last
    expect(code).to_contain_text("candidate=pm.Policy(pcp_batch=1)", timeout=REDRAW_MS)
    page.get_by_role("button", name="PCP", exact=True).click()
    expect(code).to_contain_text("tab='pcp'", timeout=REDRAW_MS)
    page.screenshot(path=artefacts / "08_explore.png")
    assert problems == []
