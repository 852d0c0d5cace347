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

import pagealloc_model as pm
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.notebook.controls import (
    LatestOnly,
    SpokenNames,
    Status,
    changed_settings,
    no_effect_words,
    same_coordinates,
)
from pagealloc_model.notebook.explore_parts import (
    ChangedFields,
    FoldedHTML,
    GroupedControls,
    StateButtons,
    columns,
)
from pagealloc_model.notebook.explore_sides import Sides, SidesOf
from pagealloc_model.notebook.explore_state import (
    CHOSEN,
    Question,
    Window,
    as_python,
    check_names,
    read_question,
)
from pagealloc_model.notebook.explore_tabs import TABS
from pagealloc_model.notebook.picture import Chart, Picture
from pagealloc_model.notebook.view import PROGRESS_EVERY_S, Progress
from pagealloc_model.notebook.what_changes import (
    COMPARING,
    NOTHING_ASKED,
    changing_rows,
    difference_html,
)
from pagealloc_model.show.figures.faceted import GRID, INK, MODEBAR, Drawing
from pagealloc_model.verdict.comparison import recorded_values

if TYPE_CHECKING:
    from pagealloc_model.policy.policy import Policy
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.trace.columns import Trace


BINS = 200
HEIGHT = 72
FILL = "rgba(128,128,128,0.5)"
"""Seen on white and on a dark ground."""
STEPS = 1000
"""The slider has about as many positions."""


