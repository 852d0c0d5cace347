"""Metrics of a sweep along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.show.figures.palette import (
    MEASUREMENT_SYMBOLS,
    PREDICTION_COLOURS,
    PREDICTION_DASHES,
)
from pagealloc_model.show.figures.panel_grid import PanelGrid

LINES_AT_MOST = 16
"""As many lines as colours and patterns tell apart."""


def sweep_lines(
    rows: pd.DataFrame, axes: Sequence[str], along: str, metrics: Sequence[str]
) -> go.Figure:
    """A panel per metric, a line for each recording and each combination of the other axes.

    Points are means over seeds. Combinations beyond the first 16 are left out, which is said below.

    Args:
        rows: a sweep's table.
        axes: its columns that were varied.
        along: the axis on the x axis; where it is as recorded, there is no point.
        metrics: columns to draw.
    """
    others = ["recording", *(axis for axis in axes if axis != along)]
    known = rows[rows[along].notna()]
    numeric = pd.api.types.is_integer_dtype(known[along])
    grid = PanelGrid(
        list(metrics),
        title=f"Predicted along {along}",
        x_title=along,
        y_title="",
        columns=2,
        x_axis={} if numeric else {"type": "category"},
        y_axis={"rangemode": "tozero"},
    )
    groups = list(known.groupby(others, sort=False, dropna=False))
    for panel, metric in enumerate(metrics):
        for place, (key, own) in enumerate(groups[:LINES_AT_MOST]):
            means = own.groupby(along)[metric].mean()
            grid.add(_line(means, _words(others, key), place, in_legend=panel == 0), panel)
    if len(groups) > LINES_AT_MOST:
        grid.write_below(f"not drawn: {count_of(len(groups) - LINES_AT_MOST, 'more combination')}")
    return grid.figure()


def _line(means: pd.Series, name: str, place: int, *, in_legend: bool) -> dict[str, Any]:
    colours, dashes = len(PREDICTION_COLOURS), len(PREDICTION_DASHES)
    values = [str(each) if isinstance(each, bool | str) else int(each) for each in means.index]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": values,
        "y": means.to_numpy(dtype=float),
        "name": name,
        "legendgroup": name,
        "showlegend": in_legend,
        "line": {
            "color": PREDICTION_COLOURS[place % colours],
            "dash": PREDICTION_DASHES[place // colours % dashes],
        },
        "marker": {"symbol": MEASUREMENT_SYMBOLS[place % len(MEASUREMENT_SYMBOLS)], "size": 6},
        "meta": name,
    }


def _words(names: Sequence[str], key: Any) -> str:
    """A combination as "recording axis=value"."""
    recording, *values = key if isinstance(key, tuple) else (key,)
    given = [
        f"{name}={value if isinstance(value, str) else int(value)}"
        for name, value in zip(names[1:], values, strict=True)
        if not pd.isna(value)
    ]
    return " ".join([str(recording), *given])
