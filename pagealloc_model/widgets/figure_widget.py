"""A plotly figure as a notebook widget that is whole from its first message on."""

from __future__ import annotations

import plotly.graph_objects as go


class WholeFigureWidget(go.FigureWidget):
    """A figure widget whose traces and layout are part of the message that opens it.

    Plotly's own widget opens empty and sends its content afterwards; in a notebook that is run
    from top to bottom it may be drawn in between, and then stays empty.

    Args:
        figure: the complete figure; a layout set on the widget later is lost when it is shown
            again.
    """

    _is_whole = False

    def __init__(self, figure: go.Figure) -> None:
        super().__init__(go.Figure(figure))
        self._config = {**self._config, "responsive": True}
        self._is_whole = True
        self.open()

    def open(self) -> None:
        """Tell the browser, but not before there is something to tell."""
        if self._is_whole:
            super().open()
