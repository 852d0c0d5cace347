"""The frame all figures share: a grid of panels, one legend, and notes where a value is NA."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from pagealloc_model.show.figures.drawing import Drawing
from pagealloc_model.show.figures.lanes import Lane, Trace, legend_trace
from pagealloc_model.show.figures.palette import GRID, INK, MODEBAR

PANEL_HEIGHT = 190
HEADER_HEIGHT = 95
FOOTER_HEIGHT = 60
BELOW_LINE_HEIGHT = 15
BELOW_MARGIN = 10
BELOW_WIDTH = 130
"""Characters per line of what is written below all panels."""

HORIZONTAL_GAP = 0.09
"""Between two panels, as a share of the figure's width."""

COUNTS_AXIS = {"type": "log", "autorangeoptions": {"minallowed": -0.1}}
"""Of bars over decades: they begin just below one (10 ** -0.1), so that a single one is seen."""
FEW_COUNTS_AXIS = {"rangemode": "tozero", "tickformat": ",d", "dtick": 1}
MOST_OF_FEW = 10
"""Where no count reaches this, the axis is linear."""

NOTE_WIDTHS = {1: 44, 2: 44, 3: 27, 4: 22}
"""Characters per line of a note inside a panel, by panels in a row."""


class PanelGrid:
    """A grid of panels being filled, row by row; `figure` makes the plotly figure of it.

    Layout and traces are gathered as plain dictionaries: with plotly's own objects each step takes
    longer than the replay whose result is drawn.

    Args:
        titles: one per panel.
        title: of the whole figure.
        x_title: quantity and unit of all x axes.
        y_title: quantity and unit of all y axes.
        columns: panels per row at most.
        x_axis: further properties of all x axes.
        y_axis: further properties of all y axes.
    """

    def __init__(
        self,
        titles: Sequence[str],
        *,
        title: str,
        x_title: str,
        y_title: str,
        columns: int = 3,
        x_axis: Mapping[str, Any] | None = None,
        y_axis: Mapping[str, Any] | None = None,
    ) -> None:
        self._panels = max(1, len(titles))
        self._columns = max(1, min(columns, self._panels))
        self._rows = -(-self._panels // self._columns)
        self._traces: list[Trace] = []
        height = HEADER_HEIGHT + FOOTER_HEIGHT + PANEL_HEIGHT * self._rows
        self._layout = _frame(title, height)
        self._notes: list[dict[str, Any]] = []
        for panel in range(self._panels):
            self._add_axes(panel, x_title, y_title, dict(x_axis or {}), dict(y_axis or {}))
        for panel, words in enumerate(titles):
            self._add_title(panel, words)

    def add(self, trace: Trace, panel: int) -> None:
        """Draw a trace in a panel."""
        number = _number(panel)
        self._traces.append(trace | {"xaxis": f"x{number}", "yaxis": f"y{number}"})

    def set_axis(self, letter: str, panel: int, properties: Mapping[str, Any]) -> None:
        """Give an axis ("x" or "y") of a panel further properties."""
        self._layout[f"{letter}axis{_number(panel)}"] |= dict(properties)

    def count_along(self, letter: str, panel: int, most: float) -> None:
        """Make an axis one of counts: logarithmic, and saying so, where they are many.

        Args:
            letter: "x" or "y".
            panel: its number.
            most: largest count in the panel.
        """
        if most < MOST_OF_FEW:
            self.set_axis(letter, panel, FEW_COUNTS_AXIS)
            return
        self.set_axis(letter, panel, COUNTS_AXIS)
        axis = self._layout[f"{letter}axis{_number(panel)}"]
        words = axis.get("title", {}).get("text", "")
        axis["title"] = {"text": f"{words} (log)".strip(), "font": {"size": 11}}

    def add_legend(self, drawn: Sequence[Lane]) -> None:
        """One neutral legend entry per lane."""
        for lane in drawn:
            self.add(legend_trace(lane), 0)

    def note_missing(self, panel: int, absent: Mapping[str, str]) -> None:
        """Write into a panel why lanes have no value there.

        Args:
            panel: its number.
            absent: lane label -> reason.
        """
        if not absent:
            return
        text = missing_words(absent)
        number = _number(panel)
        self._notes.append(
            {
                "text": "<br>".join(textwrap.wrap(text, NOTE_WIDTHS[self._columns])),
                "xref": f"x{number} domain",
                "yref": f"y{number} domain",
                "x": 0.5,
                "y": 0.98,
                "yanchor": "top",
                "showarrow": False,
                "font": {"size": 11, "color": INK},
                "bgcolor": "rgba(255,255,255,0.85)",
            }
        )

    def cut_axis(self, panel: int, span: tuple[float, float]) -> None:
        """Let a panel's y axis show a part of its values; the panel's title is to say so."""
        name = f"yaxis{_number(panel)}"
        self._layout[name] = {**self._layout[name], "range": list(span), "autorange": False}

    def write_below(self, text: str) -> None:
        """A few words below all panels."""
        lines = textwrap.wrap(text, BELOW_WIDTH)
        room = BELOW_LINE_HEIGHT * len(lines) + BELOW_MARGIN
        self._layout["height"] += room
        self._layout["margin"]["b"] += room
        self._notes.append(
            {
                "text": "<br>".join(lines),
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": 0,
                "yshift": -FOOTER_HEIGHT,
                "yanchor": "top",
                "xanchor": "left",
                "align": "left",
                "showarrow": False,
                "font": {"size": 11},
            }
        )

    def figure(self, **layout: Any) -> go.Figure:
        """The figure, with further layout properties on top."""
        return self.drawing(**layout).figure()

    def drawing(self, **layout: Any) -> Drawing:
        """The same without plotly's objects."""
        whole = self._layout | {"annotations": self._notes} | layout
        return Drawing(traces=self._traces, layout=whole)

    def _add_axes(
        self, panel: int, x_title: str, y_title: str, x_axis: dict[str, Any], y_axis: dict[str, Any]
    ) -> None:
        left, bottom, width, height = self._place(panel)
        number = _number(panel)
        is_lowest = panel + self._columns >= self._panels
        self._layout[f"xaxis{number}"] = _axis(x_title if is_lowest else "") | {
            "domain": [left, min(left + width, 1)],
            "anchor": f"y{number}",
            **x_axis,
        }
        self._layout[f"yaxis{number}"] = _axis(y_title if panel % self._columns == 0 else "") | {
            "domain": [bottom, min(bottom + height, 1)],
            "anchor": f"x{number}",
            **y_axis,
        }

    def _add_title(self, panel: int, words: str) -> None:
        left, bottom, width, height = self._place(panel)
        self._notes.append(
            {
                "text": words,
                "xref": "paper",
                "yref": "paper",
                "x": left + width / 2,
                "y": bottom + height,
                "xanchor": "center",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 12},
            }
        )

    def _place(self, panel: int) -> tuple[float, float, float, float]:
        """left, bottom, width, height of a panel as shares of the figure."""
        row, column = divmod(panel, self._columns)
        gap = min(0.16, 0.32 / self._rows)
        width = (1 - HORIZONTAL_GAP * (self._columns - 1)) / self._columns
        height = (1 - gap * (self._rows - 1)) / self._rows
        left = column * (width + HORIZONTAL_GAP)
        bottom = (self._rows - 1 - row) * (height + gap)
        return left, bottom, width, height


