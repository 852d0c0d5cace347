"""Choices judged alone come to an end on any recording: contradictions are mended or named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.choices import judging
from pagealloc_model.allocator.choices import true_state as rec
from pagealloc_model.allocator.choices.judging import Judged
from pagealloc_model.allocator.choices.resync import resync
from pagealloc_model.base.errors import CorruptStateError
from pagealloc_model.recording.machine import Machine
from pagealloc_model.verdict.choices import placement
from pagealloc_model.verdict.choices.recorded_moves import tracked, with_notes
from pagealloc_model.verdict.choices.true_start import true_start
from tests.allocator.small_state import Small
from tests.small_recordings import TimedEvents, small_machine
from tests.verdict.test_placement import FIRST, judged, refilled

LISTED, OTHER = 512, 1024


def test_parts_of_a_page_seen_whole_leave_their_lists(tmp_path: Path) -> None:
    """Frees and drains were missed: the second page is part of another, and on a list no more."""
    events = refilled()
    events.alloc(FIRST, order=1)
    assert judged(tmp_path, events).repairs["pages on another list of the CPU"] == 1


def test_two_pages_do_not_share_a_frame_at_the_start() -> None:
    """The second frame is free before the two are handed out as one."""
    machine = small_machine()
    moves = np.zeros(2, rec.STEP)
    moves["pfn"] = (FIRST + 1, FIRST)
    moves["order"] = (0, 1)
    moves["operation"] = (rec.REMOVE, rec.POP)
    moves["zone"] = _zone_of(machine, FIRST)
    first = np.zeros(machine.end_pfn, np.int8)
    first[FIRST : FIRST + 2] = (rec.POP, rec.REMOVE)
    image = true_start(machine, moves, first, None)
    assert image.free[FIRST + 1]
    assert not len(image.listed)


def _zone_of(machine: Machine, pfn: int) -> int:
    spans = [zone.start_pfn <= pfn < zone.end_pfn for zone in machine.zones]
    return spans.index(True)


def test_a_list_that_holds_another_lists_page_is_named() -> None:
    small = Small("7.2")
    state = small.state
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


def test_the_command_ends_with_one_line_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "resync", lambda *_: 0)
    events = TimedEvents()
    events.alloc(FIRST)
    with pytest.raises(CorruptStateError, match=r"at 0\.000000 s \(event 0\) page frame"):
        judged(tmp_path, events)
