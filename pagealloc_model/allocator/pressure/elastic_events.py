"""What an event asks of an elastic replay, and what becomes of the answer (S10.4)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.request import mark_allocated
from pagealloc_model.allocator.pressure.folios import add_piece, describe, queue_range
from pagealloc_model.allocator.pressure.pressure_offsets import value_of, word_at
from pagealloc_model.allocator.pressure.slow_path import IDLE, begin_request
from pagealloc_model.base.jit import inner

THP_ORDER = 9
BITS_MASK = (1 << 32) - 1


@inner
def class_of(bits: int) -> int:
    """The class of the pages that a request asks for."""
    return (bits >> pr.CLASS_SHIFT) & 3


@inner
def is_thp(order: int, bits: int) -> bool:
    """Whether a request is for a transparent huge page."""
    return order == THP_ORDER and class_of(bits) == pr.ANON and bits & at.GFP_NOMEMALLOC != 0


@inner
def is_opportunistic(st: np.ndarray, order: int, bits: int) -> bool:
    """Whether a request's caller goes on with smaller pages if it fails."""
    if order == 0 or bits & pr.GFP_NOFAIL:
        return False
    if class_of(bits) >= pr.ANON:
        return True
    if not bits & at.GFP_DIRECT_RECLAIM and bits & at.GFP_HIGH:
        return False
    return bits & pr.GFP_NORETRY != 0 or order > st[at.COSTLY_ORDER]


@inner
def take_free(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    number: int,
    offset: int,
    order: int,
    bits: int,
) -> None:
    """A recorded free: what the model still has of it waits to be freed."""
    if bits & pr.FREED_BY_RECLAIM == pr.FREED_BY_RECLAIM:
        st[word_at(st, pr.DROPPED_FREES)] += 1 << order
        return
    place = int(places[number])
    if place >= 0:
        st[at.COUNT_FREE] += 1
        missing = queue_range(pages, blocks, st, folios, places, number, offset, order)
        st[word_at(st, pr.FREED_BY_MODEL)] += missing
    elif place == pr.LOST:
        st[word_at(st, pr.FREED_BY_MODEL)] += 1 << order
    elif place == pr.ABSORBED:
        st[word_at(st, pr.ABSORBED_FREES)] += 1 << order
    else:
        st[at.COUNT_ORPHAN_FREE] += 1


@inner
def is_absorbed(st: np.ndarray, places: np.ndarray, leads: np.ndarray, number: int) -> bool:
    """Whether a request came in place of one that has succeeded here (T10.4)."""
    lead = int(leads[number])
    while lead >= 0 and places[lead] == -1:
        lead = int(leads[lead])
    if lead < 0:
        return False
    places[number] = pr.ABSORBED
    st[word_at(st, pr.COUNT_ABSORBED)] += 1
    return True


@inner
def asked_bits(st: np.ndarray, order: int, bits: int) -> int:
    """A request's bits, those of huge pages as the policy has them (S8.5)."""
    given = value_of(st, pr.THP_DEFRAG)
    if given == 0 or not is_thp(order, bits):
        return bits
    kept = ~(at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_NORETRY)
    if bits & at.GFP_THISNODE:
        kept |= pr.GFP_NORETRY
    return bits & kept & BITS_MASK | (given - 1)


@inner
def is_needless_retry(
    st: np.ndarray, leads: np.ndarray, number: int, order: int, bits: int
) -> bool:
    """Whether a recorded second attempt for a huge page does not come, as policy has it (S8.5)."""
    if not is_thp(order, bits) or bits & at.GFP_THISNODE or leads[number] < 0:
        return False
    return value_of(st, pr.THP_DEFRAG) != 0 and not (
        asked_bits(st, order, bits) & at.GFP_DIRECT_RECLAIM
    )


@inner
def count_outcome_of_order(st: np.ndarray, order: int, served: bool) -> None:
    """Count a recorded request's end by its order."""
    words = word_at(st, pr.OUTCOMES) + order * pr.OUTCOME_WORDS
    st[words] += 1
    st[words + 1] += served
    st[words + 2] += value_of(st, pr.REQUEST_STALLED)


