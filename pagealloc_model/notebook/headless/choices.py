"""An explorer's figure with a menu in place of its controls, for pages without a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import ipywidgets
import plotly.graph_objects as go

from pagealloc_model.notebook.widgets.moves import same, same_frame
from pagealloc_model.policy.policy import Policy
from pagealloc_model.show.figures.drawing import Drawing, drawing_of
from pagealloc_model.show.figures.lanes import Trace

if TYPE_CHECKING:
    from pagealloc_model.notebook.widgets.explorer import Explorer
    from pagealloc_model.policy.policy_fields import Setting

FEW = 11
"""Controls with this many values offer each of them."""


def with_choices(explorer: Explorer) -> go.Figure:
    """The figure on show, and a menu that swaps its predictions for those of other policies.

    Each entry changes one field of the policy on show. Entries whose figure has other panels than
    the one on show are left out.
    """
    shown = explorer.chart.picture.drawing
    policy = explorer.controls.policy
    choices = [(str(policy), shown)]
    offered = {name: explorer.controls.values[name] for name in explorer.in_menus}
    for other in other_policies(policy, offered):
        drawing = drawing_of(explorer.view_of(other).figure)
        if same_frame(shown, drawing):
            choices.append((str(other), drawing))
    moved = [
        index
        for index, trace in enumerate(shown.traces)
        if any(_moved(trace, drawing.traces[index]) for _, drawing in choices)
    ]
    buttons = [_button(label, drawing, moved) for label, drawing in choices]
    return shown.figure().update_layout(updatemenus=[_menu(buttons)])


def other_policies(policy: Policy, controls: dict[str, ipywidgets.ValueWidget]) -> Iterator[Policy]:
    """A policy with one field changed at a time, to a few values of its control's range."""
    for name, control in controls.items():
        for value in _few_values(control):
            other = policy.changed_by(Policy.from_settings({name: value}))
            if other != policy:
                yield other


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


def _moved(old: Trace, new: Trace) -> bool:
    return not same(old["x"], new["x"]) or not same(old["y"], new["y"])


def _button(label: str, drawing: Drawing, moved: list[int]) -> dict[str, Any]:
    coordinates = {axis: [list(drawing.traces[at][axis]) for at in moved] for axis in ("x", "y")}
    return {"label": label, "method": "restyle", "args": [coordinates, moved]}


def _menu(buttons: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "buttons": buttons,
        "x": 1,
        "xanchor": "right",
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 26},
        "showactive": True,
        "bgcolor": "white",
    }
