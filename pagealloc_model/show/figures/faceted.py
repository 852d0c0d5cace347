"""Lines over time in panels: the frame of most figures, its colours, figures below each other."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, Generic, ParamSpec

import numpy as np
import pandas as pd
import plotly.graph_objects as go

Params = ParamSpec("Params")


TURNED_ON_DARK = """<style class="pagealloc-figure">
@media screen { [data-jp-theme-light="false"] .jp-RenderedPlotly:has(
svg.main-svg[style*="background: white"]) { filter: invert(0.93) hue-rotate(180deg); } }
.jp-OutputArea-child:has(style.pagealloc-figure) { display: none; }
</style>"""
"""Turns the lightness of white figures, and leaves their hues, on a page with a dark theme."""


class ShownFigure(go.Figure):
    """A figure that takes the lightness of JupyterLab's theme where it is shown, not on paper."""

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": TURNED_ON_DARK}, raw=True)
        super()._ipython_display_()


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """What plotly draws, of properties known to be right.

    Attributes:
        traces: as plotly's own keys and values; coordinates are arrays.
        layout: the same.
    """

    traces: Sequence[dict[str, Any]]
    layout: dict[str, Any]

    def figure(self) -> go.Figure:
        """The same as plotly's figure; what is set on it later is checked.

        Plotly's check of every property takes longer than the replay whose result is drawn. Tests
        check every figure.
        """
        figure = ShownFigure({"data": list(self.traces), "layout": self.layout}, _validate=False)
        for part in (figure, figure.layout, *figure.data):
            part._validate = True
        return figure


class FigureFunction(Generic[Params]):
    """A function that returns a plotly figure; its `drawing` returns the same without objects.

    Args:
        drawing: from tables to a drawing.
    """

    def __init__(self, drawing: Callable[Params, Drawing]) -> None:
        self.drawing = drawing
        update_wrapper(self, drawing)

    def __call__(self, *args: Params.args, **options: Params.kwargs) -> go.Figure:
        """The figure of a drawing."""
        return self.drawing(*args, **options).figure()


def drawing_of(figure: go.Figure | Drawing) -> Drawing:
    """The figure's traces and layout."""
    if isinstance(figure, Drawing):
        return figure
    traces = [trace.to_plotly_json() for trace in figure.data]
    return Drawing(traces=traces, layout=figure.layout.to_plotly_json())


MIGRATETYPES: tuple[str, ...] = (
    "Unmovable",
    "Movable",
    "Reclaimable",
    "HighAtomic",
    "CMA",
    "Isolate",
)

MIGRATETYPE_COLOURS: dict[str, str] = {
    "Unmovable": "#D55E00",
    "Movable": "#0072B2",
    "Reclaimable": "#009E73",
    "HighAtomic": "#A0487E",
    "CMA": "#8A6D00",
    "Isolate": "#595959",
}

ORDER_COLOURS: tuple[str, ...] = (
    "#00204D",
    "#002B66",
    "#08366F",
    "#27426D",
    "#3B4C6C",
    "#4C576C",
    "#5B626E",
    "#696D71",
    "#72726D",
    "#7A7769",
    "#827C64",
    "#8B8260",
    "#94875C",
    "#9C8C58",
)

SITE_COLOURS: dict[str, str] = {
    "refill": "#0072B2",
    "drain": "#D55E00",
    "buddy_alloc": "#009E73",
    "direct_free": "#8A6D00",
    "reserve": "#A0487E",
    "unreserve": "#595959",
    "boost_reset": "#B00020",
    "empty_refill": "#3E83A8",
    "empty_buddy_alloc": "#5B8C5A",
}

PREDICTION_COLOURS: tuple[str, ...] = ("#0072B2", "#D55E00", "#009E73", "#A0487E")
"""Colours of predictions where one panel shows several and no other key needs colour."""

PREDICTION_DASHES: tuple[str, ...] = ("solid", "dash", "dot", "dashdot")
"""Line patterns of the first, second, ... prediction in a figure."""

PREDICTION_PATTERNS: tuple[str, ...] = ("", "/", ".", "x")
"""Fill patterns of their bars."""

