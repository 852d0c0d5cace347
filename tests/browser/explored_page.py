"""The explorer of one recording as a page in JupyterLab: its controls, its figure, its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import nbformat
from playwright.sync_api import Locator, Page, TimeoutError, expect

import pagealloc_model as pm
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.policy.policy_fields import BOOL, CHOICE, NUMBERS, Setting
from tests.browser.jupyter_lab import REDRAW_MS, Lab, end_kernels, run_all

WIDGET = ".jp-OutputArea-output .jupyter-widgets"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}

# what the page holds for the predicted traces of the figure on show, by their names
PREDICTED = """
() => Object.fromEntries(
    [...document.querySelectorAll('WIDGET .js-plotly-plot')]
      .filter(plot => plot.checkVisibility())
      .flatMap(plot => plot.data)
      .filter(trace => /predicted:/.test(trace.meta) && !/^legend/.test(trace.meta))
      .map(trace => [trace.meta, { x: Array.from(trace.x), y: Array.from(trace.y) }]))
""".replace("WIDGET", WIDGET)
HOLDS = f"""
wanted => {{
  const held = ({PREDICTED})();
  return Object.entries(wanted).every(
      ([name, values]) => held[name] && JSON.stringify(held[name].y) === JSON.stringify(values));
}}
"""

# what a newer answer is waited for after
MARK_AS_SEEN = """
() => document.querySelectorAll('[role=status], [role=alert]')
    .forEach(part => { part.dataset.seen = 'true'; })
"""

FIRST_DRAWN_MS = 120_000

Drawn = dict[str, dict[str, list[float]]]
"""Coordinates by a trace's name."""


class ExploredPage:
    """`pm.explore` of one recording in a notebook of its own, all groups open.

    Args:
        page: of the browser.
        lab: JupyterLab; gets the notebook.
        recording: its path.
    """

    def __init__(self, page: Page, lab: Lab, recording: Path) -> None:
        self._page = page
        cell = f"import pagealloc_model as pm\npm.explore({str(recording)!r})"
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell)], metadata={"kernelspec": KERNEL}
        )
        nbformat.write(notebook, lab.root / "explored.ipynb")
        run_until_drawn(page, lab, "explored.ipynb")
        open_all_groups(page)
        self._status = page.locator(f"{WIDGET} [role=status]:not([data-seen])")
        self._alert = page.locator(f"{WIDGET} [role=alert]:not([data-seen])")
        self._note = page.locator(f"{WIDGET} [role=note]")
        self._code = page.locator(f"{WIDGET} pre").last

    def control(self, name: str) -> Locator:
        """The control of a policy's setting."""
        about = policy_settings()[name].metadata
        if about["kind"] == BOOL:
            return self._page.get_by_role("checkbox", name=name, exact=True)
        if about["kind"] in (CHOICE, NUMBERS):
            return self._page.get_by_role("combobox", name=name, exact=True)
        words = f"{name} ({about['unit']})" if about["unit"] else name
        return self._page.get_by_role("slider", name=words, exact=True)

    def value(self, name: str) -> Setting:
        """What a control is at."""
        kind = policy_settings()[name].metadata["kind"]
        control = self.control(name)
        if kind == BOOL:
            return control.is_checked()
        if kind in (CHOICE, NUMBERS):
            words = str(control.evaluate("menu => menu.selectedOptions[0].textContent"))
            return words.replace("\xa0", " ")
        return int(float(control.get_attribute("aria-valuenow") or "nan"))

    def move(self, name: str) -> Setting:
        """Set a control to another value as a user would: switches by mouse, all else by key.

        Returns:
            the value that the page then shows.
        """
        before, control = self.value(name), self.control(name)
        self._page.evaluate(MARK_AS_SEEN)
        if isinstance(before, bool):
            control.click()
        else:
            control.focus()
            self._page.keyboard.press("End")
            if self.value(name) == before:
                self._page.keyboard.press("Home")
        assert self.value(name) != before
        return self.value(name)

    def choose(self, name: str, value: Setting) -> None:
        """Pick an entry of a menu."""
        self._page.evaluate(MARK_AS_SEEN)
        self.control(name).select_option(label=str(value))

    def give_back(self, name: str) -> None:
        """Tick "as recorded" beside a control."""
        self._page.evaluate(MARK_AS_SEEN)
        words = str(self.control(name).get_attribute("aria-label") or name)
        self._page.get_by_role("checkbox", name=f"as recorded: {words}", exact=True).click()

    def wait_for(self, policy: pm.Policy) -> None:
        """Until this candidate is shown, after a control was moved."""
        shown = self._status.filter(has_text=f"candidate {policy} (")
        expect(shown.or_(self._alert)).to_be_visible(timeout=REDRAW_MS)
        expect(self._alert).to_have_count(0)

    def wait_until_drawn(self, wanted: dict[str, list[float]]) -> None:
        """Until the page's figure has these values."""
        self._page.wait_for_function(HOLDS, arg=wanted, timeout=REDRAW_MS)

    def wait_until_told(self, is_told: Callable[[str], bool]) -> None:
        """Until the page's code is such, and a moment longer: the note follows."""
        for _ in range(REDRAW_MS // 100):
            if is_told(self.code()):
                break
            self._page.wait_for_timeout(100)
        self._page.wait_for_timeout(200)

    def drawn(self) -> Drawn:
        """All that is predicted in the figure on show."""
        return dict(self._page.evaluate(PREDICTED))

    def note(self) -> str:
        """What the page says beside what is shown."""
        return str(self._note.text_content()) if self._note.is_visible() else ""

    def code(self) -> str:
        """The Python call that asks for what is shown."""
        return str(self._code.text_content())


def run_until_drawn(page: Page, lab: Lab, notebook: str) -> None:
    """Run a notebook with one widget until its figure is there.

    Once, on a busy machine, a cell had ended and its figure never came; nobody could make it happen
    again. So what the page holds then is printed, and the notebook is opened once more.
    """
    drawn = page.locator(f"{WIDGET} .js-plotly-plot .main-svg").nth(1)
    for is_last in (False, True):
        run_all(page, lab, notebook)
        try:
            drawn.wait_for(timeout=FIRST_DRAWN_MS)
            return
        except TimeoutError:
            shown = " ".join(page.locator(".jp-OutputArea-output").all_inner_texts())
            print(f"{notebook}: nothing was drawn; what it shows: {shown[:2000]!r}")
            if is_last:
                raise
        end_kernels(lab)


def open_all_groups(page: Page) -> None:
    """Show the controls of all fields."""
    for opener in page.locator(f"{WIDGET} button[aria-expanded]").all():
        if opener.get_attribute("aria-expanded") == "false":
            opener.click()
        expect(opener).to_have_attribute("aria-expanded", "true")
    boxes = page.get_by_role("checkbox", name=re.compile("^as recorded: ."))
    expect(boxes).to_have_count(len(policy_settings()), timeout=REDRAW_MS)
