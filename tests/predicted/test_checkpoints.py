"""Checkpoints: a replay that goes on from one is the replay from the start."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.predicted import Checkpoints, page_balance
from pagealloc_model.predicted.checkpoints import CHUNK, Checkpoint, changes
from pagealloc_model.predicted.replay import Replay
from tests.predicted.test_replay import assert_identical
from tests.small_recordings import ELASTIC, LITERAL, shipped_recording


def assert_same_state(one: Replay, other: Replay) -> None:
    assert one.final is not None and other.final is not None
    for name in ("pages", "blocks", "st", "folios"):
        assert np.array_equal(getattr(one.final, name), getattr(other.final, name)), name


@pytest.mark.parametrize(
    ("name", "assumptions"),
    [("kbuild", LITERAL), ("highatomic_stock", LITERAL), ("highatomic_stock", ELASTIC)],
    ids=["kbuild-literal", "highatomic_stock-literal", "highatomic_stock-elastic"],
)
@pytest.mark.parametrize("policy", [pm.Policy(), pm.Policy(pcp_batch=7)])
def test_a_resumed_window_is_the_one_from_the_start(
    policy: pm.Policy, name: str, assumptions: pm.Assumptions
) -> None:
    recording, kept = shipped_recording(name), Checkpoints()
    replay = partial(pm.replay, recording, policy, assumptions=assumptions)
    for window in ((1.0, 2.0), (1.0, 2.5), (1.7, 2.0), (1.2, 1.5)):
        resumed, whole = replay(window=window, checkpoints=kept), replay(window=window)
        assert_identical(resumed, whole)
        assert_same_state(resumed, whole)
    assert len(kept) == 3


def test_a_checkpoint_knows_which_pages_no_object_has() -> None:
    """Objects that recorded compaction moves after it may exchange places with those alone."""
    recording, kept = shipped_recording("two_nodes_A1"), Checkpoints()
    for end in (5.7, 9.4):
        replay = partial(pm.replay, recording, window=(5.65, end), assumptions=LITERAL)
        resumed = replay(checkpoints=kept)
    whole = replay()
    assert_identical(resumed, whole)
    assert_same_state(resumed, whole)


def test_pages_lost_before_a_checkpoint_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_balance, "IS_STRICT", False)
    monkeypatch.setattr(page_balance, "taken_pages", len)
    recording, kept = shipped_recording("highatomic_stock"), Checkpoints()
    replay = partial(pm.replay, recording, window=(1.0, 1.1), assumptions=LITERAL)
    first, resumed = replay(checkpoints=kept), replay(checkpoints=kept)
    assert first.lost_pages == resumed.lost_pages != 0


def test_resuming_replays_only_what_follows() -> None:
    recording, kept = shipped_recording("kbuild"), Checkpoints()
    shares: list[float] = []
    pm.replay(recording, window=(2.0, 2.5), checkpoints=kept, progress=shares.append)
    before = min(shares)
    shares.clear()
    pm.replay(recording, window=(2.0, 3.0), checkpoints=kept, progress=shares.append)
    assert min(shares) > before


def test_another_policy_or_seed_starts_anew() -> None:
    recording, kept = shipped_recording("highatomic_stock"), Checkpoints()
    window = (1.0, 1.5)
    pm.replay(recording, window=window, checkpoints=kept)
    for changed in ({"policy": pm.Policy(pcp_batch=7)}, {"seed": 1}, {"rules": "6.1"}):
        found = pm.replay(recording, window=window, checkpoints=kept, **changed)
        assert_identical(found, pm.replay(recording, window=window, **changed))
    assert len(kept) == 4


def test_those_used_last_stay() -> None:
    kept = Checkpoints(room=3 * CHUNK)
    before, after = np.zeros(CHUNK, np.uint8), np.ones(CHUNK, np.uint8)
    of = changes(before, after)
    for time in (1, 2):
        kept.keep("a", Checkpoint(time_ns=time, position=time, arrays=(of,)))
    assert kept.latest("a", 2).time_ns == 1  # type: ignore[union-attr]
    kept.keep("a", Checkpoint(time_ns=3, position=3, arrays=(of,)))
    assert [kept.latest("a", each) is not None for each in (2, 3, 4)] == [True, True, True]
    assert kept.latest("a", 3).time_ns == 1  # type: ignore[union-attr]
    assert kept.latest("a", 1) is kept.latest("b", 4) is None


@pytest.mark.parametrize("size", [0, 5, CHUNK, 3 * CHUNK + 9])
def test_changes_rebuild_an_array(size: int) -> None:
    random = np.random.default_rng(size)
    before = random.integers(0, 200, size, np.uint8)
    after = before.copy()
    after[::977] += 1
    rebuilt = before.copy()
    changes(before, after).put_into(rebuilt)
    assert np.array_equal(rebuilt, after)
