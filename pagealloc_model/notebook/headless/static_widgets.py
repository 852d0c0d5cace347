"""Widgets where no kernel will answer: the figures and the text they have on show."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

import ipywidgets
import plotly.graph_objects as go
import plotly.io
from IPython import get_ipython
from IPython.display import publish_display_data
from tqdm.notebook import TqdmHBox

from pagealloc_model.notebook.headless.choices import with_choices
from pagealloc_model.notebook.widgets.explorer import Explorer
from pagealloc_model.notebook.widgets.picture import Picture

PLOTLY_MIME = "application/vnd.plotly.v1+json"
_TAG = re.compile(r"<[^>]+>")


def show_statically() -> None:
    """From now on this process's notebook shows every widget as its figures and text.

    An explorer's figure gets a menu with a few values of each control, computed beforehand.
    """
    plotly.io.renderers.default = "plotly_mimetype"
    formatter = get_ipython().display_formatter.ipython_display_formatter
    formatter.for_type(ipywidgets.Widget, _publish)
    formatter.for_type(TqdmHBox, lambda _: None)


def _publish(widget: ipywidgets.Widget) -> None:
    for figure in _figures(widget):
        publish_display_data(as_output(figure))
    text = "\n\n".join(_texts(widget))
    if text:
        publish_display_data({"text/plain": text})


def as_output(figure: go.Figure) -> dict[str, object]:
    """What a cell shows for a figure, by MIME type.

    Missing numbers are null, as plotly writes them: notebooks' JSON has no NaN.
    """
    shown = json.loads(plotly.io.to_json(figure, validate=False))
    return {PLOTLY_MIME: shown, "text/plain": "figure"}


def _figures(widget: ipywidgets.Widget) -> Iterator[go.Figure]:
    if isinstance(widget, Explorer):
        yield with_choices(widget)
    elif isinstance(widget, Picture):
        yield widget.figure
    elif isinstance(widget, go.FigureWidget):
        yield go.Figure(widget)
    else:
        for child in getattr(widget, "children", ()):
            yield from _figures(child)


def _texts(widget: ipywidgets.Widget) -> Iterator[str]:
    if isinstance(widget, ipywidgets.HTML) and widget.value:
        yield html.unescape(_TAG.sub("", widget.value)).rstrip()
    for child in getattr(widget, "children", ()):
        yield from _texts(child)
