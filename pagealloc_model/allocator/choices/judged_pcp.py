"""Judging what a free does to a pageset: whether it overflows, and which pages it returns.

Each function first asks the model's own rule what it would do from the true state, then moves the
page as recorded.
"""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices import tuning_words as tuning
from pagealloc_model.allocator.choices.judging import (
    DRAIN_PAGE,
    DRAIN_SIZE,
    DRAIN_WHEN,
    PCP_POP,
    REFILL_SIZE,
    REFILL_WHEN,
    Judged,
    judge,
    leave_unjudged,
)
from pagealloc_model.allocator.choices.true_state import (
    count_repair,
    drop_hidden,
    list_at,
    notes_at,
)
from pagealloc_model.allocator.choices.tuning_words import (
    null_add,
    null_forget,
    null_list_at,
    null_pop,
)
from pagealloc_model.allocator.layout import pcp_at
from pagealloc_model.allocator.page_free import split_allocation
from pagealloc_model.allocator.pcp import (
    drained_list,
    list_count,
    nr_pcp_alloc,
    order_to_pindex,
    overflow_of_free,
    pindex_to_order,
)
from pagealloc_model.base.jit import inner


@inner
def overflows(m: at.Arrays, pcp: int, zone: int, order: int) -> tuple[int, int]:
    """No kernel function: return the pages that a free, itself counted, returns in both worlds."""
    before = m.st[pcp + at.PCP_COUNT]
    early = min(overflow_of_free(m, pcp, zone, order), m.st[pcp + at.PCP_COUNT])
    after = m.st[pcp + at.PCP_COUNT]
    m.st[pcp + at.PCP_COUNT] = before
    tuning.swap_worlds(m, pcp, zone)
    late = min(overflow_of_free(m, pcp, zone, order), m.st[pcp + at.PCP_COUNT])
    tuning.swap_worlds(m, pcp, zone)
    m.st[pcp + at.PCP_COUNT] = after
    return early, late


@inner
def fit_world(
    m: at.Arrays, pcp: int, zone: int, order: int, high: int, predicted: int, actual: int
) -> None:
    """No kernel function: make one world allow whether a free drained, if it said otherwise."""
    if (predicted > 0) == (actual > 0):
        return
    empties = max(predicted, actual) >= m.st[pcp + at.PCP_COUNT]
    if order > 0 and order <= m.st[at.POLICY_COSTLY_ORDER] and empties:
        tuning.fit_flush(m, pcp, high, actual)
    else:
        tuning.fit_overflow(m, pcp, zone, high, actual)


@inner
def is_cut_short(m: at.Arrays, pcp: int, predicted: int, actual: int) -> bool:
    """No kernel function: return whether a drain may have stopped between chunks (S4.7)."""
    batch = m.st[pcp + at.PCP_BATCH]
    return m.st[at.POLICY_PCP_FREE_BATCHED] != 0 and batch <= actual and actual < predicted


@inner
def chunked_drain(m: at.Arrays, pcp: int, index: int, wanted: int) -> int:
    """No kernel function: return how many pages a drain in chunks of `batch` frees (S4.7)."""
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
def is_of_size(m: at.Arrays, j: Judged, pcp: int, number: int, index: int, predicted: int) -> bool:
    """No kernel function: return whether a run of drains has, but for its last page, this size."""
    actual = int(j.steps[number]["pages"])
    if m.st[at.POLICY_PCP_FREE_BATCHED]:
        return actual == chunked_drain(m, pcp, index, predicted)
    last = 1 << max(int(j.steps[number]["found_order"]), 0)
    return actual - last < predicted and predicted <= actual


@inner
def judge_drain_size(
    m: at.Arrays, j: Judged, number: int, pcp: int, index: int, early: int, late: int
) -> None:
    """No kernel function: judge how many pages a free drains (S4.6)."""
    actual = int(j.steps[number]["pages"])
    settled = tuning.is_settled(m, pcp) and early == late
    if not settled or is_cut_short(m, pcp, early, actual):
        leave_unjudged(j, number, DRAIN_SIZE)
        return
    hit = is_of_size(m, j, pcp, number, index, early)
    null_hit = actual == m.st[pcp + at.PCP_BATCH]
    judge(m, j, number, DRAIN_SIZE, pcp, hit, null_hit, early, actual)


