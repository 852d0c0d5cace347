"""All policy controls, gathered under the groups that the fields name."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import ipywidgets

from pagealloc_model.notebook.widgets.accessible import OPENER
from pagealloc_model.notebook.widgets.controls import PolicyControls
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.policy.policy_fields import Setting

OPEN_AT_FIRST = "per-CPU lists"


class GroupedControls(PolicyControls):
    """A control per policy setting, with its kernel name, in groups that open and close.

    Args:
        recorded: values of the recording, where known; controls start there.
        start: settings that are not as recorded at the beginning.
    """

    def __init__(self, recorded: Mapping[str, Setting], start: Mapping[str, Setting]) -> None:
        settings = policy_settings()
        super().__init__(list(settings), recorded=recorded, start=start)
        rows = dict(zip(settings, self.children, strict=True))
        groups: dict[str, list[ipywidgets.HBox]] = {}
        for name, each in settings.items():
            _narrow(self.values[name], self.as_recorded[name])
            rows[name].layout.flex_flow = "row nowrap"
            rows[name].children = (*rows[name].children, _kernel_name(each.metadata))
            groups.setdefault(each.metadata["group"], []).append(rows[name])
        moved = {settings[name].metadata["group"] for name in start}
        self.openers = {}
        shown = []
        for group, members in groups.items():
            box = ipywidgets.VBox(members)
            self.openers[group] = _opener(group, box, group == OPEN_AT_FIRST or group in moved)
            shown += [self.openers[group], box]
        self.children = tuple(shown)


def _narrow(control: ipywidgets.ValueWidget, box: ipywidgets.Checkbox) -> None:
    """Leave room for the kernel's name in the row."""
    control.style.description_width = "290px"
    control.layout.width, control.layout.flex = "550px", "0 0 auto"
    box.layout.width, box.layout.flex = "110px", "0 0 auto"


def _kernel_name(about: Mapping[str, Any]) -> ipywidgets.HTML:
    name, meaning = html.escape(about["kernel_name"]), html.escape(about["meaning"])
    return ipywidgets.HTML(
        f'<code title="{meaning}" style="font-size:11px">{name}</code>',
        layout=ipywidgets.Layout(flex="1 1 0", min_width="0"),
    )


def _opener(group: str, box: ipywidgets.VBox, is_open: bool) -> ipywidgets.ToggleButton:
    """A button that shows and hides a group."""
    button = ipywidgets.ToggleButton(
        value=is_open,
        description=f"{group} ({len(box.children)})",
        tooltip=f"show or hide the fields of: {group}",
        icon="caret-down" if is_open else "caret-right",
        layout=ipywidgets.Layout(width="320px"),
    )

    button.add_class(OPENER)

    def follow(_: object = None) -> None:
        box.layout.display = None if button.value else "none"
        button.icon = "caret-down" if button.value else "caret-right"

    follow()
    button.observe(follow, "value")
    return button
