"""A picture of which some lines move, drawn in a browser without a kernel behind it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page
from plotly.offline import get_plotlyjs

from pagealloc_model.notebook.widgets.picture import Picture

pytestmark = pytest.mark.browser

PANELS = {
    "data": [
        {"type": "scatter", "x": [0, 1], "y": [1, 2], "xaxis": "x", "yaxis": "y"},
        {"type": "scatter", "x": [0, 1], "y": [3, 4], "xaxis": "x2", "yaxis": "y2"},
    ],
    "layout": {"grid": {"rows": 1, "columns": 2, "pattern": "independent"}},
}

# a model as anywidget hands one over, whose message moves the first line
MOVE_ONE = """
async ([widget, drawn]) => {
  const source = URL.createObjectURL(new Blob([widget], { type: "text/javascript" }));
  const { default: picture } = await import(source);
  pageallocPlotly.arrived(window.Plotly);
  const heard = {};
  const model = {
    get: name => ({ drawn })[name], set() {}, save_changes() {}, off() {},
    on: (name, told) => (heard[name] ??= []).push(told),
  };
  const lines = () => document.querySelectorAll(".scatterlayer .js-line").length;
  picture.initialize({ model });
  await picture.render({ model, el: document.body });
  const before = lines();
  const message = { moves: [[0, { y: [5, 6] }]], stretched: [] };
  for (const told of heard["msg:custom"]) told(message);
  const drawn_at = () => performance.getEntriesByName("pagealloc-picture-drawn").length;
  while (!drawn_at()) await new Promise(requestAnimationFrame);
  const { _fullData } = document.querySelector(".js-plotly-plot");
  return [before, lines(), _fullData.map(each => each.y[0])];
}
"""


def test_a_panel_whose_lines_stay_keeps_them(page: Page) -> None:
    page.set_content("<body></body>")
    page.add_script_tag(content=get_plotlyjs())
    assert page.evaluate(MOVE_ONE, [Picture._esm, PANELS]) == [2, 2, [5, 3]]