@inner
def judge_overflow(m: at.Arrays, j: Judged, number: int, pcp: int, index: int) -> None:
    """No kernel function: judge whether a free overflows its pageset, and by how much (S4.6).

    No overflow empties a pageset but a flush: pages drained down to the last one after a free of
    another order were drained for another reason (S4.9).
    """
    zone = int(j.steps[number]["zone"])
    order = int(j.steps[number]["order"])
    actual = int(j.steps[number]["pages"])
    high = m.st[pcp + at.PCP_HIGH]
    upper_high = m.st[notes_at(m, pcp) + true.NOTE_HIGH]
    early, late = overflows(m, pcp, zone, order)
    if int(j.steps[number]["flags"]) & true.UNSEEN:
        return
    listed = m.st[pcp + at.PCP_COUNT] - m.st[notes_at(m, pcp) + true.NOTE_REMAINDER]
    flushes = order > 0 and order <= m.st[at.POLICY_COSTLY_ORDER]
    if actual >= listed and not flushes:
        actual = 0
    alike = (early > 0) == (late > 0)
    hit = (early > 0) == (actual > 0)
    if alike and tuning.is_settled(m, pcp):
        null_hit = actual == 0
        judge(m, j, number, DRAIN_WHEN, pcp, hit, null_hit, early, actual)
        if not hit:
            count_repair(m, true.REPAIR_TUNING)
    else:
        leave_unjudged(j, number, DRAIN_WHEN)
    if actual > 0 and alike and hit:
        judge_drain_size(m, j, number, pcp, index, early, late)
        cut = is_cut_short(m, pcp, early, actual)
        if early == late and not cut and not is_of_size(m, j, pcp, number, index, early):
            tuning.fit_free_count(m, pcp, actual)
    elif actual > 0:
        leave_unjudged(j, number, DRAIN_SIZE)
    fit_world(m, pcp, zone, order, high, early, actual)
    tuning.swap_worlds(m, pcp, zone)
    fit_world(m, pcp, zone, order, upper_high, late, actual)
    tuning.swap_worlds(m, pcp, zone)
    if alike and not hit and not flushes:
        tuning.widen_high(m, pcp, actual)


@inner
def push(m: at.Arrays, j: Judged, number: int) -> None:
    """No kernel function: put a freed page on a per-CPU list or in the buddy, and judge it."""
    zone = int(j.steps[number]["zone"])
    pfn = int(j.steps[number]["pfn"])
    order = int(j.steps[number]["order"])
    fate = int(j.steps[number]["fate"])
    flags = int(j.steps[number]["flags"])
    where = int(m.pages[pfn]["where"])
    if where == at.ON_PCP and int(m.pages[pfn]["order"]) == order:
        count_repair(m, true.REPAIR_HIDDEN)
        true.leave_list(m, j, pfn)
    elif where != at.ALLOCATED or int(m.pages[pfn]["order"]) != order:
        split_allocation(m, pfn, order)
        if int(m.pages[pfn]["where"]) != at.ALLOCATED:
            true.vacate(m, j, zone, pfn, order)
    migratetype = int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["migratetype"])
    listed = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    index = order_to_pindex(m, order, listed)
    j.steps[number]["migratetype"] = listed
    direct = fate == true.REMOVE or flags & true.NESTED != 0 or flags & true.DIRECT != 0
    if index < 0 or direct or migratetype == m.st[at.ISOLATE]:
        null_forget(m, j, pfn)
        true.return_directly(m, j, zone, pfn, order)
        true.note_fate(j, number)
        return
    pcp = pcp_at(m, zone, int(j.steps[number]["cpu"]))
    lst = list_at(pcp, index)
    true.put_on_list(m, j, lst, pfn, order, fate, False)
    if flags & true.UNSEEN:
        j.track[pfn]["mark"] = -lst
    if flags & true.UNSEEN or fate == true.PUSH:
        true.note_unsure(m, j, pcp, pfn)
    null_index = order_to_pindex(m, order, int(j.track[pfn]["null_type"]))
    null_add(m, j, pcp, null_index, pfn, False)
    judge_overflow(m, j, number, pcp, index)
    notes = notes_at(m, pcp)
    m.st[notes + true.NOTE_DRAIN_INDEX] = index
    m.st[notes + true.NOTE_DRAIN_FROM] = pcp


@inner
def expected_drain(m: at.Arrays, pcp: int, index: int) -> int:
    """No kernel function: return the page a drain takes next, or -1 if no list has one."""
    for each in range(list_count(m)):
        if m.st[list_at(pcp, each) + at.TAIL] >= 0:
            return m.st[list_at(pcp, drained_list(m, pcp, index)) + at.TAIL]
    return -1