MEASUREMENT_SYMBOLS: tuple[str, ...] = ("circle-open", "diamond-open", "square-open", "cross-open")
"""Marks of the first, second, ... recording in a figure."""

INK = "#222222"
GRID = "#D9D9D9"
MODEBAR = {"color": "#595959", "activecolor": INK, "bgcolor": "rgba(255,255,255,0.85)"}
"""Plotly's own buttons, which are too faint by default."""


def migratetype_colour(migratetype: str) -> str:
    """Colour of a migratetype as /proc/pagetypeinfo spells it."""
    return MIGRATETYPE_COLOURS.get(migratetype, INK)


def order_colour(order: int) -> str:
    """Colour of a buddy order; orders above 13 share the last one."""
    return ORDER_COLOURS[min(order, len(ORDER_COLOURS) - 1)]


def site_colour(site: str) -> str:
    """Colour of a zone->lock site (S11.1)."""
    return SITE_COLOURS.get(site, INK)


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


PANEL_HEIGHT = 190
HEADER_HEIGHT = 95
FOOTER_HEIGHT = 60
BELOW_LINE_HEIGHT = 15
BELOW_MARGIN = 10
BELOW_WIDTH = 155
"""Characters per line of what is written below all panels, on 1,000 pixels and wider."""

HORIZONTAL_GAP = 0.09
"""Between two panels, as a share of the figure's width."""

COUNTS_AXIS = {"type": "log", "dtick": 1, "autorangeoptions": {"minallowed": -0.1}}
"""Of bars over decades: they begin just below one (10 ** -0.1), so that a single one is seen."""
FEW_COUNTS_AXIS = {"rangemode": "tozero", "tickformat": ",d", "dtick": 1}
MOST_OF_FEW = 10
"""Where no count reaches this, the axis is linear."""

NOTE_WIDTHS = {1: 44, 2: 44, 3: 27, 4: 22}
"""Characters per line of a note inside a panel, by panels in a row."""


