"""Every choice of a recording judged alone: what the model would have done from the true state.

The loop applies recorded moves one after the other. Before a move that embodies a choice of the
kernel, the model's own functions say what they would choose; their choice changes nothing.
"""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.buddy import smallest_fit
from pagealloc_model.allocator.fallback import choose_claim, choose_steal
from pagealloc_model.allocator.layout import node_zonelist, pcp_at, zone_at
from pagealloc_model.allocator.page_alloc import drops_nofragment, is_busy, is_on_another_node
from pagealloc_model.allocator.page_free import split_allocation
from pagealloc_model.allocator.pcp import (
    drained_list,
    list_count,
    nr_pcp_alloc,
    order_to_pindex,
    overflow_of_free,
    pindex_to_order,
)
from pagealloc_model.allocator.watermark import (
    AllocContext,
    fast_path_flags,
    gfp_to_alloc_flags,
    pages_above_mark,
    prepare_alloc_pages,
    seen_free,
    start_kswapd,
    stop_kswapd,
    wmark_pages,
    zone_watermark_fast,
)
from pagealloc_model.base.jit import entry, inner
from pagealloc_model.diagnosis import true_state as true
from pagealloc_model.diagnosis import tuning_words as tuning
from pagealloc_model.diagnosis.true_state import (
    Judged,
    Step,
    count_repair,
    drop_hidden,
    list_at,
    notes_at,
    step_at,
    zone_notes_at,
)
from pagealloc_model.diagnosis.tuning_words import (
    is_settled,
    null_add,
    null_forget,
    null_list_at,
    null_pop,
    swap_bounds,
)

CHOICES = (
    *("zone", "pcp_pop", "refill_when", "refill_size", "buddy_pfn"),
    *("drain_when", "drain_size", "drain_page", "fallback"),
)
ZONE, PCP_POP, REFILL_WHEN, REFILL_SIZE, BUDDY_PFN = range(5)
DRAIN_WHEN, DRAIN_SIZE, DRAIN_PAGE, FALLBACK = range(5, 9)

JUDGED, HITS, BLOCK_HITS, NULL_HITS, UNJUDGED, OUTCOMES = range(6)
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

FAR = 1 << 40
"""More pages than any zone has."""
NO_FALLBACK, CLAIM, STEAL = 0, 1, 2
"""What a removal may be; a claim takes a whole block over or the free pages of one (S6.3)."""


@inner
def tally_outcome(j: Judged, number: int, choice: int, outcome: int) -> None:
    """Count one outcome of a choice by order, type, time and CPU."""
    order = int(j.steps[number]["order"])
    migratetype = max(int(j.steps[number]["migratetype"]), 0)
    j.tally[choice, order * at.MIGRATETYPES + migratetype, outcome] += 1
    j.tally[choice, TYPE_SLOTS + int(j.steps[number]["time_bin"]), outcome] += 1
    j.tally[choice, OTHER_SLOTS + int(j.steps[number]["cpu"]), outcome] += 1


@inner
def leave_unjudged(j: Judged, s: Step, choice: int) -> None:
    """Count a choice that the true state before it does not settle."""
    tally_outcome(j, s.number, choice, UNJUDGED)


@inner
def judge(
    m: at.Arrays,
    j: Judged,
    s: Step,
    choice: int,
    pcp: int,
    hit: bool,
    null_hit: bool,
    predicted: int,
    actual: int,
) -> None:
    """Count a judged choice, with the state of the first misses of each."""
    tally_outcome(j, s.number, choice, JUDGED)
    if null_hit:
        tally_outcome(j, s.number, choice, NULL_HITS)
    block_order = m.st[at.PAGEBLOCK_ORDER]
    if hit or predicted >> block_order == actual >> block_order:
        tally_outcome(j, s.number, choice, BLOCK_HITS)
    if hit:
        tally_outcome(j, s.number, choice, HITS)
        return
    row = j.misses[choice, MISSES_KEPT, 0]
    j.misses[choice, MISSES_KEPT, 0] = row + 1
    if row >= MISSES_KEPT:
        return
    region = zone_at(s.zone)
    j.misses[choice, row, MISS_STEP] = s.number
    j.misses[choice, row, MISS_PREDICTED] = predicted
    j.misses[choice, row, MISS_ACTUAL] = actual
    j.misses[choice, row, MISS_WORDS] = m.st[pcp + at.PCP_COUNT]
    j.misses[choice, row, MISS_WORDS + 1] = m.st[pcp + at.PCP_HIGH]
    j.misses[choice, row, MISS_WORDS + 2] = m.st[pcp + at.PCP_ALLOC_FACTOR]
    j.misses[choice, row, MISS_WORDS + 3] = m.st[pcp + at.PCP_FREE_COUNT]
    j.misses[choice, row, MISS_BELOW_HIGH] = m.st[region + at.ZONE_BELOW_HIGH]
    j.misses[choice, row, MISS_RECLAIM] = m.st[region + at.ZONE_RECLAIM_ACTIVE]


