"""Judging which zone serves a request, and what that rests on: free pages, boosts, lists.

The walk is the model's own (S3.1), from the true state; it takes nothing.
"""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.buddy import smallest_fit
from pagealloc_model.allocator.choices import judging
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices.judged_pcp import judge_refill
from pagealloc_model.allocator.choices.judging import (
    BUDDY_PFN,
    FALLBACK,
    Judged,
    judge,
    leave_unjudged,
    tally_class,
)
from pagealloc_model.allocator.choices.true_state import (
    count_repair,
    list_at,
    notes_at,
    zone_notes_at,
)
from pagealloc_model.allocator.choices.tuning_words import null_add, null_forget
from pagealloc_model.allocator.fallback import choose_claim, choose_steal
from pagealloc_model.allocator.layout import node_zonelist, pcp_at, zone_at
from pagealloc_model.allocator.page_alloc import drops_nofragment, is_busy, is_on_another_node
from pagealloc_model.allocator.pcp import order_to_pindex
from pagealloc_model.allocator.watermark import (
    AllocContext,
    fast_path_flags,
    gfp_to_alloc_flags,
    pages_above_mark,
    prepare_alloc_pages,
    seen_free,
    wmark_pages,
    zone_watermark_fast,
)
from pagealloc_model.base.jit import inner

FAR = 1 << 40
"""More pages than any zone has."""


@inner
def follow_free(m: at.Arrays, zone: int, cpu: int, change: int) -> None:
    """No kernel function: let pages enter (or, negative, leave) a zone's buddy (S1.10)."""
    notes = zone_notes_at(m, zone)
    if not m.st[notes + true.ZONE_NOTE_FREE_KNOWN]:
        return
    m.st[notes + true.ZONE_NOTE_FREE] += change
    region = zone_at(zone)
    held = notes_at(m, pcp_at(m, zone, cpu)) + true.NOTE_FREE_HELD
    kept = m.st[held] + change
    if abs(kept) > m.st[region + at.ZONE_THRESHOLD]:
        kept = 0
    m.st[notes + true.ZONE_NOTE_FREE_HELD] += kept - m.st[held]
    m.st[held] = kept
    seen = m.st[notes + true.ZONE_NOTE_FREE] - m.st[notes + true.ZONE_NOTE_FREE_HELD]
    m.st[region + at.ZONE_FREE_UNFOLDED] = m.st[region + at.ZONE_FREE] - seen


@inner
def read_zone(m: at.Arrays, j: Judged, number: int) -> None:
    """No kernel function: let a snapshot tell a zone's free pages, boost and reserve."""
    zone = int(j.steps[number]["zone"])
    region = zone_at(zone)
    notes = zone_notes_at(m, zone)
    m.st[notes + true.ZONE_NOTE_FREE_KNOWN] = 1
    m.st[notes + true.ZONE_NOTE_FREE] = int(j.steps[number]["pages"])
    follow_free(m, zone, int(j.steps[number]["cpu"]), 0)
    m.st[region + at.ZONE_BOOST] = int(j.steps[number]["asked"])
    if int(j.steps[number]["objects"]) >= 0:
        m.st[region + at.ZONE_FREE_HIGHATOMIC] = int(j.steps[number]["objects"])


@inner
def moved_free_pages(m: at.Arrays, j: Judged, number: int) -> int:
    """No kernel function: return by how many pages a step changed its zone's free pages."""
    operation = int(j.steps[number]["operation"])
    size = 1 << int(j.steps[number]["order"])
    if operation == true.REMOVE:
        return -size
    if operation == true.DRAIN:
        return size
    if operation == true.ISOLATED:
        return -int(j.steps[number]["pages"])
    if operation == true.PUSH and int(m.pages[int(j.steps[number]["pfn"])]["where"]) != at.ON_PCP:
        return size
    return 0


