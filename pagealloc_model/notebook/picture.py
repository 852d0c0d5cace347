"""Figures that change in place on a page, in the colours of its theme."""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import Any

import anywidget
import ipywidgets
import numpy as np
import plotly.graph_objects as go
import traitlets
from plotly.offline import get_plotlyjs

from pagealloc_model.show.figures.faceted import (
    GRID,
    INK,
    MIGRATETYPES,
    MODEBAR,
    ORDER_COLOURS,
    Drawing,
    Trace,
    drawing_of,
)
from pagealloc_model.show.figures.pageblock_map import CHANGE_COLOURS, LEVELS, shade

GROUND = "#111111"
"""Of JupyterLab's dark theme."""
_ORDERS_ON_DARK = (
    *("#FEE838", "#F2DD44", "#E7D24F", "#DBC759", "#CFBD61", "#C3B369", "#B7AA6E"),
    *("#ABA072", "#9F9775", "#948E76", "#8A8678", "#7F7D76", "#757574", "#6E7175"),
)
"""The light half of the scale (cividis) whose dark half is that of orders on white; order 0 stands
out most on either ground."""
ON_DARK: dict[str, str] = {
    "white": GROUND,
    MODEBAR["bgcolor"]: "rgba(17,17,17,0.85)",
    INK: "#E6E6E6",
    GRID: "#3D3D3D",
    "#D55E00": "#F08030",
    "#0072B2": "#4DA6E0",
    "#009E73": "#35C89A",
    "#A0487E": "#D98ABB",
    "#8A6D00": "#C9A227",
    "#595959": "#A6A6A6",
    "#B00020": "#FF6B7F",
    "#3E83A8": "#6FB7DC",
    "#5B8C5A": "#8FC48E",
    **dict(zip(ORDER_COLOURS, _ORDERS_ON_DARK, strict=True)),
}
"""Colours of the palette, and what they are on a dark ground; hues stay."""
MAP_ON_DARK: dict[str, str] = {
    "white": GROUND,
    INK: "#FFFFFF",
    **{
        shade(name, level): shade(name, level, GROUND)
        for name in MIGRATETYPES
        for level in range(LEVELS)
    },
    **dict(zip(CHANGE_COLOURS, ("#B35806", "#1C1C1C", "#7B5AA6"), strict=True)),
}
"""The same of maps, whose faint blocks are nearly the ground."""

IN_THEME = """
const ON_DARK = PAIRS_OF_COLOURS;
const MAP_ON_DARK = PAIRS_OF_MAPS;
const NO_COLOURS = new Set(["x", "y", "z", "customdata", "text", "ticktext"]);
const OF_A_MAP = /^(map|marks)\\//;
let is_printed = false;

function recoloured(value, pairs) {
  if (typeof value === "string") return pairs[value] ?? value;
  if (Array.isArray(value)) return value.map(each => recoloured(each, pairs));
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(
      ([name, each]) => [name, NO_COLOURS.has(name) ? each : recoloured(each, pairs)]));
}

// a figure in the colours of the page's theme; paper is white
function inTheme({ data, layout }) {
  if (is_printed || document.body.dataset.jpThemeLight !== "false") return { data, layout };
  const traces = data.map(
      each => recoloured(each, OF_A_MAP.test(each.meta) ? MAP_ON_DARK : ON_DARK));
  return { data: traces, layout: recoloured(layout, ON_DARK) };
}

// calls back when the theme changes, and before and after the page is printed
function onTheme(redraw) {
  const theme = new MutationObserver(redraw);
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  const before = () => { is_printed = true; redraw(); };
  const after = () => { is_printed = false; redraw(); };
  window.addEventListener("beforeprint", before);
  window.addEventListener("afterprint", after);
  return () => {
    theme.disconnect();
    window.removeEventListener("beforeprint", before);
    window.removeEventListener("afterprint", after);
  };
}
""".replace("PAIRS_OF_COLOURS", json.dumps(ON_DARK)).replace(
    "PAIRS_OF_MAPS", json.dumps(MAP_ON_DARK)
)
"""`inTheme` and `onTheme`, for pictures."""


