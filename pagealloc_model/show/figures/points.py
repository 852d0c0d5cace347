"""Figures of points: how right predictions are, what a policy changes, sweeps and fleets."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.base.text import count_of
from pagealloc_model.show.figures.faceted import (
    GRID,
    INK,
    MEASUREMENT_SYMBOLS,
    PREDICTION_COLOURS,
    PREDICTION_DASHES,
    Drawing,
    FigureFunction,
    PanelGrid,
    scatter,
)
from pagealloc_model.verdict.comparison import BELIEVED, WITHIN_ERROR
from pagealloc_model.verdict.headline import score_words, scores
from pagealloc_model.verdict.result_tables import row_words

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
NOTE = (
    "Shares, distributions and changes of pageblocks are not drawn: the error table has them. "
    "What lies outside the axes stands at their edge. Null models know no allocator: nothing "
    "changes, no per-CPU lists, no fallback."
)
_WORDS_ONLY = {"hoverinfo": "text"}
_MUTE = {"hoverinfo": "skip"}


def predicted_over_measured(errors: pd.DataFrame, snapshots: pd.DataFrame) -> pd.DataFrame:
    """The points of the picture: kind, metric, scope, measured, predicted, null, inside."""
    totals = errors[errors["metric"].isin(list(TOTALS)) & (errors["kind"] == "predicted")]
    totals = totals[totals["scope"] != "per time bin"]
    states = snapshots[snapshots["metric"].isin(list(STATES))]
    columns = ["metric", "scope", "measured", "predicted", "null"]
    points = pd.concat([states[columns], totals[columns]], ignore_index=True)
    points = points[points[["measured", "predicted"]].notna().all(axis=1)]
    points = points.assign(
        **{name: points[name].astype(float) for name in columns[2:]},
        kind=points["metric"].map(STATES | TOTALS),
    )
    for name, column in (("inside", "predicted"), ("null_inside", "null")):
        points[name] = points[column].between(points["measured"] / BAND, points["measured"] * BAND)
    return points.reset_index(drop=True)


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
    linear = f"one of both below {FEW} (linear axes, cut at {MOST_FEW})"
    grid = PanelGrid(
        [f"from {FEW} on (logarithmic axes)", linear],
        title=f"How right is the model? {name}: {words}".replace("? :", "?"),
        x_title="measured",
        y_title="predicted",
        columns=2,
    )
    decades = _decades(points[~few])
    named: set[str] = set()
    _add_numbers(grid, 0, points[~few], decades, named)
    _add_numbers(grid, 1, points[few], (0.0, float(MOST_FEW)), named)
    if not few.any():
        grid.note_missing(1, {"no number": f"all are {FEW} or more"})
    grid.write_below(NOTE)
    for letter in "xy":
        grid.set_axis(letter, 0, _decades_axis(decades))
        grid.set_axis(letter, 1, {"range": [-1, MOST_FEW + 1]})
    return grid.drawing(height=HEIGHT)


def _decades(points: pd.DataFrame) -> tuple[float, float]:
    """Whole decades that hold all that was measured and predicted."""
    values = points[["measured", "predicted"]].to_numpy(float)
    if not values.size:
        return float(FEW), float(FEW * 10)
    low, high = np.floor(np.log10(values.min())), np.ceil(np.log10(values.max() * 1.01))
    return float(10.0 ** max(low, 1.0)), float(10.0 ** max(high, low + 1.0))


def _decades_axis(ends: tuple[float, float]) -> dict[str, Any]:
    """A logarithmic axis with a tick for each power of ten."""
    return {"type": "log", "range": [float(np.log10(end)) for end in ends], "dtick": 1}


def _add_numbers(
    grid: PanelGrid, panel: int, points: pd.DataFrame, ends: tuple[float, float], named: set[str]
) -> None:
    """Draw the band, null models and predictions in a panel."""
    along = np.array(ends)
    x, y = np.append(along, along[::-1]), np.append(along * BAND, along[::-1] / BAND)
    band = {"fill": "toself", "fillcolor": GRID, "line": {"width": 0, "color": GRID}}
    words = f"within {round(100 * (BAND - 1))} %"
    traces = [
        scatter(x, y, words, meta="band", legendgroup="band", **band, **_MUTE),
        scatter(along, along, "equal", line={"width": 1, "color": INK}, **_MUTE)
        | {"legendgroup": "equal"},
    ]
    ring = {"symbol": "circle-open", "size": 7, "color": "#767676", "line": {"width": 1}}
    known = points[points["null"].notna()]
    groups = [("null model of each", "null", "null", known, ring)]
    for number, kind in enumerate(dict.fromkeys((*STATES.values(), *TOTALS.values()))):
        symbol = SYMBOLS[number % len(SYMBOLS)]
        colour = PREDICTION_COLOURS[number % len(PREDICTION_COLOURS)]
        mark = {
            "symbol": symbol,
            "size": 9,
            "color": colour,
            "line": {"width": 1, "color": "white"},
        }
        rows = points[points["kind"] == kind]
        if len(rows):
            groups.append((kind, kind, "predicted", rows, mark))
    for name, group, column, rows, mark in groups:
        text = [
            f"{metric}, {scope}: measured {measured:,.6g}, {column} {value:,.6g}"
            for metric, scope, measured, value in rows[
                ["metric", "scope", "measured", column]
            ].itertuples(index=False)
        ]
        x, y = (rows[each].clip(*ends).to_numpy(float) for each in ("measured", column))
        look = {"meta": group, "legendgroup": group, "cliponaxis": False, "marker": mark}
        traces.append(scatter(x, y, name, "markers", text=text, **look, **_WORDS_ONLY))
    for trace in traces:
        grid.add(trace | {"showlegend": trace["name"] not in named}, panel)
        named.add(trace["name"])


def error_budget(errors: pd.DataFrame, recording: str) -> go.Figure:
    """A panel for each metric and scope, and a bar for each run.

    Bars of imposed runs are hatched and named with a star: they are no predictions. Errors stand
    without sign.

    Args:
        errors: metric, scope, run, imposed, error: of `verdict.budget`.
        recording: its name.
    """
    panels = list(errors.groupby(["metric", "scope"], sort=False))
    grid = PanelGrid(
        [f"{metric}, {scope}" for (metric, scope), _ in panels],
        title=f"Error budget of {recording}: runs with * (hatched) are imposed, no predictions",
        x_title="error, absolute",
        y_title="",
        x_axis={"rangemode": "tozero"},
        y_axis={"type": "category", "autorange": "reversed", "automargin": True},
    )
    for panel, (_, rows) in enumerate(panels):
        shown = rows[rows["error"].notna()]
        if not len(shown):
            grid.note_missing(panel, {"error": "not known"})
            continue
        pairs = list(zip(shown["run"], shown["imposed"], strict=True))
        names = [f"{run}*" if is_imposed else run for run, is_imposed in pairs]
        pattern = {"shape": ["/" if is_imposed else "" for _, is_imposed in pairs]}
        marker = {"color": PREDICTION_COLOURS[0], "line": {"color": INK, "width": 1}}
        bars = {"type": "bar", "orientation": "h", "marker": marker | {"pattern": pattern}}
        values = {"y": names, "x": list(shown["error"].astype(float).abs())}
        grid.add(bars | values | {"name": "error", "showlegend": False, "meta": "error"}, panel)
    return grid.figure()


TICKS = (1, 3, 10, 30, 100, 300, 1000)
EDGE = 1000.0
"""Beyond it a point stands at the edge."""
_LEAST_REACH = 10.0
_BEYOND = 1.5
"""Reach of an axis, by that of the last point."""
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
    limit = float(np.arcsinh(_BEYOND * max(_LEAST_REACH, most)))
    ticks = [-tick for tick in reversed(TICKS)] + [0, *TICKS]
    axis = {"tickmode": "array", "tickvals": [np.arcsinh(tick) for tick in ticks]}
    axis |= {"ticktext": [f"{tick:g}" for tick in ticks], "range": [-limit, limit]}
    grid = PanelGrid(
        modes,
        title="Predicted against measured change",
        x_title="measured change / half width of its interval",
        y_title="predicted / the same",
        columns=2,
        x_axis=axis,
        y_axis=axis,
    )
    named: set[str] = set()
    for panel, mode in enumerate(modes):
        for band in _bands(limit):
            grid.add(band | {"showlegend": panel == 0}, panel)
        for number, pair in enumerate(dict.fromkeys(changes["pair"])):
            rows = drawn[(drawn["mode"] == mode) & (drawn["pair"] == pair)]
            if not len(rows):
                continue
            text = [
                f"{row.metric}: measured {row.change:.4g} [{row.low:.4g}, {row.high:.4g}], "
                f"predicted {row.predicted:.4g} {row.unit}: {row.verdict}"
                for row in rows.itertuples()
            ]
            x, y = (np.arcsinh(rows[name].to_numpy(float)) for name in ("across", "up"))
            turn, place = divmod(number, len(PREDICTION_COLOURS))
            symbol = MEASUREMENT_SYMBOLS[turn % len(MEASUREMENT_SYMBOLS)]
            marker = {"color": PREDICTION_COLOURS[place], "symbol": symbol, "size": 8}
            legend = {"legendgroup": pair, "showlegend": pair not in named}
            look = legend | _WORDS_ONLY | {"marker": marker}
            grid.add(scatter(x, y, pair, "markers", text=text, **look), panel)
            named.add(pair)
    left = len(changes) - len(drawn)
    if left:
        grid.write_below(f"Not drawn: {count_of(left, 'row')} without an interval or a prediction.")
    figure = grid.figure()
    figure.update_layout(height=max(HEIGHT, int(figure.layout.height)))
    return figure


def _bands(limit: float) -> list[dict[str, Any]]:
    """The band of no measurable effect, and the diagonal one of predictions in the interval."""
    along = np.sinh(np.linspace(-limit, limit, _BAND_POINTS))
    upright = np.array([-1, 1, 1, -1]) * float(np.arcsinh(1.0))
    ends = np.array([-limit, -limit, limit, limit])
    across = np.append(np.arcsinh(along), np.arcsinh(along)[::-1])
    up = np.append(np.arcsinh(along + 1), np.arcsinh(along - 1)[::-1])
    quiet = scatter(upright, ends, "no measurable effect", meta="quiet", legendgroup="quiet")
    quiet |= {"fillcolor": GRID, "line": {"width": 0}, "opacity": 0.5}
    inside = scatter(across, up, "predicted within the interval", meta="within")
    inside |= {"legendgroup": "within", "fillcolor": "rgba(0,114,178,0.15)"}
    inside |= {"line": {"width": 0.5, "color": INK}}
    return [band | _MUTE | {"fill": "toself"} for band in (quiet, inside)]


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
    left = f"patch over base (cut at {1 / LARGEST:g} and {LARGEST:g})"
    titles = [left, "predicted over measured"]
    grid = PanelGrid(titles, title=title, x_title="", y_title="", columns=2)
    grid.leave_left(round(CHARACTER * NAME_WIDTH) + 20)
    names = list(shown["name"])
    line = scatter(np.ones(len(names) or 1), names or [""], "", meta="no change", **_MUTE)
    del line["name"]
    grid.add(line | {"line": {"width": 1, "color": INK}, "showlegend": False}, 0)
    for words, verdicts, mark in (
        ("changed by more than the model's error", BELIEVED, "circle"),
        ("within the model's error", (WITHIN_ERROR,), "circle-open"),
    ):
        part = shown[shown["verdict"].isin(verdicts)]
        if len(part):
            ratio = part["ratio"].to_numpy(float)
            up, down = part["to_ratio"].to_numpy(float), part["from_ratio"].to_numpy(float)
            bars = {"array": up - ratio, "arrayminus": ratio - down, "symmetric": False}
            look = {"type": "data", "color": INK, "thickness": 1, "width": 3}
            marker = {"symbol": mark, "size": 9, "color": INK, "line": {"width": 1.5}}
            points = scatter(ratio, list(part["name"]), words, "markers", marker=marker)
            grid.add(points | {"error_x": bars | look, "cliponaxis": False}, 0)
    if not len(shown):
        grid.note_missing(0, {"no row": "can be judged"})
    points = predicted_over_measured(errors, snapshots)
    large = points[points[["measured", "predicted"]].min(axis=1) >= FEW]
    ends = _decades(large)
    _add_numbers(grid, 1, large, ends, set())
    grid.write_below(caption)
    ticks = {"tickvals": list(TALK_TICKS), "ticktext": [f"{tick:g}" for tick in TALK_TICKS]}
    ratios = {"type": "log", "range": [-REACH, REACH]} | ticks
    ranks = {"type": "category", "categoryorder": "array", "categoryarray": names[::-1]}
    room = {"tickfont": {"size": 11}, "range": [-0.5, max(len(shown), 1) - 0.5]}
    measured = "measured on this recording, logarithmic"
    for letter, panel, axis, words in (
        ("x", 0, ratios, "patch / base"),
        ("y", 0, ranks | room, ""),
        ("x", 1, _decades_axis(ends), measured),
        ("y", 1, _decades_axis(ends), ""),
    ):
        named = {"title": {"text": words, "font": {"size": 12}}} if words else {}
        grid.set_axis(letter, panel, axis | named)
    drawing = grid.drawing()
    drawing.layout["height"] += HEIGHTENED
    for part in ("title", "legend"):
        drawing.layout[part] |= {"x": 0.01, "xref": "container"}
    return drawing


def shown_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a comparison that are drawn, believed ones first, with name, ratio, its ends."""
    judged = rows[rows["verdict"].isin([*BELIEVED, WITHIN_ERROR]) & (rows["base"] >= TALK_FEW)]
    judged = judged[judged["patch"].notna()]
    is_doubtful = judged["verdict"] == WITHIN_ERROR
    judged = pd.concat([judged[~is_doubtful], judged[is_doubtful]]).head(MOST_ROWS)
    base = judged["base"]
    values = {
        "ratio": judged["patch"],
        "from_ratio": base + judged["change_low"],
        "to_ratio": base + judged["change_high"],
    }
    words: Sequence[str] = [row_words(row, place=", ") for row in judged.itertuples()]
    return judged.assign(
        name=["<br>".join(textwrap.wrap(each, NAME_WIDTH)) for each in words],
        **{name: (value / base).clip(1 / LARGEST, LARGEST) for name, value in values.items()},
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
