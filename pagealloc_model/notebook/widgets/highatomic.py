"""Pageblocks reserved for atomic requests: mainline beside a costly-order threshold (S7)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pagealloc_model as pm
from pagealloc_model.measured.measured import Measured
from pagealloc_model.notebook.controls import PolicyControls
from pagealloc_model.notebook.view import Explorer, Progress, View
from pagealloc_model.show import figures
from pagealloc_model.show.figures.faceted import Drawing
from pagealloc_model.show.post import posted_figures
from pagealloc_model.verdict.recorded_values import recorded_values

if TYPE_CHECKING:
    import pandas as pd

    from pagealloc_model.recording.recording import Recording

FIELDS = ("highatomic_gate_order", "highatomic_reserve_percent", "highatomic_from_pcp")
LABELS = {"highatomic_gate_order": "costly-order threshold"}
MAINLINE_GATE, PROPOSED_GATE = 0, 3
AS_RECORDED = "predicted, policy as recorded"
THIS_POLICY = "predicted, policy above"

Sources = Mapping[str, "tuple[Measured | pm.Replay, int]"]
"""Legend label -> what has the tables, and its recording's first event in ns."""


def highatomic(recording: Recording | str, *others: Recording | str) -> Explorer:
    """HighAtomic pageblocks and free memory by type under a threshold that a slider sets.

    Predictions replay the first recording; the slider starts at the rule that it was not made
    under, mainline's or the proposal's. What the others measured is drawn beside, on their own
    time axis from their own start: they are separate runs.

    Args:
        recording: the one replayed; an opened one, or anything `pm.open` takes.
        others: such as a recording of the same workload under the other rule.

    Raises:
        PageallocError: a recording cannot be opened or replayed.
    """
    recordings = [pm.open(each) if isinstance(each, str) else each for each in (recording, *others)]
    first, first_start = recordings[0], recordings[0].trace.span_ns[0]
    measurements = {
        f"measured, {recording.name}": (recording.measure(), recording.trace.span_ns[0])
        for recording in recordings
    }
    base = pm.replay(first)
    posted = posted_figures("highatomic")

    def compute(policy: pm.Policy, progress: Progress, cancelled: threading.Event) -> View:
        patch = base
        if policy != pm.Policy():
            patch = pm.replay(first, policy, progress=progress, cancel=cancelled.is_set)
        predictions = {AS_RECORDED: (base, first_start), THIS_POLICY: (patch, first_start)}
        return View(
            figure=_figure(measurements, predictions, posted),
            text=pm.compare(base, patch).to_text(width=72),
            replay=patch,
        )

    gate = PROPOSED_GATE if not base.policy.highatomic_gate_order else MAINLINE_GATE
    controls = PolicyControls(
        FIELDS,
        labels=LABELS,
        recorded=recorded_values(base),
        start={"highatomic_gate_order": gate},
    )
    return Explorer(f"{first.name}: the highatomic reserve", controls, compute)


def _figure(measurements: Sources, predictions: Sources, posted: pd.DataFrame) -> Drawing:
    blocks = figures.highatomic_blocks.drawing(
        _tables(measurements, "pageblocks"), _tables(predictions, "pageblocks"), posted
    )
    free_pages = figures.free_pages_by_migratetype.drawing(
        _tables(measurements, "free_pages"), _tables(predictions, "free_pages")
    )
    return figures.stacked.drawing([blocks, free_pages])


def _tables(sources: Sources, name: str) -> dict[str, pd.DataFrame]:
    """One table of each source, on a time axis that begins where its recording does."""
    return {
        label: figures.since_start(getattr(source, name), start_ns)
        for label, (source, start_ns) in sources.items()
    }