# What a free does to a pageset: whether it overflows, and which pages it returns.


@inner
def fit_bound(
    m: at.Arrays, pcp: int, s: Step, high: int, predicted: int, actual: int, flushes: bool
) -> None:
    """Make one bound allow whether a free drained, if it said otherwise."""
    if (predicted > 0) == (actual > 0):
        return
    if flushes and max(predicted, actual) >= m.st[pcp + at.PCP_COUNT]:
        tuning.fit_flush(m, pcp, high, actual)
    else:
        tuning.fit_overflow(m, pcp, s.zone, high, actual)


@inner
def is_cut_short(m: at.Arrays, pcp: int, predicted: int, actual: int) -> bool:
    """Return whether a drain may have stopped between chunks (S4.7)."""
    batch = m.st[pcp + at.PCP_BATCH]
    return m.st[at.POLICY_PCP_FREE_BATCHED] != 0 and batch <= actual and actual < predicted


@inner
def chunked_drain(m: at.Arrays, pcp: int, index: int, wanted: int) -> int:
    """Return how many pages a drain in chunks of `batch` frees (S4.7)."""
    lists = list_count(m)
    drained = 0
    got = 0
    for step in range(lists):
        each = (index + step) % lists
        size = 1 << pindex_to_order(m, each)
        for _ in range(m.st[list_at(pcp, each) + at.ENTRIES]):
            drained += size
            got += size
            if got >= min(m.st[pcp + at.PCP_BATCH], wanted):
                wanted -= m.st[pcp + at.PCP_BATCH]
                got = 0
            if wanted <= 0:
                return drained
    return drained


@inner
def is_of_size(m: at.Arrays, s: Step, pcp: int, index: int, predicted: int) -> bool:
    """Return whether a run of drains has, but for its last page, this size."""
    if m.st[at.POLICY_PCP_FREE_BATCHED]:
        return s.pages == chunked_drain(m, pcp, index, predicted)
    return s.pages - (1 << max(s.found_order, 0)) < predicted and predicted <= s.pages


@inner
def judge_overflow(m: at.Arrays, j: Judged, s: Step, pcp: int, index: int) -> None:
    """Judge whether a free overflows its pageset, and by how much (S4.6).

    No overflow empties a pageset but a flush: pages drained down to the last one after a free of
    another order were drained for another reason (S4.9).
    """
    actual = s.pages
    notes = notes_at(m, pcp)
    high = m.st[pcp + at.PCP_HIGH]
    upper_high = m.st[notes + true.NOTE_HIGH]
    before = m.st[pcp + at.PCP_COUNT]
    early = min(overflow_of_free(m, pcp, s.zone, s.order), m.st[pcp + at.PCP_COUNT])
    after = m.st[pcp + at.PCP_COUNT]
    m.st[pcp + at.PCP_COUNT] = before
    swap_bounds(m, pcp, s.zone)
    late = min(overflow_of_free(m, pcp, s.zone, s.order), m.st[pcp + at.PCP_COUNT])
    swap_bounds(m, pcp, s.zone)
    m.st[pcp + at.PCP_COUNT] = after
    if s.flags & true.UNSEEN:
        return
    flushes = s.order > 0 and s.order <= m.st[at.POLICY_COSTLY_ORDER]
    if actual >= after - m.st[notes + true.NOTE_REMAINDER] and not flushes:
        actual = 0
    alike = (early > 0) == (late > 0)
    hit = (early > 0) == (actual > 0)
    settled = is_settled(m, pcp)
    if alike and settled:
        judge(m, j, s, DRAIN_WHEN, pcp, hit, actual == 0, early, actual)
        if not hit:
            count_repair(m, true.REPAIR_TUNING)
    else:
        leave_unjudged(j, s, DRAIN_WHEN)
    if actual > 0:
        whole = alike and hit and early == late and not is_cut_short(m, pcp, early, s.pages)
        fits = whole and is_of_size(m, s, pcp, index, early)
        if whole and settled:
            null_hit = s.pages == m.st[pcp + at.PCP_BATCH]
            judge(m, j, s, DRAIN_SIZE, pcp, fits, null_hit, early, s.pages)
        else:
            leave_unjudged(j, s, DRAIN_SIZE)
        if whole and not fits and actual > m.st[pcp + at.PCP_BATCH]:
            m.st[pcp + at.PCP_FREE_COUNT] = actual
    fit_bound(m, pcp, s, high, early, actual, flushes)
    swap_bounds(m, pcp, s.zone)
    fit_bound(m, pcp, s, upper_high, late, actual, flushes)
    swap_bounds(m, pcp, s.zone)
    if alike and not hit and not flushes:
        # Neither bound allowed it.
        if actual > 0:
            m.st[pcp + at.PCP_HIGH] = m.st[pcp + at.PCP_HIGH_MIN]
        else:
            m.st[notes + true.NOTE_HIGH] = m.st[pcp + at.PCP_HIGH_MAX]


