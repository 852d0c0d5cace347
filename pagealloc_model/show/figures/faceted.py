"""Lines over time in panels: the frame of most figures, its colours, figures below each other."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, Generic, ParamSpec

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from pagealloc_model.allocator.sites import SITES

Params = ParamSpec("Params")
Trace = dict[str, Any]
"""One trace as plotly's own keys and values."""

_TURNED_ON_DARK = """<style class="pagealloc-figure">
@media screen { [data-jp-theme-light="false"] .jp-RenderedPlotly:has(
svg.main-svg[style*="background: white"]) { filter: invert(0.93) hue-rotate(180deg); } }
.jp-OutputArea-child:has(style.pagealloc-figure) { display: none; }
</style>"""
"""Turns the lightness of white figures, and leaves their hues, on a page with a dark theme."""


class _ShownFigure(go.Figure):
    """A figure that takes the lightness of JupyterLab's theme where it is shown, not on paper."""

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": _TURNED_ON_DARK}, raw=True)
        super()._ipython_display_()


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """A figure as plotly's own keys and values, known to be right; coordinates are arrays."""

    traces: Sequence[Trace]
    layout: dict[str, Any]

    def figure(self) -> go.Figure:
        """The same as plotly's figure; what is set on it later is checked.

        Plotly's check of every property takes longer than the replay whose result is drawn.
        """
        figure = _ShownFigure({"data": list(self.traces), "layout": self.layout}, _validate=False)
        for part in (figure, figure.layout, *figure.data):
            part._validate = True
        return figure


class FigureFunction(Generic[Params]):
    """A function that returns a plotly figure; its `drawing` returns the same without objects."""

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


MIGRATETYPE_COLOURS: dict[str, str] = {
    "Unmovable": "#D55E00",
    "Movable": "#0072B2",
    "Reclaimable": "#009E73",
    "HighAtomic": "#A0487E",
    "CMA": "#8A6D00",
    "Isolate": "#595959",
}
MIGRATETYPES = tuple(MIGRATETYPE_COLOURS)

ORDER_COLOURS: tuple[str, ...] = (
    *("#00204D", "#002B66", "#08366F", "#27426D", "#3B4C6C", "#4C576C", "#5B626E"),
    *("#696D71", "#72726D", "#7A7769", "#827C64", "#8B8260", "#94875C", "#9C8C58"),
)
SITE_COLOURS = {site.name: site.colour for site in SITES if site.colour}
PREDICTION_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#A0487E")
"""Colours of predictions where one panel shows several and no other key needs colour."""
PREDICTION_DASHES, PREDICTION_PATTERNS = ("solid", "dash", "dot", "dashdot"), ("", "/", ".", "x")
"""Line patterns of the first, second, ... prediction in a figure, and fill patterns of its bars."""
MEASUREMENT_SYMBOLS = ("circle-open", "diamond-open", "square-open", "cross-open")
"""Marks of the first, second, ... recording in a figure."""

INK = "#222222"
GRID = "#D9D9D9"
MODEBAR = {"color": "#595959", "activecolor": INK, "bgcolor": "rgba(255,255,255,0.85)"}
"""Plotly's own buttons, which are too faint by default."""


def cycled(values: Sequence[str], place: int) -> str:
    """The value at a place, from the first one again behind the last."""
    return values[place % len(values)]


