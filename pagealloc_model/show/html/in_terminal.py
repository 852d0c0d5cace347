"""What results show where there is no HTML: in IPython, and as text kept with a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pagealloc_model.base.text.error_table import error_table
from pagealloc_model.base.text.layout import paragraph
from pagealloc_model.show.html.replay import replay_words
from pagealloc_model.show.recording_text import recording_text
from pagealloc_model.verdict.errors import verdict_words

if TYPE_CHECKING:
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.verdict.validation import Validation


def print_recording(recording: Recording, printer: Any, cycle: bool) -> None:
    """Print as `pagealloc info` does.

    Args:
        recording: an opened recording.
        printer: of IPython.
        cycle: whether the object is inside itself, which none of these can be.
    """
    printer.text(recording_text(recording))


def print_validation(validation: Validation, printer: Any, cycle: bool) -> None:
    """Print the verdict and the error table; arguments as above."""
    words = f"{validation.recording.name}: {verdict_words(validation.errors)}"
    printer.text(f"{paragraph(words)}\n\n{error_table(validation.errors)}")


def print_replay(replay: Replay, printer: Any, cycle: bool) -> None:
    """Print a few lines; arguments as above."""
    printer.text(paragraph(f"{replay.name}, predicted: {replay_words(replay)}"))


def print_text(result: Any, printer: Any, cycle: bool) -> None:
    """Print what has `to_text()`; arguments as above."""
    printer.text(result.to_text())
