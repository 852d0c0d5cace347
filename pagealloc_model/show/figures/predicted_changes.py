"""Predicted against measured changes, each in widths of the measured one's interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.show.figures.palette import GRID, INK, MEASUREMENT_SYMBOLS, PREDICTION_COLOURS
from pagealloc_model.show.figures.panel_grid import PanelGrid

TICKS = (1, 3, 10, 30, 100, 300, 1000)
EDGE = 1000.0
"""Beyond it a point stands at the edge."""

_LEAST_REACH = 10.0
_BEYOND = 1.5
"""How much further than the last point an axis goes."""

_BAND_POINTS = 201


def predicted_changes(changes: pd.DataFrame) -> go.Figure:
    """A point a quantity, a panel for each mode of reclaim.

    Both axes are in half widths of the measured change's interval, so that one band holds for all:
    in the diagonal one a prediction lies within the interval; left and right of the upright one
    there is a measurable effect. Axes are linear about 0 and logarithmic far from it. Quantities
    without an interval, or with one of no width, are left out.

    Args:
        changes: pair, metric, unit, mode, change, low, high, predicted, verdict.
    """
    drawn = changes[(changes["high"] > changes["low"]) & changes["predicted"].notna()]
    half = (drawn["high"] - drawn["low"]) / 2
    drawn = drawn.assign(
        across=(drawn["change"] / half).clip(-EDGE, EDGE),
        up=(drawn["predicted"] / half).clip(-EDGE, EDGE),
    )
    modes = list(dict.fromkeys(changes["mode"]))
    most = float(drawn[["across", "up"]].abs().max(axis=None)) if len(drawn) else 0.0
    reach = _BEYOND * max(_LEAST_REACH, most)
    ticks = [-tick for tick in reversed(TICKS)] + [0, *TICKS]
    axis = {
        "tickmode": "array",
        "tickvals": [_place(tick) for tick in ticks],
        "ticktext": [f"{tick:g}" for tick in ticks],
        "range": [_place(-reach), _place(reach)],
    }
    grid = PanelGrid(
        modes,
        title="Predicted against measured change",
        x_title="measured change / half width of its interval",
        y_title="predicted / the same",
        columns=2,
        x_axis=axis,
        y_axis=axis,
    )
    pairs = list(dict.fromkeys(changes["pair"]))
    named: set[str] = set()
    for panel, mode in enumerate(modes):
        for trace in _bands(reach, shown=panel == 0):
            grid.add(trace, panel)
        for number, pair in enumerate(pairs):
            mine = drawn[(drawn["mode"] == mode) & (drawn["pair"] == pair)]
            if len(mine):
                grid.add(_points(pair, number, mine, shown=pair not in named), panel)
                named.add(pair)
    left = len(changes) - len(drawn)
    if left:
        grid.write_below(f"Not drawn: {count_of(left, 'row')} without an interval or a prediction.")
    figure = grid.figure()
    figure.update_layout(height=max(560, int(figure.layout.height)))
    return figure


def _place(value: Any) -> Any:
    """Where a value stands on an axis."""
    return np.arcsinh(value)


def _bands(reach: float, *, shown: bool) -> list[dict[str, Any]]:
    """The diagonal band of predictions within the interval, and that of no measurable effect."""
    limit = float(_place(reach))
    along = np.sinh(np.linspace(-limit, limit, _BAND_POINTS))
    upper, lower = _place(along + 1), _place(along - 1)
    across = np.concatenate([_place(along), _place(along)[::-1]])
    common = {"type": "scatter", "mode": "lines", "fill": "toself", "hoverinfo": "skip"}
    return [
        {
            **common,
            "x": np.array([-1, 1, 1, -1]) * float(_place(1.0)),
            "y": np.array([-limit, -limit, limit, limit]),
            "fillcolor": GRID,
            "line": {"width": 0},
            "opacity": 0.5,
            "name": "no measurable effect",
            "legendgroup": "quiet",
            "showlegend": shown,
            "meta": "quiet",
        },
        {
            **common,
            "x": across,
            "y": np.concatenate([upper, lower[::-1]]),
            "fillcolor": "rgba(0,114,178,0.15)",
            "line": {"width": 0.5, "color": INK},
            "name": "predicted within the interval",
            "legendgroup": "within",
            "showlegend": shown,
            "meta": "within",
        },
    ]


def _points(pair: str, number: int, rows: pd.DataFrame, *, shown: bool) -> dict[str, Any]:
    words = [
        f"{row.metric}: measured {row.change:.4g} [{row.low:.4g}, {row.high:.4g}], "
        f"predicted {row.predicted:.4g} {row.unit}: {row.verdict}"
        for row in rows.itertuples()
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": _place(rows["across"].to_numpy(float)),
        "y": _place(rows["up"].to_numpy(float)),
        "text": words,
        "hoverinfo": "text",
        "name": pair,
        "legendgroup": pair,
        "showlegend": shown,
        "marker": {
            "color": PREDICTION_COLOURS[number % len(PREDICTION_COLOURS)],
            "symbol": MEASUREMENT_SYMBOLS[
                number // len(PREDICTION_COLOURS) % len(MEASUREMENT_SYMBOLS)
            ],
            "size": 8,
        },
        "meta": pair,
    }
