"""Objects that recorded compaction moves lie where it found them as it moves them (T10.18)."""

from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.predicted.carrier import ModelCarrier
from pagealloc_model.predicted.demand.compaction import Cluster, Exchange
from pagealloc_model.predicted.demand.demand import resolve_demand
from tests.allocator.event_sequence import BLOCK, start_state
from tests.small_recordings import TimedEvents, small_machine

PAGE = 0x1000
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
