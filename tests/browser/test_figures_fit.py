"""Every text of every figure lies inside its frame and over no other, at any width of a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from playwright.sync_api import Browser, Page
from plotly.offline import get_plotlyjs

import pagealloc_model as pm
from pagealloc_model.predicted.tables import pageblock_map
from pagealloc_model.show import figures
from pagealloc_model.show.figures.files import WIDTH, write_figure
from tests.golden.figures import DRAWN, Results, results

pytestmark = pytest.mark.browser

RECORDING = "highatomic_stock"
WIDTHS = (WIDTH, 1300, 1600)
CAPTION = "What it is, on what, how far it is to be believed, how to make it again. " * 6
MISPLACED = """
([figure, width]) => {
  const place = document.createElement("div");
  place.style.width = `${width}px`;
  document.body.replaceChildren(place);
  Plotly.newPlot(place, figure.data, { ...figure.layout, width }, { staticPlot: true });
  const frame = place.getBoundingClientRect();
  const panels = Object.values(place._fullLayout._plots).map(({ xaxis, yaxis }) => ({
    left: frame.left + xaxis._offset, right: frame.left + xaxis._offset + xaxis._length,
    top: frame.top + yaxis._offset, bottom: frame.top + yaxis._offset + yaxis._length,
  }));
  const onPanels = [...place.querySelectorAll(".xtick text, .ytick text, .xtitle, .ytitle")]
    .map(each => ({ words: each.textContent, box: each.getBoundingClientRect() }))
    .filter(({ box }) => panels.some(panel => common(box, panel, 2, 2)))
    .map(({ words }) => `over a panel: ${words}`);
  return [...misplaced(place), ...onPanels];
}
"""
SCRIPT = """
function common(one, other, across, down) {
  return Math.min(one.right, other.right) - Math.max(one.left, other.left) > across
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > down;
}
function misplaced(place) {
  const frame = place.getBoundingClientRect();
  const height = place.querySelector("svg").getBoundingClientRect().bottom;
  const texts = [...place.querySelectorAll("text")]
    .map(each => ({ words: each.textContent, box: each.getBoundingClientRect() }))
    .filter(({ words, box }) => words.trim() && box.width > 0);
  const wrong = texts
    .filter(({ box }) => box.left < frame.left - 1 || box.right > frame.right + 1
      || box.top < frame.top - 1 || box.bottom > height + 1)
    .map(({ words }) => `outside: ${words}`);
  texts.forEach((one, place) => {
    for (const other of texts.slice(place + 1))
      if (common(one.box, other.box, 1, 3))
        wrong.push(`over one another: ${one.words} | ${other.words}`);
  });
  return wrong;
}
"""


def _talk(made: Results) -> go.Figure:
    patch = pm.replay(
        made.recording, pm.Policy(pcp_batch=7), assumptions=pm.Assumptions(reclaim="literal")
    )
    judged = pm.compare(made.predicted, patch).validated().rows
    title = "highatomic_gate_order: as recorded -> 3, predicted for highatomic_stock"
    return figures.talk_figure(judged, made.validation.scores, title, CAPTION)


def _map(made: Results) -> go.Figure:
    sides = {"base": made.predicted, "patch": made.patch}
    maps = {label: pageblock_map(replay.final) for label, replay in sides.items()}
    return figures.pageblock_map(maps, ("base", "patch"))


FIGURES: dict[str, Callable[[Results], go.Figure]] = {**DRAWN, "talk_figure": _talk, "map": _map}


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1700, "height": 1400})
    page.set_content("<body></body>")
    page.add_script_tag(content=get_plotlyjs())
    page.add_script_tag(content=SCRIPT)
    yield page
    page.close()


def _plain(figure: go.Figure) -> Any:
    return json.loads(figure.to_json())


@pytest.mark.parametrize("name", FIGURES)
def test_each_text_has_its_place(name: str, page: Page) -> None:
    figure = _plain(FIGURES[name](results(RECORDING)))
    wrong = {width: page.evaluate(MISPLACED, [figure, width]) for width in WIDTHS}
    assert not any(wrong.values()), wrong


def test_a_text_in_no_place_is_found(page: Page) -> None:
    figure = go.Figure(layout={"height": 400, "margin": {"t": 60}})
    for words, x, y in (("a long text here", 1.0, 0.5), ("one", 0.5, 0.5), ("two", 0.5, 0.5)):
        figure.add_annotation(
            text=words, x=x, y=y, xref="paper", yref="paper", xanchor="left", showarrow=False
        )
    found = page.evaluate(MISPLACED, [_plain(figure), WIDTH])
    assert "outside: a long text here" in found
    assert "over one another: one | two" in found


def test_a_file_has_them_too(page: Page, tmp_path: Path) -> None:
    write_figure(_talk(results(RECORDING)), tmp_path / "talk.svg")
    page.set_content(f"<body>{(tmp_path / 'talk.svg').read_text()}</body>")
    page.add_script_tag(content=SCRIPT)
    assert page.evaluate("misplaced(document.querySelector('svg').parentElement)") == []


def test_most_of_a_figure_for_a_talk_is_no_label(page: Page) -> None:
    layout = _talk(results(RECORDING)).layout
    assert layout.margin.l < WIDTH / 4
