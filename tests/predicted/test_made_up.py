"""What a replay makes up, counted without preparing it, is what a prepared one says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.base import arrays
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted import prepared as module
from pagealloc_model.predicted.prepared import made_up, prepare
from pagealloc_model.recording.recording import Recording
from tests.small_recordings import (
    END_PFN,
    NORMAL,
    TimedEvents,
    shipped_recording,
    write_recording,
)


def prepared_counts(recording: Recording) -> dict[str, int]:
    demand = prepare(recording, recorded_rules(recording).rules, Assumptions(), 0).demand
    return {
        "hidden_allocations": demand.hidden_allocations,
        "grown_pages": demand.grown_pages,
    }


@pytest.mark.parametrize("name", ["kbuild", "xfree", "highatomic_gate3", "cma_area_A1"])
def test_shipped_recordings_make_up_as_much(name: str) -> None:
    recording = shipped_recording(name)
    assert made_up(recording) == (prepared_counts(recording), "")


def test_hidden_allocations_and_memory_that_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts so small that what is kept must move up again and again."""
    events, first = TimedEvents(), NORMAL.first_free
    for page in range(first, first + 40):
        events.on(cpu=0, pid=7, comm="first")
        events.alloc(page)
        events.free(page)
        if page % 3 == 0:
            events.on(cpu=0, pid=8, comm="other")
            events.free(page)
    for index in range(3):
        events.free(END_PFN + 1024 * index, order=10)
    events.alloc(END_PFN + 4096 + 7)
    recording = pm.open(write_recording(tmp_path / "grown", events))
    monkeypatch.setattr(arrays, "ROWS_TOGETHER", 4)
    counts, why = made_up(recording)
    assert not why
    assert counts == prepared_counts(recording)
    assert counts["hidden_allocations"] == sum(page % 3 == 0 for page in range(first, first + 40))
    assert counts["grown_pages"] > 3 * 1024


def test_why_it_is_not_known(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(NORMAL.first_free)
    recording = pm.open(write_recording(tmp_path / "bare", events))
    assert made_up(pm.open(recording.event_file))[1].endswith("record one with snapshots")


def test_nothing_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks without memory are told by evidence, as an image's types below 0."""
    seen = []
    found = module._block_types

    def noted(*given: object) -> np.ndarray:
        seen.append(found(*given))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(module, "_block_types", noted)
    recording = shipped_recording("xfree")
    made_up(recording)
    image = prepare(recording, recorded_rules(recording).rules, Assumptions(), 0).image
    np.testing.assert_array_equal(seen[0] < 0, image.block_types < 0)