@inner
def begin_allocation(
    st: np.ndarray,
    cpu: int,
    number: int,
    order: int,
    migratetype: int,
    highest_type: int,
    bits: int,
    recorded: bool,
) -> None:
    """Begin the request of an object."""
    st[word_at(st, pr.REQUEST_NUMBER)] = number
    st[word_at(st, pr.REQUEST_PIECES)] = 0
    st[word_at(st, pr.REQUEST_WAS_RECORDED)] = recorded
    st[word_at(st, pr.REQUEST_STALLED)] = 0
    begin_request(st, cpu, order, migratetype, highest_type, asked_bits(st, order, bits))


@inner
def accept_page(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
) -> None:
    """Give the page found to the object that asked."""
    base = st[at.PRESSURE_BASE]
    pfn = st[base + pr.REQUEST_PFN]
    order = st[base + pr.REQUEST_ORDER]
    bits = st[base + pr.REQUEST_BITS]
    number = st[base + pr.REQUEST_NUMBER]
    left = st[base + pr.REQUEST_PIECES]
    mark_allocated(pages, pfn, order, st[base + pr.REQUEST_TYPE])
    offset = left - 1 if left > 0 else 0
    describe(pages, blocks, st, folios, pfn, number, offset, class_of(bits))
    add_piece(folios, places, pfn, number)
    if left == 0:
        count_outcome_of_order(st, order, True)
        st[base + pr.THP_FAULT_ALLOC] += is_thp(order, bits)


@inner
def try_elsewhere(st: np.ndarray) -> bool:
    """Whether a huge page refused on the own node is asked of all: the second attempt (S8.5)."""
    bits = value_of(st, pr.REQUEST_BITS)
    if not bits & at.GFP_THISNODE or not is_thp(value_of(st, pr.REQUEST_ORDER), bits):
        return False
    if not bits & at.GFP_DIRECT_RECLAIM or not value_of(st, pr.REQUEST_WAS_RECORDED):
        return False
    next_request(st, value_of(st, pr.REQUEST_ORDER), bits & ~(at.GFP_THISNODE | pr.GFP_NORETRY))
    return True


@inner
def next_request(st: np.ndarray, order: int, bits: int) -> None:
    """Begin another request of the same object."""
    base = st[at.PRESSURE_BASE]
    begin_request(
        st,
        st[base + pr.REQUEST_CPU],
        order,
        st[base + pr.REQUEST_TYPE],
        st[base + pr.REQUEST_HIGHEST],
        bits & BITS_MASK,
    )


@inner
def refuse(st: np.ndarray) -> None:
    """A request has failed for good: smaller pages take its place, or nothing does."""
    base = st[at.PRESSURE_BASE]
    order = st[base + pr.REQUEST_ORDER]
    bits = st[base + pr.REQUEST_BITS]
    recorded = st[base + pr.REQUEST_WAS_RECORDED]
    if is_thp(order, bits) and not (bits & at.GFP_THISNODE and bits & at.GFP_DIRECT_RECLAIM):
        st[base + pr.THP_FAULT_FALLBACK] += 1
    count_outcome_of_order(st, order, False)
    if not recorded:
        return
    if is_opportunistic(st, order, bits):
        st[base + pr.REQUEST_PIECES] = 1 << order
        st[at.COUNT_IN_BASE_PAGES] += 1
    else:
        st[base + pr.DEMAND_FAILED] += 1


@inner
def finish_request(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
) -> None:
    """A request has ended: note its page; begin the next one that its object needs."""
    base = st[at.PRESSURE_BASE]
    st[base + pr.STAGE] = IDLE
    left = st[base + pr.REQUEST_PIECES]
    if st[base + pr.REQUEST_PFN] >= 0:
        accept_page(pages, blocks, st, folios, places)
        if not st[base + pr.REQUEST_WAS_RECORDED]:
            st[base + pr.SUCCEEDED_FAILURES] += 1
    elif left > 0:
        st[at.COUNT_FAILED] += 1
        left = 1
    elif not try_elsewhere(st):
        refuse(st)
        if st[base + pr.REQUEST_PIECES] > 0:
            bits = st[base + pr.REQUEST_BITS] & ~(pr.GFP_NORETRY | at.GFP_THISNODE)
            next_request(st, 0, bits)
        return
    else:
        return
    if left > 1:
        st[base + pr.REQUEST_PIECES] = left - 1
        next_request(st, 0, st[base + pr.REQUEST_BITS])
