"""Notebooks in a window of 1,400 by 900 pixels: nothing is wider than its column or cut off."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.browser.explored_page import KERNEL, WIDGET
from tests.browser.jupyter_lab import RUN_ALL_MS, Lab, run_all, settled

pytestmark = pytest.mark.browser

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
WINDOW = {"width": 1400, "height": 900}
CELLS = (
    "import pagealloc_model as pm\n"
    "from pagealloc_model.notebook.start_here import start_here\n"
    "from pagealloc_model.notebooks.studies.others import widgets\n"
    "validation = pm.validate(pm.open('xfree'))",
    "start_here('kbuild')",
    "widgets.highatomic('highatomic_stock', 'highatomic_gate3')",
    "widgets.pcp_buddy('xfree')",
    "widgets.pcp_batching('xfree')",
    "pm.explore('kbuild')",
    "validation",
    "patch = pm.replay(pm.open('xfree'), pm.Policy(pcp_batch=31))\n"
    "pm.compare(validation.replay, patch).validated(validation)",
)
WIDGETS = 5
"""Of these cells."""

# of each widget: pixels from its top to the end of its figure that the notebook's panel lacks
BELOW_THE_SCREEN = """
() => {
  const seen = document.querySelector('.jp-WindowedPanel-outer').clientHeight;
  return [...document.querySelectorAll('.jp-OutputArea-output')].flatMap(output => {
    const plots = [...output.querySelectorAll('.js-plotly-plot')].filter(
        each => each.checkVisibility() && !each.closest('.pagealloc-figures'));
    const columns = output.querySelector('.pagealloc-columns');
    const last = columns || plots.at(-1);
    if (!last || !output.querySelector('.jupyter-widgets')) return [];
    const height = last.getBoundingClientRect().bottom - output.getBoundingClientRect().top;
    return [Math.max(0, Math.round(height - seen))];
  });
}
"""
# tables that are wider than their output, by their first words
WIDE = """
() => [...document.querySelectorAll('.jp-OutputArea-output table')]
  .filter(each => each.checkVisibility())
  .filter(each => each.getBoundingClientRect().right
      > each.closest('.jp-OutputArea-output').getBoundingClientRect().right + 1)
  .map(each => each.innerText.slice(0, 60))
"""
# words of buttons, menus, boxes and numbers that are cut off
CUT_OFF = """
() => {
  const pen = document.createElement('canvas').getContext('2d');
  const width = (part, words) => {
    pen.font = getComputedStyle(part).font;
    return pen.measureText(words).width;
  };
  const inner = part => {
    const style = getComputedStyle(part);
    return part.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  };
  const parts = chosen => [...document.querySelectorAll(`WIDGET ${chosen}`)]
    .filter(each => each.checkVisibility());
  return [
    ...parts('select').map(each => [each, each.selectedOptions[0]?.textContent ?? '']),
    ...parts('input[type=text]').map(each => [each, each.value || each.placeholder]),
    ...parts('.widget-readout').map(each => [each, each.innerText.trim()]),
    ...parts('button').map(each => [each, each.innerText.trim()]),
  ].filter(([each, words]) => width(each, words) > inner(each) + 1).map(([, words]) => words);
}
""".replace("WIDGET", WIDGET)


def test_controls_and_figure_are_on_one_screen_and_nothing_is_cut_off(
    page: Page, lab: Lab, artefacts: Path
) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    nbformat.write(notebook, lab.root / "layout.ipynb")
    page.set_viewport_size(WINDOW)
    run_all(page, lab, "layout.ipynb")
    plots = page.locator(f"{WIDGET} .js-plotly-plot:has(.main-svg)")
    expect(plots).to_have_count(WIDGETS + 1, timeout=RUN_ALL_MS)
    lacking = settled(page, BELOW_THE_SCREEN, lambda found: not any(found))
    assert lacking == [0] * WIDGETS
    page.screenshot(path=artefacts / "layout.png")
    assert settled(page, WIDE, lambda found: not found) == []
    assert settled(page, CUT_OFF, lambda found: not found) == []


@pytest.mark.long
@pytest.mark.parametrize("name", [path.name for path in NOTEBOOKS])
def test_no_table_of_a_notebook_is_wider_than_its_column(page: Page, lab: Lab, name: str) -> None:
    page.set_viewport_size(WINDOW)
    run_all(page, lab, name)
    assert settled(page, WIDE, lambda found: not found) == []
    assert settled(page, BELOW_THE_SCREEN, lambda found: not any(found)) in ([], [0], [0, 0])
