"""Counting judged choices: hits, the null model's hits, misses, and what cannot be judged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.layout import zone_at
from pagealloc_model.base.jit import inner


class Judged(NamedTuple):
    """What judging knows and counts; judging functions call it `j`.

    Attributes:
        steps: `recorded_steps.STEP` records in time order; a push's migratetype is written.
        track: `true_state.TRACK` records, one per page frame.
        tally: int64, shape (choices, slots, OUTCOMES); added to.
        misses: int64, shape (choices, MISSES_KEPT + 1, MISS_COLUMNS); added to.
    """

    steps: np.ndarray
    track: np.ndarray
    tally: np.ndarray
    misses: np.ndarray


ZONE, PCP_POP, REFILL_WHEN, REFILL_SIZE, BUDDY_PFN = range(5)
DRAIN_WHEN, DRAIN_SIZE, DRAIN_PAGE, FALLBACK = range(5, 9)
CHOICES = ("zone", "pcp_pop", "refill_when", "refill_size", "buddy_pfn")
CHOICES += ("drain_when", "drain_size", "drain_page", "fallback")

JUDGED, HITS, BLOCK_HITS, NULL_HITS, UNJUDGED = range(5)
OUTCOMES = 5
"""BLOCK_HITS: the right pageblock, of choices of pages."""

TYPE_SLOTS = at.ORDERS * at.MIGRATETYPES
TIME_BINS = 64
ORDER_CLASSES = 3
MARGINS = (16, 64, 256, 1024)
CLASS_SLOTS = ORDER_CLASSES * at.PCP_TYPES * 2 * (len(MARGINS) + 1)
OTHER_SLOTS = TYPE_SLOTS + TIME_BINS + CLASS_SLOTS
"""A tally's slots: one for each order and migratetype, for each bin of time, for each class of
request (order 0, costly or between; type; atomic or not) by pages between the closest watermark
test and its mark, then for each CPU."""

MISSES_KEPT = 256
MISS_STEP, MISS_PREDICTED, MISS_ACTUAL, MISS_WORDS = 0, 1, 2, 3
MISS_PAGESET = (
    ("listed", at.PCP_COUNT),
    ("high", at.PCP_HIGH),
    ("alloc_factor", at.PCP_ALLOC_FACTOR),
    ("free_count", at.PCP_FREE_COUNT),
)
MISS_BELOW_HIGH = MISS_WORDS + len(MISS_PAGESET)
MISS_RECLAIM = MISS_BELOW_HIGH + 1
MISS_COLUMNS = MISS_RECLAIM + 1
"""A kept miss: the step, what was predicted and done, then the pageset's and the zone's words. The
row after the last kept one holds the number of all misses."""


@inner
def tally_outcome(j: Judged, number: int, choice: int, outcome: int) -> None:
    """No kernel function: count one outcome of a choice by order, type, time and CPU."""
    order = int(j.steps[number]["order"])
    migratetype = max(int(j.steps[number]["migratetype"]), 0)
    j.tally[choice, order * at.MIGRATETYPES + migratetype, outcome] += 1
    j.tally[choice, TYPE_SLOTS + int(j.steps[number]["time_bin"]), outcome] += 1
    j.tally[choice, OTHER_SLOTS + int(j.steps[number]["cpu"]), outcome] += 1


@inner
def tally_class(j: Judged, slot: int, hit: bool, null_hit: bool) -> None:
    """No kernel function: count a judged choice of a zone under its request's class and margin."""
    j.tally[ZONE, slot, JUDGED] += 1
    if hit:
        j.tally[ZONE, slot, HITS] += 1
    if null_hit:
        j.tally[ZONE, slot, NULL_HITS] += 1


@inner
def leave_unjudged(j: Judged, number: int, choice: int) -> None:
    """No kernel function: count a choice that the true state before it does not settle."""
    tally_outcome(j, number, choice, UNJUDGED)


@inner
def judge(
    m: at.Arrays,
    j: Judged,
    number: int,
    choice: int,
    pcp: int,
    hit: bool,
    null_hit: bool,
    predicted: int,
    actual: int,
) -> None:
    """No kernel function: count a judged choice, with the state of the first misses of each."""
    tally_outcome(j, number, choice, JUDGED)
    if null_hit:
        tally_outcome(j, number, choice, NULL_HITS)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    if hit or predicted >> block_order == actual >> block_order:
        tally_outcome(j, number, choice, BLOCK_HITS)
    if hit:
        tally_outcome(j, number, choice, HITS)
        return
    kept = j.misses[choice, MISSES_KEPT, 0]
    j.misses[choice, MISSES_KEPT, 0] = kept + 1
    if kept >= MISSES_KEPT:
        return
    region = zone_at(int(j.steps[number]["zone"]))
    j.misses[choice, kept, MISS_STEP] = number
    j.misses[choice, kept, MISS_PREDICTED] = predicted
    j.misses[choice, kept, MISS_ACTUAL] = actual
    j.misses[choice, kept, MISS_WORDS] = m.st[pcp + at.PCP_COUNT]
    j.misses[choice, kept, MISS_WORDS + 1] = m.st[pcp + at.PCP_HIGH]
    j.misses[choice, kept, MISS_WORDS + 2] = m.st[pcp + at.PCP_ALLOC_FACTOR]
    j.misses[choice, kept, MISS_WORDS + 3] = m.st[pcp + at.PCP_FREE_COUNT]
    j.misses[choice, kept, MISS_BELOW_HIGH] = m.st[region + at.ZONE_BELOW_HIGH]
    j.misses[choice, kept, MISS_RECLAIM] = m.st[region + at.ZONE_RECLAIM_ACTIVE]
