"""An explorer's figure with a menu in place of its controls, for pages without a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import ipywidgets
import plotly.graph_objects as go

from pagealloc_model.policy import Policy
from pagealloc_model.widgets.chart import same_frame

if TYPE_CHECKING:
    from pagealloc_model.policy_fields import Setting
    from pagealloc_model.widgets.explorer import Explorer

FEW = 11
"""Controls with this many values offer each of them."""


def with_choices(explorer: Explorer) -> go.Figure:
    """The figure on show, and a menu that swaps its predictions for those of other policies.

    Each entry changes one field of the policy on show. Entries whose figure has other panels than
    the one on show are left out.
    """
    shown = go.Figure(explorer.chart.figure)
    policy = explorer.controls.policy
    choices = [(str(policy), shown)]
    offered = {name: explorer.controls.values[name] for name in explorer.in_menus}
    for other in other_policies(policy, offered):
        figure = explorer.view_of(other).figure
        if same_frame(shown, figure):
            choices.append((str(other), figure))
    moved = [
        index
        for index in range(len(shown.data))
        if any(_moved(shown.data[index], figure.data[index]) for _, figure in choices)
    ]
    shown.update_layout(
        updatemenus=[_menu([_button(label, figure, moved) for label, figure in choices])]
    )
    return shown


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


def _moved(old: Any, new: Any) -> bool:
    return list(old.x) != list(new.x) or list(old.y) != list(new.y)


def _button(label: str, figure: go.Figure, moved: list[int]) -> dict[str, Any]:
    coordinates = {axis: [list(figure.data[index][axis]) for index in moved] for axis in ("x", "y")}
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