_LIBRARY = """
const library = (window.pageallocPlotly ??= (() => {
  let arrived, wanted;
  const ready = new Promise(resolve => { arrived = resolve; });
  const isWanted = new Promise(resolve => { wanted = resolve; });
  return { ready, arrived, isWanted, wanted };
})());
"""
"""The promises of plotly, for which all pictures of a page wait, and of a picture that wants it."""

_LOAD = """
async function load(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  await import(address).finally(() => URL.revokeObjectURL(address));
  return window.Plotly;
}
function initialize({ model }) {
  const text = model.get("source");
  // not waited for, and not before a picture's own code is there: anywidget gives up on what takes
  // two seconds, as plotly does on a busy machine. What fails once is asked for once more
  library.isWanted.then(() => load(text)).catch(() => load(text)).then(library.arrived);
}
export default { initialize };
"""

_DRAW = """
const NOW = {
  mode: "immediate",
  transition: { duration: 0 },
  frame: { duration: 0, redraw: false },
};
// an axis stays as it is while what it shows takes up this share of it
const ROOMY = 0.6;

// a copy in which plotly finds coordinates as arrays; maps stay in its binary form
function unpacked(value) {
  if (Array.isArray(value)) return value.map(unpacked);
  if (value === null || typeof value !== "object") return value;
  if (value.bdata !== undefined && value.shape === undefined)
    return new Float64Array(Uint8Array.from(atob(value.bdata), each => each.charCodeAt(0)).buffer);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpacked(each)]));
}

function initialize({ model }) {
  model.on("msg:custom", ({ moves, notes }) => {
    for (const [number, moved] of moves) Object.assign(model.get("drawn").data[number], moved);
    if (notes) model.get("drawn").layout.annotations = notes;
  });
}

// the least and the greatest number of traces along "x" or "y", as their axis has them
function reach(traces, letter, axis) {
  let [least, most] = [Infinity, -Infinity];
  for (const trace of traces)
    for (const each of trace[letter] ?? []) {
      if (typeof each !== "number" || Number.isNaN(each)) continue;
      const at = axis.type === "log" ? Math.log10(each) : each;
      if (!Number.isFinite(at)) continue;
      least = Math.min(least, at);
      most = Math.max(most, at);
    }
  return [least, most];
}

// whether an axis cuts off what its traces have, or has become far too long for it
function isLeft(plot, name) {
  const axis = plot.layout[name];
  if (axis.autorange === false || !axis.range) return false;  // set, or zoomed by the user
  const id = name.replace("axis", "");
  const on = plot.data.filter(trace => (trace[`${name[0]}axis`] ?? name[0]) === id);
  const [least, most] = reach(on, name[0], axis);
  const [begin, end] = [...axis.range].sort((one, other) => one - other);
  if (!(least <= most) || typeof begin !== "number") return false;
  // decades of counts, and what begins at zero, are shown from their axis's bottom on
  const isLog = axis.type === "log";
  const bottom = isLog || axis.rangemode === "tozero" ? Math.min(begin, least) : least;
  const isCut = most > end || (!isLog && least < begin);
  return isCut || most - bottom < ROOMY * (end - begin);
}

// what plotly has to be told of: what moved, and with it all bars of a panel; of other panels one
// trace of each type, as plotly empties those of which a frame names none
function named(plot, moved) {
  const numbers = plot.data.map((_, number) => number);
  const place = number => [plot.data[number].type, plot.data[number].xaxis].join();
  const size = number => plot.data[number].y?.length ?? 0;
  const chosen = new Set(moved);
  const touched = new Set(moved.map(place));
  for (const number of [...numbers].sort((one, other) => size(one) - size(other))) {
    if (plot.data[number].type === "scatter" && touched.has(place(number))) continue;
    touched.add(place(number));
    chosen.add(number);
  }
  return numbers.filter(number => chosen.has(number));
}

// lines and bars alone, the axes that they left, and notes
async function moveTraces(Plotly, plot, moves, notes) {
  if (moves.length) await moveAlone(Plotly, plot, moves);
  const axes = new Set(moves.flatMap(([number]) => ["x", "y"].map(
      letter => plot.data[number][`${letter}axis`]?.replace(letter, `${letter}axis`))));
  const left = [...axes].filter(name => name && plot.layout[name] && isLeft(plot, name));
  const changes = Object.fromEntries(left.map(name => [`${name}.autorange`, true]));
  if (notes) changes.annotations = notes;
  if (Object.keys(changes).length) await Plotly.relayout(plot, changes);
}

async function moveAlone(Plotly, plot, moves) {
  const moved_by_number = new Map(moves);
  const traces = named(plot, [...moved_by_number.keys()]);
  const frame = { data: traces.map(number => moved_by_number.get(number) ?? {}), traces };
  // the promise that animate returns waits for one more frame
  const moved = new Promise(resolve => plot.once("plotly_transitioned", resolve));
  Plotly.animate(plot, frame, NOW);
  await moved;
}

async function render({ model, el }) {
  const plot = document.createElement("div");
  el.appendChild(plot);
  library.wanted();
  const Plotly = await library.ready;
  const whole = () => inTheme(unpacked(model.get("drawn")));
  const { data, layout } = whole();
  let last = Plotly.newPlot(plot, data, layout);
  plot.on("plotly_selected", selected => {
    if (!selected?.range?.x) return;
    model.set("brushed", selected.range.x);
    model.save_changes();
  });
  const then = step => {
    performance.mark("pagealloc-picture-received");
    last = last.then(step).then(() => performance.mark("pagealloc-picture-drawn"));
  };
  const drawWhole = () => {
    const { data, layout } = whole();
    return Plotly.react(plot, data, layout);
  };
  const redraw = () => then(drawWhole);
  const move = ({ moves, notes, in_place }) => {
    const isAnyHidden = plot.data.some(trace => trace.visible === "legendonly");
    const inColours = notes && whole().layout.annotations;
    if (!in_place || isAnyHidden) redraw();
    else then(() => moveTraces(Plotly, plot, unpacked(moves), inColours));
  };
  model.on("change:drawn", redraw);
  model.on("msg:custom", move);
  const room = new ResizeObserver(() => {
    const width = plot.clientWidth;
    if (width && plot._fullLayout && width !== plot._fullLayout.width)
      last = last.then(() => Plotly.Plots.resize(plot));
  });
  room.observe(plot);
  await last;
  const forgetTheme = onTheme(drawWhole);  // at once: a printer does not wait
  return () => {
    forgetTheme();
    room.disconnect();
    model.off("change:drawn", redraw);
    model.off("msg:custom", move);
    Plotly.purge(plot);
  };
}
export default { initialize, render };
"""


