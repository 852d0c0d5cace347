"""What of the pages' moves is known from the events, the flags and the counts."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.diagnosis.recorded_moves import (
    agreed_free_pages,
    drop_uncounted,
)
from pagealloc_model.predicted.start.evidence import StartCounts
from tests.small_recordings import (
    NORMAL,
    small_machine,
)

MOVED = np.array([[row, -10] for row in range(100)], np.int64)
"""Ten pages leave at every row."""


@pytest.mark.parametrize(
    ("reads", "agreed"),
    [
        ([(20, 20, (500, 0))], [500]),
        ([(10, 30, (750, 0)), (50, 50, (500, 0))], [900, 500]),
        ([(50, 50, (500, 0)), (60, 80, (300, 0))], [500, 400]),
        ([(10, 10, (900, 0)), (50, 60, (300, 0))], [900, 400]),
        ([(10, 10, (900, 0)), (50, 50, (470, 36))], [900, 500]),
    ],
    ids=[
        "a read that took no time is taken as it is",
        "an exact read settles when a slow one before it was read",
        "an exact read settles when a slow one after it was read",
        "pages that went unseen change the constant by no more than needed",
        "a lagging counter bounds less closely",
    ],
)
def test_free_pages_agree_with_what_moved(
    reads: list[tuple[int, int, tuple[int, int]]], agreed: list[int]
) -> None:
    """Counted moves: 1000 less ten a row; a read may be of any row that it took."""
    known = [(begun, read, [pages]) for begun, read, pages in reads]
    assert agreed_free_pages(MOVED, known) == agreed


MACHINE = small_machine()


ZONE = [zone.name for zone in MACHINE.zones].index("Normal")


BLOCK = 1 << MACHINE.pageblock_order


FIRST_FRAME = -(-NORMAL.start_pfn // BLOCK) * BLOCK


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
    by_event[[FIRST_FRAME + place for place in known]] = True
    free[[FIRST_FRAME + place for place in [*known, *shown]]] = True
    types = np.full(length // BLOCK, at.MOVABLE, np.int8)
    none = np.zeros(len(MACHINE.zones), np.int64)
    lines = drop_uncounted(MACHINE, counts, none, by_event, free, types)
    return (np.flatnonzero(free) - FIRST_FRAME).tolist(), lines


@pytest.mark.parametrize(
    ("counted", "shown", "left"),
    [((0, 3), [2, 4], [0, 2, 4]), ((0, 2), [2, 4, 6], [0, 6]), ((0, 2), [8, 9], [0])],
    ids=["room for all", "the zone's end before its beginning", "a pair is not two single pages"],
)
def test_flags_count_as_far_as_the_counts_have_room(
    counted: tuple[int, int], shown: list[int], left: list[int]
) -> None:
    """The page that events show comes first."""
    remaining, lines = dropped(counts_of(counted), known=[0], shown=shown)
    assert remaining == left
    count = 1 + len(shown) - len(left)
    assert [f"{count} pages that page flags show free" in line for line in lines] == [True] * (
        count > 0
    )
