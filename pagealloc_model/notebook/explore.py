"""The explorer: one widget for any recording, with all policy fields, base and candidate."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import numpy as np
import traitlets
from ipywidgets import Layout

import pagealloc_model as pm
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.notebook.controls import GroupedControls, PolicyControls, SpokenNames, show_if
from pagealloc_model.notebook.explore_tabs import (
    TABS,
    Question,
    Sides,
    SidesOf,
    Window,
    as_python,
    check_names,
    read_question,
)
from pagealloc_model.notebook.page_widget import FoldedHTML, PageWidget, page_code
from pagealloc_model.notebook.picture import Chart, Picture
from pagealloc_model.notebook.view import (
    Answering,
    LatestOnly,
    changed_settings,
    unmoved_words,
    why_still,
)
from pagealloc_model.notebook.what_changes import (
    COMPARING,
    NOTHING_ASKED,
    changing_rows,
    difference_html,
)
from pagealloc_model.numbers.comparison import recorded_values
from pagealloc_model.policy.policy import AUTO, Policy
from pagealloc_model.show.figures.faceted import GRID, INK, MODEBAR, Drawing, scatter

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.trace.columns import Trace

FILL = "rgba(128,128,128,0.5)"
"""Seen on white and on a dark ground."""
PICTURE_FIRST_S = 0.1
"""A picture leaves in less, if comparing in words does not take the interpreter meanwhile."""
ELSEWHERE = "nothing moves in this tab; what changes is told above"


class Timeline(ipywidgets.VBox):
    """Events per second over the recording; a brush or the slider below picks a part of it."""

    def __init__(self, trace: Trace, start_ns: int, seconds: float, window: Window | None) -> None:
        finest = seconds / 1000  # the slider has about as many positions
        power = 10.0 ** np.floor(np.log10(finest))
        step = next(size * power for size in (1, 2, 5, 10) if size * power >= finest)
        self._seconds = float(np.ceil(seconds / step) * step)
        self.slider = ipywidgets.FloatRangeSlider(
            value=window or (0.0, self._seconds),
            min=0.0,
            max=self._seconds,
            step=float(step),
            readout_format=".2f" if step >= 0.01 else ".3f",
            continuous_update=False,
            description="drag above, or window (s)",
            tooltip="the part of the recording that is drawn; replays still begin at its start",
            style={"description_width": "170px"},
            layout=Layout(flex="1 1 300px", max_width="900px"),
        )
        whole = _button("Show the whole recording", "instead of a part of it", self.pick)
        self.strip = Picture(_strip(trace, start_ns, seconds))
        self.strip.observe(self._brushed, "brushed")
        super().__init__([self.strip, _in_a_row(self.slider, whole)])

    @property
    def window(self) -> Window | None:
        """The part picked, None for the whole recording."""
        begin, end = self.slider.value
        return None if (begin, end) == (0.0, self._seconds) else (float(begin), float(end))

    def pick(self, window: Window | None = None) -> None:
        """A part of the recording, None for all of it."""
        self.slider.value = window or (0.0, self._seconds)

    def _brushed(self, change: Mapping[str, Any]) -> None:
        begin, end = sorted(np.clip(change["new"], 0.0, self._seconds))
        if end - begin >= self.slider.step:
            self.pick((float(begin), float(end)))


def _button(words: str, tooltip: str, act: Callable[[], None]) -> ipywidgets.Button:
    """A button as wide as its words."""
    button = ipywidgets.Button(description=words, tooltip=tooltip, layout=Layout(width="auto"))
    button.on_click(lambda _: act())
    return button


def _in_a_row(*widgets: ipywidgets.Widget) -> ipywidgets.HBox:
    """Widgets beside each other, below each other where there is no room."""
    return ipywidgets.HBox(list(widgets), layout=Layout(flex_flow="row wrap"))


def _strip(trace: Trace, start_ns: int, seconds: float) -> Drawing:
    """Events per second over the recording, to be brushed."""
    counts, edges = np.histogram(trace.time_ns, 200, (start_ns, start_ns + seconds * 1e9))
    middles = ((edges[:-1] + edges[1:]) / 2 - start_ns) / 1e9
    marks = {"line": {"color": INK, "width": 1}, "marker": {"size": 1, "color": INK}}
    look = marks | {"fill": "tozeroy", "fillcolor": FILL, "meta": "timeline"}
    rates = counts / (edges[1] - edges[0]) * 1e9
    line = scatter(middles, rates, "page-allocator events", "lines+markers", **look)
    axis = {"gridcolor": GRID, "linecolor": INK, "zeroline": False}
    y_title = {"text": "events/s", "font": {"size": 9}}
    layout = {
        "height": 72,
        "margin": {"l": 70, "r": 20, "t": 4, "b": 20},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "modebar": MODEBAR,
        "dragmode": "select",
        "selectdirection": "h",
        "xaxis": axis | {"ticksuffix": " s"},
        "yaxis": axis | {"title": y_title, "rangemode": "tozero", "fixedrange": True, "nticks": 3},
        "font": {"family": "DejaVu Sans, Arial, sans-serif", "size": 11, "color": INK},
    }
    return Drawing(traces=[line], layout=layout)


class ChangedFields(PageWidget):
    """A line for each field that is not as recorded, and a button that takes the last change back.

    Steps of one field right after each other, such as those of a slider under a key, are one
    change.
    """

    FOLLOWED = ("rows", "undoable")
    _esm = page_code("changed_fields.js")
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    undoable = traitlets.Bool(False).tag(sync=True)

    def __init__(self, controls: PolicyControls) -> None:
        self._controls, self._policy = controls, controls.policy
        self._earlier: list[Policy] = []
        self._last_moved: list[str] = []
        super().__init__()
        self._follow(self._policy)
        controls.on_change(self._follow)
        self.on_msg(lambda _, content, __: self._obey(content))

    def undo(self) -> None:
        """Take the last change back."""
        if self._earlier:
            self._policy, self._last_moved = self._earlier.pop(), []
            self._controls.take(self._policy)

    def _obey(self, content: Mapping[str, Any]) -> None:
        if content.get("undo"):
            self.undo()
        elif content.get("give_back") in self._controls.as_recorded:
            self._controls.as_recorded[content["give_back"]].value = True

    def _follow(self, policy: Policy) -> None:
        moved = changed_settings(self._policy, policy)
        if moved and not (len(moved) == 1 and moved == self._last_moved):
            self._earlier.append(self._policy)
        self._last_moved = moved or self._last_moved
        self._policy, self.undoable = policy, bool(self._earlier)
        switches = {"True": "on", "False": "off"}
        words = {name: str(value) for name, value in policy.given().items()}
        self.rows = [
            {"name": name, "value": switches.get(value, value)} for name, value in words.items()
        ]


class StateButtons(PageWidget):
    """Copy as Python, save and open a state, and on a served page copy a link to it.

    A link has no token: who follows it needs that of the server.
    """

    FOLLOWED = ("name", "python", "state", "served")
    _esm = page_code("state_buttons.js")
    name = traitlets.Unicode("").tag(sync=True)
    python = traitlets.Unicode("").tag(sync=True)
    state = traitlets.Unicode("").tag(sync=True)
    served = traitlets.Bool(False).tag(sync=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """The answer to a question: drawings of its tab, what they are of, and the time taken."""

    question: Question
    drawings: tuple[Drawing, ...]
    sides: Sides
    seconds: float

    @property
    def words(self) -> str:
        """Words for what is on show."""
        policies = f"base {self.question.base}; candidate {self.question.candidate}"
        return f"shown: {policies} ({self.seconds:.1f} s)"


Changes = dict[tuple[str, str], float]
"""Values of the candidate that differ from the base's, by metric and scope."""
Compared = tuple[Answer, str, str, Changes]
"""An answer, HTML of what changes, the table as text, and what changes."""


