"""kswapd works off other watermarks before the first event, and none of it is counted."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import pagealloc_model as pm
from pagealloc_model.predicted.start.settled import slept_at_start
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.recording import Recording
from tests.allocator.invariants import broken_invariants, broken_pieces
from tests.predicted.test_no_peeking import blinded
from tests.small_recordings import shipped_recording

ELASTIC = pm.Assumptions(reclaim="elastic")
MORE = pm.Policy(min_free_kbytes=16384)


def saying(slept: bool | None) -> Recording:
    """matrix_A1, whose recorder says that kswapd slept, that it worked, or nothing."""
    recording = shipped_recording("matrix_A1")
    meta = recording.meta if slept is None else recording.meta | {"kswapd_slept": slept}
    return replace(recording, meta=meta)


@cache
def replayed(slept: bool | None) -> pm.Replay:
    return pm.replay(saying(slept), MORE, assumptions=ELASTIC)


def test_free_pages_begin_above_the_new_low_watermark() -> None:
    settled, begun_in_need = replayed(None), replayed(False)
    assert settled.settled_pages == settled.divergence["settled_pages"] > 3000
    assert begun_in_need.settled_pages == 0
    assert "settled_pages" not in begun_in_need.divergence
    low = 16384 // 4 * 5 // 4
    free = []
    for each in (settled, begun_in_need):
        pages = each.free_pages.groupby("time_ns")["pages"].sum()
        free.append(pages.iloc[0])
    assert free[0] > low > free[1]


def test_none_of_it_is_counted() -> None:
    settled = replayed(None)
    counters = settled.vmstat
    first = counters[counters["time_ns"] == counters["time_ns"].min()].set_index("name")["value"]
    assert first["pgsteal_kswapd"] < 100 < settled.settled_pages
    assert first["pageoutrun"] <= 1
    start_ns = settled.recording.trace.demand_span_ns[0]
    assert settled.log["time_ns"].min() >= start_ns
    assert settled.samples.list_locks[0].sum() < 1000


def test_the_state_is_sound_at_the_end() -> None:
    assert broken_invariants(replayed(None).final) == []
    assert broken_pieces(replayed(None).final, replayed(None).places) == []
    assert "lost_pages" not in replayed(None).divergence


@pytest.mark.parametrize("policy", [None, pm.Policy(pcp_batch_scale_max=2)])
def test_nothing_settles_under_the_recorded_marks(policy: pm.Policy | None) -> None:
    assert pm.replay(saying(True), policy, assumptions=ELASTIC).settled_pages == 0


def test_snapshots_tell_where_the_recorder_does_not() -> None:
    recording = saying(None)
    assert slept_at_start(recording)
    assert slept_at_start(blinded(recording))
    assert not slept_at_start(saying(False))
    early, _ = start_snapshots(recording)
    later = [each for each in recording.snapshots if each.time_ns > early.time_ns]
    # kswapd scanned between these two
    assert not slept_at_start(replace(recording, snapshots=(early, *later[1:])))
    assert not slept_at_start(replace(recording, snapshots=(early,)))
