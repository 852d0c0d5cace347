"""Memory that comes during a recording, and starts without a past."""

from pathlib import Path

import numpy as np

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.growth import (
    SECTION_ORDER,
    grown_demand,
    size_changes,
    with_touched_span,
)
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.show.post import describe_recording, recording_text
from tests.allocator.invariants import broken_invariants
from tests.small_recordings import (
    AFTER_NS,
    BLOCK,
    END_PFN,
    NORMAL,
    TimedEvents,
    busy_events,
    shipped_recording,
    small_machine,
    start_free,
    write_recording,
    write_snapshot,
)

EMPTY = Assumptions(start="empty")
SECTION = 1 << SECTION_ORDER


def prepared(path: Path, assumptions: Assumptions | None = None) -> Prepared:
    recording = pm.open(path)
    return prepare(recording, recorded_rules(recording).rules, assumptions or Assumptions(), 0)


def of_normal(replay: pm.Replay, word: int) -> int:
    """A word of zone Normal at the end, which is sound."""
    assert replay.final is not None and broken_invariants(replay.final) == []
    return int(replay.final.zone_region(1)[word])


def test_pages_handed_over_behind_the_zone_make_it_grow(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(NORMAL.first_free)
    for index in range(3):
        events.free(END_PFN + 1024 * index, order=10)
    events.alloc(END_PFN + 512, order=9, gfp="GFP_TRANSHUGE", migratetype=1)
    path = write_recording(tmp_path / "grown", events)
    made = prepared(path)
    assert made.demand.grown_pages == 3 * 1024
    assert made.demand.outside == 0
    assert not len(made.demand.at_start)
    before = (made.image.block_types >= 0).sum()
    assert before == END_PFN // BLOCK
    replay = pm.replay(pm.open(path))
    assert replay.divergence["grown_pages"] == 3 * 1024
    assert of_normal(replay, at.ZONE_MANAGED) == NORMAL.pages + 3 * 1024
    free = of_normal(replay, at.ZONE_FREE) + int(replay.final.pcp_words(at.PCP_COUNT, 1)[1].sum())
    assert free == NORMAL.pages - BLOCK + 3 * 1024 - 1 - 512


def test_pages_taken_behind_the_zone_bring_their_section(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(NORMAL.first_free)
    events.wait(100)
    events.alloc(END_PFN + 4096 + 7)
    events.alloc(END_PFN + 700)
    made = prepared(write_recording(tmp_path / "section", events))
    assert made.machine.zones[1].end_pfn == SECTION
    assert made.demand.grown_pages == SECTION - END_PFN
    grown = made.demand.events[made.demand.events["operation"] == at.GROW]
    assert len(np.unique(grown["time_ns"])) == 1
    assert grown["offset"].tolist() == list(range(END_PFN, SECTION, BLOCK))
    first = made.demand.events["operation"].tolist().index(at.GROW)
    assert made.demand.events["operation"][:first].tolist() == [at.ALLOC]
    replay = pm.replay(pm.open(tmp_path / "section"))
    assert of_normal(replay, at.ZONE_MANAGED) == NORMAL.pages + SECTION - END_PFN


def test_no_more_than_as_much_again_is_taken_for_memory(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(NORMAL.first_free)
    events.alloc(1 << 30)
    machine = small_machine()
    assert with_touched_span(machine, events.trace(tmp_path)) == machine
    events.alloc(END_PFN)
    wider = with_touched_span(machine, events.trace(tmp_path))
    assert wider.end_pfn == SECTION
    assert wider.zones[1].managed == machine.zones[1].managed


def test_changed_sizes_are_reported(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "sizes")
    assert list(size_changes(pm.open(path))) == []
    late = write_snapshot(path, AFTER_NS, start_free()) / "zoneinfo"
    text = late.read_text()
    start = text.index("Normal")
    grown = text[start:]
    for size in ("spanned", "present", "managed"):
        grown = grown.replace(f"{size}  8192", f"{size}  9216", 1)
    late.write_text(text[:start] + grown)
    line = "zone Normal grew from 8192 to 9216 managed pages during the recording"
    recording = pm.open(path)
    assert list(size_changes(recording)) == [line]
    assert describe_recording(recording)["zone_sizes"] == [line]
    assert f"memory     {line}" in recording_text(recording)
    assert line in pm.validate(recording).notes
    late.write_text(text[:start] + text[start:].replace("managed  8192", "managed  4096", 1))
    assert "shrank from 8192 to 4096" in next(size_changes(pm.open(path)))


def test_an_empty_start_has_every_managed_page_free(tmp_path: Path) -> None:
    made = prepared(write_recording(tmp_path / "empty"), EMPTY)
    assert made.image.free.sum() == END_PFN
    assert not len(made.image.listed) and not len(made.image.allocated_pfn)
    assert any(line.startswith("empty: all") for line in made.image.origin)


def test_what_an_empty_machine_frees_is_allocated_at_the_beginning(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "created", busy_events())
    recorded, made = prepared(path), prepared(path, EMPTY)
    count = len(recorded.demand.at_start)
    assert count > 0 and not len(made.demand.at_start)
    created = made.demand.events[:count]
    assert (created["operation"] == at.HIDDEN_ALLOC).all()
    assert sorted(created["object"]) == sorted(recorded.demand.at_start)
    replay = pm.replay(pm.open(path), assumptions=EMPTY)
    assert replay.final is not None and broken_invariants(replay.final) == []
    assert replay.divergence["orphan_frees"] == 0
    assert replay.divergence["live_at_start"] == 0


def test_an_empty_machine_begins_at_its_smallest_limits(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "limits")
    for directory in (path / "snapshots").iterdir():
        text = (directory / "zoneinfo").read_text()
        (directory / "zoneinfo").write_text(text.replace("high: 60", "high: 200"))
    made = prepared(path, EMPTY)
    assert {each.high for zone in made.machine.zones for each in zone.pagesets} == {60}


def test_holes_that_page_flags_show_stay_holes() -> None:
    recording = shipped_recording("highatomic_gate3")
    image = prepare(recording, recorded_rules(recording).rules, EMPTY, 0).image
    assert recording.kpageflags is not None
    nopage = np.flatnonzero(recording.kpageflags[: len(image.free)] & np.uint64(1 << 20))
    assert not image.free[nopage].any()


def test_a_free_that_begins_in_memory_and_ends_behind_it_makes_the_zone_grow(
    tmp_path: Path,
) -> None:
    """Else its second block would lie in no zone, and pages taken from there with it."""
    events = TimedEvents()
    events.alloc(NORMAL.first_free)
    first = END_PFN - 2 * BLOCK
    events.free(first, order=10)
    made = prepared(write_recording(tmp_path / "straddling", events))
    assert made.demand.grown_pages == 0
    types = made.image.block_types.copy()
    types[first // BLOCK + 1] = -1
    grown = grown_demand(made.machine, made.demand, types)
    assert grown.grown_pages == 2 * BLOCK
    assert not len(grown.at_start)
    (event,) = grown.events[grown.events["operation"] == at.GROW]
    assert (event["offset"], event["order"], event["zone"]) == (first, 10, 1)
