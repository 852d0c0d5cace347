"""The runner: the same at any split of the events, cancelling, progress."""

import pytest
from pytest import MonkeyPatch

import pagealloc_model as pm
from pagealloc_model.predicted.replay import Cancelled
from tests.predicted.test_replay import assert_identical
from tests.small_recordings import (
    shipped_recording,
)


@pytest.mark.parametrize("split", [1, 7, 100])
def test_a_replay_is_exact_at_any_split(
    small: pm.Recording, monkeypatch: MonkeyPatch, split: int
) -> None:
    whole = pm.replay(small)
    monkeypatch.setattr("pagealloc_model.predicted.runner.STEP_EVENTS", split)
    assert_identical(whole, pm.replay(small))


def test_cancel_ends_a_replay_and_harms_nothing(small: pm.Recording) -> None:
    before = pm.replay(small)
    with pytest.raises(Cancelled):
        pm.replay(small, cancel=lambda: True)
    asked: list[None] = []

    def at_third_time() -> bool:
        asked.append(None)
        return len(asked) == 3

    with pytest.raises(Cancelled):
        pm.replay(small, cancel=at_third_time)
    assert len(asked) == 3
    assert_identical(before, pm.replay(small, cancel=lambda: False))


@pytest.mark.parametrize("name", ["kbuild", "highatomic_gate3"])
def test_progress_grows_to_one(name: str) -> None:
    shares: list[float] = []
    pm.replay(shipped_recording(name), progress=shares.append)
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert shares[0] >= 0.0
    assert shares[-1] == 1.0
