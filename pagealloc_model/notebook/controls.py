"""Sliders and switches made from `Policy`, what they say, and replays that follow the last move."""

from __future__ import annotations

import asyncio
import html
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from typing import Any, Generic, TypeVar

import anywidget
import ipywidgets

from pagealloc_model.base.errors import PolicyError, UsageError, known_names
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import BOOL, CHOICE, NUMBERS, Setting

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
        labels, recorded, start = labels or {}, recorded or {}, start or {}
        known = policy_settings()
        for name in names:
            if name not in known:
                raise UsageError(
                    f"policy has no field {name!r}; {known_names(name, known, 'fields')}"
                )
        self._listeners: list[Callable[[Policy], None]] = []
        self._refusal_listeners: list[Callable[[PolicyError], None]] = []
        self._quiet = False
        self.values: dict[str, ipywidgets.ValueWidget] = {}
        self.as_recorded: dict[str, ipywidgets.Checkbox] = {}
        self._recorded: dict[str, Any] = {}
        rows = []
        for name in names:
            words = labels.get(name, name)
            control = _control(known[name], words, recorded.get(name), start.get(name))
            box = ipywidgets.Checkbox(
                value=True,
                description="as recorded",
                indent=False,
                tooltip=f"leave {control.description} as it was on the recorded machine",
                layout=ipywidgets.Layout(width="130px"),
            )
            box.add_class(AS_RECORDED)
            self.values[name], self.as_recorded[name] = control, box
            self._recorded[name] = control.value
            control.observe(lambda _, name=name: self._value_moved(name), "value")
            box.observe(lambda _, name=name: self._box_moved(name), "value")
            layout = ipywidgets.Layout(flex_flow="row wrap", align_items="center")
            rows.append(ipywidgets.HBox([control, box], layout=layout))
        for name, value in start.items():
            self.values[name].value = value
            self.as_recorded[name].value = False
        super().__init__(rows)

    @property
    def policy(self) -> Policy:
        """The fields that are not "as recorded".

        Raises:
            PolicyError: fields that exclude each other, such as bounds that cross.
        """
        taken = (name for name, box in self.as_recorded.items() if not box.value)
        return Policy.from_settings({name: self.values[name].value for name in taken})

    def on_change(
        self,
        listener: Callable[[Policy], None],
        refused: Callable[[PolicyError], None] = lambda _: None,
    ) -> None:
        """Call `listener(policy)` whenever the policy changes, or `refused(error)`.

        Args:
            listener: gets the policy.
            refused: gets the reason where controls ask for what no policy can be.
        """
        self._listeners.append(listener)
        self._refusal_listeners.append(refused)

    def tell(self) -> None:
        """Tell listeners of the policy, as if it had just changed."""
        if self._quiet:
            return
        try:
            policy = self.policy
        except PolicyError as error:
            for refused in self._refusal_listeners:
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
        settings = policy.given()
        self._quiet = True
        for name, control in self.values.items():
            value = settings.get(name, self._recorded[name])
            if isinstance(control, ipywidgets.IntSlider):
                control.step = math.gcd(control.step, int(value) - control.min)
                control.max = max(control.max, int(value))
                control.min -= max(0, -(-(control.min - int(value)) // control.step)) * control.step
            control.value = value
            self.as_recorded[name].value = name not in settings
        self._quiet = False
        self.tell()

    def _value_moved(self, name: str) -> None:
        if self._quiet:
            return
        if self.as_recorded[name].value:
            self.as_recorded[name].value = False
        else:
            self.tell()

    def _box_moved(self, name: str) -> None:
        if self.as_recorded[name].value:
            was_quiet, self._quiet = self._quiet, True
            self.values[name].value = self._recorded[name]
            self._quiet = was_quiet
        self.tell()


def _control(
    field: Field[object], words: str, recorded: Setting | None, wanted: Setting | None
) -> ipywidgets.ValueWidget:
    about = field.metadata
    start = recorded if recorded is not None else about["default"]
    tip = f"{about['kernel_name']}: {about['meaning']} ({about['source']})"
    look = {"description": words, "tooltip": tip, **_looks()}
    if about["kind"] == CHOICE:
        return ipywidgets.Dropdown(options=about["choices"], value=start, **look)
    if about["kind"] == NUMBERS:
        further = [each for each in (start, wanted) if each is not None]
        options = list(dict.fromkeys((*about["choices"], *further)))
        return ipywidgets.Dropdown(options=options, value=start or about["choices"][0], **look)
    if about["kind"] == BOOL:
        return ipywidgets.Checkbox(value=bool(start), indent=True, **look)
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


def number_slider(
    words: str, value: int, least: int, most: int, step: int = 1
) -> ipywidgets.IntSlider:
    """A slider for what is no policy field, looking as those of fields do."""
    span = {"value": value, "min": least, "max": most, "step": step}
    return ipywidgets.IntSlider(**span, description=words, continuous_update=False, **_looks())


def _looks() -> dict[str, object]:
    layout = ipywidgets.Layout(width=CONTROL_WIDTH)
    return {"style": {"description_width": LABEL_WIDTH}, "layout": layout}


Request = TypeVar("Request")
Result = TypeVar("Result")


class LatestOnly(Generic[Request, Result]):
    """One worker thread; a newer request cancels the one being computed and replaces any waiting.

    `compute(request, cancelled)` is to return early, with anything, once `cancelled` is set.

    Results and failures are handed to the event loop that created this object, so that widgets
    change on one thread only; without a running loop they are handed over on the worker.
    """

    def __init__(
        self,
        compute: Callable[[Request, threading.Event], Result],
        deliver: Callable[[Result], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._compute, self._deliver, self._fail = compute, deliver, fail
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        self._owner = threading.get_ident()
        self._changed = threading.Condition()
        self._waiting: list[Request] = []
        self._cancelled = threading.Event()
        self._busy = False
        self._thread: threading.Thread | None = None

    def submit(self, request: Request) -> None:
        """Compute this request next, instead of any other."""
        with self._changed:
            self._replace([request])
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def drop(self) -> None:
        """Deliver nothing of what was asked for so far."""
        with self._changed:
            self._replace([])

    def _replace(self, waiting: list[Request]) -> None:
        self._cancelled.set()
        self._waiting = waiting
        self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being computed or waiting; False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy and not self._waiting, timeout)

    def hand_over(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run something where widgets may be changed; callable from any thread.

        At once on the thread that created this object: what waited for its event loop would come
        after whatever that thread does next.
        """
        is_elsewhere = threading.get_ident() != self._owner
        if is_elsewhere and self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(action, *arguments)
        else:
            action(*arguments)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                self._busy = True
                cancelled = self._cancelled = threading.Event()
                request = self._waiting.pop()
            action: Callable[..., None] = self._deliver
            try:
                answer: Any = self._compute(request, cancelled)
            except Exception as error:  # shown in the widget, whatever it is
                action, answer = self._fail, error
            if not cancelled.is_set():
                self.hand_over(action, answer)
            with self._changed:
                self._busy = False
                self._changed.notify_all()


ALERT, NOTE = "var(--pagealloc-alert, #B00020)", "var(--pagealloc-note, #5C3A00)"
"""Colours on white; `SpokenNames` has those on a dark ground."""


class Status(ipywidgets.HTML):
    """Progress, what is shown, errors; screen readers are told of changes."""

    def say(self, words: str, note: str = "") -> None:
        """Say what is going on in one line; and a note, such as that a change has no effect."""
        line = f'<span role="status">{html.escape(words)}</span>'
        if note:
            line += f'<br><span role="note" style="color:{NOTE}">{html.escape(note)}</span>'
        self.value = line

    def fail(self, error: Exception) -> None:
        """Say what went wrong, in the place where progress was."""
        kind = "" if type(error).__module__.startswith("pagealloc_model") else type(error).__name__
        words = ": ".join(part for part in ("error", kind, str(error)) if part)
        self.value = f'<span role="alert" style="color:{ALERT}">{html.escape(words)}</span>'
