"""What an event asks of an elastic replay, and what becomes of the answer (S10.4)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_context import AllocContext, prepare_alloc_pages
from pagealloc_model.allocator.core.objects import BITS_MASK
from pagealloc_model.allocator.core.prefetch import prefetch
from pagealloc_model.allocator.core.request import __alloc_frozen_pages, reclaim_and_retry
from pagealloc_model.allocator.pressure.folios import (
    add_piece,
    describe,
    free_piece,
    free_waiting,
    is_piece,
    queue_range,
)
from pagealloc_model.allocator.pressure.kswapd import take_wakes
from pagealloc_model.allocator.pressure.pressure_offsets import value_of, word_at
from pagealloc_model.base.jit import cold, hot, inner


@inner
def class_of(bits: int) -> int:
    """No kernel function: return the class of the pages that a request asks for."""
    return (bits >> pr.CLASS_SHIFT) & 3


@inner
def is_thp(order: int, bits: int) -> bool:
    """No kernel function: return whether a request is for a transparent huge page."""
    return order == pr.THP_ORDER and class_of(bits) == pr.ANON and bits & at.GFP_NOMEMALLOC != 0


@inner
def is_opportunistic(m: at.MachineArrays, order: int, bits: int) -> bool:
    """No kernel function: return whether the caller goes on with smaller pages on failure."""
    if order == 0 or bits & pr.GFP_NOFAIL:
        return False
    if class_of(bits) >= pr.ANON:
        return True
    if not bits & at.GFP_DIRECT_RECLAIM and bits & at.GFP_HIGH:
        return False
    return bits & pr.GFP_NORETRY != 0 or order > m.st[at.POLICY_COSTLY_ORDER]


@inner
def take_free(m: at.MachineArrays, number: int, offset: int, order: int, bits: int) -> None:
    """No kernel function: take up a recorded free, of what is left of its pages."""
    if bits & pr.FREED_BY_RECLAIM == pr.FREED_BY_RECLAIM:
        m.st[word_at(m, pr.DROPPED_FREES)] += 1 << order
        return
    place = int(m.places[number])
    if place >= 0:
        m.st[at.COUNT_FREE] += 1
        if is_piece(m, place, offset, order):
            free_piece(m, place, order)
        else:
            free_range(m, number, offset, order)
    elif place <= pr.LOST:
        m.st[word_at(m, pr.FREED_BY_MODEL)] += 1 << order
        m.places[number] = pr.LOST
    elif place == pr.ABSORBED:
        m.st[word_at(m, pr.ABSORBED_FREES)] += 1 << order
    else:
        m.st[at.COUNT_ORPHAN_FREE] += 1


@cold
def free_range(m: at.MachineArrays, number: int, offset: int, order: int) -> None:
    """No kernel function: free what an object has left of a range; the rest the model freed."""
    missing = queue_range(m, number, offset, order)
    m.st[word_at(m, pr.FREED_BY_MODEL)] += missing
    free_waiting(m)


@inner
def is_absorbed(m: at.MachineArrays, leads: np.ndarray, number: int) -> bool:
    """No kernel function: return whether the failure that a request replaced succeeded (T10.4)."""
    lead = int(leads[number])
    while lead >= 0 and m.places[lead] == -1:
        lead = int(leads[lead])
    if lead < 0:
        return False
    m.places[number] = pr.ABSORBED
    m.st[word_at(m, pr.COUNT_ABSORBED)] += 1
    return True


@inner
def asked_bits(m: at.MachineArrays, order: int, bits: int) -> int:
    """Part of vma_thp_gfp_mask(): return a request's bits, as policy has them (S8.5).

    Policy changes those of huge pages only.
    """
    given = value_of(m, pr.THP_DEFRAG)
    if given == 0 or not is_thp(order, bits):
        return bits
    kept = ~(at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_NORETRY)
    if bits & at.GFP_THISNODE:
        kept |= pr.GFP_NORETRY
    return bits & kept & BITS_MASK | (given - 1)


@inner
def is_needless_retry(
    m: at.MachineArrays, leads: np.ndarray, number: int, order: int, bits: int
) -> bool:
    """No kernel function: return whether policy leaves out a second huge-page attempt (S8.5)."""
    if not is_thp(order, bits) or bits & at.GFP_THISNODE or leads[number] < 0:
        return False
    return value_of(m, pr.THP_DEFRAG) != 0 and not (
        asked_bits(m, order, bits) & at.GFP_DIRECT_RECLAIM
    )


@inner
def count_outcome_of_order(m: at.MachineArrays, order: int, served: bool) -> None:
    """No kernel function: count a recorded request's end by its order."""
    words = word_at(m, pr.OUTCOMES) + order * pr.OUTCOME_WORDS
    m.st[words] += 1
    m.st[words + 1] += served
    m.st[words + 2] += value_of(m, pr.REQUEST_STALLED)


