"""A figure as plain traces and layout, for those who need no plotly objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, ParamSpec

import plotly.graph_objects as go

Params = ParamSpec("Params")


TURNED_ON_DARK = """<style class="pagealloc-figure">
@media screen { [data-jp-theme-light="false"] .jp-RenderedPlotly:has(
svg.main-svg[style*="background: white"]) { filter: invert(0.93) hue-rotate(180deg); } }
.jp-OutputArea-child:has(style.pagealloc-figure) { display: none; }
</style>"""
"""Turns the lightness of white figures, and leaves their hues, on a page with a dark theme."""


class ShownFigure(go.Figure):
    """A figure that takes the lightness of JupyterLab's theme where it is shown, not on paper."""

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": TURNED_ON_DARK}, raw=True)
        super()._ipython_display_()


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """What plotly draws, of properties known to be right.

    Attributes:
        traces: as plotly's own keys and values; coordinates are arrays.
        layout: the same.
    """

    traces: Sequence[dict[str, Any]]
    layout: dict[str, Any]

    def figure(self) -> go.Figure:
        """The same as plotly's figure; what is set on it later is checked.

        Plotly's check of every property takes longer than the replay whose result is drawn. Tests
        check every figure.
        """
        figure = ShownFigure({"data": list(self.traces), "layout": self.layout}, _validate=False)
        for part in (figure, figure.layout, *figure.data):
            part._validate = True
        return figure


class FigureFunction(Generic[Params]):
    """A function that returns a plotly figure; its `drawing` returns the same without objects.

    Args:
        drawing: from tables to a drawing.
    """

    def __init__(self, drawing: Callable[Params, Drawing]) -> None:
        self.drawing = drawing
        update_wrapper(self, drawing)

    def __call__(self, *args: Params.args, **options: Params.kwargs) -> go.Figure:
        """The figure of a drawing."""
        return self.drawing(*args, **options).figure()


def drawing_of(figure: go.Figure | Drawing) -> Drawing:
    """The figure's traces and layout."""
    if isinstance(figure, Drawing):
        return figure
    traces = [trace.to_plotly_json() for trace in figure.data]
    return Drawing(traces=traces, layout=figure.layout.to_plotly_json())
