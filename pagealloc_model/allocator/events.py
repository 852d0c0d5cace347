"""The event loops, literal and elastic: exact at any split of the events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.buddy import __del_page_from_free_list, __rmqueue_smallest, grow_zone
from pagealloc_model.allocator.highatomic import unreserve_highatomic_pageblock
from pagealloc_model.allocator.kcompactd import kcompactd
from pagealloc_model.allocator.kswapd import step_kswapd, take_wakes
from pagealloc_model.allocator.layout import cpu_at, free_list_at, zone_at
from pagealloc_model.allocator.lru import (
    add_piece,
    describe,
    folio_mark_accessed,
    free_waiting,
    leave_lists,
    queue_range,
    remove_piece,
    workingset_refault,
)
from pagealloc_model.allocator.objects import BITS_MASK
from pagealloc_model.allocator.ownership import disown_cpu
from pagealloc_model.allocator.page_alloc import (
    __alloc_frozen_pages,
    begin_reclaim,
    begin_request,
    fail_as_recorded,
    make_room,
    prep_new_page,
    reclaim_and_retry,
    retry_as_recorded,
)
from pagealloc_model.allocator.page_free import __free_frozen_pages
from pagealloc_model.allocator.pcp import (
    drain_all_pages,
    drain_pages_zone,
    hold_drained,
    let_go_of_lists,
    refresh_cpu_vm_stats,
    set_pcp_high,
)
from pagealloc_model.allocator.pressure_layout import node_pressure_at, value_of, word_at
from pagealloc_model.allocator.watermark import (
    AllocContext,
    account_freepages,
    count_at_end,
    end_kswapd,
    prepare_alloc_pages,
    start_kswapd,
)
from pagealloc_model.base.jit import cold, entry, hot, inner
from pagealloc_model.base.jit.settings import numba


def _asked_for_nothing(array: np.ndarray, index: int) -> None:
    """What `prefetch` is without compilation."""


@numba.extending.intrinsic
def _compiled_prefetch(typing_context, array, index):  # noqa: ANN001, ANN202
    """One instruction, which neither reads nor writes and faults nowhere."""
    signature = numba.types.void(array, numba.types.int64)

    def generate(context, builder, signature, arguments):  # noqa: ANN001, ANN202
        kind = signature.args[0]
        data = context.make_array(kind)(context, builder, arguments[0]).data
        record = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        size = context.get_constant(numba.types.int64, record)
        first = builder.ptrtoint(data, ir.IntType(64))
        pointer = ir.IntType(8).as_pointer()
        address = builder.inttoptr(builder.add(first, builder.mul(arguments[1], size)), pointer)
        word = ir.IntType(32)
        asking = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        asked = builder.module.declare_intrinsic("llvm.prefetch", [pointer], asking)
        builder.call(asked, [address, word(1), word(3), word(1)])
        return context.get_dummy_value()

    return signature, generate


prefetch = _asked_for_nothing if numba.config.DISABLE_JIT else _compiled_prefetch
"""prefetch(array, index): ask for a record that will be written; any index is allowed."""
AHEAD = 16
"""Events between asking for a page and its free. Memory answers in less time than they take."""


class Event(NamedTuple):
    """One of `layout.EVENT`, about the object of a number; kernels call it `e`."""

    time_ns: int
    number: int
    offset: int
    bits: int
    cpu: int
    operation: int
    order: int
    migratetype: int
    zone: int


@hot
def event_at(events: np.ndarray, position: int) -> Event:
    """Return an event."""
    return Event(
        int(events[position]["time_ns"]),
        int(events[position]["object"]),
        int(events[position]["offset"]),
        int(events[position]["bits"]),
        int(events[position]["cpu"]),
        int(events[position]["operation"]),
        int(events[position]["order"]),
        int(events[position]["migratetype"]),
        int(events[position]["zone"]),
    )


@hot
def place_ahead(m: at.Arrays, events: np.ndarray, position: int, high: int) -> int:
    """Return where the object of an event to come lives now, or less than 0."""
    if position + AHEAD >= high:
        return -1
    number = int(events[position + AHEAD]["object"])
    return int(m.places[number]) if number >= 0 else -1


@hot
def look_ahead(m: at.Arrays, events: np.ndarray, position: int, high: int) -> int:
    """Ask for the record of a page that an event to come will free.

    Also for two that its way to the zone reads, which may lie in other cache lines: its buddy's,
    and that of the buddy of both. Where the object of an event twice as far lives is asked for by
    itself: objects are freed in any order. Returns the page. Where there is none the first page's
    is asked for, since looking up an address of no memory takes long.
    """
    prefetch(m.places, int(events[min(position + 2 * AHEAD, high - 1)]["object"]))
    place = place_ahead(m, events, position, high)
    page = max(place, 0)
    prefetch(m.pages, page)
    prefetch(m.pages, page ^ 1)
    prefetch(m.pages, (page & ~1) ^ 2)
    return place


@hot
def request_of(m: at.Arrays, e: Event, bits: int) -> AllocContext:
    """Return the request that an event carries, of these bits."""
    return prepare_alloc_pages(m, e.cpu, e.order, e.migratetype, e.zone, bits)


@hot
def allocate_object(m: at.Arrays, ac: AllocContext) -> int:
    """Return a place for an object (see CHAINED), -1 if memory ran out."""
    pfn = __alloc_frozen_pages(m, ac, retry_as_recorded)
    if pfn < 0:
        return allocate_in_pieces(m, ac)
    m.pages[pfn]["next"] = -1
    return pfn


@cold
def allocate_in_pieces(m: at.Arrays, ac: AllocContext) -> int:
    """Return a place for an object that found none as a whole, or -1.

    Where the recording found a buddy, perhaps by compaction, and the model has none, the object
    becomes a chain of single pages: its memory is used all the same, as its caller would have
    fallen back to small pages.
    """
    left = 1 << ac.order
    if ac.order == 0:
        return note_missing(m, -1, 1)
    m.st[at.COUNT_IN_BASE_PAGES] += 1
    first = -1
    single = prepare_alloc_pages(m, ac.cpu, 0, ac.migratetype, ac.highest_type, ac.bits)
    while left > 0:
        pfn = __alloc_frozen_pages(m, single, retry_as_recorded)
        if pfn < 0:
            return note_missing(m, first, left)
        m.pages[pfn]["next"] = first
        first = pfn
        left -= 1
    return at.CHAINED - first


@inner
def note_missing(m: at.Arrays, first: int, pages: int) -> int:
    """Count pages that an object lacks; returns its place."""
    m.st[at.COUNT_FAILED] += 1
    m.st[at.MISSING_PAGES] += pages
    return at.CHAINED - first if first >= 0 else -1


@cold
def free_chained(m: at.Arrays, cpu: int, place: int, order: int, in_batch: bool) -> int:
    """Free a chain's first pages; returns the place of what remains, or -1."""
    pfn = at.CHAINED - place
    left = 1 << order
    while left > 0 and pfn >= 0:
        following = int(m.pages[pfn]["next"])
        __free_frozen_pages(m, cpu, pfn, 0, in_batch)
        pfn = following
        left -= 1
    m.st[at.MISSING_PAGES] -= left
    return at.CHAINED - pfn if pfn >= 0 else -1


