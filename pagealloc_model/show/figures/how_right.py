"""How right the model is, in one picture: predicted over measured, with a band about equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.palette import GRID, INK, PREDICTION_COLOURS
from pagealloc_model.show.figures.panel_grid import PanelGrid

BAND = 1.25
"""Within this factor of what was measured a prediction lies in the band."""

FEW = 10
"""Numbers below this are on linear axes: there a logarithm shows differences that are none."""

MOST_FEW = 20
"""Where the linear axes end; what lies beyond stands at their edge."""

HEIGHT = 560
STATES = {
    "free_pages": "free pages",
    "pcp_count": "pages on per-CPU lists",
    "watermark_boost": "watermark boost",
    "highatomic_blocks": "highatomic blocks",
}
"""Scored at every snapshot."""

TOTALS = {
    "refill_pages": "refills, drains",
    "refill_transactions": "refills, drains",
    "drain_pages": "refills, drains",
    "drain_transactions": "refills, drains",
    "empty_refill_transactions": "refills, drains",
    "extfrag_events": "fallbacks",
}
"""Scored once, over the whole recording."""

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")
NULL = "null model of each"
NOTE = (
    "Shares, distributions and changes of pageblocks are not drawn: the error table has them. "
    "What lies outside the axes stands at their edge. Null models know no allocator: nothing "
    "changes, no per-CPU lists, no fallback."
)


def predicted_over_measured(errors: pd.DataFrame, snapshots: pd.DataFrame) -> pd.DataFrame:
    """Return what the picture draws: kind, metric, scope, measured, predicted, null, inside.

    Args:
        errors: of a validation: totals come from there.
        snapshots: of a validation: states come from there, one row for each snapshot.
    """
    totals = errors[errors["metric"].isin(list(TOTALS)) & (errors["kind"] == "predicted")]
    totals = totals[totals["scope"] != "per time bin"]
    states = snapshots[snapshots["metric"].isin(list(STATES))]
    columns = ["metric", "scope", "measured", "predicted", "null"]
    both = pd.concat([states[columns], totals[columns]], ignore_index=True)
    both = both[both[["measured", "predicted"]].notna().all(axis=1)]
    values = {name: both[name].astype(float) for name in ("measured", "predicted", "null")}
    return both.assign(
        **values,
        kind=both["metric"].map(STATES | TOTALS),
        inside=_inside(values["measured"], values["predicted"]),
        null_inside=_inside(values["measured"], values["null"]),
    ).reset_index(drop=True)


def in_band_words(points: pd.DataFrame) -> str:
    """Return one line: how many points lie in the band, the model's and the null model's.

    Args:
        points: of `predicted_over_measured`.
    """
    share = round(100 * (BAND - 1))
    return (
        f"{int(points['inside'].sum())} of {count_of(len(points), 'prediction')} within "
        f"{share} % of what was "
        f"measured; of null models {int(points['null_inside'].sum())}"
    )


@FigureFunction
def how_right(errors: pd.DataFrame, snapshots: pd.DataFrame, name: str = "") -> Drawing:
    """Every scored number: predicted over measured, in a band if it is within `BAND`.

    Large numbers are on logarithmic axes; those where measured or predicted is below `FEW` on
    linear ones beside them. Rings are the null models' answers to the same.

    Args:
        errors: of a validation.
        snapshots: of a validation.
        name: of the recording.
    """
    points = predicted_over_measured(errors, snapshots)
    few = points[["measured", "predicted"]].min(axis=1) < FEW
    grid = PanelGrid(
        [
            f"from {FEW} on (logarithmic axes)",
            f"one of both below {FEW} (linear axes, cut at {MOST_FEW})",
        ],
        title=f"How right is the model? {name}: {in_band_words(points)}".replace("? :", "?"),
        x_title="measured",
        y_title="predicted",
        columns=2,
    )
    named: set[str] = set()
    limits = add_large_numbers(grid, 0, points[~few], named)
    add_numbers(grid, 1, points[few], (0.0, float(MOST_FEW)), named)
    if not few.any():
        grid.note_missing(1, {"no number": f"all are {FEW} or more"})
    grid.write_below(NOTE)
    drawing = grid.drawing(height=HEIGHT)
    for axis in ("xaxis", "yaxis"):
        drawing.layout[axis] |= decades_axis(limits)
        drawing.layout[f"{axis}2"] |= {"range": [-1, MOST_FEW + 1]}
    return drawing


def add_large_numbers(
    grid: PanelGrid, panel: int, points: pd.DataFrame, named: set[str]
) -> tuple[float, float]:
    """Draw a panel of numbers that fit logarithmic axes; return the ends of both its axes.

    Args:
        grid: of the figure.
        panel: its number.
        points: of `predicted_over_measured`, all `FEW` or more.
        named: what is in the legend; what is drawn is added.
    """
    limits = _decades(points)
    add_numbers(grid, panel, points, limits, named)
    return limits


def add_numbers(
    grid: PanelGrid, panel: int, points: pd.DataFrame, ends: tuple[float, float], named: set[str]
) -> None:
    """Draw the band, null models and predictions in a panel; arguments as above.

    Args:
        grid: of the figure.
        panel: its number.
        points: of `predicted_over_measured`.
        ends: of both axes.
        named: what is in the legend; what is drawn is added.
    """
    traces = [_band(*ends), _equal(*ends), _nulls(points, *ends)]
    for number, kind in enumerate(dict.fromkeys((*STATES.values(), *TOTALS.values()))):
        rows = points[points["kind"] == kind]
        if len(rows):
            traces.append(_points(kind, number, rows, *ends))
    for trace in traces:
        grid.add(trace | {"showlegend": trace["name"] not in named}, panel)
        named.add(trace["name"])


def decades_axis(ends: tuple[float, float]) -> dict[str, Any]:
    """Return the properties of a logarithmic axis with a tick for each power of ten."""
    return {"type": "log", "range": [float(np.log10(each)) for each in ends], "dtick": 1}


def _inside(measured: pd.Series, other: pd.Series) -> pd.Series:
    return (other <= measured * BAND) & (other >= measured / BAND)


def _decades(points: pd.DataFrame) -> tuple[float, float]:
    """Whole decades that hold all that was measured and predicted."""
    values = points[["measured", "predicted"]].to_numpy(float)
    if not values.size:
        return float(FEW), float(FEW * 10)
    low, high = np.floor(np.log10(values.min())), np.ceil(np.log10(values.max() * 1.01))
    return float(10.0 ** max(low, 1.0)), float(10.0 ** max(high, low + 1.0))


def _band(low: float, high: float) -> dict[str, Any]:
    along = np.array([low, high])
    return {
        "type": "scatter",
        "mode": "lines",
        "x": np.concatenate([along, along[::-1]]),
        "y": np.concatenate([along * BAND, along[::-1] / BAND]),
        "fill": "toself",
        "fillcolor": GRID,
        "line": {"width": 0, "color": GRID},
        "hoverinfo": "skip",
        "name": f"within {round(100 * (BAND - 1))} %",
        "legendgroup": "band",
        "meta": "band",
    }


def _equal(low: float, high: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": np.array([low, high]),
        "y": np.array([low, high]),
        "line": {"width": 1, "color": INK},
        "hoverinfo": "skip",
        "name": "equal",
        "legendgroup": "equal",
        "meta": "equal",
    }


def _nulls(rows: pd.DataFrame, low: float, high: float) -> dict[str, Any]:
    known = rows[rows["null"].notna()]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": known["measured"].clip(low, high).to_numpy(float),
        "y": known["null"].clip(low, high).to_numpy(float),
        "text": _words(known, "null"),
        "hoverinfo": "text",
        "name": NULL,
        "legendgroup": "null",
        "cliponaxis": False,
        "marker": {"symbol": "circle-open", "size": 7, "color": "#767676", "line": {"width": 1}},
        "meta": "null",
    }


def _points(kind: str, number: int, rows: pd.DataFrame, low: float, high: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rows["measured"].clip(low, high).to_numpy(float),
        "y": rows["predicted"].clip(low, high).to_numpy(float),
        "text": _words(rows, "predicted"),
        "hoverinfo": "text",
        "name": kind,
        "legendgroup": kind,
        "cliponaxis": False,
        "marker": {
            "symbol": SYMBOLS[number % len(SYMBOLS)],
            "size": 9,
            "color": PREDICTION_COLOURS[number % len(PREDICTION_COLOURS)],
            "line": {"width": 1, "color": "white"},
        },
        "meta": kind,
    }


def _words(rows: pd.DataFrame, column: str) -> Sequence[str]:
    return [
        f"{row.metric}, {row.scope}: measured {row.measured:,.6g}, {column} "
        f"{getattr(row, column):,.6g}"
        for row in rows.itertuples()
    ]
