"""Judging what leaves the buddy: which free buddy a request is cut from, own type or fallback."""

from __future__ import annotations

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices.judged import Judged
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
from pagealloc_model.allocator.core.pcp import order_to_pindex
from pagealloc_model.base.jit import inner

NO_FALLBACK, CLAIM, STEAL = 0, 1, 2
"""What a removal may be; a claim takes a whole block over or the free pages of one (S6.3)."""


@inner
def chosen_fallback(
    m: at.MachineArrays, zone: int, order: int, migratetype: int
) -> tuple[int, int]:
    """No kernel function: return the kind of fallback the rule chooses and its buddy (S6.2)."""
    pfn = choose_claim(m, zone, order, migratetype, 0)
    if pfn >= 0:
        return CLAIM, pfn
    return STEAL, choose_steal(m, zone, order, migratetype)


@inner
def is_refuted(
    m: at.MachineArrays, j: Judged, expected: int, actual: int, falls_back: bool
) -> bool:
    """No kernel function: return whether a buddy passed over may have been gone already.

    Its pages' events show it. Guessed ones smaller than the one the kernel split cannot have been
    there, nor any of the type whose lists it found empty.
    """
    if expected < 0 or expected == actual:
        return False
    if j.track[expected]["mark"] == true.SINCE_START:
        return falls_back or int(m.pages[expected]["order"]) < int(m.pages[actual]["order"])
    return true.leaves_unseen(m, j, expected)


@inner
def drop_guess(m: at.MachineArrays, j: Judged, zone: int, head: int) -> None:
    """No kernel function: drop a free buddy that was not there.

    What was in use in a Movable block is taken to move.
    """
    size = 1 << int(m.pages[head]["order"])
    movable = int(m.pages[head]["tag"]) == at.MOVABLE and j.track[head]["mark"] == true.SINCE_START
    true.drop_buddy(m, j, zone, head)
    count_repair(m, true.REPAIR_START)
    if movable:
        for page in range(head, head + size):
            m.pages[page]["where"] = at.ALLOCATED
            m.pages[page]["order"] = 0
            m.pages[page]["tag"] = 1


@inner
def drop_refuted(
    m: at.MachineArrays,
    j: Judged,
    zone: int,
    order: int,
    migratetype: int,
    actual: int,
    falls_back: bool,
) -> int:
    """No kernel function: drop the buddies passed over because they were gone.

    Returns how many.
    """
    dropped = 0
    pfn = smallest_fit(m, zone, order, migratetype)
    while is_refuted(m, j, pfn, actual, falls_back):
        drop_guess(m, j, zone, pfn)
        dropped += 1
        gone = pfn
        pfn = smallest_fit(m, zone, order, migratetype)
        if pfn == gone:
            m.st[at.CORRUPT_AT] = pfn + 1
            break
    return dropped


@inner
def drop_refuted_fallbacks(
    m: at.MachineArrays, j: Judged, zone: int, order: int, migratetype: int, actual: int
) -> int:
    """No kernel function: drop the guessed buddies that a fallback would have taken earlier.

    Returns how many. A claim looks at the largest first, a steal at the smallest: what the kernel
    passed over was not there.
    """
    dropped = 0
    _, pfn = chosen_fallback(m, zone, order, migratetype)
    while pfn >= 0 and pfn != actual and j.track[pfn]["mark"] == true.SINCE_START:
        drop_guess(m, j, zone, pfn)
        dropped += 1
        _, pfn = chosen_fallback(m, zone, order, migratetype)
    return dropped


