"""The event loop of an elastic replay: exact at any split of the events (S10.4).

kswapd and kcompactd run between events, in model time; requests go through the whole slow path.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.alloc_context import AllocContext, prepare_alloc_pages
from pagealloc_model.allocator.core.buddy import grow_zone
from pagealloc_model.allocator.core.look_ahead import look_ahead
from pagealloc_model.allocator.core.pcp import set_pcp_high
from pagealloc_model.allocator.core.pcp_drain import drain_all_pages, refresh_cpu_vm_stats
from pagealloc_model.allocator.core.prefetch import prefetch
from pagealloc_model.allocator.core.replay import log_is_nearly_full
from pagealloc_model.allocator.pressure.elastic_events import (
    allocate,
    asked_bits,
    is_absorbed,
    is_needless_retry,
    take_free,
)
from pagealloc_model.allocator.pressure.kcompactd import look_proactively, step_kcompactd
from pagealloc_model.allocator.pressure.kswapd import step_kswapd
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, word_at
from pagealloc_model.allocator.pressure.refaults import is_read_again, workingset_refault
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
def asked(m: at.MachineArrays, events: np.ndarray, position: int) -> AllocContext:
    """No kernel function: return the request of an event, its bits as policy has them."""
    order = int(events[position]["order"])
    return prepare_alloc_pages(
        m,
        int(events[position]["cpu"]),
        order,
        int(events[position]["migratetype"]),
        int(events[position]["zone"]),
        asked_bits(m, order, int(events[position]["bits"])),
    )


@inner
def take_event(m: at.MachineArrays, events: np.ndarray, leads: np.ndarray, position: int) -> bool:
    """No kernel function: take an event; requests go through the whole slow path.

    Returns whether memory was asked for, which may have woken a daemon.
    """
    cpu = int(events[position]["cpu"])
    operation = int(events[position]["operation"])
    number = int(events[position]["object"])
    order = int(events[position]["order"])
    bits = int(events[position]["bits"])
    zone = int(events[position]["zone"])
    offset = int(events[position]["offset"])
    m.st[at.NOW] = int(events[position]["time_ns"])
    m.st[at.EVENT_CPU] = cpu
    asks = False
    if operation == at.FREE:
        take_free(m, number, offset, order, bits)
    elif operation == at.SET_PCP_HIGH:
        set_pcp_high(m, zone, cpu, offset)
    elif operation == at.GROW:
        grow_zone(m, zone, offset, order)
    elif operation == at.DRAIN_ALL:
        drain_all_pages(m)
    elif operation == at.ALLOC or operation == at.HIDDEN_ALLOC:
        m.st[at.COUNT_HIDDEN if operation == at.HIDDEN_ALLOC else at.COUNT_ALLOC] += 1
        asks = not is_absorbed(m, leads, number)
    elif operation == at.USE:
        asks = is_read_again(m, number, order, offset == 1)
    elif operation == at.RECORDED_FAILURE:
        m.st[at.COUNT_RECORDED_FAILURE] += 1
        asks = (
            number >= 0
            and not is_absorbed(m, leads, number)
            and not is_needless_retry(m, leads, number, order, bits)
        )
        m.st[word_at(m, pr.TRIED_FAILURES)] += asks
    if asks:
        place = int(m.places[number])
        allocate(m, asked(m, events, position), number, operation != at.RECORDED_FAILURE)
        if place < pr.LOST and m.places[number] >= 0:
            workingset_refault(m, int(m.places[number]), place)
    return asks


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
    due, what, node = earliest(m)
    while not log_is_nearly_full(m):
        now = int(events[position]["time_ns"]) if position < high else until_ns
        ticking = -1
        may_wake = True
        if due <= now and what == TICK:
            ticking = begin_tick(m)
        elif due <= now:
            run_background(m, what, node)
        elif position >= high:
            break
        elif int(events[position]["operation"]) == at.TICK:
            m.st[at.NOW] = now
            ticking = int(events[position]["cpu"])
            m.st[at.EVENT_CPU] = ticking
            position += 1
        else:
            prefetch(m.folios, look_ahead(m, events, position, high))
            may_wake = take_event(m, events, leads, position)
            position += 1
        if ticking >= 0:
            refresh_cpu_vm_stats(m, ticking)
        if may_wake:
            due, what, node = earliest(m)
    return position
