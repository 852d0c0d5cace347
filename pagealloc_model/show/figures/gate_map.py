"""Where in a region of loads the reserve's gate has an effect, and how large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.show.figures.palette import INK
from pagealloc_model.show.figures.panel_grid import PanelGrid

MARKS: dict[str, tuple[str, str, int]] = {
    "posted": ("#D55E00", "star", 13),
    "smaller": ("#0072B2", "circle", 9),
    "none": ("#595959", "circle-open", 8),
    "opposite": ("#A0487E", "x", 9),
    "unknown": ("#8A6D00", "line-ns-open", 8),
}
"""Colour, symbol and size by the size of the effect."""


def gate_map(
    effects: pd.DataFrame, x: str, y: str, words: Mapping[str, str] | None = None
) -> go.Figure:
    """A panel per outcome: every point at its values of two axes, marked by the effect's size.

    Args:
        effects: point, axes, outcome, mainline, gate, size (`gate_effects`).
        x: the column on the x axis.
        y: the other one.
        words: of axes and outcomes by column or outcome; others are called by their own name.
    """
    words = words or {}
    outcomes = list(dict.fromkeys(effects["outcome"]))
    grid = PanelGrid(
        [words.get(outcome, outcome) for outcome in outcomes],
        title="Size of the gate's effect on made-up full hosts",
        x_title=words.get(x, x),
        y_title=words.get(y, y),
        x_axis={"rangemode": "tozero"},
        y_axis={"rangemode": "tozero"},
    )
    shown: set[str] = set()
    for panel, outcome in enumerate(outcomes):
        own = effects[effects["outcome"] == outcome]
        for size in MARKS:
            points = own[own["size"] == size]
            if len(points):
                grid.add(_marks(points, x, y, size, in_legend=size not in shown), panel)
                shown.add(size)
    return grid.figure()


def _marks(points: pd.DataFrame, x: str, y: str, size: str, *, in_legend: bool) -> dict[str, Any]:
    colour, symbol, pixels = MARKS[size]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": points[x].to_numpy(dtype=float),
        "y": points[y].to_numpy(dtype=float),
        "text": [
            f"point {row.point}: mainline {row.mainline:.4g}, gate {row.gate:.4g}"
            for row in points.itertuples()
        ],
        "name": size,
        "legendgroup": size,
        "showlegend": in_legend,
        "marker": {
            "color": colour,
            "symbol": symbol,
            "size": pixels,
            "line": {"width": 1, "color": INK},
        },
        "meta": size,
    }
