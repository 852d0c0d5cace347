"""Judging what leaves a pageset for an allocation: which page, and when and how much it refills.

Each function first asks the model's own rule what it would do from the true state, then moves the
page as recorded.
"""

from __future__ import annotations

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices import tuning_words as tuning
from pagealloc_model.allocator.choices.judged import Judged
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
from pagealloc_model.allocator.core.pcp import nr_pcp_alloc, order_to_pindex
from pagealloc_model.base.jit import inner


@inner
def judge_pop(m: at.MachineArrays, j: Judged, number: int, index: int) -> None:
    """No kernel function: judge an allocation from a per-CPU list.

    Was its page the head, and was no refill due?
    """
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
def pop(m: at.MachineArrays, j: Judged, number: int) -> None:
    """No kernel function: take an allocated page out of the state, and judge it.

    An earlier step took it from the buddy, or it was listed.
    """
    pfn = int(j.steps[number]["pfn"])
    order = int(j.steps[number]["order"])
    zone = int(j.steps[number]["zone"])
    migratetype = int(j.steps[number]["migratetype"])
    index = order_to_pindex(m, order, migratetype)
    j.track[pfn]["null_type"] = migratetype
    if int(m.pages[pfn]["where"]) != at.ALLOCATED:
        if index >= 0 and not int(j.steps[number]["flags"]) & rec.NESTED:
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
def judge_refill_size(m: at.MachineArrays, j: Judged, number: int, pcp: int, known: bool) -> None:
    """No kernel function: judge with how many objects a list is refilled (S4.4).

    A kprobe tells how many the kernel asked for; without one, those it got stand for them.
    """
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
def judge_refill(m: at.MachineArrays, j: Judged, number: int, pcp: int, index: int) -> bool:
    """No kernel function: judge a run's first removal from the buddy as a refill.

    Was the list empty, is the run as long as the rule says?

    Returns:
        Whether the run goes to the list. A single page that is allocated at once beside a list
        with pages does not: the list was locked (S4.10).
    """
    pfn = int(j.steps[number]["pfn"])
    actual = int(j.steps[number]["objects"])
    lst = list_at(pcp, index)
    used = int(j.steps[number]["flags"]) & rec.USED_AT_ONCE
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