@inner
def judge_drained_page(m: at.Arrays, j: Judged, number: int, pcp: int, index: int) -> None:
    """No kernel function: judge which page leaves a list for the buddy (S5.6)."""
    pfn = int(j.steps[number]["pfn"])
    order = int(j.steps[number]["order"])
    dropped = 0
    expected = expected_drain(m, pcp, index)
    if expected >= 0 and expected != pfn:
        tail = abs(int(j.track[expected]["mark"])) + at.TAIL
        dropped = drop_hidden(m, j, tail, pfn)
        expected = expected_drain(m, pcp, index)
    known = expected >= 0 and j.track[expected]["mark"] > 0 and dropped == 0
    if not known or not true.is_listed(m, pfn, order):
        leave_unjudged(j, number, DRAIN_PAGE)
        return
    null_index = order_to_pindex(m, order, min(int(j.steps[number]["migratetype"]), at.MOVABLE))
    null_hit = m.st[null_list_at(m, pcp, null_index) + at.TAIL] == pfn
    hit = expected == pfn
    judge(m, j, number, DRAIN_PAGE, pcp, hit, null_hit, expected, pfn)
    if not hit:
        true.pass_over(m, j, expected)


@inner
def begin_drain(m: at.Arrays, j: Judged, number: int, pcp: int) -> None:
    """No kernel function: begin a run of drains that no free of the task caused (S4.8)."""
    notes = notes_at(m, pcp)
    m.st[notes + true.NOTE_DRAIN_INDEX] = 0
    m.st[notes + true.NOTE_DRAIN_FROM] = pcp
    if not int(j.steps[number]["flags"]) & true.KWORKER:
        return
    actual = int(j.steps[number]["pages"])
    zone = int(j.steps[number]["zone"])
    predicted, late = tuning.tick_seen(m, pcp, zone)
    if predicted == late and tuning.is_settled(m, pcp):
        hit = predicted == actual
        null_hit = actual == m.st[pcp + at.PCP_BATCH]
        judge(m, j, number, DRAIN_SIZE, pcp, hit, null_hit, predicted, actual)
    else:
        leave_unjudged(j, number, DRAIN_SIZE)


@inner
def drain_one(m: at.Arrays, j: Judged, number: int) -> None:
    """No kernel function: move a page to the buddy, from any CPU's list if all drain (S4.9)."""
    zone = int(j.steps[number]["zone"])
    pfn = int(j.steps[number]["pfn"])
    order = int(j.steps[number]["order"])
    migratetype = int(j.steps[number]["migratetype"])
    flags = int(j.steps[number]["flags"])
    own = pcp_at(m, zone, int(j.steps[number]["cpu"]))
    notes = notes_at(m, own)
    if flags & true.RUN_FIRST and not flags & true.AFTER_PUSH:
        begin_drain(m, j, number, own)
    pcp = own
    listed = true.is_listed(m, pfn, order)
    if listed:
        pcp = true.pageset_of_list(m, abs(int(j.track[pfn]["mark"])))
    if pcp != m.st[notes + true.NOTE_DRAIN_FROM]:
        m.st[notes + true.NOTE_DRAIN_FROM] = pcp
        m.st[notes + true.NOTE_DRAIN_INDEX] = 0
    index = m.st[notes + true.NOTE_DRAIN_INDEX]
    judge_drained_page(m, j, number, pcp, index)
    if listed:
        lst = abs(int(j.track[pfn]["mark"]))
        m.st[notes + true.NOTE_DRAIN_INDEX] = (lst - list_at(pcp, 0)) // at.LIST_WORDS
        true.leave_list(m, j, pfn)
    else:
        count_repair(m, true.REPAIR_NOWHERE)
        true.vacate(m, j, zone, pfn, order)
    null_forget(m, j, pfn)
    true.learn_block_type(m, zone, pfn, migratetype)
    true.return_exactly(m, j, zone, pfn, order, migratetype)
    true.note_fate(j, number)
    if int(j.steps[number]["objects"]) == 1:
        tuning.leave_low_memory(m, zone)


@inner
def judge_pop(m: at.Arrays, j: Judged, number: int, index: int) -> None:
    """No kernel function: judge an allocation: was its page the head, was no refill due?"""
    pfn = int(j.steps[number]["pfn"])
    pcp = pcp_at(m, int(j.steps[number]["zone"]), int(j.steps[number]["cpu"]))
    notes = notes_at(m, pcp)
    lst = list_at(pcp, index)
    dropped = drop_hidden(m, j, lst + at.HEAD, pfn)
    head = m.st[lst + at.HEAD]
    known = head >= 0 and j.track[head]["mark"] > 0 and dropped == 0
    null_hit = null_pop(m, j, pcp, index, pfn)
    if m.st[notes + true.NOTE_REFILLED] != pfn + 1:
        if known or (head < 0 and dropped == 0):
            hit = head >= 0
            expected = 0 if hit else 1
            judge(m, j, number, REFILL_WHEN, pcp, hit, True, expected, 0)
        else:
            leave_unjudged(j, number, REFILL_WHEN)
    m.st[notes + true.NOTE_REFILLED] = 0
    if known:
        judge(m, j, number, PCP_POP, pcp, head == pfn, null_hit, head, pfn)
        if head != pfn:
            true.pass_over(m, j, head)
    else:
        leave_unjudged(j, number, PCP_POP)
    m.st[pcp + at.PCP_FREE_COUNT] >>= 1
    m.st[notes + true.NOTE_FREE_COUNT] >>= 1