class RecordingExplorer(Answering):
    """One recording under two policies; what moves is replayed in the background."""

    def __init__(self, recording: Recording, question: Question, *, served: bool = False) -> None:
        self.recording = recording
        self._sides_of = SidesOf(recording)
        self._base_policy = question.base
        self._shown: Question | None = None
        self._changes: Changes = {}
        self._unmoved: tuple[Answer, str] | None = None
        self._begin(self._answer, self._show_and_compare)
        self._comparing = LatestOnly(_compared, self._tell_comparison, self.status.fail)
        self.difference, self.text = FoldedHTML(), FoldedHTML()
        self.reclaim = ipywidgets.Dropdown(
            options=(
                ("auto: by policy and recording", AUTO),
                ("literal: as recorded", "literal"),
                ("elastic: the model decides", "elastic"),
            ),
            value=question.reclaim,
            description="reclaim",
            tooltip="literal: what the recorded kernel reclaimed is repeated; elastic: the model "
            "decides what is reclaimed and compacted",
            style={"description_width": "60px"},
            layout=Layout(width="97%"),
        )
        self.reclaim_told = ipywidgets.HTML()
        self.keeping = StateButtons(name=recording.name, served=served)
        self.keeping.on_msg(lambda _, content, __: self._restore_file(content))
        self.charts = {tab.name: Chart() for tab in TABS}
        self.tabs = ipywidgets.ToggleButtons(
            options=[(tab.label, tab.name) for tab in TABS],
            value=question.tab,
            tooltips=[tab.tooltip for tab in TABS],
            style={"button_width": "auto"},
        )
        as_base = replace(question, candidate=question.base)
        first = self._sides_of.answer(as_base, lambda _: None, threading.Event())
        self.controls = GroupedControls(recorded_values(first.base), question.candidate.given())
        start, seconds = self._sides_of.start_ns, self._sides_of.seconds
        self.timeline = Timeline(recording.trace, start, seconds, question.window)
        self.changed = ChangedFields(self.controls)
        use_candidate = "compare with the policy of the controls from now on"
        use_recorded = "compare with the policy that the machine ran"
        buttons = _in_a_row(
            _button("Reset candidate", "all its fields as recorded", self.controls.reset),
            _button("Use candidate as base", use_candidate, self.take_as_base),
            _button("Reset base", use_recorded, lambda: self.take_as_base(Policy())),
        )
        # two columns where there is room, one where there is not
        below = (self.reclaim, self.reclaim_told, self.controls, self.keeping)
        side = ipywidgets.VBox([self.changed, buttons, *below])
        charts = ipywidgets.VBox([*self.charts.values(), self.text])
        main = ipywidgets.VBox([self.difference, self.status, self.timeline, self.tabs, charts])
        columns = ipywidgets.HBox([side, main])
        parts = {"side": side, "figures": charts, "main": main, "columns": columns}
        for name, box in parts.items():
            box.add_class(f"pagealloc-{name}")
        heading = f"<b>{html.escape(recording.name)}: base beside candidate</b>"
        super().__init__([ipywidgets.HTML(heading), SpokenNames(), columns])
        self.add_class("pagealloc-explorer")
        answer = self._answer(self.question, threading.Event())
        self._show(answer)
        self._tell_comparison(_compared(answer, threading.Event()))
        self.controls.on_change(lambda _: self.ask(), self._refuse)
        for chosen in (self.timeline.slider, self.tabs, self.reclaim):
            chosen.observe(lambda _: self.ask(), "value")

    @property
    def question(self) -> Question:
        """The state that the controls ask for."""
        return Question(
            base=self._base_policy,
            candidate=self.controls.policy,
            window=self.timeline.window,
            tab=self.tabs.value,
            reclaim=self.reclaim.value,
        )

    def ask(self) -> None:
        """Compute and show what the controls ask for; a newer call overtakes this one."""
        try:
            self._worker.submit(self.question)  # says what it does where that takes long
        except PolicyError as error:
            self._refuse(error)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being computed; False if that took too long."""
        return super().wait(timeout) and self._comparing.wait(timeout)

    def restore(self, question: Question) -> None:
        """Show a state that was kept."""
        self._base_policy = question.base
        self.timeline.pick(question.window)
        self.tabs.value = question.tab
        self.reclaim.value = question.reclaim
        self.controls.take(question.candidate)

    def take_as_base(self, policy: Policy | None = None) -> None:
        """Compare with this policy from now on; None: with that of the controls."""
        try:
            self._base_policy = self.controls.policy if policy is None else policy
            self.ask()
        except PolicyError as error:
            self._refuse(error)

    def _answer(self, question: Question, cancelled: threading.Event) -> Answer:
        begin = time.perf_counter()
        sides = self._sides_of.answer(question, self._progress(question.candidate), cancelled)
        drawings = next(tab.draw for tab in TABS if tab.name == question.tab)(sides)
        seconds = time.perf_counter() - begin
        return Answer(question=question, drawings=drawings, sides=sides, seconds=seconds)

    def _restore_file(self, content: Mapping[str, Any]) -> None:
        """Restore what the page read from a file; say what is wrong with it otherwise."""
        try:
            self.restore(Question.from_json(str(content.get("restore"))))
        except pm.PageallocError as error:
            self.status.fail(error)

    def _show(self, answer: Answer) -> None:
        question, shown = answer.question, self._shown
        chart = self.charts[question.tab]
        self._unmoved = None
        # only where nothing but the candidate is another one
        if shown is not None and replace(shown, candidate=question.candidate) == question:
            policies = (shown.candidate, question.candidate)
            still = why_still(answer.sides.candidate)
            why = unmoved_words(*policies, chart, answer.drawings, still)
            self._unmoved = (answer, why) if why else None
        for name, other in self.charts.items():
            show_if(name == question.tab, other)
        chart.show(*answer.drawings)
        self.reclaim_told.value = html.escape(str(answer.sides.reclaim))
        self.status.say(answer.words)
        self._shown = question
        self.controls.follow(answer.sides.candidate.policy.given())

    def _show_and_compare(self, answer: Answer) -> None:
        """The picture first; the comparison in words follows while that is looked at."""
        self._show(answer)
        if self.difference.value == NOTHING_ASKED:
            self.difference.value = COMPARING
        self._comparing.submit(answer)

    def _tell_comparison(self, compared: Compared) -> None:
        answer, difference, table, changes = compared
        python = as_python(self.recording, answer.question, answer.sides.reclaim.mode)
        self.keeping.python, self.keeping.state = python, answer.question.as_json()
        self.difference.value = difference
        texts = {"The whole comparison": table, "As Python": python}
        self.text.value = "".join(
            f"<details><summary>{title}</summary><pre>{html.escape(text)}</pre></details>"
            for title, text in texts.items()
            if text
        )
        before, self._changes = self._changes, changes
        if self._unmoved is not None and self._unmoved[0] is answer:
            self.status.say(answer.words, self._unmoved[1] if changes == before else ELSEWHERE)


def _compared(answer: Answer, cancelled: threading.Event) -> Compared:
    """Both sides in words."""
    if answer.question.candidate == answer.question.base:
        return answer, NOTHING_ASKED, "", {}
    if cancelled.wait(PICTURE_FIRST_S):
        return answer, "", "", {}
    comparison = pm.compare(answer.sides.base, answer.sides.candidate).validated()
    rows = changing_rows(comparison)
    keys = zip(rows["metric"], rows["scope"], strict=True)
    changes = dict(zip(keys, rows["patch"].astype(float), strict=True))
    return answer, difference_html(comparison), comparison.to_text(width=72), changes


def explore(
    recording: Recording | str,
    *,
    base: Policy | None = None,
    candidate: Policy | None = None,
    window: Window | None = None,
    tab: str = TABS[0].name,
    reclaim: str = AUTO,
    state: str | Path | None = None,
    served: bool = False,
) -> RecordingExplorer:
    """Everything that the model says of a recording under two policies, with controls for all.

    Args:
        recording: a recording, or anything `pm.open` takes.
        base: policy to compare with; None: as recorded.
        candidate: policy that the controls start at; None: as recorded.
        window: (from, to) in seconds after the first event; None: the whole recording.
        tab: "fragmentation", "pageblocks", "pcp", "locks" or "outcomes".
        reclaim: "literal", what the recorded kernel reclaimed is repeated; "elastic", the model
            decides; "auto": elastic where a policy acts through reclaim or the recorded kernel
            reclaimed.
        state: file with a saved state, which then gives all of these.
        served: whether the page's address can carry a state, as that of `pagealloc explore` can.

    Raises:
        PageallocError: the recording cannot be opened or replayed.
        UsageError: an unknown tab or mode of reclaim, or a file without a state.
    """
    check_names(tab, reclaim)
    recording = pm.open(recording) if isinstance(recording, str) else recording
    question = Question(
        base=base or Policy(),
        candidate=candidate or Policy(),
        window=window,
        tab=tab,
        reclaim=reclaim,
    )
    if state is not None:
        question = read_question(Path(state))
    return RecordingExplorer(recording, question, served=served)
