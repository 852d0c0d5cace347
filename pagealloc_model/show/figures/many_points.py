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
    scatter,
)

LINES_AT_MOST = 16
"""As many lines as colours and patterns tell apart."""
_FROM_ZERO = {"rangemode": "tozero"}


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
    grid = PanelGrid(
        list(metrics),
        title=f"Predicted along {along}",
        x_title=along,
        y_title="",
        columns=2,
        x_axis={} if pd.api.types.is_integer_dtype(known[along]) else {"type": "category"},
        y_axis=_FROM_ZERO,
    )
    groups = list(known.groupby(others, sort=False, dropna=False))
    lines = []
    for place, (key, own) in enumerate(groups[:LINES_AT_MOST]):
        recording, *values = key if isinstance(key, tuple) else (key,)
        settings = [
            f"{axis}={value if isinstance(value, str) else int(value)}"
            for axis, value in zip(others[1:], values, strict=True)
            if not pd.isna(value)
        ]
        colour = PREDICTION_COLOURS[place % len(PREDICTION_COLOURS)]
        dash = PREDICTION_DASHES[place // len(PREDICTION_COLOURS) % len(PREDICTION_DASHES)]
        symbol = MEASUREMENT_SYMBOLS[place % len(MEASUREMENT_SYMBOLS)]
        look = {"line": {"color": colour, "dash": dash}, "marker": {"symbol": symbol, "size": 6}}
        lines.append((own.groupby(along), " ".join([str(recording), *settings]), look))
    for panel, metric in enumerate(metrics):
        for own, name, look in lines:
            means = own[metric].mean()
            x = [str(at) if isinstance(at, bool | str) else int(at) for at in means.index]
            legend = {"legendgroup": name, "showlegend": panel == 0}
            y = means.to_numpy(float)
            grid.add(scatter(x, y, name, "lines+markers", **look, **legend), panel)
    if len(groups) > LINES_AT_MOST:
        grid.write_below(f"not drawn: {count_of(len(groups) - LINES_AT_MOST, 'more combination')}")
    return grid.figure()


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
        front = own[own["on_front"]].sort_values(x)
        for shown, name, mode, symbol in (
            (own, f"{recording}", "markers", "circle-open"),
            (front, f"{recording}, not beaten", "lines+markers", "circle"),
        ):
            settings = [
                [f"{axis}={row[axis]}" for axis in axes if not pd.isna(row[axis])]
                for _, row in shown.iterrows()
            ]
            marker = {"color": colour, "symbol": symbol, "size": 8}
            look = {"line": {"color": colour, "shape": "hv"}, "marker": marker}
            values = (shown[column].to_numpy(float) for column in (x, y))
            words = ["<br>".join(each) or "as recorded" for each in settings]
            grid.add(scatter(*values, name, mode, text=words, **look), 0)
    return grid.figure(height=TALL)


def sensitivity_bars(summary: pd.DataFrame, title: str) -> go.Figure:
    """A bar from the lowest to the highest value per axis, the longest on top; a line at the base.

    Labels say with which values of the axis the lowest and the highest were reached.

    Args:
        summary: axis, base, lowest, lowest_at, highest, highest_at, swing; longest first.
        title: the metric with its unit.
    """
    axes = list(summary["axis"])
    labels = [
        f"{row.axis}: no effect"
        if row.swing == 0
        else f"{row.axis}: {_value_words(row.lowest_at)} .. {_value_words(row.highest_at)}"
        for row in summary.itertuples()
    ]
    ticks = {"tickmode": "array", "tickvals": axes, "ticktext": labels}
    grid = PanelGrid(
        [""],
        title=f"One field at a time: {title}",
        x_title=title,
        y_title="",
        y_axis={"type": "category", "autorange": "reversed", "automargin": True} | ticks,
    )
    lowest, swing = (list(summary[name].astype(float)) for name in ("lowest", "swing"))
    bars = {"type": "bar", "orientation": "h", "y": axes, "x": swing, "base": lowest}
    look = {"marker": {"color": PREDICTION_COLOURS[0]}, "showlegend": False}
    grid.add(bars | look | {"name": "lowest to highest", "meta": "swing"}, 0)
    base = float(summary["base"].iloc[0])
    ends = [axes[0], axes[-1]]
    grid.add(scatter([base, base], ends, "base", line={"color": INK, "dash": "dot"}), 0)
    return grid.figure()


def _value_words(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "as recorded" if pd.isna(value) else str(int(value))


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
        y_axis=_FROM_ZERO,
    )
    for panel, metric in enumerate(metrics):
        for side, colour in zip(("base", "patch"), PREDICTION_COLOURS, strict=False):
            own = hosts[hosts["side"] == side]
            places = {"x": [side] * len(own), "y": own[metric].to_numpy(dtype=float)}
            words = {"text": [str(name) for name in own["host"]], "name": side}
            legend = {"legendgroup": side, "showlegend": panel == 0, "meta": f"{metric}/{side}"}
            points = {"boxpoints": "all", "jitter": 0.5, "pointpos": 0}
            look = {"type": "box", "marker": {"color": colour, "size": 4}}
            grid.add(places | words | legend | points | look, panel)
    return grid.figure()
