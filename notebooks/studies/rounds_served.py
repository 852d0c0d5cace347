"""Huge pages served from round to round, by policy: posted, measured, predicted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.faceted import Drawing, FigureFunction, PanelGrid

COLOURS = {"vanilla": "#D55E00", "defrag_mode": "#0072B2"}
OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#000000")
SPREAD_OPACITY = 0.18


@FigureFunction
def rounds_served(
    tables: Mapping[str, pd.DataFrame], *, column: str = "served", title: str = ""
) -> Drawing:
    """A panel a table: each side's mean over runs as a line, from least to most as a band.

    Args:
        tables: by title; columns side, seed, round and the one drawn.
        column: a share, drawn in percent ("served"), or a number.
        title: of the whole figure.
    """
    is_share = column == "served"
    grid = PanelGrid(
        [*tables],
        title=title or "Huge pages served of those asked for, round by round",
        x_title="round",
        y_title="huge pages served (%)" if is_share else column.replace("_", " "),
        columns=2,
        y_axis={"range": [0, 105]} if is_share else {"rangemode": "tozero"},
    )
    colours = dict(COLOURS)
    shown: set[str] = set()
    for panel, table in enumerate(tables.values()):
        for side, own in table.groupby("side", sort=False):
            name = str(side)
            if name not in colours:
                colours[name] = OTHERS[(len(colours) - len(COLOURS)) % len(OTHERS)]
            values = own.groupby("round")[column]
            scale = 100.0 if is_share else 1.0
            rounds = np.array(sorted(own["round"].unique()), float)
            low, mean, high = (
                scale * each.to_numpy(float) for each in (values.min(), values.mean(), values.max())
            )
            grid.add(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": np.concatenate([rounds, rounds[::-1]]),
                    "y": np.concatenate([low, high[::-1]]),
                    "fill": "toself",
                    "fillcolor": colours[name],
                    "opacity": SPREAD_OPACITY,
                    "line": {"width": 0},
                    "hoverinfo": "skip",
                    "name": f"{name}: least to most",
                    "legendgroup": name,
                    "showlegend": False,
                },
                panel,
            )
            grid.add(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "x": rounds,
                    "y": mean,
                    "line": {"color": colours[name], "width": 2},
                    "marker": {"size": 5},
                    "name": name,
                    "legendgroup": name,
                    "showlegend": name not in shown,
                },
                panel,
            )
            shown.add(name)
    return grid.drawing()
