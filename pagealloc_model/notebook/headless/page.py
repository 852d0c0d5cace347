"""An executed notebook as one HTML file whose figures answer to the mouse without a network."""

from __future__ import annotations

import copy
import html
import json
from typing import TYPE_CHECKING

import plotly.io
from nbconvert import HTMLExporter
from nbformat.v4 import new_output
from plotly.offline import get_plotlyjs
from pygments.formatters import HtmlFormatter

from pagealloc_model.notebook.headless.static_widgets import PLOTLY_MIME

if TYPE_CHECKING:
    from nbformat import NotebookNode

NOTHING_FROM_ELSEWHERE = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; worker-src blob:"
)
"""Browsers that read this refuse to load anything that is not in the file."""

STYLE = """
body { font: 16px/1.5 "DejaVu Sans", Arial, sans-serif; color: #222222; background: white;
  max-width: 1100px; margin: 2em auto; padding: 0 1em; }
pre { font: 13px/1.35 "DejaVu Sans Mono", monospace; overflow-x: auto; margin: 0.4em 0; }
div.input_area, div.highlight { background: #f6f6f6; padding: 0 0.6em; border-radius: 3px; }
div.prompt, a.anchor-link { display: none; }
table { border-collapse: collapse; font-size: 13px; }
th, td { border: 1px solid #d9d9d9; padding: 0.2em 0.6em; text-align: right; }
a { color: #00538a; }
.sliders { position: sticky; top: 0; background: white; z-index: 1; padding: 0.3em 0; }
.sliders p { margin: 0.2em 0; }
.sliders label { display: grid; grid-template-columns: 18em 1fr 9em; gap: 1em;
  align-items: center; }
@media (max-width: 700px) { .sliders label { grid-template-columns: 1fr 7em; } }
@media (max-width: 700px) { .sliders label span { grid-column: 1 / 3; } }
"""

LIVE = """
function live(name, { data, layout }) {
  const plot = document.getElementById(name);
  const options = { responsive: true, displaylogo: false };
  const { meta, ...frame } = layout;
  Plotly.newPlot(plot, data, frame, options);
  if (!meta?.sliders?.length) return;
  const told = document.createElement("p"), status = document.createElement("p");
  told.textContent = `${meta.points.length} policies, computed when this page was written: each ` +
    `slider changes one field of the policy (${meta.policy}), and the other sliders go back.` +
    (meta.left_out ? ` ${meta.left_out} more were left out.` : "");
  status.setAttribute("role", "status");
  const show = number => {
    const point = meta.points[number];
    status.textContent = `shown: ${point ? point.policy : meta.policy}`;
    if (!point) return Plotly.react(plot, data, frame, options);
    if (point.data) return Plotly.react(plot, point.data, point.layout, options);
    const moved = new Map(point.traces.map((trace, at) => [trace, point.moved[at]]));
    const drawn = data.map((trace, at) => ({ ...trace, ...moved.get(at) }));
    return Plotly.react(plot, drawn, frame, options);
  };
  const rows = meta.sliders.map(({ name: field, words, points, start }) => {
    const row = document.createElement("label"), value = document.createElement("output");
    const slider = document.createElement("input"), title = document.createElement("span");
    title.textContent = field;
    Object.assign(slider, { type: "range", min: 0, max: words.length - 1, step: 1, value: start });
    const say = () => {
      value.textContent = words[slider.value] + (slider.value == start ? " (at first)" : "");
      slider.setAttribute("aria-valuetext", value.textContent);
    };
    const back = () => { slider.value = start; say(); };
    slider.addEventListener("input", () => {
      rows.forEach(other => { if (other.row !== row) other.back(); });
      say();
      show(points[slider.value]);
    });
    row.append(title, slider, value);
    say();
    return { row, back };
  });
  const box = document.createElement("div");
  box.className = "sliders";
  box.append(told, ...rows.map(({ row }) => row), status);
  plot.before(box);
}
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
<script>{plotly}</script>
<script>{live}</script>
</head>
<body>
{body}
</body>
</html>
"""


def offline_page(notebook: NotebookNode, title: str) -> str:
    """One HTML file with text, code, results and live figures; it loads nothing else.

    Args:
        notebook: executed.
        title: of the page.
    """
    shown = copy.deepcopy(notebook)
    figures = 0
    for cell in shown.cells:
        for position, output in enumerate(cell.get("outputs", ())):
            figure = output.get("data", {}).get(PLOTLY_MIME)
            if figure is not None:
                figures += 1
                cell.outputs[position] = _live(figure, f"figure-{figures}")
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(shown)
    return PAGE.format(
        policy=NOTHING_FROM_ELSEWHERE,
        title=html.escape(title),
        style=STYLE + HtmlFormatter().get_style_defs(".highlight"),
        plotly=get_plotlyjs(),
        live=LIVE,
        body=body,
    )


def _live(figure: dict[str, object], name: str) -> NotebookNode:
    """An output whose script draws the figure where it stands."""
    parts = {key: figure[key] for key in ("data", "layout")}
    drawn = plotly.io.to_json(parts, validate=False).replace("</", "<\\/")
    script = f"live({json.dumps(name)}, {drawn})"
    text = f'<div id="{name}"></div>\n<script>{script}</script>'
    return new_output("display_data", {"text/html": text})
