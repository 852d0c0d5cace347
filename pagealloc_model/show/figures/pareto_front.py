"""Points of a sweep by two metrics, and those that none beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.show.figures.palette import PREDICTION_COLOURS
from pagealloc_model.show.figures.panel_grid import PanelGrid

TALL = 420
"""Height of the one panel, pixels."""


def pareto_front(
    points: pd.DataFrame, axes: Sequence[str], x: str, y: str, titles: tuple[str, str]
) -> go.Figure:
    """Every point, open; the front filled and joined, by recording.

    Args:
        points: recording, axes, the two metrics, on_front.
        axes: what was varied, for the words at each point.
        x: the column on the x axis.
        y: the other one.
        titles: of the two axes, units included.
    """
    grid = PanelGrid([""], title="Pareto front", x_title=titles[0], y_title=titles[1])
    for place, (recording, own) in enumerate(points.groupby("recording", sort=False)):
        colour = PREDICTION_COLOURS[place % len(PREDICTION_COLOURS)]
        grid.add(_marks(own, axes, x, y, f"{recording}", colour), 0)
        front = own[own["on_front"]].sort_values(x)
        grid.add(_marks(front, axes, x, y, f"{recording}, not beaten", colour, joined=True), 0)
    return grid.figure(height=TALL)


def _marks(
    points: pd.DataFrame,
    axes: Sequence[str],
    x: str,
    y: str,
    name: str,
    colour: str,
    *,
    joined: bool = False,
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if joined else "markers",
        "x": points[x].to_numpy(dtype=float),
        "y": points[y].to_numpy(dtype=float),
        "text": [_words(row, axes) for _, row in points.iterrows()],
        "name": name,
        "line": {"color": colour, "shape": "hv"},
        "marker": {"color": colour, "symbol": "circle" if joined else "circle-open", "size": 8},
        "meta": name,
    }


def _words(row: pd.Series, axes: Sequence[str]) -> str:
    given = [f"{axis}={row[axis]}" for axis in axes if not pd.isna(row[axis])]
    return "<br>".join(given) or "as recorded"
