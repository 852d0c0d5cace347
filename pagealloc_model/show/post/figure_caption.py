"""The caption of a figure that stands alone: what, on what, how right, how to make it again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.version import __version__
from pagealloc_model.show.figures.how_right import in_band_words, predicted_over_measured
from pagealloc_model.verdict.errors import verdict_words

if TYPE_CHECKING:
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.validation import Validation


def figure_title(comparison: Comparison) -> str:
    """Return one line: what differs between the sides, and on what recording."""
    return f"{comparison.footer().policy_difference}, predicted for {comparison.base.name}"


def figure_caption(
    comparison: Comparison, validation: Validation, path: str, base: str, patch: str
) -> str:
    """Return the caption as one paragraph.

    Args:
        comparison: what is drawn on the left.
        validation: what is drawn on the right, of the same recording.
        path: of the recording, as given to the command.
        base: policy of the base side, as given to the command.
        patch: of the other side.
    """
    footer, recording = comparison.footer(), comparison.base.recording
    release = "" if recording is None else f" (kernel {recording.release})"
    points = predicted_over_measured(validation.errors, validation.snapshots)
    words = ["pagealloc", "post", str(path), *(["--base", base] if base else [])]
    command = shlex.join([*words, "--patch", patch, "--figure", "FILE"])
    lost = (
        f"{count_of(comparison.base.losses, 'event')} lost"
        if comparison.base.losses
        else "no event lost"
    )
    return (
        f"Left: predicted effect of {footer.policy_difference} on the demand of "
        f"{comparison.base.name}{release}, {lost}; bars are 95 % intervals over windows of the "
        "recording, widened by the model's error. Right: the model under the recorded policy, "
        f"held to the recording: {in_band_words(points)}; {verdict_words(validation.errors)}. "
        f"Made by: {command} (pagealloc_model {__version__})."
    )
