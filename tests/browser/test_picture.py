"""A picture of which some lines move, drawn in a browser without a kernel behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from plotly.offline import get_plotlyjs

from pagealloc_model.notebook.picture import Picture

pytestmark = pytest.mark.browser

PANELS = {
    "data": [
        {"type": "scatter", "x": [0, 1], "y": [1, 2], "xaxis": "x", "yaxis": "y"},
        {"type": "scatter", "x": [0, 1], "y": [3, 4], "xaxis": "x2", "yaxis": "y2"},
        {"type": "scatter", "x": [0, 1], "y": [2, 3], "xaxis": "x", "yaxis": "y"},
        {"type": "bar", "x": ["a", "b"], "y": [1, 2], "xaxis": "x3", "yaxis": "y3"},
        {"type": "bar", "x": ["a", "b"], "y": [2, 1], "xaxis": "x3", "yaxis": "y3"},
        {"type": "bar", "x": ["a", "b"], "y": [2, 1], "xaxis": "x4", "yaxis": "y4"},
    ],
    "layout": {"grid": {"rows": 1, "columns": 4, "pattern": "independent"}},
}

# a model as anywidget hands one over, whose messages move what they name
MOVE = """
async ([widget, drawn, steps]) => {
  const source = URL.createObjectURL(new Blob([widget], { type: "text/javascript" }));
  const { default: picture } = await import(source);
  pageallocPlotly.arrived(window.Plotly);
  const heard = {};
  const channel = {
    send() {}, off() {}, on: (name, told) => (heard[name] ??= []).push(told),
  };
  const model = {
    get: name => ({ drawn, channel: "IPY_MODEL_told" })[name], set() {}, save_changes() {},
    widget_manager: { get_model: async () => channel },
  };
  drawn.number = 0;
  await picture.initialize({ model });
  await picture.render({ model, el: document.body });
  const plot = document.querySelector(".js-plotly-plot");
  const drawn_at = () => performance.getEntriesByName("pagealloc-picture-drawn").length;
  const seen = () => ({
    lines: document.querySelectorAll(".scatterlayer .js-line").length,
    bars: document.querySelectorAll(".bars .point").length,
    values: plot._fullData.map(each => [...each.y]),
    top: plot.layout.yaxis.range[1],
    notes: [...document.querySelectorAll(".annotation-text")].map(each => each.textContent),
  });
  const all = [seen()];
  for (const step of steps) {
    const before = drawn_at();
    const said = { ...(Array.isArray(step) ? { moves: step } : step), in_place: true };
    said.number = drawn.number + 1;
    for (const told of heard["msg:custom"]) told(said);
    while (drawn_at() === before) await new Promise(requestAnimationFrame);
    all.push(seen());
  }
  return all;
}
"""


@pytest.fixture(scope="module")
def page_with_plotly(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1500, "height": 1100})
    page.set_content("<body></body>")
    page.add_script_tag(content=get_plotlyjs())
    yield page
    page.close()


@pytest.fixture
def plotly(page_with_plotly: Page) -> Page:
    page_with_plotly.evaluate("document.body.replaceChildren()")
    page_with_plotly.evaluate("delete document.body.dataset.jpThemeLight")
    return page_with_plotly


@pytest.mark.parametrize("number", range(len(PANELS["data"])))
def test_what_stays_is_kept_whatever_moves(plotly: Page, number: int) -> None:
    before, after = plotly.evaluate(MOVE, [Picture._esm, PANELS, [[[number, {"y": [5, 6]}]]]])
    assert (before["lines"], before["bars"]) == (3, 6)
    assert (after["lines"], after["bars"]) == (3, 6)
    wanted = [each["y"] for each in PANELS["data"]]
    wanted[number] = [5, 6]
    assert after["values"] == wanted


def test_an_axis_follows_what_leaves_it_and_what_it_has_become_too_long_for(plotly: Page) -> None:
    steps = [[[0, {"y": [1, 2.9]}]], [[0, {"y": [1, 90]}]], [[0, {"y": [1, 2]}]]]
    tops = [each["top"] for each in plotly.evaluate(MOVE, [Picture._esm, PANELS, steps])]
    assert tops[1] == tops[0]
    assert tops[2] > 90
    assert tops[3] < 4


def test_notes_change_with_what_moves_and_alone(plotly: Page) -> None:
    note = {"text": "none", "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
    steps = [
        {"moves": [[0, {"y": [5, 6]}]], "notes": [note]},
        {"moves": [], "notes": [note | {"text": "few"}, note]},
        {"moves": [], "notes": []},
    ]
    seen = plotly.evaluate(MOVE, [Picture._esm, PANELS, steps])
    assert [each["notes"] for each in seen] == [[], ["none"], ["few", "none"], []]
    assert [each["lines"] for each in seen] == [3, 3, 3, 3]
    assert seen[-1]["values"][0] == [5, 6]


# the colours of the paper and of the first line: at first, in a dark theme, printed from it
IN_THEMES = """
async ([widget, drawn]) => {
  const source = URL.createObjectURL(new Blob([widget], { type: "text/javascript" }));
  const { default: picture } = await import(source);
  pageallocPlotly.arrived(window.Plotly);
  const channel = { send() {}, off() {}, on() {} };
  const model = {
    get: name => ({ drawn, channel: "IPY_MODEL_told" })[name], set() {}, save_changes() {},
    widget_manager: { get_model: async () => channel },
  };
  await picture.render({ model, el: document.body });
  const style = chosen => getComputedStyle(document.querySelector(chosen));
  const seen = () => [document.querySelector(".main-svg").style.background,
    style(".scatterlayer .js-line").stroke];
  const end = Date.now() + 60000;
  const changed = async from => {
    while (Date.now() < end && seen().some((each, place) => each === from[place]))
      await new Promise(requestAnimationFrame);
    return seen();
  };
  const all = [seen()];
  document.body.dataset.jpThemeLight = "false";
  all.push(await changed(all[0]));
  window.dispatchEvent(new Event("beforeprint"));
  all.push(seen());
  window.dispatchEvent(new Event("afterprint"));
  document.body.dataset.jpThemeLight = "true";
  all.push(await changed(all[1]));
  return all;
}
"""


def test_colours_follow_the_theme_of_the_page_but_not_onto_paper(plotly: Page) -> None:
    line = {"type": "scatter", "x": [0, 1], "y": [1, 2], "line": {"color": "#222222"}}
    drawn = {"data": [line], "layout": {"paper_bgcolor": "white"}}
    light, dark, printed, again = plotly.evaluate(IN_THEMES, [Picture._esm, drawn])
    assert light == printed == again == ["white", "rgb(34, 34, 34)"]
    assert dark == ["rgb(17, 17, 17)", "rgb(230, 230, 230)"]
