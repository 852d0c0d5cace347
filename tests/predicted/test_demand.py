"""Demand: which free belongs to which allocation, and what was imposed from the recording."""

import mmap
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.base import arrays
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import Demand, resolve_demand
from pagealloc_model.predicted.demand.rows import highest_type_by_gfp
from pagealloc_model.predicted.growth import grown_demand
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from tests.small_recordings import (
    END_PFN,
    EVENTS_BEGIN_NS,
    TimedEvents,
    shipped_recording,
    small_machine,
)

PAGE = 0x1000
ACCOUNTED = 0x400000
SMALL = 64


def demand_of(events: TimedEvents, directory: Path, **assumptions: int) -> Demand:
    return resolve_demand(events.trace(directory), small_machine(), Assumptions(**assumptions))


def steps(demand: Demand) -> list[tuple[int, int, int, int]]:
    """Operation, object, offset and order of every event."""
    fields = demand.events[["operation", "object", "offset", "order"]]
    return [tuple(int(word) for word in row) for row in fields.tolist()]


def test_a_free_takes_its_allocation(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    events.alloc(PAGE + 1)
    events.free(PAGE)
    demand = demand_of(events, tmp_path)
    assert steps(demand) == [(at.ALLOC, 0, 0, 0), (at.ALLOC, 1, 0, 0), (at.FREE, 0, 0, 0)]
    assert demand.objects["pfn"].tolist() == [PAGE, PAGE + 1]
    assert demand.objects["fresh"].tolist() == [1, 1]
    assert demand.first_ns == EVENTS_BEGIN_NS
    assert not len(demand.at_start)


def test_a_page_used_again_is_another_object_and_not_fresh(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    events.free(PAGE)
    events.alloc(PAGE)
    demand = demand_of(events, tmp_path)
    assert demand.objects["fresh"].tolist() == [1, 0]
    assert demand.fresh.tolist() == [0]


def test_a_free_inside_a_larger_allocation_splits_it(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE, order=2)
    events.free(PAGE + 2, order=1)
    events.free(PAGE + 1)
    events.free(PAGE)
    demand = demand_of(events, tmp_path)
    assert steps(demand)[1:] == [(at.FREE, 0, 2, 1), (at.FREE, 0, 1, 0), (at.FREE, 0, 0, 0)]
    assert demand.split_frees == 3
    assert len(demand.objects) == 1


def test_a_free_over_several_allocations_is_cut_into_pages(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    events.alloc(PAGE + 1)
    events.free(PAGE, order=1)
    demand = demand_of(events, tmp_path)
    assert steps(demand)[2:] == [(at.FREE, 0, 0, 0), (at.FREE, 1, 0, 0)]


def test_an_orphan_free_lived_at_the_start(tmp_path: Path) -> None:
    events = TimedEvents()
    events.free(PAGE, order=3)
    demand = demand_of(events, tmp_path)
    assert demand.objects["kind"].tolist() == [resolved.AT_START]
    assert demand.objects["order"].tolist() == [3]
    assert demand.starting_places().tolist() == [PAGE]
    assert demand.hidden_allocations == 0


def test_an_allocation_over_a_live_range_shows_missed_frees(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE, order=1)
    events.alloc(PAGE, order=2)
    events.free(PAGE, order=2)
    demand = demand_of(events, tmp_path)
    assert demand.missed_frees == 2
    assert steps(demand) == [
        (at.ALLOC, 0, 0, 1),
        (at.FREE, 0, 0, 1),
        (at.ALLOC, 1, 0, 2),
        (at.FREE, 1, 0, 2),
    ]


def test_a_missed_free_closes_the_whole_object_in_the_largest_pieces(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE, order=3)
    events.free(PAGE + 5)
    events.alloc(PAGE + 1)
    demand = demand_of(events, tmp_path)
    assert demand.missed_frees == 7
    assert steps(demand)[2:] == [
        (at.FREE, 0, 0, 2),
        (at.FREE, 0, 4, 0),
        (at.FREE, 0, 6, 1),
        (at.ALLOC, 1, 0, 0),
    ]
    assert demand.objects["fresh"].tolist() == [1, 0]


def test_an_event_recorded_twice_counts_once(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE)
    events.now_us -= 1
    events.alloc(PAGE)
    events.on(1).free(PAGE)
    demand = demand_of(events, tmp_path)
    assert demand.recorded_twice == 1
    assert demand.missed_frees == 0
    assert demand.events["operation"].tolist() == [at.ALLOC, at.FREE]


def test_a_failed_allocation_has_no_object(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(-1, order=9, gfp="GFP_TRANSHUGE", migratetype=1)
    events.alloc(PAGE)
    demand = demand_of(events, tmp_path)
    assert demand.events["operation"].tolist() == [at.RECORDED_FAILURE, at.ALLOC]
    assert demand.events["object"].tolist() == [-1, 0]
    assert len(demand.objects) == 1


def test_events_outside_the_zones_are_left_out_and_counted(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(END_PFN)
    events.alloc(END_PFN - 1, order=1)
    events.alloc(END_PFN - 1)
    demand = demand_of(events, tmp_path)
    assert demand.outside == 2
    assert len(demand.events) == 1


def test_nothing_inside_the_zones_is_refused(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(END_PFN)
    with pytest.raises(UsageError, match="inside the machine's zones"):
        demand_of(events, tmp_path)


@pytest.mark.parametrize(
    ("gfp", "zone"),
    [
        ("GFP_KERNEL", "Normal"),
        ("GFP_DMA32", "DMA32"),
        ("GFP_DMA", "Normal"),
        ("GFP_HIGHUSER", "Normal"),
        ("GFP_HIGHUSER_MOVABLE", "Movable"),
    ],
)
def test_gfp_names_the_highest_zone(tmp_path: Path, gfp: str, zone: str) -> None:
    events = TimedEvents()
    events.alloc(PAGE, gfp=gfp)
    machine = small_machine()
    assert machine.zones[demand_of(events, tmp_path).events["zone"][0]].name == zone


def test_every_gfp_nibble_names_a_zone_of_the_machine() -> None:
    machine = small_machine()
    table = highest_type_by_gfp(machine)
    assert table.shape == (16,)
    assert ((table >= 0) & (table < len(machine.zones))).all()


def test_migratetype_and_gfp_bits_of_the_request_are_kept(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(PAGE, gfp="GFP_ATOMIC", migratetype=0)
    events.alloc(PAGE + 1, gfp="GFP_KERNEL|__GFP_RECLAIMABLE", migratetype=2)
    atomic, reclaimable = demand_of(events, tmp_path).events
    assert atomic["bits"] == at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM
    assert reclaimable["bits"] == at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
    assert [int(atomic["migratetype"]), int(reclaimable["migratetype"])] == [0, 2]


@pytest.mark.parametrize(("names", "kept"), [({"__GFP_ATOMIC": 0x200}, at.GFP_ATOMIC), ({}, 0)])
def test_bit_0x200_is_kept_where_the_recording_calls_it_atomic(
    names: dict[str, int], kept: int
) -> None:
    """S2.3: 6.1's name; later kernels do not use the bit, or for something else."""
    trace = trace_of([(False, PAGE, 0)])
    trace = replace(trace, gfp=np.array([0xA20], np.uint32), gfp_bits=names)
    demand = resolve_demand(trace, small_machine())
    assert demand.events["bits"][0] == at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM | kept


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[bool, int, int]]:
    """(is_free, pfn, order) of any history, sensible or not, on a few pages."""
    found = []
    for _ in range(draw(st.integers(1, 40))):
        order = draw(st.integers(0, 3))
        pfn = draw(st.integers(0, (SMALL >> order) - 1)) << order
        found.append((draw(st.booleans()), pfn, order))
    return found


def trace_of(history: list[tuple[bool, int, int]]) -> Trace:
    columns = {name: np.zeros(len(history), kind) for name, kind in COLUMN_TYPES.items()}
    for row, (is_free, pfn, order) in enumerate(history):
        columns["event"][row] = Event.FREE if is_free else Event.ALLOC
        columns["pfn"][row] = pfn
        columns["order"][row] = order
        columns["time_ns"][row] = 1000 * (row + 1)
    return Trace(**columns)


@settings(max_examples=200, deadline=None)
@given(requests())
def test_only_live_pages_are_freed_and_each_once(history: list[tuple[bool, int, int]]) -> None:
    demand = resolve_demand(trace_of(history), small_machine())
    live = {int(number): set(range(1 << demand.objects["order"][number])) for number in
            demand.at_start}  # fmt: skip
    born = set(live)
    assert (np.diff(demand.events["time_ns"]) >= 0).all()
    for event in demand.events:
        number, size = int(event["object"]), 1 << int(event["order"])
        if event["operation"] == at.FREE:
            piece = set(range(int(event["offset"]), int(event["offset"]) + size))
            assert piece <= live[number]
            live[number] -= piece
        else:
            assert number not in born
            born.add(number)
            live[number] = set(range(size))
    assert born == set(range(len(demand.objects)))


@settings(max_examples=200, deadline=None)
@given(requests())
def test_what_lives_in_the_end_are_the_pages_of_the_last_allocations(
    history: list[tuple[bool, int, int]],
) -> None:
    demand = resolve_demand(trace_of(history), small_machine())
    owner = np.zeros(SMALL, np.int64)
    for number, (is_free, pfn, order) in enumerate(history, 1):
        pages = slice(pfn, pfn + (1 << order))
        if not is_free:
            owner[np.isin(owner, owner[pages][owner[pages] > 0])] = 0
        owner[pages] = 0 if is_free else number
    held = owner > 0
    left = np.zeros(SMALL, np.int64)
    for number in range(len(demand.objects)):
        first, order = int(demand.objects["pfn"][number]), int(demand.objects["order"][number])
        left[first : first + (1 << order)] += 1
    for event in demand.events[demand.events["operation"] == at.FREE]:
        first = int(demand.objects["pfn"][event["object"]]) + int(event["offset"])
        left[first : first + (1 << int(event["order"]))] -= 1
    assert left.tolist() == held.astype(int).tolist()


@settings(max_examples=50, deadline=None)
@given(requests())
def test_a_range_first_seen_freed_lived_at_the_start(history: list[tuple[bool, int, int]]) -> None:
    """As far as its pages have one past: otherwise its last free is the earliest it can be from."""
    demand = resolve_demand(trace_of(history), small_machine())
    seen = np.zeros(SMALL, bool)
    expected: set[int] = set()
    for is_free, pfn, order in history:
        pages = range(pfn, pfn + (1 << order))
        if is_free and not seen[list(pages)].any():
            expected |= set(pages)
        seen[list(pages)] = True
    started = {
        page
        for number in demand.at_start
        for page in range(
            int(demand.objects["pfn"][number]),
            int(demand.objects["pfn"][number]) + (1 << int(demand.objects["order"][number])),
        )
    }
    assert expected <= started
    assert all(not seen_first(history, page) for page in started)


def seen_first(history: list[tuple[bool, int, int]], page: int) -> bool:
    """Whether a page's first event allocates it."""
    first = next(each for each in history if each[1] <= page < each[1] + (1 << each[2]))
    return not first[0]


def busy_trace(seed: int) -> Trace:
    """Few tasks and pages, many coincidences: equal times, repeats, failures, direct reclaim."""
    random, rows = np.random.default_rng(seed), 80
    columns = {name: np.zeros(rows, kind) for name, kind in COLUMN_TYPES.items()}
    columns["time_ns"] = 1000 + np.cumsum(random.integers(0, 2, rows))
    columns["event"] = random.choice([Event.ALLOC, Event.FREE, Event.PCPU_DRAIN], rows)
    columns["pfn"] = random.integers(0, 4, rows)
    is_failure = (columns["event"] == Event.ALLOC) & (random.random(rows) < 0.3)
    columns["pfn"][is_failure] = -1
    columns["gfp"][:] = ACCOUNTED | at.GFP_DIRECT_RECLAIM
    columns["cpu"], columns["pid"] = random.integers(0, 2, rows), random.integers(1, 3, rows)
    begun = np.sort(random.integers(0, rows - 10, 12))
    ended = begun + random.integers(0, 10, 12)
    common = {"pid": random.integers(1, 4, 12), "cpu": random.integers(0, 2, 12)}
    begins = {"order": np.zeros(12, np.int32), "time_ns": columns["time_ns"][begun]}
    ends = {"nr_reclaimed": random.integers(0, 3, 12), "time_ns": columns["time_ns"][ended]}
    return Trace(
        **columns,
        tables={
            "vmscan:mm_vmscan_direct_reclaim_begin": {**common, **begins, "row": begun},
            "vmscan:mm_vmscan_direct_reclaim_end": {**common, **ends, "row": ended},
        },
    )


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_a_recording_together_are_the_whole(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = busy_trace(seed)
    whole = resolve_demand(trace, small_machine())
    assert whole.direct_reclaim_recorded
    for rows_together in (1, 2, 7, 30):
        monkeypatch.setattr(arrays, "ROWS_TOGETHER", rows_together)
        assert_same_demand(resolve_demand(trace, small_machine()), whole)


def test_the_parts_that_are_compared_have_all_coincidences() -> None:
    made = [resolve_demand(busy_trace(seed), small_machine()) for seed in range(40)]
    for name in ("recorded_twice", "failed_charges", "repeated_frees", "hidden_allocations"):
        assert sum(getattr(demand, name) for demand in made) > 10, name


@pytest.mark.parametrize("name", ["xfree", "highatomic_stock"])
def test_a_long_recording_is_worked_on_in_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = shipped_recording(name)
    machine = recorded_machine(recording)
    whole = resolve_demand(recording.trace, machine)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(arrays, "ROWS_IN_MEMORY", 0)
    monkeypatch.setattr(arrays, "ROWS_TOGETHER", 9973)
    made = resolve_demand(recording.trace, machine)
    assert isinstance(backing(made.events), mmap.mmap)
    assert_same_demand(made, whole)
    # Growth takes the same path: a third of the blocks become memory that comes later.
    types = np.zeros(-(-machine.end_pfn >> machine.pageblock_order), np.int8)
    types[::3] = -1
    grown = grown_demand(machine, made, types)
    monkeypatch.undo()
    assert grown.grown_pages > 0
    assert_same_demand(grown, grown_demand(machine, whole, types))


def backing(array: np.ndarray) -> object:
    """What an array's values lie in."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base


def assert_same_demand(some: Demand, others: Demand) -> None:
    np.testing.assert_array_equal(some.events, others.events)
    np.testing.assert_array_equal(some.objects, others.objects)
    np.testing.assert_array_equal(some.leads, others.leads)
    for field in fields(Demand):
        if field.name not in ("events", "objects", "leads"):
            assert getattr(some, field.name) == getattr(others, field.name), field.name


def test_an_interrupt_between_the_pages_of_a_folio_batch_is_marked(tmp_path: Path) -> None:
    """Not before the first page is put on a list, not behind the last, and no other task's."""
    events = TimedEvents()
    for pfn in (PAGE, PAGE + 1, PAGE + 2):
        events.alloc(pfn)
    events.free(PAGE)
    events.alloc(PAGE + 64)
    events.free(PAGE + 1)
    events.batched(PAGE)
    events.alloc(PAGE + 65)
    events.free(PAGE + 64)
    events.on(0, pid=7).alloc(PAGE + 66)
    events.on(0)
    events.batched(PAGE + 1)
    events.free(PAGE + 65)
    events.free(PAGE + 2)
    events.batched(PAGE + 2)
    demand = demand_of(events, tmp_path)
    interrupts = demand.events["bits"] & at.INTERRUPTS_HOLDER > 0
    assert np.flatnonzero(interrupts).tolist() == [6, 7]
    assert demand.events["operation"][6:8].tolist() == [at.ALLOC, at.FREE]
