"""Several figures as one, below each other with a legend in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction, drawing_of

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
            moved[f"{match[1]}{_number(match[2], self.first_axis)}"] = axis
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
    return f"{match[1]}{_number(match[2], first_axis)}{match[3] or ''}"


def _number(digits: str, first_axis: int) -> str:
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