@inner
def has_page(m: at.Arrays, ac: AllocContext, zone: int, flags: int) -> bool:
    """Part of rmqueue(): return whether a zone has a page for the request (S3.2, S6.2, S7.3)."""
    order, migratetype = ac.order, ac.migratetype
    index = order_to_pindex(m, order, migratetype)
    if index >= 0 and m.st[list_at(pcp_at(m, zone, ac.cpu), index) + at.HEAD] >= 0:
        return True
    if smallest_fit(m, zone, order, migratetype) >= 0:
        return True
    reserve_too = flags & (at.ALLOC_HIGHATOMIC | at.ALLOC_NON_BLOCK) != 0
    if reserve_too and smallest_fit(m, zone, order, at.HIGHATOMIC) >= 0:
        return True
    if flags & at.ALLOC_CMA and smallest_fit(m, zone, order, m.st[at.CMA]) >= 0:
        return True
    if choose_claim(m, zone, order, migratetype, flags) >= 0:
        return True
    return not flags & at.ALLOC_NOFRAGMENT and choose_steal(m, zone, order, migratetype) >= 0


@inner
def walked_to(m: at.Arrays, ac: AllocContext, flags: int) -> tuple[int, int]:
    """Part of get_page_from_freelist(): return where a walk ends, or -1, and the closest margin."""
    position = ac.zonelist
    margin = FAR
    skips_busy = m.st[at.SKIPS_BUSY_NODES] != 0
    skipped = False
    while True:
        zone = m.st[position]
        position += 1
        if zone < 0:
            if skipped:
                skips_busy = False
                skipped = False
            elif drops_nofragment(m, flags):
                flags &= ~at.ALLOC_NOFRAGMENT
            else:
                return -1, margin
            position = ac.zonelist
            continue
        if drops_nofragment(m, flags) and is_on_another_node(m, zone, m.st[ac.zonelist]):
            flags &= ~at.ALLOC_NOFRAGMENT
            position = ac.zonelist
            continue
        if skips_busy and is_busy(m, zone):
            skipped = True
            continue
        mark = flags & at.WMARK_MASK
        wanted = wmark_pages(m, zone, mark)
        left = pages_above_mark(
            m, zone, ac.order, wanted, ac.highest_type, flags, seen_free(m, zone)
        )
        margin = min(margin, abs(left))
        passes = zone_watermark_fast(m, zone, ac.order, mark, ac.highest_type, flags)
        if passes and has_page(m, ac, zone, flags):
            return zone, margin


@inner
def predicted_zone(m: at.Arrays, j: Judged, number: int) -> tuple[int, int]:
    """No kernel function: return the zone that the rules name, and the closest test's margin.

    A walk that ends without a zone is followed by that of the slow path, and that by one on all
    reserves: a served request for which marks leave no zone was allowed to pass them.
    """
    gfp = int(j.steps[number]["gfp"])
    cpu = int(j.steps[number]["cpu"])
    order = int(j.steps[number]["order"])
    highest = int(j.steps[number]["highest"])
    ac = prepare_alloc_pages(m, cpu, order, (gfp >> 3) & 3, highest, gfp & at.GFP_READ_BITS)
    flags = fast_path_flags(m, ac)
    zone, margin = walked_to(m, ac, flags)
    if zone >= 0:
        return zone, margin
    zone, closer = walked_to(m, ac, gfp_to_alloc_flags(m, ac, flags))
    return zone, min(margin, closer)


@inner
def class_slot(j: Judged, number: int, margin: int) -> int:
    """No kernel function: return the slot of a request's class and margin."""
    order = int(j.steps[number]["order"])
    gfp = int(j.steps[number]["gfp"])
    size = 0 if order == 0 else 1 if order <= 3 else 2
    atomic = 1 if gfp & at.GFP_HIGH and not gfp & at.GFP_DIRECT_RECLAIM else 0
    bucket = 0
    for limit in judging.MARGINS:
        if margin >= limit:
            bucket += 1
    slot = (size * at.PCP_TYPES + ((gfp >> 3) & 3)) * 2 + atomic
    return judging.TYPE_SLOTS + judging.TIME_BINS + slot * (len(judging.MARGINS) + 1) + bucket


