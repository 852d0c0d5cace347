"""The high-order flush threshold, from free_count as the events let it be reconstructed."""

from pathlib import Path

import numpy as np

from pagealloc_model.measured.rule_findings import flush_chances, flush_finding
from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.zone_map import ZoneMap
from tests.small_recordings import NORMAL, TimedEvents, start_free, zoneinfo_text

ZONES = ZoneMap.of(parse_zoneinfo(zoneinfo_text(start_free(), {})))
"""batch 15, high_min 60: the thresholds are 15 and 45."""
FIRST = NORMAL.first_free


def chances(events: TimedEvents, directory: Path) -> tuple[int, int]:
    return flush_chances(events.trace(directory), ZONES)


def with_freed(pages: int) -> TimedEvents:
    """Single pages freed, then one of order 1, whose successor may flush."""
    events = TimedEvents()
    for page in range(pages):
        events.free(FIRST + page)
    events.free(FIRST + 512, order=1)
    return events


def test_a_second_high_order_free_between_the_thresholds_is_a_chance(tmp_path: Path) -> None:
    events = with_freed(20)
    events.free(FIRST + 514, order=1)
    assert chances(events, tmp_path) == (1, 0)
    events.drained(FIRST)
    assert chances(events, tmp_path) == (1, 1)


def test_below_the_lower_and_above_the_upper_threshold_both_kernels_agree(tmp_path: Path) -> None:
    for freed, asked in ((12, 0), (13, 1), (42, 1), (43, 0)):
        events = with_freed(freed)
        events.free(FIRST + 514, order=1)
        assert chances(events, tmp_path)[0] == asked


def test_allocations_halve_the_count(tmp_path: Path) -> None:
    for freed, asked in ((80, 0), (112, 1)):
        events = TimedEvents()
        for page in range(freed):
            events.free(FIRST + page)
        events.alloc(FIRST)
        events.alloc(FIRST + 1)
        events.alloc(FIRST + 2)
        events.free(FIRST + 512, order=1)
        events.free(FIRST + 514, order=1)
        assert chances(events, tmp_path)[0] == asked, freed


def test_another_cpu_and_a_single_page_do_not_count_as_the_one_before(tmp_path: Path) -> None:
    events = with_freed(20)
    events.free(FIRST + 90)
    events.free(FIRST + 514, order=1)
    events.on(cpu=1).free(FIRST + 516, order=1)
    assert chances(events, tmp_path)[0] == 0


def test_an_empty_list_cannot_flush(tmp_path: Path) -> None:
    events = with_freed(20)
    events.drained(*range(FIRST, FIRST + 20))
    events.free(FIRST + 514, order=1)
    assert chances(events, tmp_path)[0] == 0


def test_a_free_inside_an_open_batch_does_not_reach_the_list(tmp_path: Path) -> None:
    events = with_freed(20)
    events.free(FIRST + 100)
    events.free(FIRST + 514, order=1)
    events.event("kmem:mm_page_free_batched", f"page=0x1 pfn={FIRST + 100:#x} order=0")
    assert chances(events, tmp_path)[0] == 0


def test_shares_decide_only_where_they_are_clear() -> None:
    verdicts = {
        (asked, flushed): flush_finding(asked, flushed)
        for asked, flushed in ((100, 3), (100, 35), (100, 17), (19, 0))
    }
    assert {key: each and each.value for key, each in verdicts.items()} == {
        (100, 3): True,
        (100, 35): False,
        (100, 17): None,
        (19, 0): None,
    }


def test_no_events_no_chances(tmp_path: Path) -> None:
    events = TimedEvents()
    events.alloc(FIRST)
    assert chances(events, tmp_path) == (0, 0)
    assert np.all(ZONES.batches() > 0)
