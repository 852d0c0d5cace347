"""Judging what a free does to a pageset: whether it overflows, and which pages it returns.

Each function first asks the model's own rule what it would do from the true state, then moves the
page as recorded.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices import tuning_words as tuning
from pagealloc_model.allocator.choices.judging import (
    DRAIN_PAGE,
    DRAIN_SIZE,
    DRAIN_WHEN,
    judge,
    leave_unjudged,
)
from pagealloc_model.allocator.choices.null_lists import null_add, null_forget, null_list_at
from pagealloc_model.allocator.choices.true_state import (
    count_repair,
    drop_hidden,
    list_at,
    notes_at,
)
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import pcp_at
from pagealloc_model.allocator.core.pcp import (
    drained_list,
    list_count,
    list_index,
    list_order,
    overflow_of_free,
)
from pagealloc_model.allocator.core.request import split_allocation
from pagealloc_model.base.jit import inner


@inner
def overflows(st: np.ndarray, pcp: int, zone: int, order: int) -> tuple[int, int]:
    """Pages that a free returns in the lower and in the upper world; counts the free's pages."""
    before = st[pcp + at.PCP_COUNT]
    early = min(overflow_of_free(st, pcp, zone, order), st[pcp + at.PCP_COUNT])
    after = st[pcp + at.PCP_COUNT]
    st[pcp + at.PCP_COUNT] = before
    tuning.swap_worlds(st, pcp, zone)
    late = min(overflow_of_free(st, pcp, zone, order), st[pcp + at.PCP_COUNT])
    tuning.swap_worlds(st, pcp, zone)
    st[pcp + at.PCP_COUNT] = after
    return early, late


@inner
def fit_world(
    st: np.ndarray, pcp: int, zone: int, order: int, high: int, predicted: int, actual: int
) -> None:
    """Make one world allow whether a free drained, if it said otherwise."""
    if (predicted > 0) == (actual > 0):
        return
    empties = max(predicted, actual) >= st[pcp + at.PCP_COUNT]
    if order > 0 and order <= st[at.COSTLY_ORDER] and empties:
        tuning.fit_flush(st, pcp, high, actual)
    else:
        tuning.fit_overflow(st, pcp, zone, high, actual)


@inner
def is_cut_short(st: np.ndarray, pcp: int, predicted: int, actual: int) -> bool:
    """Whether a drain may have stopped between two chunks: no event tells of the lock (S4.7)."""
    batch = st[pcp + at.PCP_BATCH]
    return st[at.FREE_BATCHED] != 0 and batch <= actual and actual < predicted


@inner
def chunked_drain(st: np.ndarray, pcp: int, index: int, wanted: int) -> int:
    """Pages that a drain in chunks of `batch` returns: each may exceed by its last page (S4.7)."""
    lists = list_count(st)
    drained = 0
    got = 0
    for step in range(lists):
        each = (index + step) % lists
        size = 1 << list_order(st, each)
        for _ in range(st[list_at(pcp, each) + at.ENTRIES]):
            drained += size
            got += size
            if got >= min(st[pcp + at.PCP_BATCH], wanted):
                wanted -= st[pcp + at.PCP_BATCH]
                got = 0
            if wanted <= 0:
                return drained
    return drained


@inner
def is_of_size(
    st: np.ndarray, pcp: int, steps: np.ndarray, number: int, index: int, predicted: int
) -> bool:
    """Whether the run of drains after a free has the size predicted; its last page may exceed."""
    actual = int(steps[number]["pages"])
    if st[at.FREE_BATCHED]:
        return actual == chunked_drain(st, pcp, index, predicted)
    last = 1 << max(int(steps[number]["found_order"]), 0)
    return actual - last < predicted and predicted <= actual


@inner
def judge_drain_size(
    st: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
    pcp: int,
    index: int,
    early: int,
    late: int,
) -> None:
    """A free drains: as many pages as the rule says (S4.6)?"""
    actual = int(steps[number]["pages"])
    settled = tuning.is_settled(st, pcp) and early == late
    if not settled or is_cut_short(st, pcp, early, actual):
        leave_unjudged(tally, steps, number, DRAIN_SIZE)
        return
    hit = is_of_size(st, pcp, steps, number, index, early)
    null_hit = actual == st[pcp + at.PCP_BATCH]
    judge(st, tally, misses, steps, number, DRAIN_SIZE, pcp, hit, null_hit, early, actual)


