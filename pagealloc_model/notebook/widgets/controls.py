"""Controls for policies, generated from the metadata of `Policy`'s fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field

import ipywidgets

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.unknown_name import known_names
from pagealloc_model.notebook.widgets.accessible import AS_RECORDED
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import BOOL, CHOICE, NUMBERS, Setting

LABEL_WIDTH = "300px"
CONTROL_WIDTH = "660px"
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
    ) -> None:
        known = policy_settings()
        unknown = [name for name in names if name not in known]
        if unknown:
            raise UsageError(
                f"policy has no field {unknown[0]!r}; {known_names(unknown[0], known, 'fields')}"
            )
        self._listeners: list[Callable[[Policy], None]] = []
        self._told_of_refusals: list[Callable[[PolicyError], None]] = []
        self._quiet = False
        self.values = {
            name: _control(
                known[name],
                (labels or {}).get(name, name),
                (recorded or {}).get(name),
                (start or {}).get(name),
            )
            for name in names
        }
        self._recorded = {name: control.value for name, control in self.values.items()}
        self.as_recorded = {name: _as_recorded(self.values[name]) for name in names}
        for name in names:
            self.values[name].observe(self._value_moved(name), "value")
            self.as_recorded[name].observe(self._given_back(name), "value")
        for name, value in (start or {}).items():
            self.values[name].value = value
            self.as_recorded[name].value = False
        super().__init__([_row(self.values[name], self.as_recorded[name]) for name in names])

    @property
    def policy(self) -> Policy:
        """The fields that are not "as recorded".

        Raises:
            PolicyError: fields that exclude each other, such as bounds that cross.
        """
        return Policy.from_settings(
            {
                name: control.value
                for name, control in self.values.items()
                if not self.as_recorded[name].value
            }
        )

    def on_change(self, listener: Callable[[Policy], None]) -> None:
        """Call `listener(policy)` whenever the policy changes."""
        self._listeners.append(listener)

    def on_refusal(self, listener: Callable[[PolicyError], None]) -> None:
        """Call `listener(error)` whenever the controls ask for what no policy can be."""
        self._told_of_refusals.append(listener)

    def tell(self) -> None:
        """Tell listeners of the policy, as if it had just changed."""
        if self._quiet:
            return
        try:
            policy = self.policy
        except PolicyError as error:
            for refused in self._told_of_refusals:
                refused(error)
            return
        for listener in self._listeners:
            listener(policy)

    def reset(self) -> None:
        """All fields as recorded."""
        self._quiet = True
        for box in self.as_recorded.values():
            box.value = True
        self._quiet = False
        self.tell()

    def take(self, policy: Policy) -> None:
        """Set every control as a policy has it; listeners are told once.

        A slider that does not reach a value is made to.
        """
        given = policy.given()
        self._quiet = True
        for name, control in self.values.items():
            wanted = given.get(name, self._recorded[name])
            if isinstance(control, ipywidgets.IntSlider):
                _make_reach(control, int(wanted))
            control.value = wanted
            self.as_recorded[name].value = name not in given
        self._quiet = False
        self.tell()

    def _value_moved(self, name: str) -> Callable[[object], None]:
        def moved(_: object) -> None:
            if self._quiet:
                return
            if self.as_recorded[name].value:
                self.as_recorded[name].value = False
            else:
                self.tell()

        return moved

    def _given_back(self, name: str) -> Callable[[object], None]:
        def given_back(_: object) -> None:
            if self.as_recorded[name].value:
                was_quiet, self._quiet = self._quiet, True
                self.values[name].value = self._recorded[name]
                self._quiet = was_quiet
            self.tell()

        return given_back


def _control(
    each: Field[object], words: str, recorded: Setting | None, wanted: Setting | None
) -> ipywidgets.IntSlider | ipywidgets.Checkbox | ipywidgets.Dropdown:
    about = each.metadata
    start = recorded if recorded is not None else about["default"]
    tip = f"{about['kernel_name']}: {about['meaning']} ({about['source']})"
    if about["kind"] == CHOICE:
        return ipywidgets.Dropdown(
            options=about["choices"], value=start, description=words, tooltip=tip, **_looks()
        )
    if about["kind"] == NUMBERS:
        given = [each for each in (start, wanted) if each is not None]
        return ipywidgets.Dropdown(
            options=list(dict.fromkeys((*about["choices"], *given))),
            value=start or about["choices"][0],
            description=words,
            tooltip=tip,
            **_looks(),
        )
    if about["kind"] == BOOL:
        return ipywidgets.Checkbox(
            value=bool(start), description=words, tooltip=tip, indent=True, **_looks()
        )
    start = about["minimum"] if start is None else start
    # sliders snap to minimum + n * step, and a snap must not look like a move
    step = about["step"] if wanted is None else math.gcd(about["step"], int(wanted) - start)
    lowest = about["minimum"] + (start - about["minimum"]) % step
    unit = f" ({about['unit']})" if about["unit"] else ""
    return ipywidgets.IntSlider(
        value=start,
        min=lowest,
        max=_reach(about, start if wanted is None else max(start, int(wanted))),
        step=step,
        description=words + unit,
        tooltip=tip,
        **_looks(),
    )


def number_slider(
    words: str, value: int, least: int, most: int, step: int = 1
) -> ipywidgets.IntSlider:
    """A slider for what is no policy field, looking as those of fields do."""
    return ipywidgets.IntSlider(
        value=value,
        min=least,
        max=most,
        step=step,
        description=words,
        continuous_update=False,
        **_looks(),
    )


def _looks() -> dict[str, object]:
    return {
        "style": {"description_width": LABEL_WIDTH},
        "layout": ipywidgets.Layout(width=CONTROL_WIDTH),
    }


def _reach(about: Mapping[str, int], start: int) -> int:
    """The end of a slider: the field's maximum, or less where that would make steps too fine."""
    wanted = max(about["minimum"] + SLIDER_STEPS * about["step"], 4 * start)
    return min(about["maximum"], wanted)


def _make_reach(slider: ipywidgets.IntSlider, value: int) -> None:
    """Give a slider the range and the step that a value needs."""
    slider.step = math.gcd(slider.step, value - slider.min)
    slider.max = max(slider.max, value)
    while slider.min > value:
        slider.min -= slider.step


def _as_recorded(control: ipywidgets.ValueWidget) -> ipywidgets.Checkbox:
    box = ipywidgets.Checkbox(
        value=True,
        description="as recorded",
        indent=False,
        tooltip=f"leave {control.description} as it was on the recorded machine",
        layout=ipywidgets.Layout(width="130px"),
    )
    box.add_class(AS_RECORDED)
    return box


def _row(control: ipywidgets.ValueWidget, box: ipywidgets.Checkbox) -> ipywidgets.HBox:
    return ipywidgets.HBox(
        [control, box], layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center")
    )
