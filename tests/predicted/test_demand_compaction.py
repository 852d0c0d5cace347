"""What demand says of recorded compaction: pages it takes, and requests it captures a page for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.carrier import ModelCarrier
from pagealloc_model.predicted.demand.compaction import (
    Cluster,
    Exchange,
    as_requests,
    captured_requests,
    recorded_compaction,
)
from pagealloc_model.predicted.demand.demand import Demand, resolve_demand
from pagealloc_model.predicted.demand.reclaim import KSWAPD_NAP_NS, direct_reclaims, kswapd_runs
from pagealloc_model.predicted.prepared import recorded_machine
from pagealloc_model.recording.machine import Machine
from tests.allocator.event_sequence import BLOCK, start_state
from tests.small_recordings import EVENTS_BEGIN_NS, TimedEvents, shipped_recording, small_machine

PAGE = 0x1000
THP = "GFP_TRANSHUGE"
NO_SUITABLE_PAGE, CONTENDED, SUCCESS = 3, 7, 8


def begin(events: TimedEvents, order: int = 3) -> None:
    """The current task compacts for a request of an order."""
    events.event("compaction:mm_compaction_try_to_compact_pages", f"order={order}")
    events.event("compaction:mm_compaction_begin", "zone_start=0")


def take(events: TimedEvents, pages: int, *, fast: bool = True) -> None:
    """Its free scanner takes pages."""
    name = "fast_isolate_freepages" if fast else "isolate_freepages"
    events.event(f"compaction:mm_compaction_{name}", f"start_pfn=4096 nr_taken={pages}")


def end(events: TimedEvents, turn: int, status: int) -> None:
    """Its last look for a free buddy, and its end."""
    events.event("compaction:mm_compaction_finished", f"ret={turn}")
    events.event("compaction:mm_compaction_end", f"status={status}")


def demand_of(events: TimedEvents, directory: Path) -> Demand:
    return resolve_demand(events.trace(directory), small_machine())


def taken(demand: Demand) -> list[tuple[int, int, int]]:
    """Object, order and pages yet to take of every piece isolated."""
    found = demand.events[demand.events["operation"] == at.ISOLATE_FREE]
    return [tuple(row) for row in found[["object", "order", "offset"]].tolist()]


def test_a_page_freed_twice_was_taken_when_compaction_took_pages(tmp_path: Path) -> None:
    """Without compaction the hidden allocation would stand midway between the two frees."""
    events = TimedEvents()
    events.alloc(PAGE)
    events.free(PAGE)
    begin(events.on(1, pid=7))
    take(events, 4)
    for number in range(6):
        events.on(0, pid=1).alloc(PAGE + 8 + number)
    events.free(PAGE)
    demand = demand_of(events, tmp_path)
    assert demand.hidden_allocations == 0
    assert (demand.isolated_pages, demand.isolated_returned) == (4, 1)
    first, second, third = taken(demand)
    freed = demand.events[demand.events["operation"] == at.FREE]["object"][1]
    assert [first[1:], second[1:]] == [(1, 4), (0, 2)]
    assert sorted((second[0], third[0])) == sorted((int(freed), int(third[0])))
    assert int(freed) in (second[0], third[0])
    assert third[1:] == (0, 1)
    assert demand.events["operation"].tolist()[2:5] == [at.ISOLATE_FREE] * 3
    assert len(demand.objects) == 1 + 6 + 1 + 2
    assert (demand.objects["kind"][-2:] == resolved.HIDDEN).all()


def test_no_more_is_matched_than_was_taken(tmp_path: Path) -> None:
    """Two pages are freed twice, one is taken: it is the one freed first."""
    events = TimedEvents()
    for page in (PAGE, PAGE + 1):
        events.alloc(page)
    for page in (PAGE, PAGE + 1):
        events.free(page)
    begin(events.on(1, pid=7))
    take(events, 1, fast=False)
    events.on(0, pid=2).free(PAGE + 1)
    events.free(PAGE)
    demand = demand_of(events, tmp_path)
    assert demand.hidden_allocations == 1
    assert [order for _, order, _ in taken(demand)] == [0]
    number = taken(demand)[0][0]
    assert demand.objects["pfn"][number] == PAGE + 1


def test_pages_moved_beyond_those_seen_taken_were_taken_too(tmp_path: Path) -> None:
    """So on kernels whose fast search leaves no event (T7). What demand's end cuts off is none."""
    events = TimedEvents()
    events.alloc(PAGE)
    begin(events.on(1, pid=7))
    take(events, 8, fast=False)
    events.event("compaction:mm_compaction_migratepages", "nr_migrated=8")
    take(events, 1, fast=False)
    events.event("compaction:mm_compaction_migratepages", "nr_migrated=6")
    events.alloc(PAGE + 1)
    take(events, 2)
    found = recorded_compaction(events.trace(tmp_path), small_machine())
    assert found.taken[:, 2].tolist() == [8, 1, 5]
    assert found.inferred == 5