@inner
def judge_overflow(
    st: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
    pcp: int,
    index: int,
) -> None:
    """A page was freed to a list: does the pageset overflow, and by how much (S4.6)?

    No overflow empties a pageset but a flush: pages drained down to the last one after a free of
    another order were drained for another reason (S4.9).
    """
    zone = int(steps[number]["zone"])
    order = int(steps[number]["order"])
    actual = int(steps[number]["pages"])
    high = st[pcp + at.PCP_HIGH]
    upper_high = st[notes_at(st, pcp) + true.NOTE_HIGH]
    early, late = overflows(st, pcp, zone, order)
    if int(steps[number]["flags"]) & rec.UNSEEN:
        return
    listed = st[pcp + at.PCP_COUNT] - st[notes_at(st, pcp) + true.NOTE_REMAINDER]
    flushes = order > 0 and order <= st[at.COSTLY_ORDER]
    if actual >= listed and not flushes:
        actual = 0
    alike = (early > 0) == (late > 0)
    hit = (early > 0) == (actual > 0)
    if alike and tuning.is_settled(st, pcp):
        null_hit = actual == 0
        judge(st, tally, misses, steps, number, DRAIN_WHEN, pcp, hit, null_hit, early, actual)
        if not hit:
            count_repair(st, true.REPAIR_TUNING)
    else:
        leave_unjudged(tally, steps, number, DRAIN_WHEN)
    if actual > 0 and alike and hit:
        judge_drain_size(st, steps, tally, misses, number, pcp, index, early, late)
        cut = is_cut_short(st, pcp, early, actual)
        if early == late and not cut and not is_of_size(st, pcp, steps, number, index, early):
            tuning.fit_free_count(st, pcp, actual)
    elif actual > 0:
        leave_unjudged(tally, steps, number, DRAIN_SIZE)
    fit_world(st, pcp, zone, order, high, early, actual)
    tuning.swap_worlds(st, pcp, zone)
    fit_world(st, pcp, zone, order, upper_high, late, actual)
    tuning.swap_worlds(st, pcp, zone)
    if alike and not hit and not flushes:
        tuning.widen_high(st, pcp, actual)


@inner
def push(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
) -> None:
    """A free, to a per-CPU list or, as far as the recording shows it, to the buddy at once."""
    zone = int(steps[number]["zone"])
    pfn = int(steps[number]["pfn"])
    order = int(steps[number]["order"])
    fate = int(steps[number]["fate"])
    flags = int(steps[number]["flags"])
    where = int(pages[pfn]["where"])
    if where == at.ON_PCP and int(pages[pfn]["order"]) == order:
        count_repair(st, true.REPAIR_HIDDEN)
        true.leave_list(pages, st, track, pfn)
    elif where != at.ALLOCATED or int(pages[pfn]["order"]) != order:
        split_allocation(pages, st, pfn, order)
        if int(pages[pfn]["where"]) != at.ALLOCATED:
            true.vacate(pages, st, track, zone, pfn, order)
    migratetype = int(blocks[pfn >> st[at.PAGEBLOCK_ORDER]]["migratetype"])
    listed = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    index = list_index(st, order, listed)
    steps[number]["migratetype"] = listed
    direct = fate == rec.REMOVE or flags & rec.NESTED != 0 or flags & rec.DIRECT != 0
    if index < 0 or direct or migratetype == st[at.ISOLATE]:
        null_forget(track, st, pfn)
        true.return_directly(pages, blocks, st, track, zone, pfn, order)
        true.note_fate(track, steps, number)
        return
    pcp = pcp_at(st, zone, int(steps[number]["cpu"]))
    lst = list_at(pcp, index)
    true.put_on_list(pages, st, track, lst, pfn, order, fate, False)
    if flags & rec.UNSEEN:
        track[pfn]["mark"] = -lst
    if flags & rec.UNSEEN or fate == rec.PUSH:
        true.note_unsure(st, track, pcp, pfn)
    null_index = list_index(st, order, int(track[pfn]["null_type"]))
    null_add(track, st, pcp, null_index, pfn, False)
    judge_overflow(st, steps, tally, misses, number, pcp, index)
    notes = notes_at(st, pcp)
    st[notes + true.NOTE_DRAIN_INDEX] = index
    st[notes + true.NOTE_DRAIN_FROM] = pcp


