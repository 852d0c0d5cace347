"""Figures of points: how right predictions are, what a policy changes, sweeps and fleets."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.base.text import count_of, number
from pagealloc_model.numbers.comparison import BELIEVED, BEYOND_ERROR, UNPROVEN, WITHIN_ERROR
from pagealloc_model.numbers.result_tables import is_few, row_words
from pagealloc_model.numbers.validation import score_words, scores
from pagealloc_model.numbers.vocabulary import SERIES_WORDS, TOTAL_WORDS, column
from pagealloc_model.show.figures.faceted import (
    GRID,
    INK,
    LEGEND_LINE,
    LEGEND_TOP,
    MEASUREMENT_SYMBOLS,
    PREDICTION_COLOURS,
    PREDICTION_DASHES,
    Drawing,
    FigureFunction,
    PanelGrid,
    Trace,
    cycled,
    scatter,
)

WIDE = 16
"""An axis is logarithmic where the greatest value is so many times the least."""
BAND = 1.25
"""Within this factor of what was measured a prediction lies in the band."""
FEW = 10
"""Numbers below this are on linear axes: there a logarithm shows differences that are none."""
MOST_FEW = 20
"""Where the linear axes end; what lies beyond stands at their edge."""
HEIGHT = 560
BESIDE = {"x": 1.02, "y": 1}
"""A legend on the right, where there is room for every scored number."""
SYMBOLS = (
    *("circle", "diamond", "square", "triangle-up", "cross", "star", "triangle-down", "x"),
    *("pentagon", "hexagram", "bowtie", "hourglass", "triangle-left", "triangle-right"),
    *("star-square", "star-diamond"),
)
KINDS = SERIES_WORDS | {metric: words for (metric, _), words in TOTAL_WORDS.items()}
"""In the words of a verdict."""
NOTE = (
    "Shares, distributions and changes of pageblocks are not drawn. "
    "What lies outside the axes stands at their edge. Null models know no allocator: nothing "
    "changes; counts go on as in the first quarter."
)
_WORDS_ONLY, _MUTE = {"hoverinfo": "text"}, {"hoverinfo": "skip"}
_CATEGORIES_DOWN = {"type": "category", "autorange": "reversed", "automargin": True}
_FROM_ZERO = {"rangemode": "tozero"}


def predicted_over_measured(errors: pd.DataFrame, snapshots: pd.DataFrame) -> pd.DataFrame:
    """The points of the picture: kind, metric, scope, measured, predicted, null, inside."""
    is_total = errors["metric"].isin([metric for metric, _ in TOTAL_WORDS])
    totals = errors[is_total & (errors["kind"] == "predicted")]
    totals = totals[totals["scope"] != "per time bin"]
    numbers = ["measured", "predicted", "null"]
    columns = ["metric", "scope", *numbers]
    points = pd.concat([snapshots[columns], totals[columns]], ignore_index=True)
    points = (
        points.dropna(subset=numbers[:2])
        .reset_index(drop=True)
        .astype(dict.fromkeys(numbers, float))
    )
    points["kind"] = points["metric"].map(KINDS)
    for name, side in (("inside", "predicted"), ("null_inside", "null")):
        points[name] = points[side].between(points["measured"] / BAND, points["measured"] * BAND)
    return points


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
    linear = f"one of both below {FEW} (linear axes, cut at {MOST_FEW})"
    words = score_words(scores(errors))
    title = f"How right is the model? {name}: {words}".replace("? :", "?")
    titles = [f"from {FEW} on (logarithmic axes)", linear]
    grid = PanelGrid(titles, title, "measured", "predicted", columns=2)
    _add_numbers(grid, 0, points[~few])
    _add_numbers(grid, 1, points[few], (0.0, float(MOST_FEW)))
    if not few.any():
        grid.note_missing(1, {"no number": f"all are {FEW} or more"})
    grid.write_below(NOTE)
    for letter in "xy":
        grid.set_axis(letter, 1, {"range": [-1, MOST_FEW + 1]})
    return grid.drawing(height=HEIGHT, legend=BESIDE)


def _add_numbers(
    grid: PanelGrid,
    panel: int,
    points: pd.DataFrame,
    ends: tuple[float, float] | None = None,
) -> None:
    """Draw the band, null models and predictions in a panel.

    Without `ends`, axes are logarithmic, with the whole decades that hold all values from `FEW`
    on; smaller ones stand at the edge.
    """
    if ends is None:
        values = points[["measured", "predicted"]].to_numpy(float)
        ends = (float(FEW), float(FEW * 10))
        if values.size:
            positive = values[values > 0]
            low = np.floor(np.log10(positive.min() if positive.size else FEW))
            high = np.ceil(np.log10(values.max() * 1.01))
            low = max(low, np.log10(FEW))
            ends = float(10.0**low), float(10.0 ** max(high, low + 1.0))
        for letter in "xy":
            decades = [float(np.log10(end)) for end in ends]
            grid.set_axis(letter, panel, {"type": "log", "range": decades, "dtick": 1})
    along, back = np.array(ends), np.array(ends[::-1])
    x, y = np.append(along, back), np.append(along * BAND, back / BAND)
    look: Trace = {"fill": "toself", "fillcolor": GRID, "line": {"width": 0, "color": GRID}}
    look |= {"meta": "band", "legendgroup": "band"} | _MUTE
    grid.add(scatter(x, y, f"within {100 * (BAND - 1):.0f} %", **look), panel, once=True)
    look = {"legendgroup": "equal", "line": {"width": 1, "color": INK}} | _MUTE
    grid.add(scatter(along, along, "equal", **look), panel, once=True)
    ring = {"symbol": "circle-open", "size": 7, "color": "#767676", "line": {"width": 1}}
    known = points[points["null"].notna()]
    groups = [("null model of each", "null", "null", known, ring)]
    for place, kind in enumerate(KINDS.values()):
        mark = {"symbol": cycled(SYMBOLS, place), "size": 9, "line": {"width": 1, "color": "white"}}
        mark |= {"color": cycled(PREDICTION_COLOURS, place)}
        rows = points[points["kind"] == kind]
        groups += [(kind, kind, "predicted", rows, mark)] if len(rows) else []
    for name, group, of, rows, mark in groups:
        text = [
            f"{row.metric}, {row.scope}: measured {row.measured:,.6g}, {of} {getattr(row, of):,.6g}"
            for row in rows.itertuples()
        ]
        x, y = (rows[side].clip(*ends).to_numpy(float) for side in ("measured", of))
        look = {"meta": group, "legendgroup": group, "cliponaxis": False, "marker": mark}
        trace = scatter(x, y, name, "markers", text=text, **look, **_WORDS_ONLY)
        grid.add(trace, panel, once=True)


def error_budget(errors: pd.DataFrame, recording: str) -> go.Figure:
    """A panel for each metric and scope, and a bar for each run.

    Bars of imposed runs are hatched and named with a star: they are no predictions. Errors stand
    without sign.

    Args:
        errors: metric, scope, unit, run, imposed, error, counted: of `diagnosis.budget`.
        recording: its name.
    """
    panels = list(errors.groupby(["metric", "scope"], sort=False))
    title = f"Error budget of {recording}: runs with * (hatched) are imposed, no predictions"
    titles = [f"{metric}, {scope}" for (metric, scope), _ in panels]
    axes = {"x_axis": _FROM_ZERO, "y_axis": _CATEGORIES_DOWN}
    grid = PanelGrid(titles, title, "error, absolute", **axes)
    for panel, (_, rows) in enumerate(panels):
        known = rows[rows["error"].notna()]
        if not len(known) or is_few(known.iloc[0]):
            why = "rests on fewer than ten events" if len(known) else "not known"
            grid.note_missing(panel, {"error": why})
            continue
        pattern = {"shape": ["/" if is_imposed else "" for is_imposed in known["imposed"]]}
        marker = {
            "color": PREDICTION_COLOURS[0],
            "line": {"color": INK, "width": 1},
            "pattern": pattern,
        }
        names = list(known["run"] + known["imposed"].map({True: "*", False: ""}))
        values = {"y": names, "x": list(known["error"].astype(float).abs()), "name": "error"}
        bars = {"type": "bar", "orientation": "h", "marker": marker, "showlegend": False}
        grid.add(values | bars | {"meta": "error"}, panel)
    return grid.figure()


TICKS = (1, 3, 10, 30, 100, 300, 1000)
EDGE = 1000.0
"""Beyond it a point stands at the edge."""


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
    limit = float(np.arcsinh(1.5 * max(10.0, most)))  # a little beyond the last point
    ticks = [-tick for tick in reversed(TICKS)] + [0, *TICKS]
    axis = {"tickmode": "array", "tickvals": [np.arcsinh(tick) for tick in ticks]}
    axis |= {"ticktext": [f"{tick:g}" for tick in ticks], "range": [-limit, limit]}
    titles = ("measured change / half width of its interval", "predicted / the same")
    look = {"columns": 2, "x_axis": axis, "y_axis": axis}
    grid = PanelGrid(modes, "Predicted against measured change", *titles, **look)
    for panel, mode in enumerate(modes):
        for band in _bands(limit):
            grid.add(band, panel, once=True)
        for place, pair in enumerate(dict.fromkeys(changes["pair"])):
            rows = drawn[(drawn["mode"] == mode) & (drawn["pair"] == pair)]
            if not len(rows):
                continue
            text = [
                f"{row.metric}: measured {row.change:.4g} [{row.low:.4g}, {row.high:.4g}], "
                f"predicted {row.predicted:.4g} {row.unit}: {row.verdict}"
                for row in rows.itertuples()
            ]
            x, y = (np.arcsinh(rows[name].to_numpy(float)) for name in ("across", "up"))
            symbol = cycled(MEASUREMENT_SYMBOLS, place // len(PREDICTION_COLOURS))
            colour = cycled(PREDICTION_COLOURS, place)
            look = {"marker": {"color": colour, "symbol": symbol, "size": 8}, "legendgroup": pair}
            trace = scatter(x, y, pair, "markers", text=text, **look, **_WORDS_ONLY)
            grid.add(trace, panel, once=True)
    left = len(changes) - len(drawn)
    if left:
        grid.write_below(f"Not drawn: {count_of(left, 'row')} without an interval or a prediction.")
    figure = grid.figure()
    # a legend of many settings has lines of its own above the panels
    room = LEGEND_LINE * (len(set(changes["pair"])) // 2)
    height = max(HEIGHT, int(figure.layout.height)) + room
    figure.update_layout(height=height, legend_y=1 - LEGEND_TOP / height)
    figure.update_layout(margin_t=figure.layout.margin.t + room)
    return figure


def _bands(limit: float) -> Iterator[Trace]:
    """The band of no measurable effect, and the diagonal one of predictions in the interval."""
    along = np.sinh(np.linspace(-limit, limit, 201))
    upright = np.array([-1, 1, 1, -1]) * float(np.arcsinh(1.0))
    ends = np.array([-limit, -limit, limit, limit])
    across = np.append(np.arcsinh(along), np.arcsinh(along)[::-1])
    up = np.append(np.arcsinh(along + 1), np.arcsinh(along - 1)[::-1])
    quiet = {"fillcolor": GRID, "line": {"width": 0}, "opacity": 0.5}
    inside = {"fillcolor": "rgba(0,114,178,0.15)", "line": {"width": 0.5, "color": INK}}
    for x, y, name, group, look in (
        (upright, ends, "no measurable effect", "quiet", quiet),
        (across, up, "predicted within the interval", "within", inside),
    ):
        legend = {"meta": group, "legendgroup": group, "fill": "toself"}
        yield scatter(x, y, name, **legend, **look, **_MUTE)


MOST_ROWS = 12
LEAST_BASE = 20
"""Below it a ratio says nothing."""
_DRAWN = (*BEYOND_ERROR, WITHIN_ERROR)
LARGEST = 10.0
"""Axes end at this factor, either way; what lies beyond has an arrow at their end."""
_ARROW = 10**1.15
"""Where it stands, right of `LARGEST`, and left of one over it."""
MOST_ERROR = 100
"""Percent at which the axis of errors ends, in the same way."""
NARROW = 1.1
"""An interval of less than this factor lies within its mark."""
NO_INTERVAL, HIDDEN = " one seed: no interval", " interval within the mark"
"""Why no interval is seen."""
NAME_WIDTH = 24
"""Characters of a line of a name on the left."""
_BLACK = {"color": INK, "line": {"width": 1.5, "color": INK}}


@FigureFunction
def talk_figure(rows: pd.DataFrame, scored: pd.DataFrame, title: str, caption: str) -> Drawing:
    """Left, patch over base with the interval of each ratio; right, the model's errors.

    Marks tell what colours would, so that it reads in grey. Unproven rows are all drawn, and all
    that is scored. Rows that nothing recorded checks are left out, and those whose base is below
    `LEAST_BASE`, which the text below names.

    Args:
        rows: judged rows of a comparison.
        scored: scores of a validation of the same recording.
        title: one line.
        caption: what it is, on what, how far to be believed, how to make it again.
    """
    shown = shown_rows(rows)
    scored = scored.sort_values("error", ascending=False, kind="stable", key=abs)
    left = round(7.4 * NAME_WIDTH) + 20  # pixels
    grid = PanelGrid(["", ""], title, columns=2, left=left)
    _add_ratios(grid, shown)
    _add_errors(grid, scored)
    small = rows[rows["verdict"].isin(_DRAWN) & (rows["base"] < LEAST_BASE) & rows["patch"].notna()]
    small = small[small["base"] != small["patch"]]
    if len(small):
        words = [
            f"{row_words(row)} {number(row.base)} to {number(row.patch)}"
            for row in small.itertuples()
        ]
        caption = f"{caption} Of small numbers no ratio is drawn: {'; '.join(words)}."
    grid.write_below(caption)
    drawing = grid.drawing()
    lines = sum(1 + name.count("<br>") for name in shown["name"])
    drawing.layout["height"] += 60 + 17 * max(lines, len(scored), 8)
    drawing.layout["margin"] = drawing.layout["margin"] | {"t": 110}
    drawing.layout["title"] |= {"x": 0.01, "xref": "container"}
    drawing.layout["legend"] |= {"y": 1 - 36 / drawing.layout["height"], "x": -0.2}
    return drawing


def _add_ratios(grid: PanelGrid, shown: pd.DataFrame) -> None:
    """Draw the rows of a comparison in the first panel."""
    names = list(shown["name"])
    line = scatter(np.ones(len(names) or 1), names or [""], "", meta="no change", **_MUTE)
    del line["name"]
    grid.add(line | {"line": {"width": 1, "color": INK}, "showlegend": False}, 0)
    columns = ["ratio", "to_ratio", "from_ratio"]
    for words, verdicts, symbol in (
        ("changed by more than the model's error", BELIEVED, "circle"),
        ("unproven: larger, but a null model is as near", (UNPROVEN,), "x"),
        ("within the model's error", (WITHIN_ERROR,), "circle-open"),
    ):
        part = shown[shown["verdict"].isin(verdicts)]
        if len(part):
            ratio, up, down = part[columns].clip(1 / LARGEST, LARGEST).to_numpy(float).T
            bars = {"array": up - ratio, "arrayminus": ratio - down, "symmetric": False}
            bars |= {"type": "data", "color": INK, "thickness": 1, "width": 3}
            marker = _BLACK | {"symbol": symbol, "size": 9}
            look = {"marker": marker, "error_x": bars, "cliponaxis": False}
            look |= {"text": list(part["why"]), "textposition": "middle right"}
            trace = scatter(ratio, list(part["name"]), words, "markers+text", **look)
            grid.add(trace | {"textfont": {"size": 10}}, 0)
    if not len(shown):
        grid.note_missing(0, {"no row": "can be judged"})
    beyond = (shown[columns].min(axis=1) < 1 / LARGEST, shown[columns].max(axis=1) > LARGEST)
    ends = (("triangle-left", 1 / _ARROW), ("triangle-right", _ARROW))
    for (symbol, end), cut in zip(ends, beyond, strict=True):
        _add_arrows(grid, 0, [end] * int(cut.sum()), list(shown["name"][cut]), symbol)
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    ratios = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    ratios |= {"range": [-1.2, 1.2], "domain": [0, 0.44]}  # decades, a little more than the arrows
    ratios["title"] = {"text": "patch / base, logarithmic", "font": {"size": 12}}
    ranks = {"type": "category", "categoryorder": "array", "categoryarray": names[::-1]}
    ranks |= {"range": [-0.5, max(len(shown), 1) - 0.5], "tickfont": {"size": 11}}
    for letter, axis in (("x", ratios), ("y", ranks)):
        grid.set_axis(letter, 0, axis)


def _add_errors(grid: PanelGrid, scored: pd.DataFrame) -> None:
    """Draw every score's size in the second panel, the greatest error on top, from 0 on."""
    names = list(scored["quantity"])
    percents = {name: 100 * scored[name].abs().to_numpy(float) for name in ("error", "null_error")}
    look = {"color": GRID, "line": {"color": INK, "width": 1}}
    bars = {"type": "bar", "orientation": "h", "width": 0.6, "marker": look, "meta": "error"}
    at = np.minimum(percents["error"], MOST_ERROR)
    grid.add(bars | {"x": at, "y": names, "name": "the model's error under the recorded policy"}, 1)
    ring = _BLACK | {"symbol": "circle-open", "size": 7}
    at = np.where(percents["null_error"] <= MOST_ERROR, percents["null_error"], np.nan)
    grid.add(scatter(at, names, "the null model's", "markers", marker=ring), 1)
    for values, symbol, end in zip(
        percents.values(), ("triangle-right", "triangle-right-open"), (1.03, 1.08), strict=True
    ):
        cut = list(scored["quantity"][values > MOST_ERROR])
        _add_arrows(grid, 1, [end * MOST_ERROR] * len(cut), cut, symbol)
    errors = {"range": [0, 1.12 * MOST_ERROR], "domain": [0.66, 1], "dtick": MOST_ERROR // 4}
    errors["title"] = {"text": "error on this recording, % of measured", "font": {"size": 12}}
    ranks = _CATEGORIES_DOWN | {"automargin": False, "tickfont": {"size": 11}, "showgrid": False}
    for letter, axis in (("x", errors), ("y", ranks)):
        grid.set_axis(letter, 1, axis)


def _add_arrows(
    grid: PanelGrid, panel: int, ends: Sequence[float], names: Sequence[str], symbol: str
) -> None:
    """Draw an arrow at the end of an axis for each point or interval that lies beyond it."""
    look = {"legendgroup": "beyond", "cliponaxis": False} | _MUTE
    look["marker"] = _BLACK | {"symbol": symbol, "size": 8}
    if names:
        arrows = scatter(list(ends), list(names), "goes on beyond the axis", "markers", **look)
        grid.add(arrows, panel, once=True)


def shown_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a comparison that are drawn, believed ones first: name, ratio, its ends, why.

    `why` says for what reason no interval is seen, "" if there is one. No unproven row is left out
    for want of room.
    """
    judged = rows[rows["verdict"].isin(_DRAWN) & (rows["base"] >= LEAST_BASE)]
    judged = judged[judged["patch"].notna()]
    kinds = (BELIEVED, (UNPROVEN,), (WITHIN_ERROR,))
    believed, unproven, within = (judged[judged["verdict"].isin(kind)] for kind in kinds)
    believed = believed.head(max(MOST_ROWS - len(unproven), 0))
    room = max(MOST_ROWS - len(unproven) - len(believed), 0)
    judged = pd.concat([believed, unproven, within.head(room)])
    base = judged["base"]
    ends = {"from_ratio": base + judged["change_low"], "to_ratio": base + judged["change_high"]}
    values = {name: value / base for name, value in ({"ratio": judged["patch"]} | ends).items()}
    narrow = values["to_ratio"] < NARROW * values["from_ratio"]
    words: Sequence[str] = [row_words(row, place=", ") for row in judged.itertuples()]
    return judged.assign(
        name=["<br>".join(textwrap.wrap(text, NAME_WIDTH)) for text in words],
        why=np.select([values["to_ratio"].isna(), narrow], [NO_INTERVAL, HIDDEN], ""),
        **values,
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
    x_axis = {} if pd.api.types.is_integer_dtype(known[along]) else {"type": "category"}
    if not x_axis and known[along].min() > 0 and known[along].max() >= WIDE * known[along].min():
        at = sorted(int(value) for value in known[along].unique())
        x_axis = {"type": "log", "tickvals": at, "ticktext": [str(value) for value in at]}
    axes_look = {"x_axis": x_axis, "y_axis": _FROM_ZERO}
    titles = [column(metric).in_words for metric in metrics]
    axis_title = f"{along} (logarithmic axis)" if x_axis.get("type") == "log" else along
    grid = PanelGrid(titles, f"Predicted along {along}", axis_title, columns=2, **axes_look)
    groups = list(known.groupby(others, sort=False, dropna=False))
    for panel, metric in enumerate(metrics):
        for place, ((recording, *values), own) in enumerate(groups[:LINES_AT_MOST]):
            settings = [
                f"{axis}={_setting(value)}"
                for axis, value in zip(others[1:], values, strict=True)
                if not pd.isna(value)
            ]
            name = " ".join([str(recording), *settings])
            dash = cycled(PREDICTION_DASHES, place // len(PREDICTION_COLOURS))
            symbol = cycled(MEASUREMENT_SYMBOLS, place)
            look: Trace = {"line": {"color": cycled(PREDICTION_COLOURS, place), "dash": dash}}
            look |= {"marker": {"symbol": symbol, "size": 6}, "legendgroup": name}
            means = own.groupby(along)[metric].mean()
            x = [str(at) if isinstance(at, bool | str) else int(at) for at in means.index]
            line = scatter(x, means.to_numpy(float), name, "lines+markers", **look)
            grid.add(line, panel, once=True)
        values = known[metric].to_numpy(float)
        if values.min() > 0 and values.max() >= WIDE * values.min():
            grid.set_axis("y", panel, {"type": "log", "title": {"text": "(log)"}})
    if len(groups) > LINES_AT_MOST:
        grid.write_below(f"not drawn: {count_of(len(groups) - LINES_AT_MOST, 'more combination')}")
    return grid.figure()


def _setting(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "as recorded" if pd.isna(value) else str(int(value))


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
    grid = PanelGrid([""], "Pareto front", *titles)
    for place, (recording, own) in enumerate(points.groupby("recording", sort=False)):
        colour = cycled(PREDICTION_COLOURS, place)
        front = own[own["on_front"]].sort_values(x)
        for shown, name, mode, symbol in (
            (own, f"{recording}", "markers", "circle-open"),
            (front, f"{recording}, not beaten", "lines+markers", "circle"),
        ):
            settings = (
                [f"{axis}={row[axis]}" for axis in axes if not pd.isna(row[axis])]
                for _, row in shown.iterrows()
            )
            marker = {"color": colour, "symbol": symbol, "size": 8}
            look = {"line": {"color": colour, "shape": "hv"}, "marker": marker}
            values = (shown[name_of].to_numpy(float) for name_of in (x, y))
            words = ["<br>".join(lines) or "as recorded" for lines in settings]
            grid.add(scatter(*values, name, mode, text=words, **look), 0)
    return grid.figure(height=420)


def sensitivity_bars(summary: pd.DataFrame, title: str) -> go.Figure:
    """A bar from the lowest to the highest value per axis, the longest on top; a line at the base.

    Labels say with which values of the axis the lowest and the highest were reached.

    Args:
        summary: axis, base, lowest, lowest_at, highest, highest_at, swing; longest first.
        title: the metric with its unit.
    """
    axes = list(summary["axis"])
    labels = [
        f"{row.axis}: {_setting(row.lowest_at)} .. {_setting(row.highest_at)}"
        if row.swing
        else f"{row.axis}: no effect"
        for row in summary.itertuples()
    ]
    ticks = {"tickmode": "array", "tickvals": axes, "ticktext": labels}
    y_axis = _CATEGORIES_DOWN | ticks
    grid = PanelGrid([""], f"One field at a time: {title}", title, y_axis=y_axis)
    lowest, swing = (list(summary[name].astype(float)) for name in ("lowest", "swing"))
    bars = {"type": "bar", "orientation": "h", "y": axes, "x": swing, "base": lowest}
    look = {"marker": {"color": PREDICTION_COLOURS[0]}, "showlegend": False}
    grid.add(bars | look | {"name": "lowest to highest", "meta": "swing"}, 0)
    base, ends = [float(summary["base"].iloc[0])] * 2, [axes[0], axes[-1]]
    grid.add(scatter(base, ends, "base", line={"color": INK, "dash": "dot"}), 0)
    return grid.figure()


def fleet_hosts(hosts: pd.DataFrame, metrics: Sequence[str]) -> go.Figure:
    """A panel per metric with a box and every host of each side.

    Args:
        hosts: side, host and metrics, one row a host.
        metrics: columns to draw.
    """
    axes = {"x_axis": {"type": "category"}, "y_axis": _FROM_ZERO}
    titles = [column(metric).in_words for metric in metrics]
    grid = PanelGrid(titles, "Hosts of both sides", "", "per host", columns=2, **axes)
    for panel, metric in enumerate(metrics):
        values = hosts[metric].to_numpy(float)
        if np.nanmin(values) > 0 and np.nanmax(values) >= WIDE * np.nanmin(values):
            grid.set_axis("y", panel, {"type": "log", "title": {"text": "per host (log)"}})
        for place, side in enumerate(("base", "patch")):
            own = hosts[hosts["side"] == side]
            points = {"x": [side] * len(own), "y": own[metric].to_numpy(dtype=float)}
            points |= {"text": [str(name) for name in own["host"]], "name": side}
            look = {"type": "box", "boxpoints": "all", "jitter": 0.5, "pointpos": 0}
            look["marker"] = {"color": cycled(PREDICTION_COLOURS, place), "size": 4}
            legend = {"legendgroup": side, "meta": f"{metric}/{side}"}
            grid.add(points | legend | look, panel, once=True)
    return grid.figure()
