"""Pages that only old page flags show free: as many as the start snapshot counts."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.predicted.start.evidence import StartCounts
from pagealloc_model.verdict.choices.true_start import drop_uncounted
from tests.small_recordings import NORMAL, small_machine

MACHINE = small_machine()
ZONE = [zone.name for zone in MACHINE.zones].index("Normal")
BLOCK = 1 << MACHINE.pageblock_order
FIRST = -(-NORMAL.start_pfn // BLOCK) * BLOCK


def counts_of(*buddies: tuple[int, int]) -> StartCounts:
    """A snapshot with so many free buddies of each order named, all Movable."""
    table = np.zeros((len(MACHINE.zones), at.ORDERS, at.MIGRATETYPES), np.int64)
    pages = np.zeros(len(MACHINE.zones), np.int64)
    for order, count in buddies:
        table[ZONE, order, at.MOVABLE] = count
        pages[ZONE] += count << order
    return StartCounts(
        free_buddies=table,
        other_buddies=table,
        blocks=np.zeros((len(MACHINE.zones), at.MIGRATETYPES), np.int64),
        free_pages=pages,
        time_ns=0,
    )


def dropped(counts: StartCounts, known: list[int], shown: list[int]) -> tuple[list[int], list[str]]:
    """What remains free, as offsets from the first block, and what is said."""
    length = -(-MACHINE.end_pfn // BLOCK) * BLOCK
    by_event, free = np.zeros(length, bool), np.zeros(length, bool)
    by_event[[FIRST + each for each in known]] = True
    free[[FIRST + each for each in [*known, *shown]]] = True
    types = np.full(length // BLOCK, at.MOVABLE, np.int8)
    none = np.zeros(len(MACHINE.zones), np.int64)
    lines = drop_uncounted(MACHINE, counts, none, by_event, free, types)
    return (np.flatnonzero(free) - FIRST).tolist(), lines


def test_what_the_counts_have_room_for_stays() -> None:
    left, lines = dropped(counts_of((0, 3)), known=[0], shown=[2, 4])
    assert left == [0, 2, 4]
    assert not lines


def test_events_come_before_flags_and_the_zones_end_before_its_beginning() -> None:
    left, lines = dropped(counts_of((0, 2)), known=[0], shown=[2, 4, 6])
    assert left == [0, 6]
    assert "2 pages that page flags show free" in lines[0]


def test_buddies_of_another_order_than_counted_are_left_out() -> None:
    """Two single pages are counted; a pair, untouched, is not two single pages."""
    left, _ = dropped(counts_of((0, 2)), known=[0], shown=[8, 9])
    assert left == [0]
