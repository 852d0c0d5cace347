"""Figures that change in place on a page, in the colours of its theme."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import anywidget
import ipywidgets
import numpy as np
import plotly.graph_objects as go
import traitlets
from plotly.offline import get_plotlyjs

from pagealloc_model.notebook import page_file
from pagealloc_model.notebook.page_widget import PageWidget, page_code
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
    layouts = [dict(drawing.layout) for drawing in (before, after)]
    earlier, notes = (list(layout.pop(NOTES, ())) for layout in layouts)
    if len(before.traces) != len(after.traces) or not _same(*layouts):
        return None
    coordinates = {}
    for number, (old, new) in enumerate(zip(before.traces, after.traces, strict=True)):
        frames = [{key: trace[key] for key in trace if key not in MOVING} for trace in (old, new)]
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
        return first.keys() == second.keys() and all(
            _same(first[key], second[key]) for key in first
        )
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)


class PlotlyLibrary(anywidget.AnyWidget):
    """Invisible; brings plotly to the page, once for all pictures of a kernel."""

    _esm = page_file("library.js") + page_file("load_library.js")
    source = traitlets.Unicode(get_plotlyjs()).tag(sync=True)


plotly_library = lru_cache(maxsize=1)(PlotlyLibrary)
"""The one of this kernel."""


class Picture(PageWidget):
    """A figure that changes in place: lines and bars that moved are sent and drawn alone.

    Messages to the page are numbered; it asks for the whole figure where it has missed one.
    """

    _esm = (page_file("library.js") + page_code("picture.js")).replace(
        "COLOURS_BY_LIGHT_ONE", json.dumps({"figure": ON_DARK, "map": MAP_ON_DARK})
    )
    is_on_page = traitlets.Bool(False)
    """A page has asked for it, which it does between cells."""
    brushed = traitlets.List(traitlets.Float()).tag(sync=True)
    drawn = traitlets.Dict().tag(
        sync=True, to_json=lambda value, _: as_json(value), from_json=lambda value, _: value
    )

    def __init__(self, drawing: Drawing) -> None:
        plotly_library()
        self.drawing = drawing
        drawn = _whole(drawing) | {"number": 0}
        super().__init__(drawn=drawn, layout=ipywidgets.Layout(width="100%"))
        self.channel.on_msg(self._asked)

    @property
    def figure(self) -> go.Figure:
        """The drawing on show as plotly's figure."""
        return self.drawing.figure()

    def show(self, drawing: Drawing) -> None:
        """Show another figure instead."""
        moves = moves_between(self.drawing, drawing)
        self.drawing = drawing
        if moves is None:
            self.drawn.update(_whole(drawing))
            self._send_whole()
            return
        coordinates, notes, in_place = moves
        for number, moved in coordinates.items():
            self.drawn["data"][number].update(moved)
        if notes is not None:
            self.drawn["layout"][NOTES] = notes
        if coordinates or notes is not None:
            numbered = [[number, as_json(moved)] for number, moved in coordinates.items()]
            self._send_moves({"moves": numbered, "notes": as_json(notes), "in_place": in_place})

    def _asked(self, _: object, content: Mapping[str, Any], __: object) -> None:
        if content.get("have") != self.drawn["number"]:
            self._send_whole()
        self.is_on_page = True

    def _send_whole(self) -> None:
        self.drawn["number"] += 1
        self.channel.send({"whole": as_json(self.drawn)})

    def _send_moves(self, content: dict[str, Any]) -> None:
        self.drawn["number"] += 1
        self.channel.send({"number": self.drawn["number"]} | content)


def _whole(drawing: Drawing) -> dict[str, Any]:
    """Layout and copies of the traces; what the user zoomed or hid stays so."""
    layout = drawing.layout | {"uirevision": "kept"}
    return {"data": [dict(trace) for trace in drawing.traces], "layout": layout}


def as_json(value: Any) -> Any:
    """The value with arrays of numbers in plotly's binary form, other arrays as lists.

    Maps are sent in single precision where that holds all their numbers exactly.
    """
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
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
        return [child.drawing for child in self.children]

    def show(self, *figures: go.Figure | Drawing) -> None:
        """Show these figures instead; one that stays as it was is not drawn again."""
        drawings = [drawing_of(figure) for figure in figures]
        if len(self.children) != len(drawings):
            self.children = [Picture(drawing) for drawing in drawings]
            return
        for picture, drawing in zip(self.children, drawings, strict=True):
            picture.show(drawing)