@inner
def push(m: at.Arrays, j: Judged, s: Step) -> None:
    """Put a freed page on a per-CPU list or in the buddy, and judge it."""
    pfn = s.pfn
    where = int(m.pages[pfn]["where"])
    if where == at.ON_PCP and int(m.pages[pfn]["order"]) == s.order:
        count_repair(m, true.REPAIR_HIDDEN)
        true.leave_list(m, j, pfn)
    elif where != at.ALLOCATED or int(m.pages[pfn]["order"]) != s.order:
        split_allocation(m, pfn, s.order)
        if int(m.pages[pfn]["where"]) != at.ALLOCATED:
            true.vacate(m, j, s.zone, pfn, s.order)
    migratetype = int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["migratetype"])
    listed = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    index = order_to_pindex(m, s.order, listed)
    j.steps[s.number]["migratetype"] = listed
    direct = s.fate == true.REMOVE or s.flags & (true.NESTED | true.DIRECT) != 0
    if index < 0 or direct or migratetype == m.st[at.ISOLATE]:
        null_forget(m, j, pfn)
        true.return_directly(m, j, s.zone, pfn, s.order)
        true.note_fate(j, s)
        return
    pcp = pcp_at(m, s.zone, s.cpu)
    notes = notes_at(m, pcp)
    lst = list_at(pcp, index)
    true.put_on_list(m, j, lst, pfn, s.order, s.fate, False)
    if s.flags & true.UNSEEN:
        j.track[pfn]["mark"] = -lst
    if s.flags & true.UNSEEN or s.fate == true.PUSH:
        # It came, or will go, when no event tells.
        j.track[pfn]["unsure"] = 1
        m.st[notes + true.NOTE_UNSURE] += 1
    null_index = order_to_pindex(m, s.order, int(j.track[pfn]["null_type"]))
    null_add(m, j, pcp, null_index, pfn, False)
    judge_overflow(m, j, s, pcp, index)
    m.st[notes + true.NOTE_DRAIN_INDEX] = index
    m.st[notes + true.NOTE_DRAIN_FROM] = pcp


@inner
def expected_drain(m: at.Arrays, pcp: int, index: int) -> int:
    """Return the page a drain takes next, or -1 if no list has one."""
    for each in range(list_count(m)):
        if m.st[list_at(pcp, each) + at.TAIL] >= 0:
            return m.st[list_at(pcp, drained_list(m, pcp, index)) + at.TAIL]
    return -1


