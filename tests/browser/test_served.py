"""What `pagealloc explore` serves, in a browser: no other host is asked, no token no page."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

import pagealloc_model as pm
from pagealloc_model.notebook.explore_tabs import Question
from pagealloc_model.policy.policy import policy_settings
from tests.browser.explored_page import WIDGET, open_all_groups
from tests.browser.jupyter_lab import REDRAW_MS, RUN_ALL_MS, problems_of, settled
from tests.small_recordings import write_recording

pytest.importorskip("voila")
pytestmark = pytest.mark.browser

GROUNDS = """
() => [...document.querySelectorAll(".js-plotly-plot > .plot-container .main-svg:first-of-type")]
  .filter(each => each.checkVisibility() && each.style.background)
  .map(each => each.style.background)
"""
DARK = {"rgb(17, 17, 17)"}
HALF_HIDDEN = "() => document.documentElement.scrollWidth > innerWidth"

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


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    recording = write_recording(folder / "small")
    state = folder / "state.json"
    candidate = pm.Policy(pcp_batch=2)
    state.write_text(
        Question(base=pm.Policy(), candidate=candidate, window=None, tab="pcp").as_json()
    )
    command = [sys.executable, "-m", "pagealloc_model.cli", "explore", str(recording)]
    options = ["--no-browser", "--dark", "--state", str(state)]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(timeout=30)


def test_the_page_is_on_loopback_and_asks_for_its_token(address: str) -> None:
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1"
    assert len(parts.query) > 20
    with urllib.request.urlopen(f"http://{parts.netloc}/", timeout=60) as answer:
        assert "/login" in answer.geturl()


def test_the_page_explores_by_named_controls_and_asks_no_other_host(
    page: Page, address: str, artefacts: Path
) -> None:
    host = urlsplit(address).netloc
    answered: list[str] = []
    problems = problems_of(page)
    page.on("response", lambda response: answered.append(response.url))
    page.set_viewport_size({"width": 800, "height": 1080})
    page.goto(address, timeout=RUN_ALL_MS)
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=RUN_ALL_MS)
    status = page.locator("[role=status]")
    expect(status).to_contain_text("candidate pcp_batch=2 (", timeout=REDRAW_MS)
    assert page.get_by_role("button", name="Copy link", exact=True).is_visible()
    page.get_by_role("button", name="give back pcp_batch", exact=True).click()
    expect(status).to_contain_text("candidate as recorded (", timeout=REDRAW_MS)
    assert not settled(page, HALF_HIDDEN, lambda hidden: not hidden)
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    grounds = settled(page, GROUNDS, lambda found: len(found) > 1 and set(found) == DARK)
    assert len(grounds) > 1
    assert set(grounds) == DARK
    page.screenshot(path=artefacts / "served_page.png")

    open_all_groups(page)
    parts = page.evaluate(OPERABLE)
    assert len(parts) > 2 * len(policy_settings())
    assert [part for part in parts if not part["name"] or not part["reached"]] == []
    page.get_by_role("slider", name="pcp_batch (pages)", exact=True).focus()
    page.keyboard.press("Home")
    code = page.locator(f"{WIDGET} pre").last
    expect(code).to_contain_text("candidate=pm.Policy(pcp_batch=1)", timeout=REDRAW_MS)
    page.get_by_role("button", name="Fragmentation", exact=True).click()
    expect(code).to_contain_text("tab='fragmentation'", timeout=REDRAW_MS)
    # Voila's template asks other hosts for fonts, which the page's policy blocks
    assert [each for each in problems if "has been blocked" not in each] == []
    assert page.get_by_text("Error displaying widget").count() == 0
    elsewhere = [url for url in answered if urlsplit(url).netloc not in (host, "")]
    assert elsewhere == []
