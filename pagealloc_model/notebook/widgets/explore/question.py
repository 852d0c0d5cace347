"""What an explorer is asked to show, and the Python text that asks for the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.reclaim_mode import literal_part

if TYPE_CHECKING:
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