@inner
def drain_one(m: at.Arrays, j: Judged, s: Step) -> None:
    """Move a page to the buddy, from any CPU's list if all drain (S4.9)."""
    pcp = pcp_at(m, s.zone, s.cpu)
    notes = notes_at(m, pcp)
    if s.flags & true.RUN_FIRST and not s.flags & true.AFTER_PUSH:
        # A run that no free of the task caused: a kworker's is a tick's (S4.8).
        m.st[notes + true.NOTE_DRAIN_INDEX] = 0
        m.st[notes + true.NOTE_DRAIN_FROM] = pcp
        if s.flags & true.KWORKER:
            predicted, late = tuning.tick_seen(m, pcp, s.zone)
            if predicted == late and is_settled(m, pcp):
                null_hit = s.pages == m.st[pcp + at.PCP_BATCH]
                hit = predicted == s.pages
                judge(m, j, s, DRAIN_SIZE, pcp, hit, null_hit, predicted, s.pages)
            else:
                leave_unjudged(j, s, DRAIN_SIZE)
    listed = true.is_listed(m, s.pfn, s.order)
    if listed:
        pcp = true.pageset_of_list(m, abs(int(j.track[s.pfn]["mark"])))
    if pcp != m.st[notes + true.NOTE_DRAIN_FROM]:
        m.st[notes + true.NOTE_DRAIN_FROM] = pcp
        m.st[notes + true.NOTE_DRAIN_INDEX] = 0
    # Judge which page leaves a list for the buddy (S5.6).
    index = m.st[notes + true.NOTE_DRAIN_INDEX]
    dropped = 0
    expected = expected_drain(m, pcp, index)
    if expected >= 0 and expected != s.pfn:
        tail = abs(int(j.track[expected]["mark"])) + at.TAIL
        dropped = drop_hidden(m, j, tail, s.pfn)
        expected = expected_drain(m, pcp, index)
    known = expected >= 0 and j.track[expected]["mark"] > 0 and dropped == 0
    if not known or not true.is_listed(m, s.pfn, s.order):
        leave_unjudged(j, s, DRAIN_PAGE)
    else:
        null_index = order_to_pindex(m, s.order, min(s.migratetype, at.MOVABLE))
        null_hit = m.st[null_list_at(m, pcp, null_index) + at.TAIL] == s.pfn
        judge(m, j, s, DRAIN_PAGE, pcp, expected == s.pfn, null_hit, expected, s.pfn)
        if expected != s.pfn:
            true.pass_over(m, j, expected)
    if listed:
        lst = abs(int(j.track[s.pfn]["mark"]))
        m.st[notes + true.NOTE_DRAIN_INDEX] = (lst - list_at(pcp, 0)) // at.LIST_WORDS
        true.leave_list(m, j, s.pfn)
    else:
        count_repair(m, true.REPAIR_NOWHERE)
        true.vacate(m, j, s.zone, s.pfn, s.order)
    null_forget(m, j, s.pfn)
    true.learn_block_type(m, s.zone, s.pfn, s.migratetype)
    true.return_exactly(m, j, s.zone, s.pfn, s.order, s.migratetype)
    true.note_fate(j, s)
    if s.objects == 1:
        tuning.leave_low_memory(m, s.zone)


@inner
def pop(m: at.Arrays, j: Judged, s: Step) -> None:
    """Take an allocated page, listed or just removed, out and judge it."""
    pfn = s.pfn
    pcp = pcp_at(m, s.zone, s.cpu)
    index = order_to_pindex(m, s.order, s.migratetype)
    j.track[pfn]["null_type"] = s.migratetype
    if int(m.pages[pfn]["where"]) != at.ALLOCATED:
        if index >= 0 and not s.flags & true.NESTED:
            # Judge an allocation: was its page the head, was no refill due?
            notes = notes_at(m, pcp)
            lst = list_at(pcp, index)
            dropped = drop_hidden(m, j, lst + at.HEAD, s.pfn)
            head = m.st[lst + at.HEAD]
            known = head >= 0 and j.track[head]["mark"] > 0 and dropped == 0
            null_hit = null_pop(m, j, pcp, index, s.pfn)
            if m.st[notes + true.NOTE_REFILLED] != s.pfn + 1:
                if known or (head < 0 and dropped == 0):
                    hit = head >= 0
                    judge(m, j, s, REFILL_WHEN, pcp, hit, True, 0 if hit else 1, 0)
                else:
                    leave_unjudged(j, s, REFILL_WHEN)
            m.st[notes + true.NOTE_REFILLED] = 0
            if known:
                judge(m, j, s, PCP_POP, pcp, head == s.pfn, null_hit, head, s.pfn)
                if head != s.pfn:
                    true.pass_over(m, j, head)
            else:
                leave_unjudged(j, s, PCP_POP)
            m.st[pcp + at.PCP_FREE_COUNT] >>= 1
            m.st[notes + true.NOTE_FREE_COUNT] >>= 1
        if true.is_listed(m, pfn, s.order):
            on = abs(int(j.track[pfn]["mark"]))
            if true.pageset_of_list(m, on) != pcp:
                count_repair(m, true.REPAIR_OTHER_CPU)
            elif on != list_at(pcp, index):
                count_repair(m, true.REPAIR_OTHER_LIST)
            true.leave_list(m, j, pfn)
        else:
            count_repair(m, true.REPAIR_NOWHERE)
            true.vacate(m, j, s.zone, pfn, s.order)
    elif int(m.pages[pfn]["order"]) != s.order:
        # In use already, as something smaller: frees were missed, and other parts may be listed.
        true.vacate(m, j, s.zone, pfn, s.order)
    m.pages[pfn]["where"] = at.ALLOCATED
    m.pages[pfn]["order"] = s.order
    m.pages[pfn]["tag"] = 1 if s.migratetype == at.MOVABLE else 0


