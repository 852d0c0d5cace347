"""What demand says of the recorded kernel's reclaim: direct reclaims and kswapd's runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import resolve_demand
from pagealloc_model.predicted.demand.reclaim import KSWAPD_NAP_NS, direct_reclaims, kswapd_runs
from pagealloc_model.recording.machine import Machine
from tests.small_recordings import (
    EVENTS_BEGIN_NS,
    TimedEvents,
    small_machine,
)

PAGE = 0x1000


def begin_reclaim(events: TimedEvents, order: int = 0) -> None:
    """The current task's direct reclaim begins."""
    gfp = "GFP_HIGHUSER_MOVABLE"
    events.event("vmscan:mm_vmscan_direct_reclaim_begin", f"order={order} gfp_flags={gfp}")


def end_reclaim(events: TimedEvents, freed: int = 1) -> None:
    """It ends, having freed so many pages."""
    events.event("vmscan:mm_vmscan_direct_reclaim_end", f"nr_reclaimed={freed}")


def test_a_request_after_its_tasks_reclaim_is_marked(tmp_path: Path) -> None:
    """An interrupt's request on the task's account, and one of another order, are not it."""
    events = TimedEvents()
    events.on(0, pid=7).alloc(PAGE)
    begin_reclaim(events, order=0)
    events.on(1, pid=8).alloc(PAGE + 1)
    events.on(0, pid=7).alloc(PAGE + 2, gfp="GFP_ATOMIC")
    end_reclaim(events, freed=32)
    events.alloc(PAGE + 3, gfp="GFP_ATOMIC")
    events.alloc(PAGE + 4, order=2)
    events.on(1, pid=7).alloc(PAGE + 8)
    events.alloc(PAGE + 9)
    trace = events.trace(tmp_path)
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


def test_what_an_interrupt_frees_is_not_reclaims(tmp_path: Path) -> None:
    """Neither of kswapd's nor of a task that reclaims (T10.10)."""
    events = TimedEvents()
    for page in range(4):
        events.on(0, pid=7).alloc(PAGE + page)
    begin_reclaim(events)
    events.free(PAGE)
    events.free(PAGE + 1)
    end_reclaim(events)
    events.on(1, pid=40, comm="kswapd0").free(PAGE + 2)
    events.free(PAGE + 3)
    trace = events.trace(tmp_path)
    in_interrupt = np.zeros(len(trace), np.int8)
    in_interrupt[[5, 7]] = 1
    elastic = Assumptions(reclaim="elastic")
    told = resolve_demand(replace(trace, in_interrupt=in_interrupt), small_machine(), elastic)
    frees = told.events[told.events["operation"] == at.FREE]
    by_reclaim = frees["bits"] & pr.FREED_BY_RECLAIM == pr.FREED_BY_RECLAIM
    assert by_reclaim.tolist() == [True, False, True, False]


def test_reclaims_at_one_time_have_different_numbers(tmp_path: Path) -> None:
    events = TimedEvents()
    for pid in (7, 8):
        begin_reclaim(events.on(0, pid=pid))
    for pid in (8, 7):
        end_reclaim(events.on(0, pid=pid))
        events.alloc(PAGE + pid)
    begin_reclaim(events)
    end_reclaim(events)
    events.alloc(PAGE)
    assert direct_reclaims(events.trace(tmp_path)).number.tolist() == [2, 1, 1]


def test_of_several_reclaims_for_a_request_the_last_counts(tmp_path: Path) -> None:
    events = TimedEvents()
    events.on(0, pid=7)
    for freed in (32, 32, 0):
        begin_reclaim(events)
        end_reclaim(events, freed=freed)
    events.alloc(PAGE)
    found = direct_reclaims(events.trace(tmp_path))
    table = events.trace(tmp_path).tables["vmscan:mm_vmscan_direct_reclaim_begin"]
    assert found.begin_ns.tolist() == [table["time_ns"][1]]


def test_reclaim_without_a_request_after_it_marks_nothing(tmp_path: Path) -> None:
    events = TimedEvents()
    events.on(0, pid=7).alloc(PAGE)
    begin_reclaim(events)
    end_reclaim(events)
    events.on(0, pid=6).alloc(PAGE + 1)
    end_reclaim(events.on(0, pid=6))
    events.alloc(PAGE + 2)
    trace = events.trace(tmp_path)
    assert direct_reclaims(trace).row.tolist() == []
    assert not resolve_demand(trace, small_machine()).direct_reclaim_recorded


