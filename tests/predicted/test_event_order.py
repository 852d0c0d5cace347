"""Merging a part at a time is a stable sort of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.base import arrays
from pagealloc_model.base.arrays import Column, in_memory
from pagealloc_model.predicted.demand.event_order import merged, merged_in_place


def emitted_events(seed: int) -> np.ndarray:
    """Frees in time order, many of equal times, some with a hidden allocation before them."""
    random = np.random.default_rng(seed)
    times, events = np.cumsum(random.integers(0, 2, 50)), []
    for number, now in enumerate(times.tolist()):
        if random.random() < 0.4:
            hidden_ns = random.choice([now, max(now - int(random.integers(0, 9)), 0)])
            events.append((hidden_ns, number, at.HIDDEN_ALLOC))
        events.append((now, number, at.FREE))
    records = np.zeros(len(events), at.EVENT)
    names = ("time_ns", "object", "operation")
    for name, column in zip(names, zip(*events, strict=True), strict=True):
        records[name] = column
    return records


@pytest.mark.parametrize("rows_together", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_merged_events_are_sorted_stably(
    seed: int, rows_together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "ROWS_TOGETHER", rows_together)
    emitted = emitted_events(seed)
    beside = np.zeros(6, at.EVENT)
    beside["time_ns"] = np.random.default_rng(seed).integers(-1, 30, 6)
    beside["operation"] = at.KSWAPD_START
    together = np.concatenate([beside, emitted])
    expected = together[np.argsort(together["time_ns"], kind="stable")]
    is_hidden = emitted["operation"] == at.HIDDEN_ALLOC
    extra = np.concatenate([beside, emitted[is_hidden]])
    ranks = np.concatenate([np.zeros(6, np.int64), np.cumsum(~is_hidden)[is_hidden]])
    others = emitted[~is_hidden]
    np.testing.assert_array_equal(merged(others, extra, ranks, in_memory), expected)
    held = Column(at.EVENT)
    held.append(others)
    found = merged_in_place(held.values, held, extra, ranks, in_memory)
    np.testing.assert_array_equal(found, expected)
