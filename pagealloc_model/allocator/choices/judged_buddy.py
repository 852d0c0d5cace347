"""Judging what leaves the buddy: which free buddy a request is cut from, own type or fallback."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices.judged_allocations import judge_refill
from pagealloc_model.allocator.choices.judging import BUDDY_PFN, FALLBACK, judge, leave_unjudged
from pagealloc_model.allocator.choices.null_lists import null_add, null_forget
from pagealloc_model.allocator.choices.true_state import (
    count_repair,
    list_at,
    notes_at,
    zone_notes_at,
)
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import smallest_fit
from pagealloc_model.allocator.core.fallback import choose_claim
from pagealloc_model.allocator.core.fallback_search import choose_steal
from pagealloc_model.allocator.core.offsets import pcp_at
from pagealloc_model.allocator.core.pcp import list_index
from pagealloc_model.base.jit import inner

NO_FALLBACK, CLAIM, STEAL = 0, 1, 2
"""What a removal may be; a claim takes a whole block over or the free pages of one (S6.3)."""


@inner
def chosen_fallback(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, zone: int, order: int, migratetype: int
) -> tuple[int, int]:
    """Kind of fallback the rule chooses, and the buddy it takes (S6.2)."""
    pfn = choose_claim(pages, blocks, st, zone, order, migratetype, 0)
    if pfn >= 0:
        return CLAIM, pfn
    return STEAL, choose_steal(st, zone, order, migratetype)


@inner
def is_refuted(
    pages: np.ndarray, track: np.ndarray, expected: int, actual: int, falls_back: bool
) -> bool:
    """Whether a buddy that the kernel passed over may have been gone, as its pages' events show.

    Guessed ones smaller than the one the kernel split cannot have been there, nor any of the type
    whose lists it found empty.
    """
    if expected < 0 or expected == actual:
        return False
    if track[expected]["mark"] == true.SINCE_START:
        return falls_back or int(pages[expected]["order"]) < int(pages[actual]["order"])
    return true.leaves_unseen(pages, track, expected)


@inner
def drop_guess(pages: np.ndarray, st: np.ndarray, track: np.ndarray, zone: int, head: int) -> None:
    """Drop a free buddy that was not there; what was in use in a Movable block is taken to move."""
    size = 1 << int(pages[head]["order"])
    movable = int(pages[head]["tag"]) == at.MOVABLE and track[head]["mark"] == true.SINCE_START
    true.drop_buddy(pages, st, track, zone, head)
    count_repair(st, true.REPAIR_START)
    if movable:
        for page in range(head, head + size):
            pages[page]["where"] = at.ALLOCATED
            pages[page]["order"] = 0
            pages[page]["tag"] = 1


@inner
def drop_refuted(
    pages: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    zone: int,
    order: int,
    migratetype: int,
    actual: int,
    falls_back: bool,
) -> int:
    """Drop the buddies that the kernel passed over because they were gone; how many."""
    dropped = 0
    pfn = smallest_fit(st, zone, order, migratetype)
    while is_refuted(pages, track, pfn, actual, falls_back):
        drop_guess(pages, st, track, zone, pfn)
        dropped += 1
        pfn = smallest_fit(st, zone, order, migratetype)
    return dropped


@inner
def drop_refuted_fallbacks(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    zone: int,
    order: int,
    migratetype: int,
    actual: int,
) -> int:
    """Drop the guessed buddies that a fallback would have taken before the one it took; how many.

    A claim looks at the largest first, a steal at the smallest: what the kernel passed over was
    not there.
    """
    dropped = 0
    _, pfn = chosen_fallback(pages, blocks, st, zone, order, migratetype)
    while pfn >= 0 and pfn != actual and track[pfn]["mark"] == true.SINCE_START:
        drop_guess(pages, st, track, zone, pfn)
        dropped += 1
        _, pfn = chosen_fallback(pages, blocks, st, zone, order, migratetype)
    return dropped


@inner
def judge_removal(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
    pcp: int,
) -> None:
    """A page leaves the buddy: from the list and the free buddy that the rules name?"""
    zone = int(steps[number]["zone"])
    pfn = int(steps[number]["pfn"])
    order = int(steps[number]["order"])
    migratetype = int(steps[number]["migratetype"])
    flags = int(steps[number]["flags"])
    wanted = NO_FALLBACK
    taken_type = migratetype
    if flags & rec.FALLBACK:
        wanted = CLAIM if flags & rec.OWNERSHIP else STEAL
        taken_type = int(steps[number]["found_type"])
    actual = true.containing_buddy(pages, st, pfn, order)
    known = actual >= 0 and int(pages[actual]["tag"]) == taken_type
    if known:
        falls_back = wanted != NO_FALLBACK
        known = drop_refuted(pages, st, track, zone, order, migratetype, actual, falls_back) == 0
        if falls_back and smallest_fit(st, zone, order, migratetype) < 0:
            dropped = drop_refuted_fallbacks(
                pages, blocks, st, track, zone, order, migratetype, actual
            )
            known = known and dropped == 0
    kind = NO_FALLBACK
    expected = smallest_fit(st, zone, order, migratetype)
    if expected < 0 and migratetype < at.PCP_TYPES:
        kind, expected = chosen_fallback(pages, blocks, st, zone, order, migratetype)
    guessed = expected >= 0 and track[expected]["mark"] == true.SINCE_START
    if kind != NO_FALLBACK and expected >= 0 and expected != actual:
        guessed = guessed or true.leaves_unseen(pages, track, expected)
    notes = zone_notes_at(st, zone)
    following = st[notes + migratetype]
    st[notes + migratetype] = pfn + (1 << order)
    if not known or guessed:
        leave_unjudged(tally, steps, number, BUDDY_PFN)
        if wanted != NO_FALLBACK:
            leave_unjudged(tally, steps, number, FALLBACK)
        return
    if wanted == NO_FALLBACK or kind == wanted:
        hit = expected == (pfn if wanted == NO_FALLBACK else actual)
        null_hit = following == pfn
        judge(st, tally, misses, steps, number, BUDDY_PFN, pcp, hit, null_hit, expected, pfn)
        if not hit and expected >= 0:
            track[expected]["mark"] = true.SINCE_START
    if wanted != NO_FALLBACK or kind != NO_FALLBACK:
        null_hit = st[notes + at.MIGRATETYPES] == wanted
        st[notes + at.MIGRATETYPES] = wanted
        hit = kind == wanted
        judge(st, tally, misses, steps, number, FALLBACK, pcp, hit, null_hit, kind, wanted)


@inner
def remove(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
) -> None:
    """A page leaves the buddy, for a per-CPU list or for an allocation at once."""
    zone = int(steps[number]["zone"])
    pfn = int(steps[number]["pfn"])
    order = int(steps[number]["order"])
    migratetype = int(steps[number]["migratetype"])
    flags = int(steps[number]["flags"])
    pcp = pcp_at(st, zone, int(steps[number]["cpu"]))
    notes = notes_at(st, pcp)
    index = -1
    if migratetype < at.PCP_TYPES and not flags & (rec.NESTED | rec.DIRECT):
        index = list_index(st, order, migratetype)
    if flags & rec.RUN_FIRST:
        listed = index >= 0
        if listed:
            listed = judge_refill(pages, st, track, steps, tally, misses, number, pcp, index)
        st[notes + true.NOTE_RUN_LISTED] = 1 if listed else 0
    judge_removal(pages, blocks, st, track, steps, tally, misses, number, pcp)
    if not flags & rec.FALLBACK or flags & rec.OWNERSHIP:
        true.learn_block_type(pages, blocks, st, zone, pfn, migratetype)
    head = true.containing_buddy(pages, st, pfn, order)
    if head >= 0:
        true.take_exactly(pages, st, track, zone, head, pfn, order)
    else:
        count_repair(st, true.REPAIR_NOWHERE)
        true.vacate(pages, st, track, zone, pfn, order)
    if index >= 0 and st[notes + true.NOTE_RUN_LISTED]:
        fate = int(steps[number]["fate"])
        true.put_on_list(pages, st, track, list_at(pcp, index), pfn, order, fate, True)
        st[pcp + at.PCP_COUNT] += 1 << order
        null_add(track, st, pcp, index, pfn, True)
    else:
        pages[pfn]["where"] = at.ALLOCATED
        pages[pfn]["order"] = order
        null_forget(track, st, pfn)