MOVING = ("x", "y", "z", "customdata", "text")
"""Parts of a trace that may differ between two drawings of one frame."""
NOTES = "annotations"
"""The part of a layout that may differ."""


def moves_between(
    before: Drawing, after: Drawing
) -> tuple[dict[int, Trace], list[Any] | None, bool] | None:
    """Everything that moved; None if more than coordinates and notes differs.

    Returns:
        Number of a trace -> what it has anew; all annotations where one differs, such as who has no
        value in a panel; and whether the page can move traces without laying out the figure anew:
        lines and bars that have other numbers in the same places.
    """
    if len(before.traces) != len(after.traces):
        return None
    layouts = [dict(each.layout) for each in (before, after)]
    earlier, notes = (list(layout.pop(NOTES, ())) for layout in layouts)
    if not _same(*layouts):
        return None
    coordinates = {}
    for number, (old, new) in enumerate(zip(before.traces, after.traces, strict=True)):
        frames = [{key: each[key] for key in each if key not in MOVING} for each in (old, new)]
        has = [[trace.get(name) is not None for name in MOVING] for trace in (old, new)]
        if not (has[0] == has[1] and _same(*frames)):
            return None
        moved = {name: new[name] for name in MOVING if not _same(old.get(name), new.get(name))}
        if moved:
            coordinates[number] = moved
    in_place = all(
        name in ("x", "y")
        and after.traces[number]["type"] in ("scatter", "bar")
        and np.asarray(values).dtype.kind in "iuf"
        for number, moved in coordinates.items()
        for name, values in moved.items()
    )
    return coordinates, None if _same(earlier, notes) else notes, in_place


