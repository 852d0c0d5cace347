"""Replays: the same result every time, windows, cancelling, progress, conservation, policies."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State
from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.start.image import start_state
from tests.allocator.invariants import broken_invariants
from tests.predicted.test_no_peeking import TABLES
from tests.small_recordings import (
    AFTER_NS,
    BLOCK,
    LITERAL,
    TimedEvents,
    shipped_recording,
    shipped_replay,
    start_free,
    write_recording,
    write_snapshot,
)

SHIPPED = ("kbuild", "xfree", "highatomic_stock", "highatomic_gate3")


def assert_identical(one: Replay, other: Replay) -> None:
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)
    assert np.array_equal(one.places, other.places)
    assert one.divergence == other.divergence


def pages_in_all(state: State) -> int:
    """Free, listed and allocated pages together."""
    free = int((state.free_buddies().sum(axis=(0, 2)) << np.arange(at.ORDERS)).sum())
    listed = int(state.pcp_words(at.PCP_COUNT, 1).sum())
    allocated = state.pages["order"][state.pages["where"] == at.ALLOCATED].astype(np.int64)
    return free + listed + int((1 << allocated).sum())


def reserved_at_end(replay: Replay, zone: str) -> int:
    table = replay.pageblocks
    last = table[table["time_ns"] == table["time_ns"].max()]
    chosen = (last["zone"] == zone) & (last["migratetype"] == "HighAtomic")
    return int(last.loc[chosen, "blocks"].sum())


@pytest.mark.parametrize("policies", [(None, None), (None, Policy(pcp_batch=1))])
def test_threads_give_the_serial_results(policies: tuple[Policy | None, ...]) -> None:
    recording = shipped_recording("highatomic_gate3")
    serial = [pm.replay(recording, policy) for policy in policies]
    with ThreadPoolExecutor(2) as pool:
        threaded = list(pool.map(lambda policy: pm.replay(recording, policy), policies))
    for one, other in zip(serial, threaded, strict=True):
        assert_identical(one, other)


def test_threads_may_open_a_recording_together(small: pm.Recording) -> None:
    unread = pm.open(small.path)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: pm.replay(unread), range(2)))
    for one in found:
        assert_identical(one, pm.replay(small))


@pytest.mark.parametrize("name", SHIPPED)
def test_no_page_is_lost_or_made(name: str) -> None:
    recording, replay = shipped_recording(name), shipped_replay(name)
    rules = recorded_rules(recording).rules
    prepared = prepare(recording, rules, Assumptions(), 0)
    begun = start_state(
        prepared.machine, prepared.demand, prepared.image, rules, replay.policy, Assumptions()
    )
    assert replay.final is not None
    assert broken_invariants(begun) == []
    assert broken_invariants(replay.final) == []
    assert pages_in_all(begun) == pages_in_all(replay.final)


def test_no_page_is_lost_under_another_policy() -> None:
    recording = shipped_recording("highatomic_stock")
    policy = Policy(highatomic_gate_order=3, pcp_batch=511, costly_order=1, pcp_free_batched=True)
    recorded, other = shipped_replay("highatomic_stock"), pm.replay(recording, policy)
    assert recorded.final is not None and other.final is not None
    assert broken_invariants(other.final) == []
    unserved = other.divergence["failed"] - recorded.divergence["failed"]
    assert unserved or pages_in_all(recorded.final) == pages_in_all(other.final)


def test_a_window_shows_its_part_of_the_whole() -> None:
    recording = shipped_recording("highatomic_gate3")
    whole = shipped_replay("highatomic_gate3")
    part = pm.replay(recording, window=(1.0, 3.0), assumptions=LITERAL)
    first = recording.trace.demand_span_ns[0]
    assert part.edges[0] == first + 1_000_000_000
    assert part.samples.time_ns[0] == part.edges[0]
    assert part.samples.time_ns[-1] <= part.edges[-1]
    assert first + 3_000_000_000 <= part.edges[-1] < first + 3_100_000_000
    times = whole.transactions_full["time_ns"]
    inside = (times >= part.edges[0]) & (times < part.edges[-1])
    pd.testing.assert_frame_equal(
        part.transactions_full, whole.transactions_full[inside].reset_index(drop=True)
    )
    keys = ["time_ns", "node", "zone", "order", "migratetype"]
    common = part.free_pages.merge(whole.free_pages, on=keys, suffixes=("", "_whole"))
    assert len(common)
    assert (common["buddies"] == common["buddies_whole"]).all()


@pytest.mark.parametrize("window", [(-1.0, 2.0), (2.0, 2.0), (3.0, 1.0), (1e6, 2e6)])
def test_an_empty_window_is_refused(small: pm.Recording, window: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="outside the recording"):
        pm.replay(small, window=window)


def test_what_a_literal_replay_cannot_know_is_na_with_a_reason(small: pm.Recording) -> None:
    replay = pm.replay(small, Policy(pcp_batch=31))
    assert replay.outcomes[["succeeded", "failed", "stalled"]].isna().all(axis=None)
    assert replay.outcomes["reason"].str.contains("literal replay").all()
    assert replay.vmstat["value"].isna().all()
    assert replay.lock[["hold_ns", "wait_ns", "max_hold_ns"]].isna().all(axis=None)
    asked = replay.outcomes.groupby("order")["asked"].sum()
    assert asked.to_dict() == {0: 300, 3: 8, 9: 1}


def test_the_gate_decides_over_highatomic_blocks() -> None:
    recording = shipped_recording("highatomic_gate3")
    recorded = shipped_replay("highatomic_gate3")
    assert recorded.policy.highatomic_gate_order == 3
    assert reserved_at_end(recorded, "DMA32") == 0
    open_gate = pm.replay(recording, Policy(highatomic_gate_order=0), assumptions=LITERAL)
    assert reserved_at_end(open_gate, "DMA32") > 0
    assert "reserve" in set(open_gate.transactions["site"])
    shut = pm.replay(recording, Policy(highatomic_gate_order=10), assumptions=LITERAL)
    assert "reserve" not in set(shut.transactions["site"])


def test_histogram_and_full_transactions_agree_with_the_lock_table() -> None:
    replay = shipped_replay("highatomic_stock")
    assert replay.transactions["transactions"].sum() == len(replay.transactions_full)
    full = replay.transactions_full.groupby("site")["pages"].sum()
    binned = replay.lock.groupby("site")["pages"].sum()
    for site in full.index:
        assert binned[site] == full[site]


def test_provenance_names_what_made_the_result(small: pm.Recording) -> None:
    made = pm.replay(small, Policy(pcp_batch=31), seed=4).provenance
    assert made["recording"] == "small"
    assert made["changed"] == {"pcp_batch": 31}
    assert made["seed"] == 4
    assert made["lost_events"] == 0
    assert "6.18" in str(made["rules_origin"])


def test_a_recorded_sysctl_is_the_recorded_policy(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "gated", sysctl={"highatomic_gate_order": "3"})
    recording = pm.open(path)
    assert pm.replay(recording).policy.highatomic_gate_order == 3
    assert pm.replay(recording, Policy(highatomic_gate_order=0)).policy.highatomic_gate_order == 0


def test_limits_of_the_start_snapshot_take_effect_at_its_time(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "tuned")
    snapshot = write_snapshot(path, AFTER_NS, start_free())
    zoneinfo = (snapshot / "zoneinfo").read_text()
    (snapshot / "zoneinfo").write_text(zoneinfo.replace("high: 60", "high: 200"))
    replay = pm.replay(pm.open(path))
    high = replay.pcp[replay.pcp["zone"] == "DMA32"].groupby("time_ns")["high"].max()
    assert (high[high.index < AFTER_NS] == 60).all()
    assert (high[high.index > AFTER_NS] > 60).any()


def test_requests_below_the_watermarks_are_served_and_counted_as_forced(tmp_path: Path) -> None:
    events = TimedEvents()
    free_blocks = np.flatnonzero(start_free()[::BLOCK]) * BLOCK
    for first in free_blocks:
        events.alloc(int(first), order=9)
    replay = pm.replay(pm.open(write_recording(tmp_path / "full", events)))
    assert replay.final is not None and broken_invariants(replay.final) == []
    assert replay.divergence["forced"] > 0
    assert replay.divergence["failed"] == 0
    assert (np.sort(replay.places) == free_blocks).all()
