"""The explorer: policy controls, a timeline, tabs of figures, the comparison as text and code."""

from __future__ import annotations

import html
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import ipywidgets

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.notebook.widgets.accessible import CopyButton, SpokenNames
from pagealloc_model.notebook.widgets.chart import Chart
from pagealloc_model.notebook.widgets.explore.grouped_controls import GroupedControls
from pagealloc_model.notebook.widgets.explore.question import Question, Window, as_python
from pagealloc_model.notebook.widgets.explore.sides import Sides, SidesOf
from pagealloc_model.notebook.widgets.explore.tabs import TABS
from pagealloc_model.notebook.widgets.explore.timeline import Timeline
from pagealloc_model.notebook.widgets.explorer import PROGRESS_EVERY_S, Progress
from pagealloc_model.notebook.widgets.latest_only import LatestOnly
from pagealloc_model.notebook.widgets.no_effect import (
    changed_settings,
    no_effect_words,
    same_coordinates,
)
from pagealloc_model.notebook.widgets.status import Status
from pagealloc_model.show.figures.drawing import Drawing
from pagealloc_model.verdict.recorded_values import recorded_values

if TYPE_CHECKING:
    from pagealloc_model.policy.policy import Policy
    from pagealloc_model.recording.recording import Recording

PICTURE_FIRST_S = 0.1
"""A picture leaves in less, if comparing in words does not take the interpreter meanwhile."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What is shown for a question.

    Attributes:
        question: that was asked.
        drawing: of its tab.
        sides: what it was drawn from.
        seconds: taken to compute it.
    """

    question: Question
    drawing: Drawing
    sides: Sides
    seconds: float