class PanelGrid:
    """A grid of panels being filled, row by row; `figure` makes the plotly figure of it.

    Layout and traces are gathered as plain dictionaries: with plotly's own objects each step takes
    longer than the replay whose result is drawn.

    Args:
        titles: one per panel.
        title: of the whole figure.
        x_title: quantity and unit of all x axes.
        y_title: quantity and unit of all y axes.
        columns: panels per row at most.
        x_axis: further properties of all x axes.
        y_axis: further properties of all y axes.
    """

    def __init__(
        self,
        titles: Sequence[str],
        *,
        title: str,
        x_title: str,
        y_title: str,
        columns: int = 3,
        x_axis: Mapping[str, Any] | None = None,
        y_axis: Mapping[str, Any] | None = None,
    ) -> None:
        self._panels = max(1, len(titles))
        self._columns = max(1, min(columns, self._panels))
        self._rows = -(-self._panels // self._columns)
        self._traces: list[Trace] = []
        height = HEADER_HEIGHT + FOOTER_HEIGHT + PANEL_HEIGHT * self._rows
        self._layout = _frame(title, height)
        self._notes: list[dict[str, Any]] = []
        for panel in range(self._panels):
            self._add_axes(panel, x_title, y_title, dict(x_axis or {}), dict(y_axis or {}))
        for panel, words in enumerate(titles):
            self._add_title(panel, words)

    def add(self, trace: Trace, panel: int) -> None:
        """Draw a trace in a panel."""
        number = _number(panel)
        self._traces.append(trace | {"xaxis": f"x{number}", "yaxis": f"y{number}"})

    def set_axis(self, letter: str, panel: int, properties: Mapping[str, Any]) -> None:
        """Give an axis ("x" or "y") of a panel further properties."""
        self._layout[f"{letter}axis{_number(panel)}"] |= dict(properties)

    def count_along(self, letter: str, panel: int, most: float) -> None:
        """Make an axis one of counts: logarithmic, and saying so, where they are many.

        Args:
            letter: "x" or "y".
            panel: its number.
            most: largest count in the panel.
        """
        if most < MOST_OF_FEW:
            self.set_axis(letter, panel, FEW_COUNTS_AXIS)
            return
        self.set_axis(letter, panel, COUNTS_AXIS)
        axis = self._layout[f"{letter}axis{_number(panel)}"]
        words = axis.get("title", {}).get("text", "")
        axis["title"] = {"text": f"{words} (log)".strip(), "font": {"size": 11}}

    def add_legend(self, drawn: Sequence[Lane]) -> None:
        """One neutral legend entry per lane."""
        for lane in drawn:
            self.add(legend_trace(lane), 0)

    def note_missing(self, panel: int, absent: Mapping[str, str]) -> None:
        """Write into a panel why lanes have no value there.

        Args:
            panel: its number.
            absent: lane label -> reason.
        """
        if not absent:
            return
        text = missing_words(absent)
        number = _number(panel)
        self._notes.append(
            {
                "text": "<br>".join(textwrap.wrap(text, NOTE_WIDTHS[self._columns])),
                "xref": f"x{number} domain",
                "yref": f"y{number} domain",
                "x": 0.5,
                "y": 0.98,
                "yanchor": "top",
                "showarrow": False,
                "font": {"size": 11, "color": INK},
                "bgcolor": "rgba(255,255,255,0.85)",
            }
        )

    def leave_left(self, pixels: int) -> None:
        """Leave room for names of the left panel's categories; before `write_below`."""
        self._layout["margin"]["l"] = pixels

    def cut_axis(self, panel: int, span: tuple[float, float]) -> None:
        """Let a panel's y axis show a part of its values; the panel's title is to say so."""
        name = f"yaxis{_number(panel)}"
        self._layout[name] = {**self._layout[name], "range": list(span), "autorange": False}

    def write_below(self, text: str) -> None:
        """A few words below all panels."""
        lines = textwrap.wrap(text, BELOW_WIDTH)
        room = BELOW_LINE_HEIGHT * len(lines) + BELOW_MARGIN
        self._layout["height"] += room
        self._layout["margin"]["b"] += room
        self._notes.append(
            {
                "text": "<br>".join(lines),
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": 0,
                "yshift": -FOOTER_HEIGHT,
                "xshift": BELOW_MARGIN - self._layout["margin"]["l"],
                "yanchor": "top",
                "xanchor": "left",
                "align": "left",
                "showarrow": False,
                "font": {"size": 11},
            }
        )

    def figure(self, **layout: Any) -> go.Figure:
        """The figure, with further layout properties on top."""
        return self.drawing(**layout).figure()

    def drawing(self, **layout: Any) -> Drawing:
        """The same without plotly's objects."""
        whole = self._layout | {"annotations": self._notes} | layout
        return Drawing(traces=self._traces, layout=whole)

    def _add_axes(
        self, panel: int, x_title: str, y_title: str, x_axis: dict[str, Any], y_axis: dict[str, Any]
    ) -> None:
        left, bottom, width, height = self._place(panel)
        number = _number(panel)
        is_lowest = panel + self._columns >= self._panels
        self._layout[f"xaxis{number}"] = _axis(x_title if is_lowest else "") | {
            "domain": [left, min(left + width, 1)],
            "anchor": f"y{number}",
            **x_axis,
        }
        self._layout[f"yaxis{number}"] = _axis(y_title if panel % self._columns == 0 else "") | {
            "domain": [bottom, min(bottom + height, 1)],
            "anchor": f"x{number}",
            **y_axis,
        }

    def _add_title(self, panel: int, words: str) -> None:
        left, bottom, width, height = self._place(panel)
        self._notes.append(
            {
                "text": words,
                "xref": "paper",
                "yref": "paper",
                "x": left + width / 2,
                "y": bottom + height,
                "xanchor": "center",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 12},
            }
        )

    def _place(self, panel: int) -> tuple[float, float, float, float]:
        """left, bottom, width, height of a panel as shares of the figure."""
        row, column = divmod(panel, self._columns)
        gap = min(0.16, 0.32 / self._rows)
        width = (1 - HORIZONTAL_GAP * (self._columns - 1)) / self._columns
        height = (1 - gap * (self._rows - 1)) / self._rows
        left = column * (width + HORIZONTAL_GAP)
        bottom = (self._rows - 1 - row) * (height + gap)
        return left, bottom, width, height


