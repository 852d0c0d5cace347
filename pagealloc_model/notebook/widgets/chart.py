"""A figure in a notebook that changes in place."""

from __future__ import annotations

import ipywidgets
import plotly.graph_objects as go

from pagealloc_model.notebook.widgets.picture import Picture
from pagealloc_model.show.figures.drawing import Drawing, drawing_of


class Chart(ipywidgets.VBox):
    """The place of one figure; empty until there is something to show."""

    @property
    def picture(self) -> Picture | None:
        """What is on show, None before the first."""
        return self.children[0] if self.children else None

    @property
    def figure(self) -> go.Figure | None:
        """The figure on show, None before the first."""
        return self.picture.figure if self.picture is not None else None

    def show(self, figure: go.Figure | Drawing) -> None:
        """Show this figure instead."""
        drawing = drawing_of(figure)
        if self.picture is None:
            self.children = [Picture(drawing)]
        else:
            self.picture.show(drawing)