Tables = pd.DataFrame | Mapping[str, pd.DataFrame] | None
"""One table, several by label, or None where the source has none."""
Line = tuple[np.ndarray, np.ndarray]
"""Seconds and values."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One measured or predicted table and how its traces look in every panel.

    `rank` counts the measured, or predicted, lanes of a figure from 0; `colour` is that of all its
    traces, "" takes the colour of the panel's key.
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

    @property
    def reason(self) -> str:
        """Why it has no value: the reason of its table, or that there are no rows."""
        source = "recording" if self.measured else "replay"
        no_rows = f"not available: the {source} has no rows for this"
        return self.table.attrs.get("reason", "") or no_rows

    def style(self, colour: str) -> Trace:
        """Scatter properties in one panel, whose own colour is given."""
        colour = self.colour or colour
        if not self.measured:
            dash = cycled(PREDICTION_DASHES, self.rank)
            return {"mode": "lines", "line": {"color": colour, "width": 1.8, "dash": dash}}
        symbol = cycled(MEASUREMENT_SYMBOLS, self.rank)
        return {
            "mode": "lines+markers",
            "line": {"color": colour, "width": 0.6, "dash": "dot"},
            "marker": {"color": colour, "symbol": symbol, "size": 8, "line": {"width": 1.5}},
        }


def lanes(measured: Tables, predicted: Tables, zone: str | None = None) -> list[Lane]:
    """All tables of a figure in legend order, what was measured first; rows of one zone, or all.

    Each of several predictions has a colour of its own in all panels.
    """
    drawn = []
    for tables, word in ((measured, "measured"), (predicted, "predicted")):
        by_label = {word: tables} if isinstance(tables, pd.DataFrame) else tables or {}
        for rank, (label, table) in enumerate(by_label.items()):
            rows = table[table["zone"] == zone] if zone and "zone" in table else table
            drawn.append(Lane(label=label, table=rows, measured=word == "measured", rank=rank))
    if sum(not lane.measured for lane in drawn) < 2:
        return drawn
    return [
        replace(lane, colour=INK if lane.measured else cycled(PREDICTION_COLOURS, lane.rank))
        for lane in drawn
    ]


def scatter(x: Any, y: Any, name: str, mode: str = "lines", **look: Any) -> Trace:
    """Lines or marks under a name, by which the trace is found too."""
    return {"type": "scatter", "mode": mode, "x": x, "y": y, "name": name, "meta": name} | look


def line_trace(lane: Lane, x: np.ndarray, y: np.ndarray, name: str, colour: str) -> Trace:
    """Values over seconds in the lane's manner; the name tells it from the lane's others."""
    legend = {"legendgroup": lane.key, "showlegend": False, "meta": f"{name}/{lane.key}"}
    return scatter(x, y, lane.label, **legend, **lane.style(colour))


def count_trace(lane: Lane, counts: pd.Series, name: str, *, along: str = "y") -> Trace:
    """Counts by category along an axis: bars for a prediction, marks for what was measured."""
    is_upright = along == "y"
    names, values = list(counts.index), counts.to_numpy(dtype=float)
    x, y = (names, values) if is_upright else (values, names)
    legend = {"legendgroup": lane.key, "meta": f"{name}/{lane.key}"}
    trace = scatter(x, y, lane.label, "markers", **legend)
    if lane.measured:
        marks = lane.style(INK)["marker"] | {"size": 9, "line": {"width": 2}}
        # a mark at zero is not cut in half by the axis
        return trace | {"marker": marks, "cliponaxis": False}
    del trace["mode"]
    shape = cycled(PREDICTION_PATTERNS, lane.rank)
    colour = lane.colour or cycled(PREDICTION_COLOURS, lane.rank)
    pattern = {"shape": shape, "fgcolor": colour, "bgcolor": "white", "solidity": 0.5, "size": 6}
    marker = {"color": colour, "line": {"color": INK, "width": 0.5}, "pattern": pattern}
    bar = {"type": "bar", "orientation": "v" if is_upright else "h", "opacity": 0.85}
    return trace | bar | {"marker": marker}


PANEL_HEIGHT, HEADER_HEIGHT, FOOTER_HEIGHT = 190, 95, 60
MARGIN = {"l": 70, "r": 20, "t": HEADER_HEIGHT, "b": FOOTER_HEIGHT}
BELOW_MARGIN = 10
HORIZONTAL_GAP = 0.09
"""Between two panels, as a share of the figure's width."""
_ON_PAPER = {"xref": "paper", "yref": "paper", "showarrow": False}
_AXIS = {
    "gridcolor": GRID,
    "linecolor": INK,
    "ticks": "outside",
    "zeroline": False,
    # where every label may stay, plotly need not measure each whenever it draws
    "ticklabeloverflow": "allow",
}
TITLE_OFFSET, LEGEND_TOP, LEGEND_LINE = 12, 36, 19
"""Pixels from a figure's top to its title and to its legend, and of a line of that."""


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
        left: pixels for the names of categories.
    """

    def __init__(
        self,
        titles: Sequence[str],
        title: str,
        x_title: str = "",
        y_title: str = "",
        *,
        columns: int = 3,
        x_axis: Mapping[str, Any] | None = None,
        y_axis: Mapping[str, Any] | None = None,
        left: int = MARGIN["l"],
    ) -> None:
        panels = max(1, len(titles))
        self._columns = min(columns, panels)
        rows = -(-panels // self._columns)
        self._traces: list[Trace] = []
        self._in_legend: set[str] = set()
        self._notes: list[dict[str, Any]] = []
        whole_height = HEADER_HEIGHT + FOOTER_HEIGHT + PANEL_HEIGHT * rows
        at_top = {"x": 0, "xref": "paper", "yref": "container", "yanchor": "top"}
        look = {"y": 1, "xanchor": "left", "pad": {"t": TITLE_OFFSET}, "font": {"size": 15}}
        self._layout: dict[str, Any] = {
            "title": {"text": title} | at_top | look,
            "height": whole_height,
            "margin": MARGIN | {"l": left},
            "paper_bgcolor": "white",
            "plot_bgcolor": "white",
            "font": {"family": "DejaVu Sans, Arial, sans-serif", "size": 12, "color": INK},
            "legend": {"orientation": "h", "y": 1 - LEGEND_TOP / whole_height} | at_top,
            "hovermode": "closest",
            "modebar": MODEBAR,
        }
        gap = min(0.16, 0.32 / rows)
        width = (1 - HORIZONTAL_GAP * (self._columns - 1)) / self._columns
        height = (1 - gap * (rows - 1)) / rows
        for panel in range(panels):
            row, column = divmod(panel, self._columns)
            left = column * (width + HORIZONTAL_GAP)
            bottom = (rows - 1 - row) * (height + gap)
            x_words = x_title if panel + self._columns >= panels else ""
            y_words = y_title if column == 0 else ""
            for letter, other, begin, end, words, further in (
                ("x", "y", left, left + width, x_words, x_axis),
                ("y", "x", bottom, bottom + height, y_words, y_axis),
            ):
                domain = {"domain": [begin, min(end, 1)], "anchor": f"{other}{_number(panel)}"}
                named = {"title": {"text": words, "font": {"size": 11}}} if words else {}
                axis = _AXIS | named | domain | dict(further or {})
                self._layout[f"{letter}axis{_number(panel)}"] = axis
            if titles:
                place = {"x": left + width / 2, "y": bottom + height, "xanchor": "center"}
                look = {"text": titles[panel], "yanchor": "bottom", "font": {"size": 12}}
                self._notes.append(_ON_PAPER | place | look)

    def add(self, trace: Trace, panel: int, *, once: bool = False) -> None:
        """Draw a trace in a panel; `once`: the legend has the first of its group."""
        number = _number(panel)
        if once:
            group = trace["legendgroup"]
            trace = trace | {"showlegend": group not in self._in_legend}
            self._in_legend.add(group)
        self._traces.append(trace | {"xaxis": f"x{number}", "yaxis": f"y{number}"})

    def set_axis(self, letter: str, panel: int, properties: Mapping[str, Any]) -> None:
        """Give an axis ("x" or "y") of a panel further properties."""
        self._layout[f"{letter}axis{_number(panel)}"] |= dict(properties)

    def draw_lines(
        self, drawn: Sequence[Lane], panels: Iterable[tuple[str, str, Mapping[str, Line]]]
    ) -> None:
        """A line per lane in each panel, a note where a lane has none, a legend entry per lane."""
        nowhere = np.array([np.nan])
        for lane in drawn:  # an empty trace stands for the lane, whatever colours its panels use
            self.add(line_trace(lane, nowhere, nowhere, "legend", INK) | {"showlegend": True}, 0)
        for panel, (name, colour, lines) in enumerate(panels):
            for lane in drawn:
                if lane.key in lines:
                    self.add(line_trace(lane, *lines[lane.key], name, colour), panel)
            absent = {lane.label: lane.reason for lane in drawn if lane.key not in lines}
            self.note_missing(panel, absent)

    def draw_counts(
        self,
        panel: int,
        drawn: Sequence[Lane],
        counts: Mapping[str, pd.Series],
        name: str,
        missing: Mapping[str, str],
        along: str = "y",
        **look: Any,
    ) -> None:
        """Bars and marks of each lane's counts along an axis; a note on lanes without.

        `counts` are by the lanes' keys, `missing` says by the lanes' labels why one has none. The
        axis is logarithmic, and says so, where there are many.
        """
        axis: dict[str, Any] = {"rangemode": "tozero", "tickformat": ",d", "dtick": 1}
        known = [series.max() for series in counts.values() if series.notna().any()]
        if max(known, default=0) >= 10:
            # it begins just below one (10 ** -0.1), so that a single one is seen
            axis = {"type": "log", "dtick": 1, "autorangeoptions": {"minallowed": -0.1}}
            words = self._layout[f"{along}axis{_number(panel)}"].get("title", {}).get("text", "")
            axis["title"] = {"text": f"{words} (log)".strip(), "font": {"size": 11}}
        self.set_axis(along, panel, axis)
        for lane in drawn:
            if lane.key in counts:
                trace = count_trace(lane, counts[lane.key], name, along=along)
                self.add(trace | look, panel, once=True)
        self.note_missing(panel, missing)

    def note_missing(self, panel: int, absent: Mapping[str, str]) -> None:
        """Write into a panel why lanes have no value there: lane label -> reason."""
        if not absent:
            return
        characters = {1: 44, 2: 44, 3: 27, 4: 22}[self._columns]
        text = "<br>".join(textwrap.wrap(missing_words(absent), characters))
        refs = {f"{letter}ref": f"{letter}{_number(panel)} domain" for letter in "xy"}
        look = {"font": {"size": 11, "color": INK}, "bgcolor": "rgba(255,255,255,0.85)"}
        place = {"text": text, "x": 0.5, "y": 0.98, "yanchor": "top", "showarrow": False}
        self._notes.append(refs | place | look)

    def write_below(self, text: str) -> None:
        """A few words below all panels; none for ""."""
        if not text:
            return
        lines = textwrap.wrap(text, 155)  # characters, on 1,000 pixels and wider
        room = 15 * len(lines) + BELOW_MARGIN
        self._layout["height"] += room
        self._layout["margin"]["b"] += room
        shift = {"yshift": -FOOTER_HEIGHT, "xshift": BELOW_MARGIN - self._layout["margin"]["l"]}
        at_left = {"x": 0, "y": 0, "yanchor": "top", "xanchor": "left", "align": "left"}
        words = {"text": "<br>".join(lines), "font": {"size": 11}}
        self._notes.append(_ON_PAPER | at_left | shift | words)

    def figure(self, **layout: Any) -> go.Figure:
        """The figure, with further layout properties on top."""
        return self.drawing(**layout).figure()

    def drawing(self, **layout: Any) -> Drawing:
        """The same without plotly's objects."""
        whole = self._layout | {"annotations": self._notes} | layout
        return Drawing(traces=self._traces, layout=whole)