def same_coordinates(first: Drawing, second: Drawing) -> bool:
    """True if two drawings have the same points."""
    return len(first.traces) == len(second.traces) and all(
        _same(one.get(axis), other.get(axis))
        for one, other in zip(first.traces, second.traces, strict=True)
        for axis in "xyz"
    )


def _same(first: Any, second: Any) -> bool:
    """True if two values of a drawing are equal; nan equals nan."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        if first is None or second is None:
            return False
        first, second = np.asarray(first), np.asarray(second)
        is_float = first.dtype.kind == second.dtype.kind == "f"
        return np.array_equal(first, second, equal_nan=is_float)
    if isinstance(first, dict) and isinstance(second, dict):
        has_same = first.keys() == second.keys()
        return has_same and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)


class PlotlyLibrary(anywidget.AnyWidget):
    """Invisible; brings plotly to the page, once for all pictures of a kernel."""

    _esm = _LIBRARY + _LOAD
    source = traitlets.Unicode(get_plotlyjs()).tag(sync=True)


plotly_library = lru_cache(maxsize=1)(PlotlyLibrary)
"""The one of this kernel."""


class Picture(anywidget.AnyWidget):
    """A figure that changes in place: lines and bars that moved are sent and drawn alone."""

    _esm = _LIBRARY + IN_THEME + _DRAW
    brushed = traitlets.List(traitlets.Float()).tag(sync=True)
    drawn = traitlets.Dict().tag(
        sync=True, to_json=lambda value, _: as_json(value), from_json=lambda value, _: value
    )

    def __init__(self, drawing: Drawing) -> None:
        plotly_library()
        self.drawing = drawing
        super().__init__(drawn=_whole(drawing), layout=ipywidgets.Layout(width="100%"))

    @property
    def figure(self) -> go.Figure:
        """The drawing on show as plotly's figure."""
        return self.drawing.figure()

    def show(self, drawing: Drawing) -> None:
        """Show another figure instead."""
        moves = moves_between(self.drawing, drawing)
        self.drawing = drawing
        if moves is None:
            self.drawn = _whole(drawing)
            return
        coordinates, notes, in_place = moves
        for number, moved in coordinates.items():
            self.drawn["data"][number].update(moved)
        if notes is not None:
            self.drawn["layout"][NOTES] = notes
        if coordinates or notes is not None:
            numbered = [[number, as_json(moved)] for number, moved in coordinates.items()]
            self.send({"moves": numbered, "notes": as_json(notes), "in_place": in_place})


def _whole(drawing: Drawing) -> dict[str, Any]:
    """Layout and copies of the traces; what the user zoomed or hid stays so."""
    layout = drawing.layout | {"uirevision": "kept"}
    return {"data": [dict(trace) for trace in drawing.traces], "layout": layout}


def as_json(value: Any) -> Any:
    """The value with arrays of numbers in plotly's binary form, other arrays as lists.

    Maps are sent in single precision where that holds all their numbers exactly.
    """
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind not in "iuf":
        return value.tolist()
    numbers = np.ascontiguousarray(value, np.float64)
    single = numbers.astype(np.float32)
    if value.ndim > 1 and np.array_equal(single, numbers, equal_nan=True):
        numbers = single
    packed = {"dtype": numbers.dtype.str[1:], "bdata": base64.b64encode(numbers).decode()}
    return packed | ({"shape": ", ".join(map(str, value.shape))} if value.ndim > 1 else {})


class Chart(ipywidgets.VBox):
    """The place of a figure, or of several below each other; empty until there is one to show."""

    @property
    def picture(self) -> Picture | None:
        """The first on show, None before there is one."""
        return self.children[0] if self.children else None

    @property
    def figure(self) -> go.Figure | None:
        """The first on show as plotly's figure, None before there is one."""
        return self.picture.figure if self.picture is not None else None

    @property
    def drawings(self) -> list[Drawing]:
        """All on show."""
        return [each.drawing for each in self.children]

    def show(self, *figures: go.Figure | Drawing) -> None:
        """Show these figures instead; one that stays as it was is not drawn again."""
        drawings = [drawing_of(each) for each in figures]
        if len(self.children) != len(drawings):
            self.children = [Picture(each) for each in drawings]
            return
        for picture, drawing in zip(self.children, drawings, strict=True):
            picture.show(drawing)
