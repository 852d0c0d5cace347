"""The frame all figures share: a grid of panels, one legend, and notes where a value is NA."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pagealloc_model.figures.palette import (
    GRID,
    INK,
    MEASUREMENT_SYMBOLS,
    PREDICTION_COLOURS,
    PREDICTION_DASHES,
    PREDICTION_PATTERNS,
)

Tables = pd.DataFrame | Mapping[str, pd.DataFrame] | None
"""One table, several by label, or None where the source has none."""

PANEL_HEIGHT = 190
HEADER_HEIGHT = 95
FOOTER_HEIGHT = 60
NOTE_WIDTH = 44
COUNTS_FROM = -0.3
"""Logarithmic count axes begin at half an event, so that a single one shows."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One measured or predicted table and how its traces look in every panel.

    Attributes:
        label: the legend's words.
        table: rows of one data contract, possibly empty.
        measured: marks with a thin line if true, a plain line if not.
        rank: 0 for the first measured (or predicted) lane of the figure, then 1, ...
        colour: of all its traces; "" takes the colour of the panel's key.
    """

    label: str
    table: pd.DataFrame
    measured: bool
    rank: int
    colour: str = ""

    @property
    def key(self) -> str:
        """Names this lane's traces for redrawing."""
        return f"{'measured' if self.measured else 'predicted'}:{self.rank}"

    def style(self, colour: str) -> dict[str, object]:
        """Scatter properties in one panel, whose own colour is given."""
        colour = self.colour or colour
        if self.measured:
            symbol = MEASUREMENT_SYMBOLS[self.rank % len(MEASUREMENT_SYMBOLS)]
            return {
                "mode": "lines+markers",
                "line": {"color": colour, "width": 0.6, "dash": "dot"},
                "marker": {"color": colour, "symbol": symbol, "size": 6},
            }
        dash = PREDICTION_DASHES[self.rank % len(PREDICTION_DASHES)]
        return {"mode": "lines", "line": {"color": colour, "width": 1.8, "dash": dash}}


def lanes(measured: Tables, predicted: Tables) -> list[Lane]:
    """All tables of a figure in legend order: what was measured first, then the predictions."""
    return [
        *_lanes_of(measured, "measured", is_measured=True),
        *_lanes_of(predicted, "predicted", is_measured=False),
    ]


def _lanes_of(tables: Tables, label: str, *, is_measured: bool) -> list[Lane]:
    if tables is None:
        return []
    by_label = {label: tables} if isinstance(tables, pd.DataFrame) else dict(tables)
    return [
        Lane(label=name, table=table, measured=is_measured, rank=rank)
        for rank, (name, table) in enumerate(by_label.items())
    ]