@hot
def request_page(m: at.MachineArrays, ac: AllocContext) -> int:
    """No kernel function: make a request; kswapd wakes for it. Returns the page, or -1."""
    pfn = __alloc_frozen_pages(m, ac, reclaim_and_retry)
    take_wakes(m, ac.bits)
    return pfn


@hot
def own_page(m: at.MachineArrays, ac: AllocContext, pfn: int, number: int, offset: int) -> None:
    """No kernel function: give a page to the object that asked."""
    describe(m, pfn, number, offset, class_of(ac.bits))
    add_piece(m, pfn, number)


@inner
def asks_elsewhere(ac: AllocContext, recorded: bool) -> bool:
    """Part of alloc_pages_mpol(): return whether all nodes are asked for a huge page (S8.5).

    That is the second attempt, after the own node refused.
    """
    if not ac.bits & at.GFP_THISNODE or not is_thp(ac.order, ac.bits):
        return False
    return ac.bits & at.GFP_DIRECT_RECLAIM != 0 and recorded


@inner
def dropped_elsewhere(m: at.MachineArrays) -> int:
    """Part of alloc_pages_mpol(): return the bits that only the first attempt has (S8.5).

    Whether the caller itself asked for NORETRY the first attempt does not tell: of those that may
    reclaim directly, callers do in memory that is not madvised.
    """
    if value_of(m, pr.THP_MADVISED):
        return at.GFP_THISNODE | pr.GFP_NORETRY
    return at.GFP_THISNODE


@inner
def request_again(m: at.MachineArrays, ac: AllocContext, order: int, dropped: int) -> AllocContext:
    """No kernel function: return another request of the same object, without some bits."""
    bits = ac.bits & ~dropped & BITS_MASK
    return prepare_alloc_pages(m, ac.cpu, order, ac.migratetype, ac.highest_type, bits)


@inner
def allocate(m: at.MachineArrays, ac: AllocContext, number: int, recorded: bool) -> None:
    """No kernel function: serve an object's request, as a whole or in base pages.

    `recorded`: the recording's request succeeded.
    """
    m.st[word_at(m, pr.REQUEST_STALLED)] = 0
    pfn = request_page(m, ac)
    if pfn < 0:
        do_without(m, ac, number, recorded)
        return
    accept_page(m, ac, pfn, number, recorded)


@inner
def accept_page(
    m: at.MachineArrays, ac: AllocContext, pfn: int, number: int, recorded: bool
) -> None:
    """No kernel function: give the page found to the object that asked.

    Its list's next page is likely to be given out next.
    """
    count_outcome_of_order(m, ac.order, True)
    prefetch(m.folios, int(m.pages[pfn]["next"]))
    own_page(m, ac, pfn, number, 0)
    if is_thp(ac.order, ac.bits):
        m.st[word_at(m, pr.THP_FAULT_ALLOC)] += 1
    if not recorded:
        m.st[word_at(m, pr.SUCCEEDED_FAILURES)] += 1


@cold
def do_without(m: at.MachineArrays, ac: AllocContext, number: int, recorded: bool) -> None:
    """No kernel function: ask elsewhere, then for smaller pages, or end a failed request."""
    if asks_elsewhere(ac, recorded):
        ac = request_again(m, ac, ac.order, dropped_elsewhere(m))
        pfn = request_page(m, ac)
        if pfn >= 0:
            accept_page(m, ac, pfn, number, recorded)
            return
    count_outcome_of_order(m, ac.order, False)
    if is_thp(ac.order, ac.bits) and not (
        ac.bits & at.GFP_THISNODE and ac.bits & at.GFP_DIRECT_RECLAIM
    ):
        m.st[word_at(m, pr.THP_FAULT_FALLBACK)] += 1
    if recorded and is_opportunistic(m, ac.order, ac.bits):
        fill_with_base_pages(m, ac, number)
    elif recorded:
        m.st[word_at(m, pr.DEMAND_FAILED)] += 1


@inner
def fill_with_base_pages(m: at.MachineArrays, ac: AllocContext, number: int) -> None:
    """No kernel function: put single pages in place of a buddy that was refused, from its end on.

    The first one refused is the last. Of a huge page only what is touched is asked for.
    """
    m.st[at.COUNT_IN_BASE_PAGES] += 1
    whole = 1 << ac.order
    untouched = 0
    if is_thp(ac.order, ac.bits):
        untouched = max(whole - value_of(m, pr.BASE_PAGES_PER_HUGE), 0)
    single = request_again(m, ac, 0, pr.GFP_NORETRY | at.GFP_THISNODE)
    for offset in range(whole - 1, untouched - 1, -1):
        pfn = request_page(m, single)
        if pfn < 0:
            m.st[at.COUNT_FAILED] += 1
            return
        own_page(m, single, pfn, number, offset)
