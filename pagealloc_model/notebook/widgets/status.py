"""One line on what a view is doing, with a second one for what the user should know."""

from __future__ import annotations

import html

import ipywidgets

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