@inner
def judge_zone(m: at.Arrays, j: Judged, number: int) -> None:
    """No kernel function: judge whether a request came from the zone that the rules name (S3.1)."""
    actual = int(j.steps[number]["zone"])
    highest = int(j.steps[number]["highest"])
    gfp = int(j.steps[number]["gfp"])
    cpu = int(j.steps[number]["cpu"])
    if not m.st[zone_notes_at(m, actual) + true.ZONE_NOTE_FREE_KNOWN]:
        leave_unjudged(j, number, judging.ZONE)
        return
    preferred = m.st[node_zonelist(m, cpu, highest, gfp & at.GFP_READ_BITS)]
    zone, margin = predicted_zone(m, j, number)
    pcp = pcp_at(m, actual, cpu)
    null_hit = preferred == actual
    hit = zone == actual
    judge(m, j, number, judging.ZONE, pcp, hit, null_hit, zone, actual)
    tally_class(j, class_slot(j, number, margin), hit, null_hit)


NO_FALLBACK, CLAIM, STEAL = 0, 1, 2
"""What a removal may be; a claim takes a whole block over or the free pages of one (S6.3)."""


@inner
def chosen_fallback(m: at.Arrays, zone: int, order: int, migratetype: int) -> tuple[int, int]:
    """No kernel function: return the kind of fallback the rule chooses and its buddy (S6.2)."""
    pfn = choose_claim(m, zone, order, migratetype, 0)
    if pfn >= 0:
        return CLAIM, pfn
    return STEAL, choose_steal(m, zone, order, migratetype)


@inner
def is_refuted(m: at.Arrays, j: Judged, expected: int, actual: int, falls_back: bool) -> bool:
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
def drop_guess(m: at.Arrays, j: Judged, zone: int, head: int) -> None:
    """No kernel function: drop a free buddy that was not there; pages in use are taken to move."""
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
    m: at.Arrays,
    j: Judged,
    zone: int,
    order: int,
    migratetype: int,
    actual: int,
    falls_back: bool,
) -> int:
    """No kernel function: drop the buddies passed over because they were gone; how many."""
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
    m: at.Arrays, j: Judged, zone: int, order: int, migratetype: int, actual: int
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
def judge_removal(m: at.Arrays, j: Judged, number: int, pcp: int) -> None:
    """No kernel function: judge a removal: is it of the list and buddy that the rules name?"""
    zone = int(j.steps[number]["zone"])
    pfn = int(j.steps[number]["pfn"])
    order = int(j.steps[number]["order"])
    migratetype = int(j.steps[number]["migratetype"])
    flags = int(j.steps[number]["flags"])
    wanted = NO_FALLBACK
    taken_type = migratetype
    if flags & true.FALLBACK:
        wanted = CLAIM if flags & true.OWNERSHIP else STEAL
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
def remove(m: at.Arrays, j: Judged, number: int) -> None:
    """No kernel function: take a page from the buddy, for a list or an allocation at once."""
    zone = int(j.steps[number]["zone"])
    pfn = int(j.steps[number]["pfn"])
    order = int(j.steps[number]["order"])
    migratetype = int(j.steps[number]["migratetype"])
    flags = int(j.steps[number]["flags"])
    pcp = pcp_at(m, zone, int(j.steps[number]["cpu"]))
    notes = notes_at(m, pcp)
    index = -1
    if migratetype < at.PCP_TYPES and not flags & (true.NESTED | true.DIRECT):
        index = order_to_pindex(m, order, migratetype)
    if flags & true.RUN_FIRST:
        listed = index >= 0
        if listed:
            listed = judge_refill(m, j, number, pcp, index)
        m.st[notes + true.NOTE_RUN_LISTED] = 1 if listed else 0
    judge_removal(m, j, number, pcp)
    if not flags & true.FALLBACK or flags & true.OWNERSHIP:
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
