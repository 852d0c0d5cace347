"""One state of the explorer: kept in files and links, and as the Python that asks for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import PageallocError, RecordingError, UsageError
from pagealloc_model.base.files import given, text_of
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.replay import literal_part

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

Window = tuple[float, float]
"""From and to, in seconds after the first event."""
CHOSEN, RECLAIM_MODES = "", ("", "literal", "elastic")
"""The mode of reclaim that the recording and the policies ask for, and all that can be asked."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One state of the explorer."""

    base: Policy
    candidate: Policy
    window: Window | None
    tab: str
    reclaim: str = CHOSEN

    def as_json(self) -> str:
        """The state as text that `from_json` reads, for a file or a link."""
        policies = {"base": self.base.given(), "candidate": self.candidate.given()}
        view = {"window": self.window, "tab": self.tab, "reclaim": self.reclaim}
        return json.dumps(policies | view, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, tabs: Sequence[str]) -> Question:
        """The state that `as_json` wrote.

        Args:
            text: what it wrote.
            tabs: names of the tabs there are.

        Raises:
            UsageError: it is no such text, or of other fields, tabs or modes than there are.
        """
        try:
            state = json.loads(text)
            window = state["window"]
            question = cls(
                base=Policy.from_settings(state["base"]),
                candidate=Policy.from_settings(state["candidate"]),
                window=None if window is None else (float(window[0]), float(window[1])),
                tab=str(state["tab"]),
                reclaim=str(state.get("reclaim", CHOSEN)),
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UsageError(f"this is no state of an explorer ({error}); save one anew") from None
        check_names(question.tab, tabs, question.reclaim)
        return question


def check_names(tab: str, tabs: Sequence[str], reclaim: str) -> None:
    """Refuse a tab or a mode of reclaim that the explorer does not have."""
    if tab not in tabs:
        raise UsageError(f"the explorer has no tab {tab!r}; it has {', '.join(tabs)}")
    if reclaim not in RECLAIM_MODES:
        raise UsageError(f"reclaim {reclaim!r} is not known; use literal or elastic")


def read_question(path: Path, tabs: Sequence[str]) -> Question:
    """The state in a file that the explorer saved.

    Raises:
        UsageError: the file cannot be read, or holds no state.
    """
    try:
        text = text_of(given(path), "utf-8", todo="give a saved state")
    except RecordingError as error:
        raise UsageError(str(error)) from None
    try:
        return Question.from_json(text, tabs)
    except PageallocError as error:
        raise UsageError(f"{path}: {error}") from None


def as_python(recording: Recording, question: Question, mode: str) -> str:
    """Code that replays both policies, compares them, and opens an explorer in this state.

    Settings that a literal replay refuses are left to the explorer, which says so.
    """
    from pagealloc_model.recording.recording import open_recording, recording_names

    name = str(recording.path)
    is_named = recording.name in recording_names()  # which another recording may be, too
    if is_named and open_recording(recording.name).path.resolve() == recording.path.resolve():
        name = recording.name
    window = "" if question.window is None else f", window={question.window!r}"
    asked = f", reclaim={question.reclaim!r}" if question.reclaim else ""
    lines = ["import pagealloc_model as pm", "", f"rec = pm.open({name!r})"]
    sides = {"base": question.base, "candidate": question.candidate}
    for side, policy in sides.items():
        replayed, assumed = policy, ", assumptions=pm.Assumptions(reclaim='elastic')"
        if mode == "literal":
            replayed, assumed = literal_part(policy), ""
        lines.append(f"{side} = pm.replay(rec, pm.{replayed!r}{window}{assumed})")
    policies = ", ".join(f"{side}=pm.{policy!r}" for side, policy in sides.items())
    lines.append("print(pm.compare(base, candidate).to_text(width=72))")
    lines.append(f"pm.explore(rec, {policies}{window}, tab={question.tab!r}{asked})")
    return "\n".join(lines)
