"""The event loop: exact at any split of the events, so that a replay can be resumed anywhere."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.arithmetic import clamp
from pagealloc_model.allocator.core.growth import grow_zone
from pagealloc_model.allocator.core.highatomic import unreserve
from pagealloc_model.allocator.core.offsets import cpu_at, pcp_at, zonelist_at
from pagealloc_model.allocator.core.pcp import drain_everything, drain_pageset, visit_lists
from pagealloc_model.allocator.core.reclaim import begin_reclaim
from pagealloc_model.allocator.core.request import allocate_object, free_object
from pagealloc_model.allocator.core.watermark import end_kswapd, start_kswapd
from pagealloc_model.allocator.ownership.ownership import disown_cpu
from pagealloc_model.base.jit import cold, entry, inner


@inner
def tick(pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, log: np.ndarray) -> None:
    """Run the decay tick that is due and set the next one: the last CPU's comes first (S4.8)."""
    cpu = st[at.TICK_CPU]
    st[at.NOW] = st[at.NEXT_TICK]
    st[at.EVENT_CPU] = cpu
    visit_lists(pages, blocks, st, log, cpu)
    cpu -= 1
    if cpu < 0:
        cpu = st[at.NR_CPUS] - 1
        st[at.TICK_BASE] += st[at.TICK_PERIOD]
    st[at.TICK_CPU] = cpu
    st[at.NEXT_TICK] = st[at.TICK_BASE] - cpu * st[at.TICK_STAGGER]


@inner
def take_cpu_offline(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, log: np.ndarray, dead: int
) -> None:
    """Return what a CPU's lists hold; it may lose the blocks that it owns (S4.9, S12.8)."""
    for zone in range(st[at.NR_ZONES]):
        drain_pageset(pages, blocks, st, log, zone, dead)
    disown_cpu(blocks, st, dead)
    st[cpu_at(st, dead) + at.CPU_IS_DEAD] = 1


@inner
def log_is_nearly_full(st: np.ndarray, log: np.ndarray) -> bool:
    """Whether the next event might not fit the log."""
    return st[at.LOG_ROWS] + at.LOG_MARGIN > log.shape[0]


@cold
def run_ticks(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, log: np.ndarray, until_ns: int
) -> None:
    """Run the decay ticks that are due, as long as the log has room."""
    while st[at.NEXT_TICK] <= until_ns and not log_is_nearly_full(st, log):
        tick(pages, blocks, st, log)


@cold
def take_rare_event(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    events: np.ndarray,
    position: int,
) -> None:
    """Take an event that is neither an allocation nor a free."""
    operation = int(events[position]["operation"])
    cpu = int(events[position]["cpu"])
    order = int(events[position]["order"])
    zone = int(events[position]["zone"])
    offset = int(events[position]["offset"])
    if operation == at.RECORDED_FAILURE:
        st[at.COUNT_RECORDED_FAILURE] += 1
        bits = int(events[position]["bits"])
        if bits & at.REQUEST_RECLAIMED:
            # Reclaim freed pages and the request failed all the same: it made room (S8.2).
            migratetype = int(events[position]["migratetype"])
            zonelist = zonelist_at(st, cpu, zone, bits)
            unreserve(pages, blocks, st, log, cpu, zonelist, migratetype)
            drain_everything(pages, blocks, st, log)
    elif operation == at.KSWAPD_START:
        end_kswapd(st, log, offset)
        start_kswapd(st, offset, zone)
    elif operation == at.KSWAPD_STOP:
        end_kswapd(st, log, offset)
    elif operation == at.SET_PCP_HIGH:
        pcp = pcp_at(st, zone, cpu)
        st[pcp + at.PCP_HIGH] = clamp(offset, st[pcp + at.PCP_HIGH_MIN], st[pcp + at.PCP_HIGH_MAX])
    elif operation == at.TICK:
        visit_lists(pages, blocks, st, log, cpu)
    elif operation == at.RECLAIM_BEGIN:
        migratetype = int(events[position]["migratetype"])
        begin_reclaim(st, cpu, order, migratetype, zone, int(events[position]["bits"]))
    elif operation == at.GROW:
        grow_zone(pages, blocks, st, zone, offset, order)
    elif operation == at.DRAIN_ALL:
        drain_everything(pages, blocks, st, log)
    elif operation == at.CPU_DIES:
        take_cpu_offline(pages, blocks, st, log, offset)
    elif operation == at.CPU_RETURNS:
        st[cpu_at(st, offset) + at.CPU_IS_DEAD] = 0


@entry
def advance(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    events: np.ndarray,
    object_pfn: np.ndarray,
    low: int,
    high: int,
    until_ns: int,
) -> int:
    """Replay `events[low:high]`, then the decay ticks due before `until_ns`.

    Args:
        pages: `layout.PAGE` records, one per page frame.
        blocks: `layout.BLOCK` records, one per pageblock.
        st: int64 state, laid out as in `layout`.
        log: int64, shape (rows, LOG_COLUMNS); the caller empties it and sets LOG_ROWS to 0.
        events: `layout.EVENT` records in time order.
        object_pfn: int32, where each object lives (see `layout.CHAINED`); written here.
        low: first event.
        high: one past the last event.
        until_ns: time up to which decay ticks are due; -1 for none beyond the events.

    Returns:
        The event to go on with: `high`, or less if the log ran full. Ticks may remain then too.
    """
    position = low
    while position < high:
        now = int(events[position]["time_ns"])
        if st[at.NEXT_TICK] <= now:
            run_ticks(pages, blocks, st, log, now)
        if log_is_nearly_full(st, log):
            return position
        st[at.NOW] = now
        cpu = int(events[position]["cpu"])
        st[at.EVENT_CPU] = cpu
        operation = int(events[position]["operation"])
        st[at.FREE_IS_BATCHED] = 0
        if operation == at.FREE and int(events[position]["bits"]) & at.FREED_IN_BATCH:
            st[at.FREE_IS_BATCHED] = 1
        else:
            st[cpu_at(st, cpu) + at.CPU_BATCH_SET] = 0
        number = int(events[position]["object"])
        order = int(events[position]["order"])
        if operation == at.FREE:
            place = int(object_pfn[number])
            if place == -1:
                st[at.COUNT_ORPHAN_FREE] += 1
            else:
                st[at.COUNT_FREE] += 1
                offset = int(events[position]["offset"])
                object_pfn[number] = free_object(pages, blocks, st, log, cpu, place, offset, order)
        elif operation == at.ALLOC or operation == at.HIDDEN_ALLOC:
            st[at.COUNT_HIDDEN if operation == at.HIDDEN_ALLOC else at.COUNT_ALLOC] += 1
            object_pfn[number] = allocate_object(
                pages,
                blocks,
                st,
                log,
                cpu,
                order,
                int(events[position]["migratetype"]),
                int(events[position]["zone"]),
                int(events[position]["bits"]),
            )
        else:
            take_rare_event(pages, blocks, st, log, events, position)
        position += 1
    if st[at.NEXT_TICK] <= until_ns:
        run_ticks(pages, blocks, st, log, until_ns)
    return position
