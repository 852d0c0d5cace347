"""Direct reclaims and kswapd's runs, found in the events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.predicted.demand.demand import resolve_demand
from pagealloc_model.predicted.demand.reclaim import KSWAPD_NAP_NS, direct_reclaims, kswapd_runs
from pagealloc_model.recording.machine import Machine
from tests.predicted.demand.test_compaction import Daemons
from tests.predicted.demand.test_demand import PAGE
from tests.small_recordings import EVENTS_BEGIN_NS, small_machine


def test_a_request_after_its_tasks_reclaim_is_marked(tmp_path: Path) -> None:
    """An interrupt's request on the task's account, and one of another order, are not it."""
    words = "@0:7 a0 r^1 @1:8 a1 @0:7 a2:GFP_ATOMIC z32 a3:GFP_ATOMIC a4^2 @1:7 a8^1 a10^1"
    trace = Daemons(words).trace(tmp_path)
    assert direct_reclaims(trace).row.tolist() == [5]
    demand = resolve_demand(trace, small_machine())
    marked = demand.events["bits"] >> at.RECLAIM_SHIFT
    assert marked.tolist() == [0, 1, 0, 0, 0, 0, 1, 0]
    begin, request = demand.events[[1, 6]]
    assert begin["operation"] == at.RECLAIM_BEGIN
    assert begin["cpu"] == 0
    for name in ("order", "migratetype", "zone", "bits"):
        assert begin[name] == request[name]
    assert demand.direct_reclaim_recorded


def test_reclaims_at_one_time_have_different_numbers(tmp_path: Path) -> None:
    words = "@0:7 r^1 @0:8 r^1 @0:8 z1 a8^1 @0:7 z1 a6^1 r^1 z1 a0^1"
    assert direct_reclaims(Daemons(words).trace(tmp_path)).number.tolist() == [2, 1, 1]


def test_of_several_reclaims_for_a_request_the_last_counts(tmp_path: Path) -> None:
    trace = Daemons("@0:7 r^1 z32 r^1 z32 r^1 z0 a0^1").trace(tmp_path)
    begins = trace.tables["vmscan:mm_vmscan_direct_reclaim_begin"]["time_ns"]
    found = direct_reclaims(trace)
    assert found.begin_ns.tolist() == begins[:2].tolist()
    assert found.number.tolist() == [0, 1]


def test_reclaim_without_a_request_after_it_marks_nothing(tmp_path: Path) -> None:
    trace = Daemons("@0:7 a0 r z1 @0:6 a1 z1 a2").trace(tmp_path)
    assert direct_reclaims(trace).row.tolist() == []
    assert not resolve_demand(trace, small_machine()).direct_reclaim_recorded


def runs_of(words: str, directory: Path, machine: Machine | None = None) -> np.ndarray:
    runs = kswapd_runs(Daemons(words).trace(directory), machine or small_machine())
    assert runs is not None
    return runs


def test_kswapd_runs_end_a_nap_before_it_sleeps(tmp_path: Path) -> None:
    runs = runs_of("a0 w0 +250000 n0 +1000 w0 +10 w0^3 +10 a1", tmp_path)
    assert runs["operation"].tolist() == [at.KSWAPD_START, at.KSWAPD_STOP] * 3
    times = (runs["time_ns"] - EVENTS_BEGIN_NS) // 1000
    assert times[:2].tolist() == [1, 250_002 - KSWAPD_NAP_NS // 1000]
    assert times[3] == times[4] == times[2] + 11


def test_kswapd_runs_are_each_nodes_own(tmp_path: Path) -> None:
    """Node 0's run lasts until the recording ends, whatever node 1's kswapd does meanwhile."""
    zones = small_machine().zones
    second = tuple(replace(zone, node=1, managed=0) for zone in zones)
    machine = Machine(zones=(*zones, *second), nr_cpus=2)
    runs = runs_of("a0 w0 w1 +250000 n1 a1", tmp_path, machine)
    assert runs["operation"].tolist() == [at.KSWAPD_START] * 2 + [at.KSWAPD_STOP] * 2
    assert runs["offset"].tolist() == [0, 1, 1, 0]
    assert runs["zone"][:2].tolist() == [len(zones) - 1] * 2


def test_a_wake_names_the_highest_zone_where_it_can(tmp_path: Path) -> None:
    events = Daemons("a0")
    events.event("vmscan:mm_vmscan_kswapd_wake", "nid=0 zid=1 order=0")
    events.event("vmscan:mm_vmscan_kswapd_sleep", "nid=0")
    events.alloc(PAGE + 1)
    runs = kswapd_runs(events.trace(tmp_path), small_machine())
    assert runs is not None
    assert runs["zone"][0] == 1


def test_kswapd_of_an_unknown_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="kswapd of node 3"):
        runs_of("a0 w3 n3 a1", tmp_path)


def test_without_kswapd_events_the_model_decides(tmp_path: Path) -> None:
    trace = Daemons("a0").trace(tmp_path)
    assert kswapd_runs(trace, small_machine()) is None
    assert not resolve_demand(trace, small_machine()).kswapd_recorded


@pytest.mark.parametrize(
    ("then", "is_told"),
    [("c^9 a0^9", True), ("@0:8 c^9 @0:7 a0^9", False), ("x^9", True), ("a0^9", False)],
)
def test_a_large_requests_last_reclaim_was_in_vain_if_it_then_compacts_or_fails(
    tmp_path: Path, then: str, is_told: bool
) -> None:
    found = direct_reclaims(Daemons(f"@0:7 r^9 z1 {then}").trace(tmp_path))
    assert found.in_vain.tolist() == [is_told]
    assert found.number.tolist() == [int(not is_told)]


def test_with_a_known_start_the_model_tells_whether_the_last_reclaim_was_in_vain(
    tmp_path: Path,
) -> None:
    """Otherwise the nearest event tells it of a reclaim for one page: here its own beginning."""
    trace = Daemons("@0:7 r z1 @1:8 a1 @0:7 a0").trace(tmp_path)
    by_event, by_model = (direct_reclaims(trace, is_start_known=known) for known in (False, True))
    assert by_event is not None
    assert by_model is not None
    assert (by_event.in_vain.tolist(), by_event.number.tolist()) == ([True], [0])
    assert (by_model.in_vain.tolist(), by_model.number.tolist()) == ([False], [1])
