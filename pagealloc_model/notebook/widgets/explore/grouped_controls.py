"""All policy controls by topic, in a column narrow enough to stand beside the figures."""

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
    """A control per policy setting, with its kernel name, in groups that open, close and are found.

    Args:
        recorded: values of the recording, where known; controls start there.
        start: settings that are not as recorded at the beginning.

    Attributes:
        search: words to find fields by; "" shows all groups as the user left them.
        openers: the button of each group.
        rows: of each field: control, "as recorded", kernel name.
    """

    def __init__(self, recorded: Mapping[str, Setting], start: Mapping[str, Setting]) -> None:
        settings = policy_settings()
        super().__init__(list(settings), recorded=recorded, start=start)
        self.rows = dict(zip(settings, self.children, strict=True))
        self._groups: dict[str, list[str]] = {}
        self._boxes: dict[str, ipywidgets.VBox] = {}
        self.search = ipywidgets.Text(
            placeholder="find a field: name, kernel name, meaning",
            description="find",
            tooltip="shows the fields whose name, kernel name, topic or meaning has these words",
            style={"description_width": "36px"},
            layout=ipywidgets.Layout(width="97%"),
        )
        for name, each in settings.items():
            _narrow(self.values[name], self.as_recorded[name])
            row = self.rows[name]
            row.layout.align_items = "flex-end"
            row.children = (*row.children, _kernel_name(each.metadata))
            self._groups.setdefault(each.metadata["group"], []).append(name)
        moved = {settings[name].metadata["group"] for name in start}
        self.openers = {}
        shown: list[ipywidgets.Widget] = []
        for group, members in self._groups.items():
            box = ipywidgets.VBox([self.rows[name] for name in members])
            self._boxes[group] = box
            self.openers[group] = self._opener(group, group == OPEN_AT_FIRST or group in moved)
            shown += [self.openers[group], box]
        self.children = (self.search, *shown)
        self.search.observe(lambda _: self._find(), "value")

    def _find(self) -> None:
        """Show the fields that have all words; groups without any go, others open."""
        words = self.search.value.lower().split()
        settings = policy_settings()
        for group, members in self._groups.items():
            found = [name for name in members if _has(name, settings[name].metadata, words)]
            for name in members:
                self.rows[name].layout.display = None if name in found else "none"
            self.openers[group].layout.display = None if found else "none"
            is_open = bool(found) if words else self.openers[group].value
            self._boxes[group].layout.display = None if is_open else "none"

    def _opener(self, group: str, is_open: bool) -> ipywidgets.ToggleButton:
        """A button that shows and hides a group."""
        box = self._boxes[group]
        button = ipywidgets.ToggleButton(
            value=is_open,
            description=f"{group} ({len(box.children)})",
            tooltip=f"show or hide the fields of: {group}",
            icon="caret-down" if is_open else "caret-right",
            layout=ipywidgets.Layout(width="97%"),
        )
        button.add_class(OPENER)

        def follow(_: object = None) -> None:
            box.layout.display = None if button.value else "none"
            button.icon = "caret-down" if button.value else "caret-right"

        follow()
        button.observe(follow, "value")
        return button


def _has(name: str, about: Mapping[str, Any], words: list[str]) -> bool:
    """Whether a field's name, kernel name, topic or meaning has all words."""
    told = " ".join([name, about["kernel_name"], about["group"], about["meaning"]]).lower()
    return all(word in told for word in words)


def _narrow(control: ipywidgets.ValueWidget, box: ipywidgets.Checkbox) -> None:
    """Put the label above the control, and "as recorded" beside it."""
    control.layout.width, control.layout.flex = "auto", "1 1 180px"
    control.layout.height, control.layout.min_width = "auto", "0"
    control.style.description_width = "100%"
    if isinstance(control, ipywidgets.Checkbox):
        control.indent = False
    else:
        control.layout.flex_flow = "row wrap"
    box.layout.width, box.layout.flex = "104px", "0 0 auto"


def _kernel_name(about: Mapping[str, Any]) -> ipywidgets.HTML:
    name, meaning = html.escape(about["kernel_name"]), html.escape(about["meaning"])
    return ipywidgets.HTML(
        f'<code title="{meaning}" style="font-size:11px">{name}</code>',
        layout=ipywidgets.Layout(flex="1 0 100%", min_width="0", height="auto"),
    )
