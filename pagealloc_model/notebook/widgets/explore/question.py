"""What an explorer is asked to show, and the Python text that asks for the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.reclaim_mode import literal_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagealloc_model.recording.recording import Recording

Window = tuple[float, float]
"""From and to, in seconds after the first event."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One state of the explorer.

    Attributes:
        base: policy to compare with.
        candidate: policy of the controls.
        window: part of the recording, None for all of it.
        tab: name of the tab on show.
    """

    base: Policy
    candidate: Policy
    window: Window | None
    tab: str

    def as_json(self) -> str:
        """The state as text that `from_json` reads, for a file or a link."""
        state = {
            "base": self.base.given(),
            "candidate": self.candidate.given(),
            "window": self.window,
            "tab": self.tab,
        }
        return json.dumps(state, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, tabs: Sequence[str]) -> Question:
        """The state that `as_json` wrote.

        Args:
            text: what it wrote.
            tabs: names of the tabs there are.

        Raises:
            UsageError: it is no such text, or of other fields or tabs than there are.
        """
        try:
            state = json.loads(text)
            window = state["window"]
            question = cls(
                base=Policy.from_settings(state["base"]),
                candidate=Policy.from_settings(state["candidate"]),
                window=None if window is None else (float(window[0]), float(window[1])),
                tab=str(state["tab"]),
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UsageError(f"this is no state of an explorer ({error}); save one anew") from None
        if question.tab not in tabs:
            raise UsageError(f"the explorer has no tab {question.tab!r}; it has {', '.join(tabs)}")
        return question


def read_question(path: Path, tabs: Sequence[str]) -> Question:
    """The state in a file that the explorer saved.

    Raises:
        UsageError: the file cannot be read, or holds no state.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); give a saved state") from None
    try:
        return Question.from_json(text, tabs)
    except PageallocError as error:
        raise UsageError(f"{path}: {error}") from None


def as_python(recording: Recording, question: Question) -> str:
    """Code that replays both policies, compares them, and opens an explorer in this state.

    Settings that a literal replay refuses are left to the explorer, which says so.
    """
    window = "" if question.window is None else f", window={question.window!r}"
    base, candidate = _policy(question.base), _policy(question.candidate)
    replayed = [_policy(literal_part(each)) for each in (question.base, question.candidate)]
    return "\n".join(
        [
            "import pagealloc_model as pm",
            "",
            f"rec = pm.open({_name(recording)!r})",
            f"base = pm.replay(rec, {replayed[0]}{window})",
            f"candidate = pm.replay(rec, {replayed[1]}{window})",
            "print(pm.compare(base, candidate).to_text(width=72))",
            f"pm.explore(rec, base={base}, candidate={candidate}{window}, tab={question.tab!r})",
        ]
    )


def _policy(policy: Policy) -> str:
    """A policy as the expression that makes it."""
    given = policy.given()
    if any("." in name for name in given):
        return f"pm.Policy.from_settings({given!r})"
    return f"pm.Policy({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _name(recording: Recording) -> str:
    """The short name where it leads to this recording, else its path."""
    from pagealloc_model.recording.recording import open_recording, recording_names

    if recording.name in recording_names():
        found = open_recording(recording.name)
        if found.path.resolve() == recording.path.resolve():
            return recording.name
    return str(recording.path)
