"""Hosts of two sides, one mark each."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.show.figures.palette import PREDICTION_COLOURS
from pagealloc_model.show.figures.panel_grid import PanelGrid

SIDES = ("base", "patch")


def fleet_hosts(hosts: pd.DataFrame, metrics: Sequence[str]) -> go.Figure:
    """A panel per metric with a box and every host of each side.

    Args:
        hosts: side, host and metrics, one row a host.
        metrics: columns to draw.
    """
    grid = PanelGrid(
        list(metrics),
        title="Hosts of both sides",
        x_title="",
        y_title="per host",
        x_axis={"type": "category"},
        y_axis={"rangemode": "tozero"},
    )
    for panel, metric in enumerate(metrics):
        for place, side in enumerate(SIDES):
            own = hosts[hosts["side"] == side]
            grid.add(
                {
                    "type": "box",
                    "y": own[metric].to_numpy(dtype=float),
                    "x": [side] * len(own),
                    "text": [str(name) for name in own["host"]],
                    "name": side,
                    "legendgroup": side,
                    "showlegend": panel == 0,
                    "boxpoints": "all",
                    "jitter": 0.5,
                    "pointpos": 0,
                    "marker": {"color": PREDICTION_COLOURS[place], "size": 4},
                    "meta": f"{metric}/{side}",
                },
                panel,
            )
    return grid.figure()