# Which zone serves a request, and what that rests on: free pages, boosts, lists. The walk is the
# model's own (S3.1), from the true state; it takes nothing.


@inner
def follow_free(m: at.Arrays, zone: int, cpu: int, change: int) -> None:
    """Let pages enter (or, negative, leave) a zone's buddy (S1.10)."""
    notes = zone_notes_at(m, zone)
    if not m.st[notes + true.ZONE_NOTE_FREE_KNOWN]:
        return
    m.st[notes + true.ZONE_NOTE_FREE] += change
    region = zone_at(zone)
    held = notes_at(m, pcp_at(m, zone, cpu)) + true.NOTE_FREE_HELD
    left = m.st[held] + change
    if abs(left) > m.st[region + at.ZONE_THRESHOLD]:
        left = 0
    m.st[notes + true.ZONE_NOTE_FREE_HELD] += left - m.st[held]
    m.st[held] = left
    seen = m.st[notes + true.ZONE_NOTE_FREE] - m.st[notes + true.ZONE_NOTE_FREE_HELD]
    m.st[region + at.ZONE_FREE_UNFOLDED] = m.st[region + at.ZONE_FREE] - seen


@inner
def moved_free_pages(m: at.Arrays, s: Step) -> int:
    """Return by how many pages a step changed its zone's free pages."""
    if s.operation == true.REMOVE:
        return -(1 << s.order)
    if s.operation == true.DRAIN:
        return 1 << s.order
    if s.operation == true.ISOLATED:
        return -s.pages
    if s.operation == true.PUSH and int(m.pages[s.pfn]["where"]) != at.ON_PCP:
        return 1 << s.order
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
def judge_zone(m: at.Arrays, j: Judged, s: Step) -> None:
    """Judge whether a request came from the zone that the rules name (S3.1)."""
    if not m.st[zone_notes_at(m, s.zone) + true.ZONE_NOTE_FREE_KNOWN]:
        leave_unjudged(j, s, ZONE)
        return
    migratetype, bits = (s.gfp >> 3) & 3, s.gfp & at.GFP_READ_BITS
    preferred = m.st[node_zonelist(m, s.cpu, s.highest, bits)]
    ac = prepare_alloc_pages(m, s.cpu, s.order, migratetype, s.highest, bits)
    flags = fast_path_flags(m, ac)
    zone, margin = walked_to(m, ac, flags)
    if zone < 0:
        zone, closer = walked_to(m, ac, gfp_to_alloc_flags(m, ac, flags))
        margin = min(margin, closer)
    hit, null_hit = zone == s.zone, preferred == s.zone
    judge(m, j, s, ZONE, pcp_at(m, s.zone, s.cpu), hit, null_hit, zone, s.zone)
    size = 0 if s.order == 0 else 1 if s.order <= 3 else 2
    atomic = 1 if s.gfp & at.GFP_HIGH and not s.gfp & at.GFP_DIRECT_RECLAIM else 0
    slot = ((size * at.PCP_TYPES + migratetype) * 2 + atomic) * (len(MARGINS) + 1)
    for limit in MARGINS:
        slot += margin >= limit
    slot += TYPE_SLOTS + TIME_BINS
    j.tally[ZONE, slot, JUDGED] += 1
    j.tally[ZONE, slot, HITS] += hit
    j.tally[ZONE, slot, NULL_HITS] += null_hit


