"""Demand: which free belongs to which allocation, and what was imposed from the recording."""

import mmap
import re
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import MonkeyPatch

from pagealloc_model.allocator import layout as at
from pagealloc_model.base import arrays
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import Demand, resolve_demand
from pagealloc_model.predicted.growth import grown_demand
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Losses, Trace
from tests.small_recordings import (
    END_PFN,
    TimedEvents,
    shipped_recording,
    small_machine,
)

PAGE = 0x1000
ACCOUNTED = 0x400000
SMALL = 64


def demand_of(events: TimedEvents, directory: Path, **assumptions: int) -> Demand:
    return resolve_demand(events.trace(directory), small_machine(), Assumptions(**assumptions))


class Script(TimedEvents):
    """Events from words, with the context of each.

    aN, fN, bN, lN, dN: page N is allocated, freed, put on a list by a folio batch, taken under the
    lock, drained; FN, LN, DN: so are the first N pages one by one; x: a request fails. An order
    comes behind ^, gfp flags (of l the list's type) behind a colon, as in x^9:GFP_TRANSHUGE. !: an
    interrupt's. +N waits N us, = sets the clock back by one, @CPU, @CPU:PID or @CPU:COMM changes
    the task.
    """

    def __init__(self, words: str, first: int = PAGE) -> None:
        super().__init__()
        self.contexts: list[int] = []
        for word in words.split():
            self._play(word, first)

    def event(self, name: str, body: str) -> None:
        super().event(name, body)
        self.contexts.append(self._is_interrupt)

    def _play(self, word: str, first: int) -> None:
        self._is_interrupt = word.startswith("!")
        kind, rest = word.lstrip("!")[0], word.lstrip("!")[1:]
        rest, _, tail = rest.partition(":")
        page, _, order = rest.partition("^")
        pfn, size = first + int(page or 0), int(order or 0)
        pages = range(first, pfn) if kind.isupper() else (pfn,)
        if kind == "@":
            task = {"pid": int(tail)} if tail.isdigit() else {"pid": 11, "comm": tail}
            self.on(int(page), **(task if tail else {}))
        elif kind == "+":
            self.wait(int(page))
        elif kind == "=":
            self.now_us -= 1
        elif kind in "fF":
            for each in pages:
                self.free(each, order=size)
        elif kind == "b":
            self.batched(pfn)
        elif kind in "lL":
            self.locked(*pages, order=size, migratetype=int(tail or 0))
        elif kind in "dD":
            self.drained(*pages, order=size)
        else:
            self.alloc(-1 if kind == "x" else pfn, order=size, gfp=tail or "GFP_KERNEL")

    def demand(self, directory: Path, contexts: list[int] | None = None) -> Demand:
        trace = self.trace(directory)
        in_interrupt = np.array(self.contexts if contexts is None else contexts, np.int8)
        return resolve_demand(replace(trace, in_interrupt=in_interrupt), small_machine())


LETTERS = {
    at.ALLOC: "A",
    at.FREE: "F",
    at.HIDDEN_ALLOC: "h",
    at.RECORDED_FAILURE: "R",
    at.BEGIN_REQUEST: "B",
    at.HOLD_DRAINED: "H",
    at.USE: "U",
}


def told(demand: Demand) -> str:
    """Every event as letter, object, +offset and ^order, as in F0+2^1."""
    words = []
    for event in demand.events:
        word = LETTERS[int(event["operation"])]
        word += str(event["object"]) if event["object"] >= 0 else ""
        word += f"+{event['offset']}" if event["offset"] else ""
        words.append(word + (f"^{event['order']}" if event["order"] else ""))
    return " ".join(words)


BEHIND = END_PFN - PAGE


