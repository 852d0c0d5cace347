"""A state read while its machine goes on is carried to the end of the reading by the events.

The machine is a replay of `quiet_guest` from its state file, which has the kernel's page in
every request, so that the recorded events are its own. The null model takes each page as it was
read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.recording.record import carried_state as carry
from pagealloc_model.recording.record.carried_state import MovingReading, carried_state
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.recording.state_file import (
    ON_FREE_LIST,
    MachineState,
    read_state,
    write_state,
)
from pagealloc_model.recording.state_instant import dated_state
from pagealloc_model.recording.trace.columns import Losses, Trace
from tests.recording.record.twin import POISON, Twin, in_place

SPANS = {"all": (0.0, 1.0), "a second": (0.2, 0.3)}


@cache
def quiet() -> Recording:
    return open_recording("quiet_guest")


@cache
def twice(span: str) -> tuple[MovingReading, MachineState]:
    twin = Twin(quiet())
    begin, end = (int(share * (len(twin.events) - 1)) for share in SPANS[span])
    return twin.read_while_it_goes_on(begin, end)


def without_events() -> Trace:
    trace = quiet().whole_trace
    return replace(trace, pfn=np.full(len(trace), -1, np.int64), tables={})


@pytest.mark.parametrize(("span", "events"), [("all", 66_228), ("a second", 5_229)])
def test_every_page_is_carried_to_its_place(span: str, events: int) -> None:
    reading, truth = twice(span)
    carried = carried_state(reading, quiet().whole_trace)
    assert carried.about["carried"]["events"] == events
    assert set(in_place(truth, carried).values()) == {1.0}
    assert carried.contradiction() == ""
    assert set(carried.uncertain) == {carry.ALLOCATED}
    assert not carried.is_exact
    assert (carried.page_refcount == truth.page_refcount).mean() > 0.999


def test_as_read_pages_are_elsewhere() -> None:
    reading, truth = twice("all")
    null = carried_state(reading, without_events())
    shares = in_place(truth, null)
    assert shares["per-CPU lists"] < 0.1
    assert shares["neighbours in free lists"] < 0.5
    assert null.uncertain[carry.FREE_COUNT] > 100
    assert null.uncertain[carry.PCP_COUNT] > 100
    assert null.uncertain[carry.LISTLESS_PAGES] > 100


def test_what_alloc_pages_bulk_took_is_missed_without_its_probe() -> None:
    reading, truth = twice("a second")
    carried = carried_state(reading, replace(quiet().whole_trace, tables={}))
    shares = in_place(truth, carried)
    assert 0.95 < shares["per-CPU lists"] < 1
    assert carried.uncertain[carry.PCP_COUNT] == 28


def test_a_machine_that_stood_still_has_the_same_state_either_way() -> None:
    twin = Twin(quiet())
    reading, truth = twin.read_while_it_goes_on(3000, 3000)
    carried = carried_state(reading, quiet().whole_trace)
    assert set(in_place(truth, carried).values()) == {1.0}
    for name in ("page_flags", "page_refcount", "page_order", "listed_pfn", "list_length"):
        assert np.array_equal(getattr(carried, name), getattr(truth, name)), name
    assert not carried.uncertain


def test_a_carried_state_is_found_among_its_events(tmp_path: Path) -> None:
    reading, truth = twice("a second")
    carried = carried_state(reading, quiet().whole_trace)
    write_state(tmp_path / "begin.state", carried)
    dated = dated_state(tmp_path / "begin.state", quiet().whole_trace)
    assert dated.time_ns + dated.slack_ns >= reading.instant_ns
    assert dated.time_ns <= reading.instant_ns
    assert dated.state.uncertain == carried.uncertain
    assert "the machine went on while it was read (1.02 s, 5,229 events" in (
        dated.state.carried_words()
    )
    assert truth.is_exact
    assert truth.carried_words() == "exact"


def test_pages_between_lost_links_are_counted() -> None:
    reading, truth = twice("a second")
    free = truth.lists(ON_FREE_LIST)
    longest = int(free[np.argmax(truth.list_length[free])])
    pfns, order = truth.pages_of(longest), int(truth.list_order[longest])
    assert len(pfns) > 12
    following, before = reading.pages.next.copy(), reading.pages.prev.copy()
    for place in (3, 5, 8):  # behind the head's lie entries 4 and 5, and 6 to 8
        following[pfns[place]] = before[pfns[place + 1]] = POISON
    torn = replace(reading, pages=reading.pages._replace(next=following, prev=before))
    carried = carried_state(torn, quiet().whole_trace)
    assert carried.uncertain[carry.POSITION] == 2 << order
    assert in_place(truth, carried)["free lists"] == 1.0
    before[pfns[6]] = reading.pages.prev[pfns[6]]  # one side tells as much as both
    torn = replace(reading, pages=reading.pages._replace(next=following, prev=before))
    assert carry.POSITION not in carried_state(torn, quiet().whole_trace).uncertain


def test_entries_are_neighbours_across_one_that_left_before_it_was_read() -> None:
    reading, truth = twice("a second")
    free = truth.lists(ON_FREE_LIST)
    pfns = truth.pages_of(int(free[np.argmax(truth.list_length[free])]))
    gone = int(np.flatnonzero(truth.page_refcount == 1)[0])
    following, before = reading.pages.next.copy(), reading.pages.prev.copy()
    node = reading.pages.base + reading.pages.link_offset + gone * reading.pages.size
    following[pfns[3]] = before[pfns[4]] = node
    torn = replace(reading, pages=reading.pages._replace(next=following, prev=before))
    carried = carried_state(torn, quiet().whole_trace)
    assert carry.POSITION not in carried.uncertain
    assert in_place(truth, carried)["neighbours in free lists"] == 1.0


def test_a_page_that_was_never_on_a_list_is_in_use() -> None:
    reading, truth = twice("a second")
    pfn = int(np.flatnonzero(truth.page_refcount > 1)[0])
    following, refcount = reading.pages.next.copy(), reading.pages.refcount.copy()
    following[pfn] = reading.pages.base + reading.pages.link_offset + pfn * reading.pages.size
    refcount[pfn] = 0
    pages = reading.pages._replace(next=following, refcount=refcount)
    carried = carried_state(replace(reading, pages=pages), quiet().whole_trace)
    assert carry.LISTLESS_PAGES not in carried.uncertain
    following[pfn] = POISON
    carried = carried_state(replace(reading, pages=pages), quiet().whole_trace)
    assert carried.uncertain[carry.LISTLESS_PAGES] == 1


def test_events_lost_meanwhile_are_counted() -> None:
    reading, _ = twice("a second")
    begin_ns = int(reading.pages.pieces[0, 2])
    rows = [(0, begin_ns - 9, begin_ns - 5, 7), (1, begin_ns + 5, begin_ns + 9, 11)]
    trace = replace(quiet().whole_trace, losses=Losses.of(rows))
    assert carried_state(reading, trace).uncertain[carry.LOST] == 11


def test_events_that_begin_later_carry_nothing() -> None:
    reading, _ = twice("a second")
    trace = quiet().whole_trace
    later = replace(trace, time_ns=trace.time_ns + 60_000_000_000)
    with pytest.raises(UsageError, match="no event was recorded before"):
        carried_state(reading, later)


@pytest.mark.parametrize(
    ("carried", "words"),
    [
        ([], "does not say what was lost"),
        ({"losses": {"x": -1}, "events": 1, "own_pages": 0}, "no count"),
        ({"losses": {"x": 1.5}, "events": 1, "own_pages": 0}, "no count"),
        ({"losses": {"\x1b[2J": 1}, "events": 1, "own_pages": 0}, "words that are none"),
        ({"losses": {}, "events": "many", "own_pages": 0}, "no count"),
        ({"losses": dict.fromkeys(map(str, range(65)), 1)}, "does not say what was lost"),
    ],
)
def test_what_a_hostile_file_says_of_losses_is_refused(
    tmp_path: Path, carried: object, words: str
) -> None:
    state = quiet().states[0].state
    write_state(tmp_path / "a.state", replace(state, about={**state.about, "carried": carried}))
    with pytest.raises(RecordingError, match=words):
        read_state(tmp_path / "a.state")