@inner
def chosen_fallback(m: at.Arrays, zone: int, order: int, migratetype: int) -> tuple[int, int]:
    """Return the kind of fallback the rule chooses and its buddy (S6.2)."""
    pfn = choose_claim(m, zone, order, migratetype, 0)
    if pfn >= 0:
        return CLAIM, pfn
    return STEAL, choose_steal(m, zone, order, migratetype)


@inner
def is_refuted(m: at.Arrays, j: Judged, expected: int, actual: int, falls_back: bool) -> bool:
    """Return whether a buddy passed over may have been gone already."""
    if expected < 0 or expected == actual:
        return False
    if j.track[expected]["mark"] == true.SINCE_START:
        return falls_back or int(m.pages[expected]["order"]) < int(m.pages[actual]["order"])
    return true.leaves_unseen(m, j, expected)


@inner
def drop_guess(m: at.Arrays, j: Judged, zone: int, head: int) -> None:
    """Drop a free buddy that was not there; pages in use are taken to move."""
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
def drop_refuted(m: at.Arrays, j: Judged, s: Step, actual: int, falls_back: bool) -> int:
    """Drop the buddies passed over because they were gone; how many."""
    dropped = 0
    pfn = smallest_fit(m, s.zone, s.order, s.migratetype)
    while is_refuted(m, j, pfn, actual, falls_back):
        drop_guess(m, j, s.zone, pfn)
        dropped += 1
        gone = pfn
        pfn = smallest_fit(m, s.zone, s.order, s.migratetype)
        if pfn == gone:
            m.st[at.CORRUPT_AT] = pfn + 1
            break
    if falls_back and pfn < 0:
        _, pfn = chosen_fallback(m, s.zone, s.order, s.migratetype)
        while pfn >= 0 and pfn != actual and j.track[pfn]["mark"] == true.SINCE_START:
            drop_guess(m, j, s.zone, pfn)
            dropped += 1
            _, pfn = chosen_fallback(m, s.zone, s.order, s.migratetype)
    return dropped


@inner
def judge_removal(m: at.Arrays, j: Judged, s: Step, pcp: int) -> None:
    """Judge a removal: is it of the list and buddy that the rules name?"""
    wanted = NO_FALLBACK
    taken_type = s.migratetype
    if s.flags & true.FALLBACK:
        wanted = CLAIM if s.flags & true.OWNERSHIP else STEAL
        taken_type = s.found_type
    actual = true.containing_buddy(m, s.pfn, s.order)
    known = actual >= 0 and int(m.pages[actual]["tag"]) == taken_type
    if known:
        known = drop_refuted(m, j, s, actual, wanted != NO_FALLBACK) == 0
    kind = NO_FALLBACK
    expected = smallest_fit(m, s.zone, s.order, s.migratetype)
    if expected < 0 and s.migratetype < at.PCP_TYPES:
        kind, expected = chosen_fallback(m, s.zone, s.order, s.migratetype)
    guessed = expected >= 0 and j.track[expected]["mark"] == true.SINCE_START
    if kind != NO_FALLBACK and expected >= 0 and expected != actual:
        guessed = guessed or true.leaves_unseen(m, j, expected)
    notes = zone_notes_at(m, s.zone)
    following = m.st[notes + s.migratetype]
    m.st[notes + s.migratetype] = s.pfn + (1 << s.order)
    if not known or guessed:
        leave_unjudged(j, s, BUDDY_PFN)
        if wanted != NO_FALLBACK:
            leave_unjudged(j, s, FALLBACK)
        return
    if wanted == NO_FALLBACK or kind == wanted:
        hit = expected == (s.pfn if wanted == NO_FALLBACK else actual)
        judge(m, j, s, BUDDY_PFN, pcp, hit, following == s.pfn, expected, s.pfn)
        if not hit and expected >= 0:
            j.track[expected]["mark"] = true.SINCE_START
    if wanted != NO_FALLBACK or kind != NO_FALLBACK:
        null_hit = m.st[notes + at.MIGRATETYPES] == wanted
        m.st[notes + at.MIGRATETYPES] = wanted
        judge(m, j, s, FALLBACK, pcp, kind == wanted, null_hit, kind, wanted)


