"""An explorer's figure with points computed beforehand, for sliders of pages without a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import ipywidgets
import plotly.graph_objects as go

from pagealloc_model.notebook.widgets.moves import same, same_frame
from pagealloc_model.policy.policy import Policy
from pagealloc_model.show.figures.drawing import Drawing, drawing_of

if TYPE_CHECKING:
    from pagealloc_model.notebook.widgets.explorer import Explorer
    from pagealloc_model.policy.policy_fields import Setting

FEW = 11
"""Controls with this many values offer each of them."""
MOST_POINTS = 60
"""Policies computed beforehand for one figure; others are left out, and the page says so."""


def with_choices(explorer: Explorer) -> go.Figure:
    """The figure on show, which carries those of other policies for the sliders of a page.

    `layout.meta` has `sliders`, one for each field (name, places with their words and the number of
    a point, where it starts), `points` (the coordinates that differ from the figure on show, or a
    whole figure where more does) and `left_out`, how many policies there was no room for. Each
    point changes one field of the policy on show.
    """
    shown = explorer.chart.picture.drawing
    policy = explorer.controls.policy
    offered = {name: explorer.controls.values[name] for name in explorer.in_menus}
    asked = list(other_policies(policy, offered))
    points: list[dict[str, Any]] = []
    places: dict[str, list[tuple[Setting, int]]] = {}
    for name, value, other in islice(asked, MOST_POINTS):
        drawing = drawing_of(explorer.view_of(other).figure)
        places.setdefault(name, []).append((value, len(points)))
        points.append({"policy": str(other), **_point(shown, drawing)})
    sliders = [_slider(name, offered[name].value, found) for name, found in places.items()]
    left_out = max(len(asked) - MOST_POINTS, 0)
    told = {"policy": str(policy), "sliders": sliders, "points": points, "left_out": left_out}
    return shown.figure().update_layout(meta=told)


def other_policies(
    policy: Policy, controls: dict[str, ipywidgets.ValueWidget]
) -> Iterator[tuple[str, Setting, Policy]]:
    """A policy with one field changed at a time, to a few values of its control's range.

    Yields:
        the field, its value, and the policy.
    """
    for name, control in controls.items():
        for value in _few_values(control):
            other = policy.changed_by(Policy.from_settings({name: value}))
            if other != policy:
                yield name, value, other


def _slider(name: str, start: Setting, found: list[tuple[Setting, int]]) -> dict[str, Any]:
    """Places in the order of their values; the one where it starts has no point (-1)."""
    if not isinstance(start, str):
        found = sorted([*(each for each in found if each[0] != start), (start, -1)])
    elif start not in dict(found):
        found = [(start, -1), *found]
    numbers = [number for _, number in found]
    at = numbers.index(-1) if -1 in numbers else 0
    words = [_words(value) for value, _ in found]
    return {"name": name, "words": words, "points": numbers, "start": at}


def _words(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _point(shown: Drawing, drawing: Drawing) -> dict[str, Any]:
    """How a figure differs from the one on show."""
    if not same_frame(shown, drawing):
        figure = drawing.figure().to_plotly_json()
        return {"data": figure["data"], "layout": figure["layout"]}
    moved = {
        at: {axis: list(new[axis]) for axis in ("x", "y")}
        for at, (old, new) in enumerate(zip(shown.traces, drawing.traces, strict=True))
        if not same(old["x"], new["x"]) or not same(old["y"], new["y"])
    }
    return {"traces": list(moved), "moved": list(moved.values())}


def _few_values(control: ipywidgets.ValueWidget) -> list[Setting]:
    if isinstance(control, ipywidgets.Checkbox):
        return [False, True]
    if isinstance(control, ipywidgets.Dropdown):
        return list(control.options)
    every = range(control.min, control.max + 1, control.step)
    if len(every) <= FEW:
        return list(every)
    half, twice = control.value // 2, 2 * control.value
    within = {value for value in (half, twice) if control.min <= value <= control.max}
    return sorted({control.min, *within, control.max})
