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
from pagealloc_model.allocator.core.pcp import drain_pages_zone, refresh_cpu_vm_stats
from pagealloc_model.allocator.core.replay import log_is_nearly_full
from pagealloc_model.allocator.core.request import __free_frozen_pages, get_page_from_freelist
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
def earliest(m: at.MachineArrays) -> tuple[int, int, int]:
    """No kernel function: find what is due first besides events.

    Returns when, what it is, and of which node.
    """
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
def begin_tick(m: at.MachineArrays) -> int:
    """No kernel function: set the next decay tick; returns the CPU of the one due (S4.8)."""
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
def run_background(m: at.MachineArrays, what: int, node: int) -> None:
    """No kernel function: take one step of a node's kswapd or kcompactd."""
    if what == KSWAPD:
        step_kswapd(m, node)
    elif what == KCOMPACTD:
        step_kcompactd(m, node)
    else:
        look_proactively(m, node)


@inner
def next_waiting(m: at.MachineArrays) -> int:
    """No kernel function: take the first page that waits to be freed; returns it, or -1."""
    head = word_at(m, pr.QUEUE_HEAD)
    pfn = m.st[head]
    if pfn >= 0:
        m.st[head] = int(m.pages[pfn]["next"])
        if m.st[head] < 0:
            m.st[word_at(m, pr.QUEUE_TAIL)] = -1
    return pfn


@inner
def release(m: at.MachineArrays) -> None:
    """No kernel function: free what waits, then drain the lists that are to be drained."""
    cpu = m.st[at.EVENT_CPU]
    pfn = next_waiting(m)
    while pfn >= 0:
        __free_frozen_pages(m, cpu, pfn, int(m.pages[pfn]["order"]))
        pfn = next_waiting(m)
    wanted = value_of(m, pr.UNRESERVES)
    if wanted > 0:
        m.st[word_at(m, pr.UNRESERVES)] = 0
        zonelist = value_of(m, pr.REQUEST_ZONELIST)
        migratetype = value_of(m, pr.REQUEST_TYPE)
        m.st[word_at(m, pr.UNRESERVED)] = unreserve_beyond(
            m, cpu, zonelist, migratetype, wanted - 1
        )
    drained = value_of(m, pr.DRAINED_ZONE)
    if drained != pr.NOT_DRAINED:
        m.st[word_at(m, pr.DRAINED_ZONE)] = pr.NOT_DRAINED
        drain_wanted(m, cpu, drained)


@inner
def drain_wanted(m: at.MachineArrays, acting_cpu: int, wanted: int) -> None:
    """No kernel function: drain the lists that `DRAINED_ZONE` names."""
    for cpu in range(m.st[at.NR_CPUS]):
        for zone in range(m.st[at.NR_ZONES]):
            if (
                wanted == pr.DRAINS_ALL_ZONES
                or wanted == -1 - zone
                or (wanted == zone + 1 and cpu == acting_cpu)
            ):
                drain_pages_zone(m, zone, cpu)


@inner
def take_event(m: at.MachineArrays, events: np.ndarray, leads: np.ndarray, position: int) -> None:
    """No kernel function: take up an event; a free waits, a request begins."""
    cpu = int(events[position]["cpu"])
    operation = int(events[position]["operation"])
    number = int(events[position]["object"])
    order = int(events[position]["order"])
    bits = int(events[position]["bits"])
    zone = int(events[position]["zone"])
    offset = int(events[position]["offset"])
    m.st[at.NOW] = int(events[position]["time_ns"])
    m.st[at.EVENT_CPU] = cpu
    if operation == at.FREE:
        take_free(m, number, offset, order, bits)
    elif operation == at.SET_PCP_HIGH:
        pcp = pcp_at(m, zone, cpu)
        m.st[pcp + at.PCP_HIGH] = clamp(
            offset, m.st[pcp + at.PCP_HIGH_MIN], m.st[pcp + at.PCP_HIGH_MAX]
        )
    elif operation == at.GROW:
        grow_zone(m, zone, offset, order)
    elif operation == at.DRAIN_ALL:
        m.st[word_at(m, pr.DRAINED_ZONE)] = pr.DRAINS_ALL_ZONES
    elif operation == at.ALLOC or operation == at.HIDDEN_ALLOC:
        m.st[at.COUNT_HIDDEN if operation == at.HIDDEN_ALLOC else at.COUNT_ALLOC] += 1
        if not is_absorbed(m, leads, number):
            migratetype = int(events[position]["migratetype"])
            begin_allocation(m, cpu, number, order, migratetype, zone, bits, True)
    elif operation == at.RECORDED_FAILURE:
        m.st[at.COUNT_RECORDED_FAILURE] += 1
        if (
            number >= 0
            and not is_absorbed(m, leads, number)
            and not is_needless_retry(m, leads, number, order, bits)
        ):
            m.st[word_at(m, pr.TRIED_FAILURES)] += 1
            migratetype = int(events[position]["migratetype"])
            begin_allocation(m, cpu, number, order, migratetype, zone, bits, False)


@entry
def advance_elastic(
    m: at.MachineArrays, events: np.ndarray, leads: np.ndarray, low: int, high: int, until_ns: int
) -> int:
    """No kernel function: replay `events[low:high]`, then what is due before `until_ns`.

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
    while True:
        release(m)
        stage = value_of(m, pr.STAGE)
        if takes_a_page(stage):
            base = m.st[at.PRESSURE_BASE]
            if m.st[base + pr.REQUEST_PFN] < 0:
                m.st[base + pr.REQUEST_PFN] = get_page_from_freelist(
                    m,
                    m.st[base + pr.REQUEST_ZONELIST],
                    m.st[base + pr.REQUEST_CPU],
                    m.st[base + pr.REQUEST_ORDER],
                    m.st[base + pr.REQUEST_TYPE],
                    m.st[base + pr.REQUEST_HIGHEST],
                    m.st[base + pr.REQUEST_FLAGS],
                )
            m.st[word_at(m, pr.STAGE)] = after_attempt(m, stage)
            take_wakes(m, value_of(m, pr.REQUEST_BITS))
        elif stage == DONE:
            finish_request(m)
        elif stage != IDLE:
            m.st[word_at(m, pr.STAGE)] = work(m, stage)
            take_wakes(m, value_of(m, pr.REQUEST_BITS))
        else:
            if log_is_nearly_full(m):
                return position
            now = int(events[position]["time_ns"]) if position < high else until_ns
            due, what, node = earliest(m)
            ticking = -1
            if due <= now and what == TICK:
                ticking = begin_tick(m)
            elif due <= now:
                run_background(m, what, node)
            elif position >= high:
                return position
            elif int(events[position]["operation"]) == at.TICK:
                m.st[at.NOW] = now
                ticking = int(events[position]["cpu"])
                m.st[at.EVENT_CPU] = ticking
                position += 1
            else:
                take_event(m, events, leads, position)
                position += 1
            if ticking >= 0:
                refresh_cpu_vm_stats(m, ticking)
