"""The first view of a recording: what was measured, and what a policy would have made of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pagealloc_model as pm
from pagealloc_model.measured.measured import Measured
from pagealloc_model.notebook.widgets.controls import PolicyControls
from pagealloc_model.notebook.widgets.explorer import Explorer, Progress, View
from pagealloc_model.show import figures
from pagealloc_model.show.figures.drawing import Drawing
from pagealloc_model.verdict.recorded_values import recorded_values

if TYPE_CHECKING:
    import pandas as pd

    from pagealloc_model.recording.recording import Recording

FIELDS = (
    "pcp_batch",
    "pcp_high_min",
    "percpu_pagelist_high_fraction",
    "pcp_free_batched",
    "highatomic_gate_order",
)
AS_RECORDED = "predicted, policy as recorded"
THIS_POLICY = "predicted, policy above"


def start_here(
    recording: Recording | str, *, fields: Sequence[str] = FIELDS, zone: str | None = None
) -> Explorer:
    """Sliders over a recording; curves measured, of the recorded policy, and of the sliders'.

    Args:
        recording: a recording, or anything `pm.open` takes.
        fields: policy fields to control.
        zone: such as "Normal"; None adds up all zones.

    Raises:
        PageallocError: the recording cannot be opened or replayed.
        UsageError: an unknown field.
    """
    recording = pm.open(recording) if isinstance(recording, str) else recording
    measured = recording.measure()
    base = pm.replay(recording)

    def compute(policy: pm.Policy, progress: Progress, cancelled: threading.Event) -> View:
        patch = base
        text = ""
        if policy != pm.Policy():
            patch = pm.replay(recording, policy, progress=progress, cancel=cancelled.is_set)
            text = pm.compare(base, patch).to_text(width=72)
        return View(figure=_figure(measured, base, patch, zone), text=text, replay=patch)

    controls = PolicyControls(fields, recorded=recorded_values(base))
    return Explorer(f"{recording.name}: predicted beside measured", controls, compute)


def _figure(measured: Measured, base: pm.Replay, patch: pm.Replay, zone: str | None) -> Drawing:
    def predicted(table: str) -> dict[str, pd.DataFrame]:
        return {AS_RECORDED: getattr(base, table), THIS_POLICY: getattr(patch, table)}

    parts = [
        figures.free_pages_by_order.drawing(measured.free_pages, predicted("free_pages"), zone),
        figures.pcp_counts.drawing(measured.pcp, predicted("pcp"), zone),
        figures.transaction_sizes.drawing(measured.transactions, predicted("transactions"), zone),
        figures.pageblocks_by_type.drawing(measured.pageblocks, predicted("pageblocks"), zone),
    ]
    return figures.stacked.drawing(parts)
