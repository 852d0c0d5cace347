"""What demand says of recorded compaction and reclaim: pages they take, requests they serve."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
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
from pagealloc_model.predicted.prepared import recorded_machine
from tests.allocator.event_sequence import BLOCK, start_state
from tests.predicted.demand.test_demand import PAGE, Script
from tests.small_recordings import shipped_recording, small_machine

NO_SUITABLE_PAGE, CONTENDED, SUCCESS = 3, 7, 8


EVENTS = {
    # it compacts for a request of order ^N
    "c": ("compaction:try_to_compact_pages order={order}", "compaction:begin zone_start=0"),
    "k": ("compaction:fast_isolate_freepages start_pfn=4096 nr_taken={n}",),
    "t": ("compaction:isolate_freepages start_pfn=4096 nr_taken={n}",),
    # its source scanner comes to page N, having taken so many
    "s": ("compaction:isolate_migratepages start_pfn=4096 end_pfn={pfn} nr_taken={tail}",),
    "v": ("compaction:migratepages nr_migrated={n}",),
    "u": ("compaction:finished order={n} ret=1",),  # it looks whether it is done
    "e": ("compaction:finished ret={n}", "compaction:end status={tail}"),
    "r": ("vmscan:direct_reclaim_begin order={order} gfp_flags=GFP_HIGHUSER_MOVABLE",),
    "z": ("vmscan:direct_reclaim_end nr_reclaimed={n}",),
    "w": ("vmscan:kswapd_wake nid={n} order={order}",),
    "n": ("vmscan:kswapd_sleep nid={n}",),
}
"""Events of each word of `Daemons`, without "mm_compaction_" and "mm_vmscan_" in their names."""


class Daemons(Script):
    """Script with words for what compaction and reclaim tell."""

    def _play(self, word: str, first: int) -> None:
        if word[0] not in EVENTS:
            super()._play(word, first)
            return
        self._is_interrupt = False
        rest, _, tail = word[1:].partition(":")
        number, _, order = rest.partition("^")
        told = {"n": number or 0, "order": order or 0, "tail": tail}
        for event in EVENTS[word[0]]:
            name, _, body = event.format(pfn=PAGE + int(number or 0), **told).partition(" ")
            system, _, name = name.partition(":")
            self.event(f"{system}:mm_{system}_{name}", body)


def demand_of(words: str, directory: Path) -> Demand:
    return resolve_demand(Daemons(words).trace(directory), small_machine())


def taken(demand: Demand) -> list[tuple[int, int, int]]:
    """Object, order and pages yet to take of every piece isolated."""
    pieces = demand.events[demand.events["operation"] == at.ISOLATE_FREE]
    return [tuple(row) for row in pieces[["object", "order", "offset"]].tolist()]


def test_a_page_freed_twice_was_taken_when_compaction_took_pages(tmp_path: Path) -> None:
    """Without compaction the hidden allocation would stand midway between the two frees."""
    demand = demand_of("a0 f0 @1:7 c^3 k4 @0:1 a8 a9 a10 a11 a12 a13 f0", tmp_path)
    assert demand.hidden_allocations == 0
    assert (demand.isolated_pages, demand.isolated_returned) == (4, 1)
    first, second, third = taken(demand)
    freed = demand.events[demand.events["operation"] == at.FREE]["object"][1]
    assert [first[1:], second[1:]] == [(1, 4), (0, 2)]
    assert int(freed) in (second[0], third[0])
    assert third[1:] == (0, 1)
    assert demand.events["operation"].tolist()[2:5] == [at.ISOLATE_FREE] * 3
    assert len(demand.objects) == 1 + 6 + 1 + 2
    assert (demand.objects["kind"][-2:] == resolved.HIDDEN).all()


def test_no_more_is_matched_than_was_taken(tmp_path: Path) -> None:
    """Two pages are freed twice, one is taken: it is the one freed first."""
    demand = demand_of("a0 a1 f0 f1 @1:7 c^3 t1 @0:2 f1 f0", tmp_path)
    assert demand.hidden_allocations == 1
    ((number, order, _),) = taken(demand)
    assert order == 0
    assert demand.objects["pfn"][number] == PAGE + 1


def test_pages_moved_beyond_those_seen_taken_were_taken_too(tmp_path: Path) -> None:
    """So on kernels whose fast search leaves no event (T7). What demand's end cuts off is none."""
    trace = Daemons("a0 @1:7 c^3 t8 v8 t1 v6 a1 k2").trace(tmp_path)
    found = recorded_compaction(trace, small_machine())
    assert found.taken[:, 2].tolist() == [8, 1, 5]
    assert found.inferred == 5


GAVE_WAY = f"c^3 e{CONTENDED}:{CONTENDED}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (f"c^3 e{NO_SUITABLE_PAGE}:{SUCCESS} a8^3 a16^3", [1]),
        # A run that found a buddy captured nothing.
        (f"c^3 e{SUCCESS}:{SUCCESS} a8^3", []),
        # After giving way only what succeeds at once was captured.
        (f"{GAVE_WAY} a8^3 {GAVE_WAY} r^3 a16^3", [1]),
    ],
)
def test_runs_that_captured_a_page_are_known(
    tmp_path: Path, words: str, expected: list[int]
) -> None:
    trace = Daemons(f"@0:7 a0 {words}").trace(tmp_path)
    without_buddy = recorded_compaction(trace, small_machine()).without_buddy
    assert sorted(captured_requests(trace, without_buddy)) == expected


