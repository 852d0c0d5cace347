"""What an event asks of an elastic replay, and what becomes of the answer (S10.4)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.request import prep_new_page
from pagealloc_model.allocator.pressure.folios import add_piece, describe, queue_range
from pagealloc_model.allocator.pressure.pressure_offsets import value_of, word_at
from pagealloc_model.allocator.pressure.slow_path import IDLE, prepare_alloc_pages
from pagealloc_model.base.jit import inner

THP_ORDER = 9
BITS_MASK = (1 << 32) - 1


@inner
def class_of(bits: int) -> int:
    """No kernel function: return the class of the pages that a request asks for."""
    return (bits >> pr.CLASS_SHIFT) & 3


@inner
def is_thp(order: int, bits: int) -> bool:
    """No kernel function: return whether a request is for a transparent huge page."""
    return order == THP_ORDER and class_of(bits) == pr.ANON and bits & at.GFP_NOMEMALLOC != 0


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
    """No kernel function: take up a recorded free; what is left of its pages waits."""
    if bits & pr.FREED_BY_RECLAIM == pr.FREED_BY_RECLAIM:
        m.st[word_at(m, pr.DROPPED_FREES)] += 1 << order
        return
    place = int(m.places[number])
    if place >= 0:
        m.st[at.COUNT_FREE] += 1
        missing = queue_range(m, number, offset, order)
        m.st[word_at(m, pr.FREED_BY_MODEL)] += missing
    elif place == pr.LOST:
        m.st[word_at(m, pr.FREED_BY_MODEL)] += 1 << order
    elif place == pr.ABSORBED:
        m.st[word_at(m, pr.ABSORBED_FREES)] += 1 << order
    else:
        m.st[at.COUNT_ORPHAN_FREE] += 1


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


@inner
def begin_allocation(
    m: at.MachineArrays,
    cpu: int,
    number: int,
    order: int,
    migratetype: int,
    highest_type: int,
    bits: int,
    recorded: bool,
) -> None:
    """No kernel function: begin the request of an object."""
    m.st[word_at(m, pr.REQUEST_NUMBER)] = number
    m.st[word_at(m, pr.REQUEST_PIECES)] = 0
    m.st[word_at(m, pr.REQUEST_WAS_RECORDED)] = recorded
    m.st[word_at(m, pr.REQUEST_STALLED)] = 0
    prepare_alloc_pages(m, cpu, order, migratetype, highest_type, asked_bits(m, order, bits))


@inner
def accept_page(m: at.MachineArrays) -> None:
    """No kernel function: give the page found to the object that asked."""
    base = m.st[at.PRESSURE_BASE]
    pfn = m.st[base + pr.REQUEST_PFN]
    order = m.st[base + pr.REQUEST_ORDER]
    bits = m.st[base + pr.REQUEST_BITS]
    number = m.st[base + pr.REQUEST_NUMBER]
    left = m.st[base + pr.REQUEST_PIECES]
    prep_new_page(m, pfn, order, m.st[base + pr.REQUEST_TYPE])
    offset = left - 1 if left > 0 else 0
    describe(m, pfn, number, offset, class_of(bits))
    add_piece(m, pfn, number)
    if left == 0:
        count_outcome_of_order(m, order, True)
        m.st[base + pr.THP_FAULT_ALLOC] += is_thp(order, bits)


@inner
def try_elsewhere(m: at.MachineArrays) -> bool:
    """Part of alloc_pages_mpol(): return whether all nodes are asked for a huge page (S8.5).

    That is the second attempt, after the own node refused.
    """
    bits = value_of(m, pr.REQUEST_BITS)
    if not bits & at.GFP_THISNODE or not is_thp(value_of(m, pr.REQUEST_ORDER), bits):
        return False
    if not bits & at.GFP_DIRECT_RECLAIM or not value_of(m, pr.REQUEST_WAS_RECORDED):
        return False
    next_request(m, value_of(m, pr.REQUEST_ORDER), bits & ~(at.GFP_THISNODE | pr.GFP_NORETRY))
    return True


@inner
def next_request(m: at.MachineArrays, order: int, bits: int) -> None:
    """No kernel function: begin another request of the same object."""
    base = m.st[at.PRESSURE_BASE]
    prepare_alloc_pages(
        m,
        m.st[base + pr.REQUEST_CPU],
        order,
        m.st[base + pr.REQUEST_TYPE],
        m.st[base + pr.REQUEST_HIGHEST],
        bits & BITS_MASK,
    )


@inner
def refuse(m: at.MachineArrays) -> None:
    """No kernel function: end a failed request; smaller pages take its place, or nothing does."""
    base = m.st[at.PRESSURE_BASE]
    order = m.st[base + pr.REQUEST_ORDER]
    bits = m.st[base + pr.REQUEST_BITS]
    recorded = m.st[base + pr.REQUEST_WAS_RECORDED]
    if is_thp(order, bits) and not (bits & at.GFP_THISNODE and bits & at.GFP_DIRECT_RECLAIM):
        m.st[base + pr.THP_FAULT_FALLBACK] += 1
    count_outcome_of_order(m, order, False)
    if not recorded:
        return
    if is_opportunistic(m, order, bits):
        m.st[base + pr.REQUEST_PIECES] = 1 << order
        m.st[at.COUNT_IN_BASE_PAGES] += 1
    else:
        m.st[base + pr.DEMAND_FAILED] += 1


@inner
def finish_request(m: at.MachineArrays) -> None:
    """No kernel function: note the page of an ended request.

    The next request that its object needs begins.
    """
    base = m.st[at.PRESSURE_BASE]
    m.st[base + pr.STAGE] = IDLE
    left = m.st[base + pr.REQUEST_PIECES]
    if m.st[base + pr.REQUEST_PFN] >= 0:
        accept_page(m)
        if not m.st[base + pr.REQUEST_WAS_RECORDED]:
            m.st[base + pr.SUCCEEDED_FAILURES] += 1
    elif left > 0:
        m.st[at.COUNT_FAILED] += 1
        left = 1
    elif not try_elsewhere(m):
        refuse(m)
        if m.st[base + pr.REQUEST_PIECES] > 0:
            bits = m.st[base + pr.REQUEST_BITS] & ~(pr.GFP_NORETRY | at.GFP_THISNODE)
            next_request(m, 0, bits)
        return
    else:
        return
    if left > 1:
        m.st[base + pr.REQUEST_PIECES] = left - 1
        next_request(m, 0, m.st[base + pr.REQUEST_BITS])
