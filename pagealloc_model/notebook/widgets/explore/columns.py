"""The explorer's page: controls beside the figures, each with a scroll bar of its own."""

from __future__ import annotations

from collections.abc import Sequence

import anywidget
import ipywidgets
import traitlets

_STYLE = """
.pagealloc-explorer { container-type: inline-size; overflow: visible; }
.pagealloc-explorer, .pagealloc-explorer * {
  overflow-wrap: normal; word-break: normal; hyphens: none; }
.pagealloc-columns { height: 84vh; min-height: 480px; overflow: hidden; gap: 12px; }
.pagealloc-side { flex: 0 0 340px; height: 100%; overflow-x: hidden; overflow-y: auto;
  border-right: 1px solid #767676; padding-right: 6px; }
.pagealloc-side > * { flex: 0 0 auto; }
.pagealloc-side .widget-label { text-align: left; flex: 0 0 auto; height: 22px; line-height: 22px;
  overflow: visible; }
.pagealloc-side .slider-container { flex: 1 1 40px; min-width: 0; }
.pagealloc-side .widget-html, .pagealloc-side .widget-html-content { line-height: 1.2;
  min-height: 0; }
.pagealloc-side .widget-checkbox { height: 24px; }
.pagealloc-side .widget-text .widget-label { flex: 0 0 36px; }
.pagealloc-side .widget-readout { min-width: 64px; }
.pagealloc-main { flex: 1 1 0; min-width: 0; height: 100%; overflow: hidden; }
.pagealloc-main > * { flex: 0 0 auto; }
.pagealloc-main > .pagealloc-figures { flex: 1 1 0; overflow-x: hidden; overflow-y: auto; }
.pagealloc-figures > * { flex: 0 0 auto; }
@container (max-width: 900px) {
  .pagealloc-columns { flex-direction: column; height: 92vh; }
  .pagealloc-side { flex: 0 0 34%; width: auto; height: auto;
    border-right: none; border-bottom: 1px solid #767676; }
  .pagealloc-main { display: block; width: 100%; height: auto; overflow-y: auto; }
  .pagealloc-main > .pagealloc-figures { overflow-x: auto; overflow-y: visible; }
  .pagealloc-figures .js-plotly-plot { min-width: 600px; }
  .pagealloc-difference { max-height: none; }
}
"""
_FOLDED = """
function render({ model, el }) {
  const draw = () => {
    const open = [...el.querySelectorAll("details")].map(each => each.open);
    el.innerHTML = model.get("value");
    el.querySelectorAll("details").forEach((each, at) => { each.open = open[at] ?? each.open; });
  };
  draw();
  model.on("change:value", draw);
  return () => model.off("change:value", draw);
}
export default { render };
"""


class FoldedHTML(anywidget.AnyWidget):
    """HTML that is replaced in place; parts that the user opened stay open.

    Attributes:
        value: the HTML; what is not ours in it is escaped.
    """

    _esm = _FOLDED
    value = traitlets.Unicode("").tag(sync=True)


class _Style(anywidget.AnyWidget):
    """Invisible; brings the page's style."""

    _esm = "export default { render({ el }) { el.style.display = 'none'; } };"
    _css = _STYLE


def columns(
    side: Sequence[ipywidgets.Widget],
    above: Sequence[ipywidgets.Widget],
    figures: Sequence[ipywidgets.Widget],
) -> list[ipywidgets.Widget]:
    """Two columns where there is room, one where there is not.

    Args:
        side: what is operated.
        above: what stays in view above the figures.
        figures: what is scrolled.
    """
    scrolled = _named(ipywidgets.VBox(list(figures)), "pagealloc-figures")
    left = _named(ipywidgets.VBox(list(side)), "pagealloc-side")
    right = _named(ipywidgets.VBox([*above, scrolled]), "pagealloc-main")
    return [_Style(), _named(ipywidgets.HBox([left, right]), "pagealloc-columns")]


def _named(box: ipywidgets.Box, name: str) -> ipywidgets.Box:
    box.add_class(name)
    return box
