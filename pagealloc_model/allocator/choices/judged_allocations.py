"""Judging what leaves a pageset for an allocation: which page, and when and how much it refills.

Each function first asks the model's own rule what it would do from the true state, then moves the
page as recorded.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices import tuning_words as tuning
from pagealloc_model.allocator.choices.judging import (
    PCP_POP,
    REFILL_SIZE,
    REFILL_WHEN,
    judge,
    leave_unjudged,
)
from pagealloc_model.allocator.choices.null_lists import null_pop
from pagealloc_model.allocator.choices.true_state import (
    count_repair,
    drop_hidden,
    list_at,
    notes_at,
)
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import pcp_at
from pagealloc_model.allocator.core.pcp import list_index, refill_size
from pagealloc_model.base.jit import inner


@inner
def judge_pop(
    pages: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
    index: int,
) -> None:
    """An allocation from a per-CPU list: was its page the head, and was no refill due?"""
    pfn = int(steps[number]["pfn"])
    pcp = pcp_at(st, int(steps[number]["zone"]), int(steps[number]["cpu"]))
    notes = notes_at(st, pcp)
    lst = list_at(pcp, index)
    dropped = drop_hidden(pages, st, track, lst + at.HEAD, pfn)
    head = st[lst + at.HEAD]
    known = head >= 0 and track[head]["mark"] > 0 and dropped == 0
    null_hit = null_pop(track, st, pcp, index, pfn)
    if st[notes + true.NOTE_REFILLED] != pfn + 1:
        if known or (head < 0 and dropped == 0):
            hit = head >= 0
            expected = 0 if hit else 1
            judge(st, tally, misses, steps, number, REFILL_WHEN, pcp, hit, True, expected, 0)
        else:
            leave_unjudged(tally, steps, number, REFILL_WHEN)
    st[notes + true.NOTE_REFILLED] = 0
    if known:
        judge(st, tally, misses, steps, number, PCP_POP, pcp, head == pfn, null_hit, head, pfn)
        if head != pfn:
            true.pass_over(pages, st, track, head)
    else:
        leave_unjudged(tally, steps, number, PCP_POP)
    st[pcp + at.PCP_FREE_COUNT] >>= 1
    st[notes + true.NOTE_FREE_COUNT] >>= 1


@inner
def pop(
    pages: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
) -> None:
    """An allocation, of a page that an earlier step took from the buddy or of a listed one."""
    pfn = int(steps[number]["pfn"])
    order = int(steps[number]["order"])
    zone = int(steps[number]["zone"])
    migratetype = int(steps[number]["migratetype"])
    index = list_index(st, order, migratetype)
    track[pfn]["null_type"] = migratetype
    if int(pages[pfn]["where"]) != at.ALLOCATED:
        if index >= 0 and not int(steps[number]["flags"]) & rec.NESTED:
            judge_pop(pages, st, track, steps, tally, misses, number, index)
        if true.is_listed(pages, pfn, order):
            on = abs(int(track[pfn]["mark"]))
            pcp = pcp_at(st, zone, int(steps[number]["cpu"]))
            if true.pageset_of_list(st, on) != pcp:
                count_repair(st, true.REPAIR_OTHER_CPU)
            elif on != list_at(pcp, index):
                count_repair(st, true.REPAIR_OTHER_LIST)
            true.leave_list(pages, st, track, pfn)
        else:
            count_repair(st, true.REPAIR_NOWHERE)
            true.vacate(pages, st, track, zone, pfn, order)
    pages[pfn]["where"] = at.ALLOCATED
    pages[pfn]["order"] = order
    pages[pfn]["tag"] = 1 if migratetype == at.MOVABLE else 0


@inner
def judge_refill_size(
    st: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
    pcp: int,
    known: bool,
) -> None:
    """A list is refilled: with as many objects as the rule says (S4.4)?

    A kprobe tells how many the kernel asked for; without one, those it got stand for them.
    """
    order = int(steps[number]["order"])
    zone = int(steps[number]["zone"])
    actual = int(steps[number]["asked"])
    if actual == 0:
        actual = int(steps[number]["objects"])
    predicted = refill_size(st, pcp, zone, order)
    tuning.swap_worlds(st, pcp, zone)
    late = refill_size(st, pcp, zone, order)
    tuning.swap_worlds(st, pcp, zone)
    if known and tuning.is_settled(st, pcp) and predicted == late:
        null_hit = actual == max(st[pcp + at.PCP_BATCH] >> order, 1)
        hit = predicted == actual
        judge(st, tally, misses, steps, number, REFILL_SIZE, pcp, hit, null_hit, predicted, actual)
        if not hit and order == 0:
            count_repair(st, true.REPAIR_TUNING)
            tuning.fit_alloc_factor(st, pcp, predicted, actual)
            tuning.make_worlds_one(st, pcp, zone)
        return
    leave_unjudged(tally, steps, number, REFILL_SIZE)
    if predicted != late and predicted == actual:
        tuning.make_worlds_one(st, pcp, zone)
    elif predicted != late and late == actual:
        tuning.swap_worlds(st, pcp, zone)
        tuning.make_worlds_one(st, pcp, zone)
        tuning.swap_worlds(st, pcp, zone)
        tuning.make_worlds_one(st, pcp, zone)


@inner
def judge_refill(
    pages: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
    pcp: int,
    index: int,
) -> bool:
    """The first removal of a run: was the list empty, is the run as long as the rule says?

    Returns:
        Whether the run goes to the list. A single page that is allocated at once beside a list
        with pages does not: the list was locked (S4.10).
    """
    pfn = int(steps[number]["pfn"])
    actual = int(steps[number]["objects"])
    lst = list_at(pcp, index)
    used = int(steps[number]["flags"]) & rec.USED_AT_ONCE
    dropped = drop_hidden(pages, st, track, lst + at.HEAD, pfn)
    head = st[lst + at.HEAD]
    known = used != 0 and dropped == 0 and (head < 0 or track[head]["mark"] > 0)
    if known:
        hit = head < 0
        expected = 1 if hit else 0
        judge(st, tally, misses, steps, number, REFILL_WHEN, pcp, hit, False, expected, actual)
    else:
        leave_unjudged(tally, steps, number, REFILL_WHEN)
    if head >= 0 and actual == 1 and used != 0:
        return False
    judge_refill_size(st, steps, tally, misses, number, pcp, known)
    if used != 0:
        st[notes_at(st, pcp) + true.NOTE_REFILLED] = pfn + 1
    return True
