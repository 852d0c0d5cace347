"""`pm.explore` with notes of when each step of an answer was done."""

from __future__ import annotations

import json
import threading
import time

import ipywidgets

import pagealloc_model as pm
from pagealloc_model.notebook.explore import Answer, RecordingExplorer
from pagealloc_model.notebook.explore_tabs import TABS, Question, Sides
from pagealloc_model.notebook.view import Progress

NOTES = "slider-parts"
"""Class of the line that holds the notes."""


class TimedExplorer(RecordingExplorer):
    """An explorer that notes, in seconds since 1970, when it was asked, replayed, and drew."""

    def __init__(self, recording: pm.Recording, question: Question) -> None:
        self._noted: dict[str, float] = {}
        super().__init__(recording, question)
        self._answer_of_sides = self._sides_of.answer
        self._sides_of.answer = self._replay
        self.notes = ipywidgets.HTML("{}")
        self.notes.add_class(NOTES)
        self.children = (*self.children[:-2], self.notes, *self.children[-2:])

    def ask(self) -> None:
        """Note that a question came, and answer it."""
        self._noted = {"asked": time.time()}
        super().ask()

    def _replay(self, question: Question, progress: Progress, cancelled: threading.Event) -> Sides:
        sides = self._answer_of_sides(question, progress, cancelled)
        self._noted["replayed"] = time.time()
        return sides

    def _answer(self, question: Question, cancelled: threading.Event) -> Answer:
        answer = super()._answer(question, cancelled)
        self._noted["drawn"] = time.time()
        return answer

    def _show_and_compare(self, answer: Answer) -> None:
        super()._show_and_compare(answer)
        self.notes.value = json.dumps(self._noted)


def timed_explore(recording: str) -> TimedExplorer:
    """The explorer of a recording as it was recorded."""
    question = Question(base=pm.Policy(), candidate=pm.Policy(), window=None, tab=TABS[0].name)
    return TimedExplorer(pm.open(recording), question)
