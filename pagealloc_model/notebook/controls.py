"""Sliders and switches made from `Policy`, what they say, and replays that follow the last move."""

from __future__ import annotations

import asyncio
import html
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anywidget
import ipywidgets
import numpy as np

from pagealloc_model.base.errors import PolicyError, UsageError, known_names
from pagealloc_model.base.text import count_of
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import BOOL, CHOICE, NUMBERS, Setting
from pagealloc_model.predicted.replay import BY_RECLAIM, ELASTIC_SETTINGS
from pagealloc_model.show.figures.faceted import Drawing, Trace

if TYPE_CHECKING:
    from pagealloc_model.policy.policy import Policy
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.show.figures.faceted import Drawing


AS_RECORDED, OPENER = "pagealloc-as-recorded", "pagealloc-opener"
"""Classes: boxes named after the control beside them, and buttons that show and hide."""

_NAME_PARTS = """
function render({ model, el }) {
  el.style.display = "none";
  const set = (part, name, words) => {
    if (part.getAttribute(name) !== words) part.setAttribute(name, words);
  };
  // a box is preceded by a label that holds a space of no width
  const textOf = (label) => label.textContent.replace(/\\u200b/g, "").trim();
  const wordsOf = (part) => [...part.querySelectorAll(".widget-label, .widget-label-basic")]
    .map(textOf).find((words) => words) || "";
  const name = () => {
    for (const label of document.querySelectorAll(".widget-label")) {
      const words = textOf(label);
      const row = label.parentElement;
      if (!words || !row) continue;
      for (const part of row.querySelectorAll(
          ".noUi-handle, .widget-readout, select, input[type=number]"))
        set(part, "aria-label", words);
    }
    for (const box of document.querySelectorAll(".AS_RECORDED")) {
      const words = `as recorded: ${wordsOf(box.parentElement.firstElementChild)}`;
      for (const part of box.querySelectorAll("input")) set(part, "aria-label", words);
    }
    for (const button of document.querySelectorAll(".OPENER"))
      set(button, "aria-expanded", String(button.classList.contains("mod-active")));
  };
  name();
  // a figure that is drawn changes the page thousands of times: names follow when it is done
  let due = 0;
  const watcher = new MutationObserver(() => {
    due ||= setTimeout(() => { due = 0; name(); }, SOON_MS);
  });
  const changes = { childList: true, attributes: true, attributeFilter: ["class"] };
  watcher.observe(document.body, { ...changes, subtree: true });
  return () => { watcher.disconnect(); clearTimeout(due); };
}
export default { render };
"""
for _word, _stands_for in (("AS_RECORDED", AS_RECORDED), ("OPENER", OPENER), ("SOON_MS", "250")):
    _NAME_PARTS = _NAME_PARTS.replace(_word, _stands_for)

_STANDS_OUT = """
/* edges by 3 to 1 from white and from JupyterLab's dark ground alike (WCAG 2, 1.4.11) */
.jupyter-widgets {
  --jp-widgets-input-border-color: EDGE;
  --jp-widgets-slider-track-color: EDGE;
  --jp-widgets-slider-handle-border-color: EDGE;
}
.jupyter-widgets .noUi-target { background: EDGE; border-color: EDGE; }
.jupyter-widgets .noUi-handle { border: 1px solid EDGE; }
.jupyter-widgets select, .jupyter-widgets .widget-readout { border-color: EDGE; }
.jupyter-widgets :focus-visible, .jupyter-widgets .noUi-handle:focus,
.jupyter-widgets .widget-text input[type="text"]:focus-visible {
  outline: 2px solid FOCUS !important;
  outline-offset: 2px;
}
[data-jp-theme-light="false"] { --pagealloc-alert: #FF8A80; --pagealloc-note: #FFCC80; }
""".replace("EDGE", "#767676").replace("FOCUS", "#2F7DE1")


class SpokenNames(anywidget.AnyWidget):
    """Invisible; names what the page's labels are not bound to, and says which groups are open.

    Slider handles, numbers and menus get the words of their label; a box "as recorded" those of the
    control beside it. Edges of controls, and what has the keyboard's focus, stand out.
    """

    _esm = _NAME_PARTS
    _css = _STANDS_OUT


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