def missing_words(absent: Mapping[str, str]) -> str:
    """Lane label -> reason as words that name each reason once."""
    by_reason: dict[str, list[str]] = {}
    for label, reason in absent.items():
        by_reason.setdefault(reason, []).append(label)
    return "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in by_reason.items())


def _number(panel: int) -> str:
    """How plotly numbers axes: "", "2", "3", ..."""
    return "" if panel == 0 else str(panel + 1)


def _axis(title: str) -> dict[str, Any]:
    # where every label may stay, plotly need not measure each whenever it draws
    axis = {
        "gridcolor": GRID,
        "linecolor": INK,
        "ticks": "outside",
        "ticklabeloverflow": "allow",
        "zeroline": False,
    }
    return axis | ({"title": {"text": title, "font": {"size": 11}}} if title else {})


def _frame(title: str, height: int) -> dict[str, Any]:
    """Everything of the layout that no panel has a say in."""
    return {
        "title": {
            "text": title,
            "x": 0,
            "y": 1,
            "xref": "paper",
            "yref": "container",
            "xanchor": "left",
            "yanchor": "top",
            "pad": {"t": 12},
            "font": {"size": 15},
        },
        "height": height,
        "margin": {"l": 70, "r": 20, "t": HEADER_HEIGHT, "b": FOOTER_HEIGHT},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "font": {"family": "DejaVu Sans, Arial, sans-serif", "size": 12, "color": INK},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xref": "paper",
            "y": 1 - 36 / height,
            "yref": "container",
            "yanchor": "top",
        },
        "hovermode": "closest",
        "modebar": MODEBAR,
    }


TIME_AXIS = "time since first event (s)"
NOTHING_MEASURED = "not available: the recording has no rows for this"
NOTHING_PREDICTED = "not available: the replay has no rows for this"