class Timeline(ipywidgets.VBox):
    """Events per second over the recording; a brush or the slider below picks a part of it.

    Args:
        trace: the recording's events.
        start_ns: of the first event.
        seconds: length of the recording.
        window: to begin with, None for all.
    """

    def __init__(self, trace: Trace, start_ns: int, seconds: float, window: Window | None) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._seconds = _upwards(seconds)
        self.slider = ipywidgets.FloatRangeSlider(
            value=window or (0.0, self._seconds),
            min=0.0,
            max=self._seconds,
            step=_step(seconds),
            readout_format=".2f" if _step(seconds) >= 0.01 else ".3f",
            continuous_update=False,
            description="drag above, or window (s)",
            tooltip="the part of the recording that is drawn; replays still begin at its start",
            style={"description_width": "170px"},
            layout=ipywidgets.Layout(flex="1 1 300px", max_width="900px"),
        )
        whole = button_of("Show the whole recording", "instead of a part of it", self.pick_all)
        self.strip = Picture(_strip(trace, start_ns, seconds))
        self.strip.observe(self._brushed, "brushed")
        self.slider.observe(lambda _: self._tell(), "value")
        super().__init__([self.strip, in_a_row(self.slider, whole)])

    @property
    def window(self) -> Window | None:
        """The part picked, None for the whole recording."""
        begin, end = self.slider.value
        return None if (begin, end) == (0.0, self._seconds) else (float(begin), float(end))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener()` whenever another part is picked."""
        self._listeners.append(listener)

    def pick(self, window: Window | None) -> None:
        """A part of the recording, None for all of it."""
        self.slider.value = window or (0.0, self._seconds)

    def pick_all(self) -> None:
        """The whole recording again."""
        self.pick(None)

    def _brushed(self, change: Mapping[str, Any]) -> None:
        begin, end = sorted(np.clip(change["new"], 0.0, self._seconds))
        if end - begin >= self.slider.step:
            self.slider.value = (float(begin), float(end))

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def button_of(words: str, tooltip: str, act: Callable[[], None]) -> ipywidgets.Button:
    """A button as wide as its words."""
    button = ipywidgets.Button(
        description=words, tooltip=tooltip, layout=ipywidgets.Layout(width="auto")
    )
    button.on_click(lambda _: act())
    return button


def in_a_row(*widgets: ipywidgets.Widget) -> ipywidgets.HBox:
    """Widgets beside each other, below each other where there is no room."""
    return ipywidgets.HBox(list(widgets), layout=ipywidgets.Layout(flex_flow="row wrap"))


def _strip(trace: Trace, start_ns: int, seconds: float) -> Drawing:
    counts, edges = np.histogram(trace.time_ns, BINS, (start_ns, start_ns + seconds * 1e9))
    rates = counts / (edges[1] - edges[0]) * 1e9
    middles = ((edges[:-1] + edges[1:]) / 2 - start_ns) / 1e9
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": middles,
        "y": rates,
        "line": {"color": INK, "width": 1},
        "marker": {"size": 1, "color": INK},
        "fill": "tozeroy",
        "fillcolor": FILL,
        "name": "page-allocator events",
        "meta": "timeline",
    }
    axis = {"gridcolor": GRID, "linecolor": INK, "zeroline": False}
    layout = {
        "height": HEIGHT,
        "margin": {"l": 70, "r": 20, "t": 4, "b": 20},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "modebar": MODEBAR,
        "dragmode": "select",
        "selectdirection": "h",
        "xaxis": axis | {"ticksuffix": " s"},
        "yaxis": axis
        | {
            "title": {"text": "events/s", "font": {"size": 9}},
            "rangemode": "tozero",
            "fixedrange": True,
            "nticks": 3,
        },
        "font": {"family": "DejaVu Sans, Arial, sans-serif", "size": 11, "color": INK},
    }
    return Drawing(traces=[line], layout=layout)


def _step(seconds: float) -> float:
    """1, 2 or 5 times a power of ten seconds."""
    wanted = seconds / STEPS
    power = 10.0 ** np.floor(np.log10(wanted))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= wanted))


def _upwards(seconds: float) -> float:
    """The recording's length as a whole number of the slider's steps."""
    step = _step(seconds)
    return float(np.ceil(seconds / step) * step)


PICTURE_FIRST_S = 0.1
"""A picture leaves in less, if comparing in words does not take the interpreter meanwhile."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What is shown for a question.

    Attributes:
        question: that was asked.
        drawings: of its tab.
        sides: what it was drawn from.
        seconds: taken to compute it.
    """

    question: Question
    drawings: tuple[Drawing, ...]
    sides: Sides
    seconds: float


Changes = dict[tuple[str, str], float]
"""Values of the candidate that differ from the base's, by metric and scope."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Told:
    """A comparison in words.

    Attributes:
        answer: that was compared.
        difference: HTML of what changes.
        text: the table.
        changes: values that differ from the base's.
    """

    answer: Answer
    difference: str
    text: str
    changes: Changes


ELSEWHERE = "nothing moves in this tab; what changes is told above"
RECLAIM_OPTIONS = (
    ("as policy and recording ask for", CHOSEN),
    ("literal: as recorded", "literal"),
    ("elastic: the model decides", "elastic"),
)


class RecordingExplorer(ipywidgets.VBox):
    """One recording under two policies; what moves is replayed in the background.

    Attributes:
        recording: that is explored.
        controls: the candidate's policy, a control per field.
        changed: the fields that are not as recorded, and undo.
        timeline: the part of the recording on show.
        tabs: buttons, one per tab.
        charts: the figure of every tab by name, made when it is first shown.
        difference: what the candidate changes, a sentence first, with believed ranges.
        reclaim: which mode of reclaim to replay in; "" leaves it to recording and policies.
        reclaim_told: the mode taken, and why.
        status: what is going on, errors, and why a change has no effect.
        text: the whole comparison and the code that asks for it.
        keeping: buttons that copy, save and restore the state.
    """

    def __init__(self, recording: Recording, question: Question, *, served: bool = False) -> None:
        self.recording = recording
        self._sides_of = SidesOf(recording)
        self._base_policy = question.base
        self._shown: Question | None = None
        self.status = Status()
        self._told: Told | None = None
        self._still: tuple[Answer, str] | None = None
        self.difference = FoldedHTML()
        self.reclaim = ipywidgets.Dropdown(
            options=RECLAIM_OPTIONS,
            value=question.reclaim,
            description="reclaim",
            tooltip="literal: what the recorded kernel reclaimed is repeated; elastic: the model "
            "decides what is reclaimed and compacted",
            style={"description_width": "60px"},
            layout=ipywidgets.Layout(width="97%"),
        )
        self.reclaim_told = ipywidgets.HTML()
        self.text = FoldedHTML()
        self.keeping = StateButtons(name=recording.name, served=served)
        self.keeping.on_msg(lambda _, told, __: self._restore_told(told))
        self.charts = {tab.name: Chart() for tab in TABS}
        self.tabs = ipywidgets.ToggleButtons(
            options=[(tab.label, tab.name) for tab in TABS],
            value=question.tab,
            tooltips=[tab.tooltip for tab in TABS],
            style={"button_width": "auto"},
        )
        self._worker = LatestOnly(self._answer, self._show_and_compare, self.status.fail)
        self._comparing = LatestOnly(_comparison, self._tell_comparison, self.status.fail)
        first = self._sides_of.answer(
            replace(question, candidate=question.base), lambda _: None, threading.Event()
        )
        self.controls = GroupedControls(recorded_values(first.base), question.candidate.given())
        self.timeline = Timeline(
            recording.trace, self._sides_of.start_ns, self._sides_of.seconds, question.window
        )
        self.changed = ChangedFields(self.controls)
        super().__init__(
            [
                ipywidgets.HTML(f"<b>{html.escape(recording.name)}: base beside candidate</b>"),
                SpokenNames(),
                *columns(
                    [
                        *(self.changed, self._buttons()),
                        *(self.reclaim, self.reclaim_told),
                        *(self.controls, self.keeping),
                    ],
                    [self.difference, self.status, self.timeline, self.tabs],
                    [*self.charts.values(), self.text],
                ),
            ]
        )
        self.add_class("pagealloc-explorer")
        answer = self._answer(self.question, threading.Event())
        self._show(answer)
        self._tell_comparison(_comparison(answer, threading.Event()))
        self.controls.on_change(lambda _: self.ask())
        self.controls.on_refusal(self._refuse)
        self.timeline.on_change(self.ask)
        for chosen in (self.tabs, self.reclaim):
            chosen.observe(lambda _: self.ask(), "value")

    @property
    def question(self) -> Question:
        """What the controls ask for."""
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
            question = self.question
        except PolicyError as error:
            self._refuse(error)
            return
        self._worker.submit(question)  # says what it does where that takes long

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being computed; False if that took too long."""
        return self._worker.wait(timeout) and self._comparing.wait(timeout)

    def restore(self, question: Question) -> None:
        """Show a state that was kept."""
        self._base_policy = question.base
        self.timeline.pick(question.window)
        self.tabs.value = question.tab
        self.reclaim.value = question.reclaim
        self.controls.take(question.candidate)

    def take_as_base(self, policy: Policy) -> None:
        """Compare with this policy from now on."""
        self._base_policy = policy
        self.ask()

    def _take_candidate_as_base(self) -> None:
        try:
            self.take_as_base(self.controls.policy)
        except PolicyError as error:
            self._refuse(error)

    def _refuse(self, error: PolicyError) -> None:
        """Say that the controls ask for what no policy can be; what is on show stays."""
        self._worker.drop()
        self.status.fail(error)

    def _buttons(self) -> ipywidgets.HBox:
        return in_a_row(
            button_of("Reset candidate", "all its fields as recorded", self.controls.reset),
            button_of(
                "Use candidate as base",
                "compare with the policy of the controls from now on",
                self._take_candidate_as_base,
            ),
            button_of(
                "Reset base",
                "compare with the policy that the machine ran",
                lambda: self.take_as_base(pm.Policy()),
            ),
        )

    def _answer(self, question: Question, cancelled: threading.Event) -> Answer:
        begun = time.perf_counter()
        progress = self._progress(question)
        sides = self._sides_of.answer(question, progress, cancelled)
        draw = next(tab.draw for tab in TABS if tab.name == question.tab)
        return Answer(
            question=question,
            drawings=draw(sides),
            sides=sides,
            seconds=time.perf_counter() - begun,
        )

    def _progress(self, question: Question) -> Progress:
        last = time.monotonic()

        def report(share: float) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= PROGRESS_EVERY_S:
                last = now
                words = f"replaying {question.candidate}: {share:.0%}"
                self._worker.hand_over(lambda: self.status.say(words))

        return report

    def _restore_told(self, told: Mapping[str, Any]) -> None:
        """Restore what the page read from a file; say what is wrong with it otherwise."""
        try:
            self.restore(Question.from_json(str(told.get("restore")), [tab.name for tab in TABS]))
        except pm.PageallocError as error:
            self.status.fail(error)

    def _show(self, answer: Answer) -> None:
        question, chart = answer.question, self.charts[answer.question.tab]
        self._still = self._unmoved(answer, chart)
        for name, each in self.charts.items():
            each.layout.display = None if name == question.tab else "none"
        chart.show(*answer.drawings)
        self.reclaim_told.value = html.escape(str(answer.sides.reclaim))
        self.status.say(_shown_words(answer))
        self._shown = question

    def _show_and_compare(self, answer: Answer) -> None:
        """The picture first; the comparison in words follows while that is looked at."""
        self._show(answer)
        if self.difference.value == NOTHING_ASKED:
            self.difference.value = COMPARING
        self._comparing.submit(answer)

    def _tell_comparison(self, told: Told) -> None:
        question = told.answer.question
        self.keeping.python = as_python(self.recording, question, told.answer.sides.reclaim.mode)
        self.keeping.state = question.as_json()
        self.difference.value = told.difference
        self.text.value = _folded(
            ("The whole comparison", told.text), ("As Python", self.keeping.python)
        )
        before, self._told = self._told, told
        if self._still is None or self._still[0] is not told.answer:
            return
        is_same = told.changes == (before.changes if before is not None else {})
        self.status.say(_shown_words(told.answer), self._still[1] if is_same else ELSEWHERE)

    def _unmoved(self, answer: Answer, chart: Chart) -> tuple[Answer, str] | None:
        """Why no figure moved although a field did, None if one moved or no field did."""
        question, shown = answer.question, self._shown
        if shown is None or chart.picture is None or shown.candidate == question.candidate:
            return None
        if replace(shown, candidate=question.candidate) != question:
            return None
        if not all(map(same_coordinates, chart.drawings, answer.drawings)):
            return None
        names = changed_settings(shown.candidate, question.candidate)
        return answer, no_effect_words(names, answer.sides.candidate)


def _shown_words(answer: Answer) -> str:
    question = answer.question
    words = f"shown: base {question.base}; candidate {question.candidate}"
    return f"{words} ({answer.seconds:.1f} s)"


def _folded(*parts: tuple[str, str]) -> str:
    """Texts below each other, each behind a line that opens it."""
    return "".join(
        f"<details><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre></details>"
        for title, text in parts
        if text
    )


def _comparison(answer: Answer, cancelled: threading.Event) -> Told:
    """Both sides in words."""
    if answer.question.candidate == answer.question.base:
        return Told(answer=answer, difference=NOTHING_ASKED, text="", changes={})
    cancelled.wait(PICTURE_FIRST_S)
    if cancelled.is_set():
        return Told(answer=answer, difference="", text="", changes={})
    comparison = pm.compare(answer.sides.base, answer.sides.candidate)
    rows = changing_rows(comparison)
    keys = zip(rows["metric"], rows["scope"], strict=True)
    return Told(
        answer=answer,
        difference=difference_html(comparison),
        text=comparison.to_text(width=72),
        changes=dict(zip(keys, rows["patch"].astype(float), strict=True)),
    )


def explore(
    recording: Recording | str,
    *,
    base: Policy | None = None,
    candidate: Policy | None = None,
    window: Window | None = None,
    tab: str = TABS[0].name,
    reclaim: str = CHOSEN,
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
            decides; "": elastic where a policy acts through reclaim or the recorded kernel
            reclaimed.
        state: file with a saved state, which then gives all of these.
        served: whether the page's address can carry a state, as that of `pagealloc explore` can.

    Raises:
        PageallocError: the recording cannot be opened or replayed.
        UsageError: an unknown tab or mode of reclaim, or a file without a state.
    """
    names = [each.name for each in TABS]
    check_names(tab, names, reclaim)
    recording = pm.open(recording) if isinstance(recording, str) else recording
    if state is not None:
        return RecordingExplorer(recording, read_question(Path(state), names), served=served)
    question = Question(
        base=base or pm.Policy(),
        candidate=candidate or pm.Policy(),
        window=window,
        tab=tab,
        reclaim=reclaim,
    )
    return RecordingExplorer(recording, question, served=served)
