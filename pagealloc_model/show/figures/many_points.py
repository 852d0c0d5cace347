"""Figures of sweeps and fleets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.base.text import count_of
from pagealloc_model.show.figures.faceted import (
    INK,
    MEASUREMENT_SYMBOLS,
    PREDICTION_COLOURS,
    PREDICTION_DASHES,
    PanelGrid,
)

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
        "text": [_point_words(row, axes) for _, row in points.iterrows()],
        "name": name,
        "line": {"color": colour, "shape": "hv"},
        "marker": {"color": colour, "symbol": "circle" if joined else "circle-open", "size": 8},
        "meta": name,
    }


def _point_words(row: pd.Series, axes: Sequence[str]) -> str:
    given = [f"{axis}={row[axis]}" for axis in axes if not pd.isna(row[axis])]
    return "<br>".join(given) or "as recorded"


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
    return f"{row.axis}: {_value_words(row.lowest_at)} .. {_value_words(row.highest_at)}"


def _value_words(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "as recorded" if pd.isna(value) else str(int(value))


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
