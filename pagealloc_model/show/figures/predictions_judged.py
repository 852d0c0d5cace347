"""Figures of how right predictions are, and of what a policy changes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.base.result_tables import row_words
from pagealloc_model.base.text import count_of
from pagealloc_model.show.figures.faceted import (
    GRID,
    INK,
    MEASUREMENT_SYMBOLS,
    PREDICTION_COLOURS,
    Drawing,
    FigureFunction,
    PanelGrid,
    Trace,
)
from pagealloc_model.verdict.comparison import BELIEVED, WITHIN_ERROR
from pagealloc_model.verdict.headline import score_words, scores

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
    words = score_words(scores(errors, snapshots))
    grid = PanelGrid(
        [
            f"from {FEW} on (logarithmic axes)",
            f"one of both below {FEW} (linear axes, cut at {MOST_FEW})",
        ],
        title=f"How right is the model? {name}: {words}".replace("? :", "?"),
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


def error_budget(errors: pd.DataFrame, recording: str) -> go.Figure:
    """Return a figure with a panel for each metric and scope, and a bar for each run.

    Bars of imposed runs are hatched and named with a star: they are no predictions. Errors stand
    without sign.

    Args:
        errors: metric, scope, run, imposed, error: of `verdict.budget`.
        recording: its name.
    """
    rows = list(errors.groupby(["metric", "scope"], sort=False))
    grid = PanelGrid(
        [f"{metric}, {scope}" for (metric, scope), _ in rows],
        title=f"Error budget of {recording}: runs with * (hatched) are imposed, no predictions",
        x_title="error, absolute",
        y_title="",
        x_axis={"rangemode": "tozero"},
        y_axis={"type": "category", "autorange": "reversed", "automargin": True},
    )
    for panel, (_, mine) in enumerate(rows):
        shown = mine[mine["error"].notna()]
        if not len(shown):
            grid.note_missing(panel, {"error": "not known"})
            continue
        names = [
            f"{run}*" if is_imposed else run
            for run, is_imposed in zip(shown["run"], shown["imposed"], strict=True)
        ]
        grid.add(
            {
                "type": "bar",
                "orientation": "h",
                "y": names,
                "x": list(shown["error"].astype(float).abs()),
                "marker": {
                    "color": PREDICTION_COLOURS[0],
                    "line": {"color": INK, "width": 1},
                    "pattern": {"shape": ["/" if each else "" for each in shown["imposed"]]},
                },
                "name": "error",
                "showlegend": False,
                "meta": "error",
            },
            panel,
        )
    return grid.figure()


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
                grid.add(
                    _predicted_changes_points(pair, number, mine, shown=pair not in named), panel
                )
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


def _predicted_changes_points(
    pair: str, number: int, rows: pd.DataFrame, *, shown: bool
) -> dict[str, Any]:
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


MOST_ROWS = 12
LARGEST = 10.0
"""Axes end at this factor, either way; what lies beyond stands at the edge."""

REACH = 1.05
"""Decades on either side of no change, a little more than `LARGEST`."""

TALK_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
HEIGHTENED = 160
"""Pixels of height, more than panels have by themselves."""
NAME_WIDTH = 24
"""Characters of a line of a name on the left."""
CHARACTER = 7.4
"""Pixels that one is wide, about."""

DOUBTFUL = (WITHIN_ERROR,)
TALK_FEW = 20
"""Of a base below this, a ratio says nothing."""


@FigureFunction
def talk_figure(
    rows: pd.DataFrame, errors: pd.DataFrame, snapshots: pd.DataFrame, title: str, caption: str
) -> Drawing:
    """Left, patch over base with the interval of each ratio; right, predicted over measured.

    Marks tell what colours would, so that it reads in grey. Rows that nothing recorded checks, that
    failed their null model, or whose base is below `FEW` are left out.

    Args:
        rows: judged rows of a comparison.
        errors: of a validation of the same recording.
        snapshots: of the same.
        title: one line.
        caption: what it is, on what, how far to be believed, how to make it again.
    """
    shown = shown_rows(rows)
    grid = PanelGrid(
        [f"patch over base (cut at {1 / LARGEST:g} and {LARGEST:g})", "predicted over measured"],
        title=title,
        x_title="",
        y_title="",
        columns=2,
    )
    grid.leave_left(round(CHARACTER * NAME_WIDTH) + 20)
    grid.add(_no_change(shown), 0)
    for words, verdicts, mark in (
        ("changed by more than the model's error", BELIEVED, "circle"),
        ("within the model's error", DOUBTFUL, "circle-open"),
    ):
        mine = shown[shown["verdict"].isin(verdicts)]
        if len(mine):
            grid.add(_ratios(mine, words, mark), 0)
    if not len(shown):
        grid.note_missing(0, {"no row": "can be judged"})
    points = predicted_over_measured(errors, snapshots)
    large = points[points[["measured", "predicted"]].min(axis=1) >= FEW]
    ends = add_large_numbers(grid, 1, large, set())
    grid.write_below(caption)
    drawing = grid.drawing()
    layout = drawing.layout
    layout["height"] += HEIGHTENED
    for part in ("title", "legend"):
        layout[part] |= {"x": 0.01, "xref": "container"}
    layout["xaxis"] |= {
        "type": "log",
        "range": [-REACH, REACH],
        "tickvals": list(TALK_TICKS),
        "ticktext": [f"{each:g}" for each in TALK_TICKS],
        "title": {"text": "patch / base", "font": {"size": 12}},
    }
    layout["yaxis"] |= {
        "tickfont": {"size": 11},
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(shown["name"])[::-1],
        "range": [-0.5, max(len(shown), 1) - 0.5],
    }
    measured = {"text": "measured on this recording, logarithmic", "font": {"size": 12}}
    layout["xaxis2"] |= decades_axis(ends) | {"title": measured}
    layout["yaxis2"] |= decades_axis(ends)
    return drawing


def shown_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the judged rows that are drawn, believed ones first, with name, ratio, low and high.

    Args:
        rows: of a comparison.
    """
    judged = rows[rows["verdict"].isin([*BELIEVED, *DOUBTFUL]) & (rows["base"] >= TALK_FEW)]
    judged = judged[judged["patch"].notna()]
    is_doubtful = judged["verdict"].isin(DOUBTFUL)
    judged = pd.concat([judged[~is_doubtful], judged[is_doubtful]]).head(MOST_ROWS)
    base = judged["base"]
    return judged.assign(
        name=[
            "<br>".join(textwrap.wrap(row_words(row, place=", "), NAME_WIDTH))
            for row in judged.itertuples()
        ],
        ratio=(judged["patch"] / base).clip(1 / LARGEST, LARGEST),
        from_ratio=((base + judged["change_low"]) / base).clip(1 / LARGEST, LARGEST),
        to_ratio=((base + judged["change_high"]) / base).clip(1 / LARGEST, LARGEST),
    )


def _no_change(shown: pd.DataFrame) -> Trace:
    names = list(shown["name"]) or [""]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": np.ones(len(names)),
        "y": names,
        "line": {"width": 1, "color": INK},
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": "no change",
    }


def _ratios(rows: pd.DataFrame, words: str, mark: str) -> Trace:
    ratio = rows["ratio"].to_numpy(float)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": ratio,
        "y": list(rows["name"]),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": rows["to_ratio"].to_numpy(float) - ratio,
            "arrayminus": ratio - rows["from_ratio"].to_numpy(float),
            "color": INK,
            "thickness": 1,
            "width": 3,
        },
        "name": words,
        "cliponaxis": False,
        "marker": {"symbol": mark, "size": 9, "color": INK, "line": {"width": 1.5}},
        "meta": words,
    }
