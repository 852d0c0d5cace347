"""Measured and predicted tables as lanes of a figure, and the traces that draw them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.palette import (
    INK,
    MEASUREMENT_SYMBOLS,
    PREDICTION_COLOURS,
    PREDICTION_DASHES,
    PREDICTION_PATTERNS,
)

NOWHERE = np.array([np.nan])

Trace = dict[str, Any]
"""One trace as plotly's own keys and values."""

Tables = pd.DataFrame | Mapping[str, pd.DataFrame] | None
"""One table, several by label, or None where the source has none."""


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

    def style(self, colour: str) -> Trace:
        """Scatter properties in one panel, whose own colour is given."""
        colour = self.colour or colour
        if self.measured:
            symbol = MEASUREMENT_SYMBOLS[self.rank % len(MEASUREMENT_SYMBOLS)]
            return {
                "mode": "lines+markers",
                "line": {"color": colour, "width": 0.6, "dash": "dot"},
                "marker": {"color": colour, "symbol": symbol, "size": 8, "line": {"width": 1.5}},
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


def line_trace(lane: Lane, x: np.ndarray, y: np.ndarray, name: str, colour: str) -> Trace:
    """Values over time, drawn in the lane's manner.

    Args:
        lane: whose values these are.
        x: seconds.
        y: values.
        name: tells the trace from the lane's other traces.
        colour: of the panel's key.
    """
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "name": lane.label,
        "legendgroup": lane.key,
        "showlegend": False,
        "meta": f"{name}/{lane.key}",
        **lane.style(colour),
    }


def legend_trace(lane: Lane) -> Trace:
    """An empty trace that stands for the lane in the legend, whatever colours its panels use."""
    return line_trace(lane, NOWHERE, NOWHERE, "legend", INK) | {"showlegend": True}


def count_trace(
    lane: Lane,
    counts: pd.Series,
    name: str,
    *,
    in_legend: bool = True,
    horizontal: bool = False,
) -> Trace:
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
        # a mark at zero is not cut in half by the axis
        look = {"mode": "markers", "marker": marks, "cliponaxis": False}
        return {"type": "scatter", **look, **common}
    shape = PREDICTION_PATTERNS[lane.rank % len(PREDICTION_PATTERNS)]
    colour = lane.colour or PREDICTION_COLOURS[lane.rank % len(PREDICTION_COLOURS)]
    pattern = {"shape": shape, "fgcolor": colour, "bgcolor": "white", "solidity": 0.5, "size": 6}
    marker = {"color": colour, "line": {"color": INK, "width": 0.5}, "pattern": pattern}
    orientation = "h" if horizontal else "v"
    return {
        "type": "bar",
        "orientation": orientation,
        "opacity": 0.85,
        "marker": marker,
        **common,
    }
