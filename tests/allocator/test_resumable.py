"""A replay may stop anywhere and go on: the state and the log are those of an unbroken one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.invariants import broken_invariants
from tests.allocator.event_sequence import digest, plain_digest, random_events, replay, start_state

EVENTS = 6000


def test_the_sequence_uses_every_part_of_the_allocator() -> None:
    state = start_state()
    _, rows = replay(state, random_events(EVENTS))
    assert set(np.unique(rows[:, 0])) == {
        *range(at.SITES),
        at.LOG_ZONE_LOCKED,
        at.LOG_PCPU_DRAIN,
        at.LOG_EXTFRAG,
    }
    for count in (at.COUNT_FORCED, at.COUNT_IN_BASE_PAGES, at.COUNT_UNRESERVE_CALLS):
        assert state.st[count] > 0
    assert broken_invariants(state) == []


@pytest.mark.parametrize("pieces", [2, 17, EVENTS])
def test_stopping_anywhere_changes_nothing(pieces: int) -> None:
    stops = random.Random(pieces).sample(range(EVENTS), pieces - 1)
    state = start_state()
    assert digest(state, *replay(state, random_events(EVENTS), stops)) == plain_digest(EVENTS)


def test_a_log_that_runs_full_again_and_again_loses_nothing() -> None:
    state = start_state(log_rows=at.LOG_MARGIN + 10)
    found = digest(state, *replay(state, random_events(EVENTS)))
    assert state.st[at.LOG_DROPPED] == 0
    assert found == plain_digest(EVENTS)


def test_ticks_after_the_last_event_wait_for_room_in_the_log() -> None:
    events = random_events(EVENTS)
    until = int(events["time_ns"][-1]) + 1_000_000_000
    wide, narrow = start_state(), start_state(log_rows=at.LOG_MARGIN + 1)
    unbroken = digest(wide, *replay(wide, events, until_ns=until))
    assert digest(narrow, *replay(narrow, events, until_ns=until)) == unbroken
    assert wide.st[at.NEXT_TICK] > until


def test_a_copy_goes_its_own_way() -> None:
    events = random_events(EVENTS)
    state = start_state()
    before = (state.pages.tobytes(), state.blocks.tobytes(), state.st.tobytes())
    copy = state.copy()
    replay(copy, events)
    assert (state.pages.tobytes(), state.blocks.tobytes(), state.st.tobytes()) == before
    assert copy.st.tobytes() != state.st.tobytes()