def missing_words(absent: Mapping[str, str]) -> str:
    """Lane label -> reason as words that name each reason once."""
    by_reason: dict[str, list[str]] = {}
    for label, reason in absent.items():
        by_reason.setdefault(reason, []).append(label)
    return "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in by_reason.items())


def _number(panel: int) -> str:
    """How plotly numbers axes: "", "2", "3", ..."""
    return "" if panel == 0 else str(panel + 1)


def _axis(title: str) -> dict[str, Any]:
    # where every label may stay, plotly need not measure each whenever it draws
    axis = {
        "gridcolor": GRID,
        "linecolor": INK,
        "ticks": "outside",
        "ticklabeloverflow": "allow",
        "zeroline": False,
    }
    return axis | ({"title": {"text": title, "font": {"size": 11}}} if title else {})


def _frame(title: str, height: int) -> dict[str, Any]:
    """Everything of the layout that no panel has a say in."""
    return {
        "title": {
            "text": title,
            "x": 0,
            "y": 1,
            "xref": "paper",
            "yref": "container",
            "xanchor": "left",
            "yanchor": "top",
            "pad": {"t": 12},
            "font": {"size": 15},
        },
        "height": height,
        "margin": {"l": 70, "r": 20, "t": HEADER_HEIGHT, "b": FOOTER_HEIGHT},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "font": {"family": "DejaVu Sans, Arial, sans-serif", "size": 12, "color": INK},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xref": "paper",
            "y": 1 - 36 / height,
            "yref": "container",
            "yanchor": "top",
        },
        "hovermode": "closest",
        "modebar": MODEBAR,
    }