def captures(events: TimedEvents, directory: Path) -> list[int]:
    trace = events.trace(directory)
    return sorted(
        captured_requests(trace, recorded_compaction(trace, small_machine()).without_buddy)
    )


def test_a_run_that_found_no_buddy_and_succeeded_captured(tmp_path: Path) -> None:
    events = TimedEvents()
    events.on(0, pid=7).alloc(PAGE)
    begin(events)
    end(events, NO_SUITABLE_PAGE, SUCCESS)
    events.alloc(PAGE + 8, order=3)
    events.alloc(PAGE + 16, order=3)
    assert captures(events, tmp_path) == [1]
    demand = demand_of(events, tmp_path)
    assert demand.captured == 1
    operations = demand.events["operation"].tolist()
    assert operations == [at.ALLOC, at.CAPTURE, at.ALLOC]
    plain = as_requests(demand.events, small_machine())
    assert (plain["operation"] == at.ALLOC).all()


def test_a_run_that_found_a_buddy_captured_nothing(tmp_path: Path) -> None:
    events = TimedEvents()
    events.on(0, pid=7).alloc(PAGE)
    begin(events)
    end(events, SUCCESS, SUCCESS)
    events.alloc(PAGE + 8, order=3)
    assert captures(events, tmp_path) == []


def test_after_giving_way_only_what_succeeds_at_once_was_captured(tmp_path: Path) -> None:
    events = TimedEvents()
    events.on(0, pid=7).alloc(PAGE)
    begin(events)
    end(events, CONTENDED, CONTENDED)
    events.alloc(PAGE + 8, order=3)
    begin(events)
    end(events, CONTENDED, CONTENDED)
    events.event("vmscan:mm_vmscan_direct_reclaim_begin", "order=3")
    events.alloc(PAGE + 16, order=3)
    assert captures(events, tmp_path) == [1]


def test_frees_beyond_allocations_on_a_real_machine_are_what_compaction_took() -> None:
    """An elastic replay, which compacts itself, does not take them."""
    recording = shipped_recording("highatomic_gate3")
    demand = resolve_demand(recording.trace, recorded_machine(recording))
    assert demand.isolated_pages == int(
        recording.trace.tables["compaction:mm_compaction_fast_isolate_freepages"]["nr_taken"].sum()
    )
    elastic = resolve_demand(
        recording.trace, recorded_machine(recording), Assumptions(reclaim="elastic")
    )
    assert not np.isin(elastic.events["operation"], (at.ISOLATE_FREE, at.CAPTURE)).any()
    assert demand.captured and not elastic.captured


def scan(events: TimedEvents, end_pfn: int, taken: int) -> None:
    """Its source scanner comes to a page, having taken some."""
    name = "compaction:mm_compaction_isolate_migratepages"
    events.event(name, f"end_pfn={end_pfn} nr_taken={taken}")


def turn(events: TimedEvents, order: int) -> None:
    """It looks whether it is done."""
    events.event("compaction:mm_compaction_finished", f"order={order} ret=1")


def move(events: TimedEvents, pages: int) -> None:
    """It has moved a cluster."""
    events.event("compaction:mm_compaction_migratepages", f"nr_migrated={pages}")


def drains(events: TimedEvents, directory: Path) -> list[int]:
    """Events before each drain."""
    events.alloc(PAGE)
    trace = events.trace(directory)
    times = np.sort(np.concatenate([each["time_ns"] for each in trace.tables.values()]))
    found = recorded_compaction(trace, small_machine()).drains
    assert (found["operation"] == at.DRAIN_LOCAL).all()
    return np.searchsorted(times, found["time_ns"], "right").tolist()


