"""A replay may stop anywhere, look ahead, and run without machine code: its outcome is the same."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from pytest import MonkeyPatch

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import advance, prefetch
from pagealloc_model.allocator.state import make_state, place_buddies
from pagealloc_model.base import jit
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from tests.allocator.event_sequence import digest, plain_digest, random_events, replay, start_state
from tests.allocator.invariants import broken_invariants
from tests.allocator.small_state import BLOCK, KERNEL, Pressed, bits_of, one_zone
from tests.allocator.test_invariants import hostile

EVENTS = 6000

INTERPRETED = 2500  # events that Python itself takes one by one


def test_the_sequence_uses_every_part_of_the_allocator() -> None:
    state = start_state()
    _, rows = replay(state, random_events(EVENTS))
    assert set(np.unique(rows["kind"])) == {
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


def demand_of(pressed: Pressed, seed: int) -> np.ndarray:
    """Events over 20 ms: requests of several orders and classes, most of them freed."""
    rng = np.random.default_rng(seed)
    events = np.zeros(400, at.EVENT)
    events["time_ns"] = np.sort(rng.integers(1, 20_000_000, len(events)))
    live: list[tuple[int, int]] = []
    for event in events:
        if live and rng.random() < 0.4:
            number, order = live.pop(int(rng.integers(len(live))))
            event["operation"] = at.FREE
        else:
            number, order = pressed.objects, int(rng.choice([0, 0, 1, 2, 9]))
            pressed.objects += 1
            live.append((number, order))
            kind = int(rng.choice([pr.KERNEL, pr.ANON, pr.FILE]))
            event["operation"], event["migratetype"] = at.ALLOC, int(kind >= pr.ANON)
            event["bits"] = bits_of(kind, KERNEL | pr.GFP_NORETRY)
        event["object"], event["order"] = number, order
    return events


@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_replay_goes_on_anywhere_as_if_it_had_not_stopped(step: int) -> None:
    ends = []
    for size in (400, step):
        pressed = hostile(Policy(), "7.2")
        events = demand_of(pressed, seed=3)
        for low in range(0, len(events), size):
            pressed.replay(events, low, min(low + size, len(events)))
        ends.append(pressed)
    for name in ("pages", "blocks", "st", "folios"):
        whole, parts = (getattr(end.state, name) for end in ends)
        np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(ends[0].places, ends[1].places)


def test_without_jit_the_outcome_is_bit_identical(checkout: Path) -> None:
    interpreted = subprocess.run(
        [sys.executable, "-m", "tests.allocator.event_sequence", str(INTERPRETED)],
        cwd=checkout,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert interpreted.stdout.strip() == plain_digest(INTERPRETED)


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("records", [np.dtype(np.int32), at.PAGE])
def test_asking_is_one_instruction_and_allows_any_index(
    tmp_path: Path, monkeypatch: MonkeyPatch, records: np.dtype
) -> None:
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))

    def asked(pages: np.ndarray, index: int) -> int:
        prefetch(pages, index)
        return index

    loop = jit.entry(asked)
    pages = np.zeros(2, records)
    assert [loop(pages, index) for index in (0, -1, 1 << 40)] == [0, -1, 1 << 40]
    assert not pages.view(np.uint8).any()
    assert any("prefetch" in code for code in loop.inspect_asm().values())


def test_a_block_is_released_when_the_kernel_released_one_and_only_then() -> None:
    """Two blocks are reserved, each with a free page; a failure that reclaimed releases none."""
    state = make_state(one_zone(), KernelRules.preset("7.2"))
    reserved = [4, 5]
    state.blocks["migratetype"][reserved] = at.HIGHATOMIC
    place_buddies(
        state.arrays(), np.array([4 * BLOCK, 5 * BLOCK], np.int32), np.full(2, 3, np.int8)
    )
    state.zone_region(0)[at.ZONE_RESERVED_HIGHATOMIC] = 2 * BLOCK
    state.st[at.RELEASES_RECORDED] = 1
    events = np.zeros(2, at.EVENT)
    events["operation"] = (at.RECORDED_FAILURE, at.RELEASE_BLOCK)
    events["migratetype"] = at.MOVABLE
    events["bits"][0] = (1 << at.RECLAIM_SHIFT) | at.GFP_DIRECT_RECLAIM
    places = np.full(1, -1, np.int32)
    found = []
    for number in range(2):
        assert advance(state.arrays(places), events, number, number + 1, -1) == number + 1
        found.append(sorted(state.blocks["migratetype"][reserved].tolist()))
    assert found == [[at.HIGHATOMIC] * 2, [at.MOVABLE, at.HIGHATOMIC]]
    assert state.st[at.RELEASES_RECORDED] == 1
