"""The first view of a recording: what was measured, and what a policy would have made of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import pagealloc_model as pm
from pagealloc_model.base.arrays import bin_width_ns
from pagealloc_model.notebook.controls import PolicyControls
from pagealloc_model.notebook.view import Explorer, Progress, View
from pagealloc_model.notebook.what_changes import replays_html
from pagealloc_model.numbers.comparison import recorded_values
from pagealloc_model.predicted.reclaim_mode import choose_reclaim
from pagealloc_model.show import figures

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


FIELDS = ("percpu_pagelist_high_fraction", "pcp_batch")


def start_here(recording: Recording | str, *, fields: Sequence[str] = FIELDS) -> Explorer:
    """A slider over a recording; curves measured, of the recorded policy, and of the slider's.

    Args:
        recording: a recording, or anything `pm.open` takes.
        fields: policy fields to control, a slider each.

    Raises:
        PageallocError: the recording cannot be opened or replayed.
        UsageError: an unknown field.
    """
    recording = pm.open(recording) if isinstance(recording, str) else recording
    first, last = recording.trace.demand_span_ns
    measured = recording.measure(bin_ns=bin_width_ns(last - first))

    @cache
    def base_in(mode: str) -> pm.Replay:
        return pm.replay(recording, assumptions=pm.Assumptions(reclaim=mode))

    def compute(policy: pm.Policy, progress: Progress, cancelled: threading.Event) -> View:
        reclaim = choose_reclaim(recording, policy)
        base = patch = base_in(reclaim.mode)
        if policy != pm.Policy():
            patch = pm.replay(
                recording,
                policy,
                assumptions=reclaim.assumptions,
                progress=progress,
                cancel=cancelled.is_set,
            )
        sides = {"predicted, policy as recorded": base, "predicted, changed policy": patch}
        return View(
            figure=figures.at_a_glance.drawing(measured, sides),
            words=lambda: replays_html(base, patch),
            replay=patch,
        )

    usual = base_in(choose_reclaim(recording).mode)
    controls = PolicyControls(fields, recorded=recorded_values(usual))
    return Explorer(f"{recording.name}: predicted beside measured", controls, compute)