@inner
def remove(m: at.Arrays, j: Judged, s: Step) -> None:
    """Take a page from the buddy, for a list or an allocation at once."""
    pcp = pcp_at(m, s.zone, s.cpu)
    notes = notes_at(m, pcp)
    index = -1
    if s.migratetype < at.PCP_TYPES and not s.flags & (true.NESTED | true.DIRECT):
        index = order_to_pindex(m, s.order, s.migratetype)
    if s.flags & true.RUN_FIRST:
        listed = index >= 0
        if listed:
            # Judge a run's first removal from the buddy as a refill.
            lst = list_at(pcp, index)
            is_used = s.flags & true.USED_AT_ONCE != 0
            dropped = drop_hidden(m, j, lst + at.HEAD, s.pfn)
            head = m.st[lst + at.HEAD]
            known = is_used and dropped == 0 and (head < 0 or j.track[head]["mark"] > 0)
            if known:
                hit = head < 0
                judge(m, j, s, REFILL_WHEN, pcp, hit, False, 1 if hit else 0, s.objects)
            else:
                leave_unjudged(j, s, REFILL_WHEN)
            if head >= 0 and s.objects == 1 and is_used:
                listed = False
            else:
                # Judge how many objects a kprobe says, or those got, refill (S4.4).
                actual = s.asked if s.asked != 0 else s.objects
                predicted = nr_pcp_alloc(m, pcp, s.zone, s.order)
                swap_bounds(m, pcp, s.zone)
                late = nr_pcp_alloc(m, pcp, s.zone, s.order)
                swap_bounds(m, pcp, s.zone)
                if known and is_settled(m, pcp) and predicted == late:
                    batch, factor = m.st[pcp + at.PCP_BATCH], 0
                    hit = predicted == actual
                    judge(
                        m,
                        j,
                        s,
                        REFILL_SIZE,
                        pcp,
                        hit,
                        actual == max(batch >> s.order, 1),
                        predicted,
                        actual,
                    )
                    if not hit and s.order == 0:
                        # alloc_factor, and what high grew by, are fitted to the refill.
                        count_repair(m, true.REPAIR_TUNING)
                        scale = m.st[at.POLICY_PCP_BATCH_SCALE_MAX]
                        while batch << factor < actual and factor < scale:
                            factor += 1
                        if batch << factor == actual:
                            m.st[pcp + at.PCP_HIGH] += actual - predicted
                            m.st[pcp + at.PCP_ALLOC_FACTOR] = min(factor + 1, scale)
                        tuning.join_bounds(m, pcp, s.zone)
                else:
                    leave_unjudged(j, s, REFILL_SIZE)
                    if predicted != late and predicted == actual:
                        tuning.join_bounds(m, pcp, s.zone)
                    elif predicted != late and late == actual:
                        swap_bounds(m, pcp, s.zone)
                        tuning.join_bounds(m, pcp, s.zone)
                        swap_bounds(m, pcp, s.zone)
                        tuning.join_bounds(m, pcp, s.zone)
                if is_used:
                    m.st[notes_at(m, pcp) + true.NOTE_REFILLED] = s.pfn + 1
                listed = True
        m.st[notes + true.NOTE_RUN_LISTED] = 1 if listed else 0
    judge_removal(m, j, s, pcp)
    if not s.flags & true.FALLBACK or s.flags & true.OWNERSHIP:
        true.learn_block_type(m, s.zone, s.pfn, s.migratetype)
    head = true.containing_buddy(m, s.pfn, s.order)
    if head >= 0:
        true.take_exactly(m, j, s.zone, head, s.pfn, s.order)
    else:
        count_repair(m, true.REPAIR_NOWHERE)
        true.vacate(m, j, s.zone, s.pfn, s.order)
    if index >= 0 and m.st[notes + true.NOTE_RUN_LISTED]:
        true.put_on_list(m, j, list_at(pcp, index), s.pfn, s.order, s.fate, True)
        m.st[pcp + at.PCP_COUNT] += 1 << s.order
        null_add(m, j, pcp, index, s.pfn, True)
    else:
        m.pages[s.pfn]["where"] = at.ALLOCATED
        m.pages[s.pfn]["order"] = s.order
        null_forget(m, j, s.pfn)