Request = TypeVar("Request")
Result = TypeVar("Result")


class LatestOnly(Generic[Request, Result]):
    """One worker thread; a newer request cancels the one being computed and replaces any waiting.

    Results and failures are handed to the event loop that created this object, so that widgets
    change on one thread only; without a running loop they are handed over on the worker.

    Args:
        compute: called on the worker as `compute(request, cancelled)`; should return early, with
            anything, once the event `cancelled` is set.
        deliver: gets the result of every request that was not overtaken.
        fail: gets the exception of every request that was not overtaken.
    """

    def __init__(
        self,
        compute: Callable[[Request, threading.Event], Result],
        deliver: Callable[[Result], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._compute = compute
        self._deliver = deliver
        self._fail = fail
        self._loop = _running_loop()
        self._owner = threading.get_ident()
        self._changed = threading.Condition()
        self._waiting: list[Request] = []
        self._cancelled = threading.Event()
        self._busy = False
        self._thread: threading.Thread | None = None

    def submit(self, request: Request) -> None:
        """Compute this request next, instead of any other."""
        with self._changed:
            self._cancelled.set()
            self._waiting = [request]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drop(self) -> None:
        """Deliver nothing of what was asked for so far."""
        with self._changed:
            self._cancelled.set()
            self._waiting = []
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being computed or waiting; False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy and not self._waiting, timeout)

    def hand_over(self, action: Callable[[], None]) -> None:
        """Run something where widgets may be changed; callable from any thread.

        At once on the thread that created this object: what waited for its event loop would come
        after whatever that thread does next.
        """
        is_elsewhere = threading.get_ident() != self._owner
        if is_elsewhere and self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(action)
        else:
            action()

    def _work(self) -> None:
        while True:
            request, cancelled = self._next()
            self._answer(request, cancelled)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> tuple[Request, threading.Event]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            self._busy = True
            self._cancelled = threading.Event()
            return self._waiting.pop(), self._cancelled

    def _answer(self, request: Request, cancelled: threading.Event) -> None:
        try:
            result = self._compute(request, cancelled)
        except Exception as error:  # shown in the widget, whatever it is
            failure = error
            if not cancelled.is_set():
                self.hand_over(lambda: self._fail(failure))
            return
        if not cancelled.is_set():
            self.hand_over(lambda: self._deliver(result))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


MOVING = ("x", "y", "z", "customdata", "text")
"""What of a trace may differ between two drawings of one frame."""
NOTES = "annotations"
"""What of a layout may differ."""
MOVED_IN_PLACE = ("scatter", "bar")
"""Types of traces that plotly moves without laying out the figure anew."""


@dataclass(frozen=True, kw_only=True)
class Moves:
    """How one drawing becomes another of the same frame.

    Attributes:
        coordinates: number of a trace -> what it has anew.
        in_place: whether the page can move them without laying out the figure anew: lines and bars
            that have other numbers in the same places.
        notes: all annotations where one differs, such as who has no value in a panel; else None.
    """

    coordinates: dict[int, Trace]
    in_place: bool
    notes: list[Any] | None = None


def moves_between(before: Drawing, after: Drawing) -> Moves | None:
    """What moved; None if more than coordinates and notes differs."""
    if not same_frame(before, after, but=NOTES):
        return None
    coordinates = {}
    for number, (old, new) in enumerate(zip(before.traces, after.traces, strict=True)):
        moved = {name: new[name] for name in MOVING if not same(old.get(name), new.get(name))}
        if moved:
            coordinates[number] = moved
    in_place = all(
        set(moved) <= {"x", "y"}
        and after.traces[number]["type"] in MOVED_IN_PLACE
        and all(map(_are_numbers, moved.values()))
        for number, moved in coordinates.items()
    )
    earlier, notes = (list(each.layout.get(NOTES, ())) for each in (before, after))
    return Moves(
        coordinates=coordinates,
        in_place=in_place,
        notes=None if same(earlier, notes) else notes,
    )


def same_frame(before: Drawing, after: Drawing, *, but: str = "") -> bool:
    """Whether two drawings differ in the coordinates of their traces only.

    Args:
        before: a drawing.
        after: another.
        but: a part of the layout that may differ too.
    """
    layouts = [
        {name: part for name, part in each.layout.items() if name != but}
        for each in (before, after)
    ]
    return (
        len(before.traces) == len(after.traces)
        and same(*layouts)
        and all(
            same(_frame(old), _frame(new))
            for old, new in zip(before.traces, after.traces, strict=True)
        )
    )


def same(first: Any, second: Any) -> bool:
    """Whether two values of a drawing are equal; nan equals nan."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return _same_arrays(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def _same_arrays(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return False
    mine, other = np.asarray(first), np.asarray(second)
    is_float = mine.dtype.kind == other.dtype.kind == "f"
    return np.array_equal(mine, other, equal_nan=is_float)


def _frame(trace: Trace) -> Trace:
    """The trace without coordinates, but with the names of those that it has."""
    kept = {name: each for name, each in trace.items() if name not in MOVING}
    return kept | {"has": [name for name in MOVING if trace.get(name) is not None]}


def _are_numbers(values: Sequence[Any]) -> bool:
    return np.asarray(values).dtype.kind in "iuf"


COORDINATES = ("x", "y", "z")


def no_effect_words(names: Sequence[str], replay: Replay | None) -> str:
    """What to say where the figure did not move.

    Args:
        names: policy settings that changed.
        replay: under the new policy, None where what is drawn is no replay of the recording.
    """
    reasons = dict.fromkeys(_reason(name, replay) for name in names)
    return f"no effect here: {'; '.join(reasons)}"


def changed_settings(before: Policy, after: Policy) -> list[str]:
    """Names of the settings that two policies differ in."""
    old, new = before.given(), after.given()
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


def same_coordinates(first: Drawing, second: Drawing) -> bool:
    """Whether two drawings have the same points."""
    return len(first.traces) == len(second.traces) and all(
        same(mine.get(axis), other.get(axis))
        for mine, other in zip(first.traces, second.traces, strict=True)
        for axis in COORDINATES
    )


def _reason(name: str, replay: Replay | None) -> str:
    if replay is None:
        return f"all that is drawn is the same, whatever {name} is"
    if replay.assumptions.reclaim == "literal" and name in (*ELASTIC_SETTINGS, *BY_RECLAIM):
        return f"{name} acts through reclaim and compaction, which are replayed as recorded"
    if name.startswith("ownership.") and replay.policy.pageblock_ownership in (None, "off"):
        return "pageblock_ownership is off"
    if name.startswith("highatomic"):
        return _highatomic_reason(replay)
    return f"the predictions agree in all that is drawn, whatever {name} is"


def _highatomic_reason(replay: Replay) -> str:
    most = int(replay.samples.blocks[..., 3].max(initial=0))
    if not most:
        return "no pageblock is reserved for atomic requests in this span"
    return f"the reserve stays at {count_of(most, 'pageblock')} at most, as it was"


ALERT, NOTE = "var(--pagealloc-alert, #B00020)", "var(--pagealloc-note, #5C3A00)"
"""Colours on white; `SpokenNames` has those on a dark ground."""


class Status(ipywidgets.HTML):
    """Progress, what is shown, errors; screen readers are told of changes."""

    def say(self, words: str, note: str = "") -> None:
        """What is going on; and a note, such as that a change has no effect.

        Args:
            words: one line.
            note: shown beside it, "" for none.
        """
        told = f'<span role="status">{html.escape(words)}</span>'
        if note:
            told += f'<br><span role="note" style="color:{NOTE}">{html.escape(note)}</span>'
        self.value = told

    def fail(self, error: Exception) -> None:
        """What went wrong, in the place where progress was."""
        kind = "" if type(error).__module__.startswith("pagealloc_model") else type(error).__name__
        words = ": ".join(part for part in ("error", kind, str(error)) if part)
        self.value = f'<span role="alert" style="color:{ALERT}">{html.escape(words)}</span>'