def test_kswapd_runs_end_a_nap_before_it_sleeps(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    events.event("vmscan:mm_vmscan_kswapd_wake", "nid=0 order=0")
    events.wait(250_000)
    events.event("vmscan:mm_vmscan_kswapd_sleep", "nid=0")
    events.wait(1_000)
    events.event("vmscan:mm_vmscan_kswapd_wake", "nid=0 order=0")
    events.wait(10)
    events.event("vmscan:mm_vmscan_kswapd_wake", "nid=0 order=3")
    events.wait(10)
    events.alloc(PAGE + 1)
    runs = kswapd_runs(events.trace(tmp_path), small_machine())
    assert runs is not None
    assert runs["operation"].tolist() == [at.KSWAPD_START, at.KSWAPD_STOP] * 3
    times = (runs["time_ns"] - EVENTS_BEGIN_NS) // 1000
    nap = KSWAPD_NAP_NS // 1000
    assert times[:2].tolist() == [1, 250_002 - nap]
    assert times[3] == times[4] == times[2] + 11


def test_kswapd_runs_are_each_nodes_own(tmp_path: Path) -> None:
    """Node 0's run lasts until the recording ends, whatever node 1's kswapd does meanwhile."""
    events = TimedEvents()
    events.alloc(PAGE)
    events.event("vmscan:mm_vmscan_kswapd_wake", "nid=0 order=0")
    events.event("vmscan:mm_vmscan_kswapd_wake", "nid=1 order=0")
    events.wait(250_000)
    events.event("vmscan:mm_vmscan_kswapd_sleep", "nid=1")
    events.alloc(PAGE + 1)
    zones = small_machine().zones
    second = tuple(replace(zone, node=1, managed=0) for zone in zones)
    runs = kswapd_runs(events.trace(tmp_path), Machine(zones=(*zones, *second), nr_cpus=2))
    assert runs is not None
    assert runs["operation"].tolist() == [at.KSWAPD_START] * 2 + [at.KSWAPD_STOP] * 2
    assert runs["offset"].tolist() == [0, 1, 1, 0]
    assert runs["zone"][:2].tolist() == [len(zones) - 1] * 2


def test_a_wake_names_the_highest_zone_where_it_can(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    events.event("vmscan:mm_vmscan_kswapd_wake", "nid=0 zid=1 order=0")
    events.event("vmscan:mm_vmscan_kswapd_sleep", "nid=0")
    events.alloc(PAGE + 1)
    runs = kswapd_runs(events.trace(tmp_path), small_machine())
    assert runs is not None
    assert runs["zone"][0] == 1


def test_kswapd_of_an_unknown_node_is_refused(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    events.event("vmscan:mm_vmscan_kswapd_wake", "nid=3 order=0")
    events.event("vmscan:mm_vmscan_kswapd_sleep", "nid=3")
    events.alloc(PAGE + 1)
    with pytest.raises(UsageError, match="kswapd of node 3"):
        kswapd_runs(events.trace(tmp_path), small_machine())


def test_without_kswapd_events_the_model_decides(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    trace = events.trace(tmp_path)
    assert kswapd_runs(trace, small_machine()) is None
    assert not resolve_demand(trace, small_machine()).kswapd_recorded


def test_reclaims_of_a_request_before_its_last_were_in_vain(tmp_path: Path) -> None:
    """Where they ended, with the request; a costly order's are not told."""
    events = TimedEvents()
    events.on(0, pid=7).alloc(PAGE)
    for order in (0, 4):
        for freed in (32, 0, 8, 16):
            begin_reclaim(events, order=order)
            end_reclaim(events, freed=freed)
        events.alloc(PAGE + 16 + order, order=order)
    demand = resolve_demand(events.trace(tmp_path), small_machine())
    vain = demand.events[demand.events["operation"] == at.RECLAIM_IN_VAIN]
    ends = np.asarray(
        events.trace(tmp_path).tables["vmscan:mm_vmscan_direct_reclaim_end"]["time_ns"]
    )
    assert vain["time_ns"].tolist() == ends[[0, 2]].tolist()
    assert (vain["bits"] & at.REQUEST_RECLAIMED == 0).all()
    assert (demand.events["operation"] == at.RECLAIM_BEGIN).sum() == 2
