"""The balance of pages: it holds in replays, and says which event breaks it."""

from __future__ import annotations

import numpy as np
import pytest
from pytest import MonkeyPatch

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import CorruptStateError
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted import Checkpoints
from pagealloc_model.predicted import run as balance
from pagealloc_model.predicted.carrier import ModelCarrier
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.run import CHUNK, Checkpoint, PageBalance, changes
from tests.allocator.event_sequence import random_events, start_state
from tests.predicted.test_replay import assert_identical
from tests.small_recordings import shipped_recording, shipped_replay

EVENTS = 3000
CULPRIT = 1234


class LeakyCarrier(ModelCarrier):
    """Kernels that forget a free page at one event."""

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        stopped = super().advance(events, places, low, high, until_ns)
        if low <= CULPRIT < stopped:
            self.state.pcp_region(0, 0)[at.PCP_COUNT] -= 1
        return stopped


def run(carrier: ModelCarrier) -> PageBalance:
    """All events, with a look at the balance every 1000."""
    events, places = random_events(EVENTS), np.full(EVENTS, -1, np.int32)
    found = PageBalance(carrier, places, 0)
    for position in range(0, EVENTS, 1000):
        assert carrier.advance(events, places, position, position + 1000, -1) == position + 1000
        carrier.state.st[at.LOG_ROWS] = 0
        found.check(events, position + 1000)
    return found


def test_no_page_is_lost() -> None:
    assert run(ModelCarrier(start_state())).lost == 0


def test_what_is_lost_is_counted(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "IS_STRICT", False)
    assert run(LeakyCarrier(start_state())).lost == 1


def test_tests_refuse_a_lost_page() -> None:
    with pytest.raises(CorruptStateError, match="lost 1 pages between events 1000 and 2000"):
        run(LeakyCarrier(start_state()))


def test_a_checked_run_names_the_event(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "CHECKED", True)
    with pytest.raises(CorruptStateError, match=rf"lost 1 pages at event {CULPRIT} \(time_ns"):
        run(LeakyCarrier(start_state()))


# Tables on per-CPU lists' locks and pageblock ownership, and how broken up memory is


OWNED = pm.Policy(pageblock_ownership="pcp_buddy")


@pytest.fixture(scope="module")
def replays() -> tuple[pm.Replay, pm.Replay]:
    return shipped_replay("xfree"), pm.replay(shipped_recording("xfree"), OWNED)


def test_phases_add_up_to_the_refills_of_zone_lock(replays: tuple[pm.Replay, pm.Replay]) -> None:
    owned = replays[1]
    refills = owned.transactions_full[owned.transactions_full["site"] == "refill"]
    last = owned.refill_phases[
        owned.refill_phases["time_ns"] == owned.refill_phases["time_ns"].max()
    ]
    assert last["pages"].sum() == refills["pages"].sum() > 0
    assert last["objects"].sum() == refills["objects"].sum()


def test_a_comparison_has_the_locks_of_lists(replays: tuple[pm.Replay, pm.Replay]) -> None:
    comparison = pm.compare(*replays)
    rows = comparison.rows.set_index("metric")
    assert rows.loc["pcp_lock_acquisitions", "base"] > 0
    assert np.isnan(rows.loc["remote_frees", "base"])
    assert rows.loc["remote_frees", "patch"] > 0
    assert rows.loc["pcp_lock_hand_overs", "patch"] > rows.loc["pcp_lock_hand_overs", "base"]
    assert "pageblock_ownership: as recorded -> pcp_buddy" in " ".join(comparison.to_text().split())


def test_options_that_differ_are_named_with_their_defaults(
    replays: tuple[pm.Replay, pm.Replay],
) -> None:
    changed = pm.replay(
        shipped_recording("xfree"), OWNED.changed_by(pm.Policy.parse(["ownership.recovers=0"]))
    )
    text = " ".join(pm.compare(replays[1], changed).to_text().split())
    assert "ownership.recovers: 1 -> 0" in text


# Checkpoints: a replay that goes on from one is the replay from the start


def assert_same_state(one: Replay, other: Replay) -> None:
    assert one.final is not None and other.final is not None
    for name in ("pages", "blocks", "st", "folios"):
        assert np.array_equal(getattr(one.final, name), getattr(other.final, name)), name


@pytest.mark.parametrize("name", ["kbuild", "highatomic_stock"])
@pytest.mark.parametrize("policy", [pm.Policy(), pm.Policy(pcp_batch=7)])
def test_a_resumed_window_is_the_one_from_the_start(name: str, policy: pm.Policy) -> None:
    recording, kept = shipped_recording(name), Checkpoints()
    for window in ((1.0, 2.0), (1.0, 2.5), (1.7, 2.0), (1.2, 1.5)):
        resumed = pm.replay(recording, policy, window=window, checkpoints=kept)
        whole = pm.replay(recording, policy, window=window)
        assert_identical(resumed, whole)
        assert_same_state(resumed, whole)
    assert len(kept) == 3


def test_an_elastic_replay_resumes() -> None:
    recording, kept = shipped_recording("highatomic_stock"), Checkpoints()
    assumptions = Assumptions(reclaim="elastic")
    for end in (1.2, 1.4):
        window = (1.0, end)
        resumed = pm.replay(recording, assumptions=assumptions, window=window, checkpoints=kept)
    whole = pm.replay(recording, assumptions=assumptions, window=window)
    assert_identical(resumed, whole)
    assert_same_state(resumed, whole)


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
