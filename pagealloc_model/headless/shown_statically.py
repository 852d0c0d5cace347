"""Widgets where no kernel will answer: the figures and the text they have on show.

An explorer's figure gets a menu with a few values of each of its controls, computed beforehand.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import ipywidgets
import plotly.graph_objects as go
from IPython import get_ipython
from IPython.display import publish_display_data

from pagealloc_model.headless.choices import with_choices
from pagealloc_model.widgets.explorer import Explorer

PLOTLY_MIME = "application/vnd.plotly.v1+json"
_TAG = re.compile(r"<[^>]+>")


def show_statically() -> None:
    """From now on this process's notebook shows every widget as its figures and text."""
    formatter = get_ipython().display_formatter.mimebundle_formatter
    formatter.for_type(ipywidgets.Widget, _static)


def _static(widget: ipywidgets.Widget, **_: object) -> dict[str, str]:
    """Publishes the figures below a widget; its text is left to be the cell's result."""
    for figure in _figures(widget):
        publish_display_data({PLOTLY_MIME: figure.to_plotly_json(), "text/plain": "figure"})
    return {"text/plain": "\n\n".join(_texts(widget)) or "a widget without text"}


def _figures(widget: ipywidgets.Widget) -> Iterator[go.Figure]:
    if isinstance(widget, Explorer):
        yield with_choices(widget)
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


def plain(value: Any) -> str:
    """A control's value as labels show it."""
    return str(int(value)) if isinstance(value, bool | int) else str(value)
