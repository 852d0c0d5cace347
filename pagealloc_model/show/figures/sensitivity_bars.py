"""How far each axis alone moves a metric, as bars around the base."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.show.figures.palette import INK, PREDICTION_COLOURS
from pagealloc_model.show.figures.panel_grid import PanelGrid


def sensitivity_bars(summary: pd.DataFrame, title: str) -> go.Figure:
    """A bar from the lowest to the highest value per axis, the longest on top; a line at the base.

    Labels say with which values of the axis the lowest and the highest were reached.

    Args:
        summary: axis, base, lowest, lowest_at, highest, highest_at, swing; longest first.
        title: the metric with its unit.
    """
    axes = list(summary["axis"])
    grid = PanelGrid(
        [""],
        title=f"One field at a time: {title}",
        x_title=title,
        y_title="",
        y_axis={
            "type": "category",
            "autorange": "reversed",
            "automargin": True,
            "tickmode": "array",
            "tickvals": axes,
            "ticktext": [_label(row) for row in summary.itertuples()],
        },
    )
    base = float(summary["base"].iloc[0])
    grid.add(
        {
            "type": "bar",
            "orientation": "h",
            "y": axes,
            "x": list(summary["swing"].astype(float)),
            "base": list(summary["lowest"].astype(float)),
            "marker": {"color": PREDICTION_COLOURS[0]},
            "name": "lowest to highest",
            "showlegend": False,
            "meta": "swing",
        },
        0,
    )
    grid.add(
        {
            "type": "scatter",
            "mode": "lines",
            "x": [base, base],
            "y": [axes[0], axes[-1]],
            "line": {"color": INK, "dash": "dot"},
            "name": "base",
            "meta": "base",
        },
        0,
    )
    return grid.figure()


def _label(row: Any) -> str:
    if row.swing == 0:
        return f"{row.axis}: no effect"
    return f"{row.axis}: {_words(row.lowest_at)} .. {_words(row.highest_at)}"


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "as recorded" if pd.isna(value) else str(int(value))
