"""A figure in a notebook that changes in place."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets
import numpy as np
import plotly.graph_objects as go

from pagealloc_model.widgets.figure_widget import WholeFigureWidget

MOVING = ("x", "y", "z", "customdata", "text")
"""What of a trace may differ between two figures of one frame."""


class Chart(ipywidgets.VBox):
    """One figure; showing another moves the traces of the one on show where it can."""

    @property
    def figure(self) -> WholeFigureWidget | None:
        """The figure on show, None before the first."""
        return self.children[0] if self.children else None

    def show(self, figure: go.Figure) -> None:
        """Show this figure instead."""
        if self.figure is not None and same_frame(self.figure, figure):
            move_traces(self.figure, figure)
        else:
            self.children = [WholeFigureWidget(figure)]


def same_frame(shown: go.FigureWidget, figure: go.Figure) -> bool:
    """Whether two figures differ in the data of their traces only."""
    return (
        [(trace.meta, trace.name) for trace in shown.data]
        == [(trace.meta, trace.name) for trace in figure.data]
        and shown.layout.title.text == figure.layout.title.text
        and [note.text for note in shown.layout.annotations]
        == [note.text for note in figure.layout.annotations]
    )


def move_traces(shown: go.FigureWidget, figure: go.Figure) -> None:
    """Give the shown traces the data of the new figure's, in one message."""
    with shown.batch_update():
        for old, new in zip(shown.data, figure.data, strict=True):
            for name in MOVING:
                if name in new and not _equal(old[name], new[name]):
                    old[name] = new[name]


def _equal(old: Sequence[object] | None, new: Sequence[object] | None) -> bool:
    if old is None or new is None:
        return old is new
    first, second = np.asarray(old), np.asarray(new)
    if first.dtype.kind == "f" and second.dtype.kind == "f":
        return np.array_equal(first, second, equal_nan=True)
    return np.array_equal(first, second)