def test_a_captured_request_is_a_capture(tmp_path: Path) -> None:
    demand = demand_of(f"@0:7 a0 c^3 e{NO_SUITABLE_PAGE}:{SUCCESS} a8^3 a16^3", tmp_path)
    assert demand.captured == 1
    assert demand.events["operation"].tolist() == [at.ALLOC, at.CAPTURE, at.ALLOC]
    plain = as_requests(demand.events, small_machine())
    assert (plain["operation"] == at.ALLOC).all()


def test_frees_beyond_allocations_on_a_real_machine_are_what_compaction_took() -> None:
    """An elastic replay, which compacts itself, does not take them."""
    recording = shipped_recording("highatomic_gate3")
    trace, machine = recording.trace, recorded_machine(recording)
    demand = resolve_demand(trace, machine)
    scans = trace.tables["compaction:mm_compaction_fast_isolate_freepages"]
    assert demand.isolated_pages == int(scans["nr_taken"].sum())
    elastic = resolve_demand(trace, machine, Assumptions(reclaim="elastic"))
    assert not np.isin(elastic.events["operation"], (at.ISOLATE_FREE, at.CAPTURE)).any()
    assert demand.captured and not elastic.captured


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # As it leaves the range moved from, once, with the turn's last event before it.
        ("@1:7 a0 c^3 u3 s4:4 v4 u3 s12:0 u3 s24:0 u3", [7]),
        # A run that asks for no order never drains.
        ("@1:7 a0 c^3 u-1 s4:4 v4 u-1 s12:0 u-1 s24:0 u-1", []),
        # A second scan without a turn between takes the rest of a block with a stuck folio; for
        # huge pages such a block is not drained.
        ("@0:7 a0 c^3 u4 s40:32 v31 s512:0 u4", [6]),
        ("@0:7 a0 c^3 u9 s40:32 v31 s512:0 u9", []),
    ],
)
def test_a_compactor_drains_as_it_leaves_the_range_moved_from(
    tmp_path: Path, words: str, expected: list[int]
) -> None:
    """`expected`: events before each drain."""
    trace = Daemons(f"{words} a0").trace(tmp_path)
    times = np.sort(np.concatenate([each["time_ns"] for each in trace.tables.values()]))
    drains = recorded_compaction(trace, small_machine()).drains
    assert (drains["operation"] == at.DRAIN_LOCAL).all()
    assert np.searchsorted(times, drains["time_ns"], "right").tolist() == expected


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
    words = "@0:7 a0 a1 a2 a3 a4 a5 a8^2 c^3 s16:4 f3 f1 f8^2 @1:8 f4 @0:7 v4 f5"
    (cluster,) = demand_of(words, tmp_path).clusters
    assert cluster.pages.tolist() == [PAGE + 3, PAGE + 1]


# What demand says of the recorded kernel's reclaim: direct reclaims and kswapd's runs


def test_what_an_interrupt_frees_is_not_reclaims(tmp_path: Path) -> None:
    """Neither of kswapd's nor of a task that reclaims (T10.10)."""
    asked = " ".join(f"a{page}:GFP_HIGHUSER_MOVABLE" for page in range(4))
    trace = Daemons(f"@0:7 {asked} r f0 f1 z1 @1:kswapd0 f2 f3").trace(tmp_path)
    in_interrupt = np.zeros(len(trace), np.int8)
    in_interrupt[[5, 7]] = 1
    elastic = Assumptions(reclaim="elastic")
    told = resolve_demand(replace(trace, in_interrupt=in_interrupt), small_machine(), elastic)
    frees = told.events[told.events["operation"] == at.FREE]
    by_reclaim = frees["bits"] & pr.FREED_BY_RECLAIM == pr.FREED_BY_RECLAIM
    assert by_reclaim.tolist() == [True, False, True, False]


def test_reclaims_of_a_request_before_its_last_were_in_vain(tmp_path: Path) -> None:
    """Where they ended, with the request; a costly order's are not told."""
    few, costly = (f"r^{order} z32 r^{order} z0 r^{order} z8 r^{order} z16" for order in (1, 4))
    trace = Daemons(f"@0:7 a0 {few} a16^1 {costly} a32^4").trace(tmp_path)
    demand = resolve_demand(trace, small_machine())
    vain = demand.events[demand.events["operation"] == at.RECLAIM_IN_VAIN]
    ends = np.asarray(trace.tables["vmscan:mm_vmscan_direct_reclaim_end"]["time_ns"])
    assert vain["time_ns"].tolist() == ends[[0, 2]].tolist()
    assert (vain["bits"] & at.REQUEST_RECLAIMED == 0).all()
    assert (demand.events["operation"] == at.RECLAIM_BEGIN).sum() == 2


@pytest.mark.parametrize(
    ("others", "in_vain"),
    [
        ("r^1", True),
        ("a1 r^1", True),
        ("r^1 a1", False),
        ("r^1 a1:GFP_KERNEL|__GFP_MEMALLOC", True),
        ("r^1 a8^2", True),
    ],
)
def test_a_last_reclaim_was_in_vain_if_the_nearest_event_says_so(
    tmp_path: Path, others: str, in_vain: bool
) -> None:
    """A reclaim's beginning, or a page served to another task that may reclaim (T10.17)."""
    events = demand_of(f"@0:7 r @1:8 {others} @0:7 z1 a16", tmp_path).events
    assert (events["operation"] == at.RECLAIM_IN_VAIN).sum() == in_vain
    assert not (events["operation"] == at.RECLAIM_BEGIN).any()