def panel_grid(
    titles: Sequence[str], *, title: str, x_title: str, y_title: str, columns: int = 3
) -> go.Figure:
    """An empty grid of panels, filled row by row, with the axes named once per edge.

    Args:
        titles: one per panel.
        title: of the whole figure.
        x_title: quantity and unit of all x axes.
        y_title: quantity and unit of all y axes.
        columns: panels per row at most.
    """
    columns = max(1, min(columns, len(titles)))
    rows = max(1, -(-len(titles) // columns))
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=list(titles) or [""],
        horizontal_spacing=0.09,
        vertical_spacing=min(0.16, 0.32 / rows),
    )
    figure.update_annotations(font_size=12)
    height = HEADER_HEIGHT + FOOTER_HEIGHT + PANEL_HEIGHT * rows
    figure.update_layout(
        title={
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
        height=height,
        margin={"l": 70, "r": 20, "t": HEADER_HEIGHT, "b": FOOTER_HEIGHT},
        paper_bgcolor="white",
        plot_bgcolor="white",
        font={"family": "DejaVu Sans, Arial, sans-serif", "size": 12, "color": INK},
        legend={
            "orientation": "h",
            "x": 0,
            "xref": "paper",
            "y": 1 - 36 / height,
            "yref": "container",
            "yanchor": "top",
        },
        hovermode="closest",
    )
    axis = {"gridcolor": GRID, "linecolor": INK, "ticks": "outside", "zeroline": False}
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    _name_edges(figure, len(titles), columns, rows, x_title, y_title)
    return figure


def _name_edges(
    figure: go.Figure, panels: int, columns: int, rows: int, x_title: str, y_title: str
) -> None:
    for row in range(1, rows + 1):
        figure.update_yaxes(title_text=y_title, title_font_size=11, row=row, col=1)
    for column in range(1, columns + 1):
        last_row = max(1, -(-(panels - column + 1) // columns))
        figure.update_xaxes(title_text=x_title, title_font_size=11, row=last_row, col=column)


def cell_of(figure: go.Figure, panel: int) -> dict[str, int]:
    """`row` and `col` of a panel by number, for add_trace and add_annotation."""
    columns = len(figure._get_subplot_rows_columns()[1])
    return {"row": panel // columns + 1, "col": panel % columns + 1}


def add_legend(figure: go.Figure, drawn: Sequence[Lane]) -> None:
    """One neutral legend entry per lane, whatever colours its panels use."""
    for lane in drawn:
        figure.add_trace(
            go.Scatter(
                x=[None],
                y=[None],
                name=lane.label,
                legendgroup=lane.key,
                showlegend=True,
                meta=f"legend/{lane.key}",
                **lane.style(INK),
            ),
            row=1,
            col=1,
        )


def count_trace(
    lane: Lane,
    counts: pd.Series,
    name: str,
    *,
    in_legend: bool = True,
    horizontal: bool = False,
) -> go.Bar | go.Scatter:
    """Counts by category: bars for a prediction, marks for what was measured.

    Args:
        lane: whose counts these are.
        counts: by category.
        name: tells the trace from the lane's other traces.
        in_legend: whether this trace stands for the lane in the legend.
        horizontal: whether categories run along the y axis.
    """
    categories, values = list(counts.index), counts.to_numpy(dtype=float)
    common = {
        "x": values if horizontal else categories,
        "y": categories if horizontal else values,
        "name": lane.label,
        "legendgroup": lane.key,
        "showlegend": in_legend,
        "meta": f"{name}/{lane.key}",
    }
    if lane.measured:
        marks = lane.style(INK)["marker"] | {"size": 9, "line": {"width": 2}}
        return go.Scatter(mode="markers", marker=marks, **common)
    shape = PREDICTION_PATTERNS[lane.rank % len(PREDICTION_PATTERNS)]
    colour = lane.colour or PREDICTION_COLOURS[lane.rank % len(PREDICTION_COLOURS)]
    pattern = {"shape": shape, "fgcolor": colour, "bgcolor": "white", "solidity": 0.5, "size": 6}
    marker = {"color": colour, "line": {"color": INK, "width": 0.5}, "pattern": pattern}
    orientation = "h" if horizontal else "v"
    return go.Bar(orientation=orientation, opacity=0.85, marker=marker, **common)


def note(figure: go.Figure, panel: int, text: str) -> None:
    """Write into a panel why there is nothing (or less) to see."""
    cell = cell_of(figure, panel)
    figure.add_annotation(
        text="<br>".join(textwrap.wrap(text, NOTE_WIDTH)),
        xref="x domain",
        yref="y domain",
        x=0.5,
        y=0.98,
        yanchor="top",
        showarrow=False,
        font={"size": 11, "color": INK},
        bgcolor="rgba(255,255,255,0.85)",
        **cell,
    )


def note_missing(figure: go.Figure, panel: int, absent: Mapping[str, str]) -> None:
    """One note for all lanes that have no value in a panel.

    Args:
        figure: with the panel.
        panel: its number.
        absent: lane label -> reason.
    """
    by_reason: dict[str, list[str]] = {}
    for label, reason in absent.items():
        by_reason.setdefault(reason, []).append(label)
    if absent:
        parts = [f"{', '.join(labels)}: {reason}" for reason, labels in by_reason.items()]
        note(figure, panel, "; ".join(parts))
