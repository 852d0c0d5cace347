"""Figures in a notebook that change in place."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets
import numpy as np
import plotly.graph_objects as go

from pagealloc_model.widgets.figure_widget import WholeFigureWidget


class Charts(ipywidgets.VBox):
    """A column of figures; showing new ones moves the traces of the old ones where it can."""

    def __init__(self, figures: Sequence[go.Figure] = ()) -> None:
        super().__init__([WholeFigureWidget(figure) for figure in figures])

    def show(self, figures: Sequence[go.Figure]) -> None:
        """Show these figures instead, in place of the ones of the same position."""
        children = list(self.children)
        for position, figure in enumerate(figures):
            if position >= len(children):
                children.append(WholeFigureWidget(figure))
            elif same_frame(children[position], figure):
                move_traces(children[position], figure)
            else:
                children[position] = WholeFigureWidget(figure)
        kept = children[: len(figures)]
        if kept != list(self.children):
            self.children = kept


def same_frame(shown: go.FigureWidget, figure: go.Figure) -> bool:
    """Whether two figures differ in the coordinates of their traces only."""
    return (
        [(trace.meta, trace.name) for trace in shown.data]
        == [(trace.meta, trace.name) for trace in figure.data]
        and shown.layout.title.text == figure.layout.title.text
        and [note.text for note in shown.layout.annotations]
        == [note.text for note in figure.layout.annotations]
    )


def move_traces(shown: go.FigureWidget, figure: go.Figure) -> None:
    """Give the shown traces the coordinates of the new figure's, in one message."""
    with shown.batch_update():
        for old, new in zip(shown.data, figure.data, strict=True):
            if not _equal(old.x, new.x):
                old.x = new.x
            if not _equal(old.y, new.y):
                old.y = new.y


def _equal(old: Sequence[object], new: Sequence[object]) -> bool:
    first, second = np.asarray(old), np.asarray(new)
    if first.dtype.kind == "f" and second.dtype.kind == "f":
        return np.array_equal(first, second, equal_nan=True)
    return np.array_equal(first, second)