@pytest.mark.parametrize(
    ("script", "events", "counts"),
    [
        ("a0 a1 f0", "A0 A1 F0", {}),
        ("a0 f0 a0", "A0 F0 A1", {}),
        ("a0^2 f2^1 f1 f0", "A0^2 F0+2^1 F0+1 F0", {"split_frees": 3}),
        ("a0 a1 f0^1", "A0 A1 F0 F1", {}),
        ("f0^3", "F0^3", {"hidden_allocations": 0}),
        # An allocation over a live range shows missed frees, in the largest pieces.
        ("a0^1 a0^2 f0^2", "A0^1 F0^1 A1^2 F1^2", {"missed_frees": 2}),
        ("a0^3 f5 a1", "A0^3 F0+5 F0^2 F0+4 F0+6^1 A1", {"missed_frees": 7}),
        ("a0 = a0 @1 f0", "A0 F0", {"recorded_twice": 1, "missed_frees": 0}),
        ("x^9:GFP_TRANSHUGE a0", "R^9 A0", {}),
        (f"a{BEHIND} a{BEHIND - 1}^1 a{BEHIND - 1}", "A0", {"outside": 2}),
        # A second free shows a hidden allocation, of all its pages, wherever they were seen.
        ("a0 f0 +999 @0:7 f0", "A0 F0 h1 F1", {"hidden_allocations": 1}),
        (
            "a0 a1 a2 a3 f0 +99 f3 +99 f1 +99 f2 +999 @1:9 f0^2",
            "A0 A1 A2 A3 F0 F3 F1 F2 h4^2 F4^2",
            {"hidden_allocations": 1},
        ),
        ("a0 f0 @1:9 f0^2", "A0 F0 h1^2 F1^2", {"hidden_allocations": 1}),
        # What a task frees again and again is freed once; another CPU or other pages are no such.
        ("a0 @0:7 f0 f0 f0 a9 f0", "A0 F0 h2 A1 F2", {"repeated_frees": 2}),
        ("@0:7 f0 f1 @1:7 f0 @0:7 f0^1", "", {"repeated_frees": 0, "hidden_allocations": 2}),
        # A failed charge is an allocation just before its free.
        (
            "@0:7 f0^1 x^1:GFP_KERNEL_ACCOUNT f0^1 x^1:GFP_KERNEL",
            "h0^1 F0^1 R^1 h1^1 F1^1 R^1",
            {"failed_charges": 1, "hidden_allocations": 1},
        ),
    ],
)
def test_frees_find_their_allocations(
    tmp_path: Path, script: str, events: str, counts: dict[str, int]
) -> None:
    demand = Script(script).demand(tmp_path)
    assert not events or told(demand) == events
    assert {name: getattr(demand, name) for name in counts} == counts
    seen: set[int] = set()
    fresh = []
    for letter, number in re.findall(r"([AFh])(\d+)", told(demand)):
        thing = demand.objects[int(number)]
        pages = set(range(thing["pfn"], thing["pfn"] + (1 << thing["order"])))
        if letter == "A" and not seen & pages:
            fresh.append(int(number))
        seen |= pages
    assert demand.fresh.tolist() == fresh


def test_a_hidden_allocation_lies_midway_after_the_last_free_of_its_pages(tmp_path: Path) -> None:
    events = Script("a0 a1 a2 a3 f0 +99 f3 +99 f1 +99 f2 +999 @1:9 f0^2")
    demand = demand_of(events, tmp_path, hidden_migratetype=2)
    hidden = demand.events[demand.events["operation"] == at.HIDDEN_ALLOC][0]
    last_two = demand.events[demand.events["operation"] == at.FREE]["time_ns"][-2:]
    assert hidden["time_ns"] == last_two.sum() // 2
    assert hidden["migratetype"] == 2
    assert demand.starting_places().tolist() == [-1] * 5


def test_a_failed_charge_is_of_the_type_of_its_request(tmp_path: Path) -> None:
    events = Script("@0:7 f0^1 x^1:GFP_KERNEL_ACCOUNT")
    charged, free, _ = demand_of(events, tmp_path, hidden_migratetype=2).events
    assert charged["time_ns"] == free["time_ns"]
    assert charged["migratetype"] == 0


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


@settings(max_examples=200)
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


@settings(max_examples=200)
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


@settings(max_examples=50)
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
def test_parts_of_a_recording_together_are_the_whole(seed: int, monkeypatch: MonkeyPatch) -> None:
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
    name: str, tmp_path: Path, monkeypatch: MonkeyPatch
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
            np.testing.assert_equal(
                getattr(some, field.name), getattr(others, field.name), field.name
            )


def test_hidden_allocations_over_losses_are_told_apart() -> None:
    history = [(False, 0, 0), (True, 0, 0), (True, 0, 0), (False, 8, 0), (True, 8, 0), (True, 8, 0)]
    trace = replace(trace_of(history), pid=np.arange(len(history), dtype=np.int32))
    for start, end, expected in ((2500, 2600, 1), (1000, 9000, 2), (4100, 4900, 0)):
        losses = Losses(
            cpu=np.zeros(1, np.int16),
            start_ns=np.array([start]),
            end_ns=np.array([end]),
            count=np.ones(1, np.int64),
        )
        demand = resolve_demand(replace(trace, losses=losses), small_machine())
        assert (demand.hidden_allocations, demand.hidden_over_losses) == (2, expected)