class RecordingExplorer(ipywidgets.VBox):
    """One recording under two policies; what moves is replayed in the background.

    Attributes:
        controls: the candidate's policy, a control per field.
        timeline: the part of the recording on show.
        tabs: buttons, one per tab.
        charts: the figure of every tab by name, made when it is first shown.
        status: what is going on, errors, and why a change has no effect.
        python: code that asks for the same.
    """

    def __init__(self, recording: Recording, question: Question) -> None:
        self._recording = recording
        self._sides_of = SidesOf(recording)
        self._base_policy = question.base
        self._shown: Question | None = None
        self.status = Status()
        self.text = ipywidgets.HTML()
        self.python = ipywidgets.HTML()
        self._copy = CopyButton(description="Copy as Python")
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
        super().__init__(
            [
                ipywidgets.HTML(f"<b>{html.escape(recording.name)}: base beside candidate</b>"),
                SpokenNames(),
                self.controls,
                self._buttons(),
                self.timeline,
                self.tabs,
                self.status,
                *self.charts.values(),
                self.text,
                ipywidgets.HBox([self._copy]),
                self.python,
            ]
        )
        answer = self._answer(self.question, threading.Event())
        self._show(answer)
        self._tell_comparison(_comparison(answer, threading.Event()))
        self.controls.on_change(lambda _: self.ask())
        self.timeline.on_change(self.ask)
        self.tabs.observe(lambda _: self.ask(), "value")

    @property
    def question(self) -> Question:
        """What the controls ask for."""
        return Question(
            base=self._base_policy,
            candidate=self.controls.policy,
            window=self.timeline.window,
            tab=self.tabs.value,
        )

    def ask(self) -> None:
        """Compute and show what the controls ask for; a newer call overtakes this one."""
        question = self.question
        self.status.say(f"replaying {question.candidate} ...")
        self._worker.submit(question)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being computed; False if that took too long."""
        return self._worker.wait(timeout) and self._comparing.wait(timeout)

    def take_as_base(self, policy: Policy) -> None:
        """Compare with this policy from now on."""
        self._base_policy = policy
        self.ask()

    def _buttons(self) -> ipywidgets.HBox:
        actions = (
            ("Candidate as recorded", "give all fields back", self.controls.reset),
            (
                "Candidate becomes base",
                "compare with the policy of the controls from now on",
                lambda: self.take_as_base(self.controls.policy),
            ),
            (
                "Base as recorded",
                "compare with the policy that the machine ran",
                lambda: self.take_as_base(pm.Policy()),
            ),
            ("Whole recording", "show all of it", self.timeline.pick_all),
        )
        buttons = []
        for words, tooltip, act in actions:
            button = ipywidgets.Button(
                description=words, tooltip=tooltip, layout=ipywidgets.Layout(width="auto")
            )
            button.on_click(lambda _, act=act: act())
            buttons.append(button)
        return ipywidgets.HBox(buttons, layout=ipywidgets.Layout(flex_flow="row wrap"))

    def _answer(self, question: Question, cancelled: threading.Event) -> Answer:
        begun = time.perf_counter()
        progress = self._progress(question)
        sides = self._sides_of.answer(question, progress, cancelled)
        draw = next(tab.draw for tab in TABS if tab.name == question.tab)
        return Answer(
            question=question,
            drawing=draw(sides),
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

    def _show(self, answer: Answer) -> None:
        question, chart = answer.question, self.charts[answer.question.tab]
        note = self._note(answer, chart)
        for name, each in self.charts.items():
            each.layout.display = None if name == question.tab else "none"
        chart.show(answer.drawing)
        self._copy.text = as_python(self._recording, question)
        self.python.value = f"<pre>{html.escape(self._copy.text)}</pre>"
        words = f"shown: base {question.base}; candidate {question.candidate}"
        self.status.say(f"{words} ({answer.seconds:.1f} s)", note)
        self._shown = question

    def _show_and_compare(self, answer: Answer) -> None:
        """The picture first; the comparison in words follows while that is looked at."""
        self._show(answer)
        self._comparing.submit(answer)

    def _tell_comparison(self, words: str) -> None:
        self.text.value = f"<pre>{html.escape(words)}</pre>" if words else ""

    def _note(self, answer: Answer, chart: Chart) -> str:
        """Why nothing moved although a field did, "" if something moved."""
        question, shown = answer.question, self._shown
        if shown is None or chart.picture is None or shown.candidate == question.candidate:
            return ""
        if replace(shown, candidate=question.candidate) != question:
            return ""
        if not same_coordinates(chart.picture.drawing, answer.drawing):
            return ""
        names = changed_settings(shown.candidate, question.candidate)
        return no_effect_words(names, answer.sides.candidate)


def _comparison(answer: Answer, cancelled: threading.Event) -> str:
    """Both sides in words, "" where they are the same policy."""
    if answer.question.candidate == answer.question.base:
        return ""
    cancelled.wait(PICTURE_FIRST_S)
    if cancelled.is_set():
        return ""
    return pm.compare(answer.sides.base, answer.sides.candidate).to_text(width=72)


def explore(
    recording: Recording | str,
    *,
    base: Policy | None = None,
    candidate: Policy | None = None,
    window: Window | None = None,
    tab: str = TABS[0].name,
) -> RecordingExplorer:
    """Everything that the model says of a recording under two policies, with controls for all.

    Args:
        recording: a recording, or anything `pm.open` takes.
        base: policy to compare with; None: as recorded.
        candidate: policy that the controls start at; None: as recorded.
        window: (from, to) in seconds after the first event; None: the whole recording.
        tab: "fragmentation", "pageblocks", "pcp", "locks" or "outcomes".

    Raises:
        PageallocError: the recording cannot be opened or replayed.
        UsageError: an unknown tab.
    """
    names = [each.name for each in TABS]
    if tab not in names:
        raise UsageError(f"the explorer has no tab {tab!r}; it has {', '.join(names)}")
    recording = pm.open(recording) if isinstance(recording, str) else recording
    question = Question(
        base=base or pm.Policy(), candidate=candidate or pm.Policy(), window=window, tab=tab
    )
    return RecordingExplorer(recording, question)
