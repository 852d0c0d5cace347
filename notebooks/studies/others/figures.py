"""Figures of single studies: gates by region, scores and rounds over time, huge pages by run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.show.figures.faceted import (
    INK,
    PREDICTION_COLOURS,
    Drawing,
    FigureFunction,
    Lane,
    PanelGrid,
    line_trace,
)

SYMBOLS = ("circle", "diamond")
MARK_SIZE = 13
EDGE = 75
"""Points, of both ends of the x axes."""


@FigureFunction
def gate_regions(regions: pd.DataFrame, *, posted: float = 38) -> Drawing:
    """A panel a load: the mean change of THP success in each region, and its range over hosts."""
    loads = [*dict.fromkeys(regions["load"])]
    grid = PanelGrid(
        loads,
        title="What the gate changes: mean and range over the hosts of a region",
        x_title="change of THP success (points)",
        y_title="",
        x_axis={"range": [-EDGE, EDGE], "zeroline": True, "zerolinecolor": INK},
        y_axis={"type": "category", "autorange": "reversed"},
    )
    shares = [*dict.fromkeys(regions["proactiveness"])]
    for panel, load in enumerate(loads):
        for number, share in enumerate(shares):
            own = (regions["load"] == load) & (regions["proactiveness"] == share)
            grid.add(_marks(regions[own], share, number, in_legend=panel == 0), panel)
        labels, dots = _labels(regions[regions["load"] == load]), {"color": INK, "width": 1.5}
        line = _trace(
            [posted, posted],
            [labels[0], labels[-1]],
            f"smallest posted: +{posted:g}",
            group="posted",
            in_legend=panel == 0,
            line=dots | {"dash": "dot"},
        )
        grid.add(line, panel)
    return grid.drawing()


def _labels(regions: pd.DataFrame) -> list[str]:
    pairs = zip(regions["defrag"], regions["proactiveness"], strict=True)
    return [f"{defrag}, {share}" for defrag, share in pairs]


def _trace(
    x: Any, y: Any, name: str, *, group: str = "", in_legend: bool = True, **style: Any
) -> dict[str, Any]:
    """A line, unless the style has another mode; traces of a group are shown together."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "name": name,
        "legendgroup": group or name,
        "showlegend": in_legend,
        **style,
    }


def _marks(own: pd.DataFrame, share: int, number: int, *, in_legend: bool) -> dict[str, Any]:
    change, least, most = (100 * own[name].to_numpy(float) for name in ("change", "least", "most"))
    colour = PREDICTION_COLOURS[number]
    ends = {"array": most - change, "arrayminus": change - least}
    return _trace(
        change,
        _labels(own),
        f"proactiveness {share}",
        group=str(share),
        in_legend=in_legend,
        mode="markers",
        error_x={"type": "data", "symmetric": False, "thickness": 2.5, "color": colour} | ends,
        marker={"size": MARK_SIZE, "color": colour, "symbol": SYMBOLS[number % len(SYMBOLS)]},
    )


COUNTED, NOT_COUNTED = "#0072B2", "#D55E00"
LINES = (
    ("score", "score: free reserved blocks count as whole", COUNTED, "solid"),
    ("score_without_reserve", "the same with the reserve left out", NOT_COUNTED, "dash"),
)


@FigureFunction
def score_over_time(
    tables: Mapping[str, pd.DataFrame], *, threshold: int = 90, title: str = "", caption: str = ""
) -> Drawing:
    """A panel a host: the score as the kernel takes it, the same without the reserve, the mark."""
    grid = PanelGrid(
        [*tables],
        title=title
        or f"Proactive compaction begins above {threshold}: does the reserve hold it back?",
        x_title="s",
        y_title="free memory in small pieces (%)",
        columns=2,
        y_axis={"range": [0, 105]},
    )
    for panel, table in enumerate(tables.values()):
        seconds = table["second"].to_numpy(float)
        mark = {"color": INK, "width": 1, "dash": "dot"}
        edges, words = [float(seconds.min()), float(seconds.max())], f"begins above {threshold}"
        line = _trace(
            edges, [threshold] * 2, words, group="threshold", in_legend=panel == 0, line=mark
        )
        grid.add(line, panel)
        for column, words, colour, dash in LINES:
            style, values = {"color": colour, "width": 2, "dash": dash}, table[column]
            line = _trace(
                seconds,
                values.to_numpy(float),
                words,
                group=column,
                in_legend=panel == 0,
                line=style,
            )
            grid.add(line, panel)
    grid.write_below(caption)
    return grid.drawing()


COLOURS = {"vanilla": "#D55E00", "defrag_mode": "#0072B2"}
OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#000000")
SPREAD_OPACITY = 0.18


@FigureFunction
def rounds_served(
    tables: Mapping[str, pd.DataFrame],
    *,
    column: str = "served",
    title: str = "",
    caption: str = "",
) -> Drawing:
    """A panel a table: each side's mean over runs as a line, from least to most as a band."""
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
                scale * part.to_numpy(float) for part in (values.min(), values.mean(), values.max())
            )
            band = _trace(
                np.concatenate([rounds, rounds[::-1]]),
                np.concatenate([low, high[::-1]]),
                f"{name}: least to most",
                group=name,
                in_legend=False,
                fill="toself",
                fillcolor=colours[name],
                opacity=SPREAD_OPACITY,
                line={"width": 0},
                hoverinfo="skip",
            )
            line = _trace(
                rounds,
                mean,
                name,
                in_legend=name not in shown,
                mode="lines+markers",
                line={"color": colours[name], "width": 2},
                marker={"size": 5},
            )
            grid.add(band, panel)
            grid.add(line, panel)
            shown.add(name)
    grid.write_below(caption)
    return grid.drawing()


SIDES = (("base", "vanilla"), ("patch", "defrag_mode"))


@FigureFunction
def huge_page_trend(shares: pd.DataFrame, *, patch: str = "defrag_mode") -> Drawing:
    """One line a side over runs in a row: marks for what was posted, lines for the model."""
    grid = PanelGrid(
        [""],
        title="Huge pages served of those asked for",
        x_title="run",
        y_title="huge pages served (%)",
        y_axis={"range": [0, 105]},
    )
    runs = np.asarray(shares.index, float)
    for rank, (side, words) in enumerate(SIDES):
        colour = PREDICTION_COLOURS[rank]
        for column, label, measured in (
            (f"posted_{side}", f"posted, {words}", True),
            (side, f"model, {patch if side == 'patch' else words}", False),
        ):
            lane = Lane(label=label, table=shares, measured=measured, rank=rank, colour=colour)
            values = 100 * shares[column].to_numpy(float)
            grid.add(line_trace(lane, runs, values, column, colour) | {"showlegend": True}, 0)
    return grid.drawing()