def missing_words(absent: Mapping[str, str]) -> str:
    """Lane label -> reason as words that name each reason once."""
    by_reason: dict[str, list[str]] = {}
    for label, reason in absent.items():
        by_reason.setdefault(reason, []).append(label)
    return "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in by_reason.items())


def _number(panel: int) -> str:
    """An axis's number in plotly's names: "", "2", "3", ..."""
    return "" if panel == 0 else str(panel + 1)


TIME_AXIS = "time since first event (s)"


def since_start(table: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """A copy with `time_s`, seconds since `start_ns`; needed to overlay two recordings.

    Args:
        table: any table with `time_ns`.
        start_ns: the recording's start, on the same clock.
    """
    return table.assign(time_s=(table["time_ns"] - start_ns) / 1e9)


def small_multiples(
    drawn: Sequence[Lane],
    key_column: str,
    value: str,
    title: str,
    y_title: str,
    *,
    keys: Sequence[Any] | None = None,
    columns: int = 4,
    words: Callable[[Any], str] = str,
    colour: Callable[[Any], str],
) -> PanelGrid:
    """One panel per key, all by default, one trace per lane in each, or a note.

    Values are sums over whatever else a table distinguishes. Panels in which nothing happens are
    one line below. An axis that does not begin at zero says so.
    """
    keys = keys_seen(drawn, key_column) if keys is None else keys
    origin = common_origin(drawn)
    series = {lane.key: series_by_key(lane.table, key_column, value, origin) for lane in drawn}
    panels, levels = {}, {}
    for key in keys:
        lines = {lane: by_key[key] for lane, by_key in series.items() if key in by_key}
        panels[key] = lines
        values = np.concatenate([[], *(y for _, y in lines.values())])
        if lines and np.ptp(values) == 0:
            levels[key] = values[0]
    shown = [key for key in keys if key not in levels] or list(keys)
    look = {"columns": columns, "y_axis": {"rangemode": "tozero"}}
    cuts = [axis_cut(panels[key].values()) for key in shown]
    titles = [words(key) + CUT * bool(cut) for key, cut in zip(shown, cuts, strict=True)]
    grid = PanelGrid(titles, title, TIME_AXIS, y_title, **look)
    lines_of = [(str(key), colour(key), panels[key]) for key in shown]
    grid.draw_lines(drawn, lines_of or [("", "", {})])
    for panel, cut in enumerate(cuts):
        grid.set_axis("y", panel, cut or {})
    if len(shown) < len(keys):
        still = (f"{words(key)} ({level:,.10g})" for key, level in levels.items())
        grid.write_below(f"Not drawn, the same in all lanes at all times: {', '.join(still)}.")
    return grid


CUT = " (axis cut)"
"""Behind the title of a panel whose axis does not begin at zero."""


def axis_cut(lines: Iterable[Line]) -> dict[str, Any] | None:
    """What an axis is told so that curves are told apart; None for values that are all the same.

    {} where the axis begins at zero; else it need not, where that would leave half of it empty and
    values differ by a hundredth.
    """
    values = np.concatenate([[], *(y for _, y in lines)])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    if low == high:
        return None
    return {"rangemode": "normal"} if high / 2 <= low <= 0.99 * high else {}


def keys_seen(drawn: Sequence[Lane], column: str, value: str = "") -> list[Any]:
    """All values of a column in any lane, sorted; with `value`, those where that is positive."""
    seen: set[Any] = set()
    for lane in drawn:
        if column in lane.table:
            keys = lane.table[column]
            seen |= set((keys[lane.table[value].fillna(0) > 0] if value else keys).unique())
    return sorted(seen)


def series_by_key(table: pd.DataFrame, key_column: str, value: str, origin: int) -> dict[Any, Line]:
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


_AXIS_NAME = re.compile(r"^([xy](?:axis)?)(\d*)( domain)?$")
"""Of an axis's layout, or a reference to it."""


def _renumbered(name: str, first_axis: int) -> str:
    """An axis name such as "xaxis2", or a reference such as "y3 domain", counted on."""

    def counted_on(match: re.Match[str]) -> str:
        return f"{match[1]}{_number(int(match[2] or 1) + first_axis - 1)}{match[3] or ''}"

    return _AXIS_NAME.sub(counted_on, name)


FLATTER, LEGEND_ROOM = 0.85, 40
"""Height of panels in stacked figures, as a share of that alone; pixels that a legend takes."""


def _flatter(part: Drawing, is_below: bool) -> Drawing:
    margin = part.layout["margin"]
    panels = part.layout["height"] - margin["t"] - margin["b"]
    top = margin["t"] - is_below * LEGEND_ROOM
    look = {"height": top + round(FLATTER * panels) + margin["b"], "margin": margin | {"t": top}}
    return Drawing(traces=part.traces, layout=part.layout | look)


@FigureFunction
def stacked(figures: Sequence[go.Figure | Drawing]) -> Drawing:
    """One figure that shows all of them, each as high as it was.

    The legend has each label once, in the first figure; the others have no room for one. Side
    margins are those of the first figure. Panels are flatter than alone, so that a page shows the
    controls with them.

    Args:
        figures: of the same width, each with a `height` and a `margin` in its layout.
    """
    parts = [_flatter(drawing_of(figure), bool(number)) for number, figure in enumerate(figures)]
    first, last = parts[0].layout, parts[-1].layout
    height = sum(part.layout["height"] for part in parts)
    top, bottom = first["margin"]["t"], last["margin"]["b"]

    def share(pixels_from_top: float) -> float:
        """A height as plotly's paper coordinate."""
        return 1 - (pixels_from_top - top) / (height - top - bottom)

    def moved(y: float, layout: dict[str, Any], above: int) -> float:
        """A paper coordinate of a figure as one of the whole."""
        margin = layout["margin"]
        inner = layout["height"] - margin["t"] - margin["b"]
        return share(above + margin["t"] + (1 - y) * inner)

    whole = {name: part for name, part in first.items() if name != "title"}
    traces: list[Trace] = []
    notes: list[dict[str, Any]] = []
    in_legend: set[str] = set()
    first_axis = above = 0
    for part in parts:
        layout = part.layout
        axes = {name: axis for name, axis in layout.items() if _AXIS_NAME.match(name)}
        for name, axis in axes.items():
            place = {"anchor": _renumbered(axis["anchor"], first_axis)}
            if name.startswith("y"):
                ends = (moved(y, layout, above) for y in axis["domain"])
                place["domain"] = [min(max(end, 0), 1) for end in ends]
            whole[_renumbered(name, first_axis)] = axis | place
        title = {"text": f"<b>{layout['title']['text']}</b>", "font": layout["title"]["font"]}
        place = {"x": 0, "y": share(above + TITLE_OFFSET), "xanchor": "left", "yanchor": "top"}
        notes.append(_ON_PAPER | place | title)
        for note in layout.get("annotations", ()):
            if note["yref"] == "paper":
                notes.append(note | {"y": moved(note["y"], layout, above)})
            else:
                refs = {ref: _renumbered(note[ref], first_axis) for ref in ("xref", "yref")}
                notes.append(note | refs)
        for trace in part.traces:
            name = trace["name"]
            shown = bool(trace.get("showlegend")) and name not in in_legend
            in_legend |= {name} if shown else set()
            place = {name: _renumbered(trace[name], first_axis) for name in ("xaxis", "yaxis")}
            traces.append(trace | place | {"showlegend": shown})
        first_axis += sum(name.startswith("xaxis") for name in axes)
        above += layout["height"]
    legend_y = 1 - LEGEND_TOP / height
    whole |= {"annotations": notes, "height": height, "margin": first["margin"] | {"b": bottom}}
    return Drawing(traces=traces, layout=whole | {"legend": first["legend"] | {"y": legend_y}})