@inner
def take_listed(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """Part of fast_isolate_freepages(): take the last buddy of one list whole; -1 if none."""
    pfn = m.st[free_list_at(zone, order, migratetype) + at.TAIL]
    if pfn >= 0:
        __del_page_from_free_list(m, zone, pfn)
        account_freepages(m, zone, migratetype, -(1 << order))
    return pfn


@inner
def hold_free_pages(m: at.Arrays, zone: int, order: int, wanted: int, migratetype: int) -> bool:
    """Part of fast_isolate_freepages(): hold the largest free buddy that is not more than wanted.

    If there is none, a larger one is cut. Returns whether there was one. No hold of zone->lock is
    counted, nor work done under it (S9.9).
    """
    largest = m.st[at.PAGEBLOCK_ORDER] - 1
    while largest > order and 1 << largest > wanted:
        largest -= 1
    pfn = -1
    current = largest + 1
    while pfn < 0 and current > order:
        current -= 1
        pfn = take_listed(m, zone, current, migratetype)
    if pfn < 0:
        splits = m.st[at.WORK_SPLITS]
        pfn = __rmqueue_smallest(m, zone, order, migratetype)
        m.st[at.WORK_SPLITS] = splits
        if pfn >= 0:
            count_at_end(m, zone, 1 << order)
    if pfn < 0:
        return False
    m.st[at.ISOLATED_FROM] = pfn
    m.st[at.ISOLATED_PAGES] = 1 << max(current, order)
    return True


@inner
def hold_movable(m: at.Arrays, zone: int, order: int, wanted: int) -> bool:
    """Part of fast_isolate_freepages(): hold a free buddy of a MOVABLE or CMA block, if any."""
    if hold_free_pages(m, zone, order, wanted, at.MOVABLE):
        return True
    return m.st[at.CMA] >= 0 and hold_free_pages(m, zone, order, wanted, m.st[at.CMA])


@inner
def deal_out(m: at.Arrays, order: int) -> int:
    """Part of fast_isolate_freepages(): return a piece of what is held."""
    pfn = m.st[at.ISOLATED_FROM]
    m.st[at.ISOLATED_FROM] = pfn + (1 << order)
    m.st[at.ISOLATED_PAGES] -= 1 << order
    prep_new_page(m, pfn, order, at.MOVABLE)
    m.pages[pfn]["next"] = -1
    m.pages[pfn]["flags"] = 0
    return pfn


@cold
def isolate_free_page(m: at.Arrays, zone: int, order: int, wanted: int) -> int:
    """fast_isolate_freepages(): take the next piece of what one scan isolates (S10.4)."""
    if m.st[at.ISOLATED_PAGES] >= 1 << order or hold_movable(m, zone, order, wanted):
        return deal_out(m, order)
    return gather_free_pages(m, zone, order)


@cold
def gather_free_pages(m: at.Arrays, zone: int, order: int) -> int:
    """Part of isolate_freepages(): return a place for a piece gathered page by page (S10.4)."""
    m.st[at.COUNT_IN_BASE_PAGES] += order > 0
    first = -1
    for left in range(1 << order, 0, -1):
        if m.st[at.ISOLATED_PAGES] == 0 and not hold_movable(m, zone, 0, left):
            found = hold_free_pages(m, zone, 0, left, at.RECLAIMABLE)
            if not found and not hold_free_pages(m, zone, 0, left, at.UNMOVABLE):
                return note_missing(m, first, left)
        pfn = deal_out(m, 0)
        m.pages[pfn]["next"] = first
        first = pfn
    return at.CHAINED - first


@cold
def compaction_capture(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """compaction_capture(): return where an object is that a direct compactor captured (S9.7).

    The kernel gathered it from the pages that the run freed. Here those lie elsewhere: where no
    free buddy of the order exists, as many pages are gathered one by one, as a chain. Nothing is
    refilled. -1 if the zone has no free page.
    """
    splits = m.st[at.WORK_SPLITS]
    pfn = __rmqueue_smallest(m, zone, order, migratetype)
    m.st[at.WORK_SPLITS] = splits
    if pfn < 0:
        return gather_free_pages(m, zone, order)
    count_at_end(m, zone, 1 << order)
    prep_new_page(m, pfn, order, migratetype)
    m.pages[pfn]["next"] = -1
    m.pages[pfn]["flags"] = 0
    return pfn


@inner
def begin_tick(m: at.Arrays) -> int:
    """Set the next decay tick; returns the CPU of the one due (S4.8)."""
    cpu = m.st[at.TICK_CPU]
    m.st[at.NOW] = m.st[at.NEXT_TICK]
    m.st[at.EVENT_CPU] = cpu
    following = cpu - 1
    if following < 0:
        following = m.st[at.NR_CPUS] - 1
        m.st[at.TICK_BASE] += m.st[at.TICK_PERIOD]
    m.st[at.TICK_CPU] = following
    m.st[at.NEXT_TICK] = m.st[at.TICK_BASE] - following * m.st[at.TICK_STAGGER]
    return cpu


@inner
def log_is_nearly_full(m: at.Arrays) -> bool:
    """Return whether the next event might not fit the log."""
    return m.st[at.LOG_ROWS] + at.LOG_MARGIN > m.log.shape[0]


@cold
def run_ticks(m: at.Arrays, until_ns: int) -> None:
    """Run the decay ticks that are due, as long as the log has room."""
    while m.st[at.NEXT_TICK] <= until_ns and not log_is_nearly_full(m):
        refresh_cpu_vm_stats(m, begin_tick(m))


@cold
def take_imposed_event(m: at.Arrays, e: Event) -> None:
    """Take an event of which the recording told what the kernel decided."""
    if e.operation == at.ALLOC_IN_ZONE or e.operation == at.HIDDEN_ALLOC_IN_ZONE:
        m.st[at.COUNT_ALLOC if e.operation == at.ALLOC_IN_ZONE else at.COUNT_HIDDEN] += 1
        m.st[at.ONLY_ZONE] = e.offset + 1
        place = allocate_object(m, request_of(m, e, e.bits))
        m.st[at.ONLY_ZONE] = 0
        m.places[e.number] = place
    elif e.operation == at.SET_BOOST:
        m.st[zone_at(e.zone) + at.ZONE_BOOST] = e.offset
    elif e.operation == at.DRAIN_ZONE:
        drain_pages_zone(m, e.zone, e.offset)
    elif e.operation == at.RELEASE_BLOCK:
        m.st[at.RELEASES_RECORDED] = 0
        unreserve_highatomic_pageblock(m, request_of(m, e, e.bits), False)
        m.st[at.RELEASES_RECORDED] = 1


@inner
def page_alloc_cpu_dead(m: at.Arrays, cpu: int) -> None:
    """page_alloc_cpu_dead(): return what a CPU's lists hold; its blocks may go (S4.9, S12.8)."""
    for zone in range(m.st[at.NR_ZONES]):
        drain_pages_zone(m, zone, cpu)
    disown_cpu(m, cpu)
    m.st[cpu_at(m, cpu) + at.CPU_IS_DEAD] = 1


@cold
def take_rare_event(m: at.Arrays, e: Event) -> None:
    """Take an event that is neither an allocation nor a free."""
    if e.operation == at.RECORDED_FAILURE:
        m.st[at.COUNT_RECORDED_FAILURE] += 1
        fail_as_recorded(m, request_of(m, e, e.bits))
    elif e.operation == at.KSWAPD_START:
        end_kswapd(m, e.offset)
        start_kswapd(m, e.offset, e.zone)
    elif e.operation == at.KSWAPD_STOP:
        end_kswapd(m, e.offset)
    elif e.operation == at.SET_PCP_HIGH:
        set_pcp_high(m, e.zone, e.cpu, e.offset)
    elif e.operation == at.TICK:
        refresh_cpu_vm_stats(m, e.cpu)
    elif e.operation == at.RECLAIM_BEGIN:
        begin_reclaim(m, request_of(m, e, e.bits))
    elif e.operation == at.GROW:
        grow_zone(m, e.zone, e.offset, e.order)
    elif e.operation == at.DRAIN_ALL:
        drain_all_pages(m)
    elif e.operation == at.DRAIN_LOCAL:
        if not m.st[at.DRAINS_RECORDED]:
            drain_pages_zone(m, e.zone, e.cpu)
    elif e.operation == at.RECLAIM_IN_VAIN:
        make_room(m, request_of(m, e, e.bits))
    elif e.operation == at.CPU_DIES:
        page_alloc_cpu_dead(m, e.offset)
    elif e.operation == at.CPU_RETURNS:
        m.st[cpu_at(m, e.offset) + at.CPU_IS_DEAD] = 0
    elif e.operation == at.HOLD_DRAINED:
        hold_drained(m, e.cpu)
    elif e.operation == at.BEGIN_REQUEST:
        begin_request(m, request_of(m, e, e.bits))
    else:
        take_imposed_event(m, e)


@entry
def advance(m: at.Arrays, events: np.ndarray, low: int, high: int, until_ns: int) -> int:
    """Replay `events[low:high]`, then the ticks due before `until_ns`.

    Args:
        m: the machine; the log must be empty and LOG_ROWS 0.
        events: `layout.EVENT` records in time order.
        low: first event.
        high: one past the last event.
        until_ns: time up to which decay ticks are due; -1 for none beyond the events.

    Returns:
        The event to go on with: `high`, or less if the log ran full. Ticks may remain then too.
    """
    position = low
    while position < high:
        now = int(events[position]["time_ns"])
        if m.st[at.NEXT_TICK] <= now:
            run_ticks(m, now)
        if log_is_nearly_full(m):
            return position
        look_ahead(m, events, position, high)
        m.st[at.NOW] = now
        e = event_at(events, position)
        m.st[at.EVENT_CPU] = e.cpu
        in_batch = e.operation == at.FREE and e.bits & at.FREED_IN_BATCH != 0
        if in_batch:
            m.st[cpu_at(m, e.cpu) + at.CPU_LOCKED_SET] = 0
        elif not e.bits & at.INTERRUPTS_HOLDER:
            let_go_of_lists(m, e.cpu)
        if e.operation == at.FREE:
            place = int(m.places[e.number])
            if place == -1:
                m.st[at.COUNT_ORPHAN_FREE] += 1
                m.st[at.MISSING_PAGES] -= 1 << e.order
            else:
                m.st[at.COUNT_FREE] += 1
                if place < -1:
                    m.places[e.number] = free_chained(m, e.cpu, place, e.order, in_batch)
                else:
                    __free_frozen_pages(m, e.cpu, place + e.offset, e.order, in_batch)
        elif e.operation == at.ALLOC or e.operation == at.HIDDEN_ALLOC:
            m.st[at.COUNT_HIDDEN if e.operation == at.HIDDEN_ALLOC else at.COUNT_ALLOC] += 1
            m.places[e.number] = allocate_object(m, request_of(m, e, e.bits))
        elif e.operation == at.ISOLATE_FREE:
            m.places[e.number] = isolate_free_page(m, e.zone, e.order, e.offset)
        elif e.operation == at.CAPTURE:
            m.st[at.COUNT_ALLOC] += 1
            m.places[e.number] = compaction_capture(m, e.offset, e.order, e.migratetype)
        else:
            take_rare_event(m, e)
        position += 1
    if m.st[at.NEXT_TICK] <= until_ns:
        run_ticks(m, until_ns)
    return position


@inner
def class_of(bits: int) -> int:
    """Return the class of the pages that a request asks for."""
    return (bits >> pr.CLASS_SHIFT) & 3


@inner
def is_thp(order: int, bits: int) -> bool:
    """Return whether a request is for a transparent huge page."""
    return order == pr.THP_ORDER and class_of(bits) == pr.ANON and bits & at.GFP_NOMEMALLOC != 0


@inner
def is_opportunistic(m: at.Arrays, order: int, bits: int) -> bool:
    """Return whether the caller goes on with smaller pages on failure."""
    if order == 0 or bits & pr.GFP_NOFAIL:
        return False
    if class_of(bits) >= pr.ANON:
        return True
    if not bits & at.GFP_DIRECT_RECLAIM and bits & at.GFP_HIGH:
        return False
    return bits & pr.GFP_NORETRY != 0 or order > m.st[at.POLICY_COSTLY_ORDER]


@cold
def free_range(m: at.Arrays, number: int, offset: int, order: int) -> None:
    """Free what an object has left of a range; the rest the model freed."""
    missing = queue_range(m, number, offset, order)
    m.st[word_at(m, pr.FREED_BY_MODEL)] += missing
    free_waiting(m)


@inner
def is_absorbed(m: at.Arrays, leads: np.ndarray, number: int) -> bool:
    """Return whether the failure that a request replaced succeeded (T10.4)."""
    lead = int(leads[number])
    while lead >= 0 and m.places[lead] == -1:
        lead = int(leads[lead])
    if lead < 0:
        return False
    m.places[number] = pr.ABSORBED
    m.st[word_at(m, pr.COUNT_ABSORBED)] += 1
    return True


@inner
def vma_thp_gfp_mask(m: at.Arrays, order: int, bits: int) -> int:
    """Part of vma_thp_gfp_mask(): return a request's bits, a huge page's by policy (S8.5)."""
    by_policy = value_of(m, pr.THP_DEFRAG)
    if by_policy == 0 or not is_thp(order, bits):
        return bits
    others = ~(at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_NORETRY)
    if bits & at.GFP_THISNODE:
        others |= pr.GFP_NORETRY
    return bits & others & BITS_MASK | (by_policy - 1)


@inner
def is_needless_retry(m: at.Arrays, leads: np.ndarray, e: Event) -> bool:
    """Return whether policy leaves out a second huge-page attempt (S8.5)."""
    if not is_thp(e.order, e.bits) or e.bits & at.GFP_THISNODE or leads[e.number] < 0:
        return False
    bits = vma_thp_gfp_mask(m, e.order, e.bits)
    return value_of(m, pr.THP_DEFRAG) != 0 and not bits & at.GFP_DIRECT_RECLAIM


@inner
def count_outcome(m: at.Arrays, ac: AllocContext, served: bool, again: bool) -> None:
    """Count a recorded request's end by class and order (S10.12)."""
    place = class_of(ac.bits) * at.ORDERS + ac.order
    words = word_at(m, pr.OUTCOMES) + place * pr.OUTCOME_WORDS
    stalled = value_of(m, pr.REQUEST_STALLED)
    m.st[words] += 1
    m.st[words + 1] += served
    m.st[words + 2] += stalled
    m.st[words + 3] += stalled if served else 0
    m.st[words + 4] += again


@hot
def request_page(m: at.Arrays, ac: AllocContext) -> int:
    """Make a request; kswapd wakes for it. Returns the page, or -1."""
    pfn = __alloc_frozen_pages(m, ac, reclaim_and_retry)
    take_wakes(m, ac.bits)
    return pfn


@hot
def own_page(m: at.Arrays, ac: AllocContext, pfn: int, number: int, offset: int) -> None:
    """Give a page to the object that asked."""
    describe(m, pfn, number, offset, class_of(ac.bits))
    add_piece(m, pfn, number)


@inner
def request_again(m: at.Arrays, ac: AllocContext, order: int, dropped: int) -> AllocContext:
    """Return another request of the same object, without some bits."""
    bits = ac.bits & ~dropped & BITS_MASK
    return prepare_alloc_pages(m, ac.cpu, order, ac.migratetype, ac.highest_type, bits)


@inner
def allocate(m: at.Arrays, ac: AllocContext, number: int, recorded: bool, again: bool) -> None:
    """Serve an object, whole or in base pages; `recorded`: the kernel did.

    `again`: the recording has no second attempt of its own at a huge page (S8.5).
    """
    m.st[word_at(m, pr.REQUEST_STALLED)] = 0
    pfn = request_page(m, ac)
    if pfn < 0:
        do_without(m, ac, number, recorded, again)
    else:
        accept_page(m, ac, pfn, number, recorded)


@inner
def accept_page(m: at.Arrays, ac: AllocContext, pfn: int, number: int, recorded: bool) -> None:
    """Give the page found to the object that asked."""
    count_outcome(m, ac, True, False)
    prefetch(m.folios, int(m.pages[pfn]["next"]))
    own_page(m, ac, pfn, number, 0)
    if is_thp(ac.order, ac.bits):
        m.st[word_at(m, pr.THP_FAULT_ALLOC)] += 1
    if not recorded:
        m.st[word_at(m, pr.SUCCEEDED_FAILURES)] += 1


@cold
def do_without(m: at.Arrays, ac: AllocContext, number: int, recorded: bool, again: bool) -> None:
    """Part of alloc_pages_mpol(): ask elsewhere, then for smaller pages, or fail (S8.5).

    A huge page's second attempt leaves out bits that only the first has. Whether the caller itself
    asked for NORETRY the first does not tell: of those that may reclaim directly, callers do in
    memory that is not madvised.
    """
    is_huge = is_thp(ac.order, ac.bits)
    if is_huge and ac.bits & at.GFP_THISNODE and ac.bits & at.GFP_DIRECT_RECLAIM and again:
        dropped = at.GFP_THISNODE
        if value_of(m, pr.THP_MADVISED):
            dropped |= pr.GFP_NORETRY
        ac = request_again(m, ac, ac.order, dropped)
        pfn = request_page(m, ac)
        if pfn >= 0:
            accept_page(m, ac, pfn, number, recorded)
            return
    local_bits = at.GFP_THISNODE | at.GFP_DIRECT_RECLAIM
    is_local = is_huge and ac.bits & local_bits == local_bits
    count_outcome(m, ac, False, is_local)
    if is_huge and not is_local:
        m.st[word_at(m, pr.THP_FAULT_FALLBACK)] += 1
    if recorded and is_opportunistic(m, ac.order, ac.bits):
        take_base_pages(m, ac, number)
    elif recorded:
        m.st[word_at(m, pr.DEMAND_FAILED)] += 1


@cold
def take_base_pages(m: at.Arrays, ac: AllocContext, number: int) -> None:
    """Put touched base pages in place of a refused buddy, from its end on."""
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


TICK, KSWAPD, KCOMPACTD, PROACTIVE = 0, 1, 2, 3


@inner
def earliest(m: at.Arrays) -> tuple[int, int, int]:
    """Return when, what and of which node is due first besides events."""
    due = m.st[at.NEXT_TICK]
    what = TICK
    which = -1
    for node in range(m.st[at.NR_NODES]):
        words = node_pressure_at(m, node)
        if m.st[words + pr.KSWAPD_DUE] < due:
            due, what, which = m.st[words + pr.KSWAPD_DUE], KSWAPD, node
        if m.st[words + pr.KCOMPACTD_DUE] < due:
            due, what, which = m.st[words + pr.KCOMPACTD_DUE], KCOMPACTD, node
        if m.st[words + pr.PROACTIVE_DUE] < due:
            due, what, which = m.st[words + pr.PROACTIVE_DUE], PROACTIVE, node
    return due, what, which


@inner
def take_event(
    m: at.Arrays, events: np.ndarray, leads: np.ndarray, position: int, now: int
) -> bool:
    """Take an event; returns whether it may have woken a daemon."""
    e = event_at(events, position)
    m.st[at.NOW] = now
    m.st[at.EVENT_CPU] = e.cpu
    asks = False
    if e.operation == at.FREE:
        # Take up a recorded free, of what is left of its pages.
        pages = 1 << e.order
        place = int(m.places[e.number])
        if e.bits & pr.FREED_BY_RECLAIM == pr.FREED_BY_RECLAIM:
            m.st[word_at(m, pr.DROPPED_FREES)] += pages
        elif place >= 0:
            m.st[at.COUNT_FREE] += 1
            offset, order = int(m.folios[place]["offset"]), int(m.pages[place]["order"])
            if offset == e.offset and order == e.order:
                remove_piece(m, place)
                leave_lists(m, place)
                __free_frozen_pages(m, m.st[at.EVENT_CPU], place, e.order, False)
            else:
                free_range(m, e.number, e.offset, e.order)
        elif place <= pr.LOST:
            m.st[word_at(m, pr.FREED_BY_MODEL)] += pages
            m.places[e.number] = pr.LOST
        elif place == pr.ABSORBED:
            m.st[word_at(m, pr.ABSORBED_FREES)] += pages
        else:
            m.st[at.COUNT_ORPHAN_FREE] += 1
    elif e.operation == at.SET_PCP_HIGH:
        set_pcp_high(m, e.zone, e.cpu, e.offset)
    elif e.operation == at.GROW:
        grow_zone(m, e.zone, e.offset, e.order)
    elif e.operation == at.DRAIN_ALL:
        drain_all_pages(m)
    elif e.operation == at.ALLOC or e.operation == at.HIDDEN_ALLOC:
        m.st[at.COUNT_HIDDEN if e.operation == at.HIDDEN_ALLOC else at.COUNT_ALLOC] += 1
        asks = not is_absorbed(m, leads, e.number)
    elif e.operation == at.USE:
        # Take up a file's use; return whether pages must be read (again).
        recorded = e.offset == 1
        place = int(m.places[e.number])
        if place >= 0:
            folio_mark_accessed(m, place)
            m.st[word_at(m, pr.SPARED_READS)] += recorded << e.order
            asks = False
        else:
            missing = place < pr.LOST or place == -1
            m.st[word_at(m, pr.ADDED_READS)] += (missing and not recorded) << e.order
            asks = missing
    elif e.operation == at.RECORDED_FAILURE:
        m.st[at.COUNT_RECORDED_FAILURE] += 1
        asks = (
            e.number >= 0
            and not is_absorbed(m, leads, e.number)
            and not is_needless_retry(m, leads, e)
        )
        m.st[word_at(m, pr.TRIED_FAILURES)] += asks
    if asks:
        place = int(m.places[e.number])
        recorded = e.operation != at.RECORDED_FAILURE
        ac = request_of(m, e, vma_thp_gfp_mask(m, e.order, e.bits))
        if recorded and is_needless_retry(m, leads, e):
            take_base_pages(m, ac, e.number)
        else:
            again = recorded or not e.bits & at.GFP_DIRECT_RECLAIM
            allocate(m, ac, e.number, recorded, again)
        if place < pr.LOST and m.places[e.number] >= 0:
            workingset_refault(m, int(m.places[e.number]), place)
    return asks


@entry
def advance_elastic(
    m: at.Arrays, events: np.ndarray, leads: np.ndarray, low: int, high: int, until_ns: int
) -> int:
    """Replay `events[low:high]`, then what is due before `until_ns`.

    Args:
        m: the machine; the log must be empty and LOG_ROWS 0. `places` has each object's newest
            piece, or why it has none.
        events: `layout.EVENT` records in time order.
        leads: int32, the failure that each object came in place of, -1 for none.
        low: first event.
        high: one past the last event.
        until_ns: time up to which ticks, kswapd and kcompactd go on; -1 for none beyond the events.

    Returns:
        The event to go on with: `high`, or less if the log ran full.
    """
    position = low
    due, what, node = earliest(m)
    while not log_is_nearly_full(m):
        now = int(events[position]["time_ns"]) if position < high else until_ns
        ticking = -1
        may_wake = True
        if due <= now and what == TICK:
            ticking = begin_tick(m)
        elif due <= now:
            if what == KSWAPD:
                step_kswapd(m, node)
            else:
                kcompactd(m, node, what == PROACTIVE)
        elif position >= high:
            break
        elif int(events[position]["operation"]) == at.TICK:
            m.st[at.NOW] = now
            ticking = int(events[position]["cpu"])
            m.st[at.EVENT_CPU] = ticking
            position += 1
        else:
            prefetch(m.folios, look_ahead(m, events, position, high))
            may_wake = take_event(m, events, leads, position, now)
            position += 1
        if ticking >= 0:
            refresh_cpu_vm_stats(m, ticking)
        if may_wake:
            due, what, node = earliest(m)
    return position
