"""A figure in a notebook that changes in place."""

from __future__ import annotations

import ipywidgets
import plotly.graph_objects as go

from pagealloc_model.notebook.widgets.picture import Picture
from pagealloc_model.show.figures.drawing import Drawing, drawing_of


class Chart(ipywidgets.VBox):
    """The place of a figure, or of several below each other; empty until there is one to show."""

    @property
    def picture(self) -> Picture | None:
        """The first on show, None before there is one."""
        return self.children[0] if self.children else None

    @property
    def figure(self) -> go.Figure | None:
        """The first on show as plotly's figure, None before there is one."""
        return self.picture.figure if self.picture is not None else None

    @property
    def drawings(self) -> list[Drawing]:
        """All on show."""
        return [each.drawing for each in self.children]

    def show(self, *figures: go.Figure | Drawing) -> None:
        """Show these figures instead; one that stays as it was is not drawn again."""
        drawings = [drawing_of(each) for each in figures]
        if len(self.children) != len(drawings):
            self.children = [Picture(each) for each in drawings]
            return
        for picture, drawing in zip(self.children, drawings, strict=True):
            picture.show(drawing)
