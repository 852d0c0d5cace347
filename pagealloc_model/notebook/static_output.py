"""Widgets of a notebook that nobody operates, as figures and text: what stays of them in a file.

Every kernel of such a run imports this; what reads and runs notebooks takes seconds more.
"""

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

from pagealloc_model.notebook.page_widget import FoldedHTML
from pagealloc_model.notebook.picture import Picture

PLOTLY_MIME = "application/vnd.plotly.v1+json"
TAG = re.compile(r"<[^<>]+>")


def show_statically() -> None:
    """From now on this process's notebook shows every widget as its figures and text."""
    plotly.io.renderers.default = "plotly_mimetype"
    formatter = get_ipython().display_formatter.ipython_display_formatter
    formatter.for_type(ipywidgets.Widget, _publish)
    formatter.for_type(TqdmHBox, lambda _: None)


def _publish(widget: ipywidgets.Widget) -> None:
    parts = list(_parts(widget))
    for part in parts:
        if isinstance(part, Picture):
            publish_display_data(as_output(part.figure))
        elif isinstance(part, go.FigureWidget):
            publish_display_data(as_output(go.Figure(part)))
    words = (part.value for part in parts if isinstance(part, ipywidgets.HTML) and part.value)
    text = "\n\n".join(html.unescape(TAG.sub("", text)).rstrip() for text in words)
    if text:
        publish_display_data({"text/plain": text})
    for part in parts:
        if isinstance(part, FoldedHTML) and part.value:
            plain = html.unescape(TAG.sub(" ", part.value)).strip()
            publish_display_data({"text/html": part.value, "text/plain": plain})


def _parts(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    """The widget and all inside it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _parts(child)


def as_output(figure: go.Figure) -> dict[str, object]:
    """A figure as a cell shows it, by MIME type.

    Missing numbers are null, as plotly writes them: notebooks' JSON has no NaN.
    """
    shown = json.loads(plotly.io.to_json(figure, validate=False))
    return {PLOTLY_MIME: shown, "text/plain": "figure"}
