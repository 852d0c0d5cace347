"""Sliders and switches made from `Policy`: some of them, or all in groups that open and close."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field
from typing import Any

import anywidget
import ipywidgets
from ipywidgets import Layout
from ipywidgets.widgets.widget_bool import CheckboxStyle
from ipywidgets.widgets.widget_string import HTMLStyle

from pagealloc_model.base.errors import PolicyError, UsageError, known_names
from pagealloc_model.notebook import page_file
from pagealloc_model.notebook.page_widget import keep_all_messages
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import BOOL, CHOICE, NUMBERS, Setting


class SpokenNames(anywidget.AnyWidget):
    """Invisible; names what the page's labels are not bound to, and says which groups are open.

    Slider handles, numbers and menus get the words of their label; a box "as recorded" those of the
    control beside it. Edges of controls, and what has the keyboard's focus, stand out.
    """

    _esm = page_file("spoken_names.js")
    _css = page_file("controls.css") + page_file("explorer.css")


MOST_AT_FIRST = 6
"""Controls that are seen at once; a button shows the others."""
AS_RECORDED, FOLLOWS = "as recorded", "follows"
"""Words of the box beside a control that is not set: its value is the recorded one, or another
because it follows a field that is set, as min_free_kbytes does the order of pageblocks."""
SLIDER_STEPS = 256
"""A slider spans at most this many steps of a field's range, so that each stays within reach."""