@inner
def asks_zones(m: at.Arrays, s: Step) -> bool:
    """Return whether a request walks zones before this step."""
    if s.operation == true.REMOVE:
        return s.flags & true.RUN_FIRST != 0 and s.flags & true.USED_AT_ONCE != 0
    if s.operation == true.POP:
        return int(m.pages[s.pfn]["where"]) != at.ALLOCATED
    return s.operation == true.FAILED


@entry
def resync(m: at.Arrays, j: Judged, low: int, high: int) -> int:
    """Apply `steps[low:high]`, judging each choice.

    Args:
        m: the machine; behind its words are the notes and repair counts of `true_state`.
        j: what is judged; written.
        low: first step.
        high: one past the last step.

    Returns:
        `high`, or the step at which a list was found corrupt: `st[CORRUPT_AT]` says where.
    """
    for number in range(low, high):
        s = step_at(j, number)
        m.st[at.EVENT_CPU] = s.cpu
        if asks_zones(m, s):
            if s.operation != true.FAILED:
                judge_zone(m, j, s)
            # A request's zones up to the one that served it.
            lowest = max(s.zone, 0)
            first = lowest // m.st[at.ZONE_TYPES] * m.st[at.ZONE_TYPES]
            for zone in range(first + s.highest, lowest - 1, -1):
                if m.st[zone_at(zone) + at.ZONE_MANAGED]:
                    tuning.visit(m, zone, s.order, s.highest)
        if s.operation == true.POP:
            pop(m, j, s)
        elif s.operation == true.PUSH:
            push(m, j, s)
        elif s.operation == true.REMOVE:
            remove(m, j, s)
        elif s.operation == true.DRAIN:
            drain_one(m, j, s)
        elif s.operation >= true.SNAPSHOT and s.operation <= true.FREE_READ:
            # Take up the begin or end of a snapshot of a pageset or of free pages.
            region = zone_at(s.zone)
            notes = zone_notes_at(m, s.zone)
            pcp = pcp_at(m, s.zone, s.cpu)
            if s.operation == true.SNAPSHOT:
                tuning.begin_snapshot(m, pcp)
            elif s.operation == true.SNAPSHOT_END:
                tuning.end_snapshot(m, pcp, s.objects, s.pages)
            else:
                m.st[notes + true.ZONE_NOTE_FREE_KNOWN] = 1
                m.st[notes + true.ZONE_NOTE_FREE] = s.pages
                follow_free(m, s.zone, s.cpu, 0)
                m.st[region + at.ZONE_BOOST] = s.asked
                if s.objects >= 0:
                    m.st[region + at.ZONE_FREE_HIGHATOMIC] = s.objects
        elif s.operation == true.TICK_OPENS or s.operation == true.TICK_OVER:
            # Note that a CPU's vmstat tick may come, or has come (S4.8).
            for zone in range(m.st[at.NR_ZONES]):
                if m.st[zone_at(zone) + at.ZONE_MANAGED] == 0:
                    continue
                if s.operation == true.TICK_OPENS:
                    tuning.tick_opens(m, pcp_at(m, zone, s.cpu))
                else:
                    tuning.tick_is_over(m, pcp_at(m, zone, s.cpu), zone)
        elif s.operation == true.RECLAIM_STARTS or s.operation == true.RECLAIM_STOPS:
            # Note when kswapd runs, at both bounds, as events tell (S10.2).
            stop_kswapd(m, s.objects)
            if s.operation == true.RECLAIM_STARTS:
                start_kswapd(m, s.objects, s.zone)
            for zone in range(m.st[at.NR_ZONES]):
                active = m.st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE]
                m.st[zone_notes_at(m, zone) + true.ZONE_NOTE_RECLAIM_ACTIVE] = active
        moves = s.operation >= true.POP and s.operation <= true.DRAIN
        if moves or s.operation == true.ISOLATED:
            follow_free(m, s.zone, s.cpu, moved_free_pages(m, s))
        if moves:
            tuning.follow_snapshot(m, pcp_at(m, s.zone, s.cpu))
        if m.st[at.CORRUPT_AT]:
            return number
    return high
