"""The event loop of an elastic replay: exact at any split of the events (S10.4).

kswapd and kcompactd run between events, in model time; requests go through the whole slow path.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.arithmetic import clamp
from pagealloc_model.allocator.core.growth import grow_zone
from pagealloc_model.allocator.core.highatomic import unreserve_beyond
from pagealloc_model.allocator.core.offsets import pcp_at
from pagealloc_model.allocator.core.pcp import drain_pageset, visit_lists
from pagealloc_model.allocator.core.replay import log_is_nearly_full
from pagealloc_model.allocator.core.request import free_pages, try_zones
from pagealloc_model.allocator.pressure.elastic_events import (
    begin_allocation,
    finish_request,
    is_absorbed,
    is_needless_retry,
    take_free,
)
from pagealloc_model.allocator.pressure.kcompactd import look_proactively, step_kcompactd
from pagealloc_model.allocator.pressure.kswapd import step_kswapd, take_wakes
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, value_of, word_at
from pagealloc_model.allocator.pressure.slow_path import (
    DONE,
    IDLE,
    after_attempt,
    takes_a_page,
    work,
)
from pagealloc_model.base.jit import entry, inner

TICK, KSWAPD, KCOMPACTD, PROACTIVE = 0, 1, 2, 3


@inner
def earliest(st: np.ndarray) -> tuple[int, int, int]:
    """When something besides events is due first, what it is, and of which node."""
    due = st[at.NEXT_TICK]
    what = TICK
    which = -1
    for node in range(st[at.NR_NODES]):
        words = node_pressure_at(st, node)
        if st[words + pr.KSWAPD_DUE] < due:
            due, what, which = st[words + pr.KSWAPD_DUE], KSWAPD, node
        if st[words + pr.KCOMPACTD_DUE] < due:
            due, what, which = st[words + pr.KCOMPACTD_DUE], KCOMPACTD, node
        if st[words + pr.PROACTIVE_DUE] < due:
            due, what, which = st[words + pr.PROACTIVE_DUE], PROACTIVE, node
    return due, what, which


@inner
def begin_tick(st: np.ndarray) -> int:
    """Set the next decay tick and return the CPU of the one that is due (S4.8)."""
    cpu = st[at.TICK_CPU]
    st[at.NOW] = st[at.NEXT_TICK]
    st[at.EVENT_CPU] = cpu
    following = cpu - 1
    if following < 0:
        following = st[at.NR_CPUS] - 1
        st[at.TICK_BASE] += st[at.TICK_PERIOD]
    st[at.TICK_CPU] = following
    st[at.NEXT_TICK] = st[at.TICK_BASE] - following * st[at.TICK_STAGGER]
    return cpu


@inner
def run_background(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    places: np.ndarray,
    what: int,
    node: int,
) -> None:
    """One step of a node's kswapd or kcompactd."""
    if what == KSWAPD:
        step_kswapd(pages, blocks, st, folios, places, node)
    elif what == KCOMPACTD:
        step_kcompactd(pages, blocks, st, folios, places, node)
    else:
        look_proactively(st, node)


@inner
def next_waiting(pages: np.ndarray, st: np.ndarray) -> int:
    """Take the first of the pages that wait to be freed; -1 if there is none."""
    head = word_at(st, pr.QUEUE_HEAD)
    pfn = st[head]
    if pfn >= 0:
        st[head] = int(pages[pfn]["next"])
        if st[head] < 0:
            st[word_at(st, pr.QUEUE_TAIL)] = -1
    return pfn


@inner
def release(pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, log: np.ndarray) -> None:
    """Free what waits for it, then drain the lists that are to be drained."""
    cpu = st[at.EVENT_CPU]
    pfn = next_waiting(pages, st)
    while pfn >= 0:
        free_pages(pages, blocks, st, log, cpu, pfn, int(pages[pfn]["order"]))
        pfn = next_waiting(pages, st)
    wanted = value_of(st, pr.UNRESERVES)
    if wanted > 0:
        st[word_at(st, pr.UNRESERVES)] = 0
        zonelist = value_of(st, pr.REQUEST_ZONELIST)
        migratetype = value_of(st, pr.REQUEST_TYPE)
        st[word_at(st, pr.UNRESERVED)] = unreserve_beyond(
            pages, blocks, st, log, cpu, zonelist, migratetype, wanted - 1
        )
    drained = value_of(st, pr.DRAINED_ZONE)
    if drained != pr.NOT_DRAINED:
        st[word_at(st, pr.DRAINED_ZONE)] = pr.NOT_DRAINED
        drain_wanted(pages, blocks, st, log, cpu, drained)


@inner
def drain_wanted(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    acting_cpu: int,
    wanted: int,
) -> None:
    """Drain the lists that `DRAINED_ZONE` names."""
    for cpu in range(st[at.NR_CPUS]):
        for zone in range(st[at.NR_ZONES]):
            if (
                wanted == pr.DRAINS_ALL_ZONES
                or wanted == -1 - zone
                or (wanted == zone + 1 and cpu == acting_cpu)
            ):
                drain_pageset(pages, blocks, st, log, zone, cpu)