@inner
def judge_removal(m: at.MachineArrays, j: Judged, number: int, pcp: int) -> None:
    """No kernel function: judge a removal from the buddy.

    Does the page leave the list and the free buddy that the rules name?
    """
    zone = int(j.steps[number]["zone"])
    pfn = int(j.steps[number]["pfn"])
    order = int(j.steps[number]["order"])
    migratetype = int(j.steps[number]["migratetype"])
    flags = int(j.steps[number]["flags"])
    wanted = NO_FALLBACK
    taken_type = migratetype
    if flags & rec.FALLBACK:
        wanted = CLAIM if flags & rec.OWNERSHIP else STEAL
        taken_type = int(j.steps[number]["found_type"])
    actual = true.containing_buddy(m, pfn, order)
    known = actual >= 0 and int(m.pages[actual]["tag"]) == taken_type
    if known:
        falls_back = wanted != NO_FALLBACK
        known = drop_refuted(m, j, zone, order, migratetype, actual, falls_back) == 0
        if falls_back and smallest_fit(m, zone, order, migratetype) < 0:
            dropped = drop_refuted_fallbacks(m, j, zone, order, migratetype, actual)
            known = known and dropped == 0
    kind = NO_FALLBACK
    expected = smallest_fit(m, zone, order, migratetype)
    if expected < 0 and migratetype < at.PCP_TYPES:
        kind, expected = chosen_fallback(m, zone, order, migratetype)
    guessed = expected >= 0 and j.track[expected]["mark"] == true.SINCE_START
    if kind != NO_FALLBACK and expected >= 0 and expected != actual:
        guessed = guessed or true.leaves_unseen(m, j, expected)
    notes = zone_notes_at(m, zone)
    following = m.st[notes + migratetype]
    m.st[notes + migratetype] = pfn + (1 << order)
    if not known or guessed:
        leave_unjudged(j, number, BUDDY_PFN)
        if wanted != NO_FALLBACK:
            leave_unjudged(j, number, FALLBACK)
        return
    if wanted == NO_FALLBACK or kind == wanted:
        hit = expected == (pfn if wanted == NO_FALLBACK else actual)
        null_hit = following == pfn
        judge(m, j, number, BUDDY_PFN, pcp, hit, null_hit, expected, pfn)
        if not hit and expected >= 0:
            j.track[expected]["mark"] = true.SINCE_START
    if wanted != NO_FALLBACK or kind != NO_FALLBACK:
        null_hit = m.st[notes + at.MIGRATETYPES] == wanted
        m.st[notes + at.MIGRATETYPES] = wanted
        hit = kind == wanted
        judge(m, j, number, FALLBACK, pcp, hit, null_hit, kind, wanted)


@inner
def remove(m: at.MachineArrays, j: Judged, number: int) -> None:
    """No kernel function: take a page from the buddy, for a list or an allocation at once."""
    zone = int(j.steps[number]["zone"])
    pfn = int(j.steps[number]["pfn"])
    order = int(j.steps[number]["order"])
    migratetype = int(j.steps[number]["migratetype"])
    flags = int(j.steps[number]["flags"])
    pcp = pcp_at(m, zone, int(j.steps[number]["cpu"]))
    notes = notes_at(m, pcp)
    index = -1
    if migratetype < at.PCP_TYPES and not flags & (rec.NESTED | rec.DIRECT):
        index = order_to_pindex(m, order, migratetype)
    if flags & rec.RUN_FIRST:
        listed = index >= 0
        if listed:
            listed = judge_refill(m, j, number, pcp, index)
        m.st[notes + true.NOTE_RUN_LISTED] = 1 if listed else 0
    judge_removal(m, j, number, pcp)
    if not flags & rec.FALLBACK or flags & rec.OWNERSHIP:
        true.learn_block_type(m, zone, pfn, migratetype)
    head = true.containing_buddy(m, pfn, order)
    if head >= 0:
        true.take_exactly(m, j, zone, head, pfn, order)
    else:
        count_repair(m, true.REPAIR_NOWHERE)
        true.vacate(m, j, zone, pfn, order)
    if index >= 0 and m.st[notes + true.NOTE_RUN_LISTED]:
        fate = int(j.steps[number]["fate"])
        true.put_on_list(m, j, list_at(pcp, index), pfn, order, fate, True)
        m.st[pcp + at.PCP_COUNT] += 1 << order
        null_add(m, j, pcp, index, pfn, True)
    else:
        m.pages[pfn]["where"] = at.ALLOCATED
        m.pages[pfn]["order"] = order
        null_forget(m, j, pfn)
