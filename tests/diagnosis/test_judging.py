"""Choices judged on the true state: what contradicts it is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import make_state
from pagealloc_model.diagnosis import judging
from pagealloc_model.diagnosis import true_state as rec
from pagealloc_model.diagnosis.judging import Judged, resync
from pagealloc_model.diagnosis.recorded_moves import (
    tracked,
    with_notes,
)
from pagealloc_model.policy.kernel_rules import KernelRules
from tests.allocator.small_state import one_zone

LISTED, OTHER = 512, 1024


def test_a_list_that_holds_another_lists_page_is_named() -> None:
    state = make_state(one_zone(), KernelRules.preset("7.2"))
    st = with_notes(state)
    track = tracked(state, st)
    steps = np.zeros(2, rec.STEP)
    steps["operation"] = (rec.REMOVE, rec.POP)
    steps["pfn"] = (LISTED, OTHER)
    steps["migratetype"] = at.MOVABLE
    steps["flags"] = (rec.RUN_FIRST, 0)
    steps["objects"] = 1
    kinds = len(judging.CHOICES)
    tally = np.zeros(
        (kinds, judging.TYPE_SLOTS + judging.TIME_BINS + 1, judging.OUTCOMES), np.int64
    )
    misses = np.zeros((kinds, judging.MISSES_KEPT + 1, judging.MISS_COLUMNS), np.int64)
    arrays = (replace(state, st=st).arrays(), Judged(steps, track, tally, misses))
    assert resync(*arrays, 0, 1) == 1
    assert state.pages["where"][LISTED] == at.ON_PCP
    state.pages["where"][LISTED] = at.BUDDY
    assert resync(*arrays, 1, 2) == 1
    assert st[at.CORRUPT_AT] == LISTED + 1