@inner
def take_event(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    folios: np.ndarray,
    events: np.ndarray,
    places: np.ndarray,
    leads: np.ndarray,
    position: int,
) -> None:
    """Take up an event: a free waits, a request begins."""
    cpu = int(events[position]["cpu"])
    operation = int(events[position]["operation"])
    number = int(events[position]["object"])
    order = int(events[position]["order"])
    bits = int(events[position]["bits"])
    zone = int(events[position]["zone"])
    offset = int(events[position]["offset"])
    st[at.NOW] = int(events[position]["time_ns"])
    st[at.EVENT_CPU] = cpu
    if operation == at.FREE:
        take_free(pages, blocks, st, folios, places, number, offset, order, bits)
    elif operation == at.SET_PCP_HIGH:
        pcp = pcp_at(st, zone, cpu)
        st[pcp + at.PCP_HIGH] = clamp(offset, st[pcp + at.PCP_HIGH_MIN], st[pcp + at.PCP_HIGH_MAX])
    elif operation == at.GROW:
        grow_zone(pages, blocks, st, zone, offset, order)
    elif operation == at.DRAIN_ALL:
        st[word_at(st, pr.DRAINED_ZONE)] = pr.DRAINS_ALL_ZONES
    elif operation == at.ALLOC or operation == at.HIDDEN_ALLOC:
        st[at.COUNT_HIDDEN if operation == at.HIDDEN_ALLOC else at.COUNT_ALLOC] += 1
        if not is_absorbed(st, places, leads, number):
            migratetype = int(events[position]["migratetype"])
            begin_allocation(st, cpu, number, order, migratetype, zone, bits, True)
    elif operation == at.RECORDED_FAILURE:
        st[at.COUNT_RECORDED_FAILURE] += 1
        if (
            number >= 0
            and not is_absorbed(st, places, leads, number)
            and not is_needless_retry(st, leads, number, order, bits)
        ):
            st[word_at(st, pr.TRIED_FAILURES)] += 1
            migratetype = int(events[position]["migratetype"])
            begin_allocation(st, cpu, number, order, migratetype, zone, bits, False)


@entry
def advance_elastic(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    log: np.ndarray,
    folios: np.ndarray,
    events: np.ndarray,
    places: np.ndarray,
    leads: np.ndarray,
    low: int,
    high: int,
    until_ns: int,
) -> int:
    """Replay `events[low:high]`, then what is due before `until_ns` besides events.

    Args:
        pages: `layout.PAGE` records, one per page frame.
        blocks: `layout.BLOCK` records, one per pageblock.
        st: int64 state, laid out as in `layout` and `pressure_layout`.
        log: int64, shape (rows, LOG_COLUMNS); the caller empties it and sets LOG_ROWS to 0.
        folios: `pressure_layout.FOLIO` records, one per page frame.
        events: `layout.EVENT` records in time order.
        places: int32, each object's newest piece, or why it has none; written here.
        leads: int32, the failure that each object came in place of, -1 for none.
        low: first event.
        high: one past the last event.
        until_ns: time up to which ticks, kswapd and kcompactd go on; -1 for none beyond the events.

    Returns:
        The event to go on with: `high`, or less if the log ran full.
    """
    position = low
    while True:
        release(pages, blocks, st, log)
        stage = value_of(st, pr.STAGE)
        if takes_a_page(stage):
            base = st[at.PRESSURE_BASE]
            if st[base + pr.REQUEST_PFN] < 0:
                st[base + pr.REQUEST_PFN] = try_zones(
                    pages,
                    blocks,
                    st,
                    log,
                    st[base + pr.REQUEST_ZONELIST],
                    st[base + pr.REQUEST_CPU],
                    st[base + pr.REQUEST_ORDER],
                    st[base + pr.REQUEST_TYPE],
                    st[base + pr.REQUEST_HIGHEST],
                    st[base + pr.REQUEST_FLAGS],
                )
            st[word_at(st, pr.STAGE)] = after_attempt(st, blocks, stage)
            take_wakes(st, value_of(st, pr.REQUEST_BITS))
        elif stage == DONE:
            finish_request(pages, blocks, st, folios, places)
        elif stage != IDLE:
            st[word_at(st, pr.STAGE)] = work(pages, blocks, st, folios, places, stage)
            take_wakes(st, value_of(st, pr.REQUEST_BITS))
        else:
            if log_is_nearly_full(st, log):
                return position
            now = int(events[position]["time_ns"]) if position < high else until_ns
            due, what, node = earliest(st)
            ticking = -1
            if due <= now and what == TICK:
                ticking = begin_tick(st)
            elif due <= now:
                run_background(pages, blocks, st, folios, places, what, node)
            elif position >= high:
                return position
            elif int(events[position]["operation"]) == at.TICK:
                st[at.NOW] = now
                ticking = int(events[position]["cpu"])
                st[at.EVENT_CPU] = ticking
                position += 1
            else:
                take_event(pages, blocks, st, folios, events, places, leads, position)
                position += 1
            if ticking >= 0:
                visit_lists(pages, blocks, st, log, ticking)