class PolicyControls(ipywidgets.VBox):
    """One row per policy setting: its control, and "as recorded" to leave the field alone.

    Moving a control takes its "as recorded" away; ticking that again gives the field back.

    Args:
        names: settings of `Policy`, nested ones by dotted names, in the order to show them.
        labels: words for a field where its kernel name would not do.
        recorded: values of the recording, where known; controls start there.
        start: fields to set from the beginning, instead of leaving them as recorded.
        at_first: controls that are seen before "more" is pressed; None: all.

    Raises:
        UsageError: an unknown field.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        labels: Mapping[str, str] | None = None,
        recorded: Mapping[str, Setting] | None = None,
        start: Mapping[str, Setting] | None = None,
        at_first: int | None = MOST_AT_FIRST,
    ) -> None:
        labels, recorded, start = labels or {}, recorded or {}, start or {}
        known = policy_settings()
        self._listeners: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
        self._quiet = False
        keep_all_messages()
        self.values: dict[str, ipywidgets.ValueWidget] = {}
        self.as_recorded: dict[str, ipywidgets.Checkbox] = {}
        rows = []
        beside, plain = Layout(width="130px"), CheckboxStyle()
        for name in names:
            if name not in known:
                raise UsageError(
                    f"policy has no field {name!r}; {known_names(name, known, 'fields')}"
                )
            control = _control(
                known[name], labels.get(name, name), recorded.get(name), start.get(name)
            )
            box = ipywidgets.Checkbox(
                value=True,
                description=AS_RECORDED,
                indent=False,
                tooltip=f"leave {control.description} as it was on the recorded machine",
                layout=beside,
                style=plain,
            )
            box.add_class("pagealloc-as-recorded")
            self.values[name], self.as_recorded[name] = control, box
            for part in (control, box):
                part.observe(lambda change, name=name: self._moved(name, change["owner"]), "value")
            layout = Layout(flex_flow="row wrap", align_items="center")
            rows.append(ipywidgets.HBox([control, box], layout=layout))
        self._recorded = {name: control.value for name, control in self.values.items()}
        for name, value in start.items():
            self.values[name].value = value
            self.as_recorded[name].value = False
        self._moved_last = ""
        self._in_view = list(self.values)[:at_first]
        first, others = rows[:at_first], rows[len(self._in_view) :]
        if not others:
            super().__init__(first)
            return
        words = f"more controls ({len(others)})"
        tip = "show or hide the controls that are needed less often"
        self.more = ipywidgets.ToggleButton(
            description=words, tooltip=tip, icon="caret-right", layout=Layout(width="auto")
        )
        self.more.add_class("pagealloc-opener")
        hidden = ipywidgets.VBox(others, layout=Layout(display="none"))
        self.more.observe(lambda _: self._open(hidden), "value")
        super().__init__([*first, self.more, hidden])

    def _open(self, hidden: ipywidgets.VBox) -> None:
        show_if(self.more.value, hidden)
        self.more.icon = "caret-down" if self.more.value else "caret-right"

    @property
    def policy(self) -> Policy:
        """The fields that are not "as recorded".

        Raises:
            PolicyError: fields that exclude each other, such as bounds that cross.
        """
        taken = (name for name, box in self.as_recorded.items() if not box.value)
        return Policy.from_settings({name: self.values[name].value for name in taken})

    def next_policies(self) -> Iterator[Policy]:
        """The policies one step away: of the control moved last, or at first of all in view."""
        taken = self.policy.given()
        for name in [self._moved_last] if self._moved_last else self._in_view:
            for value in next_values(self.values[name]):
                try:
                    yield Policy.from_settings(taken | {name: value})
                except PolicyError:
                    continue  # bounds that cross

    def on_change(
        self,
        listener: Callable[[Policy], None],
        refused: Callable[[PolicyError], None] = lambda _: None,
    ) -> None:
        """Call `listener(policy)` when the policy changes, `refused(error)` when it can be none."""
        self._listeners.append((listener, refused))

    def tell(self) -> None:
        """Tell listeners of the policy, as if it had just changed."""
        if self._quiet:
            return
        outcome, place = None, 0
        try:
            outcome = self.policy
        except PolicyError as error:
            outcome, place = error, 1
        for listeners in self._listeners:
            listeners[place](outcome)

    def reset(self) -> None:
        """All fields as recorded."""
        self.take(Policy())

    def take(self, policy: Policy) -> None:
        """Set every control as a policy has it; listeners are told once."""
        settings = policy.given()
        self._quiet = True
        for name, control in self.values.items():
            _put(control, settings.get(name, self._recorded[name]))
            self.as_recorded[name].value = name not in settings
        self._quiet = False
        self.tell()

    def follow(self, settings: Mapping[str, Setting]) -> None:
        """Show what is in effect on the controls that are not set; listeners are not told."""
        self._quiet = True
        for name, control in self.values.items():
            box, recorded = self.as_recorded[name], self._recorded[name]
            value = recorded
            if box.value and isinstance(control, ipywidgets.IntSlider):
                value = settings.get(name, recorded)
                _put(control, value)
            box.description = AS_RECORDED if value == recorded else FOLLOWS
        self._quiet = False

    def _moved(self, name: str, part: ipywidgets.Widget) -> None:
        if self._quiet:
            return
        box = self.as_recorded[name]
        self._moved_last = name
        if part is box and box.value:
            self._quiet = True
            self.values[name].value = self._recorded[name]
            self._quiet = False
        elif part is not box and box.value:
            box.value = False  # which tells
            return
        self.tell()


def _put(control: ipywidgets.ValueWidget, value: Setting) -> None:
    """Set a control; a slider that does not reach a value is made to."""
    if isinstance(control, ipywidgets.IntSlider):
        control.step = math.gcd(control.step, int(value) - control.min)
        control.max = max(control.max, int(value))
        control.min -= max(0, -(-(control.min - int(value)) // control.step)) * control.step
    control.value = value


def _control(
    field: Field[object], words: str, recorded: Setting | None, wanted: Setting | None
) -> ipywidgets.ValueWidget:
    about = field.metadata
    start = recorded if recorded is not None else about["default"]
    tip = f"{about['kernel_name']}: {about['meaning']} ({about['source']})"
    look = {"description": words, "tooltip": tip, **_looks()}
    if about["kind"] == BOOL:
        return ipywidgets.Checkbox(value=bool(start), indent=True, **look)
    if about["kind"] in (CHOICE, NUMBERS):
        options = about["choices"]
        if about["kind"] == NUMBERS:
            further = [value for value in (start, wanted) if value is not None]
            options, start = list(dict.fromkeys((*options, *further))), start or options[0]
        return ipywidgets.Dropdown(options=options, value=start, **look)
    least, step = about["minimum"], about["step"]
    start = least if start is None else start
    # sliders snap to minimum + n * step, and a snap must not look like a move
    step = step if wanted is None else math.gcd(step, int(wanted) - start)
    furthest = start if wanted is None else max(start, int(wanted))
    return ipywidgets.IntSlider(
        value=start,
        min=least + (start - least) % step,
        # the field's maximum, or less where that would make steps too fine
        max=min(about["maximum"], max(least + SLIDER_STEPS * about["step"], 4 * furthest)),
        step=step,
        **look | {"description": words + (f" ({about['unit']})" if about["unit"] else "")},
    )


def next_values(control: ipywidgets.ValueWidget) -> list[Any]:
    """The values that one step of a control leads to."""
    if isinstance(control, ipywidgets.Checkbox):
        return [not control.value]
    if isinstance(control, ipywidgets.IntSlider):
        steps = (control.value - control.step, control.value + control.step)
        return [value for value in steps if control.min <= value <= control.max]
    values = [option[1] if isinstance(option, tuple) else option for option in control.options]
    return [value for value in values if value != control.value]


def number_slider(
    words: str, value: int, least: int, most: int, step: int = 1
) -> ipywidgets.IntSlider:
    """A slider for what is no policy field, looking as those of fields do."""
    span = {"value": value, "min": least, "max": most, "step": step}
    return ipywidgets.IntSlider(**span, description=words, continuous_update=False, **_looks())


def _looks() -> dict[str, object]:
    return {"style": {"description_width": "300px"}, "layout": Layout(width="660px")}


OPEN_AT_FIRST = "per-CPU lists"


class GroupedControls(PolicyControls):
    """A control per setting, with its kernel name, in groups that open, close and are found."""

    def __init__(self, recorded: Mapping[str, Setting], start: Mapping[str, Setting]) -> None:
        settings = policy_settings()
        super().__init__(list(settings), recorded=recorded, start=start, at_first=None)
        self.rows = dict(zip(settings, self.children, strict=True))
        self.openers: dict[str, ipywidgets.ToggleButton] = {}
        self._words: dict[str, str] = {}
        self._groups: dict[str, list[str]] = {}
        self.search = ipywidgets.Text(
            placeholder="name, kernel name or meaning",
            description="find",
            tooltip="shows the fields whose name, kernel name, topic or meaning has these words",
            style={"description_width": "36px"},
            layout=Layout(width="97%"),
        )
        beside = Layout(width="104px", flex="0 0 auto")
        below = Layout(flex="1 0 100%", min_width="0", height="auto")
        plain = HTMLStyle()
        for name, field in settings.items():
            about = [field.metadata[part] for part in ("kernel_name", "group", "meaning")]
            self._words[name] = " ".join([name, *about]).lower()
            self._groups.setdefault(about[1], []).append(name)
            control, box = self.values[name], self.as_recorded[name]
            # the label stands above the control, and "as recorded" beside it
            look = {"width": "auto", "height": "auto", "min_width": "0", "flex": "1 1 180px"}
            if isinstance(control, ipywidgets.Checkbox):
                control.indent = False
            else:
                look["flex_flow"] = "row wrap"
            control.layout, control.style.description_width = Layout(**look), "100%"
            box.layout = beside
            words, _, meaning = map(html.escape, about)
            kernel_name = ipywidgets.HTML(
                f'<code title="{meaning}" style="font-size:11px">{words}</code>',
                layout=below,
                style=plain,
            )
            self.rows[name].layout.align_items = "flex-end"
            self.rows[name].children = (control, box, kernel_name)
        changed = {settings[name].metadata["group"] for name in start}
        parts: list[ipywidgets.Widget] = [self.search]
        for group, members in self._groups.items():
            opener = self.openers[group] = ipywidgets.ToggleButton(
                value=group == OPEN_AT_FIRST or group in changed,
                description=f"{group} ({len(members)})",
                tooltip=f"show or hide the fields of: {group}",
                layout=Layout(width="97%"),
            )
            opener.add_class("pagealloc-opener")
            opener.observe(lambda _, group=group: self._arrange(group), "value")
            parts += [opener, ipywidgets.VBox([self.rows[name] for name in members])]
        self.children = parts
        self.search.observe(lambda _: self._arrange(), "value")
        self._arrange()

    def _arrange(self, toggled: str = "") -> None:
        """Show the fields that have all words searched for, of the groups that are open.

        A search opens groups with such fields and hides those without, until one is toggled.
        """
        words = self.search.value.lower().split()
        for group, opener, box in zip(
            self._groups, self.children[1::2], self.children[2::2], strict=True
        ):
            if toggled not in ("", group):
                continue
            members = self._groups[group]
            hits = [all(word in self._words[name] for word in words) for name in members]
            for row, is_hit in zip(box.children, hits, strict=True):
                show_if(is_hit, row)
            show_if(any(hits), opener)
            show_if(any(hits) if words and not toggled else opener.value, box)
            opener.icon = "caret-down" if opener.value else "caret-right"


def show_if(is_shown: bool, widget: ipywidgets.Widget) -> None:
    """Show a widget or hide it."""
    widget.layout.display = None if is_shown else "none"