def test_a_compactor_drains_as_it_leaves_the_range_moved_from(tmp_path: Path) -> None:
    """Once, with the turn's last event before it; a run that asks for no order never does."""
    events = TimedEvents()
    events.on(1, pid=7).alloc(PAGE)
    for order in (3, -1):
        begin(events)
        turn(events, order)
        scan(events, 4096 + 4, 4)
        move(events, 4)
        turn(events, order)
        scan(events, 4096 + 12, 0)
        turn(events, order)
        scan(events, 4096 + 24, 0)
        turn(events, order)
    assert drains(events, tmp_path) == [7]


def test_a_block_that_cannot_be_cleared_is_not_drained_for_huge_pages(tmp_path: Path) -> None:
    """A second scan without a turn between takes the rest of a block with a stuck folio."""
    for number, order in enumerate((9, 4)):
        events = TimedEvents()
        events.on(0, pid=7).alloc(PAGE)
        begin(events)
        turn(events, order)
        scan(events, 4096 + 40, 32)
        move(events, 31)
        scan(events, 4096 + 512, 0)
        turn(events, order)
        directory = tmp_path / str(number)
        directory.mkdir()
        assert drains(events, directory) == ([6] if order == 4 else [])


# Objects that recorded compaction moves lie where it found them as it moves them (T10.18)


COUNT = 40


def busy_events() -> tuple[np.ndarray, np.ndarray]:
    """Single movable pages, then an unmovable one, are taken and freed in their order."""
    events = np.zeros(2 * COUNT, at.EVENT)
    events["time_ns"] = np.arange(2 * COUNT)
    events["object"] = np.tile(np.arange(COUNT), 2)
    events["operation"][COUNT:] = at.FREE
    events["migratetype"] = at.MOVABLE
    events["migratetype"][COUNT - 1] = at.UNMOVABLE
    return events, np.zeros(COUNT, resolved.OBJECT)


def exchanged(objects: list[int], pages: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Places before and after a cluster is exchanged; pages count from the first one in use."""
    events, table = busy_events()
    before = np.full(COUNT, -1, np.int32)
    ModelCarrier(start_state()).advance(events, before, 0, COUNT, -1)
    wanted = np.array(pages, np.int64) + int(before[:-1].min())
    cluster = Cluster(objects=np.array(objects, np.int64), pages=wanted)
    state, places = start_state(), np.full(COUNT, -1, np.int32)
    exchange = Exchange((cluster,), events, table, state, places)
    assert exchange.due == COUNT + objects[0]
    ModelCarrier(state).advance(events, places, 0, COUNT, -1)
    exchange.make(COUNT + objects[0])
    assert exchange.due == len(events)
    return before, places


def test_objects_exchange_places_with_those_in_their_way() -> None:
    before, after = exchanged([3, 9], [20, 3])
    first = int(before[:-1].min())
    assert after[[3, 9]].tolist() == [first + 20, first + 3]
    assert sorted(after.tolist()) == sorted(before.tolist())
    assert (after != before).sum() <= 4


def test_where_none_suits_the_next_one_of_the_block_does() -> None:
    """The first page in the block that is not in use is no place to lie."""
    before, after = exchanged([0, 1], [COUNT + 100, 5])
    first = int(before[:-1].min())
    assert after[1] == first + 5
    assert after[0] in before
    assert after[0] >> 9 == first // BLOCK
    assert sorted(after.tolist()) == sorted(before.tolist())


def test_a_cluster_is_what_its_task_freed_in_the_scan(tmp_path: Path) -> None:
    """Before the next migratepages; on its CPU; single pages."""
    events = TimedEvents()
    events.on(0, pid=7)
    for page in range(6):
        events.alloc(PAGE + page)
    events.alloc(PAGE + 8, order=2)
    events.event("compaction:mm_compaction_begin", "zone_start=0")
    scan = "compaction:mm_compaction_isolate_migratepages"
    events.event(scan, f"start_pfn={PAGE} end_pfn={PAGE + 16} nr_taken=4")
    events.free(PAGE + 3)
    events.free(PAGE + 1)
    events.free(PAGE + 8, order=2)
    events.on(1, pid=8).free(PAGE + 4)
    events.on(0, pid=7).event("compaction:mm_compaction_migratepages", "nr_migrated=4")
    events.free(PAGE + 5)
    trace = events.trace(tmp_path)
    (cluster,) = resolve_demand(trace, small_machine()).clusters
    assert cluster.pages.tolist() == [PAGE + 3, PAGE + 1]


# What demand says of the recorded kernel's reclaim: direct reclaims and kswapd's runs


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