def since_start(table: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """A copy with `time_s`, seconds since `start_ns`; needed to overlay two recordings.

    Args:
        table: any table with `time_ns`.
        start_ns: the recording's start, on the same clock.
    """
    return table.assign(time_s=(table["time_ns"] - start_ns) / 1e9)


def small_multiples(
    drawn: Sequence[Lane],
    *,
    keys: Sequence[Any],
    key_column: str,
    value: str,
    panel_title: Callable[[Any], str],
    colour: Callable[[Any], str],
    title: str,
    y_title: str,
    columns: int = 3,
) -> PanelGrid:
    """One panel per key, one trace per lane in each; a lane without values leaves a note.

    Panels in which nothing happens are one line below.

    Args:
        drawn: lanes with `time_ns` (or `time_s`), the key column and the value column.
        keys: panels in order.
        key_column: column whose value picks the panel.
        value: column to draw, summed over whatever else the table distinguishes.
        panel_title: words for a key.
        colour: colour of a key's panel.
        title: of the figure.
        y_title: quantity and unit.
        columns: panels per row at most.
    """
    origin = common_origin(drawn)
    series = {lane.key: _series_by_key(lane.table, key_column, value, origin) for lane in drawn}
    panels = {key: [mine[key][1] for mine in series.values() if key in mine] for key in keys}
    still = [key for key in keys if _is_still(panels[key])]
    shown = [key for key in keys if key not in still] or list(keys)
    grid = PanelGrid(
        [panel_title(key) for key in shown],
        title=title,
        x_title=TIME_AXIS,
        y_title=y_title,
        columns=columns,
        y_axis={"rangemode": "tozero"},
    )
    grid.add_legend(drawn)
    for panel, key in enumerate(shown or [None]):
        absent = {}
        for lane in drawn:
            if key not in series[lane.key]:
                absent[lane.label] = reason_of(lane)
                continue
            x, y = series[lane.key][key]
            grid.add(line_trace(lane, x, y, str(key), colour(key)), panel)
        grid.note_missing(panel, absent)
    if len(shown) < len(keys):
        levels = ", ".join(f"{panel_title(key)} ({panels[key][0][0]:,.10g})" for key in still)
        grid.write_below(f"Not drawn, the same in all lanes at all times: {levels}.")
    return grid


def _is_still(lines: Sequence[np.ndarray]) -> bool:
    """Whether all lines of a panel have one value throughout."""
    return bool(lines) and np.ptp(np.concatenate(lines)) == 0


def _series_by_key(
    table: pd.DataFrame, key_column: str, value: str, origin: int
) -> dict[Any, tuple[np.ndarray, np.ndarray]]:
    """Seconds and the sum of `value` at each, for every key that has any known value."""
    if table.empty or value not in table:
        return {}
    values = table[value].to_numpy(float, na_value=np.nan)
    clock = "time_s" if "time_s" in table else "time_ns"
    rows, keys = pd.factorize(table[key_column])
    known = ~np.isnan(values) & (rows >= 0)
    columns, instants = pd.factorize(table[clock].to_numpy(), sort=True)
    seconds = instants if clock == "time_s" else (instants - origin) / 1e9
    cells = (rows * len(instants) + columns)[known]
    shape = (len(keys), len(instants))
    size = len(keys) * len(instants)
    sums = np.bincount(cells, values[known], minlength=size).reshape(shape)
    is_there = np.bincount(cells, minlength=size).reshape(shape) > 0
    return {
        key: (seconds[is_there[row]], sums[row][is_there[row]])
        for row, key in enumerate(keys)
        if is_there[row].any()
    }


def common_origin(drawn: Sequence[Lane]) -> int:
    """First instant of a prediction, or of any lane without one, in ns; 0 if all have `time_s`."""
    timed = [lane for lane in drawn if len(lane.table) and "time_s" not in lane.table]
    predicted = [lane for lane in timed if not lane.measured]
    return min((int(lane.table["time_ns"].min()) for lane in predicted or timed), default=0)


def reason_of(lane: Lane) -> str:
    """Why a lane has no value: its table's own `attrs["reason"]`, or that there are no rows."""
    stated = lane.table.attrs.get("reason", "")
    return stated or (NOTHING_MEASURED if lane.measured else NOTHING_PREDICTED)


def in_zone(drawn: Sequence[Lane], zone: str | None) -> list[Lane]:
    """The lanes with only one zone's rows; None keeps all."""
    if zone is None:
        return list(drawn)
    return [with_table(lane, _rows_of(lane.table, zone)) for lane in drawn]


def _rows_of(table: pd.DataFrame, zone: str) -> pd.DataFrame:
    return table[table["zone"] == zone] if "zone" in table else table


def with_table(lane: Lane, table: pd.DataFrame) -> Lane:
    """The lane with another table, which keeps the reason of the first."""
    table.attrs.update(lane.table.attrs)
    return replace(lane, table=table)


def keys_seen(drawn: Sequence[Lane], column: str) -> list[Any]:
    """All values of a column in any lane, sorted."""
    seen = {key for lane in drawn if column in lane.table for key in lane.table[column].unique()}
    return sorted(seen)


def zone_words(zone: str | None) -> str:
    """The zone as titles name it."""
    return f"zone {zone}" if zone else "all zones"


AXIS_ID = re.compile(r"^([xy])(\d*)( domain)?$")
AXIS_NAME = re.compile(r"^([xy]axis)(\d*)$")
TITLE_OFFSET = 12
"""Pixels from a figure's top to its title."""


@FigureFunction
def stacked(figures: Sequence[go.Figure | Drawing]) -> Drawing:
    """One figure that shows all of them, each as high as it was.

    Legend entries of the first figure that has a label stand for all of one kind. Side margins are
    those of the first figure.

    Args:
        figures: of the same width, each with a `height` and a `margin` in its layout.
    """
    parts = [drawing_of(figure) for figure in figures]
    layouts = [each.layout for each in parts]
    whole = dict(layouts[0])
    frame = _Frame(
        height=sum(layout["height"] for layout in layouts),
        top=layouts[0]["margin"]["t"],
        bottom=layouts[-1]["margin"]["b"],
    )
    traces: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    first_axis = above = 0
    for layout, each in zip(layouts, parts, strict=True):
        part = _Part(frame=frame, layout=layout, above=above, first_axis=first_axis)
        whole.update(part.axes())
        notes += part.notes()
        traces += [_moved_axes(trace, first_axis) for trace in each.traces]
        first_axis += sum(name.startswith("xaxis") for name in layout)
        above += layout["height"]
    whole.pop("title", None)
    whole["annotations"] = notes
    whole["height"] = frame.height
    whole["margin"] = layouts[0]["margin"] | {"b": frame.bottom}
    whole["legend"] = layouts[0]["legend"] | {
        "y": 1 - (1 - layouts[0]["legend"]["y"]) * layouts[0]["height"] / frame.height
    }
    return Drawing(traces=_legend_once(traces), layout=whole)


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """The whole in pixels."""

    height: int
    top: int
    bottom: int

    def share(self, pixels_from_top: float) -> float:
        """A height as plotly's paper coordinate."""
        return 1 - (pixels_from_top - self.top) / (self.height - self.top - self.bottom)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One figure's place in the whole.

    Attributes:
        frame: the whole.
        layout: the figure's own.
        above: pixels of the figures above it.
        first_axis: axes of the figures above it.
    """

    frame: _Frame
    layout: dict[str, Any]
    above: int
    first_axis: int

    def axes(self) -> dict[str, Any]:
        """The figure's axes under their new names, in their new places."""
        moved = {}
        for name, axis in self.layout.items():
            match = AXIS_NAME.match(name)
            if not match:
                continue
            axis = axis | {"anchor": _renumbered(axis["anchor"], self.first_axis)}
            if match[1] == "yaxis":
                axis["domain"] = [min(max(self._y(y), 0), 1) for y in axis["domain"]]
            moved[f"{match[1]}{_stacked_number(match[2], self.first_axis)}"] = axis
        return moved

    def notes(self) -> list[dict[str, Any]]:
        """The figure's annotations, and its title as one."""
        title = {
            "text": f"<b>{self.layout['title']['text']}</b>",
            "xref": "paper",
            "yref": "paper",
            "x": 0,
            "y": self.frame.share(self.above + TITLE_OFFSET),
            "xanchor": "left",
            "yanchor": "top",
            "showarrow": False,
            "font": self.layout["title"]["font"],
        }
        return [title, *[self._moved(note) for note in self.layout.get("annotations", ())]]

    def _moved(self, note: dict[str, Any]) -> dict[str, Any]:
        if note["yref"] == "paper":
            return note | {"y": self._y(note["y"])}
        refs = {ref: _renumbered(note[ref], self.first_axis) for ref in ("xref", "yref")}
        return note | refs

    def _y(self, share: float) -> float:
        """A paper coordinate of the figure as one of the whole."""
        margin, height = self.layout["margin"], self.layout["height"]
        inner = height - margin["t"] - margin["b"]
        return self.frame.share(self.above + margin["t"] + (1 - share) * inner)


def _moved_axes(trace: dict[str, Any], first_axis: int) -> dict[str, Any]:
    axes = {name: _renumbered(trace[name], first_axis) for name in ("xaxis", "yaxis")}
    return trace | axes


def _renumbered(reference: str, first_axis: int) -> str:
    """An axis reference such as "x2" or "y3 domain", counted on."""
    match = AXIS_ID.match(reference)
    if match is None:
        return reference
    return f"{match[1]}{_stacked_number(match[2], first_axis)}{match[3] or ''}"


def _stacked_number(digits: str, first_axis: int) -> str:
    number = int(digits or 1) + first_axis
    return "" if number == 1 else str(number)


def _legend_once(traces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The traces with one legend entry per label and kind: lines and bars look different."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for trace in traces:
        entry = trace["name"], trace["type"]
        shown = bool(trace.get("showlegend")) and entry not in seen
        seen |= {entry} if shown else set()
        kept.append(trace | {"showlegend": shown})
    return kept