@inner
def expected_drain(st: np.ndarray, pcp: int, index: int) -> int:
    """The page a drain takes next, -1 if the state has none on the pageset's lists."""
    for each in range(list_count(st)):
        if st[list_at(pcp, each) + at.TAIL] >= 0:
            return st[list_at(pcp, drained_list(st, pcp, index)) + at.TAIL]
    return -1


@inner
def judge_drained_page(
    pages: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
    pcp: int,
    index: int,
) -> None:
    """A page leaves a list for the buddy: is it the one that the rule names (S5.6)?"""
    pfn = int(steps[number]["pfn"])
    order = int(steps[number]["order"])
    dropped = 0
    expected = expected_drain(st, pcp, index)
    if expected >= 0 and expected != pfn:
        tail = abs(int(track[expected]["mark"])) + at.TAIL
        dropped = drop_hidden(pages, st, track, tail, pfn)
        expected = expected_drain(st, pcp, index)
    known = expected >= 0 and track[expected]["mark"] > 0 and dropped == 0
    if not known or not true.is_listed(pages, pfn, order):
        leave_unjudged(tally, steps, number, DRAIN_PAGE)
        return
    null_index = list_index(st, order, min(int(steps[number]["migratetype"]), at.MOVABLE))
    null_hit = st[null_list_at(st, pcp, null_index) + at.TAIL] == pfn
    hit = expected == pfn
    judge(st, tally, misses, steps, number, DRAIN_PAGE, pcp, hit, null_hit, expected, pfn)
    if not hit:
        true.pass_over(pages, st, track, expected)


@inner
def begin_drain(
    st: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
    pcp: int,
) -> None:
    """A run of drains that no free of the same task caused: a worker's is a decay (S4.8)."""
    notes = notes_at(st, pcp)
    st[notes + true.NOTE_DRAIN_INDEX] = 0
    st[notes + true.NOTE_DRAIN_FROM] = pcp
    if not int(steps[number]["flags"]) & rec.KWORKER:
        return
    actual = int(steps[number]["pages"])
    zone = int(steps[number]["zone"])
    predicted, late = tuning.tick_seen(st, pcp, zone)
    if predicted == late and tuning.is_settled(st, pcp):
        hit = predicted == actual
        null_hit = actual == st[pcp + at.PCP_BATCH]
        judge(st, tally, misses, steps, number, DRAIN_SIZE, pcp, hit, null_hit, predicted, actual)
    else:
        leave_unjudged(tally, steps, number, DRAIN_SIZE)


@inner
def drain_one(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
) -> None:
    """A page goes from a list to the buddy; from another CPU's if all lists are drained (S4.9)."""
    zone = int(steps[number]["zone"])
    pfn = int(steps[number]["pfn"])
    order = int(steps[number]["order"])
    migratetype = int(steps[number]["migratetype"])
    flags = int(steps[number]["flags"])
    own = pcp_at(st, zone, int(steps[number]["cpu"]))
    notes = notes_at(st, own)
    if flags & rec.RUN_FIRST and not flags & rec.AFTER_PUSH:
        begin_drain(st, steps, tally, misses, number, own)
    pcp = own
    listed = true.is_listed(pages, pfn, order)
    if listed:
        pcp = true.pageset_of_list(st, abs(int(track[pfn]["mark"])))
    if pcp != st[notes + true.NOTE_DRAIN_FROM]:
        st[notes + true.NOTE_DRAIN_FROM] = pcp
        st[notes + true.NOTE_DRAIN_INDEX] = 0
    index = st[notes + true.NOTE_DRAIN_INDEX]
    judge_drained_page(pages, st, track, steps, tally, misses, number, pcp, index)
    if listed:
        lst = abs(int(track[pfn]["mark"]))
        st[notes + true.NOTE_DRAIN_INDEX] = (lst - list_at(pcp, 0)) // at.LIST_WORDS
        true.leave_list(pages, st, track, pfn)
    else:
        count_repair(st, true.REPAIR_NOWHERE)
        true.vacate(pages, st, track, zone, pfn, order)
    null_forget(track, st, pfn)
    true.learn_block_type(pages, blocks, st, zone, pfn, migratetype)
    true.return_exactly(pages, blocks, st, track, zone, pfn, order, migratetype)
    true.note_fate(track, steps, number)
    if int(steps[number]["objects"]) == 1:
        tuning.leave_low_memory(st, zone)