@inner
def pop(m: at.Arrays, j: Judged, number: int) -> None:
    """No kernel function: take an allocated page, listed or just removed, out and judge it."""
    pfn = int(j.steps[number]["pfn"])
    order = int(j.steps[number]["order"])
    zone = int(j.steps[number]["zone"])
    migratetype = int(j.steps[number]["migratetype"])
    index = order_to_pindex(m, order, migratetype)
    j.track[pfn]["null_type"] = migratetype
    if int(m.pages[pfn]["where"]) != at.ALLOCATED:
        if index >= 0 and not int(j.steps[number]["flags"]) & true.NESTED:
            judge_pop(m, j, number, index)
        if true.is_listed(m, pfn, order):
            on = abs(int(j.track[pfn]["mark"]))
            pcp = pcp_at(m, zone, int(j.steps[number]["cpu"]))
            if true.pageset_of_list(m, on) != pcp:
                count_repair(m, true.REPAIR_OTHER_CPU)
            elif on != list_at(pcp, index):
                count_repair(m, true.REPAIR_OTHER_LIST)
            true.leave_list(m, j, pfn)
        else:
            count_repair(m, true.REPAIR_NOWHERE)
            true.vacate(m, j, zone, pfn, order)
    elif int(m.pages[pfn]["order"]) != order:
        # In use already, as something smaller: frees were missed, and other parts may be listed.
        true.vacate(m, j, zone, pfn, order)
    m.pages[pfn]["where"] = at.ALLOCATED
    m.pages[pfn]["order"] = order
    m.pages[pfn]["tag"] = 1 if migratetype == at.MOVABLE else 0


@inner
def judge_refill_size(m: at.Arrays, j: Judged, number: int, pcp: int, known: bool) -> None:
    """No kernel function: judge how many objects a kprobe says, or those got, refill (S4.4)."""
    order = int(j.steps[number]["order"])
    zone = int(j.steps[number]["zone"])
    actual = int(j.steps[number]["asked"])
    if actual == 0:
        actual = int(j.steps[number]["objects"])
    predicted = nr_pcp_alloc(m, pcp, zone, order)
    tuning.swap_worlds(m, pcp, zone)
    late = nr_pcp_alloc(m, pcp, zone, order)
    tuning.swap_worlds(m, pcp, zone)
    if known and tuning.is_settled(m, pcp) and predicted == late:
        null_hit = actual == max(m.st[pcp + at.PCP_BATCH] >> order, 1)
        hit = predicted == actual
        judge(m, j, number, REFILL_SIZE, pcp, hit, null_hit, predicted, actual)
        if not hit and order == 0:
            count_repair(m, true.REPAIR_TUNING)
            tuning.fit_alloc_factor(m, pcp, predicted, actual)
            tuning.make_worlds_one(m, pcp, zone)
        return
    leave_unjudged(j, number, REFILL_SIZE)
    if predicted != late and predicted == actual:
        tuning.make_worlds_one(m, pcp, zone)
    elif predicted != late and late == actual:
        tuning.swap_worlds(m, pcp, zone)
        tuning.make_worlds_one(m, pcp, zone)
        tuning.swap_worlds(m, pcp, zone)
        tuning.make_worlds_one(m, pcp, zone)


@inner
def judge_refill(m: at.Arrays, j: Judged, number: int, pcp: int, index: int) -> bool:
    """No kernel function: judge a run's first removal from the buddy as a refill.

    Was the list empty, is the run as long as the rule says?

    Returns:
        Whether the run goes to the list. A single page that is allocated at once beside a list
        with pages does not: the list was locked (S4.10).
    """
    pfn = int(j.steps[number]["pfn"])
    actual = int(j.steps[number]["objects"])
    lst = list_at(pcp, index)
    used = int(j.steps[number]["flags"]) & true.USED_AT_ONCE
    dropped = drop_hidden(m, j, lst + at.HEAD, pfn)
    head = m.st[lst + at.HEAD]
    known = used != 0 and dropped == 0 and (head < 0 or j.track[head]["mark"] > 0)
    if known:
        hit = head < 0
        expected = 1 if hit else 0
        judge(m, j, number, REFILL_WHEN, pcp, hit, False, expected, actual)
    else:
        leave_unjudged(j, number, REFILL_WHEN)
    if head >= 0 and actual == 1 and used != 0:
        return False
    judge_refill_size(m, j, number, pcp, known)
    if used != 0:
        m.st[notes_at(m, pcp) + true.NOTE_REFILLED] = pfn + 1
    return True
