"""How far each axis alone moves a metric, as bars around the base."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.figures.palette import INK, PREDICTION_COLOURS
from pagealloc_model.figures.panel_grid import PanelGrid


def sensitivity_bars(summary: pd.DataFrame, title: str) -> go.Figure:
    """A bar from the lowest to the highest value per axis, the longest on top; a line at the base.

    Args:
        summary: axis, base, lowest, lowest_at, highest, highest_at, swing; longest first.
        title: the metric with its unit.
    """
    grid = PanelGrid(
        [""],
        title=f"One field at a time: {title}",
        x_title=title,
        y_title="",
        y_axis={"type": "category", "autorange": "reversed", "automargin": True},
    )
    ends = [f"{_words(row.lowest_at)} .. {_words(row.highest_at)}" for row in summary.itertuples()]
    base = float(summary["base"].iloc[0])
    grid.add(
        {
            "type": "bar",
            "orientation": "h",
            "y": list(summary["axis"]),
            "x": list(summary["swing"].astype(float)),
            "base": list(summary["lowest"].astype(float)),
            "text": ends,
            "textposition": "auto",
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
            "y": [summary["axis"].iloc[0], summary["axis"].iloc[-1]],
            "line": {"color": INK, "dash": "dot"},
            "name": "base",
            "meta": "base",
        },
        0,
    )
    return grid.figure()


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "as recorded" if pd.isna(value) else str(int(value))
