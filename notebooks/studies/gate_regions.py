"""By how much the reserve's gate changes huge pages, region by region of made-up hosts."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pagealloc_model.show.figures.faceted import (
    INK,
    PREDICTION_COLOURS,
    Drawing,
    FigureFunction,
    PanelGrid,
)

SYMBOLS = ("circle", "diamond")
MARK_SIZE = 13
EDGE = 75
"""Points, of both ends of the x axes."""


@FigureFunction
def gate_regions(regions: pd.DataFrame, *, posted: float = 38) -> Drawing:
    """A panel a load: the mean change of THP success in each region, and its range over hosts.

    Args:
        regions: load, defrag, proactiveness; change, least, most: shares of faults (`by_region`).
        posted: smallest change that the posted ranges allow, in points.
    """
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
            mine = (regions["load"] == load) & (regions["proactiveness"] == share)
            grid.add(_marks(regions[mine], share, number, in_legend=panel == 0), panel)
        labels = _labels(regions[regions["load"] == load])
        grid.add(_posted_line(labels, posted, in_legend=panel == 0), panel)
    return grid.drawing()


def _labels(regions: pd.DataFrame) -> list[str]:
    pairs = zip(regions["defrag"], regions["proactiveness"], strict=True)
    return [f"{defrag}, {share}" for defrag, share in pairs]


def _marks(own: pd.DataFrame, share: int, number: int, *, in_legend: bool) -> dict[str, Any]:
    change, least, most = (100 * own[name].to_numpy(float) for name in ("change", "least", "most"))
    colour = PREDICTION_COLOURS[number]
    ends = {"array": most - change, "arrayminus": change - least}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": change,
        "y": _labels(own),
        "error_x": {"type": "data", "symmetric": False, "thickness": 2.5, "color": colour} | ends,
        "marker": {"size": MARK_SIZE, "color": colour, "symbol": SYMBOLS[number % len(SYMBOLS)]},
        "name": f"proactiveness {share}",
        "legendgroup": str(share),
        "showlegend": in_legend,
    }


def _posted_line(labels: list[str], posted: float, *, in_legend: bool) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [posted, posted],
        "y": [labels[0], labels[-1]],
        "line": {"color": INK, "width": 1.5, "dash": "dot"},
        "name": f"smallest posted: +{posted:g}",
        "legendgroup": "posted",
        "showlegend": in_legend,
    }
