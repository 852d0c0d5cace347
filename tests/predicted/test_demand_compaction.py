"""What demand says of recorded compaction: pages it takes, and requests it captures a page for."""

from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.compaction import (
    as_requests,
    captured_requests,
    recorded_compaction,
)
from pagealloc_model.predicted.demand.demand import Demand, resolve_demand
from pagealloc_model.predicted.prepared import recorded_machine
from tests.small_recordings import TimedEvents, shipped_recording, small_machine

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
